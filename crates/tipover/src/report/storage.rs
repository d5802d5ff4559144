//! The page of a disk that was measured by itself.

use super::{
    Axis, Block, Callout, CalloutKind, Cell, Chart, Column, Fact, Number, On, Page, Point, Provenance,
    ReferenceLine, Row, Section, Series, SeriesKind, Table,
};
use crate::study::{Disturbances, disturbed};
use tipover_core::measure::{Histogram, percentile};
use tipover_core::op::OpKind;
use tipover_core::search::Scale;
use tipover_core::storage::limit::judgements;
use tipover_core::storage::tipping::{Surface, Tipping};
use tipover_core::storage::{BenchRecord, Measured, array};
use tipover_core::units::{Bytes, Rate, Ratio, span};

/// From a record to its page.
pub fn of_bench(record: &BenchRecord) -> Page {
    let mut sections = Vec::new();
    let mut section = |id: &str, title: &str, blocks: Vec<Block>| {
        if !blocks.is_empty() {
            sections.push(Section { id: id.into(), title: title.into(), blocks });
        }
    };
    let callout = |suspicion: &tipover_core::storage::Suspicion| {
        let kind = if suspicion.serious { CalloutKind::Warning } else { CalloutKind::Note };
        Block::Callout(Callout { kind, text: suspicion.text.clone() })
    };
    section("doubts", "Doubts", record.suspicions.iter().map(callout).collect());
    if let Some(tipping) = &record.tipping {
        section("tipping", "Tipping point", of_tipping(tipping));
        section("purchase", "What to buy", what_to_buy(tipping, read_share(record)));
    }
    if let Some(measured) = &record.measured {
        let blocks = vec![requests(&[("", measured)]), device(measured), Block::Facts(asked(measured))];
        let title = if record.tipping.is_some() { "The last load that held" } else { "The load" };
        section("load", title, blocks.into_iter().chain(over_time(measured)).collect());
    }
    if !record.durable.is_empty() {
        let named: Vec<(&str, &Measured)> =
            ["write, then fdatasync", "O_DSYNC"].into_iter().zip(&record.durable).collect();
        section("durable", "Writes that must last", vec![requests(&named)]);
    }
    if let Some(surface) = &record.surface {
        section("surface", "Read and write load", of_surface(surface));
    }
    section("facts", "Where", vec![Block::Facts(facts(record))]);
    Page {
        title: format!("Disk at {}", record.path),
        question: "What does this disk do, where does it tip, and what limits it?".into(),
        headline: headline(record),
        sections,
        claims: vec![],
        made_by: made_by(&record.provenance),
    }
}

/// Who made a page of a measurement that is no experiment, and when.
pub fn made_by(provenance: &tipover_core::record::Provenance) -> Provenance {
    Provenance {
        command: provenance.command.clone(),
        commit: provenance.commit.clone(),
        version: provenance.version.clone(),
        when: when(provenance.started_unix_s),
        facts: vec![],
    }
}

/// "2026-11-22T07:18:00Z".
pub fn when(unix_s: u64) -> String {
    time::OffsetDateTime::from_unix_timestamp(unix_s as i64)
        .ok()
        .and_then(|t| t.format(&time::format_description::well_known::Rfc3339).ok())
        .unwrap_or_default()
}

