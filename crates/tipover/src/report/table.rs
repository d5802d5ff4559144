//! What tables have in common on paper, on screen and in the terminal: footnotes, groups of rows, and that a
//! chart is a table too.

use super::number::Number;
use super::page::*;
use std::collections::HashMap;

/// Reasons, remarks and sources under a table, each said once and referred to by a mark.
pub(super) struct Footnotes {
    lines: Vec<(String, String)>,
}

const SOURCES: [&str; 4] = ["†", "‡", "§", "¶"];
/// The mark of numbers that have no interval, and what it says.
const SINGLE: (&str, &str) = ("¹", "one trial: no interval");

impl Footnotes {
    pub fn of(table: &Table) -> Self {
        let (mut remarks, mut sources) = (Vec::<&str>::new(), Vec::<&str>::new());
        let mut single = false;
        for row in &table.rows {
            for cell in &row.cells {
                match cell {
                    Cell::Missing { reason } if !remarks.contains(&reason.as_str()) => remarks.push(reason),
                    Cell::Published { source, .. } if !sources.contains(&source.as_str()) => {
                        sources.push(source)
                    }
                    Cell::Number(number) => single |= number.single,
                    _ => {}
                }
            }
            if !row.note.is_empty() && !remarks.contains(&row.note.as_str()) {
                remarks.push(&row.note);
            }
        }
        let sources = sources.into_iter().enumerate().map(|(i, text)| (source_mark(i), text));
        let remarks = remarks.into_iter().enumerate().map(|(i, text)| (letter(i), text));
        let single = single.then_some((SINGLE.0.to_string(), SINGLE.1));
        let all = sources.chain(single).chain(remarks);
        Footnotes { lines: all.map(|(mark, text)| (mark, text.to_string())).collect() }
    }

    /// The mark of `text`, empty if it has none.
    pub fn mark(&self, text: &str) -> &str {
        self.lines.iter().find(|(_, t)| t == text).map_or("", |(mark, _)| mark)
    }

    /// The mark that `cell` carries, empty if none.
    pub fn mark_of(&self, cell: &Cell) -> &str {
        match cell {
            Cell::Missing { reason: text } | Cell::Published { source: text, .. } => self.mark(text),
            Cell::Number(number) if number.single => SINGLE.0,
            Cell::Text(_) | Cell::Number(_) | Cell::Verdict { .. } => "",
        }
    }

    /// Mark and text, sources first.
    pub fn lines(&self) -> impl Iterator<Item = (&str, String)> {
        self.lines.iter().map(|(mark, text)| {
            let published = SOURCES.iter().any(|s| mark.starts_with(s));
            (mark.as_str(), if published { format!("published, not ours: {text}") } else { text.clone() })
        })
    }
}

fn source_mark(i: usize) -> String {
    SOURCES[i % SOURCES.len()].repeat(i / SOURCES.len() + 1)
}

/// a, b, .. z, aa, ab, ..
fn letter(mut i: usize) -> String {
    let mut out = String::new();
    loop {
        out.insert(0, char::from(b'a' + (i % 26) as u8));
        if i < 26 {
            return out;
        }
        i = i / 26 - 1;
    }
}

/// The unit that a number must print itself, because the head of its column does not.
pub(super) fn own_unit<'a>(number: &'a Number, column_unit: &str) -> &'a str {
    if number.unit == column_unit { "" } else { &number.unit }
}

/// Whether row `i` continues the group of the row above it.
pub(super) fn continues_group(table: &Table, i: usize) -> bool {
    i > 0 && table.rows[i].cells.first() == table.rows[i - 1].cells.first()
}

/// Columns under one heading: (heading, how many), in order.
pub(super) fn groups(table: &Table) -> Vec<(&str, usize)> {
    let mut out = Vec::<(&str, usize)>::new();
    for column in &table.columns {
        match out.last_mut() {
            Some((group, n)) if *group == column.group => *n += 1,
            _ => out.push((&column.group, 1)),
        }
    }
    out
}

