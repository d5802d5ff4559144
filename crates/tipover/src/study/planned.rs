//! What to buy, from the records of a study: candidates judged, the two curves, and how far to trust them.

use super::growth::Growth;
use super::imitation::CarriedOut;
use super::{Disturbance, Disturbances, disturbance};
use crate::processors;
use serde::Serialize;
use tipover_core::device;
use tipover_core::experiment::Spec;
use tipover_core::predict::plan::{self, Catalogue, Judged, Question};
use tipover_core::predict::{Draw, Interval, Place, Prediction, Range, Seen, System};
use tipover_core::study::Cells;
use tipover_core::study::evidence::watched::{Learnt, Watched};
use tipover_core::study::evidence::{self, Checked, Observed, Told};
use tipover_core::units::{Bytes, Rate, significant};

/// Ways the system may be that each candidate is judged by.
const DRAWS: usize = 120;
/// Where others had a larger share of the processors, records say nothing of a machine without them.
const MOST_DISTURBED: f64 = 0.5;
/// Operations of discrete events for each cell that is predicted again.
const EVENTS: u32 = 2_000;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What must hold, under which load.
    pub question: Question,
    /// Of the data; the load stays.
    pub growth: Option<Growth>,
    /// What can be had; the built-in one without.
    pub catalogue: Option<Catalogue>,
    /// Records there are; as many as in the largest working set without.
    pub records: Option<u64>,
}

impl Wanted {
    fn catalogue(&self, today: &Place) -> Catalogue {
        self.catalogue.clone().unwrap_or_else(|| Catalogue::built_in(today.memory, today.cores))
    }
}

/// A curve through today's place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// Against memory in MiB, else against IOPS.
    pub of_memory: bool,
    /// What is changed, and operations per second at which a station is full.
    pub points: Vec<(f64, Interval)>,
    /// Where one stands.
    pub today: f64,
    /// The load that must be carried.
    pub load: f64,
    /// What today's memory will be worth after a year of growth.
    pub edge: Option<f64>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Planned {
    /// Which results.
    pub source: String,
    /// The promise, as the user wrote it.
    pub promise: String,
    /// Operations per second.
    pub load_ops_per_s: f64,
    /// In sentences.
    pub headline: Vec<String>,
    /// The cheapest that holds, or the smallest.
    pub best: Option<Judged>,
    /// All.
    pub candidates: Vec<Judged>,
    /// Against memory and against IOPS.
    pub curves: Vec<Curve>,
    /// Whether fewer than nine in ten of the study's own figures lie where the others predict them, or of
    /// those of the candidates that were carried out. Then no candidate holds or fails, whatever its chance.
    pub contradicted: bool,
    /// The study's own cells, predicted from the others.
    pub checked: Vec<Checked>,
    /// Candidates that were carried out here, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_out: Option<CarriedOut>,
    /// What was measured or assumed, and where it comes from.
    pub known: Vec<(String, String)>,
    /// Cells that nothing rests on, and why.
    pub left_out: Vec<String>,
    /// A command that would narrow the answer.
    pub measure_next: Option<String>,
}

/// Everything that candidates are judged by.
pub struct Basis {
    /// Today's place.
    pub today: Place,
    /// How it was measured.
    pub spec: Spec,
    /// What can be had; each machine with each disk is a candidate, in this order.
    pub catalogue: Catalogue,
    system: System,
    draws: Vec<Draw>,
    known: Vec<(String, String)>,
}

impl Basis {
    fn of(
        observed: &[Observed],
        wanted: &Wanted,
        disturbance: Option<&Disturbance>,
    ) -> Result<Basis, String> {
        let share = disturbance.map_or(0.0, |disturbance| disturbance.share);
        let (system, assumptions) = evidence::system(&observed.iter().collect::<Vec<_>>(), share)?;
        let seen: Vec<Seen> = observed.iter().filter_map(Observed::seen).collect();
        let largest = observed.iter().max_by(|a, b| a.place.records.total_cmp(&b.place.records));
        let largest = largest.ok_or("no cell was measured")?;
        let mut today = largest.place.clone();
        today.records = wanted.records.map_or(today.records, |records| records as f64);
        let mut known = facts(&system, &seen, &today, largest.spec.is_served());
        known.extend(written(&system));
        known.extend(shared_facts());
        known.extend(errors(&system));
        known.extend(assumptions.into_iter().map(|a| (a.what, format!("assumed: {}", a.because))));
        known.extend(disturbance.map(|why| {
            let factor = significant(system.wider_by(), 2);
            (
                format!("throughput and percentiles are known a factor of {factor} less well"),
                why.words.clone(),
            )
        }));
        let draws = system.draws(DRAWS, &seen, 1);
        Ok(Basis {
            catalogue: wanted.catalogue(&today),
            today,
            spec: largest.spec.clone(),
            system,
            draws,
            known,
        })
    }

