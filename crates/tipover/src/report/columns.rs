//! A table as a list of columns, each with its heading, its unit and what fills its cells, so that cells and
//! headings cannot part.

use super::experiment::figure;
use super::page::{Cell, Column, Emphasis, Row, Table};
use tipover_core::study::Figure;

type Fill<'a, T> = Box<dyn Fn(&T) -> Cell + 'a>;

/// The columns of a table whose rows are made of `T`.
pub struct Columns<'a, T> {
    group: &'a str,
    all: Vec<(Column, Fill<'a, T>)>,
}

impl<'a, T: 'a> Columns<'a, T> {
    /// None yet.
    pub fn new() -> Self {
        Columns { group: "", all: vec![] }
    }

    /// The columns that follow share this heading, until the next one; empty for none.
    pub fn group(mut self, group: &'a str) -> Self {
        self.group = group;
        self
    }

    /// A column of words.
    pub fn words<C: Into<Cell>>(self, title: &str, fill: impl Fn(&T) -> C + 'a) -> Self {
        self.with(Column::words(title), fill)
    }

    /// A column of numbers in `unit`; what fills it is given the unit.
    pub fn numbers<C: Into<Cell>>(
        self,
        title: &str,
        unit: &'a str,
        fill: impl Fn(&T, &str) -> C + 'a,
    ) -> Self {
        self.with(Column::numbers(title, unit), move |row| fill(row, unit))
    }

    /// A column of figures of a study, whose fields say that they are in `unit`.
    pub fn figures(self, title: &str, unit: &'a str, field: impl Fn(&T) -> &Figure + 'a) -> Self {
        self.numbers(title, unit, move |row, unit| figure(field(row), unit))
    }

    fn with<C: Into<Cell>>(mut self, column: Column, fill: impl Fn(&T) -> C + 'a) -> Self {
        self.all.push((column.group(self.group), Box::new(move |row: &T| fill(row).into())));
        self
    }

    /// The table of `rows`.
    pub fn table<'r>(self, caption: &str, rows: impl IntoIterator<Item = &'r T>, how_to_read: &str) -> Table
    where
        T: 'r,
    {
        self.emphasised(caption, rows, how_to_read, |_| Emphasis::Plain)
    }

    /// The table of `rows`, some of them louder or fainter than others.
    pub fn emphasised<'r>(
        self,
        caption: &str,
        rows: impl IntoIterator<Item = &'r T>,
        how_to_read: &str,
        emphasis: impl Fn(&T) -> Emphasis,
    ) -> Table
    where
        T: 'r,
    {
        let row =
            |row: &T| Row::new(self.all.iter().map(|(_, fill)| fill(row)).collect()).emphasis(emphasis(row));
        let rows = rows.into_iter().map(row).collect();
        let columns = self.all.into_iter().map(|(column, _)| column).collect();
        Table { caption: caption.into(), columns, rows, how_to_read: how_to_read.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Number;

    #[test]
    fn heading_unit_and_cell_come_from_one_definition() {
        let columns = Columns::new()
            .words("what", |row: &(&'static str, f64)| row.0)
            .group("cost")
            .numbers("time", "ms", |row, unit| Number::new(row.1, unit))
            .group("")
            .words("remark", |_| "");
        let table = columns.table("Costs", &[("read", 2.0), ("write", 3.0)], "");
        assert_eq!(table.columns.iter().map(|c| c.group.as_str()).collect::<Vec<_>>(), ["", "cost", ""]);
        assert_eq!((table.rows.len(), table.rows[1].cells.len()), (2, 3));
        assert_eq!(table.rows[1].cells[1], Number::new(3.0, &table.columns[1].unit).into());
    }
}
