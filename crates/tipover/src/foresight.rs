//! What a run will need, refuse and take, as far as it can be known before anything is touched.
//!
//! `--list` and the run itself ask the same functions, so that one does not refuse what the other promised.

use crate::machine::{self, Needs, Severity};
use crate::trial::{self, NEEDS_NETWORK, binaries};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::experiment::recipe::Recipe;
use tipover_core::experiment::{
    BackingKind, Cell, DiskMode, DiskSpec, Experiment, Filesystem, SearchSpec, Side, Spec, Trial,
    interventions,
};
use tipover_core::schedule::Undo;
use tipover_core::units::{Bytes, span};

/// Memory of a server without a limit, as most of them are idle with their defaults. Assumed.
const SERVER: Bytes = Bytes::mib(150);
/// What a new database takes on its disk, journal included. Assumed.
const NEW_DATABASE: Bytes = Bytes::mib(256);
/// How fast records are loaded, in bytes per second: at least, as accounts whose keys come in no order and no
/// longer fit into memory, and at most. Assumed.
const LOADED_PER_S: (f64, f64) = (5e6, 20e6);
/// What it takes to make and start a node, and a target that is embedded or asked at its address. Assumed.
const START: Duration = Duration::from_millis(1_500);
/// How long a cluster is waited for, at the most, until it follows again and everything is read. Assumed.
const RECOVERED: Duration = Duration::from_secs(30);

/// How many trials of a cell share a cluster before the next cell takes its turn.
pub const AT_A_TIME: usize = 5;

/// The cells of an experiment, all sweeps after each other.
fn cells(experiment: &Experiment) -> impl Iterator<Item = &Cell> {
    experiment.sweeps.iter().flat_map(|sweep| &sweep.cells)
}

/// Memory and disk space that `experiment` takes at its peak, and what else it wants of the machine.
pub fn needs(experiment: &Experiment) -> Needs {
    needs_of(cells(experiment))
}

fn needs_of<'a>(cells: impl Iterator<Item = &'a Cell>) -> Needs {
    let mut needs = Needs {
        memory: Bytes(0),
        disk: Bytes::mib(200),
        cores: 2,
        shaped_disk: None,
        block_mode: None,
        memory_limit: None,
        filesystems: vec![],
    };
    let mut data = BTreeMap::new();
    let (mut group, mut cluster) = (0, Room::default());
    for cell in cells {
        let spec = &cell.spec;
        if let (Some(_), Ok(recipe)) = (&spec.lab, spec.cluster()) {
            cluster = cluster.or(Room::of(spec, &recipe));
            for node in recipe.layout().nodes {
                if recipe.memory_of(node.role).is_some() || recipe.cpus_of(node.role).is_some() {
                    needs.memory_limit = Some(Severity::CannotRun);
                }
                recipe.disk_of(node.role).iter().for_each(|disk| needs_of_disk(&mut needs, disk));
            }
            continue;
        }
        if spec.disk.mode == DiskMode::None {
            continue;
        }
        needs_of_disk(&mut needs, &spec.disk);
        data.insert(trial::data_key(spec), (spec.disk_bytes(), spec.disk.backing));
        group = group.max(spec.machine.memory.unwrap_or_default().0);
        if spec.machine.memory.is_some() {
            needs.memory_limit.get_or_insert(Severity::Degrades);
        }
    }
    for (bytes, backing) in data.values() {
        let of = match backing {
            BackingKind::Memory => &mut needs.memory,
            BackingKind::Disk => &mut needs.disk,
        };
        of.0 = of.0.saturating_add(bytes.0);
    }
    // Clusters are gone before the first disk of an embedded engine is mounted.
    needs.memory.0 = needs.memory.0.saturating_add(group).max(cluster.memory);
    needs.disk.0 = needs.disk.0.max(cluster.disk);
    needs
}

fn needs_of_disk(needs: &mut Needs, disk: &DiskSpec) {
    needs.shaped_disk = Some(Severity::CannotRun);
    needs.block_mode.get_or_insert(Severity::Degrades);
    if disk.mode == DiskMode::Block {
        needs.block_mode = Some(Severity::CannotRun);
    }
    let filesystem = match disk.filesystem {
        Filesystem::Ext4 => "ext4",
        Filesystem::Xfs => "xfs",
    };
    if !needs.filesystems.iter().any(|known| known == filesystem) {
        needs.filesystems.push(filesystem.into());
    }
}

