//! One session's way through scripts, as every SQL server's protocol goes it: what is timed, what is brought
//! into variables, what is complained of. How statements are sent is the protocol's own.

use super::{Report, tell_once};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tipover_core::op::{Op, OpKind, Outcome};
use tipover_core::target::Complaint;
use tipover_core::workload::script::{Abort, Run, Scripts, Step};

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
    complaint: Option<Complaint>,
    /// Of an operation that failed and may be tried again: which, and at which command.
    failed: Option<((u32, u64), usize)>,
    ended: bool,
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
    pub last: Vec<Option<String>>,
    /// Of the last one that was complete.
    kept: Option<Kept>,
}

struct Kept {
    names: Vec<String>,
    rows: u64,
    last: Vec<Option<String>>,
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
            complaint: None,
            failed: None,
            ended: false,
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
        (self.complaint, self.sent) = (None, false);
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
        self.complaint = Some(Complaint { step, request: self.result.complete, code: String::new(), words });
        self.ended |= self.scripts().ends_on_error;
    }

    /// The server answered request `request` of the command at hand with an error; `code` and `words` say
    /// which. The outcome of the operation.
    pub fn failed<R: Report>(
        &mut self,
        request: usize,
        report: &R,
        (code, words): (String, String),
        may_retry: bool,
    ) -> Outcome {
        self.complaint = Some(Complaint { step: self.command, request, code, words });
        self.run.undo();
        if may_retry {
            self.failed = Some((self.op, self.command));
        } else if self.scripts().ends_on_error {
            self.ended = true;
        }
        match self.ended {
            true => report.outcome(self.kind()),
            false => report.measured_outcome(self.kind()),
        }
    }

    /// The connection is gone, and with it the operation.
    pub fn lost(&mut self, reason: &str) {
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
            self.run.bring(self.command, name, value.as_deref()).map_err(|abort| abort.reason)?;
        }
        Ok(())
    }

    /// See [`tipover_core::target::Session::complaint`].
    pub fn complaint(&self) -> Option<&Complaint> {
        self.complaint.as_ref()
    }

    /// See [`tipover_core::target::Session::has_ended`].
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}
