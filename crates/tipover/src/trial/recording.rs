//! The trace of a trial's measured phase.

use super::world::RealWorld;
use crate::store::Recording;
use anyhow::{Context, Result};
use tipover_core::experiment::Spec;

impl RealWorld<'_> {
    /// Begins to record what reaches the disk, if the plan wants it.
    pub(super) fn begin_recording(&self, spec: &Spec) -> Result<Option<Recording>> {
        let Some(disk) = self.site.mounted().filter(|_| spec.disk.trace) else { return Ok(None) };
        let recording = Recording::in_folder(self.context.work)?;
        disk.trace_start(&recording.path())?;
        Ok(Some(recording))
    }

    pub(super) fn end_recording(&self, recording: Recording) -> Result<Recording> {
        let disk = self.disk()?;
        disk.trace_stop()?;
        if disk.block_device().is_some() {
            // After the end, so that finding out where files lie is not recorded.
            let map = disk.file_map().context("asking where the files lie")?;
            map.save_beside(&recording.path()).context("writing where the files lie")?;
        }
        Ok(recording)
    }
}
