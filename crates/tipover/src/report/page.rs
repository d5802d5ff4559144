//! What a report says, as pure data. Whoever makes a page (the studies) knows nothing of HTML or terminals;
//! whoever shows it knows nothing of databases.

use super::accesses::AccessPicture;
use super::number::Number;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use tipover_core::study::Judged;

/// A whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// What was studied, as a heading.
    pub title: String,
    /// The question that the experiment asks.
    pub question: String,
    /// The answer in sentences, the most important one first.
    pub headline: Vec<String>,
    /// The evidence.
    pub sections: Vec<Section>,
    /// Who made this, when, where and from what.
    pub made_by: Provenance,
    /// The claims of the text that was repeated, judged; empty where none was. The page shows them as a
    /// table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<Judged>,
}

/// What it takes to make the page again, and to doubt it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The command line that makes this page again.
    pub command: String,
    /// The commit of Tipover, with "+ changes" if the tree was not clean.
    pub commit: String,
    /// The version of Tipover.
    pub version: String,
    /// When the page was made, as RFC 3339.
    pub when: String,
    /// Facts of the host and of the results: machine, kernel, folder, seed.
    pub facts: Vec<Fact>,
}

/// A part of the page with an entry in its navigation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Lower-case letters, digits and "-"; unique on the page.
    pub id: String,
    /// Heading, also the text in the navigation: keep it short.
    pub title: String,
    /// From top to bottom; neighbouring charts share a row where there is room.
    pub blocks: Vec<Block>,
}

/// One thing in a section. In JSON: `{"prose": "..."}`, `{"table": {...}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Paragraphs, apart by an empty line; `code` between backticks.
    Prose(String),
    /// Something that must not be overlooked.
    Callout(Callout),
    /// Names and values.
    Facts(Vec<Fact>),
    /// Rows and columns.
    Table(Table),
    /// A picture whose data can also be read as a table.
    Chart(Chart),
    /// Charts one under another on the same axis.
    Panels(Box<Panels>),
    /// A moving picture of a disk's accesses.
    Accesses(Box<AccessPicture>),
}

/// A sentence in a box.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Callout {
    /// How much it matters.
    pub kind: CalloutKind,
    /// What is the matter and, unless it is a note, what to do.
    pub text: String,
}

/// How much a callout matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CalloutKind {
    /// Good to know.
    Note,
    /// The numbers hold, but less than one would think.
    Warning,
    /// Something did not run or did not hold.
    Failure,
}

impl CalloutKind {
    /// The word in front of the text, so that colour is never the only sign.
    pub(super) fn word(self) -> &'static str {
        match self {
            CalloutKind::Note => "Note",
            CalloutKind::Warning => "Warning",
            CalloutKind::Failure => "Failure",
        }
    }
    pub(super) fn class(self) -> &'static str {
        match self {
            CalloutKind::Note => "note",
            CalloutKind::Warning => "warning",
            CalloutKind::Failure => "failure",
        }
    }
}

/// A named value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is.
    pub name: String,
    /// What it is here.
    pub value: Cell,
    /// Where it comes from or what it means; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Fact {
    /// A fact without note.
    pub fn new(name: &str, value: impl Into<Cell>) -> Self {
        Fact { name: name.into(), value: value.into(), note: String::new() }
    }
    /// With a note.
    pub fn note(mut self, note: &str) -> Self {
        self.note = note.into();
        self
    }
}

/// Rows and columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What the table shows, in a line.
    pub caption: String,
    /// From left to right; the first one names the row.
    pub columns: Vec<Column>,
    /// From top to bottom. Neighbours with the same first cell are shown as one group.
    pub rows: Vec<Row>,
    /// How to read it, and what the intervals are; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub how_to_read: String,
}

/// The head of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Neighbouring columns with the same group share a heading above theirs; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// What is in the column.
    pub title: String,
    /// The unit of its numbers, printed once here and not in each cell; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Numbers right, words left.
    pub align: Align,
}

/// On which side the cells of a column are flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

impl Column {
    /// A column of words.
    pub fn words(title: &str) -> Self {
        Column { group: String::new(), title: title.into(), unit: String::new(), align: Align::Left }
    }
    /// A column of numbers in `unit`.
    pub fn numbers(title: &str, unit: &str) -> Self {
        Column { group: String::new(), title: title.into(), unit: unit.into(), align: Align::Right }
    }
    /// Under a heading shared with its neighbours.
    pub fn group(mut self, group: &str) -> Self {
        self.group = group.into();
        self
    }
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// One for each column.
    pub cells: Vec<Cell>,
    /// A footnote to the whole row; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// How loud the row is.
    #[serde(default)]
    pub emphasis: Emphasis,
}

/// How loud a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Emphasis {
    /// Like the others.
    #[default]
    Plain,
    /// The row that the headline is about.
    Strong,
    /// Context.
    Faint,
}

