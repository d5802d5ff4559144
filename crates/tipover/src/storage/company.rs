//! What else the machine does while a disk is measured: other programs, the host, and what canaries see.

use crate::clock::Clock;
use crate::probe::{Probe, System, canary};
use std::time::Instant;
use tipover_core::measure::Canary;
use tipover_core::metric::Sample;
use tipover_core::storage::Beside;

/// As many canaries on each side as it takes to say by how much they vary.
const EACH_SIDE: usize = 2;

/// A watch on the machine from the beginning of a measurement on.
pub struct Company {
    begun: Instant,
    clock: Clock,
    system: Option<(System, Sample)>,
    own_ns: f64,
    shaped: bool,
    canaries: Vec<Canary>,
}

impl Company {
    /// Begins to watch. The daemon of a `shaped` disk is a program of its own, and cannot be told from
    /// others.
    pub fn begin(shaped: bool) -> Company {
        let canaries = canaries();
        let clock = Clock::start();
        let system = System::open().ok().and_then(|mut system| {
            let first = system.sample(&|| clock.now()).ok()?;
            Some((system, first))
        });
        Company { begun: Instant::now(), clock, system, own_ns: own_ns(), shaped, canaries }
    }

    /// What was seen.
    pub fn end(mut self) -> Beside {
        let machine_ns = crate::processors::count() as f64 * self.begun.elapsed().as_nanos() as f64;
        let last = self.system.as_mut().and_then(|(system, _)| system.sample(&|| self.clock.now()).ok());
        let growth = |name: &str| {
            let (_, first) = self.system.as_ref()?;
            Some(last.as_ref()?.values.get(name)? - first.values.get(name)?)
        };
        let free = ["system_cpu_idle_ns", "system_cpu_iowait_ns", "system_cpu_steal_ns"];
        let free_ns: Option<f64> = free.into_iter().map(growth).sum();
        let own_ns = own_ns() - self.own_ns;
        let neighbours =
            free_ns.map(|free_ns| ((machine_ns - free_ns - own_ns) / machine_ns).clamp(0.0, 1.0));
        let steal = growth("system_cpu_steal_ns").map(|ns| ns / machine_ns);
        let mut seen = self.canaries;
        seen.extend(canaries());
        Beside { neighbours: neighbours.filter(|_| !self.shaped), steal, canaries: seen }
    }
}

fn canaries() -> Vec<Canary> {
    (0..EACH_SIDE).map(|_| canary(&std::env::temp_dir())).collect()
}

/// Processor time of this process.
fn own_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_work_is_not_a_neighbours() {
        let watch = Company::begin(false);
        // Processor time, because how long that takes is up to the neighbours.
        while own_ns() - watch.own_ns < 1e8 {
            std::hint::black_box(watch.begun.elapsed());
        }
        let beside = watch.end();
        assert_eq!(beside.canaries.len(), 2 * EACH_SIDE);
        assert!(beside.neighbours.is_some_and(|share| (0.0..=1.0).contains(&share)), "{beside:?}");
        assert_eq!(Company::begin(true).end().neighbours, None, "a daemon of ours may be among them");
    }
}
