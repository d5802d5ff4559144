//! Sentences that people write, and that the laboratory writes into its records.

use crate::text;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use std::time::Duration;
use tipover_core::device::{Effect, Model, PowerCut, Profile, Rule, ServiceHistogram, Spec};
use tipover_core::experiment::{Address, Promise};
use tipover_core::schedule::Schedule;
use tipover_core::storage::DiskPromise;
use tipover_core::units::{Bytes, Rate, Ratio, span};
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::file_io::Blocks;
use tipover_core::workload::{Arrivals, Lengths, Values};

/// What is read prints itself as something that reads back as the same.
fn reads_back<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Option<T>
where
    T::Err: Display,
{
    let read = match text.parse::<T>() {
        Ok(read) => read,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
    };
    let printed = read.to_string();
    match printed.parse::<T>() {
        Ok(again) => assert_eq!(again, read, "{text:?} prints itself as {printed:?}"),
        Err(error) => panic!("{text:?} prints itself as {printed:?}: {error}"),
    }
    Some(read)
}

pub fn schedule(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Some(schedule) = reads_back::<Schedule>(text) else { return };
    let nodes = ["a", "b", "c"].map(String::from);
    let end = Duration::from_secs(100);
    if let Ok(timed) = schedule.expand(&nodes, end, 7) {
        assert!(timed.iter().all(|line| line.at <= end), "nothing happens after the end");
        assert!(timed.is_sorted_by_key(|line| line.at));
        assert_eq!(timed, schedule.expand(&nodes, end, 7).expect("the same again"));
    }
}

pub fn disk(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Some(spec) = reads_back::<Spec>(text) {
        let json = serde_json::to_string(&spec).expect("a specification is data");
        assert_eq!(serde_json::from_str::<Spec>(&json).expect(&json), spec, "{json}");
        if spec.check().is_ok() {
            let _ = (Model::new(spec.clone(), 1), spec.brief());
        }
    }
    reads_back::<Rule>(text);
    reads_back::<Effect>(text);
    reads_back::<PowerCut>(text);
    reads_back::<ServiceHistogram>(text);
    if let Ok(profile) = Profile::of_toml(text) {
        let again = Profile::of_toml(&profile.to_toml()).expect("a profile prints itself");
        assert_eq!(again.spec, profile.spec);
    }
    let _ = serde_json::from_str::<Spec>(text);
}

pub fn quantities(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    reads_back::<Bytes>(text);
    reads_back::<Rate>(text);
    reads_back::<Ratio>(text);
    if let Ok(read) = span::parse(text) {
        assert_eq!(span::parse(&span::print(read)), Ok(read), "{text:?}");
    }
    reads_back::<Promise>(text);
    reads_back::<DiskPromise>(text);
    reads_back::<Arrivals>(text);
    reads_back::<Requests>(text);
    reads_back::<Lengths>(text);
    reads_back::<Values>(text);
    reads_back::<Blocks>(text);
    if let Ok(address) = text.parse::<Address>() {
        let _ = (address.shown(), address.scheme());
    }
}
