//! Texts like those that were seen: repeated ones, words, patterns, or letters.

use super::{Weighted, Whole, learn};
use crate::workload::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How texts are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Texts {
    /// One of those that were seen, because they repeat.
    Choice(Weighted<String>),
    /// Words that were seen, with blanks between.
    Words { words: Weighted<String>, count: Whole },
    /// Characters of the classes that stand in the same places in all texts.
    Patterns { patterns: Weighted<Vec<Position>>, letters: [Option<Weighted<char>>; 4] },
    /// Characters of an alphabet.
    Letters { length: Whole, letters: Weighted<char> },
}

/// One place of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Position {
    Digit,
    Lower,
    Upper,
    Hexadecimal,
    /// The same in all texts.
    Same(char),
}

/// Texts that repeat are kept, at most this number of them.
const CHOICES: usize = 1024;
const WORDS: usize = 1024;
const PATTERNS: usize = 16;
const LONGEST_PATTERN: usize = 64;
const LETTERS: usize = 256;

/// The most frequent `most` things.
fn frequent<T: Ord + Clone>(things: impl Iterator<Item = T>, most: usize) -> Weighted<T> {
    let mut counts: BTreeMap<T, u64> = BTreeMap::new();
    things.for_each(|thing| *counts.entry(thing).or_default() += 1);
    let mut counts: Vec<(T, u64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    counts.truncate(most);
    Weighted::new(counts)
}

fn class(c: char, hexadecimal: bool) -> Position {
    match c {
        '0'..='9' | 'a'..='f' if hexadecimal => Position::Hexadecimal,
        '0'..='9' => Position::Digit,
        'a'..='z' => Position::Lower,
        'A'..='Z' => Position::Upper,
        other => Position::Same(other),
    }
}

impl Texts {
    pub(super) fn learn(texts: &[String]) -> Texts {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        texts.iter().for_each(|text| *counts.entry(text).or_default() += 1);
        let distinct = counts.len();
        if distinct <= CHOICES && texts.len() >= 3 * distinct || distinct == 1 {
            return Texts::Choice(Weighted::new(counts.into_iter().map(|(t, count)| (t.to_string(), count))));
        }
        Self::patterns(texts).or_else(|| Self::words(texts)).unwrap_or_else(|| {
            let length = learn::whole(texts.iter().map(|text| text.chars().count() as i64).collect());
            Texts::Letters { length, letters: frequent(texts.iter().flat_map(|t| t.chars()), LETTERS) }
        })
    }

    fn words(texts: &[String]) -> Option<Texts> {
        let words = || texts.iter().flat_map(|text| text.split(' '));
        if words().count() < 2 * texts.len() {
            return None;
        }
        let count = learn::whole(texts.iter().map(|text| text.split(' ').count() as i64).collect());
        Some(Texts::Words { words: frequent(words().map(String::from), WORDS), count })
    }

    fn patterns(texts: &[String]) -> Option<Texts> {
        // Identifiers such as UUIDs have one pattern if their letters and digits are one class.
        let hexadecimal = texts.iter().all(|text| {
            text.len() >= 8 && text.chars().all(|c| c == '-' || class(c, true) == Position::Hexadecimal)
        });
        let mut patterns: BTreeMap<Vec<Position>, (Vec<char>, Vec<bool>, u64)> = BTreeMap::new();
        for text in texts {
            let letters: Vec<char> = text.chars().collect();
            let places: Vec<Position> = letters.iter().map(|c| class(*c, hexadecimal)).collect();
            if places.len() > LONGEST_PATTERN || patterns.len() > PATTERNS {
                return None;
            }
            let same = vec![true; letters.len()];
            let (first, same, count) = patterns.entry(places).or_insert((letters.clone(), same, 0));
            for ((first, letter), same) in first.iter().zip(&letters).zip(same) {
                *same &= first == letter;
            }
            *count += 1;
        }
        if patterns.len() > PATTERNS || patterns.len() * 4 > texts.len() {
            return None;
        }
        let letters =
            [Position::Digit, Position::Lower, Position::Upper, Position::Hexadecimal].map(|wanted| {
                let of_class =
                    texts.iter().flat_map(|t| t.chars()).filter(|c| class(*c, hexadecimal) == wanted);
                let letters = frequent(of_class, LETTERS);
                (!letters.things.is_empty()).then_some(letters)
            });
        let patterns = patterns.into_iter().map(|(places, (first, same, count))| {
            let place = |((place, first), same): ((Position, char), bool)| match same {
                true => Position::Same(first),
                false => place,
            };
            (places.into_iter().zip(first).zip(same).map(place).collect(), count)
        });
        Some(Texts::Patterns { patterns: Weighted::new(patterns), letters })
    }

    pub(super) fn draw(&self, random: &mut Random, then: impl FnOnce(&str)) {
        let mut text = String::new();
        match self {
            Texts::Choice(choice) => return then(choice.draw(random)),
            Texts::Words { words, count } => {
                for number in 0..count.draw(random) {
                    if number > 0 {
                        text.push(' ');
                    }
                    text.push_str(words.draw(random));
                }
            }
            Texts::Patterns { patterns, letters } => {
                for place in patterns.draw(random) {
                    let class = match place {
                        Position::Same(c) => {
                            text.push(*c);
                            continue;
                        }
                        Position::Digit => 0,
                        Position::Lower => 1,
                        Position::Upper => 2,
                        Position::Hexadecimal => 3,
                    };
                    text.push(letters[class].as_ref().map_or('0', |letters| *letters.draw(random)));
                }
            }
            Texts::Letters { length, letters } => {
                (0..length.draw(random)).for_each(|_| text.push(*letters.draw(random)));
            }
        }
        then(&text);
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Texts::Choice(choice) => match choice.things.as_slice() {
                [only] => format!("always {only:?}"),
                several => format!("one of {}", several.len()),
            },
            Texts::Words { words, count } => {
                let (least, most) = count.range();
                format!("{least} to {most} words of {}", words.things.len())
            }
            Texts::Patterns { patterns, .. } => {
                let show = |places: &Vec<Position>| -> String {
                    let letter = |place: &Position| match place {
                        Position::Digit => '9',
                        Position::Lower => 'a',
                        Position::Upper => 'A',
                        Position::Hexadecimal => 'f',
                        Position::Same(c) => *c,
                    };
                    places.iter().map(letter).collect()
                };
                let shown: Vec<String> = patterns.things.iter().take(3).map(show).collect();
                let more = patterns.things.len().saturating_sub(3);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                format!("like {:?}{more}", shown.join("\", \""))
            }
            Texts::Letters { length, letters } => {
                let (least, most) = length.range();
                format!("{least} to {most} of {} letters", letters.things.len())
            }
        }
    }
}
