//! A statement with values drawn for it: what pgbench's scripts can say of where its values come from.

use super::column::{Column, ColumnKind, Spread};
use super::statement::{ColumnName, Placeholder, Role, Statement, TableUse};
use super::{Dialect, SeenStatement};
use crate::units::significant;
use crate::workload::script::{self, Scripts};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Draws values for statements, and remembers what it must know for that.
pub struct Draws<'a> {
    dialect: Dialect,
    columns: &'a [Column],
    keeps_values: bool,
    /// Tables as statements write them, with the columns whose least and greatest are needed.
    pub bounds: BTreeMap<String, BTreeSet<String>>,
    /// The bounds themselves, where they may be kept.
    pub known: BTreeMap<String, String>,
    /// How many numbers a range of a column holds, as statements that count them showed.
    widths: HashMap<(String, String), f64>,
    /// What could not be seen, as sentences.
    pub assumed: BTreeSet<String>,
}

/// The variables of one script.
#[derive(Default)]
pub struct Scope {
    used: HashMap<String, u32>,
    /// Keys whose row the script has deleted: it may insert them again.
    deleted: HashMap<(String, String), String>,
}

/// A statement as a script has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// Lines that draw.
    pub draws: Vec<String>,
    /// The statement, with variables where values stood.
    pub sql: String,
}

/// A name that a variable can have.
fn as_variable(name: &str) -> String {
    let mut variable: String =
        name.to_lowercase().chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    if variable.starts_with(|c: char| c.is_ascii_digit()) {
        variable.insert(0, '_');
    }
    variable
}

impl Scope {
    fn fresh(&mut self, name: &str) -> String {
        let name = as_variable(name);
        let used = self.used.entry(name.clone()).or_insert(0);
        *used += 1;
        if *used == 1 { name } else { format!("{name}_{used}") }
    }
}

/// Rows of one call on average.
pub fn rows_per_call(seen: &SeenStatement) -> f64 {
    seen.rows as f64 / seen.calls.max(1) as f64
}

/// More values than this in a list say nothing more.
const MOST_LISTED: f64 = 1_000.0;
/// How many numbers a range holds, where nothing says it.
const ASSUMED_WIDTH: f64 = 100.0;
/// How many values a list holds, where nothing says it.
const ASSUMED_LIST: f64 = 10.0;

impl<'a> Draws<'a> {
    /// Nothing drawn yet.
    pub fn new(dialect: Dialect, columns: &'a [Column], keeps_values: bool) -> Self {
        Draws {
            dialect,
            columns,
            keeps_values,
            bounds: BTreeMap::new(),
            known: BTreeMap::new(),
            widths: HashMap::new(),
            assumed: BTreeSet::new(),
        }
    }

    fn find(&self, statement: &Statement, name: &ColumnName) -> Result<(&'a Column, TableUse), String> {
        let is = |column: &Column, table: &TableUse| {
            column.table == table.name && column.name.eq_ignore_ascii_case(&name.column)
        };
        let named = statement.table_of(name);
        let tables = statement.tables.iter().filter(|table| named.is_none_or(|named| named == *table));
        let mut found = tables.filter_map(|table| {
            self.columns.iter().find(|column| is(column, table)).map(|column| (column, table.clone()))
        });
        found.next().ok_or_else(|| format!("nothing is known of the column {}", name.column))
    }

    /// Learns how wide ranges are from a statement that brings all rows of one.
    pub fn learn_widths(&mut self, statement: &Statement, seen: &SeenStatement) {
        if !statement.counts_what_it_finds || statement.tables.len() != 1 || seen.calls == 0 {
            return;
        }
        let roles: Vec<&Role> = statement.placeholders.iter().map(|placeholder| &placeholder.role).collect();
        let [Role::Low(low), Role::High(high)] = roles.as_slice() else { return };
        if low != high {
            return;
        }
        if let Ok((column, _)) = self.find(statement, low)
            && let Some(span) = column.span.filter(|_| column.rows > 0.0)
        {
            let width = (rows_per_call(seen) * span / column.rows).round().max(1.0);
            self.widths.insert((column.table.clone(), column.name.clone()), width);
        }
    }

