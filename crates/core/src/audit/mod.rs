//! The audit: do someone's numbers obey the laws that all numbers of their kind obey?
//!
//! A file becomes a [`Study`]: tables of cells with quantities and units, and claims about them. The laws are
//! applied alike to every study; nothing about a given one is coded. A law that lacks a column is counted as
//! not checked, never as held. Each tolerance is the rounding of the printed digits plus what physics leaves
//! open, and says so.

mod claim;
mod compare;
mod hlog;
mod laws;
mod mapping;
mod order;
mod quantity;
mod read;
mod record;
mod table;
mod texts;

#[cfg(test)]
mod campaign;

pub use mapping::{Mapping, rows_of_csv};
pub use quantity::{Dimension, Quantity, printed, significant, unit};
pub use read::{Format, detect, read};
pub use record::of_record;
pub use table::{CellName, Claim, Row, Says, Span, Study, Table, Value};

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The numbers can all be true, but hardly under the conditions that are given.
    Doubtful,
    /// The numbers cannot all be true.
    Broken,
}

/// One law that one place breaks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The study.
    pub study: String,
    /// Table and row, or the claim's text.
    pub place: String,
    /// The cells that the law ties together.
    pub cells: Vec<String>,
    /// The law's name.
    pub law: String,
    /// The law as a formula.
    pub formula: String,
    /// How bad it is.
    pub severity: Severity,
    /// What the numbers say.
    pub numbers: String,
    /// By how much they miss, as a share, where that makes sense.
    pub off: Option<f64>,
    /// How much would have been let pass, and why.
    pub tolerance: String,
    /// What would restore the law.
    pub restore: Vec<String>,
    /// What can be concluded nevertheless.
    pub nevertheless: String,
}

/// How often a law was applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// Checks that held.
    pub held: u32,
    /// Checks that did not: the findings.
    pub broken: u32,
    /// Places where a column was missing.
    pub not_checked: u32,
    /// The missing columns.
    pub missing: BTreeSet<String>,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Audit {
    /// Worst first, otherwise in the order of the laws.
    pub findings: Vec<Finding>,
    /// By name of the law.
    pub tallies: BTreeMap<String, Tally>,
}

/// A law in words.
#[derive(Debug, Clone, Copy)]
pub struct Law {
    /// Its name.
    pub name: &'static str,
    /// As a formula.
    pub formula: &'static str,
    /// Share that is let pass besides rounding.
    pub tolerance: f64,
    /// Why that much.
    pub why: &'static str,
    /// How bad it is to break it.
    pub severity: Severity,
    /// What can be concluded where it is broken.
    pub nevertheless: &'static str,
}

impl Law {
    /// The tolerance in words.
    fn allows(&self) -> String {
        format!("rounding of the printed digits and {} %: {}", significant(self.tolerance * 100.0), self.why)
    }

    /// A finding with the law's own words.
    fn finding(&self, place: String, cells: Vec<String>, numbers: String, off: Option<f64>) -> Finding {
        Finding {
            study: String::new(),
            place,
            cells,
            law: self.name.into(),
            formula: self.formula.into(),
            severity: self.severity,
            numbers,
            off,
            tolerance: self.allows(),
            restore: vec![],
            nevertheless: self.nevertheless.into(),
        }
    }
}

impl Audit {
    fn held(&mut self, law: &Law) {
        self.tallies.entry(law.name.into()).or_default().held += 1;
    }

    fn not_checked(&mut self, law: &Law, missing: impl IntoIterator<Item = String>) {
        let tally = self.tallies.entry(law.name.into()).or_default();
        tally.not_checked += 1;
        tally.missing.extend(missing);
    }

    fn found(&mut self, finding: Finding) {
        self.tallies.entry(finding.law.clone()).or_default().broken += 1;
        self.findings.push(finding);
    }

    /// Checks done, held or not.
    pub fn checks(&self) -> u32 {
        self.tallies.values().map(|tally| tally.held + tally.broken).sum()
    }

    /// How many findings are as bad as this.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Adds the audit of another study.
    pub fn merge(&mut self, other: Audit) {
        self.findings.extend(other.findings);
        for (name, tally) in other.tallies {
            let mine = self.tallies.entry(name).or_default();
            mine.held += tally.held;
            mine.broken += tally.broken;
            mine.not_checked += tally.not_checked;
            mine.missing.extend(tally.missing);
        }
    }
}

const WHOLE: Law = Law {
    name: "Whole file",
    formula: "every line of the file can be read, and holds what its checksums and counts say",
    tolerance: 0.0,
    why: "a file is whole or damaged",
    severity: Severity::Broken,
    nevertheless: "What could be read is judged by the other laws, without what could not.",
};

/// All laws, in the order in which they are applied.
pub fn laws() -> impl Iterator<Item = Law> {
    let products = laws::PRODUCTS.iter().map(|product| product.law);
    let rows = [WHOLE].into_iter().chain(products).chain([laws::MIX]);
    rows.chain(order::LAWS).chain(compare::LAWS).chain([claim::CLAIM])
}

/// Applies every law to a study.
pub fn audit(study: &Study) -> Audit {
    let mut audit = Audit::default();
    for damage in &study.damaged {
        audit.found(WHOLE.finding("the file".into(), vec![], damage.clone(), None));
    }
    if study.damaged.is_empty() && study.tables.iter().any(|table| !table.rows.is_empty()) {
        audit.held(&WHOLE);
    }
    let mut study = study.clone();
    study.tables.iter_mut().flat_map(|table| &mut table.rows).for_each(Row::complete);
    for table in &study.tables {
        laws::check(table, &mut audit);
        order::check(table, &mut audit);
        compare::check(table, &mut audit);
    }
    claim::check(&study, &mut audit);
    for finding in &mut audit.findings {
        finding.study.clone_from(&study.name);
    }
    audit.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    audit
}
