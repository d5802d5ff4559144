//! What a system would do with other memory, another disk, other processors or more data: hit ratios,
//! throughput, percentiles, always as intervals.
//!
//! [`cache`] says what the engine's cache and the page cache answer, [`queue`] what waiting the rest costs.
//! What is not known of a [`System`] is a [`Range`]; draws of it are pushed through both, and those that
//! disagree with measured hit ratios are dropped. [`plan`] compares candidates. What records say of a
//! system is read in `study::evidence`. Where there is no model, [`bracket`] compares candidates with places
//! that were searched.

pub mod bracket;
pub mod cache;
pub mod plan;
pub mod queue;

use crate::device::Spec;
use crate::probability::normal_quantile;
use crate::units::Bytes;
use crate::workload::Random;
use cache::{Hits, Policy, Popularity};
use queue::{Limits, Load, Work, Writes};
use serde::Serialize;

/// How far discrete events were from the published cells at most, in logarithms, at 90 %: 16 % for p99. It is
/// what remains when a system's own [`System::p99_at_disk`] is known.
const P99_ERROR: f64 = 0.18;
/// The same for throughput: equal cells of the published study differ by 9 %.
const THROUGHPUT_ERROR: f64 = 0.09;
/// How far hit ratios measured in equilibrium may be from computed ones before a draw is doubted.
pub const HIT_ERROR: f64 = 0.015;
/// How far computed hit ratios are at least from the truth at 90 %, where half of the look-ups hit: no engine
/// keeps the same share of its cache everywhere,
const LEAST_HIT_ERROR: f64 = 0.05;
/// and where fewer than two working sets show it.
const UNSEEN_HIT_ERROR: f64 = 0.12;

/// Of the memory, what must be left for the page cache, where programs are too.
const LEAST_LEFT: f64 = 0.05;

/// Of the error of computed hit ratios, that of measured ones,
const AS_MEASURED: f64 = 0.15;
/// and how many times memory doubles, or is halved, until measured ones are worth no more than computed ones.
const FURTHEST: f64 = 0.5;

/// The share of operations above p99: where more than these go to the disk, it is one of them.
pub const BEYOND_P99: f64 = 0.01;

/// The error of a hit ratio as a share of that of one half: nothing errs where none or all look-ups hit.
pub fn hit_error(hit: f64) -> f64 {
    2.0 * (hit * (1.0 - hit)).sqrt()
}

/// Of a share, one or nothing taken for a millionth off.
fn log_odds(share: f64) -> f64 {
    let share = share.clamp(1e-6, 1.0 - 1e-6);
    (share / (1.0 - share)).ln()
}

/// What a number may be, each value alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl Range {
    /// From `low` to `high`.
    pub fn new(low: f64, high: f64) -> Range {
        Range { low: low.min(high), high: high.max(low) }
    }

    /// What covers `values`, and a share of them more on both sides; `None` without any.
    pub fn over(values: impl IntoIterator<Item = f64>, more: f64) -> Option<Range> {
        let finite = values.into_iter().filter(|x| x.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), x| (l.min(x), h.max(x)));
        (low <= high).then(|| Range::new(low * (1.0 - more), high * (1.0 + more)))
    }

    /// What covers both.
    pub fn or(self, other: Range) -> Range {
        Range::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// In another unit.
    pub fn times(self, factor: f64) -> Range {
        Range::new(self.low * factor, self.high * factor)
    }

    fn draw(self, random: &mut Random) -> f64 {
        self.low + (self.high - self.low) * random.unit()
    }

    /// A factor: its logarithm is what is drawn alike.
    fn draw_factor(self, random: &mut Random) -> f64 {
        Range::new(self.low.ln(), self.high.ln()).draw(random).exp()
    }

    /// A cost. One of which only the most is known may be far smaller: its square root is drawn.
    fn draw_cost(self, random: &mut Random) -> f64 {
        if self.low > 0.0 { self.draw(random) } else { self.high * random.unit().powi(2) }
    }
}

/// An interval that holds the truth with 90 %, if what it rests on is so.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// 5 % of draws lie below.
    pub low: f64,
    /// Half of them.
    pub middle: f64,
    /// 5 % lie above; infinite where the load overruns a station.
    pub high: f64,
}

impl Interval {
    /// Of draws; at least one.
    pub fn of(mut draws: Vec<f64>) -> Interval {
        draws.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| draws[((draws.len() - 1) as f64 * share).round() as usize];
        Interval { low: at(0.05), middle: at(0.5), high: at(0.95) }
    }

