//! What a disk can do, as people write it: `iops=600,latency=7ms`.

use super::{Kind, ServiceHistogram, Spindle};
use crate::units::{Bytes, ParseError, Rate, Ratio, span};
use std::num::NonZeroU32;
use std::time::Duration;

/// A disk's abilities. Whatever is absent does not limit: the default is a disk that answers at once.
///
/// Printed and parsed in one compact form, `parse(print(x)) == x`. In files it is a table with units in
/// the keys (`latency_ns = 7000000`) or in the values (`latency = "7 ms"`), or the compact form as text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    /// What people call it ("gp3"); letters, digits, `-`, `_`, `.` and `+`.
    pub name: Option<String>,
    /// Reads and writes per second that the gate lets through, evenly spaced; a request that comes late
    /// does not make up for the time lost.
    pub iops: Option<Rate>,
    /// The same for reads alone.
    pub read_iops: Option<Rate>,
    /// The same for writes alone.
    pub write_iops: Option<Rate>,
    /// A request of more bytes than this passes the gates as several, as clouds count them.
    pub request_unit: Option<Bytes>,
    /// A bucket of credits above `iops`, which then is the rate at which it fills.
    pub burst: Option<Burst>,
    /// Bytes per second over one pipe that reads and writes share.
    pub bandwidth: Option<Bytes>,
    /// Bytes per second of reads alone.
    pub read_bandwidth: Option<Bytes>,
    /// Bytes per second of writes alone.
    pub write_bandwidth: Option<Bytes>,
    /// Service time of a read, and of a write unless `write_latency` says otherwise.
    pub latency: Duration,
    /// Service time of a write; `None` = as a read.
    pub write_latency: Option<Duration>,
    /// Service time of a flush. A flush passes no gate and no pipe, because it carries no data.
    pub flush_latency: Duration,
    /// How many requests are in service at once; more wait in line. `None` = no limit, or one if it spins.
    pub parallel: Option<NonZeroU32>,
    /// In which order requests are taken from the line.
    pub order: Order,
    /// With [`Order::ReadsFirst`]: how many requests the device takes in; those no read overtakes any more.
    /// `None` = only those that are being served.
    pub depth: Option<NonZeroU32>,
    /// How service times scatter around the latency.
    pub spread: Spread,
    /// A cache that takes writes at `write_latency` while it has room; a flush waits until it is empty.
    pub cache: Option<Cache>,
    /// A spinning disk: seeks, rotations and transfers come on top of the latency.
    pub spindle: Option<Spindle>,
    /// Several of such disks in RAID 0: everything else is what each of them can do. `None` = one.
    pub array: Option<Array>,
    /// Hours in which it is slower, as beside noisy neighbours.
    pub busy: Option<BusyHours>,
}

/// Hours of the day in which every request takes longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyHours {
    /// How many times as long its service takes; it passes the gates as so many requests, and the pipes as so
    /// many times its bytes.
    pub times: NonZeroU32,
    /// From when on, since midnight UTC.
    pub from: Duration,
    /// Until when; earlier than `from` where it is over midnight.
    pub until: Duration,
    /// After which it begins again: a day, or less to see it sooner.
    pub period: Duration,
}

impl BusyHours {
    /// A day.
    pub const DAY: Duration = Duration::from_secs(86_400);

    /// How many times as long a request takes that comes then, in nanoseconds since a midnight UTC.
    pub fn times_at(self, ns: u64) -> u64 {
        let now = Duration::from_nanos(ns % (self.period.as_nanos() as u64).max(1));
        let within = match self.from < self.until {
            true => self.from <= now && now < self.until,
            false => self.from <= now || now < self.until,
        };
        if within { u64::from(self.times.get()) } else { 1 }
    }

    fn check(self) -> Result<(), SpecError> {
        let spans = [("busy_from", self.from), ("busy_until", self.until)];
        if !(Duration::from_millis(1)..=7 * BusyHours::DAY).contains(&self.period) {
            return Err(impossible("busy_period", span::print(self.period), "1 ms to a week are possible"));
        }
        if let Some((key, late)) = spans.into_iter().find(|(_, at)| *at > self.period) {
            return Err(impossible(key, span::print(late), "it cannot be beyond busy_period"));
        }
        if self.from == self.until {
            return Err(impossible("busy_until", span::print(self.until), "it cannot be busy_from"));
        }
        if self.times.get() > 10_000 {
            return Err(impossible("busy_times", self.times, "10000 are the most"));
        }
        Ok(())
    }
}

/// Disks joined in RAID 0 (striping), as `mdadm --level=0` joins them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// How many.
    pub disks: NonZeroU32,
    /// So many bytes lie on one disk before the next has its turn.
    pub chunk: Bytes,
}

