//! What a power cut takes: everything written since the last flush, kept as what was there before.
//!
//! The backing always has the present state, so reads cost nothing. Before a block is first changed after a
//! flush its old content is remembered; a flush forgets, a cut puts it back.

use crate::backing::Backing;
use crate::clock::monotonic;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use tipover_core::device::{CutReport, Fate, PowerCut};
use tipover_core::units::Tick;

const BLOCK: u64 = 4096;
/// A device's cache is finite: with more than this remembered, all of it counts as written to the medium.
const MOST: u64 = 512 << 20;
/// Writers of different blocks seldom meet.
const SHARDS: usize = 16;
/// Old contents that are forgotten leave their memory to later ones: up to so many blocks a shard.
const SPARE: usize = 64;
/// No length was noted since the last flush.
const UNKNOWN: u64 = u64::MAX;

/// A block before it was changed; shorter where the file ended then.
struct Before {
    bytes: Vec<u8>,
    changed: Tick,
}

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

/// The blocks whose number ends alike.
#[derive(Default)]
struct Shard {
    blocks: HashMap<u64, Before, BuildHasherDefault<BlockHasher>>,
    spare: Vec<Vec<u8>>,
}

impl Shard {
    /// Everything in it is durable.
    fn forget(&mut self) {
        let spare = &mut self.spare;
        for (_, before) in self.blocks.drain() {
            if spare.len() < SPARE {
                spare.push(before.bytes);
            }
        }
    }
}

/// A backing whose power can be cut.
pub(crate) struct Volatile<B> {
    inner: B,
    /// Shared with everything that goes dark together.
    dead: Arc<AtomicBool>,
    /// Held for reading while something is changed, for writing by flushes and cuts: none of them meets a
    /// change half done.
    changing: RwLock<()>,
    /// The length at the last flush, once it may have changed; [`UNKNOWN`] before.
    len: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
    /// What all shards remember.
    bytes: AtomicU64,
    /// Whether punched ranges come back. A device may forget what was discarded whenever it likes.
    keeps_punched: bool,
}

fn no_power() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

impl<B: Backing> Volatile<B> {
    pub fn new(inner: B, dead: Arc<AtomicBool>) -> Volatile<B> {
        Volatile {
            inner,
            dead,
            changing: RwLock::new(()),
            len: AtomicU64::new(UNKNOWN),
            shards: Default::default(),
            bytes: AtomicU64::new(0),
            keeps_punched: true,
        }
    }

    /// The same for a device, whose discards need not be undone.
    pub fn device(inner: B, dead: Arc<AtomicBool>) -> Volatile<B> {
        Volatile { keeps_punched: false, ..Volatile::new(inner, dead) }
    }

    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Whether a cut now would change nothing.
    pub fn is_clean(&self) -> bool {
        self.len.load(SeqCst) == UNKNOWN && self.shards.iter().all(|shard| shard.lock().blocks.is_empty())
    }

    fn powered(&self) -> io::Result<()> {
        if self.dead.load(SeqCst) { Err(no_power()) } else { Ok(()) }
    }

    /// Changes `len` bytes from `offset` by `act`, remembering what was there.
    pub fn change<R>(&self, offset: u64, len: u64, act: impl FnOnce(&B) -> io::Result<R>) -> io::Result<R> {
        let changed = {
            let _changing = self.changing.read();
            self.powered()?;
            self.remember(offset, len)?;
            act(&self.inner)
        };
        if self.bytes.load(SeqCst) > MOST {
            let _alone = self.changing.write();
            // Somebody else may have been first.
            if self.bytes.load(SeqCst) > MOST {
                self.forget();
            }
        }
        changed
    }

    /// Everything so far is durable. For whoever holds `changing` for writing.
    fn forget(&self) {
        self.len.store(UNKNOWN, SeqCst);
        self.bytes.store(0, SeqCst);
        self.shards.iter().for_each(|shard| shard.lock().forget());
    }

    /// The length at the last flush. Whoever finds it already changed finds it noted as well: it is noted
    /// before it is changed.
    fn durable_len(&self) -> io::Result<u64> {
        let noted = self.len.load(SeqCst);
        if noted != UNKNOWN {
            return Ok(noted);
        }
        let len = self.inner.len()?;
        Ok(self.len.compare_exchange(UNKNOWN, len, SeqCst, SeqCst).map_or_else(|noted| noted, |_| len))
    }

