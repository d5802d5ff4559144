//! What is known of a run that goes on.

use std::collections::VecDeque;
use std::time::Duration;
use tipover_core::check::Carried;
use tipover_core::measure::{Histogram, histogram};
use tipover_core::record::Interval;
use tipover_core::study::timeline::{Mark, MarkKind, Recent, Timeline};
use tipover_core::units::Tick;

/// Intervals that the page shows: five minutes of seconds.
const SHOWN: usize = 300;
/// Trials whose ends the page lists.
const LISTED: usize = 50;

/// A run as far as it has come.
#[derive(Debug, Clone)]
pub struct State {
    /// What runs: an experiment's name, or a drop-in's.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// Trials in all, and those that are over; none for what is no matrix of trials.
    pub trials: Option<(u64, u64)>,
    /// The trial at hand.
    pub trial: String,
    /// What it is doing, how much of that is done (0..1), and how it goes.
    pub phase: String,
    pub share: Option<f64>,
    pub note: String,
    /// How long the rest will take.
    pub left: Option<Duration>,
    /// The last intervals of a trial, and which: before the first interval of the trial at hand, of the one
    /// before.
    pub recent: Option<(String, Recent)>,
    /// The end of the very last, on the trial clock.
    until: Tick,
    /// Whether the next interval is the first of a trial.
    begins: bool,
    /// Trials that are over, the last one first.
    pub ended: VecDeque<Ended>,
    /// Over all trials since the run began.
    pub totals: Totals,
    /// Why nothing more will come.
    pub over: Option<String>,
}

/// A trial that is over.
#[derive(Debug, Clone)]
pub struct Ended {
    pub trial: String,
    pub outcome: String,
    pub took: Duration,
}

/// What only grows while a run goes on.
#[derive(Debug, Clone)]
pub struct Totals {
    pub done: u64,
    pub failed: u64,
    /// Operations of open loops that became due.
    pub due: u64,
    /// What users waited, in nanoseconds.
    pub residence: Histogram,
    /// The sum of that.
    pub residence_sum: Duration,
    /// Faults of the trials before this one.
    faults_before: u64,
}

impl State {
    /// Of a run that has not begun.
    pub fn new(name: &str, command: &str) -> State {
        State {
            name: name.into(),
            command: command.into(),
            trials: None,
            trial: String::new(),
            phase: String::new(),
            share: None,
            note: String::new(),
            left: None,
            recent: None,
            until: Tick(0),
            begins: true,
            ended: VecDeque::new(),
            totals: Totals {
                done: 0,
                failed: 0,
                due: 0,
                residence: histogram(),
                residence_sum: Duration::ZERO,
                faults_before: 0,
            },
            over: None,
        }
    }

    /// A trial begins.
    pub fn begin(&mut self, trial: &str) {
        self.trial = trial.into();
        (self.begins, self.share) = (true, None);
        self.note.clear();
    }

    /// The trial at hand is over, and another of the same series may go on.
    pub fn end(&mut self, trial: &str, outcome: &str, took: Duration) {
        self.ended.push_front(Ended { trial: trial.into(), outcome: outcome.into(), took });
        self.ended.truncate(LISTED);
        if let Some((_, over)) = &mut self.trials {
            *over += 1;
        }
    }

    /// It does something else now.
    pub fn phase(&mut self, what: &str) {
        self.phase = what.into();
        self.share = None;
        self.note.clear();
    }

    /// An interval has ended. Damaged books are left to whoever judges the trial.
    pub fn interval(&mut self, interval: &Interval) {
        // A clock that began anew is another target's.
        if std::mem::take(&mut self.begins) || interval.begin < self.until {
            self.totals.faults_before = self.faults();
            self.recent = Some((self.trial.clone(), Recent::new(SHOWN, interval.begin)));
        }
        self.until = interval.end;
        let Some((_, recent)) = &mut self.recent else { return };
        let Ok(books) = recent.push(interval) else { return };
        let totals = &mut self.totals;
        totals.done += books.done();
        totals.failed += books.failed();
        totals.due += interval.offered.as_ref().map_or(0, |offered| offered.due);
        let waited = books.residence();
        totals.residence_sum += Duration::from_nanos((waited.mean() * waited.len() as f64) as u64);
        totals.residence.add(&waited).expect("all histograms have the same bounds");
    }