    /// Of a server that was watched with `spec`.
    fn of_running(learnt: &Learnt, spec: &Spec, wanted: &Wanted) -> Basis {
        let today = learnt.seen.place.clone();
        let mut known = learnt.measured.clone();
        known.extend(learnt.assumptions.iter().map(|a| (a.what.clone(), format!("assumed: {}", a.because))));
        known.extend(shared_facts());
        let (system, spec) = (learnt.system.clone(), spec.clone());
        let draws = system.draws(DRAWS, std::slice::from_ref(&learnt.seen), 1);
        Basis { catalogue: wanted.catalogue(&today), today, spec, system, draws, known }
    }

    /// What the closed loop that was measured would do in `place`.
    pub fn closed(&self, place: &Place) -> Prediction {
        self.system.closed(&self.draws, place, EVENTS)
    }

    /// Pages that an operation asks for, without those that every operation asks for.
    pub fn pages_per_operation(&self) -> f64 {
        self.system.engine.pages_per_operation
    }

    /// On all processors, each of which takes some machines.
    fn judge(&self, today: &Place, catalogue: &Catalogue, question: &Question) -> Vec<Judged> {
        processors::share(&catalogue.machine, |machines| {
            let part = Catalogue { machine: machines.into(), disk: catalogue.disk.clone() };
            plan::judge(&self.system, &self.draws, today, &part, question)
        })
    }

    /// The most that `place` can do.
    fn most(&self, place: &Place, question: &Question) -> Interval {
        self.alone(place, question).most_ops_per_s
    }

    fn alone(&self, place: &Place, question: &Question) -> Judged {
        let machine = plan::Machine {
            name: None,
            memory: Bytes(place.memory as u64),
            cores: place.cores,
            engine_cache: None,
            price_per_month: None,
        };
        let disk =
            plan::Disk { name: "today's".into(), spec: Some(place.disk.clone()), price_per_month: None };
        let catalogue = Catalogue { machine: vec![machine], disk: vec![disk] };
        self.judge(place, &catalogue, question).remove(0)
    }

    fn curves(&self, wanted: &Wanted) -> Vec<Curve> {
        let steps = |from: f64, to: f64| (0..25).map(move |n| from * (to / from).powf(f64::from(n) / 24.0));
        let today = &self.today;
        let memory = |bytes: f64| Place {
            memory: bytes,
            engine_cache: today.engine_cache * bytes / today.memory,
            ..today.clone()
        };
        let mib = 1_048_576.0;
        let question = &wanted.question;
        let of_memory = steps(today.memory / 4.0, today.memory * 8.0)
            .map(|bytes| (bytes / mib, self.most(&memory(bytes), question)));
        let mut curves = vec![Curve {
            of_memory: true,
            points: of_memory.collect(),
            today: today.memory / mib,
            load: question.load,
            edge: wanted.growth.map(|growth| today.memory / mib / growth.0),
        }];
        // A disk without a gate has no place on this axis.
        if let Some(iops) = today.disk.iops {
            let disk = |iops: f64| Place {
                disk: device::Spec { iops: Some(Rate(iops)), burst: None, ..today.disk.clone() },
                ..today.clone()
            };
            let points = steps(iops.0 / 8.0, iops.0 * 64.0).map(|x| (x, self.most(&disk(x), question)));
            curves.push(Curve {
                of_memory: false,
                points: points.collect(),
                today: iops.0,
                load: question.load,
                edge: None,
            });
        }
        curves
    }
}

