//! A plan for fleets in tests, and what must be there when it was carried out.

use super::results::{self, Kept};
use super::{Ended, Place, Running};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Blocks of two trials that take less than a second each.
pub const PLAN: &str = r#"
name = "small"
title = "Something small"
question = "How fast is nothing?"
why = "It is quickly measured."
how_to_read = "Not at all."
repeats = 4
[target]
kind = "null"
[workload]
kind = "ycsb"
mix = "c"
records = 1000
[load]
sessions = 1
[trial]
warm_up_least = "50 ms"
warm_up_most = "100 ms"
measure_least = "300 ms"
measure_most = "300 ms"
[[sweep]]
name = "sessions"
question = ""
[[sweep.axis]]
name = "sessions"
sets = "load.sessions"
values = [1, 2]
[scale.quick]
[scale.slow]
trial.measure_least = "2 s"
trial.measure_most = "2 s"
"#;

/// All trials are there, each once, and say who carried them out.
#[track_caller]
pub fn all(place: &Place) -> Vec<Kept> {
    let kept = results::kept(place, "small");
    let places: BTreeSet<(String, u32)> =
        kept.iter().map(|trial| (trial.record.cell.clone(), trial.record.repeat)).collect();
    assert_eq!((kept.len(), places.len()), (8, 8), "two cells, four times");
    assert!(kept.iter().all(|trial| trial.failure().is_none()), "none failed");
    assert!(kept.iter().all(|trial| trial.record.provenance.machine.is_some()));
    kept
}

/// Who carried it out.
pub fn machine(trial: &Kept) -> &str {
    trial.record.provenance.machine.as_deref().unwrap_or_default()
}

/// Waits until an agent said so.
pub fn until(agent: &mut Running<'_>, said: &str) {
    let began = Instant::now();
    while !agent.said().contains(said) {
        assert!(began.elapsed() < Duration::from_secs(120), "never {said:?}: {}", agent.said());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of whoever asks; what `agent` said tells why it never comes.
#[track_caller]
pub fn to_the_end(mut asking: Running<'_>, agent: &Running<'_>) -> Ended {
    let began = Instant::now();
    while !asking.has_ended() {
        assert!(began.elapsed() < Duration::from_secs(240), "{}\n{}", asking.said(), agent.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    asking.wait()
}