/// What a cluster takes, in bytes; no more than can be counted.
#[derive(Default)]
struct Room {
    memory: u64,
    disk: u64,
}

impl Room {
    fn of(spec: &Spec, recipe: &Recipe) -> Room {
        let mut room = Room::default();
        for node in recipe.layout().nodes {
            let memory = recipe.memory_of(node.role).unwrap_or(SERVER);
            room.memory = room.memory.saturating_add(memory.0);
            let Some(disk) = recipe.disk_of(node.role) else { continue };
            let bytes = NEW_DATABASE.0.saturating_add(spec.disk_bytes().0).min(disk.size.0);
            let of = match disk.backing {
                BackingKind::Memory => &mut room.memory,
                BackingKind::Disk => &mut room.disk,
            };
            *of = of.saturating_add(bytes);
        }
        room
    }

    fn or(self, other: Room) -> Room {
        Room { memory: self.memory.max(other.memory), disk: self.disk.max(other.disk) }
    }
}

/// A sentence when what the cells keep on one disk does not fit onto it. A cell alone was checked with its
/// plan, but data sets stay on the disk until it is unmounted.
pub fn too_small_disk(experiment: &Experiment) -> Option<String> {
    let mut disks: Vec<(DiskSpec, BTreeMap<String, u64>)> = Vec::new();
    let shaped = |cell: &&Cell| cell.spec.disk.mode != DiskMode::None && cell.spec.lab.is_none();
    for cell in cells(experiment).filter(shaped) {
        let disk = cell.spec.disk.as_mounted();
        let data = (trial::data_key(&cell.spec), cell.spec.disk_bytes().0);
        match disks.iter_mut().find(|(known, _)| *known == disk) {
            Some((_, sets)) => sets.extend([data]),
            None => disks.push((disk, BTreeMap::from([data]))),
        }
    }
    disks.into_iter().find_map(|(disk, sets)| {
        let needed = Bytes(sets.values().sum());
        (needed > disk.size).then(|| {
            format!(
                "disk.size of {} is too small for the {} data sets of these cells, about {} together: give more, or \
                 fewer cells with --only",
                disk.size,
                sets.len(),
                needed.rounded()
            )
        })
    })
}

/// What speaks against the plan itself, whatever the machine can do besides: disks that are too small or too
/// large, a place for results that is none.
///
/// # Errors
/// The first sentence.
pub fn check_plan(experiment: &Experiment, results: &Path) -> Result<(), String> {
    if let Some(reason) = too_small_disk(experiment) {
        return Err(format!("{}: {reason}", experiment.name));
    }
    for cell in cells(experiment) {
        let disks = match (&cell.spec.lab, cell.spec.cluster()) {
            (Some(_), Ok(recipe)) => {
                recipe.layout().nodes.iter().filter_map(|node| recipe.disk_of(node.role)).collect()
            }
            _ => vec![cell.spec.disk.clone()],
        };
        for disk in disks {
            let folder = disk.folder.as_ref().map_or(results, Path::new);
            let backing = match disk.backing {
                BackingKind::Memory => tipover_disk::BackingChoice::Memory,
                BackingKind::Disk => tipover_disk::BackingChoice::Directory(machine::existing(folder)),
            };
            let options = trial::mount_options(&disk, backing, PathBuf::new());
            if let Some(Err(error)) = options.map(|options| options.check_size()) {
                return Err(format!("{}: disk.size: {error}", experiment.name));
            }
        }
    }
    if results.exists() && !results.is_dir() {
        return Err(format!("{} is a file, not a folder: give another --results", results.display()));
    }
    Ok(())
}

