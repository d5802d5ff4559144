//! What a miss and a request to the disk cost a target's processors.

use super::{MISSES, NO_DISK, Observed, WIDER};
use crate::predict::Range;
use std::collections::BTreeSet;

/// Seconds of processor time beyond those of an operation in cache.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    /// For a page that the engine misses.
    pub miss: Range,
    /// More for each request to the disk.
    pub read: Range,
}

/// One cell: what an operation took beyond one in cache, what it asked for, and how long it lasted, seen from
/// the whole: what a target does whatever is asked of it is spread over the operations of a second.
struct Point {
    beyond: f64,
    asked: [f64; 3],
}

/// From cells that missed the engine's cache, where an operation in cache takes `in_cache`; `None` without
/// any.
///
/// Cells that the page cache answered say what a miss costs by themselves. What else is needed comes from
/// non-negative least squares of relative errors (Lawson & Hanson 1974), with all cells and with each left
/// out; what these give is the range. Where no page cache answered, a target that waits, and is woken, is
/// hardly told from one that misses: then a miss costs between nothing and what is left where a request to
/// the disk costs as much as a miss, which is the least that it can.
pub(super) fn cost(cells: &[&Observed], in_cache: f64) -> Option<Cost> {
    let telling: Vec<&Observed> = cells.iter().copied().filter(|c| c.misses > MISSES).collect();
    let asks_disk = |c: &Observed| c.reads >= NO_DISK;
    let points: Vec<Point> = telling
        .iter()
        .map(|c| Point {
            beyond: (c.cpu - in_cache).max(0.0) / c.cpu,
            asked: [c.misses, if asks_disk(c) { c.reads } else { 0.0 }, 1.0 / c.throughput]
                .map(|asked| asked / c.cpu),
        })
        .collect();
    let of_miss = |c: &Observed| (c.cpu - in_cache).max(0.0) / c.misses;
    let by_page_cache = telling.iter().filter(|c| !asks_disk(c)).map(|c| of_miss(c));
    let by_page_cache = Range::over(by_page_cache, WIDER);
    let sets: BTreeSet<u64> = telling.iter().map(|c| c.place.records as u64).collect();
    let on_disk = || telling.iter().copied().filter(|c| asks_disk(c));
    let most_of_miss =
        on_disk().map(|c| of_miss(c) * c.misses / (c.misses + c.reads)).reduce(f64::min).unwrap_or(0.0);
    let miss = by_page_cache.unwrap_or(Range::new(0.0, most_of_miss));
    if points.len() < 4 || (sets.len() < 2 && by_page_cache.is_none()) {
        let most_of_read = on_disk().map(|c| of_miss(c) * c.misses / c.reads).reduce(f64::min).unwrap_or(0.0);
        return (!points.is_empty()).then_some(Cost { miss, read: Range::new(0.0, most_of_read) });
    }
    let without = |left_out: usize| {
        let rest = points.iter().enumerate().filter(|(n, _)| *n != left_out).map(|(_, point)| point);
        least_squares(&rest.collect::<Vec<_>>())
    };
    let solutions = (0..=points.len()).map(|left_out| without(left_out)[1]);
    Some(Cost { miss, read: Range::over(solutions, WIDER)? })
}

/// What is not negative and gives the `points` best: of all choices of unknowns that are not zero, the one
/// with the least sum of squares.
fn least_squares(points: &[&Point]) -> [f64; 3] {
    let error = |x: &[f64; 3]| -> f64 {
        let off = |p: &&Point| p.beyond - p.asked.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
        points.iter().map(|p| off(p).powi(2)).sum()
    };
    let chosen = (1..8usize).filter_map(|choice| {
        let of: Vec<usize> = (0..3).filter(|n| choice & (1 << n) != 0).collect();
        let sum = |f: &dyn Fn(&Point) -> f64| points.iter().map(|p| f(p)).sum::<f64>();
        let row = |i: &usize| -> Vec<f64> {
            let squares = of.iter().map(|j| sum(&|p| p.asked[*i] * p.asked[*j]));
            squares.chain([sum(&|p| p.asked[*i] * p.beyond)]).collect()
        };
        let found = solved(of.iter().map(row).collect())?;
        let mut x = [0.0; 3];
        of.iter().zip(found).for_each(|(n, value)| x[*n] = value);
        x.iter().all(|value| *value >= 0.0).then_some(x)
    });
    chosen.min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or_default()
}

/// Linear equations, each with its right side last, by elimination; `None` where they do not determine it.
fn solved(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    for n in 0..rows.len() {
        let whole = rows[n][n];
        let scale: f64 = rows[n].iter().map(|x| x.abs()).fold(0.0, f64::max);
        if whole.abs() <= 1e-9 * scale || scale == 0.0 {
            return None;
        }
        rows[n].iter_mut().for_each(|x| *x /= whole);
        let pivot = rows[n].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(m, _)| *m != n) {
            let times = row[n];
            row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= times * p);
        }
    }
    rows.iter().map(|row| row.last().copied()).collect()
}
