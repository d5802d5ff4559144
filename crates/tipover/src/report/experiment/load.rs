//! What was sent and what became of it: offered load, throughput, failures by kind, latency by class, caches.

use super::sections::{number, shown, shown_percentile};
use crate::report::{
    Axis, Block, Cell, Chart, Column, Number, Point, Row, Section, Series, SeriesKind, Table, Verdict,
};
use tipover_core::check::Verdict as Judged;
use tipover_core::experiment::{self, LoadSpec, TargetKind, Trial};
use tipover_core::learn::ServerTimes;
use tipover_core::measure::{BookText, Estimate, KeptUp};
use tipover_core::metric::{name as metric, probe};
use tipover_core::op::{Failure, OpKind};
use tipover_core::study::{CellRecords, Cells};
use tipover_core::units::span;

/// "closed loop, 16 sessions"; said wherever a latency is shown.
pub fn loop_in_words(load: &LoadSpec) -> String {
    match &load.arrivals {
        Some(arrivals) => format!("open loop, {arrivals}, up to {} in flight", load.sessions),
        None if load.think.is_zero() => format!("closed loop, {} sessions", load.sessions),
        None => format!("closed loop, {} sessions, {} think time", load.sessions, span::print(load.think)),
    }
}

/// A cell by its sweep and labels.
pub(super) fn name(c: &CellRecords<'_>) -> String {
    name_of(c.cell)
}

fn name_of(cell: &experiment::Cell) -> String {
    let labels: Vec<&str> = cell.labels.iter().map(|(_, label)| label.as_str()).collect();
    format!("{} {}", cell.sweep, labels.join(", ")).trim().to_string()
}

/// A sentence for each cell whose target did not keep up with what was offered.
pub fn headline(cells: &Cells<'_>) -> Vec<String> {
    let fell = |c: &CellRecords<'_>| {
        let kept_up = c.records.iter().filter_map(|record| record.kept_up());
        let fell = kept_up.filter(|kept_up| matches!(kept_up, KeptUp::Until { .. }));
        let worst = fell.map(|fell| fell.to_string()).min()?;
        Some(format!("{}: {worst}.", name(c)))
    };
    cells.all.iter().filter_map(fell).collect()
}

/// How the backlog of one open-loop trial went.
pub struct Course<'a> {
    /// What was tried.
    pub trial: Trial<'a>,
    /// Seconds since the measured phase began, and operations due and not sent then.
    pub backlog: Vec<(f64, u64)>,
}

