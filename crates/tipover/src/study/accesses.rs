//! Where and when a disk was accessed, from a trace, in pieces small enough to be drawn and shipped.
//!
//! Offsets are counted in cells of 28 KiB, 128 of them a row of 3.5 MiB; time in frames, 600 at first. Rows
//! are doubled until there are few enough for a screen; after that time and then offsets are made coarser
//! until there are at most [`MOST_ENTRIES`] counts. That bounds what a page carries, whatever the trace is.

use anyhow::{Context, Result};
use base64::Engine;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::device::Kind;
use tipover_core::units::{Bytes, span};
use tipover_disk::{FileMap, Mode, Record, Trace};

/// Cells in a row.
pub const ROW_CELLS: u32 = 128;
/// A row to begin with: 3.5 MiB, as the published study drew it.
const ROW_BYTES: u64 = 7 << 19;
const MOST_ROWS: u64 = 320;
const FRAMES: u32 = 600;
const LEAST_FRAMES: u32 = 75;
/// Counts of one cell in one frame. Each takes two to four bytes of text on the page, so about 1 MB at most.
pub const MOST_ENTRIES: usize = 300_000;
/// Files that are drawn, those with most bytes accessed; all others are counted only.
const MOST_FILES: usize = 6;

/// A request that begins where another of the same file ended, at most this much later, goes on with the same
/// access: a read of 28 KiB without readahead is seven requests of a page.
const GOES_ON: Duration = Duration::from_millis(5);
/// A scan is not one access.
const LONGEST: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Reads up to this size count as small, unless told otherwise: pages of an index, not documents.
pub const SMALL: Bytes = Bytes(16 << 10);

/// What one sees of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Class {
    SmallRead,
    LargeRead,
    Write,
}

const CLASSES: [Class; 3] = [Class::SmallRead, Class::LargeRead, Class::Write];

/// A request for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Read or write.
    pub kind: Kind,
    /// Number of its file, in the order in which files appear.
    pub file: usize,
    /// Where in the file it begins.
    pub offset: u64,
    /// How many bytes.
    pub size: u64,
    /// When it arrived, since the trace began.
    pub at: Duration,
    /// When it was answered, likewise.
    pub end: Duration,
}

/// A request with what it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Touch {
    request: Request,
    class: Class,
    /// Whether it begins an access and does not go on with one.
    begins: bool,
}

/// What was accessed when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accesses {
    /// From the trace's begin to the last answer.
    #[serde(rename = "window_ns", with = "span_ns")]
    pub window: Duration,
    /// Into how many equal parts the window is divided.
    pub frames: u32,
    /// Cells in a row.
    pub row_cells: u32,
    /// What a row stands for.
    pub row_bytes: u64,
    /// The largest read that is called small.
    pub small_bytes: u64,
    /// Files that are drawn, those with most bytes accessed first.
    pub drawn: Vec<Band>,
    /// Every file, likewise.
    pub files: Vec<FileAccesses>,
    /// Requests that came too fast to be written down.
    pub dropped: u64,
    /// Whether the trace was finished.
    pub complete: bool,
    /// Counts, as base64 of varints: for each frame and for small reads, large reads and writes how many
    /// cells follow; of each, the distance from the cell before (from -1) minus one, doubled, plus one if its
    /// count follows because it is not 1.
    pub counts: String,
}

/// A file as rows of cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// Its path on the disk.
    pub name: String,
    /// Its size, or in file mode how far it was accessed.
    pub size_bytes: u64,
    /// Number of its first cell.
    pub first_cell: u32,
    /// How many rows it has.
    pub rows: u32,
}

/// How a file was accessed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileAccesses {
    /// Its path on the disk, or what else it is.
    pub name: String,
    /// Its size, or in file mode how far it was accessed.
    pub size_bytes: u64,
    /// Reads up to the size that is called small.
    pub small_reads: u64,
    /// Larger reads.
    pub large_reads: u64,
    /// Bytes of both.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of those.
    pub write_bytes: u64,
    /// Different pages of 4 KiB that were read.
    pub pages_read: u64,
}

