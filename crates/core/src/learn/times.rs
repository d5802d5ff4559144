//! What a server counts of the statements of scripts, found among all its statements by their shapes.

use super::statement::Statement;
use super::token::Dialect;
use super::watch::{Count, Counters, Watch, difference};
use crate::op::OpKind;
use crate::target::TargetError;
use crate::workload::script::Scripts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// What the server itself counted in the measured phase.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerTimes {
    /// Of each class of statements that it could be found for.
    Told(Vec<ServerTime>),
    /// Nothing: why, and what to do about it.
    Untold(String),
}

impl ServerTimes {
    /// Of one class.
    pub fn of(&self, kind: OpKind) -> Option<&ServerTime> {
        match self {
            ServerTimes::Told(all) => all.iter().find(|time| time.statement == kind),
            ServerTimes::Untold(_) => None,
        }
    }
}

/// What a server counted of the statements of one class, whoever sent them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerTime {
    /// The class.
    pub statement: OpKind,
    /// How often it carried them out.
    pub calls: u64,
    /// Milliseconds that this took in all, as it counts them: without the network, and of PostgreSQL without
    /// reading and planning the text and without the commit behind it.
    pub time_ms: f64,
}

/// The statements of scripts among all those that a server counts.
pub struct ServerWatch {
    watch: Box<dyn Watch>,
    dialect: Dialect,
    /// What each class sends: a shape, in which [`PART`] stands for a part of a word.
    shapes: Vec<(OpKind, String)>,
    last: Counters,
}

/// Stands for a value that is a part of a word, in a text that must still have the same words: a letter that
/// is in no table's name.
const PART: char = '\u{a66e}';

impl ServerWatch {
    /// Begins to watch for the statements of `scripts`.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub fn begin(
        scripts: &Scripts,
        mut watch: Box<dyn Watch>,
        dialect: Dialect,
    ) -> Result<ServerWatch, TargetError> {
        let parameter = match dialect {
            Dialect::Postgres => "$1",
            Dialect::Mysql => "?",
        };
        let part = PART.to_string();
        let shape = |(class, text): (usize, String)| {
            let shape = Statement::read(&text, dialect)?.shape;
            Some((
                OpKind::statement(class),
                if dialect == Dialect::Mysql { of_one_row(shape) } else { shape },
            ))
        };
        let shapes = scripts.texts(parameter, &part).filter_map(shape).collect();
        let last = watch.counters()?;
        Ok(ServerWatch { watch, dialect, shapes, last })
    }

    /// What was counted since the last time that this was asked.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub fn since(&mut self) -> Result<Vec<ServerTime>, TargetError> {
        let now = self.watch.counters()?;
        let grown = difference(&self.last, &now);
        self.last = now;
        let texts = self.watch.texts()?;
        Ok(times(&self.shapes, &grown.statements, &texts, self.dialect))
    }
}

/// Of many rows a digest keeps the first.
fn of_one_row(mut shape: String) -> String {
    while let Some(at) = shape.find("(?),(?)") {
        shape.replace_range(at..at + "(?),".len(), "");
    }
    shape
}

fn times(
    shapes: &[(OpKind, String)],
    grown: &HashMap<String, Count>,
    texts: &HashMap<String, Option<String>>,
    dialect: Dialect,
) -> Vec<ServerTime> {
    let mut found: BTreeMap<OpKind, ServerTime> = BTreeMap::new();
    for (key, count) in grown.iter().filter(|(_, count)| count.calls > 0) {
        let Some(text) = texts.get(key).and_then(Option::as_deref) else { continue };
        let Some(read) = Statement::read(text, dialect) else { continue };
        // One statement may stand in a script twice under one name; it is counted once.
        let mut kinds: Vec<OpKind> =
            shapes.iter().filter(|(_, shape)| is_alike(shape, &read.shape)).map(|(kind, _)| *kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            let none = ServerTime { statement: kind, calls: 0, time_ms: 0.0 };
            let sum = found.entry(kind).or_insert(none);
            sum.calls += count.calls;
            sum.time_ms += count.time_ms;
        }
    }
    found.into_values().collect()
}

