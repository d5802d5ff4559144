//! Random reads of one tree that fits the cache, by this binding and by `wtperf`, WiredTiger's own benchmark
//! in C, on the same compiled engine, turn by turn: the ratio is what the binding costs. `cargo bench -p
//! tipover-targets --bench wiredtiger`
//!
//! Both read uniformly random keys of 20 digits and look at values of 1000 bytes, one cursor a thread, with
//! the same configuration. Without `--bench`, or with `--test`, it runs tiny.

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};
use tipover_core::measure::Threshold;
use tipover_wiredtiger::{BUILD, Connection, SOURCE, version};

const URI: &str = "table:test";
const CACHE: &str = "cache_size=1GB,statistics=(fast),session_max=100";
/// What wtperf appends to nothing, so that the trees are alike.
const TABLE: &str = "type=file,leaf_value_max=64MB,memory_page_max=10m,split_pct=90,checksum=on";
const VALUE_BYTES: usize = 1000;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// How much is measured.
struct Size {
    records: u64,
    rounds: usize,
    warm_up: Duration,
    measure: Duration,
    threads: &'static [usize],
}

const FULL: Size = Size {
    records: 200_000,
    rounds: 10,
    warm_up: Duration::from_secs(1),
    measure: Duration::from_secs(2),
    threads: &[1, 4],
};
const TINY: Size = Size {
    records: 5_000,
    rounds: 1,
    warm_up: Duration::ZERO,
    measure: Duration::from_secs(1),
    threads: &[1],
};

fn main() -> Outcome<()> {
    let asked = |flag: &str| env::args().any(|argument| argument == flag);
    let full = asked("--bench") && !asked("--test");
    let size = if full { FULL } else { TINY };
    println!("{}, {} records, uniform reads in cache", version(), size.records);
    let mut ratios = vec![Vec::new(); size.threads.len()];
    for round in 1..=size.rounds {
        // Each round loads anew: how a load came to lie in memory is the same for all that reads it.
        let folder = tempfile::tempdir()?;
        let ours = Ours::load(folder.path(), &size)?;
        let peer = match Wtperf::load(folder.path(), &size) {
            Ok(peer) => peer,
            Err(reason) => {
                println!("SKIPPED: no comparison with wtperf, because {reason}");
                ours.reads_per_second(1, &size)?;
                return Ok(());
            }
        };
        for (&threads, ratios) in size.threads.iter().zip(&mut ratios) {
            // In every second round wtperf goes first.
            let (mine, theirs) = if round % 2 == 1 {
                let mine = ours.reads_per_second(threads, &size)?;
                (mine, peer.reads_per_second(threads, &size)?)
            } else {
                let theirs = peer.reads_per_second(threads, &size)?;
                (ours.reads_per_second(threads, &size)?, theirs)
            };
            println!("{threads} threads, round {round}: ours {mine:.0} reads/s, wtperf {theirs:.0} reads/s");
            ratios.push(mine / theirs);
        }
    }
    for (threads, ratios) in size.threads.iter().zip(&ratios).filter(|_| full) {
        let name = format!("WiredTiger, cached reads by {threads} threads ÷ wtperf's");
        println!("{}", Threshold::AtLeast(1.0).judge(&name, ratios).lines());
    }
    Ok(())
}

/// Zero-filled decimal; only the digits that are there cost a division (wtperf: one for every two digits, by
/// a table).
fn key_of(number: u64, key: &mut [u8; 20]) {
    key.fill(b'0');
    let (mut rest, mut place) = (number, key.len());
    while rest > 0 {
        place -= 1;
        key[place] += (rest % 10) as u8;
        rest /= 10;
    }
}

/// This binding.
struct Ours {
    connection: Connection,
}

impl Ours {
    /// Loads with two threads as wtperf does, and opens the database anew so that all pages are as read from
    /// the file.
    fn load(folder: &Path, size: &Size) -> Outcome<Ours> {
        let home = folder.join("ours");
        fs::create_dir(&home)?;
        let connection = Connection::open(&home, &format!("create,{CACHE}"))?;
        connection.session()?.create(URI, &format!("key_format=u,value_format=u,{TABLE}"))?;
        let next = AtomicU64::new(1);
        thread::scope(|scope| {
            let loaders: Vec<_> =
                (0..2).map(|_| scope.spawn(|| load_some(&connection, &next, size.records))).collect();
            loaders.into_iter().try_for_each(|loader| loader.join().expect("a loader does not panic"))
        })?;
        connection.close()?;

        let connection = Connection::open(&home, CACHE)?;
        let session = connection.session()?;
        let mut cursor = session.cursor::<[u8], [u8]>(URI)?;
        while cursor.next()? {}
        Ok(Ours { connection })
    }

    fn reads_per_second(&self, threads: usize, size: &Size) -> Outcome<f64> {
        let (counting, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let readers: Vec<_> = (0..threads)
                .map(|reader| {
                    let (counting, stop) = (&counting, &stop);
                    scope.spawn(move || {
                        read_until(&self.connection, reader as u64, size.records, counting, stop)
                    })
                })
                .collect();
            thread::sleep(size.warm_up);
            counting.store(true, Ordering::Relaxed);
            let began = Instant::now();
            thread::sleep(size.measure);
            stop.store(true, Ordering::Relaxed);
            let elapsed = began.elapsed().as_secs_f64();
            let mut reads = 0;
            for reader in readers {
                reads += reader.join().expect("a reader does not panic")?;
            }
            Ok(reads as f64 / elapsed)
        })
    }
}

