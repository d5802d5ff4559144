//! What a server that was watched at work says of a system: one place, one load, and no cell to check by.
//!
//! How requests are spread over pages is not seen. It is inferred from what each table and index missed: of
//! every shape in [`SHAPES`] the one that gives just those misses in the cache as it is. Shapes differ in
//! what they say of another cache, and that is how far the answer is known; the page cache's hits weigh them.

mod part;

pub use part::{DeviceUse, Part};

use super::{Assumption, NOTHING};
use crate::predict::cache::{Hits, Popularity, Shape};
use crate::predict::queue::READ;
use crate::predict::{Engine, Place, Range, Seen, System};
use crate::target::Relation;
use crate::units::{Bytes, significant, span};
use std::time::Duration;

/// How requests may be spread over the pages of a table: over some of them alike or as Zipf says, over all of
/// them as some power says, or over a few that are always in cache and all others alike.
pub const SHAPES: [Shape; 5] =
    [Shape::Touched, Shape::Zipf(0.6), Shape::Zipf(0.9), Shape::Skewed, Shape::Tail];
/// Tables and indexes that are told apart, those with the most requests first.
const MOST_RELATIONS: usize = 24;
/// Entries of an index page, about: of how many levels an index is.
const FANOUT: f64 = 250.0;
/// Seconds of processor time that a page of 8 KiB from the page cache may take: a copy and a checksum,
const MISS: Range = Range { low: 2e-6, high: 2e-5 };
/// and a request to the disk more: to sleep and to be woken.
const REQUEST: Range = Range { low: 5e-6, high: 4e-5 };
/// Of the processor time of an operation no more than this share is for what it missed.
const MOST_OF_MISSES: f64 = 0.5;
/// Bytes of journal that an operation writes at least which has something to make durable.
const LEAST_JOURNAL: f64 = 100.0;
/// Fewer operations say nothing.
const LEAST_OPERATIONS: f64 = 1000.0;
/// Requests to a device from which on its latency is known.
const LEAST_REQUESTS: f64 = 100.0;
/// How much more than in the other half one half of the interval may miss before caches count as filling.
const FILLING: f64 = 1.25;

/// A server, and what it did while it was watched.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// What it calls itself.
    pub system: String,
    /// What its operations are: "transactions".
    pub operations: &'static str,
    /// Bytes of a page.
    pub page: Bytes,
    /// Bytes of its engine's cache.
    pub cache_bytes: f64,
    /// How its engine keeps pages; how many an operation asks for is counted.
    pub engine: Engine,
    /// Bytes of a page as it lies in its file.
    pub file_page: Bytes,
    /// Whether commits wait until their journal is durable.
    pub waits_for_journal: bool,
    /// Whether a checkpoint was carried out meanwhile.
    pub checkpointed: bool,
    /// Bytes of its memory: a limit of its group, or the machine's.
    pub memory: f64,
    /// Of them, those that are neither engine's cache, nor page cache, nor free; and the page cache.
    pub other_and_page_cache: Option<(f64, f64)>,
    /// Processors.
    pub cores: f64,
    /// Its disk, if the user said what it can do.
    pub disk: Option<crate::device::Spec>,
    /// Its tables and indexes, with what was asked of them meanwhile.
    pub relations: Vec<Relation>,
    /// The parts of the interval.
    pub parts: Vec<Part>,
}

/// What was learnt from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Learnt {
    /// The system.
    pub system: System,
    /// Where it is, with its hit ratios as they were.
    pub seen: Seen,
    /// Operations per second.
    pub operations_per_s: f64,
    /// What was measured, and by what.
    pub measured: Vec<(String, String)>,
    /// What was not.
    pub assumptions: Vec<Assumption>,
    /// What makes it less sure than it looks, in sentences.
    pub doubts: Vec<String>,
}