    /// Whether it holds `value`.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// `more` wider on both sides, as far as a share can be.
    pub fn wider(&self, more: f64) -> Interval {
        Interval { low: (self.low - more).max(0.0), high: (self.high + more).min(1.0), ..*self }
    }

    /// How many times its lower end the upper one is.
    pub fn factor(&self) -> f64 {
        self.high / self.low
    }
}

/// How an engine keeps pages, and how it asks for them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Engine {
    /// Share of its configured cache that it fills.
    pub fills: f64,
    /// Bytes of memory that a byte of records takes in it.
    pub overhead: f64,
    /// Whether it reads its files through the kernel's page cache.
    pub is_buffered: bool,
    /// Pages that an operation asks for, without those that every operation asks for.
    pub pages_per_operation: f64,
    /// How it may choose what to forget.
    pub policies: &'static [Policy],
}

impl Engine {
    /// Evicts above 80 % of its cache, counts 8 % of overhead, and looks a record up in one leaf page.
    pub const WIREDTIGER: Engine = Engine {
        fills: crate::experiment::Spec::EVICTION_TARGET,
        overhead: 1.08,
        is_buffered: true,
        pages_per_operation: 1.0,
        policies: &[Policy::Random, Policy::Lru],
    };

    /// Pages stand in the cache as in their file, all of it is filled, and what was used last stays.
    pub const PAGED: Engine = Engine {
        fills: 1.0,
        overhead: 1.0,
        is_buffered: true,
        pages_per_operation: 1.0,
        policies: &[Policy::Lru],
    };
}

/// What is known of a system that reads records through an engine's cache and the page cache.
#[derive(Debug, Clone, PartialEq)]
pub struct System {
    /// Clients of the closed loop that was measured.
    pub sessions: u32,
    /// How requests are spread over pages: each way that they may be.
    pub popularity: Vec<Popularity>,
    /// What reads them.
    pub engine: Engine,
    /// Bytes that a record takes in the engine's cache, with its part of an index.
    pub record_bytes: Range,
    /// Bytes of a page in its file for a byte of it in the engine's cache.
    pub file_ratio: Range,
    /// Share of the engine's configured cache that holds records,
    pub engine_share: Range,
    /// and bytes of it that do not, however large it is.
    pub engine_reserve: Range,
    /// Bytes of memory that are neither engine's cache nor page cache.
    pub other_memory: Range,
    /// How far computed hit ratios are from measured ones at 90 %, where half of the look-ups hit.
    pub hit_errors: Hits,
    /// The place in which hit ratios are as they were measured. Elsewhere they differ from these as computed
    /// ones do, and err the more the more, or the less, of the data fits into memory, up to [`FURTHEST`]
    /// doublings. In the place itself they err by [`AS_MEASURED`] of that, as a short look at a server does.
    pub known_at: Option<Seen>,
    /// What the disk is asked for at a time.
    pub request: Bytes,
    /// Such requests that a missed page takes from the disk, one after another.
    pub reads_per_miss: Range,
    /// What an operation writes: requests that nobody waits for,
    pub background: Range,
    /// more of them for a page that the engine misses, because another must go, which was changed,
    pub background_per_miss: Range,
    /// those of the journal when operations share none,
    pub journal: Range,
    /// how large each is,
    pub write: Bytes,
    /// and the share of operations that wait for their journal.
    pub durable: Range,
    /// Seconds of processor time for an operation,
    pub cpu: Range,
    /// more that its client takes where it runs on the same processors,
    pub cpu_client: Range,
    /// more for a page that the engine misses,
    pub cpu_miss: Range,
    /// more for a request to the disk,
    pub cpu_read: Range,
    /// and what the laboratory's own disk takes for one, or for a write.
    pub cpu_daemon: Range,
    /// Share of the processors that it could use.
    pub efficiency: Range,
    /// What p99 is of that which memoryless servers in line would give, where operations wait for processors
    /// (a scheduler gives them out in slices)
    pub p99_at_processors: Range,
    /// and where they wait for the disk (pages differ in how many requests they take).
    pub p99_at_disk: Range,
    /// Share of the machine's processors that others may have had while it was measured, and no longer have:
    /// throughput and percentiles are known by so much less.
    pub disturbance: f64,
}

/// A system in a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Bytes of memory.
    pub memory: f64,
    /// Bytes of it that the engine is given.
    pub engine_cache: f64,
    /// Processors.
    pub cores: f64,
    /// Records.
    pub records: f64,
    /// The disk.
    pub disk: Spec,
}

/// Hit ratios that were measured in a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The place.
    pub place: Place,
    /// What was seen; NaN where it was not.
    pub hits: Hits,
}

