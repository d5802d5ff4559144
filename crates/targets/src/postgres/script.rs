//! Scripts of statements on one session: what to send is decided by the core, how it is sent and what came
//! of it here.

use super::greeting::Hello;
use super::message::{self, Report, put, put_text};
use crate::connection::sql::{Prepared, Report as _, Which};
use crate::connection::{Course, Greeting, Input, Protocol, Received, Step, text_value};
use std::collections::VecDeque;
use std::sync::Arc;
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::target::Remarks;
use tipover_core::workload::script::{self, Quoting, Scripts};

/// One session that runs scripts.
pub struct Scripted {
    hello: Hello,
    course: Course,
    /// What this connection calls the statements that it knows.
    prepared: Prepared<String>,
    /// How many it was told; their names are numbers.
    told: usize,
    /// Those whose preparation was not confirmed yet, in the order in which they were sent.
    unconfirmed: VecDeque<Which>,
    /// The statement that is sent.
    which: Which,
    in_pipeline: bool,
    /// Whether the pipeline's end was sent.
    ends_pipeline: bool,
    /// How often the server will still say that it is ready.
    awaited: u32,
    /// What became of the operation, while its transaction is rolled back.
    rolling_back: Option<Outcome>,
    failure: Option<(usize, Report)>,
    /// What the operation ends with once its pipeline is over: an answer in it was not as expected.
    unexpected: Option<Outcome>,
}

impl Scripted {
    /// Session number 0, until it is told another.
    pub fn new(hello: Hello, scripts: Arc<Scripts>) -> Self {
        Scripted {
            hello,
            prepared: Prepared::of(&scripts),
            course: Course::new(scripts),
            told: 0,
            which: Which::default(),
            unconfirmed: VecDeque::new(),
            in_pipeline: false,
            ends_pipeline: false,
            awaited: 0,
            rolling_back: None,
            failure: None,
            unexpected: None,
        }
    }

    /// The session cannot go on, or not with this operation.
    fn abort(&mut self, command: usize, words: String) -> Received {
        self.course.abort(command, words);
        // What was sent in a pipeline is not answered yet, and a transaction may be open.
        match self.in_pipeline || self.course.in_transaction || self.awaited > 0 {
            true => Received::Last(Outcome::Refused(Failure::Other)),
            false => Received::Complete(Outcome::Refused(Failure::Other)),
        }
    }

    /// Steps that need no answer, up to one that does.
    fn go_on(&mut self, output: &mut Vec<u8>) -> Received {
        loop {
            let step = match self.course.next_step() {
                Ok(step) => step,
                Err(abort) => return self.abort(abort.command, abort.reason),
            };
            let extended = self.course.scripts().protocol != script::Protocol::Simple;
            let here = self.course.command;
            match step {
                script::Step::Send(command) => {
                    if self.in_pipeline && self.course.run.store(command).is_some() {
                        let name = self.course.run.script().commands[command].action.name();
                        return self.abort(command, format!("\\{name} is not allowed in pipeline mode"));
                    }
                    self.course.sends();
                    self.send(command, output);
                    if !self.in_pipeline {
                        return Received::More;
                    }
                    self.course.time();
                }
                script::Step::Sleep(time) => {
                    if self.in_pipeline && !output.is_empty() {
                        // What was said so far goes out first; its answers come with the end of the pipeline.
                        self.flush(output);
                    }
                    return Received::Pause(time);
                }
                script::Step::StartPipeline if !extended => {
                    return self
                        .abort(here, "cannot use pipeline mode with the simple query protocol".into());
                }
                script::Step::StartPipeline if self.in_pipeline => {
                    return self.abort(here, "already in pipeline mode".into());
                }
                script::Step::StartPipeline => self.in_pipeline = true,
                script::Step::SyncPipeline | script::Step::EndPipeline if !self.in_pipeline => {
                    return self.abort(here, "not in pipeline mode".into());
                }
                script::Step::SyncPipeline => {
                    self.sync(output);
                    self.course.syncs();
                }
                script::Step::EndPipeline => {
                    self.sync(output);
                    self.course.syncs();
                    self.ends_pipeline = true;
                    return Received::More;
                }
                script::Step::Over => return self.over(),
            }
        }
    }

    fn over(&mut self) -> Received {
        if self.in_pipeline {
            return self.abort(self.course.command, "end of script reached with pipeline open".into());
        }
        if self.course.in_transaction && !self.course.scripts().keeps_transactions() {
            let words = "end of script reached without completing the last transaction";
            return self.abort(self.course.command, words.into());
        }
        Received::Complete(Outcome::Done)
    }

