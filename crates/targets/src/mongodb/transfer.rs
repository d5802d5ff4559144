//! One transfer of the bank as a transaction, step by step, so that it can be driven by a thread that blocks
//! and by a loop that never does.
//!
//! The ledger's row comes first: its key makes a transfer that is tried again recognisable. Then both
//! accounts are read, and what was computed from them is written back: a database that loses updates is to be
//! seen losing them.

use super::cluster::integer;
use super::message::Writer;
use super::options::{Acknowledgers, Options, WriteConcern};
use super::reply::{Fault, Level, Reply};
use super::session::{logical_session, write_concern};
use bson::{RawBsonRef, RawDocument};
use tipover_core::op::{Failure, Outcome};

/// Where accounts are kept: documents `{_id: number, balance: number}`.
pub const ACCOUNTS: &str = "tipover_accounts";
/// Where transfers are noted: documents `{_id: id, from, to, amount}`.
pub const TRANSFERS: &str = "tipover_transfers";
/// `wtimeout` of a commit that is sent again, as the drivers' specification has it.
const COMMIT_TIMEOUT_MS: i64 = 10_000;
/// How often a commit is sent before its outcome is unknown.
pub const COMMITS: u32 = 3;

/// A session's name and the number of the transaction in it.
#[derive(Debug, Clone, Copy)]
pub struct Numbered<'a> {
    /// The session's name.
    pub logical: &'a [u8; 16],
    /// The transaction's number.
    pub number: i64,
}

/// Which part is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Note,
    Look,
    Move { payer: i64, paid: i64 },
    Commit,
    Abort(Outcome),
}

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Send the request that [`Transfer::write`] writes now; first find another server if this is true.
    Send(bool),
    /// It is over.
    Finished(Outcome),
}

/// What became of a request that has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// It never left.
    NotSent,
    /// The connection broke after it left.
    Lost,
    /// Its time is over.
    TimedOut,
}

/// A transfer under way.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    id: i64,
    from: i64,
    to: i64,
    amount: i64,
    stage: Stage,
    commits: u32,
    in_doubt: bool,
}

/// Appends what belongs to every command of a transaction.
pub fn transaction_options(writer: &mut Writer, options: &Options, numbered: Numbered<'_>, starts: bool) {
    writer.string("$db", options.database.as_bytes());
    logical_session(writer, numbered.logical);
    writer.int64("txnNumber", numbered.number);
    writer.boolean("autocommit", false);
    if starts {
        writer.boolean("startTransaction", true);
        writer.begin_document("readConcern");
        writer.string("level", options.read_concern.as_deref().unwrap_or("snapshot").as_bytes());
        writer.end();
    }
}

/// Writes a commit or an abort. A commit that is sent again asks for a majority and for an end to waiting.
pub fn end_transaction(
    writer: &mut Writer,
    name: &str,
    options: &Options,
    numbered: Numbered<'_>,
    again: bool,
) {
    let concern = match again {
        false => options.write_concern.clone(),
        true => WriteConcern {
            members: Some(Acknowledgers::Named("majority".into())),
            timeout_ms: Some(options.write_concern.timeout_ms.unwrap_or(COMMIT_TIMEOUT_MS)),
            journal: options.write_concern.journal,
        },
    };
    writer.begin(0, 0);
    // The value means nothing to MongoDB; PoloDB knows an abort only by this type.
    writer.int64(name, 1);
    writer.string("$db", b"admin");
    logical_session(writer, numbered.logical);
    writer.int64("txnNumber", numbered.number);
    writer.boolean("autocommit", false);
    write_concern(writer, &concern);
    writer.finish();
}

impl Transfer {
    /// A transfer of `amount`, not begun.
    pub fn new(id: u64, from: u64, to: u64, amount: i64) -> Transfer {
        // Numbers beyond 63 bits wrap, and wrap back when they are read.
        let (id, from, to) = (id as i64, from as i64, to as i64);
        Transfer { id, from, to, amount, stage: Stage::Note, commits: 0, in_doubt: false }
    }

