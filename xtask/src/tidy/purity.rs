//! The core touches no machine, and `unsafe` stays where it was argued for.

use super::code::{line_at, without_comments_and_strings, without_tests, words};
use super::{File, Finding};

/// What reaches the machine. The compiler's `clippy.toml` list is finer; this one is wider.
const MACHINE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::os",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// A borrowed descriptor is such a value: it names an open file and can do nothing by itself.
const VALUES: &[&str] = &["std::os::fd::BorrowedFd"];

/// Where `unsafe` may stand, and why.
const UNSAFE_PLACES: &[(&str, &str)] = &[
    ("crates/wiredtiger/", "the binding calls C"),
    ("crates/disk/", "loop devices, and signal-safe unmounting, are raw system calls"),
    ("crates/lab/", "namespaces, limits and signals are set between fork and exec"),
    ("crates/targets/src/file", "direct I/O needs aligned memory and raw system calls"),
];

/// The core's own code, outside of its tests, names nothing of the machine.
pub fn core(files: &[File]) -> Vec<Finding> {
    let core = files.iter().filter(|file| file.is_rust() && file.path.starts_with("crates/core/src/"));
    let mut findings = Vec::new();
    for file in core.filter(|file| !file.path.ends_with("/tests.rs") && !file.path.contains("/tests/")) {
        let code = without_tests(&without_comments_and_strings(file.text()));
        for (path, position) in std_paths(&code) {
            if let Some(machine) = MACHINE.iter().find(|machine| is_inside(&path, machine))
                && !VALUES.contains(&path.as_str())
            {
                let message = format!("core is pure: `{machine}` must come in as a value");
                findings.push(Finding::at(&file.path, line_at(&code, position), message));
            }
        }
    }
    findings
}

fn is_inside(path: &str, outer: &str) -> bool {
    path == outer || path.strip_prefix(outer).is_some_and(|rest| rest.starts_with("::"))
}

/// Every path into the standard library, groups spelt out: `std::{fs, time::Instant}` is two.
fn std_paths(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for position in words(code, "std") {
        for path in super::modules::paths_at(&code[position..]) {
            found.push((path, position));
        }
    }
    found
}

/// `unsafe` only in [`UNSAFE_PLACES`].
pub fn unsafe_code(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if UNSAFE_PLACES.iter().any(|(place, _)| file.path.starts_with(place)) {
            continue;
        }
        let code = without_comments_and_strings(file.text());
        for position in words(&code, "unsafe") {
            let message = "`unsafe` needs a place in the list with its reason (xtask/src/tidy/purity.rs)";
            findings.push(Finding::at(&file.path, line_at(&code, position), message));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convicted(text: &str) -> usize {
        core(&[File::of("crates/core/src/a.rs", text)]).len()
    }

    #[test]
    fn the_machine_in_the_core_is_convicted() {
        assert_eq!(convicted("use std::fs;\n"), 1);
        assert_eq!(convicted("use std::fs::File;\nfn f() { std::thread::yield_now() }\n"), 2);
        assert_eq!(convicted("use std::{fmt, env};\n"), 1);
        assert_eq!(convicted("use std::time::{Duration, Instant};\n"), 1);
    }

    #[test]
    fn values_words_and_tests_in_the_core_are_acquitted() {
        assert_eq!(convicted("use std::time::Duration;\nuse std::{fmt, collections::BTreeMap};\n"), 0);
        assert_eq!(convicted("// std::fs is for others\nconst A: &str = \"std::env\";\n"), 0);
        assert_eq!(convicted("#[cfg(test)]\nmod tests { use std::fs; }\n"), 0);
        assert_eq!(core(&[File::of("crates/lab/src/a.rs", "use std::fs;")]).len(), 0);
    }

    #[test]
    fn unsafe_is_convicted_outside_its_places_only() {
        let text = "fn f() { unsafe { g() } }\n";
        assert_eq!(unsafe_code(&[File::of("crates/core/src/a.rs", text)]).len(), 1);
        assert_eq!(unsafe_code(&[File::of("crates/wiredtiger/src/a.rs", text)]).len(), 0);
        assert_eq!(
            unsafe_code(&[File::of("crates/core/src/a.rs", "// unsafe\n#![forbid(unsafe_code)]")]).len(),
            0
        );
    }
}
