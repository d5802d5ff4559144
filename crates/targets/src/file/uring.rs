//! io_uring: requests go into one ring, answers come out of another, and a system call does both at once.
//!
//! The kernel's side of the protocol is io_uring(7). The two rings and the array of entries are shared
//! memory; an index is published with release and read with acquire ordering, everything else belongs to one
//! side.

use super::engine::{Completion, Engine, Request, outcome};
use super::memory::{Buffers, Mapping};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::io_uring::{
    IORING_OFF_CQ_RING, IORING_OFF_SQ_RING, IORING_OFF_SQES, IoringEnterFlags, IoringFeatureFlags,
    IoringFsyncFlags, IoringOp, IoringSetupFlags, addr_or_splice_off_in_union, io_uring_cqe, io_uring_enter,
    io_uring_enter_arg, io_uring_getevents_arg, io_uring_params, io_uring_ptr, io_uring_setup, io_uring_sqe,
    io_uring_user_data, len_union, off_or_addr2_union, op_flags_union,
};
use rustix::thread::Timespec;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tipover_core::op::Op;

/// One thread's ring, with its files and buffers.
pub struct Uring {
    ring: OwnedFd,
    // Dropped after `ring` and after nothing is in flight; see `Drop`.
    submissions: Submissions,
    completions: Completions,
    files: Arc<[File]>,
    buffers: Buffers,
    largest: usize,
    /// What each slot has in flight.
    ops: Vec<Op>,
    /// Entries that the kernel has not taken yet.
    queued: u32,
    in_flight: u32,
}

struct Submissions {
    ring: Mapping,
    entries: Mapping,
    tail_at: usize,
    mask: u32,
    tail: u32,
}

struct Completions {
    /// A mapping of its own on kernels before 5.4.
    ring: Option<Mapping>,
    head_at: usize,
    tail_at: usize,
    entries_at: usize,
    mask: u32,
    head: u32,
}

fn atomic(mapping: &Mapping, at: usize) -> &AtomicU32 {
    // SAFETY: the kernel gave the offset of an aligned u32 in this mapping, which lives as long as the
    // reference and is only accessed atomically on this side.
    unsafe { AtomicU32::from_ptr(mapping.byte(at).cast::<u32>()) }
}

fn number(mapping: &Mapping, at: u32) -> u32 {
    atomic(mapping, at as usize).load(Ordering::Relaxed)
}