fn facts(system: &System, seen: &[Seen], today: &Place, is_served: bool) -> Vec<(String, String)> {
    let of = |range: &Range, times: f64| {
        format!("{} to {}", significant(range.low * times, 3), significant(range.high * times, 3))
    };
    let fact = |what: String, from: &str| (what, from.to_string());
    let mib = 1.0 / 1_048_576.0;
    vec![
        fact(
            format!(
                "{} records of {} B in the engine's cache",
                today.records,
                system.record_bytes.low.round()
            ),
            match is_served {
                true => "the server: size of the table, and of the index of its key",
                false => "the plan of the study",
            },
        ),
        fact(
            format!(
                "{} µs of processor time for an operation, {} µs more for a page that the engine misses, {} µs more for \
                 each request to the disk",
                of(&system.cpu, 1e6),
                of(&system.cpu_miss, 1e6),
                of(&system.cpu_read, 1e6)
            ),
            match is_served {
                true => {
                    "measured: the processor time of the server's group or processes; clients are elsewhere"
                }
                false => "measured: the process's processor time, generator included",
            },
        ),
        fact(
            format!(
                "{} requests of {} for a page from the disk, one after another",
                of(&system.reads_per_miss, 1.0),
                system.request.rounded()
            ),
            "measured: the engine's bytes per read, the disk's per request",
        ),
        fact(
            match system.engine_reserve.high > 0.0 {
                true => {
                    format!("{} MiB of the engine's cache hold no records", of(&system.engine_reserve, mib))
                }
                false => {
                    format!(
                        "{} % of the engine's configured cache hold records",
                        of(&system.engine_share, 100.0)
                    )
                }
            },
            "from misses per operation in each cell, or assumed below",
        ),
        match system.engine.is_buffered {
            true => fact(
                format!("{} MiB are neither engine's cache nor page cache", of(&system.other_memory, mib)),
                "memory of the group less both caches, or assumed below; does not grow with memory: assumed",
            ),
            false => fact("the engine reads past the page cache".into(), "its settings"),
        },
        fact(
            format!("{} % of the processors could be used", of(&system.efficiency, 100.0)),
            "measured where the disk did not matter: what neighbours and the shaped disk leave",
        ),
        fact(
            format!("caches forget by LRU or at random, weighed by the hit ratios of {} cells", seen.len()),
            "not known; each pair is tried",
        ),
        fact(
            "a real disk takes between none and all of the processor time of the laboratory's shaped disk"
                .into(),
            "assumed",
        ),
    ]
}

/// What operations write, where they do.
fn written(system: &System) -> Option<(String, String)> {
    let of = |range: &Range, times: f64| {
        format!("{} to {}", significant(range.low * times, 2), significant(range.high * times, 2))
    };
    (system.background.high + system.journal.high > 0.0).then(|| {
        let what = format!(
            "{} writes of {} for an operation that nobody waits for, {} more for a page that the engine misses, and {} of \
             the journal; {} % of operations wait until it is durable",
            of(&system.background, 1.0),
            system.write.rounded(),
            of(&system.background_per_miss, 1.0),
            of(&system.journal, 1.0),
            of(&system.durable, 100.0)
        );
        (what, "measured: the disk's writes and flushes in every cell; elsewhere the same range is assumed".into())
    })
}

/// What is taken to be so whatever was measured.
fn shared_facts() -> Vec<(String, String)> {
    [
        (
            "the engine's cache is the same share of the memory everywhere",
            "assumed, unless the catalogue says engine_cache",
        ),
        ("processors of a candidate are as fast as those measured", "assumed"),
        ("operations arrive independently of one another; there are as many sessions as it takes", "assumed"),
    ]
    .map(|(what, from)| (what.into(), from.into()))
    .into()
}

/// How the model errs, and where that comes from.
fn errors(system: &System) -> Vec<(String, String)> {
    let of = |range: &Range| format!("{} to {}", significant(range.low, 3), significant(range.high, 3));
    let points = |error: f64| significant(100.0 * error, 2);
    let learnt = "measured against computed in the cells themselves, or assumed below";
    vec![
        (
            format!(
                "p99 is {} times what queueing gives where operations wait for processors, {} times where they wait for \
                 the disk",
                of(&system.p99_at_processors),
                of(&system.p99_at_disk)
            ),
            learnt.into(),
        ),
        (
            format!(
                "where half of the look-ups hit, the engine's computed hit ratio is within {} points of the truth and the \
                 page cache's within {}",
                points(system.hit_errors.engine),
                points(system.hit_errors.page_cache)
            ),
            learnt.into(),
        ),
        (
            "beside that, nine in ten times the queueing model is within 18 % for p99 and 9 % for throughput"
                .into(),
            "the published study's cells (docs/plan.md)".into(),
        ),
    ]
}

