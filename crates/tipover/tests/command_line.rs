//! The command line as people meet it: what it says about itself, and what it says to those who err.
//!
//! Nothing here mounts or measures, so everything runs in parallel and without root.

mod program;

use program::{Ended, NO_MONGOD, Place, results::below};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Every verb that people see; the empty one is the program itself.
const VERBS: [&str; 22] = [
    "",
    "break",
    "doctor",
    "run",
    "find",
    "plan",
    "list",
    "show",
    "report",
    "self-test",
    "learn",
    "ycsb",
    "pgbench",
    "audit",
    "compare",
    "export",
    "disk",
    "lab",
    "agent",
    "fleet",
    "tour",
    "explain",
];
/// What can be done with a disk.
const DISK_VERBS: [&str; 12] = [
    "bench",
    "watch",
    "mount",
    "umount",
    "list",
    "set",
    "stats",
    "trace",
    "fault",
    "power-cut",
    "power-on",
    "profiles",
];

fn words<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    std::iter::once(verb).filter(|v| !v.is_empty()).chain(more.iter().copied()).collect()
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/golden").join(name)
}

/// The flags that ask `verb` for help. To pgbench `-h` is the server's host.
fn flags_for_help(verb: &str) -> &'static [(&'static str, &'static str)] {
    let both = &[("--help", "long"), ("-h", "short")];
    if verb == "pgbench" { &both[..1] } else { both }
}

/// Compares a text with the golden file of that name, or, with UPDATE_GOLDEN=1, writes the file.
fn assert_golden(name: &str, text: &str) {
    let path = golden(name);
    // Which lines end in blanks is the formatter's business, and editors remove them.
    let text: String = text.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1") {
        fs::create_dir_all(path.parent().expect("a folder")).expect("the source tree can be written");
        fs::write(&path, &text).expect("the source tree can be written");
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, wanted, "{} differs; UPDATE_GOLDEN=1 rewrites it", path.display());
}

#[test]
fn help_is_as_it_was_agreed() {
    let place = Place::new();
    for verb in VERBS {
        for (flag, length) in flags_for_help(verb) {
            let help = place.run(&words(verb, &[flag])).with_code(&[0]);
            assert_eq!(help.stderr, "", "{verb} {flag}");
            let name = if verb.is_empty() { "tipover" } else { verb };
            assert_golden(&format!("{name}-{length}.txt"), &help.stdout);
        }
    }
    assert_eq!(place.content(), Vec::<PathBuf>::new(), "help creates nothing");
}

#[test]
fn help_about_disks_is_as_it_was_agreed() {
    let place = Place::new();
    let all = place.run(&["disk", "-h"]).with_code(&[0]).stdout;
    for verb in DISK_VERBS {
        assert!(all.lines().any(|l| l.trim_start().starts_with(&format!("{verb} "))), "{verb} is not listed");
        let help = place.run(&["disk", verb, "--help"]).with_code(&[0]);
        assert_golden(&format!("disk-{verb}-long.txt"), &help.stdout);
    }
    let help = place.run(&["disk", "fault", "add", "--help"]).with_code(&[0]);
    assert_golden("disk-fault-add-long.txt", &help.stdout);
}

/// DESIGN.md: `-h` is a line, `--help` a paragraph. What a verb does must fit into the list of verbs.
#[test]
fn short_help_is_shorter_and_every_verb_says_what_it_does() {
    let place = Place::new();
    let all = place.run(&["-h"]).with_code(&[0]).stdout;
    for verb in VERBS.into_iter().filter(|v| !v.is_empty()) {
        let line = all.lines().find(|l| l.trim_start().starts_with(&format!("{verb} ")));
        let about =
            line.unwrap_or_else(|| panic!("{verb} is not listed")).trim().trim_start_matches(verb).trim();
        assert!((10..=80).contains(&about.len()), "{verb}: {about}");
        let lengths = flags_for_help(verb).iter();
        let lengths = lengths.map(|(flag, _)| place.run(&[verb, flag]).with_code(&[0]).stdout.len());
        assert!(lengths.is_sorted_by(|long, short| long > short), "{verb}");
    }
    for hidden in
        ["load-generator", "disk-daemon", "network-daemon", "lab-keeper", "package-files", "sample-report"]
    {
        assert!(!all.contains(hidden), "{hidden} is nobody's business");
    }
}

