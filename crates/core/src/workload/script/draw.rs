//! What our scripts can draw beside what pgbench's can: sysbench's distributions, any zipfian, and texts.

use super::value::Value;
use crate::workload::random::Random;
use crate::workload::zipf::Zipf;

/// No text that is drawn has more characters: a script that asks for a huge one must not fill the memory.
pub const LONGEST: i64 = 1 << 20;

/// sysbench's `special`, of 0..`count`, as its option says: a quarter of all draws is the mean of twelve
/// uniform ones, and three quarters fall near the middle, on about a hundredth of the range. Of that
/// hundredth sysbench uses the upper three quarters only, because it takes the number again by which it
/// decided.
#[inline]
pub fn special(count: u64, random: &mut Random) -> u64 {
    const SHARE: f64 = 0.01;
    const ELSEWHERE: f64 = 0.25;
    let width = (count - 1) as f64;
    let unit = random.unit();
    let offset = match unit < ELSEWHERE {
        true => mean(random) * width,
        false => unit * (width * SHARE + 1.0) + width / 2.0 - width * SHARE / 2.0,
    };
    (offset as u64).min(count - 1)
}

/// Of twelve uniform draws, in 0..1.
#[inline]
fn mean(random: &mut Random) -> f64 {
    const DRAWS: u32 = 12;
    (0..DRAWS).map(|_| random.unit()).sum::<f64>() / f64::from(DRAWS)
}

/// sysbench's `gaussian`, of 0..`count`.
#[inline]
pub fn of_mean(count: u64, random: &mut Random) -> u64 {
    ((mean(random) * count as f64) as u64).min(count - 1)
}

/// sysbench's `pareto`, of 0..`count`: of `h` = 0.2, that share of the lowest gets 1 − `h` of the draws.
#[inline]
pub fn pareto(count: u64, h: f64, random: &mut Random) -> u64 {
    let power = h.ln() / (1.0 - h).ln();
    ((random.unit().powf(power) * count as f64) as u64).min(count - 1)
}

/// What chance says in a run.
#[derive(Debug, Clone)]
pub struct Chance {
    /// The numbers of the operation at hand.
    pub random: Random,
    /// The zipfians that were drawn from last: making one takes longer than drawing.
    zipfs: Vec<(u64, f64, Zipf)>,
}

impl Chance {
    /// With these numbers.
    pub fn new(random: Random) -> Self {
        Chance { random, zipfs: Vec::new() }
    }

    /// Ranks of 0..`count`, the first the likeliest, each as its number to the power of −`theta`.
    #[inline]
    pub fn zipf(&mut self, count: u64, theta: f64) -> u64 {
        /// Scripts have few, and what is not found soon is not found cheaply.
        const KEPT: usize = 4;
        let same = |(items, exponent, _): &(u64, f64, Zipf)| *items == count && *exponent == theta;
        let at = self.zipfs.iter().position(same).unwrap_or_else(|| {
            if self.zipfs.len() == KEPT {
                self.zipfs.remove(0);
            }
            self.zipfs.push((count, theta, Zipf::new(count, theta)));
            self.zipfs.len() - 1
        });
        self.zipfs[at].2.draw(&mut self.random) - 1
    }
}

/// Appends `groups` groups of `length` random digits each, with dashes between: what sysbench fills its texts
/// with.
#[inline]
pub fn put_digits(groups: u64, length: u64, random: &mut Random, out: &mut Vec<u8>) {
    /// Digits that one draw gives: 10^18 of 2^64, so that none is likelier than another by more than a 20th
    /// part of a millionth.
    const EACH: u64 = 18;
    let (mut bits, mut left) = (0, 0);
    for group in 0..groups {
        if group > 0 {
            out.push(b'-');
        }
        for _ in 0..length {
            if left == 0 {
                (bits, left) = (random.below(10u64.pow(EACH as u32)), EACH);
            }
            out.push(b'0' + (bits % 10) as u8);
            (bits, left) = (bits / 10, left - 1);
        }
    }
}

/// The same as a value.
pub fn digits(groups: i64, length: i64, random: &mut Random) -> Result<Value, String> {
    let characters = groups.checked_mul(length.saturating_add(1));
    if groups < 1 || length < 1 || characters.is_none_or(|all| all > LONGEST) {
        return Err(format!(
            "random_digits needs from 1 to {LONGEST} characters in all (not {groups} groups of {length})"
        ));
    }
    let mut text = Vec::with_capacity((groups * (length + 1)) as usize);
    put_digits(groups as u64, length as u64, random, &mut text);
    Ok(Value::Quoted(String::from_utf8(text).expect("digits and dashes").into()))
}

/// The day that is this many days after 1970-01-01, as `2026-11-24`.
pub fn date(days: i64) -> Result<Value, String> {
    let (year, month, day) = civil(days).ok_or_else(|| {
        format!("date takes days since 1970-01-01 up to the year 9999 and from the year 1 on (not {days})")
    })?;
    let mut text = *b"0000-00-00";
    // The formatter would take twice as long as all the rest.
    put_decimals(&mut text[..4], year);
    put_decimals(&mut text[5..7], month);
    put_decimals(&mut text[8..], day);
    Ok(Value::Quoted(std::str::from_utf8(&text).expect("digits and dashes").into()))
}

