//! What a power cut takes: everything that no answered flush covers, kept as what was there before.
//!
//! The backing always has the present state, so reads cost nothing. Before a block changes, its old content
//! is remembered as long as a cut may lead back to it (see [`History`]). A flush covers what had been
//! answered when it arrived and forgets the versions before that when it is answered itself; a cut puts them
//! back.

use crate::backing::{Backing, File, Landing};
use crate::clock::monotonic;
use crate::history::{Base, Covered, History, Settled, Shrink, Stamp, Traffic};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::FallocateFlags;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tipover_core::device::{CutReport, Fate, PowerCut};
use tipover_core::units::Tick;

const BLOCK: u64 = 4096;
/// A device's cache is finite: with more than this remembered, all of it counts as written to the medium.
pub(crate) const MOST: u64 = 512 << 20;
/// Writes inside a file that has grown are noted up to this many; then it counts as made durable that long.
const MOST_INSIDE: usize = 4096;
/// A shard is held while its blocks change, so that nobody else remembers them half done. Neighbours share
/// one: a large request takes few.
const SHARDS: usize = 64;
const NEIGHBOURS: u64 = 64;
/// Old contents that are forgotten leave their memory to later ones: up to this number of blocks a shard.
const SPARE: usize = 16;

/// Spreads block numbers by one product. Nobody chooses them to collide but who owns the disk.
#[derive(Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// A block's content; shorter where the file ended then.
type Content = Vec<u8>;
type Blocks = HashMap<u64, History<Content>, BuildHasherDefault<BlockHasher>>;

#[derive(Default)]
struct Shard {
    blocks: Blocks,
    spare: Spare,
}

/// Memory of contents that are forgotten.
#[derive(Default)]
struct Spare {
    contents: Vec<Content>,
    /// How many bytes were forgotten since somebody asked.
    freed: u64,
}

impl Spare {
    fn take_back(&mut self, content: Content) {
        self.freed += content.len() as u64;
        if self.contents.len() < SPARE && content.capacity() > 0 {
            self.contents.push(content);
        }
    }
}

/// A shard that nobody else has.
struct Held<'a> {
    number: usize,
    shard: MutexGuard<'a, Shard>,
}

/// How long the file is, as far as that is known, and how long it was.
#[derive(Default)]
struct Lengths {
    known: Option<u64>,
    history: Option<History<u64>>,
    /// Writes that made nothing longer, by number, and where they end. Only those beside changes that nobody
    /// had been told of: a flush may cover them and not what had made the file so long.
    inside: Vec<(u64, u64)>,
    /// Where the last of them ends that flushes have covered: the file is never shorter.
    flushed_to: u64,
}

impl Lengths {
    fn known(&mut self, inner: &impl Backing) -> io::Result<u64> {
        match self.known {
            Some(len) => Ok(len),
            None => Ok(*self.known.insert(inner.len()?)),
        }
    }

    /// A flush is answered, while these `shrinks` are not durable.
    fn settle(&mut self, covered: &Covered, shrinks: &[Shrink]) {
        let Some(history) = &mut self.history else { return };
        if history.settle(covered, drop) == Settled::Wholly {
            *self = Lengths { known: self.known, ..Lengths::default() };
            return;
        }
        let mut cut_off = shrinks.iter().filter(|shrink| covered.has(shrink.stamp.number)).peekable();
        let mut flushed_to = self.flushed_to;
        self.inside.retain(|(number, end)| {
            if covered.has(*number) {
                while let Some(shrink) = cut_off.next_if(|shrink| shrink.stamp.number < *number) {
                    flushed_to = flushed_to.min(shrink.len);
                }
                flushed_to = flushed_to.max(*end);
            }
            !covered.has(*number)
        });
        self.flushed_to = cut_off.fold(flushed_to, |to, shrink| to.min(shrink.len));
    }

    /// It is `len` from now on.
    fn change(&mut self, was: u64, len: u64, stamp: Stamp, traffic: &Traffic) {
        match &mut self.history {
            None => self.history = Some(History::new(was, stamp)),
            Some(history) => {
                let Ok(()) = history.replace(stamp, traffic, || Ok::<_, std::convert::Infallible>(was), drop);
            }
        }
        self.known = Some(len);
    }
}