/// Somebody's mistake: what they typed, and what the answer must contain.
struct Mistake {
    typed: &'static [&'static str],
    answered: &'static [&'static str],
}

const TINY: [&str; 4] = ["run", "working-set", "--scale", "tiny"];

/// All of these are found before anything is made.
const MISTAKES: &[Mistake] = &[
    Mistake {
        typed: &["run", "workin-set"],
        answered: &["unknown experiment `workin-set`", "`working-set`"],
    },
    Mistake { typed: &["rum", "working-set"], answered: &["'rum'", "'run'"] },
    Mistake { typed: &["run", "working-set", "--ony", "disk=1"], answered: &["'--ony'", "'--only'"] },
    Mistake { typed: &["run"], answered: &["<PLAN>"] },
    Mistake { typed: &["run", "working-set", "--scale", "tinny"], answered: &["scale `tinny`", "`tiny`"] },
    Mistake { typed: &["run", "working-set", "--scale", "enormous"], answered: &["tiny, quick, full"] },
    Mistake { typed: &["--only", "disc=5000 IOPS"], answered: &["axis `disc`", "`disk`"] },
    Mistake { typed: &["--only", "disk=500 IOPS"], answered: &["axis disk", "`500 IOPS`", "`5000 IOPS`"] },
    Mistake { typed: &["--only", "working_set=many"], answered: &["`many`", "92 %, 138 %"] },
    Mistake { typed: &["--only", "disk"], answered: &["\"disk\" is not NAME=VALUE"] },
    Mistake { typed: &["--set", "disk.shpe=iops=5"], answered: &["setting `shpe`", "`shape`"] },
    Mistake { typed: &["--set", "target.wiredtiger.cash=5 MiB"], answered: &["setting `cash`", "`cache`"] },
    Mistake { typed: &["--set", "disk.mode=blok"], answered: &["value `blok`", "`block`"] },
    Mistake { typed: &["--set", "target.kind=wiredtigre"], answered: &["`wiredtigre`", "`wiredtiger`"] },
    Mistake { typed: &["--set", "disk.readahead"], answered: &["is not NAME=VALUE"] },
    Mistake { typed: &["--set", "machine.memory=80 Mb"], answered: &["\"80 Mb\" is not a size", "MiB"] },
    Mistake { typed: &["--set", "trial.interval=5 parsecs"], answered: &["\"5 parsecs\" is not"] },
    Mistake { typed: &["--set", "load.sessions=many"], answered: &["\"many\""] },
    Mistake { typed: &["--set", "load.sessions=0"], answered: &["load.sessions must be at least 1"] },
    Mistake {
        typed: &["--set", "target.wiredtiger.cache=1 GiB"],
        answered: &["machine.memory of 81 MiB cannot hold a cache of 1 GiB"],
    },
    Mistake { typed: &["--set", "target.wiredtiger.cache=1 MiB"], answered: &["too small to run", "4 MiB"] },
    Mistake { typed: &["--set", "disk.size=200 MiB"], answered: &["disk.size of 200 MiB is too small"] },
    // Each data set fits, all of them do not.
    Mistake {
        typed: &["--set", "disk.size=500 MiB"],
        answered: &["disk.size of 500 MiB is too small", "--only"],
    },
    Mistake { typed: &["--set", "machine.memory=60000 GiB"], answered: &["this cannot run here", "memory"] },
    Mistake {
        typed: &["--set", "disk.mode=block", "--set", "disk.size=4000000 TiB"],
        answered: &["working-set: disk.size: a disk of", "give it at most"],
    },
    Mistake { typed: &["--repeats", "60000000"], answered: &["repeats = 60000000", "1 to 100000"] },
    Mistake { typed: &["--repeats", "0"], answered: &["repeats = 0", "1 to 100000"] },
    Mistake { typed: &["--repeats", "few"], answered: &["'few'", "--repeats"] },
    Mistake { typed: &["run", "nowhere.toml"], answered: &["nowhere.toml: No such file"] },
    Mistake { typed: &["run", "."], answered: &[".: Is a directory"] },
    Mistake { typed: &["disk", "mount", "here"], answered: &["which disk?", "--profile", "--spec"] },
    Mistake { typed: &["disk", "mount", "here", "--profile", "gp4"], answered: &["\"gp4\"", "\"gp3\""] },
    Mistake { typed: &["disk", "mount", "here", "--spec", "latncy=7ms"], answered: &["\"latency\""] },
    Mistake { typed: &["disk", "mount", "here", "--spec", "latency=7"], answered: &["\"7 ms\""] },
    Mistake {
        typed: &["disk", "mount", "here", "--profile", "gp3", "--owner", "no-such-user"],
        answered: &["no such user"],
    },
    Mistake {
        typed: &["disk", "mount", "here", "--profile", "gp3", "--backing", "nowhere"],
        answered: &["--backing nowhere", "memory"],
    },
    Mistake { typed: &["disk", "stats", "nowhere"], answered: &["no shaped disk is mounted at", "nowhere"] },
    Mistake { typed: &["disk", "umount", "nowhere"], answered: &["no shaped disk is mounted at"] },
    Mistake { typed: &["disk", "fault", "add", "nowhere", "eios"], answered: &["\"eios\"", "\"eio\""] },
    Mistake { typed: &["disk", "power-cut", "nowhere", "--how", "torn=3B"], answered: &["torn=512B"] },
    Mistake { typed: &["disk", "trace", "show", "nowhere"], answered: &["nowhere cannot be read"] },
    Mistake { typed: &["disk", "trace", "replay", "nowhere", "."], answered: &["nowhere cannot be read"] },
    Mistake { typed: &["run", "large-value", "--scale", "tiny"], answered: &["`large-values`"] },
    Mistake { typed: &["tour", "11"], answered: &["no question `11`", "1 to 10"] },
    Mistake {
        typed: &["show", "working-set"],
        answered: &[
            "no results of `working-set` in results yet: `tipover run working-set` makes some",
            "`tipover run working-set`",
        ],
    },
    Mistake {
        typed: &["report", "working-set"],
        answered: &[
            "no results of `working-set` in results yet: `tipover run working-set` makes some",
            "`tipover run working-set`",
        ],
    },
];

