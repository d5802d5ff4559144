//! How requests reach the kernel: engines with one request or many in flight on the calling thread.

use super::psync::Psync;
use super::uring::Uring;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::op::{Failure, Op, Outcome};
use tipover_core::storage::EngineKind;

/// A request for one of an engine's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The caller's name for it, below the number of slots; free again when its answer was reaped.
    pub slot: u32,
    /// Which of the files.
    pub file: u32,
    /// [`Op::ReadAt`], [`Op::WriteAt`] or [`Op::Flush`].
    pub op: Op,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The request's.
    pub slot: u32,
    /// Whether it was done in full.
    pub outcome: Outcome,
}

/// Sends requests and collects answers, all on one thread.
pub trait Engine {
    /// Queues a request; an engine that cannot have any in flight carries it out at once.
    fn submit(&mut self, request: Request);

    /// Sends what is queued, waits until at least `least` answers are there or `patience` is over (`None`: as
    /// long as it takes), and appends all that are there.
    ///
    /// # Errors
    /// The kernel refuses the engine itself; what becomes of a request is in its answer.
    fn reap(
        &mut self,
        least: u32,
        patience: Option<Duration>,
        answers: &mut Vec<Completion>,
    ) -> io::Result<()>;
}

/// Makes an engine with `slots` slots, for requests of at most `largest` bytes on `files`. It must stay on
/// the calling thread.
///
/// # Errors
/// The kernel has no io_uring, or forbids it; or memory is short.
pub fn engine(
    kind: EngineKind,
    files: Arc<[File]>,
    slots: u32,
    largest: usize,
    seed: u64,
) -> io::Result<Box<dyn Engine>> {
    Ok(match kind {
        EngineKind::Psync => Box::new(Psync::new(files, largest, seed)?),
        EngineKind::Uring => Box::new(Uring::new(files, slots, largest, seed)?),
    })
}

/// What the result of a system call means: moved bytes or an error number.
pub(super) fn outcome(op: &Op, result: Result<usize, i32>) -> Outcome {
    let wanted = match *op {
        Op::ReadAt { length, .. } | Op::WriteAt { length, .. } => length as usize,
        _ => 0,
    };
    match result {
        Ok(moved) if moved == wanted => Outcome::Done,
        // A read beyond the end, or a write that found no room for the rest.
        Ok(_) if matches!(op, Op::ReadAt { .. }) => Outcome::Refused(Failure::NotFound),
        Ok(_) => Outcome::Unknown(Failure::Full),
        Err(number) => {
            let failure = match number {
                libc::ENOSPC | libc::EDQUOT => Failure::Full,
                libc::EIO => Failure::InputOutput,
                libc::EINVAL | libc::EOPNOTSUPP => Failure::Unsupported,
                libc::ETIMEDOUT => Failure::Timeout,
                libc::ENODEV | libc::ENXIO | libc::ENOTCONN => Failure::Unavailable,
                _ => Failure::Other,
            };
            // A write or flush that failed may have reached the medium in part.
            match (op, failure) {
                (Op::WriteAt { .. } | Op::Flush { .. }, Failure::InputOutput) => Outcome::Unknown(failure),
                _ => Outcome::Refused(failure),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn files(folder: &std::path::Path, count: usize) -> Arc<[File]> {
        let open = |n: usize| {
            let path = folder.join(format!("f{n}"));
            std::fs::write(&path, vec![n as u8; 1 << 16]).unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        (0..count).map(open).collect()
    }

    fn both() -> [EngineKind; 2] {
        [EngineKind::Psync, EngineKind::Uring]
    }

    fn made(kind: EngineKind, files: Arc<[File]>, slots: u32) -> Option<Box<dyn Engine>> {
        match engine(kind, files, slots, 4096, 1) {
            Ok(engine) => Some(engine),
            Err(error) if kind == EngineKind::Uring => {
                println!("SKIPPED: no io_uring here: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn every_request_is_answered_once_and_writes_are_there() {
        for kind in both() {
            let folder = tempfile::tempdir().unwrap();
            let files = files(folder.path(), 2);
            let Some(mut engine) = made(kind, files, 8) else { continue };
            let (mut answers, mut all) = (Vec::new(), Vec::new());
            for round in 0..50u64 {
                let slots = if kind == EngineKind::Psync { 1 } else { 8 };
                for slot in 0..slots {
                    let offset = (round * 8 + u64::from(slot)) % 16 * 4096;
                    let op = match (round + u64::from(slot)) % 3 {
                        0 => Op::ReadAt { offset, length: 4096 },
                        1 => Op::WriteAt { offset, length: 4096 },
                        _ => Op::Flush { data_only: true },
                    };
                    engine.submit(Request { slot, file: slot % 2, op });
                }
                answers.clear();
                while answers.len() < slots as usize {
                    engine.reap(1, None, &mut answers).unwrap();
                }
                let slots_seen: BTreeSet<u32> = answers.iter().map(|answer| answer.slot).collect();
                assert_eq!(slots_seen.len(), slots as usize, "{kind:?}: each slot once");
                all.extend(answers.iter().map(|answer| answer.outcome));
            }
            assert!(all.iter().all(|outcome| *outcome == Outcome::Done), "{kind:?}");
            let written = std::fs::read(folder.path().join("f0")).unwrap();
            assert!(written.chunks(4096).any(|page| page.iter().any(|byte| *byte != 0)), "{kind:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_patience_ends() {
        for kind in both() {
            let folder = tempfile::tempdir().unwrap();
            let Some(mut engine) = made(kind, files(folder.path(), 1), 2) else { continue };
            let mut answers = Vec::new();
            engine.submit(Request { slot: 1, file: 0, op: Op::ReadAt { offset: 1 << 20, length: 4096 } });
            engine.reap(1, None, &mut answers).unwrap();
            assert_eq!(
                answers,
                [Completion { slot: 1, outcome: Outcome::Refused(Failure::NotFound) }],
                "{kind:?}"
            );
            answers.clear();
            engine.reap(1, Some(Duration::from_millis(5)), &mut answers).unwrap();
            assert!(answers.is_empty(), "{kind:?}: nothing was in flight");
        }
    }

    #[test]
    fn an_engine_that_is_dropped_waits_for_what_is_in_flight() {
        let folder = tempfile::tempdir().unwrap();
        let Some(mut engine) = made(EngineKind::Uring, files(folder.path(), 1), 8) else { return };
        for slot in 0..8 {
            engine.submit(Request { slot, file: 0, op: Op::WriteAt { offset: 0, length: 4096 } });
        }
        engine.reap(0, None, &mut Vec::new()).unwrap();
        drop(engine);
    }

    #[test]
    fn errors_are_told_apart_by_what_may_have_happened() {
        let (read, write) = (Op::ReadAt { offset: 0, length: 8 }, Op::WriteAt { offset: 0, length: 8 });
        assert_eq!(outcome(&read, Err(libc::EIO)), Outcome::Refused(Failure::InputOutput));
        assert_eq!(outcome(&write, Err(libc::EIO)), Outcome::Unknown(Failure::InputOutput));
        assert_eq!(outcome(&write, Err(libc::ENOSPC)), Outcome::Refused(Failure::Full));
        assert_eq!(outcome(&write, Ok(4)), Outcome::Unknown(Failure::Full));
        assert_eq!(outcome(&Op::Flush { data_only: false }, Ok(0)), Outcome::Done);
    }
}
