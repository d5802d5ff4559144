//! Laws of one row: one product of cells equals another, or is at most another.

use super::quantity::{Dimension, Quantity, printed, significant};
use super::table::{Row, Span, Table};
use super::{Audit, Law, Severity};
use Quantity::{
    AddedLatency, Await, Bandwidth, BandwidthGate, CacheSize, Clients, DataSize, DeclaredSize, DeviceRate,
    Duration, Gate, HitRatio, Mean, OfferedRate, Queue, Records, RequestSize, Rotation, Samples, ServiceTime,
    Sessions, Throughput, Utilization, ValueSize, WriteBandwidth, WriteShare,
};

/// How the two products relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    AtMost,
}

/// `factor` × product of `left`, related to the product of `right`.
pub(super) struct Product {
    pub law: Law,
    factor: f64,
    pub left: &'static [Quantity],
    pub right: &'static [Quantity],
    pub relation: Relation,
    /// A word that the row must have: name and value. The law is not about other rows.
    only: Option<(&'static str, &'static str)>,
}

/// Name, formula, tolerance, why, severity, what stands nevertheless.
const fn law(
    name: &'static str,
    formula: &'static str,
    tolerance: f64,
    why: &'static str,
    severity: Severity,
    nevertheless: &'static str,
) -> Law {
    Law { name, formula, tolerance, why, severity, nevertheless }
}

const fn equal(law: Law, left: &'static [Quantity], right: &'static [Quantity]) -> Product {
    Product { law, factor: 1.0, left, right, relation: Relation::Equal, only: None }
}

const fn at_most(law: Law, left: &'static [Quantity], right: &'static [Quantity]) -> Product {
    Product { law, factor: 1.0, left, right, relation: Relation::AtMost, only: None }
}

use Severity::{Broken, Doubtful};

/// Little 1961; Denning & Buzen 1978 for the operational laws; the rest is arithmetic or mechanics.
pub(super) const PRODUCTS: &[Product] = &[
    equal(
        law(
            "Little's law",
            "clients = throughput × mean residence",
            0.03,
            "sessions start and end, and count operations at the edges of the window",
            Broken,
            "Throughput and latency cannot both belong to this number of clients; ratios to other rows that use \
             the faulty cell fall with it, those that use the others stand.",
        ),
        &[Clients],
        &[Throughput, Mean],
    ),
    at_most(
        law(
            "Little's bound",
            "throughput × mean residence ≤ sessions",
            0.03,
            "operations in flight at the edges of the window",
            Broken,
            "Throughput and latency cannot both belong to this number of sessions.",
        ),
        &[Throughput, Mean],
        &[Sessions],
    ),
    equal(
        law(
            "Little's law at the device",
            "queue = request rate × await",
            0.03,
            "the kernel samples the queue and books await when a request ends",
            Broken,
            "One of queue, rate and await is wrong; the bandwidth law says whether it is the rate.",
        ),
        &[Queue],
        &[DeviceRate, Await],
    ),
    equal(
        law(
            "Utilization law",
            "utilization = request rate × svctm",
            0.02,
            "iostat computes svctm from the other two, so that only rounding can part them",
            Broken,
            "svctm says nothing of its own, so nothing is lost with it.",
        ),
        &[Utilization],
        &[DeviceRate, ServiceTime],
    ),
    equal(
        law(
            "Bandwidth law",
            "bandwidth = request rate × mean request size",
            0.02,
            "all three are counted from the same requests",
            Broken,
            "One of the three is wrong; Little's law at the device says whether it is the rate.",
        ),
        &[Bandwidth],
        &[DeviceRate, RequestSize],
    ),
    equal(
        law(
            "Counting",
            "operations = throughput × duration",
            0.02,
            "operations in flight at the edges of the window, and start and end of the sessions",
            Broken,
            "Latencies do not depend on it.",
        ),
        &[Samples],
        &[Throughput, Duration],
    ),
    equal(
        law(
            "Size of the data",
            "data = records × bytes of a record",
            0.10,
            "keys, indexes and page overhead, and 1000 for 1024",
            Doubtful,
            "Shares of the cache are as uncertain as the size of the data.",
        ),
        &[DataSize],
        &[Records, ValueSize],
    ),
    at_most(
        law(
            "Request gate",
            "request rate ≤ provisioned requests per second",
            0.02,
            "the gate's accounting window against the tool's",
            Broken,
            "The gate is not what it was said to be, or requests were counted above merging or caching: this row \
             measures no disk of that name, and what was concluded from the gate does not follow.",
        ),
        &[DeviceRate],
        &[Gate],
    ),
    at_most(
        law(
            "Bandwidth gate",
            "bandwidth ≤ provisioned bandwidth",
            0.02,
            "the gate's accounting window against the tool's",
            Broken,
            "The gate is not what it was said to be.",
        ),
        &[Bandwidth],
        &[BandwidthGate],
    ),
    at_most(
        law(
            "Added latency",
            "latency that the device adds ≤ await",
            0.02,
            "timers",
            Broken,
            "The device did not add what it was said to add.",
        ),
        &[AddedLatency],
        &[Await],
    ),
    at_most(
        law(
            "Share of time",
            "utilization ≤ 100 %",
            0.005,
            "sampling of the kernel's clock",
            Broken,
            "Other columns do not depend on it.",
        ),
        &[Utilization],
        &[],
    ),
    at_most(
        law(
            "Share of look-ups",
            "hit ratio ≤ 100 %",
            0.0,
            "a share has no other excuse",
            Broken,
            "Other columns do not depend on it.",
        ),
        &[HitRatio],
        &[],
    ),
    Product {
        law: law(
            "Hits of uniform access",
            "hit ratio × data ≤ cache",
            0.05,
            "compression, pages that are only partly of interest, 1000 for 1024",
            Broken,
            "Access was not uniform, the cache was larger, or the ratio counts something else.",
        ),
        factor: 1.0,
        left: &[HitRatio, DataSize],
        right: &[CacheSize],
        relation: Relation::AtMost,
        only: Some(("distribution", "uniform")),
    },
    Product {
        law: law(
            "Flush and medium",
            "½ turn of the medium ≤ mean latency of a flushed write",
            0.10,
            "the spread of rotational positions",
            Broken,
            "The write was acknowledged by a volatile cache or not flushed at all: it measures the path, and not \
             what durability costs. The ratio to other media is not the ratio of the media.",
        ),
        factor: 0.5,
        left: &[],
        right: &[Rotation, Mean],
        relation: Relation::AtMost,
        only: Some(("flushed", "true")),
    },
    at_most(
        law(
            "Bytes written",
            "offered rate × write share × value size ≤ written bandwidth",
            0.05,
            "compression is not counted for: values of load generators do not compress",
            Doubtful,
            "Fewer operations were carried out than offered, or not all of them reached the log.",
        ),
        &[OfferedRate, WriteShare, ValueSize],
        &[WriteBandwidth],
    ),
    at_most(
        law(
            "Requests in flight",
            "queue ≤ clients",
            0.05,
            "sessions that wait for their one operation",
            Doubtful,
            "Readahead or splitting makes several requests of one operation: await is not what a client waits, \
             and threads per disk cannot be read off it.",
        ),
        &[Queue],
        &[Clients],
    ),
    at_most(
        law(
            "Declared request size",
            "request size at the device ≤ declared request size",
            0.05,
            "metadata among the requests",
            Doubtful,
            "The device saw other requests than the program sent (readahead, merging, a larger block): its figures \
             hold for those.",
        ),
        &[RequestSize],
        &[DeclaredSize],
    ),
];

