//! One session's way through scripts, as every server's protocol goes it: what is timed, what is brought into
//! variables, what is complained of. How statements are sent is the protocol's own.

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::target::{Complaint, Remarks, Timed};
use tipover_core::workload::script::{Abort, Run, Scripts, Step, Tables, Value};

/// Tells on standard error why operations fail, once each for the first few.
pub fn tell_once(text: &str) {
    const MOST: usize = 5;
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock();
    if told.len() < MOST && told.insert(text.into()) {
        eprintln!("{text} (said once)");
    }
}

/// A session in the middle of a script.
pub struct Course {
    /// Its variables and its place.
    pub run: Run,
    /// The script and the number of the operation at hand.
    pub op: (u32, u64),
    /// The command whose statement was sent last.
    pub command: usize,
    /// When it was begun, where commands are timed.
    began: Option<Instant>,
    /// Whether the server is in a transaction, as it said last.
    pub in_transaction: bool,
    /// What the request at hand has brought.
    pub result: ResultSet,
    /// Whether anything was sent that could have changed something.
    pub sent: bool,
    /// The statements whose answers are awaited, where statements are timed: one, or those of a pipeline.
    awaited: VecDeque<Awaited>,
    /// What the first of them has brought in all.
    came: Came,
    /// What is told of the operation at hand; timed are its statements that were answered.
    remarks: Remarks,
    /// Of an operation that failed and may be tried again: which, and at which command.
    failed: Option<((u32, u64), usize)>,
}

/// The results of one request.
#[derive(Default)]
pub struct ResultSet {
    /// How many were complete.
    pub complete: usize,
    /// Of the columns, where somebody wants them.
    pub names: Vec<String>,
    /// How many rows came.
    pub rows: u64,
    /// The last of them.
    pub last: Vec<Value>,
    /// Of the last one that was complete.
    kept: Option<Kept>,
}

/// A statement that is not answered yet, or a point of synchronisation of the pipeline that it is in.
#[derive(Clone, Copy)]
enum Awaited {
    Statement { command: usize, sent: u64 },
    Sync,
}

/// What one statement has brought.
#[derive(Default)]
struct Came {
    rows: u64,
    changed: u64,
    /// The first value of the first row, where somebody wants it.
    value: Option<Option<String>>,
}

/// Of an operation with more statements than this the first ones are timed: no memory grows with a script.
const MOST_TIMED: usize = 1_000;

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A value that came as a text; nothing is NULL.
pub fn text_value(text: Option<String>) -> Value {
    text.map_or(Value::Null, |text| Value::Text(text.into()))
}

struct Kept {
    names: Vec<String>,
    rows: u64,
    last: Vec<Value>,
}

const NO_OPERATION: (u32, u64) = (u32::MAX, u64::MAX);

impl Course {
    /// Session number 0, until it is told another.
    pub fn new(scripts: Arc<Scripts>) -> Self {
        Course {
            run: Run::new(scripts, 0),
            op: NO_OPERATION,
            command: 0,
            began: None,
            in_transaction: false,
            result: ResultSet::default(),
            sent: false,
            awaited: VecDeque::new(),
            came: Came::default(),
            remarks: Remarks::default(),
            failed: None,
        }
    }

    /// What it runs.
    pub fn scripts(&self) -> &Arc<Scripts> {
        self.run.scripts()
    }

    /// The class of the operation at hand.
    pub fn kind(&self) -> OpKind {
        OpKind::script(self.op.0)
    }

    /// Begins an operation; false if it is no run of one of the scripts.
    pub fn begin(&mut self, op: &Op) -> bool {
        let Op::Script { script, number } = *op else { return false };
        if script as usize >= self.scripts().scripts().len() {
            return false;
        }
        if let Some((failed, command)) = self.failed.take()
            && failed == (script, number)
            && let Some(figures) = self.scripts().figures(script, command)
        {
            figures.retries.fetch_add(1, Ordering::Relaxed);
        }
        self.op = (script, number);
        (self.remarks.complaint, self.sent) = (None, false);
        self.remarks.timed.clear();
        self.awaited.clear();
        self.run.begin(script, number);
        true
    }

    /// Tells the session its number.
    pub fn take_seat(&mut self, number: u32) {
        self.run = Run::new(self.run.scripts().clone(), number);
    }

