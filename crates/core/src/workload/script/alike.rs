//! Texts like those of a sample: made of the same letters in the same order, and seldom one of them.

use crate::workload::random::Random;
use std::collections::HashMap;

/// What a column of texts teaches: which character follows which two (a Markov chain, as in C. E. Shannon, "A
/// Mathematical Theory of Communication", 1948, section 3), and where all texts have one length, at which
/// place.
#[derive(Debug, Clone)]
pub(super) struct Alike {
    /// The first is where texts begin.
    states: Vec<State>,
}

/// What follows two characters.
#[derive(Debug, Clone, Default)]
struct State {
    followers: Vec<Follower>,
}

#[derive(Debug, Clone)]
struct Follower {
    /// How often this character followed.
    count: u64,
    character: char,
    /// The state behind it.
    next: usize,
    /// Each follower is drawn alike. This share of such draws, of 2⁶⁴, is its own; the rest is another's (A.
    /// J. Walker 1977; M. D. Vose 1991).
    own: u64,
    other: usize,
}

impl State {
    /// Makes draws that fall on each follower alike give each as often as it followed.
    fn share_out(&mut self) {
        let all = &mut self.followers;
        let (count, sum) =
            (all.len() as u128, all.iter().map(|follower| u128::from(follower.count)).sum::<u128>());
        let mut left: Vec<u128> = all.iter().map(|follower| u128::from(follower.count) * count).collect();
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) = (0..all.len()).partition(|n| left[*n] < sum);
        while let (Some(from), Some(to)) = (poor.pop(), rich.pop()) {
            all[from].own = ((left[from] << 64) / sum) as u64;
            all[from].other = to;
            left[to] -= sum - left[from];
            if left[to] < sum { poor.push(to) } else { rich.push(to) }
        }
    }
}

/// The place in a text, 0 where that teaches nothing, and the characters before it.
type Context = (usize, [Option<char>; 2]);

impl Alike {
    /// Learns from texts; they need not differ.
    pub fn learn<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Alike {
        let mut lengths = texts.clone().map(|text| text.chars().count());
        let first = lengths.next();
        let has_places = lengths.all(|length| Some(length) == first);
        let mut known: HashMap<Context, usize> = HashMap::from([((0, [None; 2]), 0)]);
        let mut states = vec![State::default()];
        for text in texts {
            let (mut state, mut last) = (0, None);
            for (place, character) in text.chars().enumerate() {
                let behind = (if has_places { place + 1 } else { 0 }, [last, Some(character)]);
                let next = *known.entry(behind).or_insert(states.len());
                if next == states.len() {
                    states.push(State::default());
                }
                let followers = &mut states[state].followers;
                match followers.iter_mut().find(|follower| follower.character == character) {
                    Some(follower) => follower.count += 1,
                    None => followers.push(Follower { count: 1, character, next, own: u64::MAX, other: 0 }),
                }
                (state, last) = (next, Some(character));
            }
        }
        states.iter_mut().for_each(State::share_out);
        Alike { states }
    }

    /// A text of that many characters. Where nothing is known to follow, another one begins.
    pub fn text(&self, characters: usize, random: &mut Random) -> String {
        let mut text = String::with_capacity(characters);
        let mut state = &self.states[0];
        for _ in 0..characters {
            if state.followers.is_empty() {
                state = &self.states[0];
            }
            let follower = match state.followers.as_slice() {
                [] => break,
                // Behind most pairs of letters there is no choice.
                [only] => only,
                all => {
                    let drawn = u128::from(random.bits()) * all.len() as u128;
                    let follower = &all[(drawn >> 64) as usize];
                    // What is left of the draw says whose it is.
                    if drawn as u64 <= follower.own { follower } else { &all[follower.other] }
                }
            };
            text.push(follower.character);
            state = &self.states[follower.next];
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    fn made(samples: &[String], count: u64) -> Vec<String> {
        let alike = Alike::learn(samples.iter().map(String::as_str));
        let text = |n| {
            let mut random = Random::new(5, n);
            let length = samples[random.below(samples.len() as u64) as usize].chars().count();
            alike.text(length, &mut random)
        };
        (0..count).map(text).collect()
    }

    /// Sentences of 3 to 9 words.
    fn sentences(count: u64) -> Vec<String> {
        let words = [
            "the", "order", "was", "sent", "late", "to", "Übersee", "and", "never", "returned", "by", "mail",
        ];
        let sentence = |n| {
            let mut random = Random::new(9, n);
            let count = 3 + random.below(7);
            let drawn: Vec<&str> = (0..count).map(|_| words[random.below(12) as usize]).collect();
            drawn.join(" ")
        };
        (0..count).map(sentence).collect()
    }

    /// Bits in a character whose predecessor is known.
    fn entropy(texts: &[String]) -> f64 {
        let mut pairs: BTreeMap<(char, char), f64> = BTreeMap::new();
        let mut firsts: BTreeMap<char, f64> = BTreeMap::new();
        for text in texts {
            for (a, b) in text.chars().zip(text.chars().skip(1)) {
                *pairs.entry((a, b)).or_default() += 1.0;
                *firsts.entry(a).or_default() += 1.0;
            }
        }
        let all: f64 = pairs.values().sum();
        pairs.iter().map(|((a, _), count)| -count / all * (count / firsts[a]).log2()).sum()
    }

    #[test]
    fn texts_have_the_letters_of_their_samples_and_are_others() {
        let samples = sentences(500);
        let made = made(&samples, 500);
        let known: BTreeSet<&String> = samples.iter().collect();
        let copies = made.iter().filter(|text| known.contains(text)).count();
        assert!(copies < 10, "{copies} of 500 are samples");
        let (before, after) = (entropy(&samples), entropy(&made));
        assert!((before - after).abs() < 0.05 * before, "{before:.2} bits in a character became {after:.2}");
        let mean = |texts: &[String]| texts.iter().map(|t| t.chars().count()).sum::<usize>() as f64 / 500.0;
        assert!((mean(&samples) - mean(&made)).abs() < 0.1 * mean(&samples));
        // What compresses one of them compresses the other: no letter follows another that never did.
        let pairs = |texts: &[String]| -> BTreeSet<(char, char)> {
            texts.iter().flat_map(|text| text.chars().zip(text.chars().skip(1)).collect::<Vec<_>>()).collect()
        };
        let strange = pairs(&made).difference(&pairs(&samples)).count();
        assert!(strange <= 3, "{strange} pairs of letters that no sample has");
    }

    #[test]
    fn codes_of_one_length_keep_their_form() {
        let code = |n| format!("{:02}-{}{:03}/A", n % 12 + 1, ['x', 'y'][n as usize % 2], n * 37 % 1_000);
        let samples: Vec<String> = (0..200).map(code).collect();
        for text in made(&samples, 300) {
            let form: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
            assert!(form == "00-x000/A" || form == "00-y000/A", "{text}");
            assert!((1..=12).contains(&text[..2].parse::<u32>().expect("digits")), "{text}: a month");
        }
    }

    #[test]
    fn little_can_be_learned_from_little() {
        assert_eq!(made(&["".into()], 2), ["", ""]);
        assert_eq!(made(&["a".into()], 2), ["a", "a"]);
        assert_eq!(Alike::learn(["ab"].into_iter()).text(5, &mut Random::new(1, 1)), "ababa");
    }
}
