//! Reading and writing the records of one table.

use crate::error::{Error, Result, check, found};
use crate::raw::{self, Datum};
use crate::session::OpenSession;
use crate::{c_string, message};
use std::cmp::Ordering;
use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::slice;

/// What a key or a value can be: `[u8]` in a table with format `u`, `i64` in one with format `q`.
pub trait Field: encoding::Encoding + ToOwned {}
impl Field for [u8] {}
impl Field for i64 {}

mod encoding {
    use super::*;

    /// Sealed: the formats here are exactly those that the shim tells apart.
    pub trait Encoding {
        /// The one letter that WiredTiger's format must consist of.
        const FORMAT: &'static str;

        /// The field as the shim takes it; it borrows `self` without saying so.
        #[doc(hidden)]
        fn datum(&self) -> Passed;

        /// Shows the field to a closure, which cannot keep it.
        ///
        /// # Safety
        /// `passed` was filled in by the shim for a cursor of this format, and WiredTiger is not called until
        /// the closure has returned.
        #[doc(hidden)]
        unsafe fn show<R>(passed: &Passed, read: impl FnOnce(&Self) -> R) -> R;
    }

    /// A [`Datum`] that others may hold but not look into.
    pub struct Passed(pub(crate) Datum);

    impl Encoding for [u8] {
        const FORMAT: &'static str = "u";

        #[inline]
        fn datum(&self) -> Passed {
            Passed(Datum { data: self.as_ptr(), size: self.len(), integer: 0 })
        }

        #[inline]
        unsafe fn show<R>(passed: &Passed, read: impl FnOnce(&Self) -> R) -> R {
            if passed.0.size == 0 {
                // WiredTiger may give a null pointer for no bytes.
                return read(&[]);
            }
            // SAFETY: the shim gave pointer and size of a field in WiredTiger's memory, valid as the caller
            // promises.
            read(unsafe { slice::from_raw_parts(passed.0.data, passed.0.size) })
        }
    }

    impl Encoding for i64 {
        const FORMAT: &'static str = "q";

        #[inline]
        fn datum(&self) -> Passed {
            Passed(Datum { data: ptr::null(), size: 0, integer: *self })
        }

        #[inline]
        unsafe fn show<R>(passed: &Passed, read: impl FnOnce(&Self) -> R) -> R {
            read(&passed.0.integer)
        }
    }
}
use encoding::Passed;

/// A position in a table, and the way to read and write its records. Open one per table and keep it.
///
/// Nothing on the read path allocates. Values lie in WiredTiger's cache and are shown to a closure, out of
/// which they cannot escape:
///
/// ```compile_fail
/// # fn try_it(mut cursor: tipover_wiredtiger::Cursor<i64, [u8]>) {
/// let value: Option<&[u8]> = cursor.get(&1, |value| value).unwrap();
/// # }
/// ```
///
/// ```compile_fail
/// # fn try_it(mut cursor: tipover_wiredtiger::Cursor<i64, [u8]>) {
/// let mut kept: &[u8] = &[];
/// cursor.get(&1, |value| kept = value).unwrap();
/// # }
/// ```
///
/// What is computed from it can:
///
/// ```
/// # fn try_it(mut cursor: tipover_wiredtiger::Cursor<i64, [u8]>) {
/// let value: Option<Vec<u8>> = cursor.get(&1, |value| value.to_vec()).unwrap();
/// # }
/// ```
///
/// A cursor keeps its session open, so both can be fields of one struct; and it cannot leave its thread:
///
/// ```compile_fail,E0277
/// # fn try_it(cursor: tipover_wiredtiger::Cursor<i64, i64>) {
/// std::thread::spawn(move || drop(cursor));
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # fn try_it(cursor: &tipover_wiredtiger::Cursor<i64, i64>) {
/// std::thread::scope(|scope| { scope.spawn(|| cursor.key_copy()); });
/// # }
/// ```
///
/// A cursor that stands on a record pins that record's page in the cache: [`reset`](Cursor::reset) it when it
/// will stay unused for a while. Writes leave it standing nowhere.
///
/// # Panics
/// Every call panics while a closure holds a value of the same session, because any call could free that
/// value.
pub struct Cursor<K: Field + ?Sized, V: Field + ?Sized> {
    raw: NonNull<raw::Cursor>,
    session: Rc<OpenSession>,
    formats: PhantomData<fn(&K, &V)>,
}