impl Array {
    /// What mdadm takes unless told otherwise.
    pub const CHUNK: Bytes = Bytes::kib(512);
    /// As many as anybody joins without redundancy.
    const MOST: u32 = 256;

    /// What each disk gets of a request, by the disk's number: where on it that begins, and how many bytes. A
    /// disk's chunks follow one another, so it is one request to each.
    pub fn parts(self, offset: u64, size: Bytes) -> impl Iterator<Item = (usize, u64, Bytes)> {
        let (disks, chunk) = (u64::from(self.disks.get()), self.chunk.0);
        let (first, end) = (offset / chunk, offset.saturating_add(size.0));
        let last = end.saturating_sub(1).max(offset) / chunk;
        // Of the chunks up to the end, those that are this disk's, and before the offset likewise.
        let up_to = move |at: u64, disk: u64| {
            let (row, within) = (at / chunk / disks * chunk, at / chunk % disks);
            row + match disk.cmp(&within) {
                std::cmp::Ordering::Less => chunk,
                std::cmp::Ordering::Equal => at % chunk,
                std::cmp::Ordering::Greater => 0,
            }
        };
        (first..=last).take(disks as usize).map(move |chunk| {
            let disk = chunk % disks;
            let begins = up_to(offset, disk);
            (disk as usize, begins, Bytes(up_to(end, disk) - begins))
        })
    }
}

/// Burst credits: a request takes one, `iops` credits come back per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Operations per second while there are credits.
    pub iops: Rate,
    /// The most credits that gather.
    pub credits: u64,
    /// Credits when the shape is set; `None` = full.
    pub start: Option<u64>,
}

/// A write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// What fits in.
    pub size: Bytes,
    /// Bytes per second that go on to the medium.
    pub drain: Bytes,
}

/// In which order waiting requests are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// As they came.
    #[default]
    Fifo,
    /// A write waits while a read does, as under the kernel's deadline schedulers, but without their
    /// deadlines.
    ReadsFirst,
}

/// How service times scatter around their mean.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Spread {
    /// Always the mean.
    #[default]
    Constant,
    /// Anywhere within this share of the mean on either side, each value alike: 0..=1.
    Uniform(Ratio),
    /// Memoryless, as queueing formulas like it.
    Exponential,
    /// As measured somewhere: the form of this histogram, scaled to the mean.
    Measured(ServiceHistogram),
}

/// A disk's description that could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// A key that no disk has.
    #[error("a disk has no key {key:?}{hint} (keys: {})", super::text::KEYS.join(", "))]
    Unknown {
        /// What was given.
        key: String,
        /// The nearest one.
        hint: String,
    },
    /// A part without `=`.
    #[error("{0:?} is not key=value; a disk is written like \"iops=600,latency=7ms\"")]
    NotAPair(String),
    /// The same key again.
    #[error("{0:?} is given twice")]
    Twice(&'static str),
    /// A value without the right unit.
    #[error("{key}: {reason}")]
    Value {
        /// Whose value.
        key: &'static str,
        /// What is wrong with it.
        reason: ParseError,
    },
    /// A key that means something only beside another one.
    #[error("{key} is nothing without {needs}")]
    Needs {
        /// The lonely key.
        key: &'static str,
        /// What it belongs to.
        needs: &'static str,
    },
    /// A value that no disk can have.
    #[error("{key}: {reason}, but it is {value}")]
    Impossible {
        /// Whose value.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        reason: &'static str,
    },
}

pub(super) fn impossible(key: &'static str, value: impl ToString, reason: &'static str) -> SpecError {
    SpecError::Impossible { key, value: value.to_string(), reason }
}

/// As how many a request of this size passes gates that count in such units.
pub(super) fn units(unit: Option<Bytes>, size: Bytes) -> u64 {
    unit.map_or(1, |unit| size.0.div_ceil(unit.0).max(1))
}

impl Spec {
    /// Whether nothing limits this disk, so that requests need not pass the model's stations at all.
    pub fn is_unlimited(&self) -> bool {
        let rates = [self.iops, self.read_iops, self.write_iops];
        let pipes = [self.bandwidth, self.read_bandwidth, self.write_bandwidth];
        rates.iter().all(Option::is_none)
            && pipes.iter().all(Option::is_none)
            && self.latency.is_zero()
            && self.write_latency.is_none_or(|l| l.is_zero())
            && self.flush_latency.is_zero()
            && self.cache.is_none()
            && self.spindle.is_none()
    }

