//! Honest budgets close, planted culprits do not, and nothing at all proves nothing.

use super::*;
use crate::metric::{Sample, name as metric};
use crate::units::Tick;

const MS: u64 = 1_000_000;

/// Values by metric name.
type Counted<'a> = &'a [(&'a str, f64)];
/// What is said instead, or that nothing is said.
type Lies<'a> = &'a [(&'a str, Option<f64>)];

/// Counters of a window of ten seconds, read in one go at either end.
fn account(grown: &[(&str, f64)]) -> Account {
    apart(grown, 0)
}

/// The same, with `ms` between the first and the last witness at the end.
fn apart(grown: &[(&str, f64)], ms: u64) -> Account {
    // What only grows begins anywhere.
    let level = |name: &str| {
        [metric::ENGINE_DIRECT_IO, metric::ENGINE_JOURNAL_BLOCK_BYTES, metric::ENGINE_STATISTICS_AGE_MS]
            .contains(&name)
    };
    let begins = |name: &str| if level(name) { 0.0 } else { 7e6 };
    let sample = |at: u64, spread: u64, share: f64| Sample {
        begin: Tick(at),
        end: Tick(at + spread),
        values: grown.iter().map(|(name, n)| (name.to_string(), begins(name) + n * share)).collect(),
    };
    Account::of([&sample(0, 0, 0.0)], [&sample(10_000 * MS - ms * MS, ms * MS, 1.0)])
}

/// With some of it counted otherwise, or by nobody.
fn but(honest: &[(&'static str, f64)], lies: &[(&str, Option<f64>)]) -> Vec<(&'static str, f64)> {
    let lie = |name: &str| lies.iter().find(|(liar, _)| *liar == name).map(|(_, value)| *value);
    honest.iter().filter_map(|(name, value)| Some((*name, lie(name).unwrap_or(Some(*value))?))).collect()
}

/// A server that missed 1 GB: the page cache had 70 % of it.
const READ: [(&str, f64); 6] = [
    (metric::ENGINE_FILE_READ_BYTES, 1e9),
    (metric::PROCESS_ASKED_READ_BYTES, 1.001e9),
    (metric::PROCESS_DEVICE_READ_BYTES, 3e8),
    (metric::DEVICE_READ_BYTES, 3e8),
    (metric::DISK_READ_BYTES, 3e8),
    (metric::GROUP_DEVICE_READ_BYTES, 3e8),
];

/// PostgreSQL as measured on a shaped disk: 24,527 updates in 15 s.
const POSTGRES: [(&str, f64); 14] = [
    (metric::ENGINE_JOURNAL_BYTES, 304.1e6),
    (metric::ENGINE_PAGE_IMAGE_BYTES, 309.7e6),
    (metric::ENGINE_JOURNAL_WRITES, 11_400.0),
    (metric::ENGINE_JOURNAL_SYNCS, 11_300.0),
    (metric::ENGINE_JOURNAL_BLOCK_BYTES, 8192.0),
    (metric::ENGINE_FILE_WRITE_BYTES, 269.7e6),
    (metric::ENGINE_CHECKPOINT_WRITE_BYTES, 34.5e6),
    (metric::PROCESS_ASKED_WRITE_BYTES, 667.2e6),
    // The kernel counts whole folios as made dirty, of which a log block is a small part.
    (metric::PROCESS_DEVICE_WRITE_BYTES, 904.3e6),
    (metric::DEVICE_WRITE_BYTES, 665.2e6),
    (metric::DISK_WRITE_BYTES, 665.2e6),
    (metric::DISK_WRITE_REQUESTS, 41_900.0),
    (metric::DISK_FLUSH_REQUESTS, 11_400.0),
    (metric::GROUP_DIRTY_BYTES, 3.2e6),
];

/// MariaDB as measured: past the page cache, by io_uring, which is in no write call.
const MARIADB: [(&str, f64); 11] = [
    (metric::ENGINE_JOURNAL_BYTES, 75.39e6),
    (metric::ENGINE_JOURNAL_WRITES, 13_500.0),
    (metric::ENGINE_JOURNAL_BLOCK_BYTES, 512.0),
    (metric::ENGINE_FILE_WRITE_BYTES, 1053.75e6),
    (metric::ENGINE_DOUBLE_WRITE_BYTES, 521.0e6),
    (metric::ENGINE_DIRECT_IO, 1.0),
    (metric::PROCESS_ASKED_WRITE_BYTES, 82.27e6),
    (metric::PROCESS_DEVICE_WRITE_BYTES, 1136.03e6),
    (metric::DEVICE_WRITE_BYTES, 1136.37e6),
    (metric::DISK_WRITE_BYTES, 1136.37e6),
    (metric::DISK_FLUSH_REQUESTS, 14_100.0),
];

/// The embedded WiredTiger as measured: what it writes again within 100 ms never reaches the device.
const WIREDTIGER: [(&str, f64); 8] = [
    (metric::ENGINE_JOURNAL_BYTES, 41.18e6),
    (metric::ENGINE_FILE_WRITE_BYTES, 866.8e6),
    (metric::PROCESS_ASKED_WRITE_BYTES, 908.77e6),
    (metric::PROCESS_DEVICE_WRITE_BYTES, 861.46e6),
    (metric::DEVICE_WRITE_BYTES, 862.1e6),
    (metric::DISK_WRITE_BYTES, 862.1e6),
    (metric::GROUP_DIRTY_BYTES, 3.26e6),
    (metric::GROUP_WRITEBACK_BYTES, -0.45e6),
];

#[test]
fn honest_reads_close() {
    let budget = Budget::reads(&account(&READ));
    assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
    assert!((budget.bytes(Station::PageCache).unwrap() - 7.01e8).abs() < 1.0);
    assert!((budget.amplification(2).unwrap() - 3.0 / 7.01).abs() < 1e-9);
    assert!(budget.residual().unwrap().abs() < 0.0011);
    assert_eq!(budget.checks.len(), 3);
}

#[test]
fn each_lying_witness_of_reads_is_noticed() {
    for (name, value) in [
        (metric::ENGINE_FILE_READ_BYTES, 8e8),
        (metric::ENGINE_FILE_READ_BYTES, 2e9),
        // A process left out.
        (metric::PROCESS_ASKED_READ_BYTES, 8e8),
        // One that was counted twice: by itself, and by its parent when it was gone.
        (metric::PROCESS_ASKED_READ_BYTES, 1.2e9),
        (metric::PROCESS_DEVICE_READ_BYTES, 1e8),
        (metric::DEVICE_READ_BYTES, 4e8),
        (metric::DISK_READ_BYTES, 5e8),
        (metric::GROUP_DEVICE_READ_BYTES, 4e8),
    ] {
        let budget = Budget::reads(&account(&but(&READ, &[(name, Some(value))])));
        assert_eq!(budget.closes, Some(false), "{name} {value}");
        assert!(!budget.evidence.is_empty() && !budget.evidence.contains("agree"), "{}", budget.evidence);
    }
}

#[test]
fn what_was_read_ahead_is_said() {
    let ahead = but(
        &READ,
        &[(metric::ENGINE_FILE_READ_BYTES, Some(2e8)), (metric::PROCESS_ASKED_READ_BYTES, Some(2e8))],
    );
    let budget = Budget::reads(&account(&ahead));
    assert_eq!(budget.closes, Some(false));
    assert!(budget.evidence.contains("100.0 MB were read ahead"), "{}", budget.evidence);
    assert_eq!(budget.steps[2].parts[0].bytes, 1e8);
}

#[test]
fn readings_that_lie_apart_excuse_a_little_and_prove_nothing_when_far_apart() {
    let off = but(&READ, &[(metric::ENGINE_FILE_READ_BYTES, Some(9.5e8))]);
    assert_eq!(Budget::reads(&account(&off)).closes, Some(false));
    assert_eq!(Budget::reads(&apart(&off, 500)).closes, Some(true));
    assert_eq!(Budget::reads(&apart(&off, 2_000)).closes, None);
    // A server whose statistics are old at either end is excused in what it says, its disk is not.
    let mut old = off.clone();
    old.push((metric::ENGINE_STATISTICS_AGE_MS, 500.0));
    assert_eq!(Budget::reads(&account(&old)).closes, Some(true));
    // It is excused for each of several trials, and for no more than in one.
    let (both, twice) = (account(&old).plus(&account(&old)), account(&off).plus(&account(&off)));
    assert_eq!((Budget::reads(&both).closes, Budget::reads(&twice).closes), (Some(true), Some(false)));
    let liar = but(&old, &[(metric::DEVICE_READ_BYTES, Some(3.2e8))]);
    assert_eq!(Budget::reads(&account(&liar)).closes, Some(false));
}

/// Statistics that are a second old in a window of ten: they saw 8 % more operations than were done in it.
#[test]
fn old_statistics_are_read_by_their_operations_which_acquit_and_do_not_accuse() {
    let old = |missed: f64, pages: f64| {
        let reads = but(&READ, &[(metric::ENGINE_FILE_READ_BYTES, Some(missed))]);
        let old = [(metric::ENGINE_STATISTICS_AGE_MS, 1_900.0), (metric::ENGINE_FILE_READS, pages)];
        account(&[reads, old.to_vec()].concat())
    };
    let honest = old(1.08e9, 130_000.0);
    assert_eq!(Budget::reads(&honest).closes, None, "8 % may lie between the readings, or be missing");
    let seen = |account: Account, seen: f64| Budget::reads(&account.with_operations(1e5, seen));
    let budget = seen(honest.clone(), 1.08e5);
    assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
    assert!(budget.evidence.contains("misses by operation"), "{}", budget.evidence);
    assert!(budget.residual().unwrap().abs() < 0.002, "{:?}", budget.checks);
    assert_eq!(budget.bytes(Station::Engine), Some(1.08e9), "what the engine said is shown as it said it");
    // Of two trials together too.
    let both = honest.clone().with_operations(1e5, 1.08e5).plus(&honest.clone().with_operations(1e5, 1.08e5));
    assert_eq!(Budget::reads(&both).closes, Some(true));
    // An engine that misses 8 % more for each operation than anybody gave it is not acquitted ...
    assert_eq!(seen(honest.clone(), 1e5).closes, None);
    // ... nor is one of which the transactions are no operations, or which missed too little to tell.
    assert_eq!(seen(honest, 2.1e5).closes, None);
    assert_eq!(seen(old(1.08e9, 1_000.0), 1.08e5).closes, None);
}

#[test]
fn pages_that_were_made_and_counted_as_read_are_no_reads() {
    let mut counted = but(&READ, &[(metric::ENGINE_FILE_READ_BYTES, Some(1.1e9))]);
    assert_eq!(Budget::reads(&account(&counted)).closes, Some(false));
    counted.push((metric::ENGINE_FILE_MADE_BYTES, 1e8));
    let budget = Budget::reads(&account(&counted));
    assert_eq!(
        (budget.closes, budget.bytes(Station::Engine)),
        (Some(true), Some(1e9)),
        "{}",
        budget.evidence
    );
    assert_eq!(budget.steps[0].parts[0].bytes, 1e8);
    counted.pop();
    counted.push((metric::ENGINE_FILE_MADE_BYTES, -1e8));
    assert_eq!(Budget::reads(&account(&counted)).closes, Some(false), "a truncated file explains nothing");
}

#[test]
fn without_an_independent_witness_nothing_is_claimed() {
    for absent in [metric::PROCESS_DEVICE_READ_BYTES, metric::DEVICE_READ_BYTES, metric::DISK_READ_BYTES] {
        let budget = Budget::reads(&account(&but(&READ, &[(absent, None)])));
        assert_eq!(budget.closes, None, "{absent}: {}", budget.evidence);
        assert!((6.9e8..7.1e8).contains(&budget.bytes(Station::PageCache).unwrap()), "{absent}");
    }
}

#[test]
fn nothing_at_all_is_not_accounted() {
    let silent = but(&READ, &[(metric::ENGINE_FILE_READ_BYTES, None)]);
    for account in [
        Account::default(),
        account(&silent),
        account(&but(&POSTGRES, &[(metric::ENGINE_FILE_WRITE_BYTES, None)])),
    ] {
        for budget in [Budget::reads(&account), Budget::writes(&account, Some(1e6))] {
            assert_eq!(budget.closes, None);
            assert_eq!(budget.residual(), None);
            assert!(budget.evidence.starts_with("not accounted: "), "{}", budget.evidence);
            assert!(!budget.is_accounted());
        }
    }
    let idle: Vec<(&str, f64)> = POSTGRES.iter().map(|(name, _)| (*name, 0.0)).collect();
    let budget = Budget::writes(&account(&idle), Some(0.0));
    assert_eq!(
        (budget.closes, budget.evidence.as_str()),
        (None, "not accounted: next to nothing was written")
    );
}

/// A hundred per cent of next to nothing closes, and would be read as an error.
#[test]
fn a_residual_of_a_few_pages_is_told_in_bytes() {
    let of = |one: f64, other: f64| {
        let checks = vec![Agreement::of("a and b", one, other, 0.0, |_| "no".into())];
        let budget = Budget::of(Way::Reads, vec![], checks, "they agree", "");
        budget.residual_in_words().unwrap()
    };
    assert_eq!(of(0.0, 45_056.0), "all but 45.1 kB");
    assert_eq!(of(1e9, 1.013e9), "residual -1.3 %");
    assert_eq!(of(1e9, 1.5e9), "residual -33.3 %", "what does not close is told as a share");
}

#[test]
fn honest_writes_close_on_each_engine() {
    for (name, engine) in
        [("postgres", &POSTGRES[..]), ("mariadb", &MARIADB[..]), ("wiredtiger", &WIREDTIGER[..])]
    {
        let budget = Budget::writes(&account(engine), Some(24.5e6));
        assert_eq!(budget.closes, Some(true), "{name}: {}", budget.evidence);
        assert!(budget.residual().unwrap().abs() < 0.01, "{name}: {:?}", budget.checks);
        let order: Vec<Station> = budget.steps.iter().map(|step| step.station).collect();
        use Station::{Device, Engine, Journal, PageCache, User};
        assert_eq!(order, [User, Journal, Engine, PageCache, Device]);
    }
}

#[test]
fn each_step_has_its_amplification_and_its_parts() {
    let budget = Budget::writes(&account(&POSTGRES), Some(24.5e6));
    assert_eq!(budget.amplification(0), None);
    assert!((budget.amplification(1).unwrap() - 304.1 / 24.5).abs() < 1e-9);
    let part = |station, what: &str| {
        let parts = &budget.step(station).unwrap().parts;
        parts.iter().find(|part| part.what == what).map(|part| part.bytes)
    };
    assert_eq!(part(Station::Journal, "page images"), Some(309.7e6));
    let again = part(Station::Engine, "journal blocks written again").unwrap();
    assert!((again - 11_400.0 * 8192.0).abs() < 1.0);
    assert_eq!(part(Station::PageCache, "waiting, more than before"), Some(3.2e6));
    assert_eq!(budget.step(Station::Device).unwrap().flushes, Some(11_400.0));
    let unknown = Budget::writes(&account(&POSTGRES), None);
    assert_eq!(unknown.amplification(1), None, "nobody said what the user wrote");
    assert!((unknown.amplification(2).unwrap() - 2.19).abs() < 0.01);
    assert_eq!(unknown.closes, Some(true), "which bytes were the user's does not change where they went");
}

#[test]
fn each_culprit_among_writers_is_noticed() {
    use metric as m;
    let culprits: [(&str, Counted<'_>, Lies<'_>); 8] = [
        ("data files counted twice", &POSTGRES, &[(m::ENGINE_FILE_WRITE_BYTES, Some(539.4e6))]),
        ("a process left out", &POSTGRES, &[(m::PROCESS_ASKED_WRITE_BYTES, Some(630e6))]),
        ("a process that ended counted twice", &POSTGRES, &[(m::PROCESS_ASKED_WRITE_BYTES, Some(700e6))]),
        (
            "a writer in nobody's account",
            &POSTGRES,
            &[(m::DISK_WRITE_BYTES, Some(700e6)), (m::DEVICE_WRITE_BYTES, Some(700e6))],
        ),
        ("the disk's own count", &POSTGRES, &[(m::DISK_WRITE_BYTES, Some(640e6))]),
        ("double writes counted nowhere", &MARIADB, &[(m::ENGINE_FILE_WRITE_BYTES, Some(532.7e6))]),
        ("writes past the counters", &MARIADB, &[(m::PROCESS_DEVICE_WRITE_BYTES, Some(1000e6))]),
        ("a journal that is not counted", &WIREDTIGER, &[(m::ENGINE_JOURNAL_BYTES, None)]),
    ];
    for (culprit, honest, lies) in culprits {
        let honest: Vec<(&'static str, f64)> =
            honest.iter().map(|(name, n)| (static_name(name), *n)).collect();
        let budget = Budget::writes(&account(&but(&honest, lies)), None);
        assert_eq!(budget.closes, Some(false), "{culprit}: {}", budget.evidence);
    }
}

/// Metric names are constants; this finds the one that is meant.
fn static_name(name: &str) -> &'static str {
    let all = POSTGRES.iter().chain(&MARIADB).chain(&WIREDTIGER);
    all.map(|(known, _)| *known).find(|known| *known == name).unwrap()
}

#[test]
fn a_journal_of_new_files_and_a_file_system_that_commits_are_named() {
    let mut fresh = but(
        &POSTGRES,
        &[
            (metric::PROCESS_ASKED_WRITE_BYTES, Some(735e6)),
            (metric::DISK_WRITE_BYTES, Some(732e6)),
            (metric::DEVICE_WRITE_BYTES, Some(732e6)),
        ],
    );
    fresh.push((metric::ENGINE_JOURNAL_FILES_BYTES, 67.1e6));
    let budget = Budget::writes(&account(&fresh), None);
    assert_eq!(budget.closes, Some(false));
    assert!(budget.evidence.contains("67.1 MB of new files"), "{}", budget.evidence);

    let mut journalled = but(
        &WIREDTIGER,
        &[(metric::DISK_WRITE_BYTES, Some(920e6)), (metric::DEVICE_WRITE_BYTES, Some(920e6))],
    );
    journalled.push((metric::FILESYSTEM_COMMITS, 6_400.0));
    let budget = Budget::writes(&account(&journalled), None);
    assert_eq!(budget.closes, Some(false));
    assert!(budget.evidence.contains("committed 6400 times"), "{}", budget.evidence);
}

#[test]
fn accounts_add_up_and_what_one_lacks_the_sum_lacks() {
    let both = account(&READ).plus(&account(&but(&READ, &[(metric::GROUP_DEVICE_READ_BYTES, None)])));
    assert_eq!(both.grown(metric::ENGINE_FILE_READ_BYTES), Some(2e9));
    assert_eq!(both.grown(metric::GROUP_DEVICE_READ_BYTES), None);
    assert_eq!(both.seconds(), 20.0);
    assert_eq!(Budget::reads(&both).closes, Some(true));
}

#[test]
fn a_server_that_was_started_again_makes_no_budget_false_and_says_so() {
    let starts = |times: f64| (metric::PROCESS_SERVER_STARTS, times);
    // What it counted before is gone: of a gigabyte that the disk served it knows a tenth.
    let lies: Lies<'_> = &[(metric::ENGINE_FILE_READ_BYTES, Some(1e8))];
    let reads = |times| Budget::reads(&account(&[&but(&READ, lies)[..], &[starts(times)]].concat()));
    assert_eq!(reads(0.0).closes, Some(false));
    let told = reads(1.0);
    assert_eq!((told.closes, told.is_accounted()), (None, true), "{told:?}");
    assert!(told.evidence.contains("started again once meanwhile"), "{}", told.evidence);
    assert_eq!(told.bytes(Station::Engine), None, "nobody knows what it missed");
    assert_eq!(told.bytes(Station::Device), Some(3e8));
    let writes = Budget::writes(&account(&[&POSTGRES[..], &[starts(2.0)]].concat()), None);
    assert_eq!(writes.closes, None);
    assert!(writes.evidence.contains("2 times"), "{}", writes.evidence);
}

#[test]
fn what_another_tenant_did_is_told_apart_and_what_it_did_not_say_is_missed() {
    let more = |honest: Counted<'_>, names: [&str; 2], bytes: f64| -> Vec<(&'static str, f64)> {
        let known =
            |name: &str| READ.iter().chain(&POSTGRES).map(|(known, _)| *known).find(|known| *known == name);
        let grown = |name: &str| if names.contains(&name) { bytes } else { 0.0 };
        honest.iter().map(|(name, n)| (known(name).unwrap(), n + grown(name))).collect()
    };
    let mut read = more(&READ, [metric::DEVICE_READ_BYTES, metric::DISK_READ_BYTES], 2e8);
    assert_eq!(Budget::reads(&account(&read)).closes, Some(false), "somebody reads in nobody's account");
    read.push((metric::TENANT_READ_BYTES, 2e8));
    let budget = Budget::reads(&account(&read));
    assert_eq!((budget.closes, budget.bytes(Station::Device)), (Some(true), Some(3e8)));
    assert_eq!(budget.step(Station::Device).unwrap().parts.last().unwrap().bytes, 2e8);

    let mut written = more(&POSTGRES, [metric::DEVICE_WRITE_BYTES, metric::DISK_WRITE_BYTES], 1e9);
    assert_eq!(Budget::writes(&account(&written), None).closes, Some(false));
    written.push((metric::TENANT_WRITE_BYTES, 1e9));
    let budget = Budget::writes(&account(&written), None);
    assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
}

#[test]
fn what_was_copied_to_make_another_node_anew_is_accounted_for() {
    // A primary with everything in its cache, of which a new standby takes 250 MB of files: half of them from
    // the page cache.
    let copied = [
        (metric::ENGINE_FILE_READ_BYTES, 0.0),
        (metric::PROCESS_ASKED_READ_BYTES, 2.5e8),
        (metric::PROCESS_DEVICE_READ_BYTES, 1.25e8),
        (metric::DEVICE_READ_BYTES, 1.25e8),
        (metric::DISK_READ_BYTES, 1.25e8),
    ];
    let budget = Budget::reads(&account(&copied));
    assert_eq!((budget.closes, budget.residual()), (Some(false), Some(-1.0)));
    let told = [&copied[..], &[(metric::PROCESS_COPIED_BYTES, 2.49e8)]].concat();
    let budget = Budget::reads(&account(&told));
    assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
    assert_eq!(budget.bytes(Station::Engine), Some(2.49e8));
    assert_eq!(budget.steps[0].parts[0].bytes, 2.49e8);
    let liar = [&copied[..], &[(metric::PROCESS_COPIED_BYTES, 1e8)]].concat();
    assert_eq!(Budget::reads(&account(&liar)).closes, Some(false));
}
