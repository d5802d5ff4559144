//! The pages of a comparison and of a history.

use super::experiment::number;
use super::{
    Axis, Block, Callout, CalloutKind, Cell, Chart, Column, Coordinate, Fact, Number, On, Page, Point,
    Provenance, ReferenceLine, Row, Section, Series, SeriesKind, Table, Verdict,
};
use crate::study::comparison::{Compared, ComparedSides, Course, NoiseFrom, Side, change_in_words};
use crate::study::disturbed;
use tipover_core::measure::median_of_trials;
use tipover_core::units::significant;

/// From two sides to a page. The command is the one that makes it again.
pub fn of_comparison(a: &Side, b: &Side, found: &ComparedSides, command: &str) -> Page {
    let mut blocks = vec![Block::Table(table(a, b, found))];
    if let Some(chart) = shifts(found) {
        blocks.push(Block::Chart(chart));
    }
    let warning = |text: String| Block::Callout(Callout { kind: CalloutKind::Warning, text });
    blocks.extend(found.not_compared.iter().map(|what| warning(format!("Not compared: {what}"))));
    for side in [a, b] {
        blocks.extend(side.left_out.iter().map(|what| warning(format!("Left out of {}: {what}", side.name))));
    }
    let section = |id: &str, title: &str, blocks| Section { id: id.into(), title: title.into(), blocks };
    Page {
        title: format!("{} against {}", b.name, a.name),
        question: "Is there a difference, how large, and which one could have been seen?".into(),
        headline: headline(found).into_iter().chain([a, b].into_iter().filter_map(disturbance)).collect(),
        sections: vec![
            section("figures", "Figures", blocks),
            section("how", "How it was judged", how(found)),
        ],
        claims: vec![],
        made_by: made_by(command, [a, b].into_iter()),
    }
}

fn made_by<'a>(command: &str, sides: impl Iterator<Item = &'a Side>) -> Provenance {
    let commits = sides.map(|side| {
        let commits: Vec<&str> = side.commits.iter().map(String::as_str).collect();
        Fact::new(&format!("commits of {}", side.name), commits.join(", "))
    });
    Provenance {
        command: command.into(),
        commit: env!("TIPOVER_COMMIT").into(),
        version: env!("CARGO_PKG_VERSION").into(),
        when: "a pure function of the results".into(),
        facts: commits.collect(),
    }
}

fn headline(found: &ComparedSides) -> Vec<String> {
    let worse: Vec<&Compared> = found.all.iter().filter(|c| c.is_worse()).collect();
    let differing = found.all.iter().filter(|c| c.differs()).count();
    let few: Vec<&Compared> = found.all.iter().filter(|c| c.cannot_tell()).collect();
    let needed = few.iter().map(|c| c.comparison.trials_needed()).max().unwrap_or(0);
    let needed = if found.paired { format!("{needed} blocks") } else { format!("{needed} trials of each") };
    let judged = found.all.len() - few.len();
    let cannot_tell = match few.len() {
        0 => String::new(),
        few => format!("; cannot tell in {few}: {needed} are needed"),
    };
    let mut said = vec![match (judged, worse.len(), differing - worse.len()) {
        (0, ..) if few.is_empty() => "The two have nothing in common that could be compared".to_string(),
        (0, ..) => {
            format!(
                "Cannot tell: so few trials can show no difference in any of {} figures, {needed} are needed",
                few.len()
            )
        }
        (n, 0, 0) => {
            let seen = found.all.iter().filter(|c| !c.cannot_tell()).map(|c| c.comparison.detectable);
            let seen = significant(100.0 * seen.fold(0.0, f64::max), 2);
            format!("No difference in {n} figures, each of which would show one of {seen} %{cannot_tell}")
        }
        (n, worse, better) => format!("Of {n} figures {worse} are worse and {better} better{cannot_tell}"),
    }];
    if !found.missing.is_empty() {
        let cells = found.missing.join("; ");
        said.push(format!("Cannot tell what became of cells that only the first side has: {cells}"));
    }
    let mut first = if !worse.is_empty() { worse } else { found.all.iter().collect() };
    first.sort_by(|a, b| b.comparison.shift.value.abs().total_cmp(&a.comparison.shift.value.abs()));
    said.extend(first.into_iter().take(3).map(sentence));
    said
}

/// That a side was measured on a disturbed machine, so that a difference may be its neighbours'.
fn disturbance(side: &Side) -> Option<String> {
    let how = disturbed(&side.disturbances)?;
    Some(format!("Disturbed: while {} was measured {how}", side.name))
}

fn sentence(compared: &Compared) -> String {
    format!("{}, {}: {}", compared.cell, compared.figure.name(), compared.comparison.sentence())
}

