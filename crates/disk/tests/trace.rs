//! Traces of real mounts: every request is in them, and finds its file.

// The harness is our own, so clippy does not see that these are tests.
#![allow(clippy::unwrap_used)]

mod load;

use load::{PAGE, mount, random_reads};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tipover_core::device::{Counters, Kind};
use tipover_core::units::Bytes;
use tipover_disk::{Disk, Ending, Mode, Record, Trace};

const TESTS: [load::Test; 4] = [
    ("a_block_trace_counts_as_the_device_and_finds_files", Some(Mode::Block), block),
    ("a_file_trace_names_files", Some(Mode::File), file),
    ("a_trace_is_refused_with_words", Some(Mode::File), refusals),
    ("a_trace_outlives_its_daemon", Some(Mode::File), killed),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "disk-daemon") {
        return tipover_disk::serve();
    }
    load::run(&TESTS, &arguments)
}

fn read(path: &Path) -> (Vec<Record>, Trace) {
    let mut trace = Trace::open(path).unwrap();
    (trace.by_ref().collect(), trace)
}

/// Requests, bytes and residences of each kind are those that the device counted.
fn assert_equal(records: &[Record], before: &Counters, after: &Counters) {
    for (kind, before, after) in [
        (Kind::Read, before.read, after.read),
        (Kind::Write, before.write, after.write),
        (Kind::Flush, before.flush, after.flush),
        (Kind::Discard, before.discard, after.discard),
    ] {
        let of_kind: Vec<&Record> = records.iter().filter(|r| r.kind == kind).collect();
        assert_eq!(of_kind.len() as u64, after.requests - before.requests, "{kind:?}");
        assert_eq!(of_kind.iter().map(|r| r.size.0).sum::<u64>(), after.bytes.0 - before.bytes.0, "{kind:?}");
        let residence: Duration = of_kind.iter().map(|r| r.residence()).sum();
        assert_eq!(residence, after.residence - before.residence, "{kind:?}");
    }
}

/// Makes a file that lies in several pieces: another file grows between its pieces.
fn scattered(disk: &Disk, name: &str, pieces: u64) -> std::path::PathBuf {
    let path = disk.path().join(name);
    let open =
        |name: &str| OpenOptions::new().write(true).create(true).truncate(false).open(disk.path().join(name));
    let (file, other) = (open(name).unwrap(), open("between").unwrap());
    for piece in 0..pieces {
        for file in [&file, &other] {
            file.write_all_at(&vec![piece as u8; 256 << 10], piece * (256 << 10)).unwrap();
            file.sync_all().unwrap();
        }
    }
    path
}

fn block() {
    let disk = mount(Mode::Block, "iops=8000");
    let path = scattered(&disk, "file", 8);
    rustix::fs::syncfs(std::fs::File::open(disk.path()).unwrap()).unwrap();
    let extents = disk.extents(&path).unwrap();
    assert_eq!(extents.iter().map(|e| e.length).sum::<u64>(), 8 * (256 << 10));
    assert_eq!(extents[0].logical, 0);
    // What the map says is where the bytes are.
    let device = std::fs::File::open(disk.block_device().unwrap()).unwrap();
    for extent in &extents {
        let mut byte = [0];
        device.read_exact_at(&mut byte, extent.physical).unwrap();
        assert_eq!(u64::from(byte[0]), extent.logical / (256 << 10));
    }
    drop(device);
    disk.drop_caches().unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.read_exact_at(&mut [0], 0).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("trace");
    let before = disk.counters().unwrap();
    disk.trace_start(&at).unwrap();
    let load = random_reads(&path, 4, Duration::from_millis(300));
    // Pages through the cache, in an order of our own.
    let pages: Vec<u64> = (1..500).map(|n| n * 37 % 512).collect();
    for page in &pages {
        file.read_exact_at(&mut [0; PAGE], page * PAGE as u64).unwrap();
    }
    let summary = disk.trace_stop().unwrap();
    let after = disk.counters().unwrap();
    let (records, trace) = read(&at);
    assert_eq!((trace.ending(), trace.mode(), trace.dropped()), (Some(Ending::Complete), Mode::Block, 0));
    assert_eq!((summary.records, summary.dropped), (records.len() as u64, 0));
    assert_eq!(summary.bytes, at.metadata().unwrap().len());
    println!("  {} records in {} bytes", summary.records, summary.bytes);
    assert_equal(&records, &before, &after);
    assert!(records.iter().all(|r| r.end >= r.arrival && r.arrival >= trace.begin()));
    // By the map, all reads are the file's, and the cached ones are at the pages asked for, in that order.
    let map = disk.file_map().unwrap();
    assert_eq!(map.paths().len(), 2);
    let located: Vec<u64> = records
        .iter()
        .filter(|r| r.kind == Kind::Read)
        .map(|r| {
            let (path, offset) = map.locate(r.offset).unwrap();
            assert_eq!(path, Path::new("file"));
            offset
        })
        .collect();
    assert_eq!(located.len() as u64, load.reads + pages.len() as u64);
    let cached: Vec<u64> = pages.iter().map(|page| page * PAGE as u64).collect();
    assert_eq!(located[load.reads as usize..], cached);
}

