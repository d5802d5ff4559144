//! Collections that are spread over the shards of a cluster, and how far they are.

use super::admin::{Admin, Refusal};
use super::cluster::{Cluster, integer};
use super::document::Documents;
use super::options::Sharding;
use bson::{RawBson, RawDocument, RawDocumentBuf, rawdoc};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tipover_core::target::TargetError;
use tipover_core::workload::Dataset;

/// What one shard has of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Share {
    /// Of those that the collection is split into.
    pub chunks: u64,
    /// As the shard counts them.
    pub documents: u64,
    /// Of the documents, before compression.
    pub bytes: u64,
}

/// MongoDB makes two for each shard when it splits by hashes.
const CHUNKS_OF_SHARD: usize = 2;
/// So many keys tell where a collection is to be split.
const SAMPLED: u64 = 10_000;
/// A chunk that moves takes its documents along.
const PATIENCE: Duration = Duration::from_secs(120);
/// "already sharded"
const ALREADY: i32 = 23;

/// A connection that waits for what takes as long as it takes.
fn patient(cluster: &Cluster) -> Result<Admin, TargetError> {
    Admin::new(&Arc::new(Cluster::new(cluster.options.clone(), PATIENCE)))
}

/// The keys at which a collection of these records falls into parts of equal size, for `shards` shards.
fn split_points(dataset: &Dataset, shards: usize) -> Vec<RawBson> {
    let mut documents = Documents::of(dataset);
    let step = (dataset.records / SAMPLED).max(1) as usize;
    let keys = (0..dataset.records)
        .step_by(step)
        .map(|record| String::from_utf8_lossy(documents.key(record)).into_owned());
    let mut keys: Vec<String> = keys.collect();
    keys.sort_unstable();
    keys.dedup();
    quantiles(&keys, shards).map(|key| RawBson::String(key.clone())).collect()
}

/// Where a sorted list is cut into [`CHUNKS_OF_SHARD`] pieces for each shard.
fn quantiles<T>(sorted: &[T], shards: usize) -> impl Iterator<Item = &T> {
    let pieces = (CHUNKS_OF_SHARD * shards).clamp(1, sorted.len().max(1));
    (1..pieces).map(move |piece| &sorted[piece * sorted.len() / pieces])
}

/// Shards the collection of a data set before it is filled.
///
/// # Errors
/// What answers is no router, or a step is refused, in words.
pub fn shard_for(cluster: &Cluster, sharding: Sharding, dataset: &Dataset) -> Result<(), TargetError> {
    shard(cluster, sharding, &dataset.table, |shards| split_points(dataset, shards))
}

/// Shards the collection of accounts, or of another thing whose keys are known.
///
/// # Errors
/// As [`shard_for`].
pub fn shard_numbered(
    cluster: &Cluster,
    sharding: Sharding,
    collection: &str,
    keys: &[i64],
) -> Result<(), TargetError> {
    shard(cluster, sharding, collection, |shards| {
        quantiles(keys, shards).map(|key| RawBson::Int64(*key)).collect()
    })
}

fn shard(
    cluster: &Cluster,
    sharding: Sharding,
    collection: &str,
    points: impl FnOnce(usize) -> Vec<RawBson>,
) -> Result<(), TargetError> {
    let failed = |refusal: Refusal| TargetError::new(format!("sharding {collection}"), refusal);
    let mut admin = patient(cluster)?;
    if admin.courier.link().is_some_and(|link| !link.hello.router) {
        let words = "sharding: no mongos answers at this address, and only a sharded cluster has shards";
        return Err(TargetError::new(format!("sharding {collection}"), words));
    }
    let database = cluster.options.database.as_str();
    let name = format!("{database}.{collection}");
    let mut run = |command: RawDocumentBuf| match admin.command("admin", &command) {
        Err(refusal) if refusal.code() == ALREADY => Ok(rawdoc! {}),
        answer => answer,
    };
    run(rawdoc! { "enableSharding": database }).map_err(failed)?;
    let by = match sharding {
        Sharding::Hashed => rawdoc! { "_id": "hashed" },
        Sharding::Ranged => rawdoc! { "_id": 1 },
    };
    run(rawdoc! { "shardCollection": name.as_str(), "key": by }).map_err(failed)?;
    if sharding == Sharding::Hashed {
        return confirm(&mut admin, database, collection);
    }
    let shards = names(&run(rawdoc! { "listShards": 1 }).map_err(failed)?);
    // The first piece lies on whichever shard the database was made.
    let begins = std::iter::once(RawBson::MinKey).chain(points(shards.len()));
    for (number, point) in begins.enumerate() {
        if number > 0 {
            run(rawdoc! { "split": name.as_str(), "middle": { "_id": point.clone() } }).map_err(failed)?;
        }
        let owner = &shards[(number / CHUNKS_OF_SHARD).min(shards.len() - 1)];
        let there = rawdoc! { "moveChunk": name.as_str(), "find": { "_id": point }, "to": owner.as_str(),
        "_waitForDelete": true };
        run(there).map_err(failed)?;
    }
    confirm(&mut admin, database, collection)
}

/// An "ok" proves nothing: whether the collection is sharded now.
fn confirm(admin: &mut Admin, database: &str, collection: &str) -> Result<(), TargetError> {
    let failed = |reason: String| TargetError::new(format!("sharding {collection}"), reason);
    match shares(admin, database) {
        Ok(shares) if shares.contains_key(collection) => Ok(()),
        Ok(_) => Err(failed("the router said yes, and its collection is not sharded".into())),
        Err(refusal) => Err(failed(refusal.to_string())),
    }
}