impl Row {
    /// A row like any other.
    pub fn new(cells: Vec<Cell>) -> Self {
        Row { cells, note: String::new(), emphasis: Emphasis::Plain }
    }
    /// With a footnote.
    pub fn note(mut self, note: &str) -> Self {
        self.note = note.into();
        self
    }
    /// Louder or fainter than the others.
    pub fn emphasis(mut self, emphasis: Emphasis) -> Self {
        self.emphasis = emphasis;
        self
    }
}

/// A value somewhere in a table or in a fact. In JSON: `{"text": "..."}`, `{"number": {...}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// Words.
    Text(String),
    /// Our number.
    Number(Number),
    /// Someone else's number, shown as such.
    Published {
        /// As they printed it.
        number: Number,
        /// Who printed it and where.
        source: String,
    },
    /// No value; never without a reason.
    Missing {
        /// Why there is none: "not printed in the study", "needs root".
        reason: String,
    },
    /// Whether a promise or a law held.
    Verdict {
        /// Held, not held, or not known.
        verdict: Verdict,
        /// By how much, or why not; may be empty.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        text: String,
    },
}

/// The section of the claims of a text: long, and told in numbers by the headline.
pub(super) const CLAIMS: &str = "claims";

/// Whether a promise or a law held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It held.
    Held,
    /// It did not hold.
    NotHeld,
    /// It cannot be said.
    Unknown,
    /// A claim is as our figures are.
    Confirmed,
    /// A claim is not as our figures are.
    Contradicted,
    /// Our figures leave a claim open.
    CannotTell,
    /// Nothing here speaks of a claim.
    NotTested,
}

impl Verdict {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Held => "held",
            Verdict::NotHeld => "not held",
            Verdict::Unknown => "unknown",
            Verdict::Confirmed => "confirmed",
            Verdict::Contradicted => "contradicted",
            Verdict::CannotTell => "cannot tell",
            Verdict::NotTested => "not tested here",
        }
    }
    pub(super) fn sign(self) -> &'static str {
        match self {
            Verdict::Held | Verdict::Confirmed => "✓",
            Verdict::NotHeld | Verdict::Contradicted => "✗",
            Verdict::Unknown | Verdict::CannotTell => "?",
            Verdict::NotTested => "–",
        }
    }
    pub(super) fn class(self) -> &'static str {
        match self {
            Verdict::Held | Verdict::Confirmed => "held",
            Verdict::NotHeld | Verdict::Contradicted => "not-held",
            Verdict::Unknown | Verdict::CannotTell => "unknown",
            Verdict::NotTested => "not-tested",
        }
    }
}

impl Table {
    /// The same without columns that have nothing in any row.
    pub fn without_empty_columns(mut self) -> Self {
        let empty = |cell: &Cell| matches!(cell, Cell::Missing { .. }) || *cell == Cell::from("");
        let full: Vec<bool> =
            (0..self.columns.len()).map(|n| !self.rows.iter().all(|row| empty(&row.cells[n]))).collect();
        fn retain<T>(of: &mut Vec<T>, full: &[bool]) {
            let mut full = full.iter();
            of.retain(|_| full.next().copied().unwrap_or(true));
        }
        retain(&mut self.columns, &full);
        self.rows.iter_mut().for_each(|row| retain(&mut row.cells, &full));
        self
    }
}

impl Cell {
    /// No value, because of `reason`.
    pub fn missing(reason: &str) -> Self {
        assert!(!reason.trim().is_empty(), "a missing value says why");
        Cell::Missing { reason: reason.into() }
    }
    /// Someone else's number.
    pub fn published(number: Number, source: &str) -> Self {
        Cell::Published { number, source: source.into() }
    }
    /// A verdict with its reason or its own words, which are printed behind the sign instead of the
    /// verdict's.
    pub fn verdict(verdict: Verdict, text: &str) -> Self {
        Cell::Verdict { verdict, text: text.into() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.into())
    }
}
impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}
impl From<Number> for Cell {
    fn from(number: Number) -> Self {
        Cell::Number(number)
    }
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Lower-case letters, digits and "-"; unique on the page.
    pub id: String,
    /// What is drawn: "Throughput against working set".
    pub title: String,
    /// The axis along the bottom.
    pub x: Axis,
    /// The axis up the side.
    pub y: Axis,
    /// What is drawn, in the order of the legend.
    pub series: Vec<Series>,
    /// Straight lines such as a configured limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<ReferenceLine>,
    /// What to look at and what it would mean.
    pub how_to_read: String,
    /// What a hasty reader would conclude from it and must not.
    pub cannot_say: String,
}

