//! The scripts that pgbench has built in.

/// A script that everybody has.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// What `-b` calls it.
    pub name: &'static str,
    /// What reports call it.
    pub description: &'static str,
    /// Its text.
    pub text: &'static str,
}

/// All of them, in the order in which pgbench lists them.
pub const BUILT_IN: [BuiltIn; 3] = [
    BuiltIn {
        name: "tpcb-like",
        description: "<builtin: TPC-B (sort of)>",
        text: "\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
",
    },
    BuiltIn {
        name: "simple-update",
        description: "<builtin: simple update>",
        text: "\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
",
    },
    BuiltIn {
        name: "select-only",
        description: "<builtin: select only>",
        text: "\\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
",
    },
];

impl BuiltIn {
    /// Its text in words that every SQL server knows: only PostgreSQL takes END for COMMIT.
    pub fn portable(&self) -> String {
        self.text.replace("\nEND;\n", "\nCOMMIT;\n")
    }

    /// The one that `name` is, or begins.
    ///
    /// # Errors
    /// None, or more than one.
    pub fn find(name: &str) -> Result<BuiltIn, String> {
        let found: Vec<BuiltIn> =
            BUILT_IN.into_iter().filter(|script| script.name.starts_with(name)).collect();
        match found.as_slice() {
            [one] => Ok(*one),
            [] => Err(format!("no builtin script found for name \"{name}\"")),
            many => Err(format!(
                "ambiguous builtin name: {} builtin scripts found for prefix \"{name}\"",
                many.len()
            )),
        }
    }
}
