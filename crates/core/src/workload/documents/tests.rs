use super::*;
use crate::workload::{Dataset, Shape};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A sample as an application might have it.
fn orders() -> String {
    let cities = ["Oslo", "Bergen", "Trondheim"];
    let mut out = String::new();
    for i in 0..400u64 {
        let mut order = json!({
            "_id": {"$oid": format!("{:024x}", i * 7919)},
            "number": format!("ORD-{:05}", i * 37 % 100_000),
            "customer": {"city": cities[(i * i % 3) as usize], "since": "2019-03-04", "vip": i % 4 == 0},
            "total": (i * 13 % 977 + 1) as f64 / 100.0,
            "created": {"$date": format!("2024-05-{:02}T10:00:00.000Z", i % 28 + 1)},
            "uuid": format!("{:08x}-{:04x}", i.wrapping_mul(2_654_435_761) as u32, i * 31 % 65_536),
            "text": format!("please deliver to door {} before noon", i % 50),
            "items": (0..i % 5).map(|n| json!({"sku": n * 11 + i, "weight": 0.5, "tags": ["a", "b"]})).collect::<Vec<_>>(),
            "status": if i % 10 == 0 { json!(null) } else { json!(i % 3) },
        });
        if i % 4 == 1 {
            order["note"] = json!("gift");
        }
        out += &format!("{order}\n");
    }
    out
}

fn dataset(documents: Documents) -> Dataset {
    Dataset { shape: Shape::Documents(Arc::new(documents)), ..Dataset::ycsb(1000) }
}

fn json_of(dataset: &Dataset, record: u64, version: u64) -> String {
    let mut sink = JsonText::extended();
    dataset.document(record, version, &mut sink);
    String::from_utf8(sink.text).unwrap()
}

#[test]
fn what_was_learned_is_said_place_by_place() {
    let summary = Documents::learn(&orders()).unwrap().summary();
    for line in [
        "400 documents of",
        "number                           in   100 %  text, like \"ORD-99999\"",
        "customer                         in   100 %  object of 3 fields",
        "customer.city                    in   100 %  text, one of 2",
        "customer.since                   in   100 %  date as text, 2019-03-04 to 2019-03-04",
        "customer.vip                     in   100 %  boolean, true in 25.0 %",
        "total                            in   100 %  float, 0.01 to 9.76, 2 decimals",
        "created                          in   100 %  date, 2024-05-01T10:00:00.000Z to 2024-05-28T10:00:00.000Z",
        "uuid                             in   100 %  text, like \"ffffffff-ffff\"",
        "text                             in   100 %  text, one of 50",
        "items                            in   100 %  array of 0 to 4: object of 3 fields",
        "items[].sku                      in   100 %  integer,",
        "items[].tags                     in   100 %  array of 2 to 2: text, one of 2",
        "status                           in   100 %  90.0 % integer, 3 values from 0 to 2, 10.0 % null",
        "note                             in  25.0 %  text, always \"gift\"",
    ] {
        assert!(summary.contains(line), "{line:?} is missing in\n{summary}");
    }
    assert!(!summary.contains("_id"), "{summary}");
}

#[test]
fn documents_are_functions_of_seed_record_and_version_and_look_like_the_sample() {
    let dataset = dataset(Documents::learn(&orders()).unwrap());
    let document = json_of(&dataset, 5, 0);
    assert_eq!(document, json_of(&dataset, 5, 0));
    let others = [json_of(&dataset, 6, 0), json_of(&dataset, 5, 1), {
        let other = Dataset { seed: 2, ..dataset.clone() };
        json_of(&other, 5, 0)
    }];
    assert!(others.iter().all(|other| *other != document));
    let mut notes = 0;
    let mut bytes = 0;
    for record in 0..2000 {
        let text = json_of(&dataset, record, 0);
        bytes += text.len();
        let order: Json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        let number = order["number"].as_str().unwrap();
        assert!(number.len() == 9 && number.starts_with("ORD-"), "{number}");
        let total = order["total"].as_f64().unwrap();
        assert!((0.01..=9.77).contains(&total) && ((total * 100.0).round() / 100.0 - total).abs() < 1e-9);
        assert!(order["items"].as_array().unwrap().len() <= 4);
        assert!(order.get("_id").is_none());
        notes += usize::from(order.get("note").is_some());
    }
    assert!((420..580).contains(&notes), "a quarter of 2000 have a note: {notes}");
    let wanted = dataset.documents().unwrap().mean_bytes() * 2000.0;
    // The sample's _id is not made here.
    assert!((0.8..1.05).contains(&(bytes as f64 / wanted)), "{bytes} bytes, {wanted} in the sample");
}

