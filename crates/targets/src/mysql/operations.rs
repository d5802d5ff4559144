//! The measured operations: statements prepared at their first use, then one round trip each.

use super::greeting::Hello;
use super::outcome;
use super::packet::{self, Reader, Report, put, put_counted};
use super::table;
use crate::connection::sql::{Report as _, Table};
use crate::connection::{Greeting, Input, Protocol, Received, Row, Step};
use std::sync::Arc;
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::workload::Dataset;

/// One session's operations.
pub struct Operations<'a> {
    hello: Hello,
    dataset: &'a Dataset,
    values: Row<'a>,
    table: Arc<Table>,
    /// The server's numbers of the statements that this connection knows.
    prepared: Vec<Option<u32>>,
    op: Op,
    phase: Phase,
    rows: u64,
    /// Where the row that was read begins and ends.
    row: Option<(usize, usize)>,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The number of a statement.
    Prepared(usize),
    /// How many descriptions of its parameters and columns follow.
    Described(usize, u64),
    /// The begin of a result.
    Result,
    /// How many descriptions of its columns follow.
    Columns(u64),
    /// Rows, and the end.
    Rows,
}

const INSERT: usize = 0;
const READ: usize = 1;
const UPDATE: usize = 2;
const SCAN: usize = 3;

/// Statements have numbers: first those without fields, then three for each choice of fields.
fn number(verb: usize, fields: Fields) -> usize {
    let choice = match fields {
        Fields::All => 0,
        Fields::EachByName => 1,
        Fields::One(field) => 2 + usize::from(field),
    };
    verb + 3 * choice
}

const STRING: [u8; 2] = [0xfd, 0];
const LONG: [u8; 2] = [0x08, 0];

impl<'a> Operations<'a> {
    /// On `table`, whose records are those of `dataset`.
    pub fn new(hello: Hello, dataset: &'a Dataset, table: Arc<Table>) -> Self {
        Operations {
            hello,
            dataset,
            values: Row::of(dataset),
            table,
            prepared: vec![None; number(SCAN, Fields::One(Row::choices(dataset))) + 1],
            op: Op::Flush { data_only: false },
            phase: Phase::Result,
            rows: 0,
            row: None,
        }
    }

    /// The statement of the operation at hand; `None` if it has no prepared one.
    fn statement(&self) -> Option<usize> {
        Some(match self.op {
            Op::Read { fields, .. } => number(READ, fields),
            Op::Update { fields, .. } => number(UPDATE, fields),
            Op::Insert { .. } => INSERT,
            Op::Scan { fields, .. } => number(SCAN, fields),
            _ => return None,
        })
    }

    fn prepare(&mut self, statement: usize, output: &mut Vec<u8>) {
        let text = match self.op {
            Op::Read { fields, .. } => self.table.read(fields),
            Op::Update { fields, .. } => self.table.update(fields),
            Op::Scan { fields, .. } => self.table.scan(fields),
            _ => self.table.insert(),
        };
        self.phase = Phase::Prepared(statement);
        put(output, 0, |payload| {
            payload.push(0x16);
            payload.extend_from_slice(text.as_bytes());
        });
    }

    fn execute(&mut self, id: u32, output: &mut Vec<u8>) {
        self.phase = Phase::Result;
        let (columns, row) = (Row::columns(self.dataset), &mut self.values);
        match self.op {
            Op::Read { record, .. } => {
                put_execute(output, id, &[STRING], |payload| put_counted(payload, row.key(record)));
            }
            Op::Scan { first, count, .. } => put_execute(output, id, &[STRING, LONG], |payload| {
                put_counted(payload, row.key(first));
                payload.extend_from_slice(&u64::from(count).to_le_bytes());
            }),
            Op::Update { record, fields, version } => {
                let changes = row.changes(fields);
                put_execute(output, id, &vec![STRING; changes.len() + 1], |payload| {
                    for change in changes {
                        put_counted(payload, row.change(record, fields, change, version));
                    }
                    put_counted(payload, row.key(record));
                });
            }
            Op::Insert { record } => {
                let count = usize::from(columns) + 1;
                put_execute(output, id, &vec![STRING; count], |payload| {
                    put_counted(payload, row.key(record));
                    for column in 0..columns {
                        put_counted(payload, row.column(record, column));
                    }
                });
            }
            _ => unreachable!("it has no prepared statement"),
        }
    }

    /// The end of a result.
    fn conclude(&self) -> Outcome {
        if self.rows == 0 { Outcome::Refused(Failure::NotFound) } else { Outcome::Done }
    }

