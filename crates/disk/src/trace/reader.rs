//! Reading a trace, whole or cut off.

use super::{Record, format};
use crate::protocol::Mode;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tipover_core::units::Tick;

/// Why a file cannot be read as a trace at all.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// It begins differently.
    #[error("{} is not a trace of a shaped disk; name the file that `disk trace` wrote", path.display())]
    NotATrace {
        /// The path that was given.
        path: PathBuf,
    },
    /// Written by a program newer than this one.
    #[error("{} has format version {version}, this program reads {}; update tipover", path.display(), format::VERSION)]
    Version {
        /// The path that was given.
        path: PathBuf,
        /// The version found.
        version: u16,
    },
}

/// How a trace ended, known once it is read through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was finished: nothing is missing but what [`Trace::dropped`] counts.
    Complete,
    /// It breaks off, as a killed daemon leaves it; what was read before is whole.
    CutOff,
    /// It is damaged from here on; what was read before is whole.
    Damaged,
}

/// A trace being read: an iterator over its records, in the order in which they were answered. It takes
/// memory for one frame, not for the trace.
#[derive(Debug)]
pub struct Trace<R = BufReader<File>> {
    input: R,
    mode: Mode,
    begin: Tick,
    date: SystemTime,
    files: BTreeMap<u64, PathBuf>,
    dropped: u64,
    /// Records of the frames so far, to be compared with what the end says.
    records: u64,
    ending: Option<Ending>,
    frame: std::vec::IntoIter<Record>,
}

impl Trace {
    /// Opens the trace at `path`.
    ///
    /// # Errors
    /// It is not there, or not a trace. Damage further on is told by [`ending`](Self::ending).
    pub fn open(path: &Path) -> Result<Trace, TraceError> {
        let unreadable = |reason| TraceError::Unreadable { path: path.into(), reason };
        let file = File::open(path).map_err(unreadable)?;
        Trace::from_reader(BufReader::new(file), path)
    }
}

impl<R: Read> Trace<R> {
    /// Reads a trace from anything; `path` is for messages.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn from_reader(mut input: R, path: &Path) -> Result<Trace<R>, TraceError> {
        let mut header = [0; format::HEADER];
        match input.read_exact(&mut header) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(TraceError::NotATrace { path: path.into() });
            }
            Err(reason) => return Err(TraceError::Unreadable { path: path.into(), reason }),
        }
        if !header.starts_with(format::MAGIC) {
            return Err(TraceError::NotATrace { path: path.into() });
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if version != format::VERSION {
            return Err(TraceError::Version { path: path.into(), version });
        }
        let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| header[at + n]));
        Ok(Trace {
            input,
            mode: if header[10] == 0 { Mode::Block } else { Mode::File },
            begin: Tick(number(16)),
            date: UNIX_EPOCH + Duration::from_nanos(number(24)),
            files: BTreeMap::new(),
            dropped: 0,
            records: 0,
            ending: None,
            frame: Vec::new().into_iter(),
        })
    }

    /// The disk's mode: in block mode offsets are on the device, in file mode in files.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// When the trace began, on the clock of its records.
    pub fn begin(&self) -> Tick {
        self.begin
    }

    /// When the trace began, as a date.
    pub fn date(&self) -> SystemTime {
        self.date
    }

    /// File mode: the path of each file read of so far, relative to the disk, as it was called when it was
    /// first asked for. One that was removed at once is not here.
    pub fn files(&self) -> &BTreeMap<u64, PathBuf> {
        &self.files
    }

    /// Requests that are missing so far, because they came faster than they could be written.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How it ended; `None` before it is read through.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// Reads the next frame; says how it ended if there is none.
    fn read_frame(&mut self) -> Result<(), Ending> {
        let mut head = [0; format::FRAME_HEADER];
        self.fill(&mut head)?;
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if length > format::LONGEST {
            return Err(Ending::Damaged);
        }
        let mut payload = vec![0; length];
        self.fill(&mut payload)?;
        let (start, sum) = head.split_at(8);
        if format::checksum(start, &payload).to_le_bytes() != sum {
            return Err(Ending::Damaged);
        }
        match head[0] {
            format::RECORDS => {
                let (records, dropped) = format::decode(&payload).ok_or(Ending::Damaged)?;
                self.dropped = dropped;
                self.records += records.len() as u64;
                self.frame = records.into_iter();
                Ok(())
            }
            format::NAME => {
                let mut rest = &payload[..];
                let file = format::take(&mut rest).ok_or(Ending::Damaged)?;
                self.files.insert(file, PathBuf::from(OsStr::from_bytes(rest)));
                Ok(())
            }
            format::END => {
                let mut rest = &payload[..];
                let records = format::take(&mut rest).ok_or(Ending::Damaged)?;
                self.dropped = format::take(&mut rest).ok_or(Ending::Damaged)?;
                // A frame that is missing as a whole leaves every checksum right.
                Err(if records == self.records { Ending::Complete } else { Ending::Damaged })
            }
            _ => Err(Ending::Damaged),
        }
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), Ending> {
        self.input.read_exact(buffer).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => Ending::CutOff,
            _ => Ending::Damaged,
        })
    }
}

impl<R: Read> Iterator for Trace<R> {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            if let Some(record) = self.frame.next() {
                return Some(record);
            }
            if self.ending.is_some() {
                return None;
            }
            self.ending = self.read_frame().err();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::writer::written;
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use tipover_core::device::Kind;
    use tipover_core::units::Bytes;

