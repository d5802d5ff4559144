//! The page of a disk that was watched.

use super::storage::when;
use super::{
    Axis, Block, Chart, Column, Fact, Number, On, Page, Point, Provenance, ReferenceLine, Row, Section,
    Series, SeriesKind, Table,
};
use std::time::Duration;
use tipover_core::measure::median;
use tipover_core::storage::canary::{Change, Look, Summary};
use tipover_core::units::span;

/// From the looks at the disk at `path` and what they say to a page.
pub fn of_watch(path: &str, looks: &[Look], summary: &Summary, made_by: Provenance) -> Page {
    let mut blocks = vec![Block::Chart(over_time(looks, summary))];
    blocks.extend(changes(summary));
    let section = |id: &str, title: &str, blocks| Section { id: id.into(), title: title.into(), blocks };
    let facts = vec![
        Fact::new("path", path),
        Fact::new("looks", summary.looks.to_string()),
        Fact::new("from the first to the last", span::rounded(summary.covered)),
        Fact::new("pauses in which nobody looked", summary.gaps.to_string()),
        Fact::new("of the disk's time", format!("{:.2} %", 100.0 * summary.busy_share)),
    ];
    let mut sections = vec![section("time", "Over time", blocks)];
    // A single hour is no picture.
    if summary.hours.medians.len() > 1 {
        sections.push(section("hours", "Hours of the day", vec![Block::Chart(by_hour(summary))]));
    }
    sections.push(section("facts", "Where", vec![Block::Facts(facts)]));
    Page {
        title: format!("Disk at {path}, watched"),
        question: "Is this disk as fast at all times?".into(),
        headline: summary.sentences(),
        sections,
        claims: vec![],
        made_by,
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// More points than a screen has columns for say nothing more: neighbours are put together.
fn over_time(looks: &[Look], summary: &Summary) -> Chart {
    const POINTS: usize = 400;
    let begin = looks.first().map_or(0, |look| look.at_unix_s);
    // Minutes for an afternoon, hours for days.
    let (unit, seconds) =
        if summary.covered >= Duration::from_secs(6 * 3600) { ("h", 3600.0) } else { ("min", 60.0) };
    let since = |unix_s: u64| {
        let exact = unix_s.saturating_sub(begin) as f64 / seconds;
        (exact * 100.0).round() / 100.0
    };
    let pieces = looks.chunks(looks.len().div_ceil(POINTS).max(1));
    let (mut usual, mut slowest, mut flushes) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        let at = since(piece[piece.len() / 2].at_unix_s);
        let of = |time: fn(&Look) -> Option<Duration>| {
            median(&piece.iter().filter_map(time).map(ms).collect::<Vec<_>>())
        };
        usual.extend(of(|look| Some(look.read)).map(|y| Point::new(at, y)));
        flushes.extend(of(|look| look.flush).map(|y| Point::new(at, y)));
        let most = piece.iter().map(|look| look.slowest).max().unwrap_or_default();
        slowest.push(Point::new(at, ms(most)));
    }
    let mut series = vec![
        Series::ours(SeriesKind::Line, "reads", "reads, median of a look", usual),
        Series::ours(SeriesKind::Points, "slowest", "slowest read", slowest),
    ];
    if !flushes.is_empty() {
        series.push(Series::ours(SeriesKind::Line, "flushes", "a write with its flush", flushes));
    }
    let line = |change: &Change| ReferenceLine {
        on: On::X,
        value: since(change.at_unix_s),
        label: format!("{} to {}", span::rounded(change.before), span::rounded(change.after)),
        subject: String::new(),
    };
    Chart {
        id: "over-time".into(),
        title: "Latency over time".into(),
        x: Axis::linear("since the first look", unit),
        y: Axis::log("latency", "ms"),
        series,
        lines: summary.changes.iter().map(line).collect(),
        how_to_read: "Single requests of 4 KiB past the page cache. Upright lines are changes of level of the reads; a \
                      single high point is none."
            .into(),
        cannot_say: "What the disk can do under load: the canary sends one request at a time.".into(),
    }
}

fn changes(summary: &Summary) -> Option<Block> {
    let rows = summary.changes.iter().map(|change| {
        Row::new(vec![
            when(change.at_unix_s).into(),
            Number::new(ms(change.before), "").into(),
            Number::new(ms(change.after), "").into(),
            format!("{:.1e}", change.p).into(),
        ])
    });
    let rows: Vec<Row> = rows.collect();
    (!rows.is_empty()).then(|| {
        Block::Table(Table {
            caption: "Changes of level".into(),
            columns: vec![
                Column::words("from"),
                Column::numbers("before", "ms"),
                Column::numbers("after", "ms"),
                Column::words("p"),
            ],
            rows,
            how_to_read:
                "Found as `compare --history` finds them: E-divisive with Student's t, changes of 10 % and \
                          more."
                    .into(),
        })
    })
}

fn by_hour(summary: &Summary) -> Chart {
    let hours = &summary.hours;
    let points = hours
        .medians
        .iter()
        .map(|(hour, ns)| Point::new(format!("{hour:02}").as_str(), *ns as f64 / 1e6))
        .collect();
    Chart {
        id: "by-hour".into(),
        title: "Reads by hour of the day, UTC".into(),
        x: Axis::category("hour"),
        y: Axis::linear("median read", "ms"),
        series: vec![Series::ours(SeriesKind::Bars, "reads", "reads", points)],
        lines: vec![],
        how_to_read: match (hours.enough, hours.p) {
            (true, Some(p)) => {
                format!("That the hours differ by chance has p = {p:.1e} (Kruskal and Wallis).")
            }
            (true, None) => "Too few looks in an hour to compare them.".into(),
            (false, _) => "Less than two days: any change looks like an hour's.".into(),
        },
        cannot_say: "What happens on another day of the week.".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Terminal, html, text};
    use tipover_core::storage::canary::summary;

    #[test]
    fn a_change_stands_on_the_page() {
        let look = |n: u64| {
            let read = Duration::from_micros(if n < 60 { 1000 } else { 3000 } + n % 7);
            let flush = Some(read * 2);
            Look {
                at_unix_s: 1_700_000_000 + n * 60,
                reads: 8,
                read,
                slowest: read * 3,
                flush,
                busy: read * 8,
                failed: 0,
            }
        };
        let looks: Vec<Look> = (0..120).map(look).collect();
        let summary = summary(&looks).unwrap();
        let [command, commit, version, when] = ["tipover disk watch x", "", "", ""].map(String::from);
        let page =
            of_watch("/x", &looks, &summary, Provenance { command, commit, version, when, facts: vec![] });
        let Block::Chart(chart) = &page.sections[0].blocks[0] else { panic!("{page:?}") };
        assert_eq!(chart.lines.len(), 1, "one change of level");
        assert!((chart.lines[0].value - 60.0).abs() < 3.0, "{:?}", chart.lines);
        assert_eq!(chart.series[0].points.len(), 120);
        assert!(text(&page, Terminal::PLAIN).contains("Changes of level"));
        assert!(html(&page).contains("Latency over time"));
    }
}