/// Charts of one thing that happened over time, one under another, with the same axis along the bottom and
/// the same marks through all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Panels {
    /// Lower-case letters, digits and "-"; unique on the page.
    pub id: String,
    /// What is drawn: "disk 600 IOPS, first trial".
    pub title: String,
    /// From top to bottom. What they have in common is explained once, below.
    pub charts: Vec<Chart>,
    /// From left to right.
    pub marks: Vec<PanelMark>,
    /// Where the common axis begins.
    #[serde(default)]
    pub from: f64,
    /// Whether it goes on while one reads; the table in short is then all the data that the page lists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
    /// The same in few rows: all that a terminal shows.
    pub in_short: Table,
    /// What to look at and what it would mean.
    pub how_to_read: String,
    /// What a hasty reader would conclude from it and must not.
    pub cannot_say: String,
}

/// A moment or a span on the common axis of panels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PanelMark {
    /// Where it begins.
    pub from: f64,
    /// Where it ends; a moment has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
    /// A number or a word in the topmost panel.
    pub label: String,
    /// All of it, shown when pointed at.
    pub text: String,
}

/// One axis of a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What is along it.
    pub title: String,
    /// In what unit; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// How values become lengths.
    pub scale: Scale,
}

impl Axis {
    /// An axis on which equal steps are equal differences.
    pub fn linear(title: &str, unit: &str) -> Self {
        Axis { title: title.into(), unit: unit.into(), scale: Scale::Linear }
    }
    /// An axis on which equal steps are equal ratios.
    pub fn log(title: &str, unit: &str) -> Self {
        Axis { title: title.into(), unit: unit.into(), scale: Scale::Log }
    }
    /// An axis of names.
    pub fn category(title: &str) -> Self {
        Axis { title: title.into(), unit: String::new(), scale: Scale::Category }
    }
}

/// How values become lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scale {
    /// Equal steps are equal differences.
    Linear,
    /// Equal steps are equal ratios. Zero has no place here: such points are counted, not drawn.
    Log,
    /// Names, in the order in which they first appear.
    Category,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// As in the legend.
    pub name: String,
    /// What the series is about ("disk S1"): the same subject has the same colour in every chart of the
    /// page, ours or published.
    pub subject: String,
    /// How it is drawn.
    pub kind: SeriesKind,
    /// Whose numbers they are.
    pub role: Role,
    /// Who published it and where; empty if it is ours.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// From left to right.
    pub points: Vec<Point>,
}

impl Series {
    /// What we measured about `subject`.
    pub fn ours(kind: SeriesKind, subject: &str, name: &str, points: Vec<Point>) -> Self {
        let (name, subject, source) = (name.into(), subject.into(), String::new());
        Series { name, subject, kind, role: Role::Ours, source, points }
    }
    /// What others published about `subject`.
    pub fn published(kind: SeriesKind, subject: &str, name: &str, source: &str, points: Vec<Point>) -> Self {
        Series { role: Role::Published, source: source.into(), ..Series::ours(kind, subject, name, points) }
    }
    /// Published points beside our own of the same subject; `None` where nothing was published.
    pub fn published_points(subject: &str, source: &str, points: Vec<Point>) -> Option<Self> {
        let name = format!("{subject}, published");
        (!points.is_empty()).then(|| Series::published(SeriesKind::Points, subject, &name, source, points))
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SeriesKind {
    /// Markers joined by straight lines (no markers from 60 points on).
    Line,
    /// Markers alone.
    Points,
    /// Bars beside those of the other series.
    Bars,
    /// Bars on top of those of the other series.
    StackedBars,
    /// A map: a cell around each point, from `low` to `high`, the darker the higher its weight.
    Heat,
}

/// Whose numbers a series shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Measured here.
    Ours,
    /// Measured by others: dotted, open markers.
    Published,
    /// Computed or configured, not measured: dashed, no markers.
    Reference,
}

/// One value of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where it is along the bottom.
    pub x: Coordinate,
    /// How high it is.
    pub y: f64,
    /// Lower end of the error bar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Upper end of the error bar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// What is special about it; shown when pointed at and under the table of the data; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
    /// Something is missing before it, so that no line joins it to the point before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub apart: bool,
    /// How much there is of it, on a map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
}

/// A place on the x axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Coordinate {
    /// On a linear or log axis.
    Number(f64),
    /// On an axis of names.
    Name(String),
    /// On an axis of names within groups: ("230 % of cache", "S1").
    Within(String, String),
}

impl From<f64> for Coordinate {
    fn from(x: f64) -> Self {
        Coordinate::Number(x)
    }
}
impl From<&str> for Coordinate {
    fn from(name: &str) -> Self {
        Coordinate::Name(name.into())
    }
}
impl From<(&str, &str)> for Coordinate {
    fn from((group, name): (&str, &str)) -> Self {
        Coordinate::Within(group.into(), name.into())
    }
}

