//! Which module may see which, inside the crates where the compiler does not say.

use super::code::{is_word_letter, line_at, without_comments_and_strings, words};
use super::{File, Finding};
use std::collections::{BTreeMap, BTreeSet};

/// The binary's rooms, top to bottom: `command -> runner -> trial -> drive, probe, store` and
/// `report -> study -> store`. A module may use what stands in its row and nothing else.
const BINARY: &[(&str, &[&str])] = &[
    ("main", &["command"]),
    (
        "command",
        &[
            "fleet",
            "runner",
            "foresight",
            "running_server",
            "trial",
            "ycsb",
            "pgbench",
            "generator",
            "machine",
            "drive",
            "probe",
            "report",
            "storage",
            "study",
            "store",
            "history",
            "clock",
            "interrupt",
            "export",
            "live",
        ],
    ),
    // One plan on many machines: each runs what it was given, and whoever asks keeps what comes back.
    (
        "fleet",
        &[
            "runner",
            "foresight",
            "trial",
            "generator",
            "machine",
            "processors",
            "store",
            "clock",
            "interrupt",
        ],
    ),
    ("runner", &["foresight", "live", "trial", "generator", "machine", "drive", "probe", "store", "clock"]),
    // What goes on, for whoever looks: told by the runner and the drop-ins.
    ("live", &["drive", "report"]),
    // A server that somebody else loads: only asked.
    ("running_server", &["trial", "probe", "clock", "interrupt"]),
    // What a run will need: `--list` and the run itself ask here.
    ("foresight", &["trial", "machine"]),
    (
        "trial",
        &["generator", "machine", "drive", "history", "endpoints", "probe", "store", "clock", "interrupt"],
    ),
    // Drop-ins: like a trial they drive, without a laboratory around them.
    ("ycsb", &["live", "trial", "drive", "clock"]),
    ("pgbench", &["live", "trial", "drive", "clock"]),
    // A disk by itself: it has a loop of its own, with many requests in flight on a thread.
    ("storage", &["machine", "drive", "probe", "processors", "store", "clock"]),
    // The load generator's process: a trial talks to it, and it drives.
    ("generator", &["checking", "drive", "history", "endpoints", "probe", "clock"]),
    // The servers of a cluster as one target; its tests drive it.
    ("endpoints", &["drive", "history", "clock"]),
    // The process of an embedded engine that is served, to be killed like a server.
    ("engine_server", &[]),
    ("checking", &["drive", "history", "clock"]),
    // What the machine is and can do.
    ("machine", &["probe", "processors"]),
    ("report", &["study", "store"]),
    ("study", &["processors", "store"]),
    ("drive", &["history", "processors", "clock"]),
    ("export", &[]),
    ("history", &[]),
    ("probe", &["clock"]),
    ("store", &["processors"]),
    ("processors", &[]),
    ("clock", &[]),
    ("interrupt", &[]),
];

/// The systems that are measured; one never sees another.
const TARGETS: &[&str] = &["null", "file", "wiredtiger", "mongodb", "postgres", "mysql", "guilty"];

/// The modules of the binary see each other only along [`BINARY`].
pub fn binary(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let rooms: Vec<&str> = BINARY.iter().map(|(room, _)| *room).collect();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(inside) = file.path.strip_prefix("crates/tipover/src/") else { continue };
        let room = room_of(inside);
        let Some((_, allowed)) = BINARY.iter().find(|(known, _)| *known == room) else {
            findings.push(Finding::about(
                &file.path,
                format!("`{room}` needs a row in the table of rooms (xtask)"),
            ));
            continue;
        };
        for (used, line) in uses(inside, file.text(), &rooms) {
            if used != room && !allowed.contains(&used.as_str()) {
                findings.push(Finding::at(&file.path, line, format!("`{room}` must not see `{used}`")));
            }
        }
    }
    findings
}

/// No target uses another one.
pub fn targets(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some(inside) = file.path.strip_prefix("crates/targets/src/") else { continue };
        let target = room_of(inside);
        if !TARGETS.contains(&target) {
            continue;
        }
        for (used, line) in uses(inside, file.text(), TARGETS) {
            if used != target {
                findings.push(Finding::at(
                    &file.path,
                    line,
                    format!("target `{target}` must not see target `{used}`"),
                ));
            }
        }
    }
    findings
}

/// Most files that may need one another in a ring: whoever changes one has to have all of them in mind.
const RING: usize = 5;

/// A module by its path, with its file.
type Modules<'a> = BTreeMap<Vec<&'a str>, &'a File>;

