//! YCSB's table in PostgreSQL.

use super::client::Client;
use crate::connection::Row;
use crate::connection::sql::{Client as _, Found, FoundTable, Syntax, Table};
use tipover_core::op::Fields;
use tipover_core::workload::Dataset;

pub const SYNTAX: Syntax = Syntax {
    // The server folds it to lower case.
    key: "ycsb_key",
    quoted,
    parameter: |number| format!("${number}"),
    path: |path| {
        let names: Vec<String> = path.text().split('.').map(literal).collect();
        format!("ARRAY[{}]", names.join(", "))
    },
    get: |column, path| format!("{column} #> {path}"),
    set: |column, path, value| format!("jsonb_set({column}, {path}, {value})"),
};

/// Looks for the table of `dataset`, in whatever case its names are; `None` if there is none.
pub fn find(client: &mut Client, dataset: &Dataset) -> FoundTable<super::Flavour> {
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
    Ok(Found::among(&rows, &SYNTAX, dataset).map(|found| {
        let found = found?;
        let key = found.rows[found.key];
        let name = key[0].clone().unwrap_or_default();
        Ok(Table::new(name, &found, key[2].as_deref() == Some("t"), &SYNTAX, dataset))
    }))
}

/// The statement that makes the table of `dataset`, as YCSB's documentation has it.
pub fn definition(dataset: &Dataset) -> String {
    let name: Vec<String> = dataset.table.split('.').map(|part| quoted(&part.to_lowercase())).collect();
    let kind = if dataset.documents().is_some() { "jsonb" } else { "text" };
    let name_of = |column| quoted(&Row::column_name(dataset, column).to_lowercase());
    let columns = 0..Row::columns(dataset);
    let fields: String = columns.map(|column| format!(", {} {kind}", name_of(column))).collect();
    format!("CREATE TABLE {} ({} varchar(255) PRIMARY KEY{fields})", name.join("."), SYNTAX.key)
}

/// Inserts many records; an array for each column is a parameter.
pub fn insert_many(table: &Table) -> String {
    let (name, columns, arrays) = (table.name(), table.columns(), table.parameters("::text[]"));
    let (values, alias) = match table.has_documents() {
        true => ("key, document::jsonb", " AS rows (key, document)"),
        false => ("*", ""),
    };
    format!("INSERT INTO {name} ({columns}) SELECT {values} FROM unnest({arrays}){alias}")
}

/// Takes everything from `staging`; records that exist are overwritten.
pub fn merge(table: &Table, staging: &str) -> String {
    let (name, key, columns) = (table.name(), table.key(), table.columns());
    let names = table.names(Fields::EachByName);
    let set: Vec<String> = names.iter().map(|name| format!("{name} = excluded.{name}")).collect();
    let set = set.join(", ");
    format!(
        "INSERT INTO {name} ({columns}) SELECT {columns} FROM {staging} ON CONFLICT ({key}) DO UPDATE SET {set}"
    )
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
        let dataset = Dataset { fields: 2, ..Dataset::ycsb(1) };
        let rows = ["ycsb_key", "field0", "FIELD1"]
            .map(|column| vec![Some("usertable".into()), Some(column.into())]);
        let found = Found::among(&rows, &SYNTAX, &dataset).unwrap().unwrap();
        let table = Table::new("usertable".into(), &found, true, &SYNTAX, &dataset);
        let read = table.read(Fields::One(1));
        assert_eq!(read, "SELECT \"FIELD1\" FROM usertable WHERE \"ycsb_key\" = $1");
        let update = table.update(Fields::All);
        assert_eq!(update, "UPDATE usertable SET \"field0\" = $2, \"FIELD1\" = $3 WHERE \"ycsb_key\" = $1");
        assert!(table.insert().ends_with("VALUES ($1, $2, $3)"));
        let missing = Found::among(&rows[..2], &SYNTAX, &dataset).unwrap().err();
        assert_eq!(missing.as_deref(), Some("table usertable has no column field1"));
    }

    #[test]
    fn whatever_a_name_holds_stays_a_name() {
        assert_eq!(quoted("a\"; DROP TABLE b; --"), "\"a\"\"; DROP TABLE b; --\"");
        assert_eq!(literal("it's \\"), "E'it''s \\\\'");
    }
}
