//! Trials over time, what users saw before, during and after faults, and what each node did.

use super::budgets;
use crate::report::{
    Axis, Block, Cell, Chart, Columns, Number, PanelMark, Panels, Point, Section, Series, SeriesKind, Table,
};
use std::collections::{BTreeMap, VecDeque};
use tipover_core::record::{Interval, Record};
use tipover_core::study::nodes::{self, NodeFigures};
use tipover_core::study::spells::{self, SpellFigures, Spells};
use tipover_core::study::tenants::{self, TenantFigures};
use tipover_core::study::timeline::{self, ALONE, Class, Flow, Mark, MarkKind, Recent, Step, Timeline, Why};
use tipover_core::study::{BrokenCell, CellRecords, Cells};

/// More pictures than this make a page that nobody reads to its end.
const MOST: usize = 4;
/// More points than a screen has columns for say nothing more.
const STEPS: usize = 400;
/// Rows for whoever sees no picture.
const ROWS: usize = 16;

/// What the seconds of a trial that is over count from, and of one that goes on.
const MEASURED: &str = "since the measured phase began";
const BEGAN: &str = "since the trial began";

/// What becomes of the intervals of trials on clusters.
#[derive(Default)]
pub struct Courses {
    shown: Vec<Shown>,
    /// Cells that are not shown, because there are too many.
    left_out: usize,
    /// By the cell's id, of trials whose load runs beside the checks.
    spells: BTreeMap<String, Vec<Spells>>,
}

/// A trial that is shown.
struct Shown {
    cell: String,
    why: Why,
    fine: Timeline,
    coarse: Timeline,
}

/// A cell, called as the rest of its page calls it.
fn name(c: &CellRecords<'_>) -> String {
    BrokenCell::of(c).map_or_else(|| super::load::name(c), |broken| broken.name())
}

impl Courses {
    /// From the records of `cells`, and the intervals that `read` gives for one, or `None` where they cannot
    /// be read.
    pub fn of(cells: &Cells<'_>, mut read: impl FnMut(&Record) -> Option<Vec<Interval>>) -> Courses {
        let mut courses = Courses::default();
        let clusters = cells.all.iter().filter(|c| timeline::is_shown(&c.cell.spec));
        let mut wanted: Vec<(&CellRecords<'_>, &Record, Why)> = clusters
            .clone()
            .filter_map(|c| timeline::shown(&c.records).map(|(r, why)| (c, r, why)))
            .collect();
        // Where something was lost stands first; the others keep the plan's order.
        wanted.sort_by_key(|(_, _, why)| *why == Why::First);
        courses.left_out = wanted.len().saturating_sub(MOST);
        wanted.truncate(MOST);
        for c in clusters {
            let beside = c.cell.spec.breaking.is_some() && !c.cell.spec.checks_alone();
            for record in &c.records {
                let shown = wanted.iter().find(|(_, shown, _)| std::ptr::eq(*shown, *record));
                let counts = beside && record.is_valid();
                if shown.is_none() && !counts {
                    continue;
                }
                let Some(intervals) = read(record) else { continue };
                if counts {
                    let of_cell = courses.spells.entry(c.cell.id()).or_default();
                    of_cell.push(spells::spells(record, &intervals));
                }
                let Some((_, _, why)) = shown else { continue };
                let timeline = |most| Timeline::of(record, &intervals, most);
                let (Some(fine), Some(coarse)) = (timeline(STEPS), timeline(ROWS)) else { continue };
                courses.shown.push(Shown { cell: name(c), why: *why, fine, coarse });
            }
        }
        courses.shown.retain(|shown| !shown.fine.steps.is_empty());
        courses
    }

    /// The pictures, and what is not among them.
    pub fn section(&self) -> Section {
        let mut blocks = Vec::new();
        for (number, shown) in self.shown.iter().enumerate() {
            blocks.push(Block::Panels(Box::new(panels(number + 1, shown))));
            if !shown.fine.marks.is_empty() {
                blocks.push(Block::Table(marks(shown)));
            }
        }
        if self.left_out > 0 {
            let cells = if self.left_out == 1 {
                "1 more cell".into()
            } else {
                format!("{} more cells", self.left_out)
            };
            blocks.push(Block::Prose(format!(
                "{cells} of clusters are not drawn; `series.jsonl` beside their records has every interval."
            )));
        }
        Section { id: "timeline".into(), title: "Over time".into(), blocks }
    }

    /// What users saw of each cell whose load ran beside the checks.
    pub fn served(&self, cells: &Cells<'_>) -> Section {
        let of = |c: &CellRecords<'_>| {
            let figures = spells::figures(c, self.spells.get(&c.cell.id())?);
            Some(figures.into_iter().map(|figures| (name(c), figures)).collect::<Vec<_>>())
        };
        let rows: Vec<(String, SpellFigures)> = cells.all.iter().filter_map(of).flatten().collect();
        let blocks = if rows.is_empty() { vec![] } else { vec![Block::Table(served(&rows))] };
        Section { id: "served".into(), title: "What users saw".into(), blocks }
    }
}

