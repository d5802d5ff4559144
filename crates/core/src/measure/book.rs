//! What became of operations: counts and latencies by class, those that were done apart from those that were
//! not.

use super::{Counts, Histogram, Latencies, LatencyText, histogram};
use crate::op::{Failure, OpKind, Outcome, Timing};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Operations of one class: how they ended and how long that took.
#[derive(Debug, Clone)]
pub struct Book {
    done: Latencies,
    /// Kept once something failed: most books never need it.
    failed: Option<Box<Latencies>>,
    refused: BTreeMap<Failure, u64>,
    unknown: BTreeMap<Failure, u64>,
    retries: u64,
    /// That came or were changed, where somebody counts them.
    rows: u64,
}

impl Book {
    fn new(open: bool) -> Self {
        Book {
            done: Latencies::new(open),
            failed: None,
            refused: BTreeMap::new(),
            unknown: BTreeMap::new(),
            retries: 0,
            rows: 0,
        }
    }

    #[inline]
    fn record(&mut self, outcome: Outcome, timing: &Timing, retries: u32) {
        self.retries += u64::from(retries);
        let count = match outcome {
            Outcome::Done => return self.done.record(timing),
            Outcome::Refused(failure) => self.refused.entry(failure),
            Outcome::Unknown(failure) => self.unknown.entry(failure),
        };
        *count.or_default() += 1;
        let open = self.done.wait().is_some();
        self.failed.get_or_insert_with(|| Box::new(Latencies::new(open))).record(timing);
    }

    fn merge(&mut self, other: &Book) {
        self.done.merge(&other.done);
        if let Some(theirs) = &other.failed {
            let open = self.done.wait().is_some();
            self.failed.get_or_insert_with(|| Box::new(Latencies::new(open))).merge(theirs);
        }
        for (mine, theirs) in [(&mut self.refused, &other.refused), (&mut self.unknown, &other.unknown)] {
            for (failure, count) in theirs {
                let mine = mine.entry(*failure).or_default();
                *mine = mine.saturating_add(*count);
            }
        }
        self.retries = self.retries.saturating_add(other.retries);
        self.rows = self.rows.saturating_add(other.rows);
    }

    fn clear(&mut self) {
        self.done.clear();
        if let Some(failed) = &mut self.failed {
            failed.clear();
        }
        self.refused.clear();
        self.unknown.clear();
        (self.retries, self.rows) = (0, 0);
    }

    fn is_empty(&self) -> bool {
        self.answered() == 0
    }

    /// How many were done.
    pub fn done(&self) -> u64 {
        self.done.count()
    }

    /// How many were refused or are unknown.
    pub fn failed(&self) -> u64 {
        self.refused.values().chain(self.unknown.values()).sum()
    }

    /// How many ended, however: done, refused, and unknown, those given up after the time-out included.
    pub fn answered(&self) -> u64 {
        self.done() + self.failed()
    }

    /// Those that certainly did not happen, by reason.
    pub fn refused(&self) -> &BTreeMap<Failure, u64> {
        &self.refused
    }

    /// Those that may have happened, by reason.
    pub fn unknown(&self) -> &BTreeMap<Failure, u64> {
        &self.unknown
    }

    /// How often one of them was tried again.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Rows that came or were changed, of statements.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Latencies of those that were done, all their tries included.
    pub fn latencies(&self) -> &Latencies {
        &self.done
    }

    /// Latencies of those that were refused or are unknown; `None` if there were none.
    pub fn failed_latencies(&self) -> Option<&Latencies> {
        self.failed.as_deref().filter(|failed| failed.count() > 0)
    }

    fn to_text(&self) -> BookText {
        BookText {
            done: self.done(),
            refused: self.refused.clone(),
            unknown: self.unknown.clone(),
            retries: self.retries,
            rows: self.rows,
            latency: (self.done() > 0).then(|| self.done.to_text()),
            failed_latency: self.failed_latencies().map(Latencies::to_text),
        }
    }