#[track_caller]
fn assert_refused(place: &Place, typed: &[&str], answered: &[&str]) -> Ended {
    let before = place.content();
    let ended = place.run(typed);
    assert_eq!(ended.code, Some(2), "{typed:?}: {}", ended.stderr);
    assert_eq!(ended.stdout, "", "{typed:?}");
    for part in answered {
        assert!(ended.stderr.contains(part), "{typed:?}: no {part:?} in: {}", ended.stderr);
    }
    // One sentence of ours, or clap's sentence with its hints; never a trace, never a wall of text.
    let sentences = ended.stderr.lines().filter(|l| l.starts_with("tipover: ") || l.starts_with("error: "));
    assert_eq!(sentences.count(), 1, "{typed:?}: {}", ended.stderr);
    assert!(ended.stderr.len() < 600, "{typed:?}: {}", ended.stderr);
    assert_eq!(place.content(), before, "{typed:?} created something");
    ended
}

#[test]
fn mistakes_are_answered_with_the_right_word_and_leave_nothing() {
    let place = Place::new();
    for Mistake { typed, answered } in MISTAKES {
        let mut all = if typed[0].starts_with("--") { TINY.to_vec() } else { vec![] };
        all.extend(*typed);
        assert_refused(&place, &all, answered);
        // What cannot run cannot be listed either, or `--list` would not be the check that it promises to be.
        // What the machine cannot do is said after the list.
        if all[0] == "run" {
            all.push("--list");
            let ended = place.run(&all).with_code(&[2]);
            assert!(answered.iter().all(|words| ended.stderr.contains(words)), "{all:?}: {}", ended.stderr);
        }
    }
}

