//! A small safe binding to WiredTiger, the storage engine of MongoDB: what the laboratory needs of it and
//! nothing more.
//!
//! [`Connection`] is an open database, [`Session`] a thread's access to it, [`Cursor`] a table's records. All
//! configuration is in WiredTiger's own syntax. Sizes are bytes, statistics have the unit that their
//! description says.
//!
//! # Why it is sound
//! * A connection that closes frees its sessions, and a session its cursors. Each handle owns a share of the
//!   one above it (`Arc`, then `Rc`), so the order of drops cannot be wrong, and a struct may own a session
//!   and its cursors side by side.
//! * Sessions and cursors may only be used by one thread at a time. Both hold an `Rc`, so they cannot leave
//!   their thread.
//! * The methods of WiredTiger's cursors are variadic: a wrong format would read the wrong arguments. Formats
//!   are verified when a cursor opens, and the C shim chooses the arguments by the cursor's own format.
//! * Values lie in the cache until WiredTiger is called again. A closure sees them by a reference that cannot
//!   escape, and its session refuses all calls (it panics) until the closure returns.
//! * WiredTiger keeps pointers to the keys and values that it is given. The shim resets the cursor before
//!   they dangle.
//! * Nothing unwinds into C: the callbacks for messages and compression catch panics.
//!
//! A configuration is trusted like code: `extensions=[…]` loads a library.
//!
//! # Traps
//! * `os_cache_max` does nothing on Linux in 11.3.1: WiredTiger passes its own constant to `posix_fadvise`,
//!   where it means
//!   `POSIX_FADV_RANDOM`. Bound the page cache with a memory cgroup, or avoid it with `direct_io=(data)`.
//! * `1 − pages read ÷ pages requested` is not the hit ratio of look-ups, because a look-up requests a page
//!   per level of the tree. Count misses per operation.
//! * `block-manager: bytes read` includes what the page cache answered; only the device knows what it was
//!   asked.
//! * With `block_cache=(…)`, `cache: pages read into cache` stays near zero: count `block-cache: number of
//!   misses`.
//! * `commit_with(c"sync=on")` and `transaction_sync=(enabled,method=none)` collapse with many threads,
//!   because each commit waits for the slots of all earlier ones: commit plainly and share
//!   [`log_flush`](Session::log_flush), as mongod does.
//! * A plain commit is in the memory of this process only: killing it loses up to what was written since the
//!   last flush.
//! * `session_max` counts WiredTiger's internal sessions too, and exceeding it is an error in the thread that
//!   opens one more.
//! * The page under a cursor that stands on a record cannot be evicted: [`reset`](Cursor::reset) idle
//!   cursors.
//! * The first [`Connection::open`] of a process spends half a second of CPU to calibrate WiredTiger's clock:
//!   do not time it.
//! * Numeric keys of statistics change from version to version, and some descriptions too.

mod connection;
mod cursor;
mod error;
mod message;
mod raw;
mod session;
mod snappy;
mod statistics;

pub use connection::Connection;
pub use cursor::{Cursor, Field};
pub use error::{Error, Kind, Result};
pub use message::Message;
pub use session::{Session, Sync};
pub use statistics::StatisticsReader;

use std::ffi::{CStr, CString};

/// The name and version of the WiredTiger that is linked, such as `WiredTiger 11.3.1`.
pub fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three integers to write to, and a static string in return.
    let text = unsafe { CStr::from_ptr(raw::tipover_version(&mut major, &mut minor, &mut patch)) };
    text.to_string_lossy().into_owned()
}

fn c_string(doing: &'static str, text: impl Into<Vec<u8>>) -> Result<CString> {
    CString::new(text).map_err(|_| Error::misuse(doing, "a name or configuration contains a NUL byte"))
}

/// The folder of the engine's source; empty where the system's library is linked.
pub const SOURCE: &str = env!("TIPOVER_WIREDTIGER_SOURCE");
/// The folder with the compiled engine, `libtipover_wiredtiger.a`, and the headers that it was made with;
/// empty where the system's library is linked.
pub const BUILD: &str = env!("TIPOVER_WIREDTIGER_BUILD");