fn headline(record: &BenchRecord) -> Vec<String> {
    let mut said: Vec<String> = record.tipping.iter().flat_map(Tipping::sentences).collect();
    if let Some(tipping) = record.tipping.as_ref().filter(|tipping| tipping.demand.is_none())
        && let Some((clients, [striped, mirrored])) = tipping.purchases(read_share(record)).first()
        && let (Some(striped), Some(mirrored)) = (striped.disks, mirrored.disks)
    {
        said.push(format!(
            "twice as many, {clients} in flight, take {striped} such disks in RAID 0 or {mirrored} in RAID 10 \
             (computed; --clients N computes it for N, and tries it where the disk is a shaped one)"
        ));
    }
    if let (Some(measured), None) = (&record.measured, &record.tipping) {
        let latency = measured.mean_residence().map_or("no answer".into(), span::rounded);
        said.push(format!(
            "{} requests with {} in flight at most: {}, mean latency {latency}",
            measured.rate().rounded(),
            measured.load.in_flight(),
            Bytes(measured.bandwidth().0 as u64).rounded() + "/s"
        ));
        if let Some(offered) = &measured.offered {
            let due = offered.due as f64 / measured.window.as_secs_f64();
            said.push(match offered.backlog > u64::from(measured.load.in_flight()) {
                true => format!(
                    "{} were offered, more than this disk does: {} requests waited to be sent at the end, and latencies \
                     grow with the time",
                    Rate(due).rounded(),
                    offered.backlog
                ),
                false => format!("{} were offered, and the disk kept up", Rate(due).rounded()),
            });
        }
        let failures = measured.books.failures();
        if !failures.is_empty() {
            let each: Vec<String> = failures.iter().map(|(why, n)| format!("{n} {}", why.name())).collect();
            said.push(format!("{} requests failed: {}", measured.books.failed(), each.join(", ")));
        }
    }
    if let Some(surface) = &record.surface
        && let (Some(alone), Some(beside)) = (surface.typical(0.0), surface.typical(1.0))
    {
        let time = |ns: f64| span::rounded(std::time::Duration::from_nanos(ns as u64));
        said.push(format!(
            "over all read loads the middle p95 of reads is {} without writes and {} beside as many as the disk can do",
            time(alone),
            time(beside)
        ));
    }
    // Second, so that nobody reads the answer without it.
    if let Some(how) = disturbed(&[Disturbances::from(record)]) {
        let sentence = format!(
            "Disturbed: {how}. The figures are of the disk and of what ran beside it; measure again when nothing else \
             runs."
        );
        said.insert(said.len().min(1), sentence);
    }
    said.extend(record.suspicions.iter().filter(|suspicion| suspicion.serious).map(|s| s.text.clone()));
    if said.is_empty() {
        said.push("nothing was measured but what is below".into());
    }
    said
}

fn ms(ns: f64) -> f64 {
    ns / 1e6
}

/// Reads, writes and flushes, each with its own latencies.
fn requests(all: &[(&str, &Measured)]) -> Block {
    let mut rows = Vec::new();
    for (name, measured) in all {
        let seconds = measured.window.as_secs_f64();
        for (kind, word, bytes) in [
            (OpKind::ReadAt, "reads", measured.moved.read),
            (OpKind::WriteAt, "writes", measured.moved.written),
            (OpKind::Flush, "flushes", Bytes(0)),
        ] {
            let books = measured.books();
            let Some(book) = books.as_ref().ok().and_then(|books| books.of(kind)) else { continue };
            let title = if name.is_empty() { word.to_string() } else { format!("{name}: {word}") };
            let residence = book.latencies().residence();
            rows.push(row(&title, book.done() as f64 / seconds, bytes.0 as f64 / seconds / 1e6, residence));
        }
    }
    Block::Table(Table {
        caption: "Requests and their latencies".into(),
        columns: vec![
            Column::words("Requests"),
            Column::numbers("rate", "/s"),
            Column::numbers("moved", "MB/s"),
            Column::numbers("mean", "ms").group("Latency"),
            Column::numbers("p50", "ms").group("Latency"),
            Column::numbers("p99", "ms").group("Latency"),
            Column::numbers("p99.9", "ms").group("Latency"),
            Column::numbers("most", "ms").group("Latency"),
        ],
        rows,
        how_to_read: "From sending to answer as the client sees it; in an open loop from the moment at which a request was due. \
                      Percentiles with 95 % intervals by order statistics."
            .into(),
    })
}

fn row(title: &str, rate: f64, megabytes: f64, histogram: &Histogram) -> Row {
    let quantile = |q: f64| match percentile(histogram, q) {
        Ok(e) => Number::new(ms(e.value), "").between(ms(e.low), ms(e.high)).into(),
        Err(reason) => Cell::missing(&reason.to_string()),
    };
    let figure = |value: f64| Cell::from(Number::new(value, ""));
    let of_any =
        |value: f64| if histogram.is_empty() { Cell::missing("none was done") } else { figure(value) };
    Row::new(vec![
        title.into(),
        figure(rate),
        figure(megabytes),
        of_any(ms(histogram.mean())),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        of_any(ms(histogram.max() as f64)),
    ])
}

