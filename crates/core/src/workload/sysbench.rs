//! sysbench's OLTP workloads: its tables, and its eight scripts in our language. Written from what sysbench
//! 1.0 and 1.1 do; the names of settings and their defaults are its own.

use super::Random;
use super::script::{draw, put_digits};
use super::zipf::Zipf;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// How many tables there are, what is in them, and what a transaction does with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sysbench {
    /// How many tables: `sbtest1`, `sbtest2` and so on.
    pub tables: u64,
    /// Rows of each.
    pub table_size: u64,
    /// Which rows are asked for: sysbench's `rand-type`.
    pub rand_type: RandType,
    /// Rows of a range.
    pub range_size: u64,
    /// Selects by the key in a transaction; `oltp-point-select` has one.
    pub point_selects: u64,
    /// Whether a transaction reads ranges at all.
    pub range_selects: bool,
    /// Selects of a range in a transaction.
    pub simple_ranges: u64,
    /// The same that sum up.
    pub sum_ranges: u64,
    /// The same that sort.
    pub order_ranges: u64,
    /// The same without duplicates.
    pub distinct_ranges: u64,
    /// Updates of the indexed column in a transaction.
    pub index_updates: u64,
    /// Updates of another column.
    pub non_index_updates: u64,
    /// Rows that a transaction deletes and inserts again.
    pub delete_inserts: u64,
    /// Without BEGIN and COMMIT.
    pub skip_trx: bool,
}

impl Default for Sysbench {
    fn default() -> Self {
        Sysbench {
            tables: 1,
            table_size: 10_000,
            rand_type: RandType::Special,
            range_size: 100,
            point_selects: 10,
            range_selects: true,
            simple_ranges: 1,
            sum_ranges: 1,
            order_ranges: 1,
            distinct_ranges: 1,
            index_updates: 1,
            non_index_updates: 1,
            delete_inserts: 1,
            skip_trx: false,
        }
    }
}

/// sysbench's distributions, with the parameters that it has unless told otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RandType {
    /// Three quarters of all draws on a hundredth of the range, in its middle: the default of 1.0.
    #[default]
    Special,
    /// Each as likely as any other: the default of 1.1.
    Uniform,
    /// The mean of twelve uniform draws.
    Gaussian,
    /// Four fifths of all draws on the first fifth.
    Pareto,
    /// By rank, with exponent 0.8.
    Zipfian,
}

const H: f64 = 0.2;
const EXPONENT: f64 = 0.8;

impl RandType {
    /// As a script draws it from `low` to `high`.
    fn expression(self, low: u64, high: u64) -> String {
        match self {
            RandType::Special => format!("random_special({low}, {high})"),
            RandType::Uniform => format!("random({low}, {high})"),
            RandType::Gaussian => format!("random_mean({low}, {high})"),
            RandType::Pareto => format!("random_pareto({low}, {high}, {H})"),
            RandType::Zipfian => format!("random_zipf({low}, {high}, {EXPONENT})"),
        }
    }

    /// Draws one of 1..=`count`.
    fn draw(self, count: u64, random: &mut Random) -> u64 {
        1 + match self {
            RandType::Special => draw::special(count, random),
            RandType::Uniform => random.below(count),
            RandType::Gaussian => draw::of_mean(count, random),
            RandType::Pareto => draw::pareto(count, H, random),
            RandType::Zipfian => Zipf::new(count, EXPONENT).draw(random) - 1,
        }
    }
}

/// One of its workloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Oltp {
    /// What plans call it: sysbench's name with a hyphen.
    pub name: &'static str,
    steps: &'static [Step],
    /// Whether its statements are one transaction.
    transaction: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    PointSelects,
    /// One select by the key, whatever [`Sysbench::point_selects`] says.
    PointSelect,
    Ranges,
    IndexUpdates,
    NonIndexUpdates,
    DeleteInserts,
    Insert,
    Delete,
}

