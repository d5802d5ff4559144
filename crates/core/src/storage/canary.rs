//! What a canary saw in hours or days: changes of level, and whether the hour of the day is in it.

use crate::measure::{ChangePoint, ChangeRule, change_points, kruskal_wallis, median};
use crate::units::{Tick, span};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// One look at the disk, a line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// When, in seconds since 1970 UTC.
    pub at_unix_s: u64,
    /// Reads that were made.
    pub reads: u32,
    /// Median of their latencies.
    #[serde(with = "span", rename = "read_ns_p50")]
    pub read: Duration,
    /// The slowest of them.
    #[serde(with = "span", rename = "read_ns_most")]
    pub slowest: Duration,
    /// Median of a small write with its flush; `None` where nothing is written.
    #[serde(default, with = "maybe", rename = "flush_ns_p50", skip_serializing_if = "Option::is_none")]
    pub flush: Option<Duration>,
    /// Time in which the look kept the disk busy.
    #[serde(with = "span", rename = "busy_ns")]
    pub busy: Duration,
    /// Reads or writes that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// `Option<Duration>` as nanoseconds.
mod maybe {
    use super::Duration;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(span: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        span.map(|span| span.as_nanos() as u64).serialize(s)
    }
    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_nanos))
    }
}

/// A change of level of the reads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// When the new level began, in seconds since 1970 UTC.
    pub at_unix_s: u64,
    /// Geometric mean of the medians before: a single look that met somebody else's load weighs little in it.
    #[serde(with = "span", rename = "before_ns")]
    pub before: Duration,
    /// And after.
    #[serde(with = "span", rename = "after_ns")]
    pub after: Duration,
    /// Two-sided p of Student's t.
    pub p: f64,
}

/// How reads depend on the hour.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Hours {
    /// Median of the medians, by hour of the day in UTC.
    #[serde(rename = "median_ns_by_hour")]
    pub medians: BTreeMap<u8, u64>,
    /// That the hours differ by chance (Kruskal & Wallis).
    pub p: Option<f64>,
    /// Whether the log covers enough to ask: two whole days, because one shows every change as an hour's.
    pub enough: bool,
}

/// What a log says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Looks in the log.
    pub looks: usize,
    /// From the first to the last.
    #[serde(with = "span", rename = "covered_ns")]
    pub covered: Duration,
    /// Pauses in which nobody looked, several times longer than usual: restarts.
    pub gaps: usize,
    /// Median of the reads' medians.
    #[serde(with = "span", rename = "read_ns_p50")]
    pub read: Duration,
    /// The slowest read of all.
    #[serde(with = "span", rename = "read_ns_most")]
    pub slowest: Duration,
    /// Share of the time in which the canary kept the disk busy.
    pub busy_share: f64,
    /// Changes of level.
    pub changes: Vec<Change>,
    /// The hour of the day.
    pub hours: Hours,
}

/// Share of the time that looks may take.
pub const MOST_BUSY: f64 = 0.008;

/// When the next look is due after one that took the disk this long: a slow disk is looked at less often, so
/// that looks keep to their share of its time.
pub fn pause(every: Duration, busy: Duration) -> Duration {
    every.max(busy.div_f64(MOST_BUSY))
}

/// Changes of less than this are of no consequence.
const LEAST_CHANGE: f64 = 0.1;
const DAY_S: u64 = 86_400;
/// Hours differ if chance does so less often than this.
const MOST_P: f64 = 0.01;

/// Reads a log: one look a line. A last line that was cut short by a crash is passed over.
///
/// # Errors
/// Another line that is no look, with its number.
pub fn read_log(text: &str) -> Result<Vec<Look>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut looks = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_str::<Look>(line) {
            Ok(look) => looks.push(look),
            Err(_) if line.trim().is_empty() => {}
            Err(_) if index + 1 == lines.len() && !text.ends_with('\n') => {}
            Err(error) => return Err(format!("line {}: {error}", index + 1)),
        }
    }
    Ok(looks)
}

