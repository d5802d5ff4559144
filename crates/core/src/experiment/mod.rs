//! An experiment as data: a question, settings, and sweeps over some of them.
//!
//! experiment ⊃ sweep ⊃ cell ⊃ trial. A plan is a TOML text with one table per part of [`Spec`] and a list of
//! sweeps; a scale (`[scale.quick]`) overrides settings; an axis sets one setting per value. Whatever the way
//! a setting got its value, a cell is identified by its complete [`Spec`], so a changed setting never reuses
//! an old result.

mod mistake;
mod names;
pub mod recipe;
mod search;
mod server;
mod settings;
mod spec;

pub use crate::nearest::unknown;
pub use names::CellNames;
pub use search::{Promise, SearchSpec, interventions};
pub use spec::*;

use crate::workload::Random;
use mistake::Origin;
use serde::{Deserialize, Serialize};
use settings::{has_laboratories_of_sweeps, merge, says, set, take_scale, typed};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// What is wrong with a plan, in words for the person who wrote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub String);

fn wrong<T>(text: impl Into<String>) -> Result<T, PlanError> {
    Err(PlanError(text.into()))
}

/// A plan after its scale and overrides were applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Short name, also the results folder's.
    pub name: String,
    /// Title of its report.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// Why one would want to know.
    pub why: String,
    /// How to read its answer, and what the answer cannot say.
    pub how_to_read: String,
    /// Name of the published study whose numbers stand beside ours, if any.
    pub published: Option<String>,
    /// How often each cell is measured.
    pub repeats: u32,
    /// Whether the first cell of every sweep is measured once more in each block, for the noise floor.
    pub again: bool,
    /// Seed of the order of trials and of the workload.
    pub seed: u64,
    /// The scale that was chosen, with its sentence.
    pub scale: String,
    /// What `find` searches in each cell, if the plan says so.
    pub search: Option<SearchSpec>,
    /// The sweeps in the order in which they run.
    pub sweeps: Vec<Sweep>,
}

/// Cells that belong together: the product of some axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sweep {
    /// Short name, the beginning of its cells' names.
    pub name: String,
    /// What this sweep answers.
    pub question: String,
    /// It is left out, loudly, where what it needs is not there; any other sweep is refused.
    pub optional: bool,
    /// The swept settings.
    pub axes: Vec<Axis>,
    /// Every combination, first axis slowest.
    pub cells: Vec<Cell>,
}

/// One swept setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// What people call it: "disk".
    pub name: String,
    /// The setting that it sets: "disk.shape".
    pub sets: String,
    /// What its values are called, in order.
    pub labels: Vec<String>,
    values: Vec<Value>,
}

/// One combination of settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The sweep that it belongs to.
    pub sweep: String,
    /// Axis names with the labels of this cell's values.
    pub labels: Vec<(String, String)>,
    /// Everything that defines it.
    pub spec: Spec,
}

impl Cell {
    /// Readable slug and a short hash of the canonical spec; names the cell's folder.
    pub fn id(&self) -> String {
        let slug: Vec<String> = std::iter::once(&self.sweep)
            .chain(self.labels.iter().map(|(_, label)| label))
            .map(|w| slug(w))
            .collect();
        format!("{}-{}", slug.join("-"), &self.spec.fingerprint()[..8])
    }

    /// The label of `axis`, if this cell's sweep has that axis.
    pub fn label(&self, axis: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == axis).map(|(_, label)| label.as_str())
    }
}

fn slug(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            'a'..='z' | '0'..='9' | '.' => out.push(c),
            'A'..='Z' => out.push(c.to_ascii_lowercase()),
            '%' => out.push_str("pct"),
            _ if out.ends_with('-') || out.is_empty() => {}
            _ => out.push('-'),
        }
    }
    // "92 %" becomes "92pct", not "92-pct".
    out.replace("-pct", "pct").trim_matches('-').to_string()
}

