//! Scripts of statements on one session: what to send is decided by the core, how it is sent and what came
//! of it here.

use super::greeting::Hello;
use super::outcome;
use super::packet::{self, Reader, Report, put, put_counted};
use crate::connection::sql::{Prepared, Report as _, Which};
use crate::connection::{Course, Greeting, Input, Protocol, Received, Step, text_value};
use std::sync::Arc;
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::Remarks;
use tipover_core::workload::script::{self, Quoting, Scripts, Value};

/// Which packet of the answer comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The server's number of a statement that it prepares.
    Prepared,
    /// This many descriptions of its parameters and columns are still to come.
    Described(u64),
    /// The begin of a result.
    Begin,
    /// How many descriptions of its columns are still to come, and how many there are.
    Columns(u64, u64),
    /// Rows with this many columns, and the end.
    Rows(u64),
}

/// How a statement is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// By this number.
    Prepared(u32),
    /// As a text, because the server does not prepare it.
    Text,
}

/// The server's code for a statement that it carries out, and does not prepare.
const CANNOT_BE_PREPARED: u16 = 1295;

/// One session that runs scripts.
pub struct Scripted {
    hello: Hello,
    course: Course,
    /// The server's numbers of the statements that this connection knows.
    prepared: Prepared<Known>,
    /// The statement that was sent.
    which: Which,
    part: Part,
    /// What became of the operation, while its transaction is rolled back.
    rolling_back: Option<Outcome>,
}

/// Bits of the server's status.
const IN_TRANSACTION: u64 = 1;
const MORE_RESULTS: u64 = 8;

impl Scripted {
    /// Session number 0, until it is told another.
    pub fn new(hello: Hello, scripts: Arc<Scripts>) -> Self {
        let prepared = Prepared::of(&scripts);
        let (course, part) = (Course::new(scripts), Part::Begin);
        let hello = hello.with_several_statements();
        Scripted { hello, course, prepared, which: Which::default(), part, rolling_back: None }
    }

    /// Whether the statement at hand is sent as a prepared one. What brings values into variables, or has its
    /// value looked at, is not: rows of prepared statements come in binary. Nor are several statements at
    /// once.
    fn is_prepared(&self) -> bool {
        self.course.scripts().protocol != script::Protocol::Simple
            && !self.course.stores()
            && !self.course.wants_value()
            && !self.course.run.statement(self.course.command).joined
    }

    /// The session cannot go on with this operation, and no transaction may stay open.
    fn abort(&mut self, command: usize, words: String) -> Received {
        self.course.abort(command, words);
        let refused = Outcome::Refused(Failure::Other);
        if self.course.in_transaction { Received::Last(refused) } else { Received::Complete(refused) }
    }

    /// Steps that need no answer, up to one that does.
    fn go_on(&mut self, output: &mut Vec<u8>) -> Received {
        match self.course.next_step() {
            Err(abort) => self.abort(abort.command, abort.reason),
            Ok(script::Step::Send(command)) => {
                self.course.sends();
                self.course.sent = true;
                self.send(command, output);
                Received::More
            }
            Ok(script::Step::Sleep(time)) => Received::Pause(time),
            Ok(script::Step::Over)
                if self.course.in_transaction && !self.course.scripts().keeps_transactions() =>
            {
                let words = "end of script reached without completing the last transaction";
                self.abort(self.course.command, words.into())
            }
            Ok(script::Step::Over) => Received::Complete(Outcome::Done),
            Ok(script::Step::StartPipeline | script::Step::SyncPipeline | script::Step::EndPipeline) => {
                self.abort(self.course.command, "this server has no pipelines".into())
            }
        }
    }

    fn send(&mut self, command: usize, output: &mut Vec<u8>) {
        if !self.is_prepared() {
            return self.send_text(command, output);
        }
        let which = &mut self.which;
        (which.script, which.command) = (self.course.op.0 as usize, command);
        which.words.clear();
        self.course.run.put_words(command, &mut which.words);
        match self.prepared.get(which) {
            Some(Known::Prepared(id)) => self.execute(*id, output),
            None if self.prepared.has_room(which) => {
                let text = self.course.run.with_parameters(command, |_| "?".into());
                self.part = Part::Prepared;
                put(output, 0, |payload| {
                    payload.push(0x16);
                    payload.extend_from_slice(text.as_bytes());
                });
            }
            Some(Known::Text) | None => self.send_text(command, output),
        }
    }