    /// Writes the request that is due.
    pub fn write(&self, writer: &mut Writer, options: &Options, numbered: Numbered<'_>) {
        match self.stage {
            Stage::Note => {
                writer.begin(0, 0);
                writer.string("insert", TRANSFERS.as_bytes());
                transaction_options(writer, options, numbered, true);
                writer.begin_sequence("documents");
                writer.begin_item();
                for (name, value) in
                    [("_id", self.id), ("from", self.from), ("to", self.to), ("amount", self.amount)]
                {
                    writer.int64(name, value);
                }
                writer.end();
                writer.finish();
            }
            Stage::Look => {
                writer.begin(0, 0);
                writer.string("find", ACCOUNTS.as_bytes());
                writer.begin_document("filter");
                writer.begin_document("_id");
                writer.begin_array("$in");
                writer.int64("0", self.from);
                writer.int64("1", self.to);
                writer.end();
                writer.end();
                writer.end();
                writer.boolean("singleBatch", true);
                transaction_options(writer, options, numbered, false);
                writer.finish();
            }
            Stage::Move { payer, paid } => {
                writer.begin(0, 0);
                writer.string("update", ACCOUNTS.as_bytes());
                transaction_options(writer, options, numbered, false);
                // In the command, as drivers send few: PoloDB looks nowhere else.
                writer.begin_array("updates");
                for (name, account, balance) in [("0", self.from, payer), ("1", self.to, paid)] {
                    writer.begin_document(name);
                    writer.begin_document("q");
                    writer.int64("_id", account);
                    writer.end();
                    writer.begin_document("u");
                    writer.begin_document("$set");
                    writer.int64("balance", balance);
                    writer.end();
                    writer.end();
                    writer.end();
                }
                writer.end();
                writer.finish();
            }
            Stage::Commit => {
                end_transaction(writer, "commitTransaction", options, numbered, self.commits > 1)
            }
            Stage::Abort(_) => end_transaction(writer, "abortTransaction", options, numbered, false),
        }
    }

    /// Whether what is due is a commit.
    pub fn commits(&self) -> bool {
        self.stage == Stage::Commit
    }

    /// Whether what is due is a commit that was sent before.
    pub fn repeats_commit(&self) -> bool {
        self.stage == Stage::Commit && self.commits > 1
    }

    /// Goes on after the answer `body`.
    pub fn answered(&mut self, body: &RawDocument) -> Next {
        let fault = Reply::read(body).fault;
        match (self.stage, fault) {
            (Stage::Abort(outcome), _) => Next::Finished(outcome),
            (Stage::Commit, None) => Next::Finished(Outcome::Done),
            (Stage::Commit, Some(fault)) => self.not_committed(&fault),
            // The server has ended the transaction itself.
            (_, Some(fault)) if fault.labels.transient_transaction => {
                Next::Finished(definite(fault.outcome(false)))
            }
            (_, Some(fault)) => self.abort(definite(fault.outcome(false))),
            (Stage::Note, None) => self.go(Stage::Look),
            (Stage::Look, None) => match balances(body, self.from, self.to) {
                (Some(payer), Some(_)) if payer < self.amount => {
                    self.abort(Outcome::Refused(Failure::Overdraft))
                }
                (Some(payer), Some(paid)) if self.from == self.to => self.go(Stage::Move { payer, paid }),
                (Some(payer), Some(paid)) => match paid.checked_add(self.amount) {
                    Some(paid) => self.go(Stage::Move { payer: payer - self.amount, paid }),
                    // No transfer of ours left that there.
                    None => self.abort(Outcome::Refused(Failure::Corrupt)),
                },
                _ => self.abort(Outcome::Refused(Failure::NotFound)),
            },
            (Stage::Move { .. }, None) => {
                self.commits = 1;
                self.go(Stage::Commit)
            }
        }
    }

