//! The machine's canary: a small fixed load that knows nothing of the target. What changes in it between
//! trials is the machine, or its neighbours.

use super::rank::{median, robust_deviation};
use super::repeats::{CanaryVerdict, Usual};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the fixed load took, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// A fixed piece of arithmetic: grows with stolen time, neighbours and a lower clock.
    pub spin_ns: f64,
    /// How much later than asked a short sleep ended: grows with a busy scheduler.
    pub wake_ns: f64,
    /// Writing 4 KiB to the folder of the results and flushing it; `None` where that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_ns: Option<f64>,
}

/// The parts of a canary by which it is judged. Waking is stored and not judged: within one quiet session it
/// varies by more than a factor of two.
const PARTS: [(&str, Part); 2] =
    [("processor", |canary| Some(canary.spin_ns)), ("flush", |canary| canary.sync_ns)];

type Part = fn(&Canary) -> Option<f64>;

/// What the canaries before and after each trial say of it, judged against all of the session. One element
/// per trial, in the same order; a trial without its pair of canaries is unknown.
pub fn judge_session(trials: &[&[Canary]]) -> Vec<CanaryVerdict> {
    judge_machines(&trials.iter().map(|own| (None, *own)).collect::<Vec<_>>())
}

/// The same for a session of several machines, each given with its trial: a machine is judged against itself,
/// because that machines differ disturbs nobody.
pub fn judge_machines(trials: &[(Option<&str>, &[Canary])]) -> Vec<CanaryVerdict> {
    let usual = |session: &[&[Canary]], part: Part| {
        Usual::of(&session.iter().copied().flatten().filter_map(part).collect::<Vec<f64>>())
    };
    let machines = by_machine(trials).into_iter();
    let usual: BTreeMap<_, _> =
        machines.map(|(machine, session)| (machine, PARTS.map(|(_, part)| usual(&session, part)))).collect();
    trials.iter().map(|(machine, own)| verdict(&usual[machine], own)).collect()
}

/// The largest [`unrest`] of a machine among several.
pub fn unrest_of_machines(trials: &[(Option<&str>, &[Canary])]) -> Option<f64> {
    by_machine(trials).values().filter_map(|session| unrest(session)).reduce(f64::max)
}

fn by_machine<'a>(
    trials: &[(Option<&'a str>, &'a [Canary])],
) -> BTreeMap<Option<&'a str>, Vec<&'a [Canary]>> {
    let mut machines: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (machine, own) in trials {
        machines.entry(*machine).or_default().push(*own);
    }
    machines
}

/// By how much the processor's canaries of a session vary, as a share of their median (robust standard
/// deviation): a neighbour who was there all the time makes all of them unusual, and none of them more than
/// the others. `None` with fewer than four.
pub fn unrest(trials: &[&[Canary]]) -> Option<f64> {
    let all: Vec<f64> = trials.iter().copied().flatten().map(|canary| canary.spin_ns).collect();
    let middle = median(&all).filter(|middle| all.len() >= 4 && *middle > 0.0)?;
    Some(robust_deviation(&all)? / middle)
}

/// `usual` are the machine's [`PARTS`].
fn verdict(usual: &[Option<Usual>], own: &[Canary]) -> CanaryVerdict {
    let [before, after] = own else { return CanaryVerdict::Unknown };
    let mut known = false;
    for ((name, part), usual) in PARTS.iter().zip(usual) {
        let (Some(before), Some(after), Some(usual)) = (part(before), part(after), usual) else { continue };
        if let CanaryVerdict::Disturbed { why } = usual.judge(before, after) {
            return CanaryVerdict::Disturbed { why: format!("{name}: {why}") };
        }
        known = true;
    }
    if known { CanaryVerdict::Quiet } else { CanaryVerdict::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary(spin_ns: f64) -> Canary {
        Canary { spin_ns, wake_ns: 60e3, sync_ns: None }
    }

    #[test]
    fn the_disturbed_trial_is_named_and_the_quiet_ones_are_not() {
        let mut trials: Vec<[Canary; 2]> =
            (0..8).map(|n| [canary(1e6 + f64::from(n)), canary(1e6 - f64::from(n))]).collect();
        trials[3][1] = canary(1.5e6);
        let views: Vec<&[Canary]> = trials.iter().map(<[Canary; 2]>::as_slice).collect();
        let verdicts = judge_session(&views);
        for (n, verdict) in verdicts.iter().enumerate() {
            match verdict {
                CanaryVerdict::Disturbed { why } => {
                    assert!(n == 3 && why.starts_with("processor: the canary after is +50"), "{n}: {why}");
                }
                other => assert!(n != 3 && *other == CanaryVerdict::Quiet, "{n}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_neighbour_who_is_always_there_makes_canaries_vary() {
        let session = |off: f64| -> Vec<[Canary; 2]> {
            (0..5).map(|n| [canary(1e6 * (1.0 + off * f64::from(n))); 2]).collect()
        };
        let of =
            |trials: &[[Canary; 2]]| unrest(&trials.iter().map(<[Canary; 2]>::as_slice).collect::<Vec<_>>());
        assert!(of(&session(0.002)).unwrap() < 0.01);
        assert!(of(&session(0.3)).unwrap() > 0.1);
        assert_eq!((of(&session(0.3)[..1]), of(&[])), (None, None));
    }

    #[test]
    fn that_machines_differ_disturbs_nobody() {
        let mut trials: Vec<(Option<&str>, [Canary; 2])> = (0..8)
            .flat_map(|n| [(Some("slow"), 2e6 + f64::from(n)), (Some("fast"), 1e6 - f64::from(n))])
            .map(|(machine, spin_ns)| (machine, [canary(spin_ns); 2]))
            .collect();
        let judged = |trials: &[(Option<&str>, [Canary; 2])]| {
            let views: Vec<(Option<&str>, &[Canary])> =
                trials.iter().map(|(machine, own)| (*machine, own.as_slice())).collect();
            (judge_machines(&views), unrest_of_machines(&views).unwrap())
        };
        let (quiet, unrest) = judged(&trials);
        assert!(quiet.iter().all(|verdict| *verdict == CanaryVerdict::Quiet), "{quiet:?}");
        assert!(unrest < 0.01, "{unrest}");
        // As slow as the slow machine always is, which its own canaries convict.
        trials[5].1[1] = canary(2e6);
        let (disturbed, _) = judged(&trials);
        for (n, verdict) in disturbed.iter().enumerate() {
            assert_eq!(matches!(verdict, CanaryVerdict::Disturbed { .. }), n == 5, "{n}: {verdict:?}");
        }
    }

    #[test]
    fn a_short_session_and_a_missing_canary_are_unknown() {
        let pair = [canary(1e6), canary(2e6)];
        assert_eq!(judge_session(&[&pair, &[]]), [CanaryVerdict::Unknown, CanaryVerdict::Unknown]);
    }
}
