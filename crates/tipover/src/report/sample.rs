//! A page with everything that a page can have, for tests and for whoever works on its looks. It is shaped
//! like the working-set study, but its measurements are invented; the page says so.

use super::accesses::{self, AccessPicture};
use super::experiment::{Besides, of_experiment};
use super::number::Number;
use super::page::*;
use crate::study::accesses::{Accesses, Request};
use std::time::Duration;
use tipover_core::device::Kind;
use tipover_core::experiment::Experiment;
use tipover_core::trial::simulate;

const SOURCE: &str = "MongoDB 3.4.10, YCSB 0.14, AWS c5 with 7,634 MB; \"How working set and disk performance affect \
                      a MongoDB database\"";
const WORKING_SETS: [f64; 4] = [92.0, 138.0, 182.0, 230.0];
const DISKS: [&str; 3] = ["5000 IOPS", "600 IOPS + 7 ms", "150 IOPS + 7 ms"];
const IOPS: [f64; 3] = [5000.0, 600.0, 150.0];

/// Invented: operations per second and half-width of its interval, by working set and disk.
const THROUGHPUT: [[(f64, f64); 3]; 4] = [
    [(1_748_200.0, 38_000.0), (1_761_900.0, 41_000.0), (1_739_400.0, 36_500.0)],
    [(1_642_000.0, 52_000.0), (1_633_500.0, 47_000.0), (1_651_100.0, 55_300.0)],
    [(21_840.0, 1_310.0), (2_604.0, 163.0), (655.2, 38.1)],
    [(4_106.0, 214.0), (492.7, 27.4), (123.1, 7.2)],
];
/// As published; NAN where the study prints none.
const PUBLISHED_THROUGHPUT: [[f64; 3]; 4] = [
    [76_113.0, 69_579.5, 70_252.0],
    [66_720.0, 64_484.0, 64_229.0],
    [f64::NAN, 5_139.5, 737.95],
    [f64::NAN, f64::NAN, f64::NAN],
];
/// Invented: p99 in ms with the ends of its interval.
const P99: [[(f64, f64, f64); 3]; 4] = [
    [(0.0121, 0.0114, 0.0133), (0.0119, 0.0112, 0.0130), (0.0124, 0.0115, 0.0139)],
    [(0.0186, 0.0171, 0.0214), (0.0190, 0.0174, 0.0219), (0.0184, 0.0170, 0.0210)],
    [(20.6, 19.9, 22.8), (174.0, 168.0, 189.0), (702.0, 671.0, 768.0)],
    [(23.9, 23.1, 25.7), (201.0, 195.0, 214.0), (806.0, 781.0, 861.0)],
];
const PUBLISHED_P99: [[f64; 3]; 4] =
    [[f64::NAN; 3], [f64::NAN; 3], [19.0, 171.0, 770.0], [22.0, 199.0, 810.0]];
/// Invented: share of look-ups answered by engine cache, page cache and device, in per cent.
const BUDGET: [[f64; 3]; 4] = [[100.0, 0.0, 0.0], [71.8, 28.1, 0.0], [54.6, 41.7, 3.5], [43.1, 46.2, 10.5]];

/// The page of the working-set study with at least so many cells, twice each, in the virtual world.
pub fn sample_of_cells(cells: usize) -> anyhow::Result<Page> {
    let plan = include_str!("../../../../experiments/working-set.toml");
    let values: Vec<String> =
        (0..cells.div_ceil(DISKS.len())).map(|n| format!("\"{} %\"", 50 + 5 * n)).collect();
    let own = r#"values = ["92 %", "138 %", "182 %", "230 %"]"#;
    anyhow::ensure!(plan.contains(own), "the plan has other working sets now");
    let plan = plan.replacen(own, &format!("values = [{}]", values.join(", ")), 1);
    let experiment = Experiment::parse(&plan, "tiny", &[("repeats".into(), "2".into())])?;
    let machine = simulate::Machine::default();
    let trials = experiment.trials();
    let record = |trial| simulate::trial(&experiment.name, trial, experiment.seed, &machine).0;
    let records: Vec<_> = trials.iter().map(record).collect();
    let studied = super::studied(&experiment, &records)?;
    of_experiment(&experiment, &records, studied.as_ref(), Besides::default(), "tipover sample-report")
}

