//! The figures of a run that goes on as OpenMetrics, for Prometheus and what reads the same.

use super::state::State;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::atomic::AtomicU64;
use tipover_core::measure::Histogram;
use tipover_core::study::timeline::Flow;

/// What the text is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What operations waited, in seconds, in classes of a 1-2-5 scale.
#[derive(Debug)]
struct Waited {
    sum: f64,
    count: u64,
    buckets: Vec<(f64, u64)>,
}

impl Waited {
    fn of(waited: &Histogram, sum: f64) -> Waited {
        let decade = |e: i32| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(e));
        let bounds: Vec<f64> = (-5..2).flat_map(decade).collect();
        let mut below = 0;
        let bucket = |bound: &f64| {
            // Cumulative, because values that are alike to three digits are on one side of a bound.
            let up_to = waited.count_between(0, (bound * 1e9).round() as u64);
            (*bound, up_to - std::mem::replace(&mut below, up_to))
        };
        let mut buckets: Vec<(f64, u64)> = bounds.iter().map(bucket).collect();
        buckets.push((f64::INFINITY, waited.len() - below));
        Waited { sum, count: waited.len(), buckets }
    }
}

impl EncodeMetric for Waited {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_histogram::<NoLabelSet>(self.sum, self.count, &self.buckets, None)
    }
    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// The text that `/metrics` answers.
