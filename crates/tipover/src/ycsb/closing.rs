//! How long closing a session takes: YCSB's CLEANUP.

use super::raw::Point;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Instant, SystemTime};
use tipover_core::check::Returned;
use tipover_core::measure::{Histogram, histogram};
use tipover_core::metric::Metric;
use tipover_core::op::{Op, OpKind, Outcome};
use tipover_core::target::{Facts, Session, Target, TargetError, Wire};
use tipover_core::workload::Dataset;

/// A target whose sessions' ends are timed.
pub struct Closing<'a> {
    target: &'a dyn Target,
    ends: Mutex<Vec<Point>>,
    times: Mutex<Histogram>,
}

impl<'a> Closing<'a> {
    /// `target`, so that its sessions' ends are timed.
    pub fn new(target: &'a dyn Target) -> Self {
        Closing { target, ends: Mutex::default(), times: Mutex::new(histogram()) }
    }

    /// How long closing took, in nanoseconds.
    pub fn times(&self) -> Histogram {
        self.times.lock().clone()
    }

    /// The ends, one by one.
    pub fn ends(&self) -> Vec<Point> {
        self.ends.lock().clone()
    }

    fn closed(&self, began: SystemTime, clock: Instant) {
        let took = clock.elapsed();
        self.ends.lock().push(Point::new(began, took));
        self.times.lock().saturating_record((took.as_nanos() as u64).max(1));
    }
}

impl Target for Closing<'_> {
    fn facts(&self) -> Result<Facts, TargetError> {
        self.target.facts()
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
        Ok(Box::new(Timed { session: Some(self.target.open(dataset)?), closing: self }))
    }
    fn metrics(&self) -> Vec<Metric> {
        self.target.metrics()
    }
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        self.target.sample()
    }
}

struct Timed<'a> {
    session: Option<Box<dyn Session + 'a>>,
    closing: &'a Closing<'a>,
}

impl<'a> Timed<'a> {
    fn inner(&self) -> &(dyn Session + 'a) {
        self.session.as_deref().expect("a session until it is dropped")
    }
}

impl Session for Timed<'_> {
    #[inline]
    fn execute(&mut self, op: &Op) -> Outcome {
        self.session.as_mut().expect("a session until it is dropped").execute(op)
    }
    fn fetched(&self, field: u16) -> Option<&[u8]> {
        self.inner().fetched(field)
    }
    fn fetched_records(&self) -> u32 {
        self.inner().fetched_records()
    }
    fn answer(&self) -> Returned {
        self.inner().answer()
    }
    fn wire(&mut self) -> Option<&mut dyn Wire> {
        self.session.as_mut().expect("a session until it is dropped").wire()
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        let (began, clock) = (SystemTime::now(), Instant::now());
        drop(self.session.take());
        self.closing.closed(began, clock);
    }
}