    fn remember(&self, offset: u64, len: u64) -> io::Result<()> {
        let durable = self.durable_len()?;
        if len == 0 {
            return Ok(());
        }
        let now = monotonic();
        for block in offset / BLOCK..=(offset + len - 1) / BLOCK {
            // Held while the old content is read: a second writer of this block must not get ahead of that.
            let mut shard = self.shards[block as usize % SHARDS].lock();
            if let Some(before) = shard.blocks.get_mut(&block) {
                before.changed = now;
                continue;
            }
            let mut bytes = shard.spare.pop().unwrap_or_default();
            let size = durable.saturating_sub(block * BLOCK).min(BLOCK);
            match size {
                0 => bytes.clear(),
                // Replaces what a spare one still has: clearing it first would only fill it with zeros.
                _ => self.inner.read(block * BLOCK, size as usize, &mut bytes)?,
            }
            self.bytes.fetch_add(size, SeqCst);
            shard.blocks.insert(block, Before { bytes, changed: now });
        }
        Ok(())
    }

    /// Puts back what was not flushed. The power must be off already; `salt` tells this backing from others.
    pub fn cut(&self, cut: &PowerCut, salt: u64, report: &mut CutReport) -> io::Result<()> {
        let _alone = self.changing.write();
        let now = monotonic();
        let mut blocks: Vec<(u64, Before)> =
            self.shards.iter().flat_map(|shard| std::mem::take(&mut shard.lock().blocks)).collect();
        let durable = self.len.load(SeqCst);
        self.forget();
        if durable == UNKNOWN {
            return Ok(());
        }
        let len = self.inner.len()?;
        let mut kept_end = durable;
        blocks.sort_unstable_by_key(|(block, _)| *block);
        for (block, before) in blocks {
            let start = block * BLOCK;
            let end = (start + BLOCK).min(len);
            if start >= len && before.bytes.is_empty() {
                continue;
            }
            let drained = cut.drained_after.is_some_and(|after| now.since(before.changed) >= after);
            let fate = if drained { Fate::Kept } else { cut.fate(block ^ salt.wrapping_mul(0x9E37_79B9)) };
            let mask = match fate {
                Fate::Kept => {
                    report.kept_blocks += 1;
                    kept_end = kept_end.max(end);
                    continue;
                }
                Fate::Lost => {
                    report.lost_blocks += 1;
                    0
                }
                Fate::Torn(mask) => {
                    report.torn_blocks += 1;
                    kept_end = kept_end.max(end);
                    mask
                }
            };
            let mut old = before.bytes;
            old.resize((end.saturating_sub(start) as usize).max(old.len()), 0);
            let piece = cut.torn.map_or(BLOCK, |torn| torn.0) as usize;
            for (n, old) in old.chunks(piece).enumerate() {
                if mask & (1 << n.min(63)) == 0 {
                    report.lost_bytes += old.len() as u64;
                    self.inner.write(start + (n * piece) as u64, old)?;
                }
            }
        }
        if self.inner.len()? != kept_end {
            self.inner.set_len(kept_end)?;
        }
        Ok(())
    }
}