/// iostat's columns beside the load.
fn device(measured: &Measured) -> Block {
    let Some((rates, source)) = measured.device.as_ref().and_then(|d| Some((d.rates()?, d.source.clone())))
    else {
        let text = "Nobody counts at the device here, so whether the load reached it is not known.".into();
        return Block::Callout(Callout { kind: CalloutKind::Note, text });
    };
    let time = |span: Option<std::time::Duration>| match span {
        Some(span) => Number::new(span.as_secs_f64() * 1e3, "").into(),
        None => Cell::missing("none completed"),
    };
    let number = |value: f64| Cell::from(Number::new(value, ""));
    let (reads, writes) = measured.amplification();
    let times = |share: Option<f64>| share.map_or_else(|| Cell::missing("nothing was asked"), number);
    Block::Table(Table {
        caption: format!("The device meanwhile, by {source}"),
        columns: vec![
            Column::numbers("reads", "/s"),
            Column::numbers("writes", "/s"),
            Column::numbers("flushes", "/s"),
            Column::numbers("read", "MB/s"),
            Column::numbers("written", "MB/s"),
            Column::numbers("reads", "ms").group("Await"),
            Column::numbers("writes", "ms").group("Await"),
            Column::numbers("queue", ""),
            Column::numbers("busy", "%"),
            Column::numbers("reads", "×").group("Bytes there per byte asked"),
            Column::numbers("writes", "×").group("Bytes there per byte asked"),
        ],
        rows: vec![Row::new(vec![
            number(rates.reads.0),
            number(rates.writes.0),
            number(rates.flushes.0),
            number(rates.read_bandwidth.0 / 1e6),
            number(rates.write_bandwidth.0 / 1e6),
            time(rates.read_await),
            time(rates.write_await),
            number(rates.queue),
            number(rates.utilization.0 * 100.0),
            times(reads),
            times(writes),
        ])],
        how_to_read: "iostat's columns over the same window. A load that asks for more bytes than the device sees is answered by \
                      a cache. On a device that serves several requests at once, 100 % busy is not saturation."
            .into(),
    })
}

fn asked(measured: &Measured) -> Vec<Fact> {
    let load = &measured.load;
    let mut facts = vec![
        Fact::new("engine", load.engine.name()),
        Fact::new("threads × in flight", format!("{} × {}", load.threads, load.depth)),
        Fact::new("block", load.io.blocks.to_string()),
        Fact::new("data", load.io.size.rounded()),
        Fact::new("measured for", span::rounded(measured.window)),
    ];
    if let Some(arrivals) = &load.arrivals {
        facts.push(Fact::new("offered", arrivals.to_string()));
    }
    if let Some(flushes) = load.io.flushes {
        let call = if flushes.data_only { "fdatasync" } else { "fsync" };
        facts.push(Fact::new("flushes", format!("{call} after {} writes", flushes.every_writes)));
    }
    if let Some(cpu) = measured.cpu_per_request() {
        facts.push(Fact::new("processor time per request", span::rounded(cpu)));
    }
    if let Some(pressure) = measured.pressure {
        facts.push(
            Fact::new("somebody waited for I/O", pressure.rounded())
                .note("PSI, the whole machine; FUSE is not counted"),
        );
    }
    if let Some(cached) = measured.cached {
        facts
            .push(Fact::new("of the data in the page cache", cached.rounded()).note("cachestat, at the end"));
    }
    facts
}

