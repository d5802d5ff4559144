//! Studies over many machines: agents on this one, each in a folder of its own, and a real nats-server
//! between them and whoever asks.

mod program;

use program::fleet::{PLAN, all, machine, to_the_end, until};
use program::nats::Nats;
use program::results::{self, Kept};
use program::{Place, Running, alone, skipped};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn two_machines_share_a_plan_and_a_block_stays_on_one() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    place.write("small.toml", PLAN);
    let (_a, _b) = (nats.agent(&place, "a", &[]), nats.agent(&place, "b", &["--labels", "disk=nvme"]));
    let ended = place.run(&nats.ask(&["--wait", "--scale", "slow"])).with_code(&[0, 1]);
    assert!(ended.stderr.contains("8 of 8 trials are here"), "{}", ended.stderr);
    let kept = all(&place);
    let mut of_block: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
    for trial in &kept {
        of_block.entry(trial.record.repeat).or_default().insert(machine(trial));
    }
    assert!(of_block.values().all(|machines| machines.len() == 1), "{of_block:?}");
    let both: BTreeSet<&str> = kept.iter().map(machine).collect();
    assert_eq!(both, BTreeSet::from(["a", "b"]), "both worked");
    // Nothing is missing, so nothing is asked for; and the fleet keeps nothing that was fetched.
    let again = place.run(&nats.ask(&["--wait", "--scale", "slow"])).with_code(&[0, 1]);
    assert!(!again.stderr.contains("asked the fleet"), "{}", again.stderr);
    let status =
        place.run(&["--json", "fleet", "status", &nats.address, "--key", "keys/ask.nk"]).with_code(&[0]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).expect("JSON");
    let run = &status["runs"]
        .as_array()
        .expect("runs")
        .iter()
        .find(|run| run["results"] != 0 || run["blocks"] != 0);
    assert!(run.is_none(), "{status}");
    // A plan can demand a label.
    let labelled = ["--set", "machine.labels.disk=nvme", "--set", "repeats=1", "--replace-plan", "--wait"];
    place.run(&nats.ask(&labelled)).with_code(&[0, 1]);
    let labelled = results::kept(&place, "small");
    let labelled: Vec<&str> =
        labelled.iter().filter(|t| !t.record.spec.machine.labels.is_empty()).map(machine).collect();
    assert_eq!(labelled, ["b", "b"]);
    let local = place.run(&["run", "small.toml", "--set", "machine.labels.disk=nvme"]).with_code(&[2]);
    assert!(local.stderr.contains("only machines of a fleet have labels"), "{}", local.stderr);
}

#[test]
fn a_block_outlives_its_machine_whoever_asks_and_the_server() {
    let _alone = alone();
    let place = Place::new();
    let Some(mut nats) = Nats::start(&place, 1) else { return };
    place.write("small.toml", PLAN);
    let mut first = nats.agent(&place, "first", &[]);
    let mut asking = place.start(&nats.ask(&["--wait", "--scale", "slow"]));
    until(&mut asking, "from first");
    // Who asks is killed, then the machine in the middle of its block.
    asking.signal(Signal::KILL);
    assert!(asking.was_killed());
    first.signal(Signal::KILL);
    assert!(first.was_killed());
    let mut second = nats.agent(&place, "second", &[]);
    until(&mut second, "took the block");
    // Then the server, and comes back.
    nats.kill(0);
    std::thread::sleep(Duration::from_millis(500));
    nats.up(0);
    let ended = place.run(&nats.ask(&["--wait", "--scale", "slow"])).with_code(&[0, 1]);
    assert!(ended.stderr.contains("8 of 8 trials are here"), "{}", ended.stderr);
    let kept = all(&place);
    let machines: Vec<&str> = kept.iter().map(machine).collect();
    // What the first one gave back stays, whether it can be believed or not.
    assert!(
        machines.contains(&"first") && machines.contains(&"second"),
        "what was finished is kept: {machines:?}"
    );
    // The folder of the one that was killed is free, and its name too.
    drop(nats.agent(&place, "first", &[]));
}

