//! What a disk's user does to it on purpose: power cuts and faults.

use crate::error::DiskError;
use crate::mount::Disk;
use crate::protocol::{Request, Response};
use tipover_core::device::{Armed, CutReport, PowerCut, Rule};

impl Disk {
    /// Cuts the power: everything written and not flushed is lost, as `cut` says, and every request fails
    /// with EIO until [`power_on`](Self::power_on). Programs that use the disk lose it; kill them too, as a
    /// power cut would.
    ///
    /// # Errors
    /// The disk was mounted without [`power_cuts`](crate::MountOptions::power_cuts), or its power is off.
    pub fn power_cut(&self, cut: &PowerCut) -> Result<CutReport, DiskError> {
        match self.ask(&Request::PowerCut(*cut))? {
            Response::Cut(report) => Ok(report),
            _ => Err(DiskError::out_of_step()),
        }
    }

    /// Gives the power back: what survived is mounted again at the same place; in block mode the file system
    /// replays its journal, and the loop device may be another.
    ///
    /// # Errors
    /// The power is on, or what survived cannot be mounted.
    pub fn power_on(&mut self) -> Result<(), DiskError> {
        match self.ask(&Request::PowerOn(self.mounted.clone()))? {
            Response::Mounted(mounted) => self.mounted = mounted,
            _ => return Err(DiskError::out_of_step()),
        }
        self.remember()
    }

    /// Puts a fault in force; returns the number to clear it by.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn add_fault(&self, rule: &Rule) -> Result<u64, DiskError> {
        match self.ask(&Request::AddFault(Box::new(rule.clone())))? {
            Response::Number(number) => Ok(number),
            _ => Err(DiskError::out_of_step()),
        }
    }

    /// The faults in force, and how often each happened.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn faults(&self) -> Result<Vec<Armed>, DiskError> {
        match self.ask(&Request::Faults)? {
            Response::Faults(faults) => Ok(faults),
            _ => Err(DiskError::out_of_step()),
        }
    }

    /// Takes back one fault, or all, and answers what they stalled; returns how many there were.
    ///
    /// # Errors
    /// [`DiskError::Gone`].
    pub fn clear_faults(&self, number: Option<u64>) -> Result<usize, DiskError> {
        match self.ask(&Request::ClearFaults(number))? {
            Response::Number(count) => Ok(count as usize),
            _ => Err(DiskError::out_of_step()),
        }
    }
}