impl<K: Field + ?Sized, V: Field + ?Sized> Cursor<K, V> {
    pub(crate) fn open(session: &Rc<OpenSession>, uri: &str) -> Result<Self> {
        let doing = "open a cursor";
        let name = c_string(doing, uri)?;
        let mut cursor = ptr::null_mut();
        message::forget_of_this_thread();
        // SAFETY: the session is open, on its own thread; no configuration is passed, so the cursor is not a
        // raw one and its formats say what its variadic methods take.
        check(doing, unsafe {
            raw::tipover_cursor_open(session.idle(), name.as_ptr(), ptr::null(), &mut cursor)
        })?;
        let raw =
            NonNull::new(cursor).ok_or_else(|| Error::misuse(doing, "WiredTiger returned no cursor"))?;
        let cursor = Cursor { raw, session: Rc::clone(session), formats: PhantomData };
        // SAFETY: the cursor is open, and its formats are NUL-terminated strings.
        let (key, value) = unsafe {
            (
                CStr::from_ptr(raw::tipover_key_format(raw.as_ptr())).to_string_lossy(),
                CStr::from_ptr(raw::tipover_value_format(raw.as_ptr())).to_string_lossy(),
            )
        };
        if key != K::FORMAT || value != V::FORMAT {
            let (wanted_key, wanted_value) = (K::FORMAT, V::FORMAT);
            return Err(Error::misuse(
                doing,
                format!(
                    "{uri} has key_format={key},value_format={value}, \
                     but the cursor is for key_format={wanted_key},value_format={wanted_value}"
                ),
            ));
        }
        Ok(cursor)
    }

    /// Shows the value of `key` to `read` and returns what that returns; `None` if there is no such record.
    /// The cursor then stands on the record.
    ///
    /// # Errors
    /// [`Kind::Rollback`](crate::Kind::Rollback) among others.
    #[inline]
    pub fn get<R>(&mut self, key: &K, read: impl FnOnce(&V) -> R) -> Result<Option<R>> {
        let _lease = self.session.lend();
        let mut value = Passed(Datum::EMPTY);
        // SAFETY: the cursor is open, on its own thread, and its formats were verified; `key` is alive during
        // the call, and the shim leaves no pointer to it behind.
        let code = unsafe { raw::tipover_get(self.raw.as_ptr(), &key.datum().0, &mut value.0) };
        if !found("read a record", code)? {
            return Ok(None);
        }
        // SAFETY: the shim has just filled it in, and the lease keeps everybody from calling WiredTiger
        // meanwhile.
        Ok(Some(unsafe { V::show(&value, read) }))
    }

    /// A copy of the value of `key`.
    ///
    /// # Errors
    /// As [`get`](Cursor::get).
    pub fn get_copy(&mut self, key: &K) -> Result<Option<V::Owned>> {
        self.get(key, V::to_owned)
    }

    /// Whether there is a record with this key; the cursor then stands on it.
    ///
    /// # Errors
    /// As [`get`](Cursor::get).
    #[inline]
    pub fn contains(&mut self, key: &K) -> Result<bool> {
        // SAFETY: as in `get`; nothing is lent.
        found("look for a record", unsafe { raw::tipover_search(self.idle(), &key.datum().0) })
    }

    /// Writes the record, whether or not there is one with this key.
    ///
    /// # Errors
    /// [`Kind::Rollback`](crate::Kind::Rollback) if another transaction has written it.
    #[inline]
    pub fn put(&mut self, key: &K, value: &V) -> Result<()> {
        check("put a record", self.insert_or_overwrite(key, value, true))
    }

    /// Writes a record that must not exist yet.
    ///
    /// # Errors
    /// [`Kind::DuplicateKey`](crate::Kind::DuplicateKey) if it exists,
    /// [`Kind::Rollback`](crate::Kind::Rollback) if another transaction has written it.
    #[inline]
    pub fn insert(&mut self, key: &K, value: &V) -> Result<()> {
        check("insert a record", self.insert_or_overwrite(key, value, false))
    }

    #[inline]
    fn insert_or_overwrite(&mut self, key: &K, value: &V, overwrite: bool) -> c_int {
        // SAFETY: as in `get`; `value` too is alive during the call, and nothing is lent.
        unsafe { raw::tipover_insert(self.idle(), &key.datum().0, &value.datum().0, c_int::from(overwrite)) }
    }

    /// Writes a record that must exist.
    ///
    /// # Errors
    /// [`Kind::NotFound`](crate::Kind::NotFound) if it does not, [`Kind::Rollback`](crate::Kind::Rollback) if
    /// another transaction has written it.
    #[inline]
    pub fn update(&mut self, key: &K, value: &V) -> Result<()> {
        // SAFETY: as in `get`; `value` too is alive during the call, and nothing is lent.
        check("update a record", unsafe {
            raw::tipover_update(self.idle(), &key.datum().0, &value.datum().0)
        })
    }