/// What this machine lacks for the experiment, in a sentence; `None` if it can run here. Nobody gave it a
/// label, so it has none.
pub fn refusal(experiment: &Experiment, results: &Path) -> Option<String> {
    let labels: BTreeSet<String> = cells(experiment)
        .flat_map(|cell| &cell.spec.machine.labels)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if !labels.is_empty() {
        let labels: Vec<String> = labels.into_iter().collect();
        return Some(format!(
            "machine.labels demands {}, and only machines of a fleet have labels: give --fleet, or leave them out",
            labels.join(", ")
        ));
    }
    if cells(experiment).any(|cell| cell.spec.load.machines > 1) {
        return Some(
            "load.machines: only a fleet has several machines: give --fleet, or leave it out".into(),
        );
    }
    lacking(experiment, results)
}

/// The experiment without its optional sweeps whose programs are not installed here, and a sentence for each
/// of those.
pub fn leave_out(experiment: &Experiment) -> (Experiment, Vec<String>) {
    let mut carried = experiment.clone();
    let mut left = Vec::new();
    carried.sweeps.retain(|sweep| {
        let lacks = sweep.cells.iter().find_map(|cell| not_installed(&cell.spec)).filter(|_| sweep.optional);
        left.extend(lacks.as_ref().map(|why| format!("{} is left out: {why}", sweep.name)));
        lacks.is_none()
    });
    // Who asks for such a sweep alone wants to know why it cannot be had.
    if carried.sweeps.is_empty() { (experiment.clone(), vec![]) } else { (carried, left) }
}

/// What this machine lacks for the experiment besides labels, in a sentence.
pub fn lacking(experiment: &Experiment, results: &Path) -> Option<String> {
    let facts = machine::read(results);
    let requirements = machine::check(&facts, &needs(experiment));
    let unmet: Vec<_> = requirements.iter().filter(|r| !r.met && r.severity == Severity::CannotRun).collect();
    let no_room = unmet.iter().any(|r| ["memory", "disk-space"].contains(&r.id.as_str()));
    let which = no_room.then(|| which_fit(experiment, &facts));
    let unmet = unmet.iter().map(|r| format!("{}: wanted {}, found {}. {}", r.id, r.wanted, r.found, r.next));
    // Cells differ in little that matters here: each sentence stands once.
    let clusters: BTreeSet<String> = cells(experiment).filter_map(|cell| of_cluster(&cell.spec)).collect();
    let reasons: Vec<String> = unmet.chain(which).chain(clusters).collect();
    (!reasons.is_empty()).then(|| format!("this cannot run here: {}", reasons.join("; ")))
}

/// For which cells of an experiment that does not fit this machine is large enough.
fn which_fit(experiment: &Experiment, facts: &machine::Facts) -> String {
    const SHOWN: usize = 6;
    let fits = |cell: &&Cell| {
        let Needs { memory, disk, .. } = needs_of(std::iter::once(*cell));
        facts.memory_available >= memory && facts.folder.free >= disk
    };
    let (fit, large): (Vec<&Cell>, Vec<&Cell>) = cells(experiment).partition(fits);
    let named = |cell: &&Cell| {
        let labels: Vec<&str> = cell.labels.iter().map(|(_, label)| label.as_str()).collect();
        format!("{} {}", cell.sweep, labels.join(", "))
    };
    let shown: Vec<String> = large.iter().take(SHOWN).map(named).collect();
    let more = large.len().saturating_sub(SHOWN);
    let shown = if more > 0 { format!("{} and {more} more", shown.join("; ")) } else { shown.join("; ") };
    match (fit.len(), large.len()) {
        (_, 0) => {
            "each cell fits by itself: carry out a part at a time with --only, into the same results".into()
        }
        (0, _) => "no cell fits, not even by itself".into(),
        (fit, _) => {
            format!("by themselves {fit} cells fit, and these do not: {shown}; leave those out with --only")
        }
    }
}