    fn of_text(text: &BookText, open: bool) -> Result<Self, String> {
        let read = |text: &LatencyText| Latencies::from_text(text, open);
        let book = Book {
            done: text.latency.as_ref().map_or_else(|| Ok(Latencies::new(open)), read)?,
            failed: text.failed_latency.as_ref().map(read).transpose()?.map(Box::new),
            refused: text.refused.clone(),
            unknown: text.unknown.clone(),
            retries: text.retries,
            rows: text.rows,
        };
        let failed = book.failed.as_ref().map_or(0, |failed| failed.count());
        if book.done() != text.done || book.failed() != failed {
            return Err("the counts are not those of the histograms".into());
        }
        Ok(book)
    }
}

const CLASSES: usize = OpKind::ALL.len();

/// One operation, or a part of one, as it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Single {
    /// What it was.
    pub kind: OpKind,
    /// What became of it.
    pub outcome: Outcome,
    /// When.
    pub timing: Timing,
}

/// The books of all classes. What was asked for is kept apart from its parts: a read-modify-write is one
/// operation, and its read and its update are parts of it, so that adding up operations counts it once.
#[derive(Debug, Clone)]
pub struct Books {
    open: bool,
    operations: [Option<Box<Book>>; CLASSES],
    parts: [Option<Box<Book>>; CLASSES],
    /// In the order in which they were recorded, if they are wanted one by one.
    singles: Option<Vec<Single>>,
}

impl Books {
    /// Nothing recorded yet; an open loop keeps wait and residence beside service.
    pub fn new(open: bool) -> Self {
        let none = || std::array::from_fn(|_| None);
        Books { open, operations: none(), parts: none(), singles: None }
    }

    /// The same, and every operation and part is kept by itself besides.
    pub fn with_singles(self) -> Self {
        Books { singles: Some(Vec::new()), ..self }
    }

    /// What was kept one by one; empty unless it was asked for.
    pub fn singles(&self) -> &[Single] {
        self.singles.as_deref().unwrap_or_default()
    }

    /// Nothing recorded yet, for a closed loop.
    pub fn closed() -> Self {
        Books::new(false)
    }

    /// Nothing recorded yet, for an open loop.
    pub fn open() -> Self {
        Books::new(true)
    }

    /// Whether they are of an open loop.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Records an operation that ended, after `retries` retries.
    #[inline]
    pub fn record(&mut self, kind: OpKind, outcome: Outcome, timing: &Timing, retries: u32) {
        let open = self.open;
        self.keep(kind, outcome, timing);
        self.operations[kind.index()]
            .get_or_insert_with(|| Box::new(Book::new(open)))
            .record(outcome, timing, retries);
    }

    /// Records a part of an operation: the read or the update of a read-modify-write, the comparison of what
    /// was read.
    #[inline]
    pub fn record_part(&mut self, kind: OpKind, outcome: Outcome, timing: &Timing, retries: u32) {
        let open = self.open;
        self.keep(kind, outcome, timing);
        self.parts[kind.index()]
            .get_or_insert_with(|| Box::new(Book::new(open)))
            .record(outcome, timing, retries);
    }

    /// Records a part of an operation with the rows that came or were changed by it: a statement of a script.
    #[inline]
    pub fn record_statement(&mut self, kind: OpKind, outcome: Outcome, timing: &Timing, rows: u64) {
        let open = self.open;
        let book = self.parts[kind.index()].get_or_insert_with(|| Box::new(Book::new(open)));
        book.record(outcome, timing, 0);
        book.rows += rows;
    }

    #[inline]
    fn keep(&mut self, kind: OpKind, outcome: Outcome, timing: &Timing) {
        if let Some(singles) = &mut self.singles {
            singles.push(Single { kind, outcome, timing: *timing });
        }
    }

