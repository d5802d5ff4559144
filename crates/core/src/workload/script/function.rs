//! The functions and operators of expressions.

use super::Dialect;
use super::draw::{self, Chance};
use super::value::Value;
use crate::workload::random::Random;

/// What is computed of arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    And,
    Or,
    ExclusiveOr,
    ShiftLeft,
    ShiftRight,
    Not,
    Abs,
    Debug,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Ln,
    Permute,
    Pi,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    Sqrt,
    // Not pgbench's.
    Date,
    RandomDigits,
    RandomMean,
    RandomPareto,
    RandomSpecial,
    RandomZipf,
    Timestamp,
}

/// A function that has a name: how many arguments it takes at least and at most.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    pub name: &'static str,
    pub function: Function,
    pub least: usize,
    pub most: usize,
    /// Whether the variable `default_seed` is its last argument where that is left out.
    pub seeded: bool,
    /// Whose it is.
    pub dialect: Dialect,
}

/// The most arguments of a function: nobody writes more, but a script of ten megabytes may.
pub const MOST_ARGUMENTS: usize = 255;

const fn named(name: &'static str, function: Function, least: usize, most: usize) -> Named {
    Named { name, function, least, most, seeded: false, dialect: Dialect::Pgbench }
}

const fn seeded(name: &'static str, function: Function, least: usize) -> Named {
    Named { name, function, least, most: least + 1, seeded: true, dialect: Dialect::Pgbench }
}

const fn ours(name: &'static str, function: Function, arguments: usize) -> Named {
    Named { name, function, least: arguments, most: arguments, seeded: false, dialect: Dialect::Plan }
}

/// All that have a name.
pub const NAMED: &[Named] = &[
    named("abs", Function::Abs, 1, 1),
    named("debug", Function::Debug, 1, 1),
    named("double", Function::Double, 1, 1),
    named("exp", Function::Exp, 1, 1),
    named("greatest", Function::Greatest, 1, MOST_ARGUMENTS),
    seeded("hash", Function::HashMurmur2, 1),
    seeded("hash_fnv1a", Function::HashFnv1a, 1),
    seeded("hash_murmur2", Function::HashMurmur2, 1),
    named("int", Function::Int, 1, 1),
    named("least", Function::Least, 1, MOST_ARGUMENTS),
    named("ln", Function::Ln, 1, 1),
    named("mod", Function::Modulo, 2, 2),
    seeded("permute", Function::Permute, 2),
    named("pi", Function::Pi, 0, 0),
    named("pow", Function::Power, 2, 2),
    named("power", Function::Power, 2, 2),
    named("random", Function::Random, 2, 2),
    named("random_exponential", Function::RandomExponential, 3, 3),
    named("random_gaussian", Function::RandomGaussian, 3, 3),
    named("random_zipfian", Function::RandomZipfian, 3, 3),
    named("sqrt", Function::Sqrt, 1, 1),
    ours("date", Function::Date, 1),
    ours("random_digits", Function::RandomDigits, 2),
    ours("random_mean", Function::RandomMean, 2),
    ours("random_pareto", Function::RandomPareto, 3),
    ours("random_special", Function::RandomSpecial, 2),
    ours("random_zipf", Function::RandomZipf, 3),
    ours("timestamp", Function::Timestamp, 1),
];