fn over_time(measured: &Measured) -> Option<Block> {
    let points = |of: fn(&tipover_core::storage::Stretch) -> f64| {
        measured
            .stretches
            .iter()
            .map(|s| Point::new((s.end.0 as f64 / 1e7).round() / 100.0, of(s)))
            .collect::<Vec<_>>()
    };
    (measured.stretches.len() > 2).then(|| {
        Block::Chart(Chart {
            id: "over-time".into(),
            title: "Requests over time".into(),
            x: Axis::linear("since the begin", "s"),
            y: Axis::linear("requests", "/s"),
            series: vec![Series::ours(SeriesKind::Line, "disk", "this disk", points(|s| s.requests.0))],
            lines: vec![],
            how_to_read:
                "A level line is a disk at work; a step down is a burst that ended or somebody else's load."
                    .into(),
            cannot_say: "What happens after the window: credits of hours do not run out in seconds.".into(),
        })
    })
}

fn of_tipping(tipping: &Tipping) -> Vec<Block> {
    let closed = tipping.goals.scale == Scale::Sessions;
    let (unit, title) = if closed { ("", "requests in flight") } else { ("/s", "offered requests") };
    let optional = |value: Option<f64>, why: &str| match value {
        Some(value) => Number::new(value, "").into(),
        None => Cell::missing(why),
    };
    let nobody = "nobody counts at the device";
    let rows = tipping.rungs.iter().map(|rung| {
        Row::new(vec![
            Number::exact((rung.load * 10.0).round() / 10.0, "").into(),
            Number::new(rung.rate, "").into(),
            Number::new(rung.bandwidth / 1e6, "").into(),
            Number::new(rung.mean.as_secs_f64() * 1e3, "").into(),
            optional(rung.p99.map(|ns| ms(ns as f64)), "too few requests"),
            optional(rung.device_await.map(|ns| ms(ns as f64)), nobody),
            optional(rung.device_queue, nobody),
            optional(rung.device_utilization.map(|u| u * 100.0), nobody),
        ])
    });
    let mut blocks = vec![Block::Table(Table {
        caption: "The climb".into(),
        columns: vec![
            Column::numbers(title, unit),
            Column::numbers("requests", "/s"),
            Column::numbers("moved", "MB/s"),
            Column::numbers("mean", "ms").group("Latency"),
            Column::numbers("p99", "ms").group("Latency"),
            Column::numbers("await", "ms").group("At the device"),
            Column::numbers("queue", "").group("At the device"),
            Column::numbers("busy", "%").group("At the device"),
        ],
        rows: rows.collect(),
        how_to_read:
            "One short trial each; the search weighs the loads around the tipping point again and again."
                .into(),
    })];
    blocks.push(Block::Chart(latency_chart(tipping, title, unit)));
    blocks.push(Block::Chart(queue_chart(tipping, title, unit)));
    if let Some(evidence) = tipping.evidence.as_ref().filter(|evidence| !evidence.tested.is_empty()) {
        let rows = judgements(evidence).into_iter().map(|(intervention, judgement)| {
            Row::new(vec![
                intervention.change.into(),
                Number::new(judgement.gain.0, "").between(judgement.gain.1, judgement.gain.2).into(),
                judgement.sentence.as_str().into(),
            ])
        });
        blocks.push(Block::Table(Table {
            caption: "What limits, tested by changing the disk".into(),
            columns: vec![
                Column::words("Change"),
                Column::numbers("Throughput, after ÷ before", ""),
                Column::words("Verdict"),
            ],
            rows: rows.collect(),
            how_to_read: "At a load that saturates the disk as it is. A resource is the limit if the throughput follows it at \
                          least half-way."
                .into(),
        }));
    }
    blocks
}

/// Share of requests that read, as far as a load was measured.
fn read_share(record: &BenchRecord) -> Ratio {
    Ratio(record.measured.as_ref().map_or(1.0, |measured| measured.load.io.turns.read_share()))
}

