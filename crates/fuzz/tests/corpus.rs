//! What fuzzing found is replayed, and lengths that a hostile writer would choose cost no memory.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tipover_fuzz::{TARGETS, Target, corpus};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// What one test allocates, a panic's backtrace for instance, would be counted in another.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn every_target_reads_its_corpus() {
    let _alone = alone();
    let mut inputs = 0;
    for target in TARGETS {
        let packed = std::fs::read(folder().join(target.name)).unwrap_or_default();
        let kept = corpus::unpack(&packed).unwrap_or_else(|| panic!("{} has no corpus", target.name));
        assert!(!kept.is_empty(), "{} has an empty corpus", target.name);
        inputs += kept.len();
        for input in kept {
            target.try_out(input);
        }
    }
    println!("{inputs} inputs");
}

#[test]
fn every_corpus_has_its_target_and_all_are_small() {
    let _alone = alone();
    let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len(), "no name stands twice");
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder()).unwrap().flatten() {
        assert!(names.contains(entry.file_name().to_str().unwrap()), "{}", entry.path().display());
        bytes += entry.metadata().unwrap().len();
    }
    assert!(bytes < 400 << 10, "{bytes} bytes of corpora");
}

#[test]
fn a_corpus_is_packed_and_unpacked_and_damage_is_seen() {
    let _alone = alone();
    let inputs: [&[u8]; 3] = [b"", b"abc", &[0; 300]];
    let packed = corpus::pack(inputs);
    assert_eq!(corpus::unpack(&packed).unwrap(), inputs);
    assert_eq!(corpus::unpack(&packed[..packed.len() - 1]), None);
    assert_eq!(corpus::unpack(b"text"), None);
}

#[test]
fn a_reader_that_panics_or_takes_too_much_is_convicted() {
    let _alone = alone();
    fn greedy(bytes: &[u8]) {
        let length = u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
        assert!(std::hint::black_box(vec![1u8; length]).len() == length);
    }
    let culprit = Target { name: "culprit", about: "believes a length", read: greedy };
    // The harness frees a little meanwhile.
    assert!(culprit.try_out(&10_000_000u32.to_le_bytes()) >= 9_000_000);
    assert!(
        catch_unwind(|| culprit.try_out(&150_000_000u32.to_le_bytes())).is_err(),
        "150 MB for four bytes"
    );
    assert!(catch_unwind(|| culprit.try_out(b"abc")).is_err(), "a panic is one");
}

/// Few bytes that claim to be many: nobody may take memory on a claim.
#[test]
fn a_length_costs_nothing_before_its_bytes_are_there() {
    let _alone = alone();
    // Over the whole way from four bytes to memory, buffers of sockets and tables of histograms included.
    const MOST: usize = 1 << 20;
    let most = u32::MAX.to_le_bytes();
    // A greeting that needs no password, then a row: how long it is, how many columns.
    let postgres = |length: u32| [b"\x02T\0\0\0\x06\0\0D", &length.to_be_bytes()[..], b"\xff\xff"].concat();
    let mysql = [b"\x02\x09\0\0\x01\xfe", &[0xff; 8][..], b"\x02\0\0\x02\x01x"].concat();
    let mongodb = [&47_000_000i32.to_le_bytes()[..], &[0; 8], &2013i32.to_le_bytes(), &[0; 9]].concat();
    let history = [b"\0TIPHIST1", &[0xff, 0xff, 0xff, 0x1f][..]].concat();
    let bodies = [&[1, 13, 0, 1, 1, 0, 0, 4][..], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]].concat();
    let trace = [&[1, 9, 1][..], &[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0]].concat();
    let frame = [&b"\0TIPTRACE\x01\0"[..], &[0; 22], &[1, 0, 0, 0], &most, &[0; 8]].concat();
    for (name, bytes) in [
        ("postgres", postgres(60_000_000)),
        ("postgres", postgres(u32::MAX)),
        ("mysql", mysql),
        ("mongodb", mongodb),
        ("history", history),
        ("history", bodies),
        ("trace", trace),
        ("trace", frame),
    ] {
        let taken = Target::named(name).unwrap().try_out(&bytes);
        assert!(taken < MOST, "{name}: {taken} bytes of memory for {bytes:?}");
    }
    // A histogram's bounds say how large its table is, and its length how much there is to be unpacked.
    let histogram = |cookie: u32, length: u32| {
        let head = [&cookie.to_be_bytes()[..], &length.to_be_bytes(), &[0; 4], &3u32.to_be_bytes()].concat();
        let bounds = [1u64, 3_600_000_000_000].map(u64::to_be_bytes).concat();
        let bytes = [head, bounds, 1f64.to_be_bytes().to_vec(), vec![2]].concat();
        [&[1, bytes.len() as u8][..], &bytes].concat()
    };
    let hlog = Target::named("hlog").unwrap();
    for (cookie, length) in [(0x1c84_9313, 1), (0x1c84_9313, u32::MAX), (0x1c84_9314, u32::MAX)] {
        let taken = hlog.try_out(&histogram(cookie, length));
        assert!(taken < MOST, "{taken} bytes of memory for a histogram of {length} bytes");
    }
}