    /// The variables that hold the least and the greatest value of a column when the plan runs.
    fn bounds_of(&mut self, column: &Column, table: &TableUse) -> (String, String) {
        let name = as_variable(&format!("{}_{}", column.table, column.name));
        let (least, most) = (format!("{name}_least"), format!("{name}_most"));
        match &column.bounds {
            Some((low, high)) if self.keeps_values => {
                self.known.insert(least.clone(), low.clone());
                self.known.insert(most.clone(), high.clone());
            }
            _ => {
                self.bounds.entry(table.written.clone()).or_default().insert(column.name.clone());
            }
        }
        (format!(":{least}"), format!(":{most}"))
    }

    /// The query that finds the bounds of a table's columns.
    pub fn question(&self, table: &str, columns: &BTreeSet<String>) -> String {
        let name = table.rsplit('.').next().unwrap_or(table).trim_matches(['"', '`']);
        let asked = columns.iter().flat_map(|column| {
            let known = self.columns.iter().find(|known| known.table == name && known.name == *column);
            let quoted = self.quoted(column);
            let variable = as_variable(&format!("{name}_{column}"));
            ["min", "max"].map(|which| {
                let value = format!("{which}({quoted})");
                let value = match (known.map(|known| known.kind), self.dialect) {
                    (Some(ColumnKind::Date | ColumnKind::Moment), Dialect::Postgres) => {
                        format!("extract(epoch from {value})")
                    }
                    (Some(ColumnKind::Date | ColumnKind::Moment), Dialect::Mysql) => {
                        format!("unix_timestamp({value})")
                    }
                    _ => value,
                };
                let word = if which == "min" { "least" } else { "most" };
                format!("{value} AS {variable}_{word}")
            })
        });
        format!("SELECT {} FROM {table} \\gset", asked.collect::<Vec<_>>().join(", "))
    }

    fn quoted(&self, name: &str) -> String {
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        match self.dialect {
            _ if plain => name.to_string(),
            Dialect::Postgres => format!("\"{}\"", name.replace('"', "\"\"")),
            Dialect::Mysql => format!("`{}`", name.replace('`', "``")),
        }
    }

    /// A value of a column as an expression of a script; what is asked for is spread as its rows are.
    fn drawn(
        &mut self,
        column: &Column,
        table: &TableUse,
        is_equal: bool,
        rows: f64,
        variable: &str,
    ) -> String {
        let (least, most) = self.bounds_of(column, table);
        let whole = matches!(column.kind, ColumnKind::Integer(_));
        if whole && is_equal && !column.is_unique {
            // Is a value asked for as often as rows have it, or all equally? The rows that come say it.
            let (of_row, of_value) = (column.rows_of_a_row().max(1e-9), column.rows_of_a_value().max(1e-9));
            let like_rows = (rows / of_row).ln().abs() < (rows / of_value).ln().abs();
            if let Some(exponent) = column.zipf().filter(|exponent| like_rows && *exponent > 1.0) {
                let span = format!("{most} - {least} + 1");
                return format!(
                    "\\set {variable} {least} + permute(random_zipfian(1, {span}, {exponent:.2}), {span})"
                );
            }
        }
        let spread = if is_equal && (column.is_unique || whole) { Spread::Even } else { column.spread() };
        match (spread, whole) {
            (Spread::Even, true) => format!("\\set {variable} random({least}, {most})"),
            (Spread::Gaussian(parameter), true) => {
                format!("\\set {variable} random_gaussian({least}, {most}, {parameter})")
            }
            (Spread::Exponential(parameter), true) => {
                format!("\\set {variable} random_exponential({least}, {most}, {parameter})")
            }
            (Spread::Tenths(tenths), _) => {
                let part = |(n, pair): (usize, &[f64])| {
                    let (from, by) = (pair[0], (pair[1] - pair[0]) / 1e5);
                    let share =
                        format!("{} + {:.4e} * (:{variable}_share - {n}00000)", significant(from, 6), by);
                    if n == 9 {
                        format!("else {share} end")
                    } else {
                        format!("when :{variable}_share < {}00000 then {share}", n + 1)
                    }
                };
                let parts: Vec<String> = tenths.windows(2).enumerate().map(part).collect();
                let value = format!("{least} + ({most} - {least}) * (case {})", parts.join(" "));
                let value = if whole { format!("int({value})") } else { value };
                format!("\\set {variable}_share random(0, 999999)\n\\set {variable} {value}")
            }
            (_, false) => {
                format!(
                    "\\set {variable} {least} + ({most} - {least}) * random(0, 1000000000) / 1000000000.0"
                )
            }
        }
    }

