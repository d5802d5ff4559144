//! The page of an audit.

use super::{
    Block, Callout, CalloutKind, Cell, Column, Fact, Number, Page, Provenance, Row, Section, Table, Verdict,
};
use tipover_core::audit::{Audit, Finding, Severity, Study};

/// From findings to a page. The command is the one that makes it again.
pub fn of_audit(studies: &[Study], audit: &Audit, refused: &[String], command: &str) -> Page {
    let mut sections = vec![summary(studies, audit, refused)];
    for (number, study) in studies.iter().enumerate() {
        let own: Vec<&Finding> =
            audit.findings.iter().filter(|finding| finding.study == study.name).collect();
        if !own.is_empty() {
            sections.push(of_study(number, study, &own));
        }
    }
    sections.push(laws(audit));
    Page {
        title: "Audit".into(),
        question: "Do these numbers obey the laws that all numbers of their kind must obey?".into(),
        headline: headline(studies, audit),
        sections,
        claims: vec![],
        made_by: Provenance {
            command: command.into(),
            commit: env!("TIPOVER_COMMIT").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            when: "a pure function of the files".into(),
            facts: vec![],
        },
    }
}

fn headline(studies: &[Study], audit: &Audit) -> Vec<String> {
    let (broken, doubtful) = (audit.count(Severity::Broken), audit.count(Severity::Doubtful));
    let mut said = vec![format!(
        "{} checks on {}: {broken} broken, {doubtful} doubtful",
        audit.checks(),
        if studies.len() == 1 { "one file".to_string() } else { format!("{} files", studies.len()) }
    )];
    // The gravest of each study: a page that begins with three times the same says less.
    let gravest = studies.iter().filter_map(|study| {
        let broken = |f: &&Finding| f.study == study.name && f.severity == Severity::Broken;
        let off = |f: &Finding| f.off.map_or(0.0, |off| (1.0 + off).abs().max(1e-9).ln().abs());
        audit.findings.iter().filter(broken).max_by(|a, b| off(a).total_cmp(&off(b)))
    });
    said.extend(gravest.take(5).map(|finding| {
        format!("{}, {}: {}. {}", finding.study, finding.place, finding.law, finding.numbers)
    }));
    said
}

fn summary(studies: &[Study], audit: &Audit, refused: &[String]) -> Section {
    let count = |study: &Study, severity| {
        let own = audit.findings.iter().filter(|f| f.study == study.name && f.severity == severity).count();
        Cell::from(Number::exact(own as f64, ""))
    };
    let row = |study: &Study| {
        let rows: usize = study.tables.iter().map(|table| table.rows.len()).sum();
        Row::new(vec![
            study.name.as_str().into(),
            Number::exact(rows as f64, "").into(),
            Number::exact(study.claims.len() as f64, "").into(),
            count(study, Severity::Broken),
            count(study, Severity::Doubtful),
            study.source.as_str().into(),
        ])
    };
    let mut blocks = vec![Block::Table(Table {
        caption: "What was audited".into(),
        columns: vec![
            Column::words("Study"),
            Column::numbers("Rows", ""),
            Column::numbers("Claims", ""),
            Column::numbers("Broken", ""),
            Column::numbers("Doubtful", ""),
            Column::words("Source"),
        ],
        rows: studies.iter().map(row).collect(),
        how_to_read: "Broken: the numbers cannot all be true. Doubtful: they can, but hardly as described."
            .into(),
    })];
    let left_out =
        studies.iter().flat_map(|s| s.left_out.iter().map(move |why| format!("{}: {why}", s.name)));
    blocks.extend(left_out.chain(refused.iter().cloned()).map(|text| {
        Block::Callout(Callout { kind: CalloutKind::Warning, text: format!("Left out: {text}") })
    }));
    Section { id: "summary".into(), title: "Summary".into(), blocks }
}

fn of_study(number: usize, study: &Study, findings: &[&Finding]) -> Section {
    let mut blocks = Vec::new();
    for finding in findings {
        let kind = match finding.severity {
            Severity::Broken => CalloutKind::Failure,
            Severity::Doubtful => CalloutKind::Warning,
        };
        blocks.push(Block::Callout(Callout { kind, text: format!("{}: {}", finding.place, finding.law) }));
        let mut facts = vec![Fact::new("the numbers", finding.numbers.as_str())];
        facts.push(Fact::new("the law", finding.formula.as_str()));
        if let Some(off) = finding.off {
            facts.push(Fact::new("off by", format!("{:+.1} %", off * 100.0)));
        }
        facts.push(Fact::new("let pass", finding.tolerance.as_str()));
        if !finding.restore.is_empty() {
            facts.push(Fact::new("would restore it", finding.restore.join("; or ")));
        }
        facts.push(Fact::new("nevertheless", finding.nevertheless.as_str()));
        blocks.push(Block::Facts(facts));
    }
    Section { id: format!("study-{}", number + 1), title: study.name.clone(), blocks }
}

fn laws(audit: &Audit) -> Section {
    let row = |(name, tally): (&String, &tipover_core::audit::Tally)| {
        let number = |n: u32| Cell::from(Number::exact(f64::from(n), ""));
        let verdict = match (tally.held, tally.broken) {
            (_, 1..) => Verdict::NotHeld,
            (0, 0) => Verdict::Unknown,
            _ => Verdict::Held,
        };
        let missing: Vec<&str> = tally.missing.iter().map(String::as_str).take(5).collect();
        Row::new(vec![
            name.as_str().into(),
            Cell::verdict(verdict, ""),
            number(tally.held),
            number(tally.broken),
            number(tally.not_checked),
            missing.join(", ").into(),
        ])
    };
    let table = Table {
        caption: "Every law, and how often it could be applied".into(),
        columns: vec![
            Column::words("Law"),
            Column::words("Verdict"),
            Column::numbers("Held", ""),
            Column::numbers("Not held", ""),
            Column::numbers("Not checked", ""),
            Column::words("For want of"),
        ],
        rows: audit.tallies.iter().map(row).collect(),
        how_to_read: "A law that lacks a column is not checked; that is not the same as held.".into(),
    };
    Section { id: "laws".into(), title: "Laws".into(), blocks: vec![Block::Table(table)] }
}
