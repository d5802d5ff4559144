//! Breaks comments that are too wide, which rustfmt leaves alone: `cargo xtask tidy --wrap`.

use super::sizes::COLUMNS;

/// The text with every comment line inside the limit. What does not fit moves to the next line of its
/// paragraph, or onto a new one. Code blocks, tables and addresses stay as they are.
pub fn comments(text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    let mut in_code = false;
    let mut index = 0;
    while index < lines.len() {
        let Some((prefix, words)) = comment(&lines[index]) else {
            in_code = false;
            index += 1;
            continue;
        };
        in_code ^= words.starts_with("```");
        let is_wide = lines[index].chars().count() > COLUMNS;
        if is_wide && !in_code && !words.starts_with('|') && !words.contains("://") {
            let (kept, rest) = split(&prefix, &words);
            if rest.is_empty() {
                index += 1;
                continue;
            }
            lines[index] = kept;
            carry_over(&mut lines, index + 1, &prefix, &words, &rest);
        }
        index += 1;
    }
    let mut wrapped = lines.join("\n");
    if text.ends_with('\n') {
        wrapped.push('\n');
    }
    wrapped
}

/// A comment line's indentation with its slashes, and its words.
fn comment(line: &str) -> Option<(String, String)> {
    let trimmed = line.trim_start();
    let slashes = ["//!", "///", "//"].into_iter().find(|slashes| trimmed.starts_with(slashes))?;
    let prefix = format!("{}{slashes} ", &line[..line.len() - trimmed.len()]);
    Some((prefix, trimmed[slashes.len()..].strip_prefix(' ').unwrap_or_default().to_string()))
}

/// The widest line that fits, and the words that do not.
fn split(prefix: &str, words: &str) -> (String, String) {
    let room = COLUMNS.saturating_sub(prefix.chars().count());
    let limit = words.char_indices().nth(room).map_or(words.len(), |(at, _)| at);
    // A list's own indentation is no place to break.
    let indentation = words.len() - words.trim_start().len();
    match words[..=limit.min(words.len() - 1)].rfind(' ').filter(|at| *at > indentation) {
        Some(at) => (format!("{prefix}{}", words[..at].trim_end()), words[at + 1..].to_string()),
        None => (format!("{prefix}{words}"), String::new()),
    }
}

fn carry_over(lines: &mut Vec<String>, at: usize, prefix: &str, words: &str, rest: &str) {
    let indentation = hanging_indentation(words);
    let next = lines.get(at).and_then(|line| comment(line)).filter(|(other, next)| {
        let same_paragraph = next.len() - next.trim_start().len() == indentation.len();
        other == prefix
            && same_paragraph
            && next.trim_start().starts_with(char::is_alphanumeric)
            && !is_item(next)
    });
    match next {
        Some((_, next)) => lines[at] = format!("{prefix}{indentation}{rest} {}", next.trim_start()),
        None => lines.insert(at, format!("{prefix}{indentation}{rest}")),
    }
}

fn is_item(words: &str) -> bool {
    let words = words.trim_start();
    let digits = words.trim_start_matches(|letter: char| letter.is_ascii_digit());
    words.starts_with("- ")
        || words.starts_with("* ")
        || (digits.len() < words.len() && digits.starts_with(". "))
}

/// What follows a list's item stands under its words.
fn hanging_indentation(words: &str) -> String {
    let own = words.len() - words.trim_start().len();
    let mark = if is_item(words) { words.trim_start().find(' ').map_or(0, |space| space + 1) } else { 0 };
    " ".repeat(own + mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(begin: &str) -> String {
        format!("{begin} {}end", "word ".repeat(21))
    }

    #[test]
    fn what_does_not_fit_moves_on() {
        let wrapped = comments(&format!("{}\n    /// tail\nfn f() {{}}\n", wide("    /// head")));
        assert!(wrapped.lines().all(|line| line.chars().count() <= COLUMNS), "{wrapped}");
        assert!(wrapped.contains(" end tail\nfn f"), "{wrapped}");
        let words = |text: &str| text.split_whitespace().filter(|word| *word != "///").count();
        assert_eq!(words(&wrapped), words(&format!("{} tail fn f() {{}}", wide("head"))));
    }

    #[test]
    fn a_new_paragraph_or_item_is_not_joined() {
        for next in ["//! - item", "//!", "//! # Title", "code();", "//! 1. first"] {
            let wrapped = comments(&format!("{}\n{next}\n", wide("//! head")));
            assert_eq!(wrapped.lines().last(), Some(next), "{wrapped}");
        }
        let item = comments(&wide("//! - head"));
        assert!(item.lines().nth(1).unwrap().starts_with("//!   "), "{item}");
    }

    #[test]
    fn what_fits_and_what_cannot_be_broken_stays() {
        for same in ["// short\n", "let a = 1; // short\n", &format!("// {}\n", "x".repeat(COLUMNS))] {
            assert_eq!(comments(same), same);
        }
        let table = wide("/// | a |");
        assert_eq!(comments(&table), table);
        let code = format!("/// ```\n{}\n/// ```\n", wide("/// let a"));
        assert_eq!(comments(&code), code);
    }
}
