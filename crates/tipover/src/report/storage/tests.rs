use super::*;
use crate::report::{Terminal, html, text};
use std::time::Duration;
use tipover_core::search::{FinishedTrial, Goals, Rest, Step, next};
use tipover_core::storage::tipping::{Rung, SurfaceCell};
use tipover_core::storage::{Beside, Medium};

/// A disk of one server of 8 ms, searched to the end.
fn tipping() -> Tipping {
    let rung = |load: f64| Rung {
        load,
        rate: 124.0,
        bandwidth: 124.0 * 4096.0,
        mean: Duration::from_secs_f64(load / 124.0),
        p99: None,
        device_queue: Some(load),
        device_await: None,
        device_utilization: Some(1.0),
        credits: None,
    };
    let promise: tipover_core::storage::DiskPromise = "await < 50 ms".parse().unwrap();
    let second = Duration::from_secs(1);
    let goals = Goals {
        confirmations: 2,
        sweeps: false,
        short: second,
        long: second,
        duration_sum: second * 2,
        confirmation: second,
        ..Goals::new(Scale::Sessions, vec![promise.slo()], 1.0, 64.0)
    };
    let mut tipping = Tipping {
        promise,
        rungs: [1.0, 2.0, 4.0, 8.0, 16.0].map(rung).to_vec(),
        goals,
        trials: vec![],
        evidence: None,
        sizings: vec![],
        demand: None,
        checked: vec![],
        unchecked: None,
    };
    while let Step::Run(request) = next(&tipping.trials, &tipping.goals) {
        let scheduled = (124.0 * request.duration.as_secs_f64()) as u64;
        tipping.trials.push(FinishedTrial {
            load: request.load,
            duration: request.duration,
            lost_after: None,
            device: None,
            canaries: vec![],
            scheduled,
            late: vec![if request.load / 124.0 > 0.05 { scheduled } else { 0 }],
            failed: 0,
            not_sent: 0,
            unfinished: 0,
            generator_late: false,
            late_generators: vec![],
            purpose: request.purpose,
            rest: Rest::Baseline,
            rested_for: Duration::ZERO,
        });
    }
    tipping
}

#[test]
fn a_page_with_everything_on_it_is_whole_and_says_what_to_buy() {
    let cell = |n: u32| SurfaceCell {
        reads: f64::from(n % 3) / 2.0,
        writes: f64::from(n / 3) / 2.0,
        p50_ns: (!n.is_multiple_of(3)).then_some(1_000_000),
        p95_ns: (!n.is_multiple_of(3)).then_some(2_000_000),
        achieved: 1.0,
    };
    let record = BenchRecord {
        format: 2,
        path: "/data".into(),
        place: "a folder".into(),
        shape: None,
        medium: Medium { direct: true, ..Medium::default() },
        measured: None,
        durable: vec![],
        suspicions: vec![],
        tipping: Some(tipping()),
        surface: Some(Surface {
            most_reads_per_s: 600.0,
            most_written_bytes_per_s: 4e7,
            blocks: (Bytes::kib(4), Bytes::kib(128)),
            steps: 3,
            cells: (0..9).map(cell).collect(),
        }),
        beside: Default::default(),
        missing: vec![],
        provenance: tipover_core::record::Provenance {
            command: "tipover disk bench /data --until 50ms --surface".into(),
            version: String::new(),
            commit: String::new(),
            started_unix_s: 0,
            machine: None,
        },
    };
    let page = of_bench(&record);
    // Refuses, by a panic, what would mislead.
    html(&page);
    let text = text(&page, Terminal::PLAIN);
    assert!(text.contains("twice as many, 12 in flight, take 3 such disks in RAID 0"), "{text}");
    assert!(text.contains("How many such disks it takes") && text.contains("p95 of reads"), "{text}");
    assert!(!text.contains("Disturbed"), "nothing is known: {text}");
    let loud = |neighbours| {
        let beside = Beside { neighbours: Some(neighbours), ..Beside::default() };
        of_bench(&BenchRecord { beside, ..record.clone() }).headline
    };
    assert!(loud(0.4)[1].starts_with("Disturbed: the machine was not quiet (other programs took up to 40 %"));
    assert!(loud(0.05).iter().all(|said| !said.contains("Disturbed")), "{:?}", loud(0.05));
}
