//! The table as YCSB's JDBC binding and go-ycsb make it, and the statements on it.

use super::Texts;
use crate::connection::Row;
use tipover_core::op::Fields;
use tipover_core::workload::Dataset;
use tipover_core::workload::documents::Path;

/// How one kind of server writes what all of them can say.
pub struct Syntax {
    /// The key's column, as both programs call it.
    pub key: &'static str,
    /// A name.
    pub quoted: fn(&str) -> String,
    /// Parameter number `n` of a statement, counted from 1.
    pub parameter: fn(usize) -> String,
    /// A path into a document.
    pub path: fn(&Path) -> String,
    /// What is at a path: from the column and the path.
    pub get: fn(&str, &str) -> String,
    /// A document with something else at a path: from the column, the path and the parameter.
    pub set: fn(&str, &str, &str) -> String,
}

/// A table that exists, its names as statements write them.
#[derive(Clone)]
pub struct Table {
    syntax: &'static Syntax,
    name: String,
    key: String,
    /// By the number of the field: name, and which column of [`Table::whole`] it is.
    fields: Vec<(String, usize)>,
    /// What reads a whole record: `*`, or all fields by name.
    whole: String,
    /// How many columns that are.
    width: usize,
    indexed: bool,
    /// If records are documents: what an update can set.
    paths: Option<Vec<String>>,
}

/// A table among the columns that a catalogue knows.
pub struct Found<'a> {
    /// Its rows there; each begins with the names of table and column.
    pub rows: Vec<&'a Texts>,
    /// Which of them is the key.
    pub key: usize,
    /// Which of them are the fields.
    pub fields: Vec<usize>,
}

impl<'a> Found<'a> {
    /// Finds the columns of `dataset` among `rows`, which begin with the best table, in whatever case their
    /// names are; `None` if there is no table.
    pub fn among(rows: &'a [Texts], syntax: &Syntax, dataset: &Dataset) -> Option<Result<Found<'a>, String>> {
        let table = text(rows.first()?, 0);
        // Another table may have the same name in another case; the best one came first.
        let rows: Vec<&Texts> = rows.iter().filter(|row| text(row, 0) == table).collect();
        let find = |wanted: &str| {
            let column = rows.iter().position(|row| text(row, 1).eq_ignore_ascii_case(wanted));
            column.ok_or_else(|| format!("table {table} has no column {wanted}"))
        };
        let all = || {
            let columns = 0..Row::columns(dataset);
            let fields: Result<_, _> = columns.map(|n| find(&Row::column_name(dataset, n))).collect();
            Ok((find(syntax.key)?, fields?))
        };
        let (key, fields) = match all() {
            Ok(found) => found,
            Err(missing) => return Some(Err(missing)),
        };
        Some(Ok(Found { rows, key, fields }))
    }
}

fn text(row: &Texts, column: usize) -> &str {
    row[column].as_deref().unwrap_or_default()
}

impl Table {
    /// The table `name` that was found, whose key is the first column of an index if `indexed`.
    pub fn new(
        name: String,
        found: &Found<'_>,
        indexed: bool,
        syntax: &'static Syntax,
        dataset: &Dataset,
    ) -> Table {
        let column = |at: usize| (syntax.quoted)(text(found.rows[at], 1));
        let paths = dataset.documents();
        Table {
            syntax,
            name,
            key: column(found.key),
            fields: found.fields.iter().map(|&at| (column(at), at)).collect(),
            whole: "*".into(),
            width: found.rows.len(),
            indexed,
            paths: paths.map(|documents| documents.paths().iter().map(syntax.path).collect()),
        }
    }

    /// A whole record is read as its fields, one by one: other columns are not of a kind that is understood.
    pub fn read_by_name(mut self) -> Table {
        self.whole = self.names(Fields::EachByName).join(", ");
        self.width = self.fields.len();
        self.fields.iter_mut().enumerate().for_each(|(at, (_, column))| *column = at);
        self
    }

    /// Its name, as statements must write it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key's column.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether a read by key is a look-up, not a scan of everything.
    pub fn is_indexed(&self) -> bool {
        self.indexed
    }

    /// Whether records are documents.
    pub fn has_documents(&self) -> bool {
        self.paths.is_some()
    }

    /// Which column of a whole record a field is.
    pub fn position(&self, field: u16) -> Option<usize> {
        self.fields.get(usize::from(field)).map(|(_, column)| *column)
    }

    /// How many columns a whole record has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The columns of `fields`.
    pub fn names(&self, fields: Fields) -> Vec<&str> {
        let numbers = fields.numbers(self.fields.len() as u16);
        let known = numbers.filter_map(|field| self.fields.get(usize::from(field)));
        known.map(|(name, _)| name.as_str()).collect()
    }

    /// Key and fields.
    pub fn columns(&self) -> String {
        let mut names = vec![self.key.as_str()];
        names.extend(self.names(Fields::EachByName));
        names.join(", ")
    }

    /// A parameter for each of them, followed by `suffix`.
    pub fn parameters(&self, suffix: &str) -> String {
        let numbers = 1..self.fields.len() + 2;
        let all: Vec<String> = numbers.map(|n| (self.syntax.parameter)(n) + suffix).collect();
        all.join(", ")
    }

    fn projection(&self, fields: Fields) -> String {
        match (fields, &self.paths) {
            (Fields::All, _) => self.whole.clone(),
            (Fields::One(path), Some(paths)) => {
                (self.syntax.get)(&self.fields[0].0, &paths[usize::from(path)])
            }
            (fields, _) => self.names(fields).join(", "),
        }
    }

    /// Reads one record; parameter 1 is the key.
    pub fn read(&self, fields: Fields) -> String {
        let (name, key, sought) = (&self.name, &self.key, (self.syntax.parameter)(1));
        format!("SELECT {} FROM {name} WHERE {key} = {sought}", self.projection(fields))
    }

    /// Updates one record; parameter 1 is the key, behind it are the fields. Where parameters have no
    /// numbers, the fields come first.
    pub fn update(&self, fields: Fields) -> String {
        let parameter = self.syntax.parameter;
        let set = match (fields, &self.paths) {
            (Fields::One(path), Some(paths)) => {
                let name = &self.fields[0].0;
                let changed = (self.syntax.set)(name, &paths[usize::from(path)], &parameter(2));
                format!("{name} = {changed}")
            }
            _ => {
                let names = self.names(fields);
                let set = names.iter().enumerate();
                let set: Vec<String> =
                    set.map(|(at, name)| format!("{name} = {}", parameter(at + 2))).collect();
                set.join(", ")
            }
        };
        format!("UPDATE {} SET {set} WHERE {} = {}", self.name, self.key, parameter(1))
    }

    /// Inserts one record; key and fields are the parameters.
    pub fn insert(&self) -> String {
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, self.columns(), self.parameters(""))
    }

    /// Reads records in the order of their keys; parameters are the first key, and how many.
    pub fn scan(&self, fields: Fields) -> String {
        let (name, key, parameter) = (&self.name, &self.key, self.syntax.parameter);
        let (first, count) = (parameter(1), parameter(2));
        let columns = self.projection(fields);
        format!("SELECT {columns} FROM {name} WHERE {key} >= {first} ORDER BY {key} LIMIT {count}")
    }
}