impl Product {
    fn side(&self, row: &Row, quantities: &[Quantity], factor: f64) -> Option<Span> {
        quantities
            .iter()
            .try_fold(Span::exact(factor), |product, quantity| Some(product * row.span(*quantity)?))
    }

    /// Both sides, when all cells are there.
    pub fn sides(&self, row: &Row) -> Option<(Span, Span)> {
        Some((self.side(row, self.left, self.factor)?, self.side(row, self.right, 1.0)?))
    }

    /// Whether the law is about this row.
    pub fn concerns(&self, row: &Row) -> bool {
        self.only.is_none_or(|(word, value)| row.words.get(word).is_some_and(|found| found == value))
    }

    /// Whether it holds within its tolerance; `None` where a cell is missing.
    pub fn holds(&self, row: &Row) -> Option<bool> {
        let (left, right) = self.sides(row)?;
        Some(match self.relation {
            Relation::Equal => left.widened(self.law.tolerance).meets(right),
            Relation::AtMost => left.low <= right.high * (1.0 + self.law.tolerance),
        })
    }

    /// All cells of the law.
    pub fn cells(&self) -> impl Iterator<Item = Quantity> {
        self.left.iter().chain(self.right).copied()
    }

    /// What one cell alone would have to be, and whether a mistaken unit explains it.
    fn restore(&self, row: &Row, left: Span, right: Span) -> Vec<String> {
        let missing = right.middle() / left.middle();
        let mut said = Vec::new();
        for quantity in self.cells() {
            // What a medium is does not change by being printed otherwise.
            let Some(span) = row.span(quantity).filter(|_| quantity != Quantity::Rotation) else { continue };
            let factor = if self.left.contains(&quantity) { missing } else { missing.recip() };
            let bound = match (self.relation, self.left.contains(&quantity)) {
                (Relation::Equal, _) => "",
                (Relation::AtMost, true) => "at most ",
                (Relation::AtMost, false) => "at least ",
            };
            if (span.middle() * factor).is_finite() {
                said.push(format!("{quantity} {bound}{}", printed(quantity, span.middle() * factor)));
            }
        }
        let sized = self.cells().any(|q| matches!(q.dimension(), Dimension::Size | Dimension::Bandwidth));
        // Small factors are slips between 1000 and 1024, which only sizes know.
        if sized || !(0.9..1.1).contains(&missing) {
            said.extend(unit_slip(missing, self.law.tolerance));
        }
        said
    }
}