/// What the cluster of a cell lacks: its program, or the network that is to be broken.
fn of_cluster(spec: &Spec) -> Option<String> {
    let lab = spec.lab.as_ref()?;
    let recipe = spec.cluster().ok()?;
    if let Some(missing) = not_installed(spec) {
        return Some(missing);
    }
    if let Some(name) = without_disk_for_tenant(spec, &recipe) {
        return Some(format!("tenant: node {name} has no such disk that it could share"));
    }
    let nodes = recipe.layout().nodes.len();
    let root = rustix::process::geteuid().is_root();
    let breaks_links = spec
        .breaking
        .as_ref()
        .is_some_and(|breaking| breaking.faults.rules.iter().any(|rule| rule.fault.undo() == Undo::Heal));
    if breaks_links && nodes == 1 {
        return Some(format!("{NEEDS_NETWORK}, and {} is a single node", lab.recipe.name));
    }
    let shaped = breaks_links || !lab.delay.is_zero();
    if (shaped || root) && nodes > 1 {
        let can = tipover_lab::network::possible();
        return can.err().map(|why| if shaped { format!("{NEEDS_NETWORK}: {why}") } else { why.to_string() });
    }
    None
}

/// The program that the cluster of a cell lacks.
fn not_installed(spec: &Spec) -> Option<String> {
    let (lab, recipe) = (spec.lab.as_ref()?, spec.cluster().ok()?);
    let installed = tipover_lab::installed(&recipe, lab.version, spec.transfers(), &binaries(spec));
    installed.err().map(|missing| missing.to_string())
}

/// A node that is to have another tenant on a disk that it does not have. Of a cluster that elects its
/// primary nobody knows yet who that will be; the first node stands for it.
fn without_disk_for_tenant(spec: &Spec, recipe: &Recipe) -> Option<String> {
    let tenant = spec.busy_tenant()?;
    let has_disk = |role| match (recipe.disk_of(role), tenant.disk) {
        (Some(disk), Side::Journal) => disk.journal.is_some(),
        (disk, Side::Data) => disk.is_some(),
        (None, Side::Journal) => false,
    };
    let nodes = recipe.layout().nodes;
    let first = tenant.nodes.is_empty().then(|| nodes.first()).flatten();
    let named = nodes.iter().filter(|node| tenant.nodes.contains(&node.name));
    named.chain(first).find(|node| !has_disk(node.role)).map(|node| node.name.clone())
}

/// What the rest of a matrix will take. Nothing was measured for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    /// Trials, or searches, that are missing.
    missing: usize,
    /// If everything ends as early as the plan allows.
    #[serde(rename = "shortest_ns", with = "span")]
    shortest: Duration,
    /// If everything takes as long as the plan allows.
    #[serde(rename = "longest_ns", with = "span")]
    longest: Duration,
    /// At a time.
    #[serde(rename = "memory_bytes")]
    memory: Bytes,
    /// At a time.
    #[serde(rename = "disk_bytes")]
    disk: Bytes,
}

impl Estimate {
    fn of(experiment: &Experiment, missing: usize) -> Estimate {
        let Needs { memory, disk, .. } = needs(experiment);
        Estimate { missing, shortest: Duration::ZERO, longest: Duration::ZERO, memory, disk }
    }

    /// Trials, or searches, that are missing.
    pub fn missing(&self) -> usize {
        self.missing
    }

    /// "estimate: 2 min to 5 min".
    pub fn time(&self) -> String {
        format!("estimate: {} to {}", span::rounded(self.shortest), span::rounded(self.longest))
    }

    fn add(&mut self, shortest: Duration, longest: Duration) {
        self.shortest += shortest;
        self.longest += longest;
    }

    /// Of the trials of a run that are missing, in the order and the groups in which it carries them out.
    pub fn of_trials(experiment: &Experiment, missing: Vec<Trial<'_>>) -> Estimate {
        let mut estimate = Estimate::of(experiment, missing.len());
        let (in_labs, mut missing): (Vec<_>, Vec<_>) =
            missing.into_iter().partition(|trial| trial.cell.spec.lab.is_some());
        let mut of_cell: BTreeMap<String, usize> = BTreeMap::new();
        for trial in &in_labs {
            let spec = &trial.cell.spec;
            let before = of_cell.entry(trial.cell.id()).or_default();
            if before.is_multiple_of(AT_A_TIME) {
                let nodes = spec.cluster().map_or(1, |recipe| recipe.layout().nodes.len()) as u32;
                let (least, most) = loading(spec);
                estimate.add(START * nodes + least, START * 2 * nodes + most);
            }
            *before += 1;
            match &spec.breaking {
                Some(breaking) => {
                    let load = breaking.length + breaking.read_again;
                    estimate.add(load, load + breaking.jitter + RECOVERED);
                }
                None => {
                    let ((least, most), (warm, warmest)) = (measuring(spec), warming(spec));
                    estimate.add(warm + least, warmest + most);
                }
            }
        }
        let mut loaded = BTreeSet::new();
        while let Some(first) = missing.first().cloned() {
            let together;
            (together, missing) = missing.into_iter().partition(|trial| trial::share_warm_up(&first, trial));
            estimate.add_target(&first.cell.spec, &mut loaded);
            for trial in &together {
                let (least, most) = measuring(&trial.cell.spec);
                estimate.add(least, most);
            }
        }
        estimate
    }