/// The page.
pub fn sample() -> Page {
    let sections = vec![
        about(),
        answer(),
        throughput(),
        equilibrium(),
        budget(),
        device(),
        timeline(),
        pictures(),
        missed(),
        environment(),
    ];
    Page {
        title: "Working set against cache and disk".into(),
        question: "How much slower does a database become when its working set no longer fits into its caches, and \
                   how much of that is the disk's fault?"
            .into(),
        headline: vec![
            "Up to a working set of 138 % of the engine cache all three disks give 1.6 to 1.8 million reads/s; at \
             230 % the 150-IOPS disk gives 1/14,100 of that, because every miss waits for 7.5 dependent 4 KiB reads."
                .into(),
            "Beyond the page cache, throughput is in the ratio of the disks' IOPS: 33.4 : 4.0 : 1 at 230 %.".into(),
            "p99 there is reads per miss × sessions ÷ IOPS: 800 ms predicted on the slowest disk, 806 ms measured, \
             810 ms published."
                .into(),
            "One of 12 cells gives no verdict: its read budget does not close.".into(),
        ],
        sections,
        claims: vec![],
        made_by: Provenance {
            command: "tipover report --sample".into(),
            commit: "0000000 (invented)".into(),
            version: "0.1.0".into(),
            when: "2026-01-31T12:00:00Z".into(),
            facts: vec![
                Fact::new("results", "results/working-set"),
                Fact::new("seed", "42"),
                Fact::new("trials", "36 finished, 0 failed").note("4 working sets × 3 disks × 3 repeats"),
            ],
        },
    }
}

fn about() -> Section {
    Section {
        id: "about".into(),
        title: "About this page".into(),
        blocks: vec![
            Block::Callout(Callout {
                kind: CalloutKind::Warning,
                text: "This is a sample. The published numbers are real, ours are invented.".into(),
            }),
            Block::Prose(
                "A closed loop of 16 sessions reads uniformly chosen records from WiredTiger, configured as `mongod` \
                 configures it. The working set grows past the engine cache and then past the page cache; the disk \
                 is shaped to three speeds.\n\nNumbers marked † are someone else's. Every \
                 interval is 95 % over repeats unless a table says otherwise."
                    .into(),
            ),
        ],
    }
}

fn row_name(working_set: usize) -> Cell {
    Number::exact(WORKING_SETS[working_set], "%").into()
}

fn published_or_missing(value: f64, unit: &str) -> Cell {
    if value.is_nan() {
        Cell::missing("not printed in the study")
    } else {
        Cell::published(Number::exact(value, unit), SOURCE)
    }
}

fn answer() -> Section {
    let mut rows = Vec::new();
    for (w, disks) in THROUGHPUT.iter().enumerate() {
        for (d, (ops, error)) in disks.iter().enumerate() {
            let relative = |x: f64| Number::new(100.0 * x, "%");
            let in_cache = THROUGHPUT[0][d].0;
            let published = PUBLISHED_THROUGHPUT[w][d];
            let (p99, low, high) = P99[w][d];
            let closes = !(w == 2 && d == 1);
            let row = Row::new(vec![
                row_name(w),
                DISKS[d].into(),
                Number::new(*ops, "ops/s").between(ops - error, ops + error).into(),
                published_or_missing(published, "ops/s"),
                relative(ops / in_cache).into(),
                match published {
                    p if p.is_nan() => Cell::missing("not printed in the study"),
                    p => Cell::published(relative(p / PUBLISHED_THROUGHPUT[0][d]), SOURCE),
                },
                Number::new(p99, "ms").between(low, high).into(),
                match w {
                    0 => Cell::published(Number::range(0.40, 0.44, "ms").digits(2), SOURCE),
                    1 => Cell::published(Number::range(0.53, 0.55, "ms").digits(2), SOURCE),
                    _ => published_or_missing(PUBLISHED_P99[w][d], "ms"),
                },
                match closes {
                    true => Cell::verdict(Verdict::Held, ""),
                    false => Cell::verdict(Verdict::Unknown, ""),
                },
            ]);
            rows.push(if closes {
                row.emphasis(if w == 3 { Emphasis::Strong } else { Emphasis::Plain })
            } else {
                row.note("4.1 % of the engine's misses are neither page-cache hits nor device reads; 2 % are allowed")
                    .emphasis(Emphasis::Faint)
            });
        }
    }
    Section {
        id: "table".into(),
        title: "Ours beside the published".into(),
        blocks: vec![Block::Table(Table {
            caption: "Throughput and p99 by working set and disk".into(),
            columns: vec![
                Column::numbers("working set", "%"),
                Column::words("disk"),
                Column::numbers("ours", "ops/s").group("throughput"),
                Column::numbers("published", "ops/s").group("throughput"),
                Column::numbers("ours", "%").group("relative to in-cache"),
                Column::numbers("published", "%").group("relative to in-cache"),
                Column::numbers("ours", "ms").group("p99 residence"),
                Column::numbers("published", "ms").group("p99 residence"),
                Column::words("read budget closes"),
            ],
            rows,
            how_to_read: "Compare shapes, not heights: our sessions call the engine in-process, the published ones \
                          crossed a network. Working set is data and index as a share of the effective engine cache."
                .into(),
        })],
    }
}

