//! Whether a measured trial can be believed.

use tipover_core::experiment::{Spec, TargetKind};
use tipover_core::measure::{Budget, Latencies, WarmUp, little_residual};
use tipover_core::metric::{name as metric, probe};
use tipover_core::record::{Measured, Verdict};

/// Judges a trial: what was not steady, does not add up, or was not as asked is not valid, and says so.
pub fn judge(spec: &Spec, measured: &Measured, warm_up: &WarmUp, memory_bounded: bool) -> Verdict {
    let mut reasons = Vec::new();
    if let WarmUp::Never(reason) | WarmUp::NotYet(reason) = warm_up {
        reasons.push(format!("the caches never came to rest: {reason}"));
    }
    let failed: u64 = measured.failures.values().sum();
    if failed > 0 {
        reasons.push(format!("{failed} operations failed: {:?}", measured.failures));
    }
    if measured.operations == 0 {
        reasons.push("no operation was answered".into());
    } else if let Ok(latencies) = Latencies::from_text(&measured.latency) {
        // Operations that were in flight at the ends were counted where they ended: each session's account
        // may be off by about a long latency at either end, which widens what Little's law allows.
        let sessions = f64::from(spec.load.sessions);
        let long_s = latencies.residence().value_at_quantile(0.99) as f64 / 1e9;
        let allowed = 0.05 + 2.0 * (2.0 / sessions).sqrt() * long_s / measured.seconds();
        let throughput = latencies.count() as f64 / measured.seconds();
        let residual = little_residual(sessions, throughput, latencies.residence().mean() / 1e9);
        if residual.abs() > allowed {
            reasons.push(format!(
                "Little's law is off by {:.1} %, allowed {:.1} %: sessions were not always busy",
                residual * 100.0,
                allowed * 100.0
            ));
        }
    }
    if let Some(witnesses) = measured.witnesses() {
        let budget = Budget::of(&witnesses);
        if budget.closes == Some(false) {
            reasons.push(format!("the read budget does not close: {}", budget.evidence));
        }
    }
    let misses = measured.growth(probe::TARGET, metric::ENGINE_PAGE_READS).unwrap_or(0.0);
    let beyond_cache = misses / measured.operations.max(1) as f64 > 0.002;
    if !memory_bounded
        && spec.machine.memory.is_some()
        && spec.target.kind == TargetKind::Wiredtiger
        && beyond_cache
    {
        reasons.push("memory was not bounded, so the page cache held more than the plan says".into());
    }
    if reasons.is_empty() { Verdict::Valid } else { Verdict::Invalid { reasons } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::experiment::{Experiment, Trial};
    use tipover_core::op::Failure;
    use tipover_core::simulate::{self, Machine};

    const PLAN: &str = include_str!("../../../../experiments/working-set.toml");

    fn slowest() -> (Spec, Measured) {
        let experiment = Experiment::parse(PLAN, "quick", &[]).unwrap();
        let cell = experiment.sweeps.last().unwrap().cells.last().unwrap();
        let (record, _) = simulate::trial("t", &Trial { cell, repeat: 0 }, 1, &Machine::default());
        (record.spec, record.measured.unwrap())
    }

    fn reasons(verdict: Verdict) -> String {
        match verdict {
            Verdict::Invalid { reasons } => reasons.join("; "),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_honest_trial_is_valid() {
        let (spec, measured) = slowest();
        assert_eq!(judge(&spec, &measured, &WarmUp::Steady(String::new()), true), Verdict::Valid);
    }

    #[test]
    fn each_fault_is_convicted() {
        let (spec, honest) = slowest();
        let steady = WarmUp::Steady(String::new());
        assert!(
            reasons(judge(&spec, &honest, &WarmUp::Never("m".into()), true)).contains("never came to rest")
        );
        assert!(reasons(judge(&spec, &honest, &steady, false)).contains("not bounded"));
        let mut failing = honest.clone();
        failing.failures.insert(Failure::Corrupt, 3);
        assert!(reasons(judge(&spec, &failing, &steady, true)).contains("3 operations failed"));
        let mut leaking = honest.clone();
        let sample = leaking.last.get_mut(probe::TARGET).unwrap();
        *sample.values.get_mut(metric::ENGINE_FILE_READ_BYTES).unwrap() *= 1.5;
        assert!(reasons(judge(&spec, &leaking, &steady, true)).contains("does not close"));
        let mut idle = honest;
        idle.end = idle.end + std::time::Duration::from_secs(10);
        assert!(reasons(judge(&spec, &idle, &steady, true)).contains("Little's law"));
    }
}