fn load_some(connection: &Connection, next: &AtomicU64, records: u64) -> tipover_wiredtiger::Result<()> {
    let session = connection.session()?;
    let mut cursor = session.cursor::<[u8], [u8]>(URI)?;
    let (mut key, value) = ([0; 20], [b'a'; VALUE_BYTES]);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number > records {
            return Ok(());
        }
        key_of(number, &mut key);
        cursor.put(&key, &value)?;
    }
}

fn read_until(
    connection: &Connection,
    seed: u64,
    records: u64,
    counting: &AtomicBool,
    stop: &AtomicBool,
) -> tipover_wiredtiger::Result<u64> {
    let session = connection.session()?;
    let mut cursor = session.cursor::<[u8], [u8]>(URI)?;
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut key = [0; 20];
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        key_of(random % records + 1, &mut key);
        let length = cursor.get(&key, |value| black_box(value).len())?;
        assert_eq!(length, Some(VALUE_BYTES));
        reads += u64::from(counting.load(Ordering::Relaxed));
    }
    Ok(reads)
}

/// WiredTiger's own benchmark, compiled from the same source and linked with the same archive.
struct Wtperf {
    program: PathBuf,
    home: PathBuf,
}

impl Wtperf {
    fn load(folder: &Path, size: &Size) -> Outcome<Wtperf> {
        let peer = Wtperf { program: compile_wtperf()?, home: folder.join("wtperf") };
        fs::create_dir(&peer.home)?;
        peer.run(&["create=true".into(), "populate_threads=2".into(), format!("icount={}", size.records)])?;
        Ok(peer)
    }

    fn reads_per_second(&self, threads: usize, size: &Size) -> Outcome<f64> {
        let report = self.run(&[
            "create=false".into(),
            "pre_load_data=true".into(),
            format!("icount={}", size.records),
            format!("warmup={}", size.warm_up.as_secs()),
            format!("run_time={}", size.measure.as_secs()),
            format!("threads=((count={threads},reads=1))"),
        ])?;
        // Executed 1287909 read operations (100%) 643954 ops/sec
        let line = report
            .lines()
            .find(|line| line.contains(" read operations "))
            .ok_or("wtperf reported no reads")?;
        let words: Vec<_> = line.split_whitespace().collect();
        let rate = words.len().checked_sub(2).map(|place| words[place]).ok_or("wtperf reported no rate")?;
        Ok(rate.parse()?)
    }

    /// Runs wtperf with the options and returns its report.
    fn run(&self, options: &[String]) -> Outcome<String> {
        let connection = format!("conn_config=\"{CACHE},statistics_log=(wait=0)\"");
        let value = format!("value_sz={VALUE_BYTES}");
        let all = [&connection, &value, "key_sz=20", "report_interval=0", "verbose=1"];
        let all = all.into_iter().chain(options.iter().map(String::as_str)).collect::<Vec<_>>().join(",");
        let output = Command::new(&self.program).arg("-h").arg(&self.home).args(["-o", &all]).output()?;
        if !output.status.success() {
            return Err(format!("wtperf failed: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        Ok(fs::read_to_string(self.home.join("test.stat"))?)
    }
}

/// Compiles wtperf beside the engine, once per build of it.
fn compile_wtperf() -> Outcome<PathBuf> {
    let (source, build) = (Path::new(SOURCE), Path::new(BUILD));
    let archive = build.join("libtipover_wiredtiger.a");
    let program = build.join("wtperf");
    let modified = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified());
    if matches!((modified(&program), modified(&archive)), (Ok(program), Ok(archive)) if program > archive) {
        return Ok(program);
    }
    let folders = [source.join("bench/wtperf"), source.join("test/utility")];
    let mut files = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/wtperf-snappy.c")];
    for folder in &folders {
        let entries =
            fs::read_dir(folder).map_err(|_| format!("its source is not in {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "c") {
                files.push(path);
            }
        }
    }
    eprintln!("compiling wtperf (once, about 10 s)");
    let staged = build.join(format!("wtperf.{}", std::process::id()));
    let machine =
        if cfg!(target_arch = "x86_64") { "-DHAVE_X86INTRIN_H" } else { "-DHAVE_ARM_NEON_INTRIN_H" };
    let output = Command::new(env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args(["-O2", "-w", "-fno-strict-aliasing", "-D_GNU_SOURCE", "-DNDEBUG", machine])
        .args(
            [build.join("include"), source.join("src/include")]
                .iter()
                .chain(&folders)
                .map(|path| include(path)),
        )
        .args(&files)
        .arg(&archive)
        .args(["-lpthread", "-lm", "-ldl", "-o"])
        .arg(&staged)
        .output()
        .map_err(|error| format!("there is no C compiler: {error}"))?;
    if !output.status.success() {
        return Err(format!("it does not compile: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    fs::rename(&staged, &program)?;
    Ok(program)
}

fn include(folder: &Path) -> String {
    format!("-I{}", folder.display())
}