    /// Of the searches of `cells`, each with its tests of what limits.
    pub fn of_searches(experiment: &Experiment, cells: &[&Cell], search: &SearchSpec) -> Estimate {
        let mut estimate = Estimate::of(experiment, cells.len());
        let mut loaded = BTreeSet::new();
        for cell in cells {
            let changes = match search.interventions {
                true => interventions(&cell.spec, search.scale).len() as u32,
                false => 0,
            };
            estimate.add_target(&cell.spec, &mut loaded);
            // Both ends of the interval are confirmed; a search ends when its time is used up.
            let confirmed = search.confirmation * 2 * search.confirmations;
            estimate.add(confirmed, search.budget.max(confirmed) * (1 + changes));
        }
        estimate
    }

    /// Loads the data of `spec`, if they are not there, and warms the target up.
    fn add_target(&mut self, spec: &Spec, loaded: &mut BTreeSet<String>) {
        let (quick, slow) = match loaded.insert(trial::data_key(spec)) {
            true => loading(spec),
            false => Default::default(),
        };
        // What a server at an address holds already is not loaded.
        let quick = if spec.target.address.is_some() { Duration::ZERO } else { quick };
        let (least, most) = warming(spec);
        self.add(START + quick + least, START + slow + most);
    }
}

// What parts of a trial of `spec` take: at least, and at most.

fn loading(spec: &Spec) -> (Duration, Duration) {
    let at = |rate: f64| Duration::from_secs_f64(spec.loaded_bytes().0 as f64 / rate);
    (at(LOADED_PER_S.1), at(LOADED_PER_S.0))
}

fn warming(spec: &Spec) -> (Duration, Duration) {
    let of = &spec.trial;
    match of.cold {
        true => Default::default(),
        false if spec.is_warmed_for_a_time() => (of.warm_up_least, of.warm_up_least),
        false => (of.warm_up_least, of.warm_up_most.max(of.warm_up_least)),
    }
}

