//! The CPU time that client, wire and server spend on a request besides the engine.
//!
//! An embedded engine has no such path, but the published studies went through one, and what it costs decides
//! how much a page-cache hit matters: 27 µs on top of 1 µs is a fall to a thirtieth, on top of 53 µs a third
//! more. The path is burnt, not slept: it competes for the processors as the real one does. It first gives up
//! the processor once, as a server thread does when it waits for its next request; otherwise each thread
//! would run for its whole time slice and the latency would be the scheduler's.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tipover_core::check::{Returned, Version};
use tipover_core::learn::Watch;
use tipover_core::metric::Metric;
use tipover_core::op::{Op, OpKind, Outcome};
use tipover_core::target::{BankRows, Facts, Lists, Remarks, Session, Target, TargetError, Wire};
use tipover_core::workload::Dataset;
use tipover_core::workload::tpcb::Counts;

/// A target behind a request path of a given CPU cost.
pub struct RequestPath {
    target: Box<dyn Target>,
    cost: Duration,
    rounds: u64,
    burns: AtomicBool,
}

/// A chain of dependent multiplications that no compiler shortens and no other thread slows down.
#[inline(never)]
fn burn(rounds: u64) {
    let mut x = std::hint::black_box(0x9E37_79B9_7F4A_7C15u64);
    for _ in 0..rounds {
        x = (x ^ (x >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    }
    std::hint::black_box(x);
}

impl RequestPath {
    /// Puts a path of `cost` before `target`; zero for none. Takes about 20 ms to learn how fast this
    /// processor is.
    pub fn new(target: Box<dyn Target>, cost: Duration) -> Self {
        if cost.is_zero() {
            return RequestPath { target, cost, rounds: 0, burns: AtomicBool::new(false) };
        }
        const TRY: u64 = 100_000;
        // The fastest of many short runs is the one that nobody interrupted.
        let fastest = (0..100)
            .map(|_| {
                let begin = Instant::now();
                burn(TRY);
                begin.elapsed()
            })
            .min()
            .unwrap_or_default();
        let rounds = (cost.as_secs_f64() / fastest.as_secs_f64().max(1e-9) * TRY as f64) as u64;
        RequestPath { target, cost, rounds, burns: AtomicBool::new(true) }
    }

    /// Switches the path on or off for all sessions; a warm-up need not go through it.
    pub fn burn(&self, on: bool) {
        self.burns.store(on && self.rounds > 0, Ordering::Relaxed);
    }
}

impl Target for RequestPath {
    fn facts(&self) -> Result<Facts, TargetError> {
        let mut facts = self.target.facts()?;
        facts.insert("request_path_cpu_ns".into(), (self.cost.as_nanos() as u64).into());
        Ok(facts)
    }
    fn accepts(&self, kind: OpKind) -> bool {
        self.target.accepts(kind)
    }
    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        self.target.load(dataset, records)
    }
    fn settle(&self) -> Result<(), TargetError> {
        self.target.settle()
    }
    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        Ok(Box::new(PathSession { session: self.target.open(dataset)?, path: self }))
    }
    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        self.target.prepare(accounts)
    }
    fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        self.target.read_keys()
    }
    fn read_bank(&self) -> Result<BankRows, TargetError> {
        self.target.read_bank()
    }
    fn read_lists(&self) -> Result<Lists, TargetError> {
        self.target.read_lists()
    }
    fn watch(&self) -> Result<Box<dyn Watch>, TargetError> {
        self.target.watch()
    }

    fn count_sysbench(&self, tables: u64) -> Result<Vec<Option<u64>>, TargetError> {
        self.target.count_sysbench(tables)
    }

    fn count_tpcb(&self) -> Result<Option<Counts>, TargetError> {
        self.target.count_tpcb()
    }
    fn metrics(&self) -> Vec<Metric> {
        self.target.metrics()
    }
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        self.target.sample()
    }
}

struct PathSession<'a> {
    session: Box<dyn Session + 'a>,
    path: &'a RequestPath,
}

impl Session for PathSession<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        if self.path.burns.load(Ordering::Relaxed) {
            std::thread::yield_now();
            burn(self.path.rounds);
        }
        self.session.execute(op)
    }
    fn fetched(&self, field: u16) -> Option<&[u8]> {
        self.session.fetched(field)
    }
    fn fetched_records(&self) -> u32 {
        self.session.fetched_records()
    }
    fn answer(&self) -> Returned {
        self.session.answer()
    }
    fn take_seat(&mut self, number: u32) {
        self.session.take_seat(number);
    }
    fn remarks(&self) -> Option<&Remarks> {
        self.session.remarks()
    }
    fn wire(&mut self) -> Option<&mut dyn Wire> {
        // What speaks over a wire has a request path of its own; one that is burnt besides needs a thread.
        if self.path.rounds == 0 { self.session.wire() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Null, contract};

    #[test]
    fn keeps_the_contract() {
        let target = RequestPath::new(Box::new(Null), Duration::from_micros(5));
        contract::check(&target, &contract::Expect { keeps_records: false, kinds: &[] });
    }

    #[test]
    fn a_path_costs_what_it_says() {
        // Compared with the calibrated unit in the same run, never with an absolute time.
        let (short, long) = (
            RequestPath::new(Box::new(Null), Duration::from_micros(20)),
            RequestPath::new(Box::new(Null), Duration::from_micros(200)),
        );
        let ratio = long.rounds as f64 / short.rounds as f64;
        assert!((7.0..14.0).contains(&ratio), "ten times the cost is {ratio} times the work");
    }
}
