//! WiredTiger's statistics, by description: their numeric keys change from version to version.

use crate::error::{Error, Result, check, found};
use crate::session::OpenSession;
use crate::{c_string, message, raw};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};
use std::rc::Rc;

/// Reads a few chosen statistics again and again: the names are resolved once, and nothing is allocated.
///
/// Each reading adds up the counters of the whole engine (tens of microseconds), which are not a consistent
/// snapshot: other threads count on meanwhile.
pub struct StatisticsReader {
    cursor: StatisticsCursor,
    keys: Vec<c_int>,
    values: Vec<i64>,
}

impl StatisticsReader {
    pub(crate) fn open(
        session: &Rc<OpenSession>,
        table: Option<&str>,
        descriptions: &[&str],
    ) -> Result<Self> {
        let cursor = StatisticsCursor::open(session, table)?;
        let mut known = BTreeMap::new();
        cursor.each(|key, description, _| {
            known.insert(description.to_owned(), key);
        })?;
        let keys: Vec<c_int> = descriptions
            .iter()
            .map(|&description| {
                known.get(description).copied().ok_or_else(|| {
                    let version = crate::version();
                    Error::misuse("open statistics", format!("{version} has no statistic {description:?}"))
                })
            })
            .collect::<Result<_>>()?;
        let values = vec![0; keys.len()];
        Ok(StatisticsReader { cursor, keys, values })
    }

    /// The values now, in the order of the descriptions given when the reader was opened.
    ///
    /// # Errors
    /// When the engine has panicked, or the table is gone.
    pub fn read(&mut self) -> Result<&[i64]> {
        // SAFETY: the cursor is open, on its own thread; both slices have as many elements as is said.
        check("read statistics", unsafe {
            raw::tipover_statistics_read(
                self.cursor.idle(),
                self.keys.as_ptr(),
                self.values.as_mut_ptr(),
                self.keys.len(),
            )
        })?;
        Ok(&self.values)
    }
}

impl std::fmt::Debug for StatisticsReader {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("StatisticsReader").field("values", &self.values).finish_non_exhaustive()
    }
}

/// All statistics of the database, or of a table.
pub(crate) fn read_all(session: &Rc<OpenSession>, table: Option<&str>) -> Result<BTreeMap<String, i64>> {
    let mut all = BTreeMap::new();
    StatisticsCursor::open(session, table)?.each(|_, description, value| {
        all.insert(description.to_owned(), value);
    })?;
    Ok(all)
}

/// A cursor on `statistics:`, whose key and value formats WiredTiger fixes.
struct StatisticsCursor {
    raw: NonNull<raw::Cursor>,
    session: Rc<OpenSession>,
}

impl StatisticsCursor {
    fn open(session: &Rc<OpenSession>, table: Option<&str>) -> Result<Self> {
        let doing = "open statistics";
        let uri = c_string(doing, format!("statistics:{}", table.unwrap_or_default()))?;
        let mut cursor = ptr::null_mut();
        message::forget_of_this_thread();
        // SAFETY: the session is open, on its own thread, and nothing of it is lent.
        check(doing, unsafe {
            raw::tipover_cursor_open(session.idle(), uri.as_ptr(), c"statistics=(fast)".as_ptr(), &mut cursor)
        })?;
        let raw =
            NonNull::new(cursor).ok_or_else(|| Error::misuse(doing, "WiredTiger returned no cursor"))?;
        Ok(StatisticsCursor { raw, session: Rc::clone(session) })
    }

    fn idle(&self) -> *mut raw::Cursor {
        self.session.assert_idle();
        self.raw.as_ptr()
    }

    /// Shows every statistic: key, description, value.
    fn each(&self, mut see: impl FnMut(c_int, &str, i64)) -> Result<()> {
        let (mut key, mut description, mut value) = (0, ptr::null(), 0);
        loop {
            // SAFETY: the cursor is open, on its own thread, and is a statistics cursor, for which the shim's
            // call is made.
            let code =
                unsafe { raw::tipover_statistic_next(self.idle(), &mut key, &mut description, &mut value) };
            if !found("read statistics", code)? {
                return Ok(());
            }
            // SAFETY: descriptions are NUL-terminated; they are copied before the cursor moves on.
            let text = unsafe { CStr::from_ptr(description) }.to_string_lossy();
            see(key, &text, value);
        }
    }
}

impl Drop for StatisticsCursor {
    fn drop(&mut self) {
        // SAFETY: closed once, before the session that `self.session` keeps open; it holds no page of any
        // table.
        unsafe { raw::tipover_cursor_close(self.raw.as_ptr()) };
    }
}