impl Watched {
    /// The system behind what was seen.
    ///
    /// # Errors
    /// Counters fell, nothing was done, or what nothing can be said without was not seen: in a sentence with
    /// what to do.
    pub fn learn(&self) -> Result<Learnt, String> {
        let all = self
            .parts
            .iter()
            .fold(Part { cpu: Some(0.0), device: Some(DeviceUse::default()), ..Part::default() }, Part::plus);
        self.check(&all)?;
        let mut assumptions = Vec::new();
        let mut assume =
            |what: String, because: &str| assumptions.push(Assumption { what, because: because.into() });
        let relations = self.grouped(&all);
        let asked: f64 = relations.iter().map(|r| r.requests).sum();
        let missed = all.misses.min(asked);
        let engine_hit = 1.0 - missed / asked;
        let per = |x: f64| x / all.operations;
        let mut doubts = self.doubts();
        let Requests { size: request, of_page: reads_per_miss, page_cache } =
            self.requests(&all, missed, &mut assume);
        let reads = page_cache.map_or(0.0, |hit| per(missed) * (1.0 - hit) * reads_per_miss.low);
        let cpu = self.cpu(per(missed), reads, &mut assume)?;
        let data: f64 = relations.iter().map(|r| r.pages).sum::<f64>() * self.page.0 as f64;
        let other = self.other_memory(&mut assume);
        let written = self.writes(&all, &mut assume, &mut doubts);
        let share = self.share(&mut assume);
        let holds = share.high.midpoint(share.low) * self.cache_bytes / data;
        let popularity = SHAPES.map(|shape| inferred(&relations, shape, holds)).into();
        assume(
            format!(
                "requests are spread over the pages of a table in one of {} ways, each of which gives the measured misses of \
                 every table and index",
                SHAPES.len()
            ),
            "counters do not show which pages are asked for",
        );
        let place = Place {
            memory: self.memory,
            engine_cache: self.cache_bytes,
            cores: self.cores,
            records: data / self.page.0 as f64,
            disk: self.disk_of(&all, &mut assume),
        };
        let hits = Hits { engine: engine_hit, page_cache: page_cache.unwrap_or(f64::NAN) };
        let seen = Seen { place, hits };
        let miss = MISS.times(self.page.0 as f64 / 8192.0);
        let system = System {
            sessions: 1,
            popularity,
            engine: Engine { pages_per_operation: per(asked), ..self.engine },
            record_bytes: Range::new(1.0, 1.0).times(self.page.0 as f64),
            file_ratio: Range::new(1.0, 1.0).times(self.file_page.0 as f64 / self.page.0 as f64),
            engine_share: share,
            engine_reserve: NOTHING,
            other_memory: if self.engine.is_buffered { other } else { NOTHING },
            hit_errors: Hits { engine: ENGINE_ERROR, page_cache: PAGE_CACHE_ERROR },
            known_at: Some(seen.clone()),
            request: Bytes(request.round() as u64),
            reads_per_miss,
            cpu,
            background: written.background,
            background_per_miss: NOTHING,
            journal: written.journal,
            write: written.size,
            durable: written.durable,
            cpu_client: NOTHING,
            cpu_miss: within(miss, per(missed), cpu),
            cpu_read: within(REQUEST, reads, cpu),
            cpu_daemon: NOTHING,
            efficiency: Range::new(0.5, 1.0),
            p99_at_processors: Range::new(0.5, 3.0),
            p99_at_disk: Range::new(0.9, 1.3),
            disturbance: 0.0,
        };
        assume("between half and all of the processors can be used".into(), "nobody saw them full");
        assume(
            "p99 is 0.5 to 3 times what queueing gives where operations wait for processors, 0.9 to 1.3 times where they \
             wait for the disk"
                .into(),
            "a server does not tell its percentiles",
        );
        Ok(Learnt {
            system,
            seen,
            operations_per_s: all.operations / all.seconds,
            measured: self.measured(&all, engine_hit, page_cache),
            assumptions,
            doubts,
        })
    }