    /// Goes on to the next thing that takes time.
    pub fn next_step(&mut self) -> Result<Step, Abort> {
        loop {
            self.began = self.scripts().times_commands.then(Instant::now);
            let step = self.run.command_after();
            for note in self.run.notes() {
                eprintln!("{note}");
            }
            self.command = self.run.command();
            match step? {
                Some(step) => return Ok(step),
                None => self.time(),
            }
        }
    }

    /// The command at hand is over.
    pub fn time(&mut self) {
        if let Some(began) = self.began.take()
            && let Some(figures) = self.scripts().figures(self.op.0, self.command)
        {
            figures.took(began.elapsed());
        }
    }

    /// The command at hand sends its statement now. Its answer comes after those that are awaited already.
    #[inline]
    pub fn sends(&mut self) {
        self.result = ResultSet::default();
        if self.scripts().times_statements {
            if self.awaited.is_empty() {
                self.came = Came::default();
            }
            self.awaited.push_back(Awaited::Statement { command: self.command, sent: monotonic_ns() });
        }
    }

    /// The pipeline gets a point of synchronisation.
    pub fn syncs(&mut self) {
        if self.scripts().times_statements {
            self.awaited.push_back(Awaited::Sync);
        }
    }

    /// The server has come to the next point of synchronisation. What is still awaited before it was passed
    /// over after an error, and so was never done.
    pub fn synced(&mut self) {
        while let Some(Awaited::Statement { .. }) = self.awaited.pop_front() {}
        self.came = Came::default();
    }

    /// The statement at hand: the first that is awaited, else what was sent last.
    #[inline]
    fn at_hand(&self) -> usize {
        match self.awaited.front() {
            Some(Awaited::Statement { command, .. }) => *command,
            Some(Awaited::Sync) | None => self.command,
        }
    }

    /// A row came for the statement at hand; `value` tells the first in it.
    #[inline]
    pub fn row(&mut self, value: impl FnOnce() -> Option<String>) {
        self.result.rows += 1;
        self.came.rows += 1;
        if self.came.value.is_none() && self.wants_value() {
            self.came.value = Some(value());
        }
    }

    /// The statement at hand changed this many rows.
    #[inline]
    pub fn changed(&mut self, rows: u64) {
        self.came.changed += rows;
    }

    /// The statement at hand was answered without rows: `rows` were changed or counted, and the
    /// answer itself can be taken for one; `value` tells the first in it.
    #[inline]
    pub fn told(&mut self, rows: u64, value: impl FnOnce() -> Option<String>) {
        self.result.rows = 1;
        self.changed(rows);
        if self.came.value.is_none() && self.wants_value() {
            self.came.value = Some(value());
        }
    }

    /// Whether the first value of the statement at hand is asked for by an expectation.
    #[inline]
    pub fn wants_value(&self) -> bool {
        self.run.statement_of(self.at_hand()).is_some_and(|statement| !statement.expected.is_empty())
    }

    /// Rows that came for the statement at hand, or were changed where none come.
    fn rows(&self) -> u64 {
        self.came.rows.max(self.came.changed)
    }

    /// The statement at hand is over, and so it went.
    #[inline]
    pub fn ended_with(&mut self, outcome: Outcome) {
        let Some(Awaited::Statement { command, sent }) = self.awaited.front().copied() else { return };
        self.awaited.pop_front();
        if self.remarks.timed.len() < MOST_TIMED
            && let Some(statement) = self.run.statement_of(command)
        {
            let (kind, rows) = (OpKind::statement(statement.class), self.rows());
            self.remarks.timed.push(Timed { kind, outcome, sent, ended: monotonic_ns(), rows });
        }
        self.came = Came::default();
    }

    /// The server has carried out the statement at hand: is its answer what the script expects?
    ///
    /// # Errors
    /// What the operation ends with if it is not.
    #[inline]
    pub fn answered(&mut self) -> Result<(), Outcome> {
        if self.awaited.is_empty() || !self.wants_value() {
            self.ended_with(Outcome::Done);
            return Ok(());
        }
        let (rows, value) = (self.rows(), self.came.value.take().flatten());
        let command = self.at_hand();
        let words = match self.run.check(command, rows, value.as_deref()) {
            Ok(None) => {
                self.ended_with(Outcome::Done);
                return Ok(());
            }
            Ok(Some(words)) => words,
            Err(abort) => abort.reason,
        };
        let unexpected = Outcome::Refused(Failure::Unexpected);
        self.ended_with(unexpected);
        self.abort(command, words);
        Err(unexpected)
    }