/// What is remembered of a backing, and what is under way to it.
struct Account {
    /// Shared with everything that goes dark together.
    dead: Arc<AtomicBool>,
    shards: [Mutex<Shard>; SHARDS],
    lengths: Mutex<Lengths>,
    traffic: Mutex<Traffic>,
    /// What all shards remember.
    bytes: AtomicU64,
}

/// A write that nobody has been told of yet: no flush that comes before its answer covers it. Dropped with
/// its answer.
pub(crate) struct Unanswered {
    account: Arc<Account>,
    number: u64,
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.account.traffic.lock().answered(self.number);
    }
}

/// A flush that is under way; without [`land`](Flush::land) it made nothing durable.
struct Flush {
    account: Arc<Account>,
    covered: Covered,
    cuts: u64,
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.account.traffic.lock().end_flush(self.covered.number);
    }
}

impl Flush {
    /// It is about to be answered: what it covers is durable, if there is still power.
    fn land(self) -> io::Result<()> {
        let account = &self.account;
        account.powered()?;
        for shard in &account.shards {
            let Shard { blocks, spare } = &mut *shard.lock();
            blocks.retain(|_, history| {
                let settled = history.settle(&self.covered, |old| spare.take_back(old));
                if settled == Settled::Wholly {
                    history.clear(|old| spare.take_back(old));
                }
                settled == Settled::Partly
            });
            account.bytes.fetch_sub(std::mem::take(&mut spare.freed), SeqCst);
        }
        let mut lengths = account.lengths.lock();
        let mut traffic = account.traffic.lock();
        lengths.settle(&self.covered, &traffic.shrinks);
        drop(lengths);
        traffic.shrinks.retain(|shrink| !self.covered.has(shrink.stamp.number));
        // A cut that came meanwhile has undone a part of it.
        if traffic.cuts != self.cuts {
            return Err(no_power());
        }
        account.powered()
    }
}

fn no_power() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

fn shard_of(block: u64) -> usize {
    (block / NEIGHBOURS) as usize % SHARDS
}

/// The blocks that bytes are in.
fn blocks_of(bytes: &Range<u64>) -> Range<u64> {
    if bytes.is_empty() { 0..0 } else { bytes.start / BLOCK..bytes.end.div_ceil(BLOCK) }
}

impl Account {
    fn powered(&self) -> io::Result<()> {
        if self.dead.load(SeqCst) { Err(no_power()) } else { Ok(()) }
    }

    /// Nobody else changes these blocks, and no cut comes, until the guards go. Always in the same order, so
    /// that no two wait for each other.
    fn hold(&self, blocks: &Range<u64>) -> Vec<Held<'_>> {
        let first = blocks.start / NEIGHBOURS;
        let last = blocks.end.div_ceil(NEIGHBOURS).max(first + 1);
        let mut numbers: Vec<usize> =
            (first..last.min(first + SHARDS as u64)).map(|n| n as usize % SHARDS).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|number| Held { number, shard: self.shards[number].lock() }).collect()
    }

    fn hold_all(&self) -> Vec<Held<'_>> {
        self.hold(&(0..SHARDS as u64 * NEIGHBOURS))
    }

    /// Everything so far is durable.
    fn forget(&self, held: &mut [Held<'_>]) {
        let mut lengths = self.lengths.lock();
        held.iter_mut().for_each(|held| held.shard.blocks.clear());
        self.bytes.store(0, SeqCst);
        *lengths = Lengths::default();
        self.traffic.lock().shrinks.clear();
    }

    /// Makes room: versions that are there for their age first, and if that is not enough everything.
    fn make_room(&self) {
        let mut held = self.hold_all();
        // Somebody else may have been first.
        if self.bytes.load(SeqCst) <= MOST {
            return;
        }
        let traffic = self.traffic.lock();
        for held in &mut held {
            let Shard { blocks, spare } = &mut *held.shard;
            blocks.values_mut().for_each(|history| history.thin(&traffic, None, |old| spare.take_back(old)));
            self.bytes.fetch_sub(std::mem::take(&mut spare.freed), SeqCst);
        }
        drop(traffic);
        if self.bytes.load(SeqCst) > MOST / 2 {
            self.forget(&mut held);
        }
    }
}