    /// Adds another session or interval.
    pub fn merge(&mut self, other: &Books) {
        if let Some(singles) = &mut self.singles {
            singles.extend_from_slice(other.singles());
        }
        assert_eq!(self.open, other.open, "open and closed loops are never mixed");
        for (mine, theirs) in [(&mut self.operations, &other.operations), (&mut self.parts, &other.parts)] {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                match (mine, theirs) {
                    (Some(mine), Some(theirs)) if !theirs.is_empty() => mine.merge(theirs),
                    (mine @ None, Some(theirs)) if !theirs.is_empty() => *mine = Some(theirs.clone()),
                    _ => {}
                }
            }
        }
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        self.singles.iter_mut().for_each(Vec::clear);
        for book in self.operations.iter_mut().chain(&mut self.parts).flatten() {
            if !book.is_empty() {
                book.clear();
            }
        }
    }

    /// Classes of whole operations with something recorded, in their order.
    pub fn operations(&self) -> impl Iterator<Item = (OpKind, &Book)> {
        present(&self.operations)
    }

    /// Classes of parts of operations with something recorded, in their order.
    pub fn parts(&self) -> impl Iterator<Item = (OpKind, &Book)> {
        present(&self.parts)
    }

    /// Everything of a class, whether it was asked for or part of another operation: YCSB's READ, which
    /// counts the reads of read-modify-writes too. `None` if there was none.
    pub fn of(&self, kind: OpKind) -> Option<Book> {
        let mut both = present(&self.operations).chain(present(&self.parts)).filter(|(k, _)| *k == kind);
        let mut book = both.next()?.1.clone();
        both.for_each(|(_, other)| book.merge(other));
        Some(book)
    }

    /// All classes that there are, operations or parts, in their order.
    pub fn kinds(&self) -> Vec<OpKind> {
        let there = |kind: &OpKind| {
            present(&self.operations).chain(present(&self.parts)).any(|(present, _)| present == *kind)
        };
        OpKind::ALL.into_iter().filter(there).collect()
    }

    /// Operations that were done, each counted once.
    pub fn done(&self) -> u64 {
        self.operations().map(|(_, book)| book.done()).sum()
    }

    /// Operations that were refused or are unknown, each counted once.
    pub fn failed(&self) -> u64 {
        self.operations().map(|(_, book)| book.failed()).sum()
    }

    /// Operations that ended, however.
    pub fn answered(&self) -> u64 {
        self.done() + self.failed()
    }

    /// How often operations were tried again.
    pub fn retries(&self) -> u64 {
        self.operations().map(|(_, book)| book.retries()).sum()
    }

    /// Why operations were not done, refused and unknown ones together.
    pub fn failures(&self) -> BTreeMap<Failure, u64> {
        let mut failures = BTreeMap::new();
        for (_, book) in self.operations() {
            for (failure, count) in book.refused.iter().chain(&book.unknown) {
                *failures.entry(*failure).or_default() += count;
            }
        }
        failures
    }

    /// Comparisons of what was read that found something else than should be there.
    pub fn corrupt(&self) -> u64 {
        let verified = self.parts().find(|(kind, _)| *kind == OpKind::Verify);
        verified.map_or(0, |(_, book)| book.failed())
    }

    /// Operations done with a residence of at most `longest`: the goodput of this promise. Exact to the
    /// three digits of a histogram.
    pub fn done_within(&self, longest: Duration) -> u64 {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        self.operations().map(|(_, book)| book.done.residence().count_between(0, longest)).sum()
    }

    /// What users waited for all operations that ended, failed ones included.
    pub fn residence(&self) -> Histogram {
        self.merged(Latencies::residence)
    }

    /// What the target took for all operations that ended, failed ones included.
    pub fn service(&self) -> Histogram {
        self.merged(Latencies::service)
    }

    fn merged(&self, of: fn(&Latencies) -> &Histogram) -> Histogram {
        let mut merged = histogram();
        for (_, book) in self.operations() {
            for latencies in [Some(&book.done), book.failed_latencies()].into_iter().flatten() {
                merged.add(of(latencies)).expect("all histograms have the same bounds");
            }
        }
        merged
    }

    /// As text, for records and pipes.
    pub fn to_text(&self) -> BooksText {
        let text = |books| present(books).map(|(kind, book)| (kind, book.to_text())).collect();
        BooksText { open: self.open, operations: text(&self.operations), parts: text(&self.parts) }
    }

    /// Reads what [`Books::to_text`] wrote.
    ///
    /// # Errors
    /// When a histogram is none, or its count is not the one beside it.
    pub fn from_text(text: &BooksText) -> Result<Self, String> {
        let mut books = Books::new(text.open);
        for (texts, books) in [(&text.operations, &mut books.operations), (&text.parts, &mut books.parts)] {
            for (kind, book) in texts {
                let book =
                    Book::of_text(book, text.open).map_err(|error| format!("{}: {error}", kind.name()))?;
                books[kind.index()] = Some(Box::new(book));
            }
        }
        Ok(books)
    }
}

