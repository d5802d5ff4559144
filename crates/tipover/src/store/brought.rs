//! Trials as files that go from one machine to another.

use super::{Found, RECORD, SEARCH, Staged, Store, look, look_for_search, stage, stage_as};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{Cell, SearchSpec, Trial};
use tipover_core::record::{self, Record, Verdict};
use tipover_core::search::SearchRecord;

impl Store {
    /// The files of a trial that was carried out: their names and where they are.
    ///
    /// # Errors
    /// There are none, or the system refuses.
    pub fn files(&self, trial: &Trial<'_>) -> Result<Vec<(String, PathBuf)>> {
        let folder = self.trial_folder(trial);
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let entry = entry.with_context(|| format!("reading {}", folder.display()))?;
            files.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
        files.sort();
        Ok(files)
    }

    /// The file of a search that was made, as [`files`](Self::files).
    pub fn files_of_search(&self, cell: &Cell) -> Vec<(String, PathBuf)> {
        vec![(SEARCH.into(), self.search_path(cell))]
    }

    /// Keeps a search that another machine made, unless it is here: `bring` writes it to the path that it is
    /// given. Whether it was kept.
    ///
    /// # Errors
    /// It cannot be brought, or is of another cell or search; what was here stays.
    pub fn keep_brought_search(
        &self,
        cell: &Cell,
        search: &SearchSpec,
        seed: u64,
        bring: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Option<SearchRecord>> {
        let staged = stage_as(&self.folder, cell, "search")?;
        let path = staged.join(SEARCH);
        let _staged = Staged(Some(staged));
        bring(&path)?;
        let record = match look_for_search(&path)? {
            Found::Whole(record) => record,
            Found::Nothing => bail!("a search was brought without its record"),
            Found::Damaged(sentence) => bail!("{sentence}"),
        };
        let goals = search.goals(seed)?;
        let is_of_cell = record.cell == cell.id() && record.spec.fingerprint() == cell.spec.fingerprint();
        if !is_of_cell || !record.is_of(&search.promises, &goals) {
            bail!("the search that was brought for {} is another, of {}", cell.id(), record.cell);
        }
        if self.search(cell, |_| {})?.as_ref() == Some(&record) {
            return Ok(None);
        }
        self.keep_search(cell, &record)?;
        Ok(Some(record))
    }

    /// Keeps a trial that another machine carried out, as [`keep`](Self::keep): `bring` puts its files into
    /// the folder that it is given. Whether it was kept: what is here already and can be believed stays.
    ///
    /// # Errors
    /// They cannot be brought or are of another trial; then nothing of it is here.
    pub fn keep_brought(
        &self,
        trial: &Trial<'_>,
        seed: u64,
        bring: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Option<Record>> {
        if self.look(trial)?.whole().is_some_and(|record| record.verdict == Verdict::Valid) {
            return Ok(None);
        }
        let staged_path = stage(&self.folder, trial)?;
        let staged = Staged(Some(staged_path.clone()));
        bring(&staged_path)?;
        let path = staged_path.join(RECORD);
        let record = match look(&path, record::read)? {
            Found::Whole(record) => record,
            Found::Nothing => bail!("a trial was brought without its record"),
            Found::Damaged(sentence) => bail!("{sentence}"),
        };
        let of = (record.cell.as_str(), record.repeat, record.twin, record.seed);
        let cell = trial.cell.id();
        let wanted = (cell.as_str(), trial.repeat, trial.twin, trial.seed(seed));
        if of != wanted || record.spec.fingerprint() != trial.cell.spec.fingerprint() {
            bail!("the record that was brought for {cell}/{} is of {}/{}", trial.folder(), of.0, of.1);
        }
        self.put_in_place(trial, staged)?;
        Ok(Some(record))
    }
}
