//! Operations on the tables of checks, as measured ones: transfers and snapshots of the bank, writes and
//! reads of the ledger, transactions over lists.
//!
//! A transfer is the transaction that old stroppy sent: its own row first, whose key makes one that is tried
//! again recognisable, then both accounts in the order of their names, and the commit. Each statement is a
//! round trip, as it is for an application; `BEGIN` travels with the first.

use super::greeting::Hello;
use super::message::{self, Report, put, put_counted, put_text};
use crate::connection::sql::{Report as _, Texts, found};
use crate::connection::{Greeting, Input, Protocol, Received, Step};
use std::sync::Arc;
use tipover_core::check;
use tipover_core::check::payload::payload;
use tipover_core::op::{Failure, Op, Outcome, Step as ListStep};
use tipover_core::workload::bank::Bank;

/// Which statement. Each is prepared when a connection needs it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statement {
    Write,
    Read,
    Note,
    Move,
}

impl Statement {
    fn name(self) -> &'static str {
        ["write", "read", "note", "move"][self as usize]
    }

    fn text(self) -> &'static str {
        match self {
            Statement::Write => {
                "INSERT INTO tipover_ledger (key, value) VALUES ($1, $2) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value"
            }
            Statement::Read => "SELECT value FROM tipover_ledger WHERE key = $1",
            Statement::Note => {
                "INSERT INTO tipover_transfer (transfer_id, src_bic, src_ban, dst_bic, dst_ban, amount, state, \
                 client_timestamp) VALUES ($1, $2, $3, $4, $5, $6, 'complete', now())"
            }
            Statement::Move => {
                "UPDATE tipover_account SET balance = balance + $3 WHERE bic = $1 AND ban = $2 RETURNING balance"
            }
        }
    }
}

/// What of an operation is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A single statement, of the ledger or for all balances: without a lock, it is one snapshot at every
    /// level of isolation.
    Single,
    /// `BEGIN` of a transaction over lists.
    Open,
    /// A step of it.
    List(usize),
    /// `BEGIN`, and the transfer's own row.
    Note,
    /// The first or the second account.
    Move(usize),
    Commit,
    /// The transaction is rolled back; what became of the transfer is known.
    Abort(Outcome),
}

/// One session's operations on the tables of checks.
pub struct Vault {
    hello: Hello,
    bank: Arc<Bank>,
    /// `BEGIN` with the level of isolation.
    begin: String,
    prepared: [bool; 4],
    op: Op,
    stage: Stage,
    /// Names and change of the accounts of the transfer at hand, in the order in which they are locked.
    moves: [(String, String, i64); 2],
    /// How often the server will say that it is ready.
    awaited: u8,
    /// How many statements without a name are prepared before that.
    unnamed: u8,
    /// The statement whose preparation was not confirmed yet.
    unconfirmed: Option<Statement>,
    rows: u64,
    balance: Option<i64>,
    /// Where the body of the row that was read begins and ends.
    row: Option<(usize, usize)>,
    failure: Option<Report>,
    rolled_back: bool,
    unreplicated: bool,
    /// What the operation at hand has read of balances or lists.
    brought: check::Returned,
}

impl Vault {
    /// Transfers between accounts of `bank`, in transactions of this level of isolation.
    pub fn new(hello: Hello, bank: Arc<Bank>, isolation: &str) -> Self {
        Vault {
            hello,
            bank,
            begin: format!("BEGIN ISOLATION LEVEL {isolation}"),
            prepared: [false; 4],
            op: Op::Flush { data_only: false },
            stage: Stage::Single,
            moves: Default::default(),
            awaited: 0,
            unnamed: 0,
            unconfirmed: None,
            rows: 0,
            balance: None,
            row: None,
            failure: None,
            rolled_back: false,
            unreplicated: false,
            brought: check::Returned::Nothing,
        }
    }