    fn any_record() -> impl Strategy<Value = Record> {
        let kind = prop_oneof![Just(Kind::Read), Just(Kind::Write), Just(Kind::Flush), Just(Kind::Discard)];
        // Numbers of all lengths, whole sectors or not.
        let number = (any::<u64>(), 0u32..64).prop_map(|(n, shift)| n >> shift);
        let offset = prop_oneof![number.clone(), number.clone().prop_map(|n| n & !511)];
        let size = prop_oneof![0u64..1 << 40, (0u64..2000).prop_map(|n| n * 512)];
        (number.clone(), number, kind, 0u64..5, offset, size).prop_map(
            |(arrival, residence, kind, file, offset, size)| Record {
                arrival: Tick(arrival),
                end: Tick(arrival.wrapping_add(residence)),
                kind,
                file,
                offset,
                size: Bytes(size),
            },
        )
    }

    fn name(file: u64) -> Option<PathBuf> {
        (file != 3).then(|| PathBuf::from(format!("folder/file-{file}")))
    }

    fn read(bytes: &[u8]) -> (Vec<Record>, Trace<&[u8]>) {
        let mut trace = Trace::from_reader(bytes, Path::new("x")).unwrap();
        (trace.by_ref().collect(), trace)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(records in prop::collection::vec(any_record(), 0..300)) {
            let (bytes, summary) = written(&records, Mode::File, Arc::new(name));
            prop_assert_eq!(summary.bytes, bytes.len() as u64);
            prop_assert_eq!((summary.records, summary.dropped), (records.len() as u64, 0));
            let (back, trace) = read(&bytes);
            for file in back.iter().map(|r| r.file).filter(|f| *f != 0) {
                prop_assert_eq!(trace.files().get(&file).cloned(), name(file));
            }
            prop_assert_eq!(back, records);
            prop_assert_eq!(trace.ending(), Some(Ending::Complete));
            prop_assert_eq!((trace.begin(), trace.mode()), (Tick(77), Mode::File));
        }

        #[test]
        fn a_cut_off_trace_is_read_up_to_the_cut(
            records in prop::collection::vec(any_record(), 0..300),
            share in 0.0..1.0f64,
        ) {
            let (bytes, _) = written(&records, Mode::Block, Arc::new(|_| None));
            let cut = format::HEADER + ((bytes.len() - format::HEADER) as f64 * share) as usize;
            let (back, trace) = read(&bytes[..cut]);
            prop_assert!(records.starts_with(&back));
            prop_assert!(back.len() % 100 == 0 || back.len() == records.len(), "whole frames");
            prop_assert_eq!(trace.ending(), Some(Ending::CutOff));
        }

        #[test]
        fn a_damaged_trace_is_read_up_to_the_damage(
            records in prop::collection::vec(any_record(), 1..300),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let (mut bytes, _) = written(&records, Mode::Block, Arc::new(|_| None));
            let at = format::HEADER + at.index(bytes.len() - format::HEADER);
            bytes[at] ^= flip;
            let (back, trace) = read(&bytes);
            prop_assert!(records.starts_with(&back));
            prop_assert!(trace.ending() != Some(Ending::Complete));
        }

        #[test]
        fn a_trace_of_which_a_frame_is_missing_or_there_twice_is_damaged(
            records in prop::collection::vec(any_record(), 101..400),
            whole in any::<prop::sample::Index>(),
            twice in any::<bool>(),
        ) {
            let (bytes, _) = written(&records, Mode::Block, Arc::new(|_| None));
            let mut frames = vec![];
            let mut at = format::HEADER;
            while at < bytes.len() {
                let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
                let end = at + format::FRAME_HEADER + length;
                frames.push(&bytes[at..end]);
                at = end;
            }
            // All but the last, which is the end.
            let torn = whole.index(frames.len() - 1);
            let again = if twice { frames[torn] } else { &[] };
            let frames = [&frames[..torn], &[again], &frames[torn + usize::from(!twice)..]].concat();
            let torn = [&bytes[..format::HEADER], &frames.concat()].concat();
            let (_, trace) = read(&torn);
            prop_assert_eq!(trace.ending(), Some(Ending::Damaged));
        }

        #[test]
        fn no_garbage_panics(
            garbage in prop::collection::vec(any::<u8>(), 0..400),
            kind in 0u8..5,
        ) {
            let _ = Trace::from_reader(&garbage[..], Path::new("x"));
            let _ = format::decode(&garbage);
            // Behind a good header, and in a frame with a good checksum.
            let (mut bytes, _) = written(&[], Mode::Block, Arc::new(|_| None));
            bytes.truncate(format::HEADER);
            let mut framed = bytes.clone();
            bytes.extend_from_slice(&garbage);
            format::frame(kind, &garbage, &mut framed);
            for bytes in [bytes, framed] {
                let (_, trace) = read(&bytes);
                prop_assert!(trace.ending().is_some());
            }
        }
    }

    #[test]
    fn other_files_and_newer_versions_are_refused_with_words() {
        let error = |bytes: &[u8]| Trace::from_reader(bytes, Path::new("x")).unwrap_err().to_string();
        assert!(error(b"").contains("not a trace"));
        assert!(error(&[b'x'; 100]).contains("not a trace"));
        let (mut bytes, _) = written(&[], Mode::Block, Arc::new(|_| None));
        bytes[8] = 9;
        assert!(error(&bytes).contains("version 9"), "{}", error(&bytes));
        assert!(Trace::open(Path::new("/nowhere/trace")).unwrap_err().to_string().contains("/nowhere/trace"));
    }
}