    fn send_text(&mut self, command: usize, output: &mut Vec<u8>) {
        self.part = Part::Begin;
        let quoting = match self.hello.backslash_is_a_letter() {
            true => Quoting::Standard,
            false => Quoting::Backslashes,
        };
        put(output, 0, |payload| {
            payload.push(0x03);
            self.course.run.put_text(command, quoting, payload);
        });
    }

    /// Executes a prepared statement with the values of its variables.
    fn execute(&mut self, id: u32, output: &mut Vec<u8>) {
        self.part = Part::Begin;
        let run = &self.course.run;
        let values = || run.statement(self.course.command).parameters().map(|number| run.parameter(number));
        put(output, 0, |payload| {
            payload.push(0x17);
            payload.extend_from_slice(&id.to_le_bytes());
            // No cursor, once.
            payload.extend_from_slice(&[0, 1, 0, 0, 0]);
            let count = values().count();
            if count == 0 {
                return;
            }
            let mut nulls = vec![0u8; count.div_ceil(8)];
            for (at, _) in values().enumerate().filter(|(_, value)| value.is_none()) {
                nulls[at / 8] |= 1 << (at % 8);
            }
            payload.extend_from_slice(&nulls);
            payload.push(1);
            for value in values() {
                payload.extend_from_slice(&kind(value));
            }
            values().flatten().for_each(|value| put_value(payload, value));
        });
    }

    /// An OK packet, or the end of rows, which says the same: the affected rows, the last id, the status.
    fn is_over(&mut self, payload: &[u8], output: &mut Vec<u8>) -> Option<Received> {
        let mut reader = Reader(payload.get(1..)?);
        let changed = reader.length()?;
        reader.length()?;
        let status = reader.number(2)?;
        self.course.in_transaction = status & IN_TRANSACTION != 0;
        if let Some(outcome) = self.rolling_back.take() {
            return Some(Received::Complete(outcome));
        }
        self.course.changed(changed);
        if let Err(words) = self.course.complete_result() {
            return Some(self.abort(self.course.command, words));
        }
        if status & MORE_RESULTS != 0 {
            self.part = Part::Begin;
            return Some(Received::More);
        }
        if let Err(words) = self.course.take_results() {
            return Some(self.abort(self.course.command, words));
        }
        self.course.time();
        Some(match self.course.answered() {
            Ok(()) => self.go_on(output),
            Err(outcome) => self.rolled_back(outcome, output),
        })
    }

    /// The operation is over, and nothing stays of its open transaction.
    fn rolled_back(&mut self, outcome: Outcome, output: &mut Vec<u8>) -> Received {
        if !self.course.in_transaction {
            return Received::Complete(outcome);
        }
        self.rolling_back = Some(outcome);
        self.part = Part::Begin;
        put(output, 0, |payload| payload.extend_from_slice(b"\x03ROLLBACK"));
        Received::More
    }

    /// The server refused a statement: the operation is over, and nothing stays of its open transaction.
    fn failed(&mut self, report: &Report, output: &mut Vec<u8>) -> Received {
        if let Some(outcome) = self.rolling_back.take() {
            return Received::Last(outcome);
        }
        let may_retry = matches!(report.definite(), Outcome::Refused(Failure::Conflict));
        let said = (report.code.to_string(), format!("ERROR:  {report}"));
        let of = |kind, ends| report.outcome_of_script(kind, ends);
        let outcome = self.course.failed(self.course.result.complete, said, may_retry, of);
        if report.ends_connection() || outcome::is_stale(report) {
            return Received::Last(outcome);
        }
        // A commit that failed may have left the transaction open; its locks go with the connection.
        if self.course.in_transaction && matches!(outcome, Outcome::Unknown(_)) {
            return Received::Last(outcome);
        }
        self.rolled_back(outcome, output)
    }

