//! What the words in plans, reports and findings mean, as data: `explain TERM` and the glossary are made of
//! it.

mod shares;

pub(crate) use shares::scrambled_loads;
pub use shares::{Shares, TooManyKeys, shares};

use crate::nearest::near;
use serde::{Deserialize, Serialize};

/// One term.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The term.
    pub term: String,
    /// Other words that are explained by this entry.
    #[serde(default)]
    pub also: Vec<String>,
    /// What it means, in a few short sentences.
    pub text: String,
    /// The formula, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// Where it comes from, where it is not ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Terms to read next.
    #[serde(default)]
    pub related: Vec<String>,
}

/// Terms that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What they have in common.
    pub name: String,
    /// The terms.
    #[serde(rename = "term")]
    pub terms: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    group: Vec<Group>,
}

/// A word that is not explained, with the nearest one that is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownTerm(String);

/// All terms, in the order of the glossary.
pub fn groups() -> Vec<Group> {
    toml::from_str::<File>(include_str!("terms.toml")).expect("the terms come with the program").group
}

/// What `term` means, in whatever case, with or without hyphens; the nearest word if it is not explained.
pub fn explain(term: &str) -> Result<Entry, UnknownTerm> {
    let wanted = plain(term);
    let entries: Vec<Entry> = groups().into_iter().flat_map(|group| group.terms).collect();
    // A term of its own comes before another word for something else.
    let own = entries.iter().find(|entry| plain(&entry.term) == wanted);
    let found =
        own.or_else(|| entries.iter().find(|entry| entry.also.iter().any(|also| plain(also) == wanted)));
    if let Some(entry) = found {
        return Ok(entry.clone());
    }
    let words: Vec<String> = entries.iter().flat_map(names).map(|name| plain(name)).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let near: Vec<String> = near(&wanted, &words, 3).iter().map(|word| format!("`{word}`")).collect();
    Err(UnknownTerm(match near.split_last() {
        None => format!("`{term}` is not explained; without a term, `tipover explain` lists all"),
        Some((word, [])) => format!("`{term}` is not explained: did you mean {word}?"),
        Some((last, others)) => {
            format!("`{term}` is not explained: did you mean {} or {last}?", others.join(", "))
        }
    }))
}

fn names(entry: &Entry) -> impl Iterator<Item = &String> {
    std::iter::once(&entry.term).chain(&entry.also)
}

/// Small letters, words apart by one blank, dashes and quotes as a keyboard has them.
fn plain(term: &str) -> String {
    let plain: String = term
        .to_lowercase()
        .chars()
        .map(|c| match c {
            '_' | '-' | '–' | '‑' => ' ',
            '’' => '\'',
            other => other,
        })
        .collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The glossary as a document.
pub fn glossary() -> String {
    let mut text = String::from(
        "# Glossary\n\nThe words that code, plans and reports use. One word, one meaning. `tipover explain TERM` says \
         the same.\nThis page is made from `crates/core/src/explain/terms.toml`: change a word there.\n",
    );
    for group in groups() {
        text += &format!("\n## {}\n", group.name);
        for entry in group.terms {
            text += &format!("\n{}\n", wrapped(&paragraph(&entry), 120));
        }
    }
    text += "\nUnits: KiB = 1024, kB = 1000. Spans are nanoseconds in files, fields say so (`latency_ns`).\n";
    text
}

fn paragraph(entry: &Entry) -> String {
    let mut text = format!("**{}**", entry.term);
    if !entry.also.is_empty() {
        text += &format!(" (also: {})", entry.also.join(", "));
    }
    text += &format!(" – {}", entry.text);
    if let Some(formula) = &entry.formula {
        text += &format!(" `{formula}`.");
    }
    if let Some(source) = &entry.source {
        text += &format!(" *{source}.*");
    }
    text
}

/// Broken between words; a formula in backquotes may break too.
fn wrapped(text: &str, width: usize) -> String {
    let (mut lines, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let size = word.chars().count();
        if length > 0 && length + 1 + size > width {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines += word;
        length += size;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn entries() -> Vec<Entry> {
        groups().into_iter().flat_map(|group| group.terms).collect()
    }

    #[test]
    fn every_entry_is_short_and_leads_to_entries() {
        for entry in entries() {
            let sentences = entry.text.matches(['.', '?']).count();
            assert!((1..=9).contains(&sentences) && entry.text.ends_with('.'), "{}: {sentences}", entry.term);
            assert!((20..=420).contains(&entry.text.chars().count()), "{}: {}", entry.term, entry.text.len());
            for related in &entry.related {
                assert!(explain(related).is_ok(), "{} leads to {related}, which leads nowhere", entry.term);
                assert_ne!(plain(related), plain(&entry.term), "{} leads to itself", entry.term);
            }
        }
    }

    #[test]
    fn a_word_has_one_meaning() {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for entry in entries() {
            for name in names(&entry) {
                // "Hodges-Lehmann" beside "Hodges–Lehmann" is the same word of the same entry.
                let before = seen.insert(plain(name), entry.term.clone());
                assert!(before.is_none_or(|term| term == entry.term), "{name} stands at two terms");
            }
        }
    }

    #[test]
    fn what_the_design_names_is_explained() {
        for term in [
            "residence",
            "service",
            "wait",
            "open loop",
            "closed loop",
            "coordinated omission",
            "utilization",
            "saturation",
            "hit ratio",
            "knee",
            "tipping point",
            "Unknown outcome",
            "power cut",
            "write concern",
            "goodput",
            "offered_load",
            "queue-depth",
            "SLO",
            "p99",
            "zipfian",
            "Little's law",
            "Hodges-Lehmann shift",
            "confidence interval",
            "noise floor",
            "change-point",
            "lying sync",
            "torn write",
            "steady",
            "warm-up",
        ] {
            assert!(explain(term).is_ok(), "{term}");
        }
    }

    #[test]
    fn a_slip_of_the_pen_is_answered_with_the_nearest_word() {
        for (typed, wanted) in [
            ("residense", "`residence`"),
            ("coordinated ommission", "`coordinated omission`"),
            ("zipfain", "`zipfian`"),
        ] {
            let answer = explain(typed).unwrap_err().to_string();
            assert!(answer.contains(wanted) && answer.contains(typed), "{answer}");
        }
        assert!(explain("supercalifragilistic").unwrap_err().to_string().contains("lists all"));
        assert!(explain("").is_err());
    }

    #[test]
    fn the_glossary_holds_every_term_and_no_line_is_too_long() {
        let text = glossary();
        for entry in entries() {
            assert!(text.contains(&format!("**{}**", entry.term)), "{}", entry.term);
        }
        assert!(text.lines().all(|line| line.chars().count() <= 125 && !line.ends_with(' ')));
    }
}