fn against_working_set(ours: impl Fn(usize, usize) -> Point, theirs: [[f64; 3]; 4]) -> Vec<Series> {
    let mut series = Vec::new();
    for (d, disk) in DISKS.iter().enumerate() {
        series.push(Series::ours(SeriesKind::Line, disk, disk, (0..4).map(|w| ours(w, d)).collect()));
        let points =
            (0..4).filter(|w| !theirs[*w][d].is_nan()).map(|w| Point::new(WORKING_SETS[w], theirs[w][d]));
        let name = format!("{disk}, published");
        series.push(Series::published(SeriesKind::Line, disk, &name, SOURCE, points.collect()));
    }
    series
}

fn throughput() -> Section {
    let ours = |w: usize, d: usize| {
        let (ops, error) = THROUGHPUT[w][d];
        let point = Point::new(WORKING_SETS[w], ops).between(ops - error, ops + error);
        if w == 2 && d == 1 { point.label("read budget does not close") } else { point }
    };
    Section {
        id: "throughput".into(),
        title: "Throughput and p99".into(),
        blocks: vec![
            Block::Chart(Chart {
                id: "throughput-chart".into(),
                title: "Throughput against working set".into(),
                x: Axis::linear("working set", "% of engine cache"),
                y: Axis::log("throughput", "ops/s"),
                series: against_working_set(ours, PUBLISHED_THROUGHPUT),
                lines: vec![ReferenceLine {
                    on: On::X,
                    value: 100.0,
                    label: "engine cache full".into(),
                    subject: String::new(),
                }],
                how_to_read:
                    "The lines lie on each other while the caches hold the working set, and part where the \
                              disk begins to answer. Equal steps upwards are equal ratios."
                        .into(),
                cannot_say:
                    "Where between two measured working sets the fall begins: the straight lines only join \
                             what was measured."
                        .into(),
            }),
            Block::Chart(Chart {
                id: "p99-chart".into(),
                title: "p99 residence against working set".into(),
                x: Axis::linear("working set", "% of engine cache"),
                y: Axis::log("p99 residence", "ms"),
                series: against_working_set(
                    |w, d| {
                        let (p99, low, high) = P99[w][d];
                        Point::new(WORKING_SETS[w], p99).between(low, high)
                    },
                    PUBLISHED_P99,
                ),
                lines: vec![],
                how_to_read:
                    "99 of 100 reads took no longer than this, from when they were due until they were \
                              answered. Beyond the caches it should be reads per miss × sessions ÷ IOPS."
                        .into(),
                cannot_say:
                    "How long the worst read took, and what an open load would have met: 16 sessions in a \
                             closed loop slow down with the disk instead of queueing."
                        .into(),
            }),
        ],
    }
}

fn equilibrium() -> Section {
    let warm = |s: f64| 100.0 - 57.0 * (-s / 9.0).exp() - 0.4 * (s * 1.7).sin();
    let points = (0..90).map(f64::from).map(|s| Point::new(s, warm(s).clamp(0.0, 100.0))).collect();
    Section {
        id: "equilibrium".into(),
        title: "Were the caches warm?".into(),
        blocks: vec![Block::Chart(Chart {
            id: "warm-up".into(),
            title: "Page-cache hit ratio while warming up, 138 %".into(),
            x: Axis::linear("time since load", "s"),
            y: Axis::linear("page-cache hit ratio", "%"),
            series: vec![Series::ours(SeriesKind::Line, "page cache", "page-cache hits", points)],
            lines: vec![ReferenceLine {
                on: On::X,
                value: 52.0,
                label: "flat: measuring begins".into(),
                subject: String::new(),
            }],
            how_to_read: "Flat before the line means that the cell was measured at its equilibrium.".into(),
            cannot_say: "Whether it would have drifted in an hour.".into(),
        })],
    }
}