    /// Understands one packet; `None` if it is no answer.
    fn packet(&mut self, payload: &[u8], output: &mut Vec<u8>) -> Option<Received> {
        /// A row whose first value is so long begins with the same byte as the end.
        const LEAST_LONG_ROW: usize = 0xff_ffff;
        let first = payload.first().copied();
        if first == Some(0xff) {
            let report = Report::parse(payload);
            if self.part == Part::Prepared && report.code == CANNOT_BE_PREPARED {
                self.prepared.put(&self.which, Known::Text);
                self.send_text(self.which.command, output);
                return Some(Received::More);
            }
            return Some(self.failed(&report, output));
        }
        match self.part {
            Part::Prepared => {
                let mut reader = Reader(payload.get(1..)?);
                let id = reader.number(4)? as u32;
                self.prepared.put(&self.which, Known::Prepared(id));
                let (columns, parameters) = (reader.number(2)?, reader.number(2)?);
                self.part = Part::Described(columns + parameters);
                if columns + parameters == 0 {
                    self.execute(id, output);
                }
            }
            Part::Described(left) => {
                self.part = Part::Described(left - 1);
                if left == 1 {
                    let Some(Known::Prepared(id)) = self.prepared.get(&self.which) else { return None };
                    self.execute(*id, output);
                }
            }
            Part::Begin if first == Some(0x00) => return self.is_over(payload, output),
            Part::Begin => {
                let mut reader = Reader(payload);
                let columns = reader.length().filter(|columns| *columns <= packet::MOST_COLUMNS)?;
                let described = !self.hello.caches_metadata() || reader.byte()? == 1;
                self.part = match described && columns > 0 {
                    true => Part::Columns(columns, columns),
                    false => Part::Rows(columns),
                };
            }
            Part::Columns(left, all) => {
                if self.course.stores() {
                    let name = column_name(payload)?;
                    self.course.result.names.push(name);
                }
                self.part = if left == 1 { Part::Rows(all) } else { Part::Columns(left - 1, all) };
            }
            Part::Rows(_) if first == Some(0xfe) && payload.len() < LEAST_LONG_ROW => {
                return self.is_over(payload, output);
            }
            Part::Rows(columns) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.course.row(|| Reader(payload).counted().map(text));
                if self.course.stores() && self.rolling_back.is_none() {
                    let mut reader = Reader(payload);
                    self.course.result.last =
                        (0..columns).map(|_| text_value(reader.counted().map(text))).collect();
                }
            }
        }
        Some(Received::More)
    }
}

/// The type of a parameter, as the protocol numbers them.
fn kind(value: Option<&Value>) -> [u8; 2] {
    match value {
        None | Some(Value::Null) => [0x06, 0],
        Some(Value::Integer(_)) => [0x08, 0],
        Some(Value::Double(_)) => [0x05, 0],
        Some(Value::Boolean(_)) => [0x01, 0],
        Some(Value::Text(_) | Value::Quoted(_)) => [0xfd, 0],
    }
}

fn put_value(payload: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => {}
        Value::Integer(value) => payload.extend_from_slice(&value.to_le_bytes()),
        Value::Double(value) => payload.extend_from_slice(&value.to_le_bytes()),
        Value::Boolean(value) => payload.push(u8::from(*value)),
        Value::Text(text) | Value::Quoted(text) => put_counted(payload, text.as_bytes()),
    }
}

/// The name in a description of a column, behind those of its catalogue, schema and tables.
fn column_name(payload: &[u8]) -> Option<String> {
    let mut reader = Reader(payload);
    for _ in 0..4 {
        reader.counted()?;
    }
    reader.counted().map(|name| String::from_utf8_lossy(name).into_owned())
}

impl Greeting for Scripted {
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>) {
        self.prepared.clear();
        (self.course.in_transaction, self.rolling_back) = (false, None);
        self.hello.start(may_encrypt, output);
    }

    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step {
        self.hello.greet(input, output, encrypted)
    }
}

impl Protocol for Scripted {
    /// Nothing yet: [`Protocol::resume`] goes on at once.
    fn encode(&mut self, op: &Op, _: &mut Vec<u8>) -> bool {
        self.rolling_back = None;
        self.course.begin(op)
    }

    fn resume(&mut self, output: &mut Vec<u8>) -> Received {
        self.course.time();
        self.go_on(output)
    }

    fn answer(&mut self, input: &mut Input, output: &mut Vec<u8>) -> Received {
        while let Some((_, range)) = packet::next(input) {
            let answer = self.packet(&input.rest()[range.clone()], output);
            input.consume(range.end);
            match answer {
                Some(Received::More) => {}
                Some(answer) => return answer,
                None => {
                    self.course.complain(self.course.command, "what came is no answer".into());
                    return Received::Last(Outcome::Unknown(Failure::Corrupt));
                }
            }
        }
        input.forget();
        Received::More
    }

    fn may_have_happened(&self) -> bool {
        self.course.sent
    }

    fn fetched<'a>(&'a self, _: &'a Input, _: u16) -> Option<&'a [u8]> {
        None
    }

    fn fetched_records(&self) -> u32 {
        self.course.result.rows as u32
    }

    fn take_seat(&mut self, number: u32) {
        self.course.take_seat(number);
    }

    fn reconnects(&self) -> bool {
        self.course.scripts().reconnects
    }

    fn lost(&mut self, reason: &str) {
        self.course.lost(reason);
    }

    fn remarks(&self) -> Option<&Remarks> {
        Some(self.course.remarks())
    }
}