impl<B: Backing> Backing for Volatile<B> {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn read(&self, offset: u64, size: usize, into: &mut Vec<u8>) -> io::Result<()> {
        self.powered()?;
        self.inner.read(offset, size, into)
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(offset, data.len() as u64, |inner| inner.write(offset, data))
    }
    fn sync(&self) -> io::Result<()> {
        {
            let _alone = self.changing.write();
            self.powered()?;
            self.forget();
        }
        self.inner.sync()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let before = self.inner.len()?;
        // What is cut off may come back.
        self.change(len, before.saturating_sub(len), |inner| inner.set_len(len))
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if !self.keeps_punched {
            let _changing = self.changing.read();
            self.powered()?;
            return self.inner.punch(offset, len);
        }
        let end = offset.saturating_add(len).min(self.inner.len()?);
        self.change(offset, end.saturating_sub(offset), |inner| inner.punch(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backing::{Memory, contract};
    use tipover_core::units::{Bytes, Ratio};

    fn volatile(len: u64) -> Volatile<Memory> {
        Volatile::new(Memory::new(len).unwrap(), Arc::default())
    }

    fn content(backing: &impl Backing) -> Vec<u8> {
        let mut all = Vec::new();
        backing.read(0, backing.len().unwrap() as usize, &mut all).unwrap();
        all
    }

    #[test]
    fn it_keeps_the_contract() {
        contract::check(|len| Box::new(volatile(len)));
    }

    #[test]
    fn without_power_nothing_is_read_or_written() {
        let disk = volatile(8192);
        disk.dead.store(true, SeqCst);
        assert_eq!(disk.write(0, &[1]).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert!(
            disk.read(0, 1, &mut Vec::new()).is_err() && disk.sync().is_err() && disk.set_len(0).is_err()
        );
        assert!(disk.is_clean());
    }

    struct Dice(u64);

    impl Dice {
        fn below(&mut self, most: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % most
        }
    }

    /// One step of a history, the same on any backing.
    fn step(disk: &impl Backing, dice: &mut Dice, n: u64) -> bool {
        let offset = dice.below(60_000);
        let size = 1 + dice.below(9000);
        match dice.below(12) {
            0..8 => disk.write(offset, &vec![(n % 251) as u8 + 1; size as usize]).unwrap(),
            8 => disk.punch(offset, size).unwrap(),
            9 => disk.set_len(offset).unwrap(),
            _ => {
                disk.sync().unwrap();
                return true;
            }
        }
        false
    }

    /// A cut after every step of many histories: with nothing surviving, exactly what was flushed is there.
    #[test]
    fn a_cut_at_every_step_leaves_what_was_flushed() {
        for seed in 0..40 {
            for cut_at in 0..40 {
                let disk = volatile(30_000);
                let (mut dice, mut flushed) = (Dice(seed), content(&disk));
                for n in 0..cut_at {
                    if step(&disk, &mut dice, n) {
                        flushed = content(&disk);
                    }
                }
                disk.dead.store(true, SeqCst);
                let mut report = CutReport::default();
                disk.cut(&PowerCut::default(), 0, &mut report).unwrap();
                assert!(content(disk.inner()) == flushed, "seed {seed}, cut after {cut_at} steps");
                assert_eq!(report.kept_blocks + report.torn_blocks, 0);
            }
        }
    }

    /// With survivors, every piece of 512 bytes is as flushed or as written last, and never anything else.
    #[test]
    fn survivors_are_old_or_new_piece_by_piece() {
        let (mut kept, mut torn, mut lost) = (0, 0, 0);
        for seed in 0..60 {
            let disk = volatile(30_000);
            let (mut dice, mut flushed) = (Dice(seed), content(&disk));
            for n in 0..25 {
                if step(&disk, &mut dice, n) {
                    flushed = content(&disk);
                }
            }
            let mut last = content(&disk);
            let cut = PowerCut { survive: Ratio(0.5), torn: Some(Bytes(512)), seed, ..PowerCut::default() };
            let mut report = CutReport::default();
            disk.cut(&cut, 0, &mut report).unwrap();
            let after = content(disk.inner());
            let longest = flushed.len().max(last.len());
            assert!(after.len() <= longest && after.len() >= flushed.len().min(last.len()));
            flushed.resize(longest, 0);
            last.resize(longest, 0);
            for (n, piece) in after.chunks(512).enumerate() {
                let range = n * 512..n * 512 + piece.len();
                assert!(piece == &flushed[range.clone()] || piece == &last[range], "seed {seed}, piece {n}");
            }
            kept += report.kept_blocks;
            torn += report.torn_blocks;
            lost += report.lost_blocks;
        }
        assert!(kept > 50 && torn > 50 && lost > 100, "{kept} {torn} {lost}");
    }

    #[test]
    fn what_was_written_long_ago_has_drained() {
        let disk = volatile(8192);
        disk.write(0, &[7; 4096]).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        disk.write(4096, &[8; 4096]).unwrap();
        let cut =
            PowerCut { drained_after: Some(std::time::Duration::from_millis(20)), ..PowerCut::default() };
        disk.cut(&cut, 0, &mut CutReport::default()).unwrap();
        assert_eq!(content(disk.inner())[..4096], [7; 4096]);
    }
}
