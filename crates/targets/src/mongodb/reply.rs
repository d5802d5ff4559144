//! What a server's answer means: which of the three outcomes, and which labels for whoever tries again.

use super::cluster::integer;
use bson::{RawBsonRef, RawDocument};
use tipover_core::op::{Failure, OpKind, Outcome};

/// Error labels; they decide who may try what again, so that they are kept whatever happens to the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Labels {
    /// `RetryableWriteError`
    pub retryable_write: bool,
    /// `TransientTransactionError`
    pub transient_transaction: bool,
    /// `UnknownTransactionCommitResult`
    pub unknown_commit: bool,
    /// `NoWritesPerformed`
    pub no_writes_performed: bool,
}

impl Labels {
    fn read(body: &RawDocument) -> Labels {
        let mut labels = Labels::default();
        for label in body.get_array("errorLabels").ok().into_iter().flatten().flatten() {
            match label.as_str() {
                Some("RetryableWriteError") => labels.retryable_write = true,
                Some("TransientTransactionError") => labels.transient_transaction = true,
                Some("UnknownTransactionCommitResult") => labels.unknown_commit = true,
                Some("NoWritesPerformed") => labels.no_writes_performed = true,
                _ => {}
            }
        }
        labels
    }
}

/// Where in the answer an error stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The whole command failed (`ok: 0`).
    Command,
    /// One document of it (`writeErrors`).
    Document,
    /// It was done where it was sent, but not confirmed as asked (`writeConcernError`).
    Concern,
}

/// An error as the server put it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// MongoDB's error code; 0 where there is none.
    pub code: i32,
    /// In the server's words.
    pub message: String,
    /// Where it stood.
    pub level: Level,
    /// With which labels.
    pub labels: Labels,
    /// Whether a `writeConcernError` stood beside it, or was it.
    pub unconfirmed: bool,
}

/// An answer, understood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// Documents matched, inserted or deleted.
    pub n: i64,
    /// Documents that failed.
    pub failed: usize,
    /// The error, if there is one. A failed document goes before an unconfirmed one.
    pub fault: Option<Fault>,
}

const DUPLICATE_KEY: i32 = 11000;
const WRITE_CONFLICT: i32 = 112;

// What a code means is MongoDB's `src/mongo/base/error_codes.yml`. A write that was answered with a code is
// certainly not done only if the code stands in one of the next four lists: each is given before anything is
// written, or where the write's unit of work is rolled back. Of all others, also of those to come, nobody
// knows.

/// "Not the primary", asked before anything is done. The category NotPrimaryError is wider: its other codes
/// are also given after a write.
const NOT_PRIMARY: [i32; 4] = [10107, 13435, 13436, 10058];
/// Another transaction, or a lock, was in the way: WriteConflict, NoSuchTransaction, TransactionTooOld,
/// LockTimeout, LockBusy, PreparedTransactionInProgress.
const CONFLICTS: [i32; 6] = [WRITE_CONFLICT, 251, 225, 24, 46, 267];
/// The server knows no such command, option or storage engine feature: CommandNotFound, CommandNotSupported,
/// IllegalOperation, InvalidOptions, CommandNotSupportedOnView, NotImplemented,
/// OperationNotSupportedInTransaction, UnsupportedOpQueryCommand.
const UNSUPPORTED: [i32; 8] = [59, 115, 20, 72, 166, 238, 263, 352];
/// The request or its document is wrong, or not allowed: BadValue, FailedToParse, Unauthorized, TypeMismatch,
/// Overflow, InvalidLength, AuthenticationFailed, InvalidBSON, NamespaceNotFound, PathNotViable,
/// ConflictingUpdateOperators, DollarPrefixedFieldName, InvalidIdField, NotSingleValueField, EmptyFieldName,
/// DottedFieldName, ShardKeyNotFound, ImmutableField, InvalidNamespace, DocTooLargeForCapped,
/// DocumentValidationFailure, UserWritesBlocked, NonConformantBSON, BSONObjectTooLarge, KeyTooLong,
/// IDLDuplicateField, IDLFailedToParse, IDLUnknownField, NotARetryableWriteCommand.
const WRONG: [i32; 29] = [
    2, 9, 13, 14, 15, 16, 18, 22, 26, 28, 40, 52, 53, 54, 56, 57, 61, 66, 73, 116, 121, 371, 378, 10334,
    17280, 40413, 40414, 40415, 50768,
];
/// OutOfDiskSpace is asked before anything is written.
const OUT_OF_DISK: i32 = 14031;

