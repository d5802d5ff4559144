//! Operations on the tables of checks, as measured ones: transfers and snapshots of the bank, writes and
//! reads of the ledger, transactions over lists.
//!
//! A transfer is a transaction of statements with a round trip each, as an application sends it: its own row,
//! whose key makes one that is tried again recognisable, then both accounts in the order of their names.
//! MySQL cannot return what an update made of a row, so the payer's row is updated only if it can pay, and
//! asked why where nothing was updated.

use super::greeting::Hello;
use super::outcome;
use super::packet::{self, Reader, Report, put};
use crate::connection::sql::{Report as _, found};
use crate::connection::{Greeting, Input, Protocol, Received, Step};
use std::fmt::Write;
use std::sync::Arc;
use tipover_core::check;
use tipover_core::check::payload::payload;
use tipover_core::op::{Failure, Op, Outcome, Step as ListStep};
use tipover_core::workload::bank::{Bank, Name};

/// What of an operation is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A single statement, of the ledger or for all balances: without a lock, it is one snapshot at every
    /// level of isolation.
    Single,
    Begin,
    /// A step of a transaction over lists.
    List(usize),
    /// The transfer's own row.
    Note,
    /// The first or the second account.
    Move(usize),
    /// Whether the account that was not updated exists.
    Ask,
    Commit,
    /// The transaction is rolled back; what became of the transfer is known.
    Abort(Outcome),
}

/// Which part of a statement's answer comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Begin,
    /// How many descriptions of columns follow.
    Columns(u64),
    Rows,
}

/// One session's operations on the tables of checks.
pub struct Vault {
    hello: Hello,
    bank: Arc<Bank>,
    op: Op,
    stage: Stage,
    part: Part,
    /// Names and change of the accounts of the transfer at hand, in the order in which they are locked.
    moves: Option<[(Name, i64); 2]>,
    /// Rows that were found or brought.
    rows: u64,
    /// Where the row that was read begins and ends.
    row: Option<(usize, usize)>,
    /// What the operation at hand has read of balances or lists.
    brought: check::Returned,
}

/// Bytes as a literal.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("x'".to_string(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }) + "'"
}

impl Vault {
    /// Transfers between accounts of `bank`.
    pub fn new(hello: Hello, bank: Arc<Bank>) -> Self {
        Vault {
            hello,
            bank,
            op: Op::Flush { data_only: false },
            stage: Stage::Single,
            part: Part::Begin,
            moves: None,
            rows: 0,
            row: None,
            brought: check::Returned::Nothing,
        }
    }

    /// The statement that is due.
    fn statement(&self) -> Option<String> {
        let write = |key: u64, sequence: u64| {
            let (key, value) = (key as i64, hexadecimal(&payload(key, sequence)));
            format!(
                "INSERT INTO tipover_ledger (ledger_key, value) VALUES ({key}, {value}) \
                 ON DUPLICATE KEY UPDATE value = VALUES(value)"
            )
        };
        let named = |which: usize| {
            let (name, change) = &self.moves.as_ref().expect("a transfer is at hand")[which];
            (format!("bic = '{}' AND ban = '{}'", name.bic, name.ban), *change)
        };
        Some(match (self.stage, &self.op) {
            (Stage::Single, &Op::Insert { record }) => write(record, 1),
            (Stage::Single, &Op::Update { record, version, .. }) => write(record, version),
            (Stage::Single, &Op::Read { record, .. }) => {
                format!("SELECT value FROM tipover_ledger WHERE ledger_key = {}", record as i64)
            }
            (Stage::Single, Op::ReadBalances) => found::BALANCES.into(),
            (Stage::List(step), op) => match op.steps()[step] {
                ListStep::Append { key, value } => format!(
                    "INSERT INTO tipover_list (list_key, list) VALUES ({}, '{}') \
                     ON DUPLICATE KEY UPDATE list = CONCAT(list, ',', VALUES(list))",
                    key as i64, value as i64
                ),
                ListStep::Read { key } => {
                    format!("SELECT list FROM tipover_list WHERE list_key = {}", key as i64)
                }
            },
            (Stage::Begin, _) => "START TRANSACTION".into(),
            (Stage::Note, &Op::Transfer { id, from, to, amount }) => {
                let (payer, paid) = (self.bank.name(from), self.bank.name(to));
                let uuid = hexadecimal(&self.bank.uuid(id).to_be_bytes());
                format!(
                    "INSERT INTO tipover_transfer (transfer_id, src_bic, src_ban, dst_bic, dst_ban, amount, state, \
                     client_timestamp) VALUES ({uuid}, '{}', '{}', '{}', '{}', {amount}, 'complete', now())",
                    payer.bic, payer.ban, paid.bic, paid.ban
                )
            }
            (Stage::Move(which), _) => {
                let (named, change) = named(which);
                let can_pay = format!("balance + ({change}) >= 0");
                format!(
                    "UPDATE tipover_account SET balance = balance + ({change}) WHERE {named} AND {can_pay}"
                )
            }
            (Stage::Ask, _) => {
                let payer = usize::from(self.moves.as_ref().is_some_and(|moves| moves[0].1 > 0));
                format!("SELECT 1 FROM tipover_account WHERE {}", named(payer).0)
            }
            (Stage::Commit, _) => "COMMIT".into(),
            (Stage::Abort(_), _) => "ROLLBACK".into(),
            _ => return None,
        })
    }