impl Uring {
    pub fn new(files: Arc<[File]>, slots: u32, largest: usize, seed: u64) -> io::Result<Uring> {
        // Completions do not interrupt this thread, but are worked off when it waits for them (Linux 6.1), or
        // at its next call (6.0).
        let at_calls = IoringSetupFlags::SINGLE_ISSUER | IoringSetupFlags::COOP_TASKRUN;
        let at_waits = at_calls | IoringSetupFlags::DEFER_TASKRUN;
        let slots = slots.max(1);
        let (ring, params) = setup(slots, at_waits)
            .or_else(|_| setup(slots, at_calls))
            .or_else(|_| setup(slots, IoringSetupFlags::empty()))?;
        let wanted = IoringFeatureFlags::NODROP | IoringFeatureFlags::EXT_ARG;
        if !params.features.contains(wanted) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's io_uring is older than 5.11",
            ));
        }
        let (sq, cq) = (&params.sq_off, &params.cq_off);
        let submissions_length = sq.array as usize + params.sq_entries as usize * size_of::<u32>();
        let completions_length = cq.cqes as usize + params.cq_entries as usize * size_of::<io_uring_cqe>();
        let single = params.features.contains(IoringFeatureFlags::SINGLE_MMAP);
        let length = if single { submissions_length.max(completions_length) } else { submissions_length };
        let sq_ring = Mapping::shared(&ring, IORING_OFF_SQ_RING, length)?;
        let cq_ring = match single {
            true => None,
            false => Some(Mapping::shared(&ring, IORING_OFF_CQ_RING, completions_length)?),
        };
        let entries_length = params.sq_entries as usize * size_of::<io_uring_sqe>();
        let entries = Mapping::shared(&ring, IORING_OFF_SQES, entries_length)?;
        for n in 0..params.sq_entries {
            // Entry n of the ring is entry n of the array, for ever.
            atomic(&sq_ring, sq.array as usize + n as usize * 4).store(n, Ordering::Relaxed);
        }
        let completions = Completions {
            head_at: cq.head as usize,
            tail_at: cq.tail as usize,
            entries_at: cq.cqes as usize,
            mask: number(cq_ring.as_ref().unwrap_or(&sq_ring), cq.ring_mask),
            head: number(cq_ring.as_ref().unwrap_or(&sq_ring), cq.head),
            ring: cq_ring,
        };
        let submissions = Submissions {
            tail_at: sq.tail as usize,
            mask: number(&sq_ring, sq.ring_mask),
            tail: number(&sq_ring, sq.tail),
            entries,
            ring: sq_ring,
        };
        Ok(Uring {
            ring,
            submissions,
            completions,
            files,
            buffers: Buffers::new(slots as usize, largest, seed)?,
            largest,
            ops: vec![Op::Flush { data_only: true }; slots as usize],
            queued: 0,
            in_flight: 0,
        })
    }

    /// Hands over what is queued and waits for nothing. What the kernel does not take now stays queued: the
    /// next [`Uring::enter`] hands it over, or says why not.
    fn hand_over(&mut self) {
        // SAFETY: entries up to the tail are complete, their buffers are ours and stay until their answers
        // are here.
        let sent = unsafe { io_uring_enter(&self.ring, self.queued, 0, IoringEnterFlags::empty()) };
        let sent = sent.unwrap_or(0);
        self.queued -= sent;
        self.in_flight += sent;
    }

    /// Hands over what is queued and waits for `least` answers.
    fn enter(&mut self, least: u32, patience: Option<Duration>) -> io::Result<()> {
        loop {
            let sent = match patience {
                // SAFETY: entries up to the tail are complete, their buffers are ours and stay until their
                // answers are here.
                None => unsafe {
                    io_uring_enter(&self.ring, self.queued, least, IoringEnterFlags::GETEVENTS)
                },
                Some(patience) => {
                    let time = Timespec {
                        tv_sec: patience.as_secs() as i64,
                        tv_nsec: patience.subsec_nanos().into(),
                    };
                    let ts = io_uring_ptr::new(std::ptr::from_ref(&time).cast_mut().cast());
                    let argument = io_uring_getevents_arg { ts, ..Default::default() };
                    let flags = IoringEnterFlags::GETEVENTS | IoringEnterFlags::EXT_ARG;
                    // SAFETY: as above, and the argument outlives the call.
                    unsafe { io_uring_enter_arg(&self.ring, self.queued, least, flags, Some(&argument)) }
                }
            };
            match sent {
                Ok(sent) => {
                    self.queued -= sent;
                    self.in_flight += sent;
                    return Ok(());
                }
                // Time is over, or a signal came: both are for the caller to see to.
                Err(Errno::TIME | Errno::INTR) => return Ok(()),
                // The kernel is short of memory for requests; those in flight will make room.
                Err(Errno::AGAIN | Errno::BUSY) => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes what is in the ring.
    fn collect(&mut self, answers: &mut Vec<Completion>) {
        let Completions { head_at, tail_at, entries_at, mask, .. } = self.completions;
        let ring = self.completions.ring.as_ref().unwrap_or(&self.submissions.ring);
        let tail = atomic(ring, tail_at).load(Ordering::Acquire);
        let mut head = self.completions.head;
        while head != tail {
            let at = entries_at + (head & mask) as usize * size_of::<io_uring_cqe>();
            let entry = ring.byte(at).cast::<io_uring_cqe>();
            // SAFETY: the kernel wrote this entry before it published the tail, and will not touch it until
            // the head has passed it.
            let (slot, result) =
                unsafe { ((&raw const (*entry).user_data).read().u64_(), (&raw const (*entry).res).read()) };
            let result = if result < 0 { Err(-result) } else { Ok(result as usize) };
            let slot = slot as u32;
            answers.push(Completion { slot, outcome: outcome(&self.ops[slot as usize], result) });
            head = head.wrapping_add(1);
            self.in_flight -= 1;
        }
        self.completions.head = head;
        atomic(ring, head_at).store(head, Ordering::Release);
    }
}

fn setup(slots: u32, flags: IoringSetupFlags) -> io::Result<(OwnedFd, io_uring_params)> {
    let mut params = io_uring_params::default();
    params.flags = flags | IoringSetupFlags::CLAMP;
    // SAFETY: the parameters are valid and ours.
    let ring = unsafe { io_uring_setup(slots, &mut params)? };
    Ok((ring, params))
}

impl Engine for Uring {
    #[inline]
    fn submit(&mut self, request: Request) {
        let slot = request.slot;
        let mut entry = io_uring_sqe {
            fd: self.files[request.file as usize].as_raw_fd(),
            user_data: io_uring_user_data::from_u64(u64::from(slot)),
            ..Default::default()
        };
        let (offset, length) = match request.op {
            Op::ReadAt { offset, length } => {
                entry.opcode = IoringOp::Read;
                (offset, length)
            }
            Op::WriteAt { offset, length } => {
                self.buffers.renew(slot, length as usize);
                entry.opcode = IoringOp::Write;
                (offset, length)
            }
            Op::Flush { data_only } => {
                entry.opcode = IoringOp::Fsync;
                let fsync_flags =
                    if data_only { IoringFsyncFlags::DATASYNC } else { IoringFsyncFlags::empty() };
                entry.op_flags = op_flags_union { fsync_flags };
                (0, 0)
            }
            other => unreachable!("{other:?} is no request for a file"),
        };
        if length > 0 {
            assert!(length as usize <= self.largest, "a request larger than the engine was made for");
            entry.off_or_addr2 = off_or_addr2_union { off: offset };
            let addr = io_uring_ptr::new(self.buffers.of(slot).cast());
            entry.addr_or_splice_off_in = addr_or_splice_off_in_union { addr };
            entry.len = len_union { len: length };
        }
        let at = (self.submissions.tail & self.submissions.mask) as usize * size_of::<io_uring_sqe>();
        // SAFETY: aligned and inside the mapping. There are as many entries as slots, so the kernel has long
        // taken what was here before.
        unsafe { self.submissions.entries.byte(at).cast::<io_uring_sqe>().write(entry) };
        self.ops[slot as usize] = request.op;
        self.submissions.tail = self.submissions.tail.wrapping_add(1);
        let tail = self.submissions.tail;
        atomic(&self.submissions.ring, self.submissions.tail_at).store(tail, Ordering::Release);
        self.queued += 1;
        // At once, as fio does: handed over in bursts, requests came to the device in bursts too, and its
        // throughput at the same depth was an eighth less.
        self.hand_over();
    }

    fn reap(
        &mut self,
        least: u32,
        patience: Option<Duration>,
        answers: &mut Vec<Completion>,
    ) -> io::Result<()> {
        // Waiting for more than is in flight would be waiting for ever.
        let possible = self.queued + self.in_flight;
        if possible == 0
            && let Some(patience) = patience
        {
            std::thread::sleep(patience);
            return Ok(());
        }
        self.enter(least.min(possible), patience)?;
        self.collect(answers);
        Ok(())
    }
}

impl Drop for Uring {
    /// The kernel may write into the buffers until the last answer is here.
    fn drop(&mut self) {
        let mut answers = Vec::new();
        while self.in_flight + self.queued > 0 {
            if self.reap(1, None, &mut answers).is_err() {
                // Nothing is known about what the kernel does: the memory must stay.
                let leaked = Buffers::new(1, 1, 0).map(|empty| std::mem::replace(&mut self.buffers, empty));
                std::mem::forget(leaked);
                return;
            }
            answers.clear();
        }
    }
}
