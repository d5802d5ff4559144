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
    disk.account.dead.store(true, SeqCst);
    assert_eq!(disk.write(0, &[1]).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(disk.read(0, 1, &mut Vec::new()).is_err() && disk.sync().is_err() && disk.set_len(0).is_err());
    assert!(disk.is_clean());
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// What has happened to a disk whose flushes take their time.
struct Past {
    disk: Volatile<Memory>,
    dice: Dice,
    /// What the newest answered flush covered.
    flushed: Vec<u8>,
    /// Flushes under way, each with its place in line and what was there when it came.
    under_way: Vec<(u64, Landing, Vec<u8>)>,
    landed: u64,
    /// Something was cut off and is not durable.
    shrunk: bool,
}

impl Past {
    fn new(seed: u64) -> Past {
        let disk = volatile(30_000);
        let flushed = content(&disk);
        Past { disk, dice: Dice(seed), flushed, under_way: Vec::new(), landed: 0, shrunk: false }
    }

    fn step(&mut self, n: u64) {
        let (disk, dice) = (&self.disk, &mut self.dice);
        let offset = dice.below(60_000);
        let size = 1 + dice.below(9000);
        match dice.below(14) {
            0..8 => disk.write(offset, &vec![(n % 251) as u8 + 1; size as usize]).unwrap(),
            8 => disk.punch(offset, size).unwrap(),
            9 => {
                self.shrunk |= offset < disk.len().unwrap();
                disk.set_len(offset).unwrap();
            }
            10 | 11 => self.under_way.push((n + 1, disk.begin_flush().unwrap(), content(disk))),
            12 if !self.under_way.is_empty() => {
                let which = dice.below(self.under_way.len() as u64) as usize;
                let (number, landing, was) = self.under_way.swap_remove(which);
                landing.land().unwrap();
                if number > self.landed {
                    (self.landed, self.flushed) = (number, was);
                }
            }
            _ => {
                disk.sync().unwrap();
                (self.landed, self.flushed, self.shrunk) = (n + 1, content(disk), false);
            }
        }
    }
}

/// A cut after every step of many histories: with nothing surviving, exactly what an answered flush covered
/// is there, and flushes under way fail.
#[test]
fn a_cut_at_every_step_leaves_what_was_flushed() {
    let mut failed = 0;
    for seed in 0..60 {
        for cut_at in 0..40 {
            let mut past = Past::new(seed);
            (0..cut_at).for_each(|n| past.step(n));
            let Past { disk, flushed, under_way, .. } = past;
            disk.account.dead.store(true, SeqCst);
            let mut report = CutReport::default();
            disk.cut(&PowerCut::default(), 0, &mut report).unwrap();
            // As when the power is back before somebody comes to answer.
            disk.account.dead.store(seed % 2 == 0, SeqCst);
            for (_, landing, _) in under_way {
                assert_eq!(landing.land().unwrap_err().raw_os_error(), Some(libc::EIO));
                failed += 1;
            }
            assert!(content(disk.inner()) == flushed, "seed {seed}, cut after {cut_at} steps");
            assert_eq!(report.kept_blocks + report.torn_blocks, 0);
            assert!(disk.is_clean());
        }
    }
    assert!(failed > 1000, "{failed}");
}

/// With survivors, every piece of 512 bytes is as flushed or as written last, and never anything else; but
/// where a truncation survives, so does what was written before it.
#[test]
fn survivors_are_old_or_new_piece_by_piece() {
    let (mut kept, mut torn, mut lost) = (0, 0, 0);
    for seed in 0..120 {
        let mut past = Past::new(seed);
        (0..25).for_each(|n| past.step(n));
        let Past { disk, mut flushed, shrunk, .. } = past;
        let mut last = content(&disk);
        let cut = PowerCut { survive: Ratio(0.5), torn: Some(Bytes(512)), seed, ..PowerCut::default() };
        let mut report = CutReport::default();
        disk.cut(&cut, 0, &mut report).unwrap();
        let after = content(disk.inner());
        let longest = flushed.len().max(last.len());
        assert!(shrunk || after.len() <= longest && after.len() >= flushed.len().min(last.len()));
        flushed.resize(longest.max(after.len()), 0);
        last.resize(longest.max(after.len()), 0);
        for (n, piece) in after.chunks(512).enumerate() {
            let range = n * 512..n * 512 + piece.len();
            assert!(
                shrunk || piece == &flushed[range.clone()] || piece == &last[range],
                "seed {seed}, piece {n}"
            );
        }
        kept += report.kept_blocks;
        torn += report.torn_blocks;
        lost += report.lost_blocks;
    }
    assert!(kept > 50 && torn > 50 && lost > 100, "{kept} {torn} {lost}");
}

fn cut(disk: &Volatile<Memory>, how: &str) -> CutReport {
    let mut report = CutReport::default();
    disk.cut(&how.parse().unwrap(), 0, &mut report).unwrap();
    report
}

#[test]
fn a_truncation_survives_or_not() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..40 {
        let disk = volatile(0);
        disk.write(0, &[1; 60_000]).unwrap();
        disk.sync().unwrap();
        disk.set_len(10_000).unwrap();
        cut(&disk, &format!("survive=50%,seed={seed}"));
        match content(disk.inner()) {
            content if content == [1; 60_000] => old += 1,
            content if content == [1; 10_000] => new += 1,
            other => panic!("{} bytes, neither old nor new", other.len()),
        }
    }
    assert!(old > 5 && new > 5, "{old} {new}");
}