/// How many such disks hold more clients than one does, and those that were asked for.
fn what_to_buy(tipping: &Tipping, reads: Ratio) -> Vec<Block> {
    let asked = tipping.demand.as_ref().map(|demand| (demand.clients, demand.limit, &tipping.sizings[..]));
    let purchases = tipping.purchases(reads);
    let more = purchases.iter().map(|(clients, sizings)| (*clients, tipping.promise.limit, &sizings[..]));
    let mut all: Vec<_> = asked.into_iter().chain(more).collect();
    all.sort_by_key(|(clients, ..)| *clients);
    let rows = all.into_iter().map(|(clients, limit, sizings)| {
        let mut cells = vec![Number::exact(f64::from(clients), "").into(), span::print(limit).into()];
        for sizing in sizings {
            let many = |disks| Cell::from(Number::exact(f64::from(disks), ""));
            cells.push(sizing.disks.map_or_else(|| Cell::missing("no number of them is enough"), many));
            let ms = sizing.predicted.as_secs_f64() * 1e3;
            cells.push(match sizing.disks {
                Some(_) => Number::new(ms, "").into(),
                None => Cell::missing("no number of them is enough"),
            });
        }
        Row::new(cells)
    });
    let rows: Vec<Row> = rows.collect();
    if rows.is_empty() {
        return vec![];
    }
    vec![Block::Table(Table {
        caption: "How many such disks it takes".into(),
        columns: vec![
            Column::numbers("clients with a request in flight", ""),
            Column::words("promised mean"),
            Column::numbers("disks", "").group("RAID 0"),
            Column::numbers("mean", "ms").group("RAID 0"),
            Column::numbers("disks", "").group("RAID 10"),
            Column::numbers("mean", "ms").group("RAID 10"),
        ],
        rows,
        how_to_read: format!("Computed from the climb of this one disk: {}.", array::ASSUMPTIONS),
    })]
}

fn latency_chart(tipping: &Tipping, title: &str, unit: &str) -> Chart {
    let points =
        tipping.rungs.iter().map(|rung| Point::new(rung.load, rung.mean.as_secs_f64() * 1e3)).collect();
    let mut series = vec![Series::ours(SeriesKind::Line, "disk", "mean latency", points)];
    let p99: Vec<Point> =
        tipping.rungs.iter().filter_map(|rung| Some(Point::new(rung.load, ms(rung.p99? as f64)))).collect();
    if !p99.is_empty() {
        series.push(Series::ours(SeriesKind::Points, "p99", "p99", p99));
    }
    let line = |on, value, label: String| ReferenceLine { on, value, label, subject: String::new() };
    let mut lines = vec![line(On::Y, tipping.promise.limit.as_secs_f64() * 1e3, tipping.promise.to_string())];
    if let Some(capacity) = tipping.capacity() {
        lines.extend(capacity.low.map(|low| line(On::X, low, "holds".into())));
        lines.extend(capacity.high.map(|high| line(On::X, high, "breaks".into())));
    }
    let knee = tipping.knee().map(|knee| (knee * 10.0).round() / 10.0);
    lines.extend(knee.map(|knee| line(On::X, knee, "knee".into())));
    Chart {
        id: "latency-against-load".into(),
        title: "Latency against load".into(),
        x: Axis::log(title, unit),
        y: Axis::log("latency", "ms"),
        series,
        lines,
        how_to_read: "Flat up to the knee, then in proportion: from there on more requests only wait longer."
            .into(),
        cannot_say: "Other block sizes, other mixes, and what this disk does when somebody else uses it too."
            .into(),
    }
}

fn queue_chart(tipping: &Tipping, title: &str, unit: &str) -> Chart {
    let points = tipping.rungs.iter().map(|rung| Point::new(rung.load, rung.rate)).collect();
    let mut lines = Vec::new();
    let most = tipping.rungs.iter().map(|rung| rung.rate).fold(0.0, f64::max);
    lines.push(ReferenceLine {
        on: On::Y,
        value: most,
        label: format!("most: {}", Rate(most).rounded()),
        subject: String::new(),
    });
    let mut series = vec![Series::ours(SeriesKind::Line, "disk", "requests per second", points)];
    let queue: Vec<Point> =
        tipping.rungs.iter().filter_map(|rung| Some(Point::new(rung.load, rung.device_queue?))).collect();
    if !queue.is_empty() {
        series.push(Series::ours(SeriesKind::Line, "queue", "mean queue at the device", queue));
    }
    Chart {
        id: "throughput-against-load".into(),
        title: "Throughput and queue against load".into(),
        x: Axis::log(title, unit),
        y: Axis::log("requests", "/s, or in the queue"),
        series,
        lines,
        how_to_read: "Where throughput turns flat, a limit was reached and the queue takes the rest.".into(),
        cannot_say: "Which limit: see what was tested, or inferred, above.".into(),
    }
}