/// "#1, the first": which trial of its cell.
fn which(shown: &Shown) -> String {
    let number = shown.fine.repeat + 1;
    match shown.why {
        Why::First => format!("{}, trial #{number}", shown.cell),
        Why::LostMost { lost } => {
            format!("{}, trial #{number}, which lost most ({lost} acknowledged)", shown.cell)
        }
    }
}

/// A value of a step, for a line.
type Value<'a, T> = &'a dyn Fn(&T) -> Option<f64>;

/// A line through what is known; what is not known is a gap.
fn line<T>(subject: &str, of: &[T], x: impl Fn(&T) -> f64, y: Value<'_, T>) -> Series {
    let mut apart = false;
    let mut points = Vec::new();
    for one in of {
        match y(one) {
            Some(value) => points.push(Point::new(x(one), value).apart(std::mem::take(&mut apart))),
            None => apart = !points.is_empty(),
        }
    }
    Series::ours(SeriesKind::Line, subject, subject, points)
}

/// Those of a trial that is over.
fn panels(number: usize, shown: &Shown) -> Panels {
    let id = format!("timeline-{number}");
    let mut charts = charts(&id, &shown.fine, MEASURED);
    // A flat line at the bottom of a panel of its own says no more than its absence.
    charts.retain(|chart| chart.series.iter().flat_map(|series| &series.points).any(|point| point.y > 0.0));
    Panels {
        title: which(shown),
        charts,
        marks: panel_marks(&shown.fine),
        from: 0.0,
        live: false,
        in_short: in_short(
            &format!("{}, in {} steps", which(shown), shown.coarse.steps.len()),
            &shown.coarse,
            MEASURED,
        ),
        how_to_read: "All panels share the axis of time. A shaded span is a fault in force, from when it took effect to \
                      when it was undone; a dotted line is another node that takes writes. Their numbers are those of \
                      the table below. Values are of one interval each and stand in its middle; of an open loop, \
                      residence counts from when an operation was due, so what waited in the backlog shows when it \
                      ends. A node's line has a gap where it could not be read; a panel in which nothing ever happened, \
                      such as disks that were never read, is left out."
            .into(),
        cannot_say: "What happened within an interval: a pause that is shorter shows as fewer operations and a longer \
                     residence, not as a pause. Nothing is read of any node while one is being killed, cut off or \
                     brought back. This is one trial; the tables have the figures over all."
            .into(),
        id,
    }
}

/// Faults as spans and other primaries as moments, numbered.
fn panel_marks(timeline: &Timeline) -> Vec<PanelMark> {
    let mark = |(at, mark): (usize, &Mark)| PanelMark {
        from: mark.at_s,
        to: (mark.kind == MarkKind::Fault).then(|| mark.until_s.unwrap_or(mark.at_s)),
        label: (at + 1).to_string(),
        text: mark.words.clone(),
    };
    timeline.marks.iter().enumerate().map(mark).collect()
}

