//! Does the audit convict and acquit? Sound results are invented from closed formulas with noise and printed
//! as people print them; then one fault is planted in each. The truth of a fault does not come from the laws'
//! code: it is planted only where it moves a number by more than 10 %.

use super::audit;
use super::quantity::Quantity;
use super::table::{Row, Study, Table, Value};
use crate::workload::Random;

const SEED: u64 = 5;
const STUDIES: u64 = 1000;

/// A number as it is printed with this number of digits after the point.
fn put(row: &mut Row, quantity: Quantity, value: f64, places: usize) {
    row.values.insert(quantity, Value::printed(&format!("{value:.places$}"), 1.0, quantity).unwrap());
}

/// A closed loop of `clients` on a device behind a gate, measured with noise: asymptotic bounds of an
/// interactive system (Denning & Buzen 1978), exponential residence.
fn client_row(random: &mut Random, number: usize, clients: f64, gate: f64, service: f64, data: f64) -> Row {
    let noise = |random: &mut Random, share: f64| 1.0 + share * (2.0 * random.unit() - 1.0);
    let mut row = Row::new(format!("row {number}"));
    put(&mut row, Quantity::Clients, clients, 0);
    put(&mut row, Quantity::Gate, gate, 0);
    put(&mut row, Quantity::DataSize, data, 0);
    let miss = 1.0 - 1.0 / (1.0 + data / 4e9);
    let throughput = (clients / service).min(gate / miss) * noise(random, 0.03);
    let mean = clients / throughput * noise(random, 0.01);
    put(&mut row, Quantity::Throughput, throughput, 1);
    put(&mut row, Quantity::Mean, mean, 6);
    put(&mut row, Quantity::Minimum, mean * 0.2, 6);
    for (q, factor) in [(50_000, 0.69), (95_000, 3.0), (99_000, 4.6)] {
        put(&mut row, Quantity::Percentile(q), mean * factor * noise(random, 0.05), 6);
    }
    put(&mut row, Quantity::Maximum, mean * (9.0 + 6.0 * random.unit()), 6);
    let duration = 60.0 + 60.0 * random.unit();
    put(&mut row, Quantity::Duration, duration, 2);
    put(&mut row, Quantity::Samples, (throughput * duration).round(), 0);
    row
}

fn device_row(random: &mut Random, number: usize, clients: f64, gate: f64) -> Row {
    let mut row = Row::new(format!("disk {number}"));
    put(&mut row, Quantity::Clients, clients, 0);
    put(&mut row, Quantity::Gate, gate, 0);
    let rate = gate * (0.80 + 0.19 * random.unit());
    let reads = rate * (0.5 + 0.4 * random.unit());
    let queue = clients * (0.7 + 0.29 * random.unit());
    let size = 4096.0 * (1.0 + 7.0 * random.unit());
    put(&mut row, Quantity::ReadRate, reads, 2);
    put(&mut row, Quantity::WriteRate, rate - reads, 2);
    put(&mut row, Quantity::DeviceRate, rate, 2);
    put(&mut row, Quantity::RequestSize, size, 0);
    put(&mut row, Quantity::Bandwidth, rate * size, 0);
    put(&mut row, Quantity::Queue, queue, 2);
    put(&mut row, Quantity::Await, queue / rate * (1.0 + 0.02 * (random.unit() - 0.5)), 6);
    let utilization = 0.9 + 0.1 * random.unit();
    put(&mut row, Quantity::Utilization, utilization, 4);
    put(&mut row, Quantity::ServiceTime, utilization / rate, 6);
    row
}

fn sound(seed: u64) -> (Study, Random) {
    let mut random = Random::new(SEED, seed);
    let mut clients = Table { name: "clients".into(), rows: vec![] };
    let mut devices = Table { name: "devices".into(), rows: vec![] };
    let service = 0.001 * (1.0 + 9.0 * random.unit());
    let gate = 200.0 * (1.0 + 9.0 * random.unit()).round();
    for (number, step) in [1.0, 2.0, 4.0, 8.0].into_iter().enumerate() {
        let sessions = 4.0 * step;
        for (size, data) in [4e9, 8e9].into_iter().enumerate() {
            clients.rows.push(client_row(&mut random, 2 * number + size, sessions, gate, service, data));
        }
        devices.rows.push(device_row(&mut random, number, sessions, gate));
    }
    (Study { name: format!("study {seed}"), tables: vec![clients, devices], ..Study::default() }, random)
}

/// Cells that an equality ties, by table.
const TIED: [&[Quantity]; 2] = [
    &[Quantity::Throughput, Quantity::Mean],
    &[Quantity::DeviceRate, Quantity::RequestSize, Quantity::Bandwidth, Quantity::Queue, Quantity::Await],
];

const FAULTS: [&str; 4] = ["rows swapped", "unit changed", "cell copied", "digits transposed"];

