//! What vendors ask of a database in production, judged on the facts that a live server tells and on the
//! machine under it. The requirements are data: `database.toml`.

use super::{BlockDevice, Facts, Requirement, Severity};
use serde::Deserialize;
use std::collections::BTreeMap;
use tipover_core::experiment::TargetKind;
use tipover_core::target::Facts as TargetFacts;

/// One requirement as the table has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    id: String,
    target: String,
    fact: String,
    /// "fact is A or B": asked only if that holds.
    when: Option<String>,
    wanted: String,
    severity: Severity,
    why: String,
    next: String,
    source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    requirement: Vec<Rule>,
}

fn rules() -> Vec<Rule> {
    let rules: Rules = toml::from_str(include_str!("database.toml")).expect("a table that a test reads");
    rules.requirement
}

/// Where a server on this machine keeps its data.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Home {
    /// The device under its folder, with how that is mounted.
    pub device: Option<BlockDevice>,
    /// Whether its log lies on another device than its data; `None` where that cannot be seen.
    pub wal_apart: Option<bool>,
}

/// Judges a server of `kind` by what it says about itself, and by `machine` and `home` if it runs on this
/// machine. What is not told is not held against it. Worst unmet first.
pub fn check(kind: TargetKind, told: &TargetFacts, here: Option<(&Facts, &Home)>) -> Vec<Requirement> {
    let known = known(told, here);
    let name = match kind {
        TargetKind::Postgres => "postgres",
        TargetKind::Mysql => "mysql",
        TargetKind::Mongodb => "mongodb",
        TargetKind::Null | TargetKind::File | TargetKind::Wiredtiger | TargetKind::Guilty => return vec![],
    };
    let mut all: Vec<Requirement> = rules()
        .into_iter()
        .filter(|rule| rule.target == name || rule.target == "any")
        .filter(|rule| applies(rule, &known))
        .filter_map(|rule| {
            let found = known.get(&rule.fact)?.clone();
            Some(Requirement {
                met: meets(&rule.wanted, &found),
                id: rule.id,
                severity: rule.severity,
                wanted: told_as(&rule.wanted),
                found,
                why: rule.why,
                next: rule.next,
                source: rule.source,
            })
        })
        .collect();
    all.sort_by_key(|requirement| (requirement.met, requirement.severity));
    all
}

/// A wish as it follows "should be": "is on" becomes "on".
fn told_as(wanted: &str) -> String {
    match (wanted.strip_prefix("is "), wanted.strip_prefix("lacks ")) {
        (Some(words), _) => words.to_string(),
        (None, Some(words)) => format!("without {words}"),
        (None, None) => wanted.to_string(),
    }
}

/// All facts as the texts that rules speak of.
fn known(told: &TargetFacts, here: Option<(&Facts, &Home)>) -> BTreeMap<String, String> {
    let mut known: BTreeMap<String, String> = told
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), String::from)))
        .collect();
    if let Some((machine, home)) = here {
        let mut put = |name: &str, value: Option<String>| {
            known.extend(value.map(|value| (format!("machine.{name}"), value)));
        };
        put("huge_pages", machine.huge_pages.clone());
        put("swappiness", machine.kernel_settings.swappiness.map(|n| n.to_string()));
        put("wal_apart", home.wal_apart.map(|apart| if apart { "yes" } else { "no" }.into()));
        if let Some(device) = &home.device {
            put("readahead_sectors", device.readahead.map(|bytes| (bytes.0 / 512).to_string()));
            put("scheduler", device.scheduler.clone());
            put("mount_options", Some(device.mount_options.clone()));
        }
    }
    known
}

fn applies(rule: &Rule, known: &BTreeMap<String, String>) -> bool {
    let Some((fact, condition)) = rule.when.as_deref().and_then(|when| when.split_once(' ')) else {
        return true;
    };
    known.get(fact).is_some_and(|found| meets(condition, found))
}

/// Whether `found` is as `wanted`; the grammar is in the table's head.
///
/// # Panics
/// For a rule that is not in the grammar; a test reads them all.
fn meets(wanted: &str, found: &str) -> bool {
    let any = |list: &str, matches: &dyn Fn(&str) -> bool| list.split(" or ").any(matches);
    if let Some(list) = wanted.strip_prefix("is not ") {
        return !any(list, &|word| same(word, found));
    }
    if let Some(list) = wanted.strip_prefix("is ") {
        return any(list, &|word| same(word, found));
    }
    if let Some(list) = wanted.strip_prefix("lacks ") {
        return !any(list, &|word| found.split(',').any(|option| option == word));
    }
    let bound = |text: &str| quantity(text).expect("a bound in the table is a quantity");
    // A quantity that is not understood is not held against the server.
    let Some(value) = quantity(found) else { return true };
    if let Some(least) = wanted.strip_prefix("at least ") {
        return value >= bound(least);
    }
    let most = wanted.strip_prefix("at most ").expect("a rule in the table is in the grammar");
    value <= bound(most)
}