/// Sums up; `None` of nothing.
pub fn summary(looks: &[Look]) -> Option<Summary> {
    let (first, last) = (looks.first()?, looks.last()?);
    let reads: Vec<f64> = looks.iter().map(|look| look.read.as_nanos() as f64).collect();
    // Of logarithms, because a busy machine makes single looks many times as slow.
    let logarithms: Vec<f64> = reads.iter().map(|ns| ns.max(1.0).ln()).collect();
    let least_change = (1.0 + LEAST_CHANGE).ln() / median(&logarithms)?.max(1.0);
    let rule = ChangeRule { least_change, ..ChangeRule::default() };
    let change = |point: ChangePoint| Change {
        at_unix_s: looks[point.at].at_unix_s,
        before: Duration::from_nanos(point.before.exp() as u64),
        after: Duration::from_nanos(point.after.exp() as u64),
        p: point.p,
    };
    let pauses: Vec<f64> =
        looks.windows(2).map(|two| two[1].at_unix_s.saturating_sub(two[0].at_unix_s) as f64).collect();
    let usual = median(&pauses).unwrap_or(0.0).max(1.0);
    // After a look that took long the canary itself waits longer: nobody was away then.
    let away = |(look, seconds): (&Look, &f64)| {
        let planned = pause(Duration::from_secs_f64(usual), look.busy).as_secs_f64();
        (*seconds > 3.0 * planned).then_some(*seconds)
    };
    let gaps: Vec<f64> = looks.iter().zip(&pauses).filter_map(away).collect();
    let covered = Tick(last.at_unix_s * 1_000_000_000).since(Tick(first.at_unix_s * 1_000_000_000));
    let busy: Duration = looks.iter().map(|look| look.busy).sum();
    // What was not watched is not time that the canary could have used; after the last look it pauses, too.
    let after_last = pause(Duration::from_secs_f64(usual), last.busy).as_secs_f64();
    let watched = pauses.iter().sum::<f64>() - gaps.iter().sum::<f64>() + after_last;
    Some(Summary {
        looks: looks.len(),
        covered,
        gaps: gaps.len(),
        read: Duration::from_nanos(median(&reads)? as u64),
        slowest: looks.iter().map(|look| look.slowest).max()?,
        busy_share: busy.as_secs_f64() / watched,
        changes: change_points(&logarithms, &rule).into_iter().map(change).collect(),
        hours: hours(looks, covered),
    })
}

fn hours(looks: &[Look], covered: Duration) -> Hours {
    let mut by_hour: BTreeMap<u8, Vec<f64>> = BTreeMap::new();
    for look in looks {
        let hour = (look.at_unix_s % DAY_S / 3600) as u8;
        by_hour.entry(hour).or_default().push(look.read.as_nanos() as f64);
    }
    let medians = by_hour.iter().filter_map(|(hour, reads)| Some((*hour, median(reads)? as u64))).collect();
    let groups: Vec<Vec<f64>> = by_hour.into_values().filter(|reads| reads.len() >= 3).collect();
    Hours { medians, p: kruskal_wallis(&groups), enough: covered.as_secs() >= 2 * DAY_S }
}

impl Summary {
    /// In sentences, the most important one first.
    pub fn sentences(&self) -> Vec<String> {
        let mut said = vec![format!(
            "{} looks in {}: half of the reads take {}, the slowest took {}; the canary kept the disk busy for {:.2} % of \
             the time",
            self.looks,
            span::rounded(self.covered),
            span::rounded(self.read),
            span::rounded(self.slowest),
            100.0 * self.busy_share
        )];
        if self.gaps > 0 {
            said.push(format!("times at which nobody looked for longer: {}", self.gaps));
        }
        for change in &self.changes {
            said.push(format!(
                "from {} on reads take {} instead of {}",
                clock(change.at_unix_s),
                span::rounded(change.after),
                span::rounded(change.before)
            ));
        }
        said.push(self.hours.sentence());
        said
    }
}

impl Hours {
    fn sentence(&self) -> String {
        let most = |better: fn(&u64, &u64) -> bool| {
            self.medians.iter().fold(None::<(&u8, &u64)>, |best, hour| match best {
                Some(best) if !better(hour.1, best.1) => Some(best),
                _ => Some(hour),
            })
        };
        let (Some(fast), Some(slow)) = (most(|a, b| a < b), most(|a, b| a > b)) else {
            return "nothing is known about the hours of the day".into();
        };
        let extremes = format!(
            "fastest at {:02} h with {}, slowest at {:02} h with {} (UTC)",
            fast.0,
            span::rounded(Duration::from_nanos(*fast.1)),
            slow.0,
            span::rounded(Duration::from_nanos(*slow.1))
        );
        match (self.enough, self.p) {
            (false, _) => "less than two days: whether the hour of the day matters cannot be said yet".into(),
            (true, Some(p)) if p < MOST_P => format!("the hour of the day matters (p = {p:.2e}): {extremes}"),
            (true, _) => "the hour of the day does not matter".into(),
        }
    }
}