/// Codes of a server that stops being primary, or stops altogether, perhaps after the write was applied.
const STEPPING_DOWN: [i32; 5] = [189, 11600, 11602, 91, 7];
/// The network between servers, as a router reports it.
const NETWORK: [i32; 3] = [6, 89, 9001];
/// Time that the server itself gave the operation.
const TIME_LIMITS: [i32; 2] = [50, 262];
/// FileStreamFailed: a file could not be written to its end.
const FILE_FAILED: i32 = 39;

impl Reply {
    /// Reads an answer in one pass.
    pub fn read(body: &RawDocument) -> Reply {
        let mut answer = Reply { n: 0, failed: 0, fault: None };
        let mut ok = false;
        let (mut document, mut concern) = (None, None);
        for element in body.iter_elements() {
            let Ok(element) = element else { break };
            match element.key().as_str() {
                "ok" => ok = element.value().is_ok_and(|value| is_one(value)),
                "n" => answer.n = element.value().ok().and_then(whole).unwrap_or(0),
                "writeErrors" => document = element.value().ok().and_then(|value| value.as_array()),
                "writeConcernError" => concern = element.value().ok().and_then(|value| value.as_document()),
                _ => {}
            }
        }
        let unconfirmed = concern.is_some();
        if !ok {
            answer.fault = Some(Fault { unconfirmed, ..Fault::read(body, body, Level::Command) });
        } else if let Some(errors) = document {
            let mut errors = errors.into_iter().flatten().filter_map(|error| error.as_document());
            if let Some(first) = errors.next() {
                answer.failed = 1 + errors.count();
                answer.fault = Some(Fault { unconfirmed, ..Fault::read(first, body, Level::Document) });
            }
        }
        if answer.fault.is_none() {
            answer.fault = concern.map(|concern| Fault::read(concern, body, Level::Concern));
        }
        answer
    }

    /// What became of an operation of class `kind` over `documents` documents.
    pub fn outcome(&self, kind: OpKind, documents: usize) -> Outcome {
        let Some(fault) = &self.fault else {
            let missing = kind == OpKind::Update && self.n == 0;
            return if missing { Outcome::Refused(Failure::NotFound) } else { Outcome::Done };
        };
        let outcome = fault.outcome(kind.writes());
        match (outcome, fault.level) {
            // Some of the documents are there and some are not.
            (Outcome::Refused(failure), Level::Document) if self.failed < documents => {
                Outcome::Unknown(failure)
            }
            // What is found out at a document ends a command of which others may be there already; what is
            // found out about the request does not.
            (Outcome::Refused(failure), Level::Command)
                if documents > 1
                    && kind.writes()
                    && !fault.labels.no_writes_performed
                    && !matches!(failure, Failure::Other | Failure::Unsupported) =>
            {
                Outcome::Unknown(failure)
            }
            (outcome, _) => outcome,
        }
    }
}

fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    value.as_i32().map(i64::from).or_else(|| value.as_i64()).or_else(|| value.as_f64().map(|n| n as i64))
}

fn is_one(value: RawBsonRef<'_>) -> bool {
    whole(value) == Some(1) || value.as_bool() == Some(true)
}

impl Fault {
    fn read(error: &RawDocument, body: &RawDocument, level: Level) -> Fault {
        let text = error.get_str("errmsg").or_else(|_| error.get_str("$err"));
        Fault {
            code: integer(error, "code").unwrap_or(0) as i32,
            message: text.unwrap_or("no reason given").to_string(),
            level,
            labels: Labels::read(body),
            unconfirmed: level == Level::Concern,
        }
    }