/// What the study's own cells, predicted from those with other working sets, say of the prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// At least nine in ten figures lie in their 90 % intervals.
    Held,
    /// Fewer do: nothing is concluded.
    Contradicted,
    /// There is nothing to predict from: one working set only.
    Unchecked,
}

impl Trust {
    fn of(checked: &[Checked]) -> Trust {
        match figures(checked) {
            (0, _) => Trust::Unchecked,
            (all, inside) if too_few(inside, all) => Trust::Contradicted,
            _ => Trust::Held,
        }
    }

    /// What a reader must know before anything that the plan says.
    fn words(self, checked: &[Checked], next: Option<&str>) -> String {
        let (all, inside) = figures(checked);
        match self {
            Trust::Held => {
                format!("{inside} of {all} figures of the study itself lie where the others predict them.")
            }
            Trust::Contradicted => format!(
                "This study contradicts the prediction: only {inside} of its {all} figures lie in the 90 % intervals that \
                 its other cells give, so nothing is concluded. A busy machine does that; measure again on one that does \
                 nothing else: `{}`.",
                next.unwrap_or_default()
            ),
            Trust::Unchecked => "Nothing shows how far to trust this: the study has one working set, so no cell can be predicted from \
                 others."
                .into(),
        }
    }
}

/// The study's own cells, each predicted from those with other working sets, and in a sentence how far that
/// held; `None` where no cell can be predicted at all, as in most studies.
pub fn predicted(cells: &Cells<'_>) -> Option<(Vec<Checked>, String)> {
    let (observed, _) = evidence::observed(cells, &Told::default()).ok()?;
    let disturbance = match while_measured(cells) {
        Ok(disturbance) => disturbance,
        Err(refused) => {
            return Some((vec![], format!("The cells predict nothing of each other: {refused}.")));
        }
    };
    let checked = own_cells(&observed, disturbance.as_ref());
    let (all, inside) = figures(&checked);
    let mut words = match Trust::of(&checked) {
        Trust::Unchecked => Trust::Unchecked.words(&checked, None),
        trust => format!(
            "{inside} of {all} figures lie in the 90 % intervals that the other working sets give: `tipover plan` \
             would {} these results.",
            if trust == Trust::Held { "answer from" } else { "conclude nothing from" }
        ),
    };
    if let Some(disturbance) = disturbance {
        words = format!("{words} Intervals are wider than they need be: {}.", disturbance.words);
    }
    Some((checked, words))
}

fn own_cells(observed: &[Observed], disturbance: Option<&Disturbance>) -> Vec<Checked> {
    let share = disturbance.map_or(0.0, |disturbance| disturbance.share);
    evidence::leave_one_out(observed, share, DRAWS / 2, EVENTS)
}

/// What disturbed the machine while the cells were measured that read records.
///
/// # Errors
/// So much that nothing can be predicted from them, in words.
fn while_measured(cells: &Cells<'_>) -> Result<Option<Disturbance>, String> {
    let reading = cells.all.iter().filter(|cell| cell.cell.spec.workload.kind.has_records());
    let trials: Vec<Disturbances> =
        reading.flat_map(|cell| &cell.records).filter_map(|record| Disturbances::of(record)).collect();
    match disturbance(&trials) {
        Some(Disturbance { words, share }) if share > MOST_DISTURBED => Err(format!(
            "{words}, and records of which others had more than half of the processors say nothing of a machine \
             without them: measure again when nothing else runs"
        )),
        disturbance => Ok(disturbance),
    }
}

