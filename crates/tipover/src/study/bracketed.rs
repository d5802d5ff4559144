//! What to buy, from searches: candidates between the places that were searched.

use super::growth::Growth;
use super::planned::{Wanted, name_of};
use serde::Serialize;
use tipover_core::device;
use tipover_core::experiment::Promise;
use tipover_core::predict::bracket::{self, Bracket, Given, Tipped};
use tipover_core::predict::plan::{self, Catalogue, Outlook};
use tipover_core::search::SearchRecord;
use tipover_core::study::tipped;
use tipover_core::units::{Bytes, significant};

/// A candidate between places that were searched.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// Memory and processors in words.
    pub machine: String,
    /// The disk.
    pub disk: String,
    /// Bytes of memory.
    pub memory_bytes: f64,
    /// Of machine and disk together; absent where one has none.
    pub price_per_month: Option<f64>,
    /// Whether the promise holds.
    pub answer: Outlook,
    /// With the data that there will be in a year, if they grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_a_year: Option<Outlook>,
    /// Operations per second that it holds and fails at least.
    pub bracket: Bracket,
    /// The setting of a plan that gives it this disk.
    #[serde(skip)]
    shape: String,
}

/// A place that was searched.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Searched {
    /// The cell.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: f64,
    /// Processors.
    pub cores: f64,
    /// Records there were.
    pub records: f64,
    /// The disk.
    pub disk: String,
    /// What was promised.
    pub promise: String,
    /// Operations per second up to which it held.
    pub holds_ops_per_s: Option<f64>,
    /// From which on it failed.
    pub fails_ops_per_s: Option<f64>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bracketed {
    /// Which results.
    pub source: String,
    /// The promise, as the user wrote it.
    pub promise: String,
    /// Operations per second.
    pub load_ops_per_s: f64,
    /// In sentences.
    pub headline: Vec<String>,
    /// The cheapest that holds, or the smallest.
    pub best: Option<Candidate>,
    /// All.
    pub candidates: Vec<Candidate>,
    /// Whether searches contradict each other. Then no candidate holds or fails.
    pub contradicted: bool,
    /// Where the searches ended.
    pub searched: Vec<Searched>,
    /// What is taken to be so, and where that comes from.
    pub known: Vec<(String, String)>,
    /// Searches that nothing rests on, and why.
    pub left_out: Vec<String>,
    /// A command that would decide a candidate.
    pub measure_next: Option<String>,
}

/// Judges what is wanted by where searches of the plan at `scale` ended, and by nothing else.
///
/// # Errors
/// In a sentence, when the searches cannot say.
pub fn bracketed(
    source: &str,
    scale: &str,
    records: &[SearchRecord],
    wanted: &Wanted,
) -> Result<Bracketed, String> {
    let (tipped, left_out) = tipped(records)?;
    let largest = tipped.iter().max_by(|a, b| a.given.records.total_cmp(&b.given.records));
    let mut today = largest.ok_or("nothing was searched yet")?.given.clone();
    today.records = wanted.records.map_or(today.records, |records| records as f64);
    let catalogue =
        wanted.catalogue.clone().unwrap_or_else(|| Catalogue::built_in(today.memory, today.cores));
    if catalogue.machine.iter().any(|machine| machine.engine_cache.is_some()) {
        return Err("the catalogue gives an engine_cache, of which searches say nothing: leave it out".into());
    }
    let contradictions = bracket::contradictions(&tipped);
    let judge = judge(&tipped, wanted, &today, !contradictions.is_empty());
    let candidates: Vec<Candidate> = catalogue
        .machine
        .iter()
        .flat_map(|machine| catalogue.disk.iter().map(move |disk| (machine, disk)))
        .map(|(machine, disk)| judge(machine, disk))
        .collect();
    let best = best(&candidates, Outlook::Holds).cloned();
    // One more search would not mend those that contradict each other.
    let measure_next = match contradictions.is_empty() {
        true => best_to_search(&candidates, wanted, (source, scale)),
        false => None,
    };
    let mut headline: Vec<String> = contradictions
        .iter()
        .map(|why| format!("Searches contradict each other, so nothing is concluded: {why}."))
        .collect();
    if contradictions.is_empty() {
        headline = sentences(&candidates, best.as_ref(), wanted, measure_next.as_deref());
    }
    Ok(Bracketed {
        source: source.into(),
        promise: wanted.question.promise.to_string(),
        load_ops_per_s: wanted.question.load,
        headline,
        best,
        candidates,
        contradicted: !contradictions.is_empty(),
        searched: tipped.iter().map(Searched::of).collect(),
        known: known(&tipped),
        left_out,
        measure_next,
    })
}

