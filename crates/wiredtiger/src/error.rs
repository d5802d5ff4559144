//! What can go wrong, in the words that a caller branches on.

use crate::message;
use crate::raw;
use std::ffi::{CStr, c_int};

/// The result of every fallible call of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// `ENOENT`, `EBUSY` and `EINVAL` of Linux on every architecture that WiredTiger is compiled for here.
const NO_SUCH_FILE: c_int = 2;
const INVALID_ARGUMENT: c_int = 22;
const DEVICE_OR_RESOURCE_BUSY: c_int = 16;

/// An error of WiredTiger, with what was being done and what WiredTiger had to say about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {} ({code}){}", self.text(), self.detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default())]
pub struct Error {
    doing: &'static str,
    code: c_int,
    detail: Option<Box<str>>,
}

/// The kinds of [`Error`] that callers treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The transaction conflicts with another one, or the cache is too full for it: roll back and try again.
    Rollback,
    /// No record has this key. Reads say `None` instead; only [`update`](crate::Cursor::update) and
    /// [`remove`](crate::Cursor::remove) fail with this.
    NotFound,
    /// [`insert`](crate::Cursor::insert) found a record with this key.
    DuplicateKey,
    /// Another process or handle has it: a database that is already open, a table with open cursors.
    Busy,
    /// The engine has given up (often because a sync failed) and every later call fails likewise: restart it.
    Panic,
    /// The operating system refused, with this errno: no space, no such file, an input or output error.
    Io(i32),
    /// Anything else, such as a configuration that WiredTiger does not know; the text says what.
    Other,
}

impl Error {
    /// The kind, to branch on.
    pub fn kind(&self) -> Kind {
        match self.code {
            raw::ROLLBACK => Kind::Rollback,
            raw::NOT_FOUND => Kind::NotFound,
            raw::DUPLICATE_KEY => Kind::DuplicateKey,
            raw::PANIC => Kind::Panic,
            DEVICE_OR_RESOURCE_BUSY => Kind::Busy,
            INVALID_ARGUMENT => Kind::Other,
            errno if errno > 0 => Kind::Io(errno),
            _ => Kind::Other,
        }
    }

    /// WiredTiger's own code (negative) or an errno (positive).
    pub fn code(&self) -> i32 {
        self.code
    }

    /// The text that belongs to the code.
    pub fn text(&self) -> String {
        // SAFETY: the shim returns a NUL-terminated string that is static, or lives in this thread until the
        // next call.
        unsafe { CStr::from_ptr(raw::tipover_error_text(self.code)) }.to_string_lossy().into_owned()
    }

    /// What WiredTiger reported while it failed, if anything: which key of a configuration it did not know,
    /// and the like.
    pub fn detail(&self) -> Option<&str> {
        self.detail.as_deref()
    }

    /// A misuse that this crate found before WiredTiger could.
    pub(crate) fn misuse(doing: &'static str, detail: impl Into<Box<str>>) -> Error {
        Error { doing, code: INVALID_ARGUMENT, detail: Some(detail.into()) }
    }

    /// A folder is missing.
    pub(crate) fn absent(doing: &'static str, detail: impl Into<Box<str>>) -> Error {
        Error { doing, code: NO_SUCH_FILE, detail: Some(detail.into()) }
    }

    /// Something else still uses the handle.
    pub(crate) fn busy(doing: &'static str, detail: impl Into<Box<str>>) -> Error {
        Error { doing, code: DEVICE_OR_RESOURCE_BUSY, detail: Some(detail.into()) }
    }
}

/// Turns WiredTiger's return code into a result; the expected codes of the hot path look for no messages.
#[inline]
pub(crate) fn check(doing: &'static str, code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failure(doing, code)) }
}

/// As [`check`], with "not found" as an answer rather than an error.
#[inline]
pub(crate) fn found(doing: &'static str, code: c_int) -> Result<bool> {
    match code {
        0 => Ok(true),
        raw::NOT_FOUND => Ok(false),
        code => Err(failure(doing, code)),
    }
}

#[cold]
fn failure(doing: &'static str, code: c_int) -> Error {
    let expected = matches!(code, raw::ROLLBACK | raw::NOT_FOUND | raw::DUPLICATE_KEY);
    let detail = if expected { None } else { message::take_of_this_thread() };
    Error { doing, code, detail: detail.map(String::into_boxed_str) }
}