/// The picture of backlogs; `None` if nothing was ever due, as in closed loops.
pub fn backlogs(courses: &[Course<'_>]) -> Option<Section> {
    /// More points than a screen has columns for say nothing more.
    const POINTS: usize = 400;
    /// More lines than this cannot be told apart.
    const LINES: usize = 6;
    let most = |course: &Course<'_>| course.backlog.iter().map(|(_, backlog)| *backlog).max();
    let mut open: Vec<(u64, &Course<'_>)> =
        courses.iter().filter_map(|course| Some((most(course)?, course))).collect();
    if open.is_empty() {
        return None;
    }
    // A stable order: of equal ones the first is drawn.
    open.sort_by_key(|(most, _)| std::cmp::Reverse(*most));
    let waited = open.iter().filter(|(most, _)| *most > 0).count();
    let (drawn, others) = open.split_at(waited.min(LINES));
    let series: Vec<Series> = drawn
        .iter()
        .map(|(_, course)| {
            let name = format!("{} #{}", name_of(course.trial.cell), course.trial.repeat + 1);
            let seconds = each_second(&course.backlog);
            let (count, step) = (seconds.len(), seconds.len().div_ceil(POINTS));
            let shown = seconds.iter().enumerate().filter(|(at, _)| (count - 1 - at).is_multiple_of(step));
            let points = shown.map(|(_, (second, most))| Point::new(*second, *most as f64)).collect();
            Series::ours(SeriesKind::Line, &name, &name, points)
        })
        .collect();
    let mut blocks = Vec::new();
    if !series.is_empty() {
        blocks.push(Block::Chart(Chart {
            id: "backlog-over-time".into(),
            title: "Backlog over time".into(),
            x: Axis::linear("since the measured phase began", "s"),
            y: Axis::linear("due and not sent", "operations"),
            series,
            lines: vec![],
            how_to_read:
                "What was due and found no free session: the most at the ends of the intervals of each second. A line that comes back to \
                 nothing is a target that catches up; one that climbs to the end is a load beyond what the target \
                 can do, and the second from which it climbs is the one named in words."
                    .into(),
            cannot_say:
                "How long any single operation waited: that is in the residence. A backlog between the ends of two \
                 intervals is not seen."
                    .into(),
        }));
    }
    if let Some((most, _)) = others.first() {
        let (which, count) = if drawn.is_empty() { ("", open.len()) } else { ("other ", others.len()) };
        let waited = match most {
            0 => "nothing that was due waited for a session at the end of any interval".into(),
            1 => "at most one operation waited for a session at the end of an interval".into(),
            most => format!("at most {most} operations waited for a session at the end of an interval"),
        };
        blocks.push(Block::Prose(format!("In the {count} {which}trials {waited}.")));
    }
    Some(Section { id: "backlog".into(), title: "Backlog".into(), blocks })
}

/// The most that waited in each second: the intervals of different trials end at different moments, and would
/// share no row of the picture's table.
fn each_second(backlog: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let mut seconds: Vec<(f64, u64)> = Vec::new();
    for (at, waiting) in backlog {
        match seconds.last_mut() {
            Some((second, most)) if *second == at.ceil() => *most = (*most).max(*waiting),
            _ => seconds.push((at.ceil(), *waiting)),
        }
    }
    seconds
}

/// The sections of every experiment that no study knows.
pub fn sections(cells: &Cells<'_>) -> Vec<Section> {
    let mut blocks = vec![Block::Table(whole(cells)), Block::Table(by_class(cells))];
    blocks.extend(by_statement(cells).map(Block::Table));
    if cells.all.iter().any(|c| c.cell.spec.load.arrivals.is_some()) {
        blocks.push(Block::Table(open_loops(cells)));
    }
    let checks = checks(cells);
    if !checks.rows.is_empty() {
        blocks.push(Block::Table(checks));
    }
    let mut sections = vec![Section { id: "cells".into(), title: "Cells".into(), blocks }];
    let caches = caches(cells);
    if !caches.rows.is_empty() {
        let blocks = vec![Block::Table(caches)];
        sections.push(Section { id: "caches".into(), title: "Caches".into(), blocks });
    }
    sections
}

/// Every cell in a line.
fn whole(cells: &Cells<'_>) -> Table {
    let row = |c: &CellRecords<'_>| {
        let offered = match c.cell.spec.load.arrivals {
            Some(_) => shown(c.mean(|m| m.offered_load()).as_ref(), "/s", c),
            None => Cell::missing("closed loop: the target decides"),
        };
        let failed = c.mean(|m| {
            let all = m.operations() + m.failed();
            (all > 0).then(|| 100.0 * m.failed() as f64 / all as f64)
        });
        Row::new(vec![
            name(c).as_str().into(),
            loop_in_words(&c.cell.spec.load).as_str().into(),
            offered,
            shown(c.throughput().as_ref(), "/s", c),
            goodput(c),
            shown(failed.as_ref(), "%", c),
            shown_percentile(c, 0.5),
            shown_percentile(c, 0.99),
            super::sections::budget_verdict(c),
            bound(c).as_str().into(),
        ])
    };
    Table {
        caption: "Every cell".into(),
        columns: vec![
            Column::words("cell"),
            Column::words("loop"),
            Column::numbers("offered", "/s").group("load"),
            Column::numbers("throughput", "/s").group("load"),
            Column::numbers("goodput", "/s").group("load"),
            Column::numbers("failed", "%").group("load"),
            Column::numbers("median", "ms").group("residence"),
            Column::numbers("p99", "ms").group("residence"),
            Column::words("read budget"),
            Column::words("limited by"),
        ],
        rows: cells.all.iter().map(row).collect(),
        how_to_read: "Throughput counts what was done; goodput only what was done within the time-out (load.timeout) \
                      of being due, because nobody waits for longer. Failed is what was refused, unknown, due and \
                      never sent, or never answered, of all there was. Residence is from when an operation was due, failed ones \
                      included. In a closed loop an operation is due when it is sent, so its latencies are those of \
                      sessions that wait for each other, not of open traffic."
            .into(),
    }
}

/// What was done before those who wait give up.
fn goodput(c: &CellRecords<'_>) -> Cell {
    let longest = c.cell.spec.load.timeout;
    if longest.is_zero() {
        return Cell::missing("without a time-out nothing is too late");
    }
    shown(c.mean(|m| m.goodput(longest).ok()).as_ref(), "/s", c)
}

fn bound(c: &CellRecords<'_>) -> String {
    let said: Vec<String> = c.records.iter().filter_map(|r| r.headroom()).map(|h| h.to_string()).collect();
    match said.as_slice() {
        [] => "not measured".into(),
        [first, others @ ..] => {
            let word = |text: &str| text.split(' ').next().unwrap_or_default().to_string();
            let differs = others.iter().find(|other| word(other) != word(first));
            differs.map_or_else(|| first.clone(), |other| format!("{first}; in another trial {other}"))
        }
    }
}

/// Counts and latencies of each class of operation.
fn by_class(cells: &Cells<'_>) -> Table {
    let mut rows = Vec::new();
    for c in &cells.all {
        for kind in c.kinds().into_iter().filter(|kind| !matches!(kind, OpKind::Statement(_))) {
            let rate =
                c.mean(|m| Some(m.books.of(kind).map(|book| book.done).sum::<u64>() as f64 / m.seconds()));
            let percentile = |quantile| match c.class_ms(kind, quantile) {
                Ok(estimate) => number(&estimate, "ms").into(),
                Err(few) => Cell::missing(&few.to_string()),
            };
            rows.push(Row::new(vec![
                name(c).as_str().into(),
                c.cell.spec.class_name(kind).as_str().into(),
                shown(rate.as_ref(), "/s", c),
                percentile(0.5),
                percentile(0.99),
                c.failures_in_words(kind).as_str().into(),
                Number::new(c.retries(kind) as f64, "").into(),
            ]));
        }
    }
    Table {
        caption: "By class of operation".into(),
        columns: vec![
            Column::words("cell"),
            Column::words("class"),
            Column::numbers("done", "/s"),
            Column::numbers("median", "ms").group("residence of what was done"),
            Column::numbers("p99", "ms").group("residence of what was done"),
            Column::words("failed, all trials"),
            Column::numbers("retries", ""),
        ],
        rows,
        how_to_read: "The read and the update of a read-modify-write are counted under READ and UPDATE too. Retries \
                      belong to their operation: its latency has all its tries in it. Refused operations certainly \
                      did not happen; unknown ones may have."
            .into(),
    }
}

/// Counts and latencies of each statement of scripts; `None` where none was timed.
fn by_statement(cells: &Cells<'_>) -> Option<Table> {
    let mut rows = Vec::new();
    let asked = cells.all.iter().flat_map(|c| c.measured()).any(|m| m.server_times.is_some());
    for c in &cells.all {
        let kinds = || c.kinds().into_iter().filter(|kind| matches!(kind, OpKind::Statement(_)));
        let count = |kind, of: fn(&BookText) -> u64| -> f64 {
            c.measured().into_iter().flat_map(|m| m.books.of(kind)).map(of).sum::<u64>() as f64
        };
        let all: f64 = kinds().map(|kind| count(kind, |book| book.done)).sum();
        for kind in kinds() {
            let rate =
                c.mean(|m| Some(m.books.of(kind).map(|book| book.done).sum::<u64>() as f64 / m.seconds()));
            let percentile = |quantile| match c.class_ms(kind, quantile) {
                Ok(estimate) => number(&estimate, "ms").into(),
                Err(few) => Cell::missing(&few.to_string()),
            };
            let done = count(kind, |book| book.done);
            let each = |sum: f64, of: f64| match of > 0.0 {
                true => Number::new(sum / of, "").into(),
                false => Cell::missing("it was never done"),
            };
            let mut cells = vec![
                name(c).as_str().into(),
                c.cell.spec.class_name(kind).as_str().into(),
                shown(rate.as_ref(), "/s", c),
                each(100.0 * done, all),
                each(count(kind, |book| book.rows), done),
                percentile(0.5),
                percentile(0.99),
                each(milliseconds(c, kind), done),
                server_ms(c, kind),
                c.failures_in_words(kind).as_str().into(),
            ];
            if !asked {
                cells.drain(OF_SERVER);
            }
            rows.push(Row::new(cells));
        }
    }
    let residence = "residence of what was done";
    let mut columns = vec![
        Column::words("cell"),
        Column::words("statement"),
        Column::numbers("done", "/s"),
        Column::numbers("share", "%"),
        Column::numbers("rows", "each"),
        Column::numbers("median", "ms").group(residence),
        Column::numbers("p99", "ms").group(residence),
        Column::numbers("mean", "ms").group(residence),
        Column::numbers("in the server, mean", "ms"),
        Column::words("failed, all trials"),
    ];
    if !asked {
        columns.drain(OF_SERVER);
    }
    (!rows.is_empty()).then(|| Table {
        caption: "By statement".into(),
        columns,
        rows,
        how_to_read: "A statement is called what `-- name:` before it says, else by its script, line and first words; \
                      those of one name are counted together. What an operation begins with was due with the whole \
                      operation, the others when they were sent. Every try is counted. In the server is what PostgreSQL's \
                      pg_stat_statements or MySQL's performance schema counts, whoever sent it: what the mean residence \
                      has more is the network, reading and planning the text, waiting for a processor, and on PostgreSQL \
                      the commit with its flush, which it does not count in any statement."
            .into(),
    })
}

/// The columns of statements that compare what a client and the server saw.
const OF_SERVER: std::ops::Range<usize> = 7..9;

/// What all operations of a class took together that were done.
fn milliseconds(c: &CellRecords<'_>, kind: OpKind) -> f64 {
    let all = c.measured().into_iter().filter_map(|m| m.books.residence_of(kind).ok());
    all.map(|counts| counts.mean() * counts.len() as f64 / 1e6).sum()
}

/// What the server itself took for a statement.
fn server_ms(c: &CellRecords<'_>, kind: OpKind) -> Cell {
    let told: Vec<&ServerTimes> = c.measured().into_iter().filter_map(|m| m.server_times.as_ref()).collect();
    let times = || told.iter().filter_map(|times| times.of(kind));
    let calls: u64 = times().map(|time| time.calls).sum();
    match told.first() {
        _ if calls > 0 => {
            Number::new(times().map(|time| time.time_ms).sum::<f64>() / calls as f64, "").into()
        }
        Some(ServerTimes::Untold(reason)) => Cell::missing(reason),
        Some(ServerTimes::Told(_)) => Cell::missing("the server counts no statement of this shape"),
        None => Cell::missing("the server was not asked"),
    }
}

/// What open loops were to send.
fn open_loops(cells: &Cells<'_>) -> Table {
    let open = cells.all.iter().filter(|c| c.cell.spec.load.arrivals.is_some());
    let row = |c: &CellRecords<'_>| {
        let total = |of: fn(&tipover_core::measure::Offered) -> u64| {
            let measured = c.measured();
            let counts: Vec<u64> = measured.iter().filter_map(|m| m.offered.as_ref()).map(of).collect();
            match counts.is_empty() {
                true => Cell::missing(&c.why_none()),
                false => Number::new(counts.iter().sum::<u64>() as f64, "").into(),
            }
        };
        let late =
            c.mean(|m| Some(m.offered.as_ref()?.lateness().ok()?.value_at_quantile(0.99) as f64 / 1e3));
        let words: Vec<String> =
            c.records.iter().filter_map(|r| r.kept_up()).map(|kept_up| kept_up.to_string()).collect();
        Row::new(vec![
            name(c).as_str().into(),
            total(|o| o.due),
            total(|o| o.begun),
            total(|o| o.backlog),
            total(|o| o.unanswered),
            total(|o| o.backlog_most),
            shown(late.as_ref(), "us", c),
            words.join("; ").as_str().into(),
        ])
    };
    Table {
        caption: "Open loops: what was due and what was sent, all trials".into(),
        columns: vec![
            Column::words("cell"),
            Column::numbers("due", "").group("operations"),
            Column::numbers("sent", "").group("operations"),
            Column::numbers("never sent", "").group("operations"),
            Column::numbers("never answered", "").group("operations"),
            Column::numbers("largest backlog", "").group("operations"),
            Column::numbers("generator late, p99", "us"),
            Column::words("in words"),
        ],
        rows: open.map(row).collect(),
        how_to_read: "Nothing is shed: what is due and finds no free session waits, and its wait is in the residence. \
                      What was never sent or never answered has no latency and counts as failed. The generator's \
                      lateness is the delay of operations that were due while a session was free."
            .into(),
    }
}

