//! A thread's access to an open database.

use crate::connection::Open;
use crate::cursor::{Cursor, Field};
use crate::error::{Error, Result, check};
use crate::statistics::{self, StatisticsReader};
use crate::{c_string, message, raw};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;

/// A thread's access to an open database: transactions, and the cursors that read and write.
///
/// A session keeps its database open, and cannot leave the thread that opened it:
///
/// ```compile_fail,E0277
/// # fn try_it(session: tipover_wiredtiger::Session) {
/// std::thread::spawn(move || drop(session));
/// # }
/// ```
///
/// Clones are handles of the same session, so a struct can own a session beside its cursors.
///
/// # Panics
/// Every call panics while a closure of [`Cursor::get`] and its like holds a value of the same session,
/// because any call could free that value.
#[derive(Clone)]
pub struct Session {
    pub(crate) open: Rc<OpenSession>,
}

/// The session itself, owned jointly by its handles and cursors.
pub(crate) struct OpenSession {
    raw: NonNull<raw::Session>,
    /// Set while a closure holds a value that lies in WiredTiger's memory.
    lent: Cell<bool>,
    /// Dropped after the session is closed: a connection that closes frees its sessions.
    _connection: Arc<Open>,
}

/// Whether [`Session::log_flush`] waits for the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Returns when the journal is on the device.
    On,
    /// Returns when the journal is with the operating system: it survives the death of the process, not of
    /// the machine.
    Off,
}

impl Session {
    pub(crate) fn open(connection: &Arc<Open>) -> Result<Session> {
        let doing = "open a session";
        let mut session = ptr::null_mut();
        message::forget_of_this_thread();
        // SAFETY: the connection is open while the `Arc` lives, and opening sessions is thread-safe.
        check(doing, unsafe {
            raw::tipover_session_open(connection.raw(), c"isolation=snapshot".as_ptr(), &mut session)
        })?;
        let raw =
            NonNull::new(session).ok_or_else(|| Error::misuse(doing, "WiredTiger returned no session"))?;
        let _connection = Arc::clone(connection);
        Ok(Session { open: Rc::new(OpenSession { raw, lent: Cell::new(false), _connection }) })
    }

    /// Creates a table, such as `table:usertable`, in WiredTiger's own syntax; does nothing if it exists with
    /// the same configuration.
    ///
    /// # Errors
    /// With WiredTiger's reason as detail.
    pub fn create(&self, uri: &str, config: &str) -> Result<()> {
        let doing = "create a table";
        let (uri, config) = (c_string(doing, uri)?, c_string(doing, config)?);
        message::forget_of_this_thread();
        // SAFETY: the session is open, on its own thread, and nothing of it is lent.
        check(doing, unsafe { raw::tipover_create(self.open.idle(), uri.as_ptr(), config.as_ptr()) })
    }