fn measuring(spec: &Spec) -> (Duration, Duration) {
    let of = &spec.trial;
    (of.measure_least, of.settle_most + of.measure_most.max(of.measure_least))
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "estimate: {} to {}, {} of memory and {} of disk at a time. Reckoned from the plan (its shortest and its \
             longest phases; {} to {} MB/s to load, {} to start a node, {} for a server without a limit: assumed), not \
             measured",
            span::rounded(self.shortest),
            span::rounded(self.longest),
            self.memory.rounded(),
            self.disk.rounded(),
            LOADED_PER_S.0 / 1e6,
            LOADED_PER_S.1 / 1e6,
            span::rounded(START),
            SERVER
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(name: &str, overrides: &[(&str, &str)]) -> Experiment {
        let text = match name {
            "bank" => include_str!("../../../experiments/bank.toml"),
            "capacity" => include_str!("../../../experiments/capacity.toml"),
            _ => include_str!("../../../experiments/working-set.toml"),
        };
        let overrides: Vec<_> =
            overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Experiment::parse(text, "tiny", &overrides).unwrap()
    }

    #[test]
    fn twice_the_repeats_take_twice_the_trials_and_no_more_memory() {
        let (once, twice) =
            (experiment("bank", &[("repeats", "1")]), experiment("bank", &[("repeats", "10")]));
        let of = |experiment: &Experiment| Estimate::of_trials(experiment, experiment.trials());
        let (one, ten) = (of(&once), of(&twice));
        assert_eq!(ten.missing, 10 * one.missing);
        assert_eq!((ten.memory, ten.disk), (one.memory, one.disk));
        assert!(ten.longest > one.longest * 5 && ten.longest < one.longest * 10, "{ten:?}, {one:?}");
        assert!(one.shortest > Duration::from_secs(one.missing as u64) && one.shortest < one.longest);
        assert_eq!(Estimate::of_trials(&once, vec![]).longest, Duration::ZERO);
        let text = one.to_string();
        assert!(text.starts_with("estimate: ") && text.ends_with("not measured"), "{text}");
    }

    #[test]
    fn trials_that_share_a_warm_up_are_reckoned_so() {
        let experiment = experiment("working-set", &[]);
        let all = Estimate::of_trials(&experiment, experiment.trials());
        let each: Duration = experiment
            .trials()
            .into_iter()
            .map(|trial| Estimate::of_trials(&experiment, vec![trial]).longest)
            .sum();
        assert!(all.longest < each, "{all}");
    }

    #[test]
    fn of_what_is_too_large_together_the_cells_that_fit_are_named() {
        let experiment = experiment(
            "working-set",
            &[("target.wiredtiger.cache", "1 GiB"), ("disk.size", "30 GiB"), ("machine.memory", "1200 MiB")],
        );
        let mut facts = machine::read(Path::new("/tmp"));
        let mut said = |memory: Bytes| {
            facts.memory_available = memory;
            which_fit(&experiment, &facts)
        };
        assert!(said(Bytes::gib(64)).starts_with("each cell fits by itself"));
        assert_eq!(said(Bytes(0)), "no cell fits, not even by itself");
        let some = said(Bytes::gib(3));
        assert!(some.contains("these do not: reads 230 %") || some.contains("reads 182 %"), "{some}");
        assert!(!some.contains("device") && some.ends_with("leave those out with --only"), "{some}");
    }

    #[test]
    fn searches_are_bounded_by_their_budget() {
        let experiment = experiment("capacity", &[]);
        let cells: Vec<&Cell> = cells(&experiment).collect();
        let minute = Duration::from_secs(60);
        let plain = SearchSpec { budget: minute, interventions: false, ..SearchSpec::default() };
        let of = |search: &SearchSpec| Estimate::of_searches(&experiment, &cells, search);
        let tested = of(&SearchSpec { interventions: true, ..plain.clone() });
        assert!(tested.longest > of(&plain).longest && of(&plain).longest > minute * cells.len() as u32);
    }

    #[test]
    fn an_optional_sweep_without_its_program_is_left_out_and_a_wanted_one_is_refused() {
        let whole = experiment("working-set", &[("lab.mongod", "/nowhere/mongod")]);
        let (carried, left) = leave_out(&whole);
        assert_eq!(carried.sweeps.len() + 1, whole.sweeps.len());
        assert!(carried.sweeps.iter().all(|sweep| sweep.name != "mongodb"));
        let [sentence] = left.as_slice() else { panic!("{left:?}") };
        assert!(sentence.starts_with("mongodb is left out: mongod is not installed"), "{sentence}");
        // Who asks for it alone hears why it cannot be had, and so does a plan that insists on it.
        let mut alone = whole.clone();
        alone.only(&[("sweep".into(), "mongodb".into())]).unwrap();
        let mut wanted = whole;
        wanted.sweeps.iter_mut().for_each(|sweep| sweep.optional = false);
        for refused in [alone, wanted] {
            let (carried, left) = leave_out(&refused);
            assert_eq!((carried.sweeps.len(), left.len()), (refused.sweeps.len(), 0));
            assert!(refusal(&carried, Path::new("/tmp")).unwrap().contains("/nowhere/mongod is no program"));
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_missed_before_anything_starts() {
        let overrides = [("lab.version", "7"), ("repeats", "1")];
        let mut experiment = experiment("bank", &overrides);
        experiment.sweeps.retain(|sweep| {
            sweep.cells[0].spec.target.kind == tipover_core::experiment::TargetKind::Postgres
        });
        let reason = refusal(&experiment, Path::new("/tmp")).unwrap();
        assert!(reason.starts_with("this cannot run here: "), "{reason}");
        assert_eq!(reason.matches("PostgreSQL 7 is not installed").count(), 1, "{reason}");
    }
}