fn present(books: &[Option<Box<Book>>; CLASSES]) -> impl Iterator<Item = (OpKind, &Book)> {
    let all = OpKind::ALL.into_iter().zip(books);
    all.filter_map(|(kind, book)| Some((kind, book.as_deref().filter(|book| !book.is_empty())?)))
}

/// [`Books`] in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BooksText {
    /// Whether the loop was open: wait and residence stand beside service then.
    pub open: bool,
    /// Whole operations, by class.
    pub operations: BTreeMap<OpKind, BookText>,
    /// Parts of them: the reads and updates of read-modify-writes, comparisons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<OpKind, BookText>,
}

impl BooksText {
    /// Operations of one class, and parts of others that are of it.
    pub fn of(&self, kind: OpKind) -> impl Iterator<Item = &BookText> {
        [&self.operations, &self.parts].into_iter().filter_map(move |books| books.get(&kind))
    }

    /// Classes that occurred, parts of others included.
    pub fn kinds(&self) -> impl Iterator<Item = OpKind> + '_ {
        OpKind::ALL.into_iter().filter(|kind| self.of(*kind).any(|book| book.ended() > 0))
    }

    /// Whole operations that were done.
    pub fn done(&self) -> u64 {
        self.operations.values().map(|book| book.done).sum()
    }

    /// Whole operations that were refused or are unknown.
    pub fn failed(&self) -> u64 {
        let failed = |book: &BookText| book.refused.values().chain(book.unknown.values()).sum::<u64>();
        self.operations.values().map(failed).sum()
    }

    /// As [`Books::residence`], and nothing else is read.
    ///
    /// # Errors
    /// When a histogram is none, or its count is not the one beside it.
    pub fn residence(&self) -> Result<Counts, String> {
        let mut all = Counts::default();
        for book in self.operations.values() {
            all.merge(&residence(book.latency.as_ref(), book.done)?);
            all.merge(&residence(book.failed_latency.as_ref(), book.ended() - book.done)?);
        }
        Ok(all)
    }

    /// What users waited for what was done of one class, parts of others included.
    ///
    /// # Errors
    /// As [`BooksText::residence`].
    pub fn residence_of(&self, kind: OpKind) -> Result<Counts, String> {
        let mut all = Counts::default();
        for book in self.of(kind) {
            all.merge(&residence(book.latency.as_ref(), book.done)?);
        }
        Ok(all)
    }

    /// What the target took: for all operations that ended, failed ones included, as [`Books::service`], and
    /// for those that were done of each class that occurred, parts of others included. Every histogram is
    /// read.
    ///
    /// # Errors
    /// When a histogram is none, is of another loop, or its count is not the one beside it.
    pub fn service(&self) -> Result<(Counts, BTreeMap<OpKind, Counts>), String> {
        let (mut all, mut by_kind) = (Counts::default(), BTreeMap::<OpKind, Counts>::new());
        for (books, are_parts) in [(&self.operations, false), (&self.parts, true)] {
            for (kind, book) in books {
                let (done, failed) =
                    book.service(self.open).map_err(|error| format!("{}: {error}", kind.name()))?;
                if !are_parts {
                    all.merge(&done);
                    all.merge(&failed);
                }
                if book.ended() > 0 {
                    by_kind.entry(*kind).or_default().merge(&done);
                }
            }
        }
        Ok((all, by_kind))
    }

    /// As [`Books::done_within`].
    ///
    /// # Errors
    /// As [`BooksText::residence`].
    pub fn done_within(&self, longest: Duration) -> Result<u64, String> {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        let within = |book: &BookText| Ok(residence(book.latency.as_ref(), book.done)?.up_to(longest));
        self.operations.values().map(within).sum()
    }

    /// Why whole operations were not done, refused and unknown ones together.
    pub fn failures(&self) -> BTreeMap<Failure, u64> {
        let mut failures = BTreeMap::new();
        for book in self.operations.values() {
            for (failure, count) in book.refused.iter().chain(&book.unknown) {
                *failures.entry(*failure).or_default() += count;
            }
        }
        failures
    }
}