    /// How a statement writes a variable with a value of a column.
    fn written(&self, column: &Column, variable: &str) -> String {
        match (column.kind, self.dialect) {
            (ColumnKind::Date, Dialect::Postgres) => format!("to_timestamp(:{variable})::date"),
            (ColumnKind::Date, Dialect::Mysql) => format!("date(from_unixtime(:{variable}))"),
            (ColumnKind::Moment, Dialect::Postgres) => format!("to_timestamp(:{variable})"),
            (ColumnKind::Moment, Dialect::Mysql) => format!("from_unixtime(:{variable})"),
            (ColumnKind::Boolean, _) => format!("(:{variable} = 1)"),
            _ => format!(":{variable}"),
        }
    }

    /// A value for a column that is written.
    fn new_value(
        &mut self,
        (column, table): (&Column, &TableUse),
        is_inserted: bool,
        scope: &mut Scope,
        draws: &mut Vec<String>,
    ) -> Result<String, String> {
        let key = (column.table.clone(), column.name.clone());
        if let Some(variable) = scope.deleted.get(&key).filter(|_| is_inserted && column.is_unique) {
            return Ok(self.written(column, variable));
        }
        let variable = scope.fresh(&column.name);
        match column.kind {
            ColumnKind::Integer(largest) if is_inserted && column.is_unique => {
                let (_, most) = self.bounds_of(column, table);
                self.assumed.insert(format!(
                    "new keys of {}.{} lie above those that are there, in no order",
                    column.table, column.name
                ));
                draws.push(match largest > 1 << 41 {
                    true => format!("\\set {variable} {most} + random(1, {})", 1i64 << 40),
                    false => format!("\\set {variable} random({most} + 1, {largest})"),
                });
            }
            ColumnKind::Integer(_) | ColumnKind::Number => {
                draws.push(self.drawn(column, table, false, 1.0, &variable));
            }
            ColumnKind::Boolean => draws.push(format!("\\set {variable} random(0, 1)")),
            ColumnKind::Text => {
                draws.push(format!("\\set {variable} random(1, {})", 1i64 << 40));
                let width = (column.width.round() as u64).clamp(1, 1 << 20);
                let times = width.div_ceil(32);
                return Ok(match self.dialect {
                    Dialect::Postgres => format!("left(repeat(md5(:{variable}::text), {times}), {width})"),
                    Dialect::Mysql => format!("left(repeat(md5(:{variable}), {times}), {width})"),
                });
            }
            ColumnKind::Date | ColumnKind::Moment => return Ok("now()".into()),
            ColumnKind::Other => {
                return Err(format!("{} gets a value of a kind that is not drawn", column.name));
            }
        }
        Ok(self.written(column, &variable))
    }