/// A change about to be made.
struct Change {
    /// What is other afterwards.
    touched: Range<u64>,
    /// Becomes zeros: where there is a hole, nothing changes.
    zeroes: bool,
    /// How long the file is afterwards, if that is certain.
    len: Option<u64>,
    /// At least this time has passed.
    least: u64,
    /// Its answer waits until its time has come.
    later: bool,
}

/// A backing whose power can be cut.
pub(crate) struct Volatile<B> {
    inner: B,
    account: Arc<Account>,
}

impl<B: Backing> Volatile<B> {
    /// Without power once `dead` is set.
    pub fn new(inner: B, dead: Arc<AtomicBool>) -> Volatile<B> {
        let account = Account {
            dead,
            shards: std::array::from_fn(|_| Mutex::default()),
            lengths: Mutex::default(),
            traffic: Mutex::default(),
            bytes: AtomicU64::new(0),
        };
        Volatile { inner, account: Arc::new(account) }
    }

    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Whether a cut now would change nothing.
    pub fn is_clean(&self) -> bool {
        self.account.lengths.lock().history.is_none()
            && self.account.shards.iter().all(|shard| shard.lock().blocks.is_empty())
    }

    fn change<R>(
        &self,
        change: Change,
        act: impl FnOnce(&B) -> io::Result<R>,
    ) -> io::Result<(R, Option<Unanswered>)> {
        let account = &self.account;
        let number = account.traffic.lock().change(change.later);
        let unanswered = change.later.then(|| Unanswered { account: account.clone(), number });
        let mut held = account.hold(&blocks_of(&change.touched));
        account.powered()?;
        let found;
        let data = match change.zeroes {
            true => {
                found = self.inner.data(change.touched.clone())?;
                &found[..]
            }
            false => std::slice::from_ref(&change.touched),
        };
        let done = if data.iter().map(|bytes| bytes.end - bytes.start).sum::<u64>() > MOST {
            // So much takes all shards.
            let done = act(&self.inner);
            account.forget(&mut held);
            done?
        } else {
            let stamp = Stamp { number, at: monotonic() };
            let was = self.change_length(&change, stamp)?;
            self.remember(&mut held, data, was, stamp)?;
            let done = act(&self.inner);
            if done.is_err() {
                account.lengths.lock().known = None;
            }
            done?
        };
        drop(held);
        if account.bytes.load(SeqCst) > MOST {
            account.make_room();
        }
        Ok((done, unanswered))
    }

    /// Notes what becomes of the length; returns what it was.
    fn change_length(&self, change: &Change, stamp: Stamp) -> io::Result<u64> {
        let mut lengths = self.account.lengths.lock();
        let mut was = lengths.known(&self.inner)?;
        if change.least > was {
            // A descriptor that is not undone may have been ahead.
            was = was.max(self.inner.len()?);
        }
        let len = change.len.unwrap_or(was.max(change.least));
        if len != was {
            let mut traffic = self.account.traffic.lock();
            if len < was {
                traffic.shrinks.push(Shrink { stamp, len });
            }
            lengths.change(was, len, stamp, &traffic);
        } else if change.least > 0 && lengths.history.is_some() {
            let traffic = self.account.traffic.lock();
            if traffic.has_unanswered_besides(stamp.number) {
                lengths.inside.push((stamp.number, change.least));
            }
            if lengths.inside.len() > MOST_INSIDE {
                // Who never flushes would fill the memory.
                let ends = std::mem::take(&mut lengths.inside).into_iter().map(|(_, end)| end);
                lengths.flushed_to = ends.fold(lengths.flushed_to, u64::max);
            }
        }
        Ok(was)
    }

