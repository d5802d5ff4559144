use super::*;
use crate::check::judge;
use crate::op::{Failure, Fields, Op};
use crate::schedule::{Effect, Injection};
use proptest::prelude::*;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// Writes as words: "k1 ok, k1 ??, k2 no" are three writes of one client, one per millisecond, the second
/// write of key 1 unanswered, the write of key 2 refused. A client is a text.
fn history(clients: &[&str]) -> History {
    let mut history = History::default();
    for (client, text) in clients.iter().enumerate() {
        let mut sequences: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, word) in text.split(',').map(str::trim).enumerate() {
            let (key, outcome) = word.split_once(' ').unwrap();
            let key: u64 = key[1..].parse().unwrap();
            let key_sequence = *sequences.entry(key).and_modify(|n| *n += 1).or_insert(1);
            let began = Tick(number as u64 * MS);
            let outcome = match outcome {
                "ok" => Outcome::Done,
                "no" => Outcome::Refused(Failure::Conflict),
                _ => Outcome::Unknown(Failure::Timeout),
            };
            let op = Op::Update { record: key, fields: Fields::All, version: key_sequence };
            history.entries.push(Entry {
                ended: Some(began + Duration::from_micros(500)),
                outcome,
                ..Entry::sent(client as u32, number as u64, op, began)
            });
        }
    }
    history
}

/// Rows as words: "1.2" is write 2 of key 1, "1.2!" the same with other bytes.
fn scan(source: Source, pass: u32, text: &str) -> KeyScan {
    let row = |word: &str| {
        let (key, sequence) = word.trim_end_matches('!').split_once('.').unwrap();
        let (key, key_sequence) = (key.parse().unwrap(), sequence.parse().unwrap());
        let whole = Version::of(key, key_sequence);
        (key, if word.ends_with('!') { Version { payload: 7, ..whole } } else { whole })
    };
    let at = Tick((1000 + u64::from(pass) * 10_000) * MS);
    KeyScan { source, pass, at, rows: text.split_whitespace().map(row).collect() }
}

fn seen(clients: &[&str], rows: &str) -> Observation {
    let keys = vec![scan(Source::Survivors, 1, rows), scan(Source::Survivors, 2, rows)];
    Observation { history: history(clients), keys, ..Observation::default() }
}

fn crash(at: u64) -> Injection {
    let (at, effect) = (Tick(at * MS), Effect::Fired { count: 1 });
    let (uncertainty, outages) = (Duration::from_micros(100), vec![]);
    Injection { rule: "power cut".into(), at, uncertainty, undone: None, effect, outages }
}

fn ledger(window: u64, least_acknowledged: u64) -> Ledger {
    let window = Duration::from_millis(window);
    Ledger { exposure: Exposure { window, least_acknowledged, ..Exposure::default() }, ..Ledger::default() }
}

fn fates(clients: &[&str], rows: &str) -> (Verdict, Vec<(Fate, u64)>) {
    let balance = Ledger::default().settle(&seen(clients, rows));
    (balance.finding.verdict, balance.fates.into_iter().collect())
}

#[test]
fn every_square_of_the_table_has_its_name() {
    use Fate::*;
    for (clients, rows, verdict, expected) in [
        ("k1 ok", "1.1", Verdict::Valid, Durable),
        ("k1 ok", "", Verdict::Invalid, Lost),
        ("k1 ok", "1.1 1.1", Verdict::Invalid, Duplicate),
        ("k1 ok", "1.1!", Verdict::Invalid, Corrupt),
        ("k1 ok", "1.9", Verdict::Invalid, Corrupt),
        ("k1 ??", "1.1", Verdict::NoEvidence, Applied),
        ("k1 ??", "", Verdict::NoEvidence, NotApplied),
        ("k1 ??", "1.1 1.1", Verdict::Invalid, Duplicate),
        ("k1 ??", "1.1!", Verdict::Invalid, Corrupt),
        ("k1 no", "1.1", Verdict::Invalid, Phantom),
        ("k1 no", "", Verdict::NoEvidence, Refused),
        ("k1 no", "1.1 1.1", Verdict::Invalid, Phantom),
        ("k1 no", "1.1!", Verdict::Invalid, Corrupt),
    ] {
        assert_eq!(fates(&[clients], rows), (verdict, vec![(expected, 1)]), "{clients} / {rows}");
    }
    // Never sent.
    assert_eq!(fates(&["k1 ok"], "1.1 2.1"), (Verdict::Invalid, vec![(Durable, 1), (Phantom, 1)]));
}

