//! Real databases on a disk whose power is cut, again and again, while they commit.
//!
//! A program commits numbers and says which ones the database acknowledged. After each cut everything
//! acknowledged must be there, in order, and the database must be whole; where flushes are switched off, or
//! the disk lies about them, the same campaign must find a loss, or it would prove nothing.

#![allow(clippy::unwrap_used)]

use crate::load::options;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tipover_core::units::Bytes;
use tipover_disk::{Disk, Mode};

/// Cuts per case.
pub fn cuts() -> u64 {
    std::env::var("TIPOVER_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

const SQLITE_WRITER: &str = r#"
import sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None)
c.execute("pragma journal_mode=" + sys.argv[2]); c.execute("pragma synchronous=" + sys.argv[3])
c.execute("create table if not exists t(n integer primary key, pad blob)")
n = c.execute("select coalesce(max(n), 0) from t").fetchone()[0]
while True:
    n += 1
    c.execute("insert into t values(?, zeroblob(300))", (n,))
    print(n, flush=True)
"#;

const SQLITE_CHECK: &str = r#"
import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
whole = c.execute("pragma integrity_check").fetchone()[0]
print(whole, *c.execute("select count(*), coalesce(max(n), 0) from t").fetchone())
"#;

const LMDB_WRITER: &str = r#"
import lmdb, sys
e = lmdb.open(sys.argv[1], map_size=1 << 28, sync=sys.argv[2] != "nosync", writemap=sys.argv[2] == "writemap")
n = e.stat()["entries"]
while True:
    n += 1
    with e.begin(write=True) as t: t.put(b"%08d" % n, b"x" * 200)
    print(n, flush=True)
"#;

const LMDB_CHECK: &str = r#"
import lmdb, sys
e = lmdb.open(sys.argv[1], map_size=1 << 28, readonly=True, lock=False)
with e.begin() as t: keys = [int(k) for k, v in t.cursor() if v == b"x" * 200]
print("ok", len(keys), max(keys, default=0))
"#;

fn python(script: &str, arguments: &[&str]) -> Command {
    // Debian's lmdb is a module of the system's Python, and another may come first in PATH.
    let system = Path::new("/usr/bin/python3");
    let mut command = Command::new(if system.exists() { system } else { Path::new("python3") });
    command.args(["-c", script]).args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// Lets a committing program run until it has committed a little, and then for a random moment more; kills
/// it; returns the last number it was told is safe.
fn run_and_kill(mut command: Command, moment: Duration) -> u64 {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut last = next_number(&mut lines).unwrap_or(0);
    let begin = Instant::now();
    while begin.elapsed() < moment {
        match next_number(&mut lines) {
            Some(n) => last = n,
            None => break,
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    while let Some(n) = next_number(&mut lines) {
        last = n;
    }
    last
}

fn next_number(lines: &mut impl BufRead) -> Option<u64> {
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).ok()? == 0 || !line.ends_with('\n') {
            return None;
        }
        if let Ok(n) = line.trim().parse() {
            return Some(n);
        }
    }
}

/// Whether the database is whole, how many numbers it has, and the highest.
fn inspect(mut check: Command) -> Option<(String, u64, u64)> {
    let output = check.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace().rev();
    let (highest, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some((words.next()?.to_string(), count, highest))
}

fn mount(mode: Mode, size: Bytes) -> Disk {
    let mut options = options(mode, "");
    (options.power_cuts, options.size) = (true, size);
    Disk::mount(options).unwrap()
}

fn moment(n: u64) -> Duration {
    Duration::from_millis(30 + (n * 7919) % 170)
}

fn cut(disk: &mut Disk, n: u64) -> u64 {
    let cut = match n % 3 {
        0 => "survive=0%".into(),
        1 => format!("survive=50%,seed={}", n + 1),
        _ => format!("survive=50%,torn=512B,seed={}", n + 1),
    };
    let report = disk.power_cut(&cut.parse().unwrap()).unwrap();
    disk.power_on().unwrap();
    report.lost_blocks + report.torn_blocks
}

/// A campaign in which nothing acknowledged may be lost.
fn safe(name: &str, writer: impl Fn(&Path) -> Command, check: impl Fn(&Path) -> Command) {
    let mut disk = mount(Mode::File, Bytes::mib(256));
    let path = disk.path().join("database");
    let (mut acknowledged, mut lost_blocks, mut commits) = (0, 0, 0);
    for n in 0..cuts() {
        let last = run_and_kill(writer(&path), moment(n));
        assert!(last > acknowledged, "{name}: it commits");
        commits += last - acknowledged;
        lost_blocks += cut(&mut disk, n);
        let (whole, count, highest) = inspect(check(&path)).expect("it opens again");
        assert_eq!(whole, "ok", "{name}, cut {n}");
        assert!(
            highest >= last && highest <= last + 1,
            "{name}, cut {n}: {last} acknowledged, {highest} found"
        );
        assert_eq!(count, highest, "{name}, cut {n}: none is missing in between");
        acknowledged = highest;
    }
    println!(
        "  {name}: {} cuts, {commits} commits, {lost_blocks} blocks lost or torn, nothing acknowledged lost",
        cuts()
    );
}

/// A campaign that must find a loss: returns in how many cuts something acknowledged was lost.
fn unsafe_one(
    name: &str,
    fault: Option<&str>,
    writer: impl Fn(&Path) -> Command,
    check: impl Fn(&Path) -> Command,
) {
    let mut disk = mount(Mode::File, Bytes::mib(256));
    let mut losses = 0;
    for n in 0..cuts() {
        let path = disk.path().join(format!("database-{n}"));
        let fault = fault.map(|rule| disk.add_fault(&rule.parse().unwrap()).unwrap());
        let last = run_and_kill(writer(&path), moment(n));
        if fault.is_some() {
            assert!(disk.faults().unwrap()[0].fired > 0, "{name}: a fault that never fired proves nothing");
            disk.clear_faults(None).unwrap();
        }
        cut(&mut disk, n);
        let found = inspect(check(&path)).filter(|(whole, _, _)| whole == "ok");
        losses += u64::from(found.is_none_or(|(_, _, highest)| highest < last));
    }
    println!("  {name}: {} cuts, {losses} with losses", cuts());
    assert!(losses > 0, "{name}: losses are found");
}

fn sqlite(journal: &'static str, synchronous: &'static str) -> impl Fn(&Path) -> Command {
    move |path| python(SQLITE_WRITER, &[path.to_str().unwrap(), journal, synchronous])
}

fn sqlite_check(path: &Path) -> Command {
    python(SQLITE_CHECK, &[path.to_str().unwrap()])
}

pub fn sqlite_safe() {
    safe("SQLite, WAL, FULL", sqlite("WAL", "FULL"), sqlite_check);
    safe("SQLite, DELETE, EXTRA", sqlite("DELETE", "EXTRA"), sqlite_check);
}

pub fn sqlite_unsafe() {
    unsafe_one("SQLite, WAL, OFF", None, sqlite("WAL", "OFF"), sqlite_check);
    unsafe_one("SQLite, WAL, FULL, lying sync", Some("lying-sync"), sqlite("WAL", "FULL"), sqlite_check);
}

pub fn lmdb() {
    let present = python("import lmdb", &[]).status().is_ok_and(|status| status.success());
    if !present {
        println!("SKIPPED: the Python package lmdb is not installed (apt-get install python3-lmdb)");
        return;
    }
    let writer = |how: &'static str| {
        move |path: &Path| {
            std::fs::create_dir_all(path).unwrap();
            python(LMDB_WRITER, &[path.to_str().unwrap(), how])
        }
    };
    let check = |path: &Path| python(LMDB_CHECK, &[path.to_str().unwrap()]);
    safe("LMDB, sync", writer("sync"), check);
    safe("LMDB, sync, WRITEMAP", writer("writemap"), check);
    unsafe_one("LMDB, NOSYNC", None, writer("nosync"), check);
}

/// PostgreSQL, run as its own user on the disk.
struct Postgres {
    tools: PathBuf,
    sockets: tempfile::TempDir,
    data: PathBuf,
    server: Option<Child>,
}

impl Postgres {
    fn find() -> Option<PathBuf> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        versions.map(|entry| entry.path().join("bin")).find(|bin| bin.join("initdb").is_file())
    }

    fn new(disk: &Disk) -> Option<Postgres> {
        let Some(tools) = Postgres::find() else {
            println!("SKIPPED: PostgreSQL is not installed (apt-get install postgresql)");
            return None;
        };
        let sockets = tempfile::tempdir().unwrap();
        let postgres = Postgres { tools, sockets, data: disk.path().join("data"), server: None };
        for folder in [disk.path(), postgres.sockets.path()] {
            assert!(Command::new("chown").arg("postgres").arg(folder).status().unwrap().success());
        }
        let data = postgres.data.to_str().unwrap();
        let arguments =
            ["-A", "trust", "-U", "tip", "-E", "UTF8", "--locale=C", "--wal-segsize=1", "-D", data];
        let output = postgres.command("initdb").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(postgres)
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(self.tools.join(tool));
        command.current_dir("/");
        command
    }

    fn psql(&self) -> Command {
        let mut psql = self.command("psql");
        psql.args(["-h", self.sockets.path().to_str().unwrap(), "-U", "tip", "-d", "postgres", "-Atq"]);
        psql.stdin(Stdio::null()).stderr(Stdio::null());
        psql
    }

    fn ask(&self, sql: &str) -> Option<String> {
        let output = self.psql().args(["-c", sql]).output().unwrap();
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    }

    /// Starts it, as after a reboot; returns whether it came up.
    fn start(&mut self, settings: &[&str]) -> bool {
        let _ = std::fs::remove_file(self.data.join("postmaster.pid"));
        let mut server = self.command("postgres");
        server.arg("-D").arg(&self.data).arg("-k").arg(self.sockets.path());
        server.args(["-c", "listen_addresses=", "-c", "min_wal_size=4MB", "-c", "max_wal_size=16MB"]);
        for setting in settings {
            server.args(["-c", setting]);
        }
        let quiet = || Stdio::null();
        self.server = Some(server.stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn().unwrap());
        let patience = Instant::now() + Duration::from_secs(120);
        while Instant::now() < patience {
            if self.ask("select 1").is_some() {
                return true;
            }
            if self.server.as_mut().is_some_and(|server| server.try_wait().unwrap().is_some()) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Kills the server and everything it started, as a power cut would.
    fn kill(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let parent = server.id().to_string();
        let children: Vec<i32> = std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid: &i32| parent_of(*pid).as_ref() == Some(&parent))
            .collect();
        let _ = server.kill();
        server.wait().unwrap();
        for pid in children {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            let patience = Instant::now() + Duration::from_secs(60);
            while is_running(pid.as_raw_nonzero().get()) && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// Commits numbers one after another for a moment; `end` is what happens then, while it still commits.
    /// Returns the last number that was acknowledged.
    fn commit_until(&mut self, from: u64, moment: Duration, end: impl FnOnce(&mut Postgres)) -> u64 {
        let mut psql = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (psql.stdin.take().unwrap(), psql.stdout.take().unwrap());
        let latest = AtomicU64::new(from - 1);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in from.. {
                    let sql = format!("insert into t values ({n}, repeat('x', 300)) returning n;\n");
                    if input.write_all(sql.as_bytes()).is_err() {
                        break;
                    }
                }
            });
            let seen = &latest;
            let reader = scope.spawn(move || {
                let mut lines = BufReader::new(output);
                while let Some(n) = next_number(&mut lines) {
                    seen.store(n, Relaxed);
                }
            });
            // A busy machine may take long to begin.
            let patience = Instant::now() + Duration::from_secs(60);
            while latest.load(Relaxed) < from && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(2));
            }
            std::thread::sleep(moment);
            end(self);
            let _ = psql.kill();
            let _ = psql.wait();
            reader.join().unwrap();
            latest.load(Relaxed)
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
    }
}