    fn sync(&mut self, output: &mut Vec<u8>) {
        output.extend_from_slice(b"S\0\0\0\x04");
        self.awaited += 1;
    }

    fn flush(&mut self, output: &mut Vec<u8>) {
        output.extend_from_slice(b"H\0\0\0\x04");
    }

    fn send(&mut self, command: usize, output: &mut Vec<u8>) {
        self.course.sent = true;
        let protocol = self.course.scripts().protocol;
        if protocol == script::Protocol::Simple {
            put(output, b'Q', |body| {
                self.course.run.put_text(command, Quoting::Standard, body);
                body.push(0);
            });
            self.awaited += 1;
            return;
        }
        let which = &mut self.which;
        (which.script, which.command) = (self.course.op.0 as usize, command);
        which.words.clear();
        self.course.run.put_words(command, &mut which.words);
        let keeps = protocol == script::Protocol::Prepared && self.prepared.has_room(which);
        if self.prepared.get(which).is_none() {
            let mut name = String::new();
            if keeps {
                self.told += 1;
                name = format!("P{}", self.told);
                self.unconfirmed.push_back(which.clone());
            }
            let text = self.course.run.with_parameters(command, |number| format!("${number}"));
            put(output, b'P', |body| {
                put_text(body, &name);
                put_text(body, &text);
                // The server finds out the types of parameters.
                body.extend_from_slice(&[0; 2]);
            });
            if keeps {
                self.prepared.put(which, name);
            }
        }
        let name = self.prepared.get(which).map_or("", String::as_str);
        let parameters = self.course.run.statement(command).parameters();
        let count = parameters.clone().count() as u16;
        put(output, b'B', |body| {
            body.push(0);
            put_text(body, name);
            body.extend_from_slice(&[0; 2]);
            body.extend_from_slice(&count.to_be_bytes());
            for parameter in parameters {
                match self.course.run.parameter(parameter) {
                    Some(value) => message::put_counting(body, |body| value.put(body)),
                    None => body.extend_from_slice(&(-1i32).to_be_bytes()),
                }
            }
            body.extend_from_slice(&[0; 2]);
        });
        if self.course.run.store(command).is_some() {
            // The names of its columns.
            output.extend_from_slice(b"D\0\0\0\x06P\0");
        }
        output.extend_from_slice(b"E\0\0\0\x09\0\0\0\0\0");
        if !self.in_pipeline {
            self.sync(output);
        }
    }

    /// The server is ready, after everything that was sent.
    fn ready(&mut self, output: &mut Vec<u8>) -> Received {
        if let Some(outcome) = self.rolling_back.take() {
            self.failure = None;
            return Received::Complete(outcome);
        }
        if let Some((request, report)) = self.failure.take() {
            return self.failed(request, &report, output);
        }
        if let Err(words) = self.course.take_results() {
            return self.abort(self.course.command, words);
        }
        self.course.time();
        let answered = match std::mem::take(&mut self.ends_pipeline) {
            true => {
                self.in_pipeline = false;
                self.unexpected.take().map_or(Ok(()), Err)
            }
            false => self.course.answered(),
        };
        match answered {
            Ok(()) => self.go_on(output),
            Err(outcome) => self.rolled_back(outcome, output),
        }
    }

    /// The operation is over, and nothing stays of its open transaction.
    fn rolled_back(&mut self, outcome: Outcome, output: &mut Vec<u8>) -> Received {
        if !self.course.in_transaction || self.course.remarks().ended {
            return Received::Complete(outcome);
        }
        self.rolling_back = Some(outcome);
        put(output, b'Q', |body| put_text(body, "ROLLBACK"));
        self.awaited += 1;
        Received::More
    }

    /// The server refused a statement: the operation is over, and nothing stays of its open transaction.
    fn failed(&mut self, request: usize, report: &Report, output: &mut Vec<u8>) -> Received {
        (self.in_pipeline, self.ends_pipeline) = (false, false);
        let may_retry = matches!(report.code.as_str(), "40001" | "40P01");
        let said = (report.code.clone(), format!("{}:  {report}", report.severity));
        let of = |kind, ends| report.outcome_of_script(kind, ends);
        let outcome = self.course.failed(request, said, may_retry, of);
        self.rolled_back(outcome, output)
    }

