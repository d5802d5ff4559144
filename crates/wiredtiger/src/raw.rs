//! The flat C interface of `c/shim.c`, as Rust sees it.

use std::ffi::{c_char, c_int};
use std::marker::{PhantomData, PhantomPinned};

pub(crate) const ROLLBACK: c_int = -31800;
pub(crate) const DUPLICATE_KEY: c_int = -31801;
pub(crate) const NOT_FOUND: c_int = -31803;
pub(crate) const PANIC: c_int = -31804;

macro_rules! opaque {
    ($($(#[$about:meta])* $name:ident),*) => {$(
        $(#[$about])*
        #[repr(C)]
        pub(crate) struct $name {
            _nothing: [u8; 0],
            _neither_sent_nor_moved: PhantomData<(*mut u8, PhantomPinned)>,
        }
    )*};
}

opaque!(
    /// `WT_CONNECTION`
    Connection,
    /// `WT_SESSION`
    Session,
    /// `WT_CURSOR`
    Cursor,
    /// The shim's event handler, which must live as long as its connection.
    Handler,
    /// The messages of a connection, of which C only carries the address.
    Log
);

/// `struct datum`: bytes or an integer, whichever the cursor's format asks for.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Datum {
    pub(crate) data: *const u8,
    pub(crate) size: usize,
    pub(crate) integer: i64,
}

impl Datum {
    pub(crate) const EMPTY: Datum = Datum { data: std::ptr::null(), size: 0, integer: 0 };
}

unsafe extern "C" {
    pub(crate) fn tipover_error_text(code: c_int) -> *const c_char;
    pub(crate) fn tipover_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char;

    pub(crate) fn tipover_connection_open(
        home: *const c_char,
        config: *const c_char,
        log: *const Log,
        connection: *mut *mut Connection,
        handler: *mut *mut Handler,
    ) -> c_int;
    pub(crate) fn tipover_connection_close(
        connection: *mut Connection,
        handler: *mut Handler,
        config: *const c_char,
    ) -> c_int;
    pub(crate) fn tipover_connection_reconfigure(connection: *mut Connection, config: *const c_char)
    -> c_int;

    pub(crate) fn tipover_session_open(
        connection: *mut Connection,
        config: *const c_char,
        session: *mut *mut Session,
    ) -> c_int;
    pub(crate) fn tipover_session_close(session: *mut Session) -> c_int;
    pub(crate) fn tipover_create(session: *mut Session, uri: *const c_char, config: *const c_char) -> c_int;
    pub(crate) fn tipover_begin(session: *mut Session, config: *const c_char) -> c_int;
    pub(crate) fn tipover_commit(session: *mut Session, config: *const c_char) -> c_int;
    pub(crate) fn tipover_rollback(session: *mut Session) -> c_int;
    pub(crate) fn tipover_checkpoint(session: *mut Session, config: *const c_char) -> c_int;
    pub(crate) fn tipover_log_flush(session: *mut Session, config: *const c_char) -> c_int;

    pub(crate) fn tipover_cursor_open(
        session: *mut Session,
        uri: *const c_char,
        config: *const c_char,
        cursor: *mut *mut Cursor,
    ) -> c_int;
    pub(crate) fn tipover_cursor_close(cursor: *mut Cursor) -> c_int;
    pub(crate) fn tipover_cursor_reset(cursor: *mut Cursor) -> c_int;
    pub(crate) fn tipover_key_format(cursor: *const Cursor) -> *const c_char;
    pub(crate) fn tipover_value_format(cursor: *const Cursor) -> *const c_char;
    pub(crate) fn tipover_key(cursor: *mut Cursor, key: *mut Datum) -> c_int;
    pub(crate) fn tipover_value(cursor: *mut Cursor, value: *mut Datum) -> c_int;
    pub(crate) fn tipover_get(cursor: *mut Cursor, key: *const Datum, value: *mut Datum) -> c_int;
    pub(crate) fn tipover_search(cursor: *mut Cursor, key: *const Datum) -> c_int;
    pub(crate) fn tipover_search_near(cursor: *mut Cursor, key: *const Datum, exact: *mut c_int) -> c_int;
    pub(crate) fn tipover_next(cursor: *mut Cursor) -> c_int;
    pub(crate) fn tipover_prev(cursor: *mut Cursor) -> c_int;
    pub(crate) fn tipover_insert(
        cursor: *mut Cursor,
        key: *const Datum,
        value: *const Datum,
        overwrite: c_int,
    ) -> c_int;
    pub(crate) fn tipover_update(cursor: *mut Cursor, key: *const Datum, value: *const Datum) -> c_int;
    pub(crate) fn tipover_remove(cursor: *mut Cursor, key: *const Datum) -> c_int;

    pub(crate) fn tipover_statistic_next(
        cursor: *mut Cursor,
        key: *mut c_int,
        description: *mut *const c_char,
        number: *mut i64,
    ) -> c_int;
    pub(crate) fn tipover_statistics_read(
        cursor: *mut Cursor,
        keys: *const c_int,
        numbers: *mut i64,
        count: usize,
    ) -> c_int;
}