    /// The same disk in slow motion: everything that it does takes `times` as long. What waits where stays
    /// the same, and all latencies are `times` as long.
    pub fn slowed(&self, times: u32) -> Spec {
        let factor = f64::from(times.max(1));
        let rate = |rate: Option<Rate>| rate.map(|rate| Rate(rate.0 / factor));
        let slower = |pipe: Bytes| Bytes(((pipe.0 as f64 / factor) as u64).max(1));
        let pipe = |pipe: Option<Bytes>| pipe.map(slower);
        let longer = |time: Duration| time * times.max(1);
        Spec {
            iops: rate(self.iops),
            read_iops: rate(self.read_iops),
            write_iops: rate(self.write_iops),
            burst: self.burst.map(|burst| Burst { iops: Rate(burst.iops.0 / factor), ..burst }),
            bandwidth: pipe(self.bandwidth),
            read_bandwidth: pipe(self.read_bandwidth),
            write_bandwidth: pipe(self.write_bandwidth),
            latency: longer(self.latency),
            write_latency: self.write_latency.map(longer),
            flush_latency: longer(self.flush_latency),
            cache: self.cache.map(|cache| Cache { drain: slower(cache.drain), ..cache }),
            spindle: self.spindle.map(|spindle| Spindle {
                rpm: (spindle.rpm / times.max(1)).max(1),
                seek_track: longer(spindle.seek_track),
                seek_full: longer(spindle.seek_full),
                ..spindle
            }),
            ..self.clone()
        }
    }

    /// What it is all day long in its busy hours.
    pub fn at_its_busiest(&self) -> Spec {
        let slowed = self.busy.map(|busy| Spec { busy: None, ..self.slowed(busy.times.get()) });
        slowed.unwrap_or_else(|| self.clone())
    }