/// The same word, or the same quantity in other units: 1GB is 1024MB.
fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || quantity(a).zip(quantity(b)).is_some_and(|(a, b)| a == b)
}

/// A number with the units that servers print: kB, MB, GB, TB (of 1024, as PostgreSQL counts), ms, s, min, h.
fn quantity(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "" | "B" | "s" => 1.0,
        "kB" => 1024.0,
        "MB" => 1024f64.powi(2),
        "GB" => 1024f64.powi(3),
        "TB" => 1024f64.powi(4),
        "ms" => 1e-3,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(facts: &[(&str, &str)]) -> TargetFacts {
        facts.iter().map(|(name, value)| (name.to_string(), (*value).into())).collect()
    }

    fn unmet(kind: TargetKind, facts: &[(&str, &str)]) -> Vec<String> {
        check(kind, &told(facts), None).into_iter().filter(|r| !r.met).map(|r| r.id).collect()
    }

    #[test]
    fn every_rule_is_in_the_grammar_and_told_in_sentences() {
        let rules = rules();
        for rule in &rules {
            // Panics where it is not.
            let _ = (meets(&rule.wanted, "1"), meets(&rule.wanted, "word"));
            assert!(rule.why.ends_with('.') && rule.next.ends_with('.'), "{}", rule.id);
            assert!(!rule.source.is_empty(), "{} names no source", rule.id);
            assert!(["postgres", "mysql", "mongodb", "any"].contains(&rule.target.as_str()), "{}", rule.id);
        }
        let mut ids: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), rules.len(), "ids are unique");
    }

    #[test]
    fn what_vendors_warn_of_is_convicted_and_their_advice_acquitted() {
        let good = [
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "remote_apply"),
            ("shared_buffers", "8GB"),
            ("checkpoint_completion_target", "0.9"),
            ("max_wal_size", "4GB"),
        ];
        assert!(unmet(TargetKind::Postgres, &good).is_empty());
        for (fact, bad, id) in [
            ("fsync", "off", "postgres-fsync"),
            ("full_page_writes", "off", "postgres-full-page-writes"),
            ("synchronous_commit", "off", "postgres-synchronous-commit"),
            ("shared_buffers", "131072kB", "postgres-shared-buffers"),
            ("checkpoint_completion_target", "0.5", "postgres-checkpoint-completion"),
            ("max_wal_size", "512MB", "postgres-max-wal-size"),
        ] {
            let spoilt: Vec<_> = good.map(|(f, value)| (f, if f == fact { bad } else { value })).into();
            assert_eq!(unmet(TargetKind::Postgres, &spoilt), [id]);
        }
        let wal = check(TargetKind::Postgres, &told(&[("max_wal_size", "512MB")]), None);
        assert!(wal[0].sentences().starts_with("postgres-max-wal-size: should be at least 1GB, is 512MB. "));
        let mysql = |log: &'static str| {
            unmet(
                TargetKind::Mysql,
                &[("log_bin", log), ("sync_binlog", "0"), ("innodb_flush_method", "o_direct")],
            )
        };
        assert_eq!(mysql("ON"), ["mysql-sync-binlog"]);
        assert!(mysql("OFF").is_empty(), "without a binary log there is nothing to flush");
    }

    #[test]
    fn what_is_not_told_is_not_held_against_it_and_an_engine_of_ours_is_not_asked() {
        assert!(check(TargetKind::Mongodb, &told(&[]), None).is_empty());
        assert!(check(TargetKind::Wiredtiger, &told(&[("fsync", "off")]), None).is_empty());
    }

    #[test]
    fn quantities_are_read_as_servers_print_them() {
        assert_eq!(quantity("512MB"), quantity("524288kB"));
        assert_eq!(quantity("5min"), Some(300.0));
        assert_eq!(quantity("0.9"), Some(0.9));
        assert_eq!(quantity("on"), None);
        assert!(meets("lacks nobarrier", "rw,relatime") && !meets("lacks nobarrier", "rw,nobarrier"));
    }
}
