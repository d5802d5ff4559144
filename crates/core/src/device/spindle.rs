//! A spinning disk: where the arm is, where the platter is, and how long both take.

use super::{Demand, Kind, Spec};
use crate::units::{Bytes, Tick};
use std::time::Duration;

/// What makes a disk spin. Positions are offsets: the first byte is on the outermost track, the last one on
/// the innermost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spindle {
    /// Rotations per minute.
    pub rpm: u32,
    /// Moving the arm to the next track.
    pub seek_track: Duration,
    /// Moving the arm over all tracks.
    pub seek_full: Duration,
    /// Bytes that pass the head in one rotation; with `rpm` this is the transfer rate.
    pub track: Bytes,
    /// Bytes from the outermost track to the innermost; `None` = as many as the mounted disk has.
    pub capacity: Option<Bytes>,
}

impl Spindle {
    /// One rotation.
    pub fn rotation(&self) -> Duration {
        Duration::from_nanos(60_000_000_000 / u64::from(self.rpm))
    }

    /// How long the arm moves over this share of all tracks: `a + b sqrt(d)`, the short-seek curve of
    /// Ruemmler and Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994, taken over
    /// the whole stroke.
    pub fn seek(&self, share: f64) -> Duration {
        if share <= 0.0 {
            return Duration::ZERO;
        }
        let (least, most) = (self.seek_track.as_secs_f64(), self.seek_full.as_secs_f64());
        Duration::from_secs_f64(least + (most - least) * share.min(1.0).sqrt())
    }

    /// Mean seek between two places drawn at random: the distance `d` has density `2(1-d)`, so the mean of
    /// its root is 8/15.
    pub fn mean_seek(&self) -> Duration {
        let (least, most) = (self.seek_track.as_secs_f64(), self.seek_full.as_secs_f64());
        Duration::from_secs_f64(least + (most - least) * 8.0 / 15.0)
    }

    /// How long this many bytes pass under the head.
    pub fn transfer(&self, size: Bytes) -> Duration {
        self.rotation().mul_f64(size.0 as f64 / self.track.0 as f64)
    }

    /// Mean time of a request of this size at a random place: seek, half a rotation, transfer.
    pub fn mean_service(&self, size: Bytes) -> Duration {
        self.mean_seek() + self.rotation() / 2 + self.transfer(size)
    }
}

/// The arm in motion.
#[derive(Debug, Clone)]
pub(super) struct Arm {
    spindle: Spindle,
    capacity: u64,
    /// Where the last request ended.
    position: u64,
}

impl Arm {
    pub fn new(spec: &Spec, device: Bytes) -> Option<Arm> {
        let spindle = spec.spindle?;
        let capacity = spindle.capacity.unwrap_or(device).0.max(spindle.track.0);
        Some(Arm { spindle, capacity, position: 0 })
    }

    /// How long a request takes that begins at `at`, and leaves the arm at its end. What begins where the
    /// last one ended streams: a read, because its track is in the disk's own buffer, and a write that came
    /// while another request was under way (`in_line`). One that came to an idle disk waits until its place
    /// comes round, as that of a log does which is flushed before the next one is sent.
    pub fn serve(&mut self, at: Tick, in_line: bool, &Demand { kind, offset, size }: &Demand) -> Duration {
        let begin = offset % self.capacity;
        let transfer = self.spindle.transfer(size);
        let streams = begin == self.position % self.capacity && (kind == Kind::Read || in_line);
        let from = std::mem::replace(&mut self.position, begin + size.0);
        if streams {
            return transfer;
        }
        let track = self.spindle.track.0;
        let distance = (begin / track).abs_diff(from / track) as f64 / (self.capacity / track).max(1) as f64;
        let seek = self.spindle.seek(distance);
        let rotation = self.spindle.rotation().as_nanos() as u64;
        let under_head = (at.0 + seek.as_nanos() as u64) % rotation;
        // Where on its track the place lies, as the time at which the platter has turned there.
        let wanted = (u128::from(begin % track) * u128::from(rotation) / u128::from(track)) as u64;
        let wait = (rotation + wanted - under_head) % rotation;
        seek + Duration::from_nanos(wait) + transfer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPINDLE: Spindle = Spindle {
        rpm: 7200,
        seek_track: Duration::from_millis(1),
        seek_full: Duration::from_millis(16),
        track: Bytes::mib(1),
        capacity: Some(Bytes::gib(100)),
    };

    fn arm() -> Arm {
        Arm::new(&Spec { spindle: Some(SPINDLE), ..Spec::default() }, Bytes(0)).unwrap()
    }

    fn read(offset: u64, size: Bytes) -> Demand {
        Demand { kind: Kind::Read, offset, size }
    }

    fn random(x: &mut u64) -> u64 {
        *x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        *x >> 20
    }

    #[test]
    fn random_places_cost_mean_seek_and_half_a_rotation() {
        let (mut arm, mut x, mut at, mut sum) = (arm(), 1, Tick(0), Duration::ZERO);
        let count = 20_000u32;
        for _ in 0..count {
            let took = arm.serve(at, false, &read(random(&mut x) & !4095, Bytes::kib(4)));
            sum += took;
            at = at + took;
        }
        let mean = sum.as_secs_f64() / f64::from(count);
        let theory = SPINDLE.mean_service(Bytes::kib(4)).as_secs_f64();
        assert!((mean / theory - 1.0).abs() < 0.01, "{mean} against {theory}");
        // 60 / (2 * 7200) s of it is the rotation.
        assert!((SPINDLE.rotation().as_secs_f64() / 2.0 - 60.0 / 14_400.0).abs() < 1e-8);
    }

    #[test]
    fn a_sequential_run_streams_at_the_tracks_rate() {
        let (mut arm, mut at) = (arm(), Tick(0));
        for n in 0..256u64 {
            at = at + arm.serve(at, false, &read(n << 20, Bytes::mib(1)));
        }
        let rate = 256.0 / at.since(Tick(0)).as_secs_f64();
        assert!((rate / 120.0 - 1.0).abs() < 0.01, "120 rotations a second of 1 MiB each: {rate}");
    }

    #[test]
    fn writes_one_after_the_other_stream_only_while_the_next_one_is_in_line() {
        let rounds = |kind, in_line| {
            let (mut arm, mut at) = (arm(), Tick(0));
            for n in 1..=500u64 {
                at = at + arm.serve(at, in_line, &Demand { kind, offset: n * 4096, size: Bytes::kib(4) });
                at = at + Duration::from_micros(100);
            }
            (at.since(Tick(0)) / 500).as_secs_f64() / SPINDLE.rotation().as_secs_f64()
        };
        let late = rounds(Kind::Write, false);
        assert!((late - 1.0).abs() < 0.02, "{late} rotations for each write");
        assert!(rounds(Kind::Write, true) < 0.03 && rounds(Kind::Read, false) < 0.03);
    }

    #[test]
    fn near_is_faster_than_far() {
        let mean = |reach: u64| {
            let (mut arm, mut x, mut at) = (arm(), 1, Tick(0));
            for _ in 0..2000 {
                at = at + arm.serve(at, false, &read((random(&mut x) % reach) & !4095, Bytes::kib(4)));
            }
            at.since(Tick(0)) / 2000
        };
        assert!(mean(1 << 28) < mean(1 << 33) && mean(1 << 33) < mean(100 << 30));
    }
}
