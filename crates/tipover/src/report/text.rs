//! The page in the terminal: the same words and numbers, charts as the tables that they are.

use super::number::Number;
use super::page::*;
use super::table::{self, Footnotes};
use comfy_table::{
    Attribute, CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width,
};
use std::cmp::Reverse;
use std::io::IsTerminal;

/// What we print on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terminal {
    /// Columns.
    pub width: usize,
    /// Whether bold and colours are understood and wanted.
    pub style: bool,
}

impl Terminal {
    /// A file or a pipe: no colours, a width that fits most screens and mails.
    pub const PLAIN: Terminal = Terminal { width: 110, style: false };

    /// What standard output is now. Honours `NO_COLOR` and, where there is no terminal, `COLUMNS`.
    pub fn detect() -> Self {
        let tty = std::io::stdout().is_terminal();
        let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
        let width = if tty { comfy_table::Table::new().width().map(usize::from) } else { columns() };
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Terminal { width: width.unwrap_or(Self::PLAIN.width).clamp(40, 160), style: tty && wanted }
    }
}

/// Rows of a chart's data that are worth a reader's screen.
const CHART_ROWS: usize = 24;

/// Holds together what must not be broken over two lines of a cell; a space in the end.
const GLUE: char = '\u{a0}';

/// Rows and remarks that a summary may have.
const SUMMARY_ROWS: usize = 30;
const SUMMARY_FAILURES: usize = 3;

/// The page in short for `terminal`: the answer, what failed, the first table that a reader can take in, and
/// what else there is.
pub fn summary(page: &Page, terminal: Terminal) -> String {
    page.assert_whole();
    let mut out = Writer { terminal, text: String::new() };
    out.opening(page);
    let fits = |table: &&Table| !is_reference(table) && (1..=SUMMARY_ROWS).contains(&table.rows.len());
    let answers = page.sections.iter().filter(|section| section.id != CLAIMS);
    let found = answers.flat_map(|section| &section.blocks).find_map(|block| match block {
        Block::Table(table) => Some(table).filter(fits),
        _ => None,
    });
    if let Some(table) = found {
        out.gap();
        out.table(table);
    }
    let blocks = || page.sections.iter().flat_map(|section| &section.blocks);
    let failures = blocks()
        .filter(|block| matches!(block, Block::Callout(callout) if callout.kind == CalloutKind::Failure));
    for failure in failures.take(SUMMARY_FAILURES) {
        out.gap();
        out.block(failure);
    }
    out.gap();
    let titles: Vec<&str> = page.sections.iter().map(|section| section.title.as_str()).collect();
    out.paragraph(&format!("With --full, and in the report: {}.", titles.join(" · ")), 0);
    out.text
}

/// The whole page for `terminal`, with a newline at its end.
pub fn text(page: &Page, terminal: Terminal) -> String {
    page.assert_whole();
    let mut out = Writer { terminal, text: String::new() };
    out.opening(page);
    for section in &page.sections {
        out.gap();
        out.heading(&section.title, '─');
        for (i, block) in section.blocks.iter().enumerate() {
            if i > 0 {
                out.gap();
            }
            out.block(block);
        }
    }
    out.gap();
    out.heading("How this page was made", '─');
    let made = &page.made_by;
    let mut facts = vec![
        Fact::new("command", made.command.as_str()),
        Fact::new("commit", made.commit.as_str()),
        Fact::new("version", made.version.as_str()),
        Fact::new("made", made.when.as_str()),
    ];
    facts.extend(made.facts.iter().cloned());
    out.facts(&facts);
    out.text
}

struct Writer {
    terminal: Terminal,
    text: String,
}