fn budget() -> Section {
    let layers = ["engine cache", "page cache", "device"];
    let series = layers
        .iter()
        .enumerate()
        .map(|(layer, name)| {
            let mut points = Vec::new();
            for (w, shares) in BUDGET.iter().enumerate() {
                for disk in ["S1", "S2", "S3"] {
                    let group = format!("{} %", WORKING_SETS[w]);
                    points.push(Point::new((group.as_str(), disk), shares[layer]));
                }
            }
            Series::ours(SeriesKind::StackedBars, name, name, points)
        })
        .collect();
    Section {
        id: "budget".into(),
        title: "Who answered the reads".into(),
        blocks: vec![
            Block::Callout(Callout {
                kind: CalloutKind::Note,
                text: "S1, S2 and S3 are the disks of 5000, 600 and 150 IOPS.".into(),
            }),
            Block::Chart(Chart {
                id: "read-budget".into(),
                title: "Read budget: who answered a look-up".into(),
                x: Axis::category("working set and disk"),
                y: Axis::linear("look-ups", "%"),
                series,
                lines: vec![],
                how_to_read:
                    "Each bar is all look-ups of a cell. What the engine cache misses, the page cache or \
                              the device must have answered; what is short of 100 % is the residual."
                        .into(),
                cannot_say: "What a look-up cost: a per cent of device reads can be nearly all of the time."
                    .into(),
            }),
        ],
    }
}

fn device() -> Section {
    let rows = IOPS
        .iter()
        .zip(DISKS)
        .map(|(iops, disk)| {
            let achieved = if *iops == 600.0 { 592.2 } else { iops * 0.9995 };
            let step = achieved * 0.0003;
            Row::new(vec![
                disk.into(),
                Number::exact(*iops, "/s").into(),
                Number::new(achieved, "/s").digits(4).between(achieved - step, achieved + step).into(),
                match *iops {
                    5000.0 => Cell::published(Number::exact(5025.0, "/s"), SOURCE),
                    _ => Cell::published(Number::exact(150.0, "/s"), SOURCE),
                },
                Number::new(15.2 + 700.0 / (iops + 850.0), "").into(),
                match *iops {
                    600.0 => Cell::verdict(Verdict::NotHeld, "off by 1.3 %"),
                    _ => Cell::verdict(Verdict::Held, ""),
                },
            ])
        })
        .collect();
    let sizes = [4.0, 8.0, 16.0, 32.0];
    let baseline = |iops: f64, fall: f64| {
        let y = move |kib: f64| iops / (1.0 + fall * (kib - 4.0));
        sizes.iter().map(|kib| Point::new(*kib, y(*kib)).between(y(*kib) * 0.985, y(*kib) * 1.01)).collect()
    };
    let series = IOPS
        .iter()
        .zip(DISKS)
        .map(|(iops, disk)| Series::ours(SeriesKind::Points, disk, disk, baseline(*iops * 0.999, 0.004)));
    let line = |(iops, disk): (&f64, &str)| ReferenceLine {
        on: On::Y,
        value: *iops,
        label: format!("configured {iops} IOPS"),
        subject: disk.into(),
    };
    Section {
        id: "device".into(),
        title: "Device against configuration".into(),
        blocks: vec![
            Block::Table(Table {
                caption: "Random 4 KiB reads, 16 in flight".into(),
                columns: vec![
                    Column::words("disk"),
                    Column::numbers("configured", "/s"),
                    Column::numbers("achieved", "/s"),
                    Column::numbers("published", "/s"),
                    Column::numbers("queue depth", ""),
                    Column::words("within 1 %"),
                ],
                rows,
                how_to_read:
                    "If the disk is not what it was told to be, nothing below it means anything. The \
                              published study shows 150 /s on its 600-IOPS disk and does not say why."
                        .into(),
            }),
            Block::Chart(Chart {
                id: "device-baseline".into(),
                title: "Device baseline: requests against block size".into(),
                x: Axis::log("block size", "KiB"),
                y: Axis::log("requests", "/s"),
                series: series.collect(),
                lines: IOPS.iter().zip(DISKS).map(line).collect(),
                how_to_read: "Points on their dashed line: the disk does what it was configured to do."
                    .into(),
                cannot_say: "Anything about writes, or about fewer than 16 requests in flight.".into(),
            }),
            device_cpu(),
        ],
    }
}