    /// Of the configured cache the share that holds pages of tables and indexes.
    fn share(&self, assume: &mut impl FnMut(String, &str)) -> Range {
        let (share, because) = match self.engine.fills < 1.0 {
            true => (Range::new(0.70, 0.82), "it evicts above 80 %, and counts 8 % of overhead"),
            false => (Range::new(0.90, 1.0), "catalogues stand there too"),
        };
        let [low, high] = [share.low, share.high].map(|x| (x * 100.0).round());
        let words =
            format!("{low} % to {high} % of the engine's configured cache hold pages of tables and indexes");
        assume(words, because);
        share
    }

    /// What its device was asked for when it `missed` so many pages.
    fn requests(&self, all: &Part, missed: f64, assume: &mut impl FnMut(String, &str)) -> Requests {
        // A page is one request where the disk takes pages whole.
        let size = match all.device.filter(|d| d.reads >= LEAST_REQUESTS) {
            Some(device) => (device.read_bytes / device.reads).clamp(512.0, self.file_page.0 as f64),
            None => self.file_page.0 as f64,
        };
        let of_page = Range::new(1.0, 1.5).times((self.file_page.0 as f64 / size).max(1.0));
        assume(
            format!(
                "a page takes {} to {} requests to the disk",
                significant(of_page.low, 2),
                significant(of_page.high, 2)
            ),
            "one page is read whole, and read-ahead may bring others",
        );
        let page_cache = match (self.engine.is_buffered, all.device) {
            (false, _) => Some(0.0),
            (true, Some(device)) if missed > 0.0 => {
                Some(1.0 - (device.reads / of_page.low / missed).clamp(0.0, 1.0))
            }
            (true, Some(_)) => Some(1.0),
            (true, None) => None,
        };
        Requests { size, of_page, page_cache }
    }

    fn check(&self, all: &Part) -> Result<(), String> {
        let fell = |part: &Part| {
            [part.operations, part.pages, part.misses, part.journal_bytes].iter().any(|x| *x < 0.0)
        };
        if self.parts.iter().any(fell) || self.relations.iter().any(|r| r.requests < 0.0 || r.misses < 0.0) {
            return Err("its counters fell while it was watched: it was started anew, or they were reset; watch it again".into());
        }
        if all.operations < LEAST_OPERATIONS {
            return Err(format!(
                "it carried out {} {} in {}: fewer than {LEAST_OPERATIONS} say nothing; watch it longer, or when it works",
                all.operations,
                self.operations,
                span::print(Duration::from_secs_f64(all.seconds.round()))
            ));
        }
        if all.pages <= 0.0 || self.relations.iter().all(|r| r.requests <= 0.0) {
            return Err("no page was asked for: its counters are switched off (track_counts), or another database has the load".into());
        }
        Ok(())
    }

    /// Tables and indexes apart, without what every look-up of an index asks for above its leaves.
    fn grouped(&self, all: &Part) -> Vec<Asked> {
        let mut relations: Vec<&Relation> = self.relations.iter().filter(|r| r.requests > 0.0).collect();
        relations.sort_by(|a, b| b.requests.total_cmp(&a.requests));
        let of = |relations: &[&Relation]| {
            let sum = |f: &dyn Fn(&Relation) -> f64| relations.iter().map(|r| f(r)).sum::<f64>();
            let above = |r: &Relation| {
                let levels = (r.bytes / self.page.0 as f64).max(1.0).log(FANOUT).ceil();
                (r.searches * levels).min((r.requests - r.misses) * 0.95)
            };
            Asked {
                pages: sum(&|r| (r.bytes / self.page.0 as f64).max(1.0)),
                requests: sum(&|r| r.requests - above(r)),
                misses: sum(&|r| r.misses),
            }
        };
        let mut grouped: Vec<Asked> = relations.iter().take(MOST_RELATIONS).map(|r| of(&[r])).collect();
        if relations.len() > MOST_RELATIONS {
            grouped.push(of(&relations[MOST_RELATIONS..]));
        }
        // Counters of tables and of the database are not read at the same moment.
        let seen: f64 = grouped.iter().map(|r| r.misses).sum();
        let scale = if seen > 0.0 { all.misses / seen } else { 1.0 };
        for one in &mut grouped {
            one.misses = (one.misses * scale).min(one.requests * 0.999_999);
        }
        grouped
    }