#[test]
fn plans_that_cannot_be_read_are_refused_with_their_line() {
    let place = Place::new();
    let plan = include_str!("../../../experiments/working-set.toml");
    place.write("broken.toml", "name = \"broken\"\ntitle = \"t\"\nquestion who knows\n");
    assert_refused(&place, &["run", "broken.toml", "--scale", "tiny"], &["broken.toml", "line 3"]);
    place.write("empty.toml", "[scale.tiny]\n");
    assert_refused(
        &place,
        &["run", "empty.toml", "--scale", "tiny"],
        &["empty.toml", "the plan lacks `name`"],
    );
    place.write("nothing.toml", "");
    assert_refused(&place, &["run", "nothing.toml"], &["nothing.toml: the plan is empty", "tipover list"]);
    place.write("first.toml", &plan.replacen("name = ", "nmae = ", 1));
    let line = plan.lines().position(|line| line.starts_with("name = ")).expect("a plan has a name") + 1;
    let answered = format!("first.toml: line {line}: unknown setting `nmae`: did you mean `name`?");
    assert_refused(&place, &["run", "first.toml"], &[&answered]);
    let line = plan.lines().position(|line| line == "sessions = 16").expect("a plan has sessions") + 1;
    place.write("kind.toml", &plan.replacen("sessions = 16", "sessions = \"many\"", 1));
    let answered = format!("line {line}: load.sessions is the text \"many\", and must be a whole number");
    assert_refused(&place, &["run", "kind.toml"], &[&answered]);
    place.write("typo.toml", &plan.replacen("readahead", "readahed", 1));
    let answered = ["typo.toml", "`readahed`", "`readahead`"];
    assert_refused(&place, &["run", "typo.toml", "--scale", "tiny"], &answered);
    place.write("scaleless.toml", plan.split("[scale.tiny]").next().unwrap());
    assert_refused(&place, &["run", "scaleless.toml", "--scale", "tiny"], &["no scale", "[scale.tiny]"]);
    fs::write(place.here().join("binary.toml"), [0xff, 0xfe, 0x00, 0x80]).unwrap();
    assert_refused(&place, &["run", "binary.toml"], &["binary.toml"]);
    if rustix::process::geteuid().is_root() {
        let stranger = Place::of_user(65534, 65534);
        stranger.write("closed.toml", plan);
        use std::os::unix::fs::PermissionsExt;
        let closed = fs::Permissions::from_mode(0o000);
        fs::set_permissions(stranger.here().join("closed.toml"), closed).unwrap();
        assert_refused(&stranger, &["run", "closed.toml"], &["closed.toml: Permission denied"]);
    }
}

#[test]
fn results_of_something_else_are_not_touched() {
    let place = Place::new();
    let plan = include_str!("../../../experiments/working-set.toml");
    let run = |results| ["run", "working-set", "--scale", "tiny", "--results", results];

    place.write("file", "not a folder");
    assert_refused(&place, &run("file"), &["file is a file, not a folder", "--results"]);

    fs::create_dir_all(place.here().join("foreign/working-set")).unwrap();
    place.write("foreign/working-set/thesis.doc", "three years of work");
    assert_refused(
        &place,
        &run("foreign"),
        &["working-set is not a results folder", "no plan.toml", "--results"],
    );

    // The same name, another plan: as if somebody had changed a copy.
    fs::create_dir_all(place.here().join("other/working-set")).unwrap();
    let other = plan.replacen("repeats = 3", "repeats = 4", 1);
    place.write("other/working-set/plan.toml", &other);
    let line = plan.lines().position(|l| l == "repeats = 3").expect("the plan repeats thrice") + 1;
    let answered =
        ["another version of this plan", &format!("from line {line}"), "--results", "--replace-plan"];
    assert_refused(&place, &run("other"), &answered);
    assert_eq!(fs::read_to_string(place.here().join("other/working-set/plan.toml")).unwrap(), other);

    let show = ["show", "workingset", "--results", "other"];
    assert_refused(&place, &show, &["unknown results `workingset`", "`working-set`"]);

    // And the other way round: the plan by path, the results of the one that is built in.
    fs::create_dir_all(place.here().join("results/working-set")).unwrap();
    place.write("results/working-set/plan.toml", plan);
    place.write("mine.toml", &other);
    assert_refused(&place, &["run", "mine.toml", "--scale", "tiny"], &["another version of this plan"]);
}

