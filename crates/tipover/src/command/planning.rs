//! `tipover plan`: which memory, which disk, how many processors for a load, and how sure is that?

use super::disk::Shape;
use super::plan::PlanArguments;
use super::run::{Manner, carry_out, command_line, prepare};
use super::{BadInput, Ending, connection, located, pair};
use crate::foresight;
use crate::live::LiveArgument;
use crate::machine;
use crate::report::{self, Page, Terminal};
use crate::running_server::{self, Unseen};
use crate::store::Store;
use crate::study::Growth;
use crate::study::bracketed::bracketed;
use crate::study::imitation::{CarriedOut, imitation};
use crate::study::planned::{Basis, Planned, Wanted, name_of, planned, planned_of_running};
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::experiment::{Address, Experiment, Promise};
use tipover_core::predict::plan::{Catalogue, Machine, Question};
use tipover_core::study::Cells;
use tipover_core::study::evidence::Told;
use tipover_core::units::{Bytes, Rate, span};

/// Plan what to buy: which memory and disk keep a promise, and how sure that is
///
/// From the results of a study that reads, or reads and updates, of the embedded WiredTiger (`tipover run
/// working-set`) or of one server of the laboratory (`tipover run servers`; --only sweep=NAME says which of
/// its systems). Every candidate gets intervals, the chance that the promise holds, and what limits it; where
/// what is not known decides, the answer is "cannot tell", with what to measure next. The study's own cells
/// are predicted too, beside what was measured, so that one sees how far to trust it. Inserts, scans and
/// replicas have no model: from searches (`tipover find`) of any load, what has at least as much of
/// everything as a place where the load held holds it too, and nothing is computed between such places.
/// Of what was measured at an address (`tipover run --target`) say the server's machine, with --memory and
/// --profile or --spec. From a server at work (at postgres://, mysql:// or mongodb://), which is only asked:
/// its counters for as long as --watch says, and, where it is on this machine, what the kernel counts of its
/// processes, its device and its memory. Of any other machine say --memory, --cores and --busy.
/// Exit codes: 0 a candidate holds, 1 none does for sure, 2 the input cannot be used.
#[derive(Debug, Args)]
pub struct Plan {
    /// The results: a folder, or the name that `tipover list` shows; or the address of a server at work
    #[arg(value_name = "RESULTS|ADDRESS")]
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

    /// Plan from what was measured at this address, as `run --target ADDRESS` did
    #[arg(long, value_name = "ADDRESS")]
    target: Option<Address>,

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
    at_work: AtWork,

    #[command(flatten)]
    live: LiveArgument,
}

/// Of a server that is none of the laboratory's.
#[derive(Debug, Args)]
#[command(next_help_heading = "Of a server at work, or of one that was measured at its address")]
struct AtWork {
    /// How long to watch it at its work
    #[arg(long, default_value = "3 min", value_parser = span::parse, value_name = "TIME")]
    watch: Duration,

    /// What its machine, or its container, has of memory; seen where it runs on this one
    #[arg(long, value_name = "SIZE")]
    memory: Option<Bytes>,

    /// How many processors it may use; seen where it runs on this machine
    #[arg(long, value_name = "N")]
    cores: Option<f64>,

    /// How many processors it keeps busy under its load, such as 1.4; seen where it runs on this machine
    #[arg(long, value_name = "N")]
    busy: Option<f64>,

