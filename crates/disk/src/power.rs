//! Cutting the power, and giving it back: what survives is mounted again, as after a crash of the machine.

use crate::file::ATTIC;
use crate::journal::Journal;
use crate::protocol::Mounted;
use crate::stack::{Failure, Rig, Stack, detach_patiently, failed, unmount_fuse};
use crate::{loopdev, mounts};
use rustix::mount::UnmountFlags;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tipover_core::device::{CutReport, PowerCut};

const NO_RIG: &str = "this disk keeps no account of what is flushed; mount it with power cuts enabled";

impl Stack {
    /// Everything that was not flushed is gone, and every request fails until the power is back.
    pub fn cut(&mut self, cut: &PowerCut) -> Result<CutReport, Failure> {
        let rig = self.rig.as_ref().ok_or(NO_RIG).map_err(failed("cutting the power"))?;
        let off = || failed("cutting the power")("it is off already");
        let (report, (writes, flushes)) = match rig {
            Rig::Device { volatile, power } => {
                if power.dead.swap(true, SeqCst) {
                    return Err(off());
                }
                let under_way = self.shape.darken();
                let mut report = CutReport::default();
                (volatile.cut(cut, 0, &mut report).map(|()| report), under_way)
            }
            Rig::Folder { journal, .. } => {
                journal.powered().map_err(|_| off())?;
                journal.darken();
                let under_way = self.shape.darken();
                (journal.cut(cut), under_way)
            }
        };
        let report = report.map_err(failed("putting back what was not flushed"))?;
        Ok(CutReport { failed_writes: writes, failed_flushes: flushes, ..report })
    }

    /// Mounts what the cut left. What still uses the mount of before gets errors for ever.
    pub fn power_on(&mut self, before: &Mounted) -> Result<Mounted, Failure> {
        let off = failed("giving the power back");
        match self.rig.take() {
            Some(Rig::Device { volatile, power }) if power.dead.load(SeqCst) => {
                self.forget_dead_device();
                power.epoch.fetch_add(1, SeqCst);
                power.dead.store(false, SeqCst);
                self.shape.light();
                self.rig = Some(Rig::Device { volatile, power });
                let calibration_file = self.mount_device(None)?;
                Ok(Mounted { loop_number: self.state.loop_number, calibration_file, ..before.clone() })
            }
            Some(Rig::Folder { folder, attic, journal }) if journal.powered().is_err() => {
                let mountpoint = self.request.mountpoint.clone();
                unmount_fuse(&mountpoint, &format!("tipover-{}", self.state.id));
                // The old mount keeps its dead journal; names that it removed for good are forgotten with it.
                let _ = std::fs::remove_dir_all(&attic);
                let count = attic.extension().and_then(|e| e.to_str()?.parse::<u64>().ok()).unwrap_or(0) + 1;
                let attic = folder.join(format!("{ATTIC}{}.{count}", self.state.id));
                std::fs::create_dir(&attic).map_err(failed("making the folder for removed files"))?;
                if self.state.scratch.as_deref() != Some(&folder) {
                    let noted = attic.clone();
                    self.note(|state| state.scratch = Some(noted))?;
                }
                let journal = Arc::new(Journal::new(&attic).map_err(failed("opening the attic"))?);
                self.rig = Some(Rig::Folder { folder: folder.clone(), attic, journal });
                self.shape.light();
                let calibration_file = self.mount_folder(&folder)?;
                Ok(Mounted { calibration_file, ..before.clone() })
            }
            rig => {
                let reason = if rig.is_some() { "it is on" } else { NO_RIG };
                self.rig = rig;
                Err(off(reason))
            }
        }
    }

    /// Takes the file system away that stands on a device without power, and the device.
    fn forget_dead_device(&mut self) {
        let state = self.state.clone();
        if let Some(mountpoint) = &state.mountpoint
            && rustix::mount::unmount(mountpoint, UnmountFlags::empty()).is_err()
        {
            let _ = mounts::detach(mountpoint);
        }
        if let Some(number) = state.loop_number {
            if loopdev::owner(number).as_deref() == Some(&state.id) {
                let _ = loopdev::detach(number);
            }
            detach_patiently(number, &state.id);
        }
    }
}
