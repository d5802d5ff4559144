//! Where the servers are now: whoever takes writes can change while clients are at work.

use super::server::Remote;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tipover_core::experiment::{Spec, TargetKind};
use tipover_core::target::{CheckSession, Facts, Target, TargetError};

/// One server, and how to speak with it.
#[derive(Debug, Clone)]
pub struct Place {
    spec: Spec,
    url: String,
}

impl Place {
    /// The server at `url`, which is as its recipe gives it.
    pub fn new(spec: &Spec, url: &str) -> Place {
        Place { spec: spec.clone(), url: url.to_string() }
    }

    /// An engine in a process of ours is not spoken to by a protocol of its own.
    fn is_own(&self) -> bool {
        matches!(self.spec.target.kind, TargetKind::Wiredtiger | TargetKind::Guilty)
    }

    fn target(&self, timeout: Duration) -> Result<Box<dyn Target>, TargetError> {
        let mut spec = self.spec.clone();
        // The cell is one of a lab; what is connected to is a server like any other.
        (spec.lab, spec.breaking) = (None, None);
        spec.load.timeout = timeout;
        let wrong = |error: String| TargetError::new("reading the server's address", error);
        spec.target.address = Some(self.url.parse().map_err(wrong)?);
        tipover_targets::start(&spec, Path::new(""))
    }

    /// Opens a session for checks on the calling thread and lets `work` use it.
    ///
    /// # Errors
    /// It could not be opened; then `work` was not called.
    pub fn with_session(
        &self,
        timeout: Duration,
        work: &mut dyn FnMut(&mut dyn CheckSession),
    ) -> Result<(), TargetError> {
        if self.is_own() {
            work(&mut Remote::connect(&self.url, timeout)?.with(self.spec.target.durability));
            return Ok(());
        }
        let target = self.target(timeout)?;
        work(target.open_checks()?.as_mut());
        Ok(())
    }

    /// What the server says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub fn facts(&self, timeout: Duration) -> Result<Facts, TargetError> {
        if self.is_own() {
            return Remote::connect(&self.url, timeout)?.facts();
        }
        self.target(timeout)?.facts()
    }
}

/// The servers that take writes now.
#[derive(Default)]
pub struct Places {
    now: Mutex<Vec<Place>>,
    /// MongoDB's target tries what the server's promises are worth when it is opened, which takes longer than
    /// a failover: once for all sessions of a run.
    opened: Mutex<HashMap<String, Arc<dyn Target>>>,
}

impl Places {
    /// These from now on.
    pub fn set(&self, places: Vec<Place>) {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner) = places;
    }

    /// Opens a session at the `n`-th of them, counted round and round; see [`Place::with_session`].
    ///
    /// # Errors
    /// It could not be opened; then `work` was not called.
    pub fn with_session(
        &self,
        n: usize,
        timeout: Duration,
        work: &mut dyn FnMut(&mut dyn CheckSession),
    ) -> Result<(), TargetError> {
        let place = self.of(n);
        if place.spec.target.kind != TargetKind::Mongodb {
            return place.with_session(timeout, work);
        }
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let target = match opened.get(&place.url) {
            Some(target) => target.clone(),
            None => {
                let target: Arc<dyn Target> = place.target(timeout)?.into();
                opened.insert(place.url.clone(), target.clone());
                target
            }
        };
        drop(opened);
        work(target.open_checks()?.as_mut());
        Ok(())
    }

    fn of(&self, n: usize) -> Place {
        let places = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!places.is_empty(), "a cluster without a place to write to is never given to clients");
        places[n % places.len()].clone()
    }
}
