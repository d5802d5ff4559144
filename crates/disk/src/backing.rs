//! Where a shaped disk keeps its bytes.

use crate::volatile::Unanswered;
use rustix::fs::{Advice, FallocateFlags, MemfdFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A growable array of bytes that several threads read and write at once, each request by itself.
///
/// Reads beyond the end are short; what was never written, or was punched, reads as zeros.
pub(crate) trait Backing: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// Whatever the system says.
    fn len(&self) -> io::Result<u64>;
    /// Replaces the content of `into` by up to `size` bytes from `offset`; fewer only at the end.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read(&self, offset: u64, size: usize, into: &mut Vec<u8>) -> io::Result<()>;
    /// Writes all of `data` at `offset`, growing if need be.
    ///
    /// # Errors
    /// Whatever the system says; a part may have been written.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Returns when everything written before is as durable as this backing can make it.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync(&self) -> io::Result<()>;
    /// Cuts off or extends with zeros.
    ///
    /// # Errors
    /// Whatever the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes a range read as zeros and gives its space back; the length stays.
    ///
    /// # Errors
    /// Whatever the system says.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Where there is data within a range, in order; the rest are holes. All of it where nobody can tell.
    ///
    /// # Errors
    /// Whatever the system says.
    fn data(&self, within: Range<u64>) -> io::Result<Vec<Range<u64>>>;
    /// Writes what will be answered at once or `later`: until what is returned is dropped, nobody has been
    /// told, and a flush does not cover it.
    ///
    /// # Errors
    /// As `write`.
    fn begin_write(&self, offset: u64, data: &[u8], _later: bool) -> io::Result<Option<Unanswered>> {
        self.write(offset, data).map(|()| None)
    }
    /// Punches in the same way.
    ///
    /// # Errors
    /// As `punch`.
    fn begin_punch(&self, offset: u64, len: u64, _later: bool) -> io::Result<Option<Unanswered>> {
        self.punch(offset, len).map(|()| None)
    }
    /// A flush arrives: what had been answered is durable when it lands.
    ///
    /// # Errors
    /// As `sync`.
    fn begin_flush(&self) -> io::Result<Landing> {
        self.sync().map(|()| Landing::default())
    }
}

/// What remains to be done when a flush is answered. Dropped instead, nothing became durable.
#[derive(Default)]
pub(crate) struct Landing(Vec<Box<dyn FnOnce() -> io::Result<()> + Send>>);

impl Landing {
    pub fn of(act: impl FnOnce() -> io::Result<()> + Send + 'static) -> Landing {
        Landing(vec![Box::new(act)])
    }

    /// Both, in this order.
    pub fn and(mut self, mut other: Landing) -> Landing {
        self.0.append(&mut other.0);
        self
    }

    /// The flush is about to be answered.
    ///
    /// # Errors
    /// There is no power any more.
    pub fn land(self) -> io::Result<()> {
        self.0.into_iter().try_for_each(|act| act())
    }
}

impl Backing for std::sync::Arc<dyn Backing> {
    fn len(&self) -> io::Result<u64> {
        (**self).len()
    }
    fn read(&self, offset: u64, size: usize, into: &mut Vec<u8>) -> io::Result<()> {
        (**self).read(offset, size, into)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        (**self).write(offset, data)
    }
    fn sync(&self) -> io::Result<()> {
        (**self).sync()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        (**self).set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        (**self).punch(offset, len)
    }
    fn data(&self, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        (**self).data(within)
    }
    fn begin_write(&self, offset: u64, data: &[u8], later: bool) -> io::Result<Option<Unanswered>> {
        (**self).begin_write(offset, data, later)
    }
    fn begin_punch(&self, offset: u64, len: u64, later: bool) -> io::Result<Option<Unanswered>> {
        (**self).begin_punch(offset, len, later)
    }
    fn begin_flush(&self) -> io::Result<Landing> {
        (**self).begin_flush()
    }
}

/// Memory: an anonymous file in RAM, sparse, freed when dropped however the process ends.
#[derive(Debug)]
pub(crate) struct Memory {
    file: OwnedFd,
}

impl Memory {
    /// `len` bytes of zeros that take no memory until written.
    ///
    /// # Errors
    /// No file descriptors left, or a length beyond what the system allows.
    pub fn new(len: u64) -> io::Result<Memory> {
        let file = rustix::fs::memfd_create("tipover-disk", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, len)?;
        Ok(Memory { file })
    }
}

