//! Files of results, ours and other people's.

use crate::text;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use tipover_core::audit::{self, Mapping, rows_of_csv};
use tipover_core::check::binary::{Decoder, Encoder, MAGIC, Tail, decode};
use tipover_core::check::{Event, Evidence, History, Judgement};
use tipover_core::measure::Books;
use tipover_core::record::{self, Interval, Record};
use tipover_core::search::SearchRecord;
use tipover_disk::Trace;

/// Data that is read, written and read again is the same.
fn stays<T: Serialize + DeserializeOwned + PartialEq>(read: &T) {
    let text = serde_json::to_string(read).expect("data is written");
    let again: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(again == *read, "it is read back as something else: {text}");
}

/// What a history that was read is written as is read as the same.
fn is_kept(events: &[Event]) {
    let (mut encoder, mut written) = (Encoder::new(), Vec::new());
    events.iter().for_each(|event| encoder.encode(event, &mut written));
    encoder.finish(&mut written);
    let (again, tail) = decode(&written);
    assert!(again == events && tail == Tail::End, "what is written is read back");
}

/// Which of two ways to take the bytes: as a file, or, because nobody guesses a checksum, as parts of one,
/// each behind its length in a byte, to be framed as its writer would have.
fn parts(bytes: &[u8]) -> Result<Vec<&[u8]>, &[u8]> {
    let Some((first, mut rest)) = bytes.split_first() else { return Err(bytes) };
    if first % 2 == 0 {
        return Err(rest);
    }
    let mut parts = Vec::new();
    while let Some((length, more)) = rest.split_first() {
        let (part, more) = more.split_at(usize::from(*length).min(more.len()));
        parts.push(part);
        rest = more;
    }
    Ok(parts)
}

/// A history of these records.
fn framed_history(bodies: &[&[u8]]) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    for (number, body) in (0u64..).zip(bodies) {
        // A length of two bytes, the first of which says that there is another.
        file.extend_from_slice(&[body.len() as u8 | 0x80, body.len() as u8 >> 7]);
        file.extend_from_slice(body);
        let sum = crc32fast::hash(&[&number.to_le_bytes()[..], body].concat());
        file.extend_from_slice(&sum.to_le_bytes());
    }
    file
}

/// A trace of these frames, whose first byte is their kind.
fn framed_trace(frames: &[&[u8]]) -> Vec<u8> {
    let mut file = b"TIPTRACE\x01\0".to_vec();
    file.resize(32, 0);
    for frame in frames {
        let (kind, payload) = frame.split_first().map_or((0, *frame), |(kind, payload)| (*kind, payload));
        let head = [kind, 0, 0, 0, payload.len() as u8, 0, 0, 0];
        let fnv = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        let sum = head.iter().chain(payload).fold(0xCBF2_9CE4_8422_2325, fnv);
        file.extend_from_slice(&head);
        file.extend_from_slice(&sum.to_le_bytes());
        file.extend_from_slice(payload);
    }
    file
}

/// A log whose histograms are these.
fn framed_log(histograms: &[&[u8]]) -> String {
    let line = |bytes: &&[u8]| format!("Tag=READ,0.000,1.000,1.000,{}\n", STANDARD.encode(bytes));
    histograms.iter().map(line).collect()
}

pub fn history(bytes: &[u8]) {
    let bytes = &*parts(bytes).map_or_else(<[u8]>::to_vec, |bodies| framed_history(&bodies));
    let (events, tail) = decode(bytes);
    is_kept(&events);
    // A file comes in pieces of any size.
    let (mut decoder, mut pieces) = (Decoder::new(), Vec::new());
    for piece in bytes.chunks(7) {
        decoder.feed(piece);
        pieces.extend(decoder.by_ref());
    }
    assert!(pieces == events && decoder.tail() == tail, "pieces make no difference");
    let history = History::assemble(events);
    let _ = history.done();
}

/// Evidence, and behind a zero a history, which is judged by it.
pub fn evidence(bytes: &[u8]) {
    let zero = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (evidence, history) = bytes.split_at(zero);
    let Ok(evidence) = serde_json::from_slice::<Evidence>(evidence) else { return };
    stays(&evidence);
    let history = history.get(1..).unwrap_or_default();
    let history = parts(history).map_or_else(<[u8]>::to_vec, |bodies| framed_history(&bodies));
    if let Ok(judgement) = evidence.judge(History::assemble(decode(&history).0)) {
        // How many pieces of evidence of a kind were shown is not written down.
        let text = serde_json::to_string(&judgement).expect("data is written");
        let again: Judgement = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(serde_json::to_string(&again).expect("data is written"), text);
    }
}

pub fn trace(bytes: &[u8]) {
    let bytes = &*parts(bytes).map_or_else(<[u8]>::to_vec, |frames| framed_trace(&frames));
    let Ok(mut trace) = Trace::from_reader(bytes, Path::new("trace")) else { return };
    let records = trace.by_ref().count();
    assert!(trace.ending().is_some(), "it was read through");
    assert!(records <= bytes.len(), "a record takes bytes");
    let _ = (trace.files().len(), trace.date(), trace.dropped(), trace.mode());
}

pub fn record(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(record) = record::read(text) else { return };
    stays::<Record>(&record);
    let _ = (record.headroom(), record.kept_up(), record.is_valid());
    if let Some(measured) = &record.measured {
        let _ = (measured.books(), measured.throughput(), measured.failed(), measured.accounts());
        let _ = (measured.residence(), measured.disk_rates(), measured.offered_load());
    }
    let _ = audit::audit(&audit::of_record(&record));
}

pub fn series(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let intervals: Result<Vec<Interval>, _> = text.lines().map(serde_json::from_str).collect();
    let Ok(intervals) = intervals else { return };
    let mut all: Option<Books> = None;
    for interval in &intervals {
        stays(interval);
        let Ok(books) = Books::from_text(&interval.books) else { continue };
        let again = Books::from_text(&books.to_text()).expect("what was printed");
        assert_eq!(again.answered(), books.answered());
        match &mut all {
            Some(all) if all.is_open() == books.is_open() => all.merge(&books),
            _ => all = Some(books),
        }
    }
    let _ = all.map(|all| (all.residence(), all.done(), all.failures()));
}

pub fn search(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let Ok(record) = serde_json::from_str::<SearchRecord>(text) else { return };
    stays(&record);
    let _ = (record.limits(), record.planned().and_then(|planned| planned.answer()));
}

pub fn hlog(bytes: &[u8]) {
    let log = match parts(bytes) {
        Ok(histograms) => framed_log(&histograms),
        Err(bytes) => text(bytes).unwrap_or_default().to_string(),
    };
    let whole = format!("#[Histogram log format version 1.3]\n{log}");
    if let Ok(study) = audit::read("latency.hlog", &whole, None) {
        let _ = audit::audit(&study);
    }
}

pub fn audit(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let _ = audit::detect(text);
    if let Ok(study) = audit::read("output", text, None) {
        for finding in audit::audit(&study).findings {
            assert!(!finding.numbers.is_empty(), "{}", finding.law);
        }
    }
}

/// A mapping, and behind a zero what it maps.
pub fn mapping(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let (mapping, table) = text.split_once('\0').unwrap_or((text, ""));
    let _ = rows_of_csv(table);
    let Ok(mapping) = Mapping::parse(mapping) else { return };
    for name in ["table.csv", "table.json"] {
        if let Ok(study) = audit::read(name, table, Some(&mapping)) {
            let _ = audit::audit(&study);
        }
    }
}
