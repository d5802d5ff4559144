//! mongod's background threads: the journal flusher and the checkpointer.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tipover_wiredtiger::{Connection, Error, Sync};

const JOURNAL_INTERVAL: Duration = Duration::from_millis(100);
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// The threads; they end when it is dropped.
pub struct Clockwork {
    stop: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Clockwork {
    /// Starts both threads.
    pub fn start(connection: &Connection) -> std::io::Result<Self> {
        let mut clockwork = Clockwork { stop: Default::default(), threads: vec![] };
        clockwork.every(JOURNAL_INTERVAL, "journal", connection, |session| session.log_flush(Sync::On))?;
        clockwork.every(CHECKPOINT_INTERVAL, "checkpoint", connection, |session| session.checkpoint())?;
        Ok(clockwork)
    }

    fn every(
        &mut self,
        interval: Duration,
        name: &str,
        connection: &Connection,
        task: impl Fn(&tipover_wiredtiger::Session) -> Result<(), Error> + Send + 'static,
    ) -> std::io::Result<()> {
        let (connection, stop, task_name) = (connection.clone(), self.stop.clone(), name.to_string());
        let work = move || {
            let session = match connection.session() {
                Ok(session) => session,
                Err(error) => return eprintln!("{task_name}: {error}"),
            };
            let mut stopped = stop.0.lock();
            while !*stopped {
                stop.1.wait_for(&mut stopped, interval);
                if *stopped {
                    return;
                }
                // A checkpoint may take long; stopping must not wait for the lock meanwhile.
                parking_lot::MutexGuard::unlocked(&mut stopped, || {
                    if let Err(error) = task(&session) {
                        eprintln!("{task_name}: {error}");
                    }
                });
            }
        };
        self.threads.push(std::thread::Builder::new().name(name.into()).spawn(work)?);
        Ok(())
    }
}

impl Drop for Clockwork {
    fn drop(&mut self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        for thread in self.threads.drain(..) {
            // A panic in there was already printed.
            let _ = thread.join();
        }
    }
}
