//! Two results side by side: the same figures of the same cells, trial by trial, and what may be said of
//! their difference. Results of other programs count as trials with the figures that they printed.

use super::Disturbances;
use std::collections::{BTreeMap, BTreeSet};
use tipover_core::audit::{Quantity, Study};
use tipover_core::learn::{self, Seen};
use tipover_core::measure::{
    ChangePoint, ChangeRule, ChangeTest, CompareRule, Comparison, Difference, Samples, change_points,
    compare, correct, noise_floor, values_needed,
};
use tipover_core::record::Record;
use tipover_core::units::significant;

/// A figure that two results can have in common. The order is that of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// Operations done per second.
    Throughput,
    /// Mean residence in milliseconds.
    Mean,
    /// A percentile of residence, in thousandths of a percent, in milliseconds.
    Percentile(u32),
    /// Share of operations that failed.
    Failed,
    /// Share that a statement has of all calls, in percent.
    Share,
    /// Rows that a call of a statement brought or changed.
    Rows,
    /// Pages found in the cache, of all that were asked for, in percent.
    Hits,
}

impl Figure {
    /// For people.
    pub fn name(self) -> String {
        match self {
            Figure::Throughput => "throughput".into(),
            Figure::Mean => "mean residence".into(),
            Figure::Percentile(thousandths) => format!("p{}", f64::from(thousandths) / 1_000.0),
            Figure::Failed => "failed operations".into(),
            Figure::Share => "share of all calls".into(),
            Figure::Rows => "rows of a call".into(),
            Figure::Hits => "hit ratio".into(),
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Figure::Throughput => "ops/s",
            Figure::Mean | Figure::Percentile(_) => "ms",
            Figure::Failed | Figure::Share | Figure::Hits => "%",
            Figure::Rows => "rows",
        }
    }

    /// Whether more of it is better.
    pub fn more_is_better(self) -> bool {
        self == Figure::Throughput
    }

    /// Whether it describes a load, of which another one is neither better nor worse.
    pub fn is_of_a_load(self) -> bool {
        matches!(self, Figure::Share | Figure::Rows | Figure::Hits)
    }
}

/// What one trial says about one figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Which trial: repeat, or number of the file.
    pub trial: u32,
    /// When it was made, in seconds since 1970; 0 where that is not known.
    pub at_unix_s: u64,
    /// In the figure's unit.
    pub value: f64,
}

/// One result: figures by cell.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    /// What people call it.
    pub name: String,
    /// By cell and figure, trials in their order.
    pub cells: BTreeMap<String, BTreeMap<Figure, Vec<Observation>>>,
    /// The twins of trials, measured once more in the same blocks: the noise floor of this side.
    pub twins: BTreeMap<String, BTreeMap<Figure, Vec<Observation>>>,
    /// Trials that were left out, as sentences.
    pub left_out: Vec<String>,
    /// Names of the runs that its trials belong to; two sides of one run were measured in blocks.
    pub runs: BTreeSet<String>,
    /// Commits of Tipover that made it.
    pub commits: BTreeSet<String>,
    /// What our own records say of whatever may have disturbed their trials.
    pub disturbances: Vec<Disturbances>,
}

/// A percentile is taken from a trial only with ten samples beyond it.
const BEYOND: f64 = 10.0;

impl Side {
    /// An empty side.
    pub fn new(name: &str) -> Self {
        Side { name: name.into(), ..Side::default() }
    }