impl Point {
    /// A point without error bar.
    pub fn new(x: impl Into<Coordinate>, y: f64) -> Self {
        assert!(y.is_finite(), "a drawn point is finite, {y} is not: leave it out and say why");
        Point { x: x.into(), y, low: None, high: None, label: String::new(), apart: false, weight: None }
    }
    /// With an error bar.
    pub fn between(mut self, low: f64, high: f64) -> Self {
        assert!(low.is_finite() && high.is_finite() && low <= high, "{low}..{high} is not an interval");
        (self.low, self.high) = (Some(low), Some(high));
        self
    }
    /// With a remark.
    pub fn label(mut self, label: &str) -> Self {
        self.label = label.into();
        self
    }
    /// With a gap before it, or without.
    pub fn apart(mut self, apart: bool) -> Self {
        self.apart = apart;
        self
    }
}

/// A straight line through a chart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReferenceLine {
    /// The axis on which `value` lies; the line is at right angles to it.
    pub on: On,
    /// Its value on that axis.
    pub value: f64,
    /// What it is: "configured 150 IOPS".
    pub label: String,
    /// The subject whose colour it has; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
}

/// One of the two axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    /// Along the bottom.
    X,
    /// Up the side.
    Y,
}

impl Page {
    /// For `--json` and for other programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a page is strings and finite numbers")
    }

    /// The page with nothing but what is drawn, for whoever draws it.
    pub(super) fn drawn(&self) -> Page {
        let drawn = |block: &Block| match block {
            Block::Chart(_) | Block::Accesses(_) => Some(block.clone()),
            Block::Panels(panels) => {
                let in_short = Table { rows: vec![], ..panels.in_short.clone() };
                Some(Block::Panels(Box::new(Panels { in_short, ..(**panels).clone() })))
            }
            Block::Prose(_) | Block::Callout(_) | Block::Facts(_) | Block::Table(_) => None,
        };
        let sections = self.sections.iter().map(|section| Section {
            id: section.id.clone(),
            title: section.title.clone(),
            blocks: section.blocks.iter().filter_map(drawn).collect(),
        });
        let sections = sections.filter(|section| !section.blocks.is_empty()).collect();
        let (title, question) = (self.title.clone(), self.question.clone());
        let made_by = Provenance { facts: vec![], ..self.made_by.clone() };
        Page { title, question, headline: vec![], sections, made_by, claims: vec![] }
    }

    /// All charts of the page, from top to bottom.
    pub fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.sections.iter().flat_map(|s| &s.blocks).flat_map(|b| match b {
            Block::Chart(chart) => std::slice::from_ref(chart),
            Block::Panels(panels) => panels.charts.as_slice(),
            _ => &[],
        })
    }

    /// All moving pictures of the page, from top to bottom.
    pub fn pictures(&self) -> impl Iterator<Item = &AccessPicture> {
        self.sections.iter().flat_map(|s| &s.blocks).filter_map(|b| match b {
            Block::Accesses(picture) => Some(picture.as_ref()),
            _ => None,
        })
    }

    /// Stops a page that would mislead: a row that is short of cells, two charts with one name, a chart
    /// that does not say how to read it. These are bugs of whoever made the page, never of the data.
    pub(super) fn assert_whole(&self) {
        let mut ids = BTreeSet::new();
        let mut take = |id: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(
                !id.is_empty() && id.chars().all(plain),
                "{id:?}: an id is lower-case letters, digits, \"-\""
            );
            assert!(ids.insert(id.to_string()), "two things on the page have the id {id:?}");
        };
        for section in &self.sections {
            take(&section.id);
            for block in &section.blocks {
                match block {
                    Block::Table(table) => {
                        for row in &table.rows {
                            let (cells, columns) = (row.cells.len(), table.columns.len());
                            assert!(
                                cells == columns,
                                "{}: {cells} cells in {columns} columns",
                                table.caption
                            );
                        }
                    }
                    Block::Chart(chart) => {
                        take(&chart.id);
                        for series in chart.series.iter().filter(|s| s.role == Role::Published) {
                            assert!(!series.source.is_empty(), "{}: published by whom?", series.name);
                        }
                        for text in [&chart.how_to_read, &chart.cannot_say] {
                            assert!(
                                !text.is_empty(),
                                "chart {}: how to read it, what can it not say?",
                                chart.id
                            );
                        }
                    }
                    Block::Panels(panels) => {
                        take(&panels.id);
                        panels.charts.iter().for_each(|chart| take(&chart.id));
                        let said = [&panels.how_to_read, &panels.cannot_say];
                        assert!(said.iter().all(|text| !text.is_empty()), "{}: how to read it?", panels.id);
                    }
                    Block::Accesses(picture) => take(&picture.id),
                    Block::Prose(_) | Block::Callout(_) | Block::Facts(_) => {}
                }
            }
        }
    }
}
