//! Real clusters in real namespaces, broken and mended.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers in here are tests too")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tipover_core::device::PowerCut;
use tipover_core::experiment::recipe::{Recipe, Role, RoleSpec};
use tipover_core::experiment::{BackingKind, DiskMode, DiskSpec, PowerCuts};
use tipover_core::schedule::{Effect, Schedule};
use tipover_core::units::{Bytes, Tick};
use tipover_disk::DaemonCommand;
use tipover_lab::network::{LABORATORY, Link, NetworkError};
use tipover_lab::recipe::{Postgres, Stop};
use tipover_lab::{Agenda, Binaries, Cluster, ClusterError, ClusterOptions, Conductor, NodeError, Policy};

const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test of its own: the network's daemon, or a disk's.
#[test]
fn play() {
    let _ = match std::env::var("TIPOVER_LAB_ROLE").as_deref() {
        Ok("network daemon") => tipover_lab::network::serve(),
        Ok("disk daemon") => tipover_disk::serve(),
        _ => return,
    };
}

fn daemon(role: &str) -> DaemonCommand {
    let mut daemon = DaemonCommand::this_program(&["--exact", "play", "--nocapture"]);
    daemon.environment.push(("TIPOVER_LAB_ROLE".into(), role.into()));
    daemon
}

fn options(recipe: &str) -> ClusterOptions {
    ClusterOptions {
        recipe: Recipe::named(recipe).unwrap(),
        version: None,
        disk_daemon: Some(daemon("disk daemon")),
        folder: std::env::temp_dir(),
        network: Some(daemon("network daemon")),
        own: None,
        binaries: Binaries::default(),
        seed: 7,
    }
}