/// The data of a chart: a row for each place on the x axis, a column for each series. More than `limit` rows
/// are thinned out evenly, and the table says so.
pub(super) fn of_chart(chart: &Chart, limit: usize) -> Table {
    assert!(limit > 1, "a table that is thinned out keeps its first and its last row");
    let mut rows = Vec::<(&Coordinate, Vec<Option<&Point>>)>::new();
    let mut index = HashMap::new();
    for (i, series) in chart.series.iter().enumerate() {
        let mut seen = HashMap::<String, usize>::new();
        for point in &series.points {
            // Several points of a series at the same place have a row each.
            let x = format!("{:?}", point.x);
            let which = *seen.entry(x.clone()).and_modify(|n| *n += 1).or_default();
            let at = *index.entry((x, which)).or_insert_with(|| {
                rows.push((&point.x, vec![None; chart.series.len()]));
                rows.len() - 1
            });
            rows[at].1[i] = Some(point);
        }
    }
    rows.sort_by(|(a, _), (b, _)| match (a, b) {
        (Coordinate::Number(a), Coordinate::Number(b)) => a.total_cmp(b),
        // Names stay in the order in which they first appear, as on the axis.
        _ => std::cmp::Ordering::Equal,
    });
    let total = rows.len();
    let shown = total.min(limit);
    let rows: Vec<Row> = (0..shown)
        .map(|i| if shown == total { i } else { i * (total - 1) / (shown - 1) })
        .map(|i| row_of_chart(chart, rows[i].0, &rows[i].1))
        .collect();
    let mut columns = vec![match chart.x.scale {
        Scale::Category => Column::words(&chart.x.title),
        Scale::Linear | Scale::Log => Column::numbers(&chart.x.title, &chart.x.unit),
    }];
    columns.extend(chart.series.iter().map(|s| Column::numbers(&s.name, &chart.y.unit)));
    let mut how_to_read = reference_lines(chart);
    if shown < total {
        how_to_read.push_str(&format!(" {shown} of {total} rows, evenly apart; all are in the JSON."));
    }
    Table { caption: chart.title.clone(), columns, rows, how_to_read: how_to_read.trim().to_string() }
}

fn row_of_chart(chart: &Chart, x: &Coordinate, points: &[Option<&Point>]) -> Row {
    let mut cells = vec![match x {
        Coordinate::Number(x) => Number::exact(*x, &chart.x.unit).into(),
        Coordinate::Name(name) => name.as_str().into(),
        Coordinate::Within(group, name) => format!("{group} · {name}").into(),
    }];
    let mut remarks = Vec::new();
    for (series, point) in chart.series.iter().zip(points) {
        let Some(point) = point else {
            cells.push(Cell::missing(if series.role == Role::Published {
                "not published"
            } else {
                "no such point"
            }));
            continue;
        };
        let number = Number { low: point.low, high: point.high, ..Number::new(point.y, &chart.y.unit) };
        cells.push(match series.role {
            Role::Published => Cell::published(number.digits(0), &series.source),
            Role::Ours | Role::Reference => number.into(),
        });
        if !point.label.is_empty() {
            remarks.push(format!("{}: {}", series.name, point.label));
        }
    }
    Row::new(cells).note(&remarks.join("; "))
}

/// The straight lines of a chart, in words.
pub(super) fn reference_lines(chart: &Chart) -> String {
    let lines: Vec<String> = chart
        .lines
        .iter()
        .map(|line| {
            let axis = if line.on == On::X { &chart.x } else { &chart.y };
            format!("{} = {}", line.label, Number::exact(line.value, &axis.unit))
        })
        .collect();
    if lines.is_empty() { String::new() } else { format!("Lines: {}.", lines.join("; ")) }
}

/// How many points a log axis has no place for, and what that means; empty if all can be drawn.
pub(super) fn not_drawn(chart: &Chart) -> String {
    let off = |p: &&Point| {
        (chart.y.scale == Scale::Log && p.y <= 0.0)
            || (chart.x.scale == Scale::Log && matches!(p.x, Coordinate::Number(x) if x <= 0.0))
    };
    match chart.series.iter().flat_map(|s| &s.points).filter(off).count() {
        0 => String::new(),
        1 => "One point is not drawn, because a log axis has no place for zero; it is in the table.".into(),
        n => format!(
            "{n} points are not drawn, because a log axis has no place for zero; they are in the table."
        ),
    }
}