///
/// # Errors
/// None that a string could give.
pub fn text(state: &State) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("tipover");
    let about = [("version", env!("CARGO_PKG_VERSION")), ("commit", env!("TIPOVER_COMMIT"))];
    registry.register("build", "Who measures", Info::new(about.to_vec()));
    let phase: Family<Vec<(&str, String)>, Gauge> = Family::default();
    let doing = vec![("trial", state.trial.clone()), ("phase", state.phase.clone())];
    phase.get_or_create(&doing).set(1);
    registry.register("phase", "What the run is doing, as labels of 1", phase);
    if let Some((all, over)) = state.trials {
        registry.register("trials", "Trials that the run has in all", ConstGauge::new(all as i64));
        registry.register("trials_ended", "Trials that are over", ConstGauge::new(over as i64));
    }
    let totals = &state.totals;
    let operations: Family<Vec<(&str, &str)>, Counter> = Family::default();
    for (outcome, count) in [("done", totals.done), ("failed", totals.failed)] {
        operations.get_or_create(&vec![("outcome", outcome)]).inc_by(count);
    }
    registry.register("operations", "Operations that ended since the run began, warm-up and all", operations);
    registry.register(
        "operations_due",
        "Operations of open loops that became due since the run began",
        ConstCounter::new(totals.due),
    );
    registry.register(
        "faults",
        "Faults that took effect since the run began",
        ConstCounter::new(state.faults()),
    );
    registry.register("faults_in_force", "Faults in force", ConstGauge::new(state.in_force() as i64));
    registry.register_with_unit(
        "residence",
        "What users waited for operations that ended since the run began, from when each was due",
        Unit::Seconds,
        Waited::of(&totals.residence, totals.residence_sum.as_secs_f64()),
    );
    let timeline = state.timeline();
    if let Some(backlog) = timeline.and_then(|timeline| timeline.steps.last()?.backlog) {
        registry.register(
            "backlog_operations",
            "Operations due and not sent at the end of the last interval",
            ConstGauge::new(backlog as i64),
        );
    }
    for (name, help, of) in OF_NODES {
        let family: Family<Vec<(&str, String)>, Gauge<f64, AtomicU64>> = Family::default();
        for (node, flows) in timeline.iter().flat_map(|timeline| &timeline.nodes) {
            if let Some(value) = flows.last().and_then(of) {
                family.get_or_create(&vec![("node", node.clone())]).set(value);
            }
        }
        registry.register(name, help, family);
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

/// What is known of each node in the last interval.
type OfNode = (&'static str, &'static str, fn(&Flow) -> Option<f64>);
const OF_NODES: [OfNode; 7] = [
    ("node_cores", "Processors that the node keeps busy", |flow| flow.cores),
    ("node_disk_queue", "Requests in flight at the node's disk, the mean over time", |flow| flow.disk_queue),
    ("node_disk_reads_per_second", "Reads that its disk completes", |flow| flow.disk_reads_per_s),
    ("node_disk_writes_per_second", "Writes that its disk completes", |flow| flow.disk_writes_per_s),
    ("node_disk_flushes_per_second", "Flushes that its disk completes", |flow| flow.disk_flushes_per_s),
    ("node_network_in_megabytes_per_second", "What reaches it", |flow| flow.network_in_mb_per_s),
    ("node_network_out_megabytes_per_second", "What it sends", |flow| flow.network_out_mb_per_s),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::state::tests::{interval, run};
    use std::collections::BTreeSet;

    /// The value of a line that begins so.
    fn value(text: &str, begin: &str) -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(begin));
        line.unwrap_or_else(|| panic!("no {begin:?} in {text}")).trim().parse().unwrap()
    }

    #[test]
    fn the_text_has_every_operation_once() {
        let mut run = run();
        run.interval(&interval(0, 100, 3));
        run.interval(&interval(1, 50, 0));
        let text = text(&run).unwrap();
        assert_eq!(value(&text, "tipover_operations_total{outcome=\"done\"}"), 150.0);
        assert_eq!(value(&text, "tipover_operations_total{outcome=\"failed\"}"), 3.0);
        assert_eq!(value(&text, "tipover_operations_due_total"), 153.0);
        assert_eq!(value(&text, "tipover_residence_seconds_count"), 153.0);
        let buckets: Vec<f64> = text
            .lines()
            .filter_map(|line| line.strip_prefix("tipover_residence_seconds_bucket"))
            .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
            .collect();
        assert!(buckets.is_sorted(), "cumulative: {buckets:?}");
        // Operations took 1 ms, 2 ms, and so on.
        assert_eq!(value(&text, "tipover_residence_seconds_bucket{le=\"0.01\"}"), 20.0);
        assert_eq!(value(&text, "tipover_residence_seconds_bucket{le=\"+Inf\"}"), 153.0);
        let sum = (1..=103).chain(1..=50).sum::<u64>() as f64 / 1e3;
        assert!((value(&text, "tipover_residence_seconds_sum") / sum - 1.0).abs() < 2e-3);
        assert!(text.ends_with("# EOF\n"), "OpenMetrics says where it ends");
    }

    #[test]
    fn the_dashboard_asks_for_nothing_that_is_not_told() {
        let mut run = run();
        run.trials = Some((4, 1));
        run.interval(&interval(0, 10, 0));
        let (_, recent) = run.recent.as_mut().unwrap();
        let flow = Flow {
            begin_s: 0.0,
            end_s: 1.0,
            cores: Some(1.5),
            disk_queue: Some(2.0),
            disk_reads_per_s: Some(3.0),
            disk_writes_per_s: Some(4.0),
            disk_flushes_per_s: Some(5.0),
            network_in_mb_per_s: Some(6.0),
            network_out_mb_per_s: Some(7.0),
        };
        recent.timeline.nodes.insert("a".into(), vec![flow]);
        let told = text(&run).unwrap();
        let dashboard = include_str!("../../../../docs/grafana-dashboard.json");
        let asked: BTreeSet<&str> = dashboard
            .match_indices("tipover_")
            .map(|(at, _)| {
                let rest = &dashboard[at..];
                &rest[..rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap()]
            })
            .collect();
        assert!(asked.len() > 10, "{asked:?}");
        for name in asked {
            let family = ["_total", "_bucket"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(told.contains(&format!("# TYPE {family} ")), "{name} is asked for and not told");
        }
        assert_eq!(value(&told, "tipover_node_disk_queue{node=\"a\"}"), 2.0);
    }
}
