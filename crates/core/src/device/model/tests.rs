use super::*;
use proptest::prelude::*;

const PAGE: Bytes = Bytes(4096);

/// `clients` that each send their next read when the last one completes, until `end`. Returns
/// completions.
fn closed_loop(model: &mut Model, clients: usize, end: Duration) -> Vec<Tick> {
    let mut due: BinaryHeap<Reverse<(Tick, Tick)>> = BinaryHeap::new();
    for _ in 0..clients {
        due.push(Reverse((model.submit(Tick(0), Kind::Read, PAGE), Tick(0))));
    }
    let mut completions = Vec::new();
    while let Some(Reverse((done, arrival))) = due.pop() {
        model.complete(arrival, done, Kind::Read, PAGE);
        completions.push(done);
        if done.since(Tick(0)) < end {
            due.push(Reverse((model.submit(done, Kind::Read, PAGE), done)));
        }
    }
    completions
}

fn model(spec: &str) -> Model {
    Model::new(spec.parse().unwrap(), 1)
}

fn rate(completions: &[Tick]) -> f64 {
    let span = completions[completions.len() - 1].since(completions[0]);
    (completions.len() - 1) as f64 / span.as_secs_f64()
}

#[test]
fn at_saturation_the_gate_alone_decides() {
    for (spec, expected) in
        [("iops=5000", 5000.0), ("iops=600,latency=7ms", 600.0), ("iops=150,latency=7ms", 150.0)]
    {
        let got = rate(&closed_loop(&mut model(spec), 16, Duration::from_secs(100)));
        assert!((got / expected - 1.0).abs() < 1e-5, "{spec}: {got}");
    }
}

#[test]
fn one_client_gets_one_over_latency() {
    let got = rate(&closed_loop(&mut model("iops=600,latency=7ms"), 1, Duration::from_secs(100)));
    assert!((got * 0.007 - 1.0).abs() < 1e-9, "{got}");
}

#[test]
fn servers_and_pipe_bound_the_rate() {
    let got = rate(&closed_loop(&mut model("latency=7ms,parallel=2"), 16, Duration::from_secs(50)));
    assert!((got * 0.0035 - 1.0).abs() < 1e-3, "{got}");
    let got = rate(&closed_loop(&mut model("bandwidth=4096000/s"), 4, Duration::from_secs(50)));
    assert!((got / 1000.0 - 1.0).abs() < 1e-5, "{got}");
}

/// Balanced stations in a closed network: N ÷ (D (N + K − 1)) with D = 1 ÷ (K μ).
#[test]
fn joined_disks_give_what_clients_that_pile_up_on_one_leave() {
    let disk = "latency=8ms,parallel=1,spread=exponential";
    for (disks, clients) in [(1, 16), (4, 16), (4, 4), (8, 20)] {
        let mut array = model(&format!("{disk},disks={disks},chunk=64KiB"));
        let got = rate(&closed_loop(&mut array, clients, Duration::from_secs(100)));
        let (k, n) = (f64::from(disks), clients as f64);
        let expected = k * 125.0 * n / (n + k - 1.0);
        assert!(
            (got / expected - 1.0).abs() < 0.03,
            "{disks} disks, {clients} clients: {got}, not {expected}"
        );
    }
}

#[test]
fn a_large_request_is_divided_and_a_flush_waits_for_every_disk() {
    let mut array = model("bandwidth=1MiB/s,flush_latency=3ms,disks=4,chunk=64KiB");
    let at = |array: &mut Model, kind, offset, kib| {
        array.request(Tick(0), Demand { kind, offset, size: Bytes::kib(kib) }).due.0 / 1_000_000
    };
    assert_eq!(at(&mut array, Kind::Write, 0, 512), 125, "two chunks on each of four disks");
    assert_eq!(at(&mut array, Kind::Read, 64 << 10, 64), 187, "behind them on the second");
    assert_eq!(at(&mut array, Kind::Read, 128 << 10, 16), 140, "and the third is not kept by that");
    assert_eq!(at(&mut array, Kind::Flush, 0, 0), 3);
    let mut cached = model("cache=1MiB,cache_drain=1MiB/s,disks=2,chunk=64KiB");
    assert_eq!(at(&mut cached, Kind::Write, 0, 64), 0);
    assert_eq!(at(&mut cached, Kind::Flush, 0, 0), 62, "the first disk has something to drain");
}