    /// What was done to the cluster of the trial at hand, all of it.
    pub fn faults_carried(&mut self, faults: &[Carried]) {
        if let (Some((_, recent)), false) = (&mut self.recent, self.begins) {
            recent.break_with(faults);
        }
    }

    /// Faults that took effect since the run began.
    pub fn faults(&self) -> u64 {
        self.totals.faults_before + self.recent.as_ref().map_or(0, |(_, recent)| recent.faults() as u64)
    }

    /// Faults in force now.
    pub fn in_force(&self) -> u64 {
        self.marks().filter(|mark| mark.kind == MarkKind::Fault && mark.until_s.is_none()).count() as u64
    }

    fn marks(&self) -> impl Iterator<Item = &Mark> {
        self.timeline().into_iter().flat_map(|timeline| &timeline.marks)
    }

    /// The course that is shown.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.recent.as_ref().map(|(_, recent)| &recent.timeline)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tipover_core::check::NewPrimary;
    use tipover_core::measure::{Books, Offered, encode};
    use tipover_core::metric::Sample;
    use tipover_core::op::{Failure, OpKind, Outcome, Timing};
    use tipover_core::record::Phase;
    use tipover_core::schedule::{Effect, Injection};

    const SECOND: u64 = 1_000_000_000;

    pub fn run() -> State {
        let mut state = State::new("working-set", "tipover run working-set --live");
        state.begin("capacity #1");
        state.phase("measuring");
        state
    }

    /// Second `n` of a trial: `done` operations and then `failed` ones, of 1 ms, 2 ms, 3 ms and on.
    pub fn interval(n: u64, done: u64, failed: u64) -> Interval {
        let mut books = Books::open();
        for operation in 0..done + failed {
            let timing = Timing { due: Tick(0), began: Tick(0), ended: Tick((operation + 1) * 1_000_000) };
            let outcome = if operation < done { Outcome::Done } else { Outcome::Refused(Failure::Timeout) };
            books.record(OpKind::Read, outcome, &timing, 0);
        }
        Interval {
            phase: Phase::Measure,
            begin: Tick(n * SECOND),
            end: Tick((n + 1) * SECOND),
            books: books.to_text(),
            offered: Some(Offered {
                due: done + failed,
                begun: done + failed,
                carried_in: 0,
                backlog: 7,
                in_flight: 0,
                unanswered: 0,
                backlog_most: 7,
                lateness: encode(&histogram()),
            }),
            samples: BTreeMap::new(),
            disk: None,
            nodes: BTreeMap::new(),
        }
    }

    fn fault(at: u64, undone: Option<u64>) -> Carried {
        Carried {
            injection: Injection {
                rule: "at 2 s: kill primary".into(),
                at: Tick(at * SECOND),
                uncertainty: Duration::ZERO,
                undone: undone.map(|at| Tick(at * SECOND)),
                effect: Effect::Fired { count: 1 },
                outages: vec![],
            },
            evidence: vec![],
            primaries: Vec::<NewPrimary>::new(),
        }
    }

    #[test]
    fn the_course_of_a_trial_stays_until_the_next_one_has_one() {
        let mut run = run();
        (0..3).for_each(|n| run.interval(&interval(n, 10, 0)));
        run.end("capacity #1", "30 operations/s", Duration::from_secs(4));
        run.begin("capacity #2");
        assert_eq!(run.timeline().unwrap().steps.len(), 3, "nothing is known of the second yet");
        assert_eq!(run.recent.as_ref().unwrap().0, "capacity #1");
        run.interval(&interval(9, 10, 0));
        assert_eq!(run.recent.as_ref().unwrap().0, "capacity #2");
        assert_eq!(run.timeline().unwrap().steps[0].begin_s, 0.0, "seconds count from its own beginning");
        // Another target, and with it another clock, in the same trial: a search started it anew.
        run.interval(&interval(0, 10, 0));
        assert_eq!(run.timeline().unwrap().steps.len(), 1);
        assert_eq!(run.totals.done, 50);
    }