    /// Adds a trial of ours, found in the results folder `run`.
    pub fn add_record(&mut self, record: &Record, run: &str) {
        let Some(measured) = record.measured.as_ref().filter(|_| record.is_valid()) else {
            self.left_out.push(format!("{} repeat {}: not a valid trial", record.cell, record.repeat));
            return;
        };
        self.runs.insert(run.into());
        self.commits.insert(record.provenance.commit.clone());
        self.disturbances.extend(Disturbances::of(record));
        let labels: Vec<String> =
            record.labels.iter().map(|(axis, label)| format!("{axis} {label}")).collect();
        let cell = format!("{}: {}", record.sweep, labels.join(", "));
        let (trial, at_unix_s) = (record.repeat, record.provenance.started_unix_s);
        let mut add = |figure, value: f64| {
            if value.is_finite() {
                let cells = if record.twin { &mut self.twins } else { &mut self.cells };
                put(cells, &cell, figure, Observation { trial, at_unix_s, value });
            }
        };
        add(Figure::Throughput, measured.throughput());
        match measured.books() {
            Ok(books) if books.answered() > 0 => {
                add(Figure::Failed, 100.0 * books.failed() as f64 / books.answered() as f64);
                let residence = books.residence();
                add(Figure::Mean, residence.mean() / 1e6);
                for thousandths in [50_000, 99_000, 99_900] {
                    let quantile = f64::from(thousandths) / 100_000.0;
                    if residence.len() as f64 * (1.0 - quantile) >= BEYOND {
                        let value = residence.value_at_quantile(quantile) as f64 / 1e6;
                        add(Figure::Percentile(thousandths), value);
                    }
                }
            }
            Ok(_) => {}
            Err(error) => self.left_out.push(format!("{}: {error}", record.cell)),
        }
    }

    /// Adds what another program printed, as trial number `trial`.
    pub fn add_study(&mut self, study: &Study, trial: u32) {
        let lacking = study.damaged.iter().chain(&study.left_out);
        self.left_out.extend(lacking.map(|why| format!("{}: {why}", study.name)));
        for table in &study.tables {
            for row in &table.rows {
                for (quantity, figure, factor) in [
                    (Quantity::Throughput, Figure::Throughput, 1.0),
                    (Quantity::Mean, Figure::Mean, 1e3),
                    (Quantity::Percentile(50_000), Figure::Percentile(50_000), 1e3),
                    (Quantity::Percentile(95_000), Figure::Percentile(95_000), 1e3),
                    (Quantity::Percentile(99_000), Figure::Percentile(99_000), 1e3),
                    (Quantity::Percentile(99_900), Figure::Percentile(99_900), 1e3),
                ] {
                    if let Some(span) = row.span(quantity) {
                        let cell = format!("{}: {}", table.name, row.name);
                        let value = span.middle() * factor;
                        put(&mut self.cells, &cell, figure, Observation { trial, at_unix_s: 0, value });
                    }
                }
            }
        }
    }

    /// Adds what was seen of a server's load: every part of the interval counts as a trial.
    pub fn add_learned(&mut self, seen: &Seen) {
        /// A rarer statement's share is mostly chance.
        const LEAST_CALLS: u64 = 20;
        let (mut rare, parts) = (0, seen.parts.len() as u64);
        for (number, statement) in seen.statements.iter().enumerate() {
            if statement.calls < LEAST_CALLS * parts {
                rare += 1;
                continue;
            }
            let read = learn::Statement::read(&statement.text, seen.dialect);
            let cell = read.map_or_else(|| statement.text.clone(), |read| read.shape);
            for (trial, part) in seen.parts.iter().enumerate() {
                let all: u64 = part.statements.iter().map(|(calls, _)| calls).sum();
                let (calls, rows) = part.statements[number];
                let mut add = |figure, value: f64| {
                    let observation = Observation { trial: trial as u32, at_unix_s: 0, value };
                    put(&mut self.cells, &cell, figure, observation);
                };
                if all > 0 {
                    add(Figure::Share, 100.0 * calls as f64 / all as f64);
                }
                if calls > 0 {
                    add(Figure::Rows, rows as f64 / calls as f64);
                }
            }
        }
        for (trial, part) in seen.parts.iter().enumerate().filter(|(_, part)| part.pages > 0.0) {
            let value = 100.0 * (1.0 - part.page_reads / part.pages);
            let observation = Observation { trial: trial as u32, at_unix_s: 0, value };
            put(&mut self.cells, "all statements", Figure::Hits, observation);
        }
        if rare > 0 {
            self.left_out.push(format!("{rare} statements with fewer than {LEAST_CALLS} calls a part"));
        }
    }

