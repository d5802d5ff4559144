//! Candidates judged by measured tipping points alone, whatever the load does.
//!
//! What has at least as much of everything as a place where a load held holds it too; what has no more of
//! anything than a place where it failed fails. Nothing is computed between such places or beyond them, so
//! that this answers for writes, replicas and engines of which there is no model here. It rests on two
//! things: more memory, processors or disk never hurt, and a load that fails fails at more of it.

use super::plan::Outlook;
use crate::device::Spec;
use crate::experiment::Promise;
use crate::units::significant;
use serde::Serialize;

/// Equal searches differ by this share: less is no contradiction.
const NOISE: f64 = 0.1;

/// What a system was given, or would be. A number that is not known is NaN: it is compared with nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    /// Bytes of memory of each node.
    pub memory: f64,
    /// Processors of each node.
    pub cores: f64,
    /// Records there are.
    pub records: f64,
    /// The disk of each node.
    pub disk: Spec,
}

impl Given {
    /// Whether it has at least as much of everything as `other`, and no more records.
    pub fn is_at_least(&self, other: &Given) -> bool {
        self.memory >= other.memory
            && self.cores >= other.cores
            && self.records <= other.records
            && self.disk.is_at_least(&other.disk)
    }
}

/// Where the search of a cell ended for one promise.
#[derive(Debug, Clone, PartialEq)]
pub struct Tipped {
    /// The cell, in words.
    pub name: String,
    /// What it had.
    pub given: Given,
    /// Whether its clients took their time from the same processors, of which a candidate then has more.
    pub clients_beside: bool,
    /// What was promised.
    pub promise: Promise,
    /// The highest load, operations per second, at which that held again and again, if any did.
    pub holds: Option<f64>,
    /// The lowest at which it failed again and again.
    pub fails: Option<f64>,
}

impl Tipped {
    /// What a candidate must not have more of to fail where this failed.
    fn at_most(&self) -> Given {
        // Nobody counted what clients took; it was not half of the processors.
        let cores = if self.clients_beside { self.given.cores / 2.0 } else { self.given.cores };
        Given { cores, ..self.given.clone() }
    }
}

/// A promise that whoever keeps `this` keeps too.
fn implies(this: Promise, other: Promise) -> bool {
    this.percentile >= other.percentile && this.limit <= other.limit
}

/// What measured places say of the most that another one can do.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Bracket {
    /// It holds this load, operations per second: a place with no more of anything did; which.
    pub holds: Option<(f64, String)>,
    /// It fails at this load: a place with no less of anything did.
    pub fails: Option<(f64, String)>,
}

impl Bracket {
    /// Of a system that is `given` this and promises that.
    pub fn of(given: &Given, promise: Promise, tipped: &[Tipped]) -> Bracket {
        let named = |t: &Tipped, load: Option<f64>| Some((load?, t.name.clone()));
        let weaker = tipped.iter().filter(|t| given.is_at_least(&t.given) && implies(t.promise, promise));
        let stronger =
            tipped.iter().filter(|t| t.at_most().is_at_least(given) && implies(promise, t.promise));
        Bracket {
            holds: weaker.filter_map(|t| named(t, t.holds)).max_by(|a, b| a.0.total_cmp(&b.0)),
            fails: stronger.filter_map(|t| named(t, t.fails)).min_by(|a, b| a.0.total_cmp(&b.0)),
        }
    }

    /// Whether the promise holds at `load`. Where the ends overlap, as those of equal searches do, neither
    /// says anything of what lies between them.
    pub fn answer(&self, load: f64) -> Outlook {
        let holds = self.holds.as_ref().map_or(0.0, |(held, _)| *held);
        let fails = self.fails.as_ref().map_or(f64::INFINITY, |(failed, _)| *failed);
        match (load <= holds, load >= fails) {
            (true, false) => Outlook::Holds,
            (false, true) => Outlook::DoesNotHold,
            _ => Outlook::CannotTell,
        }
    }
}