/// A cell to be measured for the `repeat`-th time, counted from 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial<'a> {
    /// What is measured.
    pub cell: &'a Cell,
    /// Which repetition.
    pub repeat: u32,
    /// The same once more in the same block, for the noise floor: what differs between the two is nobody's
    /// doing (an A/A test).
    pub twin: bool,
}

impl Trial<'_> {
    /// Seed of this trial's operations: repeats of a cell draw different operations, reruns the same ones.
    pub fn seed(&self, experiment_seed: u64) -> u64 {
        Random::new(experiment_seed, u64::from(self.repeat) | u64::from(self.twin) << 32).bits()
    }

    /// Its folder in the cell's: "2", or "2-again" for a twin.
    pub fn folder(&self) -> String {
        if self.twin { format!("{}-again", self.repeat) } else { self.repeat.to_string() }
    }
}

/// What a plan says about the experiment besides its settings. A scale can change any of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// Short name, also the results folder's.
    name: String,
    /// Title of its report.
    title: String,
    /// What it answers.
    question: String,
    /// Why one would want to know.
    why: String,
    /// How to read its answer, and what the answer cannot say.
    how_to_read: String,
    /// Name of the published study whose numbers stand beside ours.
    published: Option<String>,
    /// How often each cell is measured, 1 to 100000.
    repeats: u32,
    /// Whether the first cell of every sweep is measured once more in each block, for the noise floor.
    #[serde(default)]
    again: bool,
    /// Seed of the order of trials and of the workload; 1 unless given.
    #[serde(default = "one")]
    seed: u64,
    /// What `tipover find` searches in each cell.
    search: Option<SearchSpec>,
    /// The sweeps, in the order in which they run: `[[sweep]]`.
    sweep: Vec<SweepText>,
}

impl Header {
    /// All of them, for the mistakes in a plan's first lines.
    const FIELDS: [&str; 11] = [
        "name",
        "title",
        "question",
        "why",
        "how_to_read",
        "published",
        "repeats",
        "again",
        "seed",
        "search",
        "sweep",
    ];
}

/// More cannot be meant: at a second each it would be more than a day for every cell.
pub const MOST_REPEATS: u32 = 100_000;

/// What makes a sweep the one that it is: a sweep of files or of a server stays one.
const KINDS: [&str; 3] = ["target.kind", "workload.kind", "lab.recipe"];

/// More cannot be meant: at a minute each it would be three days for every repeat. Each takes some kilobytes.
const MOST_CELLS: usize = 4_096;
/// Nor more than that of all cells together: at a second each it would be eleven days.
const MOST_TRIALS: u64 = 1_000_000;

fn one() -> u64 {
    1
}

/// Cells that belong together: every combination of the values of its axes, the first axis slowest.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SweepText {
    /// Short name, the beginning of its cells' names.
    name: String,
    /// What this sweep answers.
    question: String,
    /// Where a program that it needs is not installed, this sweep is left out, loudly, and the others run.
    /// Without this key the whole run is refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    optional: bool,
    /// Nothing is broken or checked in this sweep: the plan's `[break]` is for the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unbroken: bool,
    /// Settings of this sweep alone.
    #[serde(default)]
    settings: Table,
    /// The swept settings: `[[sweep.axis]]`.
    axis: Vec<AxisText>,
}

impl Header {
    /// What a scale says of single sweeps: `[scale.NAME.sweep.SWEEP]`.
    fn patch(&mut self, scale: &str, patches: Table) -> Result<(), PlanError> {
        for (name, patch) in patches {
            let names: Vec<&str> = self.sweep.iter().map(|sweep| sweep.name.as_str()).collect();
            let unknown = PlanError(format!("[scale.{scale}]: {}", unknown("sweep", &name, &names)));
            let sweep = self.sweep.iter_mut().find(|sweep| sweep.name == name).ok_or(unknown)?;
            let here = format!("[scale.{scale}.sweep.{name}]");
            let Value::Table(mut patch) = patch else { return wrong(format!("{here} must be a table")) };
            if let Some(axes) = patch.remove("axis") {
                let axes: BTreeMap<String, AxisValues> = axes
                    .try_into()
                    .map_err(|error| PlanError(format!("{here}: axis: {}", error.message())))?;
                sweep.sweep_over(axes).map_err(|error| PlanError(format!("{here}: {error}")))?;
            }
            merge(&mut sweep.settings, &patch);
        }
        Ok(())
    }
}