#[test]
fn lists_say_what_there_is() {
    let place = Place::new();
    let text = place.run(&["list"]).with_code(&[0]).stdout;
    assert!(text.contains("working-set  [tiny, quick, full]") && text.contains("none yet"), "{text}");
    let json = json(&place.run(&["list", "--json"]));
    assert_eq!(json["experiments"][0]["name"], "working-set");
    assert_eq!(json["experiments"][0]["scales"], serde_json::json!(["tiny", "quick", "full"]));
    assert_eq!(json["results"], serde_json::json!([]));

    let words = [&["run", "working-set", "--scale", "tiny", "--list"][..], &NO_MONGOD].concat();
    let listed = place.run(&words).with_code(&[0]);
    assert!(listed.stderr.contains("mongodb is left out: mongod is not installed"), "{}", listed.stderr);
    assert_eq!(listed.stdout.lines().count(), 25, "{}", listed.stdout);
    assert!(listed.stdout.lines().all(|l| l.ends_with(" #1 missing")), "{}", listed.stdout);
    assert!(listed.stderr.contains("25 trials, 25 missing"), "{}", listed.stderr);
    assert!(
        listed.stderr.contains("estimate: ") && listed.stderr.contains("not measured"),
        "{}",
        listed.stderr
    );
    let only = ["--only", "disk=5000 IOPS", "--only", "working_set=92 %", "--repeats", "2"];
    let typed: Vec<&str> =
        TINY.into_iter().chain(NO_MONGOD).chain(only).chain(["--list", "--json"]).collect();
    let listed = self::json(&place.run(&typed));
    let (shortest, longest) = (&listed["estimate"]["shortest_ns"], &listed["estimate"]["longest_ns"]);
    assert!(listed["refused"].is_null() && shortest.as_u64() < longest.as_u64(), "{listed}");
    let rows = listed["trials"].as_array().expect("a list of trials");
    // The device sweep has no working set, so its two cells on this disk stay.
    assert_eq!(rows.len(), 2 * 3, "{rows:?}");
    assert!(
        rows.iter()
            .all(|row| row["state"] == "missing" && row["cell"].as_str().is_some_and(|c| !c.is_empty()))
    );
    // The order is drawn from the plan's seed: the same whenever it is asked for.
    let [first, second] = [0; 2].map(|_| place.run(&["run", "working-set", "--list"]).with_code(&[0]).stdout);
    assert_eq!(first, second);
    assert_eq!(place.content(), Vec::<PathBuf>::new(), "listing creates nothing");
}

#[test]
fn doctor_says_what_to_do_next() {
    let place = Place::new();
    let text = place.run(&["doctor"]).with_code(&[0, 1]).stdout;
    for id in ["fuse", "root", "loop", "memory-limit", "disk-space", "cores"] {
        assert!(text.contains(&format!(" {id}: ")), "{id} is not looked at: {text}");
    }
    let json = json(&place.run(&["doctor", "--json"]));
    assert!(json["machine"]["cores"].as_u64().is_some_and(|n| n > 0));
    let requirements = json["requirements"].as_array().expect("a list");
    for requirement in requirements {
        for key in ["id", "wanted", "found", "why", "next"] {
            assert!(requirement[key].as_str().is_some_and(|t| !t.is_empty()), "{requirement}");
        }
    }
    assert_eq!(below(&place.here()), Vec::<PathBuf>::new());
}

#[test]
fn self_test_measures_the_generator() {
    let place = Place::new();
    let quick = ["self-test", "--json", "--time", "50 ms", "--repeats", "1", "--threads", "1"];
    let json = json(&place.run(&quick));
    let rows = json.as_array().expect("a list");
    let (open, closed): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["loop"] == "open");
    let requests: Vec<_> = closed.iter().map(|row| row["requests"].as_str().unwrap_or_default()).collect();
    assert_eq!(requests, ["uniform", "zipfian"]);
    assert!(!open.is_empty());
    for row in open {
        assert!(row["offered_ops_per_s"].as_f64().is_some_and(|n| n > 0.0), "{row}");
        assert!(row["lateness_ns_p99"].as_u64() >= row["lateness_ns_p50"].as_u64(), "{row}");
    }
    for row in closed {
        assert_eq!(row["threads"], 1);
        // How many there are is the machine's affair, and its neighbours'.
        assert!(row["throughput_ops_per_core_s"].as_f64().is_some_and(|n| n > 0.0), "{row}");
    }
}

#[test]
fn every_term_is_explained_and_a_slip_is_answered_with_the_nearest() {
    let place = Place::new();
    let all = place.run(&["explain"]).with_code(&[0]).stdout;
    assert!(all.contains("coordinated omission") && all.contains("Figures and their doubt"), "{all}");
    assert!(all.lines().all(|line| line.chars().count() <= 100), "{all}");
    let little = place.run(&["explain", "little's", "LAW"]).with_code(&[0]).stdout;
    assert!(little.contains("formula: N = X × R") && little.contains("see: residual"), "{little}");
    assert_refused(&place, &["explain", "residense"], &["`residense`", "did you mean `residence`"]);
    assert_refused(&place, &["explain", "zipfian", "--keys", "7"], &["--keys: 7 keys", "10,000,000"]);
    assert_refused(&place, &["explain", "zipfian", "--theta", "nan"], &["--theta NaN"]);

    let zipfian = place.run(&["explain", "zipfian", "--keys", "1000"]).with_code(&[0]).stdout;
    assert!(zipfian.contains("over 1000 keys") && zipfian.contains("12.9 %"), "{zipfian}");
    let answer = json(&place.run(&["explain", "zipfian", "--keys", "1000", "--json"]));
    let row = &answer["shares"][2];
    assert_eq!(
        (answer["term"].as_str(), row["distribution"].as_str()),
        (Some("zipfian"), Some("zipfian, true"))
    );
    assert!(row["hottest"].as_f64().is_some_and(|share| (share - 0.129).abs() < 0.001), "{row}");
    assert!(json(&place.run(&["explain", "knee", "--json"])).get("shares").is_none());
    assert_eq!(place.content(), Vec::<PathBuf>::new(), "explaining creates nothing");
}