#[test]
fn in_busy_hours_everything_takes_longer() {
    let alone = |model: &mut Model, hour: u64| {
        let at = Tick(hour * 3_600_000_000_000);
        model.submit(at, Kind::Read, PAGE).since(at).as_millis()
    };
    let mut by_day = model("iops=100,latency=1ms,busy_times=20,busy_from=9h,busy_until=18h");
    let hours = [8, 9, 17, 18, 32, 33].map(|hour| alone(&mut by_day, hour));
    assert_eq!(hours, [1, 20, 20, 1, 1, 20]);
    by_day.set_midnight(Duration::from_secs(2 * 3600));
    assert_eq!([48 + 6, 48 + 7].map(|hour| alone(&mut by_day, hour)), [1, 20]);
    let mut by_night = model("latency=1ms,busy_times=3,busy_from=22h,busy_until=6h");
    assert_eq!([5, 6, 21, 22].map(|hour| alone(&mut by_night, hour)), [3, 1, 1, 3]);
    let mut busy = model("iops=100,bandwidth=1GB/s,busy_times=20,busy_from=0,busy_until=12h");
    let got = rate(&closed_loop(&mut busy, 4, Duration::from_secs(100)));
    assert!((got / 5.0 - 1.0).abs() < 0.01, "{got}");
    let same = busy.spec().at_its_busiest();
    assert_eq!((same.iops, same.busy), (Some(crate::units::Rate(5.0)), None));
}

#[test]
fn drawn_service_times_keep_their_mean_and_their_seed() {
    for spec in ["latency=1ms,spread=exponential", "latency=1ms,spread=50%"] {
        let first = closed_loop(&mut model(spec), 1, Duration::from_secs(20));
        assert!((rate(&first) / 1000.0 - 1.0).abs() < 0.03, "{spec}: {}", rate(&first));
        assert_eq!(first, closed_loop(&mut model(spec), 1, Duration::from_secs(20)), "{spec}");
    }
}

#[test]
fn flushes_pass_the_gate_and_discards_cost_nothing() {
    let mut model = model("iops=10,flush_latency=3ms,latency=1ms");
    assert_eq!(model.submit(Tick(0), Kind::Read, PAGE), Tick(1_000_000));
    assert_eq!(model.submit(Tick(0), Kind::Flush, Bytes(0)), Tick(3_000_000));
    assert_eq!(model.submit(Tick(0), Kind::Discard, PAGE), Tick(0));
    assert_eq!(model.submit(Tick(0), Kind::Read, PAGE), Tick(101_000_000));
}

#[test]
fn a_change_under_way_keeps_counts_and_completions() {
    let mut model = model("iops=100,latency=7ms");
    let dues: Vec<Tick> = (0..5).map(|_| model.submit(Tick(0), Kind::Write, PAGE)).collect();
    model.set_spec("iops=5000".parse().unwrap());
    assert_eq!(model.counters(Tick(1)).in_flight, 5);
    assert_eq!(model.submit(Tick(10), Kind::Read, PAGE), Tick(10), "the new gate is idle");
    model.complete(Tick(10), Tick(10), Kind::Read, PAGE);
    for due in dues {
        model.complete(Tick(0), due, Kind::Write, PAGE);
    }
    let counters = model.counters(Tick(1_000_000_000));
    assert_eq!((counters.in_flight, counters.write.requests, counters.read.requests), (0, 5, 1));
    assert_eq!(counters.write.bytes, Bytes(5 * 4096));
}

#[test]
fn littles_law_holds_on_the_counters() {
    let mut model = model("iops=600,latency=7ms");
    let before = model.counters(Tick(0));
    let last = *closed_loop(&mut model, 16, Duration::from_secs(10)).last().unwrap();
    let rates = model.counters(last).rates_since(&before).unwrap();
    let expected = rates.requests().0 * rates.mean_await.unwrap().as_secs_f64();
    assert!((rates.queue / expected - 1.0).abs() < 1e-6, "{} against {expected}", rates.queue);
    assert!((rates.utilization.0 - 1.0).abs() < 1e-9);
    assert!((rates.queue - 16.0).abs() < 0.05);
    assert_eq!(rates.request_size, Some(PAGE));
}