/// The shards' names, in their order.
fn names(listed: &RawDocumentBuf) -> Vec<String> {
    let shards = listed.get_array("shards").ok().into_iter().flatten().flatten();
    let name = |shard: bson::RawBsonRef<'_>| shard.as_document()?.get_str("_id").ok().map(String::from);
    let mut names: Vec<String> = shards.filter_map(name).collect();
    names.sort();
    names
}

/// What each shard has of each sharded collection of a database, by collection and shard.
pub type Shares = BTreeMap<String, BTreeMap<String, Share>>;

/// Asks a router for them.
///
/// # Errors
/// Its answer.
pub fn shares(admin: &mut Admin, database: &str) -> Result<Shares, Refusal> {
    let (begins, all) = (format!("{database}."), 100_000);
    let mut found = Shares::new();
    let collections = admin.command("config", &rawdoc! { "find": "collections", "batchSize": all })?;
    for known in first_batch(&collections) {
        let is_dropped = known.get_bool("dropped").unwrap_or(false);
        let Some(collection) = known.get_str("_id").ok().and_then(|name| name.strip_prefix(&begins)) else {
            continue;
        };
        if !is_dropped {
            let mut shares = chunks(admin, &begins, collection, known)?;
            let told = admin.command(database, &rawdoc! { "collStats": collection })?;
            for (shard, of) in told.get_document("shards").ok().into_iter().flatten().flatten() {
                let Some(of) = of.as_document() else { continue };
                let share = shares.entry(shard.as_str().into()).or_default();
                let number = |name| integer(of, name).unwrap_or(0).max(0) as u64;
                (share.documents, share.bytes) = (number("count"), number("size"));
            }
            found.insert(collection.into(), shares);
        }
    }
    Ok(found)
}

/// How many chunks of a collection each shard has.
fn chunks(
    admin: &mut Admin,
    begins: &str,
    collection: &str,
    known: &RawDocument,
) -> Result<BTreeMap<String, Share>, Refusal> {
    // From 5.0 on chunks name their collection by its UUID.
    let mut owner = rawdoc! { "ns": format!("{begins}{collection}") };
    if let Ok(Some(uuid)) = known.get("uuid") {
        let mut by_uuid = RawDocumentBuf::new();
        by_uuid.append(bson::raw::cstr!("uuid"), RawBson::from(uuid));
        owner = rawdoc! { "$or": [owner, by_uuid] };
    }
    let find =
        rawdoc! { "find": "chunks", "filter": owner, "batchSize": 100_000, "projection": { "shard": 1 } };
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    for chunk in first_batch(&admin.command("config", &find)?) {
        if let Ok(shard) = chunk.get_str("shard") {
            shares.entry(shard.into()).or_default().chunks += 1;
        }
    }
    Ok(shares)
}

fn first_batch(body: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let batch = body.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    batch.ok().into_iter().flatten().flatten().filter_map(|value| value.as_document())
}

/// Whether no shard has so many more chunks than another one that the balancer would move one.
fn is_balanced(shares: &BTreeMap<String, Share>) -> bool {
    let chunks = || shares.values().map(|share| share.chunks);
    chunks().max().unwrap_or(0) - chunks().min().unwrap_or(0) < 2
}

/// Waits until the chunks of all sharded collections are spread evenly.
///
/// # Errors
/// They are not after a while, or the router says no.
pub fn wait_balanced(cluster: &Cluster) -> Result<(), TargetError> {
    let failed = |reason: String| TargetError::new("waiting until the shards are balanced", reason);
    let mut admin = patient(cluster)?;
    let began = Instant::now();
    loop {
        let found = shares(&mut admin, &cluster.options.database);
        let mut found = found.map_err(|refusal| failed(refusal.to_string()))?;
        found.retain(|_, shares| !is_balanced(shares));
        let Some((collection, shares)) = found.first_key_value() else { return Ok(()) };
        if began.elapsed() > PATIENCE {
            let counts: Vec<String> =
                shares.iter().map(|(shard, share)| format!("{shard}: {}", share.chunks)).collect();
            return Err(failed(format!("chunks of {collection} are uneven ({})", counts.join(", "))));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sorted_list_is_cut_into_two_pieces_for_each_shard() {
        let keys: Vec<u32> = (0..100).collect();
        assert_eq!(quantiles(&keys, 2).copied().collect::<Vec<_>>(), [25, 50, 75]);
        assert_eq!(quantiles(&keys[..3], 8).copied().collect::<Vec<_>>(), [1, 2], "one key, one piece");
        assert_eq!(quantiles(&keys[..0], 2).count(), 0);
    }

    #[test]
    fn one_chunk_more_is_no_imbalance() {
        let shares = |counts: &[u64]| {
            let share =
                |(n, chunks): (usize, &u64)| (n.to_string(), Share { chunks: *chunks, ..Share::default() });
            counts.iter().enumerate().map(share).collect::<BTreeMap<_, _>>()
        };
        assert!(is_balanced(&shares(&[2, 3, 2])) && is_balanced(&shares(&[])));
        assert!(!is_balanced(&shares(&[4, 2])));
    }
}