/// One way that a system may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// Of [`System::popularity`].
    spread: usize,
    record_bytes: f64,
    file_ratio: f64,
    engine_share: f64,
    engine_reserve: f64,
    other_memory: f64,
    policies: (Policy, Policy),
    /// By how many times [`System::hit_errors`] both hit ratios err.
    hit_errors: (f64, f64),
    /// What their log odds are more where they are known.
    off: (f64, f64),
    reads_per_miss: f64,
    cpu_client: f64,
    cpu: f64,
    cpu_miss: f64,
    cpu_read: f64,
    cpu_daemon: f64,
    efficiency: f64,
    p99_at_processors: f64,
    p99_at_disk: f64,
    /// Factors by which the network errs: under closed clients,
    p99_error: f64,
    /// and under a load that arrives,
    open_error: f64,
    /// and in throughput.
    throughput_error: f64,
    /// Of the processor time of the laboratory's shaped disk, what a real one takes.
    daemon_share: f64,
    writes: Writes,
    background_per_miss: f64,
}

/// What a system would do, of a number of draws.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Share of look-ups that the engine's cache answers.
    pub engine_hit: Interval,
    /// Share of the rest that the page cache answers.
    pub page_cache_hit: Interval,
    /// Operations per second.
    pub throughput_ops_per_s: Interval,
    /// 99th percentile of the residence, in seconds.
    pub p99_s: Interval,
    /// Requests to the disk per second.
    pub device_reads_per_s: Interval,
}

impl System {
    /// `count` ways the system may be that agree with what was `seen`: prior draws, weighed by how near their
    /// hit ratios are (importance sampling; Rubin 1988), and drawn again by weight. The tolerance is widened
    /// until enough of them count.
    pub fn draws(&self, count: usize, seen: &[Seen], seed: u64) -> Vec<Draw> {
        let mut random = Random::new(seed, 15);
        let prior: Vec<Draw> =
            (0..if seen.is_empty() { count } else { 12 * count }).map(|_| self.draw(&mut random)).collect();
        if seen.is_empty() {
            return prior;
        }
        let distance: Vec<f64> = prior.iter().map(|draw| self.distance(draw, seen)).collect();
        let least = distance.iter().copied().fold(f64::INFINITY, f64::min);
        let mut tolerance = HIT_ERROR;
        loop {
            let weight = |d: &f64| (-(d - least) / (2.0 * tolerance * tolerance)).exp();
            let weights: Vec<f64> = distance.iter().map(weight).collect();
            let sum: f64 = weights.iter().sum();
            let effective = sum * sum / weights.iter().map(|w| w * w).sum::<f64>();
            if effective < count as f64 / 3.0 && tolerance < 0.3 {
                tolerance *= 1.5;
                continue;
            }
            // Systematic resampling: one throw, equal steps.
            let (mut at, mut passed) = (0, weights[0] / sum);
            let throw = random.unit();
            let step = |n: usize| (n as f64 + throw) / count as f64;
            let drawn = (0..count).map(|n| {
                while passed < step(n) && at + 1 < prior.len() {
                    at += 1;
                    passed += weights[at] / sum;
                }
                self.put_right(prior[at])
            });
            return drawn.collect();
        }
    }

    /// The factor by which a disturbance widens intervals on both sides: what the rest of the processors does
    /// in the time of all of them.
    pub fn wider_by(&self) -> f64 {
        1.0 / (1.0 - self.disturbance.clamp(0.0, 0.95))
    }

    fn draw(&self, random: &mut Random) -> Draw {
        let (of_engine, of_kernel) = (self.engine.policies, [Policy::Random, Policy::Lru]);
        let pair = random.below((of_engine.len() * of_kernel.len()) as u64) as usize;
        let mut normal = || normal_quantile(random.unit().clamp(1e-6, 1.0 - 1e-6)) / 1.645;
        let hit_errors = (normal(), normal());
        let mut error = |ninety: f64| (normal() * ninety).exp();
        let disturbed = self.wider_by().ln();
        let (p99_error, throughput_error) =
            (error(P99_ERROR + disturbed), error(THROUGHPUT_ERROR + disturbed));
        let open_error = p99_error * error(queue::OPEN_ERROR);
        let daemon_share = random.unit();
        // What has one way to be takes no number from those that the rest is drawn by.
        let mut if_any = |range: Range| if range.high > 0.0 { range.draw(random) } else { 0.0 };
        let engine_reserve = if_any(self.engine_reserve);
        let writes = Writes {
            background: if_any(self.background),
            journal: if_any(self.journal),
            size: self.write,
            durable: if_any(self.durable),
        };
        let background_per_miss = if_any(self.background_per_miss);
        let ways = self.popularity.len() as u64;
        let spread = if ways > 1 { random.below(ways) as usize } else { 0 };
        Draw {
            spread,
            writes,
            background_per_miss,
            record_bytes: self.record_bytes.draw(random),
            file_ratio: self.file_ratio.draw(random),
            engine_share: self.engine_share.draw(random),
            other_memory: self.other_memory.draw(random),
            policies: (of_engine[pair % of_engine.len()], of_kernel[pair / of_engine.len()]),
            hit_errors,
            off: (0.0, 0.0),
            reads_per_miss: self.reads_per_miss.draw(random),
            cpu_client: self.cpu_client.draw(random),
            cpu: self.cpu.draw(random),
            cpu_miss: self.cpu_miss.draw_cost(random),
            cpu_read: self.cpu_read.draw_cost(random),
            cpu_daemon: self.cpu_daemon.draw(random),
            efficiency: self.efficiency.draw(random),
            p99_at_processors: self.p99_at_processors.draw_factor(random),
            p99_at_disk: self.p99_at_disk.draw_factor(random),
            p99_error,
            open_error,
            throughput_error,
            daemon_share,
            engine_reserve,
        }
    }