/// Whether a statement has this shape, whatever stands for the parts of its words.
fn is_alike(shape: &str, statement: &str) -> bool {
    let mut pieces = shape.split(PART);
    let Some(mut rest) = statement.strip_prefix(pieces.next().unwrap_or_default()) else { return false };
    for piece in pieces {
        rest = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
        let Some(behind) = rest.strip_prefix(piece) else { return false };
        rest = behind;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::script;

    fn shapes(text: &str, dialect: Dialect) -> Vec<(OpKind, String)> {
        struct Silent;
        impl Watch for Silent {
            fn about(&mut self) -> Result<super::super::About, TargetError> {
                Err(TargetError::new("asking", "silent"))
            }
            fn counters(&mut self) -> Result<Counters, TargetError> {
                Ok(Counters::default())
            }
            fn look(&mut self) -> Result<Vec<super::super::Look>, TargetError> {
                Ok(vec![])
            }
            fn texts(&mut self) -> Result<HashMap<String, Option<String>>, TargetError> {
                Ok(HashMap::new())
            }
            fn columns(
                &mut self,
                _: &std::collections::BTreeSet<String>,
                _: bool,
            ) -> Result<Vec<super::super::Column>, TargetError> {
                Ok(vec![])
            }
        }
        let mut scripts = Scripts::new(1, script::Dialect::Plan);
        scripts.add("s.sql", text.as_bytes(), 1).expect("a script");
        ServerWatch::begin(&scripts, Box::new(Silent), dialect).expect("it begins").shapes
    }

    #[test]
    fn statements_of_scripts_are_found_among_those_of_the_server() {
        let script = "begin;\n-- name: look\nSELECT c FROM sbtest:table WHERE id = :id and k > 5;\n\
            -- name: look\nselect c from sbtest1 where id = :id and k > :k;\n\
            -- name: other\nUPDATE \"other\" SET n = n + :delta WHERE id IN (:a, :b);\n\
            select 1\\; select 2;\ncommit;\n";
        let texts = [
            ("a", "select  c from sbtest1 where id = $1 and k > $2"),
            ("b", "SELECT c FROM sbtest22 WHERE id = $1 /* of us */ AND k > $2"),
            ("c", "select c, d from sbtest1 where id = $1 and k > $2"),
            ("d", "UPDATE other SET n = n + $1 WHERE id IN ($2, $3)"),
            ("e", "COMMIT"),
            ("f", "begin"),
        ];
        let count = |calls, time_ms| Count { calls, time_ms, ..Count::default() };
        let grown = HashMap::from([
            ("a".to_string(), count(10, 5.0)),
            ("b".into(), count(30, 15.0)),
            ("c".into(), count(1_000, 1_000.0)),
            ("d".into(), count(7, 21.0)),
            ("e".into(), count(0, 0.0)),
            ("lost".into(), count(3, 3.0)),
        ]);
        let texts = texts.map(|(key, text)| (key.to_string(), Some(text.to_string()))).into();
        let shapes = shapes(script, Dialect::Postgres);
        let told = ServerTimes::Told(times(&shapes, &grown, &texts, Dialect::Postgres));
        let of = |class| told.of(OpKind::statement(class)).map(|time| (time.calls, time.time_ms));
        // begin, look, other, the two at once, commit.
        assert_eq!(
            (of(0), of(1), of(2), of(3), of(4)),
            (None, Some((40, 20.0)), Some((7, 21.0)), None, None)
        );
    }

    #[test]
    fn digests_are_found_too() {
        let shapes =
            shapes("-- name: put\ninsert into `t` (a, b) values (:a, :b), (:c, :d);\n", Dialect::Mysql);
        let digest = "INSERT INTO `t` ( `a` , `b` ) VALUES (...) /* , ... */ ";
        let texts = HashMap::from([("d".to_string(), Some(digest.to_string()))]);
        let grown = HashMap::from([("d".to_string(), Count { calls: 2, time_ms: 4.0, ..Count::default() })]);
        let found = times(&shapes, &grown, &texts, Dialect::Mysql);
        assert_eq!(found, [ServerTime { statement: OpKind::statement(0), calls: 2, time_ms: 4.0 }]);
    }
}