#[test]
fn what_was_written_after_a_truncation_survives_only_with_it() {
    let (mut old, mut mixed) = (0, 0);
    for seed in 0..60 {
        let disk = volatile(0);
        disk.write(0, &[1; 60_000]).unwrap();
        disk.sync().unwrap();
        disk.set_len(0).unwrap();
        disk.write(0, &[2; 20_480]).unwrap();
        // Beyond the old end, too.
        disk.write(65_536, &[2; 4096]).unwrap();
        cut(&disk, &format!("survive=50%,seed={seed}"));
        let content = content(disk.inner());
        if content == [1; 60_000] {
            old += 1;
        } else {
            assert!(content.iter().all(|byte| [0, 2].contains(byte)), "seed {seed}: the old is cut off");
            assert!(content.len() <= 20_480 || content.len() == 69_632);
            mixed += 1;
        }
    }
    assert!(old > 10 && mixed > 10, "{old} {mixed}");
}

#[test]
fn a_flush_does_not_cover_what_nobody_had_been_told_of() {
    let disk = volatile(8192);
    disk.write(0, &[1; 4096]).unwrap();
    let under_way = disk.begin_write(0, &[2; 4096], true).unwrap();
    disk.sync().unwrap();
    drop(under_way);
    // Answered now, and written again while the next flush is under way.
    let landing = disk.begin_flush().unwrap();
    disk.write(0, &[3; 4096]).unwrap();
    landing.land().unwrap();
    disk.write(4096, &[4; 4096]).unwrap();
    let under_way = disk.begin_punch(0, 4096, true).unwrap();
    disk.sync().unwrap();
    assert_eq!(cut(&disk, "survive=0%").lost_blocks, 1);
    assert_eq!(content(disk.inner())[..4096], [3; 4096]);
    assert_eq!(content(disk.inner())[4096..], [4; 4096]);
    drop(under_way);
    // The same without the third write: the second is what the flush covered.
    let disk = volatile(4096);
    disk.write(0, &[1; 4096]).unwrap();
    let second = disk.begin_write(0, &[2; 4096], true).unwrap();
    let landing = disk.begin_flush().unwrap();
    drop(second);
    landing.land().unwrap();
    cut(&disk, "survive=0%");
    assert_eq!(content(disk.inner()), [1; 4096]);
}

