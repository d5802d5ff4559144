//! The statements that a connection knows.

use std::collections::HashMap;
use tipover_core::workload::Scripts;

/// What a server calls statements, by script and command, and by the words in them where these change from
/// one operation to the next.
pub struct Prepared<T> {
    plain: Vec<Vec<Option<T>>>,
    worded: HashMap<(usize, usize), HashMap<Vec<u8>, T>>,
    variants: usize,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Which {
    /// Of the workload.
    pub script: usize,
    /// Of the script.
    pub command: usize,
    /// What stands for the variables that are parts of words; empty where none is.
    pub words: Vec<u8>,
}

impl<T> Prepared<T> {
    /// Most statements with other words that a session keeps: each takes memory of the server as long as the
    /// session lives.
    const MOST_VARIANTS: usize = 4_000;

    /// None of those of `scripts`.
    pub fn of(scripts: &Scripts) -> Self {
        let none = |length| std::iter::repeat_with(|| None).take(length).collect();
        let plain = scripts.scripts().iter().map(|script| none(script.commands.len())).collect();
        Prepared { plain, worded: HashMap::new(), variants: 0 }
    }

    /// What the server calls it, if it knows it.
    #[inline]
    pub fn get(&self, which: &Which) -> Option<&T> {
        match which.words.is_empty() {
            true => self.plain[which.script][which.command].as_ref(),
            false => self.worded.get(&(which.script, which.command))?.get(&which.words),
        }
    }

    /// Whether another one may be added.
    pub fn has_room(&self, which: &Which) -> bool {
        which.words.is_empty() || self.variants < Self::MOST_VARIANTS
    }

    /// The server knows it by that.
    pub fn put(&mut self, which: &Which, name: T) {
        if which.words.is_empty() {
            self.plain[which.script][which.command] = Some(name);
            return;
        }
        let variants = self.worded.entry((which.script, which.command)).or_default();
        self.variants += usize::from(variants.insert(which.words.clone(), name).is_none());
    }

    /// The server does not know it after all.
    pub fn forget(&mut self, which: &Which) {
        if which.words.is_empty() {
            self.plain[which.script][which.command] = None;
        } else if let Some(variants) = self.worded.get_mut(&(which.script, which.command)) {
            self.variants -= usize::from(variants.remove(&which.words).is_some());
        }
    }

    /// A new connection knows none.
    pub fn clear(&mut self) {
        self.plain.iter_mut().flatten().for_each(|name| *name = None);
        (self.worded, self.variants) = (HashMap::new(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::workload::script::Dialect;

    #[test]
    fn statements_with_other_words_are_others_and_not_too_many() {
        let mut scripts = Scripts::new(1, Dialect::Plan);
        scripts.add("s", b"select 1;\nselect 2;", 1).unwrap();
        let mut known = Prepared::of(&scripts);
        let which = |command, words: &str| Which { script: 0, command, words: words.into() };
        known.put(&which(0, ""), 10);
        known.put(&which(1, "a"), 11);
        known.put(&which(1, "b"), 12);
        let found = |known: &Prepared<i32>| {
            [(0, ""), (1, ""), (1, "a"), (1, "b"), (0, "a")]
                .map(|(command, words)| known.get(&which(command, words)).copied())
        };
        assert_eq!(found(&known), [Some(10), None, Some(11), Some(12), None]);
        known.forget(&which(1, "a"));
        known.forget(&which(0, ""));
        assert_eq!(found(&known), [None, None, None, Some(12), None]);
        for n in 0.. {
            let another = which(1, &n.to_string());
            if !known.has_room(&another) {
                assert_eq!(n, Prepared::<i32>::MOST_VARIANTS as i32 - 1, "b was there");
                break;
            }
            known.put(&another, n);
        }
        assert!(known.has_room(&which(0, "")), "what has no such words is there once");
        known.clear();
        assert!(found(&known).iter().all(Option::is_none) && known.has_room(&which(1, "a")));
    }
}
