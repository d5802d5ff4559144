//! Budgets of real servers on shaped disks: what the engine, the kernel and the disk counted apart must
//! agree.
//!
//! Nothing here is a time: windows begin and end while nobody works, so that every witness has said all.

mod program;

use program::{Place, alone, can_mount, skipped};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tipover_core::experiment::Spec;
use tipover_core::measure::{Account, Books, Budget, Station, Way};
use tipover_core::metric::{Sample, name as metric};
use tipover_core::op::Timing;
use tipover_core::record::{self, Ends};
use tipover_core::target::Target;
use tipover_core::units::Tick;
use tipover_core::workload::Records;

/// A laboratory of one node, ended also when the test fails.
struct Lab<'a> {
    place: &'a Place,
    name: String,
}

impl Drop for Lab<'_> {
    fn drop(&mut self) {
        let _ = self.place.run(&["lab", "down", "--name", &self.name]);
    }
}

impl<'a> Lab<'a> {
    /// With a fast disk and little memory; `None` where the server is not installed.
    fn up(place: &'a Place, recipe: &str, memory: &str, settings: &[&str]) -> Option<Lab<'a>> {
        let name = format!("budgets-{}-{recipe}", std::process::id());
        let mut arguments = vec!["lab", "up", recipe, "--name", &name, "--memory", memory];
        arguments.extend(["--disk", "iops=5000,latency=500us", "--disk-size", "3 GiB"]);
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let up = place.run(&arguments);
        if up.stderr.contains("is not installed") {
            skipped(up.stderr.trim());
            return None;
        }
        up.with_code(&[0]);
        Some(Lab { place, name })
    }

    fn json(&self, verb: &str) -> serde_json::Value {
        let said = self.place.run(&["--json", "lab", verb, "--name", &self.name]).with_code(&[0]).stdout;
        serde_json::from_str(&said).expect("JSON")
    }

    /// What the node's probes read, by probe.
    fn counters(&self) -> BTreeMap<String, Sample> {
        let said = self.json("counters");
        for metrics in said[0]["metrics"].as_object().expect("metrics by probe").values() {
            for metric in metrics.as_array().expect("a list") {
                assert!(metric["help"].as_str().is_some_and(|help| help.len() > 20), "{metric}");
                assert!(["counter", "gauge"].contains(&metric["kind"].as_str().unwrap_or("")), "{metric}");
            }
        }
        serde_json::from_value(said[0]["samples"].clone()).expect("samples")
    }

    fn spec(&self, kind: &str, mix: &str, records: u64) -> Spec {
        let url = self.json("status")["nodes"][0]["url"].clone();
        let spec = serde_json::json!({
            "target": { "kind": kind, "address": url },
            "workload": { "kind": "ycsb", "mix": mix, "records": records, "requests": "uniform" },
            "load": { "sessions": 6 },
        });
        serde_json::from_value(spec).expect("a spec")
    }
}

/// Runs the load of `spec` and counts what was done.
fn run(target: &dyn Target, spec: &Spec, seed: u64, time: Duration) -> Books {
    let (dataset, workload) = spec.load_of(seed);
    let records = Records::new(dataset.records);
    let (next, deadline) = (AtomicU64::new(0), Instant::now() + time);
    let all = std::thread::scope(|scope| {
        let session = || {
            let mut session = target.open(&dataset).expect("a session");
            let mut books = Books::closed();
            while Instant::now() < deadline {
                let op = workload.op(next.fetch_add(1, Ordering::Relaxed), &records);
                let outcome = session.execute(&op);
                let never = Timing { due: Tick(0), began: Tick(0), ended: Tick(1) };
                books.record(op.kind(), outcome, &never, 0);
            }
            books
        };
        let sessions: Vec<_> = (0..spec.load.sessions).map(|_| scope.spawn(session)).collect();
        sessions.into_iter().map(|session| session.join().expect("no panic")).collect::<Vec<_>>()
    });
    let mut books = Books::closed();
    all.iter().for_each(|session| books.merge(session));
    assert!(books.done() > 500, "{} operations were done", books.done());
    books
}

/// Reads target and node until neither says anything new: sessions report late what they did.
fn at_rest(target: &dyn Target, lab: &Lab<'_>) -> BTreeMap<String, Sample> {
    let read = || -> Sample { Sample { values: target.sample().expect("statistics"), ..Sample::default() } };
    let busy = |sample: &Sample| {
        [metric::ENGINE_FILE_READ_BYTES, metric::ENGINE_FILE_WRITE_BYTES, metric::ENGINE_JOURNAL_BYTES]
            .map(|name| sample.get(name).unwrap_or(0.0))
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut before = read();
    loop {
        std::thread::sleep(Duration::from_millis(1_200));
        let now = read();
        let moved = busy(&now).iter().zip(busy(&before)).any(|(now, before)| now - before > 200_000.0);
        before = now;
        if !moved || Instant::now() > deadline {
            let mut samples = lab.counters();
            // Nobody works, so nothing lies between the readings, and nothing is old.
            before.values.remove(metric::ENGINE_STATISTICS_AGE_MS);
            (before.begin, before.end) = (samples["disk"].begin, samples["disk"].end);
            samples.insert("target".into(), before);
            return samples;
        }
    }
}

/// What was counted while `spec`'s load ran, and the user's bytes.
fn window(lab: &Lab<'_>, target: &dyn Target, spec: &Spec, seed: u64, seconds: u64) -> (Account, f64) {
    let first = at_rest(target, lab);
    let books = run(target, spec, seed, Duration::from_secs(seconds));
    let last = at_rest(target, lab);
    let user = spec.workload.written_bytes(&books.to_text()).expect("YCSB knows its lengths");
    (Ends { first, last }.account(), user)
}

fn told(engine: &str, budget: &Budget) {
    println!("{engine} {}: closes {:?}: {}", budget.way.words(), budget.closes, budget.evidence);
    for (i, step) in budget.steps.iter().enumerate() {
        let rounded = step.bytes.map(|bytes| (bytes / 1e4).round() / 100.0);
        println!("  {}: {rounded:?} MB, × {:?}, {:?}", step.what, budget.amplification(i), step.parts);
    }
    for check in &budget.checks {
        println!("  {}: {:+.2} % {}", check.what, check.residual * 100.0, check.reason);
    }
}

fn check(account: &Account, what: &str, budget: &Budget) {
    let check = budget.checks.iter().find(|check| check.what.contains(what));
    let check = check.unwrap_or_else(|| panic!("{what} was not compared: {account:?}"));
    assert!(check.residual.abs() < Budget::TOLERANCE, "{what}: {check:?}");
}

/// Reads that miss close within 2 %, by four witnesses; what was fetched twice over is no proof.
fn reads_close(engine: &str, account: &Account) -> Budget {
    let budget = Budget::reads(account);
    told(engine, &budget);
    assert!(budget.bytes(Station::Engine).expect("the server counts") > 20e6, "it missed next to nothing");
    assert!(budget.bytes(Station::Device).expect("the disk counts") > 5e6, "the disk served next to nothing");
    check(account, "the engine's", &budget);
    check(account, "block layer", &budget);
    if account.grown(metric::GROUP_DEVICE_READ_BYTES).is_some() {
        check(account, "control group", &budget);
    } else {
        skipped("the control group's account of a device: there is no such controller");
    }
    assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
    budget
}

/// Every station of writes is counted, in order, and engine, kernel and disk agree.
fn writes_are_accounted(engine: &str, account: &Account, user: f64) -> Budget {
    let budget = Budget::writes(account, Some(user));
    told(engine, &budget);
    let bytes = |station| budget.bytes(station).expect("every station is counted");
    use Station::{Device, Engine, Journal, User};
    assert!(
        bytes(User) > 1e5 && bytes(Journal) > bytes(User),
        "a journal holds what the user wrote, and more"
    );
    assert!(bytes(Engine) > bytes(Journal), "data files come on top of the journal");
    assert!(bytes(Device) > bytes(Journal));
    let flushes = budget.step(Device).and_then(|step| step.flushes).expect("flushes are counted");
    assert!(flushes > 10.0, "commits are flushed");
    assert!((1..budget.steps.len()).all(|step| budget.amplification(step).is_some()));
    check(account, "the engine's and the kernel's", &budget);
    check(account, "block layer", &budget);
    assert!(budget.closes == Some(true) || !budget.evidence.contains("agree"), "{}", budget.evidence);
    budget
}

fn loaded(lab: &Lab<'_>, spec: &Spec) -> Box<dyn Target> {
    let target = tipover_targets::start(spec, std::path::Path::new("")).expect("the server is there");
    let (dataset, _) = spec.load_of(1);
    target.load(&dataset, 0..dataset.records).expect("loaded");
    target.settle().expect("settled");
    println!("{} is loaded", lab.name);
    target
}

#[test]
fn postgres_accounts_for_its_reads_and_its_writes() {
    if !can_mount("budgets of PostgreSQL") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    // A log that is as long as it will be: new files of it are filled with zeros, which nobody counts.
    let settings = [
        "shared_buffers=16MB",
        "min_wal_size=96MB",
        "max_wal_size=96MB",
        "autovacuum=off",
        "track_io_timing=on",
    ];
    let Some(lab) = Lab::up(&place, "postgres", "160 MiB", &settings) else { return };
    let reads = lab.spec("postgres", "c", 120_000);
    let target = loaded(&lab, &reads);
    run(target.as_ref(), &reads, 2, Duration::from_secs(3));
    let (account, _) = window(&lab, target.as_ref(), &reads, 3, 6);
    let budget = reads_close("PostgreSQL C", &account);
    assert!(budget.bytes(Station::PageCache).expect("counted") > 5e6, "the page cache held a part");

    let updates = lab.spec("postgres", "a", 120_000);
    run(target.as_ref(), &updates, 4, Duration::from_secs(6));
    let (account, user) = window(&lab, target.as_ref(), &updates, 5, 8);
    reads_close("PostgreSQL A", &account);
    let budget = writes_are_accounted("PostgreSQL A", &account, user);
    let parts = &budget.step(Station::Journal).expect("a step").parts;
    assert!(parts.iter().any(|part| part.what == "page images"), "{parts:?}");
}

#[test]
fn mariadb_accounts_for_its_reads_and_its_writes() {
    if !can_mount("budgets of MariaDB") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let settings =
        ["innodb_buffer_pool_size=24M", "innodb_log_file_size=48M", "innodb_buffer_pool_dump_at_shutdown=0"];
    let Some(lab) = Lab::up(&place, "mariadb", "256 MiB", &settings) else { return };
    let reads = lab.spec("mysql", "c", 60_000);
    let target = loaded(&lab, &reads);
    run(target.as_ref(), &reads, 2, Duration::from_secs(3));
    let (account, _) = window(&lab, target.as_ref(), &reads, 3, 6);
    let budget = reads_close("MariaDB C", &account);
    let cached = budget.bytes(Station::PageCache).expect("counted");
    assert!(cached < 0.02 * budget.bytes(Station::Engine).expect("counted"), "it reads past the page cache");

    let updates = lab.spec("mysql", "a", 60_000);
    run(target.as_ref(), &updates, 4, Duration::from_secs(3));
    let (account, user) = window(&lab, target.as_ref(), &updates, 5, 8);
    reads_close("MariaDB A", &account);
    let budget = writes_are_accounted("MariaDB A", &account, user);
    let parts = &budget.step(Station::Engine).expect("a step").parts;
    assert!(parts.iter().any(|part| part.what == "double writes"), "{parts:?}");
    assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
}

const PLAN: &str = r#"
name = "updates"
title = "Updates"
question = "Where do the bytes go?"
why = "To see them."
how_to_read = "Step by step."
repeats = 1
seed = 1
[target]
kind = "wiredtiger"
[target.wiredtiger]
cache = "32 MiB"
[machine]
memory = "160 MiB"
[disk]
mode = "block"
filesystem = "ext4"
size = "3 GiB"
backing = "memory"
readahead = "0"
shape = "iops=5000,latency=500us"
[workload]
kind = "ycsb"
mix = "a"
requests = "uniform"
records = 80000
[load]
sessions = 4
[trial]
interval = "500 ms"
warm_up_least = "1 s"
warm_up_most = "4 s"
settle_turns = 0.5
settle_most = "1 s"
measure_least = "10 s"
measure_operations = 1000
measure_most = "12 s"
[[sweep]]
name = "updates"
question = "Where do the bytes go?"
[[sweep.axis]]
name = "records"
sets = "workload.records"
values = [80000]
[scale.quick]
"#;

#[test]
fn embedded_wiredtigers_writes_close_from_block_manager_to_device() {
    if !can_mount("budgets of WiredTiger") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    std::fs::write(place.here().join("plan.toml"), PLAN).expect("written");
    let said = place.run(&["run", "plan.toml", "--full"]);
    let cells = place.here().join("results/updates");
    let records: Vec<_> = std::fs::read_dir(&cells)
        .unwrap_or_else(|error| panic!("{error}: {} {}", said.stdout, said.stderr))
        .flatten()
        .map(|cell| cell.path().join("0/record.json"))
        .filter(|path| path.exists())
        .collect();
    let text = std::fs::read_to_string(records.first().expect("a record")).expect("readable");
    let record = record::read(&text).expect("a record");
    assert!(record.measured.is_some(), "{:?}", record.verdict);

    // The warm-up is too short for a verdict on caches; the budgets do not depend on it.
    let reads = record.budgets(Way::Reads).remove("").expect("one place");
    told("WiredTiger", &reads);
    assert_eq!(reads.closes, Some(true), "{}", reads.evidence);
    let writes = record.budgets(Way::Writes).remove("").expect("one place");
    told("WiredTiger", &writes);
    let of = |what: &str| writes.checks.iter().find(|check| check.what.contains(what)).expect("compared");
    assert_eq!(of("the engine's").closes, Some(true), "{}", writes.evidence);
    assert_eq!(of("block layer").closes, Some(true), "{}", writes.evidence);
    // The group's dirty pages are known to the kernel up to 2 s late.
    let residual = of("the kernel's and the disk's").residual;
    assert!(residual.abs() < 0.04, "{residual}: {}", writes.evidence);
    assert!(writes.bytes(Station::Device).expect("the disk counts") > 20e6);

    let help = |probe: &str, name: &str| {
        record.metrics[probe].iter().find(|metric| metric.name == name).map(|metric| metric.help.clone())
    };
    for (probe, name) in [
        ("target", metric::ENGINE_FILE_WRITE_BYTES),
        ("process", metric::PROCESS_ASKED_WRITE_BYTES),
        ("device", metric::DEVICE_WRITE_BYTES),
        ("disk", metric::DISK_FLUSH_REQUESTS),
    ] {
        assert!(help(probe, name).is_some_and(|help| help.len() > 20), "{probe} {name} is not explained");
    }
    for shown in ["Writes, per operation", "What probes read, and who counts it"] {
        assert!(said.stdout.contains(shown), "the page has no {shown:?}");
    }
}

/// Another tenant of the disk, of a cluster's node and of an embedded engine: both loads are measured, no
/// byte is lost between them, and the page tells them apart.
#[test]
fn another_tenant_of_the_disk_is_measured_and_told_apart() {
    if !can_mount("budgets beside another tenant") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let plan = |target: &str| {
        format!(
            "name = \"p\"\ntitle = \"\"\nquestion = \"\"\nwhy = \"\"\nhow_to_read = \"\"\nrepeats = 1\n\
             [disk]\nsize = \"1 GiB\"\nshape = \"iops=600,latency=1ms\"\n\
             [workload]\nkind = \"ycsb\"\nrecords = 60000\n[load]\nsessions = 4\ntimeout = \"20 s\"\n\
             [tenant]\nsessions = 2\narrivals = \"constant 200/s\"\nfile_size = \"64 MiB\"\n\
             io = {{ turns = {{ reads_per_write = 1.5 }}, block = \"4 KiB\" }}\n\
             [trial]\nwarm_up_least = \"2 s\"\nwarm_up_most = \"10 s\"\nsettle_most = \"3 s\"\n\
             measure_least = \"4 s\"\nmeasure_operations = 100\nmeasure_most = \"8 s\"\n{target}\
             [[sweep]]\nname = \"s\"\nquestion = \"\"\naxis = []\n[scale.quick]\n"
        )
    };
    let postgres = "[target]\nkind = \"postgres\"\n[machine]\nmemory = \"160 MiB\"\n[lab]\nrecipe = \"postgres\"\n\
                    settings = { shared_buffers = \"16MB\" }\n";
    let engine = "[target]\nkind = \"wiredtiger\"\nwiredtiger = { cache = \"16 MiB\" }\n\
                  [machine]\nmemory = \"64 MiB\"\n";
    for (name, target) in [("postgres", postgres), ("engine", engine)] {
        place.write("plan.toml", &plan(target));
        let ended = place.run(&["run", "plan.toml", "--full", "--results", name]);
        if ended.stderr.contains("is not installed") {
            skipped(ended.stderr.trim());
            continue;
        }
        assert!(ended.stdout.contains("other tenants"), "{name}: {}{}", ended.stdout, ended.stderr);
        let is_record = |path: &PathBuf| path.starts_with(name) && path.ends_with("record.json");
        let path = place.content().into_iter().find(is_record).expect("a record");
        let text = std::fs::read_to_string(place.here().join(path)).expect("a record");
        let record = record::read(&text).expect("a record of ours");
        let measured = record.measured.as_ref().unwrap_or_else(|| panic!("{name}: {:?}", record.verdict));
        let [tenant] = &measured.tenants[..] else { panic!("{:?}", measured.tenants) };
        assert_eq!(tenant.node.is_empty(), name == "engine");
        let (done, offered) = (tenant.books.done(), tenant.offered.as_ref().expect("it has arrivals"));
        assert!(done > 0 && tenant.books.failed() == 0, "{name}: {tenant:?}");
        assert!(offered.due >= 200 * measured.seconds() as u64 - 200, "{name}: {offered:?}");
        assert!(measured.operations() > 0, "{name}: the load went on");
        let grown = |metric: &str| measured.accounts().values().find_map(|account| account.grown(metric));
        let (read, written) = (grown(metric::TENANT_READ_BYTES), grown(metric::TENANT_WRITE_BYTES));
        assert!(read > Some(0.0) && written > Some(0.0), "{name}: {read:?} {written:?}");
        for (node, budget) in record.budgets(Way::Reads) {
            println!("{name} {node}: {budget:?}");
            assert_ne!(budget.closes, Some(false), "{name} {node}: {}", budget.evidence);
            let besides = budget.step(Station::Device).expect("a device").parts.iter();
            let told = besides.filter(|part| part.what.contains("another tenant")).map(|part| part.bytes);
            assert_eq!(told.collect::<Vec<_>>(), [read.expect("read")]);
        }
    }
}