/// What users got and what each node did, a chart each, under ids that begin with `id`; `since`: what the
/// seconds count from.
fn charts(id: &str, timeline: &Timeline, since: &str) -> Vec<Chart> {
    let Timeline { steps, nodes, .. } = timeline;
    let middle = |step: &Step| f64::midpoint(step.begin_s, step.end_s);
    let of_users = |title: &str, unit: &str, log: bool, lines: &[(&str, Value<'_, Step>)]| {
        let series = lines.iter().map(|(name, of)| line(name, steps, middle, of)).collect();
        (title.to_string(), unit.to_string(), log, series)
    };
    let waited = |of: fn(&timeline::Residence) -> f64| move |step: &Step| step.residence.as_ref().map(of);
    let mut all: Vec<(String, String, bool, Vec<Series>)> = vec![
        of_users(
            "Operations",
            "/s",
            false,
            &[
                ("done", &|step| Some(step.done_ops_per_s)),
                ("failed", &|step| Some(step.failed_ops_per_s)),
                ("offered", &|step| step.offered_ops_per_s),
            ],
        ),
        of_users(
            "Residence",
            "ms",
            true,
            &[
                ("median", &waited(|r| r.ms_p50)),
                ("p99", &waited(|r| r.ms_p99)),
                ("longest", &waited(|r| r.ms_max)),
            ],
        ),
        of_users(
            "Backlog",
            "operations due and not sent",
            false,
            &[("backlog", &|step| step.backlog.map(|backlog| backlog as f64))],
        ),
    ];
    let of_nodes = |title: &str, unit: &str, of: fn(&Flow) -> Option<f64>| {
        let middle = |flow: &Flow| f64::midpoint(flow.begin_s, flow.end_s);
        let name = |node: &str| if node == ALONE { ALONE.to_string() } else { format!("node {node}") };
        let series = nodes.iter().map(|(node, flows)| line(&name(node), flows, middle, &of)).collect();
        (title.to_string(), unit.to_string(), false, series)
    };
    all.extend([
        of_nodes("Processor", "cores in use", |flow| flow.cores),
        of_nodes("Disk queue", "requests in flight", |flow| flow.disk_queue),
        of_nodes("Disk reads", "requests/s", |flow| flow.disk_reads_per_s),
        of_nodes("Disk writes", "requests/s", |flow| flow.disk_writes_per_s),
        of_nodes("Disk flushes", "/s", |flow| flow.disk_flushes_per_s),
        of_nodes("Network in", "MB/s", |flow| flow.network_in_mb_per_s),
        of_nodes("Network out", "MB/s", |flow| flow.network_out_mb_per_s),
    ]);
    let chart = |(at, (title, unit, log, mut series)): (usize, (String, String, bool, Vec<Series>))| {
        series.retain(|series| !series.points.is_empty());
        Chart {
            id: format!("{id}-{at}"),
            x: Axis::linear(since, "s"),
            y: if log { Axis::log(&title, &unit) } else { Axis::linear(&title, &unit) },
            title,
            series,
            lines: vec![],
            how_to_read: String::new(),
            cannot_say: String::new(),
        }
    };
    all.into_iter().enumerate().map(chart).collect()
}

/// The panels of a trial that goes on.
pub fn of_recent(id: &str, title: &str, recent: &Recent) -> Panels {
    let Recent { timeline, waited, .. } = recent;
    let mut charts = charts(id, timeline, BEGAN);
    charts.insert(2, heat(id, timeline, waited));
    charts.retain(|chart| chart.series.iter().any(|series| !series.points.is_empty()));
    Panels {
        id: id.into(),
        title: title.into(),
        charts,
        marks: panel_marks(timeline),
        from: timeline.steps.first().map_or(0.0, |step| step.begin_s),
        live: true,
        in_short: in_short("The last intervals", &timeline.last(ROWS), BEGAN),
        how_to_read: "The last intervals of the trial, warm-up and all. A shaded span is a fault in force, a dotted line \
                      another node that takes writes. Values are of one interval each. Residence counts from when an \
                      operation was due; the map has a row for each third more of it, and is the darker the more of an \
                      interval's operations waited so long, each shade ten times the one before."
            .into(),
        cannot_say: "Whether the trial is valid: that is judged when it is over, on all of it. What is older than the \
                     oldest interval here; the report has it."
            .into(),
    }
}

/// How long operations waited, as a map over time.
fn heat(id: &str, timeline: &Timeline, waited: &VecDeque<Vec<Class>>) -> Chart {
    let cells = timeline.steps.iter().zip(waited).flat_map(|(step, classes)| {
        let all: u64 = classes.iter().map(|class| class.operations).sum();
        let middle = f64::midpoint(step.begin_s, step.end_s);
        classes.iter().map(move |class| {
            let (low, high) = (class.from_ms, class.from_ms * Class::RATIO);
            let share = class.operations as f64 / all as f64;
            Point { weight: Some(share), ..Point::new(middle, (low * high).sqrt()).between(low, high) }
        })
    });
    Chart {
        id: format!("{id}-map"),
        title: "Residence of all operations".into(),
        x: Axis::linear(BEGAN, "s"),
        y: Axis::log("Residence", "ms"),
        series: vec![Series::ours(SeriesKind::Heat, "operations", "operations", cells.collect())],
        lines: vec![],
        how_to_read: String::new(),
        cannot_say: String::new(),
    }
}

/// A few rows of the timeline, for a terminal.
fn in_short(caption: &str, timeline: &Timeline, since: &str) -> Table {
    let Timeline { steps, nodes, marks, .. } = timeline;
    let rows: Vec<(usize, &Step)> = steps.iter().enumerate().collect();
    let count = rows.len();
    let value = |value: Option<f64>, unit: &str, why: &str| -> Cell {
        value.map_or_else(|| Cell::missing(why), |value| Number::new(value, unit).into())
    };
    let open = steps.iter().any(|step| step.offered_ops_per_s.is_some());
    let ended = "no operation ended";
    let mut columns = Columns::new()
        .numbers("from", "s", |(_, step): &(usize, &Step), unit| Number::new(step.begin_s, unit))
        .group("operations");
    if open {
        columns =
            columns.numbers("offered", "/s", move |(_, s), u| value(s.offered_ops_per_s, u, "closed loop"));
    }
    columns = columns
        .numbers("done", "/s", |(_, step), unit| Number::new(step.done_ops_per_s, unit))
        .numbers("failed", "/s", |(_, step), unit| Number::new(step.failed_ops_per_s, unit))
        .group("residence")
        .numbers("p99", "ms", move |(_, s), u| value(s.residence.as_ref().map(|r| r.ms_p99), u, ended))
        .numbers("longest", "ms", move |(_, s), u| value(s.residence.as_ref().map(|r| r.ms_max), u, ended))
        .group("");
    if open {
        columns = columns
            .numbers("backlog", "", move |(_, s), u| value(s.backlog.map(|b| b as f64), u, "closed loop"));
    }
    columns = columns.group("cores in use");
    // More would leave no room for the rest.
    for (node, flows) in nodes.iter().take(3) {
        columns = columns.numbers(node, "", move |(at, _), unit| {
            value(flows.get(*at).and_then(|flow| flow.cores), unit, "the node could not be read")
        });
    }
    if !marks.is_empty() {
        columns = columns.group("").words("what happened", move |(at, step)| {
            let (last, first) = (at + 1 == count, *at == 0);
            let within = |s: f64| (first || step.begin_s <= s) && (last || s < step.end_s);
            let began = marks.iter().filter(|mark| within(mark.at_s)).map(|mark| mark.words.clone());
            let undone = |mark: &&Mark| mark.until_s.is_some_and(within);
            let undone = marks.iter().filter(undone).map(|mark| format!("undone: {}", mark.words));
            began.chain(undone).collect::<Vec<_>>().join("; ")
        });
    }
    columns.table(caption, &rows, &format!("From: {since}."))
}

/// The key to the numbers in the picture.
fn marks(shown: &Shown) -> Table {
    let rows: Vec<(usize, &Mark)> = shown.fine.marks.iter().enumerate().collect();
    Columns::new()
        .words("mark", |(at, _): &(usize, &Mark)| (at + 1).to_string())
        .numbers("at", "s", |(_, mark), unit| Number::new(mark.at_s, unit))
        .numbers("within", "ms", |(_, mark), unit| Number::new(mark.within_s * 1e3, unit).digits(2))
        .numbers("undone", "s", |(_, mark), unit| match (mark.kind, mark.until_s) {
            (_, Some(until)) => Number::new(until, unit).into(),
            (MarkKind::Fault, None) => Cell::missing("never undone"),
            (MarkKind::Primary, None) => "".into(),
        })
        .words("what", |(_, mark)| mark.words.clone())
        .words("evidence", |(_, mark)| mark.evidence.clone())
        .table(
            &format!("{}: marks", which(shown)),
            &rows,
            "At: not before this second of the measured phase, and at most so much later. A primary that a database \
             elects by itself is seen when its servers are asked, at the latest when the fault is undone.",
        )
}

fn served(rows: &[(String, SpellFigures)]) -> Table {
    let failed = |figures: &SpellFigures| {
        let words: Vec<String> =
            figures.failed.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        if words.is_empty() { "none".to_string() } else { words.join(", ") }
    };
    let count = |count: Option<u64>, why: &str| -> Cell {
        count.map_or_else(|| Cell::missing(why), |count| Number::exact(count as f64, "").into())
    };
    Columns::new()
        .words("cell", |(cell, _): &(String, SpellFigures)| cell.clone())
        .words("when", |(_, figures)| figures.spell.words())
        .figures("lasted", "s", |(_, figures)| &figures.lasted_s)
        .group("operations")
        .figures("offered", "/s", |(_, figures)| &figures.offered_ops_per_s)
        .figures("throughput", "/s", |(_, figures)| &figures.throughput_ops_per_s)
        .figures("goodput", "/s", |(_, figures)| &figures.goodput_ops_per_s)
        .group("residence")
        .figures("median", "ms", |(_, figures)| &figures.residence_ms_p50)
        .figures("p99", "ms", |(_, figures)| &figures.residence_ms_p99)
        .figures("p99.9", "ms", |(_, figures)| &figures.residence_ms_p999)
        .group("all trials")
        .words("failed", move |(_, figures)| failed(figures))
        .numbers("largest backlog", "", move |(_, figures), _| count(figures.backlog_most, "closed loop"))
        .numbers("never served", "", move |(_, figures), _| count(figures.never_served, "known of the whole only"))
        .table(
            "The load beside the checks, before, during and after faults",
            rows,
            "While broken: every interval in which a fault was in force, even for a part. After: from when it was \
             undone, so the backlog that has gathered is worked off there, and the residence of what waited is counted \
             where it ended. Goodput is what was done within the time-out (load.timeout) of being due. Residence is \
             from when an operation was due, failed ones included. Never served: due and never sent, or never answered.",
        )
}

/// What each node of each cell did.
pub fn nodes(cells: &Cells<'_>) -> Section {
    let of =
        |c: &CellRecords<'_>| nodes::figures(c).into_iter().map(|node| (name(c), node)).collect::<Vec<_>>();
    let rows: Vec<(String, NodeFigures)> = cells.all.iter().flat_map(of).collect();
    let mut blocks = if rows.is_empty() { vec![] } else { vec![Block::Table(each_node(&rows))] };
    let of = |c: &CellRecords<'_>| {
        tenants::figures(c).into_iter().map(|tenant| (name(c), tenant)).collect::<Vec<_>>()
    };
    let rows: Vec<(String, TenantFigures)> = cells.all.iter().flat_map(of).collect();
    if !rows.is_empty() {
        blocks.push(Block::Table(each_tenant(&rows)));
    }
    blocks.extend(super::shards::table(cells));
    Section { id: "nodes".into(), title: "Nodes".into(), blocks }
}

