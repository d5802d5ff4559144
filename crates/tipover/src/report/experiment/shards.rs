//! How the collections of a sharded cluster lay on its shards.

use super::load::name;
use crate::report::{Block, Columns, Number};
use serde_json::Value;
use tipover_core::study::Cells;

struct Row {
    cell: String,
    collection: String,
    shard: String,
    chunks: f64,
    documents: f64,
    megabytes: f64,
}

/// A row for each shard of each collection, as the last trial of each cell found it; `None` where nothing is
/// sharded.
pub fn table(cells: &Cells<'_>) -> Option<Block> {
    let mut rows = Vec::new();
    for cell in &cells.all {
        let said = cell.records.iter().rev().find_map(|record| record.target.get("shards")?.as_object());
        for (collection, shards) in said.into_iter().flatten() {
            for (shard, share) in shards.as_object().into_iter().flatten() {
                let number = |key: &str| share.get(key).and_then(Value::as_f64).unwrap_or(f64::NAN);
                rows.push(Row {
                    cell: name(cell),
                    collection: collection.clone(),
                    shard: shard.clone(),
                    chunks: number("chunks"),
                    documents: number("documents"),
                    megabytes: number("bytes") / 1e6,
                });
            }
        }
    }
    let table = Columns::new()
        .words("cell", |row: &Row| row.cell.clone())
        .words("collection", |row| row.collection.clone())
        .words("shard", |row| row.shard.clone())
        .numbers("chunks", "", |row, unit| Number::exact(row.chunks, unit))
        .numbers("documents", "", |row, unit| Number::exact(row.documents, unit))
        .numbers("documents' size", "MB", |row, unit| Number::new(row.megabytes, unit))
        .table(
            "What each shard held",
            &rows,
            "As the router and the shards told it in the last trial of each cell, after loading or at the end. Before \
             anything was measured the chunks of every collection were waited for until they were even.",
        );
    (!rows.is_empty()).then_some(Block::Table(table))
}
