//! `tipover plan`: which memory, which disk, how many processors for a load, and how sure is that?

use super::plan::PlanArguments;
use super::run::{Manner, carry_out, command_line, prepare};
use super::{BadInput, Ending, located, pair};
use crate::foresight;
use crate::live::LiveArgument;
use crate::machine;
use crate::report::{self, Page, Terminal};
use crate::store::Store;
use crate::study::bracketed::bracketed;
use crate::study::imitation::{CarriedOut, imitation};
use crate::study::planned::{Basis, Growth, Planned, Wanted, name_of, planned};
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{Experiment, Promise};
use tipover_core::predict::plan::{Catalogue, Machine, Question};
use tipover_core::study::Cells;
use tipover_core::units::Rate;

/// Plan what to buy: which memory and disk keep a promise, and how sure that is
///
/// From the results of a study that reads, of the embedded WiredTiger (`tipover run working-set`) or of one
/// server of the laboratory (`tipover run servers`; --only sweep=NAME says which of its systems). Every
/// candidate gets intervals, the chance that the promise holds, and what limits it; where what is not known
/// decides, the answer is "cannot tell", with what to measure next. The study's own cells are predicted too,
/// beside what was measured, so that one sees how far to trust it. Writes and replicas are not extrapolated:
/// from searches (`tipover find`) of any load, what has at least as much of everything as a place where the
/// load held holds it too, and nothing is computed between such places.
/// Exit codes: 0 a candidate holds, 1 none does for sure, 2 the input cannot be used.
#[derive(Debug, Args)]
pub struct Plan {
    /// The results: a folder, or the name that `tipover list` shows
    #[arg(value_name = "RESULTS")]
    source: PathBuf,

    /// What must hold, such as "p99 <= 20 ms"
    #[arg(long)]
    promise: Promise,

    /// Operations per second that arrive, such as 8000/s
    #[arg(long)]
    load: Rate,

    /// How fast data grow, such as "2 x / year"
    #[arg(long)]
    growth: Option<Growth>,

    /// How many records there are; as many as in the largest working set unless given
    #[arg(long, value_name = "N")]
    records: Option<u64>,

    /// Machines and disks that can be had, as TOML; the disks of `disk profiles` unless given
    ///
    /// `[[machine]]` with memory, cores and, if you like, name, engine_cache and price_per_month; `[[disk]]`
    /// with name, spec ("iops=600,latency=7ms"; a profile's unless given) and price_per_month.
    #[arg(long, value_name = "FILE")]
    catalogue: Option<PathBuf>,

    /// Plan from the cells with this value on this axis, as axis=value, or from one sweep, as sweep=NAME
    #[arg(long, value_name = "AXIS=VALUE", value_parser = pair)]
    only: Vec<(String, String)>,

    /// Plan from what was measured with this setting, as `run --set SETTING=VALUE` did
    #[arg(long, value_name = "SETTING=VALUE", value_parser = pair)]
    set: Vec<(String, String)>,

    /// Write the page as HTML too
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Carry out candidates that this machine can imitate, 3 or N, and show what was predicted beside it
    ///
    /// The load of the study on the candidate's memory (a group's limit) and disk (shaped), as ordinary
    /// trials in the results folder NAME-check: asking again goes on where it stopped. The best candidate
    /// comes first, then those whose chance is nearest to even. What differs in processors or does not fit
    /// into this machine is not imitated, and says why. Exit code 1, too, where fewer than nine in ten
    /// figures lie where they were predicted, or none could be measured.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "3",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    check: Option<u32>,

    #[command(flatten)]
    live: LiveArgument,
}

impl Plan {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        if !(1e-3..=1e9).contains(&self.load.0) {
            return Err(BadInput(format!(
                "--load {}: between 0.001/s and 1e9/s can be planned for",
                self.load
            ))
            .into());
        }
        if self.records == Some(0) {
            return Err(BadInput("--records 0: nothing is read then".into()).into());
        }
        let catalogue = self.catalogue.as_deref().map(catalogue).transpose()?;
        if self.source.to_string_lossy().contains("://") {
            return Err(BadInput(
                "a running server cannot be planned from yet: give the results of a study".into(),
            )
            .into());
        }
        let folder = located(&self.source, results)?;
        let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
        if !folder.join("plan.toml").exists() {
            return Err(BadInput(format!("{}: no results of an experiment", self.source.display())).into());
        }
        let name = name_of(&folder.to_string_lossy()).to_string();
        let arguments = PlanArguments {
            plan: name,
            scale: None,
            only: self.only.clone(),
            set: self.set.clone(),
            target: None,
            records: None,
            repeats: None,
        };
        let parent = folder.parent().unwrap_or(&folder);
        let (store, experiment) = arguments.experiment_of(parent)?;
        let wanted = Wanted {
            question: Question { promise: self.promise, load: self.load.0 },
            growth: self.growth,
            catalogue,
            records: self.records,
        };
        let records = store.records(&experiment)?;
        if records.whole.is_empty() && experiment.search.is_some() {
            return self.by_searches(&store, &experiment, &wanted, json);
        }
        let cells = Cells::of(&experiment, &records.whole);
        let source = self.source.to_string_lossy();
        let (mut answer, basis) = planned(&source, &cells, &wanted)
            .map_err(|why| BadInput(format!("{}: {why}", self.source.display())))?;
        answer.left_out.extend(records.damaged);
        if let Some(most) = self.check {
            let processor = records.whole.iter().find_map(|record| record.machine.cpu_model.as_deref());
            let wanted = (experiment.repeats, most as usize);
            let carried_out = self.carried_out(&answer, &basis, wanted, processor, parent, interrupt)?;
            answer.carried_out(carried_out);
        }
        let measured = answer.carried_out.as_ref().is_none_or(|one| !one.candidates.is_empty());
        self.show(&report::of_plan(&answer, &command_line()), &answer, json)?;
        Ok(if answer.best.is_some() && measured { Ending::Held } else { Ending::NotHeld })
    }
}