/// The page and the command are made of the same words; UPDATE_GOLDEN=1 rewrites the page.
#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut explain = Command::new(env!("CARGO_BIN_EXE_tipover"));
    let ended = explain.args(["explain", "zipfian"]).stdout(writer).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((ended.status.code(), String::from_utf8(ended.stderr).unwrap()), (Some(141), String::new()));
}

/// Whoever writes an answer onto a full disk hears of it, in a sentence.
#[test]
fn an_answer_that_cannot_be_printed_is_said() {
    let place = Place::new();
    let verbs = [
        "--help",
        "--version",
        "run --help",
        "list",
        "list --json",
        "doctor",
        "doctor --json",
        "explain zipfian",
        "disk profiles",
        "disk profiles --json",
        "disk list",
        "lab recipes",
        "break wiredtiger --plan",
        "run working-set --list",
        "run working-set --list --json",
        "show working-set",
    ];
    for verb in verbs {
        let full = fs::File::options().write(true).open("/dev/full").expect("every Linux has it");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tipover"));
        command.args(verb.split(' ')).current_dir(place.here()).stdin(Stdio::null()).stdout(full);
        let ended = command.stderr(Stdio::piped()).output().expect("it starts");
        let said = String::from_utf8(ended.stderr).expect("UTF-8");
        if verb.starts_with("show") {
            // Nothing was to be printed, so nothing is in the way of the answer.
            assert_eq!(ended.status.code(), Some(2), "{verb}: {said}");
            continue;
        }
        assert_eq!(ended.status.code(), Some(1), "{verb}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(last.starts_with("tipover: the answer cannot be printed: No space left"), "{verb}: {said}");
        assert!(!said.contains("panicked"), "{verb}: {said}");
    }
}

#[test]
fn the_tour_lists_its_questions_and_carries_out_one() {
    let place = Place::new();
    let listed = place.run(&["tour"]).with_code(&[0]).stdout;
    assert!(listed.contains("\n 3. ") && listed.contains("--only 'disk=600 IOPS + 7 ms'"), "{listed}");
    let told = json(&place.run(&["tour", "--json"]));
    assert_eq!(told.as_array().map(Vec::len), Some(10));
    let alone = place.run(&["explain", "zipfian"]).with_code(&[0]);
    let toured = place.run(&["tour", "2"]).with_code(&[0]);
    assert_eq!(toured.stdout, alone.stdout, "the answer is that of the command");
    assert!(toured.stderr.contains("$ tipover explain zipfian"), "{}", toured.stderr);
    // What works on the results of another question says what to run first.
    let early = place.run(&["tour", "4"]).with_code(&[2]);
    assert!(early.stderr.contains("working-set"), "{}", early.stderr);
    assert_eq!(place.content(), Vec::<PathBuf>::new());
}

#[test]
fn the_glossary_says_what_explain_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/glossary.md");
    let text = tipover_core::explain::glossary();
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1") {
        fs::write(&path, &text).expect("the source tree can be written");
    }
    let page = fs::read_to_string(&path).unwrap();
    assert!(
        page == text,
        "docs/glossary.md differs from crates/core/src/explain/terms.toml; UPDATE_GOLDEN=1 rewrites it"
    );
}

#[track_caller]
fn json(ended: &Ended) -> serde_json::Value {
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout))
}