fn table(a: &Side, b: &Side, found: &ComparedSides) -> Table {
    let row = |compared: &Compared| {
        let comparison = &compared.comparison;
        let percent = |x: f64| 100.0 * x;
        let unit = compared.figure.unit();
        let (verdict, word) = match (compared.is_worse(), compared.differs()) {
            (true, _) if compared.figure.is_of_a_load() => (Verdict::NotHeld, "another load"),
            (true, _) => (Verdict::NotHeld, "worse"),
            (false, true) => (Verdict::Held, "better"),
            (false, false) if compared.cannot_tell() => (Verdict::Unknown, "cannot tell: too few trials"),
            (false, false) => (Verdict::Held, "no difference"),
        };
        let detectable = match comparison.detectable.is_finite() {
            true => Number::new(percent(comparison.detectable), "%").digits(2).into(),
            false => Cell::missing("too few trials to find any difference"),
        };
        Row::new(vec![
            compared.cell.as_str().into(),
            format!("{} ({unit})", compared.figure.name()).into(),
            middle(comparison.medians.0, a, compared),
            middle(comparison.medians.1, b, compared),
            number(&comparison.shift.scaled(100.0), "%").into(),
            Number::new(comparison.p, "").digits(2).into(),
            Number::new(comparison.cliffs_delta, "").digits(2).into(),
            detectable,
            Cell::verdict(verdict, word),
        ])
    };
    Table {
        caption: format!("{} against {}", b.name, a.name),
        columns: vec![
            Column::words("Cell"),
            Column::words("Figure"),
            Column::numbers(&a.name, "").group("Median"),
            Column::numbers(&b.name, "").group("Median"),
            Column::numbers("Shift", "%"),
            Column::numbers("p", ""),
            Column::numbers("Cliff's δ", ""),
            Column::numbers("Detectable", "%"),
            Column::words("Verdict"),
        ],
        rows: found.all.iter().map(row).collect(),
        how_to_read: "Medians: in brackets their 95 % interval by order statistics, below six trials the range of \
                      the trials. Shift: by how much the second lies above the first, as a share of the first's median \
                      (Hodges and Lehmann), with a 95 % bootstrap interval. p: of the rank test, corrected for all \
                      rows (Holm). Detectable: the smallest difference that this number of trials would have found four times in \
                      five."
            .into(),
    }
}

/// A median with its interval: by order statistics from six trials on, else the range of the trials.
fn middle(median: f64, side: &Side, compared: &Compared) -> Cell {
    let values = side.values(compared);
    let number = Number::new(median, "");
    match (values.as_slice(), median_of_trials(&values)) {
        (_, Ok(estimate)) => number.between(estimate.low.min(median), estimate.high.max(median)),
        ([_] | [], _) => number.of_one_trial(),
        (values, Err(_)) => {
            let least = values.iter().copied().fold(median, f64::min);
            number.between(least, values.iter().copied().fold(median, f64::max))
        }
    }
    .into()
}

fn shift_is_known(compared: &Compared) -> bool {
    compared.comparison.shift.low.is_finite() && compared.comparison.shift.high.is_finite()
}

fn shifts(found: &ComparedSides) -> Option<Chart> {
    let points: Vec<Point> = found
        .all
        .iter()
        .filter(|compared| shift_is_known(compared))
        .map(|compared| {
            let shift = &compared.comparison.shift;
            Point {
                x: Coordinate::Within(compared.cell.clone(), compared.figure.name()),
                y: 100.0 * shift.value,
                low: Some(100.0 * shift.low),
                high: Some(100.0 * shift.high),
                label: compared.comparison.sentence(),
                apart: false,
                weight: None,
            }
        })
        .collect();
    let first = points.first()?;
    assert!(first.y.is_finite(), "shifts of finite samples are finite");
    let threshold = found.all.first().map_or(0.0, |c| 100.0 * c.comparison.rule.least);
    let line = |label: &str, value: f64| ReferenceLine {
        on: On::Y,
        value,
        label: label.into(),
        subject: String::new(),
    };
    Some(Chart {
        id: "shifts".into(),
        title: "Shift of every figure".into(),
        x: Axis::category("cell and figure"),
        y: Axis::linear("shift", "%"),
        series: vec![Series::ours(SeriesKind::Points, "shift", "shift with 95 % interval", points)],
        lines: vec![line("smallest that matters", threshold), line("the same downwards", -threshold)],
        how_to_read:
            "An interval that lies outside of the dashed lines is a difference, unless p or the noise floor \
                      says that chance does as much."
                .into(),
        cannot_say:
            "Higher is better for throughput and worse for latencies. One session on one machine cannot say \
                     that another would show the same."
                .into(),
    })
}