    /// A side that is one configuration is called "all", so that results of two configurations, or of two
    /// programs, can be compared. Sides with a cell in common are compared by their names.
    fn with_single_cell_renamed(&self, other: &Side) -> Side {
        let mut side = self.clone();
        let common = self.cells.keys().any(|cell| other.cells.contains_key(cell));
        if (!common || self.cells.len() == 1 && other.cells.len() == 1)
            && let (Some(figures), Some(_)) = (self.as_one(), other.as_one())
        {
            side.cells = BTreeMap::from([("all".to_string(), figures)]);
            side.twins = side.twins.into_values().map(|figures| ("all".to_string(), figures)).collect();
        }
        side
    }

    /// The figures of the only configuration. Another program prints one configuration in several rows:
    /// throughput in one, latencies of a class of operations in another; a figure on which two of them differ
    /// is of neither.
    fn as_one(&self) -> Option<BTreeMap<Figure, Vec<Observation>>> {
        if self.cells.len() == 1 {
            return self.cells.values().next().cloned();
        }
        if !self.runs.is_empty() {
            return None;
        }
        let mut merged: BTreeMap<Figure, Vec<&Vec<Observation>>> = BTreeMap::new();
        for (figure, observations) in self.cells.values().flatten() {
            merged.entry(*figure).or_default().push(observations);
        }
        let unique = merged.into_iter().filter(|(_, all)| all.iter().all(|one| *one == all[0]));
        let unique: BTreeMap<_, _> = unique.map(|(figure, all)| (figure, all[0].clone())).collect();
        (!unique.is_empty()).then_some(unique)
    }

    /// The values of a figure that was compared, one per trial.
    pub fn values(&self, compared: &Compared) -> Vec<f64> {
        // Sides of one configuration each are compared under another name.
        let figures = self.cells.get(&compared.cell).cloned().or_else(|| self.as_one());
        figures.and_then(|figures| figures.get(&compared.figure).map(|all| values(all))).unwrap_or_default()
    }

    /// Every cell that has twins, compared with them: an A/A test, in pairs of one block. What it shows is
    /// noise.
    pub fn with_its_twins(&self) -> Vec<Compared> {
        let twins = Side { name: "again".into(), cells: self.twins.clone(), ..Side::default() };
        let cells = self.cells.iter().filter(|(cell, _)| self.twins.contains_key(*cell));
        let same = Side {
            name: self.name.clone(),
            cells: cells.map(|(cell, figures)| (cell.clone(), figures.clone())).collect(),
            ..Side::default()
        };
        let rule = CompareRule { paired: true, ..CompareRule::default() };
        family(&same, &twins, |_| rule, &mut vec![])
    }
}

fn put(
    cells: &mut BTreeMap<String, BTreeMap<Figure, Vec<Observation>>>,
    cell: &str,
    figure: Figure,
    observation: Observation,
) {
    cells.entry(cell.into()).or_default().entry(figure).or_default().push(observation);
}

/// One figure of one cell on both sides.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The cell.
    pub cell: String,
    /// The figure.
    pub figure: Figure,
    /// What may be said.
    pub comparison: Comparison,
}

impl Compared {
    /// Whether B is worse than A.
    pub fn is_worse(&self) -> bool {
        match self.comparison.verdict {
            Difference::Higher | Difference::Lower if self.figure.is_of_a_load() => true,
            Difference::Higher => !self.figure.more_is_better(),
            Difference::Lower => self.figure.more_is_better(),
            Difference::None | Difference::TooFew => false,
        }
    }

    /// Whether there is a difference at all.
    pub fn differs(&self) -> bool {
        matches!(self.comparison.verdict, Difference::Higher | Difference::Lower)
    }

    /// Whether there are too few trials to say anything.
    pub fn cannot_tell(&self) -> bool {
        self.comparison.verdict == Difference::TooFew
    }
}

/// Both sides compared.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ComparedSides {
    /// In the order of cells and figures; p corrected for all of them.
    pub all: Vec<Compared>,
    /// What could not be compared, as sentences.
    pub not_compared: Vec<String>,
    /// Cells of the first side that the second has not: nobody can tell what became of them.
    pub missing: Vec<String>,
    /// Whether trials were taken as pairs of one block.
    pub paired: bool,
    /// By figure, the largest shift that a side compared with itself showed, as a share; empty if that was
    /// not measured. A p99 is noisier than a throughput and must not hide its changes.
    pub noise_floors: BTreeMap<Figure, f64>,
    /// Where the noise floor comes from.
    pub noise_from: NoiseFrom,
}