/// The page that an expert wants to read, word for word: a law, a tolerance or a sentence that changes is
/// seen.
#[test]
fn the_audit_of_the_published_studies_is_as_it_was_agreed() {
    let place = Place::new();
    copy_published(&place);
    let audit = place.run(&["audit", "published"]).with_code(&[1]);
    let page: String =
        audit.stdout.lines().filter(|l| !l.starts_with("  commit ")).map(|l| format!("{l}\n")).collect();
    assert_golden("audit-published.txt", &page);
    assert_eq!(audit.stderr, "");
    // Alone, the studies whose numbers agree with each other are acquitted.
    let sound = place.run(&["audit", "published/large-values.json"]).with_code(&[0]);
    assert!(sound.stdout.contains("nothing broken") || sound.stdout.contains("0 broken"), "{}", sound.stdout);
}

fn copy_published(place: &Place) {
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../published");
    for entry in fs::read_dir(published).expect("published studies") {
        let path = entry.expect("a file").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        place.write(&format!("published/{name}"), &fs::read_to_string(&path).expect("a text"));
    }
}

#[test]
fn an_audit_says_what_it_cannot_read_and_what_it_leaves_out() {
    let place = Place::new();
    place.write("mixed/lonely.csv", "a,b\n1,2\n");
    place.write("mixed/notes.md", "nothing to see\n");
    place.write(
        "mixed/ycsb.txt",
        "[OVERALL], RunTime(ms), 1000\n[OVERALL], Throughput(ops/sec), 10.0\n[READ], Operations, 10\n",
    );
    let mixed = place.run(&["audit", "mixed"]).with_code(&[0]);
    assert!(mixed.stdout.contains("lonely.csv") && mixed.stdout.contains("mapping.toml"), "{}", mixed.stdout);
    assert!(!mixed.stdout.contains("notes.md"), "{}", mixed.stdout);
    let alone = place.run(&["audit", "mixed/lonely.csv"]).with_code(&[2]);
    assert!(alone.stderr.contains("mapping.toml"), "{}", alone.stderr);
    let missing = place.run(&["audit", "nowhere"]).with_code(&[2]);
    assert!(missing.stderr.contains("no such file or folder"), "{}", missing.stderr);
    let json = json(&place.run(&["audit", "mixed", "--json"]));
    assert_eq!(json["left_out"].as_array().map(Vec::len), Some(1), "{json}");
}

/// YCSB prints zeros for what it did not do, and they are faster than anything.
#[test]
fn rows_of_no_operations_are_no_measurements() {
    let place = Place::new();
    let done = "[OVERALL], RunTime(ms), 1000\n[OVERALL], Throughput(ops/sec), 10.0\n[READ], Operations, 10\n\
                [READ], AverageLatency(us), 50.5\n[READ], MinLatency(us), 40\n[READ], MaxLatency(us), 60\n";
    let nothing = "[UPDATE], Operations, 0\n[UPDATE], AverageLatency(us), 0.0\n[UPDATE], MinLatency(us), 0\n\
                   [UPDATE], MaxLatency(us), 0\n[UPDATE], 99thPercentileLatency(us), 0\n";
    place.write("both.txt", &format!("{done}{nothing}"));
    place.write("done.txt", done);
    place.write("nothing.txt", nothing);
    let both = place.run(&["audit", "both.txt"]).with_code(&[0]);
    assert!(both.stdout.contains("UPDATE: 0 operations"), "{}", both.stdout);
    assert!(!place.run(&["audit", "done.txt"]).with_code(&[0]).stdout.contains("0 operations"));
    place.run(&["audit", "nothing.txt"]).with_code(&[2]);
    let compared = place.run(&["compare", "both.txt", "both.txt", "--json"]);
    assert!(!compared.stdout.contains("YCSB: UPDATE"), "{}", compared.stdout);
}

/// Damage in a folder is a finding, and a file that is nothing but damage cannot be read.
#[test]
fn an_audit_accuses_damaged_files() {
    let place = Place::new();
    place.write("results/whole/record.json", "{\"format\": 1, \"experiment\": \"a\", \"verdict\": {}}");
    place.write("results/torn/record.json", "{\"format\": 2, \"experiment\": \"a\", \"verd");
    let torn = place.run(&["audit", "results"]).with_code(&[1]);
    assert!(torn.stdout.contains("damaged JSON") && torn.stdout.contains("1 broken"), "{}", torn.stdout);
    assert!(torn.stdout.contains("a record of format 1"), "{}", torn.stdout);
    let alone = place.run(&["audit", "results/torn/record.json"]).with_code(&[2]);
    assert!(alone.stderr.contains("damaged JSON"), "{}", alone.stderr);
    place.run(&["audit", "results/whole"]).with_code(&[2]);
}