    /// See [`tipover_core::target::Session::remarks`].
    pub fn remarks(&self) -> &Remarks {
        &self.remarks
    }

    /// The session cannot go on, or not with this operation.
    pub fn abort(&mut self, command: usize, words: String) {
        if !self.scripts().ends_on_error {
            // Nobody else tells it: the operation is a failure among others.
            let (script, here) = (self.run.script(), &self.run.script().commands[command]);
            tell_once(&format!("{}:{}:{}: {words}", script.name, here.line, here.column));
        }
        self.complain(command, words);
    }

    /// What went wrong at a command, after which a session ends where errors end it.
    pub fn complain(&mut self, step: usize, words: String) {
        let request = self.result.complete;
        self.remarks.complaint = Some(Complaint { step, request, code: String::new(), words });
        self.remarks.ended |= self.scripts().ends_on_error;
    }

    /// The server answered request `request` of the command at hand with an error; `code` and `words` say
    /// which, and `outcome` what it means, whether the session ends with it or not. The outcome of the
    /// operation.
    pub fn failed(
        &mut self,
        request: usize,
        (code, words): (String, String),
        may_retry: bool,
        outcome: impl FnOnce(OpKind, bool) -> Outcome,
    ) -> Outcome {
        self.remarks.complaint = Some(Complaint { step: self.command, request, code, words });
        self.run.undo();
        if may_retry {
            self.failed = Some((self.op, self.command));
        } else if self.scripts().ends_on_error {
            self.remarks.ended = true;
        }
        let outcome = match (outcome(self.kind(), self.remarks.ended), &self.scripts().tables) {
            // Both have deleted the row, and the other one has inserted it: sysbench begins anew then, too.
            (Outcome::Refused(Failure::Exists), Tables::Sysbench(_)) if self.in_transaction => {
                Outcome::Refused(Failure::Conflict)
            }
            (outcome, _) => outcome,
        };
        self.ended_with(outcome);
        outcome
    }

    /// The connection is gone, and with it the operation.
    pub fn lost(&mut self, reason: &str) {
        self.lost_with(reason, Outcome::Unknown(Failure::Unavailable));
    }

    /// The same where it is known what that means for the statement at hand.
    pub fn lost_with(&mut self, reason: &str, outcome: Outcome) {
        while !self.awaited.is_empty() {
            self.ended_with(outcome);
            while let Some(Awaited::Sync) = self.awaited.front() {
                self.awaited.pop_front();
            }
        }
        self.complain(self.command, format!("the connection to the server was lost: {reason}"));
        self.run.undo();
    }

    /// Whether somebody wants the rows of the statement at hand.
    pub fn stores(&self) -> bool {
        self.run.statement_of(self.command).is_some_and(|statement| statement.store.is_some())
    }

    /// A result is complete: `\aset` takes each, `\gset` the last one.
    ///
    /// # Errors
    /// A column that no variable can be called after.
    pub fn complete_result(&mut self) -> Result<(), String> {
        let ResultSet { names, rows, last, .. } = std::mem::take(&mut self.result);
        self.result.complete += 1;
        let kept = Kept { names, rows, last };
        if self.run.store(self.command).is_some_and(|store| store.all) && kept.rows > 0 {
            self.bring(&kept)?;
        }
        self.result.kept = Some(kept);
        Ok(())
    }

    /// All results of the request are complete: what `\gset` takes is taken.
    ///
    /// # Errors
    /// Not one row, or a column that no variable can be called after.
    pub fn take_results(&mut self) -> Result<(), String> {
        let store = self.run.statement_of(self.command).and_then(|statement| statement.store.as_ref());
        if let (Some(false), Some(kept)) = (store.map(|store| store.all), self.result.kept.take()) {
            if kept.rows != 1 {
                self.result.complete = self.result.complete.saturating_sub(1);
                return Err(format!("expected one row, got {}", kept.rows));
            }
            self.bring(&kept)?;
        }
        Ok(())
    }

    fn bring(&mut self, kept: &Kept) -> Result<(), String> {
        for (name, value) in kept.names.iter().zip(&kept.last) {
            self.run.bring_value(self.command, name, value.clone()).map_err(|abort| abort.reason)?;
        }
        Ok(())
    }
}