fn parent_of(pid: i32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_string())
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub fn postgres_safe() {
    for mode in [Mode::Block, Mode::File] {
        let mut disk = mount(mode, Bytes::gib(1));
        let Some(mut postgres) = Postgres::new(&disk) else { return };
        assert!(postgres.start(&[]));
        postgres.ask("create table t(n bigint primary key, pad text)").unwrap();
        let (mut acknowledged, mut commits, mut lost_blocks) = (0, 0, 0);
        for n in 0..cuts() {
            let last = postgres.commit_until(acknowledged + 1, moment(n) * 2, |postgres| {
                if n % 2 == 0 {
                    // Power first: whatever the server does after that, it does to a dead disk.
                    let text = format!("survive=50%,torn=512B,seed={}", n + 1);
                    let report = disk.power_cut(&text.parse().unwrap()).unwrap();
                    lost_blocks += report.lost_blocks + report.torn_blocks;
                    postgres.kill();
                    disk.power_on().unwrap();
                } else {
                    postgres.kill();
                    lost_blocks += cut(&mut disk, n);
                }
            });
            assert!(postgres.start(&[]), "{mode:?}, cut {n}: it recovers");
            let found = postgres.ask("select count(*), max(n) from t").unwrap();
            let (count, highest) = found.split_once('|').unwrap();
            let (count, highest): (u64, u64) = (count.parse().unwrap(), highest.parse().unwrap_or(0));
            assert!(
                highest >= last && highest <= last + 1,
                "{mode:?}, cut {n}: {last} acknowledged, {highest} found"
            );
            assert_eq!(count, highest, "{mode:?}, cut {n}: none is missing in between");
            commits += last - acknowledged;
            acknowledged = highest;
        }
        assert!(commits > 0);
        println!(
            "  PostgreSQL, fsync=on, {mode:?} mode: {} cuts, {commits} commits, {lost_blocks} blocks lost or torn, \
             nothing acknowledged lost",
            cuts()
        );
    }
}

pub fn postgres_unsafe() {
    let mut losses = 0;
    for n in 0..cuts() {
        let mut disk = mount(Mode::File, Bytes::gib(1));
        let Some(mut postgres) = Postgres::new(&disk) else { return };
        assert!(postgres.start(&["fsync=off"]));
        postgres.ask("create table t(n bigint primary key, pad text)").unwrap();
        let last = postgres.commit_until(1, moment(n) * 2, |postgres| {
            postgres.kill();
            cut(&mut disk, n);
        });
        assert!(last > 0, "it commits");
        let found = postgres.start(&[]).then(|| postgres.ask("select coalesce(max(n), 0) from t")).flatten();
        losses += u64::from(found.is_none_or(|highest| highest.parse::<u64>().unwrap() < last));
        postgres.kill();
    }
    println!("  PostgreSQL, fsync=off: {} cuts, {losses} with losses", cuts());
    assert!(losses > 0);
}