#[test]
fn a_machine_that_was_away_gives_nothing_back() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    place.write("small.toml", PLAN);
    let mut away = nats.agent(&place, "away", &[]);
    place.run(&nats.ask(&["--scale", "slow"])).with_code(&[0]);
    until(&mut away, "took the block");
    away.signal(Signal::STOP);
    let there = nats.agent(&place, "there", &[]);
    let ended = place.run(&nats.ask(&["--scale", "slow", "--wait"])).with_code(&[0, 1]);
    assert!(ended.stderr.contains("8 of 8 trials are here"), "{}", ended.stderr);
    let before = all(&place);
    assert!(before.iter().all(|trial| machine(trial) == "there"));
    away.signal(Signal::CONT);
    until(&mut away, "lost the block");
    place.run(&nats.ask(&["--scale", "slow", "--wait"])).with_code(&[0, 1]);
    let after = all(&place);
    let written = |kept: &[Kept]| kept.iter().map(|trial| trial.written).collect::<Vec<_>>();
    assert_eq!(written(&before), written(&after), "nothing was counted twice");
    drop(there);
}

#[test]
fn a_cluster_of_servers_is_killed_one_by_one_and_then_as_a_whole() {
    let _alone = alone();
    let place = Place::new();
    let Some(mut nats) = Nats::start(&place, 3) else { return };
    place.write("small.toml", PLAN);
    let (mut a, _b) = (nats.agent(&place, "a", &[]), nats.agent(&place, "b", &[]));
    let address = nats.address.clone();
    let ask = ["run", "small.toml", "--fleet", &address, "--key", "keys/ask.nk", "--lease", "10 s"];
    let asking = place.start(&[&ask[..], &["--wait", "--scale", "slow"]].concat());
    until(&mut a, "took the block");
    for n in 0..3 {
        nats.kill(n);
        std::thread::sleep(Duration::from_secs(1));
        nats.up(n);
        std::thread::sleep(Duration::from_secs(2));
    }
    (0..3).for_each(|n| nats.kill(n));
    std::thread::sleep(Duration::from_secs(1));
    (0..3).for_each(|n| nats.up(n));
    let ended = to_the_end(asking, &a);
    assert!(ended.stderr.contains("8 of 8 trials are here"), "{}", ended.stderr);
    all(&place);
}

#[test]
fn blocks_of_many_lanes_are_all_carried_out() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    let (head, _) = PLAN.split_once("[[sweep]]").expect("the plan has a sweep");
    let sweep = |n: usize| {
        format!(
            "[[sweep]]\nname = \"s{n}\"\nquestion = \"\"\n[sweep.settings.machine.labels]\nl{n} = \"x\"\n\
             [[sweep.axis]]\nname = \"sessions\"\nsets = \"load.sessions\"\nvalues = [1]\n"
        )
    };
    let sweeps: String = (0..6).map(sweep).collect();
    place.write("small.toml", &format!("{head}{sweeps}[scale.quick]\n"));
    let labels: Vec<String> = (0..6).map(|n| format!("l{n}=x")).collect();
    let labels = ["--labels", &labels.join(",")];
    let (a, b) = (nats.agent(&place, "a", &labels), nats.agent(&place, "b", &labels));
    let ended = place.run(&nats.ask(&["--wait"])).with_code(&[0, 1]);
    assert!(ended.stderr.contains("24 of 24 trials are here"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("gave up"), "{}", ended.stderr);
    drop((a, b));
}

/// A way to a server that can be made bad; connections stand on two threads each.
struct Proxy {
    address: String,
    link: Arc<Mutex<Way>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Fine,
    /// Nothing passes, and nobody is told.
    Silent,
    /// Connections are closed.
    Cut,
    /// Each piece, of this number of bytes at most, arrives this much later.
    Slow(Duration, usize),
    /// The same, only from the server.
    SlowBack(Duration, usize),
}

impl Proxy {
    fn to(server: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("nats://{}", listener.local_addr().expect("bound"));
        let link = Arc::new(Mutex::new(Way::Fine));
        let (server, way) = (server.to_string(), link.clone());
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (Ok(near), Ok(far)) = (near, TcpStream::connect(&server)) else { continue };
                for (from, to, is_back) in [(&near, &far, false), (&far, &near, true)] {
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    let way = way.clone();
                    std::thread::spawn(move || carry(from, to, is_back, &way));
                }
            }
        });
        Proxy { address, link }
    }

    fn is(&self, way: Way) {
        *self.link.lock().expect("nobody panics with it") = way;
    }
}

