//! The io_uring of one queue: entries of 128 bytes, because a FUSE command carries its own data in them.
//!
//! The kernel's side is io_uring(7). One thread owns the ring: it alone submits, and completions are worked
//! off while it waits (`DEFER_TASKRUN`), so that nothing interrupts it at other times.

use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags, IoringOp, IoringSetupFlags,
    io_uring_cqe, io_uring_enter, io_uring_params, io_uring_setup,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

/// A piece of memory of our own, unmapped when dropped.
pub(super) struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

// SAFETY: it is memory, and no thread's in particular; who may touch which part of it when is for those to
// say who take pointers into it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

const ACCESS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Mapping {
    /// Zeros that take no memory until they are touched.
    pub fn anonymous(length: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at a place of the kernel's choice touches nobody else's memory.
        let start =
            unsafe { mmap_anonymous(null_mut(), length, ACCESS, MapFlags::PRIVATE | MapFlags::NORESERVE)? };
        Mapping::at(start, length)
    }

    fn shared(file: impl AsFd, offset: u64, length: usize) -> io::Result<Mapping> {
        // SAFETY: as above; what the kernel changes in it is only ever read through pointers.
        let start =
            unsafe { mmap(null_mut(), length, ACCESS, MapFlags::SHARED | MapFlags::POPULATE, file, offset)? };
        Mapping::at(start, length)
    }

    fn at(start: *mut c_void, length: usize) -> io::Result<Mapping> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, length })
    }

    /// Where `length` bytes from `offset` begin.
    pub fn part(&self, offset: usize, length: usize) -> *mut u8 {
        let fits = offset.checked_add(length).is_some_and(|end| end <= self.length);
        assert!(fits, "{length} bytes at {offset} lie outside a mapping of {} bytes", self.length);
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

/// `struct io_uring_sqe` of the kernel, in its long form, as a FUSE command and as a read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Entry {
    operation: u8,
    flags: u8,
    priority: u16,
    file: i32,
    command: u32,
    unused: u32,
    address: u64,
    length: u32,
    command_flags: u32,
    user_data: u64,
    buffer: u16,
    personality: u16,
    file_index: u32,
    // `struct fuse_uring_cmd_req`.
    fuse_flags: u64,
    commit: u64,
    queue: u16,
    rest: [u8; 62],
}

const _: () = assert!(size_of::<Entry>() == 128);

impl Entry {
    /// A FUSE command; what is not said here is zero.
    pub fn fuse(device: i32, command: u32, queue: u16, user_data: u64) -> Entry {
        let operation = IoringOp::UringCmd as u8;
        Entry { operation, file: device, command, queue, user_data, ..Entry::NOTHING }
    }

    /// Reads `length` bytes to `address`, once there are any.
    pub fn read(file: i32, address: *mut u8, length: u32, user_data: u64) -> Entry {
        let operation = IoringOp::Read as u8;
        Entry { operation, file, address: address as u64, length, user_data, ..Entry::NOTHING }
    }

    /// The two pieces of memory that a FUSE entry is registered with.
    pub fn with_memory(self, pieces: &[libc::iovec; 2]) -> Entry {
        Entry { address: pieces.as_ptr() as u64, length: 2, ..self }
    }

    /// Which request is answered.
    pub fn committing(self, commit: u64) -> Entry {
        Entry { commit, ..self }
    }

    const NOTHING: Entry = Entry {
        operation: 0,
        flags: 0,
        priority: 0,
        file: -1,
        command: 0,
        unused: 0,
        address: 0,
        length: 0,
        command_flags: 0,
        user_data: 0,
        buffer: 0,
        personality: 0,
        file_index: 0,
        fuse_flags: 0,
        commit: 0,
        queue: 0,
        rest: [0; 62],
    };
}

/// One thread's ring.
pub(super) struct Uring {
    ring: OwnedFd,
    memory: Mapping,
    entries: Mapping,
    params: io_uring_params,
    tail: u32,
    head: u32,
    /// Entries that the kernel has not taken yet.
    queued: u32,
}