/// Poisson arrivals of reads and writes, each kind with its rate per second: mean residences in seconds.
fn open_loop(model: &mut Model, reads: f64, writes: f64, count: usize) -> [f64; 2] {
    let mut dice = Model::new(Spec::default(), 99);
    let mut due = BinaryHeap::new();
    let (mut sums, mut counts, mut now) = ([0.0; 2], [0u64; 2], 0.0);
    type Pending = Reverse<(Tick, Tick, Option<NonZeroU64>, bool)>;
    let mut settle = |model: &mut Model, due: &mut BinaryHeap<Pending>, now: Tick| {
        while let Some(&Reverse((done, arrival, number, write))) = due.peek() {
            if done > now {
                break;
            }
            due.pop();
            match number.and_then(|number| model.postponed(number, done)) {
                Some(later) => due.push(Reverse((later, arrival, number, write))),
                None => {
                    let kind = if write { Kind::Write } else { Kind::Read };
                    model.complete(arrival, done, kind, PAGE);
                    sums[usize::from(write)] += done.since(arrival).as_secs_f64();
                    counts[usize::from(write)] += 1;
                }
            }
        }
    };
    for _ in 0..count {
        now += -(1.0 - dice.uniform()).ln() / (reads + writes) * 1e9;
        let at = Tick(now as u64);
        settle(model, &mut due, at);
        let write = dice.uniform() * (reads + writes) >= reads;
        let kind = if write { Kind::Write } else { Kind::Read };
        let admission = model.request(at, Demand { kind, offset: 0, size: PAGE });
        due.push(Reverse((admission.due, at, admission.number, write)));
    }
    settle(model, &mut due, Tick(u64::MAX));
    assert_eq!(model.counters(Tick(u64::MAX / 2)).in_flight, 0);
    [0, 1].map(|kind| sums[kind] / counts[kind].max(1) as f64)
}

fn assert_near(got: f64, theory: f64, share: f64) {
    assert!((got / theory - 1.0).abs() < share, "{got} against {theory}");
}

/// Pollaczek and Khinchine: W = lambda E[s^2] / 2 (1 - rho), and s on top.
#[test]
fn queues_obey_the_formulas() {
    for rho in [0.3, 0.7, 0.9] {
        let s = 0.001;
        let fixed = open_loop(&mut model("latency=1ms,parallel=1"), rho / s, 0.0, 400_000)[0];
        assert_near(fixed, s + rho * s / (2.0 * (1.0 - rho)), 0.03);
        let drawn = open_loop(&mut model("latency=1ms,parallel=1,spread=exponential"), rho / s, 0.0, 400_000);
        assert_near(drawn[0], s / (1.0 - rho), 0.05);
    }
    // M/M/2: Erlang C gives W = s rho^2 / (1 - rho^2) with rho the load of each server.
    let rho: f64 = 0.8;
    let spec = "latency=1ms,parallel=2,spread=exponential";
    let got = open_loop(&mut model(spec), 2.0 * rho / 0.001, 0.0, 400_000)[0];
    assert_near(got, 0.001 / (1.0 - rho * rho), 0.05);
}

/// Cobham's formulas for two classes without pre-emption: R = sum of lambda s^2 / 2, reads wait
/// R / (1 - rho_r), writes R / ((1 - rho_r) (1 - rho)).
#[test]
fn reads_first_obeys_the_formulas_of_priority() {
    let (s, reads, writes) = (0.001, 400.0, 450.0);
    let spec = "latency=1ms,parallel=1,order=reads-first";
    let [read, write] = open_loop(&mut model(spec), reads, writes, 400_000);
    let rest = (reads + writes) * s * s / 2.0;
    let (rho_r, rho) = (reads * s, (reads + writes) * s);
    assert_near(read, s + rest / (1.0 - rho_r), 0.03);
    assert_near(write, s + rest / ((1.0 - rho_r) * (1.0 - rho)), 0.06);
    let [read, write] = open_loop(&mut model("latency=1ms,parallel=1"), reads, writes, 400_000);
    assert_near(read / write, 1.0, 0.02);
    // A deep device hides the line from the scheduler: then it is nearly first come, first served.
    let deep = "latency=1ms,parallel=1,order=reads-first,depth=64";
    let [read, write] = open_loop(&mut model(deep), reads, writes, 400_000);
    assert!(read / write > 0.9, "{read} {write}");
}

#[test]
fn each_kind_has_its_own_gate_and_none_holds_up_the_other() {
    let mut model = model("read_iops=100,write_iops=1000,iops=1100");
    let ask = |model: &mut Model, kind| model.request(Tick(0), Demand { kind, offset: 0, size: PAGE }).due;
    let reads: Vec<Tick> = (0..10).map(|_| ask(&mut model, Kind::Read)).collect();
    assert!(reads[9].0 >= 90_000_000);
    let write = ask(&mut model, Kind::Write);
    assert!(write.0 < 11_000_000, "{write:?} does not wait for reads");
    assert!(ask(&mut model, Kind::Write).since(write) <= Duration::from_millis(1));
}