impl Function {
    /// Computes it. NULL among the arguments gives NULL; `debug` tells its argument to `notes`.
    ///
    /// # Errors
    /// In pgbench's words where it has some: an overflow, a type that cannot be coerced, an empty range.
    pub fn of(
        self,
        arguments: &[Value],
        chance: &mut Chance,
        notes: &mut Vec<Value>,
    ) -> Result<Value, String> {
        if self == Function::Debug {
            notes.push(arguments[0].clone());
            return Ok(arguments[0].clone());
        }
        if arguments.contains(&Value::Null) {
            return Ok(Value::Null);
        }
        match self {
            Function::Add
            | Function::Subtract
            | Function::Multiply
            | Function::Divide
            | Function::Equal
            | Function::Unequal
            | Function::Less
            | Function::LessOrEqual
            | Function::Greater
            | Function::GreaterOrEqual => self.of_numbers(&arguments[0], &arguments[1]),
            Function::Modulo
            | Function::And
            | Function::Or
            | Function::ExclusiveOr
            | Function::ShiftLeft
            | Function::ShiftRight => {
                self.of_integers(arguments[0].integer()?, arguments[1].integer()?).map(Value::Integer)
            }
            Function::Not => arguments[0].boolean().map(|value| Value::Boolean(!value)),
            Function::Abs => Ok(match &arguments[0] {
                Value::Double(value) => Value::Double(value.abs()),
                value => Value::Integer(value.integer()?.wrapping_abs()),
            }),
            Function::Int => arguments[0].integer().map(Value::Integer),
            Function::Double => arguments[0].double().map(Value::Double),
            Function::Exp => arguments[0].double().map(|value| Value::Double(value.exp())),
            Function::Ln => arguments[0].double().map(|value| Value::Double(value.ln())),
            Function::Sqrt => arguments[0].double().map(|value| Value::Double(value.sqrt())),
            Function::Pi => Ok(Value::Double(std::f64::consts::PI)),
            Function::Power => Ok(Value::Double(arguments[0].double()?.powf(arguments[1].double()?))),
            Function::Greatest | Function::Least => self.of_many(arguments),
            Function::HashFnv1a => {
                Ok(Value::Integer(fnv1a(arguments[0].integer()?, arguments[1].integer()?)))
            }
            Function::HashMurmur2 => {
                Ok(Value::Integer(murmur2(arguments[0].integer()?, arguments[1].integer()?)))
            }
            Function::Permute => {
                let size = arguments[1].integer()?;
                if size <= 0 {
                    return Err("permute size parameter must be greater than zero".into());
                }
                let (index, seed) = (arguments[0].integer()?, arguments[2].integer()?);
                let index = index.rem_euclid(size) as u64;
                Ok(Value::Integer(permuted(index, size as u64, seed as u64) as i64))
            }
            Function::Random
            | Function::RandomExponential
            | Function::RandomGaussian
            | Function::RandomZipfian
            | Function::RandomMean
            | Function::RandomPareto
            | Function::RandomSpecial
            | Function::RandomZipf => self.drawn(arguments, chance).map(Value::Integer),
            Function::RandomDigits => {
                draw::digits(arguments[0].integer()?, arguments[1].integer()?, &mut chance.random)
            }
            Function::Date => draw::date(arguments[0].integer()?),
            Function::Timestamp => draw::timestamp(arguments[0].integer()?),
            Function::Debug => unreachable!("it has returned"),
        }
    }

    fn of_numbers(self, left: &Value, right: &Value) -> Result<Value, String> {
        // Only our scripts have texts in expressions.
        if let (Value::Quoted(left), Value::Quoted(right)) = (left, right)
            && matches!(self, Function::Equal | Function::Unequal)
        {
            return Ok(Value::Boolean((left == right) == (self == Function::Equal)));
        }
        if matches!(left, Value::Double(_)) || matches!(right, Value::Double(_)) {
            let (left, right) = (left.double()?, right.double()?);
            return Ok(match self {
                Function::Add => Value::Double(left + right),
                Function::Subtract => Value::Double(left - right),
                Function::Multiply => Value::Double(left * right),
                Function::Divide => Value::Double(left / right),
                Function::Equal => Value::Boolean(left == right),
                Function::Unequal => Value::Boolean(left != right),
                Function::Less => Value::Boolean(left < right),
                Function::LessOrEqual => Value::Boolean(left <= right),
                Function::Greater => Value::Boolean(left > right),
                _ => Value::Boolean(left >= right),
            });
        }
        let (left, right) = (left.integer()?, right.integer()?);
        let checked = |value: Option<i64>, verb: &str| {
            value.map(Value::Integer).ok_or_else(|| format!("bigint {verb} out of range"))
        };
        match self {
            Function::Add => checked(left.checked_add(right), "add"),
            Function::Subtract => checked(left.checked_sub(right), "sub"),
            Function::Multiply => checked(left.checked_mul(right), "mul"),
            Function::Divide if right == 0 => Err("division by zero".into()),
            Function::Divide => checked(left.checked_div(right), "div"),
            Function::Equal => Ok(Value::Boolean(left == right)),
            Function::Unequal => Ok(Value::Boolean(left != right)),
            Function::Less => Ok(Value::Boolean(left < right)),
            Function::LessOrEqual => Ok(Value::Boolean(left <= right)),
            Function::Greater => Ok(Value::Boolean(left > right)),
            _ => Ok(Value::Boolean(left >= right)),
        }
    }

    fn of_integers(self, left: i64, right: i64) -> Result<i64, String> {
        Ok(match self {
            Function::Modulo if right == 0 => return Err("division by zero".into()),
            Function::Modulo => left.wrapping_rem(right),
            Function::And => left & right,
            Function::Or => left | right,
            Function::ExclusiveOr => left ^ right,
            // By as many bits as the last six of the number say, as processors do.
            Function::ShiftLeft => left.wrapping_shl(right as u32),
            _ => left.wrapping_shr(right as u32),
        })
    }

