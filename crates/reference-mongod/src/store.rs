//! Documents with all their versions, so that a transaction has a snapshot and a rollback is a truncation.

use bson::{Bson, Document};
use std::collections::BTreeMap;
use std::ops::Bound;

/// A document's `_id` in an order; what is neither number nor text is compared by its bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A whole number, of any width; a date in its milliseconds.
    Number(i64),
    /// A string.
    Text(String),
    /// Anything else.
    Other(String),
}

impl Key {
    /// That of an `_id`.
    pub fn of(id: &Bson) -> Key {
        match id {
            Bson::Int32(number) => Key::Number(i64::from(*number)),
            Bson::Int64(number) => Key::Number(*number),
            Bson::DateTime(at) => Key::Number(at.timestamp_millis()),
            Bson::Double(number) if number.fract() == 0.0 => Key::Number(*number as i64),
            Bson::String(text) => Key::Text(text.clone()),
            other => Key::Other(other.to_string()),
        }
    }
}

/// Where a document lives: `database.collection` and its key.
pub type Place = (String, Key);

/// Versions of one document: from which log index on, and what; `None` is deleted.
type Versions = Vec<(u64, Option<Document>)>;

/// All collections of one node.
#[derive(Debug, Clone, Default)]
pub struct Store {
    collections: BTreeMap<String, BTreeMap<Key, Versions>>,
    /// Bytes of all newest versions, about.
    pub bytes: u64,
}

fn size(document: Option<&Document>) -> u64 {
    document.and_then(|document| document.to_vec().ok()).map_or(0, |bytes| bytes.len() as u64)
}

impl Store {
    /// What stood at `place` when the log was `index` long.
    pub fn get(&self, place: &Place, index: u64) -> Option<&Document> {
        let versions = self.collections.get(&place.0)?.get(&place.1)?;
        versions.iter().rev().find(|(from, _)| *from <= index)?.1.as_ref()
    }

    /// The log index of the newest version at `place`; 0 if it never existed.
    pub fn newest(&self, place: &Place) -> u64 {
        let versions = self.collections.get(&place.0).and_then(|collection| collection.get(&place.1));
        versions.and_then(|versions| versions.last()).map_or(0, |(from, _)| *from)
    }

    /// Puts a version in place.
    pub fn put(&mut self, place: &Place, index: u64, document: Option<Document>) {
        let collection = self.collections.entry(place.0.clone()).or_default();
        let versions = collection.entry(place.1.clone()).or_default();
        self.bytes += size(document.as_ref());
        self.bytes = self.bytes.saturating_sub(size(versions.last().and_then(|(_, old)| old.as_ref())));
        versions.push((index, document));
    }

    /// Forgets what came after `index`.
    pub fn roll_back(&mut self, index: u64) {
        for collection in self.collections.values_mut() {
            for versions in collection.values_mut() {
                versions.retain(|(from, _)| *from <= index);
            }
        }
    }

    /// Forgets versions that nobody can ask for any more: all but the newest that is not after `index`.
    pub fn trim(&mut self, place: &Place, index: u64) {
        let versions = self.collections.get_mut(&place.0).and_then(|collection| collection.get_mut(&place.1));
        if let Some(versions) = versions
            && let Some(kept) = versions.iter().rposition(|(from, _)| *from <= index)
        {
            versions.drain(..kept);
        }
    }

    /// The documents of a collection from `key` on, in order, as they stood at `index`.
    pub fn range<'a>(
        &'a self,
        collection: &str,
        from: Bound<Key>,
        index: u64,
    ) -> impl DoubleEndedIterator<Item = (&'a Key, &'a Document)> {
        let documents = self.collections.get(collection);
        let range = documents.into_iter().flat_map(move |all| all.range((from.clone(), Bound::Unbounded)));
        range.filter_map(move |(key, versions)| {
            let found = versions.iter().rev().find(|(from, _)| *from <= index)?;
            Some((key, found.1.as_ref()?))
        })
    }

    /// The keys of a collection.
    pub fn keys(&self, collection: &str) -> Vec<Key> {
        self.collections.get(collection).map(|all| all.keys().cloned().collect()).unwrap_or_default()
    }
}

fn compare(a: &Bson, b: &Bson) -> std::cmp::Ordering {
    Key::of(a).cmp(&Key::of(b))
}