/// Carries bytes one way until either end closes, or the link is cut.
fn carry(mut from: TcpStream, mut to: TcpStream, is_back: bool, way: &Mutex<Way>) {
    let look = || *way.lock().expect("nobody panics with it");
    let mut piece = vec![0; 1 << 16];
    let _ = from.set_read_timeout(Some(Duration::from_millis(20)));
    loop {
        let (most, later) = match look() {
            Way::Fine => (piece.len(), Duration::ZERO),
            Way::SlowBack(..) if !is_back => (piece.len(), Duration::ZERO),
            Way::Slow(later, most) | Way::SlowBack(later, most) => (most.min(piece.len()), later),
            Way::Silent => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Way::Cut => break,
        };
        match from.read(&mut piece[..most]) {
            Ok(0) => break,
            Ok(read) => {
                std::thread::sleep(later);
                if to.write_all(&piece[..read]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[test]
fn links_that_are_silent_flap_and_are_slow_lose_nothing() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    place.write("small.toml", PLAN);
    let proxy = Proxy::to(&nats.servers[0].listen);
    let mut far = Nats::agent_at(&proxy.address, &place, "far", &[]);
    let asking = place.start(&nats.ask(&["--wait", "--scale", "slow"]));
    until(&mut far, "took the block");
    // For longer than the lease: what it has done by then, and while nobody hears it, is not lost and not
    // double.
    proxy.is(Way::Silent);
    std::thread::sleep(Duration::from_secs(6));
    for _ in 0..5 {
        proxy.is(Way::Cut);
        std::thread::sleep(Duration::from_millis(300));
        proxy.is(Way::Fine);
        std::thread::sleep(Duration::from_millis(700));
    }
    proxy.is(Way::Slow(Duration::from_millis(50), 16 << 10));
    let ended = to_the_end(asking, &far);
    assert!(ended.stderr.contains("8 of 8 trials are here"), "{}", ended.stderr);
    assert!(all(&place).iter().all(|trial| machine(trial) == "far"));
    drop(far);
}

/// Two machines send a load that does nothing to a target that does nothing.
const TOGETHER: &str = r#"
name = "small"
title = "Something small"
question = "Who sent what?"
why = "It is quickly measured."
how_to_read = "Not at all."
repeats = 2
[target]
kind = "null"
[workload]
kind = "ycsb"
mix = "c"
records = 1000
[load]
sessions = 3
machines = 2
[trial]
interval = "500 ms"
warm_up_least = "50 ms"
warm_up_most = "100 ms"
measure_least = "2 s"
measure_most = "2 s"
[[sweep]]
name = "closed"
question = ""
[sweep.settings.load]
think = "2 ms"
[[sweep.axis]]
name = "machines"
sets = "load.machines"
values = [1, 2]
[[sweep]]
name = "open"
question = ""
[[sweep.axis]]
name = "rate"
sets = "load.arrivals"
values = ["poisson 500/s"]
[scale.quick]
"#;

/// Trials of two machines each have both of them in it, which did all of it together.
#[track_caller]
fn sent_by_both(trial: &Kept) {
    let measured = trial.record.measured.as_ref().expect("it was measured");
    let machines = &measured.machines;
    if trial.record.spec.load.machines == 1 {
        return assert!(machines.is_empty());
    }
    assert_eq!(machines.len(), 2);
    assert_ne!(machines[0].machine, machines[1].machine);
    assert_eq!(machines[0].machine, machine(trial), "the first keeps the record");
    assert_eq!((machines[0].sessions, machines[1].sessions), (2, 1), "of three");
    assert_eq!(machines.iter().map(|machine| machine.operations).sum::<u64>(), measured.operations());
    assert!(machines.iter().all(|machine| machine.operations > 0 && machine.process_ns > 0));
    assert_eq!((machines[0].clock, machines[1].clock.is_some()), (None, true));
    assert_eq!(measured.offered.is_some(), machines.iter().all(|machine| machine.late_ns.is_some()));
}

#[test]
fn two_machines_send_one_load_on_clocks_far_apart() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    place.write("small.toml", TOGETHER);
    let local = place.run(&["run", "small.toml"]).with_code(&[2]);
    assert!(local.stderr.contains("only a fleet has several machines"), "{}", local.stderr);
    let _a = nats.agent(&place, "a", &[]);
    let lonely = place.run(&nats.ask(&[])).with_code(&[2]);
    assert!(lonely.stderr.contains("load.machines = 2, and only 1 of the fleet"), "{}", lonely.stderr);
    // A clock that shows a thousand seconds more, at a link that is slow one way: half of the way there and
    // back is wrong by 15 ms.
    let in_time = ["unshare", "--time", "--monotonic", "1000"];
    let has_time = Command::new(in_time[0]).args(&in_time[1..]).arg("true").output();
    let before = match has_time.is_ok_and(|output| output.status.success()) {
        true => &in_time[..],
        false => {
            skipped("a machine with another clock: needs root and time namespaces");
            &[]
        }
    };
    let ahead_ns = if before.is_empty() { 0 } else { 1_000_000_000_000 };
    let proxy = Proxy::to(&nats.servers[0].listen);
    proxy.is(Way::SlowBack(Duration::from_millis(30), 1 << 16));
    let mut b = Nats::agent_by(before, &proxy.address, &place, "b", &[]);
    let ended = place.run(&nats.ask(&["--wait"])).with_code(&[0, 1]);
    assert!(ended.stderr.contains("6 of 6 trials are here"), "{}\n{}", ended.stderr, b.said());
    let kept = results::kept(&place, "small");
    for trial in &kept {
        assert!(trial.failure().is_none(), "{:?}", trial.failure());
        sent_by_both(trial);
        let measured = trial.record.measured.as_ref().expect("it was measured");
        let Some(second) = measured.machines.get(1) else { continue };
        let truth = if second.machine == "b" { ahead_ns } else { -ahead_ns };
        let clock = second.clock.expect("it is compared with the first");
        assert!(clock.ns.abs_diff(truth) <= clock.bound_ns, "{clock:?}");
        // Nobody knows it better than half of the way there and back, and that was 30 ms.
        assert!((10_000_000..1_000_000_000).contains(&clock.bound_ns), "{clock:?}");
        if let Some(offered) = &measured.offered {
            // 500 a second by the schedule of all, not of each.
            let rate = offered.due as f64 / measured.seconds();
            assert!((400.0..600.0).contains(&rate), "{rate}");
        }
    }
    assert_eq!(kept.iter().filter(|trial| trial.record.spec.load.machines == 2).count(), 4);
    let page = std::fs::read_to_string(place.here().join("results/small/report.html")).expect("a page");
    assert!(page.contains("Machines that sent a load together"));
    assert!(!b.has_ended());
}

#[test]
fn a_machine_that_dies_ends_its_trial_by_name_and_another_takes_its_part() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    place.write("small.toml", TOGETHER);
    let (a, b) = (nats.agent(&place, "a", &[]), nats.agent(&place, "b", &[]));
    let only = ["--wait", "--only", "machines=2", "--only", "rate=poisson 500/s"];
    let asking = place.start(&nats.ask(&only));
    let began = Instant::now();
    let leads = |agent: &Running<'_>| agent.said().contains("took the block");
    while !leads(&a) && !leads(&b) {
        assert!(began.elapsed() < Duration::from_secs(60), "{}\n{}", a.said(), b.said());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (mut leader, mut helper) = if leads(&a) { (a, b) } else { (b, a) };
    until(&mut helper, "sends its part");
    std::thread::sleep(Duration::from_millis(1000));
    helper.signal(Signal::KILL);
    assert!(helper.was_killed());
    let _c = nats.agent(&place, "c", &[]);
    let said = to_the_end(asking, &leader).stderr;
    let kept = results::kept(&place, "small");
    assert_eq!(kept.len(), 4, "{said}");
    let (failed, done): (Vec<&Kept>, Vec<&Kept>) = kept.iter().partition(|trial| trial.failure().is_some());
    assert_eq!(failed.len(), 1, "{said}");
    let reason = failed[0].failure().expect("it failed");
    let name = if machine(failed[0]) == "a" { "the machine b" } else { "the machine a" };
    assert!(reason.contains(name) && reason.contains("sends a part of the load"), "{reason}");
    done.into_iter().for_each(sent_by_both);
    // It is measured again when somebody asks for that, and nothing is left behind.
    place.run(&nats.ask(&[&only[..], &["--retry"]].concat())).with_code(&[0, 1]);
    assert!(results::kept(&place, "small").iter().all(|trial| trial.failure().is_none()));
    until(&mut leader, "joined");
    assert_eq!(place.processes("load-generator"), Vec::<u32>::new());
}

/// Searches on targets whose capacities are known: servers that take 4 ms for an operation.
const KNOWN: &str = r#"
name = "known"
title = "Known capacities"
question = "What are they?"
why = "They are known."
how_to_read = "As intervals."
repeats = 1
[target]
kind = "guilty"
[target.settings]
service = "4 ms"
[workload]
kind = "ycsb"
mix = "c"
records = 1000
[load]
sessions = 64
[search]
promises = ["p50 <= 20 ms"]
least = 100
most = 8000
short = "400 ms"
long = "800 ms"
duration_sum = "1600 ms"
confirmation = "800 ms"
confirmations = 1
budget = "20 s"
interventions = false
[[sweep]]
name = "servers"
question = ""
[[sweep.axis]]
name = "servers"
sets = "target.settings.servers"
values = ["1", "4"]
[scale.quick]
"#;

/// The searches that were kept: cell, machine, how many trials.
fn searches(place: &Place) -> Vec<(String, String, usize)> {
    let cells = std::fs::read_dir(place.here().join("results/known")).into_iter().flatten().flatten();
    let texts = cells.filter_map(|cell| std::fs::read_to_string(cell.path().join("search.json")).ok());
    let one = |text: String| {
        let search: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(search["failed"], serde_json::Value::Null);
        let of = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_string();
        let trials = search["searches"][0]["trials"].as_array().map_or(0, Vec::len);
        (of(&search["cell"]), of(&search["provenance"]["machine"]), trials)
    };
    let mut searches: Vec<_> = texts.map(one).collect();
    searches.sort();
    searches
}

#[test]
fn searches_are_shared_and_each_stays_on_one_machine() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    place.write("known.toml", KNOWN);
    let address = nats.address.clone();
    let find = ["find", "known.toml", "--fleet", &address, "--key", "keys/ask.nk", "--lease", "4 s"];
    let mut first = nats.agent(&place, "first", &[]);
    let asked = place.run(&find).with_code(&[0]);
    assert!(asked.stderr.contains("asked the fleet for 2 searches"), "{}", asked.stderr);
    assert!(asked.stderr.contains("0 of 2 searches are here"), "{}", asked.stderr);
    // Killed in the middle of one: half of a search is no other machine's.
    until(&mut first, "took the block");
    std::thread::sleep(Duration::from_secs(2));
    first.signal(Signal::KILL);
    assert!(first.was_killed());
    let second = nats.agent(&place, "second", &[]);
    let waiting = [&find[..], &["--wait"]].concat();
    let ended = to_the_end(place.start(&waiting), &second);
    assert!(ended.stderr.contains("2 of 2 searches are here"), "{}", ended.stderr);
    let found = searches(&place);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found.iter().all(|(_, machine, trials)| machine == "second" && *trials > 3), "{found:?}");
    // Nothing is missing; another promise is another search, and its answer takes the place of the first.
    let again = place.run(&waiting).with_code(&[0, 1]);
    assert!(!again.stderr.contains("asked the fleet"), "{}", again.stderr);
    let other = [&waiting[..], &["--promise", "p50 <= 30 ms", "--only", "servers=4"]].concat();
    let other = place.run(&other).with_code(&[0, 1]);
    assert!(other.stderr.contains("asked the fleet for 1 searches"), "{}", other.stderr);
    assert!(other.stdout.contains("p50 <= 30 ms"), "{}", other.stdout);
}

#[test]
fn a_search_sends_its_loads_from_two_machines() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    let (head, rest) = KNOWN.split_once("[target]").expect("it has a target");
    let (_, rest) = rest.split_once("[workload]").expect("it has a workload");
    let (middle, _) = rest.split_once("[[sweep]]").expect("it has a sweep");
    let sweep = "[[sweep]]\nname = \"m\"\nquestion = \"\"\n[[sweep.axis]]\nname = \"machines\"\n\
                 sets = \"load.machines\"\nvalues = [2]\n[scale.quick]\n";
    let plan = format!("{head}[target]\nkind = \"null\"\n[workload]{middle}{sweep}");
    place.write("known.toml", &plan.replace("most = 8000", "most = 400"));
    let (mut a, mut b) = (nats.agent(&place, "a", &[]), nats.agent(&place, "b", &[]));
    let find = ["find", "known.toml", "--fleet", &nats.address, "--key", "keys/ask.nk", "--wait"];
    let alone = place.run(&find[..2]).with_code(&[2]);
    assert!(alone.stderr.contains("only a fleet has several machines"), "{}", alone.stderr);
    let ended = to_the_end(place.start(&find), &a);
    assert!(ended.stderr.contains("1 of 1 searches are here"), "{}", ended.stderr);
    let helps = |agent: &mut Running<'_>| agent.said().contains("sends its part of the load");
    assert!(helps(&mut a) != helps(&mut b), "one leads and one helps:\n{}\n{}", a.said(), b.said());
    // A target that does nothing holds whatever is sent; what was due was sent, by both together.
    let found = searches(&place);
    assert!(found.len() == 1 && found[0].2 > 2, "{found:?}");
    let text =
        std::fs::read_to_string(place.here().join("results/known").join(&found[0].0).join("search.json"));
    let record: serde_json::Value = serde_json::from_str(&text.expect("it is there")).expect("JSON");
    let trials = record["searches"][0]["trials"].as_array().expect("trials").clone();
    let of = |trial: &serde_json::Value, what: &str| trial[what].as_f64().expect("a number");
    let due: f64 = trials.iter().map(|trial| of(trial, "scheduled")).sum();
    let length =
        |trial: &serde_json::Value| of(&trial["duration"], "secs") + of(&trial["duration"], "nanos") / 1e9;
    let planned: f64 = trials.iter().map(|trial| of(trial, "load") * length(trial)).sum();
    assert!(due > 0.7 * planned, "{due} of {planned}: a half is what one of them sends");
    let sessions = [&find[..], &["--sessions", "--replace-plan"]].concat();
    let refused = place.run(&sessions).with_code(&[2]);
    assert!(refused.stderr.contains("cannot be shared by load.machines = 2"), "{}", refused.stderr);
}