fn how(found: &ComparedSides) -> Vec<Block> {
    let rule = found.all.first().map(|c| c.comparison.rule);
    let percent = |x: f64| format!("{} %", significant(100.0 * x, 2));
    let floors =
        found.noise_floors.iter().map(|(figure, floor)| format!("{} {}", figure.name(), percent(*floor)));
    let floors = floors.collect::<Vec<_>>().join(", ");
    let floor = match found.noise_from {
        NoiseFrom::Nothing => {
            "not measured: put `again = true` into the plan, or give --again, the first side measured \
                               once more"
                .to_string()
        }
        NoiseFrom::AnotherRun => format!("{floors}: the largest shift between the first side and itself"),
        NoiseFrom::Twins => {
            format!("{floors}: the largest shift between trials and their twins in the same blocks")
        }
    };
    vec![Block::Facts(vec![
        Fact::new(
            "trials",
            if found.paired {
                "in pairs: both sides come from one run, block by block"
            } else {
                "as two groups"
            },
        ),
        Fact::new("smallest difference that matters", rule.map_or_else(String::new, |r| percent(r.least))),
        Fact::new("noise floor", floor),
        Fact::new("largest p", rule.map_or_else(String::new, |r| significant(r.p, 2))),
    ])]
}

/// From the courses of many results to a page.
pub fn of_history(sides: &[Side], courses: &[Course], command: &str) -> Page {
    let changes: Vec<String> = courses
        .iter()
        .flat_map(|course| course.changes.iter().map(|change| change_in_words(course, change)))
        .collect();
    let few = courses.iter().filter(|course| course.cannot_tell()).count();
    let needed = courses.iter().map(|course| course.needed).max().unwrap_or(0);
    let (judged, over) = (courses.len() - few, format!("over {} results", sides.len()));
    let mut headline = Vec::new();
    match (judged, changes.len()) {
        (0, _) => {}
        (_, 0) => headline.push(format!("No change of level in {judged} figures {over}")),
        (_, n) => headline.push(format!("{n} changes of level in {judged} figures {over}")),
    }
    if few > 0 {
        headline.push(format!(
            "Cannot tell in {few} figures {over}: no fewer than {needed} trials can show a change of level"
        ));
    }
    headline.extend(changes.into_iter().take(5));
    headline.extend(sides.iter().filter_map(disturbance));
    let sections = courses.iter().enumerate().map(|(number, course)| Section {
        id: format!("course-{number}"),
        title: format!("{}: {}", course.cell, course.figure.name()),
        blocks: vec![Block::Chart(of_course(number, course))],
    });
    Page {
        title: "History".into(),
        question: "When did a figure change its level?".into(),
        headline,
        sections: sections.collect(),
        claims: vec![],
        made_by: made_by(command, sides.iter()),
    }
}

fn of_course(number: usize, course: &Course) -> Chart {
    let points = course.values.iter().enumerate().map(|(place, (name, value))| {
        let change = course.changes.iter().find(|change| change.at == place);
        Point {
            x: Coordinate::Number(place as f64 + 1.0),
            y: *value,
            low: None,
            high: None,
            label: change.map_or_else(|| name.clone(), |change| change_in_words(course, change)),
            apart: false,
            weight: None,
        }
    });
    // Each level as a line of its own, so that the eye sees what the test found.
    let ends = course.changes.iter().map(|c| c.at).chain([course.values.len()]);
    let mut begin = 0;
    let mut levels = Vec::new();
    for end in ends {
        let values = &course.values[begin..end];
        let mean = values.iter().map(|(_, v)| v).sum::<f64>() / values.len().max(1) as f64;
        for place in [begin, end.saturating_sub(1)] {
            let x = Coordinate::Number(place as f64 + 1.0);
            levels.push(Point {
                x,
                y: mean,
                low: None,
                high: None,
                label: String::new(),
                apart: false,
                weight: None,
            });
        }
        begin = end;
    }
    let mut level = Series::ours(SeriesKind::Line, "level", "level", levels);
    level.role = super::Role::Reference;
    Chart {
        id: format!("course-chart-{number}"),
        title: format!("{} of {}", course.figure.name(), course.cell),
        x: Axis::linear("trial, oldest first", ""),
        y: Axis::linear(&course.figure.name(), course.figure.unit()),
        series: vec![Series::ours(SeriesKind::Points, "trial", "trials", points.collect()), level],
        lines: vec![],
        how_to_read: "Dashed: the mean between two changes of level (E-divisive, p by permutations, corrected for all \
                      figures)."
            .into(),
        cannot_say: "A change of level has a cause, and this picture does not know it: the machine may have changed as \
                     well as the program."
            .into(),
    }
}
