//! Tables as Parquet: columns with their types, compressed, with the meaning of each in the file's metadata.

use super::{Kind, Table, Value};
use anyhow::Result;
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::Write;
use std::sync::Arc;

/// Rows in a group, which readers may read by itself.
const GROUP: usize = 100_000;

/// Writes the table.
///
/// # Errors
/// It cannot be written there.
pub fn parquet(table: &Table, file: &mut (impl Write + Send)) -> Result<()> {
    table.assert_whole();
    let fields = table.columns.iter().map(|column| {
        let (physical, logical) = match column.kind {
            Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Kind::Count => (Physical::INT64, None),
            Kind::Number => (Physical::DOUBLE, None),
            Kind::Flag => (Physical::BOOLEAN, None),
        };
        let built = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build();
        Ok(Arc::new(built?))
    });
    let schema = Type::group_type_builder(table.name).with_fields(fields.collect::<Result<_>>()?).build()?;
    let mut about = vec![KeyValue::new("about".to_string(), table.about.to_string())];
    about.extend(table.columns.iter().map(|column| KeyValue::new(column.name.clone(), column.about.clone())));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(concat!("tipover ", env!("CARGO_PKG_VERSION")).into())
        .set_key_value_metadata(Some(about))
        .build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    for rows in table.rows.chunks(GROUP) {
        let mut group = writer.next_row_group()?;
        let mut number = 0;
        while let Some(mut column) = group.next_column()? {
            let values = rows.iter().map(|row| &row[number]);
            let known: Vec<i16> = values.clone().map(|value| i16::from(*value != Value::Nothing)).collect();
            match table.columns[number].kind {
                Kind::Text => {
                    let values: Vec<ByteArray> = values.filter_map(text).map(ByteArray::from).collect();
                    column.typed::<ByteArrayType>().write_batch(&values, Some(&known), None)?
                }
                Kind::Count => {
                    let values: Vec<i64> = values.filter_map(count).collect();
                    column.typed::<Int64Type>().write_batch(&values, Some(&known), None)?
                }
                Kind::Number => {
                    let values: Vec<f64> = values.filter_map(self::number).collect();
                    column.typed::<DoubleType>().write_batch(&values, Some(&known), None)?
                }
                Kind::Flag => {
                    let values: Vec<bool> = values.filter_map(flag).collect();
                    column.typed::<BoolType>().write_batch(&values, Some(&known), None)?
                }
            };
            column.close()?;
            number += 1;
        }
        group.close()?;
    }
    writer.close()?;
    Ok(())
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn count(value: &Value) -> Option<i64> {
    if let Value::Count(count) = value { Some(*count) } else { None }
}

fn number(value: &Value) -> Option<f64> {
    if let Value::Number(number) = value { Some(*number) } else { None }
}

fn flag(value: &Value) -> Option<bool> {
    if let Value::Flag(flag) = value { Some(*flag) } else { None }
}