/// What the checkers say of each trial, beside what was counted and is no throughput.
fn checks(cells: &Cells<'_>) -> Table {
    let mut rows = Vec::new();
    for c in &cells.all {
        for record in &c.records {
            let (Some(checked), Some(measured)) = (&record.checked, &record.measured) else { continue };
            let Ok(books) = measured.books() else { continue };
            let kept = |count: u64| Number::new(count as f64, "").into();
            let failed = |which: Failure| kept(books.failures().get(&which).copied().unwrap_or(0));
            let unknown: u64 = books.operations().flat_map(|(_, book)| book.unknown().values()).sum();
            let counted = |kind: &str| checked.findings.iter().map(|finding| finding.counted(kind)).sum();
            let verdict = match checked.verdict {
                Judged::Valid => Verdict::Held,
                Judged::Invalid => Verdict::NotHeld,
                _ => Verdict::Unknown,
            };
            rows.push(Row::new(vec![
                format!("{} #{}", name(c), record.repeat + 1).as_str().into(),
                kept(books.done()),
                kept(books.retries()),
                failed(Failure::Overdraft),
                failed(Failure::Conflict),
                kept(unknown),
                kept(counted("snapshots")),
                kept(counted("durable")),
                Cell::verdict(verdict, checked.verdict.words()),
                checked.summary().as_str().into(),
            ]));
        }
    }
    Table {
        caption: "Checked afterwards".into(),
        columns: vec![
            Column::words("trial"),
            Column::numbers("done", "").group("measured"),
            Column::numbers("retries", "").group("measured"),
            Column::numbers("overdrafts", "").group("measured"),
            Column::numbers("conflicts", "").group("measured"),
            Column::numbers("unknown", "").group("measured"),
            Column::numbers("snapshots", "").group("whole run"),
            Column::numbers("found", "").group("whole run"),
            Column::words("verdict"),
            Column::words("in words"),
        ],
        rows,
        how_to_read: "Only what was done is throughput: overdrafts, conflicts that no retry resolved, and unknown \
                      answers are not, and a retry belongs to its operation. The whole run has the warm-up in it, too. \
                      Found are acknowledged operations that were there afterwards. docs/correctness.md says what \
                      each checker cannot see."
            .into(),
    }
}