/// The file is as long as what is durable in it, even if nothing that made it so long is.
#[test]
fn what_a_flush_covers_is_not_cut_off_with_a_longer_write_that_it_does_not_cover() {
    let disk = volatile(0);
    let longer = disk.begin_write(40_960, &[1; 4096], true).unwrap();
    disk.write(8192, &[2; 4096]).unwrap();
    disk.sync().unwrap();
    drop(longer);
    // Another flush that has nothing to cover of it changes nothing.
    let again = disk.begin_write(49_152, &[1; 4096], true).unwrap();
    disk.write(0, &[3; 100]).unwrap();
    disk.sync().unwrap();
    drop(again);
    cut(&disk, "survive=0%");
    let found = content(disk.inner());
    assert!(found.len() >= 45_056, "the first of the longer writes was answered before the last flush");
    let disk = volatile(0);
    let longer = disk.begin_write(40_960, &[1; 4096], true).unwrap();
    disk.write(8192, &[2; 4096]).unwrap();
    disk.sync().unwrap();
    cut(&disk, "survive=0%");
    let found = content(disk.inner());
    assert_eq!(found.len(), 12_288);
    assert!(found[..8192] == [0; 8192] && found[8192..] == [2; 4096]);
    drop(longer);
    // What was cut off afterwards, and that is durable, does not come back.
    let disk = volatile(0);
    let longer = disk.begin_write(40_960, &[1; 4096], true).unwrap();
    disk.write(8192, &[2; 4096]).unwrap();
    disk.sync().unwrap();
    disk.set_len(1000).unwrap();
    let again = disk.begin_write(20_480, &[1; 4096], true).unwrap();
    disk.sync().unwrap();
    cut(&disk, "survive=0%");
    assert_eq!(content(disk.inner()), [0; 1000]);
    drop((longer, again));
}

#[test]
fn writes_without_any_flush_are_noted_up_to_a_bound() {
    let disk = volatile(0);
    let longer = disk.begin_write(40_960, &[1; 4096], true).unwrap();
    for n in 0..10 * MOST_INSIDE as u64 {
        disk.write(n % 9 * 4096, &[2; 4096]).unwrap();
    }
    assert!(disk.account.lengths.lock().inside.len() <= MOST_INSIDE);
    drop(longer);
}

#[test]
fn zeroing_is_undone_and_costs_nothing_where_nothing_is() {
    let disk = volatile(1 << 40);
    disk.write(1 << 30, &[7; 8192]).unwrap();
    disk.sync().unwrap();
    disk.punch(0, 1 << 40).unwrap();
    assert_eq!(disk.account.bytes.load(SeqCst), 8192);
    let mut got = Vec::new();
    disk.read(1 << 30, 8192, &mut got).unwrap();
    assert_eq!(got, [0; 8192]);
    assert_eq!(cut(&disk, "survive=0%").lost_blocks, 2);
    disk.inner().read(1 << 30, 8192, &mut got).unwrap();
    assert_eq!(got, [7; 8192]);
}

#[test]
fn a_block_written_again_returns_to_what_had_drained() {
    let disk = volatile(4096);
    disk.write(0, &[1; 4096]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(400));
    disk.write(0, &[2; 4096]).unwrap();
    let report = cut(&disk, "drained_after=300ms");
    assert_eq!((content(disk.inner()), report.lost_blocks), (vec![1; 4096], 1));
}

#[test]
fn what_was_written_long_ago_has_drained() {
    let disk = volatile(8192);
    disk.write(0, &[7; 4096]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    disk.write(4096, &[8; 4096]).unwrap();
    let cut = PowerCut { drained_after: Some(std::time::Duration::from_millis(20)), ..PowerCut::default() };
    disk.cut(&cut, 0, &mut CutReport::default()).unwrap();
    assert_eq!(content(disk.inner())[..4096], [7; 4096]);
}
