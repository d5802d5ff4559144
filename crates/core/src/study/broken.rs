//! The figures of cells under faults: what was lost, how long it was away, what safety cost.

use super::CellRecords;
use crate::check::broken::{Things, all_losses};
use crate::check::loss::{FaultFigures, Losses};
use crate::check::{AtRisk, Broken, Carried, Finding, Verdict};
use crate::measure::{
    Books, BooksText, Estimate, Histogram, TooFew, mean_of_trials, median, percentile, percentile_of_trials,
};
use crate::op::{Failure, OpKind};
use std::collections::BTreeMap;
use std::time::Duration;

/// A cell under faults, with what its trials found.
pub struct BrokenCell<'a> {
    /// The cell and its records.
    pub of: &'a CellRecords<'a>,
    /// What each trial that was carried out found.
    pub runs: Vec<&'a Broken>,
}

/// The middle and the longest of several spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spans {
    /// The median.
    pub median: Duration,
    /// The longest.
    pub longest: Duration,
    /// The number of faults of which it is known.
    pub known: usize,
    /// The number of faults that there were.
    pub faults: usize,
}

/// What writes cost in one run before its first fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calm {
    /// Done per second.
    pub rate: f64,
    /// Mean latency.
    pub mean_ms: f64,
}

/// A figure over several runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Mean over the runs.
    pub mean: f64,
    /// The least of them.
    pub least: f64,
    /// The greatest of them.
    pub most: f64,
    /// How many runs have it.
    pub runs: usize,
}

