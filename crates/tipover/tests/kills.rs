//! `kill -9` at random moments: nothing that was finished is lost, nothing stays mounted or running, and the
//! next start, or `doctor --clean`, finds the rest.
//!
//! A few moments for each verb by default, the same ones each time; `TIPOVER_KILLS=50` tries so many, and
//! `TIPOVER_KILLS_SEED` others. What a campaign found is printed (`--nocapture`). Only what the campaign
//! started is looked at: other laboratories on this machine are none of its business.

mod program;

use program::results::{assert_untouched, below, kept};
use program::traces::{self, Suspect};
use program::{Place, Running, alone, can_mount, skipped};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tipover_core::workload::Random;

/// Processes that the program starts of itself.
const VERBS: [&str; 5] = ["load-generator", "disk-daemon", "network-daemon", "check-server", "lab-keeper"];
/// How long whatever was killed may take to be gone; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(90);

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// One verb, killed again and again in one place.
struct Campaign {
    name: &'static str,
    place: Place,
    kills: u64,
    chance: Random,
    done: u64,
    /// Every laboratory that was killed, and every disk daemon that was seen.
    laboratories: BTreeSet<u32>,
    daemons: BTreeSet<u32>,
    slowest: Duration,
    found: Vec<String>,
}

impl Campaign {
    fn new(name: &'static str) -> Campaign {
        let seed = number("TIPOVER_KILLS_SEED", 1);
        Campaign {
            name,
            place: Place::new(),
            kills: number("TIPOVER_KILLS", 3),
            chance: Random::new(seed, name.len() as u64),
            done: 0,
            laboratories: BTreeSet::new(),
            daemons: BTreeSet::new(),
            slowest: Duration::ZERO,
            found: Vec::new(),
        }
    }

    /// A moment of a run that takes this long.
    fn moment(&mut self, span: Duration) -> Duration {
        span.mul_f64(self.chance.unit())
    }

    fn processes(&self) -> Vec<String> {
        let of = |verb| self.place.processes(verb).into_iter().map(move |id| format!("process {id}: {verb}"));
        VERBS.into_iter().flat_map(of).collect()
    }

    fn note_daemons(&mut self) {
        self.daemons.extend(self.place.processes("disk-daemon"));
    }

    /// What is left, apart from what only the next start can take away: groups, and empty folders of the
    /// dead.
    fn left(&self) -> Vec<String> {
        let suspect = Suspect {
            folder: self.place.here(),
            laboratory: 0,
            daemons: self.daemons.iter().copied().collect(),
        };
        let mut left = traces::left(&suspect);
        left.retain(|line| !line.ends_with("is not empty"));
        left.extend(self.processes());
        left
    }

    /// Kills the laboratory this long after its start, or finds that it has ended; says whether it was
    /// killed.
    fn kill(&mut self, arguments: &[&str], after: Duration, judge: impl FnOnce(&str)) -> bool {
        let Campaign { place, daemons, .. } = self;
        let mut running = place.start(arguments);
        let id = running.id();
        let due = Instant::now() + after;
        let mut ended = false;
        while !ended && Instant::now() < due {
            std::thread::sleep(Duration::from_millis(2).min(due.saturating_duration_since(Instant::now())));
            ended = running.has_ended();
        }
        daemons.extend(place.processes("disk-daemon"));
        let killed = !ended && stop(&mut running);
        daemons.extend(place.processes("disk-daemon"));
        judge(&running.said());
        drop(running);
        if killed {
            self.laboratories.insert(id);
            self.done += 1;
        }
        killed
    }