    /// Processor time of an operation that misses nothing.
    fn cpu(&self, misses: f64, reads: f64, assume: &mut impl FnMut(String, &str)) -> Result<Range, String> {
        let each = self.parts.iter().filter(|part| part.operations > 0.0);
        let seen = Range::over(each.filter_map(|part| Some(part.cpu? / part.operations)), super::WIDER);
        let seen = seen.filter(|seen| seen.low > 0.0).ok_or(
            "its processor time cannot be seen from here: say how many processors it keeps busy, with --busy",
        )?;
        let miss = MISS.times(self.page.0 as f64 / 8192.0);
        let least = misses * miss.low + reads * REQUEST.low;
        let most = misses * miss.high + reads * REQUEST.high;
        assume(
            format!(
                "a page that the engine misses takes {} to {} µs of processor time, and a request to the disk {} to {} µs more",
                significant(miss.low * 1e6, 2),
                significant(miss.high * 1e6, 2),
                REQUEST.low * 1e6,
                REQUEST.high * 1e6
            ),
            "one load does not tell them from the rest",
        );
        let without = |cpu: f64, cost: f64| cpu - cost.min(MOST_OF_MISSES * cpu);
        Ok(Range::new(without(seen.low, most), without(seen.high, least)))
    }

    fn other_memory(&self, assume: &mut impl FnMut(String, &str)) -> Range {
        match self.other_and_page_cache {
            Some((other, page_cache)) => Range::new(
                (LEAST_KEPT * other - super::LEVELS * self.memory).max(0.0),
                other + super::STRANGERS * page_cache,
            ),
            None => {
                if self.engine.is_buffered {
                    assume(
                        "5 % to 25 % of the memory are neither engine's cache nor page cache".into(),
                        "the server's machine cannot be seen from here",
                    );
                }
                Range::new(0.05 * self.memory, 0.25 * self.memory)
            }
        }
    }

    /// Writes for an operation that nobody waits for and those of the journal, how large they are, and the
    /// share of operations that wait for their journal.
    fn writes(&self, all: &Part, assume: &mut impl FnMut(String, &str), doubts: &mut Vec<String>) -> Written {
        let bytes = all.journal_bytes / all.operations;
        let syncs = (all.journal_syncs / all.operations).min(1.0);
        let seen = all.device.filter(|device| device.writes > 0.0);
        let (each, size) = match seen {
            Some(device) => (device.writes / all.operations, device.write_bytes / device.writes),
            // Pages that were changed are written some time, and nobody saw how often.
            None => (2.0 * bytes / self.page.0 as f64 + syncs, self.page.0 as f64),
        };
        // What writes less than a byte of journal for an operation hardly writes.
        if bytes < 1.0 && each < 0.01 {
            return Written { background: NOTHING, journal: NOTHING, size: READ, durable: NOTHING };
        }
        // Where nobody waits for the journal, its writes are like any others.
        let journal = if self.waits_for_journal { syncs.min(each) } else { 0.0 };
        let more = if self.checkpointed { 1.25 } else { 2.0 };
        if !self.checkpointed {
            doubts.push(
                "No checkpoint ended while it was watched, so what one writes was not counted: up to twice the writes \
                 are allowed for. Watch it longer than checkpoints are apart (--watch)."
                    .into(),
            );
        }
        assume(
            format!(
                "{} to {} writes for an operation, whatever memory and disk there are",
                significant(0.8 * each, 2),
                significant(more * each, 2)
            ),
            match seen {
                Some(_) => {
                    "measured here and now: a smaller cache writes pages more often, a larger one less often"
                }
                None => "the server's device cannot be seen from here: guessed from its journal",
            },
        );
        let durable = match self.waits_for_journal {
            true => Range::new(syncs.min(bytes / LEAST_JOURNAL), (bytes / LEAST_JOURNAL).min(1.0)),
            false => NOTHING,
        };
        if durable.high > 0.0 {
            assume(
                format!(
                    "{} % to {} % of operations wait until their journal is durable",
                    significant(100.0 * durable.low, 2),
                    significant(100.0 * durable.high, 2)
                ),
                "at least as many as flushes, at most as many as 100 bytes of journal each allow",
            );
        }
        Written {
            background: Range::new(0.8 * (each - journal), more * (each - journal)),
            journal: Range::new(0.8 * journal, 1.25 * journal),
            size: Bytes(size.round().max(512.0) as u64),
            durable,
        }
    }

