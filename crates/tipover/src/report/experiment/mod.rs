//! The page of an experiment, from the figures of its study.

mod bank;
mod broken;
mod budgets;
mod claims;
mod large_values;
mod load;
mod prices;
mod sections;
mod shards;
mod timeline;
mod tipping_point;
mod working_set;

pub use sections::{figure, number, shown_percentile};

pub use budgets::so_far as budgets_so_far;
pub use load::{Course, backlogs};
pub use timeline::{Courses, of_recent};

use super::accesses::{self, AccessPicture};
use super::{Page, Provenance, Section};
use crate::study::{Disturbances, disturbed};
use anyhow::Result;
use std::collections::BTreeMap;
use tipover_core::experiment::Experiment;
use tipover_core::record::{Interval, Record};
use tipover_core::study::{Cells, Studied, Study};

/// What a page shows besides records.
#[derive(Default)]
pub struct Besides {
    /// The moving pictures of traced cells.
    pub pictures: Vec<AccessPicture>,
    /// The intervals of the first trial of each cell that was measured from cold, by the cell's name.
    pub series: BTreeMap<String, Vec<Interval>>,
    /// How trials on clusters went over time.
    pub courses: Courses,
}

/// The page of `experiment`, from the records that there are. The command is the one that makes the page
/// again.
///
/// `studied` is what [`studied`] says of them, `besides` what records do not hold.
pub fn of_experiment(
    experiment: &Experiment,
    records: &[Record],
    studied: Option<&Studied>,
    besides: Besides,
    command: &str,
) -> Result<Page> {
    let cells = Cells::of(experiment, records);
    let mut sections = Vec::new();
    let mut headline = Vec::new();
    if let Some(studied) = studied {
        headline.push(claims::headline(studied));
        sections.push(claims::section(studied));
    }
    match (studied.map(|studied| &studied.study), experiment.published.as_deref()) {
        (Some(Study::WorkingSet(study)), _) => {
            headline.extend(working_set::headline(study));
            sections.extend(working_set::sections(study));
        }
        (Some(Study::LargeValues(figures)), _) => {
            let study = large_values::Study::of(&cells, figures, &besides.series)?;
            headline.extend(study.headline());
            sections.extend(study.sections());
        }
        (Some(Study::TippingPoint(figures)), _) => {
            let study = tipping_point::Study::of(&cells, figures)?;
            headline.extend(study.headline());
            sections.extend(study.sections());
        }
        (Some(Study::WriteConcern(study)), _) => {
            let broken = broken::cells(&cells);
            headline.extend(prices::headline(&broken));
            sections.push(prices::section(&broken)?);
            sections.push(prices::unbroken(study));
            sections.extend(broken::sections(&broken));
        }
        (Some(Study::Bank(study)), _) => {
            let broken = broken::cells(&cells);
            headline.extend(bank::headline(&broken));
            sections.push(bank::section(&broken, study)?);
            sections.extend(broken::sections(&broken));
        }
        (None, Some(other)) => anyhow::bail!("no study knows the published numbers of `{other}`"),
        (None, None)
            if experiment.sweeps.iter().flat_map(|s| &s.cells).any(|cell| cell.spec.breaking.is_some()) =>
        {
            let broken = broken::cells(&cells);
            headline.extend(broken::headline(&broken));
            sections.extend(broken::sections(&broken));
        }
        (None, None) => {
            headline.extend(sections::in_short(&cells));
            headline.extend(load::headline(&cells));
            sections.extend(load::sections(&cells));
        }
    }
    // Second, so that nobody reads the answer without it.
    let trials: Vec<Disturbances> = cells.records().filter_map(Disturbances::of).collect();
    if let Some(how) = disturbed(&trials) {
        let sentence = format!(
            "Disturbed: {how}. The figures below are of the target and of its neighbours; measure again when nothing \
             else runs."
        );
        headline.insert(headline.len().min(1), sentence);
    }
    headline.extend(sections::shortcomings(&cells));
    // Right behind the answer.
    let answer = sections.len().min(1);
    sections.splice(answer..answer, [besides.courses.section(), besides.courses.served(&cells)]);
    sections.push(timeline::nodes(&cells));
    sections.push(budgets::section(&cells));
    sections.push(super::planned::of_study(&cells));
    sections.push(accesses::section(besides.pictures));
    sections.push(sections::trials(&cells));
    sections.push(sections::noise(records));
    sections.push(sections::reading(experiment));
    sections.push(sections::environment(&cells));
    sections.push(budgets::metrics(&cells));
    Ok(Page {
        title: experiment.title.clone(),
        question: one_line(&experiment.question),
        headline,
        sections: sections.into_iter().filter(|section: &Section| !section.blocks.is_empty()).collect(),
        made_by: provenance(records, command),
        claims: studied.map_or_else(Vec::new, |studied| studied.claims.clone()),
    })
}