impl Backing for Memory {
    fn len(&self) -> io::Result<u64> {
        file_len(&self.file)
    }
    fn read(&self, offset: u64, size: usize, into: &mut Vec<u8>) -> io::Result<()> {
        read_plain(&self.file, offset, size, into)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        write_all(&self.file, offset, data)
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.file, len)?)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        punch_hole(&self.file, offset, len)
    }
    fn data(&self, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        data_within(&self.file, within)
    }
}

/// Direct I/O asks for offsets, lengths and memory in multiples of the medium's sector; 4096 suits all.
const ALIGNMENT: usize = 4096;

/// A file on another disk, without keeping its pages in the page cache a second time: direct I/O where the
/// request is aligned, else ordinary I/O whose pages are dropped at once.
#[derive(Debug)]
pub(crate) struct File {
    plain: OwnedFd,
    /// The same file without the page cache; `None` where the file system cannot, or is itself memory.
    direct: Option<OwnedFd>,
}

impl File {
    /// A nameless file of `len` zeros in `directory`: it is gone when dropped, however the process ends.
    ///
    /// # Errors
    /// The directory is missing or not writable.
    pub fn nameless(directory: &Path, len: u64) -> io::Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        let plain = match rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode)
        {
            Ok(file) => file,
            // Some file systems (overlayfs of old, NFS) have no nameless files: make one and unlink it.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let path = directory.join(format!(
                    ".tipover-{}-{}",
                    std::process::id(),
                    crate::clock::monotonic().0
                ));
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                let file = rustix::fs::open(&path, flags, mode)?;
                std::fs::remove_file(&path)?;
                file
            }
            Err(e) => return Err(e.into()),
        };
        rustix::fs::ftruncate(&plain, len)?;
        Ok(File::from_open(plain, true))
    }

    /// Takes an open file. `writable` says whether a second, direct descriptor needs write access too.
    pub fn from_open(plain: OwnedFd, writable: bool) -> File {
        let direct = if lives_in_memory(&plain) { None } else { reopen_direct(&plain, writable) };
        File { plain, direct }
    }

    /// The descriptor, for calls that concern the file rather than its bytes.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.plain
    }

    fn direct_for(&self, offset: u64, size: usize) -> Option<&OwnedFd> {
        let aligned = offset.is_multiple_of(ALIGNMENT as u64) && size.is_multiple_of(ALIGNMENT) && size > 0;
        self.direct.as_ref().filter(|_| aligned)
    }
}

impl Backing for File {
    fn len(&self) -> io::Result<u64> {
        file_len(&self.plain)
    }
    fn read(&self, offset: u64, size: usize, into: &mut Vec<u8>) -> io::Result<()> {
        if let Some(direct) = self.direct_for(offset, size) {
            return with_aligned(size, |bounce| {
                let got = read_up_to(direct, offset, bounce)?;
                into.clear();
                into.extend_from_slice(&bounce[..got]);
                Ok(())
            });
        }
        read_plain(&self.plain, offset, size, into)?;
        self.drop_pages(offset, size);
        Ok(())
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if let Some(direct) = self.direct_for(offset, data.len()) {
            return with_aligned(data.len(), |bounce| {
                bounce.copy_from_slice(data);
                write_all(direct, offset, bounce)
            });
        }
        write_all(&self.plain, offset, data)?;
        self.drop_pages(offset, data.len());
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.plain)?)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.plain, len)?)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        punch_hole(&self.plain, offset, len)
    }
    fn data(&self, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        data_within(&self.plain, within)
    }
}

impl File {
    /// Asks the kernel to forget pages that ordinary I/O left behind; a wish, so failure does not matter.
    fn drop_pages(&self, offset: u64, size: usize) {
        if self.direct.is_some() {
            let _ = rustix::fs::fadvise(
                &self.plain,
                offset,
                std::num::NonZeroU64::new(size as u64),
                Advice::DontNeed,
            );
        }
    }
}

fn file_len(file: &OwnedFd) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_size as u64)
}