    fn say(&mut self, stage: Stage, output: &mut Vec<u8>) -> bool {
        (self.stage, self.part, self.rows, self.row) = (stage, Part::Begin, 0, None);
        let Some(statement) = self.statement() else { return false };
        put(output, 0, |payload| {
            payload.push(0x03);
            payload.extend_from_slice(statement.as_bytes());
        });
        true
    }

    fn go_on(&mut self, stage: Stage, output: &mut Vec<u8>) -> Received {
        if let (Stage::List(step), check::Returned::Lists(lists)) = (stage, &mut self.brought) {
            // Empty until a row comes.
            lists.push(matches!(self.op.steps()[step], ListStep::Read { .. }).then(Vec::new));
        }
        self.say(stage, output);
        Received::More
    }

    /// The statement that was due is done.
    fn done(&mut self, output: &mut Vec<u8>) -> Received {
        let refused = |failure| Stage::Abort(Outcome::Refused(failure));
        match self.stage {
            Stage::Single => Received::Complete(match self.op {
                Op::Read { .. } if self.rows == 0 => Outcome::Refused(Failure::NotFound),
                _ => Outcome::Done,
            }),
            Stage::Begin => match &self.op {
                Op::Transaction { steps } if steps.is_empty() => self.go_on(Stage::Commit, output),
                Op::Transaction { .. } => self.go_on(Stage::List(0), output),
                _ => self.go_on(Stage::Note, output),
            },
            Stage::List(step) if step + 1 < self.op.steps().len() => {
                self.go_on(Stage::List(step + 1), output)
            }
            Stage::List(_) => self.go_on(Stage::Commit, output),
            Stage::Note => self.go_on(Stage::Move(0), output),
            Stage::Move(which) if self.rows == 0 => {
                let pays = self.moves.as_ref().is_some_and(|moves| moves[which].1 <= 0);
                self.go_on(if pays { Stage::Ask } else { refused(Failure::NotFound) }, output)
            }
            Stage::Move(0) => self.go_on(Stage::Move(1), output),
            Stage::Move(_) => self.go_on(Stage::Commit, output),
            Stage::Ask if self.rows == 0 => self.go_on(refused(Failure::NotFound), output),
            Stage::Ask => self.go_on(refused(Failure::Overdraft), output),
            Stage::Commit => Received::Complete(Outcome::Done),
            Stage::Abort(outcome) => Received::Complete(outcome),
        }
    }

    /// The server answered with an error.
    fn failed(&mut self, report: &Report, output: &mut Vec<u8>) -> Received {
        let last = outcome::is_stale(report) || report.ends_connection();
        let outcome = match self.stage {
            Stage::Single | Stage::Commit => report.measured_outcome(self.op.kind()),
            Stage::Abort(outcome) => return Received::Last(outcome),
            // Nothing stays of a transaction that nobody committed.
            _ => report.definite(),
        };
        match self.stage {
            _ if last => Received::Last(outcome),
            Stage::Single => Received::Complete(outcome),
            // A commit that failed may have left the transaction open; its locks go with the connection.
            Stage::Commit if matches!(outcome, Outcome::Unknown(_)) => Received::Last(outcome),
            _ => self.go_on(Stage::Abort(outcome), output),
        }
    }