    /// Sum of squares between what a draw gives and what was seen.
    fn distance(&self, draw: &Draw, seen: &[Seen]) -> f64 {
        let of = |seen: &Seen| {
            let hits = self.computed_hits(draw, &seen.place);
            let off = |computed: f64, seen: f64| if seen.is_nan() { 0.0 } else { (computed - seen).powi(2) };
            off(hits.engine, seen.hits.engine) + off(hits.page_cache, seen.hits.page_cache)
        };
        seen.iter().map(of).sum()
    }

    /// What the caches answer in `place`.
    pub fn hits(&self, draw: &Draw, place: &Place) -> Hits {
        let computed = self.computed_hits(draw, place);
        let share = |place: &Place| place.memory / place.records;
        let steps = |known: &Seen| (share(place) / share(&known.place)).log2().abs() / FURTHEST;
        let away = |known: &Seen| steps(known).clamp(AS_MEASURED, 1.0);
        let away = self.known_at.as_ref().map_or(1.0, away);
        let erring = |hit: f64, off: f64, most: f64, error: f64| {
            let hit = if off == 0.0 { hit } else { 1.0 / (1.0 + (-(log_odds(hit) + off)).exp()) };
            (hit + error * most * away * hit_error(hit)).clamp(0.0, 1.0)
        };
        let (most, errors) = (&self.hit_errors, draw.hit_errors);
        Hits {
            engine: erring(computed.engine, draw.off.0, most.engine, errors.0),
            page_cache: erring(computed.page_cache, draw.off.1, most.page_cache, errors.1),
        }
    }

    /// The draw with what it is off where hit ratios are known.
    fn put_right(&self, draw: Draw) -> Draw {
        let Some(known) = &self.known_at else { return draw };
        let computed = self.computed_hits(&draw, &known.place);
        let off = |seen: f64, computed: f64| match seen.is_nan() {
            true => 0.0,
            false => log_odds(seen) - log_odds(computed),
        };
        let off = (off(known.hits.engine, computed.engine), off(known.hits.page_cache, computed.page_cache));
        Draw { off, ..draw }
    }

    /// The same system with the hit errors that it shows: what is left between the hit ratios that were
    /// `seen` and those that `draws` agree on.
    pub fn with_hit_errors(self, draws: &[Draw], seen: &[Seen]) -> System {
        let mean = |of: &dyn Fn(&Draw) -> f64| draws.iter().map(of).sum::<f64>() / draws.len() as f64;
        let left = |of: &dyn Fn(&Hits) -> f64| {
            let (mut squares, mut sets) = (Vec::new(), Vec::new());
            for one in seen {
                let measured = of(&one.hits);
                let computed = mean(&|draw| of(&self.computed_hits(draw, &one.place)));
                let scale = hit_error(measured).max(hit_error(computed));
                if scale > 0.1 {
                    squares.push(((measured - computed) / scale).powi(2));
                    sets.push(one.place.records as u64);
                }
            }
            sets.sort_unstable();
            sets.dedup();
            let least = if sets.len() < 2 { UNSEEN_HIT_ERROR } else { LEAST_HIT_ERROR };
            let mean_square = squares.iter().sum::<f64>() / squares.len().max(1) as f64;
            (1.645 * mean_square.sqrt()).max(least)
        };
        let hit_errors =
            Hits { engine: left(&|hits| hits.engine), page_cache: left(&|hits| hits.page_cache) };
        System { hit_errors, ..self }
    }

