//! The table as YCSB's JDBC binding and go-ycsb make it, and the statements on it.

use super::client::Client;
use super::message::Report;
use crate::connection::Row;
use tipover_core::op::Fields;
use tipover_core::workload::Dataset;
use tipover_core::workload::documents::Path;

/// The key's column, as both programs call it; the server folds it to lower case.
const KEY: &str = "ycsb_key";

/// A table that exists, its names quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    name: String,
    key: String,
    /// By the number of the field: name, and which column of `SELECT *` it is.
    fields: Vec<(String, usize)>,
    /// Whether an index begins with the key.
    indexed: bool,
    /// If records are documents: what an update can set, each as an array of names.
    paths: Option<Vec<String>>,
}

impl Table {
    /// Looks for the table of `dataset`, in whatever case its names are; `None` if there is none.
    pub fn find(client: &mut Client, dataset: &Dataset) -> Result<Option<Result<Table, String>>, Report> {
        let (schema, name) = match dataset.table.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, dataset.table.as_str()),
        };
        let place = match schema {
            Some(schema) => format!("lower(n.nspname) = lower({})", literal(schema)),
            None => "pg_table_is_visible(c.oid)".to_string(),
        };
        let name = literal(name);
        let rows = client.query(&format!(
            "SELECT c.oid::regclass::text, a.attname, \
             EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indkey[0] = a.attnum) \
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_attribute a ON a.attrelid = c.oid \
             WHERE lower(c.relname) = lower({name}) AND {place} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') \
             AND a.attnum > 0 AND NOT a.attisdropped \
             ORDER BY c.relname <> {name}, c.relname <> lower({name}), c.oid, a.attnum"
        ))?;
        let text = |row: &[Option<String>], column: usize| row[column].clone().unwrap_or_default();
        let Some(first) = rows.first() else { return Ok(None) };
        let table = text(first, 0);
        // Another table may have the same name in another case; the best one came first.
        let columns: Vec<_> = rows.iter().filter(|row| text(row, 0) == table).collect();
        let find = |wanted: &str| columns.iter().position(|row| text(row, 1).eq_ignore_ascii_case(wanted));
        let missing = |column: &str| format!("table {table} has no column {column}");
        let Some(key) = find(KEY) else { return Ok(Some(Err(missing(KEY)))) };
        let mut fields = Vec::new();
        for column in 0..Row::columns(dataset) {
            let wanted = Row::column_name(dataset, column);
            match find(&wanted) {
                Some(column) => fields.push((quoted(&text(columns[column], 1)), column)),
                None => return Ok(Some(Err(missing(&wanted)))),
            }
        }
        let indexed = text(columns[key], 2) == "t";
        let paths = dataset.documents().map(|documents| {
            let names = |path: &Path| path.text().split('.').map(literal).collect::<Vec<_>>().join(", ");
            documents.paths().iter().map(|path| format!("ARRAY[{}]", names(path))).collect()
        });
        Ok(Some(Ok(Table { key: quoted(&text(columns[key], 1)), name: table, fields, indexed, paths })))
    }

    /// The statement that makes the table of `dataset`, as YCSB's documentation has it.
    pub fn definition(dataset: &Dataset) -> String {
        let name: Vec<String> = dataset.table.split('.').map(|part| quoted(&part.to_lowercase())).collect();
        let kind = if dataset.documents().is_some() { "jsonb" } else { "text" };
        let name_of = |column| quoted(&Row::column_name(dataset, column).to_lowercase());
        let columns = 0..Row::columns(dataset);
        let fields: String = columns.map(|column| format!(", {} {kind}", name_of(column))).collect();
        format!("CREATE TABLE {} ({KEY} varchar(255) PRIMARY KEY{fields})", name.join("."))
    }

    /// Its name, as statements must write it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a read by key is a look-up, not a scan of everything.
    pub fn is_indexed(&self) -> bool {
        self.indexed
    }

    /// Which column of `SELECT *` a field is.
    pub fn position(&self, field: u16) -> Option<usize> {
        self.fields.get(usize::from(field)).map(|(_, column)| *column)
    }

    fn names(&self, fields: Fields) -> Vec<&str> {
        let numbers = fields.numbers(self.fields.len() as u16);
        numbers
            .filter_map(|field| self.fields.get(usize::from(field)))
            .map(|(name, _)| name.as_str())
            .collect()
    }

    fn projection(&self, fields: Fields) -> String {
        match (fields, &self.paths) {
            (Fields::All, _) => "*".into(),
            (Fields::One(path), Some(paths)) => {
                format!("{} #> {}", self.fields[0].0, paths[usize::from(path)])
            }
            (fields, _) => self.names(fields).join(", "),
        }
    }

    /// $1 is the key.
    pub fn read(&self, fields: Fields) -> String {
        format!("SELECT {} FROM {} WHERE {} = $1", self.projection(fields), self.name, self.key)
    }

    /// $1 is the key, then come the fields.
    pub fn update(&self, fields: Fields) -> String {
        if let (Fields::One(path), Some(paths)) = (fields, &self.paths) {
            let (name, path) = (&self.fields[0].0, &paths[usize::from(path)]);
            let set = format!("{name} = jsonb_set({name}, {path}, $2)");
            return format!("UPDATE {} SET {set} WHERE {} = $1", self.name, self.key);
        }
        let names = self.names(fields);
        let set: Vec<String> =
            names.iter().enumerate().map(|(at, name)| format!("{name} = ${}", at + 2)).collect();
        format!("UPDATE {} SET {} WHERE {} = $1", self.name, set.join(", "), self.key)
    }

    /// Key and fields.
    pub fn columns(&self) -> String {
        let mut names = vec![self.key.as_str()];
        names.extend(self.names(Fields::EachByName));
        names.join(", ")
    }

    fn parameters(&self, suffix: &str) -> String {
        let numbers: Vec<String> = (1..self.fields.len() + 2).map(|n| format!("${n}{suffix}")).collect();
        numbers.join(", ")
    }

    /// Key and fields as parameters.
    pub fn insert(&self) -> String {
        format!("INSERT INTO {} ({}) VALUES ({})", self.name, self.columns(), self.parameters(""))
    }

    /// An array for each column.
    pub fn insert_many(&self) -> String {
        let arrays = self.parameters("::text[]");
        let values = if self.paths.is_some() { "key, document::jsonb" } else { "*" };
        let alias = if self.paths.is_some() { " AS rows (key, document)" } else { "" };
        let columns = self.columns();
        format!("INSERT INTO {} ({columns}) SELECT {values} FROM unnest({arrays}){alias}", self.name)
    }

    /// $1 is the first key, $2 how many.
    pub fn scan(&self, fields: Fields) -> String {
        let (name, key) = (&self.name, &self.key);
        format!("SELECT {} FROM {name} WHERE {key} >= $1 ORDER BY {key} LIMIT $2", self.projection(fields))
    }

    /// Takes everything from `staging`; records that exist are overwritten.
    pub fn merge(&self, staging: &str) -> String {
        let columns = self.columns();
        let names = self.names(Fields::EachByName);
        let set: Vec<String> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        format!(
            "INSERT INTO {} ({columns}) SELECT {columns} FROM {staging} ON CONFLICT ({}) DO UPDATE SET {}",
            self.name,
            self.key,
            set.join(", ")
        )
    }
}

/// A name in a statement.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in a statement, whatever standard_conforming_strings says.
pub fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_what_they_touch() {
        let table = Table {
            name: "usertable".into(),
            key: "\"ycsb_key\"".into(),
            fields: vec![("\"field0\"".into(), 1), ("\"FIELD1\"".into(), 2)],
            indexed: true,
            paths: None,
        };
        let read = table.read(Fields::One(1));
        assert_eq!(read, "SELECT \"FIELD1\" FROM usertable WHERE \"ycsb_key\" = $1");
        let update = table.update(Fields::All);
        assert_eq!(update, "UPDATE usertable SET \"field0\" = $2, \"FIELD1\" = $3 WHERE \"ycsb_key\" = $1");
        assert!(table.insert().ends_with("VALUES ($1, $2, $3)"));
    }

    #[test]
    fn whatever_a_name_holds_stays_a_name() {
        assert_eq!(quoted("a\"; DROP TABLE b; --"), "\"a\"\"; DROP TABLE b; --\"");
        assert_eq!(literal("it's \\"), "E'it''s \\\\'");
    }
}
