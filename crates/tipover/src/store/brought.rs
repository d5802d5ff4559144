//! Trials as files that go from one machine to another.

use super::{Found, RECORD, Staged, Store, look, stage};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use tipover_core::experiment::Trial;
use tipover_core::record::{self, Record, Verdict};

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