    /// A statement with variables where values stood.
    ///
    /// # Errors
    /// Why no values can be drawn for it.
    pub fn draw(
        &mut self,
        statement: &Statement,
        seen: &SeenStatement,
        scope: &mut Scope,
    ) -> Result<Drawn, String> {
        if has_variable(&statement.text) || statement.text.contains('\\') {
            return Err("it has a colon or a backslash that a script would take for its own".into());
        }
        let rows = rows_per_call(seen);
        let mut draws = Vec::new();
        let mut values: Vec<String> = Vec::new();
        let mut of_parameter: HashMap<&str, String> = HashMap::new();
        // The variable of the range's begin that is still open.
        let mut open: Option<(ColumnName, String)> = None;
        for placeholder in &statement.placeholders {
            if let Some(known) = placeholder.parameter.as_deref().and_then(|name| of_parameter.get(name)) {
                values.push(known.clone());
                continue;
            }
            let value = match &placeholder.role {
                _ if placeholder.is_literal && self.keeps_values => {
                    statement.text[placeholder.begin..placeholder.end].to_string()
                }
                Role::Limit => format!("{}", rows.ceil().max(1.0)),
                Role::Offset => "0".into(),
                Role::Added => "1".into(),
                Role::Unknown(words) => {
                    return Err(match words.is_empty() {
                        true => "what its first value is for cannot be seen".into(),
                        false => format!("what the value behind `{words}` is for cannot be seen"),
                    });
                }
                Role::Set(name) => {
                    let (column, table) = self.find(statement, name)?;
                    self.new_value((column, &table), false, scope, &mut draws)?
                }
                Role::Inserted(number) => {
                    self.inserted(statement, placeholder, *number, scope, &mut draws)?
                }
                Role::Equal(name) => self.equal(statement, (placeholder, name), seen, scope, &mut draws)?,
                Role::Low(name) | Role::High(name) => {
                    let (column, table) = self.find(statement, name)?;
                    if matches!(column.kind, ColumnKind::Text | ColumnKind::Boolean | ColumnKind::Other) {
                        return Err(format!("ranges of {} cannot be drawn", column.name));
                    }
                    let begun = open.take().filter(|(begun, _)| begun == name);
                    match (begun, &placeholder.role) {
                        (Some((_, low)), Role::High(_)) => {
                            self.range_end((column, &table), &low, seen, scope, &mut draws)
                        }
                        _ => {
                            let variable = scope.fresh(&column.name);
                            draws.push(self.drawn(column, &table, false, rows, &variable));
                            open = Some((name.clone(), variable.clone()));
                            self.written(column, &variable)
                        }
                    }
                }
            };
            if let Some(name) = &placeholder.parameter {
                of_parameter.insert(name, value.clone());
            }
            values.push(value);
        }
        let mut sql = String::new();
        let mut end = 0;
        for (placeholder, value) in statement.placeholders.iter().zip(values) {
            sql.push_str(&statement.text[end..placeholder.begin]);
            sql.push_str(&value);
            end = placeholder.end;
        }
        sql.push_str(&statement.text[end..]);
        // Scripts are read by PostgreSQL's rules; what they cannot say must not spoil the whole plan.
        let mut scripts = Scripts::new(0, script::Dialect::Plan);
        match scripts.add("statement", format!("{sql};\n").as_bytes(), 1) {
            Err(mistake) => Err(format!("a script cannot say it: {}", mistake.reason)),
            Ok(()) if scripts.scripts()[0].commands.len() != 1 => Err("a script takes it for several".into()),
            Ok(()) => Ok(Drawn { draws, sql }),
        }
    }