fn of_surface(surface: &Surface) -> Vec<Block> {
    let mut series = Vec::new();
    let steps = surface.steps.max(2);
    for row in 0..steps {
        // Six lines can be told apart; the table below has all.
        if row % (steps / 5).max(1) != 0 {
            continue;
        }
        let cells = surface.cells.iter().skip((row * steps) as usize).take(steps as usize);
        let points: Vec<Point> = cells
            .filter_map(|cell| {
                Some(Point::new((cell.reads * 1000.0).round() / 10.0, ms(cell.p95_ns? as f64)))
            })
            .collect();
        if !points.is_empty() {
            let name = format!("{:.0} % of the writes", 100.0 * f64::from(row) / f64::from(steps - 1));
            series.push(Series::ours(SeriesKind::Line, &name, &name, points));
        }
    }
    let columns = (0..steps).map(|column| {
        Column::numbers(&format!("{:.0} %", 100.0 * f64::from(column) / f64::from(steps - 1)), "")
    });
    let rows = (0..steps).map(|row| {
        let cells = surface.cells.iter().skip((row * steps) as usize).take(steps as usize);
        let cell = |cell: &tipover_core::storage::tipping::SurfaceCell| match cell.p95_ns {
            Some(ns) => Number::new(ms(ns as f64), "").digits(2).into(),
            None => Cell::missing("too few reads"),
        };
        let name = format!("{:.0} %", 100.0 * f64::from(row) / f64::from(steps - 1));
        Row::new(std::iter::once(Cell::from(name)).chain(cells.map(cell)).collect())
    });
    vec![
        Block::Chart(Chart {
            id: "surface-by-writes".into(),
            title: "p95 of reads against read load, by write load".into(),
            x: Axis::linear("offered reads, of the most", "%"),
            y: Axis::log("p95 of reads", "ms"),
            series,
            lines: vec![],
            how_to_read: "Where the lines lie close together, writes do not disturb reads.".into(),
            cannot_say: "Each cell is short: a single step up may be chance.".into(),
        }),
        Block::Table(Table {
            caption: format!(
                "p95 of reads in ms: read load to the right (100 % = {} of {}), write load downwards (100 % = {} of {})",
                Rate(surface.most_reads_per_s).rounded(),
                surface.blocks.0,
                Bytes(surface.most_written_bytes_per_s as u64).rounded() + "/s",
                surface.blocks.1
            ),
            columns: std::iter::once(Column::words("Writes")).chain(columns).collect(),
            rows: rows.collect(),
            how_to_read: "From when a read was due to its answer; both loads arrive at random.".into(),
        }),
    ]
}

fn facts(record: &BenchRecord) -> Vec<Fact> {
    let medium = &record.medium;
    let mut facts =
        vec![Fact::new("path", record.path.as_str()), Fact::new("what it is", record.place.as_str())];
    if let Some(shape) = &record.shape {
        facts.push(Fact::new("its shape", shape.as_str()));
    }
    let bypass = if medium.direct {
        "direct I/O: the page cache is bypassed, the data set may be small"
    } else if medium.data > medium.memory_size {
        "through the page cache, with more data than memory"
    } else {
        "through the page cache, with data that fits into memory"
    };
    facts.push(Fact::new("page cache", bypass));
    facts.push(Fact::new("memory", medium.memory_size.rounded()));
    if let Some(rotational) = medium.rotational {
        facts.push(Fact::new("it spins", if rotational { "yes" } else { "no" }));
    }
    if let Some(volatile) = medium.volatile_cache {
        let says = if volatile { "yes: flushes are sent" } else { "no: the kernel sends no flushes" };
        facts.push(Fact::new("volatile write cache, by its own word", says));
    }
    facts.extend(record.missing.iter().map(|reason| Fact::new("not known", reason.as_str())));
    facts
}

#[cfg(test)]
mod tests;
