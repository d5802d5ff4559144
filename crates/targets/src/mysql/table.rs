//! The table as YCSB's JDBC binding and go-ycsb make it, and the statements on it.

use super::client::Client;
use super::packet::Report;
use crate::connection::Row;
use std::ops::Range;
use tipover_core::op::Fields;
use tipover_core::workload::Dataset;
use tipover_core::workload::documents::Path;

/// The key's column, as both programs call it.
const KEY: &str = "YCSB_KEY";

/// A table that exists, its names quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    name: String,
    key: String,
    /// By the number of the field: name, and which column of [`Table::whole`] it is.
    fields: Vec<(String, usize)>,
    /// What reads a whole record: `*`, unless a column of the table holds no text.
    whole: String,
    /// How many columns that are.
    width: usize,
    indexed: bool,
    /// If records are documents: what an update can set, each as a JSON path.
    paths: Option<Vec<String>>,
}

impl Table {
    /// Looks for the table of `dataset`, in whatever case its names are; `None` if there is none.
    pub fn find(client: &mut Client, dataset: &Dataset) -> Result<Option<Result<Table, String>>, Report> {
        let (schema, name) = match dataset.table.split_once('.') {
            Some((schema, name)) => (hexadecimal(schema), name),
            None => ("DATABASE()".to_string(), dataset.table.as_str()),
        };
        let name = hexadecimal(name);
        let rows = client.query(
            format!(
                "SELECT table_name, column_name, data_type, column_key, table_schema \
                 FROM information_schema.columns \
                 WHERE table_schema = {schema} AND lower(table_name) = lower({name}) \
                 ORDER BY BINARY table_name <> {name}, table_name, ordinal_position"
            )
            .as_bytes(),
        )?;
        let text = |row: &[Option<String>], column: usize| row[column].clone().unwrap_or_default();
        let Some(first) = rows.first() else { return Ok(None) };
        let (table, schema) = (text(first, 0), text(first, 4));
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
        let is_text =
            |kind: &str| ["char", "text", "blob", "binary", "json"].iter().any(|word| kind.contains(word));
        let (mut whole, mut width) = ("*".to_string(), columns.len());
        if !columns.iter().all(|row| is_text(&text(row, 2).to_lowercase())) {
            // Other values have lengths of their own, so the columns are asked for one by one.
            let names = fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
            (whole, width) = (names.join(", "), names.len());
            fields.iter_mut().enumerate().for_each(|(at, (_, column))| *column = at);
        }
        let indexed = matches!(text(columns[key], 3).as_str(), "PRI" | "UNI" | "MUL");
        let name = format!("{}.{}", quoted(&schema), quoted(&table));
        let key = quoted(&text(columns[key], 1));
        let paths = dataset.documents().map(|documents| {
            let names = |path: &Path| path.text().split('.').map(|n| format!(".\"{n}\"")).collect::<String>();
            documents.paths().iter().map(|path| hexadecimal(&format!("${}", names(path)))).collect()
        });
        Ok(Some(Ok(Table { name, key, fields, whole, width, indexed, paths })))
    }

    /// The statement that makes the table of `dataset`, as YCSB's documentation has it.
    pub fn definition(dataset: &Dataset) -> String {
        let name: Vec<String> = dataset.table.split('.').map(quoted).collect();
        let kind = if dataset.documents().is_some() { "JSON" } else { "TEXT" };
        let name_of = |column| quoted(&Row::column_name(dataset, column).to_uppercase());
        let columns = 0..Row::columns(dataset);
        let fields: String = columns.map(|column| format!(", {} {kind}", name_of(column))).collect();
        format!("CREATE TABLE IF NOT EXISTS {} ({KEY} VARCHAR(255) PRIMARY KEY{fields})", name.join("."))
    }

    /// Its name, as statements must write it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a read by key is a look-up, not a scan of everything.
    pub fn is_indexed(&self) -> bool {
        self.indexed
    }

    /// Which column of a whole record a field is.
    pub fn position(&self, field: u16) -> Option<usize> {
        self.fields.get(usize::from(field)).map(|(_, column)| *column)
    }

    /// How many columns a whole record has.
    pub fn width(&self) -> usize {
        self.width
    }

    fn names(&self, fields: Fields) -> Vec<&str> {
        let numbers = fields.numbers(self.fields.len() as u16);
        let known = numbers.filter_map(|field| self.fields.get(usize::from(field)));
        known.map(|(name, _)| name.as_str()).collect()
    }