    #[test]
    fn faults_are_counted_over_all_trials_and_once() {
        let mut run = run();
        run.interval(&interval(0, 10, 0));
        // One in force, one that is still to come.
        run.faults_carried(&[fault(2, None), fault(0, None)]);
        run.faults_carried(&[fault(2, None), fault(0, None)]);
        assert_eq!((run.faults(), run.in_force()), (1, 1));
        run.faults_carried(&[fault(2, Some(3)), fault(4, Some(5))]);
        assert_eq!((run.faults(), run.in_force()), (2, 0));
        run.begin("capacity #2");
        run.faults_carried(&[fault(1, None)]);
        assert_eq!(run.faults(), 2, "what is said before the first interval belongs to no course");
        run.interval(&interval(0, 10, 0));
        run.faults_carried(&[fault(1, None)]);
        assert_eq!((run.faults(), run.in_force()), (3, 1));
    }

    /// Seconds of a trial with a node that is read, and a fault every ten of them.
    fn goes_on(run: &mut State, seconds: std::ops::Range<u64>) {
        for n in seconds {
            let mut interval = interval(n, 10, 1);
            let counted = |name: &str| (name.to_string(), n as f64 * 1e6);
            let values = ["engine_cache_read_bytes", "process_read_bytes"].map(counted).into();
            let at = Tick((n + 1) * SECOND);
            let sample = Sample { begin: at, end: at, values };
            interval.samples = BTreeMap::from([("target".to_string(), sample)]);
            run.interval(&interval);
            if n % 10 == 0 {
                let faults: Vec<Carried> = (1..=n / 10).map(|k| fault(k * 10, Some(k * 10 + 1))).collect();
                run.faults_carried(&faults);
            }
        }
    }

    #[test]
    fn an_hour_is_followed_in_the_room_of_ten_minutes() {
        let mut run = run();
        goes_on(&mut run, 0..600);
        let page = |run: &State| crate::report::update(&super::super::page::page(run, "")).len();
        let (page_before, faults_before) = (page(&run), run.faults());
        goes_on(&mut run, 600..3600);
        assert_eq!((faults_before, run.faults()), (59, 359), "all faults are counted");
        let growth = page(&run) as f64 / page_before as f64;
        // Later seconds have more digits.
        assert!((0.9..1.15).contains(&growth), "the page has {growth} of what it had");
        let (_, mut recent) = run.recent.clone().unwrap();
        assert_eq!(recent.timeline.steps.len(), SHOWN);
        assert_eq!((recent.waited.len(), recent.timeline.nodes["target"].len()), (SHOWN, SHOWN));
        assert!(recent.timeline.marks.len() <= SHOWN / 10 + 1, "{} marks", recent.timeline.marks.len());
        // Without the faults nothing has grown: what is kept, spelt out, is as long as before.
        recent.break_with(&[]);
        let mut early = State::new("working-set", "");
        early.begin("capacity #1");
        goes_on(&mut early, 0..600);
        let (_, mut before) = early.recent.unwrap();
        before.break_with(&[]);
        let kept = |recent: &Recent| format!("{recent:?}").len() as f64;
        let growth = kept(&recent) / kept(&before);
        assert!((0.9..1.15).contains(&growth), "{growth} of what was kept after ten minutes");
    }

    #[test]
    fn damaged_books_end_nothing() {
        let mut run = run();
        run.interval(&Interval { books: Books::closed().to_text(), ..interval(0, 1, 0) });
        let mut damaged = interval(1, 5, 0);
        damaged.books.operations.values_mut().for_each(|book| book.done += 1);
        run.interval(&damaged);
        assert_eq!(run.totals.done, 0, "a count that is not that of its histogram is none");
    }
}