impl Accesses {
    /// Reads the trace at `path` twice. In block mode `map` says which file lies where; without it the device
    /// is drawn as one file.
    ///
    /// # Errors
    /// It is no trace, or cannot be read.
    pub fn of_trace(path: &Path, map: Option<&FileMap>, small: Bytes) -> Result<Accesses> {
        let mut survey = Survey::default();
        let whole = each(path, map, small, &mut |touch| survey.add(touch))?;
        let sizes: HashMap<String, u64> =
            map.into_iter().flat_map(FileMap::files).map(|(path, size)| (name_of(path), size)).collect();
        let mut canvas = survey.canvas(&whole, &sizes, small);
        each(path, map, small, &mut |touch| canvas.add(touch))?;
        Ok(canvas.finish(&whole))
    }
}

/// What is known of a trace once it is read through.
struct Whole {
    window: Duration,
    dropped: u64,
    complete: bool,
    /// By number.
    names: Vec<String>,
}

/// Reads a trace once. A file has the same number each time.
fn each(path: &Path, map: Option<&FileMap>, small: Bytes, to: &mut dyn FnMut(&Touch)) -> Result<Whole> {
    let mut trace = Trace::open(path).with_context(|| format!("opening {}", path.display()))?;
    let (begin, mode) = (trace.begin(), trace.mode());
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut joiner = Joiner::new(small);
    let mut window = Duration::ZERO;
    while let Some(record) = trace.next() {
        let (at, end) = (record.arrival.since(begin), record.end.since(begin));
        window = window.max(end);
        if matches!(record.kind, Kind::Read | Kind::Write) {
            let (name, offset) = whose(&record, mode, map, trace.files());
            let next = numbers.len();
            let file = *numbers.entry(name).or_insert(next);
            joiner.add(Request { kind: record.kind, file, offset, size: record.size.0, at, end }, to);
        }
    }
    joiner.end(to);
    let complete = trace.ending() == Some(tipover_disk::Ending::Complete);
    let mut names = vec![String::new(); numbers.len()];
    numbers.into_iter().for_each(|(name, number)| names[number] = name);
    Ok(Whole { window, dropped: trace.dropped(), complete, names })
}

/// What no file has: the file system keeps it for itself, or the file was removed.
pub const NO_FILE: &str = "(the file system's own, or gone)";

/// The file of a request and where in it.
fn whose(
    record: &Record,
    mode: Mode,
    map: Option<&FileMap>,
    files: &BTreeMap<u64, PathBuf>,
) -> (String, u64) {
    match (mode, map) {
        (Mode::Block, None) => ("the device".into(), record.offset),
        (Mode::Block, Some(map)) => match map.locate(record.offset) {
            Some((path, offset)) => (name_of(path), offset),
            None => (NO_FILE.into(), record.offset),
        },
        (Mode::File, _) => {
            (files.get(&record.file).map_or_else(|| NO_FILE.into(), |path| name_of(path)), record.offset)
        }
    }
}