    /// What it says about an operation that `writes` or does not.
    pub fn outcome(&self, writes: bool) -> Outcome {
        let may_be_done = writes && !self.labels.no_writes_performed;
        let perhaps = |failure| match may_be_done {
            true => Outcome::Unknown(failure),
            false => Outcome::Refused(failure),
        };
        if self.level == Level::Concern {
            // It is done where it was sent, whatever the code: a failover may still roll it back.
            return Outcome::Unknown(Failure::Unreplicated);
        }
        if self.labels.unknown_commit {
            return Outcome::Unknown(Failure::Other);
        }
        match self.code {
            DUPLICATE_KEY => Outcome::Refused(Failure::Exists),
            code if NOT_PRIMARY.contains(&code) => Outcome::Refused(Failure::Unavailable),
            code if CONFLICTS.contains(&code) => Outcome::Refused(Failure::Conflict),
            code if STEPPING_DOWN.contains(&code) || NETWORK.contains(&code) => perhaps(Failure::Unavailable),
            code if TIME_LIMITS.contains(&code) => perhaps(Failure::Timeout),
            64 | 100 | 79 if writes => Outcome::Unknown(Failure::Unreplicated),
            code if UNSUPPORTED.contains(&code) => Outcome::Refused(Failure::Unsupported),
            code if WRONG.contains(&code) => Outcome::Refused(Failure::Other),
            OUT_OF_DISK => Outcome::Refused(Failure::Full),
            FILE_FAILED => perhaps(Failure::Full),
            _ if self.labels.transient_transaction => Outcome::Refused(Failure::Conflict),
            _ => perhaps(Failure::Other),
        }
    }

    /// Whether the server is not, or not any longer, one that takes this operation.
    pub fn is_change_of_primary(&self) -> bool {
        NOT_PRIMARY.contains(&self.code) || STEPPING_DOWN.contains(&self.code)
    }

    /// Whether the same write may be sent once more under the same transaction number. Servers before 4.4 set
    /// no labels, so that the codes of the drivers' specification count too.
    pub fn is_retryable_write(&self) -> bool {
        self.labels.retryable_write
            || self.level != Level::Document && (self.is_change_of_primary() || NETWORK.contains(&self.code))
    }

