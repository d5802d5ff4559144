//! The measured operations: prepared statements, one round trip each.

use super::greeting::Hello;
use super::message::{self, Report, put, put_counted, put_counting, put_text};
use super::table;
use crate::connection::sql::{Report as _, Table};
use crate::connection::{Greeting, Input, Protocol, Received, Row, Step};
use std::io::Write;
use std::sync::Arc;
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::workload::Dataset;

/// One session's operations.
pub struct Operations<'a> {
    hello: Hello,
    dataset: &'a Dataset,
    row: Row<'a>,
    table: Arc<Table>,
    /// The statements that this connection knows.
    prepared: Vec<bool>,
    answer: Expected,
}

/// What is awaited, and what came of it.
struct Expected {
    kind: OpKind,
    fields: Fields,
    /// The statement whose preparation was not confirmed yet.
    unconfirmed: Option<usize>,
    rows: u64,
    /// Where the body of the row that was read begins and ends.
    row: Option<(usize, usize)>,
    failure: Option<Report>,
    unreplicated: bool,
}

/// Statements have numbers: first those without fields, then three for each choice of fields.
const INSERT: usize = 0;
const INSERT_MANY: usize = 1;
const READ: usize = 2;
const UPDATE: usize = 3;
const SCAN: usize = 4;

fn number(verb: usize, fields: Fields) -> usize {
    let choice = match fields {
        Fields::All => 0,
        Fields::EachByName => 1,
        Fields::One(field) => 2 + usize::from(field),
    };
    verb + 3 * choice
}

impl<'a> Operations<'a> {
    /// On `table`, whose records are those of `dataset`.
    pub fn new(hello: Hello, dataset: &'a Dataset, table: Arc<Table>) -> Self {
        let statements = number(SCAN, Fields::One(Row::choices(dataset))) + 1;
        Operations {
            hello,
            dataset,
            row: Row::of(dataset),
            table,
            prepared: vec![false; statements],
            answer: Expected {
                kind: OpKind::Flush,
                fields: Fields::All,
                unconfirmed: None,
                rows: 0,
                row: None,
                failure: None,
                unreplicated: false,
            },
        }
    }

    /// Names the statement, and prepares it in the same round trip if this connection does not know it yet.
    fn use_statement(&mut self, statement: usize, output: &mut Vec<u8>, text: impl FnOnce(&Table) -> String) {
        if std::mem::replace(&mut self.prepared[statement], true) {
            return;
        }
        self.answer.unconfirmed = Some(statement);
        let text = text(&self.table);
        put(output, b'P', |body| {
            put_name(body, statement);
            put_text(body, &text);
            // The server finds out the types of parameters.
            body.extend_from_slice(&[0; 2]);
        });
    }

    fn read(&mut self, record: u64, fields: Fields, output: &mut Vec<u8>) {
        let statement = number(READ, fields);
        self.use_statement(statement, output, |table| table.read(fields));
        bind(output, statement, &[], 1, |body| put_counted(body, self.row.key(record)));
        run(output);
    }

    fn update(&mut self, record: u64, fields: Fields, version: u64, output: &mut Vec<u8>) {
        let statement = number(UPDATE, fields);
        self.use_statement(statement, output, |table| table.update(fields));
        let changes = self.row.changes(fields);
        bind(output, statement, &[], 1 + changes.len(), |body| {
            put_counted(body, self.row.key(record));
            for change in changes {
                put_counted(body, self.row.change(record, fields, change, version));
            }
        });
        run(output);
    }

    fn insert(&mut self, record: u64, output: &mut Vec<u8>) {
        self.use_statement(INSERT, output, Table::insert);
        let columns = Row::columns(self.dataset);
        bind(output, INSERT, &[], 1 + usize::from(columns), |body| {
            put_counted(body, self.row.key(record));
            for column in 0..columns {
                put_counted(body, self.row.column(record, column));
            }
        });
        run(output);
    }

    /// One statement with an array for each column: one request, one transaction, whatever the count.
    fn insert_many(&mut self, first: u64, count: u32, output: &mut Vec<u8>) {
        self.use_statement(INSERT_MANY, output, table::insert_many);
        let records = first..first + u64::from(count);
        let columns = Row::columns(self.dataset);
        bind(output, INSERT_MANY, &[1], 1 + usize::from(columns), |body| {
            put_array(body, count, |body| {
                for record in records.clone() {
                    put_counted(body, self.row.key(record));
                }
            });
            for column in 0..columns {
                put_array(body, count, |body| {
                    for record in records.clone() {
                        put_counted(body, self.row.column(record, column));
                    }
                });
            }
        });
        run(output);
    }

    fn scan(&mut self, first: u64, count: u32, fields: Fields, output: &mut Vec<u8>) {
        let statement = number(SCAN, fields);
        self.use_statement(statement, output, |table| table.scan(fields));
        bind(output, statement, &[0, 1], 2, |body| {
            put_counted(body, self.row.key(first));
            put_counted(body, &i64::from(count).to_be_bytes());
        });
        run(output);
    }

