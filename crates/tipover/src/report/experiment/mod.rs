//! The page of an experiment, from the figures of its study.

mod bank;
mod broken;
mod large_values;
mod load;
mod prices;
mod sections;
mod tipping_point;
mod working_set;

pub use sections::{number, shown_percentile};

pub use load::{Course, backlogs};

use super::accesses::{self, AccessPicture};
use super::{Page, Provenance, Section};
use crate::study::Cells;
use anyhow::Result;
use std::collections::BTreeMap;
use tipover_core::experiment::Experiment;
use tipover_core::record::{Interval, Record};

/// What a page shows besides records.
#[derive(Default)]
pub struct Besides {
    /// The moving pictures of traced cells.
    pub pictures: Vec<AccessPicture>,
    /// The intervals of the first trial of each cell that was measured from cold, by the cell's name.
    pub series: BTreeMap<String, Vec<Interval>>,
}

/// The page of `experiment`, from the records that there are. The command is the one that makes the page
/// again.
///
/// `besides` is what records do not hold.
pub fn of_experiment(
    experiment: &Experiment,
    records: &[Record],
    besides: Besides,
    command: &str,
) -> Result<Page> {
    let cells = Cells::of(experiment, records);
    let mut sections = Vec::new();
    let mut headline = Vec::new();
    match experiment.published.as_deref() {
        Some("working-set") => {
            let study = working_set::Study::of(&cells)?;
            headline.extend(study.headline());
            sections.extend(study.sections());
        }
        Some("large-values") => {
            let study = large_values::Study::of(&cells, &besides.series)?;
            headline.extend(study.headline());
            sections.extend(study.sections());
        }
        Some("tipping-point") => {
            let study = tipping_point::Study::of(&cells)?;
            headline.extend(study.headline());
            sections.extend(study.sections());
        }
        Some("write-concern") => {
            let broken = broken::cells(&cells);
            headline.extend(prices::headline(&broken));
            sections.push(prices::section(&broken)?);
            sections.extend(broken::sections(&broken));
        }
        Some("bank") => {
            let broken = broken::cells(&cells);
            headline.extend(bank::headline(&broken));
            sections.push(bank::section(&broken)?);
            sections.extend(broken::sections(&broken));
        }
        Some(other) => anyhow::bail!("no study knows the published numbers of `{other}`"),
        None if experiment.sweeps.iter().flat_map(|s| &s.cells).any(|cell| cell.spec.breaking.is_some()) => {
            let broken = broken::cells(&cells);
            headline.extend(broken::headline(&broken));
            sections.extend(broken::sections(&broken));
        }
        None => {
            headline.extend(sections::in_short(&cells));
            headline.extend(load::headline(&cells));
            sections.extend(load::sections(&cells));
        }
    }
    headline.extend(sections::shortcomings(&cells));
    sections.push(accesses::section(besides.pictures));
    sections.push(sections::trials(&cells));
    sections.push(sections::noise(records));
    sections.push(sections::reading(experiment));
    sections.push(sections::environment(&cells));
    Ok(Page {
        title: experiment.title.clone(),
        question: one_line(&experiment.question),
        headline,
        sections: sections.into_iter().filter(|section: &Section| !section.blocks.is_empty()).collect(),
        made_by: provenance(records, command),
    })
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn provenance(records: &[Record], command: &str) -> Provenance {
    let newest = records.iter().map(|r| r.provenance.started_unix_s).max().unwrap_or(0);
    let when = time::OffsetDateTime::from_unix_timestamp(newest as i64)
        .ok()
        .and_then(|t| t.format(&time::format_description::well_known::Rfc3339).ok())
        .unwrap_or_default();
    let mut commits: Vec<String> = records.iter().map(|r| r.provenance.commit.clone()).collect();
    commits.sort();
    commits.dedup();
    Provenance {
        command: command.to_string(),
        commit: commits.join(", "),
        version: records.first().map(|r| r.provenance.version.clone()).unwrap_or_default(),
        when,
        facts: vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Terminal, html, text};
    use tipover_core::record::Verdict;
    use tipover_core::simulate::{self, Machine};

    pub(super) const PLAN: &str = include_str!("../../../../../experiments/working-set.toml");

    /// The whole study in virtual time.
    pub(super) fn simulated() -> (Experiment, Vec<Record>) {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let machine = Machine::default();
        let record = |trial| simulate::trial(&experiment.name, &trial, experiment.seed, &machine).0;
        let records = experiment.trials().into_iter().map(record).collect();
        (experiment, records)
    }

    #[test]
    fn the_page_of_a_simulated_study_says_what_the_study_says() {
        let (experiment, records) = simulated();
        let page =
            of_experiment(&experiment, &records, Besides::default(), "tipover run working-set").unwrap();
        let text = text(&page, Terminal::PLAIN);
        assert!(page.headline[0].contains("150 IOPS + 7 ms"), "{}", page.headline[0]);
        assert!(
            text.contains("76,113") || text.contains("76113"),
            "the published number stands beside ours:\n{text}"
        );
        assert!(page.charts().count() >= 3);
        assert!(html(&page).contains("<html"));
    }

    #[test]
    fn a_page_of_failed_and_missing_trials_says_so_and_shows_no_figure() {
        let (experiment, mut records) = simulated();
        records.truncate(4);
        for record in &mut records {
            record.verdict = Verdict::Failed { reason: "the device caught fire".into() };
            record.measured = None;
        }
        let page =
            of_experiment(&experiment, &records, Besides::default(), "tipover run working-set").unwrap();
        let text = text(&page, Terminal::PLAIN);
        assert!(text.contains("the device caught fire"), "{text}");
        assert!(text.contains("not measured"), "{text}");
    }
}
