//! Tables of results as another program reads them: DuckDB, which knows nothing of ours.

mod program;

use program::{Place, alone, skipped};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PLAN: &str = r#"
name = "small"
title = "Something small"
question = "How fast is nothing?"
why = "It is quickly measured."
how_to_read = "Not at all."
repeats = 2
[target]
kind = "null"
[workload]
kind = "ycsb"
mix = "c"
records = 1000
[load]
sessions = 1
[trial]
warm_up_least = "50 ms"
warm_up_most = "100 ms"
measure_least = "300 ms"
measure_most = "300 ms"
[[sweep]]
name = "sessions"
question = ""
[[sweep.axis]]
name = "sessions"
sets = "load.sessions"
values = [1, 2]
[scale.quick]
"#;

/// DuckDB's own program, as `make setup ARGS=--tests` fetches it.
fn duckdb(place: &Place) -> Option<PathBuf> {
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../third_party");
    let folders = fs::read_dir(parent).ok()?.flatten().map(|entry| entry.path());
    let mut programs = folders.map(|folder| folder.join("duckdb")).filter(|program| program.is_file());
    // A wheel keeps no permissions.
    let own = place.here().join("duckdb");
    fs::copy(programs.next()?, &own).ok()?;
    fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).ok()?;
    Some(own)
}

fn query(duckdb: &Path, place: &Place, sql: &str) -> serde_json::Value {
    let told = Command::new(duckdb)
        .args(["-json", "-c", sql])
        .current_dir(place.here())
        .output()
        .expect("it starts");
    assert!(told.status.success(), "{sql}: {}", String::from_utf8_lossy(&told.stderr));
    serde_json::from_slice(&told.stdout).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

#[test]
fn duckdb_reads_what_was_measured() {
    let _alone = alone();
    let place = Place::new();
    place.write("small.toml", PLAN);
    // A busy machine may make trials that cannot be believed; their figures are exported all the same.
    place.run(&["run", "small.toml"]).with_code(&[0, 1]);
    place.run(&["export", "small", "-o", "tables"]).with_code(&[0]);
    place.run(&["export", "small", "-o", "trials.csv"]).with_code(&[0]);
    let dictionary = fs::read_to_string(place.here().join("tables/dictionary.csv")).unwrap();
    assert!(dictionary.contains("\r\ntrials,throughput_ops_per_s,number,"), "{dictionary}");
    let Some(duckdb) = duckdb(&place) else {
        return skipped("DuckDB is not installed: make setup ARGS=--tests");
    };
    // The records as they are, read by nobody's code but serde's.
    let records = place.content().into_iter().filter(|path| path.ends_with("record.json"));
    let mut done = 0;
    for path in records {
        let text = fs::read_to_string(place.here().join(path)).unwrap();
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        done += record["measured"]["books"]["operations"]["read"]["done"].as_u64().unwrap();
    }
    let sums = "select count(*) as trials, sum(operations)::bigint as done, count(distinct axis_sessions) as cells from";
    for file in ["tables/trials.parquet", "trials.csv"] {
        let all = query(&duckdb, &place, &format!("{sums} '{file}'"));
        assert_eq!(all[0], serde_json::json!({"trials": 4, "done": done, "cells": 2}), "{file}");
    }
    let joined = query(
        &duckdb,
        &place,
        "select sum(i.done)::bigint as done, min(t.operations - (select sum(done) from 'tables/intervals.parquet' x where \
         x.cell = t.cell and x.repeat = t.repeat and x.phase = 'measure'))::bigint as missing from \
         'tables/trials.parquet' t join 'tables/intervals.parquet' i using (cell, repeat, twin) where i.phase = 'measure'",
    );
    assert_eq!(joined[0], serde_json::json!({"done": done, "missing": 0}), "the tables join, and agree");
    let types = query(
        &duckdb,
        &place,
        "select column_name, column_type from (describe select repeat, twin, residence_ms_p99, cell from \
         'tables/trials.parquet')",
    );
    let types: Vec<&str> =
        types.as_array().unwrap().iter().filter_map(|row| row["column_type"].as_str()).collect();
    assert_eq!(types, ["BIGINT", "BOOLEAN", "DOUBLE", "VARCHAR"]);
}

#[test]
fn what_cannot_be_exported_is_said() {
    let place = Place::new();
    fs::create_dir_all(place.here().join("empty")).unwrap();
    for (typed, words) in [
        (["export", "nothing", "-o", "x"], "nothing: no such file or folder"),
        (["export", "empty", "-o", "x"], "there is no trial in it"),
        (["export", "empty", "-o", "x.xlsx"], ".xlsx is neither .parquet nor .csv"),
    ] {
        let ended = place.run(&typed).with_code(&[2]);
        assert!(ended.stderr.contains(words), "{typed:?}: {}", ended.stderr);
    }
    assert_eq!(place.content(), [PathBuf::from("empty")], "nothing is written");
}