/// What a scale says of an axis: `[scale.NAME.sweep.SWEEP.axis.AXIS]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AxisValues {
    /// Its values there, in order.
    values: Vec<Value>,
    /// What they are called. Absent: as the sweep calls its own.
    labels: Option<Vec<String>>,
}

impl SweepText {
    /// Gives its axes other values.
    fn sweep_over(&mut self, axes: BTreeMap<String, AxisValues>) -> Result<(), PlanError> {
        for (name, AxisValues { values, labels }) in axes {
            let names: Vec<&str> = self.axis.iter().map(|axis| axis.name.as_str()).collect();
            let unknown = PlanError(unknown("axis", &name, &names));
            let axis = self.axis.iter_mut().find(|axis| axis.name == name).ok_or(unknown)?;
            (axis.values, axis.labels) = (values, labels.or(axis.labels.take()));
        }
        Ok(())
    }

    /// How many cells its axes make; no more than can be counted.
    fn cells(&self) -> usize {
        self.axis.iter().map(|axis| axis.values.len()).fold(1, usize::saturating_mul)
    }
}

/// One swept setting.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AxisText {
    /// What people call it: "disk".
    name: String,
    /// The setting that it sets: "disk.shape".
    sets: String,
    /// Its values, in order.
    values: Vec<Value>,
    /// What the values are called, in the same order. Absent: as they are written.
    labels: Option<Vec<String>>,
}

impl Experiment {
    /// Reads a plan. `scale` names one of its `[scale.*]` tables; `overrides` are `setting=value` pairs that
    /// beat the scale and the axes over them, as given on a command line.
    pub fn parse(text: &str, scale: &str, overrides: &[(String, String)]) -> Result<Experiment, PlanError> {
        Experiment::parse_for(text, scale, overrides, None)
    }

