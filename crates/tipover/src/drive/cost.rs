//! What the generator itself costs.

use super::{Plan, run};
use crate::clock::Clock;
use std::time::Duration;
use tipover_core::workload::{Dataset, Records, Workload};

/// Processor time of thread `id` of this process, in nanoseconds; 0 once it has ended.
pub fn thread_cpu_ns(id: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).unwrap_or_default();
    stat.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// What the generator itself costs per operation, in nanoseconds of processor time: the same loop on the null
/// target, best of five runs of 20 ms, because only interference makes it slower.
pub fn generator_cost_ns(dataset: &Dataset, workload: &dyn Workload) -> f64 {
    let clock = Clock::start();
    let cost = || {
        let records = Records::new(dataset.records);
        let plan = Plan::closed(&tipover_targets::Null, dataset, workload, &records, 1, clock);
        let tally = run(&plan, |sessions| {
            let before = sessions.cut().sessions_cpu_ns;
            std::thread::sleep(Duration::from_millis(20));
            let mut tally = sessions.cut();
            tally.sessions_cpu_ns -= before;
            tally
        });
        tally.map_or(f64::INFINITY, |t| t.sessions_cpu_ns as f64 / t.books.answered().max(1) as f64)
    };
    (0..5).map(|_| cost()).fold(f64::INFINITY, f64::min)
}