#[test]
fn an_older_version_is_a_rollback_and_a_newer_one_hides_the_older() {
    use Fate::*;
    assert_eq!(
        fates(&["k1 ok, k1 ok, k1 ok"], "1.1"),
        (Verdict::Invalid, vec![(Durable, 1), (RolledBack, 2)])
    );
    assert_eq!(fates(&["k1 ok, k1 ok"], "1.2"), (Verdict::Valid, vec![(Durable, 1), (Overwritten, 1)]));
    assert_eq!(fates(&["k1 ??, k1 ok"], "1.2"), (Verdict::Valid, vec![(Durable, 1), (Undecided, 1)]));
    assert_eq!(fates(&["k1 ok, k1 no"], "1.2"), (Verdict::Invalid, vec![(Overwritten, 1), (Phantom, 1)]));
    assert_eq!(fates(&["k1 ok, k1 ??"], "1.1"), (Verdict::Valid, vec![(Durable, 1), (NotApplied, 1)]));
}

/// Nobody waits for an answer: what one client sent first may arrive behind what another one sent later.
#[test]
fn writes_that_nobody_answers_arrive_in_any_order_of_clients_and_in_their_own() {
    use Fate::*;
    let exposure = Exposure { unanswered: true, ..Exposure::default() };
    let ledger = Ledger { exposure, ..Ledger::default() };
    let fates = |second: u32, rows: &str| {
        let mut seen = seen(&["k1 ok, k1 ok"], rows);
        seen.history.entries[1].client = second;
        let balance = ledger.settle(&seen);
        (balance.finding.verdict, balance.fates.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(fates(1, "1.1"), (Verdict::Valid, vec![(Durable, 1), (Overwritten, 1)]));
    assert_eq!(fates(0, "1.1"), (Verdict::Invalid, vec![(Durable, 1), (RolledBack, 1)]));
    assert_eq!(fates(1, ""), (Verdict::Invalid, vec![(Lost, 2)]));
    assert_eq!(fates(1, "1.9").0, Verdict::Invalid, "what nobody wrote");
}

#[test]
fn a_late_unknown_write_is_legal_unless_writes_are_guarded() {
    use Fate::*;
    assert_eq!(fates(&["k1 ??, k1 ok"], "1.1"), (Verdict::Unknown, vec![(Applied, 1), (Overtaken, 1)]));
    let guarded = Ledger { guarded: true, ..Ledger::default() };
    let balance = guarded.settle(&seen(&["k1 ??, k1 ok"], "1.1"));
    assert_eq!(balance.fates.into_iter().collect::<Vec<_>>(), [(Applied, 1), (RolledBack, 1)]);
    assert_eq!(balance.finding.verdict, Verdict::Invalid);
}

#[test]
fn a_hole_is_told_from_a_lost_end() {
    let end = Ledger::default().settle(&seen(&["k1 ok, k2 ok, k3 ok"], "1.1 2.1"));
    assert_eq!((end.holes, end.fates[&Fate::Lost]), (0, 1));
    let hole = Ledger::default().settle(&seen(&["k1 ok, k2 ok, k3 ok", "k9 ok"], "1.1 3.1"));
    assert_eq!((hole.holes, hole.fates[&Fate::Lost]), (1, 2));
    assert!(hole.finding.evidence.iter().any(|text| text.contains("the later operation 2 is durable")));
    // What was written when the database was back is no hole in the log before.
    let mut back = seen(&["k1 ok, k2 ok, k3 ok"], "1.1 3.1");
    back.injections = vec![Injection {
        rule: "kill a".into(),
        at: back.history.entries[2].began,
        uncertainty: Duration::ZERO,
        undone: None,
        effect: Effect::Fired { count: 1 },
        outages: vec![],
    }];
    let balance = Ledger::default().settle(&back);
    assert_eq!((balance.holes, balance.fates[&Fate::Lost]), (0, 1));
}

#[test]
fn loaded_keys_are_neither_phantoms_nor_forgotten() {
    let ledger = Ledger { loaded: 10..13, ..Ledger::default() };
    let fine = ledger.settle(&seen(&["k1 ok, k12 no"], "1.1 10.0 11.0 12.0"));
    assert_eq!(fine.finding.verdict, Verdict::Valid, "{:?}", fine.finding);
    let back = ledger.settle(&seen(&["k12 ok"], "10.0 11.0 12.0"));
    assert_eq!(back.fates[&Fate::RolledBack], 1);
    let lost = ledger.settle(&seen(&["k12 ok"], "10.0 12.1"));
    assert_eq!(lost.fates[&Fate::Lost], 1);
    // Found twice, whether anybody wrote to it or not.
    for rows in ["1.1 10.0 10.0 11.0 12.0", "1.1 10.0 11.0 12.0 12.0"] {
        let twice = ledger.settle(&seen(&["k1 ok, k12 no"], rows));
        assert_eq!((twice.finding.verdict, twice.fates[&Fate::Duplicate]), (Verdict::Invalid, 1), "{rows}");
    }
}

#[test]
fn losses_are_charged_to_the_fault_that_follows() {
    // 100 acknowledgements, one a millisecond, the last at 99.5 ms; 60 to 79 and 95 to 99 are gone.
    let text = (0..100).map(|k| format!("k{k} ok")).collect::<Vec<_>>().join(", ");
    let rows: Vec<String> =
        (0..100).filter(|k| !(60..80).contains(k) && *k < 95).map(|k| format!("{k}.1")).collect();
    let mut seen = seen(&[&text], &rows.join(" "));
    seen.injections = vec![crash(80), crash(100), crash(100)];
    seen.injections[2].effect = Effect::Nothing { reason: "already gone".into() };
    let balance = ledger(50, 30).settle(&seen);
    let figures: Vec<_> = balance
        .losses
        .faults
        .iter()
        .map(|f| (f.lost, f.acknowledged_in_window, f.loss_window.map(|w| w.as_micros()), f.had_effect))
        .collect();
    // 60 was acknowledged at 60.5 ms: 19.5 ms before the fault. 95 at 95.5 ms.
    assert_eq!(figures, [(20, 50, Some(19_500), true), (5, 50, Some(4_500), true), (0, 50, None, false)]);
    assert_eq!(balance.losses.faults[0].loss_width, Some(Duration::from_millis(19)));
    assert_eq!((balance.losses.chance.with_loss, balance.losses.chance.faults), (2, 2));
    // What is durable after each loss was written when the database was back.
    assert_eq!(balance.holes, 0);
    let summary = &balance.finding.summary;
    assert!(summary.contains("lost 5 to 20 acknowledged writes per fault in 2 of 2 faults"), "{summary}");
    assert!(summary.contains("window up to 19.5 ms ± 100 us"), "{summary}");
    // A fault whose moment is known worse than its window is long stands back, if there is another.
    let mut losses = balance.losses;
    let mut widest_of = |first_known_to, second_known_to| {
        losses.faults[0].uncertainty = Duration::from_millis(first_known_to);
        losses.faults[1].uncertainty = Duration::from_millis(second_known_to);
        losses.widest().map(|(_, window)| window.as_micros())
    };
    assert_eq!(widest_of(30, 1), Some(4_500));
    assert_eq!(widest_of(30, 30), Some(19_500));
}

/// 100 acknowledgements, one a millisecond; those from 40 to 49 are gone. Which of two faults did it?
#[test]
fn losses_are_charged_to_the_fault_that_can_explain_them() {
    let text = (0..100).map(|k| format!("k{k} ok")).collect::<Vec<_>>().join(", ");
    let rows: Vec<String> = (0..100).filter(|k| !(40..50).contains(k)).map(|k| format!("{k}.1")).collect();
    let fault = |rule: &str, at: u64, until: u64| Injection {
        rule: format!("at {at} ms: {rule}"),
        undone: Some(Tick(until * MS)),
        ..crash(at)
    };
    let cut = "power cut all, restart after 5 ms";
    for (first, second, expected) in [
        // A slow disk loses nothing by itself, before, around and after the cut.
        (fault("slow disk of a by 20 ms for 90 ms", 5, 95), fault(cut, 50, 55), [0, 10]),
        (fault("slow disk of a by 20 ms for 20 ms", 45, 65), fault(cut, 50, 55), [0, 10]),
        (fault("delay a and b by 1 ms for 90 ms", 5, 95), fault(cut, 50, 55), [0, 10]),
        (fault("squeeze cpu of a to 10 % for 90 ms", 5, 95), fault(cut, 70, 75), [0, 10]),
        // One that died before loses nothing that is acknowledged while it is away, if another dies just
        // then.
        (fault("kill b, restart after 90 ms", 5, 95), fault(cut, 50, 55), [0, 10]),
        // While two sides are apart each acknowledges what the other will not keep, whoever dies then.
        (fault("cut a from b for 90 ms", 5, 95), fault(cut, 50, 55), [10, 0]),
        // A disk that is full makes a server give up at some time while it is.
        (
            fault("fill disk of a for 90 ms", 5, 95),
            fault("slow disk of a by 1 ms for 10 ms", 50, 60),
            [10, 0],
        ),
        // If there is no other, it is the one that is there.
        (
            fault("slow disk of a by 20 ms for 90 ms", 5, 95),
            fault("jump clock of a back 5 s for 1 ms", 1, 2),
            [10, 0],
        ),
    ] {
        let mut seen = seen(&[&text], &rows.join(" "));
        seen.injections = vec![first, second];
        let lost: Vec<u64> = ledger(20, 1).settle(&seen).losses.faults.iter().map(|f| f.lost).collect();
        assert_eq!(lost, expected, "{:?}", seen.injections);
    }
}

#[test]
fn what_living_nodes_acknowledge_apart_from_each_other_is_at_risk_too() {
    // 40 acknowledgements from 0.5 ms on, one a millisecond; the fault lasts from 5 ms to 30 ms.
    let text = (0..40).map(|k| format!("k{k} ok")).collect::<Vec<_>>().join(", ");
    let rows: Vec<String> = (0..40).map(|k| format!("{k}.1")).collect();
    let of = |rule: &str| {
        let mut seen = seen(&[&text], &rows.join(" "));
        let mut fault = crash(5);
        (fault.rule, fault.undone) = (rule.into(), Some(Tick(30 * MS)));
        seen.injections = vec![fault];
        ledger(50, 20).settle(&seen)
    };
    let cut = of("at 5 ms: cut c from rest for 25 ms");
    let figures = &cut.losses.faults[0];
    assert_eq!((figures.acknowledged_in_window, figures.acknowledged_apart, figures.exposed()), (5, 25, 30));
    assert_eq!(cut.finding.verdict, Verdict::Valid);
    assert!(cut.finding.summary.contains("at least 30 acknowledged in the 50 ms before each or during it"));
    // Whoever is dead acknowledges nothing, and the others' acknowledgements are not at risk from that.
    let kill = of("at 5 ms: kill c, restart after 25 ms");
    assert_eq!(kill.losses.faults[0].exposed(), 5);
    assert_eq!(kill.finding.verdict, Verdict::NoEvidence);
    assert!(kill.finding.summary.contains("no evidence"), "{}", kill.finding.summary);
}

#[test]
fn an_old_primary_that_goes_on_acknowledging_is_charged_to_its_own_fault() {
    let mut cut = crash(2);
    (cut.rule, cut.undone) = ("at 2 ms: cut a from b for 18 ms".into(), Some(Tick(20 * MS)));
    let mut seen = seen(&["k1 ok, k2 ok, k3 ok, k4 ok, k5 ok"], "1.1 2.1");
    seen.injections = vec![cut, crash(1000)];
    let balance = Ledger::default().settle(&seen);
    assert_eq!(balance.losses.faults.iter().map(|fault| fault.lost).collect::<Vec<_>>(), [3, 0]);
    assert_eq!(balance.losses.faults[0].loss_window, Some(Duration::ZERO));
    assert_eq!(balance.losses.faults[0].loss_width, Some(Duration::from_millis(2)));
}

#[test]
fn zero_lost_is_an_upper_bound_and_too_few_are_no_evidence() {
    let text = (0..300).map(|k| format!("k{k} ok")).collect::<Vec<_>>().join(", ");
    let rows = (0..300).map(|k| format!("{k}.1")).collect::<Vec<_>>().join(" ");
    let mut seen = seen(&[&text], &rows);
    seen.injections = (1..=30).map(|n| crash(100 + n)).collect();
    let balance = Ledger::default().settle(&seen);
    assert_eq!(balance.finding.verdict, Verdict::Valid);
    assert_eq!((balance.losses.chance.faults, balance.losses.chance.least_acknowledged), (30, 100));
    assert!((balance.losses.chance.high - 0.095).abs() < 1e-3);
    let summary = &balance.finding.summary;
    assert!(summary.contains("0 acknowledged writes lost in 30 faults with at least 100"), "{summary}");
    assert!(summary.contains("less than 9.5 % of faults, 95 %"), "{summary}");
    // The same faults where nothing was acknowledged before them.
    seen.injections = vec![crash(10), crash(900)];
    let balance = Ledger::default().settle(&seen);
    assert_eq!(balance.finding.verdict, Verdict::NoEvidence);
    assert!(balance.finding.summary.contains("no evidence"), "{}", balance.finding.summary);
    assert_eq!(balance.losses.chance.high, 1.0);
}

#[test]
fn a_fault_that_never_fired_is_not_tested() {
    let mut seen = seen(&["k1 ok"], "1.1");
    seen.injections = vec![crash(1)];
    seen.injections[0].effect = Effect::Fired { count: 0 };
    let ledger = ledger(100, 1);
    assert_eq!(judge(&[&ledger], &seen).verdict, Verdict::NotTested);
}

#[test]
fn replicas_and_second_readings_are_compared() {
    let mut seen = seen(&["k1 ok, k2 ok"], "1.1 2.1");
    seen.injections = vec![crash(1)];
    let replica = |pass, rows| scan(Source::Replica("b".into()), pass, rows);
    seen.keys.extend([replica(1, "1.1"), replica(2, "1.1 2.1")]);
    let balance = ledger(100, 1).settle(&seen);
    // They agree from the second reading on, which was complete at 21 s; the fault was at 1 ms.
    assert_eq!(balance.replicas_agree, Some(Duration::from_millis(20_999)));
    assert_eq!((balance.replicas_differ, balance.finding.verdict), (0, Verdict::Valid));
    seen.keys[3] = replica(2, "1.1");
    let balance = Ledger::default().settle(&seen);
    assert_eq!((balance.replicas_agree, balance.replicas_differ), (None, 1));
    assert_eq!(balance.finding.verdict, Verdict::Unknown);
    // What comes and goes.
    seen.keys = vec![scan(Source::Survivors, 1, "1.1"), scan(Source::Survivors, 2, "1.1 2.1")];
    let balance = Ledger::default().settle(&seen);
    assert_eq!((balance.unstable, balance.finding.verdict), (1, Verdict::Unknown));
    seen.keys.swap(0, 1);
    (seen.keys[0].pass, seen.keys[1].pass) = (1, 2);
    let balance = Ledger::default().settle(&seen);
    assert_eq!((balance.unstable, balance.finding.verdict), (1, Verdict::Invalid));
}

#[test]
fn nothing_read_and_no_order_are_unknown() {
    let mut seen = seen(&["k1 ok"], "1.1");
    seen.keys.clear();
    assert_eq!(Ledger::default().settle(&seen).finding.verdict, Verdict::Unknown);
    assert_eq!(Ledger::default().settle(&Observation::default()).finding.verdict, Verdict::NoEvidence);
    // Two clients write one key.
    assert_eq!(fates(&["k1 ok", "k1 ok"], "1.1").0, Verdict::Unknown);
}

proptest! {
    /// Whatever happened, every write gets exactly one fate, and guilt is there exactly when something is
    /// found that the outcomes do not allow.
    #[test]
    fn every_write_has_one_fate(
        outcomes in proptest::collection::vec((0..4u64, 0..3usize), 1..12),
        rows in proptest::collection::vec((0..5u64, 1..4u64, any::<bool>()), 0..6),
    ) {
        let words: Vec<String> =
            outcomes.iter().map(|(key, o)| format!("k{key} {}", ["ok", "??", "no"][*o])).collect();
        let found: Vec<String> = rows
            .iter()
            .map(|(key, sequence, intact)| format!("{key}.{sequence}{}", if *intact { "" } else { "!" }))
            .collect();
        let seen = seen(&[&words.join(",")], &found.join(" "));
        let balance = Ledger::default().settle(&seen);
        let phantoms_of_nobody =
            rows.iter().filter(|(key, ..)| !outcomes.iter().any(|(k, _)| k == key)).count() as u64;
        let total: u64 = balance.fates.values().sum();
        prop_assert_eq!(total, outcomes.len() as u64 + phantoms_of_nobody);
        let guilty = balance.fates.keys().any(|fate| fate.is_guilty());
        prop_assert_eq!(guilty, balance.finding.verdict == Verdict::Invalid);
        let acknowledged = outcomes.iter().filter(|(_, o)| *o == 0).count();
        if rows.is_empty() && acknowledged > 0 {
            prop_assert!(guilty);
        }
    }
}

#[test]
fn what_follows_the_end_of_a_history_that_was_cut_short_is_no_phantom() {
    let mut observation = seen(&["k1 ok, k2 ok"], "1.1 2.1");
    for scan in &mut observation.keys {
        // A key that nobody wrote, and a later write of one that somebody did.
        scan.rows.push((9, Version::of(9, 1)));
        scan.rows[1].1 = Version::of(2, 2);
    }
    let phantom = judge(&[&Ledger::default()], &observation);
    assert_eq!(phantom.verdict, Verdict::Invalid);
    observation.history.is_cut_short = true;
    let balance = Ledger::default().settle(&observation);
    assert_eq!(balance.finding.verdict, Verdict::Valid, "{:?}", balance.finding.evidence);
    assert_eq!(balance.finding.counted(AFTER_THE_END), 1);
    assert_eq!(balance.fates[&Fate::Overwritten], 1);
    let judged = judge(&[&Ledger::default()], &observation);
    assert!(judged.findings[0].summary.contains("no end"), "{:?}", judged.findings[0]);
    // Bytes that no client writes are corrupt all the same.
    observation.keys.iter_mut().for_each(|scan| scan.rows[2].1.payload ^= 1);
    assert_eq!(Ledger::default().settle(&observation).finding.verdict, Verdict::Invalid);
}