/// Hits of the engine's cache, and what passed it, with who says so.
fn caches(cells: &Cells<'_>) -> Table {
    let mut rows = Vec::new();
    for c in &cells.all {
        let per_operation = |probe, name| c.per_operation(probe, name);
        let Some(misses) = per_operation(probe::TARGET, metric::ENGINE_PAGE_READS) else { continue };
        let requests = per_operation(probe::TARGET, metric::ENGINE_PAGE_REQUESTS);
        let hits = c.mean(|m| {
            let asked = m.growth(probe::TARGET, metric::ENGINE_PAGE_REQUESTS).filter(|asked| *asked > 0.0)?;
            Some(100.0 * (1.0 - m.growth(probe::TARGET, metric::ENGINE_PAGE_READS)? / asked))
        });
        let cell = |value: Option<Estimate>, unit: &str, reason: &str| match value {
            Some(value) => number(&value, unit).into(),
            None => Cell::missing(reason),
        };
        let asked = per_operation(probe::PROCESS, metric::PROCESS_ASKED_READ_BYTES);
        let device = per_operation(probe::DEVICE, metric::DEVICE_READ_BYTES);
        let kind = c.cell.spec.target.kind;
        let of_process = match kind {
            TargetKind::Postgres => "each session of this server is a process of its own",
            kind if kind.is_server() => "its process is not visible from here",
            _ => "not read",
        };
        let of_device = if kind.is_server() { "its device is not visible from here" } else { "not read" };
        rows.push(Row::new(vec![
            name(c).as_str().into(),
            cell(requests, "", "this engine does not count them"),
            number(&misses, "").into(),
            cell(hits, "%", "this engine does not count requests"),
            cell(asked.map(|e| e.scaled(1e-3)), "kB", of_process),
            cell(device.map(|e| e.scaled(1e-3)), "kB", of_device),
        ]));
    }
    Table {
        caption: "Caches, per operation".into(),
        columns: vec![
            Column::words("cell"),
            Column::numbers("pages asked", "").group("the engine's own counters"),
            Column::numbers("pages missed", "").group("the engine's own counters"),
            Column::numbers("hits", "%").group("the engine's own counters"),
            Column::numbers("read by the process", "kB").group("the kernel, of the process"),
            Column::numbers("read from the device", "kB").group("the kernel, of the block device"),
        ],
        rows,
        how_to_read:
            "Each group of columns has its own witness. What the process read and the device did not give \
                      came from the page cache."
                .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Page, Provenance, Terminal, html, text};
    use tipover_core::experiment::Experiment;

    #[test]
    fn a_backlog_is_drawn_to_its_last_point_and_only_where_something_was_due() {
        let experiment = Experiment::parse(super::super::tests::PLAN, "quick", &[]).unwrap();
        let trial = experiment.trials().remove(0);
        assert!(backlogs(&[Course { trial: trial.clone(), backlog: vec![] }]).is_none());
        let climbing = (1..=3600u32).map(|s| (f64::from(s), u64::from(s) * 5)).collect();
        let section = backlogs(&[Course { trial, backlog: climbing }]).unwrap();
        let Block::Chart(chart) = &section.blocks[0] else { panic!("{section:?}") };
        let points = &chart.series[0].points;
        assert!((200..=400).contains(&points.len()), "{} points", points.len());
        assert_eq!(points.last(), Some(&Point::new(3600.0, 18_000.0)));
        let [command, commit, version, when] = ["tipover report x", "", "", ""].map(String::from);
        let made_by = Provenance { command, commit, version, when, facts: vec![] };
        let page = Page {
            title: "x".into(),
            question: "?".into(),
            headline: vec![],
            sections: vec![section],
            claims: vec![],
            made_by,
        };
        assert!(text(&page, Terminal::PLAIN).contains("Backlog over time"));
        assert!(html(&page).contains("Backlog over time"));
    }

    #[test]
    fn of_many_backlogs_the_longest_are_drawn_and_the_others_told() {
        let experiment = Experiment::parse(super::super::tests::PLAN, "quick", &[]).unwrap();
        let trial = experiment.trials().remove(0);
        let course = |most: u64| Course {
            trial: trial.clone(),
            backlog: vec![(0.502, most / 2), (0.97, 0), (1.04, most)],
        };
        let section = backlogs(&(0..9).map(course).collect::<Vec<_>>()).unwrap();
        let [Block::Chart(chart), Block::Prose(others)] = &section.blocks[..] else { panic!("{section:?}") };
        assert_eq!(chart.series.len(), 6);
        assert_eq!(chart.series[0].points, [Point::new(1.0, 4.0), Point::new(2.0, 8.0)]);
        assert!(others.starts_with("In the 3 other trials at most 2 operations waited"), "{others}");
        let section = backlogs(&[course(0), course(0)]).unwrap();
        let [Block::Prose(none)] = &section.blocks[..] else { panic!("{section:?}") };
        assert!(none.starts_with("In the 2 trials nothing that was due waited"), "{none}");
    }
}