#[test]
fn large_requests_count_as_several() {
    let mut model = model("iops=100,request_unit=256KiB");
    let at = |model: &mut Model, size| model.submit(Tick(0), Kind::Read, Bytes::kib(size));
    assert_eq!(at(&mut model, 256), Tick(0));
    assert_eq!(at(&mut model, 1024), Tick(10_000_000));
    assert_eq!(at(&mut model, 4), Tick(50_000_000));
}

#[test]
fn a_cache_takes_writes_and_a_flush_pays() {
    let mut model = model("latency=5ms,write_latency=100us,flush_latency=1ms,cache=40kB,cache_drain=4MB/s");
    let write = |model: &mut Model| model.submit(Tick(0), Kind::Write, Bytes(4000));
    for _ in 0..10 {
        assert_eq!(write(&mut model), Tick(100_000));
    }
    assert_eq!(write(&mut model), Tick(1_000_000), "room when 4000 bytes are drained");
    assert_eq!(model.submit(Tick(0), Kind::Flush, Bytes(0)), Tick(12_000_000), "11 writes drain, then 1 ms");
}

#[test]
fn measured_service_times_keep_their_mean() {
    let mut model = model("latency=1ms,spread=50us/100us:90/2ms:9/4ms:1");
    let count = 200_000;
    let sum: u64 = (0..count).map(|_| model.submit(Tick(0), Kind::Read, PAGE).0).sum();
    assert_near(sum as f64 / f64::from(count), 1e6, 0.02);
}

#[test]
fn a_spinning_disk_serves_one_at_a_time_at_its_theory() {
    let spec = "rpm=7200,seek_track=1ms,seek_full=16ms,track=1MiB,capacity=100GiB";
    for clients in [1, 16] {
        let got = rate(&closed_loop(&mut model(spec), clients, Duration::from_secs(200)));
        let theory = spec.parse::<Spec>().unwrap().ceiling(Kind::Read, PAGE, clients as u32).unwrap().0;
        assert_near(got, theory, 0.01);
    }
}

/// A page after another, `ahead` of them in flight; what each took, in rotations. Arrivals are dated back
/// as the way to the disk is: nothing may depend on some microseconds.
fn rotations_of_a_log(ahead: usize) -> f64 {
    let mut model = model("rpm=7200,seek_track=1ms,seek_full=16ms,track=1MiB,latency=100us");
    let (mut flying, mut now) = (VecDeque::new(), Tick(1_000_000));
    for n in 1..=500u64 {
        if flying.len() == ahead {
            let (arrival, due) = flying.pop_front().unwrap();
            model.complete(arrival, due, Kind::Write, PAGE);
            now = due;
        }
        let arrival = Tick(now.0 - 60_000);
        let demand = Demand { kind: Kind::Write, offset: n * 4096, size: PAGE };
        flying.push_back((arrival, model.request(arrival, demand).due));
    }
    now.0 as f64 / 500.0 / (60e9 / 7200.0)
}

#[test]
fn a_log_that_waits_for_each_page_gets_one_a_rotation() {
    let (alone, queued) = (rotations_of_a_log(1), rotations_of_a_log(4));
    assert!((alone - 1.0).abs() < 0.02 && queued < 0.05, "{alone} and {queued} rotations a page");
}

#[test]
fn credits_can_be_read() {
    let mut model = model("iops=100,burst_iops=1000,burst_credits=500,burst_start=200");
    assert_eq!(model.counters(Tick(0)).credits, Some(200));
    let last = (0..100).map(|_| model.submit(Tick(0), Kind::Read, PAGE)).last().unwrap();
    assert!(model.counters(last).credits.is_some_and(|c| (108..=111).contains(&c)));
}