impl Writer {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    fn styled(&self, text: &str, code: &str) -> String {
        if self.terminal.style { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    fn heading(&mut self, title: &str, rule: char) {
        for line in wrap(title, self.terminal.width) {
            let line = self.styled(&line, "1");
            self.line(&line);
        }
        let length = title.chars().count().min(self.terminal.width);
        self.line(&rule.to_string().repeat(length));
    }

    /// Title, question and answer.
    fn opening(&mut self, page: &Page) {
        self.heading(&page.title, '═');
        self.paragraph(&page.question, 0);
        self.gap();
        for sentence in &page.headline {
            self.bullet("▶", sentence);
        }
    }

    fn paragraph(&mut self, text: &str, indent: usize) {
        for (i, paragraph) in text.split("\n\n").enumerate() {
            if i > 0 {
                self.gap();
            }
            for line in wrap(paragraph, self.terminal.width - indent) {
                self.line(&format!("{}{line}", " ".repeat(indent)));
            }
        }
    }

    fn bullet(&mut self, sign: &str, text: &str) {
        let indent = sign.chars().count() + 1;
        for (i, line) in wrap(text, self.terminal.width - indent).iter().enumerate() {
            let front = if i == 0 { format!("{sign} ") } else { " ".repeat(indent) };
            self.line(&format!("{front}{line}"));
        }
    }

    fn block(&mut self, block: &Block) {
        match block {
            Block::Prose(text) => self.paragraph(text, 0),
            Block::Callout(callout) => {
                let colour = match callout.kind {
                    CalloutKind::Note => "34",
                    CalloutKind::Warning => "33",
                    CalloutKind::Failure => "31",
                };
                let sign = self.styled("▌", colour);
                let text = format!("{}: {}", callout.kind.word(), callout.text);
                for line in wrap(&text, self.terminal.width - 2) {
                    self.line(&format!("{sign} {line}"));
                }
            }
            Block::Facts(facts) => self.facts(facts),
            Block::Accesses(picture) => {
                for line in wrap(&picture.title, self.terminal.width) {
                    let line = self.styled(&line, "1");
                    self.line(&line);
                }
                self.paragraph(&picture.accesses.about(), 2);
                self.paragraph("It moves in the HTML report.", 2);
            }
            Block::Table(table) => self.table(table),
            Block::Panels(panels) => {
                self.table(&panels.in_short);
                self.paragraph(&format!("What it cannot say: {}", panels.cannot_say), 2);
                self.paragraph("The HTML report draws it.", 2);
            }
            Block::Chart(chart) => {
                self.table(&table::of_chart(chart, CHART_ROWS));
                let remark = table::not_drawn(chart);
                if !remark.is_empty() {
                    self.paragraph(&remark, 2);
                }
                self.paragraph(&format!("How to read it: {}", chart.how_to_read), 2);
                self.paragraph(&format!("What it cannot say: {}", chart.cannot_say), 2);
            }
        }
    }

    fn facts(&mut self, facts: &[Fact]) {
        let name_width = facts.iter().map(|f| f.name.chars().count()).max().unwrap_or(0).min(28);
        for fact in facts {
            let value = match &fact.value {
                Cell::Missing { reason } => format!("– ({reason})"),
                Cell::Published { number, source } => format!("{number} (published: {source})"),
                other => plain(other, "").replace(GLUE, " "),
            };
            let note = if fact.note.is_empty() { String::new() } else { format!("  [{}]", fact.note) };
            let names = wrap(&fact.name, name_width.max(1));
            let values =
                wrap(&format!("{value}{note}"), self.terminal.width.saturating_sub(name_width + 4).max(20));
            for i in 0..names.len().max(values.len()) {
                let name = names.get(i).map_or("", String::as_str);
                let value = values.get(i).map_or("", String::as_str);
                self.line(&format!("  {name:<name_width$}  {value}"));
            }
        }
    }

    fn table(&mut self, table: &Table) {
        let notes = Footnotes::of(table);
        let caption = self.styled(&table.caption, "1");
        self.line(&caption);
        if is_reference(table) {
            return self
                .paragraph(&format!("{} rows, which the page and its JSON have.", table.rows.len()), 2);
        }
        if column_widths(table, &notes, 0).iter().sum::<usize>() > self.terminal.width {
            self.cards(table, &notes);
        } else {
            self.grid(table, &notes);
        }
        for (mark, text) in notes.lines() {
            self.bullet(&format!("  {mark}"), &text);
        }
        if !table.how_to_read.is_empty() {
            self.paragraph(&table.how_to_read, 2);
        }
    }

    fn grid(&mut self, table: &Table, notes: &Footnotes) {
        let mut grid = comfy_table::Table::new();
        let rule = LineStyle::none().fill('─');
        grid.load_style(TableStyle::new().header_separator(rule));
        grid.set_content_arrangement(ContentArrangement::Dynamic);
        grid.set_width(u16::try_from(self.terminal.width).unwrap_or(u16::MAX));
        grid.set_header(table.columns.iter().map(|column| {
            let cell = comfy_table::Cell::new(head(column)).set_alignment(alignment(column));
            if self.terminal.style { cell.add_attribute(Attribute::Bold) } else { cell }
        }));
        for (i, row) in table.rows.iter().enumerate() {
            if i > 0 && has_groups(table) && !table::continues_group(table, i) {
                grid.add_row(vec![""; table.columns.len()]);
            }
            grid.add_row(row_cells(table, row, notes).into_iter().zip(&table.columns).map(
                |(text, column)| {
                    let cell = comfy_table::Cell::new(text).set_alignment(alignment(column));
                    match row.emphasis {
                        Emphasis::Strong if self.terminal.style => cell.add_attribute(Attribute::Bold),
                        Emphasis::Faint if self.terminal.style => cell.add_attribute(Attribute::Dim),
                        _ => cell,
                    }
                },
            ));
        }
        for (column, width) in grid.column_iter_mut().zip(column_widths(table, notes, self.terminal.width)) {
            let width = u16::try_from(width).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
        for line in grid.lines() {
            self.line(&line.replace(GLUE, " "));
        }
    }

    /// For a screen too narrow for the columns: one line for each cell, one paragraph for each row.
    fn cards(&mut self, table: &Table, notes: &Footnotes) {
        for row in &table.rows {
            self.gap();
            let cells = row_cells(table, row, notes);
            for (i, (text, column)) in cells.into_iter().zip(&table.columns).enumerate() {
                let line = format!("{}: {text}", head(column).replace('\n', " "));
                self.paragraph(&line.replace(GLUE, " "), if i == 0 { 0 } else { 2 });
            }
        }
        self.gap();
    }
}

/// Group, title and unit of a column, a line each.
fn head(column: &Column) -> String {
    let unit = if column.unit.is_empty() { String::new() } else { format!("[{}]", column.unit) };
    [column.group.clone(), column.title.clone(), unit]
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}

fn alignment(column: &Column) -> CellAlignment {
    match column.align {
        Align::Left => CellAlignment::Left,
        Align::Right => CellAlignment::Right,
    }
}

fn has_groups(table: &Table) -> bool {
    (1..table.rows.len()).any(|i| table::continues_group(table, i))
}

/// The cells of a row as text, with their marks.
fn row_cells(table: &Table, row: &Row, notes: &Footnotes) -> Vec<String> {
    let mut cells: Vec<String> = row
        .cells
        .iter()
        .zip(&table.columns)
        .map(|(cell, column)| match notes.mark_of(cell) {
            "" => plain(cell, &column.unit),
            mark => format!("{}{GLUE}{mark}", plain(cell, &column.unit)),
        })
        .collect();
    if let (Some(first), false) = (cells.first_mut(), row.note.is_empty()) {
        first.push_str(&format!("{GLUE}{}", notes.mark(&row.note)));
    }
    cells
}

/// A cell without its mark.
fn plain(cell: &Cell, column_unit: &str) -> String {
    let printed = |number: &Number| {
        let (value, interval) = number.parts();
        let unit = table::own_unit(number, column_unit);
        let whole = [value, interval].map(|part| part.replace(' ', &GLUE.to_string())).join(" ");
        format!("{}{GLUE}{unit}", whole.trim_end()).trim_end().to_string()
    };
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(number) | Cell::Published { number, .. } => printed(number),
        Cell::Missing { .. } => "–".into(),
        Cell::Verdict { verdict, text } if text.is_empty() => {
            format!("{} {}", verdict.sign(), verdict.word())
        }
        Cell::Verdict { verdict, text } => format!("{} {text}", verdict.sign()),
    }
}

/// How wide each column is, with a space on both sides, in a table of at most `total`: never narrower than
/// its longest word, and where there is room as wide as its longest cell. Columns whose cells would be broken
/// most often come first, then those that lack little.
fn column_widths(table: &Table, notes: &Footnotes, total: usize) -> Vec<usize> {
    let longest =
        |text: &str, breaks: &[char]| text.split(breaks).map(|w| w.chars().count()).max().unwrap_or(0);
    let heads = table.columns.iter().map(|column| longest(&head(column), &[' ', '\n']));
    let mut widths: Vec<usize> = heads.collect();
    let mut wanted = widths.clone();
    let mut words = vec![0; widths.len()];
    for row in &table.rows {
        for (i, cell) in row_cells(table, row, notes).iter().enumerate() {
            widths[i] = widths[i].max(longest(cell, &[' ', '\n']));
            wanted[i] = wanted[i].max(longest(cell, &['\n']));
            words[i] = words[i].max(cell.split(' ').count());
        }
    }
    let mut room = total.saturating_sub(widths.iter().map(|w| w + 2).sum());
    let mut order: Vec<usize> = (0..widths.len()).collect();
    order.sort_by_key(|&i| (Reverse(words[i]), wanted[i] - widths[i]));
    for i in order {
        let more = room.min(wanted[i] - widths[i]);
        widths[i] += more;
        room -= more;
    }
    widths.into_iter().map(|w| w + 2).collect()
}

/// Words in lines of at most `width` characters; a longer word gets a line of its own.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_string());
        }
    }
    lines
}

/// Words to be looked up, and more of them than a terminal's reader wants to pass on the way to the end.
fn is_reference(table: &Table) -> bool {
    table.rows.len() > 40 && table.columns.iter().all(|column| column.align == Align::Left)
}