/// Whatever cannot be meant is refused in words, before anything is started.
#[test]
fn find_refuses_promises_and_loads_that_cannot_be_meant() {
    let place = Place::new();
    let refused = |arguments: &[&str], words: &str| {
        let run = place.run(&[&["find", "capacity"], arguments].concat()).with_code(&[2]);
        assert!(run.stderr.contains(words), "{arguments:?}: {}", run.stderr);
    };
    refused(&["--promise", "p99 <= 0 ms"], "no operation takes no time");
    for (from, to) in
        [("500", "100"), ("NaN", "100"), ("1", "NaN"), ("1", "1e300"), ("1e300", "1e301"), ("-5", "9")]
    {
        refused(&[&format!("--from={from}"), &format!("--to={to}")], "are no range");
    }
    refused(&["--sessions", "--from=0.5"], "are no range");
}

/// Three files of one program on either side, the second side slower by a third.
#[test]
fn compare_tells_a_slower_side_from_the_same_side_again() {
    let place = Place::new();
    for (side, level) in [("a", 1000.0), ("again", 1002.0), ("b", 700.0)] {
        for trial in 0..8 {
            let throughput = level * (1.0 + 0.004 * f64::from(trial % 4));
            let text = format!(
                "[OVERALL], RunTime(ms), 10000\n[OVERALL], Throughput(ops/sec), {throughput}\n[READ], Operations, 10000\n\
                 [READ], AverageLatency(us), {}\n",
                8e6 / throughput
            );
            place.write(&format!("{side}/{trial}.txt"), &text);
        }
    }
    let same = place.run(&["compare", "a", "again"]).with_code(&[0]);
    assert!(same.stdout.contains("No difference in"), "{}", same.stdout);
    let slower = place.run(&["compare", "a", "b", "--again", "again"]).with_code(&[1]);
    assert!(
        slower.stdout.contains("worse") && slower.stdout.contains("b is lower than a"),
        "{}",
        slower.stdout
    );
    place.run(&["compare", "b", "a"]).with_code(&[0]);
    // One trial on each side: figures side by side, and no verdict.
    let single = place.run(&["compare", "a/0.txt", "b/0.txt"]).with_code(&[1]);
    assert!(single.stdout.contains("Cannot tell: so few trials"), "{}", single.stdout);
    assert!(single.stdout.contains("one trial: no interval"), "{}", single.stdout);
    assert!(single.stdout.contains("too few trials"), "{}", single.stdout);
    let one = place.run(&["compare", "a"]).with_code(&[2]);
    assert!(one.stderr.contains("give two"), "{}", one.stderr);
    // Results go by their names, too, as in other verbs.
    for (side, name) in [("a", "one"), ("again", "two")] {
        fs::create_dir_all(place.here().join("results")).unwrap();
        fs::rename(place.here().join(side), place.here().join("results").join(name)).unwrap();
    }
    place.run(&["compare", "one", "two"]).with_code(&[0]);
    place.run(&["audit", "one"]).with_code(&[0, 1]);
    for (side, name) in [("a", "one"), ("again", "two")] {
        fs::rename(place.here().join("results").join(name), place.here().join(side)).unwrap();
    }
    let nothing = place.run(&["compare", "a", "nowhere"]).with_code(&[2]);
    assert!(nothing.stderr.contains("no such file or folder"), "{}", nothing.stderr);
    let history = place.run(&["compare", "--history", "a", "again", "b"]).with_code(&[1]);
    assert!(history.stdout.contains("lower from b on"), "{}", history.stdout);
    let stays = place.run(&["compare", "--history", "a", "again"]).with_code(&[0]);
    assert!(stays.stdout.contains("No change of level in 3 figures"), "{}", stays.stdout);
    // What matters and the largest p are heard.
    let trifle = place.run(&["compare", "--history", "a", "again", "b", "--least", "60 %"]).with_code(&[0]);
    assert!(trifle.stdout.contains("No change of level"), "{}", trifle.stdout);
    let strict = place.run(&["compare", "--history", "a", "b", "--p", "1e-9"]).with_code(&[1]);
    assert!(strict.stdout.contains("Cannot tell in 3 figures"), "{}", strict.stdout);
    let three = place.run(&["compare", "--history", "a/0.txt", "a/1.txt", "b/2.txt"]).with_code(&[1]);
    assert!(three.stdout.contains("Cannot tell in 3 figures over 3 results"), "{}", three.stdout);
}