/// All of them.
pub const OLTP: [Oltp; 8] = [
    Oltp { name: "oltp-read-only", steps: &[Step::PointSelects, Step::Ranges], transaction: true },
    Oltp {
        name: "oltp-read-write",
        steps: &[
            Step::PointSelects,
            Step::Ranges,
            Step::IndexUpdates,
            Step::NonIndexUpdates,
            Step::DeleteInserts,
        ],
        transaction: true,
    },
    Oltp {
        name: "oltp-write-only",
        steps: &[Step::IndexUpdates, Step::NonIndexUpdates, Step::DeleteInserts],
        transaction: true,
    },
    Oltp { name: "oltp-point-select", steps: &[Step::PointSelect], transaction: false },
    Oltp { name: "oltp-update-index", steps: &[Step::IndexUpdates], transaction: false },
    Oltp { name: "oltp-update-non-index", steps: &[Step::NonIndexUpdates], transaction: false },
    Oltp { name: "oltp-insert", steps: &[Step::Insert], transaction: false },
    Oltp { name: "oltp-delete", steps: &[Step::Delete], transaction: false },
];

/// How a server makes the numbers of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// `SERIAL`: the column is left out of an INSERT.
    Serial,
    /// `AUTO_INCREMENT`: a zero stands for the next number.
    AutoIncrement,
}

/// The most tables: each is a name of its own for every statement.
pub const MOST_TABLES: u64 = 1_000;
/// The most statements of a kind in a transaction.
const MOST_STATEMENTS: u64 = 1_000;
/// The largest number that the columns can hold.
const MOST_ROWS: u64 = i32::MAX as u64;

impl Oltp {
    /// The one of this name, if it is one of sysbench's at all.
    pub fn find(name: &str) -> Option<Oltp> {
        OLTP.into_iter().find(|oltp| oltp.name == name)
    }

    /// What a transaction does, as a script; every kind of statement has a name.
    pub fn text(&self, settings: &Sysbench, numbering: Numbering) -> String {
        let mut script = Script { settings, text: String::new() };
        let transaction = self.transaction && !settings.skip_trx;
        if transaction {
            script.line("-- name: begin\nBEGIN;");
        }
        for step in self.steps {
            script.step(*step, numbering);
        }
        if transaction {
            script.line("-- name: commit\nCOMMIT;");
        }
        script.text
    }
}

struct Script<'a> {
    settings: &'a Sysbench,
    text: String,
}

impl Script<'_> {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Draws a table, which all statements of a kind share; how it is called in them.
    fn table(&mut self) -> &'static str {
        match self.settings.tables {
            1 => "sbtest1",
            tables => {
                self.line(&format!("\\set table random(1, {tables})"));
                "sbtest:table"
            }
        }
    }

    fn draw(&mut self, variable: &str) {
        let expression = self.settings.rand_type.expression(1, self.settings.table_size);
        self.line(&format!("\\set {variable} {expression}"));
    }

    /// Statements of a kind.
    fn many(&mut self, count: u64, name: &str, draws: &[&str], sql: &str) {
        if count == 0 {
            return;
        }
        let table = self.table();
        let sql = sql.replace("sbtest", table);
        for _ in 0..count {
            self.draw("id");
            draws.iter().for_each(|line| self.line(line));
            self.line(&format!("-- name: {name}\n{sql};"));
        }
    }

    fn step(&mut self, step: Step, numbering: Numbering) {
        const C: &str = "\\set c random_digits(10, 11)";
        const PAD: &str = "\\set pad random_digits(5, 11)";
        let settings = self.settings;
        let point = "SELECT c FROM sbtest WHERE id=:id";
        match step {
            Step::PointSelects => self.many(settings.point_selects, "point_selects", &[], point),
            Step::PointSelect => self.many(1, "point_selects", &[], point),
            Step::Ranges if !settings.range_selects => {}
            Step::Ranges => {
                let last = format!("\\set last :id + {}", settings.range_size.saturating_sub(1));
                for (count, name, columns, order) in [
                    (settings.simple_ranges, "simple_ranges", "c", ""),
                    (settings.sum_ranges, "sum_ranges", "SUM(k)", ""),
                    (settings.order_ranges, "order_ranges", "c", " ORDER BY c"),
                    (settings.distinct_ranges, "distinct_ranges", "DISTINCT c", " ORDER BY c"),
                ] {
                    let sql = format!("SELECT {columns} FROM sbtest WHERE id BETWEEN :id AND :last{order}");
                    self.many(count, name, &[&last], &sql);
                }
            }
            Step::IndexUpdates => {
                self.many(
                    settings.index_updates,
                    "index_updates",
                    &[],
                    "UPDATE sbtest SET k=k+1 WHERE id=:id",
                );
            }
            Step::NonIndexUpdates => {
                let sql = "UPDATE sbtest SET c=:c WHERE id=:id";
                self.many(settings.non_index_updates, "non_index_updates", &[C], sql);
            }
            Step::DeleteInserts => {
                let k = format!("\\set k {}", settings.rand_type.expression(1, settings.table_size));
                let sql = "DELETE FROM sbtest WHERE id=:id;\n-- name: inserts\n\
                    INSERT INTO sbtest (id, k, c, pad) VALUES (:id, :k, :c, :pad)";
                self.many(settings.delete_inserts, "deletes", &[&k, C, PAD], sql);
            }
            Step::Delete => self.many(1, "deletes", &[], "DELETE FROM sbtest WHERE id=:id"),
            Step::Insert => {
                let table = self.table();
                self.draw("k");
                self.line(C);
                self.line(PAD);
                let (columns, values) = match numbering {
                    Numbering::Serial => ("k, c, pad", ":k, :c, :pad"),
                    Numbering::AutoIncrement => ("id, k, c, pad", "0, :k, :c, :pad"),
                };
                self.line(&format!("-- name: inserts\nINSERT INTO {table} ({columns}) VALUES ({values});"));
            }
        }
    }
}