    /// The same on a server that runs already instead of the plan's target. What the plan says about disk,
    /// memory and engine is the server's own affair then: these settings are left out, and so are the axes
    /// over them. Durability is as the server is configured.
    pub fn parse_for(
        text: &str,
        scale: &str,
        overrides: &[(String, String)],
        server: Option<&Address>,
    ) -> Result<Experiment, PlanError> {
        let mut table: Table = text.parse().map_err(|e: toml::de::Error| PlanError(e.to_string()))?;
        let origin = Origin { text, scale, overrides };
        if table.is_empty() {
            return wrong("the plan is empty: `tipover list` names plans, and those are good to begin from");
        }
        let known: Vec<&str> = Header::FIELDS.into_iter().chain(Spec::PARTS).chain(["scale"]).collect();
        if let Some(strange) = table.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(origin.unknown_setting(strange, &known));
        }
        let mut of_sweeps = take_scale(&mut table, scale)?;
        if let Some(address) = server {
            server::put(&mut table, &mut of_sweeps, address)?;
        }
        let overridden: Vec<(&String, Value)> =
            overrides.iter().map(|(path, value)| (path, typed(value))).collect();
        // What is said of laboratories concerns the sweeps that have one, where not all have.
        let some_have = has_laboratories_of_sweeps(&table);
        let of_some = |path: &str| some_have && path.starts_with("lab.") && path != "lab.recipe";
        for (path, value) in overridden.iter().filter(|(path, _)| !of_some(path)) {
            set(&mut table, path, value.clone())?;
        }
        let mut settings = Table::new();
        for part in Spec::PARTS {
            if let Some(value) = table.remove(part) {
                settings.insert(part.into(), value);
            }
        }
        let mut header: Header = table.try_into().map_err(|error| origin.told(&error))?;
        header.patch(scale, of_sweeps)?;
        // What the user says wins over what a sweep says of itself, but for what makes it that sweep.
        for (path, value) in overridden.into_iter().filter(|(path, _)| !KINDS.contains(&path.as_str())) {
            let concerns = |sweep: &&mut SweepText| {
                says(&sweep.settings, path) || (of_some(path) && sweep.settings.contains_key("lab"))
            };
            for sweep in header.sweep.iter_mut().filter(concerns) {
                set(&mut sweep.settings, path, value.clone())?;
            }
        }
        // Who says what a setting is does not want it swept.
        let is_given = |axis: &AxisText| overrides.iter().any(|(path, _)| *path == axis.sets);
        header.sweep.iter_mut().for_each(|sweep| sweep.axis.retain(|axis| !is_given(axis)));
        if header.sweep.is_empty() {
            return wrong("a plan needs at least one sweep");
        }
        if !(1..=MOST_REPEATS).contains(&header.repeats) {
            return wrong(format!("repeats = {} is not from 1 to {MOST_REPEATS}", header.repeats));
        }
        let cells = header.sweep.iter().map(SweepText::cells).fold(0, usize::saturating_add);
        if cells > MOST_CELLS {
            return wrong(format!(
                "the axes multiply to {cells} cells; a plan has at most {MOST_CELLS}: leave values out, or sweep \
                 axes one at a time, each in a [[sweep]] of its own"
            ));
        }
        if cells as u64 * u64::from(header.repeats) > MOST_TRIALS {
            return wrong(format!(
                "{cells} cells with {} repeats each are more than {MOST_TRIALS} trials",
                header.repeats
            ));
        }
        let mut sweeps = Vec::new();
        for sweep in header.sweep {
            sweeps.push(Sweep::new(sweep, &settings, &origin)?);
        }
        Ok(Experiment {
            name: header.name,
            title: header.title,
            question: header.question,
            why: header.why,
            how_to_read: header.how_to_read,
            published: header.published,
            repeats: header.repeats,
            again: header.again,
            seed: header.seed,
            scale: scale.to_string(),
            search: header.search,
            sweeps,
        })
    }

    /// Names of the scales of a plan, in its order.
    pub fn scales(text: &str) -> Vec<String> {
        let table: Table = text.parse().unwrap_or_default();
        match table.get("scale") {
            Some(Value::Table(scales)) => scales.keys().cloned().collect(),
            _ => vec![],
        }
    }

    /// Keeps only the cells whose axes have the given labels; an axis that a sweep lacks does not exclude it.
    pub fn only(&mut self, filters: &[(String, String)]) -> Result<(), PlanError> {
        for (axis, label) in filters {
            let axes: Vec<&Axis> =
                self.sweeps.iter().flat_map(|s| &s.axes).filter(|a| a.name == *axis).collect();
            if axes.is_empty() && axis == "sweep" {
                let names: Vec<&str> = self.sweeps.iter().map(|sweep| sweep.name.as_str()).collect();
                if !names.iter().any(|name| slug(name) == slug(label)) {
                    return wrong(unknown("sweep", label, &names));
                }
                self.sweeps.retain(|sweep| slug(&sweep.name) == slug(label));
                continue;
            }
            if axes.is_empty() {
                let names: Vec<&str> =
                    self.sweeps.iter().flat_map(|s| s.axes.iter().map(|a| a.name.as_str())).collect();
                return wrong(unknown("axis", axis, &names));
            }
            let labels: Vec<&str> = axes.iter().flat_map(|a| a.labels.iter().map(String::as_str)).collect();
            let Some(found) = labels.iter().find(|l| slug(l) == slug(label)).map(|l| l.to_string()) else {
                return wrong(unknown(&format!("value of axis {axis}"), label, &labels));
            };
            for sweep in &mut self.sweeps {
                sweep.cells.retain(|cell| cell.label(axis).is_none_or(|l| l == found));
            }
        }
        self.sweeps.retain(|sweep| !sweep.cells.is_empty());
        Ok(())
    }

    /// All trials in the order in which they should run: [block](Self::blocks) after block.
    pub fn trials(&self) -> Vec<Trial<'_>> {
        self.blocks().into_iter().flatten().collect()
    }

    /// The trials in blocks, sweep after sweep: every cell of a sweep once per block, in an order of its own,
    /// so that a drift of the machine hits all alike. If the plan asks for it, the first cell has a twin in
    /// each block. What is compared stands in one block, so a block stays on one machine.
    pub fn blocks(&self) -> Vec<Vec<Trial<'_>>> {
        let mut blocks = Vec::new();
        for (index, sweep) in self.sweeps.iter().enumerate() {
            for repeat in 0..self.repeats {
                let mut block: Vec<Trial<'_>> =
                    sweep.cells.iter().map(|cell| Trial { cell, repeat, twin: false }).collect();
                let first = sweep.cells.first().filter(|_| self.again);
                block.extend(first.map(|cell| Trial { cell, repeat, twin: true }));
                Random::new(self.seed, ((index as u64) << 32) | u64::from(repeat)).shuffle(&mut block);
                blocks.push(block);
            }
        }
        blocks
    }

    /// An experiment of these cells alone, as far as carrying them out needs one: it has no question, no
    /// axes, and nothing to compare.
    pub fn of_cells(name: &str, seed: u64, repeats: u32, cells: Vec<Cell>) -> Experiment {
        let mut sweeps: Vec<Sweep> = Vec::new();
        for cell in cells {
            match sweeps.iter_mut().find(|sweep| sweep.name == cell.sweep) {
                Some(sweep) => sweep.cells.push(cell),
                None => sweeps.push(Sweep {
                    name: cell.sweep.clone(),
                    question: String::new(),
                    optional: false,
                    axes: vec![],
                    cells: vec![cell],
                }),
            }
        }
        let (title, question, why, how_to_read) = Default::default();
        let (published, again, scale, search) = Default::default();
        let name = name.to_string();
        Experiment {
            name,
            title,
            question,
            why,
            how_to_read,
            published,
            repeats,
            again,
            seed,
            scale,
            search,
            sweeps,
        }
    }
}