    /// Executes a prepared statement; it is the end of what is sent. Results come in binary.
    fn run(&mut self, statement: Statement, parameters: &[&[u8]], output: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.prepared[statement as usize], true) {
            self.unconfirmed = Some(statement);
            put(output, b'P', |body| {
                put_text(body, statement.name());
                put_text(body, statement.text());
                body.extend_from_slice(&[0; 2]);
            });
        }
        put(output, b'B', |body| {
            body.push(0);
            put_text(body, statement.name());
            // The payload of a write is bytes; everything else goes as text, and only bytes come in binary.
            let is_bytes = |at: usize| u16::from(statement == Statement::Write && at == 1);
            body.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
            (0..parameters.len()).for_each(|at| body.extend_from_slice(&is_bytes(at).to_be_bytes()));
            body.extend_from_slice(&(parameters.len() as u16).to_be_bytes());
            parameters.iter().for_each(|parameter| put_counted(body, parameter));
            body.extend_from_slice(&1u16.to_be_bytes());
            body.extend_from_slice(&u16::from(statement == Statement::Read).to_be_bytes());
        });
        // Execute without a limit on rows, and Sync.
        output.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
        self.awaited += 1;
    }

    fn say(&mut self, statement: &str, output: &mut Vec<u8>) {
        put(output, b'Q', |body| put_text(body, statement));
        self.awaited += 1;
    }

    fn write(&mut self, key: u64, key_sequence: u64, output: &mut Vec<u8>) {
        let number = (key as i64).to_string();
        self.run(Statement::Write, &[number.as_bytes(), &payload(key, key_sequence)], output);
    }

    fn note(&mut self, id: u64, from: u64, to: u64, amount: i64, output: &mut Vec<u8>) {
        let (payer, paid) = (self.bank.name(from), self.bank.name(to));
        let uuid = format!("{:032x}", self.bank.uuid(id));
        // Before the same Sync as the row, so that without a transaction there is no row either.
        put(output, b'P', |body| {
            body.push(0);
            put_text(body, &self.begin);
            body.extend_from_slice(&[0; 2]);
        });
        put(output, b'B', |body| body.extend_from_slice(&[0; 8]));
        output.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
        self.unnamed = 1;
        let texts = [&uuid, &payer.bic, &payer.ban, &paid.bic, &paid.ban, &amount.to_string()];
        self.run(Statement::Note, &texts.map(String::as_bytes), output);
        // Whoever locks in the same order as all others waits for them and never with them.
        let backwards = paid < payer;
        self.moves = [(payer.bic, payer.ban, -amount), (paid.bic, paid.ban, amount)];
        if backwards {
            self.moves.swap(0, 1);
        }
    }

    fn go_on(&mut self, stage: Stage, output: &mut Vec<u8>) -> Received {
        (self.stage, self.rows, self.balance) = (stage, 0, None);
        match stage {
            Stage::Move(which) => {
                let (bic, ban, change) = std::mem::take(&mut self.moves[which]);
                let change = change.to_string();
                self.run(Statement::Move, &[bic.as_bytes(), ban.as_bytes(), change.as_bytes()], output);
            }
            Stage::List(step) => {
                let text = match self.op.steps()[step] {
                    ListStep::Append { key, value } => format!(
                        "INSERT INTO tipover_list (key, list) VALUES ({}, ARRAY[{}]::bigint[]) \
                         ON CONFLICT (key) DO UPDATE SET list = tipover_list.list || excluded.list",
                        key as i64, value as i64
                    ),
                    ListStep::Read { key } => {
                        let key = key as i64;
                        format!("SELECT array_to_string(list, ',') FROM tipover_list WHERE key = {key}")
                    }
                };
                self.answer_of_step(step);
                self.say(&text, output);
            }
            Stage::Commit => self.say("COMMIT", output),
            _ => self.say("ROLLBACK", output),
        }
        Received::More
    }

    /// A list that is read is empty until a row comes.
    fn answer_of_step(&mut self, step: usize) {
        let reads = matches!(self.op.steps()[step], ListStep::Read { .. });
        if let check::Returned::Lists(lists) = &mut self.brought {
            lists.push(reads.then(Vec::new));
        }
    }

    /// Takes a row of balances or lists.
    fn bring(&mut self, row: &Texts) {
        match &mut self.brought {
            check::Returned::Balances(balances) => balances.push(found::account(&self.bank, row)),
            check::Returned::Lists(lists) => {
                if let Some(Some(list)) = lists.last_mut() {
                    *list = found::list(row[0].as_deref().unwrap_or_default());
                }
            }
            _ => {}
        }
    }

    /// Everything that was sent was answered.
    fn answered(&mut self, output: &mut Vec<u8>) -> Received {
        let failure = self.failure.take();
        match (self.stage, failure) {
            (Stage::Single, Some(report)) => Received::Complete(report.measured_outcome(self.op.kind())),
            (Stage::Single, None) => Received::Complete(match self.op {
                Op::Read { .. } if self.rows == 0 => Outcome::Refused(Failure::NotFound),
                _ => self.done(),
            }),
            (Stage::Abort(outcome), None) => Received::Complete(outcome),
            (Stage::Abort(outcome), Some(_)) => Received::Last(outcome),
            (Stage::Commit, Some(report)) => Received::Complete(report.measured_outcome(self.op.kind())),
            // The server answers the commit of a transaction that had failed by rolling it back.
            (Stage::Commit, None) if self.rolled_back => Received::Complete(Outcome::Refused(Failure::Other)),
            (Stage::Commit, None) => Received::Complete(self.done()),
            (_, Some(report)) => self.go_on(Stage::Abort(report.definite()), output),
            (Stage::Open, None) if self.op.steps().is_empty() => self.go_on(Stage::Commit, output),
            (Stage::Open, None) => self.go_on(Stage::List(0), output),
            (Stage::List(step), None) if step + 1 < self.op.steps().len() => {
                self.go_on(Stage::List(step + 1), output)
            }
            (Stage::List(_), None) => self.go_on(Stage::Commit, output),
            (Stage::Note, None) => self.go_on(Stage::Move(0), output),
            (Stage::Move(_), None) if self.rows == 0 => {
                self.go_on(Stage::Abort(Outcome::Refused(Failure::NotFound)), output)
            }
            (Stage::Move(_), None) if self.balance.is_none_or(|balance| balance < 0) => {
                self.go_on(Stage::Abort(Outcome::Refused(Failure::Overdraft)), output)
            }
            (Stage::Move(0), None) => self.go_on(Stage::Move(1), output),
            (Stage::Move(_), None) => self.go_on(Stage::Commit, output),
        }
    }

    fn done(&self) -> Outcome {
        let writes = self.op.kind().writes();
        if self.unreplicated && writes { Outcome::Unknown(Failure::Unreplicated) } else { Outcome::Done }
    }

    /// The outcome of an error after which there is no connection.
    fn last(&self, report: &Report) -> Outcome {
        match self.stage {
            Stage::Single | Stage::Commit => report.measured_outcome(self.op.kind()),
            Stage::Abort(outcome) => outcome,
            // Nothing stays of a transaction that nobody committed.
            Stage::Open | Stage::List(_) | Stage::Note | Stage::Move(_) => report.definite(),
        }
    }
}