impl ComparedSides {
    /// Whether it is known of everything on the first side that the second is not worse.
    pub fn held(&self) -> bool {
        self.missing.is_empty() && !self.all.iter().any(|c| c.is_worse() || c.cannot_tell())
    }
}

/// Who measured the noise floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NoiseFrom {
    /// Nobody.
    #[default]
    Nothing,
    /// The first side measured once more, as another run.
    AnotherRun,
    /// Twins of trials in the runs themselves.
    Twins,
}

/// Compares B with A. `again` is A measured once more, for the noise floor.
pub fn compare_sides(a: &Side, b: &Side, again: Option<&Side>, least: f64, p: f64) -> ComparedSides {
    let (a, b) = (a.with_single_cell_renamed(b), b.with_single_cell_renamed(a));
    // Blocks: both sides were measured in one run, repeat by repeat.
    let paired = a.runs.len() == 1 && a.runs == b.runs && a.commits == b.commits;
    let rule = CompareRule { p, least, ..CompareRule::default() };
    let mut found = ComparedSides { paired, ..ComparedSides::default() };
    let same = match again {
        Some(again) => {
            found.noise_from = NoiseFrom::AnotherRun;
            let again = again.with_single_cell_renamed(&a);
            family(&a, &again, |_| CompareRule { paired: false, ..rule }, &mut vec![])
        }
        None => a.with_its_twins().into_iter().chain(b.with_its_twins()).collect(),
    };
    if again.is_none() && !same.is_empty() {
        found.noise_from = NoiseFrom::Twins;
    }
    let mut by_figure: BTreeMap<Figure, Vec<Comparison>> = BTreeMap::new();
    for compared in same {
        by_figure.entry(compared.figure).or_default().push(compared.comparison);
    }
    found.noise_floors = by_figure.iter().map(|(figure, all)| (*figure, noise_floor(all))).collect();
    let floors = found.noise_floors.clone();
    let rule =
        |figure| CompareRule { paired, noise_floor: floors.get(&figure).copied().unwrap_or(0.0), ..rule };
    found.all = family(&a, &b, rule, &mut found.not_compared);
    found.missing = a.cells.keys().filter(|cell| !b.cells.contains_key(*cell)).cloned().collect();
    let mut comparisons: Vec<Comparison> = found.all.iter().map(|c| c.comparison.clone()).collect();
    correct(&mut comparisons);
    for (compared, comparison) in found.all.iter_mut().zip(comparisons) {
        compared.comparison = comparison;
    }
    found
}

fn family(
    a: &Side,
    b: &Side,
    rule: impl Fn(Figure) -> CompareRule,
    not_compared: &mut Vec<String>,
) -> Vec<Compared> {
    let mut all = Vec::new();
    for (cell, figures) in &a.cells {
        let Some(others) = b.cells.get(cell) else {
            not_compared.push(format!("{cell}: only in {}", a.name));
            continue;
        };
        for (figure, mine) in figures {
            let Some(theirs) = others.get(figure) else {
                not_compared.push(format!("{cell}, {}: only in {}", figure.name(), a.name));
                continue;
            };
            let rule = rule(*figure);
            let (x, y) = if rule.paired { pairs(mine, theirs) } else { (values(mine), values(theirs)) };
            // Nothing failed on either side: there is nothing to compare, and nothing amiss.
            if x.iter().chain(&y).all(|value| *value == 0.0) {
                continue;
            }
            let sample = |side: &Side, values| Samples { name: side.name.clone(), values };
            match compare(&sample(a, x), &sample(b, y), &rule) {
                Ok(comparison) => all.push(Compared { cell: cell.clone(), figure: *figure, comparison }),
                Err(error) => not_compared.push(format!("{cell}, {}: {error}", figure.name())),
            }
        }
    }
    not_compared.extend(
        b.cells.keys().filter(|c| !a.cells.contains_key(*c)).map(|c| format!("{c}: only in {}", b.name)),
    );
    all
}