    fn go(&mut self, stage: Stage) -> Next {
        self.stage = stage;
        Next::Send(false)
    }

    fn abort(&mut self, outcome: Outcome) -> Next {
        self.go(Stage::Abort(outcome))
    }

    fn not_committed(&mut self, fault: &Fault) -> Next {
        let outcome = commit_outcome(fault, self.in_doubt);
        if !is_commit_unknown(fault) && fault.level != Level::Concern
            || matches!(outcome, Outcome::Refused(_))
        {
            return Next::Finished(outcome);
        }
        self.in_doubt = true;
        self.commit_again(unknown(outcome), fault.is_change_of_primary())
    }

    fn commit_again(&mut self, otherwise: Outcome, elsewhere: bool) -> Next {
        if self.commits >= COMMITS {
            return Next::Finished(otherwise);
        }
        self.commits += 1;
        Next::Send(elsewhere)
    }

    /// Goes on after a request that has no answer.
    pub fn broken(&mut self, how: Broken) -> Next {
        let failure = if how == Broken::TimedOut { Failure::Timeout } else { Failure::Unavailable };
        match (self.stage, how) {
            (Stage::Abort(outcome), _) => Next::Finished(outcome),
            (Stage::Commit, Broken::Lost) => {
                self.in_doubt = true;
                self.commit_again(Outcome::Unknown(failure), true)
            }
            (Stage::Commit, Broken::TimedOut) => Next::Finished(Outcome::Unknown(failure)),
            (Stage::Commit, Broken::NotSent) if self.in_doubt => Next::Finished(Outcome::Unknown(failure)),
            // Nothing of a transaction stays that nobody committed.
            _ => Next::Finished(Outcome::Refused(failure)),
        }
    }
}

/// What became of a transaction whose commit was answered with `fault`; `in_doubt` says that a commit before
/// may have done it.
///
/// A commit in doubt is certainly not done only where the server says so: with `TransientTransactionError`,
/// that whoever takes writes now has never heard of it, and without a `writeConcernError`, that he will not
/// be rolled back himself (the drivers' specification of transactions).
pub fn commit_outcome(fault: &Fault, in_doubt: bool) -> Outcome {
    if fault.labels.transient_transaction && !fault.unconfirmed {
        return definite(fault.outcome(false));
    }
    match fault.outcome(true) {
        Outcome::Refused(failure) if in_doubt || fault.unconfirmed => Outcome::Unknown(failure),
        outcome => outcome,
    }
}

/// Whether nobody knows what a commit did that was answered with `fault`: the label that drivers set.
pub fn is_commit_unknown(fault: &Fault) -> bool {
    const UNSATISFIABLE: i32 = 100;
    const UNKNOWN_CONCERN: i32 = 79;
    const TIME_LIMIT: i32 = 50;
    const CONCERN_TIMED_OUT: i32 = 64;
    fault.labels.unknown_commit
        || match fault.level {
            Level::Concern => fault.code != UNSATISFIABLE && fault.code != UNKNOWN_CONCERN,
            _ => fault.is_retryable_write() || [TIME_LIMIT, CONCERN_TIMED_OUT].contains(&fault.code),
        }
}

/// An outcome before the commit: nothing stays of what was not committed.
pub fn definite(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Unknown(failure) => Outcome::Refused(failure),
        outcome => outcome,
    }
}

/// The same as one of which nobody knows.
pub fn unknown(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Refused(failure) => Outcome::Unknown(failure),
        outcome => outcome,
    }
}