/// What this machine can start, or `None` after saying what is missing.
fn started(options: &ClusterOptions) -> Option<Cluster> {
    match Cluster::start(options) {
        Ok(cluster) => Some(cluster),
        Err(error @ (ClusterError::Missing(_) | ClusterError::Network(NetworkError::NotRoot))) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(ClusterError::Network(error @ NetworkError::NoTun(_))) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn ask(cluster: &Cluster, node: &str, statement: &str) -> String {
    cluster.node(node).unwrap().server().unwrap().query(statement).unwrap()
}

/// Waits until a node answers so; replicas are a moment behind.
fn soon(cluster: &Cluster, node: &str, statement: &str, wanted: &str) {
    let began = Instant::now();
    loop {
        let answer = cluster.node(node).unwrap().server().unwrap().query(statement);
        if answer.as_ref().is_ok_and(|answer| answer == wanted) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{node}: {statement}: {answer:?}, wanted {wanted}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn fired(effect: Effect) -> u64 {
    match effect {
        Effect::Fired { count } => count,
        Effect::Nothing { reason } => panic!("no effect: {reason}"),
    }
}

/// A statement under way, from the laboratory through the network.
fn under_way(cluster: &Cluster, node: &str, statement: &str) -> Child {
    let url = cluster.url(node).unwrap();
    let mut command = Command::new("psql");
    command.args(["-X", "-q", "-c", statement, &url]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn postgres_waits_for_a_standby_fails_over_and_takes_the_old_primary_back() {
    let Some(mut cluster) = started(&options("postgres-sync")) else { return };
    assert_eq!(cluster.primary(), "a");
    ask(&cluster, "a", "CREATE TABLE kept (k int)");
    ask(&cluster, "a", "INSERT INTO kept SELECT generate_series(1, 100)");
    for standby in ["b", "c"] {
        soon(&cluster, standby, "SELECT count(*) FROM kept", "100");
    }

    // Cut off from both standbys a commit waits, and from one it does not.
    let cut = |cluster: &Cluster, other: &str| {
        [cluster.break_link("a", other, Link::cut()), cluster.break_link(other, "a", Link::cut())]
            .map(Result::unwrap)
    };
    let first = cut(&cluster, "b");
    let mut one = under_way(&cluster, "a", "INSERT INTO kept VALUES (101)");
    assert!(one.wait().unwrap().success(), "one standby is enough");
    let second = cut(&cluster, "c");
    let mut none = under_way(&cluster, "a", "INSERT INTO kept VALUES (102)");
    std::thread::sleep(Duration::from_millis(500));
    assert!(none.try_wait().unwrap().is_none(), "it was acknowledged though no standby had it");
    let touched: u64 = first
        .iter()
        .chain(&second)
        .map(|fault| match cluster.heal_link(fault).unwrap() {
            Effect::Fired { count } => count,
            Effect::Nothing { .. } => 0,
        })
        .sum();
    assert!(touched > 0, "the cuts dropped packets");
    assert!(none.wait().unwrap().success(), "healed, it is acknowledged");
    cluster.wait_whole(PATIENCE).unwrap();

    // Killed, its successor has everything that was acknowledged.
    assert!(fired(cluster.node_mut("a").unwrap().kill().unwrap()) > 3);
    assert!(matches!(cluster.node_mut("a").unwrap().kill().unwrap(), Effect::Nothing { .. }));
    // One of the two may still be behind: that it was cut off is a moment ago.
    let new = cluster.successor().unwrap();
    let other = if new == "b" { "c" } else { "b" };
    cluster.promote(&new).unwrap();
    cluster.wait_whole(PATIENCE).unwrap();
    assert_eq!(ask(&cluster, &new, "SELECT count(*) FROM kept"), "102");
    ask(&cluster, &new, "INSERT INTO kept VALUES (103)");
    soon(&cluster, other, "SELECT count(*) FROM kept", "103");

    cluster.rejoin("a").unwrap();
    soon(&cluster, "a", "SELECT count(*) FROM kept", "103");
    assert_eq!(fired(cluster.step_down(other, &mut || {}).unwrap()), 1);
    assert_eq!(cluster.primary(), other);
    ask(&cluster, other, "INSERT INTO kept VALUES (104)");
    soon(&cluster, "a", "SELECT count(*) FROM kept", "104");
}

#[test]
fn a_node_is_paused_and_squeezed_and_every_fault_is_undone() {
    let mut limited = options("postgres");
    limited.recipe.memory = Some(Bytes::mib(512));
    let Some(mut cluster) = started(&limited) else { return };
    let mut long = under_way(&cluster, "a", "SELECT pg_sleep(0.3)");
    let node = cluster.node_mut("a").unwrap();
    assert!(matches!(node.resume().unwrap(), Effect::Nothing { .. }));
    assert!(fired(node.pause().unwrap()) > 3);
    assert!(!node.is_running() && node.is_paused());
    std::thread::sleep(Duration::from_millis(600));
    assert!(long.try_wait().unwrap().is_none(), "it went on while paused");
    assert!(fired(node.resume().unwrap()) > 3);
    assert!(long.wait().unwrap().success());

    let node = cluster.node_mut("a").unwrap();
    node.squeeze(Some(0.1), None).unwrap();
    let busy = "SELECT count(*) FROM generate_series(1, 1000000)";
    node.server().unwrap().query(busy).unwrap();
    assert!(fired(node.release().unwrap()) > 0, "CPU time was denied");
    node.squeeze(None, Some(400 << 20)).unwrap();
    assert!(matches!(node.release().unwrap(), Effect::Nothing { .. }), "nobody needed that much");
    assert_eq!(node.group().unwrap().memory().unwrap().limit, Some(512 << 20));

    // Delay from the laboratory, on a link of its own.
    let delay = cluster.break_link(LABORATORY, "a", Link::delayed(Duration::from_millis(50))).unwrap();
    let began = Instant::now();
    assert!(under_way(&cluster, "a", "SELECT 1").wait().unwrap().success());
    assert!(began.elapsed() > Duration::from_millis(150), "three round trips at least");
    assert!(fired(cluster.heal_link(&delay).unwrap()) > 3);
    let idle = cluster.break_link("a", LABORATORY, Link::cut()).unwrap();
    assert!(matches!(cluster.heal_link(&idle).unwrap(), Effect::Nothing { .. }), "an idle link was cut");

    let node = cluster.node_mut("a").unwrap();
    node.stop(Stop::Fast).unwrap();
    cluster.undo_all().unwrap();
    assert_eq!(ask(&cluster, "a", "SELECT 1"), "1");
}

#[test]
fn galera_loses_a_node_takes_it_back_and_a_minority_refuses() {
    let Some(mut cluster) = started(&options("galera")) else { return };
    ask(&cluster, "a", "CREATE TABLE kept (k int PRIMARY KEY)");
    for (node, k) in [("a", 1), ("b", 2), ("c", 3)] {
        ask(&cluster, node, &format!("INSERT INTO kept VALUES ({k})"));
    }
    for node in ["a", "b", "c"] {
        soon(&cluster, node, "SELECT count(*) FROM kept", "3");
    }
    assert!(fired(cluster.node_mut("c").unwrap().kill().unwrap()) > 0);
    cluster.wait_whole(PATIENCE).unwrap();
    ask(&cluster, "b", "INSERT INTO kept VALUES (4)");
    cluster.rejoin("c").unwrap();
    soon(&cluster, "c", "SELECT count(*) FROM kept", "4");

    let mut cuts = Vec::new();
    for other in ["a", "b"] {
        cuts.push(cluster.break_link("c", other, Link::cut()).unwrap());
        cuts.push(cluster.break_link(other, "c", Link::cut()).unwrap());
    }
    let ready = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'WSREP_CLUSTER_STATUS'";
    soon(&cluster, "c", "SHOW STATUS WHERE Variable_name = 'wsrep_ready' AND Value = 'ON'", "");
    let refused = cluster.node("c").unwrap().server().unwrap().query("INSERT INTO kept VALUES (5)");
    assert!(refused.unwrap_err().to_string().contains("1047"), "a minority took a write");
    ask(&cluster, "a", "INSERT INTO kept VALUES (6)");
    assert!(cuts.iter().all(|cut| fired(cluster.heal_link(cut).unwrap()) > 0));
    cluster.wait_whole(PATIENCE).unwrap();
    soon(&cluster, "c", ready, "Primary");
    soon(&cluster, "c", "SELECT group_concat(k ORDER BY k) FROM kept", "1,2,3,4,6");
}

#[test]
fn mariadb_waits_for_its_replica_and_fails_over_without_loss() {
    let Some(mut cluster) = started(&options("mariadb-semisync")) else { return };
    ask(&cluster, "a", "CREATE TABLE kept (k int PRIMARY KEY)");
    let acknowledged = "SELECT VARIABLE_VALUE > 0 FROM information_schema.GLOBAL_STATUS \
                        WHERE VARIABLE_NAME = 'RPL_SEMI_SYNC_MASTER_YES_TX'";
    ask(&cluster, "a", "INSERT INTO kept SELECT seq FROM seq_1_to_500");
    assert_eq!(ask(&cluster, "a", acknowledged), "1", "the replica confirmed");
    cluster.node_mut("a").unwrap().kill().unwrap();
    cluster.promote("b").unwrap();
    assert_eq!(ask(&cluster, "b", "SELECT count(*) FROM kept"), "500");
    ask(&cluster, "b", "INSERT INTO kept VALUES (501)");
    cluster.rejoin("a").unwrap();
    soon(&cluster, "a", "SELECT count(*) FROM kept", "501");
}

#[test]
fn without_namespaces_a_cluster_runs_on_the_loopback_and_says_what_is_lost() {
    let plain = ClusterOptions { network: None, ..options("postgres-sync") };
    let Some(cluster) = started(&plain) else { return };
    assert!(cluster.lost()[0].contains("cannot be shaped"), "{:?}", cluster.lost());
    assert_ne!(cluster.node("a").unwrap().address(), cluster.node("b").unwrap().address());
    assert_eq!(ask(&cluster, "a", "SELECT count(*) FROM pg_stat_replication"), "2");
    let error = cluster.break_link("a", "b", Link::cut()).unwrap_err().to_string();
    assert!(error.contains("cannot be shaped"), "{error}");
}

/// With shaped disks, whose power can be cut.
fn started_on(disk: DiskSpec, mut options: ClusterOptions) -> Option<Cluster> {
    options.recipe.disk = Some(DiskSpec { mode: DiskMode::Block, size: Bytes::gib(1), ..disk });
    match Cluster::start(&options) {
        Err(ClusterError::Node(error @ NodeError::Mount { .. })) if !rustix::process::geteuid().is_root() => {
            println!("SKIPPED: {error}");
            None
        }
        Err(ClusterError::Missing(error)) => {
            println!("SKIPPED: {error}");
            None
        }
        Err(ClusterError::Network(error @ (NetworkError::NotRoot | NetworkError::NoTun(_)))) => {
            println!("SKIPPED: {error}");
            None
        }
        other => Some(other.unwrap()),
    }
}

/// The journal lies on a disk of its own, whose bytes are in a folder of the machine's; both lose their power
/// at once, and whatever was acknowledged is there.
#[test]
fn a_journal_has_a_disk_of_its_own_and_survives_a_power_cut_there() {
    let folder = tempfile::tempdir().unwrap();
    for (recipe, last) in [("postgres-sync", "b"), ("mariadb", "a")] {
        let disk = DiskSpec {
            backing: BackingKind::Disk,
            folder: Some(folder.path().display().to_string()),
            journal: Some("latency=2ms".into()),
            ..DiskSpec::default()
        };
        let mut options = options(recipe);
        let replicas = RoleSpec { count: Some(1), ..RoleSpec::default() };
        if recipe == "postgres-sync" {
            options.recipe = options.recipe.with_roles(&[(Role::Replica, replicas)].into()).unwrap();
        }
        let Some(mut cluster) = started_on(disk, options) else { continue };
        let whole = cluster.recipe().clone();
        cluster.shape(&whole).unwrap();
        assert_eq!(cluster.nodes().last().unwrap().name(), last);
        let node = cluster.node("a").unwrap();
        let backing = tipover_disk::BackingChoice::Directory(folder.path().into());
        for disk in [node.disk().unwrap(), node.journal().unwrap()] {
            assert_eq!(disk.options().backing, backing);
        }
        ask(&cluster, "a", "CREATE TABLE kept (k int)");
        let written = |cluster: &Cluster| {
            let node = cluster.node("a").unwrap();
            node.journal().unwrap().counters().unwrap().write.bytes.0
        };
        let before = written(&cluster);
        for k in 0..50 {
            ask(&cluster, "a", &format!("INSERT INTO kept VALUES ({k})"));
        }
        assert!(written(&cluster) > before + 50 * 512, "{recipe}: commits write to the journal's disk");
        let node = cluster.node_mut("a").unwrap();
        node.power_cut(&PowerCut::default()).unwrap();
        node.kill().unwrap();
        node.power_on().unwrap();
        node.start().unwrap();
        assert_eq!(ask(&cluster, "a", "SELECT count(*) FROM kept"), "50", "{recipe}");
    }
}

#[test]
fn a_power_cut_takes_what_was_not_flushed_and_nothing_that_was() {
    let readahead = Bytes::kib(128);
    let Some(mut cluster) = started_on(DiskSpec { readahead, ..DiskSpec::default() }, options("postgres"))
    else {
        return;
    };
    ask(&cluster, "a", "CREATE TABLE kept (k int)");
    // The writer of the log is silenced, so that only a commit's own flush makes anything durable.
    for (durable, wanted) in [("on", "100"), ("off", "100")] {
        let node = cluster.node_mut("a").unwrap();
        let server = node.server_mut().unwrap();
        server.set("synchronous_commit", durable);
        server.set("wal_writer_delay", "10s");
        node.restart().unwrap();
        ask(&cluster, "a", "INSERT INTO kept SELECT generate_series(1, 100)");
        let node = cluster.node_mut("a").unwrap();
        let outage = node.power_cut(&PowerCut::default()).unwrap();
        // Its processes stand still and see nothing of it; they are there to be killed.
        assert!(!node.is_running() && node.server().unwrap().processes().len() > 3);
        assert!(fired(node.kill().unwrap()) > 3);
        assert!(!node.is_running() && !node.is_paused());
        node.power_on().unwrap();
        node.start().unwrap();
        assert_eq!(ask(&cluster, "a", "SELECT count(*) FROM kept"), wanted, "{durable}: {outage:?}");
    }
}

/// An answer that a node gave while its link was cut is held in its kernel. It arrives once the link is
/// healed, and never when the node has lost its power meanwhile: its client is told that the connection is no
/// more.
#[test]
fn what_the_kernel_of_a_node_without_power_held_reaches_nobody() {
    let Some(mut cluster) = started_on(DiskSpec::default(), options("postgres")) else { return };
    for power_cut in [false, true] {
        let mut client = under_way(&cluster, "a", "SELECT 'spoken' FROM pg_sleep(1)");
        soon(&cluster, "a", "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT ''spoken%'", "1");
        let fault = cluster.break_link("a", LABORATORY, Link::cut()).unwrap();
        let held = |cluster: &Cluster| cluster.network().unwrap().pair("a", LABORATORY).unwrap().counters.cut;
        let (before, began) = (held(&cluster), Instant::now());
        // Several: the answer, sent again and again.
        while held(&cluster) < before + 3 {
            assert!(began.elapsed() < PATIENCE, "the server did not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(client.try_wait().unwrap().is_none(), "nothing passed");
        if power_cut {
            let schedule: Schedule = "at 0 ms: power cut a, restart after 500 ms".parse().unwrap();
            let timed = schedule.expand(&["a".into()], Duration::from_secs(2), 1).unwrap();
            let policy = Policy { power: PowerCuts::default(), turn: 0, failover: Duration::ZERO };
            let began = Instant::now();
            let clock = || Tick(began.elapsed().as_nanos() as u64);
            let mut conductor = Conductor::new(&mut cluster, Agenda::new(&schedule, timed, policy));
            while let Some(next) = conductor.next() {
                std::thread::sleep(next.saturating_sub(began.elapsed()));
                conductor.act(began.elapsed(), &clock).unwrap();
            }
            conductor.finish(&clock).1.unwrap();
        } else {
            cluster.heal_link(&fault).unwrap();
        }
        let healed = Instant::now();
        while client.try_wait().unwrap().is_none() {
            assert!(healed.elapsed() < PATIENCE, "its client is not told: power cut {power_cut}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = client.wait_with_output().unwrap();
        let spoken = String::from_utf8_lossy(&said.stdout).contains("spoken");
        assert_eq!((spoken, said.status.success()), (!power_cut, !power_cut), "{said:?}");
    }
}

#[test]
fn a_schedule_is_carried_out_undone_and_says_what_it_hit() {
    let version = Postgres::all().iter().map(|found| found.major).min();
    let Some(mut cluster) = started(&ClusterOptions { version, ..options("postgres-sync") }) else { return };
    let text = "at 10 ms: cut b from c for 300 ms; at 20 ms: pause c for 500 ms; at 30 ms: cut a from b for 900 ms; \
                at 40 ms: kill c, restart after 100 ms; at 2 s: kill a, restart after 4 s";
    let schedule: Schedule = text.parse().unwrap();
    let names = ["a", "b", "c"].map(String::from);
    let timed = schedule.expand(&names, Duration::from_secs(7), 1).unwrap();
    // An idle primary says nothing to its standbys, and cutting it off would be no test of anything.
    let log = "DO $$ BEGIN FOR i IN 1..400 LOOP \
               PERFORM pg_logical_emit_message(false, 'noise', repeat('x', 1000)); PERFORM pg_sleep(0.02); \
               END LOOP; END $$";
    let mut writes = under_way(&cluster, "a", log);
    soon(&cluster, "a", "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'DO $$%'", "1");
    let began = Instant::now();
    let clock = || Tick(began.elapsed().as_nanos() as u64);
    let policy = Policy { power: PowerCuts::default(), turn: 0, failover: Duration::from_millis(300) };
    let mut conductor = Conductor::new(&mut cluster, Agenda::new(&schedule, timed, policy));
    while let Some(next) = conductor.next() {
        std::thread::sleep(next.saturating_sub(began.elapsed()));
        conductor.act(began.elapsed(), &clock).unwrap();
    }
    let _ = writes.kill();
    let _ = writes.wait();
    let (carried, undone) = conductor.finish(&clock);
    undone.unwrap();
    let hit: Vec<bool> = carried.iter().map(|fault| fault.injection.had_effect()).collect();
    // Standbys have nothing to say to each other, so cutting them apart is no test of anything.
    assert_eq!(hit, [false, true, true, true, true], "{carried:#?}");
    assert!(carried.iter().all(|fault| fault.injection.undone.is_some()), "{carried:#?}");
    assert!(carried[4].evidence.iter().any(|said| said.contains("took over from a")), "{carried:#?}");
    assert_ne!(cluster.primary(), "a");
    cluster.wait_whole(PATIENCE).unwrap();
    assert!(cluster.nodes().iter().all(|node| !node.is_paused()));
    assert_eq!(cluster.network().unwrap().pair("a", "b").unwrap().link, Link::default());
}

#[test]
fn galera_begins_again_after_all_of_it_was_killed() {
    let Some(mut cluster) = started(&options("galera")) else { return };
    ask(&cluster, "b", "CREATE TABLE kept (k INT PRIMARY KEY) ENGINE=InnoDB");
    ask(&cluster, "b", "INSERT INTO kept VALUES (1), (2)");
    let all = ["a", "b", "c"].map(String::from);
    for name in &all {
        fired(cluster.node_mut(name).unwrap().kill().unwrap());
    }
    cluster.come_back(&all).unwrap();
    cluster.wait_whole(PATIENCE).unwrap();
    for name in &all {
        soon(&cluster, name, "SELECT count(*) FROM kept", "2");
    }
}

/// Replicas follow over TLS too, and the address says what a client must trust.
#[test]
fn a_cluster_with_tls_lets_nobody_in_without() {
    for recipe in ["postgres-sync", "mariadb-semisync"] {
        let mut options = options(recipe);
        options.recipe.tls = true;
        let Some(cluster) = started(&options) else { continue };
        let url = cluster.url("a").unwrap();
        let (parameter, authority) = url.rsplit_once('=').unwrap();
        assert!(parameter.ends_with("sslrootcert") || parameter.ends_with("ssl-ca"), "{url}");
        assert!(std::fs::read_to_string(authority).unwrap().contains("BEGIN CERTIFICATE"), "{url}");
        assert_eq!(ask(&cluster, "b", "SELECT 1"), "1");
    }
}