fn device_cpu() -> Block {
    Block::Chart(Chart {
        id: "device-cpu".into(),
        title: "CPU that the shaped disk itself costs".into(),
        x: Axis::category("disk"),
        y: Axis::linear("CPU", "% of a core"),
        series: vec![
            Series::ours(
                SeriesKind::Bars,
                "block mode",
                "block mode",
                vec![
                    Point::new(DISKS[0], 31.0).between(29.0, 34.0),
                    Point::new(DISKS[1], 4.1).between(3.8, 4.5),
                    Point::new(DISKS[2], 1.2).between(1.0, 1.5),
                ],
            ),
            Series::ours(
                SeriesKind::Bars,
                "file mode",
                "file mode",
                vec![
                    Point::new(DISKS[0], 22.0).between(20.0, 25.0),
                    Point::new(DISKS[1], 2.9).between(2.7, 3.2),
                    Point::new(DISKS[2], 0.9).between(0.8, 1.1),
                ],
            ),
        ],
        lines: vec![],
        how_to_read: "Small against the 200 % of this machine means that the disk does not slow its user."
            .into(),
        cannot_say: "What the kernel spends on behalf of the disk.".into(),
    })
}

/// Invented: pages of an index and of documents at random, a checkpoint's writes in between.
fn pictures() -> Section {
    let mut x = 42u64;
    let mut random = |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) % below
    };
    let mut requests = Vec::new();
    for n in 0..3000u64 {
        let at = Duration::from_micros(n * 2000);
        let (kind, file, offset, size) = match n % 3 {
            0 => (Kind::Read, 1, random(900) * 8192, 8192),
            _ if n / 500 == 3 => (Kind::Write, 0, (n - 1500) * 28_672, 28_672),
            _ => (Kind::Read, 0, random(1000) * 65_536, 28_672),
        };
        requests.push(Request { kind, file, offset, size, at, end: at + Duration::from_micros(700) });
    }
    let names = ["collection-0.wt", "index-1.wt"];
    let accesses = Accesses::of_requests(&requests, &names, Duration::from_secs(6));
    let title = "230 %, 600 IOPS + 7 ms (invented)".into();
    accesses::section(vec![AccessPicture { id: "picture".into(), title, accesses }])
}

/// A line over time: its name, and its height in a second in which there is something to see.
type Over<'a> = (&'a str, &'a dyn Fn(f64) -> Option<f64>);