    /// Waits until nothing is left but what the next start takes away.
    #[track_caller]
    fn assert_gone(&mut self, when: &str) {
        let began = Instant::now();
        loop {
            let left = self.left();
            if left.is_empty() {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{}, killed {when}: left behind: {left:#?}", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
        self.slowest = self.slowest.max(began.elapsed());
    }

    /// What of the dead laboratories is still there: groups, and folders.
    fn rest(&self) -> Vec<PathBuf> {
        let groups = self.laboratories.iter().flat_map(|id| {
            traces::groups(&Suspect { folder: self.place.here(), laboratory: *id, daemons: vec![] })
        });
        let places = [std::env::temp_dir(), self.place.here().join("results/.work")];
        let entries =
            places.iter().flat_map(|place| std::fs::read_dir(place).into_iter().flatten().flatten());
        let of_ours =
            |name: &str| self.laboratories.iter().any(|id| name.starts_with(&format!("tipover-{id}-")));
        let folders = entries.filter(|entry| of_ours(&entry.file_name().to_string_lossy()));
        groups.chain(folders.map(|entry| entry.path())).collect()
    }

    /// Ends the campaign: what no start has taken away is named by doctor, and taken away when it is asked.
    fn end(mut self) {
        let rest = self.rest();
        if !rest.is_empty() {
            let named = self.place.run(&["doctor"]).stdout;
            for path in &rest {
                let name = path.file_name().expect("a name").to_string_lossy();
                assert!(named.contains(&*name), "{}: doctor does not name {}", self.name, path.display());
            }
            self.place.run(&["doctor", "--clean"]).with_code(&[0, 1]);
            assert_eq!(self.rest(), Vec::<PathBuf>::new(), "{}: after doctor --clean", self.name);
        }
        self.assert_gone("at last");
        println!(
            "{}: killed {} times; all gone by itself after {:.1} s at most; {} groups and folders were left for \
             doctor; {}",
            self.name,
            self.done,
            self.slowest.as_secs_f64(),
            rest.len(),
            self.found.join("; "),
        );
    }
}

/// Kills it, unless it ends just then.
fn stop(running: &mut Running<'_>) -> bool {
    running.signal(Signal::KILL);
    running.was_killed()
}

/// Lines about finished trials: "cell #1: 1234 operations/s (1.2 s)".
fn announced(said: &str) -> usize {
    let is_one = |line: &&str| line.contains(" #") && line.ends_with(" s)") && !line.contains(": failed: ");
    said.lines().filter(is_one).count()
}

/// Kills a verb that keeps trials, whose runs go on where the one before was killed, `span` being about as
/// long as a trial or two with what comes before.
fn trials_survive(campaign: &mut Campaign, arguments: &[&str], experiment: &str, all: usize, span: Duration) {
    let mut before = Vec::new();
    let mut whole = 0;
    while campaign.done < campaign.kills {
        let moment = campaign.moment(span);
        let mut finished = 0;
        let killed = campaign.kill(arguments, moment, |said| finished = announced(said));
        campaign.assert_gone(&format!("after {moment:.1?}"));
        // Reading fails if one of them is not whole.
        let after = kept(&campaign.place, experiment);
        assert_untouched(&before, &after);
        assert!(
            after.len() >= before.len() + finished,
            "{finished} trials were announced, {} kept before, {} now",
            before.len(),
            after.len()
        );
        before = after;
        if !killed || before.len() >= all {
            assert!(killed || before.len() == all, "it ended with {} of {all} trials", before.len());
            whole += 1;
            std::fs::remove_dir_all(campaign.place.here().join("results")).expect("our own results");
            before.clear();
        }
    }
    let ended = campaign.place.run(arguments).with_code(&[0, 1]);
    let after = kept(&campaign.place, experiment);
    assert_untouched(&before, &after);
    assert_eq!(after.len(), all, "{}", ended.stderr);
    campaign.found.push(format!("{} runs of {all} trials came to their end", whole + 1));
}

#[test]
fn a_killed_run_loses_no_trial() {
    if !can_mount("killing runs") {
        return;
    }
    let _alone = alone();
    let mut campaign = Campaign::new("run");
    let cells = ["--only", "working_set=92 %", "--only", "disk=150 IOPS + 7 ms", "--only", "sessions=16"];
    let command = [&["run", "working-set", "--scale", "tiny", "--repeats", "3"], &cells[..]].concat();
    let all =
        campaign.place.run(&[&command[..], &["--list"]].concat()).with_code(&[0]).stdout.lines().count();
    trials_survive(&mut campaign, &command, "working-set", all, Duration::from_secs(8));
    campaign.end();
}

/// The trials that a search has kept, without how the target came to rest after them, which is found out
/// later; none before the search has begun. What was kept must be whole.
fn searched(place: &Place) -> Vec<serde_json::Value> {
    let root = place.here().join("results/capacity");
    let mut files = below(&root).into_iter().filter(|path| path.ends_with("search.json"));
    let Some(path) = files.next() else { return Vec::new() };
    assert_eq!(files.next(), None, "one cell, one search");
    let text = std::fs::read_to_string(root.join(&path)).expect("it is there");
    let record: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
    let mut trials = record["searches"][0]["trials"].as_array().expect("trials").clone();
    // What is only known when the next one begins.
    for trial in trials.iter_mut().map(|trial| trial.as_object_mut().expect("a trial")) {
        trial.retain(|key, _| key != "rest" && key != "rested_for");
    }
    trials
}

#[test]
fn a_killed_find_loses_no_trial() {
    if !can_mount("killing searches") {
        return;
    }
    let _alone = alone();
    let mut campaign = Campaign::new("find");
    // What it finds is nobody's concern here: a short budget.
    let cell = ["--only", "disk=3000 IOPS + 0.5 ms", "--set", "search.budget=20 s"];
    let command = [&["find", "capacity", "--scale", "tiny", "--no-interventions"][..], &cell].concat();
    let (mut before, mut whole, mut most) = (Vec::new(), 0, 0);
    while campaign.done < campaign.kills {
        let moment = campaign.moment(Duration::from_secs(20));
        let killed = campaign.kill(&command, moment, |_| {});
        campaign.assert_gone(&format!("after {moment:.1?}"));
        let after = searched(&campaign.place);
        assert!(after.starts_with(&before), "killed {moment:.1?}: {before:#?} became {after:#?}");
        most = most.max(after.len());
        before = after;
        if !killed {
            whole += 1;
            std::fs::remove_dir_all(campaign.place.here().join("results")).expect("our own results");
            before.clear();
        }
    }
    let ended = campaign.place.run(&command).with_code(&[0, 1]);
    let after = searched(&campaign.place);
    assert!(after.len() >= before.len().max(1), "{}", ended.stderr);
    campaign.found.push(format!("{} searches came to their end, the longest kept {most} trials", whole + 1));
    campaign.end();
}

#[test]
fn a_killed_break_loses_no_trial() {
    if !can_mount("killing runs that break") {
        return;
    }
    let _alone = alone();
    let mut campaign = Campaign::new("break");
    let all = campaign.kills.min(6) as usize + 1;
    let times = all.to_string();
    let command = [
        "break",
        "wiredtiger",
        "--disk-mode",
        "block",
        "--disk",
        "latency=1ms",
        "--disk-size",
        "256 MiB",
        "--sessions",
        "2",
        "--length",
        "2 s",
        "--faults",
        "at 1 s: power cut all, restart after 200 ms",
        "--times",
        &times,
    ];
    let plan = campaign.place.run(&[&command[..], &["--plan"]].concat()).with_code(&[0]).stdout;
    let name = plan.lines().find_map(|line| line.strip_prefix("name = ")).expect("a name");
    let name = name.trim_matches('"').to_string();
    trials_survive(&mut campaign, &command, &name, all, Duration::from_secs(10));
    campaign.end();
}

#[test]
fn a_killed_mount_leaves_a_whole_disk_or_nothing() {
    if !can_mount("killing mounts") {
        return;
    }
    let _alone = alone();
    let mut campaign = Campaign::new("disk mount");
    let at = campaign.place.here().join("disk");
    let at = at.to_str().expect("a path in UTF-8");
    let (mut kept, mut nothing) = (0, 0);
    while campaign.done < campaign.kills {
        // Making the larger file system takes most of the time, making the folder none.
        let (mode, size) =
            [("block", "64MiB"), ("block", "48GiB"), ("file", "64MiB")][campaign.done as usize % 3];
        let moment = campaign.moment(Duration::from_millis(if size == "48GiB" { 4000 } else { 1500 }));
        let shape = ["--spec", "latency=1ms", "--transport", "classic", "--mode", mode, "--size", size];
        campaign.kill(&[&["disk", "mount", at], &shape[..]].concat(), moment, |_| {});
        let began = Instant::now();
        let is_kept = |campaign: &Campaign| {
            let listed = campaign.place.run(&["--json", "disk", "list"]).with_code(&[0]).stdout;
            let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
            let disks = listed["disks"].as_array().expect("a list").iter();
            disks.filter(|disk| disk["mountpoint"] == at).any(|disk| disk["kept"] == true)
        };
        while !campaign.left().is_empty() && !is_kept(&campaign) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if is_kept(&campaign) {
            campaign.place.run(&["disk", "umount", at]).with_code(&[0]);
            kept += 1;
        } else {
            nothing += 1;
        }
        campaign.assert_gone(&format!("after {moment:.1?} of mounting {size} in {mode} mode"));
        let folder = campaign.place.here().join("disk");
        assert!(!folder.exists(), "the folder that mounting made is there still, killed after {moment:.1?}");
        let makers = program::traces::named("mkfs.ext4", &campaign.place.here());
        assert_eq!(makers, Vec::<u32>::new(), "mkfs goes on, killed after {moment:.1?}");
    }
    campaign.found.push(format!("{kept} were mounted and stayed, {nothing} were not and left nothing"));
    campaign.end();
}

#[test]
fn a_killed_laboratory_is_up_or_gone() {
    if !can_mount("killing laboratories") {
        return;
    }
    let _alone = alone();
    let mut campaign = Campaign::new("lab up");
    let name = format!("kills-{}", std::process::id());
    let command =
        ["lab", "up", "postgres", "--name", &name, "--disk", "latency=1ms", "--disk-size", "256MiB"];
    let began = Instant::now();
    let up = campaign.place.run(&command);
    if up.stderr.contains("is not installed") {
        skipped(up.stderr.trim());
        return;
    }
    up.with_code(&[0]);
    let span = began.elapsed();
    campaign.place.run(&["lab", "down", "--name", &name]).with_code(&[0]);
    campaign.assert_gone("never");
    let (mut up, mut gone) = (0, 0);
    while campaign.done < campaign.kills {
        let moment = campaign.moment(span);
        // In turns whoever waits for the laboratory, and its keeper.
        let keeper = campaign.done % 2 == 1;
        campaign.note_daemons();
        if keeper {
            let keepers = campaign.kill_keeper(&command, moment);
            campaign.laboratories.extend(keepers);
        } else {
            campaign.kill(&command, moment, |_| {});
        }
        // The keeper is the laboratory, whose number its groups bear.
        let keepers = campaign.place.processes("lab-keeper");
        campaign.laboratories.extend(keepers);
        let began = Instant::now();
        let is_up =
            |campaign: &Campaign| campaign.place.run(&["lab", "status", "--name", &name]).code == Some(0);
        while !campaign.left().is_empty() && !is_up(&campaign) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        if is_up(&campaign) {
            campaign.place.run(&["lab", "down", "--name", &name]).with_code(&[0]);
            up += 1;
        } else {
            gone += 1;
        }
        campaign.note_daemons();
        campaign.assert_gone(&format!("after {moment:.1?}{}", if keeper { ", the keeper" } else { "" }));
    }
    campaign.place.run(&command).with_code(&[0]);
    campaign.place.run(&["lab", "down", "--name", &name]).with_code(&[0]);
    campaign.found.push(format!("{up} laboratories were up and could be used, {gone} were gone"));
    campaign.end();
}

impl Campaign {
    /// Kills the keeper that the command starts; gives its number.
    fn kill_keeper(&mut self, arguments: &[&str], after: Duration) -> Vec<u32> {
        let Campaign { place, daemons, .. } = self;
        let running = place.start(arguments);
        std::thread::sleep(after);
        daemons.extend(place.processes("disk-daemon"));
        let keepers = place.processes("lab-keeper");
        for keeper in &keepers {
            let pid = rustix::process::Pid::from_raw(*keeper as i32).expect("a process has a number");
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        daemons.extend(place.processes("disk-daemon"));
        // Who waits hears of it, whatever had been said before.
        running.wait().with_code(&[0, 1]);
        self.done += 1;
        keepers
    }
}

/// A small file system of its own, taken away when dropped.
struct Small(PathBuf);

impl Small {
    fn at(path: PathBuf, options: &str) -> Small {
        std::fs::create_dir_all(&path).expect("the test's own folder");
        let options = std::ffi::CString::new(options).expect("no zero in it");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", &path, "tmpfs", flags, options.as_c_str()).expect("root may mount");
        Small(path)
    }

    fn read_only(&self, read_only: bool) {
        let mut flags = rustix::mount::MountFlags::empty();
        flags.set(rustix::mount::MountFlags::RDONLY, read_only);
        rustix::mount::mount_remount(&self.0, flags, c"").expect("nobody writes there now");
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// One sentence: no panic, no list of frames, and it names the folder.
#[track_caller]
fn assert_a_sentence(said: &str, words: &str) {
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("tipover: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains(words) && lines[0].contains("results"), "{said}");
    assert!(!said.contains("panicked") && !said.contains("backtrace"), "{said}");
}

#[test]
fn a_full_and_a_read_only_disk_are_said_and_lose_nothing() {
    if !can_mount("results on a full disk") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let results = Small::at(place.here().join("results"), "size=300m");
    let command =
        ["run", "working-set", "--scale", "tiny", "--only", "working_set=92 %", "--only", "sessions=16"];
    let filler = place.here().join("results/filler");
    let mut run = place.start(&command);
    run.until("a record", |place| (!kept(place, "working-set").is_empty()).then_some(()));
    // As much as there is room for.
    let mut file = std::fs::File::create(&filler).expect("there is room for a name");
    while std::io::Write::write_all(&mut file, &[1; 1 << 16]).is_ok() {}
    drop(file);
    let ended = run.wait().with_code(&[1]);
    assert_a_sentence(&ended.stderr, "No space left on device");
    let first = kept(&place, "working-set");
    assert!(!first.is_empty());
    // Begun on a full disk it does not measure what it cannot keep.
    let ended = place.run(&command).with_code(&[2]);
    assert!(ended.stderr.contains("this cannot run here"), "{}", ended.stderr);
    assert_untouched(&first, &kept(&place, "working-set"));

    std::fs::remove_file(&filler).expect("our own file");
    results.read_only(true);
    let ended = place.run(&command).with_code(&[2]);
    assert_a_sentence(&ended.stderr, "Read-only file system");
    place.run(&["show", "working-set"]).with_code(&[0]);
    let ended = place.run(&["report", "working-set"]).with_code(&[1]);
    assert_a_sentence(&ended.stderr, "Read-only file system");
    results.read_only(false);

    let ended = place.run(&command).with_code(&[0, 1]);
    assert!(ended.stderr.contains("were there already"), "{}", ended.stderr);
    assert_untouched(&first, &kept(&place, "working-set"));
    assert!(!place.here().join("results/.work").exists(), "the folder for disks is not removed");
}