#[test]
fn a_database_is_broken_by_a_fleet() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    place.write("allow.toml", "recipes = [\"wiredtiger\"]\n");
    let words = ["break", "wiredtiger", "--faults", "kill all", "--times", "2", "--length", "3 s"];
    let rest = ["--disk", "none", "--fleet", &nats.address, "--key", "keys/ask.nk", "--wait"];
    let asked = [&words[..], &rest[..]].concat();
    let strict = nats.agent(&place, "strict", &[]);
    let refused = place.run(&asked).with_code(&[2]);
    assert!(refused.stderr.contains("strict does not allow the recipe wiredtiger"), "{}", refused.stderr);
    let lenient = nats.agent(&place, "lenient", &["--allow", "allow.toml"]);
    let ended = to_the_end(place.start(&asked), &lenient);
    assert!(ended.stderr.contains("2 of 2 trials are here"), "{}", ended.stderr);
    assert!(ended.code == Some(0) || ended.code == Some(1), "{}", ended.stderr);
    // What was broken elsewhere is judged again here, from its history.
    let name = std::fs::read_dir(place.here().join("results")).expect("results").flatten();
    let name = name.map(|entry| entry.path()).find(|path| path.join("plan.toml").exists());
    let name = name.expect("a results folder");
    let judged = place.run(&["audit", "--checks", name.to_str().expect("a name")]).with_code(&[0, 1]);
    assert!(!judged.stdout.is_empty() && !judged.stdout.contains("no history"), "{}", judged.stdout);
    let kept = results::kept(&place, name.file_name().and_then(|n| n.to_str()).expect("a name"));
    assert!(kept.iter().all(|trial| machine(trial) == "lenient" && trial.failure().is_none()));
    drop(strict);
}

