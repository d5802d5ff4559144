//! Words and white space.

use super::code::{line_at, without_comments_and_strings, words};
use super::{File, Finding};

/// Macros that mean "not finished".
const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

/// Notes to oneself need an issue's number; written in two halves, so that this file does not convict itself.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Rooms without a subject, where everything ends up.
const VAGUE: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

/// Checks every text file.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(white_space(file));
        findings.extend(notes(file));
        if file.is_rust() {
            findings.extend(unfinished(file));
            findings.extend(vague_name(file));
        }
    }
    findings
}

fn white_space(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text().lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::at(&file.path, index + 1, "white space at the end of the line"));
        }
        if file.is_rust() && line.contains('\t') {
            findings.push(Finding::at(&file.path, index + 1, "a tab"));
        }
    }
    let text = file.text();
    // Published data is kept as it came.
    if !file.path.ends_with(".json") && !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::about(&file.path, "the last line does not end"));
    }
    findings
}

fn notes(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in file.text().lines().enumerate() {
        for note in NOTES {
            // `TODO(#12)` and `TODO #12` both say where the rest is kept.
            let bare = |at: usize| {
                let after = line[at + note.len()..].trim_start_matches(['(', ' ']);
                !after
                    .strip_prefix('#')
                    .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
            };
            if words(line, note).any(bare) {
                findings.push(Finding::at(
                    &file.path,
                    index + 1,
                    format!("{note} needs an issue: {note}(#12)"),
                ));
            }
        }
    }
    findings
}

fn unfinished(file: &File) -> Vec<Finding> {
    let code = without_comments_and_strings(file.text());
    let mut findings = Vec::new();
    for name in MACROS {
        for position in words(&code, name).filter(|position| code[position + name.len()..].starts_with('!')) {
            findings.push(Finding::at(
                &file.path,
                line_at(&code, position),
                format!("`{name}!` is not finished work"),
            ));
        }
    }
    findings
}

fn vague_name(file: &File) -> Option<Finding> {
    let mut parts = file.path.trim_end_matches(".rs").split('/');
    let vague = parts.find(|part| VAGUE.contains(part))?;
    Some(Finding::about(&file.path, format!("`{vague}` names no subject; say what is inside")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(path: &str, text: &str) -> usize {
        check(&[File::of(path, text)]).len()
    }

    #[test]
    fn white_space_is_judged() {
        assert_eq!(judged("a.md", "word \n"), 1);
        assert_eq!(judged("a.rs", "\tword\n"), 1);
        assert_eq!(judged("a.rs", "word"), 1);
        assert_eq!(judged("Makefile", "\tword\n"), 0);
    }

    #[test]
    fn notes_need_an_issue() {
        for note in NOTES {
            assert_eq!(judged("a.rs", &format!("// {note}: later\n")), 1);
            assert_eq!(judged("a.rs", &format!("// {note}(#12): later\n")), 0);
        }
        assert_eq!(judged("a.rs", "// mastodon todolist\n"), 0);
    }

    #[test]
    fn unfinished_macros_are_judged_in_code_only() {
        for name in MACROS {
            assert_eq!(judged("a.rs", &format!("fn f() {{ {name}!() }}\n")), 1);
            assert_eq!(
                judged("a.rs", &format!("// {name}!\nconst A: &str = \"{name}!\";\nlet {name} = 1;\n")),
                0
            );
        }
    }

    #[test]
    fn rooms_have_a_subject() {
        assert_eq!(judged("crates/a/src/util.rs", ""), 1);
        assert_eq!(judged("crates/a/tests/common/mod.rs", ""), 1);
        assert_eq!(judged("crates/a/src/utility_curve.rs", ""), 0);
    }
}