    fn of_many(self, arguments: &[Value]) -> Result<Value, String> {
        let greatest = self == Function::Greatest;
        if arguments.iter().any(|value| matches!(value, Value::Double(_))) {
            let numbers = arguments.iter().map(Value::double).collect::<Result<Vec<f64>, _>>()?;
            let better = |a: f64, b: f64| if greatest { a.max(b) } else { a.min(b) };
            return Ok(Value::Double(numbers.into_iter().reduce(better).expect("one at least")));
        }
        let numbers = arguments.iter().map(Value::integer).collect::<Result<Vec<i64>, _>>()?;
        let numbers = numbers.into_iter();
        let best = if greatest { numbers.max() } else { numbers.min() };
        Ok(Value::Integer(best.expect("one at least")))
    }

    /// A random integer of `[lower, upper]`.
    fn drawn(self, arguments: &[Value], chance: &mut Chance) -> Result<i64, String> {
        let (lower, upper) = (arguments[0].integer()?, arguments[1].integer()?);
        if lower > upper {
            return Err("empty range given to random".into());
        }
        let count = upper.checked_sub(lower).and_then(|width| width.checked_add(1));
        let count = count.ok_or("random range is too large")? as u64;
        let random = &mut chance.random;
        let offset = match self {
            Function::Random => random.below(count),
            Function::RandomGaussian => {
                let parameter = arguments[2].double()?;
                if parameter.is_nan() || parameter < 2.0 {
                    return Err(format!("gaussian parameter must be at least 2.000000 (not {parameter:.6})"));
                }
                gaussian(parameter, count, random)
            }
            Function::RandomExponential => {
                let parameter = arguments[2].double()?;
                if parameter.is_nan() || parameter <= 0.0 {
                    return Err(format!(
                        "exponential parameter must be greater than zero (not {parameter:.6})"
                    ));
                }
                let cut = (-parameter).exp();
                let unit = -(cut + (1.0 - cut) * (1.0 - random.unit())).ln() / parameter;
                scaled(unit, count)
            }
            Function::RandomMean => draw::of_mean(count, random),
            Function::RandomSpecial => draw::special(count, random),
            Function::RandomPareto => {
                let h = arguments[2].double()?;
                if !(h > 0.0 && h < 1.0) {
                    return Err(format!("pareto parameter must be between 0 and 1 (not {h:.6})"));
                }
                draw::pareto(count, h, random)
            }
            Function::RandomZipf => {
                let theta = arguments[2].double()?;
                if !(0.0..=1000.0).contains(&theta) {
                    return Err(format!("zipf parameter must be in range [0, 1000] (not {theta:.6})"));
                }
                chance.zipf(count, theta)
            }
            _ => {
                let parameter = arguments[2].double()?;
                if !(1.001..=1000.0).contains(&parameter) {
                    return Err(format!(
                        "zipfian parameter must be in range [1.001, 1000] (not {parameter:.6})"
                    ));
                }
                chance.zipf(count, parameter)
            }
        };
        Ok(lower + offset as i64)
    }
}

fn scaled(unit: f64, count: u64) -> u64 {
    ((count as f64 * unit) as u64).min(count - 1)
}

/// A standard normal distribution cut off at ± `parameter`, mapped onto 0..`count` (Box and Muller 1958).
fn gaussian(parameter: f64, count: u64, random: &mut Random) -> u64 {
    loop {
        let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
        let drawn = radius * (2.0 * std::f64::consts::PI * random.unit()).sin();
        if (-parameter..parameter).contains(&drawn) {
            return scaled((drawn + parameter) / (2.0 * parameter), count);
        }
    }
}

/// FNV-1a over the eight bytes of `value`, the lowest first; the seed changes the basis (Fowler, Noll, Vo).
fn fnv1a(value: i64, seed: i64) -> i64 {
    const BASIS: u64 = 0xCBF2_9CE4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01B3;
    let bytes = value.to_le_bytes();
    bytes.iter().fold(BASIS ^ seed as u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME)) as i64
}

/// MurmurHash64A of the eight bytes of `value` (Appleby).
fn murmur2(value: i64, seed: i64) -> i64 {
    const MULTIPLIER: u64 = 0xC6A4_A793_5BD1_E995;
    let mut key = (value as u64).wrapping_mul(MULTIPLIER);
    key = (key ^ (key >> 47)).wrapping_mul(MULTIPLIER);
    let mut hash = (seed as u64 ^ MULTIPLIER.wrapping_mul(8) ^ key).wrapping_mul(MULTIPLIER);
    hash = (hash ^ (hash >> 47)).wrapping_mul(MULTIPLIER);
    (hash ^ (hash >> 47)) as i64
}