/// No ring of more than [`RING`] files in any crate, tests apart.
pub fn rings(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Modules<'_>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some((of, inside)) = file.path.split_once("/src/") {
            let module = module_of(inside);
            if !module.contains(&"tests") {
                crates.entry(of).or_default().insert(module, file);
            }
        }
    }
    crates.values().flat_map(rings_of).collect()
}

fn rings_of(modules: &Modules<'_>) -> Vec<Finding> {
    let needs: Vec<BTreeSet<usize>> =
        modules.iter().map(|(module, file)| needed(module, file, modules)).collect();
    let reached = |from: usize| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(module) = open.pop() {
            open.extend(needs[module].iter().filter(|next| reached.insert(**next)));
        }
        reached
    };
    let reached: Vec<BTreeSet<usize>> = (0..needs.len()).map(reached).collect();
    let ring = |one: usize| -> Vec<usize> {
        reached[one].iter().copied().filter(|other| reached[*other].contains(&one)).collect()
    };
    let files: Vec<&&File> = modules.values().collect();
    let rings = (0..needs.len()).map(ring).enumerate();
    let first = rings.filter(|(one, ring)| ring.len() > RING && ring.first() == Some(one));
    first
        .map(|(one, ring)| {
            let names: Vec<&str> = ring.iter().map(|other| files[*other].path.as_str()).collect();
            Finding::about(
                &files[one].path,
                format!("{} files need one another: {}", ring.len(), names.join(", ")),
            )
        })
        .collect()
}

/// The modules that a file names, by their place among `modules`; what stands behind its tests' head is
/// theirs.
fn needed(module: &[&str], file: &File, modules: &Modules<'_>) -> BTreeSet<usize> {
    let code = without_comments_and_strings(file.text());
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let supers = words(code, "super").filter(|position| !code[..*position].ends_with("super::"));
    let paths = words(code, "crate").chain(supers).flat_map(|position| paths_at(&code[position..]));
    let mut found = BTreeSet::new();
    for path in paths {
        let up = path.matches("super::").count();
        let base: &[&str] = if up == 0 { &[] } else { &module[..module.len().saturating_sub(up)] };
        let below = path.trim_start_matches("super::").trim_start_matches("crate::").split("::");
        let mut named: Vec<&str> = base.iter().copied().chain(below).collect();
        while !named.is_empty() && !modules.contains_key(&named) {
            named.pop();
        }
        if !named.is_empty() && named != module {
            found.extend(modules.keys().position(|known| *known == named));
        }
    }
    found
}

/// The path of a file's module; empty for the root.
fn module_of(inside: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = inside.trim_end_matches(".rs").split('/').collect();
    if matches!(parts.last(), Some(&("mod" | "lib" | "main"))) {
        parts.pop();
    }
    parts
}

/// The top-level module that a file belongs to.
fn room_of(inside: &str) -> &str {
    inside.split('/').next().unwrap_or_default().trim_end_matches(".rs")
}

/// Which of the known top-level modules a file names, by `crate::` or by enough `super::`, and where.
fn uses(inside: &str, text: &str, known: &[&str]) -> Vec<(String, usize)> {
    let code = without_comments_and_strings(text);
    let to_root = "super::".repeat(module_of(inside).len());
    let mut found = Vec::new();
    let absolute = words(&code, "crate").map(|position| (position, "crate::"));
    // `super::super::` counts from its first word, so a longer chain must not be read from its middle.
    let starts = words(&code, "super").filter(|position| !code[..*position].ends_with("super::"));
    for (position, root) in absolute.chain(starts.map(|position| (position, to_root.as_str()))) {
        for path in paths_at(&code[position..]) {
            let first = path.strip_prefix(root).and_then(|rest| rest.split("::").next()).unwrap_or_default();
            if !root.is_empty() && known.contains(&first) {
                found.push((first.to_string(), line_at(&code, position)));
            }
        }
    }
    found
}

/// The paths that begin here, with groups spelt out: `a::{b, c::{d, e}}` is `a::b`, `a::c::d` and `a::c::e`.
pub fn paths_at(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    read_path(code, "", &mut found);
    found
}

/// Reads one path, writes it down, and returns what follows it.
fn read_path<'a>(code: &'a str, prefix: &str, found: &mut Vec<String>) -> &'a str {
    let mut path = prefix.to_string();
    let mut rest = code.trim_start();
    loop {
        let name_end = rest.find(|letter| !is_word_letter(letter)).unwrap_or(rest.len());
        path.push_str(&rest[..name_end]);
        rest = &rest[name_end..];
        let Some(after) = rest.trim_start().strip_prefix("::") else { break };
        path.push_str("::");
        rest = after.trim_start();
        if let Some(group) = rest.strip_prefix('{') {
            return read_group(group, &path, found);
        }
    }
    found.push(path);
    rest
}