fn name_of(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Finds out which requests are one access.
struct Joiner {
    small: u64,
    /// Reads that may go on, by file and the offset at which they would.
    open: HashMap<(usize, u64), Run>,
    since_sweep: usize,
}

struct Run {
    bytes: u64,
    last_end: Duration,
    requests: Vec<Request>,
}

impl Joiner {
    /// Sweeping at each request would cost more than what it frees.
    const SWEEP: usize = 1024;

    fn new(small: Bytes) -> Joiner {
        Joiner { small: small.0, open: HashMap::new(), since_sweep: 0 }
    }

    fn add(&mut self, request: Request, to: &mut dyn FnMut(&Touch)) {
        if request.kind == Kind::Write {
            return to(&Touch { request, class: Class::Write, begins: true });
        }
        let Request { file, offset, size, at, .. } = request;
        let goes_on = |run: &Run| run.last_end + GOES_ON >= at && run.bytes < LONGEST;
        let mut run = match self.open.remove(&(file, offset)) {
            Some(run) if goes_on(&run) => run,
            other => {
                other.into_iter().for_each(|over| self.close(&over, to));
                Run { bytes: 0, last_end: request.end, requests: Vec::new() }
            }
        };
        run.bytes += size;
        run.last_end = run.last_end.max(request.end);
        run.requests.push(request);
        if let Some(over) = self.open.insert((file, offset.saturating_add(size)), run) {
            self.close(&over, to);
        }
        self.since_sweep += 1;
        if self.since_sweep >= Self::SWEEP {
            self.since_sweep = 0;
            let over = self.open.extract_if(|_, run| run.last_end + GOES_ON < at).collect::<Vec<_>>();
            over.iter().for_each(|(_, run)| self.close(run, to));
        }
    }

    fn close(&self, run: &Run, to: &mut dyn FnMut(&Touch)) {
        let class = if run.bytes <= self.small { Class::SmallRead } else { Class::LargeRead };
        for (place, request) in run.requests.iter().enumerate() {
            to(&Touch { request: *request, class, begins: place == 0 });
        }
    }

    fn end(&mut self, to: &mut dyn FnMut(&Touch)) {
        std::mem::take(&mut self.open).values().for_each(|run| self.close(run, to));
    }
}

/// Sums of each file, by number.
#[derive(Default)]
struct Survey(Vec<(FileAccesses, Vec<u64>)>);

impl Survey {
    fn add(&mut self, touch: &Touch) {
        let Request { file, offset, size, .. } = touch.request;
        if self.0.len() <= file {
            self.0.resize_with(file + 1, Default::default);
        }
        let (file, pages) = &mut self.0[file];
        let end = offset.saturating_add(size);
        file.size_bytes = file.size_bytes.max(end);
        match touch.class {
            Class::Write => {
                file.writes += 1;
                file.write_bytes += size;
                return;
            }
            Class::SmallRead => file.small_reads += u64::from(touch.begins),
            Class::LargeRead => file.large_reads += u64::from(touch.begins),
        }
        file.read_bytes += size;
        for page in offset / PAGE..end.div_ceil(PAGE) {
            let word = (page / 64) as usize;
            if pages.len() <= word {
                pages.resize(word + 1, 0);
            }
            pages[word] |= 1 << (page % 64);
        }
    }

    /// What is drawn, and on which scale. `sizes` are known ones by name.
    fn canvas(self, whole: &Whole, sizes: &HashMap<String, u64>, small: Bytes) -> Canvas {
        let finished = |((file, pages), name): ((FileAccesses, Vec<u64>), &String)| FileAccesses {
            name: name.clone(),
            size_bytes: file.size_bytes.max(sizes.get(name).copied().unwrap_or(0)),
            pages_read: pages.iter().map(|word| u64::from(word.count_ones())).sum(),
            ..file
        };
        let files: Vec<FileAccesses> = self.0.into_iter().zip(&whole.names).map(finished).collect();
        let bytes = |n: &usize| files[*n].read_bytes + files[*n].write_bytes;
        let mut order: Vec<usize> = (0..files.len()).collect();
        order.sort_by_key(|n| (std::cmp::Reverse(bytes(n)), &files[*n].name));
        // What the file system keeps for itself lies all over the device: rows of nothing.
        let drawn: Vec<usize> =
            order.iter().copied().filter(|n| files[*n].name != NO_FILE).take(MOST_FILES).collect();
        let mut row_bytes = ROW_BYTES;
        let rows = |row: u64| drawn.iter().map(|n| files[*n].size_bytes.div_ceil(row)).sum::<u64>();
        while rows(row_bytes) > MOST_ROWS {
            row_bytes *= 2;
        }
        let mut place = vec![None; files.len()];
        drawn.iter().enumerate().for_each(|(band, n)| place[*n] = Some(band as u8));
        let (window, frames, entries) = (whole.window, FRAMES, HashMap::new());
        Canvas { window, small, frames, row_bytes, place, drawn, order, files, entries }
    }
}

/// Counts by frame, class, band and cell.
struct Canvas {
    window: Duration,
    small: Bytes,
    frames: u32,
    row_bytes: u64,
    /// Which band each file is drawn as.
    place: Vec<Option<u8>>,
    drawn: Vec<usize>,
    order: Vec<usize>,
    files: Vec<FileAccesses>,
    entries: HashMap<(u32, Class, u8, u32), u32>,
}

impl Canvas {
    fn cell_bytes(&self) -> u64 {
        self.row_bytes / u64::from(ROW_CELLS)
    }

    fn add(&mut self, touch: &Touch) {
        let Request { file, offset, size, at, .. } = touch.request;
        let Some(band) = self.place[file] else { return };
        let share = at.as_nanos() as f64 / (self.window.as_nanos() as f64).max(1.0);
        let frame = ((share * f64::from(self.frames)) as u32).min(self.frames - 1);
        let cell = self.cell_bytes();
        let last = offset.saturating_add(size.max(1)) - 1;
        for cell in offset / cell..=last / cell {
            let count = self.entries.entry((frame, touch.class, band, cell as u32)).or_default();
            *count = count.saturating_add(1);
        }
        while self.entries.len() > MOST_ENTRIES {
            self.coarser();
        }
    }

    /// Half the frames; when there are few, half the rows.
    fn coarser(&mut self) {
        let by_time = self.frames / 2 >= LEAST_FRAMES;
        if by_time {
            self.frames /= 2;
        } else {
            self.row_bytes *= 2;
        }
        for ((frame, class, band, cell), count) in std::mem::take(&mut self.entries) {
            let key = if by_time { (frame / 2, class, band, cell) } else { (frame, class, band, cell / 2) };
            let sum = self.entries.entry(key).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    fn finish(self, whole: &Whole) -> Accesses {
        let mut drawn = Vec::new();
        let mut first_cell = 0;
        for n in &self.drawn {
            let FileAccesses { name, size_bytes, .. } = &self.files[*n];
            let rows = size_bytes.div_ceil(self.row_bytes).max(1) as u32;
            drawn.push(Band { name: name.clone(), size_bytes: *size_bytes, first_cell, rows });
            first_cell += rows * ROW_CELLS;
        }
        let mut sorted: BTreeMap<(u32, Class), Vec<(u32, u32)>> = BTreeMap::new();
        for ((frame, class, band, cell), count) in self.entries {
            let cell = drawn[usize::from(band)].first_cell + cell;
            sorted.entry((frame, class)).or_default().push((cell, count));
        }
        let mut bytes = Vec::new();
        for frame in 0..self.frames {
            for class in CLASSES {
                let mut cells = sorted.remove(&(frame, class)).unwrap_or_default();
                cells.sort_unstable();
                put(cells.len() as u64, &mut bytes);
                let mut next = 0;
                for (cell, count) in cells {
                    let many = count != 1;
                    put(u64::from(cell - next) << 1 | u64::from(many), &mut bytes);
                    if many {
                        put(u64::from(count), &mut bytes);
                    }
                    next = cell + 1;
                }
            }
        }
        let mut files = self.files;
        Accesses {
            window: self.window,
            frames: self.frames,
            row_cells: ROW_CELLS,
            row_bytes: self.row_bytes,
            small_bytes: self.small.0,
            drawn,
            files: self.order.iter().map(|n| std::mem::take(&mut files[*n])).collect(),
            dropped: whole.dropped,
            complete: whole.complete,
            counts: base64::engine::general_purpose::STANDARD.encode(bytes),
        }
    }
}

fn put(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

mod span_ns {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(span: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(span.as_nanos() as u64)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_nanos(u64::deserialize(d)?))
    }
}

impl Accesses {
    /// A sentence: how long, how coarse, what is missing.
    pub fn about(&self) -> String {
        let mut text = format!(
            "{} of requests, {} a frame; a row is {}, a cell {}",
            span::rounded(self.window),
            span::rounded(self.window / self.frames.max(1)),
            Bytes(self.row_bytes).rounded(),
            Bytes(self.row_bytes / u64::from(self.row_cells)).rounded(),
        );
        if self.dropped > 0 {
            text += &format!("; {} requests came too fast to be recorded and are missing", self.dropped);
        }
        if !self.complete {
            text += "; the trace breaks off";
        }
        text + "."
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts as a page's script decodes them: (frame, class, cell) → count.
    fn decoded(accesses: &Accesses) -> BTreeMap<(u32, usize, u32), u64> {
        let bytes = base64::engine::general_purpose::STANDARD.decode(&accesses.counts).unwrap();
        let mut at = 0;
        let mut take = || {
            let (mut number, mut shift) = (0u64, 0);
            loop {
                let byte = bytes[at];
                at += 1;
                number |= u64::from(byte & 0x7F) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    return number;
                }
            }
        };
        let mut counts = BTreeMap::new();
        for frame in 0..accesses.frames {
            for class in 0..3 {
                let mut cell = 0;
                for _ in 0..take() {
                    let head = take();
                    cell += (head >> 1) as u32;
                    let count = if head & 1 == 1 { take() } else { 1 };
                    counts.insert((frame, class, cell), count);
                    cell += 1;
                }
            }
        }
        counts
    }

    fn picture(requests: &[(Kind, usize, u64, u64, u64)]) -> Accesses {
        let request = |&(kind, file, offset, size, ms): &(Kind, usize, u64, u64, u64)| {
            let at = Duration::from_millis(ms);
            Request { kind, file, offset, size, at, end: at + Duration::from_micros(100) }
        };
        let requests: Vec<Request> = requests.iter().map(request).collect();
        let each = |to: &mut dyn FnMut(&Touch)| {
            let mut joiner = Joiner::new(SMALL);
            requests.iter().for_each(|request| joiner.add(*request, to));
            joiner.end(to);
        };
        let mut survey = Survey::default();
        each(&mut |touch| survey.add(touch));
        let (window, names) = (Duration::from_millis(600), vec!["a".into(), "b".into()]);
        let whole = Whole { window, dropped: 0, complete: true, names };
        let mut canvas = survey.canvas(&whole, &HashMap::new(), SMALL);
        each(&mut |touch| canvas.add(touch));
        canvas.finish(&whole)
    }

    #[test]
    fn requests_in_a_row_are_one_access_and_lie_where_and_when_they_were() {
        let mut requests: Vec<_> = (0..7).map(|n| (Kind::Read, 0, n * 4096, 4096, n)).collect();
        // 28 KiB read page by page; a page alone in the second file's second row; a page far later; a write.
        requests.push((Kind::Read, 1, ROW_BYTES, 4096, 300));
        requests.push((Kind::Read, 0, 28_672, 4096, 500));
        requests.push((Kind::Write, 1, 0, 8192, 599));
        let seen = picture(&requests);
        assert_eq!(seen.frames, 600);
        let names: Vec<&str> = seen.drawn.iter().map(|band| band.name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "most bytes first");
        assert_eq!((seen.drawn[0].rows, seen.drawn[1].first_cell, seen.drawn[1].rows), (1, 128, 2));
        let a = &seen.files[0];
        assert_eq!((a.large_reads, a.small_reads, a.read_bytes, a.pages_read), (1, 1, 8 * 4096, 8));
        let b = &seen.files[1];
        assert_eq!((b.large_reads, b.small_reads, b.writes, b.write_bytes), (0, 1, 1, 8192));
        let mut expected: BTreeMap<_, _> = (0..7).map(|n| ((n, 1, 0), 1)).collect();
        expected.extend([((300, 0, 256), 1), ((500, 0, 1), 1), ((599, 2, 128), 1)]);
        assert_eq!(decoded(&seen), expected);
    }

    #[test]
    fn a_long_trace_gets_coarser_and_loses_no_access() {
        let mut x = 1u64;
        let requests: Vec<_> = (0..500_000u64)
            .map(|n| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Apart from each other, so that none goes on with another.
                (Kind::Read, 0, (x >> 33) % (1 << 18) * 8192, 4096, n * 600 / 500_000)
            })
            .collect();
        let seen = picture(&requests);
        let counts = decoded(&seen);
        assert!(counts.len() <= MOST_ENTRIES, "{}", counts.len());
        assert!(seen.frames < FRAMES || seen.row_bytes > ROW_BYTES * 2, "it is coarser");
        assert_eq!(counts.values().sum::<u64>(), 500_000);
        assert!(seen.counts.len() < 1 << 20, "{} bytes of text", seen.counts.len());
        let rows: u32 = seen.drawn.iter().map(|band| band.rows).sum();
        assert!(u64::from(rows) <= MOST_ROWS);
        assert!(counts.keys().all(|(_, _, cell)| *cell < rows * ROW_CELLS));
    }

    #[test]
    fn nothing_is_a_picture_too() {
        let seen = picture(&[]);
        assert_eq!((seen.drawn.len(), decoded(&seen).len()), (0, 0));
    }
}