fn values(observations: &[Observation]) -> Vec<f64> {
    observations.iter().map(|observation| observation.value).collect()
}

/// The trials that both sides have, in the same order.
fn pairs(mine: &[Observation], theirs: &[Observation]) -> (Vec<f64>, Vec<f64>) {
    let by_trial: BTreeMap<u32, f64> = theirs.iter().map(|o| (o.trial, o.value)).collect();
    mine.iter().filter_map(|o| Some((o.value, *by_trial.get(&o.trial)?))).unzip()
}

/// The course of one figure of one cell over many results, and where its level changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Course {
    /// The cell.
    pub cell: String,
    /// The figure.
    pub figure: Figure,
    /// Name of the result and value, oldest first.
    pub values: Vec<(String, f64)>,
    /// Where it changed.
    pub changes: Vec<ChangePoint>,
    /// Fewest values that can show a change; fewer than that can say nothing.
    pub needed: usize,
}

impl Course {
    /// Whether there are too few values to say anything.
    pub fn cannot_tell(&self) -> bool {
        self.values.len() < self.needed
    }

    /// Whether it changed for the worse when it last changed.
    pub fn got_worse(&self) -> bool {
        let last = self.changes.last();
        let is_worse = |change: &ChangePoint| (change.after < change.before) == self.figure.more_is_better();
        last.is_some_and(|change| self.figure.is_of_a_load() || is_worse(change))
    }
}

/// The history of all cells and figures over `sides`, which are put into the order of their time where that
/// is known. A change is one of at least the share `least`, with a p below `p` after correction for all
/// figures. Courses with changes come first.
pub fn history(sides: &[Side], least: f64, p: f64) -> Vec<Course> {
    /// Time, number of the side, value.
    type Dated = (u64, usize, f64);
    let mut courses: BTreeMap<(String, Figure), Vec<Dated>> = BTreeMap::new();
    for (number, side) in sides.iter().enumerate() {
        for (cell, figures) in &side.cells {
            for (figure, observations) in figures {
                let course = courses.entry((cell.clone(), *figure)).or_default();
                course.extend(observations.iter().map(|o| (o.at_unix_s, number, o.value)));
            }
        }
    }
    // Bonferroni: the chance of any false alarm in all figures stays below p.
    let most_p = p / courses.len().max(1) as f64;
    let test = ChangeTest::Permutations;
    let rule = ChangeRule { most_p, least_change: least, test, ..ChangeRule::default() };
    let needed = values_needed(most_p);
    let mut courses: Vec<Course> = courses
        .into_iter()
        .map(|((cell, figure), mut values)| {
            values.sort_by_key(|(at, number, _)| (*at, *number));
            let series: Vec<f64> = values.iter().map(|(.., value)| *value).collect();
            let values = values.iter().map(|(_, number, v)| (sides[*number].name.clone(), *v)).collect();
            Course { cell, figure, values, changes: change_points(&series, &rule), needed }
        })
        .collect();
    courses.sort_by_key(|course| course.changes.is_empty());
    courses
}