/// What `count` operations waited.
fn residence(latency: Option<&LatencyText>, count: u64) -> Result<Counts, String> {
    let counts = latency.map(LatencyText::residence).transpose()?.unwrap_or_default();
    match counts.len() == count {
        true => Ok(counts),
        false => Err("the counts are not those of the histograms".into()),
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// [`Book`] in files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BookText {
    /// How many were done.
    pub done: u64,
    /// Those that certainly did not happen, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<Failure, u64>,
    /// Those that may have happened, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unknown: BTreeMap<Failure, u64>,
    /// How often one of them was tried again.
    #[serde(default)]
    pub retries: u64,
    /// Rows that came or were changed, of statements.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: u64,
    /// Latencies of those that were done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyText>,
    /// Latencies of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_latency: Option<LatencyText>,
}

impl BookText {
    /// How many there were, whatever became of them.
    fn ended(&self) -> u64 {
        let failed = self.refused.values().chain(self.unknown.values());
        failed.fold(self.done, |sum, count| sum.saturating_add(*count))
    }

    /// What those took that were done, and what the others took.
    fn service(&self, open: bool) -> Result<(Counts, Counts), String> {
        let read = |text: &LatencyText| text.service(open);
        let done = self.latency.as_ref().map(read).transpose()?.unwrap_or_default();
        let failed = self.failed_latency.as_ref().map(read).transpose()?.unwrap_or_default();
        if done.len() != self.done || failed.len() != self.ended() - self.done {
            return Err("the counts are not those of the histograms".into());
        }
        Ok((done, failed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Tick;

    fn timing(due: u64, began: u64, ended: u64) -> Timing {
        Timing { due: Tick(due), began: Tick(began), ended: Tick(ended) }
    }

    /// Ten reads, a read-modify-write that is its parts once more, a refused and an unknown update.
    fn some(open: bool) -> Books {
        let mut books = Books::new(open);
        for n in 1..=10 {
            books.record(OpKind::Read, Outcome::Done, &timing(0, 10 * n, 1_000 * n), 0);
        }
        books.record_part(OpKind::Read, Outcome::Done, &timing(0, 0, 500), 0);
        books.record_part(OpKind::Update, Outcome::Done, &timing(500, 500, 700), 2);
        books.record(OpKind::ReadModifyWrite, Outcome::Done, &timing(0, 0, 700), 2);
        books.record(OpKind::Update, Outcome::Refused(Failure::Conflict), &timing(0, 5, 90), 3);
        books.record(OpKind::Update, Outcome::Unknown(Failure::Timeout), &timing(0, 5, 1_000_000), 0);
        books
    }

    #[test]
    fn whole_operations_are_counted_once_and_parts_under_their_class() {
        let books = some(false);
        assert_eq!((books.done(), books.failed(), books.answered(), books.retries()), (11, 2, 13, 5));
        assert_eq!(books.of(OpKind::Read).unwrap().done(), 11);
        let update = books.of(OpKind::Update).unwrap();
        assert_eq!((update.done(), update.failed()), (1, 2));
        assert_eq!(update.refused()[&Failure::Conflict], 1);
        assert_eq!(update.unknown()[&Failure::Timeout], 1);
        assert_eq!(books.kinds(), [OpKind::Read, OpKind::Update, OpKind::ReadModifyWrite]);
        assert!(books.of(OpKind::Scan).is_none());
    }

    #[test]
    fn failed_operations_are_in_the_residence_but_not_among_the_done() {
        let books = some(true);
        assert_eq!(books.residence().len(), 13);
        assert!(books.residence().max() >= 1_000_000, "a time-out counts at its deadline");
        assert_eq!(books.of(OpKind::Update).unwrap().latencies().count(), 1);
        // 1000 to 5000 ns of the reads, and the read-modify-write.
        assert_eq!(books.done_within(Duration::from_nanos(5_000)), 6);
    }

    #[test]
    fn single_operations_are_kept_where_that_was_asked_for() {
        let mut books = Books::closed().with_singles();
        books.record(OpKind::Read, Outcome::Done, &timing(0, 1, 2), 0);
        books.record_part(OpKind::Verify, Outcome::Refused(Failure::Corrupt), &timing(2, 2, 3), 0);
        let (mut all, mut counts) = (Books::closed().with_singles(), Books::closed());
        for _ in 0..2 {
            all.merge(&books);
            counts.merge(&books);
        }
        let kinds: Vec<_> = all.singles().iter().map(|single| single.kind).collect();
        assert_eq!(kinds, [OpKind::Read, OpKind::Verify, OpKind::Read, OpKind::Verify]);
        assert_eq!((all.done(), counts.done(), counts.singles()), (2, 2, &[][..]));
        all.clear();
        assert!(all.singles().is_empty());
    }

    #[test]
    fn merging_is_addition_and_text_is_lossless() {
        for open in [false, true] {
            let (books, mut twice) = (some(open), some(open));
            twice.merge(&books);
            assert_eq!((twice.done(), twice.failed()), (22, 4));
            let text = twice.to_text();
            assert_eq!((text.done(), text.failed(), text.failures()), (22, 4, twice.failures()));
            let json = serde_json::to_string(&text).unwrap();
            let back = Books::from_text(&serde_json::from_str(&json).unwrap()).unwrap();
            assert_eq!(back.to_text(), text);
            assert_eq!(back.residence(), twice.residence());
            assert_eq!(text.residence().unwrap(), Counts::of(&twice.residence()));
            let longest = Duration::from_nanos(5_000);
            assert_eq!(text.done_within(longest).unwrap(), twice.done_within(longest));
            for kind in twice.kinds() {
                let book = twice.of(kind).unwrap();
                assert_eq!(text.residence_of(kind).unwrap(), Counts::of(book.latencies().residence()));
            }
            twice.clear();
            assert_eq!((twice.answered(), twice.kinds()), (0, vec![]));
        }
    }

    #[test]
    fn counts_that_contradict_their_histogram_are_refused() {
        let mut text = some(false).to_text();
        text.operations.get_mut(&OpKind::Read).unwrap().done += 1;
        assert!(Books::from_text(&text).unwrap_err().contains("READ"));
        assert!(text.residence().is_err() && text.residence_of(OpKind::Read).is_err());
        assert!(
            text.done_within(Duration::MAX).is_err() && text.residence_of(OpKind::Scan).unwrap().is_empty()
        );
    }
}