fn read_group<'a>(group: &'a str, prefix: &str, found: &mut Vec<String>) -> &'a str {
    let mut rest = group;
    loop {
        rest = read_path(rest, prefix, found);
        let Some(end) = rest.find([',', '}']) else { return "" };
        let closes = rest[end..].starts_with('}');
        rest = &rest[end + 1..];
        if closes {
            return rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_spelt_out() {
        assert_eq!(paths_at("std::time::Instant::now()"), ["std::time::Instant::now"]);
        assert_eq!(
            paths_at("crate::{a, b::{c, d as e}, f};"),
            ["crate::a", "crate::b::c", "crate::b::d", "crate::f"]
        );
        assert_eq!(paths_at("crate::a::*;"), ["crate::a::"]);
    }

    #[test]
    fn the_designed_flow_is_acquitted() {
        let files = [
            File::of(
                "crates/tipover/src/main.rs",
                "mod command; mod store;\nfn main() { crate::command::run() }",
            ),
            File::of("crates/tipover/src/command/run.rs", "use crate::{runner::Runner, report};"),
            File::of("crates/tipover/src/trial.rs", "use crate::probe::Probe;\nuse super::store;"),
            File::of("crates/tipover/src/report/page.rs", "use super::chart;\nuse crate::report::words;"),
        ];
        assert_eq!(binary(&files), []);
    }

    #[test]
    fn a_flow_against_the_direction_is_convicted() {
        let convicted = |path: &str, text: &str| binary(&[File::of(path, text)]).len();
        assert_eq!(convicted("crates/tipover/src/store.rs", "use crate::trial::Trial;"), 1);
        assert_eq!(convicted("crates/tipover/src/store.rs", "use super::trial::Trial;"), 1);
        assert_eq!(convicted("crates/tipover/src/report/page.rs", "fn f() { crate::runner::go() }"), 1);
        assert_eq!(convicted("crates/tipover/src/report/page.rs", "use super::super::trial;"), 1);
        assert_eq!(convicted("crates/tipover/src/study/mod.rs", "use crate::{store, report::page};"), 1);
        assert_eq!(convicted("crates/tipover/src/helper.rs", ""), 1);
        assert_eq!(convicted("crates/tipover/src/store.rs", "// crate::trial in words"), 0);
    }

    #[test]
    fn one_target_never_sees_another() {
        let convicted = |path: &str, text: &str| targets(&[File::of(path, text)]).len();
        assert_eq!(convicted("crates/targets/src/null.rs", "use crate::file::File;"), 1);
        assert_eq!(convicted("crates/targets/src/wiredtiger/mod.rs", "use super::null::Null;"), 1);
        assert_eq!(convicted("crates/targets/src/wiredtiger/mod.rs", "use crate::document::Document;"), 0);
        assert_eq!(convicted("crates/targets/src/lib.rs", "pub use crate::null::Null;"), 0);
    }

    #[test]
    fn a_ring_of_many_files_is_convicted() {
        let ring = |number: usize| -> Vec<File> {
            let file = |n: usize| {
                let text = format!("use crate::m{}::M; // crate::m0\n", (n + 1) % number);
                File::of(&format!("crates/disk/src/m{n}.rs"), &text)
            };
            (0..number).map(file).collect()
        };
        assert_eq!(rings(&ring(RING)), []);
        let convicted = rings(&ring(RING + 1));
        assert_eq!(convicted.len(), 1, "{convicted:?}");
        assert!(convicted[0].message.starts_with("6 files need one another"), "{convicted:?}");
        let mut chain = ring(RING + 3);
        chain.pop();
        chain.push(File::of("crates/lab/src/m7.rs", "use crate::m0::M;"));
        chain.push(File::of("crates/disk/src/m7/tests.rs", "use crate::m0::M;"));
        assert_eq!(rings(&chain), []);
    }

    #[test]
    fn tests_in_a_file_and_what_is_above_it_are_told_apart() {
        let inside =
            "use super::b::B;\n#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::c::C;\n}\n";
        let files = [
            File::of("crates/lab/src/a/one.rs", inside),
            File::of("crates/lab/src/a/b.rs", ""),
            File::of("crates/lab/src/c.rs", ""),
        ];
        let modules: Modules<'_> = files
            .iter()
            .map(|file| (module_of(file.path.strip_prefix("crates/lab/src/").unwrap_or_default()), file))
            .collect();
        let named: Vec<&str> = modules.values().map(|file| file.path.as_str()).collect();
        let needed: Vec<&str> =
            needed(&["a", "one"], &files[0], &modules).into_iter().map(|n| named[n]).collect();
        assert_eq!(needed, ["crates/lab/src/a/b.rs"]);
    }
}