fn agrees(value: Option<&Bson>, wanted: &Bson) -> Result<bool, String> {
    let Bson::Document(conditions) = wanted else {
        return Ok(value.is_some_and(|value| compare(value, wanted).is_eq()));
    };
    if !conditions.keys().any(|key| key.starts_with('$')) {
        return Ok(value == Some(wanted));
    }
    for (operator, operand) in conditions {
        let order = value.map(|value| compare(value, operand));
        let holds = match operator.as_str() {
            "$eq" => order.is_some_and(|order| order.is_eq()),
            "$ne" => !order.is_some_and(|order| order.is_eq()),
            "$gt" => order.is_some_and(|order| order.is_gt()),
            "$gte" => order.is_some_and(|order| order.is_ge()),
            "$lt" => order.is_some_and(|order| order.is_lt()),
            "$lte" => order.is_some_and(|order| order.is_le()),
            "$exists" => value.is_some() == (operand.as_bool() == Some(true)),
            "$in" => operand.as_array().is_some_and(|list| {
                list.iter().any(|one| value.is_some_and(|value| compare(value, one).is_eq()))
            }),
            other => return Err(format!("unknown operator: {other}")),
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether `document` fulfils `filter`.
pub fn matches(document: &Document, filter: &Document) -> Result<bool, String> {
    for (field, wanted) in filter {
        if !agrees(document.get(field), wanted)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The keys that a filter can be about at all: one, or those from a bound on.
pub fn bounds(filter: &Document) -> (Option<Key>, Bound<Key>) {
    match filter.get("_id") {
        Some(Bson::Document(conditions)) if conditions.keys().any(|key| key.starts_with('$')) => {
            let from = conditions.get("$gte").map(|id| Bound::Included(Key::of(id)));
            let after = conditions.get("$gt").map(|id| Bound::Excluded(Key::of(id)));
            (None, from.or(after).unwrap_or(Bound::Unbounded))
        }
        Some(id) => (Some(Key::of(id)), Bound::Unbounded),
        None => (None, Bound::Unbounded),
    }
}

fn sum(old: Option<&Bson>, step: &Bson) -> Result<Bson, String> {
    let wide = |value: &Bson| value.as_i64().or(value.as_i32().map(i64::from));
    match old {
        None => Ok(step.clone()),
        Some(old) => match (wide(old), wide(step)) {
            (Some(a), Some(b)) if old.as_i32().is_some() && step.as_i32().is_some() => {
                Ok(i32::try_from(a + b).map_or(Bson::Int64(a + b), Bson::Int32))
            }
            (Some(a), Some(b)) => Ok(Bson::Int64(a.wrapping_add(b))),
            _ => Err("$inc needs whole numbers here".into()),
        },
    }
}

/// Sets the value at a path with dots between its names; objects on the way are made.
fn set(document: &mut Document, path: &str, value: &Bson) {
    match path.split_once('.') {
        None => drop(document.insert(path, value.clone())),
        Some((first, rest)) => {
            let mut inner = document.get_document(first).cloned().unwrap_or_default();
            set(&mut inner, rest, value);
            document.insert(first, inner);
        }
    }
}

/// `document` after `update`: `$set`, `$inc`, `$push`, `$unset`, or a document in its place.
pub fn updated(document: &Document, update: &Document) -> Result<Document, String> {
    if !update.keys().any(|key| key.starts_with('$')) {
        let mut replaced = Document::new();
        if let Some(id) = document.get("_id") {
            replaced.insert("_id", id.clone());
        }
        replaced.extend(update.clone());
        return Ok(replaced);
    }
    let mut changed = document.clone();
    for (operator, fields) in update {
        let fields = fields.as_document().ok_or("an update operator needs a document")?;
        for (field, value) in fields {
            match operator.as_str() {
                "$set" => set(&mut changed, field, value),
                "$unset" => drop(changed.remove(field)),
                "$inc" => {
                    let sum = sum(changed.get(field), value)?;
                    changed.insert(field, sum);
                }
                "$push" => {
                    let mut list = changed.get_array(field).cloned().unwrap_or_default();
                    list.push(value.clone());
                    changed.insert(field, list);
                }
                other => return Err(format!("unknown update operator: {other}")),
            }
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::doc;

    #[test]
    fn a_snapshot_sees_the_past_and_a_rollback_brings_it_back() {
        let mut store = Store::default();
        let place = ("a.b".to_string(), Key::Number(1));
        store.put(&place, 1, Some(doc! { "n": 1 }));
        store.put(&place, 3, Some(doc! { "n": 3 }));
        store.put(&place, 4, None);
        assert_eq!(store.get(&place, 2), Some(&doc! { "n": 1 }));
        assert_eq!(store.get(&place, 3), Some(&doc! { "n": 3 }));
        assert_eq!(store.get(&place, 9), None);
        store.roll_back(3);
        assert_eq!((store.get(&place, 9), store.newest(&place)), (Some(&doc! { "n": 3 }), 3));
        store.trim(&place, 3);
        assert_eq!(store.get(&place, 1), None, "nobody asks for it any more");
        assert_eq!(store.get(&place, 3), Some(&doc! { "n": 3 }));
    }

    #[test]
    fn filters_and_updates() {
        let document = doc! { "_id": "b", "n": 5, "list": [1] };
        let holds = |filter| matches(&document, &filter).unwrap();
        assert!(holds(doc! { "_id": { "$gte": "a", "$lt": "c" }, "n": 5_i64 }));
        assert!(!holds(doc! { "_id": { "$gt": "b" } }));
        assert!(holds(doc! { "n": { "$in": [1, 5] } }) && !holds(doc! { "absent": 1 }));
        assert!(matches(&document, &doc! { "n": { "$near": 1 } }).is_err());
        let after = updated(&document, &doc! { "$inc": { "n": 2 }, "$push": { "list": 2 } }).unwrap();
        assert_eq!(after, doc! { "_id": "b", "n": 7, "list": [1, 2] });
        let deep = updated(&document, &doc! { "$set": { "a.b.c": 1 } }).unwrap();
        assert_eq!(deep.get_document("a").unwrap(), &doc! { "b": { "c": 1 } });
        assert_eq!(updated(&document, &doc! { "x": 1 }).unwrap(), doc! { "_id": "b", "x": 1 });
    }
}
