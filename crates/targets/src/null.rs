//! Answers at once and does nothing: what remains is the generator.

use std::collections::BTreeMap;
use std::ops::Range;
use tipover_core::metric::Metric;
use tipover_core::op::{Op, OpKind, Outcome};
use tipover_core::target::{Facts, Session, Target, TargetError};
use tipover_core::workload::Dataset;

/// The null target.
#[derive(Debug, Clone, Copy, Default)]
pub struct Null;

impl Target for Null {
    fn facts(&self) -> Result<Facts, TargetError> {
        Ok(Facts::from([("system".into(), "null".into())]))
    }
    fn accepts(&self, _: OpKind) -> bool {
        true
    }
    fn load(&self, _: &Dataset, _: Range<u64>) -> Result<(), TargetError> {
        Ok(())
    }
    fn settle(&self) -> Result<(), TargetError> {
        Ok(())
    }
    fn open<'a>(&'a self, _: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        Ok(Box::new(NullSession))
    }
    fn metrics(&self) -> Vec<Metric> {
        vec![]
    }
    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        Ok(BTreeMap::new())
    }
}

struct NullSession;

impl Session for NullSession {
    #[inline]
    fn execute(&mut self, op: &Op) -> Outcome {
        // The operation must exist, or the compiler would not generate it.
        std::hint::black_box(op);
        Outcome::Done
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keeps_the_contract() {
        crate::contract::check(&super::Null, &crate::contract::Expect { keeps_records: false, kinds: &[] });
    }
}