impl Plan {
    /// Judges candidates by where searches ended.
    fn by_searches(
        &self,
        store: &Store,
        experiment: &Experiment,
        wanted: &Wanted,
        json: bool,
    ) -> Result<Ending> {
        if self.check.is_some() {
            let why = "--check: a candidate of searches is searched itself: `tipover find` with the settings that the \
                       plan proposes";
            return Err(BadInput(why.into()).into());
        }
        let mut damaged = Vec::new();
        let note = |sentence: &str| damaged.push(sentence.to_string());
        // What was searched with other settings, such as a candidate of the last plan, counts too.
        let searches = match self.only.is_empty() {
            true => store.every_search(experiment, note)?,
            false => store.searches(experiment, note)?,
        };
        let mut answer = bracketed(&self.source.to_string_lossy(), &experiment.scale, &searches, wanted)
            .map_err(|why| BadInput(format!("{}: {why}", self.source.display())))?;
        answer.left_out.extend(damaged);
        self.show(&report::of_bracketed(&answer, &command_line()), &answer, json)?;
        Ok(if answer.best.is_some() { Ending::Held } else { Ending::NotHeld })
    }

    /// Shows an answer, as a page too where one is wanted.
    fn show(&self, page: &Page, answer: &impl serde::Serialize, json: bool) -> Result<()> {
        if let Some(output) = &self.output {
            std::fs::write(output, report::html(page))
                .with_context(|| format!("writing {}", output.display()))?;
        }
        if json {
            println!("{}", serde_json::to_string_pretty(answer)?);
        } else {
            print!("{}", report::text(page, Terminal::detect()));
        }
        Ok(())
    }

    /// Carries out candidates on this machine, beside the results that the plan was made from; `wanted` says
    /// how often each, and how many at the most.
    fn carried_out(
        &self,
        answer: &Planned,
        basis: &Basis,
        wanted: (u32, usize),
        processor: Option<&str>,
        results: &Path,
        interrupt: &Interrupt,
    ) -> Result<CarriedOut> {
        let here = machine::read(results);
        let refused = |machine: &Machine, experiment: &Experiment| {
            if machine.cores != f64::from(here.cores) {
                return Some(format!(
                    "it has {} processors and this machine {}, which are not limited",
                    machine.cores, here.cores
                ));
            }
            foresight::check_plan(experiment, results)
                .err()
                .or_else(|| foresight::refusal(experiment, results))
        };
        let (repeats, most) = wanted;
        let imitation = imitation(answer, basis, repeats, most, &refused)
            .map_err(|why| BadInput(format!("--check: {why}")))?;
        let mut remarks = Vec::new();
        if let (Some(there), Some(here)) = (processor, here.cpu_model.as_deref())
            && there != here
        {
            remarks.push(format!("The results were measured on another processor: {there}, here {here}."));
        }
        eprintln!("carried out on this machine:\n  {}", imitation.lines(answer).join("\n  "));
        let prepared = prepare(&imitation.experiment, results, &imitation.text, true)?;
        // What is shown of these trials stands on the plan's own page.
        let manner = Manner { live: self.live, retry: false, shows_growing: false };
        carry_out(&prepared, &imitation.experiment, manner, interrupt)?;
        let records = prepared.store.records(&imitation.experiment)?;
        remarks.extend(records.damaged);
        let experiment = imitation.experiment.clone();
        Ok(imitation.carried_out(answer, basis, &Cells::of(&experiment, &records.whole), remarks))
    }
}

/// Reads a catalogue.
fn catalogue(path: &Path) -> Result<Catalogue> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| BadInput(format!("--catalogue {}: {e}", path.display())))?;
    let catalogue = Catalogue::parse(&text).map_err(|e| BadInput(format!("{}: {e}", path.display())))?;
    Ok(catalogue)
}