    /// Removes a record that must exist.
    ///
    /// # Errors
    /// As [`update`](Cursor::update).
    #[inline]
    pub fn remove(&mut self, key: &K) -> Result<()> {
        // SAFETY: as in `get`; nothing is lent.
        check("remove a record", unsafe { raw::tipover_remove(self.idle(), &key.datum().0) })
    }

    /// Steps to the next record, to the first one if the cursor stands nowhere; `false` past the end, and
    /// then it stands nowhere.
    ///
    /// # Errors
    /// As [`get`](Cursor::get).
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "an Iterator could not lend its records")]
    pub fn next(&mut self) -> Result<bool> {
        // SAFETY: the cursor is open, on its own thread, and nothing is lent.
        found("step to the next record", unsafe { raw::tipover_next(self.idle()) })
    }

    /// Steps to the previous record, to the last one if the cursor stands nowhere; `false` before the
    /// beginning, and then it stands nowhere.
    ///
    /// # Errors
    /// As [`get`](Cursor::get).
    #[inline]
    pub fn prev(&mut self) -> Result<bool> {
        // SAFETY: as in `next`.
        found("step to the previous record", unsafe { raw::tipover_prev(self.idle()) })
    }

    /// Steps to `key` or to a neighbour of it, and says how the record there compares with `key`; `None` if
    /// the table is empty.
    ///
    /// # Errors
    /// As [`get`](Cursor::get).
    pub fn search_near(&mut self, key: &K) -> Result<Option<Ordering>> {
        let mut exact = 0;
        // SAFETY: as in `get`; nothing is lent.
        let code = unsafe { raw::tipover_search_near(self.idle(), &key.datum().0, &mut exact) };
        Ok(found("look for a record or its neighbour", code)?.then(|| exact.cmp(&0)))
    }

    /// Steps to the first record whose key is `key` or greater: where a scan starts. `false` if there is
    /// none.
    ///
    /// # Errors
    /// As [`get`](Cursor::get).
    pub fn seek(&mut self, key: &K) -> Result<bool> {
        match self.search_near(key)? {
            None => Ok(false),
            Some(Ordering::Less) => self.next(),
            Some(_) => Ok(true),
        }
    }

    /// Shows the record that the cursor stands on.
    ///
    /// # Errors
    /// When it stands nowhere: also after a rollback, a checkpoint or a failed write of its session.
    #[inline]
    pub fn record<R>(&self, read: impl FnOnce(&K, &V) -> R) -> Result<R> {
        let _lease = self.session.lend();
        let (mut key, mut value) = (Passed(Datum::EMPTY), Passed(Datum::EMPTY));
        // SAFETY: the cursor is open, on its own thread, and its formats were verified; without a record
        // WiredTiger fails.
        check("read the record under the cursor", unsafe {
            match raw::tipover_key(self.raw.as_ptr(), &mut key.0) {
                0 => raw::tipover_value(self.raw.as_ptr(), &mut value.0),
                code => code,
            }
        })?;
        // SAFETY: the shim has just filled them in, and the lease keeps everybody from calling WiredTiger
        // meanwhile.
        Ok(unsafe { K::show(&key, |key| V::show(&value, |value| read(key, value))) })
    }

    /// A copy of the key that the cursor stands on.
    ///
    /// # Errors
    /// As [`record`](Cursor::record).
    pub fn key_copy(&self) -> Result<K::Owned> {
        self.record(|key, _| key.to_owned())
    }

    /// A copy of the value that the cursor stands on.
    ///
    /// # Errors
    /// As [`record`](Cursor::record).
    pub fn value_copy(&self) -> Result<V::Owned> {
        self.record(|_, value| value.to_owned())
    }

    /// Leaves the record, so that its page may be evicted and its snapshot let go.
    ///
    /// # Errors
    /// When the engine has panicked.
    #[inline]
    pub fn reset(&mut self) -> Result<()> {
        // SAFETY: as in `next`.
        check("reset a cursor", unsafe { raw::tipover_cursor_reset(self.idle()) })
    }

    #[inline]
    fn idle(&self) -> *mut raw::Cursor {
        self.session.assert_idle();
        self.raw.as_ptr()
    }
}

impl<K: Field + ?Sized, V: Field + ?Sized> std::fmt::Debug for Cursor<K, V> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Cursor")
            .field("key", &K::FORMAT)
            .field("value", &V::FORMAT)
            .finish_non_exhaustive()
    }
}

impl<K: Field + ?Sized, V: Field + ?Sized> Drop for Cursor<K, V> {
    fn drop(&mut self) {
        // SAFETY: closed once, before the session that `self.session` keeps open. Only this cursor's own
        // position goes, so a value that another cursor has lent stays where it is. The error, if any, has
        // nobody to go to.
        unsafe { raw::tipover_cursor_close(self.raw.as_ptr()) };
    }
}
