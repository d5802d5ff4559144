//! Names of cells, for whoever wants those of many trials.

use super::Cell;
use std::collections::HashMap;
use std::marker::PhantomData;

/// Names of cells, each made once: a name is a digest of all settings, and a cell may have 100,000 trials.
#[derive(Debug, Default)]
pub struct CellNames<'a> {
    /// By where the cell lies, which it does as long as this lives.
    known: HashMap<*const Cell, String>,
    of: PhantomData<&'a Cell>,
}

impl<'a> CellNames<'a> {
    /// As [`Cell::id`].
    pub fn of(&mut self, cell: &'a Cell) -> &str {
        self.known.entry(std::ptr::from_ref(cell)).or_insert_with(|| cell.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn cells_keep_their_names() {
        let text = include_str!("../../../../experiments/working-set.toml");
        let experiment = Experiment::parse(text, "tiny", &[]).unwrap();
        let mut names = CellNames::default();
        for _ in 0..2 {
            for trial in experiment.trials() {
                assert_eq!(names.of(trial.cell), trial.cell.id());
            }
        }
    }
}
