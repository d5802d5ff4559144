//! What an error of the server means for the operation that got it.

use super::packet::Report;
use crate::connection::sql;
use tipover_core::op::{Failure, OpKind, Outcome};

impl sql::Report for Report {
    fn lost(reason: impl std::fmt::Display) -> Report {
        Report { code: 0, message: reason.to_string() }
    }

    fn ends_connection(&self) -> bool {
        matches!(self.code, 0 | 1053 | 1079 | 1152 | 1184 | 1927 | 4031)
    }

    /// Each operation is a transaction of its own, which an error before its commit rolls back; an error of
    /// the commit itself leaves it open.
    fn outcome(&self, kind: OpKind) -> Outcome {
        let (failure, open) = classify(self);
        if open && kind.writes() { Outcome::Unknown(failure) } else { Outcome::Refused(failure) }
    }

    fn definite(&self) -> Outcome {
        Outcome::Refused(classify(self).0)
    }

    fn misses_table(&self) -> bool {
        self.code == 1146
    }

    fn advice(&self) -> &'static str {
        match self.code {
            1045 | 1698 => "; check user and password in the URL, or give the password in MYSQL_PWD",
            1044 | 1142 | 1227 | 1143 => "; grant it to this user",
            1049 => "; create the database, or name another one in the URL",
            1046 => "; name a database in the URL, as in mysql://user@host/database",
            1130 => "; the server must know this user from this host",
            1146 => "; load it first, or name another table",
            1040 | 1203 => "; raise max_connections, or use fewer sessions",
            1021 | 1114 => "; make room on the server's disk",
            1193 | 1231 | 1232 | 1238 => "; check target.settings",
            1229 => "; write it as \"global.NAME\" in target.settings, and it is put back at the end",
            1286 => "; the server has no such storage engine",
            3159 | 1251 => "; ask for TLS with ssl-mode=require",
            _ => "",
        }
    }
}

fn classify(report: &Report) -> (Failure, bool) {
    // The engine's own error number stands in the text: 28 is "no space left on device".
    let no_space = report.message.contains("error 28 ") || report.message.contains("rrcode: 28 ");
    match report.code {
        // ER_DUP_ENTRY
        1062 | 1586 => (Failure::Exists, false),
        // Lock wait timeout, deadlock (Galera's certification failure, too), record changed since last read.
        1205 | 1213 | 1020 => (Failure::Conflict, false),
        // ER_ERROR_DURING_COMMIT: it may be committed, here or on other nodes.
        1180 => (Failure::Other, true),
        // ER_UNKNOWN_COM_ERROR: a Galera node outside of the primary component says so to everything.
        1047 => (Failure::Unavailable, false),
        // Disk full, table full, no space for the engine.
        1021 | 1114 => (Failure::Full, false),
        1026 | 1030 if no_space => (Failure::Full, false),
        1023 | 1024 | 1026 | 1030 => (Failure::InputOutput, false),
        // Crashed, corrupted or checksum mismatch.
        1034 | 1035 | 1194 | 1195 | 1712 | 1877 => (Failure::Corrupt, false),
        // Too many connections, of all or of this user.
        1040 | 1203 | 1226 => (Failure::Unavailable, false),
        // Read-only: it is a replica now.
        1290 | 1792 | 1836 => (Failure::Unavailable, false),
        // Interrupted, or a limit on statements' time.
        1317 | 1969 | 3024 => (Failure::Timeout, true),
        // Shutdown, connection killed, aborted connection, lost connection, idle for too long.
        1053 | 1079 | 1152 | 1184 | 1927 | 2006 | 2013 | 4031 => (Failure::Unavailable, true),
        1235 | 1295 => (Failure::Unsupported, false),
        0 => (Failure::Unavailable, true),
        _ => (Failure::Other, false),
    }
}

/// Whether the server has forgotten a statement, so that only a new connection helps.
pub fn is_stale(report: &Report) -> bool {
    matches!(report.code, 1243 | 1615)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sql::Report as _;

    #[test]
    fn only_errors_at_the_commit_and_lost_servers_leave_a_write_open() {
        let cases = [
            (1213, Outcome::Refused(Failure::Conflict)),
            (1205, Outcome::Refused(Failure::Conflict)),
            (1180, Outcome::Unknown(Failure::Other)),
            (1047, Outcome::Refused(Failure::Unavailable)),
            (2013, Outcome::Unknown(Failure::Unavailable)),
            (1927, Outcome::Unknown(Failure::Unavailable)),
            (1317, Outcome::Unknown(Failure::Timeout)),
            (1062, Outcome::Refused(Failure::Exists)),
            (1114, Outcome::Refused(Failure::Full)),
            (1146, Outcome::Refused(Failure::Other)),
        ];
        for (code, expected) in cases {
            let report = Report { code, message: String::new() };
            assert_eq!(report.outcome(OpKind::Update), expected, "{code}");
            assert!(matches!(report.outcome(OpKind::Read), Outcome::Refused(_)));
        }
        let message = "Got error 28 \"No space left on device\" from storage engine InnoDB".to_string();
        let full = Report { code: 1030, message }.outcome(OpKind::Insert);
        assert_eq!(full, Outcome::Refused(Failure::Full));
    }
}