/// A file system with just enough room to begin; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Option<Small> {
        std::fs::create_dir_all(&at).expect("the test's own folder");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=300m", "tmpfs"]).arg(&at).status();
        match mounted {
            Ok(status) if status.success() => Some(Small(at)),
            _ => {
                skipped("a machine whose disk is full: mounting a small one needs root");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_machine_without_room_lets_others_work() {
    let _alone = alone();
    let place = Place::new();
    let Some(nats) = Nats::start(&place, 1) else { return };
    let Some(_small) = Small::mount(place.here().join("full")) else { return };
    place.write("small.toml", PLAN);
    let mut full = nats.agent(&place, "full", &[]);
    place.run(&nats.ask(&["--scale", "slow"])).with_code(&[0]);
    until(&mut full, "took the block");
    std::fs::write(place.here().join("full/filler"), vec![0; 300 << 20]).unwrap_err();
    until(&mut full, "something is wrong here");
    let status = ["fleet", "status", &nats.address, "--key", "keys/ask.nk"];
    let began = Instant::now();
    while !place.run(&status).with_code(&[0]).stdout.contains("ailing") {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", full.said());
    }
    let nobody = place.run(&nats.ask(&["--scale", "slow", "--set", "workload.records=2000"])).with_code(&[2]);
    assert!(nobody.stderr.contains("full: disk-space"), "{}", nobody.stderr);
    let _other = nats.agent(&place, "other", &[]);
    let ended = place.run(&nats.ask(&["--wait", "--scale", "slow"])).with_code(&[0, 1]);
    assert!(ended.stderr.contains("8 of 8 trials are here"), "{}", ended.stderr);
    assert!(all(&place).iter().all(|trial| machine(trial) == "other"));
}

#[test]
fn what_cannot_be_done_is_said_at_once() {
    let place = Place::new();
    let Some(mut nats) = Nats::start(&place, 1) else { return };
    place.write("small.toml", PLAN);
    let refused = |arguments: &[&str]| place.run(arguments).with_code(&[2]).stderr;
    let nobody = refused(&nats.ask(&[]));
    assert!(nobody.contains("the fleet has no machines"), "{nobody}");
    let agent = nats.agent(&place, "only", &["--labels", "rack=2"]);
    let label = refused(&nats.ask(&["--set", "machine.labels.rack=\"3\""]));
    assert!(label.contains("only has the label rack=2, not 3"), "{label}");
    let target = refused(&nats.ask(&["--target", "postgres://anna@127.0.0.1/x"]));
    assert!(target.contains("only does not allow the server postgres://anna@127.0.0.1/x"), "{target}");
    let with_password = format!("postgres://anna:{}@127.0.0.1/x", "tulip");
    let secret = refused(&nats.ask(&["--target", &with_password]));
    assert!(secret.contains("a password would be in every message") && !secret.contains("tulip"), "{secret}");
    let twice =
        refused(&["agent", &nats.address, "--key", "keys/agent.nk", "--name", "only", "--work", "other"]);
    assert!(twice.contains("give this one another --name"), "{twice}");
    let folder =
        refused(&["agent", &nats.address, "--key", "keys/agent.nk", "--name", "x", "--work", "only"]);
    assert!(folder.contains("another agent works in"), "{folder}");
    // Wrong keys, in their three ways.
    let nobodys = refused(&["fleet", "status", &nats.address]);
    assert!(nobodys.contains("does not let us in"), "{nobodys}");
    place.write("none.nk", "hello\n");
    let none = refused(&["fleet", "status", &nats.address, "--key", "none.nk"]);
    assert!(none.contains("holds neither"), "{none}");
    place.run(&["fleet", "keys", "strangers"]).with_code(&[0]);
    let stranger = refused(&["fleet", "status", &nats.address, "--key", "strangers/ask.nk"]);
    assert!(stranger.contains("does not let us in"), "{stranger}");
    // A machine's key gives no work.
    let begin = ["run", "small.toml", "--fleet", &nats.address, "--key", "keys/agent.nk"];
    let intruder = place.run(&begin);
    assert_ne!(intruder.code, Some(0), "{}", intruder.stderr);
    assert!(!agent.said().contains("took the block"), "{}", agent.said());
    let off = nats.without_jetstream(&place);
    let off = refused(&["fleet", "status", &off.address]);
    assert!(off.contains("is JetStream on (nats-server -js)"), "{off}");
    nats.kill(0);
    let gone = refused(&["fleet", "status", &nats.address, "--key", "keys/ask.nk"]);
    assert!(gone.contains("no NATS server answers"), "{gone}");
    let far = refused(&["fleet", "status", "nats://lab.invalid"]);
    assert!(far.contains("--key FILE"), "{far}");
}