    /// A message of the server; `Some` if it ends the operation.
    fn message(&mut self, letter: u8, body: &[u8], output: &mut Vec<u8>) -> Option<Received> {
        match letter {
            b'T' if self.course.stores() => {
                (self.course.result.names, self.course.result.rows) = (column_names(body), 0);
            }
            b'D' => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                self.course.row(|| message::columns(body).next().flatten().map(text));
                if !self.course.result.names.is_empty() {
                    self.course.result.last =
                        message::columns(body).map(|value| text_value(value.map(text))).collect();
                }
            }
            b'C' | b'I' => {
                if self.course.scripts().times_statements {
                    self.course.changed(message::rows_of(body));
                }
                if self.in_pipeline
                    && let Err(outcome) = self.course.answered()
                {
                    self.unexpected.get_or_insert(outcome);
                }
                if self.course.run.statement_of(self.course.command).is_some_and(|s| s.store.is_none()) {
                    self.course.result.complete += 1;
                } else if !self.in_pipeline
                    && self.rolling_back.is_none()
                    && let Err(words) = self.course.complete_result()
                {
                    return Some(self.abort(self.course.command, words));
                }
            }
            b'E' => {
                let report = Report::parse(body);
                for which in self.unconfirmed.drain(..) {
                    self.prepared.forget(&which);
                }
                if report.ends_connection() {
                    let words = format!("{}:  {report}", report.severity);
                    self.course.complain(self.course.command, words);
                    return Some(Received::Last(report.outcome(self.course.kind())));
                }
                if self.in_pipeline {
                    self.course.ended_with(report.outcome_of_script(self.course.kind(), false));
                }
                let request = self.course.result.complete;
                self.failure.get_or_insert((request, report));
            }
            b'G' => {
                // Nothing is there that could be copied in.
                put(output, b'f', |body| put_text(body, "a script has no data to copy"));
                if self.course.scripts().protocol != script::Protocol::Simple {
                    output.extend_from_slice(b"S\0\0\0\x04");
                }
            }
            b'Z' => {
                self.course.in_transaction = body.first().is_some_and(|status| *status != b'I');
                self.awaited = self.awaited.saturating_sub(1);
                if self.in_pipeline {
                    self.course.synced();
                }
                if self.awaited == 0 {
                    return match self.ready(output) {
                        Received::More => None,
                        answer => Some(answer),
                    };
                }
            }
            b'1' => drop(self.unconfirmed.pop_front()),
            // BindComplete, no data, rows that are not asked for, notices, parameters, notifications, data of
            // a copy.
            b'2' | b'n' | b'T' | b'N' | b'S' | b'A' | b'H' | b'd' | b'c' | b's' => {}
            _ => {
                self.course.complain(self.course.command, "what came is no answer".into());
                return Some(Received::Last(Outcome::Unknown(Failure::Corrupt)));
            }
        }
        None
    }
}

/// The names in a RowDescription.
fn column_names(body: &[u8]) -> Vec<String> {
    /// What stands behind a name: table, column, type, its length and modifier, format.
    const FIXED: usize = 18;
    let mut rest = body.get(2..).unwrap_or_default();
    let mut names = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == 0) {
        names.push(String::from_utf8_lossy(&rest[..end]).into_owned());
        rest = rest.get(end + 1 + FIXED..).unwrap_or_default();
    }
    names
}

impl Greeting for Scripted {
    fn start(&mut self, may_encrypt: bool, output: &mut Vec<u8>) {
        self.prepared.clear();
        self.unconfirmed.clear();
        (self.course.in_transaction, self.in_pipeline, self.ends_pipeline, self.awaited) =
            (false, false, false, 0);
        (self.rolling_back, self.failure, self.unexpected) = (None, None, None);
        self.hello.start(may_encrypt, output);
    }

    fn greet(&mut self, input: &mut Input, output: &mut Vec<u8>, encrypted: bool) -> Step {
        self.hello.greet(input, output, encrypted)
    }
}

impl Protocol for Scripted {
    /// Nothing yet: [`Protocol::resume`] goes on at once.
    fn encode(&mut self, op: &Op, _: &mut Vec<u8>) -> bool {
        (self.failure, self.rolling_back, self.unexpected) = (None, None, None);
        self.course.begin(op)
    }

    fn resume(&mut self, output: &mut Vec<u8>) -> Received {
        self.course.time();
        self.go_on(output)
    }

    fn answer(&mut self, input: &mut Input, output: &mut Vec<u8>) -> Received {
        while let Some((letter, range)) = message::next(input) {
            // Most messages are small, and the input must be free while the next request is made.
            let body = &input.rest()[range.clone()];
            let answer = self.message(letter, body, output);
            input.consume(range.end);
            if let Some(answer) = answer {
                return answer;
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

    fn cancellation(&self) -> Option<Vec<u8>> {
        self.hello.cancellation()
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
