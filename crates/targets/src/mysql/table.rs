//! YCSB's table in MySQL and MariaDB.

use super::client::Client;
use crate::connection::Row;
use crate::connection::sql::{Client as _, Found, FoundTable, Syntax, Table};
use std::ops::Range;
use tipover_core::op::Fields;
use tipover_core::workload::Dataset;

pub const SYNTAX: Syntax = Syntax {
    key: "YCSB_KEY",
    quoted,
    parameter: |_| "?".into(),
    path: |path| {
        let names: String = path.text().split('.').map(|name| format!(".\"{name}\"")).collect();
        hexadecimal(&format!("${names}"))
    },
    get: |column, path| format!("JSON_EXTRACT({column}, {path})"),
    // A parameter is a text; what it holds is JSON.
    set: |column, path, value| format!("JSON_SET({column}, {path}, JSON_EXTRACT({value}, '$'))"),
};

/// Looks for the table of `dataset`, in whatever case its names are; `None` if there is none.
pub fn find(client: &mut Client, dataset: &Dataset) -> FoundTable<super::Flavour> {
    let (schema, name) = match dataset.table.split_once('.') {
        Some((schema, name)) => (hexadecimal(schema), name),
        None => ("DATABASE()".to_string(), dataset.table.as_str()),
    };
    let name = hexadecimal(name);
    let rows = client.query(&format!(
        "SELECT table_name, column_name, data_type, column_key, table_schema \
         FROM information_schema.columns \
         WHERE table_schema = {schema} AND lower(table_name) = lower({name}) \
         ORDER BY BINARY table_name <> {name}, table_name, ordinal_position"
    ))?;
    Ok(Found::among(&rows, &SYNTAX, dataset).map(|found| {
        let found = found?;
        let [Some(table), _, _, Some(index), Some(schema)] = found.rows[found.key].as_slice() else {
            return Err("the server does not say what its key is".into());
        };
        let is_text = |kind: &str| {
            let texts = ["char", "text", "blob", "binary", "json"];
            texts.iter().any(|word| kind.to_lowercase().contains(word))
        };
        let all_texts = found.rows.iter().all(|row| is_text(row[2].as_deref().unwrap_or_default()));
        let name = format!("{}.{}", quoted(schema), quoted(table));
        let indexed = matches!(index.as_str(), "PRI" | "UNI" | "MUL");
        let table = Table::new(name, &found, indexed, &SYNTAX, dataset);
        // Other values have lengths of their own, so the columns are asked for one by one.
        Ok(if all_texts { table } else { table.read_by_name() })
    }))
}

/// The statement that makes the table of `dataset`, as YCSB's documentation has it.
pub fn definition(dataset: &Dataset) -> String {
    let name: Vec<String> = dataset.table.split('.').map(quoted).collect();
    let kind = if dataset.documents().is_some() { "JSON" } else { "TEXT" };
    let name_of = |column| quoted(&Row::column_name(dataset, column).to_uppercase());
    let columns = 0..Row::columns(dataset);
    let fields: String = columns.map(|column| format!(", {} {kind}", name_of(column))).collect();
    format!("CREATE TABLE IF NOT EXISTS {} ({} VARCHAR(255) PRIMARY KEY{fields})", name.join("."), SYNTAX.key)
}

/// Appends one statement with all of `records`, up to `most` bytes of it; returns the first record that
/// has no room any more. `plain` says that a backslash is a letter like another.
pub fn put_insert(
    table: &Table,
    dataset: &Dataset,
    records: Range<u64>,
    most: usize,
    plain: bool,
    output: &mut Vec<u8>,
) -> u64 {
    let begin = output.len();
    output
        .extend_from_slice(format!("INSERT INTO {} ({}) VALUES ", table.name(), table.columns()).as_bytes());
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
pub fn overwriting(table: &Table) -> String {
    let names = table.names(Fields::EachByName);
    let set: Vec<String> = names.iter().map(|name| format!("{name} = VALUES({name})")).collect();
    format!(" ON DUPLICATE KEY UPDATE {}", set.join(", "))
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