    /// Its disk; without, only its mean latencies are known
    #[command(flatten)]
    disk: Shape,
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
            return self.of_server_at_work(catalogue, json, interrupt);
        }
        let told = self.at_work.told_of_results(self.target.is_some())?;
        if self.target.is_some() && self.check.is_some() {
            let why = "--check: a server at an address is not imitated; `tipover run servers` measures one of the \
                       laboratory's, which is";
            return Err(BadInput(why.into()).into());
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
            target: self.target.clone(),
            records: None,
            mongod: None,
            mongos: None,
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
        let (mut answer, basis) = planned(&source, &cells, &told, &wanted)
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

impl AtWork {
    /// What is said of the machine of results, which say it themselves unless they were measured at an
    /// address; and how busy a server was they always say.
    fn told_of_results(&self, at_address: bool) -> Result<Told> {
        let given = [
            ("--busy", self.busy.is_some()),
            ("--memory", self.memory.is_some() && !at_address),
            ("--cores", self.cores.is_some() && !at_address),
            ("--profile or --spec", self.disk.is_given() && !at_address),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(BadInput(format!(
                "{flag} describes a server at work, and this is a folder of results, which say it themselves"
            ))
            .into()),
            None => self.told(),
        }
    }

    fn told(&self) -> Result<Told> {
        let wrong = |words: String| Err(BadInput(words).into());
        if !(Duration::from_secs(10)..=Duration::from_secs(86_400)).contains(&self.watch) {
            return wrong("--watch: from 10 seconds to a day".into());
        }
        for (flag, value) in [("--cores", self.cores), ("--busy", self.busy)] {
            if value.is_some_and(|value| !(0.001..=4096.0).contains(&value)) {
                return wrong(format!("{flag}: 0.001 to 4096 processors"));
            }
        }
        if let (Some(busy), Some(cores)) = (self.busy, self.cores)
            && busy > cores
        {
            return wrong(format!("--busy {busy}: it cannot keep more busy than there are, {cores}"));
        }
        let disk = self.disk.is_given().then(|| self.disk.read()).transpose()?;
        Ok(Told { memory: self.memory, cores: self.cores, busy: self.busy, disk })
    }
}

impl Plan {
    /// Watches a server, and judges candidates by what was seen.
    fn of_server_at_work(
        &self,
        catalogue: Option<Catalogue>,
        json: bool,
        interrupt: &Interrupt,
    ) -> Result<Ending> {
        let address = self.source.to_string_lossy();
        let wrong = |words: String| Err(BadInput(words).into());
        for (is_given, words) in [
            (
                self.check.is_some(),
                "--check: a server at work is not carried out here; `tipover learn` makes a plan of its load, which is",
            ),
            (
                self.records.is_some(),
                "--records: a server at work has as many as it has; --growth says how they grow",
            ),
            (!self.only.is_empty(), "--only chooses cells of results, and a server at work has none"),
            (self.target.is_some(), "--target chooses results, and a server at work has none"),
            (!self.set.is_empty(), "--set chooses results, and a server at work has none"),
        ] {
            if is_given {
                return wrong(words.into());
            }
        }
        let told = self.at_work.told()?;
        let address: Address = address.parse().map_err(BadInput)?;
        let spec = match address.scheme() {
            "postgres" | "postgresql" => connection("postgres", &address)?,
            "mysql" | "mariadb" => connection("mysql", &address)?,
            "mongodb" => connection("mongodb", &address)?,
            other => {
                return wrong(format!(
                    "{other}:// cannot be planned from at work, because how such a server keeps its pages is not modelled: \
                     those at postgres://, mysql:// and mongodb:// can"
                ));
            }
        };
        let wanted = Wanted {
            question: Question { promise: self.promise, load: self.load.0 },
            growth: self.growth,
            catalogue,
            records: None,
        };
        eprintln!("watching {} for {}: only asking", address.shown(), span::print(self.at_work.watch));
        let (watched, unseen) = running_server::watch(&spec, self.at_work.watch, &told, interrupt)
            .map_err(|error| error.downcast::<Unseen>().map_or_else(|e| e, |why| BadInput(why.0).into()))?;
        let answer = planned_of_running(&spec, &watched, unseen, &wanted)
            .map_err(|why| BadInput(format!("{}: {why}", address.shown())))?;
        self.show(&report::of_plan(&answer, &command_line()), &answer, json)?;
        Ok(if answer.best.is_some() { Ending::Held } else { Ending::NotHeld })
    }

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