/// Plants one fault; `None` where it would not move any number by more than a tenth.
fn plant(study: &mut Study, fault: &str, random: &mut Random) -> Option<()> {
    let number = random.below(2) as usize;
    let rows = &mut study.tables[number].rows;
    let (a, b) = (random.below(rows.len() as u64) as usize, random.below(rows.len() as u64) as usize);
    let quantity = TIED[number][random.below(TIED[number].len() as u64) as usize];
    let own = *rows[a].values.get(&quantity)?;
    let moved = |x: f64, y: f64| (x / y - 1.0).abs() > 0.1 && (y / x - 1.0).abs() > 0.1;
    match fault {
        "rows swapped" => {
            let clients = |row: &Row| row.span(Quantity::Clients).map(super::Span::middle);
            if !moved(clients(&rows[a])?, clients(&rows[b])?) {
                return None;
            }
            let (first, second) = (rows[a].clone(), rows[b].clone());
            for (row, from) in [(a, second), (b, first)] {
                for (quantity, value) in from.values.iter().filter(|(q, _)| !q.is_condition()) {
                    rows[row].values.insert(*quantity, *value);
                }
            }
        }
        "unit changed" => {
            let factor = [1000.0, 1e-3, 8.0, 0.125][random.below(4) as usize];
            let value = Value { span: own.span * factor, ..own };
            rows[a].values.insert(quantity, value);
        }
        "cell copied" => {
            let other = *rows[b].values.get(&quantity)?;
            if !moved(own.span.middle(), other.span.middle()) {
                return None;
            }
            rows[a].values.insert(quantity, other);
        }
        _ => {
            let mut letters: Vec<char> = format!("{:.0}", own.span.middle() * 1e6).chars().collect();
            if letters.len() < 2 {
                return None;
            }
            letters.swap(0, 1);
            let text: String = letters.into_iter().collect();
            let changed = text.parse::<f64>().ok()? * 1e-6;
            if !moved(own.span.middle(), changed) {
                return None;
            }
            let scale = changed / own.span.middle();
            rows[a].values.insert(quantity, Value { span: own.span * scale, ..own });
        }
    }
    Some(())
}

#[test]
fn sound_results_are_acquitted_and_planted_faults_convicted() {
    let (mut checks, mut alarms, mut studies_accused) = (0, 0, 0);
    for seed in 0..STUDIES {
        let found = audit(&sound(seed).0);
        checks += found.checks();
        alarms += found.findings.len();
        studies_accused += usize::from(!found.findings.is_empty());
        for finding in &found.findings {
            println!("falsely accused: {} {} {}", finding.study, finding.law, finding.numbers);
        }
    }
    println!(
        "{alarms} false alarms in {checks} checks; {studies_accused} of {STUDIES} sound studies accused"
    );
    assert!(studies_accused as f64 <= 0.01 * STUDIES as f64, "{studies_accused} sound studies accused");
    for fault in FAULTS {
        let (mut planted, mut convicted) = (0, 0);
        for seed in 0..STUDIES {
            let (mut study, mut random) = sound(seed);
            if plant(&mut study, fault, &mut random).is_some() {
                planted += 1;
                convicted += u32::from(!audit(&study).findings.is_empty());
            }
        }
        let share = f64::from(convicted) / f64::from(planted);
        println!("{fault}: {convicted} of {planted} found ({:.1} %)", share * 100.0);
        assert!(planted > 300, "{fault} was planted only {planted} times");
        assert!(share >= 0.95, "{fault}: only {convicted} of {planted} were found");
    }
}

/// The five published studies, with what must be found in them and nothing of them coded in any law.
#[test]
fn the_published_studies_are_read_and_their_known_contradictions_found() {
    macro_rules! found {
        ($name:literal) => {{
            let mapping = include_str!(concat!("../../../../published/", $name, ".mapping.toml"));
            let file = include_str!(concat!("../../../../published/", $name, ".json"));
            let mapping = super::Mapping::parse(mapping).unwrap();
            let found = audit(&super::read("x.json", file, Some(&mapping)).unwrap());
            println!("== {}: {} checks", $name, found.checks());
            for f in &found.findings {
                println!(
                    "{:?} | {} | {} | {} | {}",
                    f.severity,
                    f.place,
                    f.law,
                    f.numbers,
                    f.restore.join("; ")
                );
            }
            found
        }};
    }
    let has = |found: &super::Audit, law: &str, place: &str| {
        found.findings.iter().any(|finding| finding.law == law && finding.place.contains(place))
    };
    let bank = found!("bank");
    assert!(has(&bank, "Little's law", "test 1") && has(&bank, "Little's law", "test 2"));
    let tipping = found!("tipping-point");
    assert!(has(&tipping, "Request gate", "xvdk") && has(&tipping, "Declared load", "xvdl"));
    assert!(!has(&tipping, "Little's law at the device", ""), "PREDICT B5: it holds in all six rows");
    assert!(has(&found!("working-set"), "Requests per request", "disk S2"));
    assert!(has(&found!("write-concern"), "Flush and medium", "HDD"));
    let _ = found!("large-values");
}