impl Uring {
    /// Room for at least `size` entries. To be made by the thread that will use it.
    pub fn new(size: u32) -> io::Result<Uring> {
        let mut params = io_uring_params::default();
        params.flags = IoringSetupFlags::SQE128
            | IoringSetupFlags::SINGLE_ISSUER
            | IoringSetupFlags::DEFER_TASKRUN
            | IoringSetupFlags::NO_SQARRAY;
        // SAFETY: the parameters are valid and ours.
        let ring = unsafe { io_uring_setup(size, &mut params)? };
        let wanted = IoringFeatureFlags::NODROP | IoringFeatureFlags::SINGLE_MMAP;
        if !params.features.contains(wanted) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"));
        }
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        let submissions = sq.array as usize + params.sq_entries as usize * size_of::<u32>();
        let completions = cq.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let memory = Mapping::shared(&ring, IORING_OFF_SQ_RING, submissions.max(completions))?;
        let length = params.sq_entries as usize * size_of::<Entry>();
        let entries = Mapping::shared(&ring, IORING_OFF_SQES, length)?;
        let mut uring = Uring { ring, memory, entries, params, tail: 0, head: 0, queued: 0 };
        uring.tail = uring.number(uring.params.sq_off.tail).load(Ordering::Relaxed);
        uring.head = uring.number(uring.params.cq_off.head).load(Ordering::Relaxed);
        Ok(uring)
    }

    fn number(&self, offset: u32) -> &AtomicU32 {
        let place = self.memory.part(offset as usize, size_of::<u32>());
        // SAFETY: the kernel gave the offset of an aligned u32 in this mapping, which lives as long as the
        // reference and is only accessed atomically on this side.
        unsafe { AtomicU32::from_ptr(place.cast::<u32>()) }
    }

    /// Queues an entry for the next [`enter`](Self::enter). There must be room: whoever uses the ring has no
    /// more under way than it was made for.
    pub fn push(&mut self, entry: Entry) {
        assert!(self.queued < self.params.sq_entries, "more was queued than the ring was made for");
        let at = (self.tail & (self.params.sq_entries - 1)) as usize * size_of::<Entry>();
        let place = self.entries.part(at, size_of::<Entry>()).cast::<Entry>();
        // SAFETY: aligned and inside the mapping; the kernel has taken what was here before, or there would
        // be no room.
        unsafe { place.write(entry) };
        self.tail = self.tail.wrapping_add(1);
        self.number(self.params.sq_off.tail).store(self.tail, Ordering::Release);
        self.queued += 1;
    }

    /// Hands over what is queued, and waits for at least this number of completions.
    pub fn enter(&mut self, least: u32) -> io::Result<()> {
        // SAFETY: entries up to the tail are complete, and the memory that they name lives until their
        // completions are here: see whoever pushed them.
        match unsafe { io_uring_enter(&self.ring, self.queued, least, IoringEnterFlags::GETEVENTS) } {
            Ok(taken) => self.queued -= taken,
            // A signal, or no memory for requests just now: the caller comes again.
            Err(Errno::INTR | Errno::AGAIN | Errno::BUSY) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Takes completions: what was said when they were pushed, and the result or minus an error number.
    pub fn take(&mut self, into: &mut Vec<(u64, i32)>) {
        let tail = self.number(self.params.cq_off.tail).load(Ordering::Acquire);
        while self.head != tail {
            let at = self.params.cq_off.cqes as usize
                + (self.head & (self.params.cq_entries - 1)) as usize * size_of::<io_uring_cqe>();
            let entry = self.memory.part(at, size_of::<io_uring_cqe>()).cast::<io_uring_cqe>();
            // SAFETY: the kernel wrote this entry before it published the tail, and will not touch it until
            // the head has passed it.
            into.push(unsafe {
                ((&raw const (*entry).user_data).read().u64_(), (&raw const (*entry).res).read())
            });
            self.head = self.head.wrapping_add(1);
        }
        self.number(self.params.cq_off.head).store(self.head, Ordering::Release);
    }
}