impl Greeting for Vault {
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>) {
        self.prepared = [false; 4];
        self.hello.start(may_encrypt, output);
    }
    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step {
        self.hello.greet(input, output, encrypted)
    }
}

impl Protocol for Vault {
    fn encode(&mut self, op: &Op, output: &mut Vec<u8>) -> bool {
        (self.op, self.stage, self.awaited, self.rows, self.row) = (op.clone(), Stage::Single, 0, 0, None);
        (self.failure, self.unconfirmed, self.unnamed, self.balance) = (None, None, 0, None);
        (self.unreplicated, self.rolled_back) = (false, false);
        self.brought = check::Returned::Nothing;
        match *op {
            Op::Insert { record } => self.write(record, 1, output),
            Op::Update { record, version, .. } => self.write(record, version, output),
            Op::Read { record, .. } => {
                let number = (record as i64).to_string();
                self.run(Statement::Read, &[number.as_bytes()], output);
            }
            Op::Transfer { id, from, to, amount } => {
                self.stage = Stage::Note;
                self.note(id, from, to, amount, output);
            }
            Op::ReadBalances => {
                self.brought = check::Returned::Balances(Vec::new());
                self.say(found::BALANCES, output);
            }
            Op::Transaction { .. } => {
                self.brought = check::Returned::Lists(Vec::new());
                self.stage = Stage::Open;
                let begin = std::mem::take(&mut self.begin);
                self.say(&begin, output);
                self.begin = begin;
            }
            _ => return false,
        }
        true
    }