    /// Today's disk: what the user says, or its latencies as they were seen, without a limit.
    fn disk_of(&self, all: &Part, assume: &mut impl FnMut(String, &str)) -> crate::device::Spec {
        if let Some(disk) = &self.disk {
            return disk.clone();
        }
        let device = all.device.unwrap_or_default();
        let mean = |seconds: f64, requests: f64| {
            (requests >= LEAST_REQUESTS).then(|| Duration::from_nanos((seconds / requests * 1e9) as u64))
        };
        let read = mean(device.read_s, device.reads);
        assume(
            match read {
                Some(latency) => {
                    format!("today's disk answers a read after {}, however many come", span::print(latency))
                }
                None => "today's disk answers at once".into(),
            },
            match read {
                Some(_) => {
                    "the device's mean while the server was watched; what it can do at most was not seen: --profile or --spec says"
                }
                None => "it was hardly read, so nothing shows what it can do: --profile or --spec says",
            },
        );
        crate::device::Spec {
            latency: read.unwrap_or_default(),
            write_latency: mean(device.write_s, device.writes),
            flush_latency: mean(device.flush_s, device.flushes).unwrap_or_default(),
            ..crate::device::Spec::default()
        }
    }

    /// What makes the answer less sure.
    fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        let rate = |part: &Part| part.operations / part.seconds;
        let (low, high) =
            self.parts.iter().map(rate).fold((f64::INFINITY, 0.0f64), |(l, h), x| (l.min(x), h.max(x)));
        if high > 2.0 * low {
            doubts.push(format!(
                "The load changed while it was watched, from {} to {} {} per second: what an operation takes is that of all of them.",
                significant(low, 3), significant(high, 3), self.operations
            ));
        }
        let missed = |parts: &[Part]| {
            let sum = |f: &dyn Fn(&Part) -> f64| parts.iter().map(f).sum::<f64>();
            sum(&|p| p.misses) / sum(&|p| p.operations)
        };
        let (first, second) = self.parts.split_at(self.parts.len() / 2);
        if !first.is_empty() && missed(first) > FILLING * missed(second) && missed(first) > super::IN_CACHE {
            doubts.push(format!(
                "Its caches were still filling: an operation missed {} pages in the first half and {} in the second. Watch it \
                 when it has run for longer.",
                significant(missed(first), 2), significant(missed(second), 2)
            ));
        }
        doubts
    }

    fn measured(&self, all: &Part, engine_hit: f64, page_cache: Option<f64>) -> Vec<(String, String)> {
        let per = |x: f64| significant(x / all.operations, 3);
        let mib = |bytes: f64| Bytes(bytes as u64).rounded();
        let mut measured = vec![
            (
                format!(
                    "{} {} per second for {}: that is what the load is counted in",
                    significant(all.operations / all.seconds, 4),
                    self.operations,
                    span::print(Duration::from_secs_f64(all.seconds.round()))
                ),
                format!("{}: its own counters", self.system),
            ),
            (
                format!(
                    "an operation asks for {} pages and misses {}; of those that are not above the leaves of an index {} % \
                     were in the engine's cache",
                    per(all.pages),
                    per(all.misses),
                    significant(100.0 * engine_hit, 4)
                ),
                "its own counters, of each table and index".into(),
            ),
        ];
        if let Some(hit) = page_cache.filter(|_| self.engine.is_buffered) {
            measured.push((
                format!("{} % of the misses were in the page cache", significant(100.0 * hit, 3)),
                "reads of its device".into(),
            ));
        }
        if let Some(cpu) = all.cpu {
            measured.push((
                format!(
                    "{} µs of processor time for an operation",
                    significant(cpu / all.operations * 1e6, 3)
                ),
                "processor time of its processes, or what --busy says".into(),
            ));
        }
        measured.push((
            format!(
                "{} of memory, {} of them for the engine's cache; {} processors",
                mib(self.memory),
                mib(self.cache_bytes),
                self.cores
            ),
            "the machine or the limit of its group, or what --memory and --cores say".into(),
        ));
        measured
    }
}

