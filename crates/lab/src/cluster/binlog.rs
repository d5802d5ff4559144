//! Where a replica of MariaDB's stands, in its own words.

use super::Cluster;
use tipover_core::experiment::recipe::Replication;

/// Columns of `SHOW SLAVE STATUS` behind that of the port; new ones are added at the end. Counted from there
/// because the first column can be empty, and is then cut off with the space around the answer.
const IO_RUNS: usize = 7;
const SQL_RUNS: usize = 8;
const IO_ERROR: usize = 32;
const SQL_ERROR: usize = 34;

impl Cluster {
    /// How far the primary's binary log reaches now; empty for other databases.
    pub(super) fn written(&mut self) -> String {
        let asked = self.recipe.replication == Replication::Binlog && self.nodes[self.primary].is_running();
        let answer = asked.then(|| self.query(self.primary, "SELECT @@GLOBAL.gtid_binlog_pos"));
        answer.and_then(Result::ok).unwrap_or_default()
    }

    /// Why replica `node` does not follow, or has not applied what was `written` yet. Under load it never has
    /// applied everything, so what counts is where the primary was when somebody began to wait.
    pub(super) fn lagging(&self, node: usize, written: &str) -> Option<String> {
        match self.query(node, "SHOW SLAVE STATUS") {
            Err(error) => return Some(error.to_string()),
            Ok(status) => {
                if let Some(words) = stopped(&status, &self.recipe.port.to_string()) {
                    return Some(words);
                }
            }
        }
        match self.query(node, "SELECT @@GLOBAL.gtid_slave_pos") {
            Ok(applied) if reaches(&applied, written) => None,
            Ok(applied) => Some(format!("it has applied {applied:?} of {written:?}")),
            Err(error) => Some(error.to_string()),
        }
    }
}

/// What is wrong in an answer to `SHOW SLAVE STATUS`.
fn stopped(status: &str, port: &str) -> Option<String> {
    let fields = status.lines().next().unwrap_or_default().split('\t');
    let fields: Vec<&str> = fields.skip_while(|field| *field != port).collect();
    let field = |number: usize| fields.get(number).copied().unwrap_or_default();
    if fields.len() <= SQL_ERROR {
        return Some("it is no replica of anybody".into());
    }
    for (runs, error, what) in [(IO_RUNS, IO_ERROR, "receive"), (SQL_RUNS, SQL_ERROR, "apply")] {
        if field(runs) != "Yes" {
            let why = if field(error).is_empty() { "no reason given" } else { field(error) };
            return Some(format!("it does not {what}: {why}"));
        }
    }
    None
}

/// Whether a list of GTIDs (`domain-server-number`, apart by commas) has come as far as another one in each
/// of its domains.
fn reaches(applied: &str, written: &str) -> bool {
    let read = |text: &str| -> Vec<(String, u64)> {
        let one = |gtid: &str| {
            let (place, number) = gtid.trim().rsplit_once('-')?;
            Some((place.split('-').next()?.to_string(), number.parse().ok()?))
        };
        text.split(',').filter_map(one).collect()
    };
    let applied = read(applied);
    read(written).iter().all(|(domain, number)| applied.iter().any(|(d, n)| d == domain && n >= number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_compared_by_domain() {
        for (applied, written, wanted) in [
            ("0-1-7", "0-1-7", true),
            ("0-2-8", "0-1-7", true),
            ("0-1-6", "0-1-7", false),
            ("0-1-9,1-1-2", "0-1-7,1-1-3", false),
            ("", "0-1-1", false),
            ("", "", true),
        ] {
            assert_eq!(reaches(applied, written), wanted, "{applied:?} {written:?}");
        }
    }

    #[test]
    fn a_replica_that_stopped_says_why() {
        let status = |state: &str, io: &str, sql: &str, error: &str| {
            let mut fields = vec![""; 50];
            (fields[0], fields[1], fields[3]) = (state, "10.0.0.2", "3306");
            (fields[3 + IO_RUNS], fields[3 + SQL_RUNS], fields[3 + SQL_ERROR]) = (io, sql, error);
            format!("{}\tmore", fields.join("\t")).trim().to_string()
        };
        let stopped = |status: &str| stopped(status, "3306");
        assert_eq!(stopped(&status("Waiting for master", "Yes", "Yes", "")), None);
        let words = stopped(&status("Waiting", "Yes", "No", "Error 'Duplicate entry'")).unwrap();
        assert_eq!(words, "it does not apply: Error 'Duplicate entry'");
        // As after error 1236: without a state, the line begins with the master's name.
        assert_eq!(stopped(&status("", "No", "Yes", "x")).unwrap(), "it does not receive: no reason given");
        assert_eq!(stopped("").unwrap(), "it is no replica of anybody");
    }
}
