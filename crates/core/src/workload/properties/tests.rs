use super::*;
use crate::workload::Dataset;
use crate::workload::distribution::Requests;
use crate::workload::ycsb::{FieldChoice, KeyHash};
use crate::workload::{Lengths, Mix, Values};
use proptest::prelude::*;

fn read(text: &str) -> Properties {
    let mut properties = Properties::default();
    properties.read(text, "file");
    properties
}

fn core(text: &str) -> Result<CoreWorkload, String> {
    CoreWorkload::of(&read(text), None, 1)
}

#[test]
fn files_are_read_as_java_reads_them() {
    // The examples of java.util.Properties.load, and what people do.
    let properties = read(concat!(
        "# a comment = nothing\n! another: one\n\n   \t\n",
        "Truth = Beauty\n Truth2:Beauty\nTruth3\t\t\t:Beauty\n",
        "fruits   apple, banana, pear, \\\n         cantaloupe, watermelon, \\\r\n  kiwi, mango\n",
        "cheeses\nempty=\n",
        "key\\ with\\:all\\=signs = v=1:2\n",
        "path=c:\\\\dir\\\\\nuni=\\u0041\\uD83D\\uDE00\\t|\nlast=a\\\n",
    ));
    let expected = [
        ("Truth", "Beauty"),
        ("Truth2", "Beauty"),
        ("Truth3", "Beauty"),
        ("cheeses", ""),
        ("empty", ""),
        ("fruits", "apple, banana, pear, cantaloupe, watermelon, kiwi, mango"),
        ("key with:all=signs", "v=1:2"),
        ("last", "a"),
        ("path", "c:\\dir\\"),
        ("uni", "A😀\t|"),
    ];
    assert_eq!(properties.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn later_ones_win_and_mistakes_are_answered_with_their_place() {
    let mut properties = read("recordcount=5\nrecordcount=many\n");
    assert_eq!(
        properties.number("recordcount", 0u64).unwrap_err(),
        "file, line 2: recordcount = \"many\" is not a number"
    );
    properties.set("recordcount", "7 ", "-p");
    assert_eq!(properties.number("recordcount", 0u64), Ok(7));
    properties.set("threadcount", "${recordcount}", "-p");
    assert_eq!(properties.number("threadcount", 0u64), Ok(7));
    properties.set("threadcount", "-3", "-p");
    assert!(properties.number("threadcount", 0u32).unwrap_err().contains("out of range"));
}

#[test]
fn without_properties_all_is_as_ycsbs_defaults() {
    let workload = core("").unwrap();
    assert_eq!(workload.dataset, Dataset::ycsb(2_147_483_647));
    let requested = workload.requested;
    assert_eq!(requested.mix, Mix { read: 0.95, update: 0.05, ..Mix::default() });
    assert_eq!(requested.requests, Requests::Uniform);
    assert_eq!((requested.read, requested.write), (FieldChoice::All, FieldChoice::One));
    assert_eq!(requested.scan_lengths, Lengths::Uniform(1, 1000));
    assert_eq!((requested.first, requested.count, requested.operations), (0, 2_147_483_647, 0));
    assert_eq!((workload.insert_retries, workload.insert_retry_pause.as_secs()), (0, 3));
    assert!(!workload.keep_going && workload.notices.len() == 1);
}

#[test]
fn every_property_has_its_effect() {
    let workload = core(concat!(
        "workload=site.ycsb.workloads.CoreWorkload\ntable=t\nfieldcount=3\nfieldnameprefix=f\n",
        "fieldlengthdistribution=uniform\nfieldlength=50\nminfieldlength=10\n",
        "readallfields=false\nwriteallfields=true\nreadproportion=1\nupdateproportion=2\ninsertproportion=3\n",
        "scanproportion=4\nreadmodifywriteproportion=5\nrequestdistribution=hotspot\nhotspotdatafraction=0.1\n",
        "hotspotopnfraction=0.9\nminscanlength=2\nmaxscanlength=9\nscanlengthdistribution=zipfian\n",
        "insertorder=ordered\nzeropadding=12\nrecordcount=100\ninsertstart=20\ninsertcount=30\n",
        "operationcount=5000000000\ncore_workload_insertion_retry_limit=4\nkeyprefix=k\n",
        "core_workload_insertion_retry_interval=1\ncore_workload_insertion_keep_going_on_error=TRUE\n",
        "compressible=60 %\nseed=9\n",
    ))
    .unwrap();
    let dataset = &workload.dataset;
    assert_eq!((dataset.table.as_str(), dataset.fields, dataset.records, dataset.seed), ("t", 3, 100, 9));
    assert_eq!(dataset.field_name(2), "f2");
    assert_eq!(dataset.field_length, Lengths::Uniform(10, 50));
    assert_eq!(dataset.values, Values::Compressible(60));
    assert_eq!((dataset.keys.hash, dataset.keys.digits), (KeyHash::Ordered, 12));
    assert_eq!(dataset.keys.prefix, "k");
    let requested = &workload.requested;
    assert_eq!(requested.mix.weights(), [1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(requested.requests, Requests::Hotspot { records: 0.1, requests: 0.9 });
    assert_eq!((requested.read, requested.write), (FieldChoice::One, FieldChoice::All));
    assert_eq!(requested.scan_lengths, Lengths::Zipfian(2, 9));
    assert_eq!((requested.first, requested.count, requested.operations), (20, 30, 5_000_000_000));
    assert_eq!((workload.inserts.first, workload.inserts.operations()), (20, 30));
    assert!(workload.keep_going && workload.insert_retries == 4);
    let integrity =
        core("dataintegrity=true\nkeyhash=go-ycsb\nrequestdistribution=zipfian-true\nzipfian.theta=0.7\n")
            .unwrap();
    assert_eq!(integrity.dataset.values, Values::Integrity);
    assert_eq!(integrity.requested.read, FieldChoice::EachByName, "checked field by field");
    assert_eq!(integrity.dataset.keys.hash, KeyHash::GoYcsb);
    assert_eq!(integrity.requested.requests, Requests::ZipfianTrue(0.7));
    let histogram = read("fieldlengthdistribution=histogram\n");
    let histogram = CoreWorkload::of(&histogram, Some("BlockSize\t10\n0\t5\n"), 1).unwrap();
    assert_eq!(histogram.dataset.field_length.to_string(), "histogram 10: 5");
}

#[test]
fn impossible_combinations_are_answered_with_a_sentence() {
    for (text, answer) in [
        ("recordcount=10\ninsertstart=5\ninsertcount=6", "go beyond recordcount 10"),
        ("recordcount=10\ninsertstart=10", "no record is left"),
        ("dataintegrity=true\nfieldlengthdistribution=uniform", "fields of one length"),
        ("dataintegrity=true\ncompressible=10 %", "exclude each other"),
        ("requestdistribution=zipfain", "did you mean `zipfian`?"),
        ("fieldlengthdistribution=histogram", "hist.txt: the histogram was not read"),
        ("minfieldlength=9\nfieldlength=5\nfieldlengthdistribution=zipfian", "minfieldlength 9 is above"),
        ("minscanlength=0", "minscanlength 0"),
        ("fieldcount=0", "must be at least 1"),
        ("fieldcount=70000", "above 65535"),
        ("readproportion=0\nupdateproportion=0", "nothing to do"),
        ("readproportion=-1", "from 0 up"),
        ("hotspotdatafraction=2\nrequestdistribution=hotspot", "no share"),
        ("workload=site.ycsb.workloads.TimeSeriesWorkload", "only CoreWorkload"),
        ("keyhash=md5", "value of keyhash"),
    ] {
        let error = core(text).unwrap_err();
        assert!(error.contains(answer), "{text:?}: {error}");
    }
}

#[test]
fn names_that_mean_nothing_are_mentioned() {
    let properties =
        read("recordcont=5\nhtrace.x=1\nspin.sleep=true\nrecordcount=5\nwholly.different.thing=1\n");
    let notices = notices(&properties);
    assert_eq!(
        notices,
        [
            "htrace.x has no effect: nothing is traced by HTrace",
            "unknown property `recordcont`: did you mean `recordcount`?",
            "spin.sleep has no effect: due times are met without being told so",
            "unknown property `wholly.different.thing`",
        ]
    );
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*", lines in "([a-z.=:# \\\\\n]|\\\\u[0-9a-f]{0,4}){0,60}") {
        let _ = (core(&text), core(&lines));
    }

    #[test]
    fn what_java_would_write_reads_back(name in "[a-z :=#!\\\\é😀]{1,12}", value in "[a-z :=#!\\\\\té😀]{0,20}") {
        let escaped = |text: &str, blanks: bool| -> String {
            text.chars().enumerate().map(|(at, c)| match c {
                '\t' => "\\t".to_string(),
                ' ' if blanks || at == 0 => "\\ ".to_string(),
                ':' | '=' | '#' | '!' | '\\' => format!("\\{c}"),
                c if c.is_ascii() => c.to_string(),
                c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04X}")).collect(),
            }).collect()
        };
        let properties = read(&format!("{}={}\n", escaped(&name, true), escaped(&value, false)));
        prop_assert_eq!(properties.iter().collect::<Vec<_>>(), [(name.as_str(), value.as_str())]);
    }
}