impl Sysbench {
    /// Rows of all tables.
    pub fn rows(&self) -> u64 {
        self.tables.saturating_mul(self.table_size)
    }

    /// What no type can say.
    ///
    /// # Errors
    /// Which setting is wrong.
    pub fn check(&self) -> Result<(), String> {
        let within = |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(format!("workload.scripts.sysbench.{name} must be from {least} to {most}")),
        };
        within("tables", self.tables, 1, MOST_TABLES)?;
        within("table_size", self.table_size, 1, MOST_ROWS)?;
        within("range_size", self.range_size, 1, MOST_ROWS)?;
        for (name, count) in [
            ("point_selects", self.point_selects),
            ("simple_ranges", self.simple_ranges),
            ("sum_ranges", self.sum_ranges),
            ("order_ranges", self.order_ranges),
            ("distinct_ranges", self.distinct_ranges),
            ("index_updates", self.index_updates),
            ("non_index_updates", self.non_index_updates),
            ("delete_inserts", self.delete_inserts),
        ] {
            within(name, count, 0, MOST_STATEMENTS)?;
        }
        Ok(())
    }

    /// Makes table `number`, which counts from 1: as sysbench makes it, before its rows are there.
    pub fn create(number: u64, numbering: Numbering) -> String {
        let (id, end) = match numbering {
            Numbering::Serial => ("SERIAL", ""),
            Numbering::AutoIncrement => ("INTEGER NOT NULL AUTO_INCREMENT", " /*! ENGINE = innodb */"),
        };
        format!(
            "CREATE TABLE IF NOT EXISTS sbtest{number}(id {id}, k INTEGER DEFAULT '0' NOT NULL, \
             c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)){end}"
        )
    }

    /// Makes the index of table `number`, after its rows are there.
    pub fn create_index(number: u64) -> String {
        format!("CREATE INDEX k_{number} ON sbtest{number}(k)")
    }

    /// The table and the key of row `number` of all, both counted from 1.
    pub fn place(&self, number: u64) -> (u64, u64) {
        (number / self.table_size + 1, number % self.table_size + 1)
    }

    /// Appends row `number` of all, as it stands in an INSERT of id, k, c and pad. The same for all seeds.
    pub fn put_row(&self, number: u64, out: &mut String) {
        const DATA_SEED: u64 = 0x5B7E_57A1;
        let mut random = Random::new(DATA_SEED, number);
        let (_, id) = self.place(number);
        let k = self.rand_type.draw(self.table_size, &mut random);
        let mut texts = Vec::with_capacity(200);
        put_digits(10, 11, &mut random, &mut texts);
        texts.extend_from_slice(b"','");
        put_digits(5, 11, &mut random, &mut texts);
        let texts = String::from_utf8(texts).expect("digits, dashes and quotes");
        let _ = write!(out, "({id},{k},'{texts}')");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::script::{Action, Dialect, Scripts};

    fn statements(text: &str) -> Vec<String> {
        let mut scripts = Scripts::new(1, Dialect::Plan);
        scripts.add("s", text.as_bytes(), 1).unwrap_or_else(|mistake| panic!("{mistake}: {text}"));
        let commands = &scripts.scripts()[0].commands;
        let sent = commands.iter().filter(|command| matches!(command.action, Action::Sql(_)));
        sent.map(|command| command.shown.clone()).collect()
    }

    #[test]
    fn transactions_are_what_sysbench_makes_of_its_options() {
        let of = |name: &str, settings: &Sysbench| {
            statements(&Oltp::find(name).unwrap().text(settings, Numbering::Serial))
        };
        let usual = Sysbench::default();
        let whole = of("oltp-read-write", &usual);
        assert_eq!((whole.len(), whole[0].as_str(), whole[19].as_str()), (20, "BEGIN;", "COMMIT;"));
        assert_eq!(whole[1], "SELECT c FROM sbtest1 WHERE id=:id;");
        assert_eq!(whole[14], "SELECT DISTINCT c FROM sbtest1 WHERE id BETWEEN :id AND :last ORDER BY c;");
        assert_eq!(whole[18], "INSERT INTO sbtest1 (id, k, c, pad) VALUES (:id, :k, :c, :pad);");
        for (name, count) in [
            ("oltp-read-only", 16),
            ("oltp-write-only", 6),
            ("oltp-point-select", 1),
            ("oltp-update-index", 1),
            ("oltp-update-non-index", 1),
            ("oltp-insert", 1),
            ("oltp-delete", 1),
        ] {
            assert_eq!(of(name, &usual).len(), count, "{name}");
        }
        let other = Sysbench {
            tables: 3,
            point_selects: 0,
            range_selects: false,
            delete_inserts: 2,
            skip_trx: true,
            ..usual
        };
        let whole = of("oltp-read-write", &other);
        assert_eq!(whole.len(), 6);
        assert_eq!(whole[0], "UPDATE sbtest:table SET k=k+1 WHERE id=:id;");
        let mysql = Oltp::find("oltp-insert").unwrap().text(&other, Numbering::AutoIncrement);
        assert_eq!(
            statements(&mysql),
            ["INSERT INTO sbtest:table (id, k, c, pad) VALUES (0, :k, :c, :pad);"]
        );
        for rand_type in [RandType::Uniform, RandType::Gaussian, RandType::Pareto, RandType::Zipfian] {
            assert_eq!(of("oltp-read-write", &Sysbench { rand_type, ..Sysbench::default() }).len(), 20);
        }
    }

    #[test]
    fn rows_have_sysbenchs_shape() {
        let sysbench = Sysbench { tables: 2, table_size: 50, ..Sysbench::default() };
        assert_eq!((sysbench.rows(), sysbench.place(0), sysbench.place(99)), (100, (1, 1), (2, 50)));
        let mut text = String::new();
        sysbench.put_row(50, &mut text);
        let mut again = String::new();
        sysbench.put_row(50, &mut again);
        assert_eq!(text, again);
        let (numbers, texts) = text.split_once(",'").unwrap();
        assert!(numbers.starts_with("(1,"), "{text}");
        let (c, pad) = texts.trim_end_matches("')").split_once("','").unwrap();
        assert_eq!((c.len(), pad.len()), (119, 59));
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        for (sysbench, key) in [
            (Sysbench { tables: 0, ..Sysbench::default() }, "tables"),
            (Sysbench { table_size: 1 << 31, ..Sysbench::default() }, "table_size"),
            (Sysbench { point_selects: 1_001, ..Sysbench::default() }, "point_selects"),
        ] {
            assert!(
                sysbench
                    .check()
                    .unwrap_err()
                    .starts_with(&format!("workload.scripts.sysbench.{key} must be"))
            );
        }
        assert_eq!(Sysbench::default().check(), Ok(()));
    }
}