/// How many figures were predicted, and how many of them lie in their intervals.
fn figures(checked: &[Checked]) -> (u32, u32) {
    checked.iter().map(Checked::inside).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Judges what is wanted, as `told` of a server that was measured at its address. Where the study's own cells
/// contradict the prediction, no candidate holds or fails.
///
/// # Errors
/// In a sentence, when the records cannot say.
pub fn planned(
    source: &str,
    cells: &Cells<'_>,
    told: &Told,
    wanted: &Wanted,
) -> Result<(Planned, Basis), String> {
    let (observed, left_out) = evidence::observed(cells, told)?;
    let disturbance = while_measured(cells)?;
    let basis = Basis::of(&observed, wanted, disturbance.as_ref())?;
    let checked = own_cells(&observed, disturbance.as_ref());
    let trust = Trust::of(&checked);
    let measure_next = |uncertain: bool| match trust {
        // More trials beside those that contradict each other would not mend them.
        Trust::Contradicted => Some(format!("tipover --results again run {}", name_of(source))),
        _ => uncertain.then(|| next(source, &observed)),
    };
    let doubts = disturbance.map(|disturbance| {
        format!(
            "Disturbed: {} while the records were made. Intervals of throughput and percentiles are a factor of {} \
             wider on both sides for it.",
            disturbance.words,
            significant(basis.system.wider_by(), 2)
        )
    });
    let words = |next: Option<&str>| trust.words(&checked, next);
    let mut planned =
        answer(source, &basis, wanted, trust, (&words, &measure_next), doubts.into_iter().collect());
    (planned.checked, planned.left_out) = (checked, left_out);
    Ok((planned, basis))
}

/// Judges what is wanted of a server that was watched with `spec` at its work, without what `unseen` says.
/// Where it does more today than the prediction lets it, nothing is concluded.
///
/// # Errors
/// In a sentence, when what was seen says nothing.
pub fn planned_of_running(
    spec: &Spec,
    watched: &Watched,
    unseen: Vec<String>,
    wanted: &Wanted,
) -> Result<Planned, String> {
    let address = spec.target.address.as_ref().map(|address| address.shown().to_string());
    let source = address.unwrap_or_default();
    let learnt = watched.learn()?;
    let basis = Basis::of_running(&learnt, spec, wanted);
    let does = learnt.operations_per_s;
    let most = basis.most(&basis.today, &wanted.question);
    let trust = if most.high < does { Trust::Contradicted } else { Trust::Unchecked };
    let words = |_: Option<&str>| {
        match trust {
        Trust::Contradicted => format!(
            "The server contradicts the prediction: it carries out {}/s, and {}/s is the most that it could, so nothing is \
             concluded. What was said of its machine or its disk may be wrong.",
            significant(does, 3),
            significant(most.high, 3)
        ),
        _ => "Nothing shows how far to trust this: a server at work is one place under one load, and what it would do in another \
              is computed. Measure the candidate before you buy."
            .into(),
    }
    };
    let measure_next = |uncertain: bool| match (trust, watched.disk.is_some()) {
        (Trust::Contradicted, _) => None,
        (_, false) => Some("tipover disk bench FOLDER --capture mine.toml".to_string()),
        (_, true) => uncertain.then(|| format!("tipover learn {source} -o learned.toml")),
    };
    let mut planned = answer(&source, &basis, wanted, trust, (&words, &measure_next), learnt.doubts);
    planned.headline.insert(
        1,
        format!(
            "{} carries out {} {} per second today; the load of the question is counted in the same.",
            watched.system,
            significant(does, 4),
            watched.operations
        ),
    );
    planned.left_out = unseen.into_iter().map(|what| format!("{what} (not seen)")).collect();
    Ok(planned)
}

/// Says with how much trust, and then what to measure next where an answer is uncertain.
type Says<'a> = (&'a dyn Fn(Option<&str>) -> String, &'a dyn Fn(bool) -> Option<String>);

/// Judges every candidate. Where the prediction is contradicted, none holds or fails.
fn answer(
    source: &str,
    basis: &Basis,
    wanted: &Wanted,
    trust: Trust,
    (words, measure_next): Says<'_>,
    doubts: Vec<String>,
) -> Planned {
    let mut candidates = basis.judge(&basis.today, &basis.catalogue, &wanted.question);
    if trust == Trust::Contradicted {
        candidates.iter_mut().for_each(|one| one.answer = plan::Outlook::CannotTell);
    }
    let best = plan::best(&candidates).cloned();
    let uncertain = candidates.iter().any(|one| one.answer == plan::Outlook::CannotTell);
    let measure_next = measure_next(uncertain);
    let mut headline = match trust {
        Trust::Contradicted => vec![],
        _ => headline(basis, wanted, &candidates, best.as_ref(), measure_next.as_deref()),
    };
    let at = if trust == Trust::Held { headline.len() } else { 0 };
    headline.insert(at, words(measure_next.as_deref()));
    // Second, so that nobody reads the answer without it.
    headline.splice(1..1, doubts);
    Planned {
        source: source.into(),
        promise: wanted.question.promise.to_string(),
        load_ops_per_s: wanted.question.load,
        headline,
        best,
        curves: basis.curves(wanted),
        candidates,
        contradicted: trust == Trust::Contradicted,
        checked: vec![],
        carried_out: None,
        known: basis.known.clone(),
        left_out: vec![],
        measure_next,
    }
}

impl Planned {
    /// Takes in what candidates did that were carried out. Where they contradict the prediction, no candidate
    /// holds or fails.
    pub fn carried_out(&mut self, carried_out: CarriedOut) {
        let words = carried_out.words();
        if carried_out.contradicts() {
            if !self.contradicted {
                self.headline.clear();
            }
            self.contradicted = true;
            self.best = None;
            self.candidates.iter_mut().for_each(|one| one.answer = plan::Outlook::CannotTell);
            self.headline.insert(0, words);
        } else {
            self.headline.push(words);
        }
        self.carried_out = Some(carried_out);
    }
}

/// Whether the number of figures inside says that these are no intervals of 90 %.
pub fn too_few(inside: u32, all: u32) -> bool {
    inside * 10 < all * 9
}

/// More repeats of the cell whose page cache nearly has it all: where that ends is what is not known.
fn next(source: &str, observed: &[Observed]) -> String {
    let misses = |cell: &&Observed| cell.hits.page_cache < 0.999;
    let edge = observed.iter().filter(misses).max_by(|a, b| a.hits.page_cache.total_cmp(&b.hits.page_cache));
    let only = edge.and_then(|cell| cell.working_set.as_ref());
    let only = only.map_or(String::new(), |(axis, set)| format!(" --only '{axis}={set}'"));
    let target = observed[0].spec.target.address.as_ref().map(|address| format!(" --target '{address}'"));
    format!("tipover run {} --repeats 9{only}{}", name_of(source), target.unwrap_or_default())
}

/// The last part of a path.
pub fn name_of(source: &str) -> &str {
    source.trim_end_matches('/').rsplit('/').next().unwrap_or(source)
}

fn headline(
    basis: &Basis,
    wanted: &Wanted,
    candidates: &[Judged],
    best: Option<&Judged>,
    next: Option<&str>,
) -> Vec<String> {
    let (promise, load) = (wanted.question.promise, significant(wanted.question.load, 4));
    let count = |answer| candidates.iter().filter(|one| one.answer == answer).count();
    let mut sentences = vec![match best {
        Some(one) => format!(
            "{} with the disk {} is the {} of {} candidates that keeps {promise} at {load}/s with a chance of 90 % or \
             more ({} %).",
            one.machine,
            one.disk,
            if plan::are_priced(candidates.iter().map(|one| one.price_per_month)) {
                "cheapest"
            } else {
                "smallest"
            },
            candidates.len(),
            (one.chance * 100.0).floor()
        ),
        None => format!(
            "None of {} candidates keeps {promise} at {load}/s with a chance of 90 % or more.",
            candidates.len()
        ),
    }];
    let unknown = count(plan::Outlook::CannotTell);
    if unknown > 0 {
        sentences.push(format!(
            "{} in the tipping region.{}",
            match unknown {
                1 => "For one candidate the answer is cannot tell: it lies".to_string(),
                _ => format!("For {unknown} candidates the answer is cannot tell: they lie"),
            },
            next.map_or(String::new(), |next| format!(" Measure this next: `{next}`."))
        ));
    }
    let now = basis.alone(&basis.today, &wanted.question);
    sentences.push(format!(
        "Today's place, {} with {}, keeps it with a chance of {} %.",
        Bytes(basis.today.memory as u64).rounded(),
        basis.today.disk,
        (now.chance * 100.0).round()
    ));
    if let Some((growth, one)) = wanted.growth.zip(best) {
        sentences.push(grown(basis, wanted, growth, one));
    }
    sentences
}

/// When data that grow bring the best candidate to its edge.
fn grown(basis: &Basis, wanted: &Wanted, growth: Growth, one: &Judged) -> String {
    let (machines, disks) = (basis.catalogue.machine.iter(), basis.catalogue.disk.iter());
    let single = Catalogue {
        machine: machines.filter(|m| m.memory.0 as f64 == one.memory_bytes).take(1).cloned().collect(),
        disk: disks.filter(|d| d.name == one.disk).take(1).cloned().collect(),
    };
    let holds = |months: f64| {
        let records = basis.today.records * growth.0.powf(months / 12.0);
        let then = Place { records, ..basis.today.clone() };
        plan::best(&basis.judge(&then, &single, &wanted.question)).is_some()
    };
    match (1..=60).find(|months| !holds(f64::from(*months))) {
        Some(months) => format!(
            "With data that grow {growth} and the load as it is, the promise is no longer sure there after {months} \
             months."
        ),
        None => format!("With data that grow {growth} and the load as it is, it holds there for five years."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::experiment::{Experiment, Trial};
    use tipover_core::measure::Canary;
    use tipover_core::record::Record;
    use tipover_core::trial::simulate::{self, Machine};

    /// A neighbour took turns: what was measured is what it left, so less is known, and the plan says so.
    #[test]
    fn records_of_a_disturbed_machine_widen_the_intervals() {
        const STUDY: &str = include_str!("../../../../experiments/working-set.toml");
        let mut experiment = Experiment::parse(STUDY, "quick", &[]).unwrap();
        experiment.only(&[("disk".into(), "5000 IOPS".into())]).unwrap();
        let cells = experiment.sweeps.iter().filter(|s| s.name == "reads").flat_map(|s| &s.cells);
        let trial =
            |cell| simulate::trial("t", &Trial { cell, repeat: 0, twin: false }, 1, &Machine::default()).0;
        let quiet: Vec<Record> = cells.map(trial).collect();
        let beside_one_that_takes = |slowed_ns: f64| {
            let mut loud = quiet.clone();
            for (n, record) in loud.iter_mut().enumerate() {
                let spin_ns = if n % 2 == 0 { 4e6 } else { slowed_ns };
                record.canaries = vec![Canary { spin_ns, wake_ns: 6e4, sync_ns: None }; 2];
            }
            loud
        };
        let (loud, deafening) = (beside_one_that_takes(8e6), beside_one_that_takes(4e7));
        let wanted = Wanted {
            question: Question { promise: "p99 <= 20 ms".parse().unwrap(), load: 5000.0 },
            growth: None,
            catalogue: None,
            records: None,
        };
        let planned =
            |records: &[Record]| planned("t", &Cells::of(&experiment, records), &Told::default(), &wanted);
        let refused = planned(&deafening).err().unwrap();
        assert!(refused.contains("say nothing of a machine without them"), "{refused}");
        let (rows, words) = predicted(&Cells::of(&experiment, &deafening)).unwrap();
        assert!(rows.is_empty() && words.contains("measure again when nothing else runs"), "{words}");
        let of = |records: &[Record]| planned(records).unwrap().0;
        let (quiet, loud) = (of(&quiet), of(&loud));
        assert!(loud.headline[1].starts_with("Disturbed: the machine was not quiet"), "{:?}", loud.headline);
        assert!(
            !quiet.headline.iter().any(|sentence| sentence.contains("Disturbed")),
            "{:?}",
            quiet.headline
        );
        for (narrow, wide) in quiet.candidates.iter().zip(&loud.candidates) {
            assert!(wide.most_ops_per_s.factor() > narrow.most_ops_per_s.factor(), "{narrow:?} {wide:?}");
        }
        for (narrow, wide) in quiet.checked.iter().zip(&loud.checked) {
            assert!(wide.predicted.p99_s.factor() > narrow.predicted.p99_s.factor(), "{narrow:?} {wide:?}");
        }
    }

    #[test]
    fn growth_is_read_in_words() {
        assert_eq!("2 x / year".parse(), Ok(Growth(2.0)));
        assert_eq!("1.5x/year".parse(), Ok(Growth(1.5)));
        assert!(("1.1 x / month".parse::<Growth>().unwrap().0 - 3.138).abs() < 0.001);
        for wrong in ["2", "2 x", "x / year", "0.5 x / year", "2 x / day", "nan x / year"] {
            assert!(wrong.parse::<Growth>().is_err(), "{wrong}");
        }
        assert_eq!(Growth(2.0).to_string().parse(), Ok(Growth(2.0)));
    }
}
