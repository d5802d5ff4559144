//! What has become of trials: which are there and can be believed, and which are to be carried out.

use super::{Found, Store, look_for_record, names_in};
use crate::processors;
use anyhow::Result;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use tipover_core::experiment::{CellNames, Trial};
use tipover_core::record::Verdict;

/// What has become of a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Nothing yet.
    Missing,
    /// Its record cannot be read; a sentence says why, and what to do.
    Damaged(String),
    /// The laboratory could not carry it out.
    Failed,
    /// It was measured and cannot be believed.
    Invalid,
    /// Its figures may be used.
    Valid,
}

impl Fate {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Fate::Missing => "missing",
            Fate::Damaged(_) => "damaged",
            Fate::Failed => "failed",
            Fate::Invalid => "invalid",
            Fate::Valid => "valid",
        }
    }

    /// Whether it is to be carried out; with `retry`, also if it cannot be believed.
    pub fn is_missing(&self, retry: bool) -> bool {
        match self {
            Fate::Missing | Fate::Damaged(_) | Fate::Failed => true,
            Fate::Invalid => retry,
            Fate::Valid => false,
        }
    }
}

impl Store {
    /// What has become of each of `trials`. Nothing of their records is kept in memory.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn fates(&self, trials: &[Trial<'_>]) -> Result<Vec<Fate>> {
        let (mut names, mut there) = (CellNames::default(), HashMap::<PathBuf, HashSet<String>>::new());
        let mut places: Vec<Option<PathBuf>> = Vec::new();
        for trial in trials {
            let (cell, name) = (self.folder().join(names.of(trial.cell)), trial.folder());
            let known = match there.get(&cell) {
                Some(known) => known.contains(&name),
                None => there.entry(cell.clone()).or_insert(names_in(&cell)?).contains(&name),
            };
            places.push(known.then(|| cell.join(name)));
        }
        let fate = |place: &Option<PathBuf>| {
            let Some(place) = place else { return Ok(Fate::Missing) };
            Ok(match look_for_record(place)? {
                Found::Nothing => Fate::Missing,
                Found::Damaged(sentence) => Fate::Damaged(sentence),
                Found::Whole(record) => match record.verdict {
                    Verdict::Failed { .. } => Fate::Failed,
                    Verdict::Invalid { .. } => Fate::Invalid,
                    Verdict::Valid => Fate::Valid,
                },
            })
        };
        processors::share(&places, |piece| piece.iter().map(fate).collect()).into_iter().collect()
    }

    /// The trials that are not there yet, are damaged, or failed; with `retry`, also those that cannot be
    /// believed. `note` hears of those that are damaged.
    ///
    /// # Errors
    /// As [`record`](Self::record).
    pub fn missing<'a>(
        &self,
        trials: Vec<Trial<'a>>,
        retry: bool,
        mut note: impl FnMut(&str),
    ) -> Result<Vec<Trial<'a>>> {
        let fates = self.fates(&trials)?;
        for fate in &fates {
            if let Fate::Damaged(sentence) = fate {
                note(sentence);
            }
        }
        let all = trials.into_iter().zip(fates);
        Ok(all.filter(|(_, fate)| fate.is_missing(retry)).map(|(trial, _)| trial).collect())
    }
}