#[test]
fn updates_set_values_that_the_sample_has_at_that_place() {
    let dataset = dataset(Documents::learn(&orders()).unwrap());
    let paths: Vec<&str> = dataset.documents().unwrap().paths().iter().map(Path::text).collect();
    let wanted = [
        "number",
        "customer.city",
        "customer.since",
        "customer.vip",
        "total",
        "created",
        "uuid",
        "text",
        "status",
        "note",
    ];
    assert_eq!(paths, wanted);
    assert_eq!(dataset.updatable(), 10);
    let city = |record, version| {
        let mut sink = JsonText::default();
        dataset.leaf(record, 1, version, &mut sink);
        String::from_utf8(sink.text).unwrap()
    };
    let seen: BTreeSet<String> = (0..200).map(|version| city(3, version)).collect();
    assert_eq!(seen, BTreeSet::from(["\"Oslo\"".into(), "\"Bergen\"".into()]));
    assert_eq!(city(3, 77), city(3, 77));
}

#[test]
fn bson_and_json_say_the_same() {
    let dataset = dataset(Documents::learn(&orders()).unwrap());
    for record in 0..300 {
        let mut bson = Bson::default();
        dataset.document(record, 0, &mut bson);
        let (value, rest) = read_bson(&bson.bytes, false);
        assert!(rest.is_empty());
        let mut json = JsonText::default();
        dataset.document(record, 0, &mut json);
        assert_eq!(value, serde_json::from_slice::<Json>(&json.text).unwrap());
    }
}

/// Reads what [`Bson`] writes, by the specification and not by its code.
fn read_bson(bytes: &[u8], array: bool) -> (Json, &[u8]) {
    let length = i32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    assert_eq!(bytes[length - 1], 0);
    let mut rest = &bytes[4..length - 1];
    let (mut fields, mut elements) = (serde_json::Map::new(), vec![]);
    while !rest.is_empty() {
        let kind = rest[0];
        let end = rest.iter().skip(1).position(|byte| *byte == 0).unwrap() + 1;
        let name = std::str::from_utf8(&rest[1..end]).unwrap().to_string();
        rest = &rest[end + 1..];
        let eight = |rest: &[u8]| <[u8; 8]>::try_from(&rest[..8]).unwrap();
        let (value, used) = match kind {
            0x01 => (json!(f64::from_le_bytes(eight(rest))), 8),
            0x02 => {
                let length = i32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
                assert_eq!(rest[4 + length - 1], 0);
                (json!(std::str::from_utf8(&rest[4..4 + length - 1]).unwrap()), 4 + length)
            }
            0x03 | 0x04 => {
                let (value, after) = read_bson(rest, kind == 0x04);
                (value, rest.len() - after.len())
            }
            0x07 => (json!(rest[..12].iter().map(|b| format!("{b:02x}")).collect::<String>()), 12),
            0x08 => (json!(rest[0] == 1), 1),
            0x09 => (json!(date::iso(i64::from_le_bytes(eight(rest)))), 8),
            0x0A => (Json::Null, 0),
            0x10 => (json!(i32::from_le_bytes(rest[..4].try_into().unwrap())), 4),
            0x12 => (json!(i64::from_le_bytes(eight(rest))), 8),
            other => panic!("type {other:#x}"),
        };
        rest = &rest[used..];
        if array {
            assert_eq!(name, elements.len().to_string());
            elements.push(value);
        } else {
            fields.insert(name, value);
        }
    }
    (if array { Json::Array(elements) } else { Json::Object(fields) }, &bytes[length..])
}

