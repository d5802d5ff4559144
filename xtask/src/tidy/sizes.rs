//! Nothing grows too big to read. What already is stands in a ratchet: it may shrink and never grow, and
//! when it has shrunk, its number here must follow.

use super::code::{functions, without_comments_and_strings};
use super::{File, Finding};

const FILE_LINES: usize = 800;
const FUNCTION_LINES: usize = 100;
/// Of Rust code and comments; `rustfmt.toml` says the same for what rustfmt can break.
pub const COLUMNS: usize = 110;
/// A text in quotes may reach further: breaking it costs more than it gives.
const QUOTED_COLUMNS: usize = 140;

/// Files over the limit: path and lines.
const BIG_FILES: &[(&str, usize)] = &[];

/// Functions over the limit: `path:name` and lines.
const BIG_FUNCTIONS: &[(&str, usize)] = &[];

/// Written by hand, and read by people: what the limit on lines is about.
const READ_BY_PEOPLE: &[&str] = &[".rs", ".py", ".md", ".toml", ".c", ".h", ".js", ".css", ".html"];

/// Checks the lengths of files, of functions and of lines.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| READ_BY_PEOPLE.iter().any(|ending| file.path.ends_with(ending))) {
        let lines = file.text().lines().count();
        findings.extend(over(&file.path, 0, "the file", &file.path, lines, FILE_LINES, BIG_FILES));
    }
    for file in files.iter().filter(|file| file.is_rust()) {
        for function in functions(&without_comments_and_strings(file.text())) {
            let (key, what) = (format!("{}:{}", file.path, function.name), format!("`{}`", function.name));
            let found =
                over(&file.path, function.line, &what, &key, function.lines, FUNCTION_LINES, BIG_FUNCTIONS);
            findings.extend(found);
        }
        findings.extend(wide_lines(file));
    }
    findings
}

fn wide_lines(file: &File) -> Vec<Finding> {
    // A string may go on over several lines; inside it, no quote tells that it is one.
    let code = without_comments_and_strings(file.text());
    let mut findings = Vec::new();
    for (index, (line, code)) in file.text().lines().zip(code.lines()).enumerate() {
        let is_comment = line.trim_start().starts_with("//");
        let has_quotes = !is_comment && code.trim() != line.trim();
        let limit = if has_quotes { QUOTED_COLUMNS } else { COLUMNS };
        // An address and a table's row cannot be broken.
        let is_row = is_comment && line.trim_start_matches(['/', '!', ' ']).starts_with('|');
        if line.chars().count() > limit && !is_row && !line.contains("://") {
            findings.push(Finding::at(&file.path, index + 1, format!("the line is over {limit} columns")));
        }
    }
    findings
}

fn over(
    path: &str,
    line: usize,
    what: &str,
    key: &str,
    lines: usize,
    limit: usize,
    ratchet: &[(&str, usize)],
) -> Option<Finding> {
    let known = ratchet.iter().find(|(known, _)| *known == key).map(|(_, lines)| *lines);
    let message = match known {
        Some(known) if lines > known => {
            format!("{what} grew from {known} to {lines} lines; it may only shrink")
        }
        Some(known) if lines < known => {
            format!("{what} shrank from {known} to {lines} lines: lower it in the ratchet")
        }
        None if lines > limit => format!("{what} has {lines} lines, over the limit of {limit}; split it"),
        _ => return None,
    };
    Some(Finding::at(path, line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> usize {
        check(&[File::of("a.rs", text)]).len()
    }

    #[test]
    fn long_files_functions_and_lines_are_convicted() {
        assert_eq!(judged(&"\n".repeat(FILE_LINES + 1)), 1);
        assert_eq!(judged(&format!("fn f() {{\n{}}}\n", "g();\n".repeat(FUNCTION_LINES))), 1);
        assert_eq!(judged(&"é".repeat(COLUMNS + 1)), 1);
        assert_eq!(judged(&format!("// {}", "word ".repeat(COLUMNS / 4))), 1);
        assert_eq!(judged(&format!("f(\"{}\")", "x".repeat(QUOTED_COLUMNS))), 1);
    }

    #[test]
    fn what_fits_is_acquitted() {
        assert_eq!(judged(&"\n".repeat(FILE_LINES)), 0);
        assert_eq!(judged(&format!("fn f() {{\n{}}}\n", "g();\n".repeat(FUNCTION_LINES - 2))), 0);
        assert_eq!(judged(&"é".repeat(COLUMNS)), 0);
        assert_eq!(judged(&format!("f(\"{}\")", "x".repeat(COLUMNS))), 0);
        assert_eq!(judged(&format!("// https://example.org/{}", "x".repeat(COLUMNS))), 0);
    }

    #[test]
    fn the_ratchet_turns_one_way() {
        let judged =
            |lines| over("a", 0, "the file", "a", lines, 800, &[("a", 900)]).map(|finding| finding.message);
        assert!(judged(901).unwrap().contains("grew"));
        assert_eq!(judged(900), None);
        assert!(judged(899).unwrap().contains("lower it"));
    }
}