    fn conclude(&mut self) -> Outcome {
        let answer = &mut self.answer;
        if let Some(report) = answer.failure.take() {
            return report.measured_outcome(answer.kind);
        }
        if answer.unreplicated && answer.kind.writes() {
            return Outcome::Unknown(Failure::Unreplicated);
        }
        match answer.rows {
            0 => Outcome::Refused(Failure::NotFound),
            _ => Outcome::Done,
        }
    }
}

fn put_name(output: &mut Vec<u8>, statement: usize) {
    write!(output, "s{statement}\0").expect("a vector takes everything");
}

/// Writes a Bind of the unnamed portal: `formats` of parameters (none: all texts; one: of all), then what
/// `parameters` writes. Results come as texts, whose bytes are the same as binary ones'.
fn bind(
    output: &mut Vec<u8>,
    statement: usize,
    formats: &[u16],
    count: usize,
    parameters: impl FnOnce(&mut Vec<u8>),
) {
    put(output, b'B', |body| {
        body.push(0);
        put_name(body, statement);
        body.extend_from_slice(&(formats.len() as u16).to_be_bytes());
        for format in formats {
            body.extend_from_slice(&format.to_be_bytes());
        }
        body.extend_from_slice(&(count as u16).to_be_bytes());
        parameters(body);
        body.extend_from_slice(&[0; 2]);
    });
}

/// Execute the unnamed portal without a limit on rows, and Sync: the end of the transaction.
fn run(output: &mut Vec<u8>) {
    output.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04");
}

/// Writes an array of `text` in binary.
fn put_array(output: &mut Vec<u8>, count: u32, elements: impl FnOnce(&mut Vec<u8>)) {
    const TEXT: u32 = 25;
    put_counting(output, |body| {
        // Dimensions, whether there are nulls, element type; then length and lower bound.
        for word in [1, 0, TEXT, count, 1] {
            body.extend_from_slice(&word.to_be_bytes());
        }
        elements(body);
    });
}

impl Greeting for Operations<'_> {
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>) {
        self.prepared.fill(false);
        self.hello.start(may_encrypt, output);
    }
    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step {
        self.hello.greet(input, output, encrypted)
    }
}

impl Protocol for Operations<'_> {
    fn encode(&mut self, op: &Op, output: &mut Vec<u8>) -> bool {
        let answer = &mut self.answer;
        (answer.kind, answer.rows, answer.row, answer.unreplicated) = (op.kind(), 0, None, false);
        (answer.failure, answer.unconfirmed) = (None, None);
        match *op {
            Op::Read { record, fields } => {
                answer.fields = fields;
                self.read(record, fields, output);
            }
            Op::Update { record, fields, version } => self.update(record, fields, version, output),
            Op::Insert { record } => self.insert(record, output),
            Op::InsertMany { first, count } => self.insert_many(first, count, output),
            Op::Scan { first, count, fields } => self.scan(first, count, fields, output),
            _ => return false,
        }
        true
    }

    fn answer(&mut self, input: &mut Input, _: &mut Vec<u8>) -> Received {
        while let Some((letter, range)) = message::next(input) {
            let (begin, end) = (input.position() + range.start, input.position() + range.end);
            let body = &input.rest()[range.clone()];
            let answer = &mut self.answer;
            match letter {
                b'D' => {
                    answer.rows += 1;
                    answer.row = Some((begin, end));
                }
                b'C' if answer.kind.writes() => answer.rows = message::rows_of(body),
                b'N' => answer.unreplicated |= Report::parse(body).stopped_waiting_for_standbys(),
                b'E' => {
                    let report = Report::parse(body);
                    if let Some(statement) = answer.unconfirmed.take() {
                        self.prepared[statement] = false;
                    }
                    // A plan or name that is of no more use comes back only with a new connection.
                    let stale = matches!(report.code.as_str(), "26000" | "0A000" | "42P05");
                    if report.ends_connection() || stale {
                        return Received::Last(report.measured_outcome(answer.kind));
                    }
                    answer.failure.get_or_insert(report);
                }
                b'Z' => {
                    input.consume(range.end);
                    return Received::Complete(self.conclude());
                }
                b'1' => answer.unconfirmed = None,
                // BindComplete, the end of a read, parameters that changed, notifications.
                b'2' | b'C' | b'S' | b'A' => {}
                _ => {
                    let lost = if answer.kind.writes() { Outcome::Unknown } else { Outcome::Refused };
                    return Received::Last(lost(Failure::Corrupt));
                }
            }
            input.consume(range.end);
        }
        if self.answer.kind != OpKind::Read {
            input.forget();
        }
        Received::More
    }

    fn fetched<'b>(&'b self, input: &'b Input, field: u16) -> Option<&'b [u8]> {
        let (begin, end) = self.answer.row.filter(|_| self.answer.kind == OpKind::Read)?;
        let column = match self.answer.fields {
            Fields::All => self.table.position(field)?,
            Fields::EachByName => usize::from(field),
            Fields::One(one) if one == field => 0,
            Fields::One(_) => return None,
        };
        message::columns(&input.from(begin)[..end - begin]).nth(column)?
    }

    fn fetched_records(&self) -> u32 {
        self.answer.rows as u32
    }

    fn cancellation(&self) -> Option<Vec<u8>> {
        self.hello.cancellation()
    }
}