    /// What a column is compared with.
    fn equal(
        &mut self,
        statement: &Statement,
        (placeholder, name): (&Placeholder, &ColumnName),
        seen: &SeenStatement,
        scope: &mut Scope,
        draws: &mut Vec<String>,
    ) -> Result<String, String> {
        let (column, table) = self.find(statement, name)?;
        let (column_name, rows) = (&column.name, rows_per_call(seen));
        if matches!(column.kind, ColumnKind::Text | ColumnKind::Other | ColumnKind::Number) {
            return Err(format!("values of {column_name} that are there cannot be drawn from its bounds"));
        }
        let listed = match placeholder.many {
            true if statement.counts_what_it_finds && rows >= 1.0 => {
                (rows / column.rows_of_a_value().max(1.0)).round().clamp(1.0, MOST_LISTED)
            }
            true => {
                self.assumed.insert(format!("lists of {column_name} have {ASSUMED_LIST} values"));
                ASSUMED_LIST
            }
            false => 1.0,
        };
        let mut values = Vec::new();
        for _ in 0..listed as usize {
            let variable = scope.fresh(column_name);
            draws.push(match column.kind {
                ColumnKind::Boolean => format!("\\set {variable} random(0, 1)"),
                _ => self.drawn(column, &table, true, rows / listed, &variable),
            });
            values.push(self.written(column, &variable));
            if statement.word == "delete" && column.is_unique {
                scope.deleted.insert((column.table.clone(), column_name.clone()), variable);
            }
        }
        if column.is_unique {
            self.assumed
                .insert(format!("all values of {}.{column_name} are asked for equally often", column.table));
            if let Some(density) = column.density().filter(|density| *density < 0.9) {
                self.assumed.insert(format!(
                    "numbers between the bounds of {}.{column_name} are drawn, and {} % of them are there",
                    column.table,
                    significant(100.0 * density, 2)
                ));
            }
        }
        Ok(values.join(", "))
    }

    /// Where a range ends that began at a variable.
    fn range_end(
        &mut self,
        (column, table): (&Column, &TableUse),
        low: &str,
        seen: &SeenStatement,
        scope: &mut Scope,
        draws: &mut Vec<String>,
    ) -> String {
        let key = (column.table.clone(), column.name.clone());
        let variable = scope.fresh(&format!("{}_end", column.name));
        if matches!(column.kind, ColumnKind::Integer(_)) {
            let width = self.widths.get(&key).copied().unwrap_or_else(|| {
                self.assumed.insert(format!(
                    "ranges of {}.{} hold {ASSUMED_WIDTH} numbers: no statement shows how many",
                    column.table, column.name
                ));
                ASSUMED_WIDTH
            });
            draws.push(format!("\\set {variable} :{low} + {}", width - 1.0));
        } else {
            let share = (rows_per_call(seen) / column.rows.max(1.0)).clamp(1e-9, 1.0);
            let (least, most) = self.bounds_of(column, table);
            draws.push(format!("\\set {variable} :{low} + ({most} - {least}) * {}", significant(share, 3)));
        }
        self.written(column, &variable)
    }

    /// What a place of an INSERT's list of values gets.
    fn inserted(
        &mut self,
        statement: &Statement,
        placeholder: &Placeholder,
        number: usize,
        scope: &mut Scope,
        draws: &mut Vec<String>,
    ) -> Result<String, String> {
        let table = statement.tables.first().cloned().ok_or("its table cannot be seen")?;
        let columns = self.columns;
        let of_table = || columns.iter().filter(|column| column.table == table.name);
        let named: Vec<&Column> = match statement.inserted.as_slice() {
            [] => of_table().collect(),
            names => names
                .iter()
                .filter_map(|name| of_table().find(|column| column.name.eq_ignore_ascii_case(name)))
                .collect(),
        };
        if named.is_empty() || !statement.inserted.is_empty() && named.len() != statement.inserted.len() {
            return Err(format!("nothing is known of the columns of {}", table.name));
        }
        let wanted =
            if placeholder.many { &named[..] } else { named.get(number..=number).unwrap_or_default() };
        if wanted.is_empty() {
            return Err(format!("{} has fewer columns than values", table.name));
        }
        let values: Result<Vec<String>, String> =
            wanted.iter().map(|column| self.new_value((column, &table), true, scope, draws)).collect();
        Ok(values?.join(", "))
    }
}

/// Whether a script would take something in a text for a variable.
fn has_variable(text: &str) -> bool {
    let letters: Vec<char> = text.chars().collect();
    letters
        .windows(3)
        .any(|three| three[0] != ':' && three[1] == ':' && (three[2].is_alphabetic() || three[2] == '_'))
}