fn balances(body: &RawDocument, from: i64, to: i64) -> (Option<i64>, Option<i64>) {
    let batch = body.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let (mut payer, mut paid) = (None, None);
    for document in batch.ok().into_iter().flatten().flatten().filter_map(RawBsonRef::as_document) {
        let account = integer(document, "_id");
        if account == Some(from) {
            payer = integer(document, "balance");
        }
        if account == Some(to) {
            paid = integer(document, "balance");
        }
    }
    (payer, paid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{RawDocumentBuf, rawdoc};

    /// A transfer whose commit is on its way.
    fn committing() -> Transfer {
        let mut transfer = Transfer::new(1, 2, 3, 4);
        let accounts = rawdoc! { "ok": 1.0, "cursor": { "id": 0_i64, "firstBatch": [
        { "_id": 2_i64, "balance": 10_i64 }, { "_id": 3_i64, "balance": 0_i64 }] } };
        for answer in [rawdoc! { "ok": 1.0, "n": 1 }, accounts, rawdoc! { "ok": 1.0, "n": 2 }] {
            assert_eq!(transfer.answered(&answer), Next::Send(false));
        }
        assert!(transfer.commits());
        transfer
    }

    #[test]
    fn a_balance_to_which_nothing_can_be_added_moves_nothing() {
        let mut transfer = Transfer::new(1, 2, 3, 4);
        let accounts = rawdoc! { "ok": 1.0, "cursor": { "id": 0_i64, "firstBatch": [
        { "_id": 2_i64, "balance": 10_i64 }, { "_id": 3_i64, "balance": i64::MAX - 3 }] } };
        assert_eq!(transfer.answered(&rawdoc! { "ok": 1.0, "n": 1 }), Next::Send(false));
        assert_eq!(transfer.answered(&accounts), Next::Send(false));
        assert_eq!(transfer.stage, Stage::Abort(Outcome::Refused(Failure::Corrupt)));
    }

    fn failing(code: i32, labelled: bool, unconfirmed: bool) -> RawDocumentBuf {
        let mut body = rawdoc! { "ok": 0.0, "code": code, "errmsg": "no" };
        if labelled {
            body.append(bson::raw::cstr!("errorLabels"), bson::rawbson!(["TransientTransactionError"]));
        }
        if unconfirmed {
            body.append(
                bson::raw::cstr!("writeConcernError"),
                bson::rawbson!({ "code": 64, "errmsg": "late" }),
            );
        }
        body
    }

    #[test]
    fn a_commit_in_doubt_is_definite_only_with_the_label_and_without_a_concern() {
        const GONE: i32 = 251;
        for (label, concern, expected) in [
            (true, false, Outcome::Refused(Failure::Conflict)),
            (true, true, Outcome::Unknown(Failure::Conflict)),
            (false, false, Outcome::Unknown(Failure::Conflict)),
            (false, true, Outcome::Unknown(Failure::Conflict)),
        ] {
            let mut transfer = committing();
            assert_eq!(transfer.broken(Broken::Lost), Next::Send(true));
            let ended = transfer.answered(&failing(GONE, label, concern));
            assert_eq!(ended, Next::Finished(expected), "label {label}, concern {concern}");
        }
        // Nobody doubts a first commit that is refused; with a concern, whoever refuses may be rolled back.
        let first = |code, label, concern| committing().answered(&failing(code, label, concern));
        assert_eq!(first(GONE, false, false), Next::Finished(Outcome::Refused(Failure::Conflict)));
        assert_eq!(first(GONE, true, true), Next::Finished(Outcome::Unknown(Failure::Conflict)));
        assert_eq!(first(8, false, false), Next::Finished(Outcome::Unknown(Failure::Other)), "UnknownError");
        // A change of primary is asked again, elsewhere, and stays in doubt however often.
        let mut transfer = committing();
        assert_eq!(transfer.answered(&failing(189, false, false)), Next::Send(true));
        assert_eq!(transfer.answered(&failing(91, false, false)), Next::Send(true));
        let unknown = Next::Finished(Outcome::Unknown(Failure::Unavailable));
        assert_eq!(transfer.answered(&failing(11600, false, false)), unknown);
    }
}
