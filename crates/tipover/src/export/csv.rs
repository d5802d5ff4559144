//! Tables as CSV (RFC 4180): a head with the columns' names, nothing for what is not known.

use super::{Table, Value};

/// The table as text.
pub fn csv(table: &Table) -> String {
    table.assert_whole();
    let head = table.columns.iter().map(|column| field(&column.name));
    let mut text = line(head);
    for row in &table.rows {
        text += &line(row.iter().map(|value| match value {
            Value::Text(text) => field(text),
            Value::Count(count) => count.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Flag(flag) => flag.to_string(),
            Value::Nothing => String::new(),
        }));
    }
    text
}

/// What every column of the tables means, as a table of its own.
pub fn dictionary(tables: &[Table]) -> String {
    let mut text = line(["table", "column", "type", "meaning"].map(String::from).into_iter());
    for table in tables {
        text += &line([table.name, "", "", table.about].map(field).into_iter());
        for column in &table.columns {
            let words = [table.name, &column.name, column.kind.name(), &column.about];
            text += &line(words.map(field).into_iter());
        }
    }
    text
}

fn line(fields: impl Iterator<Item = String>) -> String {
    fields.collect::<Vec<_>>().join(",") + "\r\n"
}

fn field(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        // Nothing is not known; an empty text is.
        false if text.is_empty() => "\"\"".into(),
        false => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Column, Kind};
    use super::*;

    #[test]
    fn what_needs_quotes_has_them() {
        let column = |name: &str, kind| Column { name: name.into(), kind, about: "It is.".into() };
        let table = Table {
            name: "t",
            about: "A row.",
            columns: vec![column("a", Kind::Text), column("b_ms", Kind::Number), column("c", Kind::Flag)],
            rows: vec![
                vec!["x, \"y\"\nz".to_string().into(), 1.5.into(), true.into()],
                vec![String::new().into(), f64::NAN.into(), Value::Nothing],
            ],
        };
        assert_eq!(csv(&table), "a,b_ms,c\r\n\"x, \"\"y\"\"\nz\",1.5,true\r\n\"\",,\r\n");
        assert!(dictionary(&[table]).contains("t,b_ms,number,It is.\r\n"));
    }
}
