//! What is known of a column, and how values like its own are drawn. Nothing here is a value of the data:
//! shares of a range, frequencies and counts.

use serde::{Deserialize, Serialize};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ColumnKind {
    /// Whole numbers up to this one.
    Integer(i64),
    /// Other numbers.
    Number,
    /// Texts.
    Text,
    /// Days.
    Date,
    /// Moments.
    Moment,
    /// True or false.
    Boolean,
    /// Something for which no values can be drawn.
    Other,
}

/// A column of a table that statements name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its table, without a schema.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
    /// Bytes of a value on average; of a text, its letters at most where no statistics say how many.
    pub width: f64,
    /// Whether no two rows have the same.
    pub is_unique: bool,
    /// Whether an index begins with it, so that its least and its greatest are found at once.
    pub is_indexed: bool,
    /// How many different values it has, as the server estimates.
    pub distinct: f64,
    /// Rows of the table, as the server estimates.
    pub rows: f64,
    /// Of whole numbers: how many there are from the least to the greatest.
    pub span: Option<f64>,
    /// Where equally many rows lie between: from 0 for the least to 1 for the greatest. Empty without
    /// statistics.
    pub quantiles: Vec<f64>,
    /// Shares of the rows that have the commonest values.
    pub common: Vec<f64>,
    /// The least and the greatest themselves, only where values may be kept.
    pub bounds: Option<(String, String)>,
}

/// How the values of a column lie in their range.
#[derive(Debug, Clone, PartialEq)]
pub enum Spread {
    /// Equally.
    Even,
    /// Around the middle: pgbench's parameter of `random_gaussian`.
    Gaussian(f64),
    /// Most of them low: its parameter of `random_exponential`.
    Exponential(f64),
    /// As these tenths say.
    Tenths(Vec<f64>),
}

/// Distributions this near to each other are taken for the same: a thousand rows show no less (Kolmogorov's
/// bound at 1 %).
const NEAR: f64 = 0.05;

impl Column {
    /// How its values lie in their range.
    pub fn spread(&self) -> Spread {
        let quantiles = &self.quantiles;
        if quantiles.len() < 3 {
            return Spread::Even;
        }
        let last = (quantiles.len() - 1) as f64;
        // The largest distance between what is seen and a distribution function.
        let distance = |cumulative: &dyn Fn(f64) -> f64| {
            let at = |(n, share): (usize, &f64)| (cumulative(*share) - n as f64 / last).abs();
            quantiles.iter().enumerate().map(at).fold(0.0, f64::max)
        };
        if distance(&|share| share) <= NEAR {
            return Spread::Even;
        }
        let steps = |from: f64, to: f64| (0..=60).map(move |n| from * (to / from).powf(f64::from(n) / 60.0));
        let best = |parameters: &mut dyn Iterator<Item = f64>, of: &dyn Fn(f64, f64) -> f64| {
            let fits = parameters.map(|parameter| (distance(&|share| of(share, parameter)), parameter));
            fits.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(distance, _)| *distance <= NEAR)
        };
        let gaussian = best(&mut steps(2.0, 40.0), &|share, parameter| {
            let phi = |x: f64| 0.5 * statrs::function::erf::erfc(-x / std::f64::consts::SQRT_2);
            let low = phi(-parameter);
            (phi(2.0 * parameter * (share - 0.5)) - low) / (1.0 - 2.0 * low)
        });
        let exponential = best(&mut steps(0.2, 200.0), &|share, parameter| {
            (-parameter * share).exp_m1() / (-parameter).exp_m1()
        });
        match (gaussian, exponential) {
            (Some((near, parameter)), other) if other.is_none_or(|(far, _)| near <= far) => {
                Spread::Gaussian(rounded(parameter))
            }
            (_, Some((_, parameter))) => Spread::Exponential(rounded(parameter)),
            _ => {
                let tenth = |n: usize| quantiles[(n as f64 * last / 10.0).round() as usize];
                Spread::Tenths((0..=10).map(tenth).collect())
            }
        }
    }

    /// Rows that one value finds on average, if values are asked for equally often.
    pub fn rows_of_a_value(&self) -> f64 {
        self.rows / self.distinct.max(1.0)
    }

    /// Rows that one value finds on average, if values are asked for as often as rows have them.
    pub fn rows_of_a_row(&self) -> f64 {
        let common: f64 = self.common.iter().sum();
        let squares: f64 = self.common.iter().map(|share| share * share).sum();
        let others = (self.distinct - self.common.len() as f64).max(1.0);
        self.rows * (squares + (1.0 - common).max(0.0).powi(2) / others)
    }

    /// The exponent of the zipfian distribution whose first values are as common as this column's.
    pub fn zipf(&self) -> Option<f64> {
        let last = self.common.iter().take(20).filter(|share| **share > 0.0).count();
        if last < 3 {
            return None;
        }
        let exponent = (self.common[0] / self.common[last - 1]).ln() / (last as f64).ln();
        (exponent >= 0.1).then(|| rounded(exponent))
    }

    /// Whole numbers of its range that a row has, as a share.
    pub fn density(&self) -> Option<f64> {
        let span = self.span.filter(|span| *span >= 1.0)?;
        Some((if self.is_unique { self.rows } else { self.distinct } / span).min(1.0))
    }
}

fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// A number of a histogram as a share of the range; empty where that makes no sense.
pub fn quantiles(bounds: &[f64]) -> Vec<f64> {
    let (Some(least), Some(most)) = (bounds.first(), bounds.last()) else { return Vec::new() };
    let width = most - least;
    if !(width.is_finite() && width > 0.0) || bounds.windows(2).any(|pair| pair[0] > pair[1]) {
        return Vec::new();
    }
    bounds.iter().map(|bound| (bound - least) / width).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn column(table: &str, name: &str, kind: ColumnKind) -> Column {
        Column {
            table: table.into(),
            name: name.into(),
            kind,
            width: 8.0,
            is_unique: false,
            is_indexed: false,
            distinct: 1_000.0,
            rows: 100_000.0,
            span: None,
            quantiles: Vec::new(),
            common: Vec::new(),
            bounds: None,
        }
    }

    fn spread(quantile: impl Fn(f64) -> f64) -> Spread {
        let bounds: Vec<f64> = (0..=100).map(|n| 500.0 + 100.0 * quantile(f64::from(n) / 100.0)).collect();
        Column { quantiles: quantiles(&bounds), ..column("t", "c", ColumnKind::Integer(i64::MAX)) }.spread()
    }

    #[test]
    fn a_histogram_is_recognised_by_its_shape() {
        assert_eq!(spread(|share| share), Spread::Even);
        let exponential =
            |parameter: f64| move |share: f64| -((-parameter).exp_m1() * share).ln_1p() / parameter;
        let Spread::Exponential(parameter) = spread(exponential(5.0)) else { panic!() };
        assert!((parameter - 5.0).abs() < 0.4, "{parameter}");
        // A logistic curve between is neither; a jump in the middle is neither too.
        let jump = |share: f64| if share < 0.5 { share * 0.2 } else { 0.9 + (share - 0.5) * 0.2 };
        let Spread::Tenths(tenths) = spread(jump) else { panic!() };
        assert_eq!((tenths.len(), tenths[0], tenths[10]), (11, 0.0, 1.0));
        assert!((tenths[4] - 0.08).abs() < 1e-9 && (tenths[6] - 0.92).abs() < 1e-9, "{tenths:?}");
        assert_eq!(
            Column { quantiles: quantiles(&[3.0, 3.0]), ..column("t", "c", ColumnKind::Number) }.spread(),
            Spread::Even
        );
    }

    #[test]
    fn commonest_values_say_how_skewed_a_column_is() {
        let all: f64 = (1..=1000).map(|n| f64::from(n).powf(-1.2)).sum();
        let common = (1..=100).map(|n| f64::from(n).powf(-1.2) / all).collect();
        let skewed = Column { common, ..column("t", "c", ColumnKind::Integer(1)) };
        assert!((skewed.zipf().unwrap() - 1.2).abs() < 0.02);
        assert!(skewed.rows_of_a_row() > 20.0 * skewed.rows_of_a_value());
        let even = column("t", "c", ColumnKind::Integer(1));
        assert_eq!((even.zipf(), even.rows_of_a_value()), (None, 100.0));
        assert!((even.rows_of_a_row() - 100.0).abs() < 1e-6);
    }
}
