//! One request at a time, carried out on the calling thread.

use super::engine::{Completion, Engine, Request, outcome};
use super::memory::Buffers;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::op::Op;

/// `pread`, `pwrite`, `fsync` and `fdatasync`.
pub struct Psync {
    files: Arc<[File]>,
    buffers: Buffers,
    largest: usize,
    answers: Vec<Completion>,
}

impl Psync {
    pub fn new(files: Arc<[File]>, largest: usize, seed: u64) -> io::Result<Psync> {
        Ok(Psync { files, buffers: Buffers::new(1, largest, seed)?, largest, answers: Vec::new() })
    }

    fn slice(&mut self, length: u32) -> &mut [u8] {
        let length = length as usize;
        assert!(length <= self.largest, "a request larger than the engine was made for");
        // SAFETY: the one buffer is at least this large, and nobody else has it: requests are carried out
        // one after the other.
        unsafe { std::slice::from_raw_parts_mut(self.buffers.of(0), length) }
    }
}

impl Engine for Psync {
    #[inline]
    fn submit(&mut self, request: Request) {
        let files = self.files.clone();
        let file = &files[request.file as usize];
        let result = match request.op {
            Op::ReadAt { offset, length } => file.read_at(self.slice(length), offset),
            Op::WriteAt { offset, length } => {
                self.buffers.renew(0, length as usize);
                file.write_at(self.slice(length), offset)
            }
            Op::Flush { data_only: true } => file.sync_data().map(|()| 0),
            Op::Flush { data_only: false } => file.sync_all().map(|()| 0),
            other => unreachable!("{other:?} is no request for a file"),
        };
        let result = result.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        self.answers.push(Completion { slot: request.slot, outcome: outcome(&request.op, result) });
    }

    fn reap(&mut self, _: u32, patience: Option<Duration>, answers: &mut Vec<Completion>) -> io::Result<()> {
        if self.answers.is_empty()
            && let Some(patience) = patience
        {
            std::thread::sleep(patience);
        }
        answers.append(&mut self.answers);
        Ok(())
    }
}