fn file() {
    let disk = mount(Mode::File, "");
    std::fs::create_dir(disk.path().join("folder")).unwrap();
    let (one, two) = (disk.path().join("one"), disk.path().join("folder/two"));
    std::fs::write(&one, vec![1; 1 << 20]).unwrap();
    std::fs::write(&two, vec![2; 1 << 20]).unwrap();
    disk.drop_caches().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("trace");
    let before = disk.counters().unwrap();
    disk.trace_start(&at).unwrap();
    std::fs::read(&one).unwrap();
    std::fs::File::open(&two).unwrap().read_exact_at(&mut [0; 2 * PAGE], 20 * PAGE as u64).unwrap();
    let written = OpenOptions::new().write(true).open(&two).unwrap();
    written.write_all_at(&[3; 3 * PAGE], 50 * PAGE as u64).unwrap();
    written.sync_all().unwrap();
    let summary = disk.trace_stop().unwrap();
    let (records, trace) = read(&at);
    assert_eq!(summary.records, records.len() as u64);
    assert_equal(&records, &before, &disk.counters().unwrap());
    let mut by_name: BTreeMap<&Path, Vec<(Kind, u64, Bytes)>> = BTreeMap::new();
    for record in &records {
        let name = trace.files()[&record.file].as_path();
        by_name.entry(name).or_default().push((record.kind, record.offset, record.size));
    }
    assert_eq!(by_name.len(), 2, "{by_name:?}");
    assert_eq!(by_name[Path::new("one")].len(), 256);
    let (page, size) = (PAGE as u64, Bytes(PAGE as u64));
    assert_eq!(
        by_name[Path::new("folder/two")],
        [
            (Kind::Read, 20 * page, size),
            (Kind::Read, 21 * page, size),
            (Kind::Write, 50 * page, Bytes(3 * page)),
            (Kind::Flush, 0, Bytes(0)),
        ]
    );
}

fn refusals() {
    let disk = mount(Mode::File, "");
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("trace");
    let error = |result: Result<(), tipover_disk::DiskError>| result.unwrap_err().to_string();
    assert!(disk.trace_stop().unwrap_err().to_string().contains("none is being written"));
    let on_itself = error(disk.trace_start(&disk.path().join("trace")));
    assert!(on_itself.contains("traced disk itself"), "{on_itself}");
    let nowhere = error(disk.trace_start(Path::new("/nowhere/trace")));
    assert!(nowhere.contains("/nowhere"), "{nowhere}");
    disk.trace_start(&at).unwrap();
    let twice = error(disk.trace_start(&folder.path().join("second")));
    assert!(twice.contains("already"), "{twice}");
    disk.trace_stop().unwrap();
    assert!(error(disk.trace_start(&at)).contains("exists"), "nothing is overwritten");
    let error = disk.extents(&disk.path().join("x")).unwrap_err().to_string();
    assert!(error.contains("no device"), "{error}");
    assert!(disk.file_map().is_err());
    // Still being written at unmount: it is finished then.
    let last = folder.path().join("last");
    disk.trace_start(&last).unwrap();
    std::fs::write(disk.path().join("file"), "data").unwrap();
    disk.unmount().unwrap();
    let (records, trace) = read(&last);
    assert_eq!(trace.ending(), Some(Ending::Complete));
    assert!(records.iter().any(|r| r.kind == Kind::Write));
}

fn killed() {
    let disk = mount(Mode::File, "");
    let path = disk.path().join("file");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("trace");
    disk.trace_start(&at).unwrap();
    let load = random_reads(&path, 2, Duration::from_millis(200));
    std::thread::sleep(Duration::from_millis(200));
    let pid = rustix::process::Pid::from_raw(disk.daemon_pid() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    drop(disk);
    let (records, trace) = read(&at);
    assert_eq!(trace.ending(), Some(Ending::CutOff));
    let reads = records.iter().filter(|r| r.kind == Kind::Read).count() as u64;
    assert_eq!(reads + trace.dropped(), load.reads, "all that was old enough is there");
}