    /// A cursor on a table whose `key_format` and `value_format` are those of `K` and `V`: `[u8]` for `u`,
    /// `i64` for `q`.
    ///
    /// # Errors
    /// When the table does not exist (`Io(2)`), or has other formats.
    pub fn cursor<K: Field + ?Sized, V: Field + ?Sized>(&self, uri: &str) -> Result<Cursor<K, V>> {
        Cursor::open(&self.open, uri)
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// When one is running already.
    pub fn begin(&self) -> Result<()> {
        self.begin_with(c"")
    }

    /// As [`begin`](Session::begin), with a configuration such as `c"isolation=read-committed"`.
    ///
    /// # Errors
    /// As [`begin`](Session::begin).
    pub fn begin_with(&self, config: &CStr) -> Result<()> {
        // SAFETY: as in `create`.
        check("begin a transaction", unsafe { raw::tipover_begin(self.open.idle(), config_pointer(config)) })
    }

    /// Commits the running transaction; cursors stay where they are. How durable that is depends on the
    /// connection's `transaction_sync` and on [`log_flush`](Session::log_flush).
    ///
    /// # Errors
    /// A failed commit has already rolled back, and reset all cursors of the session: do not roll back again.
    pub fn commit(&self) -> Result<()> {
        self.commit_with(c"")
    }

    /// As [`commit`](Session::commit), with a configuration such as `c"sync=on"`.
    ///
    /// `sync=on` holds the writes invisible while the device syncs, so that others conflict with them: to
    /// commit durably as mongod does, commit plainly and share a [`log_flush`](Session::log_flush) among
    /// sessions.
    ///
    /// # Errors
    /// As [`commit`](Session::commit).
    pub fn commit_with(&self, config: &CStr) -> Result<()> {
        // SAFETY: as in `create`.
        check("commit", unsafe { raw::tipover_commit(self.open.idle(), config_pointer(config)) })
    }

    /// Rolls the running transaction back and resets all cursors of the session.
    ///
    /// # Errors
    /// When none is running.
    pub fn rollback(&self) -> Result<()> {
        // SAFETY: as in `create`.
        check("roll back", unsafe { raw::tipover_rollback(self.open.idle()) })
    }

    /// Writes a checkpoint of the whole database: seconds, if there is much to write.
    ///
    /// # Errors
    /// When a transaction is running in this session, or the device fails.
    pub fn checkpoint(&self) -> Result<()> {
        message::forget_of_this_thread();
        // SAFETY: as in `create`.
        check("write a checkpoint", unsafe { raw::tipover_checkpoint(self.open.idle(), ptr::null()) })
    }

    /// Flushes the journal up to all that was committed before the call, by any session.
    ///
    /// # Errors
    /// When the database has no journal (`log=(enabled=true)`), or the device fails.
    pub fn log_flush(&self, sync: Sync) -> Result<()> {
        let config = match sync {
            Sync::On => c"sync=on",
            Sync::Off => c"sync=off",
        };
        // SAFETY: as in `create`.
        check("flush the journal", unsafe { raw::tipover_log_flush(self.open.idle(), config.as_ptr()) })
    }

    /// All statistics of the database by description, such as `cache: pages read into cache`, the name that
    /// mongod's serverStatus shows.
    ///
    /// # Errors
    /// When the database was opened with `statistics=(none)`.
    pub fn statistics(&self) -> Result<BTreeMap<String, i64>> {
        statistics::read_all(&self.open, None)
    }

    /// All statistics of one table by description.
    ///
    /// # Errors
    /// When there is no such table, or the database was opened with `statistics=(none)`.
    pub fn table_statistics(&self, uri: &str) -> Result<BTreeMap<String, i64>> {
        statistics::read_all(&self.open, Some(uri))
    }

    /// A reader of the chosen statistics, of the database (`None`) or of a table, for those who sample often.
    ///
    /// # Errors
    /// As [`statistics`](Session::statistics), and when this version of WiredTiger has no statistic of such a
    /// name.
    pub fn statistics_reader(&self, table: Option<&str>, descriptions: &[&str]) -> Result<StatisticsReader> {
        StatisticsReader::open(&self.open, table, descriptions)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Session").finish_non_exhaustive()
    }
}

/// WiredTiger parses no configuration at all if it is given none.
fn config_pointer(config: &CStr) -> *const std::ffi::c_char {
    if config.is_empty() { ptr::null() } else { config.as_ptr() }
}

impl OpenSession {
    /// The session for a call that hands out no memory.
    ///
    /// # Panics
    /// If a value is lent: WiredTiger resets cursors in a rollback, a checkpoint or a failed write, and the
    /// page under a lent value could then be freed.
    #[inline]
    pub(crate) fn idle(&self) -> *mut raw::Session {
        self.assert_idle();
        self.raw.as_ptr()
    }

    #[inline]
    pub(crate) fn assert_idle(&self) {
        assert!(
            !self.lent.get(),
            "a closure holds a value of this session: copy it out before the next call"
        );
    }

    /// Marks the session as lending a value until the lease is dropped, also by a panic.
    #[inline]
    pub(crate) fn lend(&self) -> Lease<'_> {
        self.assert_idle();
        self.lent.set(true);
        Lease { lent: &self.lent }
    }
}

/// While it lives, no call is made on its session.
pub(crate) struct Lease<'session> {
    lent: &'session Cell<bool>,
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lent.set(false);
    }
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        // SAFETY: the last handle is gone, and each cursor was one; the connection is still open. A
        // transaction that is still running is rolled back. The error, if any, has nobody to go to.
        unsafe { raw::tipover_session_close(self.raw.as_ptr()) };
    }
}
