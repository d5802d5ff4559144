//! How much of a file is in the page cache: cachestat(2), Linux 6.5.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use tipover_core::units::Bytes;

/// Pages of a file in the page cache, now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cached {
    /// In the cache.
    pub resident: Bytes,
    /// Of these, not written to the device yet.
    pub dirty: Bytes,
}

#[repr(C)]
#[derive(Default)]
struct Range {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// The same number on every architecture but Alpha.
const CACHESTAT: libc::c_long = 451;

/// Asks for the whole file.
///
/// # Errors
/// An older kernel, or a file that belongs to somebody else and cannot be written.
pub fn cached(file: &File) -> io::Result<Cached> {
    let (range, mut pages) = (Range::default(), Pages::default());
    // SAFETY: both structures have the layout of the kernel's and live until the call returns.
    let result = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let bytes = |pages: u64| Bytes(pages * rustix::param::page_size() as u64);
    Ok(Cached { resident: bytes(pages.cached), dirty: bytes(pages.dirty + pages.writeback) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_cached() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
        match cached(file.as_file()) {
            Ok(cached) => assert_eq!(cached.resident, Bytes::mib(1)),
            Err(error) => println!("SKIPPED: no cachestat here: {error}"),
        }
    }
}