/// A kill with its panels: a gap in which a node was not read, a log axis, a moment without end.
fn timeline() -> Section {
    let panel = |id: &str, title: &str, y: Axis, lines: &[Over<'_>]| {
        let line = |(name, of): &Over<'_>| {
            let mut gap = false;
            let mut points = Vec::new();
            for second in (0..60).map(f64::from) {
                match of(second) {
                    Some(value) => points.push(Point::new(second, value).apart(std::mem::take(&mut gap))),
                    None => gap = true,
                }
            }
            Series::ours(SeriesKind::Line, name, name, points)
        };
        let (series, x) =
            (lines.iter().map(line).collect(), Axis::linear("since the measured phase began", "s"));
        let (id, title, said) = (id.into(), title.into(), String::new());
        Chart { id, title, x, y, series, lines: vec![], how_to_read: said.clone(), cannot_say: said }
    };
    let down = |s: f64| (20.0..26.0).contains(&s);
    let done = |s: f64| Some(if down(s) { 0.0 } else { 800.0 + 20.0 * s.sin() });
    let p99 =
        |s: f64| (!down(s)).then(|| if (26.0..29.0).contains(&s) { 6000.0 } else { 9.0 + 3.0 * s.cos() });
    let cores = |s: f64| (!down(s)).then(|| 0.4 + 0.05 * s.sin());
    let charts = vec![
        panel(
            "over-time-1",
            "Operations",
            Axis::linear("Operations", "/s"),
            &[("done", &done), ("offered", &|_| Some(800.0))],
        ),
        panel("over-time-2", "Residence", Axis::log("Residence", "ms"), &[("p99 over time", &p99)]),
        panel(
            "over-time-3",
            "Processor",
            Axis::linear("Processor", "cores in use"),
            &[("node a", &cores), ("node b", &|s| cores(s).map(|cores| cores / 3.0))],
        ),
    ];
    let mark = |from: f64, to: Option<f64>, label: &str, text: &str| PanelMark {
        from,
        to,
        label: label.into(),
        text: text.into(),
    };
    let row = |from: f64, done: f64, happened: &str| {
        let number = |value, unit| Cell::from(Number::new(value, unit));
        Row::new(vec![number(from, "s"), number(done, "/s"), happened.into()])
    };
    let in_short = Table {
        caption: "A primary is killed (invented), in 3 steps".into(),
        columns: vec![
            Column::numbers("from", "s"),
            Column::numbers("done", "/s"),
            Column::words("what happened"),
        ],
        rows: vec![row(0.0, 801.0, ""), row(20.0, 0.0, "kill primary; b takes writes"), row(26.0, 803.0, "")],
        how_to_read: "From: since the measured phase began.".into(),
    };
    let panels = Panels {
        id: "over-time".into(),
        title: "A primary is killed (invented)".into(),
        charts,
        marks: vec![mark(20.0, Some(26.0), "1", "kill primary"), mark(23.0, None, "2", "b takes writes")],
        from: 0.0,
        live: false,
        in_short,
        how_to_read: "A shaded span is a fault in force, a dotted line another node that takes writes."
            .into(),
        cannot_say: "What happened within an interval.".into(),
    };
    let blocks = vec![Block::Panels(Box::new(panels))];
    Section { id: "timeline".into(), title: "Over time".into(), blocks }
}

fn missed() -> Section {
    Section {
        id: "missed".into(),
        title: "Requirements missed".into(),
        blocks: vec![
            Block::Callout(Callout {
                kind: CalloutKind::Failure,
                text: "Block mode needs root and loop devices. Run `sudo tipover run working-set`, or accept file \
                       mode, in which `iostat` and readahead are not the kernel's."
                    .into(),
            }),
            Block::Table(Table {
                caption: "What the experiment asks for and what it got".into(),
                columns: vec![
                    Column::words("requirement"),
                    Column::words("met"),
                    Column::words("consequence"),
                ],
                rows: vec![
                    Row::new(vec![
                        "memory cgroup".into(),
                        Cell::verdict(Verdict::Held, "v2"),
                        "page cache is bounded".into(),
                    ]),
                    Row::new(vec![
                        "block mode".into(),
                        Cell::verdict(Verdict::NotHeld, "no loop devices"),
                        "readahead is FUSE's, set to 0".into(),
                    ]),
                    Row::new(vec![
                        "CPU frequency fixed".into(),
                        Cell::verdict(Verdict::Unknown, "not visible in this virtual machine"),
                        "in-cache cells may vary by some per cent".into(),
                    ]),
                ],
                how_to_read: String::new(),
            }),
        ],
    }
}

fn environment() -> Section {
    Section {
        id: "environment".into(),
        title: "Environment".into(),
        blocks: vec![Block::Facts(vec![
            Fact::new("processor", "AMD EPYC 7R13, 2 cores"),
            Fact::new("memory", Number::new(7.63, "GB"))
                .note("limited to 200 MiB by cgroup v2 for the engine"),
            Fact::new("kernel", "Linux 6.1.0, ext4 on a loop device with direct I/O"),
            Fact::new("engine", "WiredTiger 11.3.1, snappy, eviction 80/95, journal 100 ms, checkpoint 60 s"),
            Fact::new("engine cache", Number::new(80.0, "MiB"))
                .note("64 MiB effective: eviction begins at 80 %"),
            Fact::new("steal", Number::new(0.4, "%").between(0.1, 0.9))
                .note("CPU time taken by other guests"),
            Fact::new("disk temperature", Cell::missing("virtual disks have none")),
            Fact::new("published machine", Cell::published(Number::exact(7634.0, "MB"), SOURCE)),
        ])],
    }
}