/// "throughput of reads: 12 % lower from b on".
pub fn change_in_words(course: &Course, change: &ChangePoint) -> String {
    let share = change.change();
    let by = match share {
        share if share.is_finite() => format!("{} %", significant(100.0 * share.abs(), 2)),
        _ => "from nothing".into(),
    };
    let direction = if change.after > change.before { "higher" } else { "lower" };
    let from = course.values.get(change.at).map_or("", |(name, _)| name.as_str());
    format!("{} of {}: {by} {direction} from {from} on", course.figure.name(), course.cell)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::workload::Random;

    /// `n` trials around `level` with 3 % noise.
    fn side(name: &str, run: &str, level: f64, n: u32) -> Side {
        let mut side = Side::new(name);
        side.runs.insert(run.into());
        let mut random = Random::new(name.len() as u64, level as u64);
        for trial in 0..n {
            let value = level * (1.0 + 0.03 * (random.unit() + random.unit() - 1.0));
            let observation = Observation { trial, at_unix_s: u64::from(trial), value };
            put(&mut side.cells, "reads: disk slow", Figure::Throughput, observation.clone());
            let mean = Observation { value: 16.0 / observation.value * 1e3, ..observation };
            put(&mut side.cells, "reads: disk slow", Figure::Mean, mean);
            let nothing = Observation { trial, at_unix_s: 0, value: 0.0 };
            put(&mut side.cells, "reads: disk slow", Figure::Failed, nothing);
        }
        side
    }

    #[test]
    fn a_configuration_with_itself_shows_no_difference() {
        let found =
            compare_sides(&side("a", "1", 1000.0, 8), &side("again", "2", 1001.0, 8), None, 0.02, 0.01);
        assert_eq!(found.all.len(), 2, "what failed on neither side is not compared: {found:?}");
        assert!(found.all.iter().all(|c| !c.differs() && !c.is_worse()));
        assert!(found.all[0].comparison.sentence().starts_with("no difference"));
    }

    #[test]
    fn worse_is_lower_throughput_and_higher_latency() {
        let (a, b) = (side("a", "1", 1000.0, 8), side("b", "2", 800.0, 8));
        let found = compare_sides(&a, &b, None, 0.02, 0.01);
        assert!(found.all.iter().all(Compared::is_worse), "{found:?}");
        assert!(!compare_sides(&b, &a, None, 0.02, 0.01).all.iter().any(Compared::is_worse));
        // A noise floor above the difference swallows it.
        let again = side("again", "3", 1400.0, 8);
        let floored = compare_sides(&a, &b, Some(&again), 0.02, 0.01);
        assert!(
            floored.noise_floors[&Figure::Throughput] > 0.2 && !floored.all.iter().any(Compared::differs),
            "{floored:?}"
        );
    }

    #[test]
    fn what_another_program_printed_in_several_rows_is_one_configuration() {
        let ours = side("ours", "1", 1000.0, 8);
        let mut theirs = Side::new("theirs.txt");
        let observation = |value| Observation { trial: 0, at_unix_s: 0, value };
        put(&mut theirs.cells, "YCSB: OVERALL", Figure::Throughput, observation(900.0));
        put(&mut theirs.cells, "YCSB: READ", Figure::Mean, observation(17.0));
        let found = compare_sides(&ours, &theirs, None, 0.02, 0.01);
        let figures: Vec<Figure> = found.all.iter().map(|c| c.figure).collect();
        assert_eq!(figures, [Figure::Throughput, Figure::Mean], "{:?}", found.not_compared);
        assert_eq!(theirs.values(&found.all[0]), [900.0]);
        // The mean of reads and that of updates: neither is that of the whole.
        put(&mut theirs.cells, "YCSB: UPDATE", Figure::Mean, observation(19.0));
        let found = compare_sides(&ours, &theirs, None, 0.02, 0.01);
        assert_eq!(found.all.len(), 1, "{:?}", found.not_compared);
    }

    #[test]
    fn twins_of_trials_are_the_noise_floor_of_their_figure_and_of_no_other() {
        let (mut a, b) = (side("a", "1", 1000.0, 8), side("b", "2", 800.0, 8));
        assert_eq!(compare_sides(&a, &b, None, 0.02, 0.01).noise_from, NoiseFrom::Nothing);
        // The throughput of the same cell, once more in the same blocks, was 30 % higher.
        let again = side("again", "1", 1300.0, 8).cells["reads: disk slow"][&Figure::Throughput].clone();
        a.twins =
            BTreeMap::from([("reads: disk slow".to_string(), BTreeMap::from([(Figure::Throughput, again)]))]);
        let found = compare_sides(&a, &b, None, 0.02, 0.01);
        assert_eq!(found.noise_from, NoiseFrom::Twins);
        let differs = |figure| found.all.iter().find(|c| c.figure == figure).unwrap().differs();
        assert!(!differs(Figure::Throughput) && differs(Figure::Mean), "{found:?}");
    }

    #[test]
    fn trials_of_one_run_are_compared_in_pairs_by_repeat() {
        let (a, mut b) = (side("a", "1", 1000.0, 9), side("b", "1", 950.0, 9));
        if let Some(trials) = b.cells.get_mut("reads: disk slow").and_then(|c| c.get_mut(&Figure::Throughput))
        {
            trials.remove(0);
        }
        let found = compare_sides(&a, &b, None, 0.02, 0.01);
        assert!(found.paired);
        assert_eq!(found.all[0].comparison.repeats, (8, 8));
    }

    #[test]
    fn what_only_one_side_has_is_said() {
        let a = side("a", "1", 1000.0, 5);
        let mut b = side("b", "2", 1000.0, 5);
        b.cells.insert("other".into(), b.cells["reads: disk slow"].clone());
        let found = compare_sides(&a, &b, None, 0.02, 0.01);
        assert_eq!(found.not_compared, ["other: only in b"]);
        assert!(found.missing.is_empty());
        // The other way round a cell is gone, and nobody can tell whether it is worse.
        let gone = compare_sides(&b, &a, None, 0.02, 0.01);
        assert!(gone.missing == ["other"] && !gone.held(), "{gone:?}");
    }

    #[test]
    fn a_history_names_where_the_level_changed() {
        let sides: Vec<Side> = (0..30u32)
            .map(|n| {
                let mut one = side(&format!("r{n:02}"), "x", if n < 18 { 1000.0 } else { 850.0 }, 1);
                for figures in one.cells.values_mut().flat_map(BTreeMap::values_mut) {
                    figures.iter_mut().for_each(|o| o.at_unix_s = u64::from(n));
                }
                one
            })
            .collect();
        let courses = history(&sides, 0.02, 0.01);
        let throughput = courses.iter().find(|c| c.figure == Figure::Throughput).unwrap();
        assert_eq!(throughput.changes.len(), 1, "{throughput:?}");
        let words = change_in_words(throughput, &throughput.changes[0]);
        assert!(words.contains("lower from r18 on"), "{words}");
        assert!(throughput.got_worse() && !throughput.cannot_tell());
        // What does not matter is no change, and a p that so few trials cannot reach says so.
        let unmoved = |least, p| history(&sides, least, p).iter().all(|course| course.changes.is_empty());
        assert!(unmoved(0.5, 0.01) && !unmoved(0.02, 1e-4) && unmoved(0.02, 1e-9));
        assert!(history(&sides, 0.02, 1e-9).iter().all(Course::cannot_tell));
    }

    /// Three trials of one run, two of which agree to the last digit.
    #[test]
    fn three_trials_are_no_history() {
        let mut three = side("r", "x", 1000.0, 3);
        for figures in three.cells.values_mut().flat_map(BTreeMap::values_mut) {
            figures[1].value = figures[0].value;
            figures[2].value = 1.9 * figures[0].value;
        }
        for course in history(&[three], 0.02, 0.01) {
            assert!(course.changes.is_empty() && course.cannot_tell() && course.needed >= 10, "{course:?}");
        }
        assert!(history(&[], 0.02, 0.01).is_empty());
    }

    /// 4 threads against 8: three trials cannot show even twice as much, and say how many could.
    #[test]
    fn too_few_trials_cannot_tell() {
        let found = compare_sides(&side("a", "1", 1000.0, 3), &side("b", "2", 1890.0, 3), None, 0.02, 0.01);
        assert!(found.all.iter().all(Compared::cannot_tell) && !found.held(), "{found:?}");
        let needed = found.all[0].comparison.trials_needed();
        let enough = u32::try_from(needed).unwrap();
        let found =
            compare_sides(&side("a", "1", 1000.0, enough), &side("b", "2", 1890.0, enough), None, 0.02, 0.01);
        assert!(found.all.iter().all(|c| c.differs() && !c.cannot_tell()), "{found:?}");
        let same =
            compare_sides(&side("a", "1", 1000.0, 8), &side("again", "2", 1001.0, 8), None, 0.02, 0.01);
        assert!(same.held(), "{same:?}");
        assert!(ComparedSides::default().held(), "nothing to compare is refused before");
    }
}