fn each_tenant(rows: &[(String, TenantFigures)]) -> Table {
    Columns::new()
        .words("cell", |(cell, _): &(String, TenantFigures)| cell.clone())
        .words("node", |(_, of)| of.node.clone())
        .words("disk", |(_, of)| of.disk.word())
        .figures("requests", "/s", |(_, of)| &of.requests_per_s)
        .group("residence")
        .figures("median", "ms", |(_, of)| &of.residence_ms_p50)
        .figures("p99", "ms", |(_, of)| &of.residence_ms_p99)
        .group("all trials")
        .numbers("failed", "", |(_, of), unit| Number::exact(of.failed as f64, unit))
        .table(
            "What other tenants of the disks did in the measured phase",
            rows,
            "A tenant reads and writes a file of its own on the same disk, from a process of its own. Its bytes are part \
             of what the disk did, and stand in the budgets by themselves.",
        )
        .without_empty_columns()
}

fn each_node(rows: &[(String, NodeFigures)]) -> Table {
    Columns::new()
        .words("cell", |(cell, _): &(String, NodeFigures)| cell.clone())
        .words("node", |(_, of)| if of.is_primary { format!("{} (primary)", of.node) } else { of.node.clone() })
        .figures("processor", "cores", |(_, of)| &of.cores)
        .group("memory at the end")
        .figures("all", "MiB", |(_, of)| &of.memory_mib)
        .figures("page cache", "MiB", |(_, of)| &of.page_cache_mib)
        .group("disk")
        .figures("busy", "%", |(_, of)| &of.disk_busy_percent)
        .figures("read", "MB/s", |(_, of)| &of.disk_read_mb_per_s)
        .figures("written", "MB/s", |(_, of)| &of.disk_write_mb_per_s)
        .figures("reads", "/s", |(_, of)| &of.disk_reads_per_s)
        .figures("writes", "/s", |(_, of)| &of.disk_writes_per_s)
        .figures("flushes", "/s", |(_, of)| &of.disk_flushes_per_s)
        .group("network")
        .figures("in", "MB/s", |(_, of)| &of.network_in_mb_per_s)
        .figures("out", "MB/s", |(_, of)| &of.network_out_mb_per_s)
        .group("")
        .words("read budget", |(_, of)| match of.reads.is_accounted() {
            true => budgets::verdict(&of.reads),
            false => Cell::missing("its server counts no reads, or was not asked at both ends"),
        })
        .numbers("write amplification", "×", |(_, of), unit| match of.write_amplification {
            Some(factor) => Number::new(factor, unit).into(),
            None => Cell::missing("what users wrote, or the disk, was not counted"),
        })
        .table(
            "What each node did in the measured phase",
            rows,
            "Means over the trials that can be believed, with 95 % intervals where there is more than one. The primary \
             is the one at the end of the last trial. Write amplification is what the node's disk wrote for each byte \
             of keys and values that users wrote to the cluster. Budgets has both budgets of each node step by step.",
        )
        .without_empty_columns()
}