/// "1970-01-01 00:00 UTC": days to a date by Hinnant's algorithm (`civil_from_days`).
fn clock(unix_s: u64) -> String {
    let days = (unix_s / DAY_S) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (unix_s % DAY_S / 3600, unix_s % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Kind, Model};
    use crate::units::Bytes;
    use crate::workload::Random;

    /// A look every ten minutes, reads of `level(hour since the start)` with a tenth of noise.
    fn log(days: u64, level: impl Fn(u64) -> f64) -> Vec<Look> {
        let mut random = Random::new(3, 0);
        (0..days * 144)
            .map(|n| {
                let ns = level(n / 6) * (0.95 + 0.1 * random.unit()) * 1e6;
                Look {
                    at_unix_s: 1_700_006_400 + n * 600,
                    reads: 16,
                    read: Duration::from_nanos(ns as u64),
                    slowest: Duration::from_nanos(3 * ns as u64),
                    flush: None,
                    busy: Duration::from_millis(20),
                    failed: 0,
                }
            })
            .collect()
    }

    #[test]
    fn a_disk_that_is_fast_by_night_only_is_told_from_one_that_got_slower() {
        let nightly = summary(&log(4, |hour| if (hour + 8) % 24 < 6 { 0.7 } else { 40.0 })).unwrap();
        assert!(nightly.hours.enough && nightly.hours.p.unwrap() < 1e-6);
        let said = nightly.sentences().join("\n");
        assert!(said.contains("the hour of the day matters"), "{said}");
        let worse = summary(&log(4, |hour| if hour < 48 { 1.0 } else { 5.0 })).unwrap();
        assert_eq!(worse.changes.len(), 1, "{:?}", worse.changes);
        assert_eq!(worse.changes[0].at_unix_s, 1_700_006_400 + 48 * 3600);
        let steady = summary(&log(4, |_| 1.0)).unwrap();
        assert!(steady.changes.is_empty(), "{:?}", steady.changes);
        assert!(steady.sentences().join("\n").contains("does not matter"));
        assert!(steady.busy_share < 1e-4);
    }

    /// A disk whose model follows the hour, looked at as the canary does, and one that scatters as much.
    #[test]
    fn the_hour_of_a_disk_with_noisy_neighbours_by_day_is_found() {
        let said = |disk: &str| {
            let mut model = Model::new(disk.parse().unwrap(), 1);
            let looks = (0..3 * 144).map(|n| {
                let at_unix_s = n * 600;
                let mut reads: Vec<Duration> = Vec::new();
                for _ in 0..16 {
                    let at = Tick(at_unix_s * 1_000_000_000) + reads.iter().sum();
                    reads.push(model.submit(at, Kind::Read, Bytes::kib(4)).since(at));
                }
                reads.sort_unstable();
                let (read, slowest, busy) = (reads[8], reads[15], reads.iter().sum());
                Look { at_unix_s, reads: 16, read, slowest, flush: None, busy, failed: 0 }
            });
            summary(&looks.collect::<Vec<_>>()).unwrap().sentences().join("\n")
        };
        let disk = "latency=1ms,spread=exponential";
        let busy = said(&format!("{disk},busy_times=10,busy_from=9h,busy_until=18h"));
        assert!(busy.contains("the hour of the day matters"), "{busy}");
        let calm = said(disk);
        assert!(calm.contains("the hour of the day does not matter"), "{calm}");
    }

    #[test]
    fn a_change_is_found_among_looks_that_met_others_and_the_canarys_own_pauses_are_none() {
        // As on a machine that was compiling: one look in four takes up to ten times as long.
        let mut random = Random::new(5, 0);
        let mut looks = log(2, |hour| if hour < 24 { 1.0 } else { 3.0 });
        for look in &mut looks {
            if random.unit() < 0.25 {
                look.read = look.read.mul_f64(1.0 + 9.0 * random.unit());
            }
        }
        let found = summary(&looks).unwrap().changes;
        assert_eq!(found.len(), 1, "{found:?}");
        let (at, wanted) = (found[0].at_unix_s, 1_700_006_400 + 24 * 3600);
        assert!(at.abs_diff(wanted) <= 10 * 600, "{at}, not {wanted}");
        let ratio = found[0].after.as_secs_f64() / found[0].before.as_secs_f64();
        assert!((2.0..4.5).contains(&ratio), "{ratio}");
        // A look of 20 s makes the canary wait for 2500 s.
        let mut slow = log(1, |_| 1.0);
        slow[50].busy = Duration::from_secs(20);
        for look in &mut slow[51..] {
            look.at_unix_s += 1900;
        }
        let summary = summary(&slow).unwrap();
        assert_eq!(summary.gaps, 0);
        assert!(summary.busy_share < MOST_BUSY, "{}", summary.busy_share);
    }

    #[test]
    fn one_day_is_too_little_for_the_hour_and_pauses_are_counted() {
        let mut looks = log(1, |_| 1.0);
        looks.drain(40..60);
        let summary = summary(&looks).unwrap();
        assert_eq!(summary.gaps, 1);
        assert!(summary.sentences().join("\n").contains("less than two days"));
    }

    #[test]
    fn a_log_that_was_cut_short_is_read_and_a_broken_one_is_not() {
        let looks = log(1, |_| 1.0);
        let lines: Vec<String> = looks.iter().map(|look| serde_json::to_string(look).unwrap()).collect();
        let whole = lines.join("\n") + "\n";
        assert_eq!(read_log(&whole).unwrap(), looks);
        assert_eq!(read_log(&whole[..whole.len() - 9]).unwrap().len(), looks.len() - 1);
        assert!(read_log(&format!("nonsense\n{whole}")).unwrap_err().starts_with("line 1"));
        assert!(super::summary(&[]).is_none());
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(clock(0), "1970-01-01 00:00 UTC");
        assert_eq!(clock(1_709_208_061), "2024-02-29 12:01 UTC");
    }
}
