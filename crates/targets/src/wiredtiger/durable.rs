//! What an acknowledgement waits for: nothing, write(2) or fsync, shared by all sessions as mongod does.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tipover_core::experiment::Durability;
use tipover_core::target::TargetError;
use tipover_wiredtiger::{Error, Session, Sync};

/// Flushes of the journal that sessions wait for. A commit that asks for its own flush
/// (`commit_transaction("sync=on")`) keeps its update invisible meanwhile and does not share; mongod commits
/// first and then shares a flush, and so does this.
pub struct Flushes {
    sync: Option<Sync>,
    /// How many flushes have begun; flush n is the n-th of them.
    begun: AtomicU64,
    /// The last flush that succeeded. Whoever holds the lock is the only one who flushes.
    succeeded: Mutex<u64>,
}

impl Flushes {
    /// What `durability` asks for; an error for what a single embedded engine cannot promise.
    pub fn of(durability: Durability) -> Result<Self, TargetError> {
        let sync = match durability {
            Durability::Configured | Durability::Unacknowledged | Durability::Acknowledged => None,
            Durability::Written => Some(Sync::Off),
            Durability::Journalled => Some(Sync::On),
            Durability::ReplicatedToOne | Durability::ReplicatedToMajority => {
                return Err(TargetError::new(
                    "opening WiredTiger",
                    "an embedded engine has no replicas; target.durability can be unacknowledged, \
                     acknowledged, written or journalled",
                ));
            }
        };
        Ok(Flushes { sync, begun: AtomicU64::new(0), succeeded: Mutex::new(0) })
    }

    /// Returns when everything that `session` has committed is as durable as was asked for.
    pub fn wait(&self, session: &Session) -> Result<(), Error> {
        let Some(sync) = self.sync else { return Ok(()) };
        let seen = self.begun.load(Ordering::SeqCst);
        let mut succeeded = self.succeeded.lock();
        // A flush that began after our commit covers it, and it has ended, because it is our turn.
        if *succeeded > seen {
            return Ok(());
        }
        let flush = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        session.log_flush(sync)?;
        *succeeded = flush;
        Ok(())
    }
}
