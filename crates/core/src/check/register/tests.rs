use super::*;
use crate::check::{History, KeyScan, Source};
use crate::op::{Failure, Fields};
use crate::units::Tick;
use crate::workload::Random;

fn write_of(record: u64, client: u32, version: u64, times: (u64, u64), outcome: Outcome) -> Entry {
    let op = Op::Update { record, fields: Fields::All, version };
    let sent = Entry::sent(client, u64::from(client), op, Tick(times.0));
    Entry { ended: Some(Tick(times.1)), outcome, ..sent }
}

fn write(client: u32, value: u64, times: (u64, u64), outcome: Outcome) -> Entry {
    write_of(1, client, value, times, outcome)
}

fn read_of(record: u64, client: u32, value: u64, times: (u64, u64)) -> Entry {
    let found = (value > 0).then(|| Version::of(record, value));
    let sent =
        Entry::sent(client, u64::from(client), Op::Read { record, fields: Fields::All }, Tick(times.0));
    Entry { ended: Some(Tick(times.1)), outcome: Outcome::Done, answer: Returned::Value(found), ..sent }
}

fn read(client: u32, value: u64, times: (u64, u64)) -> Entry {
    read_of(1, client, value, times)
}

fn check(entries: Vec<Entry>) -> Finding {
    let history = History { entries, ..History::default() };
    Register.check(&Observation { history, ..Observation::default() })
}

const DONE: Outcome = Outcome::Done;
const UNKNOWN: Outcome = Outcome::Unknown(Failure::Timeout);

#[test]
fn the_textbook_cases() {
    // A stale read: 2 was written after 1 had ended, and 1 is read afterwards.
    let stale = vec![write(0, 1, (1, 2), DONE), write(0, 2, (3, 4), DONE), read(1, 1, (5, 6))];
    let finding = check(stale.clone());
    assert_eq!(finding.verdict, Verdict::Invalid);
    assert!(finding.evidence[0].contains("read 1"), "{:?}", finding.evidence);
    // With the second write open, the same read is fine.
    let mut open = stale.clone();
    open[1].outcome = UNKNOWN;
    assert_eq!(check(open.clone()).verdict, Verdict::Valid);
    // Unless somebody has seen it before.
    open.push(read(2, 2, (4, 5)));
    open[2].began = Tick(6);
    open[2].ended = Some(Tick(7));
    assert_eq!(check(open).verdict, Verdict::Invalid);
    // Reads that go back.
    let back =
        vec![write(0, 1, (1, 2), DONE), write(0, 2, (3, 9), DONE), read(1, 2, (4, 5)), read(1, 1, (6, 7))];
    assert_eq!(check(back).verdict, Verdict::Invalid);
    // Nothing is read after an acknowledged write.
    assert_eq!(check(vec![write(0, 1, (1, 2), DONE), read(1, 0, (3, 4))]).verdict, Verdict::Invalid);
    assert_eq!(check(vec![write(0, 1, (1, 4), DONE), read(1, 0, (3, 4))]).verdict, Verdict::Valid);
    // A refused write is seen; the future is seen; what nobody wrote is seen.
    let refused = Outcome::Refused(Failure::Conflict);
    let seen = check(vec![write(0, 1, (1, 2), refused), read(1, 1, (3, 4))]);
    assert_eq!(seen.counted("read of a refused write"), 1);
    let seen = check(vec![write(0, 1, (5, 6), DONE), read(1, 1, (3, 4))]);
    assert_eq!(seen.counted("read of the future"), 1);
    assert_eq!(check(vec![write(0, 1, (1, 2), DONE), read(1, 7, (3, 4))]).verdict, Verdict::Invalid);
    // Values that are written twice decide nothing.
    let twice = vec![write(0, 1, (1, 2), DONE), write(0, 1, (3, 4), DONE), read(1, 1, (5, 6))];
    assert_eq!(check(twice).verdict, Verdict::Unknown);
    assert_eq!(check(vec![]).verdict, Verdict::NoEvidence);
}

/// The same with a final reading: what was acknowledged is lost at the end, and no client looked again.
#[test]
fn final_readings_are_the_last_reads_of_all() {
    let seen = |rows: Vec<(u64, u64)>, entries: Vec<Entry>| {
        let rows = rows.into_iter().map(|(k, n)| (k, Version::of(k, n))).collect();
        let keys = vec![KeyScan { source: Source::Survivors, pass: 1, at: Tick(100), rows }];
        let history = History { entries, ..History::default() };
        Register.check(&Observation { history, keys, ..Observation::default() })
    };
    let honest = || vec![write(0, 1, (1, 2), DONE), read(1, 1, (3, 4)), write(0, 2, (5, 6), DONE)];
    assert_eq!(seen(vec![(1, 2)], honest()).verdict, Verdict::Valid);
    for lost in [vec![(1, 1)], vec![], vec![(1, 2), (1, 2)], vec![(1, 7)]] {
        assert_eq!(seen(lost.clone(), honest()).verdict, Verdict::Invalid, "{lost:?}");
    }
    // They are no reads of clients, and a read of one key says nothing of another.
    assert_eq!(seen(vec![(1, 1)], vec![write(0, 1, (1, 2), DONE)]).verdict, Verdict::NoEvidence);
    assert_eq!(
        seen(vec![], vec![write(0, 1, (1, 2), UNKNOWN), read(1, 0, (3, 4))]).verdict,
        Verdict::NoEvidence
    );
    let mut other = read(1, 0, (3, 4));
    other.op = Op::Read { record: 2, fields: Fields::All };
    assert_eq!(seen(vec![(1, 1)], vec![write(0, 1, (1, 2), DONE), other]).verdict, Verdict::NoEvidence);
    // Bytes without a number are nothing that anybody wrote.
    let bare = Entry {
        answer: Returned::Value(Some(Version { key_sequence: 0, payload: 9 })),
        ..read(1, 0, (0, 0))
    };
    assert_eq!(check(vec![bare, write(0, 1, (1, 2), DONE), read(1, 1, (3, 4))]).verdict, Verdict::Invalid);
}