/// How a machine with a disk is judged.
fn judge<'a>(
    tipped: &'a [Tipped],
    wanted: &'a Wanted,
    today: &'a Given,
    contradicted: bool,
) -> impl Fn(&plan::Machine, &plan::Disk) -> Candidate + 'a {
    move |machine, disk| {
        let spec = disk.spec.clone().unwrap_or_default();
        let given = |growth: f64| Given {
            memory: machine.memory.0 as f64,
            cores: machine.cores,
            records: today.records * growth,
            disk: device::Spec { name: None, ..spec.clone() },
        };
        let answer = |bracket: &Bracket| match contradicted {
            true => Outlook::CannotTell,
            false => bracket.answer(wanted.question.load),
        };
        let of = |growth: f64| Bracket::of(&given(growth), wanted.question.promise, tipped);
        let bracket = of(1.0);
        Candidate {
            machine: machine.label(),
            disk: disk.name.clone(),
            memory_bytes: machine.memory.0 as f64,
            price_per_month: machine.price_per_month.zip(disk.price_per_month).map(|(m, d)| m + d),
            answer: answer(&bracket),
            in_a_year: wanted.growth.map(|Growth(times)| answer(&of(times))),
            bracket,
            shape: spec.to_string(),
        }
    }
}

fn are_priced(candidates: &[Candidate]) -> bool {
    plan::are_priced(candidates.iter().map(|one| one.price_per_month))
}

/// The cheapest with this answer; where a price is missing the one with the least memory.
fn best(candidates: &[Candidate], answer: Outlook) -> Option<&Candidate> {
    let priced = are_priced(candidates);
    let cost = |one: &Candidate| one.price_per_month.filter(|_| priced).unwrap_or(one.memory_bytes);
    candidates.iter().filter(|one| one.answer == answer).min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

/// The search that would decide the cheapest candidate of which nobody can tell.
fn best_to_search(
    candidates: &[Candidate],
    wanted: &Wanted,
    (source, scale): (&str, &str),
) -> Option<String> {
    let one = best(candidates, Outlook::CannotTell)?;
    let memory = Bytes(one.memory_bytes as u64);
    let records = wanted.records.map_or(String::new(), |records| format!(" --records {records}"));
    let set = format!("--set 'disk.shape={}' --set 'machine.memory={memory}'", one.shape);
    // At another scale it might be another system.
    let scale = if scale == "quick" { String::new() } else { format!(" --scale {scale}") };
    Some(format!("tipover find {}{scale} {set}{records}", name_of(source)))
}

fn sentences(
    candidates: &[Candidate],
    best: Option<&Candidate>,
    wanted: &Wanted,
    next: Option<&str>,
) -> Vec<String> {
    let (promise, load): (Promise, _) = (wanted.question.promise, significant(wanted.question.load, 4));
    let all = candidates.len();
    let mut said = vec![match best {
        Some(one) => {
            let (held, whose) = one.bracket.holds.clone().unwrap_or_default();
            format!(
                "{} with the disk {} is the {} of {all} candidates that keeps {promise} at {load}/s: {whose} held {}/s with no \
                 more of anything.",
                one.machine,
                one.disk,
                if are_priced(candidates) { "cheapest" } else { "smallest" },
                significant(held, 4)
            )
        }
        None => format!("No candidate of {all} is known to keep {promise} at {load}/s."),
    }];
    let unknown = candidates.iter().filter(|one| one.answer == Outlook::CannotTell).count();
    if unknown > 0 {
        said.push(format!(
            "For {unknown} of them the answer is cannot tell: they lie between places that were searched, or beyond them, \
             and nothing is computed there.{}",
            next.map_or(String::new(), |next| format!(" Search this next: `{next}`."))
        ));
    }
    if let Some(then) = best.and_then(|one| one.in_a_year) {
        said.push(match then {
            Outlook::Holds => "With the data of a year from now it keeps it still.".into(),
            Outlook::DoesNotHold => "With the data of a year from now it does not any more.".into(),
            Outlook::CannotTell => {
                "Whether it does with the data of a year from now nobody can tell: so many records were not searched.".into()
            }
        });
    }
    said
}

/// What the answer rests on.
fn known(tipped: &[Tipped]) -> Vec<(String, String)> {
    let fact = |what: &str, from: &str| (what.to_string(), from.to_string());
    let mut known = vec![
        fact("more memory, processors or disk never hurt, and fewer records do not either", "assumed"),
        fact("a load that fails fails at more of it", "assumed; each end was repeated"),
        fact("settings of the system are those that were searched, its cache too", "the plan"),
        fact("processors of a candidate are as fast as those measured", "assumed"),
    ];
    if tipped.iter().any(|tip| tip.clients_beside) {
        known.push(fact(
            "clients took less than half of the processors beside the servers: what failed says nothing of candidates with \
             more than half as many",
            "assumed; with lab.cpus it would be known",
        ));
    }
    known
}

impl Searched {
    fn of(tip: &Tipped) -> Searched {
        Searched {
            name: tip.name.clone(),
            memory_bytes: tip.given.memory,
            cores: tip.given.cores,
            records: tip.given.records,
            disk: tip.given.disk.to_string(),
            promise: tip.promise.to_string(),
            holds_ops_per_s: tip.holds,
            fails_ops_per_s: tip.fails,
        }
    }
}