    fn computed_hits(&self, draw: &Draw, place: &Place) -> Hits {
        let data = place.records * draw.record_bytes;
        let engine = (draw.engine_share * place.engine_cache - draw.engine_reserve).max(0.0);
        let below = self.left_for_page_cache(draw, place).unwrap_or(0.0);
        self.popularity[draw.spread].two_level(engine / data, below / (data * draw.file_ratio), draw.policies)
    }

    /// Bytes that are left for the page cache, which may be none; `None` where the engine reads past it.
    fn left_for_page_cache(&self, draw: &Draw, place: &Place) -> Option<f64> {
        // The cache is filled as far as there are data, overhead included.
        let data = place.records * draw.record_bytes * self.engine.overhead;
        let resident = (self.engine.fills * place.engine_cache).min(data);
        self.engine.is_buffered.then(|| (place.memory - resident - draw.other_memory).max(0.0))
    }

    /// Whether nothing is left for the page cache: then programs are read again and again, or killed.
    pub fn is_starved(&self, draw: &Draw, place: &Place) -> bool {
        self.left_for_page_cache(draw, place).is_some_and(|left| left < LEAST_LEFT * place.memory)
    }

    /// What an operation asks of a node whose clients are elsewhere, and whose disk takes `of_daemon` of the
    /// processor time that the laboratory's takes.
    fn work(&self, draw: &Draw, hits: Hits, of_daemon: f64) -> Work {
        let misses = (1.0 - hits.engine) * self.engine.pages_per_operation;
        let background = draw.writes.background + draw.background_per_miss * misses;
        let written = Writes { background, ..draw.writes };
        Work {
            cpu: draw.cpu + of_daemon * draw.cpu_daemon * background,
            cpu_miss: draw.cpu_miss,
            cpu_read: draw.cpu_read + of_daemon * draw.cpu_daemon,
            misses,
            to_disk: 1.0 - hits.page_cache,
            reads_per_miss: draw.reads_per_miss,
            request: self.request,
            writes: written,
        }
    }

    /// What the measured closed loop would do in `place`: throughput by mean values, p99 by discrete
    /// events of `operations` for each draw.
    pub fn closed(&self, draws: &[Draw], place: &Place, operations: u32) -> Prediction {
        self.closed_with(draws, place, |draw| self.hits(draw, place), operations)
    }

    /// The same where it is known what the caches answer.
    pub fn closed_with(
        &self,
        draws: &[Draw],
        place: &Place,
        hits: impl Fn(&Draw) -> Hits,
        operations: u32,
    ) -> Prediction {
        let disk = Limits::of(&place.disk, self.request, self.write);
        let mut parts: [Vec<f64>; 5] = Default::default();
        for (n, draw) in draws.iter().enumerate() {
            let hits = hits(draw);
            let mut work = self.work(draw, hits, 1.0);
            work.cpu += draw.cpu_client;
            let cores = place.cores * draw.efficiency;
            // Processors come whole in discrete events: fewer of them are slower ones.
            let slow = place.cores.max(1.0) / cores;
            let slower = Work {
                cpu: work.cpu * slow,
                cpu_miss: work.cpu_miss * slow,
                cpu_read: work.cpu_read * slow,
                ..work
            };
            let load = Load::Closed(self.sessions);
            let whole = place.cores.max(1.0) as u32;
            let events = queue::simulate(load, &slower, whole, &place.disk, operations, n as u64);
            // Of those who share a flush mean values know nothing.
            let rate = match work.writes.durable > 0.0 {
                true => events.throughput,
                false => queue::throughput(self.sessions, &work, cores, &disk),
            } * draw.throughput_error;
            let p99 = events.p99 * draw.p99_error * draw.p99_against_queueing(&work, BEYOND_P99);
            let found = [hits.engine, hits.page_cache, rate, p99, rate * work.reads()];
            parts.iter_mut().zip(found).for_each(|(part, x)| part.push(x));
        }
        let [engine, page_cache, rate, p99, reads] = parts;
        Prediction {
            engine_hit: Interval::of(engine),
            page_cache_hit: Interval::of(page_cache),
            throughput_ops_per_s: Interval::of(rate),
            p99_s: Interval::of(p99),
            device_reads_per_s: Interval::of(reads),
        }
    }
}

impl Draw {
    /// The factor for a percentile above which a share `beyond` of operations lies: those that wait for the
    /// disk, if they are more than that.
    fn p99_against_queueing(&self, work: &Work, beyond: f64) -> f64 {
        if work.disk_share().max(work.writes.durable) > beyond {
            self.p99_at_disk
        } else {
            self.p99_at_processors
        }
    }
}

#[cfg(test)]
mod tests;