    /// Mean service time of a request of this kind, without what a spindle adds.
    pub fn service(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Read => self.latency,
            Kind::Write => self.write_latency.unwrap_or(self.latency),
            Kind::Flush => self.flush_latency,
            Kind::Discard => Duration::ZERO,
        }
    }

    /// How many requests each of its disks serves at once; `None` = all.
    pub fn servers(&self) -> Option<u32> {
        self.parallel.map(NonZeroU32::get).or_else(|| self.spindle.map(|_| 1))
    }

    /// How many disks it is.
    pub fn disks(&self) -> u32 {
        self.array.map_or(1, |array| array.disks.get())
    }

    /// Whether it can do at least what `other` can, in every respect. Disks that differ in how they order or
    /// scatter requests, or in their cache or spindle, are not comparable: neither is at least the other.
    pub fn is_at_least(&self, other: &Spec) -> bool {
        // What has no limit can do any amount.
        fn most<T: PartialOrd>(this: Option<T>, other: Option<T>) -> bool {
            match (this, other) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(this), Some(other)) => this >= other,
            }
        }
        let ways = [Kind::Read, Kind::Write, Kind::Flush];
        let chunk = |spec: &Spec| spec.array.map(|array| array.chunk);
        (&self.order, &self.depth, &self.spread, &self.cache, &self.spindle)
            == (&other.order, &other.depth, &other.spread, &other.cache, &other.spindle)
            && (other.array.is_none() || chunk(self) == chunk(other) && self.disks() >= other.disks())
            && (self.burst == other.burst || other.burst.is_none())
            && (self.busy == other.busy || self.busy.is_none())
            && [
                (self.iops, other.iops),
                (self.read_iops, other.read_iops),
                (self.write_iops, other.write_iops),
            ]
            .into_iter()
            .all(|(this, other)| most(this.map(|rate| rate.0), other.map(|rate| rate.0)))
            && [
                (self.bandwidth, other.bandwidth),
                (self.read_bandwidth, other.read_bandwidth),
                (self.write_bandwidth, other.write_bandwidth),
                (self.request_unit, other.request_unit),
            ]
            .into_iter()
            .all(|(this, other)| most(this, other))
            && most(self.servers(), other.servers())
            && ways.into_iter().all(|kind| self.service(kind) <= other.service(kind))
    }

    /// As how many a request of this size passes the gates.
    pub fn units(&self, size: Bytes) -> u64 {
        units(self.request_unit, size)
    }

    /// The most requests per second of this kind and size, at random places, that the disk can complete for
    /// long when `clients` each keep one request in flight: the least of the latency bound, the servers, the
    /// gates (without credits) and the pipes. `None` when nothing limits. Of an array, with all disks busy,
    /// and outside busy hours.
    pub fn ceiling(&self, kind: Kind, size: Bytes, clients: u32) -> Option<Rate> {
        let disks = f64::from(self.disks());
        let busy = self.servers().map_or(clients, |p| p.saturating_mul(self.disks()).min(clients));
        let cached = kind == Kind::Write && self.cache.is_some();
        let moves_data = matches!(kind, Kind::Read | Kind::Write);
        let spindle = self.spindle.filter(|_| moves_data && !cached);
        let service = self.service(kind) + spindle.map_or(Duration::ZERO, |s| s.mean_service(size));
        let service = service.as_secs_f64();
        let served = (service > 0.0).then(|| f64::from(busy) / service);
        let (rate, pipe) = match kind {
            Kind::Read => (self.read_iops, self.read_bandwidth),
            Kind::Write => (self.write_iops, self.write_bandwidth),
            Kind::Flush | Kind::Discard => (None, None),
        };
        let units = self.units(size) as f64;
        let gate = |rate: Option<Rate>| rate.filter(|_| moves_data).map(|r| disks * r.0 / units);
        let pass =
            |pipe: Option<Bytes>| pipe.filter(|_| moves_data).map(|b| disks * b.0 as f64 / size.0 as f64);
        let drain = self.cache.filter(|_| cached).map(|cache| cache.drain);
        [served, gate(self.iops), gate(rate), pass(self.bandwidth), pass(pipe), pass(drain)]
            .into_iter()
            .flatten()
            .reduce(f64::min)
            .map(Rate)
    }

    /// Checks the values that types alone do not bound; parsing does this by itself.
    ///
    /// # Errors
    /// [`SpecError::Impossible`] or [`SpecError::Needs`] with the key at fault.
    pub fn check(&self) -> Result<(), SpecError> {
        if let Some(name) = &self.name {
            let plain = |c: char| c.is_alphanumeric() || "-_.+".contains(c);
            if name.is_empty() || !name.chars().all(plain) {
                return Err(impossible("name", name, "letters, digits and -_.+ are possible"));
            }
        }
        self.check_rates()?;
        self.busy.map_or(Ok(()), BusyHours::check)?;
        if let Spread::Uniform(share) = self.spread
            && !(0.0..=1.0).contains(&share.0)
        {
            return Err(impossible("spread", share, "0 % to 100 % are possible"));
        }
        if let Spread::Measured(histogram) = &self.spread {
            histogram.check()?;
        }
        let longest = Duration::from_secs(3600);
        let spindle = self.spindle.map_or((Duration::ZERO, Duration::ZERO), |s| (s.seek_track, s.seek_full));
        for (key, span) in [
            ("latency", self.latency),
            ("write_latency", self.write_latency.unwrap_or_default()),
            ("flush_latency", self.flush_latency),
            ("seek_track", spindle.0),
            ("seek_full", spindle.1),
        ] {
            if span > longest {
                return Err(impossible(key, span::print(span), "an hour is the longest"));
            }
        }
        if spindle.0 > spindle.1 {
            return Err(impossible("seek_full", span::print(spindle.1), "it cannot be less than seek_track"));
        }
        Ok(())
    }

    fn check_rates(&self) -> Result<(), SpecError> {
        let burst = self.burst.map(|burst| burst.iops);
        for (key, rate) in [
            ("iops", self.iops),
            ("read_iops", self.read_iops),
            ("write_iops", self.write_iops),
            ("burst_iops", burst),
        ] {
            if let Some(rate) = rate
                && !(rate.0.is_finite() && (1e-3..=1e9).contains(&rate.0))
            {
                return Err(impossible(key, rate, "between 0.001 and 1000000000 are possible"));
            }
        }
        if let Some(burst) = self.burst {
            let base = self.iops.ok_or(SpecError::Needs { key: "burst_iops", needs: "iops" })?;
            if burst.iops.0 < base.0 {
                return Err(impossible("burst_iops", burst.iops, "it cannot be less than iops"));
            }
            if burst.credits == 0 || burst.credits > 1 << 40 {
                return Err(impossible("burst_credits", burst.credits, "between 1 and 2^40 are possible"));
            }
            if burst.start.is_some_and(|start| start > burst.credits) {
                let start = burst.start.unwrap_or_default();
                return Err(impossible("burst_start", start, "it cannot be more than burst_credits"));
            }
        }
        let spindle = self.spindle.map(|s| (s.track, s.capacity));
        for (key, size) in [
            ("bandwidth", self.bandwidth),
            ("read_bandwidth", self.read_bandwidth),
            ("write_bandwidth", self.write_bandwidth),
            ("request_unit", self.request_unit),
            ("cache", self.cache.map(|c| c.size)),
            ("cache_drain", self.cache.map(|c| c.drain)),
            ("track", spindle.map(|s| s.0)),
            ("capacity", spindle.and_then(|s| s.1)),
            ("chunk", self.array.map(|array| array.chunk)),
        ] {
            if size == Some(Bytes(0)) {
                return Err(impossible(key, "0", "at least one byte is needed"));
            }
        }
        if self.disks() > Array::MOST {
            return Err(impossible("disks", self.disks(), "256 are the most"));
        }
        match self.spindle {
            Some(spindle) if !(1..=1_000_000).contains(&spindle.rpm) => {
                Err(impossible("rpm", spindle.rpm, "between 1 and 1000000 are possible"))
            }
            _ => Ok(()),
        }
    }
}