    /// Understands one packet, whose payload is `payload` and begins at `begin` of the input.
    fn packet(&mut self, payload: &[u8], begin: usize, output: &mut Vec<u8>) -> Received {
        const LEAST_ROW_OF_8_BYTES: usize = 9;
        let first = payload.first().copied();
        if first == Some(0xff) {
            return self.failed(&Report::parse(payload), output);
        }
        match self.part {
            Part::Begin if first == Some(0x00) => {
                self.rows = Reader(&payload[1..]).length().unwrap_or(0);
                return self.done(output);
            }
            Part::Begin => {
                let mut reader = Reader(payload);
                let columns = reader.length().filter(|columns| *columns <= packet::MOST_COLUMNS);
                let Some(columns) = columns else {
                    let open = self.op.kind().writes() && self.may_have_happened();
                    let lost = if open { Outcome::Unknown } else { Outcome::Refused };
                    return Received::Last(lost(Failure::Corrupt));
                };
                let described = !self.hello.caches_metadata() || reader.byte() == Some(1);
                self.part = if described && columns > 0 { Part::Columns(columns) } else { Part::Rows };
            }
            Part::Columns(1) => self.part = Part::Rows,
            Part::Columns(left) => self.part = Part::Columns(left - 1),
            Part::Rows if first == Some(0xfe) && payload.len() < LEAST_ROW_OF_8_BYTES => {
                return self.done(output);
            }
            Part::Rows => {
                self.rows += 1;
                self.row = Some((begin, begin + payload.len()));
                self.bring(payload);
            }
        }
        Received::More
    }

    /// Takes a row of balances or lists.
    fn bring(&mut self, row: &[u8]) {
        let mut reader = Reader(row);
        let mut text = || reader.counted().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        match &mut self.brought {
            check::Returned::Balances(balances) => {
                let row = (0..3).map(|_| text()).collect();
                balances.push(found::account(&self.bank, &row));
            }
            check::Returned::Lists(lists) => {
                if let Some(Some(list)) = lists.last_mut() {
                    *list = found::list(&text().unwrap_or_default());
                }
            }
            _ => {}
        }
    }
}

impl Greeting for Vault {
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>) {
        self.hello.start(may_encrypt, output);
    }
    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step {
        self.hello.greet(input, output, encrypted)
    }
}

impl Protocol for Vault {
    fn encode(&mut self, op: &Op, output: &mut Vec<u8>) -> bool {
        self.op = op.clone();
        self.brought = match op {
            Op::ReadBalances => check::Returned::Balances(Vec::new()),
            Op::Transaction { .. } => check::Returned::Lists(Vec::new()),
            _ => check::Returned::Nothing,
        };
        let (from, to, amount) = match *op {
            Op::Transfer { from, to, amount, .. } => (from, to, amount),
            Op::Transaction { .. } => return self.say(Stage::Begin, output),
            _ => return self.say(Stage::Single, output),
        };
        let mut moves = [(self.bank.name(from), -amount), (self.bank.name(to), amount)];
        // Whoever locks in the same order as all others waits for them and never with them.
        if moves[1].0 < moves[0].0 {
            moves.swap(0, 1);
        }
        self.moves = Some(moves);
        self.say(Stage::Begin, output)
    }

    fn answer(&mut self, input: &mut Input, output: &mut Vec<u8>) -> Received {
        while let Some((_, range)) = packet::next(input) {
            let begin = input.position() + range.start;
            let before = self.stage;
            let payload = input.rest()[range.clone()].to_vec();
            let answer = self.packet(&payload, begin, output);
            input.consume(range.end);
            if answer != Received::More || self.stage != before {
                return answer;
            }
        }
        if !matches!(self.op, Op::Read { .. }) {
            input.forget();
        }
        Received::More
    }

    fn brought(&self) -> check::Returned {
        self.brought.clone()
    }

    fn may_have_happened(&self) -> bool {
        matches!(self.stage, Stage::Single | Stage::Commit)
    }

    fn fetched<'b>(&'b self, input: &'b Input, _: u16) -> Option<&'b [u8]> {
        let (begin, end) = self.row.filter(|_| matches!(self.op, Op::Read { .. }))?;
        Reader(&input.from(begin)[..end - begin]).counted()
    }

    fn fetched_records(&self) -> u32 {
        self.rows as u32
    }
}
