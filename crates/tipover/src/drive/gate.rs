//! Where sessions wait until all are open.

use parking_lot::{Condvar, Mutex};
use tipover_core::target::TargetError;

/// Opens once for all sessions, or for none.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ready: u32,
    /// Whether sessions can share threads; `None` until the first one tells.
    multiplexed: Option<bool>,
    failed: Option<TargetError>,
    /// Whether those who wait may go on.
    opened: Option<bool>,
}

impl Gate {
    /// Tells whether sessions can share threads.
    pub fn tell(&self, multiplexed: bool) {
        self.state.lock().multiplexed.get_or_insert(multiplexed);
        self.changed.notify_all();
    }

    /// Waits to be told whether sessions can share threads.
    ///
    /// # Errors
    /// When the first session cannot be opened.
    pub fn kind(&self, sessions: u32) -> Result<bool, TargetError> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            match state.multiplexed {
                Some(multiplexed) => return Ok(multiplexed),
                None if sessions == 0 => return Ok(false),
                None => self.changed.wait(&mut state),
            }
        }
    }

    /// Sends all away who wait.
    pub fn shut(&self) {
        self.state.lock().opened = Some(false);
        self.changed.notify_all();
    }

    /// Tells that `ready` more sessions are ready, and waits; whether to go on.
    pub fn pass(&self, ready: u32) -> bool {
        let mut state = self.state.lock();
        state.ready += ready;
        self.changed.notify_all();
        loop {
            if let Some(opened) = state.opened {
                return opened;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Tells that not all sessions can be opened; the first reason is kept.
    pub fn fail(&self, error: TargetError) {
        let mut state = self.state.lock();
        state.failed.get_or_insert(error);
        state.opened = Some(false);
        self.changed.notify_all();
    }

    /// Waits until this number of sessions is ready.
    ///
    /// # Errors
    /// The reason when one cannot be; the others are sent away.
    pub fn wait_for(&self, sessions: u32) -> Result<(), TargetError> {
        let mut state = self.state.lock();
        loop {
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if state.ready >= sessions {
                return Ok(());
            }
            self.changed.wait(&mut state);
        }
    }

    /// Lets all go on.
    pub fn open(&self) {
        self.state.lock().opened = Some(true);
        self.changed.notify_all();
    }
}