/// `into` keeps its length between requests of one size, so that nothing is zeroed only to be overwritten.
fn read_plain(file: &OwnedFd, offset: u64, size: usize, into: &mut Vec<u8>) -> io::Result<()> {
    into.resize(size, 0);
    let mut done = 0;
    // One call nearly always does it; the loop is for calls that return less than is there.
    while done < size {
        let got = retry(|| rustix::io::pread(file, &mut into[done..], offset + done as u64))?;
        if got == 0 {
            break;
        }
        done += got;
    }
    into.truncate(done);
    Ok(())
}

fn read_up_to(file: &OwnedFd, offset: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let got = retry(|| rustix::io::pread(file, &mut into[done..], offset + done as u64))?;
        done += got;
        // Direct I/O that ends off the alignment has met the end of the file.
        if got == 0 || !got.is_multiple_of(ALIGNMENT) {
            break;
        }
    }
    Ok(done)
}

fn write_all(file: &OwnedFd, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let put = retry(|| rustix::io::pwrite(file, data, offset))?;
        if put == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        data = &data[put..];
        offset += put as u64;
    }
    Ok(())
}

fn retry(mut call: impl FnMut() -> rustix::io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

fn punch_hole(file: &OwnedFd, offset: u64, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    Ok(rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
}

fn data_within(file: &OwnedFd, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let mut found = Vec::new();
    let mut from = within.start;
    while from < within.end {
        let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
            Ok(start) => start,
            // No data from there to the end.
            Err(Errno::NXIO) => break,
            // This file system does not know its holes.
            Err(Errno::INVAL) => from,
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap_or(u64::MAX).min(within.end);
        if start >= end {
            break;
        }
        found.push(start..end);
        from = end;
    }
    Ok(found)
}

/// A second descriptor of the same file with `O_DIRECT`, if the file system can.
fn reopen_direct(file: &OwnedFd, writable: bool) -> Option<OwnedFd> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
    rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn lives_in_memory(file: &OwnedFd) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|s| [TMPFS, RAMFS].contains(&s.f_type))
}

/// Lends this thread's aligned buffer, so that no request allocates.
fn with_aligned<R>(size: usize, act: impl FnOnce(&mut [u8]) -> io::Result<R>) -> io::Result<R> {
    thread_local!(static BOUNCE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });
    BOUNCE.with_borrow_mut(|buffer| {
        if buffer.len() < size + ALIGNMENT {
            buffer.resize(size + ALIGNMENT, 0);
        }
        let start = buffer.as_ptr().align_offset(ALIGNMENT);
        act(&mut buffer[start..start + size])
    })
}

/// What every [`Backing`] must do; each implementation's test calls it with a fresh, empty one.
#[cfg(test)]
pub(crate) mod contract {
    use super::*;

    fn read(backing: &dyn Backing, offset: u64, size: usize) -> Vec<u8> {
        let mut into = vec![0xEE; 3];
        backing.read(offset, size, &mut into).unwrap();
        into
    }

    /// `make(len)` gives a new backing of `len` zeros.
    pub fn check(make: impl Fn(u64) -> Box<dyn Backing>) {
        fresh_is_zeros(&*make(1 << 20));
        what_is_written_is_read(&*make(1 << 20));
        lengths_are_kept(&*make(8192));
        punched_is_zeros(&*make(1 << 20));
        a_random_history_agrees_with_a_vector(&*make(0));
        threads_do_not_disturb_each_other(&*make(1 << 20));
    }

    fn fresh_is_zeros(backing: &dyn Backing) {
        assert_eq!(backing.len().unwrap(), 1 << 20);
        assert_eq!(read(backing, 4096, 8192), vec![0; 8192]);
        backing.sync().unwrap();
    }

    fn what_is_written_is_read(backing: &dyn Backing) {
        for (offset, size) in
            [(0u64, 4096usize), (4096, 12288), (100, 7), (4095, 2), (8192, 4095), (1 << 18, 1 << 18)]
        {
            let data: Vec<u8> = (0..size).map(|i| (i * 31 + offset as usize) as u8).collect();
            backing.write(offset, &data).unwrap();
            assert_eq!(read(backing, offset, size), data, "{size} bytes at {offset}");
        }
        backing.sync().unwrap();
        backing.write(0, &[]).unwrap();
        assert_eq!(read(backing, 0, 0), Vec::<u8>::new());
    }