impl Sweep {
    fn new(mut text: SweepText, base: &Table, origin: &Origin<'_>) -> Result<Sweep, PlanError> {
        let mut settings = base.clone();
        merge(&mut settings, &text.settings);
        if text.unbroken {
            settings.remove("break");
        }
        let mut axes = Vec::new();
        for axis in std::mem::take(&mut text.axis) {
            if axis.values.is_empty() {
                return wrong(format!("axis {} of sweep {} has no values", axis.name, text.name));
            }
            let labels = axis.labels.unwrap_or_else(|| axis.values.iter().map(label_of).collect());
            if labels.len() != axis.values.len() {
                return wrong(format!(
                    "axis {} of sweep {} has {} values and {} labels",
                    axis.name,
                    text.name,
                    axis.values.len(),
                    labels.len()
                ));
            }
            axes.push(Axis { name: axis.name, sets: axis.sets, labels, values: axis.values });
        }
        let mut cells = vec![(Vec::new(), settings)];
        for axis in &axes {
            let mut product = Vec::new();
            for (labels, settings) in &cells {
                for (label, value) in axis.labels.iter().zip(&axis.values) {
                    let (mut labels, mut settings) = (labels.clone(), settings.clone());
                    labels.push((axis.name.clone(), label.clone()));
                    set(&mut settings, &axis.sets, value.clone())?;
                    product.push((labels, settings));
                }
            }
            cells = product;
        }
        let mut out = Vec::new();
        for (labels, settings) in cells {
            let spec: Spec = settings.try_into().map_err(|error| origin.told(&error))?;
            spec.check().map_err(|e| PlanError(format!("sweep {}: {e}", text.name)))?;
            out.push(Cell { sweep: text.name.clone(), labels, spec });
        }
        let SweepText { name, question, optional, .. } = text;
        Ok(Sweep { name, question, optional, axes, cells: out })
    }
}