/// The last digits of a number, as many as there is room for.
fn put_decimals(room: &mut [u8], mut number: i64) {
    for digit in room.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The moment that is this many seconds after 1970-01-01 00:00:00, as `2026-11-24 21:55:00`.
pub fn timestamp(seconds: i64) -> Result<Value, String> {
    const DAY: i64 = 86_400;
    let Value::Quoted(date) = date(seconds.div_euclid(DAY))? else { unreachable!("a date is a text") };
    let second = seconds.rem_euclid(DAY);
    let mut text = *b"0000-00-00 00:00:00";
    text[..10].copy_from_slice(date.as_bytes());
    put_decimals(&mut text[11..13], second / 3600);
    put_decimals(&mut text[14..16], second / 60 % 60);
    put_decimals(&mut text[17..], second % 60);
    Ok(Value::Quoted(std::str::from_utf8(&text).expect("digits, dashes and colons").into()))
}

/// Year, month and day of the proleptic Gregorian calendar (Hinnant 2013, "chrono-Compatible Low-Level Date
/// Algorithms"): years are counted from March, so that the leap day is the last of one.
fn civil(days: i64) -> Option<(i64, i64, i64)> {
    /// Days of 400 years, and from 0000-03-01 to 1970-01-01.
    const ERA: i64 = 146_097;
    const ORIGIN: i64 = 719_468;
    let days = days.checked_add(ORIGIN)?;
    let (era, day) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (1..=9999).contains(&year).then_some((year, month, day))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Result<Value, String>) -> String {
        value.map_or_else(|reason| reason, |value| value.to_string())
    }

    #[test]
    fn days_have_the_dates_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_781, "2026-11-24"),
            (-25_509, "1900-02-28"),
            (-25_508, "1900-03-01"),
            (-719_162, "0001-01-01"),
            (2_932_896, "9999-12-31"),
        ] {
            assert_eq!(text(super::date(days)), date);
        }
        assert_eq!(text(timestamp(20_781 * 86_400 + 78_901)), "2026-11-24 21:55:01");
        assert_eq!(text(timestamp(-1)), "1969-12-31 23:59:59");
        for days in [i64::MIN, -719_163, 2_932_897, i64::MAX] {
            assert!(text(super::date(days)).starts_with("date takes days"), "{days}");
        }
    }

    #[test]
    fn digits_are_as_many_as_were_asked_for_and_each_as_likely() {
        let mut random = Random::new(1, 1);
        assert_eq!(text(digits(2, 3, &mut random)).len(), 7);
        for (groups, length) in [(0, 1), (1, 0), (1 << 20, 1), (i64::MAX, i64::MAX), (-1, 5)] {
            assert!(text(digits(groups, length, &mut random)).contains("characters in all"), "{groups}");
        }
        let (mut seen, many) = ([0f64; 10], text(digits(1000, 100, &mut random)));
        let groups: Vec<&str> = many.split('-').collect();
        assert!(groups.len() == 1000 && groups.iter().all(|group| group.len() == 100));
        many.bytes().filter(u8::is_ascii_digit).for_each(|digit| seen[usize::from(digit - b'0')] += 1.0);
        // 0.1 % of nine degrees of freedom.
        let chi: f64 = seen.iter().map(|count| (count - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi < 27.9, "chi-square {chi}: {seen:?}");
    }

    #[test]
    fn draws_lie_where_sysbench_puts_them() {
        const DRAWS: u64 = 100_000;
        let drawn = |draw: &dyn Fn(&mut Random) -> u64| {
            let mut random = Random::new(9, 2);
            let mut all: Vec<u64> = (0..DRAWS).map(|_| draw(&mut random)).collect();
            all.sort_unstable();
            all
        };
        let within = |all: &[u64], low, high| {
            all.iter().filter(|at| (low..high).contains(*at)).count() as f64 / DRAWS as f64
        };
        let special = drawn(&|random| super::special(10_000, random));
        // The middle hundredth begins at 4949.5, and its first quarter is left out.
        let middle = within(&special, 4_974, 5_051);
        assert!((0.755..0.785).contains(&middle), "{middle}");
        let mean = drawn(&|random| of_mean(10_000, random));
        // Standard deviation 1/12.
        let inside = within(&mean, 5_000 - 833, 5_000 + 833);
        assert!((0.67..0.70).contains(&inside), "{inside}");
        let pareto = drawn(&|random| super::pareto(10_000, 0.2, random));
        let lowest = within(&pareto, 0, 2_000);
        assert!((0.79..0.81).contains(&lowest), "{lowest}");
        let zipf = drawn(&|random| {
            let mut chance = Chance::new(random.clone());
            random.bits();
            chance.zipf(10, 0.8)
        });
        let sum: f64 = (1..=10).map(|rank| f64::from(rank).powf(-0.8)).sum();
        assert!((within(&zipf, 0, 1) - 1.0 / sum).abs() < 0.01);
        for count in [1, 2] {
            for draw in [super::special, of_mean] {
                assert!(drawn(&|random| draw(count, random)).iter().all(|at| *at < count));
            }
        }
    }
}