    fn projection(&self, fields: Fields) -> String {
        match (fields, &self.paths) {
            (Fields::All, _) => self.whole.clone(),
            (Fields::One(path), Some(paths)) => {
                format!("JSON_EXTRACT({}, {})", self.fields[0].0, paths[usize::from(path)])
            }
            (fields, _) => self.names(fields).join(", "),
        }
    }

    /// The parameter is the key.
    pub fn read(&self, fields: Fields) -> String {
        format!("SELECT {} FROM {} WHERE {} = ?", self.projection(fields), self.name, self.key)
    }

    /// The fields, then the key.
    pub fn update(&self, fields: Fields) -> String {
        if let (Fields::One(path), Some(paths)) = (fields, &self.paths) {
            let (name, path) = (&self.fields[0].0, &paths[usize::from(path)]);
            // A parameter is a text; what it holds is JSON.
            let set = format!("{name} = JSON_SET({name}, {path}, JSON_EXTRACT(?, '$'))");
            return format!("UPDATE {} SET {set} WHERE {} = ?", self.name, self.key);
        }
        let set: Vec<String> = self.names(fields).iter().map(|name| format!("{name} = ?")).collect();
        format!("UPDATE {} SET {} WHERE {} = ?", self.name, set.join(", "), self.key)
    }

    fn columns(&self) -> String {
        let mut names = vec![self.key.as_str()];
        names.extend(self.names(Fields::EachByName));
        names.join(", ")
    }

    /// Key and fields as parameters.
    pub fn insert(&self) -> String {
        let parameters = vec!["?"; self.fields.len() + 1].join(", ");
        format!("INSERT INTO {} ({}) VALUES ({parameters})", self.name, self.columns())
    }

    /// The first key, and how many.
    pub fn scan(&self, fields: Fields) -> String {
        let (name, key) = (&self.name, &self.key);
        format!("SELECT {} FROM {name} WHERE {key} >= ? ORDER BY {key} LIMIT ?", self.projection(fields))
    }

    /// Appends one statement with all of `records`, up to `most` bytes of it; returns the first record that
    /// has no room any more. `plain` says that a backslash is a letter like another.
    pub fn put_insert(
        &self,
        dataset: &Dataset,
        records: Range<u64>,
        most: usize,
        plain: bool,
        output: &mut Vec<u8>,
    ) -> u64 {
        let begin = output.len();
        output
            .extend_from_slice(format!("INSERT INTO {} ({}) VALUES ", self.name, self.columns()).as_bytes());
        let mut row = Row::of(dataset);
        for record in records.clone() {
            if output.len() - begin > most {
                return record;
            }
            output.extend_from_slice(if record == records.start { b"(" } else { b",(" });
            put_literal(output, row.key(record), plain);
            for column in 0..Row::columns(dataset) {
                output.push(b',');
                put_literal(output, row.column(record, column), plain);
            }
            output.push(b')');
        }
        records.end
    }

    /// Makes an insert overwrite records that exist.
    pub fn overwriting(&self) -> String {
        let names = self.names(Fields::EachByName);
        let set: Vec<String> = names.iter().map(|name| format!("{name} = VALUES({name})")).collect();
        format!(" ON DUPLICATE KEY UPDATE {}", set.join(", "))
    }
}

/// A name in a statement.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A text in a statement, whatever it holds and whatever sql_mode says.
pub fn hexadecimal(text: &str) -> String {
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("CONVERT(X'{digits}' USING utf8mb4)")
}

fn put_literal(output: &mut Vec<u8>, bytes: &[u8], plain: bool) {
    output.push(b'\'');
    for &byte in bytes {
        match byte {
            b'\'' => output.extend_from_slice(b"''"),
            b'\\' if !plain => output.extend_from_slice(b"\\\\"),
            byte => output.push(byte),
        }
    }
    output.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_value_holds_does_not_end_it() {
        let mut output = Vec::new();
        put_literal(&mut output, b"it's \\", false);
        put_literal(&mut output, b"it's \\", true);
        assert_eq!(output, b"'it''s \\\\''it''s \\'");
        assert_eq!(quoted("a`b"), "`a``b`");
        assert_eq!(hexadecimal("a'"), "CONVERT(X'6127' USING utf8mb4)");
    }
}