proptest! {
    #[test]
    fn reads_first_loses_nothing_and_never_serves_early(
        requests in prop::collection::vec((0u64..2_000_000, any::<bool>()), 1..120),
        parallel in 1u32..4,
        depth in 0u32..6,
    ) {
        let mut spec: Spec = "latency=1ms,order=reads-first".parse().unwrap();
        spec.parallel = std::num::NonZeroU32::new(parallel);
        spec.depth = std::num::NonZeroU32::new(depth);
        let mut model = Model::new(spec, 1);
        let (mut now, mut pending, mut done) = (0, BinaryHeap::new(), Vec::new());
        let mut settle = |model: &mut Model, pending: &mut BinaryHeap<_>, now: u64| {
            while let Some(&Reverse((due, arrival, number))) = pending.peek() {
                let due: Tick = due;
                if due.0 > now {
                    break;
                }
                pending.pop();
                match Option::and_then(number, |number| model.postponed(number, due)) {
                    Some(later) => pending.push(Reverse((later, arrival, number))),
                    None => done.push((due.0, arrival)),
                }
            }
        };
        let count = requests.len();
        for (gap, write) in requests {
            now += gap;
            settle(&mut model, &mut pending, now);
            let kind = if write { Kind::Write } else { Kind::Read };
            let admission = model.request(Tick(now), Demand { kind, offset: 0, size: PAGE });
            pending.push(Reverse((admission.due, now, admission.number)));
        }
        settle(&mut model, &mut pending, u64::MAX);
        prop_assert_eq!(done.len(), count);
        done.sort_unstable();
        for (due, arrival) in &done {
            prop_assert!(*due >= arrival + 1_000_000);
        }
        // No more than `parallel` complete within one service time.
        for window in done.windows(parallel as usize + 1) {
            prop_assert!(window[parallel as usize].0 - window[0].0 >= 1_000_000);
        }
    }

    #[test]
    fn never_faster_than_the_gate_and_never_before_service(
        gaps in prop::collection::vec(0u64..5_000_000, 2..200),
        iops in 50.0..20_000f64,
        latency in 0u64..10_000_000,
        parallel in 0u32..8,
    ) {
        let mut spec: Spec = "".parse().unwrap();
        spec.iops = Some(crate::units::Rate(iops));
        spec.latency = Duration::from_nanos(latency);
        spec.parallel = std::num::NonZeroU32::new(parallel);
        let mut model = Model::new(spec, 0);
        let mut now = 0;
        let mut done = Vec::new();
        for gap in gaps {
            now += gap;
            let at = model.submit(Tick(now), Kind::Read, PAGE);
            prop_assert!(at.0 >= now + latency);
            done.push(at.0);
        }
        done.sort_unstable();
        for (i, first) in done.iter().enumerate() {
            for (j, last) in done.iter().enumerate().skip(i) {
                let passed = (j - i) as f64;
                // One nanosecond of rounding, no more: a burst of one is the `j - i` itself.
                prop_assert!(passed <= (last - first + 1) as f64 * iops / 1e9 + 1e-6);
            }
        }
    }

    /// Against each byte's own place.
    #[test]
    fn an_arrays_parts_are_the_bytes_of_each_disk(
        disks in 1u32..7, chunk in 1u64..20, offset in 0u64..500, size in 1u64..300,
    ) {
        let array = Array { disks: std::num::NonZeroU32::new(disks).unwrap(), chunk: Bytes(chunk) };
        let mut wanted = std::collections::BTreeMap::<usize, (u64, u64)>::new();
        for byte in offset..offset + size {
            let (disk, row) = (byte / chunk % u64::from(disks), byte / chunk / u64::from(disks));
            let part = wanted.entry(disk as usize).or_insert((row * chunk + byte % chunk, 0));
            part.1 += 1;
        }
        let parts = array.parts(offset, Bytes(size)).map(|(disk, at, size)| (disk, (at, size.0)));
        prop_assert_eq!(parts.collect::<std::collections::BTreeMap<_, _>>(), wanted);
    }

    #[test]
    fn queue_time_is_the_sum_of_residences_even_when_arrivals_come_late(
        requests in prop::collection::vec((0u64..1_000_000, 0u64..50_000), 1..100),
    ) {
        let mut model = model("iops=3000,latency=200us,parallel=4");
        let mut events = BinaryHeap::new();
        let mut now = 0;
        for (gap, late) in requests {
            now += gap;
            while let Some(&Reverse((done, arrival))) = events.peek() {
                if done > Tick(now) { break }
                events.pop();
                model.complete(arrival, done, Kind::Read, PAGE);
            }
            let arrival = Tick(now.saturating_sub(late));
            let done = model.submit(arrival, Kind::Read, PAGE).max(Tick(now));
            events.push(Reverse((done, arrival)));
        }
        while let Some(Reverse((done, arrival))) = events.pop() {
            model.complete(arrival, done, Kind::Read, PAGE);
            now = now.max(done.0);
        }
        let counters = model.counters(Tick(now));
        prop_assert_eq!(counters.queue_time, counters.read.residence);
        prop_assert!(counters.busy <= Duration::from_nanos(now));
    }
}