/// Factors by which units are mistaken.
const SLIPS: &[(f64, &str)] = &[
    (1000.0, "a factor 1000: ms for s, k for M, or the like"),
    (1e6, "a factor 10⁶: µs for s, or the like"),
    (8.0, "a factor 8: bits for bytes"),
    (1.048_576, "a factor 1.049: MB for MiB"),
    (1.073_741_824, "a factor 1.074: GB for GiB"),
    (60.0, "a factor 60: minutes for seconds"),
    (100.0, "a factor 100: per cent for a share"),
];

/// The mistaken unit that explains a ratio, if there is one.
pub(super) fn unit_slip(ratio: f64, tolerance: f64) -> Option<String> {
    let near = |factor: f64| {
        (ratio / factor - 1.0).abs() <= tolerance.clamp(0.005, 0.03).min((factor - 1.0).abs() / 3.0)
    };
    SLIPS
        .iter()
        .find(|(factor, _)| near(*factor) || near(factor.recip()))
        .map(|(_, words)| (*words).to_string())
}

/// Applies all products to all rows.
pub(super) fn check(table: &Table, audit: &mut Audit) {
    for product in PRODUCTS {
        for (number, row) in table.rows.iter().enumerate() {
            if !product.concerns(row) {
                continue;
            }
            match product.holds(row) {
                None => {
                    let lacks = product.cells().filter(|q| row.span(*q).is_none()).map(Quantity::name);
                    audit.not_checked(&product.law, lacks);
                }
                Some(true) => audit.held(&product.law),
                Some(false) => broken(product, table, number, audit),
            }
        }
    }
    declared_mix(table, audit);
}

fn broken(product: &Product, table: &Table, number: usize, audit: &mut Audit) {
    let row = &table.rows[number];
    let Some((left, right)) = product.sides(row) else { return };
    let cells: Vec<String> = product.cells().map(|quantity| row.show(quantity)).collect();
    let relation = if product.relation == Relation::Equal { "is not" } else { "is more than" };
    let off = if product.relation == Relation::Equal {
        right.middle() / left.middle() - 1.0
    } else {
        left.middle() / right.middle() - 1.0
    };
    let numbers = format!(
        "{}: {} {relation} {}",
        cells.join(", "),
        significant(left.middle()),
        significant(right.middle())
    );
    let place = format!("{}, {}", table.name, row.name);
    let mut finding = product.law.finding(place, cells, numbers, off.is_finite().then_some(off));
    finding.restore = product.restore(row, left, right);
    finding.restore.extend(exchange(product, table, number));
    audit.found(finding);
}

/// If two rows break the same law and exchanging one measured column between them mends both: says so.
fn exchange(product: &Product, table: &Table, number: usize) -> Vec<String> {
    let mut said = Vec::new();
    let own = &table.rows[number];
    for (other_number, other) in table.rows.iter().enumerate() {
        if other_number == number || product.holds(other) != Some(false) {
            continue;
        }
        for quantity in product.cells() {
            let (Some(mine), Some(theirs)) = (own.values.get(&quantity), other.values.get(&quantity)) else {
                continue;
            };
            let (mut a, mut b) = (own.clone(), other.clone());
            a.values.insert(quantity, *theirs);
            b.values.insert(quantity, *mine);
            if product.holds(&a) == Some(true) && product.holds(&b) == Some(true) {
                said.push(format!(
                    "exchanging {quantity} with {} mends both rows: {} here, {} there",
                    other.name,
                    printed(quantity, theirs.span.middle()),
                    printed(quantity, mine.span.middle())
                ));
            }
        }
    }
    said.truncate(3);
    said
}

pub(super) const MIX: Law = law(
    "Declared load",
    "share of writes at the device ≈ declared share of writes",
    0.9,
    "caches delay and join writes, but in the steady state some of them reach the device",
    Broken,
    "The device's figures hold for reads alone; nothing was learned about the declared mix.",
);

/// A load that writes must be seen writing.
fn declared_mix(table: &Table, audit: &mut Audit) {
    for row in &table.rows {
        let (Some(declared), Some(reads), Some(writes)) =
            (row.span(WriteShare), row.span(Quantity::ReadRate), row.span(Quantity::WriteRate))
        else {
            let cells = [WriteShare, Quantity::ReadRate, Quantity::WriteRate];
            audit.not_checked(&MIX, cells.into_iter().filter(|q| row.span(*q).is_none()).map(Quantity::name));
            continue;
        };
        let expected = declared.middle();
        let seen = (writes / (reads + writes)).high;
        if seen >= expected * (1.0 - MIX.tolerance) {
            audit.held(&MIX);
            continue;
        }
        let cells = vec![row.show(WriteShare), row.show(Quantity::ReadRate), row.show(Quantity::WriteRate)];
        let numbers = format!(
            "{} % of the operations should write; at most {} % of the device's requests do",
            significant(expected * 100.0),
            significant(seen * 100.0)
        );
        let mut finding = MIX.finding(format!("{}, {}", table.name, row.name), cells, numbers, None);
        let wanted = reads.middle() * expected / (1.0 - expected);
        finding.restore = vec![format!("write rate about {}", printed(Quantity::WriteRate, wanted))];
        audit.found(finding);
    }
}