fn label_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    const SWEEP: &str = "reads";
    const PLAN: &str = r#"
        name = "t"
        title = "T"
        question = "q"
        why = "w"
        how_to_read = "h"
        repeats = 2
        [target]
        kind = "wiredtiger"
        [target.wiredtiger]
        cache = "64 MiB"
        [machine]
        memory = "256 MiB"
        [disk]
        size = "1 GiB"
        shape = "iops=5000"
        [workload]
        working_set = "92 %"
        [load]
        sessions = 16
        [[sweep]]
        name = "reads"
        question = "q"
        [[sweep.axis]]
        name = "working_set"
        sets = "workload.working_set"
        values = ["92 %", "138 %"]
        [[sweep.axis]]
        name = "disk"
        sets = "disk.shape"
        values = ["iops=5000", "iops=600,latency=7ms", "iops=150,latency=7ms"]
        labels = ["5000 IOPS", "600 IOPS", "150 IOPS"]
        [scale.quick]
        [scale.tiny]
        repeats = 1
        target.wiredtiger.cache = "16 MiB"
    "#;

    fn parse(scale: &str) -> Experiment {
        Experiment::parse(PLAN, scale, &[]).unwrap()
    }

    #[test]
    fn a_scale_overrides_settings_and_a_changed_setting_changes_the_cell() {
        let (quick, tiny) = (parse("quick"), parse("tiny"));
        assert_eq!((quick.repeats, tiny.repeats), (2, 1));
        assert_eq!(quick.sweeps[0].cells.len(), 6);
        let (a, b) = (quick.sweeps[0].cells[0].id(), tiny.sweeps[0].cells[0].id());
        assert!(a.starts_with("reads-92pct-5000-iops-"), "{a}");
        assert_ne!(a, b);
        assert_eq!(a, parse("quick").sweeps[0].cells[0].id());
    }

    #[test]
    fn records_that_no_disk_holds_are_refused_and_no_size_of_theirs_overflows() {
        let many = [
            PLAN.replace("138 %", "6e40 %"),
            PLAN.replace("working_set = \"92 %\"", "records = 9000000000000000000"),
        ];
        for plan in many {
            let refused = Experiment::parse(&plan, "quick", &[]).unwrap_err().to_string();
            assert!(refused.contains("records cannot be meant"), "{refused}");
        }
    }

    #[test]
    fn a_scale_says_what_a_sweep_is_at_that_scale_and_the_user_says_it_last() {
        let plan = format!(
            "{}\n[scale.large]\nload.sessions = 4\n[scale.large.sweep.{SWEEP}]\nmachine.memory = \"1 GiB\"\n\
             load.sessions = 8\n",
            PLAN.replace(
                &format!("name = \"{SWEEP}\""),
                &format!("name = \"{SWEEP}\"\nsettings.load.sessions = 2")
            )
        );
        let sessions = |scale: &str, said: &[(String, String)]| {
            let parsed = Experiment::parse(&plan, scale, said).unwrap();
            let spec = &parsed.sweeps.iter().find(|sweep| sweep.name == SWEEP).unwrap().cells[0].spec;
            (spec.load.sessions, spec.machine.memory.unwrap())
        };
        assert_eq!(sessions("quick", &[]), (2, Bytes::mib(256)));
        assert_eq!(sessions("large", &[]), (8, Bytes::gib(1)));
        let said = [("load.sessions".to_string(), "32".to_string())];
        assert_eq!(sessions("large", &said), (32, Bytes::gib(1)));
        // A sweep of another target stays one.
        let whole = include_str!("../../../../experiments/working-set.toml");
        let parsed = Experiment::parse(whole, "quick", &[("target.kind".into(), "null".into())]).unwrap();
        let of = |name: &str| {
            parsed.sweeps.iter().find(|sweep| sweep.name == name).unwrap().cells[0].spec.target.kind
        };
        assert_eq!([of("reads"), of("device")], [TargetKind::Null, TargetKind::File]);
        // What is said of laboratories concerns no sweep without one.
        let said = [("lab.settings.wiredTigerCacheSizeGB".to_string(), "0.5".to_string())];
        let parsed = Experiment::parse(whole, "quick", &said).unwrap();
        let of = |name: &str| parsed.sweeps.iter().find(|sweep| sweep.name == name).unwrap();
        assert_eq!(of("mongodb").cells[0].spec.cache_bytes(), Bytes::mib(512));
        assert!(of("reads").cells[0].spec.lab.is_none());
        // Other values of an axis keep their names, so that a text's claims are about the same cells.
        let larger = format!(
            "{plan}[scale.large.sweep.{SWEEP}.axis.disk]\nvalues = [\"iops=1\", \"iops=2\", \"iops=3\"]\n"
        );
        let parsed = Experiment::parse(&larger, "large", &[]).unwrap();
        let cell = &parsed.sweeps.iter().find(|sweep| sweep.name == SWEEP).unwrap().cells[0];
        assert_eq!((cell.label("disk"), cell.spec.disk.shape.as_str()), (Some("5000 IOPS"), "iops=1"));
        for (from, to, said) in [
            ("axis.disk]", "axis.dsik]", "unknown axis `dsik`"),
            (", \"iops=3\"]", "]", "has 2 values and 3 labels"),
            ("values = [\"iops=1\"", "value = [\"iops=1\"", "unknown field `value`"),
        ] {
            let error = Experiment::parse(&larger.replace(from, to), "large", &[]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        let wrong = plan.replace(&format!("sweep.{SWEEP}]"), "sweep.raeds]");
        let error = Experiment::parse(&wrong, "large", &[]).unwrap_err().to_string();
        assert!(error.contains("[scale.large]: unknown sweep `raeds`"), "{error}");
    }

    #[test]
    fn blocks_are_complete_and_shuffled() {
        let quick = parse("quick");
        let trials = quick.trials();
        assert_eq!(trials.len(), 12);
        for block in trials.chunks(6) {
            let mut ids: Vec<String> = block.iter().map(|t| t.cell.id()).collect();
            ids.sort();
            ids.dedup();
            assert_eq!(ids.len(), 6);
        }
        let order = |block: usize| trials[block * 6..][..6].iter().map(|t| t.cell.id()).collect::<Vec<_>>();
        assert_ne!(order(0), order(1));
    }

    #[test]
    fn filters_keep_what_they_name() {
        let mut quick = parse("quick");
        quick.only(&[("disk".into(), "600 iops".into())]).unwrap();
        assert_eq!(quick.sweeps[0].cells.len(), 2);
        let error = quick.only(&[("disc".into(), "1".into())]).unwrap_err();
        assert_eq!(error.0, "unknown axis `disc`: did you mean `disk`?");
        let error = parse("quick").only(&[("disk".into(), "500 IOPS".into())]).unwrap_err();
        assert!(error.0.contains("did you mean `5000 IOPS`?"), "{error}");
    }

    #[test]
    fn mistakes_are_named_with_the_nearest_right_word() {
        for (from, to, expected) in [
            ("cache = \"64", "cahce = \"64", "unknown setting `cahce`: did you mean `cache`?"),
            (
                "kind = \"wiredtiger\"",
                "kind = \"wiredtigre\"",
                "unknown value `wiredtigre`: did you mean `wiredtiger`?",
            ),
            ("sessions = 16", "sessions = 0", "load.sessions must be at least 1"),
            ("repeats = 2", "repeats = 0", "repeats = 0 is not from 1 to 100000"),
            ("repeats = 2", "repeats = 4000000000", "is not from 1 to 100000"),
            ("\"iops=5000\",", "\"iopz=5000\",", "iops"),
            ("size = \"1 GiB\"", "size = \"1 Gib\"", "line 15: disk.size: "),
            ("size = \"1 GiB\"", "size = \"1 Gib\"", "is not a size"),
            (
                "sessions = 16",
                "sessions = \"sixteen\"",
                "line 20: load.sessions is the text \"sixteen\", and must be a whole number",
            ),
            ("repeats = 2", "repeats = true", "line 7: repeats is true, and must be a whole number"),
            ("repeats = 2", "repaets = 2", "line 7: unknown setting `repaets`: did you mean `repeats`?"),
            ("name = \"t\"", "nam = \"t\"", "line 2: unknown setting `nam`: did you mean `name`?"),
            ("name = \"t\"", "", "the plan lacks `name`"),
            ("cache = \"64", "cahce = \"64", "line 11: unknown setting"),
            (
                "sets = \"disk.shape\"",
                "sets = \"disk.shap\"",
                "unknown setting `shap`: did you mean `shape`?",
            ),
        ] {
            let text = PLAN.replacen(from, to, 1);
            let error = Experiment::parse(&text, "quick", &[]).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let error = Experiment::parse(PLAN, "quikc", &[]).unwrap_err().to_string();
        assert_eq!(error, "unknown scale `quikc`: did you mean `quick`?");
        let said = |text: &str, overrides: &[(String, String)]| {
            Experiment::parse(text, "tiny", overrides).unwrap_err().to_string()
        };
        let scaled = PLAN.replacen("cache = \"16 MiB\"", "cache = true", 1);
        assert!(said(&scaled, &[]).starts_with("line 36: target.wiredtiger.cache"), "{}", said(&scaled, &[]));
        let set = |value: &str| [("load.sessions".to_string(), value.to_string())];
        assert_eq!(
            said(PLAN, &set("many")),
            "--set: load.sessions is the text \"many\", and must be a whole number"
        );
        for nothing in ["", "# a remark\n"] {
            assert!(said(nothing, &[]).starts_with("the plan is empty"), "{}", said(nothing, &[]));
        }
        let (unscaled, _) = PLAN.split_once("[scale.quick]").unwrap();
        assert!(said(unscaled, &[]).contains("it needs a table [scale.tiny]"), "{}", said(unscaled, &[]));
    }

    #[test]
    fn axes_do_not_multiply_without_limit() {
        let axis = |values: usize| {
            let values: Vec<String> = (1..=values).map(|n| n.to_string()).collect();
            let head = "[[sweep.axis]]\nname = \"x\"\nsets = \"load.sessions\"";
            format!("{head}\nvalues = [{}]\n", values.join(","))
        };
        let with = |axes: &[usize], repeats: u32| {
            let axes: String = axes.iter().map(|values| axis(*values)).collect();
            let text = PLAN.replace("[scale.quick]", &format!("{axes}[scale.quick]"));
            let repeats = [("repeats".to_string(), repeats.to_string())];
            Experiment::parse(&text, "quick", &repeats).map(|experiment| experiment.sweeps[0].cells.len())
        };
        assert_eq!(with(&[600], 2), Ok(3_600));
        let error = |axes: &[usize], repeats| with(axes, repeats).unwrap_err().to_string();
        assert!(error(&[700], 2).starts_with("the axes multiply to 4200 cells"), "{}", error(&[700], 2));
        let many = error(&[100; 12], 2);
        assert!(many.starts_with(&format!("the axes multiply to {} cells", usize::MAX)), "{many}");
        assert_eq!(error(&[600], 300), "3600 cells with 300 repeats each are more than 1000000 trials");
    }

    #[test]
    fn overrides_beat_the_scale_and_axes() {
        let experiment =
            Experiment::parse(PLAN, "tiny", &[("target.wiredtiger.cache".into(), "32 MiB".into())]).unwrap();
        let cache = experiment.sweeps[0].cells[0].spec.target.wiredtiger.cache;
        assert_eq!(cache, CacheSize::Bytes(crate::units::Bytes::mib(32)));
        let swept = parse("tiny").sweeps[0].cells.len();
        let set = [("disk.shape".to_string(), "iops=77".to_string())];
        let one_disk = Experiment::parse(PLAN, "tiny", &set).unwrap();
        let cells = &one_disk.sweeps[0].cells;
        assert!(cells.len() < swept && cells.iter().all(|cell| cell.spec.disk.shape == "iops=77"));
        assert!(cells[0].label("disk").is_none());
    }
}