    /// Understands one packet, whose payload is `payload` and begins at `begin` of the input.
    fn packet(&mut self, payload: &[u8], begin: usize, output: &mut Vec<u8>) -> Option<Received> {
        let first = payload.first().copied();
        if first == Some(0xff) {
            let report = Report::parse(payload);
            let outcome = report.measured_outcome(self.op.kind());
            let last = outcome::is_stale(&report) || report.ends_connection();
            return Some(if last { Received::Last(outcome) } else { Received::Complete(outcome) });
        }
        let parsed = match self.phase {
            Phase::Prepared(statement) => self.prepared(payload, statement),
            Phase::Described(statement, left) => {
                self.phase = Phase::Described(statement, left - 1);
                Some(())
            }
            Phase::Result if first == Some(0x00) => {
                // An OK: no rows, but a count of those that were found.
                let found = Reader(&payload[1..]).length();
                self.rows = found.unwrap_or(0);
                return Some(Received::Complete(self.conclude()));
            }
            Phase::Result => self.result(payload),
            Phase::Columns(left) => {
                self.phase = if left == 1 { Phase::Rows } else { Phase::Columns(left - 1) };
                Some(())
            }
            Phase::Rows if first == Some(0x00) => {
                self.rows += 1;
                self.row = Some((begin, begin + payload.len()));
                Some(())
            }
            Phase::Rows if first == Some(0xfe) => return Some(Received::Complete(self.conclude())),
            Phase::Rows => None,
        };
        if parsed.is_none() {
            let lost = if self.op.kind().writes() { Outcome::Unknown } else { Outcome::Refused };
            return Some(Received::Last(lost(Failure::Corrupt)));
        }
        if let Phase::Described(statement, 0) = self.phase
            && let Some(id) = self.prepared[statement]
        {
            self.execute(id, output);
        }
        None
    }

    fn prepared(&mut self, payload: &[u8], statement: usize) -> Option<()> {
        let mut reader = Reader(payload.get(1..)?);
        let id = reader.number(4)? as u32;
        let descriptions = reader.number(2)? + reader.number(2)?;
        self.prepared[statement] = Some(id);
        self.phase = Phase::Described(statement, descriptions);
        Some(())
    }

    fn result(&mut self, payload: &[u8]) -> Option<()> {
        let mut reader = Reader(payload);
        let columns = reader.length().filter(|columns| *columns <= packet::MOST_COLUMNS)?;
        let described = !self.hello.caches_metadata() || reader.byte()? == 1;
        self.phase = if described && columns > 0 { Phase::Columns(columns) } else { Phase::Rows };
        Some(())
    }
}

/// Writes the execution of statement `id` with parameters of these types.
fn put_execute(output: &mut Vec<u8>, id: u32, types: &[[u8; 2]], values: impl FnOnce(&mut Vec<u8>)) {
    put(output, 0, |payload| {
        payload.push(0x17);
        payload.extend_from_slice(&id.to_le_bytes());
        // No cursor, once.
        payload.extend_from_slice(&[0, 1, 0, 0, 0]);
        // None of them is NULL; their types follow.
        payload.extend(std::iter::repeat_n(0, types.len().div_ceil(8)));
        payload.push(1);
        payload.extend_from_slice(types.as_flattened());
        values(payload);
    });
}

impl Greeting for Operations<'_> {
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>) {
        self.prepared.fill(None);
        self.hello.start(may_encrypt, output);
    }
    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step {
        self.hello.greet(input, output, encrypted)
    }
}

impl Protocol for Operations<'_> {
    fn encode(&mut self, op: &Op, output: &mut Vec<u8>) -> bool {
        (self.op, self.rows, self.row) = (op.clone(), 0, None);
        if let Op::InsertMany { first, count } = *op {
            // One statement: as many parameters as that needs, no server prepares.
            self.phase = Phase::Result;
            let (table, dataset) = (self.table.clone(), self.dataset);
            let plain = self.hello.backslash_is_a_letter();
            put(output, 0, |payload| {
                payload.push(0x03);
                table::put_insert(
                    &table,
                    dataset,
                    first..first + u64::from(count),
                    usize::MAX,
                    plain,
                    payload,
                );
            });
            return true;
        }
        let Some(statement) = self.statement() else { return false };
        match self.prepared[statement] {
            Some(id) => self.execute(id, output),
            None => self.prepare(statement, output),
        }
        true
    }

    fn answer(&mut self, input: &mut Input, output: &mut Vec<u8>) -> Received {
        while let Some((_, range)) = packet::next(input) {
            let begin = input.position() + range.start;
            let answer = self.packet(&input.rest()[range.clone()], begin, output);
            input.consume(range.end);
            if let Some(answer) = answer {
                return answer;
            }
        }
        if self.op.kind() != OpKind::Read {
            input.forget();
        }
        Received::More
    }

    fn fetched<'b>(&'b self, input: &'b Input, field: u16) -> Option<&'b [u8]> {
        let Op::Read { fields, .. } = self.op else { return None };
        let (begin, end) = self.row?;
        let (column, columns) = match fields {
            Fields::All => (self.table.position(field)?, self.table.width()),
            Fields::EachByName => (usize::from(field), usize::from(self.dataset.fields)),
            Fields::One(one) if one == field => (0, 1),
            Fields::One(_) => return None,
        };
        // After a zero, a bit for each column that is NULL, of which the first two mean nothing.
        let row = &input.from(begin)[..end - begin];
        let nulls = row.get(1..)?.get(..(columns + 9) / 8)?;
        let is_null = |column: usize| nulls[(column + 2) / 8] >> ((column + 2) % 8) & 1 == 1;
        let mut reader = Reader(&row[1 + nulls.len()..]);
        for _ in (0..column).filter(|before| !is_null(*before)) {
            reader.counted()?;
        }
        if is_null(column) { None } else { reader.counted() }
    }

    fn fetched_records(&self) -> u32 {
        self.rows as u32
    }
}