#[test]
fn a_model_survives_the_way_to_another_process() {
    let dataset = dataset(Documents::learn(&orders()).unwrap());
    let text = serde_json::to_string(&dataset).unwrap();
    let again: Dataset = serde_json::from_str(&text).unwrap();
    assert_eq!(again, dataset);
    assert_eq!(json_of(&again, 9, 9), json_of(&dataset, 9, 9));
}

#[test]
fn a_sample_that_is_none_is_refused_with_its_line() {
    for (sample, answer) in [
        ("", "no document"),
        ("\n\n", "no document"),
        ("{\"a\": 1}\n{\"a\": \n", "line 2"),
        ("{\"a\": 1}\n\n[1, 2]\n", "line 3: a document is a JSON object"),
        ("{\"_id\": 5}\n", "no fields besides _id"),
    ] {
        let error = Documents::learn(sample).unwrap_err();
        assert!(error.contains(answer), "{sample:?}: {error}");
    }
}

fn any_value() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1e6..1e6f64).prop_map(|x| json!((x * 8.0).round() / 8.0 + 0.125)),
        "\\PC{0,20}".prop_map(Json::from),
        "[a-z ]{0,30}".prop_map(Json::from),
        (0..2_000_000_000i64).prop_map(|s| json!({"$date": s * 1000})),
        Just(json!("2020-01-01T00:00:00Z")),
    ];
    leaf.prop_recursive(3, 20, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            proptest::collection::btree_map("[a-d]", inner, 0..4)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// What is learned from generated documents is what they were generated from: the same places with the
    /// same types. In a sample of few documents each place occurs in a good part of them, so 3000 show all.
    #[test]
    fn learned_from_generated_is_the_same_shape(
        sample in proptest::collection::vec(proptest::collection::btree_map("[a-e]", any_value(), 1..5), 1..5),
    ) {
        let lines: Vec<String> =
            sample.into_iter().map(|fields| Json::Object(fields.into_iter().collect()).to_string()).collect();
        let learned = Documents::learn(&lines.join("\n")).unwrap();
        let dataset = dataset(learned.clone());
        let generated: Vec<String> = (0..3000).map(|record| json_of(&dataset, record, 0)).collect();
        let again = Documents::learn(&generated.join("\n")).unwrap();
        let (wanted, found): (BTreeSet<_>, BTreeSet<_>) =
            (learned.shape().into_iter().collect(), again.shape().into_iter().collect());
        // Elements of arrays that were always empty are never shown; they were called null.
        let missing: Vec<_> = wanted.difference(&found).filter(|line| !line.ends_with("[] null")).collect();
        prop_assert!(missing.is_empty(), "missing {missing:?} in {lines:?}");
        prop_assert!(found.is_subset(&wanted), "new: {:?}", found.difference(&wanted).collect::<Vec<_>>());
    }

    #[test]
    fn no_line_panics(line in "\\PC*") {
        let _ = Learner::new().line(&line);
    }
}

/// What is learned stands in a record five levels deep, where JSON is read 128 levels deep.
#[test]
fn a_model_that_is_learned_is_read_back_from_a_record() {
    type InRecord = ((((((Documents,),),),),),);
    let nested = |objects: usize, arrays: usize| {
        let (open, close) = ("{\"a\":".repeat(objects), "}".repeat(objects));
        format!("{open}{}\"x-1\"{}{close}", "[".repeat(arrays), "]".repeat(arrays))
    };
    for (objects, arrays) in [(1, 0), (16, 0), (1, 15), (8, 8)] {
        let learned = Documents::learn(&nested(objects, arrays)).unwrap();
        let text = serde_json::to_string(&((((((&learned,),),),),),)).unwrap();
        let again: InRecord = serde_json::from_str(&text).unwrap();
        assert_eq!((((((again.0).0).0).0).0).0, learned);
    }
    for (objects, arrays) in [(17, 0), (1, 16), (120, 0)] {
        let error = Documents::learn(&nested(objects, arrays)).unwrap_err();
        assert!(error.starts_with("line 1: nested more than 16 deep"), "{error}");
    }
}