    /// Keeps what a cut may lead back to. `len` is how long the file has been so far.
    fn remember(&self, held: &mut [Held<'_>], data: &[Range<u64>], len: u64, stamp: Stamp) -> io::Result<()> {
        for block in data.iter().flat_map(blocks_of) {
            let number = shard_of(block);
            let Some(held) = held.iter_mut().find(|held| held.number == number) else { continue };
            let more = self.remember_block(&mut held.shard, block, len, stamp)?;
            self.account.bytes.fetch_add(more, SeqCst);
            self.account.bytes.fetch_sub(std::mem::take(&mut held.shard.spare.freed), SeqCst);
        }
        Ok(())
    }

    /// Returns how many bytes are remembered more.
    fn remember_block(&self, shard: &mut Shard, block: u64, len: u64, stamp: Stamp) -> io::Result<u64> {
        let Shard { blocks, spare } = shard;
        let mut kept = 0;
        let mut old = |spare: &mut Spare| {
            kept = len.saturating_sub(block * BLOCK).min(BLOCK);
            let mut bytes = spare.contents.pop().unwrap_or_default();
            match kept {
                0 => bytes.clear(),
                // Replaces what a spare one still has: clearing it first would only fill it with zeros.
                _ => self.inner.read(block * BLOCK, kept as usize, &mut bytes)?,
            }
            kept = bytes.len() as u64;
            io::Result::Ok(bytes)
        };
        match blocks.entry(block) {
            Entry::Vacant(place) => {
                place.insert(History::new(old(spare)?, stamp));
            }
            Entry::Occupied(mut place) => {
                let traffic = self.account.traffic.lock();
                let mut forgotten = Vec::new();
                place.get_mut().replace(stamp, &traffic, || old(spare), |old| forgotten.push(old))?;
                forgotten.into_iter().for_each(|old| spare.take_back(old));
            }
        }
        Ok(kept)
    }

    /// Puts back what no answered flush covers. The power must be off already; `salt` tells this backing from
    /// others.
    ///
    /// # Errors
    /// Whatever the system says; then a part was put back.
    pub fn cut(&self, cut: &PowerCut, salt: u64, report: &mut CutReport) -> io::Result<()> {
        let account = &self.account;
        let mut held = account.hold_all();
        let mut blocks: Vec<(u64, History<Content>)> =
            held.iter_mut().flat_map(|held| std::mem::take(&mut held.shard.blocks)).collect();
        let lengths = std::mem::take(&mut *account.lengths.lock());
        let shrinks = {
            let mut traffic = account.traffic.lock();
            traffic.cuts += 1;
            std::mem::take(&mut traffic.shrinks)
        };
        account.bytes.store(0, SeqCst);
        if blocks.is_empty() && lengths.history.is_none() {
            return Ok(());
        }
        let now = monotonic();
        let cutoff = cut.drained_after.map(|after| Tick(now.0.saturating_sub(after.as_nanos() as u64)));
        let drained = |shrink: &&Shrink| cutoff.is_some_and(|cutoff| shrink.stamp.at <= cutoff);
        let drained = shrinks.iter().take_while(drained).count();
        let survive = drained + cut.surviving((shrinks.len() - drained) as u64, salt) as usize;
        let (made, lost) = shrinks.split_at(survive);
        let number = |shrink: &Shrink| shrink.stamp.number;
        let len = self.inner.len()?;
        let base = lengths
            .history
            .map(|lengths| lengths.base(cutoff, made.last().map(number), lost.first().map(number)));
        let flushed_to = made.iter().map(|shrink| shrink.len).fold(lengths.flushed_to.min(len), u64::min);
        let mut end = match base {
            Some(Base::Old(old)) => old.max(flushed_to),
            Some(Base::Present) | None => len,
        };
        blocks.sort_unstable_by_key(|(block, _)| *block);
        for (block, history) in blocks {
            let start = block * BLOCK;
            let cut_off = |shrink: &&Shrink| shrink.len < start + BLOCK;
            let made = made.iter().rev().find(cut_off).map(number);
            let lost = lost.iter().find(cut_off).map(number);
            let is_lost = lost.is_some_and(|lost| history.present.number >= lost);
            let is_cut_off = made == Some(history.present.number);
            let mask = match history.base(cutoff, made, lost) {
                Base::Old(old) if old.is_empty() && start >= len => continue,
                Base::Old(old) => {
                    let chance = cut.fate(block ^ salt.wrapping_mul(0x9E37_79B9));
                    self.put_back(cut, if is_lost { Fate::Lost } else { chance }, start, len, old, report)?
                }
                Base::Present => {
                    report.kept_blocks += 1;
                    u64::MAX
                }
            };
            if mask != 0 && start < len && !is_cut_off {
                end = end.max((start + BLOCK).min(len));
            }
        }
        if self.inner.len()? != end {
            self.inner.set_len(end)?;
        }
        Ok(())
    }

    /// Puts a block back as its fate says; returns which pieces of it are as they were written last.
    fn put_back(
        &self,
        cut: &PowerCut,
        fate: Fate,
        start: u64,
        len: u64,
        mut old: Content,
        report: &mut CutReport,
    ) -> io::Result<u64> {
        let mask = match fate {
            Fate::Kept => {
                report.kept_blocks += 1;
                return Ok(u64::MAX);
            }
            Fate::Lost => {
                report.lost_blocks += 1;
                0
            }
            Fate::Torn(mask) => {
                report.torn_blocks += 1;
                mask
            }
        };
        let end = (start + BLOCK).min(len);
        old.resize((end.saturating_sub(start) as usize).max(old.len()), 0);
        let piece = cut.torn.map_or(BLOCK, |torn| torn.0) as usize;
        for (n, old) in old.chunks(piece).enumerate() {
            if mask & (1 << n.min(63)) == 0 {
                report.lost_bytes += old.len() as u64;
                self.inner.write(start + (n * piece) as u64, old)?;
            }
        }
        Ok(mask)
    }
}

impl Volatile<File> {
    /// What `fallocate` does.
    pub fn allocate(&self, mode: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.saturating_add(length);
        let zeroes = mode.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE);
        let touched = if zeroes { offset..end.min(self.len()?) } else { 0..0 };
        let least = if mode.contains(FallocateFlags::KEEP_SIZE) { 0 } else { end };
        let change = Change { touched, zeroes, len: None, least, later: false };
        let act = |file: &File| Ok(rustix::fs::fallocate(file.descriptor(), mode, offset, length)?);
        self.change(change, act).map(|(done, _)| done)
    }
}