impl<'a> BrokenCell<'a> {
    /// `None` for a cell in which nothing was to be checked.
    pub fn of(of: &'a CellRecords<'a>) -> Option<BrokenCell<'a>> {
        of.cell.spec.breaking.as_ref()?;
        let runs = of.records.iter().filter_map(|record| record.broken.as_deref()).collect();
        Some(BrokenCell { of, runs })
    }

    /// What its levels are a list of: the label of an axis of that name, else the sweep.
    pub fn system(&self) -> &'a str {
        self.of.cell.label("system").unwrap_or(&self.of.cell.sweep)
    }

    /// "postgres, synchronous_commit=off".
    pub fn name(&self) -> String {
        let cell = self.of.cell;
        let recipe = cell.spec.lab.as_ref().map_or(cell.sweep.as_str(), |lab| lab.recipe.name.as_str());
        let labels = cell.labels.iter().map(|(_, label)| label.as_str());
        std::iter::once(recipe).chain(labels).collect::<Vec<_>>().join(", ")
    }

    /// The worst of all verdicts; no evidence without a run.
    pub fn verdict(&self) -> Verdict {
        let found = self.runs.iter().map(|run| match run.verdict {
            // One run alone may put too little at risk; all together are judged by that below.
            Verdict::NoEvidence if !run.faults.is_empty() => {
                run.others.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Valid)
            }
            verdict => verdict,
        });
        let worst = found.max().unwrap_or(Verdict::NoEvidence);
        let faults = self.runs.iter().any(|run| !run.faults.is_empty());
        let tested = [Things::Writes, Things::Transfers]
            .into_iter()
            .filter_map(|things| self.losses(things))
            .all(|(losses, _)| losses.chance.faults > 0);
        if faults && !tested { worst.max(Verdict::NoEvidence) } else { worst }
    }

    /// Losses of all faults of all runs, and their sentence.
    pub fn losses(&self, things: Things) -> Option<(Losses, String)> {
        let exposure = self.of.cell.spec.breaking.as_ref()?.exposure(self.of.cell.spec.target.durability);
        all_losses(&self.runs, things, &exposure)
    }

    /// What each checker of order and isolation found, in the run where it was worst.
    pub fn others(&self) -> Vec<&'a Finding> {
        let mut worst: BTreeMap<&str, &Finding> = BTreeMap::new();
        for finding in self.runs.iter().flat_map(|run| &run.others) {
            let known = worst.entry(&finding.checker).or_insert(finding);
            if finding.verdict > known.verdict {
                *known = finding;
            }
        }
        worst.into_values().collect()
    }

    /// What else a run is convicted of, though it lost nothing: wrong totals, doubled transfers, phantoms.
    pub fn besides_losses(&self) -> Option<&'a str> {
        let of_run = |run: &&'a Broken| {
            let ledger = run.ledger.iter().map(|balance| (&balance.finding, balance.losses.lost));
            let bank = run.bank.iter().map(|books| (&books.finding, books.losses.lost));
            let convicted =
                |(finding, lost): &(&Finding, u64)| finding.verdict == Verdict::Invalid && *lost == 0;
            ledger.chain(bank).find(convicted).map(|(finding, _)| finding.summary.as_str())
        };
        self.runs.iter().copied().find_map(|run| of_run(&run))
    }

    /// "power cut all × 30".
    pub fn faults(&self) -> String {
        let mut rules: BTreeMap<&str, (&str, usize)> = BTreeMap::new();
        for fault in self.runs.iter().flat_map(|run| &run.faults) {
            rules.entry(&fault.injection.rule).or_insert((fault.injection.fault(), 0)).1 += 1;
        }
        let words = |(fault, count): (&str, usize)| format!("{fault} × {count}");
        match rules.is_empty() {
            true => "nothing broken".into(),
            false => rules.into_values().map(words).collect::<Vec<_>>().join("; "),
        }
    }

    /// Faults that had an effect, and all.
    pub fn fired(&self) -> (usize, usize) {
        let all: Vec<_> = self.runs.iter().flat_map(|run| &run.faults).collect();
        (all.iter().filter(|fault| fault.injection.had_effect()).count(), all.len())
    }

    /// Figures of every fault with an effect, of writes where there are some, else of transfers.
    pub fn each_fault(&self) -> Vec<&'a FaultFigures> {
        self.runs.iter().flat_map(|run| figures(run)).filter(|fault| fault.had_effect).collect()
    }

    /// Every power cut that had an effect: the number of its run, how it was carried out, and its figures
    /// where something was kept that can be lost.
    pub fn power_cuts(&self) -> Vec<(usize, &'a Carried, Option<&'a FaultFigures>)> {
        let of_run = |(number, run): (usize, &&'a Broken)| {
            let run: &'a Broken = run;
            let figures: &'a [FaultFigures] = figures(run);
            let cuts = run.faults.iter().enumerate();
            let cuts = cuts.filter(|(_, fault)| !fault.injection.outages.is_empty());
            cuts.map(move |(at, fault)| (number, fault, figures.get(at))).collect::<Vec<_>>()
        };
        self.runs.iter().enumerate().flat_map(of_run).collect()
    }

    /// What the power cuts put at risk, in a sentence; `None` without one.
    pub fn at_risk(&self) -> Option<String> {
        let cuts = self.power_cuts().into_iter().filter_map(|(_, fault, _)| AtRisk::of(&fault.injection));
        AtRisk::summary(&cuts.collect::<Vec<_>>())
    }

    /// From the first to the last acknowledgement that was lost, in nanoseconds from its fault on, over all
    /// faults.
    pub fn lost_span(&self) -> Option<(i64, i64)> {
        let spans = || self.each_fault().into_iter().filter_map(FaultFigures::lost_span);
        spans().map(|(first, _)| first).min().zip(spans().map(|(_, last)| last).max())
    }

    /// A span of each fault: how long until the first success.
    pub fn spans(&self, span: impl Fn(&FaultFigures) -> Option<Duration>) -> Option<Spans> {
        let faults = self.each_fault();
        let mut known: Vec<Duration> = faults.iter().filter_map(|fault| span(fault)).collect();
        known.sort_unstable();
        let longest = *known.last()?;
        Some(Spans { median: known[known.len() / 2], longest, known: known.len(), faults: faults.len() })
    }

    /// From the last fault of a run until all replicas agreed.
    pub fn replicas_agree(&self) -> Option<Spans> {
        let mut known: Vec<Duration> =
            self.runs.iter().filter_map(|run| run.ledger.as_ref()?.replicas_agree).collect();
        known.sort_unstable();
        let longest = *known.last()?;
        let (known, faults) = (known.clone(), self.runs.len());
        Some(Spans { median: known[known.len() / 2], longest, known: known.len(), faults })
    }

    /// Mean over the faults of a throughput: before, during, after.
    pub fn throughput(&self, of: impl Fn(&FaultFigures) -> Option<f64>) -> Option<f64> {
        let rates: Vec<f64> = self.each_fault().into_iter().filter_map(of).collect();
        median(&rates)
    }

    /// Operations done per second before the first fault.
    pub fn calm_rate(&self, kind: Option<OpKind>) -> Option<Estimate> {
        let rate = |run: &&Broken| {
            let seconds = run.calm_for.as_secs_f64();
            (seconds > 0.0).then(|| done(&run.calm, kind) as f64 / seconds)
        };
        mean_of_trials(&self.runs.iter().filter_map(rate).collect::<Vec<_>>())
    }

    /// The kinds of operations, in their order.
    pub fn kinds(&self) -> Vec<OpKind> {
        let books = self.runs.iter().filter_map(|run| Books::from_text(&run.books).ok());
        let mut kinds: Vec<OpKind> = books.flat_map(|books| books.kinds()).collect();
        kinds.sort();
        kinds.dedup();
        kinds
    }

    fn histograms(&self, books: impl Fn(&Broken) -> &BooksText, kind: OpKind) -> Vec<Histogram> {
        let of = |run: &&Broken| {
            let book = Books::from_text(books(run)).ok()?.of(kind)?;
            Some(book.latencies().residence().clone())
        };
        self.runs.iter().filter_map(of).collect()
    }

    /// A figure of writes before the first fault, over the runs that have it.
    pub fn calm_range(&self, of: impl Fn(&Calm) -> f64) -> Option<Range> {
        let calm = |run: &&Broken| {
            let book = Books::from_text(&run.calm).ok()?.of(OpKind::Update)?;
            let (histogram, seconds) = (book.latencies().residence(), run.calm_for.as_secs_f64());
            let whole = !histogram.is_empty() && seconds > 0.0;
            whole.then(|| Calm { rate: book.done() as f64 / seconds, mean_ms: histogram.mean() * 1e-6 })
        };
        let values: Vec<f64> = self.runs.iter().filter_map(calm).map(|calm| of(&calm)).collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        Some(Range { mean, least, most, runs: values.len() })
    }

    /// The 99th percentile of writes of all runs before their first fault, in milliseconds, with the range
    /// over the runs that have one of their own.
    pub fn calm_p99_ms(&self) -> Result<Range, TooFew> {
        let trials = self.histograms(|run| &run.calm, OpKind::Update);
        let mut merged = crate::measure::histogram();
        for trial in &trials {
            merged.add(trial).expect("all histograms have the same bounds");
        }
        let ms = |histogram: &Histogram| percentile(histogram, 0.99).map(|estimate| estimate.value * 1e-6);
        let mean = ms(&merged)?;
        let own: Vec<f64> = trials.iter().filter_map(|trial| ms(trial).ok()).collect();
        let least = own.iter().copied().fold(mean, f64::min);
        let most = own.iter().copied().fold(mean, f64::max);
        Ok(Range { mean, least, most, runs: own.len() })
    }

    /// A percentile of the latency of what was done before the first fault, in milliseconds.
    pub fn calm_ms(&self, kind: OpKind, quantile: f64) -> Result<Estimate, TooFew> {
        let trials = self.histograms(|run| &run.calm, kind);
        percentile_of_trials(&trials, quantile).map(|estimate| estimate.scaled(1e-6))
    }

    /// Its mean, in milliseconds.
    pub fn calm_mean_ms(&self, kind: OpKind) -> Option<Estimate> {
        let trials = self.histograms(|run| &run.calm, kind);
        let means: Vec<f64> = trials.iter().filter(|h| !h.is_empty()).map(|h| h.mean() * 1e-6).collect();
        mean_of_trials(&means)
    }

    /// Mean, p99 and longest of everything that was done, faults included, in milliseconds.
    pub fn whole_ms(&self, kind: OpKind) -> Option<(f64, f64, f64)> {
        let mut merged = crate::measure::histogram();
        for trial in self.histograms(|run| &run.books, kind) {
            merged.add(trial).ok()?;
        }
        (!merged.is_empty()).then(|| {
            let ms = |ns: u64| ns as f64 * 1e-6;
            (merged.mean() * 1e-6, ms(merged.value_at_quantile(0.99)), ms(merged.max()))
        })
    }

    /// Transfers that were acknowledged, in all runs.
    pub fn transfers(&self) -> u64 {
        self.runs.iter().map(|run| done(&run.books, Some(OpKind::Transfer))).sum()
    }

    /// Operations done per second over the whole run, faults included.
    pub fn whole_rate(&self, kind: OpKind) -> Option<Estimate> {
        let rate = |run: &&Broken| {
            let seconds = run.lasted.as_secs_f64();
            (seconds > 0.0).then(|| done(&run.books, Some(kind)) as f64 / seconds)
        };
        mean_of_trials(&self.runs.iter().filter_map(rate).collect::<Vec<_>>())
    }

    /// Retries, refusals by reason, unknown outcomes by reason, of one kind of operation in all runs.
    pub fn not_done(&self, kind: OpKind) -> (u64, BTreeMap<Failure, u64>, BTreeMap<Failure, u64>) {
        let (mut retries, mut refused, mut unknown) = (0, BTreeMap::new(), BTreeMap::new());
        for run in &self.runs {
            let Some(book) = Books::from_text(&run.books).ok().and_then(|books| books.of(kind)) else {
                continue;
            };
            retries += book.retries();
            for (into, from) in [(&mut refused, book.refused()), (&mut unknown, book.unknown())] {
                for (failure, count) in from {
                    *into.entry(*failure).or_default() += count;
                }
            }
        }
        (retries, refused, unknown)
    }
}

/// The figures of a run's faults, in their order.
fn figures(run: &Broken) -> &[FaultFigures] {
    match (&run.ledger, &run.bank) {
        (Some(balance), _) => &balance.losses.faults,
        (None, Some(books)) => &books.losses.faults,
        (None, None) => &[],
    }
}

fn done(books: &BooksText, kind: Option<OpKind>) -> u64 {
    match kind {
        None => books.done(),
        Some(kind) => {
            Books::from_text(books).ok().and_then(|books| books.of(kind)).map_or(0, |book| book.done())
        }
    }
}
