//! What was asked of each collection and each index, by WiredTiger's own counters.

use super::admin::{Admin, Refusal};
use super::statistics::at;
use bson::{RawDocument, rawdoc};
use tipover_core::target::Relation;

/// More would be asked for too often; those that are left out hardly have the load.
const MOST: i32 = 500;

/// The collections of `database` and their indexes; none where another engine keeps them.
///
/// # Errors
/// The server's answer, also to a user who may not look.
pub fn relations(admin: &mut Admin, database: &str) -> Result<Vec<Relation>, Refusal> {
    let list = rawdoc! { "listCollections": 1, "filter": { "type": "collection" }, "nameOnly": true,
    "cursor": { "batchSize": MOST } };
    let listed = admin.command(database, &list)?;
    let batch = listed.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    let names = batch.ok().into_iter().flatten().flatten();
    let names: Vec<String> =
        names.filter_map(|one| Some(one.as_document()?.get_str("name").ok()?.to_string())).collect();
    let mut found = Vec::new();
    for name in names {
        let told = admin.command(database, &rawdoc! { "collStats": name.as_str() })?;
        found
            .extend(told.get_document("wiredTiger").ok().map(|of| relation(&name, at(&told, &["size"]), of)));
        let Ok(indexes) = told.get_document("indexDetails") else { continue };
        for (index, of) in indexes.iter().flatten() {
            let Some(of) = of.as_document() else { continue };
            let bytes = at(&told, &["indexSizes", index.as_str()]);
            found.push(relation(&format!("{name}.{}", index.as_str()), bytes, of));
        }
    }
    Ok(found)
}

fn relation(name: &str, bytes: Option<f64>, of: &RawDocument) -> Relation {
    let count = |path: &[&str]| at(of, path).unwrap_or(0.0);
    Relation {
        name: name.into(),
        bytes: bytes.unwrap_or(0.0),
        requests: count(&["cache", "pages requested from the cache"]),
        misses: count(&["cache", "pages read into cache"]),
        searches: count(&["cursor", "search calls"]) + count(&["cursor", "search near calls"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_is_read_as_the_server_writes_it() {
        let of = rawdoc! { "cache": { "pages requested from the cache": 70_i64, "pages read into cache": 3 },
        "cursor": { "search calls": 20, "search near calls": 1 } };
        let relation = relation("shop", Some(4096.0), &of);
        assert_eq!((relation.requests, relation.misses, relation.searches), (70.0, 3.0, 21.0));
        assert_eq!((relation.name.as_str(), relation.bytes), ("shop", 4096.0));
    }
}