    fn answer(&mut self, input: &mut Input, output: &mut Vec<u8>) -> Received {
        while let Some((letter, range)) = message::next(input) {
            let (begin, end) = (input.position() + range.start, input.position() + range.end);
            let body = &input.rest()[range.clone()];
            match letter {
                b'D' => {
                    self.rows += 1;
                    self.row = Some((begin, end));
                    if self.brought != check::Returned::Nothing {
                        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
                        let mut row: Texts = message::columns(body).map(|value| value.map(text)).collect();
                        row.resize(3, None);
                        self.bring(&row);
                        input.consume(range.end);
                        continue;
                    }
                    let first = message::columns(body).next().flatten();
                    self.balance = first.and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
                }
                b'C' => self.rolled_back |= body == b"ROLLBACK\0",
                b'N' => self.unreplicated |= Report::parse(body).stopped_waiting_for_standbys(),
                b'E' => {
                    let report = Report::parse(body);
                    if let Some(statement) = self.unconfirmed.take() {
                        self.prepared[statement as usize] = false;
                    }
                    // A plan or name that is of no more use comes back only with a new connection.
                    let stale = matches!(report.code.as_str(), "26000" | "0A000" | "42P05");
                    if report.ends_connection() || stale {
                        return Received::Last(self.last(&report));
                    }
                    self.failure.get_or_insert(report);
                }
                b'Z' => {
                    input.consume(range.end);
                    self.awaited = self.awaited.saturating_sub(1);
                    if self.awaited > 0 {
                        continue;
                    }
                    match self.answered(output) {
                        Received::More => {
                            input.forget();
                            return Received::More;
                        }
                        answer => return answer,
                    }
                }
                b'1' if self.unnamed > 0 => self.unnamed -= 1,
                b'1' => self.unconfirmed = None,
                b'2' | b'T' | b'S' | b'A' => {}
                _ => {
                    let open = self.op.kind().writes() && self.may_have_happened();
                    let lost = if open { Outcome::Unknown } else { Outcome::Refused };
                    return Received::Last(lost(Failure::Corrupt));
                }
            }
            input.consume(range.end);
        }
        if !matches!(self.op, Op::Read { .. }) {
            input.forget();
        }
        Received::More
    }

    fn may_have_happened(&self) -> bool {
        matches!(self.stage, Stage::Single | Stage::Commit)
    }

    fn fetched<'b>(&'b self, input: &'b Input, _: u16) -> Option<&'b [u8]> {
        let (begin, end) = self.row.filter(|_| matches!(self.op, Op::Read { .. }))?;
        message::columns(&input.from(begin)[..end - begin]).next()?
    }

    fn fetched_records(&self) -> u32 {
        self.rows as u32
    }

    fn brought(&self) -> check::Returned {
        self.brought.clone()
    }

    fn cancellation(&self) -> Option<Vec<u8>> {
        self.hello.cancellation()
    }
}