/// The study of `experiment` with the claims of its text judged; `None` for a plan that repeats no text.
///
/// # Errors
/// The plan's cells are not those of the study.
pub fn studied(experiment: &Experiment, records: &[Record]) -> Result<Option<Studied>> {
    let Some(name) = experiment.published.as_deref() else { return Ok(None) };
    Studied::of(name, &Cells::of(experiment, records)).map_err(|why| anyhow::anyhow!("{why}"))
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
    use crate::report::{Terminal, html, of_comparison, text};
    use crate::study::comparison::{Side, compare_sides};
    use tipover_core::measure::Canary;
    use tipover_core::metric::{Sample, probe};
    use tipover_core::record::Verdict;
    use tipover_core::trial::simulate::{self, Machine};

    pub(super) const PLAN: &str = include_str!("../../../../../experiments/working-set.toml");

    /// The whole study in virtual time.
    pub(super) fn simulated() -> (Experiment, Vec<Record>) {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let machine = Machine::default();
        let record = |trial| simulate::trial(&experiment.name, &trial, experiment.seed, &machine).0;
        let records = experiment.trials().into_iter().map(record).collect();
        (experiment, records)
    }

    fn page_of(experiment: &Experiment, records: &[Record]) -> Page {
        let studied = studied(experiment, records).unwrap();
        of_experiment(experiment, records, studied.as_ref(), Besides::default(), "x").unwrap()
    }

    #[test]
    fn the_page_of_a_simulated_study_says_what_the_study_says() {
        let (experiment, records) = simulated();
        let page = page_of(&experiment, &records);
        let text = text(&page, Terminal::PLAIN);
        assert!(page.headline[0].starts_with("Of the text's 29 claims"), "{}", page.headline[0]);
        assert!(page.headline[1].contains("150 IOPS + 7 ms"), "{}", page.headline[1]);
        assert_eq!((page.claims.len(), page.sections[0].id.as_str()), (29, "claims"));
        assert!(page.to_json().contains("\"verdict\": \"confirmed\""), "--json has the verdicts");
        assert!(
            text.contains("76,113") || text.contains("76113"),
            "the published number stands beside ours:\n{text}"
        );
        assert!(page.charts().count() >= 3);
        assert!(html(&page).contains("<html"));
    }

    /// As if a real machine of two cores had been measured, of whose time `others` went to other programs.
    fn on_a_machine(records: &mut [Record], others: f64) {
        for (n, record) in records.iter_mut().enumerate() {
            record.machine = tipover_core::machine::Facts { cores: 2, ..Default::default() };
            let spin_ns = 4e6 + n as f64;
            record.canaries = vec![Canary { spin_ns, wake_ns: 6e4, sync_ns: None }; 2];
            let Some(measured) = &mut record.measured else { continue };
            let machine_ns = 2.0 * measured.seconds() * 1e9;
            let own = 0.5;
            (measured.cpu.process_ns, measured.cpu.disk_ns) = ((own * machine_ns) as u64, 0);
            for (samples, at, idle_ns) in [
                (&mut measured.first, measured.begin, 0.0),
                (&mut measured.last, measured.end, machine_ns * (1.0 - own - others)),
            ] {
                let values = [("system_cpu_idle_ns", idle_ns), ("system_cpu_steal_ns", 0.0)];
                let values = values.map(|(name, value)| (name.to_string(), value)).into();
                samples.insert(probe::SYSTEM.into(), Sample { begin: at, end: at, values });
            }
        }
    }

    /// A compiler beside the trials, the same trials by themselves, and trials of which nothing is known.
    #[test]
    fn a_disturbed_machine_is_in_the_headline_and_a_quiet_one_is_not() {
        let (experiment, records) = simulated();
        let page = |records: &[Record]| page_of(&experiment, records);
        let disturbed = |records: &[Record]| -> Option<String> {
            let page = page(records);
            let found = page.headline.iter().position(|said| said.starts_with("Disturbed"))?;
            assert_eq!(found, 1, "right behind the answer: {:?}", page.headline);
            assert!(html(&page).contains("Disturbed: ") && page.to_json().contains("Disturbed: "));
            assert!(text(&page, Terminal::PLAIN).contains("Disturbed: "));
            Some(page.headline[found].clone())
        };
        assert_eq!(disturbed(&records), None, "nothing is known");
        let mut quiet = records.clone();
        on_a_machine(&mut quiet, 0.05);
        assert_eq!(disturbed(&quiet), None);
        let mut loud = records.clone();
        on_a_machine(&mut loud, 0.25);
        let n = loud.len();
        let said = disturbed(&loud).unwrap();
        assert!(
            said.contains(&format!("in {n} of {n} trials (other programs took up to 25 % of the")),
            "{said}"
        );
        let side = |name: &str, records: &[Record]| {
            let mut side = Side::new(name);
            records.iter().for_each(|record| side.add_record(record, name));
            side
        };
        let (a, b) = (side("calm", &quiet), side("loud", &loud));
        let found = compare_sides(&a, &b, None, 0.02, 0.01);
        let said = of_comparison(&a, &b, &found, "x").headline.join("\n");
        assert!(said.contains("Disturbed: while loud was measured the machine was not quiet in"), "{said}");
        assert!(!said.contains("while calm was measured"), "{said}");
        let mut canary = quiet.clone();
        canary[2].canaries[1].spin_ns *= 1.5;
        let said = disturbed(&canary).unwrap();
        assert!(said.contains("in 1 of") && said.contains("the canary differed at 1"), "{said}");
        let mut unrest = quiet.clone();
        for (n, record) in unrest.iter_mut().enumerate() {
            record.canaries.iter_mut().for_each(|canary| canary.spin_ns *= 1.0 + 0.1 * n as f64);
        }
        assert!(disturbed(&unrest).unwrap().contains("the canaries of all trials vary by"));
        let mut stolen = quiet;
        let last = stolen[0].measured.as_mut().unwrap().last.get_mut(probe::SYSTEM).unwrap();
        last.values.insert("system_cpu_steal_ns".into(), 1e12);
        assert!(disturbed(&stolen).unwrap().contains("the host gave up to"));
    }

    #[test]
    fn a_trial_that_measure_most_ended_says_so() {
        let (experiment, mut records) = simulated();
        let said = |records: &[Record]| {
            let page = page_of(&experiment, records);
            page.headline.into_iter().find(|said| said.contains("ended by measure_most"))
        };
        let enough = |records: &mut [Record], wanted: u64| {
            records.iter_mut().for_each(|record| record.spec.trial.measure_operations = wanted);
        };
        enough(&mut records, 1);
        assert_eq!(said(&records), None);
        let done = records[0].measured.as_ref().unwrap().operations();
        records[0].spec.trial.measure_operations = done + 1;
        let words = said(&records).unwrap();
        assert!(words.contains(&format!("(the fewest: {done} of {})", done + 1)), "{words}");
        assert!(words.contains("1 of "), "{words}");
        assert_eq!(said(&[]), None);
        let spec = &records[0].spec.trial;
        assert_eq!(
            spec.in_words(done, 2.0),
            format!(
                "{done} operations in 2.0 s of the {} that the plan wants: measure_most ended it",
                done + 1
            )
        );
        assert_eq!(spec.in_words(done + 1, 2.0), format!("{} operations in 2.0 s", done + 1));
    }

    #[test]
    fn a_page_of_failed_and_missing_trials_says_so_and_shows_no_figure() {
        let (experiment, mut records) = simulated();
        records.truncate(4);
        for record in &mut records {
            record.verdict = Verdict::Failed { reason: "the device caught fire".into() };
            record.measured = None;
        }
        let page = page_of(&experiment, &records);
        let text = text(&page, Terminal::PLAIN);
        assert!(text.contains("the device caught fire"), "{text}");
        assert!(text.contains("not measured"), "{text}");
        assert!(page.headline[0].contains("0 are confirmed and 0 contradicted"), "{}", page.headline[0]);
    }
}