/// What a device was asked for.
struct Requests {
    /// Bytes of one.
    size: f64,
    /// How many a page takes.
    of_page: Range,
    /// Share of missed pages that needed none; `None` where nobody saw it.
    page_cache: Option<f64>,
}

/// What an operation writes.
struct Written {
    background: Range,
    journal: Range,
    size: Bytes,
    durable: Range,
}

/// Of one table or index, or of several together.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Asked {
    pages: f64,
    requests: f64,
    misses: f64,
}

/// Of the memory that is neither cache nor free, the share that stays where memory is short: the kernel's own
/// shrinks.
const LEAST_KEPT: f64 = 0.75;

/// How computed hit ratios of the engine err in another memory, where half of the look-ups hit: requests are
/// not independent of one another,
const ENGINE_ERROR: f64 = 0.12;
/// and of the page cache, which prefers pages that were asked for twice: studies of servers show 15 to 19
/// points.
const PAGE_CACHE_ERROR: f64 = 0.25;

/// A cost of which no more than a share of `cpu` can be.
fn within(cost: Range, times: f64, cpu: Range) -> Range {
    let most = if times > 0.0 { MOST_OF_MISSES * cpu.high / times } else { cost.high };
    Range::new(cost.low.min(most), cost.high.min(most))
}

/// The popularity of a `shape` that gives the misses of every relation in a cache that holds a share of all
/// pages.
fn inferred(relations: &[Asked], shape: Shape, holds: f64) -> Popularity {
    let (all, pages) = relations.iter().fold((0.0, 0.0), |sum, r| (sum.0 + r.requests, sum.1 + r.pages));
    let of = |r: &Asked, stay: f64| {
        let share = r.requests / all;
        Popularity::shaped(shape, r.pages, 1.0 - r.misses / r.requests, share * stay)
    };
    // How long pages stay, in requests: until what is held fills the cache.
    let held = |stay: f64| -> f64 {
        relations.iter().map(|r| of(r, stay).held(r.requests / all * stay) * r.pages).sum::<f64>()
    };
    let (mut low, mut high) = (1.0f64, 1e15f64);
    for _ in 0..50 {
        let middle = (low * high).sqrt();
        if held(middle) < holds * pages { low = middle } else { high = middle }
    }
    let kinds: Vec<(Popularity, f64, f64)> =
        relations.iter().map(|r| (of(r, high), r.requests / all, r.pages)).collect();
    Popularity::beside(&kinds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::Interval;
    use crate::predict::cache::Policy;

    const PAGE: f64 = 8192.0;
    const OPERATIONS: f64 = 100_000.0;
    /// Pages of a table and of its index.
    const TABLE: f64 = 200_000.0;
    const INDEX: f64 = 20_000.0;

    /// A server whose table and index are asked for as `table` and `index` say, with a cache that holds the
    /// share `held` of both and a page cache of the share `below`: what it would count under LRU, and the
    /// truth.
    fn server(table: &Popularity, index: &Popularity, held: f64, below: f64) -> (Watched, Popularity) {
        let kinds = [(table.clone(), 0.5, TABLE), (index.clone(), 0.5, INDEX)];
        let all = Popularity::beside(&kinds);
        let (mut low, mut high) = (1.0f64, 1e12f64);
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if all.held(middle) < held { low = middle } else { high = middle }
        }
        let relation = |(own, share, pages): &(Popularity, f64, f64), name: &str, searches: f64| {
            let requests = OPERATIONS;
            let own = Popularity::beside(&[(own.clone(), 1.0, *pages)]);
            let hit = own.hit_ratio(own.held(share * high), Policy::Lru);
            Relation {
                name: name.into(),
                bytes: pages * PAGE,
                requests: requests + searches * pages.log(FANOUT).ceil(),
                misses: requests * (1.0 - hit),
                searches,
            }
        };
        let relations = vec![relation(&kinds[0], "t", 0.0), relation(&kinds[1], "t_pkey", OPERATIONS)];
        let misses: f64 = relations.iter().map(|r| r.misses).sum();
        let hits = all.two_level(held, below, (Policy::Lru, Policy::Lru));
        let reads = misses * (1.0 - hits.page_cache);
        let tenth = Part {
            seconds: 10.0,
            operations: OPERATIONS / 10.0,
            pages: relations.iter().map(|r| r.requests).sum::<f64>() / 10.0,
            misses: misses / 10.0,
            journal_bytes: 0.0,
            journal_syncs: 0.0,
            cpu: Some(OPERATIONS / 10.0 * 200e-6),
            device: Some(DeviceUse {
                reads: reads / 10.0,
                read_bytes: reads / 10.0 * PAGE,
                read_s: reads / 10.0 * 1e-3,
                ..DeviceUse::default()
            }),
        };
        let data = (TABLE + INDEX) * PAGE;
        let cache_bytes = held * data / 0.95;
        let other = 2e8;
        let watched = Watched {
            system: "PostgreSQL 17".into(),
            operations: "transactions",
            page: Bytes(PAGE as u64),
            cache_bytes,
            engine: Engine::PAGED,
            file_page: Bytes(PAGE as u64),
            waits_for_journal: true,
            checkpointed: true,
            memory: cache_bytes + below * data + other,
            other_and_page_cache: Some((other, below * data)),
            cores: 4.0,
            disk: Some("iops=3000,latency=1ms".parse().unwrap()),
            relations,
            parts: vec![tenth; 10],
        };
        (watched, all)
    }

    fn hot_and_cold() -> Popularity {
        Popularity::beside(&[(Popularity::uniform(), 0.9, 0.1), (Popularity::uniform(), 0.1, 0.9)])
    }

    /// However a server's requests are spread, and in ways that are none of the [`SHAPES`]: what it would do
    /// with half or twice the memory lies in the intervals, and what it does is known.
    #[test]
    fn the_truth_of_another_memory_lies_inside() {
        let (mut inside, mut all) = (0, 0);
        for (name, table, index) in [
            ("uniform", Popularity::uniform(), Popularity::uniform()),
            ("nine in ten to a tenth", hot_and_cold(), Popularity::uniform()),
            (
                "scrambled zipfian",
                Popularity::scrambled_zipfian(2_000_000, 10),
                Popularity::scrambled_zipfian(2_000_000, 100),
            ),
            ("Zipf", Popularity::shaped(Shape::Zipf(0.8), TABLE, 0.0, 1.0), Popularity::uniform()),
        ] {
            for (held, below) in [(0.1, 0.3), (0.3, 0.3)] {
                let (watched, truth) = server(&table, &index, held, below);
                let learnt = watched.learn().unwrap();
                let (system, today) = (&learnt.system, &learnt.seen.place);
                let draws = system.draws(120, std::slice::from_ref(&learnt.seen), 1);
                for times in [0.6, 1.0, 1.8] {
                    let place = Place {
                        memory: today.memory * times,
                        engine_cache: today.engine_cache * times,
                        ..today.clone()
                    };
                    let data = (TABLE + INDEX) * PAGE;
                    let real = truth.two_level(
                        (0.95 * place.engine_cache / data).min(1.0),
                        (place.memory - place.engine_cache - 2e8).max(0.0) / data,
                        (Policy::Lru, Policy::Lru),
                    );
                    let hits: Vec<Hits> = draws.iter().map(|draw| system.hits(draw, &place)).collect();
                    let engine = Interval::of(hits.iter().map(|h| h.engine).collect());
                    let page_cache = Interval::of(hits.iter().map(|h| h.page_cache).collect());
                    for (what, interval, real) in
                        [("engine", engine, real.engine), ("page cache", page_cache, real.page_cache)]
                    {
                        let is_inside = interval.wider(0.015).contains(real);
                        all += 1;
                        inside += u32::from(is_inside);
                        if !is_inside {
                            println!("{name} {held} {below} × {times}: {what} {real} outside {interval:?}");
                        }
                    }
                    if times == 1.0 {
                        assert!(
                            (engine.middle - real.engine).abs() < 0.02,
                            "{name}: {engine:?} {}",
                            real.engine
                        );
                    }
                }
            }
        }
        println!("{inside} of {all}");
        assert!(inside * 10 >= all * 9, "{inside} of {all}");
    }

    #[test]
    fn what_says_nothing_is_refused_in_words() {
        let (watched, _) = server(&Popularity::uniform(), &Popularity::uniform(), 0.3, 0.3);
        let with = |change: &dyn Fn(&mut Watched)| {
            let mut other = watched.clone();
            change(&mut other);
            other.learn()
        };
        assert!(with(&|_| {}).unwrap().doubts.is_empty());
        for (change, words) in [
            (&(|w: &mut Watched| w.parts[3].operations = -5.0) as &dyn Fn(&mut Watched), "counters fell"),
            (&|w| w.parts.iter_mut().for_each(|p| p.operations = 1.0), "it carried out 10 transactions"),
            (&|w| w.parts.iter_mut().for_each(|p| p.pages = 0.0), "no page was asked for"),
            (&|w| w.relations.clear(), "no page was asked for"),
            (&|w| w.parts.iter_mut().for_each(|p| p.cpu = None), "--busy"),
        ] {
            let why = with(change).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let rising = with(&|w| w.parts[9].operations /= 4.0).unwrap();
        assert!(rising.doubts[0].contains("The load changed"), "{:?}", rising.doubts);
        let filling = with(&|w| w.parts[..5].iter_mut().for_each(|p| p.misses *= 2.0)).unwrap();
        assert!(filling.doubts[0].contains("still filling"), "{:?}", filling.doubts);
        let writes = with(&|w| {
            w.checkpointed = false;
            w.parts.iter_mut().for_each(|p| p.journal_bytes = 500.0 * p.operations);
        });
        assert!(writes.unwrap().doubts[0].contains("No checkpoint"));
    }

    /// Each write takes its turn at the disk, and a commit waits for a flush.
    #[test]
    fn writes_take_from_the_disk_and_commits_wait_for_it() {
        let (mut watched, _) = server(&Popularity::uniform(), &Popularity::uniform(), 0.3, 0.3);
        for part in &mut watched.parts {
            part.journal_bytes = 1000.0 * part.operations;
            part.journal_syncs = 0.4 * part.operations;
            let device = part.device.as_mut().unwrap();
            (device.writes, device.write_bytes) = (0.5 * part.operations, 0.5 * 8192.0 * part.operations);
        }
        let learnt = watched.learn().unwrap();
        let (background, durable) = (learnt.system.background, learnt.system.durable);
        assert!(background.low <= 0.1 && 0.1 <= background.high && background.high < 0.2, "{background:?}");
        assert!(learnt.system.journal.low <= 0.4 && 0.4 <= learnt.system.journal.high);
        assert!((durable.low - 0.4).abs() < 1e-9 && (durable.high - 1.0).abs() < 1e-9, "{durable:?}");
        watched.waits_for_journal = false;
        assert_eq!(watched.learn().unwrap().system.durable, NOTHING);
    }
}