/// Where one search contradicts another: a place failed at a load that one with no more of anything held. In
/// words.
pub fn contradictions(tipped: &[Tipped]) -> Vec<String> {
    let mut found = Vec::new();
    for (strong, fails) in tipped.iter().filter_map(|t| Some((t, t.fails?))) {
        let weaker = |t: &&Tipped| {
            strong.at_most().is_at_least(&t.given)
                && strong.given != t.given
                && implies(t.promise, strong.promise)
        };
        let held = tipped.iter().filter(weaker).filter_map(|t| Some((t, t.holds?)));
        if let Some((weak, holds)) = held.max_by(|a, b| a.1.total_cmp(&b.1))
            && holds > fails * (1.0 + NOISE)
        {
            found.push(format!(
                "{} failed {} at {}/s, and {}, which has no more of anything, held {}/s",
                strong.name,
                strong.promise,
                significant(fails, 4),
                weak.name,
                significant(holds, 4)
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = 1_073_741_824.0;

    fn given(memory: f64, disk: &str) -> Given {
        Given { memory: memory * GIB, cores: 4.0, records: 1e6, disk: disk.parse().unwrap() }
    }

    fn tipped(memory: f64, disk: &str, holds: f64, fails: f64) -> Tipped {
        Tipped {
            name: format!("{memory} GiB, {disk}"),
            given: given(memory, disk),
            clients_beside: false,
            promise: "p99 <= 20 ms".parse().unwrap(),
            holds: Some(holds),
            fails: Some(fails),
        }
    }

    fn measured() -> Vec<Tipped> {
        vec![
            tipped(2.0, "iops=600,latency=2ms", 400.0, 450.0),
            tipped(2.0, "iops=3000,latency=1ms", 1800.0, 2000.0),
            tipped(8.0, "iops=3000,latency=1ms", 5000.0, 5600.0),
        ]
    }

    fn answer(given: &Given, load: f64) -> Outlook {
        Bracket::of(given, "p99 <= 20 ms".parse().unwrap(), &measured()).answer(load)
    }

    #[test]
    fn more_of_everything_holds_less_of_everything_fails_and_between_nobody_can_tell() {
        let between = given(4.0, "iops=3000,latency=1ms");
        for (load, wanted) in [
            (1500.0, Outlook::Holds),
            (1800.0, Outlook::Holds),
            (1900.0, Outlook::CannotTell),
            (5500.0, Outlook::CannotTell),
            (5600.0, Outlook::DoesNotHold),
        ] {
            assert_eq!(answer(&between, load), wanted, "{load}");
        }
        let bracket = Bracket::of(&between, "p99 <= 20 ms".parse().unwrap(), &measured());
        assert_eq!(bracket.holds.unwrap().1, "2 GiB, iops=3000,latency=1ms");
        assert_eq!(bracket.fails.unwrap().1, "8 GiB, iops=3000,latency=1ms");
        // Beyond what was measured one end is open.
        assert_eq!(answer(&given(16.0, "iops=9000,latency=0.5ms"), 5000.0), Outlook::Holds);
        assert_eq!(answer(&given(16.0, "iops=9000,latency=0.5ms"), 9000.0), Outlook::CannotTell);
        assert_eq!(answer(&given(1.0, "iops=300,latency=2ms"), 450.0), Outlook::DoesNotHold);
        assert_eq!(answer(&given(1.0, "iops=300,latency=2ms"), 100.0), Outlook::CannotTell);
        // More memory and a slower disk are not comparable with anything that held.
        assert_eq!(answer(&given(64.0, "iops=300,latency=2ms"), 300.0), Outlook::CannotTell);
        // Nor is what is not known, in either direction.
        let unknown = Given { cores: f64::NAN, ..given(64.0, "iops=90000,latency=0.1ms") };
        assert_eq!([1.0, 1e6].map(|load| answer(&unknown, load)), [Outlook::CannotTell; 2]);
        // More data than were measured may fail, and never hold for sure.
        let more = Given { records: 2e6, ..between.clone() };
        assert_eq!(
            [100.0, 5600.0].map(|load| answer(&more, load)),
            [Outlook::CannotTell, Outlook::DoesNotHold]
        );
        let fewer = Given { records: 5e5, ..between };
        assert_eq!([1800.0, 5600.0].map(|load| answer(&fewer, load)), [Outlook::Holds, Outlook::CannotTell]);
    }

    #[test]
    fn disks_are_compared_in_every_respect() {
        for (this, other, is_at_least) in [
            ("iops=600,latency=2ms", "iops=600,latency=2ms", true),
            ("latency=1ms", "iops=600,latency=2ms", true),
            ("iops=600,latency=2ms", "latency=1ms", false),
            ("iops=900,latency=3ms", "iops=600,latency=2ms", false),
            ("iops=600,latency=2ms,write_latency=1ms", "iops=600,latency=2ms", true),
            ("iops=600,latency=2ms,flush_latency=1ms", "iops=600,latency=2ms", false),
            ("iops=600,write_iops=100", "iops=600", false),
            ("latency=1ms,parallel=4", "latency=1ms,parallel=2", true),
            ("latency=1ms", "latency=1ms,parallel=2", true),
            ("latency=1ms,parallel=2", "latency=1ms", false),
            ("bandwidth=100M", "bandwidth=90M", true),
            ("iops=600,order=reads-first", "iops=600", false),
        ] {
            let (a, b): (Spec, Spec) = (this.parse().unwrap(), other.parse().unwrap());
            assert_eq!(a.is_at_least(&b), is_at_least, "{this} against {other}");
        }
    }

    #[test]
    fn a_stricter_promise_that_held_is_enough_and_a_laxer_one_that_failed() {
        let at = given(8.0, "iops=3000,latency=1ms");
        let of = |promise: &str| Bracket::of(&at, promise.parse().unwrap(), &measured());
        assert_eq!(of("p99 <= 50 ms").holds.unwrap().0, 5000.0);
        assert_eq!(of("p95 <= 20 ms").holds.unwrap().0, 5000.0);
        assert_eq!((of("p99.9 <= 20 ms").holds, of("p99 <= 10 ms").holds), (None, None));
        assert_eq!(of("p99.9 <= 10 ms").fails.unwrap().0, 5600.0);
        assert_eq!((of("p99 <= 50 ms").fails, of("p95 <= 20 ms").fails), (None, None));
    }

    #[test]
    fn who_measured_beside_the_server_convicts_only_those_with_half_the_processors() {
        let beside: Vec<Tipped> =
            measured().into_iter().map(|t| Tipped { clients_beside: true, ..t }).collect();
        let of = |cores: f64| {
            let given = Given { cores, ..given(2.0, "iops=600,latency=2ms") };
            Bracket::of(&given, "p99 <= 20 ms".parse().unwrap(), &beside)
        };
        assert_eq!((of(4.0).fails, of(2.0).fails.unwrap().0), (None, 450.0));
        assert_eq!((of(4.0).holds.unwrap().0, of(2.0).holds), (400.0, None));
    }

    #[test]
    fn a_place_that_does_less_with_more_is_a_contradiction_unless_it_is_noise() {
        assert_eq!(contradictions(&measured()), Vec::<String>::new());
        let with = |holds: f64, fails: f64| {
            let mut all = measured();
            all.push(tipped(16.0, "iops=3000,latency=1ms", holds, fails));
            contradictions(&all)
        };
        assert!(with(4300.0, 4700.0).is_empty(), "within a tenth: {:?}", with(4300.0, 4700.0));
        let why = with(1000.0, 1100.0);
        assert_eq!(why.len(), 1);
        assert!(why[0].contains("16 GiB") && why[0].contains("held 5000/s"), "{why:?}");
    }
}