    fn lengths_are_kept(backing: &dyn Backing) {
        backing.write(0, &[7; 8192]).unwrap();
        assert_eq!(read(backing, 4096, 8192).len(), 4096, "short at the end");
        assert_eq!(read(backing, 8192, 4096).len(), 0, "nothing beyond the end");
        assert_eq!(read(backing, 1 << 30, 4096).len(), 0);
        backing.set_len(5000).unwrap();
        assert_eq!(read(backing, 4096, 4096), vec![7; 904]);
        backing.set_len(8192).unwrap();
        assert_eq!(read(backing, 4096, 4096)[904..], vec![0; 4096 - 904], "what was cut off is forgotten");
        backing.write(10_000, &[1]).unwrap();
        assert_eq!(backing.len().unwrap(), 10_001, "a write beyond the end extends");
        assert_eq!(read(backing, 8192, 1808), vec![0; 1808]);
    }

    fn punched_is_zeros(backing: &dyn Backing) {
        backing.write(0, &vec![9; 65536]).unwrap();
        backing.punch(4096, 8192).unwrap();
        backing.punch(0, 0).unwrap();
        assert_eq!(read(backing, 0, 4096), vec![9; 4096]);
        assert_eq!(read(backing, 4096, 8192), vec![0; 8192]);
        assert_eq!(read(backing, 12288, 4096), vec![9; 4096]);
        backing.punch(20_000, 10).unwrap();
        assert_eq!(read(backing, 20_000, 11), [vec![0; 10], vec![9]].concat());
        assert_eq!(backing.len().unwrap(), 1 << 20);
    }

    fn a_random_history_agrees_with_a_vector(backing: &dyn Backing) {
        let mut model: Vec<u8> = Vec::new();
        let mut x = 1u64;
        let mut random = move |below: u64| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) % below
        };
        for step in 0..2000u64 {
            // Every second request is page-sized, as most are: both ways through a backing mix on one file.
            let unit = if step % 2 == 0 { 4096 } else { 1 };
            let offset = random(200_000 / unit) * unit;
            let size = (1 + random(20_000 / unit)) * unit;
            let end = (offset + size) as usize;
            match random(10) {
                0..4 => {
                    let data = vec![step as u8; size as usize];
                    backing.write(offset, &data).unwrap();
                    if model.len() < end {
                        model.resize(end, 0);
                    }
                    model[offset as usize..end].copy_from_slice(&data);
                }
                4..8 => {
                    let from = (offset as usize).min(model.len());
                    let expected = &model[from..end.min(model.len()).max(from)];
                    assert!(
                        read(backing, offset, size as usize) == expected,
                        "step {step}: {size} at {offset}"
                    );
                }
                8 => {
                    backing.punch(offset, size).unwrap();
                    let from = (offset as usize).min(model.len());
                    let to = end.min(model.len()).max(from);
                    model[from..to].fill(0);
                }
                _ => {
                    backing.set_len(offset).unwrap();
                    model.resize(offset as usize, 0);
                }
            }
            assert_eq!(backing.len().unwrap(), model.len() as u64, "step {step}");
        }
    }

    fn threads_do_not_disturb_each_other(backing: &dyn Backing) {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    for round in 0..50 {
                        let offset = (round * 4 + thread) * 4096;
                        let data = vec![(thread * 50 + round) as u8; 4096];
                        backing.write(offset, &data).unwrap();
                        assert_eq!(read(backing, offset, 4096), data);
                    }
                });
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_the_contract() {
        contract::check(|len| Box::new(Memory::new(len).unwrap()));
    }

    #[test]
    fn a_file_on_a_disk_keeps_the_contract() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        contract::check(|len| Box::new(File::nameless(directory, len).unwrap()));
    }

    #[test]
    fn a_file_in_memory_keeps_the_contract() {
        contract::check(|len| Box::new(File::nameless(Path::new("/dev/shm"), len).unwrap()));
    }

    #[test]
    fn punched_memory_is_given_back() {
        let memory = Memory::new(1 << 24).unwrap();
        let blocks = || rustix::fs::fstat(&memory.file).unwrap().st_blocks;
        assert_eq!(blocks(), 0, "sparse");
        memory.write(0, &vec![1; 1 << 23]).unwrap();
        assert!(blocks() >= 1 << 14);
        memory.punch(0, 1 << 23).unwrap();
        assert!(blocks() < 16, "{}", blocks());
    }
}
