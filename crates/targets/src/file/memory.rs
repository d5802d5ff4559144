//! Mapped memory: aligned buffers for direct I/O, and the rings that the kernel shares.

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};
use tipover_core::workload::Random;

/// A mapping, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

impl Mapping {
    /// Zeroed memory, aligned to a page.
    pub fn anonymous(length: usize) -> io::Result<Mapping> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at a place of the kernel's choice touches nobody else's memory.
        let start = unsafe { mmap_anonymous(null_mut(), length, access, flags)? };
        Mapping::at(start, length)
    }

    /// A part of what a descriptor shares.
    pub fn shared(file: impl AsFd, offset: u64, length: usize) -> io::Result<Mapping> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: as above; what the kernel changes in it is only ever read through pointers.
        let start = unsafe { mmap(null_mut(), length, access, flags, file, offset)? };
        Mapping::at(start, length)
    }

    fn at(start: *mut c_void, length: usize) -> io::Result<Mapping> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length })
    }

    /// Where `offset` bytes into the mapping are.
    pub fn byte(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.length, "{offset} lies outside a mapping of {} bytes", self.length);
        // SAFETY: the offset is inside the mapping.
        unsafe { self.start.as_ptr().cast::<u8>().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours, and whoever has a pointer into it borrows or owns this value.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}

const PAGE: usize = 4096;
/// What a device cannot find twice: each sector of each write begins with a number of its own.
const SECTOR: usize = 512;

/// A buffer for each slot, full of noise, so that no device can compress what is written.
#[derive(Debug)]
pub struct Buffers {
    memory: Mapping,
    stride: usize,
    written: u64,
}

impl Buffers {
    /// `count` buffers of at least `size` bytes, aligned to a page.
    pub fn new(count: usize, size: usize, seed: u64) -> io::Result<Buffers> {
        let stride = size.next_multiple_of(PAGE).max(PAGE);
        let length = count.max(1) * stride;
        let memory = Mapping::anonymous(length)?;
        let mut random = Random::new(seed, u64::MAX - 1);
        for place in (0..length).step_by(8) {
            // SAFETY: inside the mapping, aligned to 8, and shared with nobody yet.
            unsafe { memory.byte(place).cast::<u64>().write(random.bits()) };
        }
        Ok(Buffers { memory, stride, written: random.bits() })
    }

    /// The buffer of a slot.
    pub fn of(&self, slot: u32) -> *mut u8 {
        self.memory.byte(slot as usize * self.stride)
    }

    /// Makes what is about to be written from a slot unlike anything written before. The slot must not be in
    /// flight.
    #[inline]
    pub fn renew(&mut self, slot: u32, length: usize) {
        debug_assert!(length <= self.stride);
        let start = self.of(slot);
        for sector in (0..length.saturating_sub(7)).step_by(SECTOR) {
            self.written = self.written.wrapping_add(1);
            // SAFETY: inside this slot's buffer, aligned to 8; the caller says that nobody else uses it now.
            unsafe { start.add(sector).cast::<u64>().write(self.written) };
        }
    }
}