    /// Whether the key was there already.
    pub fn is_duplicate(&self) -> bool {
        self.code == DUPLICATE_KEY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::{RawDocumentBuf, rawdoc};

    fn outcome(body: RawDocumentBuf, kind: OpKind) -> Outcome {
        Reply::read(&body).outcome(kind, 1)
    }

    fn failing(code: i32) -> RawDocumentBuf {
        rawdoc! { "ok": 0.0, "code": code, "errmsg": "no" }
    }

    #[test]
    fn success_and_absence() {
        assert_eq!(outcome(rawdoc! { "n": 1, "ok": 1.0 }, OpKind::Update), Outcome::Done);
        assert_eq!(outcome(rawdoc! { "n": 1_i64, "ok": 1 }, OpKind::Insert), Outcome::Done);
        assert_eq!(
            outcome(rawdoc! { "n": 0, "ok": 1.0 }, OpKind::Update),
            Outcome::Refused(Failure::NotFound)
        );
    }

    #[test]
    fn definite_refusals_stay_definite_and_open_ones_open() {
        use Failure::*;
        for (code, read, write) in [
            (10107, Outcome::Refused(Unavailable), Outcome::Refused(Unavailable)),
            (112, Outcome::Refused(Conflict), Outcome::Refused(Conflict)),
            (59, Outcome::Refused(Unsupported), Outcome::Refused(Unsupported)),
            (14031, Outcome::Refused(Full), Outcome::Refused(Full)),
            (189, Outcome::Refused(Unavailable), Outcome::Unknown(Unavailable)),
            (11602, Outcome::Refused(Unavailable), Outcome::Unknown(Unavailable)),
            (6, Outcome::Refused(Unavailable), Outcome::Unknown(Unavailable)),
            (39, Outcome::Refused(Full), Outcome::Unknown(Full)),
            (121, Outcome::Refused(Other), Outcome::Refused(Other)),
            // InternalError, UnknownError, CommandFailed, Interrupted; what no list has, and no code at all.
            (1, Outcome::Refused(Other), Outcome::Unknown(Other)),
            (8, Outcome::Refused(Other), Outcome::Unknown(Other)),
            (125, Outcome::Refused(Other), Outcome::Unknown(Other)),
            (11601, Outcome::Refused(Other), Outcome::Unknown(Other)),
            (7_654_321, Outcome::Refused(Other), Outcome::Unknown(Other)),
            (0, Outcome::Refused(Other), Outcome::Unknown(Other)),
            (50, Outcome::Refused(Timeout), Outcome::Unknown(Timeout)),
            (9, Outcome::Refused(Other), Outcome::Refused(Other)),
        ] {
            assert_eq!(outcome(failing(code), OpKind::Read), read, "{code}");
            assert_eq!(outcome(failing(code), OpKind::Update), write, "{code}");
            let mut at_document = rawdoc! { "n": 0, "ok": 1.0 };
            at_document
                .append(bson::raw::cstr!("writeErrors"), bson::rawbson!([{ "index": 0, "code": code }]));
            assert_eq!(outcome(at_document, OpKind::Update), write, "{code} of a document");
            // The server itself may know better.
            let mut nothing = failing(code);
            nothing.append(bson::raw::cstr!("errorLabels"), bson::rawbson!(["NoWritesPerformed"]));
            assert_eq!(outcome(nothing, OpKind::Update), read, "{code}, and nothing was written");
        }
    }

    #[test]
    fn no_code_is_in_two_lists() {
        let lists: [&[i32]; 7] =
            [&NOT_PRIMARY, &CONFLICTS, &UNSUPPORTED, &WRONG, &STEPPING_DOWN, &NETWORK, &TIME_LIMITS];
        let mut codes = lists.concat();
        codes.extend([DUPLICATE_KEY, OUT_OF_DISK, FILE_FAILED, 64, 100, 79]);
        let all = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }

    #[test]
    fn what_was_not_confirmed_is_unknown_even_with_the_code_of_a_refusal() {
        for code in [64, 100, 10107, 91] {
            let body = rawdoc! { "n": 1, "ok": 1.0, "writeConcernError": { "code": code, "errmsg": "late",
            "errInfo": { "wtimeout": true } } };
            assert_eq!(outcome(body, OpKind::Insert), Outcome::Unknown(Failure::Unreplicated), "{code}");
        }
        let both = rawdoc! { "n": 0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 11000, "errmsg": "dup" }],
        "writeConcernError": { "code": 64, "errmsg": "late" } };
        assert_eq!(outcome(both, OpKind::Insert), Outcome::Refused(Failure::Exists));
    }

    #[test]
    fn a_batch_of_which_some_failed_is_neither_done_nor_refused() {
        let body =
            rawdoc! { "n": 2, "ok": 1.0, "writeErrors": [{ "index": 1, "code": 11000, "errmsg": "dup" }] };
        let answer = Reply::read(&body);
        assert_eq!(answer.outcome(OpKind::InsertMany, 3), Outcome::Unknown(Failure::Exists));
        assert_eq!(answer.outcome(OpKind::InsertMany, 1), Outcome::Refused(Failure::Exists));
        assert!(answer.fault.unwrap().is_duplicate());
        // Some may have been written before the whole command failed at another; not before it was read.
        let many = |code| Reply::read(&failing(code)).outcome(OpKind::InsertMany, 3);
        assert_eq!(many(10107), Outcome::Unknown(Failure::Unavailable));
        assert_eq!(many(112), Outcome::Unknown(Failure::Conflict));
        assert_eq!(many(14031), Outcome::Unknown(Failure::Full));
        assert_eq!(many(59), Outcome::Refused(Failure::Unsupported));
        assert_eq!(many(13), Outcome::Refused(Failure::Other));
    }

    #[test]
    fn labels_survive() {
        let body = rawdoc! { "ok": 0.0, "code": 251, "errmsg": "gone",
        "errorLabels": ["TransientTransactionError", "UnknownTransactionCommitResult", "RetryableWriteError"] };
        let fault = Reply::read(&body).fault.unwrap();
        let all = Labels {
            retryable_write: true,
            transient_transaction: true,
            unknown_commit: true,
            no_writes_performed: false,
        };
        assert_eq!(fault.labels, all);
        assert_eq!(fault.outcome(true), Outcome::Unknown(Failure::Other));
        assert!(fault.is_retryable_write());
    }

    proptest::proptest! {
        #[test]
        fn no_body_panics(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60)) {
            let mut bytes = bytes;
            let length = bytes.len() + 5;
            let mut document = (length as i32).to_le_bytes().to_vec();
            document.append(&mut bytes);
            document.push(0);
            let _ = Reply::read(RawDocument::from_bytes(&document).unwrap()).outcome(OpKind::Update, 1);
        }
    }
}
