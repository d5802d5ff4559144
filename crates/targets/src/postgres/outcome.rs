//! What an error of the server means for the operation that got it.

use super::message::Report;
use crate::connection::sql;
use tipover_core::op::{Failure, OpKind, Outcome};

impl sql::Report for Report {
    fn lost(reason: impl std::fmt::Display) -> Report {
        Report { severity: "FATAL".into(), message: reason.to_string(), ..Report::default() }
    }

    fn ends_connection(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }

    /// An ERROR ends the transaction before its commit, so the operation certainly did not happen. Not so
    /// when the server or the connection went down, nor when something cancelled it and only that is known.
    fn outcome(&self, kind: OpKind) -> Outcome {
        let (failure, open) = classify(&self.code);
        if (open || self.ends_connection()) && kind.writes() {
            Outcome::Unknown(failure)
        } else {
            Outcome::Refused(failure)
        }
    }

    fn definite(&self) -> Outcome {
        Outcome::Refused(classify(&self.code).0)
    }

    fn misses_table(&self) -> bool {
        self.code == "42P01"
    }

    fn advice(&self) -> &'static str {
        match self.code.as_str() {
            "28P01" => "; check user and password in the URL, or give the password in PGPASSWORD",
            "28000" => "; the server's pg_hba.conf must allow this user, host and database",
            "3D000" => "; create the database, or name another one in the URL",
            "42P01" => "; load it first, or name another table",
            "42501" => "; grant it to this user",
            "53300" => "; raise max_connections, or use fewer sessions",
            "53100" => "; make room on the server's disk",
            "57P03" => "; wait until the server has started",
            "25006" => "; connect to the primary",
            "42704" | "22023" => "; check target.settings",
            _ => "",
        }
    }
}

/// The failure of an SQLSTATE, and whether it leaves open what a write did.
fn classify(code: &str) -> (Failure, bool) {
    match code {
        // unique_violation
        "23505" => (Failure::Exists, false),
        // serialization_failure, deadlock_detected, lock_not_available
        "40001" | "40P01" | "55P03" => (Failure::Conflict, false),
        // statement_completion_unknown
        "40003" => (Failure::Other, true),
        // disk_full
        "53100" => (Failure::Full, false),
        // too_many_connections; read_only_sql_transaction: this one is a standby now.
        "53300" | "25006" => (Failure::Unavailable, false),
        // query_canceled and the time-outs of locks, transactions and idle sessions.
        "57014" | "25P03" | "25P04" | "57P05" => (Failure::Timeout, true),
        // cannot_connect_now: it was never looked at.
        "57P03" => (Failure::Unavailable, false),
        // io_error
        "58030" => (Failure::InputOutput, false),
        "XX001" | "XX002" => (Failure::Corrupt, false),
        _ if code.starts_with("57P") || code.starts_with("08") => (Failure::Unavailable, true),
        _ if code.starts_with("0A") => (Failure::Unsupported, false),
        "" => (Failure::Unavailable, true),
        _ => (Failure::Other, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Report as _;

    fn report(severity: &str, code: &str) -> Report {
        Report { severity: severity.into(), code: code.into(), ..Report::default() }
    }

    #[test]
    fn an_error_before_the_commit_is_certain_and_a_lost_server_is_not() {
        let cases = [
            ("ERROR", "40001", Outcome::Refused(Failure::Conflict)),
            ("ERROR", "23505", Outcome::Refused(Failure::Exists)),
            ("ERROR", "40P01", Outcome::Refused(Failure::Conflict)),
            ("ERROR", "53100", Outcome::Refused(Failure::Full)),
            ("ERROR", "57014", Outcome::Unknown(Failure::Timeout)),
            ("FATAL", "57P01", Outcome::Unknown(Failure::Unavailable)),
            ("WARNING", "57P02", Outcome::Unknown(Failure::Unavailable)),
            ("FATAL", "57P03", Outcome::Unknown(Failure::Unavailable)),
            ("ERROR", "08006", Outcome::Unknown(Failure::Unavailable)),
            ("ERROR", "58030", Outcome::Refused(Failure::InputOutput)),
            ("PANIC", "58030", Outcome::Unknown(Failure::InputOutput)),
            ("ERROR", "XX001", Outcome::Refused(Failure::Corrupt)),
            ("ERROR", "42P01", Outcome::Refused(Failure::Other)),
        ];
        for (severity, code, expected) in cases {
            assert_eq!(report(severity, code).outcome(OpKind::Update), expected, "{severity} {code}");
            // A read changed nothing, whatever became of it.
            assert!(matches!(report(severity, code).outcome(OpKind::Read), Outcome::Refused(_)));
        }
    }
}