/// Where `index` of `0..size` goes in a permutation that belongs to `seed`: a Feistel network over the least
/// even number of bits that holds `size`, walked until it is in range again. pgbench does not document its
/// permutation; this one is another.
fn permuted(index: u64, size: u64, seed: u64) -> u64 {
    const ROUNDS: u64 = 6;
    let half = (64 - (size - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half) - 1;
    let mut at = index;
    loop {
        let (mut left, mut right) = (at >> half, at & mask);
        for round in 0..ROUNDS {
            let mixed = Random::new(seed ^ (round << 56), right).bits() & mask;
            (left, right) = (right, left ^ mixed);
        }
        at = (left << half) | right;
        if at < size {
            return at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_documentation() {
        assert_eq!(murmur2(10, 5432), -5_817_877_081_768_721_676);
        assert_eq!(fnv1a(10, 5432), -7_793_829_335_365_542_153);
    }

    #[test]
    fn a_permutation_leaves_no_hole() {
        for size in [1, 2, 3, 10, 255, 256, 257, 1000] {
            for seed in [0, 1, u64::MAX] {
                let mut images: Vec<u64> = (0..size).map(|index| permuted(index, size, seed)).collect();
                let moved = images.iter().enumerate().filter(|(at, to)| *at as u64 != **to).count();
                assert!(size < 255 || moved as u64 > size / 2, "size {size} seed {seed}: {moved} moved");
                images.sort_unstable();
                assert!(images.iter().copied().eq(0..size), "size {size}, seed {seed}");
            }
        }
        for index in 0..1000 {
            assert!(permuted(index, i64::MAX as u64, 7) < i64::MAX as u64);
        }
    }

    fn drawn(function: Function, parameter: f64, count: i64, draws: u64) -> Vec<f64> {
        let mut bins = vec![0.0; count as usize];
        let mut random = Chance::new(Random::new(5, 0));
        let arguments = [Value::Integer(1), Value::Integer(count), Value::Double(parameter)];
        for _ in 0..draws {
            let Ok(Value::Integer(at)) = function.of(&arguments, &mut random, &mut Vec::new()) else {
                panic!("a draw is an integer")
            };
            bins[at as usize - 1] += 1.0;
        }
        bins
    }

    /// Chi-square per degree of freedom stays near 1 where the formula of the documentation is what is drawn.
    fn fits(bins: &[f64], draws: u64, probability: impl Fn(f64) -> f64) {
        let chi: f64 = bins
            .iter()
            .enumerate()
            .map(|(at, seen)| {
                let expected = draws as f64 * probability(at as f64 + 1.0);
                (seen - expected).powi(2) / expected
            })
            .sum();
        // 0.1 % of 19 degrees of freedom.
        assert!(bins.len() == 20 && chi < 43.8, "chi-square {chi}: {bins:?}");
    }

    #[test]
    fn draws_are_spread_as_the_documentation_says() {
        const DRAWS: u64 = 200_000;
        let p = 3.0;
        let f = |x: f64| (-p * (x - 1.0) / 20.0f64).exp() / (1.0 - (-p).exp());
        fits(&drawn(Function::RandomExponential, p, 20, DRAWS), DRAWS, |i| f(i) - f(i + 1.0));
        let phi = |x: f64| 0.5 * statrs::function::erf::erfc(-x / 2f64.sqrt());
        let f = |x: f64| phi(2.0 * 2.5 * (x - 10.5) / 20.0) / (2.0 * phi(2.5) - 1.0);
        fits(&drawn(Function::RandomGaussian, 2.5, 20, DRAWS), DRAWS, |i| f(i + 0.5) - f(i - 0.5));
        let sum: f64 = (1..=20).map(|i| f64::from(i).powf(-1.2)).sum();
        fits(&drawn(Function::RandomZipfian, 1.2, 20, DRAWS), DRAWS, |i| i.powf(-1.2) / sum);
        fits(&drawn(Function::Random, 0.0, 20, DRAWS), DRAWS, |_| 0.05);
    }

    #[test]
    fn the_widest_range_draws() {
        let mut random = Chance::new(Random::new(1, 1));
        let mut of =
            |function: Function, arguments: &[Value]| function.of(arguments, &mut random, &mut vec![]);
        let wide = [Value::Integer(i64::MIN), Value::Integer(-2), Value::Double(2.0)];
        for function in [Function::RandomExponential, Function::RandomGaussian, Function::RandomZipfian] {
            assert!(matches!(of(function, &wide), Ok(Value::Integer(drawn)) if drawn <= -2));
        }
        let wider = [Value::Integer(i64::MIN), Value::Integer(-1)];
        assert_eq!(of(Function::Random, &wider), Err("random range is too large".into()));
    }
}