/// By trying everything: is there an order that respects time and explains every read?
pub(in crate::check) fn brute_force(entries: &[Entry]) -> bool {
    fn go(entries: &[Entry], done: u32, value: u64, seen: &mut HashMap<(u32, u64), bool>) -> bool {
        if let Some(known) = seen.get(&(done, value)) {
            return *known;
        }
        let open = |i: usize| done & (1 << i) == 0;
        let all_required = (0..entries.len()).all(|i| !open(i) || entries[i].outcome != Outcome::Done);
        let result = all_required
            || (0..entries.len()).any(|i| {
                // Only an operation that begins before every other open one has ended may come next.
                let may = open(i)
                    && !matches!(entries[i].outcome, Outcome::Refused(_))
                    && (0..entries.len())
                        .all(|j| j == i || !open(j) || end_of(&entries[j]) >= entries[i].began.0);
                may && match (entries[i].op.written(), &entries[i].answer) {
                    (Some((_, key_sequence)), _) => go(entries, done | 1 << i, key_sequence, seen),
                    (_, Returned::Value(found)) => {
                        found.map_or(0, |version| version.key_sequence) == value
                            && go(entries, done | 1 << i, value, seen)
                    }
                    _ => false,
                }
            });
        seen.insert((done, value), result);
        result
    }
    go(entries, 0, 0, &mut HashMap::new())
}

fn random_history(seed: u64) -> Vec<Entry> {
    let mut random = Random::new(seed, 0);
    let (writes, reads) = (1 + random.below(4), 1 + random.below(4));
    let span = 6 + random.below(14);
    let times = |random: &mut Random| {
        let began = random.below(span);
        (began, began + random.below(7))
    };
    let mut entries = Vec::new();
    for value in 1..=writes {
        let outcome = match random.below(8) {
            0..2 => UNKNOWN,
            2 => Outcome::Refused(Failure::Conflict),
            _ => DONE,
        };
        let times = times(&mut random);
        entries.push(write(entries.len() as u32, value, times, outcome));
    }
    for _ in 0..reads {
        let (value, times) = (random.below(writes + 1), times(&mut random));
        entries.push(read(entries.len() as u32, value, times));
    }
    entries
}

#[test]
fn zones_agree_with_trying_everything() {
    let (mut valid, mut invalid) = (0, 0);
    for seed in 0..60_000 {
        let entries = random_history(seed);
        let expected = brute_force(&entries);
        let found = check(entries.clone()).verdict;
        // Where no write took effect that anybody read about, what is linearizable says nothing.
        let agrees = if expected { found <= Verdict::NoEvidence } else { found == Verdict::Invalid };
        assert!(agrees, "seed {seed}: {found:?} {entries:#?}");
        if expected { valid += 1 } else { invalid += 1 }
    }
    assert!(valid > 5_000 && invalid > 5_000, "{valid} valid, {invalid} not: too one-sided to mean much");
}

/// A register whose operations take effect at a random moment between beginning and end: linearizable by
/// construction. With `stale`, one read in a hundred returns what was there two writes ago.
fn long_history(seed: u64, operations: u64, keys: u64, stale: bool) -> Vec<Entry> {
    let mut random = Random::new(seed, 1);
    let mut effects: Vec<(u64, u64, u64)> = Vec::new();
    for n in 0..operations {
        let began = n * 10 + random.below(10);
        effects.push((began + random.below(60), n, began));
    }
    effects.sort_unstable();
    let mut values: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut entries = Vec::new();
    for (effect, n, began) in effects {
        let key = random.below(keys);
        let times = (began, effect + random.below(60));
        let here = values.entry(key).or_default();
        let mut entry = if random.below(2) == 0 {
            let lost = random.below(50) == 0;
            let outcome = if lost { UNKNOWN } else { DONE };
            let value = n + 1;
            if !lost || random.below(2) == 0 {
                here.push(value);
            }
            write_of(key, 0, value, times, outcome)
        } else {
            let back = if stale && random.below(100) == 0 { 3 } else { 1 };
            let value = here.len().checked_sub(back).map_or(0, |at| here[at]);
            read_of(key, 0, value, times)
        };
        entry.sequence = n;
        entries.push(entry);
    }
    entries
}

#[test]
fn a_million_operations_are_judged() {
    let finding = check(long_history(1, 1_000_000, 1000, false));
    assert_eq!(finding.verdict, Verdict::Valid, "{:?}", finding.evidence);
    // But for the writes without an answer that nobody saw.
    let counted = finding.counted("reads") + finding.counted("writes");
    assert!((980_000..=1_000_000).contains(&counted), "{counted}");
    // All on one key, and one that lies.
    assert_eq!(check(long_history(2, 200_000, 1, false)).verdict, Verdict::Valid);
    let guilty = check(long_history(3, 100_000, 10, true));
    assert_eq!(guilty.verdict, Verdict::Invalid);
    assert!(guilty.evidence.len() <= 3);
}