impl<B: Backing> Backing for Volatile<B> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn read(&self, offset: u64, size: usize, into: &mut Vec<u8>) -> io::Result<()> {
        self.account.powered()?;
        self.inner.read(offset, size, into)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.begin_write(offset, data, false).map(drop)
    }
    fn begin_write(&self, offset: u64, data: &[u8], later: bool) -> io::Result<Option<Unanswered>> {
        let end = offset + data.len() as u64;
        // Writing nothing makes nothing longer.
        let least = if data.is_empty() { 0 } else { end };
        let change = Change { touched: offset..end, zeroes: false, len: None, least, later };
        self.change(change, |inner| inner.write(offset, data)).map(|((), unanswered)| unanswered)
    }
    fn sync(&self) -> io::Result<()> {
        self.begin_flush()?.land()
    }
    fn begin_flush(&self) -> io::Result<Landing> {
        let account = self.account.clone();
        account.powered()?;
        let (covered, cuts) = {
            let mut traffic = account.traffic.lock();
            (traffic.begin_flush(), traffic.cuts)
        };
        let flush = Flush { account, covered, cuts };
        self.inner.sync()?;
        Ok(Landing::of(move || flush.land()))
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        // What is cut off may come back.
        let touched = len..self.inner.len()?.max(len);
        let change = Change { touched, zeroes: true, len: Some(len), least: 0, later: false };
        self.change(change, |inner| inner.set_len(len)).map(drop)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.begin_punch(offset, len, false).map(drop)
    }
    fn begin_punch(&self, offset: u64, len: u64, later: bool) -> io::Result<Option<Unanswered>> {
        let end = offset.saturating_add(len).min(self.inner.len()?).max(offset);
        let change = Change { touched: offset..end, zeroes: true, len: None, least: 0, later };
        self.change(change, |inner| inner.punch(offset, len)).map(|((), unanswered)| unanswered)
    }
    fn data(&self, within: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        self.inner.data(within)
    }
}

#[cfg(test)]
mod tests;
