//! An open database.

use crate::error::{Result, check};
use crate::message::{self, Message, MessageLog};
use crate::raw;
use crate::session::Session;
use crate::{Error, c_string};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// An open WiredTiger database: cheap to clone, shared by all threads, closed when the last clone, session
/// and cursor are gone.
///
/// Closing writes a checkpoint, so dropping the last handle of a database with much unwritten data takes a
/// while, and its errors are lost: where they matter, call [`close`](Connection::close).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let home = tempfile::tempdir()?;
/// use tipover_wiredtiger::Connection;
/// let connection = Connection::open(home.path(), "create,cache_size=64MB")?;
/// let session = connection.session()?;
/// drop(connection); // The session keeps the database open.
/// session.create("table:accounts", "key_format=q,value_format=q")?;
/// let mut accounts = session.cursor::<i64, i64>("table:accounts")?;
/// accounts.put(&7, &100)?;
/// assert_eq!(accounts.get_copy(&7)?, Some(100));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Connection {
    pub(crate) open: Arc<Open>,
}

/// The connection itself, owned jointly by all that came from it.
pub(crate) struct Open {
    raw: NonNull<raw::Connection>,
    handler: NonNull<raw::Handler>,
    /// Boxed, because WiredTiger holds its address.
    messages: Box<MessageLog>,
    closed: bool,
}

// SAFETY: WiredTiger documents WT_CONNECTION and its methods as usable from any thread at any time; the log
// has a lock.
unsafe impl Send for Open {}
// SAFETY: as above.
unsafe impl Sync for Open {}

impl Connection {
    /// Opens the database in the folder `home`, which must exist, with a configuration in WiredTiger's own
    /// syntax; recovers it first if it was not closed.
    ///
    /// `session_max` of the configuration counts WiredTiger's internal sessions too (about 15): name it
    /// explicitly, well above the number of threads. The folder of a journal (`log=(path=…)`) must exist
    /// already.
    ///
    /// # Errors
    /// `Kind::Io(2)` if there is no such folder, [`Kind::Busy`](crate::Kind::Busy) if another handle or
    /// process has the database open; else with WiredTiger's reason as detail.
    pub fn open(home: impl AsRef<Path>, config: &str) -> Result<Connection> {
        let doing = "open the database";
        let home = home.as_ref();
        if !home.is_dir() {
            // WiredTiger would call an absent folder a corrupt database.
            return Err(Error::absent(doing, format!("there is no folder {}", home.display())));
        }
        let home = c_string(doing, home.as_os_str().as_encoded_bytes())?;
        let config = c_string(doing, config)?;
        let messages = Box::new(MessageLog::default());
        let (mut raw, mut handler) = (ptr::null_mut(), ptr::null_mut());
        message::forget_of_this_thread();
        // SAFETY: all strings are NUL-terminated; the log outlives the connection, because `Open` owns both
        // and closes first.
        let code = unsafe {
            raw::tipover_connection_open(
                home.as_ptr(),
                config.as_ptr(),
                messages.address(),
                &mut raw,
                &mut handler,
            )
        };
        check(doing, code)?;
        match (NonNull::new(raw), NonNull::new(handler)) {
            (Some(raw), Some(handler)) => {
                Ok(Connection { open: Arc::new(Open { raw, handler, messages, closed: false }) })
            }
            _ => Err(Error::misuse(doing, "WiredTiger returned no connection")),
        }
    }

    /// A session of this database for the calling thread, with snapshot isolation.
    ///
    /// It costs some microseconds: open one per thread and keep it.
    ///
    /// # Errors
    /// When `session_max` is reached, among others; the detail says so.
    pub fn session(&self) -> Result<Session> {
        Session::open(&self.open)
    }

    /// Changes the configuration of the open database, such as `cache_size=1GB` or
    /// `eviction=(threads_max=8)`.
    ///
    /// # Errors
    /// When a key is unknown or cannot change while the database is open.
    pub fn reconfigure(&self, config: &str) -> Result<()> {
        let doing = "reconfigure the database";
        let config = c_string(doing, config)?;
        message::forget_of_this_thread();
        // SAFETY: the connection is open as long as `self.open` lives, and its methods are thread-safe.
        check(doing, unsafe { raw::tipover_connection_reconfigure(self.open.raw(), config.as_ptr()) })
    }

    /// Takes what WiredTiger has reported since the last call: errors of its own threads are seen only here.
    /// The newest 256 lines are kept.
    pub fn messages(&self) -> Vec<Message> {
        self.open.messages.take()
    }

    /// Closes the database now and says how that went: a checkpoint is written, so it may take as long as the
    /// unwritten data.
    ///
    /// # Errors
    /// [`Kind::Busy`](crate::Kind::Busy) if clones, sessions or cursors still exist: nothing is closed then
    /// until they are dropped. Any other error is WiredTiger's, and the database is closed nevertheless.
    pub fn close(self) -> Result<()> {
        let doing = "close the database";
        match Arc::try_unwrap(self.open) {
            Ok(mut open) => open.close(doing),
            Err(shared) => {
                let others = Arc::strong_count(&shared) - 1;
                Err(Error::busy(doing, format!("{others} other handles keep it open")))
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Open {
    pub(crate) fn raw(&self) -> *mut raw::Connection {
        self.raw.as_ptr()
    }

    fn close(&mut self, doing: &'static str) -> Result<()> {
        self.closed = true;
        message::forget_of_this_thread();
        // SAFETY: called once (`closed`), by the only owner; every session held a clone of the `Arc`, so none
        // is left.
        check(doing, unsafe {
            raw::tipover_connection_close(self.raw.as_ptr(), self.handler.as_ptr(), ptr::null())
        })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.closed {
            // A drop has nobody to tell; `Connection::close` is for those who want to know.
            let _ = self.close("close the database");
        }
    }
}
