//! When a warm-up is over: a rule on caches, with the evidence kept.

use std::time::Duration;

/// Totals since the warm-up began, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CachePoint {
    /// Time since the warm-up began.
    pub at: Duration,
    /// Operations answered.
    pub operations: u64,
    /// Pages that the engine did not find in its cache.
    pub engine_misses: f64,
    /// Bytes that the engine read from its files, cached by the kernel or not.
    pub engine_read_bytes: f64,
    /// Bytes that the device delivered.
    pub device_read_bytes: f64,
}

/// The rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmUpRule {
    /// Nothing is judged earlier.
    pub least: Duration,
    /// After this the caches are called unsteady.
    pub most: Duration,
    /// What the engine's cache can hold.
    pub engine_cache_bytes: f64,
    /// What the page cache can hold, if it is bounded. What enters it enters the engine's cache too; only
    /// after many turn-overs has it become the place of what the engine does *not* hold.
    pub page_cache_bytes: f64,
}

/// What the rule says now.
#[derive(Debug, Clone, PartialEq)]
pub enum WarmUp {
    /// Go on, because of this.
    NotYet(String),
    /// The caches are at rest; the evidence.
    Steady(String),
    /// They were not at rest in the time given; what was still moving.
    Never(String),
}

impl WarmUpRule {
    /// Turn-overs after which a cache under random access is within 1 % of its equilibrium: e^−4.6.
    const TURN_OVERS: f64 = 4.6;
    /// Below this many misses per operation everything that will be cached is cached.
    const NO_MISSES: f64 = 0.002;
    /// Below this many device bytes per operation the page cache answers everything.
    const DEVICE_IDLE_BYTES: f64 = 40.0;
    /// Two windows may differ by this share of their mean, or by three standard errors if that is more.
    const TOLERANCE: f64 = 0.03;

    /// Judges a series of totals, the newest last.
    ///
    /// Steady means: the engine has read 4.6 times what the caches in use hold, or hardly misses at all; and
    /// in the two latest windows, each a quarter of the time so far, misses per operation and device bytes
    /// per operation agree. The page cache counts as in use when the device still delivers.
    pub fn judge(&self, points: &[CachePoint]) -> WarmUp {
        let Some(last) = points.last() else { return WarmUp::NotYet("nothing read yet".into()) };
        let late = last.at >= self.most;
        let not_yet = |reason: String| if late { WarmUp::Never(reason) } else { WarmUp::NotYet(reason) };
        if last.at < self.least {
            return not_yet(format!(
                "{:.1} s of at least {:.1} s",
                last.at.as_secs_f64(),
                self.least.as_secs_f64()
            ));
        }
        let before = |share: f64| {
            let at = last.at.mul_f64(share);
            points.iter().rev().find(|p| p.at <= at).copied()
        };
        let (Some(middle), Some(start)) = (before(0.75), before(0.5)) else {
            return not_yet("too few readings".into());
        };
        let (older, newer) = (Window::between(&start, &middle), Window::between(&middle, last));
        if older.operations < 1.0 || newer.operations < 1.0 {
            return not_yet("no operations answered".into());
        }
        let device_idle = newer.device_per_operation < Self::DEVICE_IDLE_BYTES;
        let caches = self.engine_cache_bytes + if device_idle { 0.0 } else { self.page_cache_bytes };
        let turn_overs = last.engine_read_bytes / caches;
        let hardly_misses = newer.misses_per_operation < Self::NO_MISSES;
        if turn_overs < Self::TURN_OVERS && !hardly_misses {
            return not_yet(format!(
                "the engine read {turn_overs:.1} times what the caches hold, needs {:.1}",
                Self::TURN_OVERS
            ));
        }
        for (what, a, b, error) in [
            (
                "engine misses per operation",
                older.misses_per_operation,
                newer.misses_per_operation,
                older.miss_error().hypot(newer.miss_error()),
            ),
            (
                "device bytes per operation",
                older.device_per_operation,
                newer.device_per_operation,
                older.device_error().hypot(newer.device_error()),
            ),
        ] {
            let allowed = (Self::TOLERANCE * (a + b) / 2.0).max(3.0 * error);
            if (a - b).abs() > allowed && !(hardly_misses && what.starts_with("engine")) {
                return not_yet(format!("{what} still moves: {a:.4} then {b:.4}, allowed ±{allowed:.4}"));
            }
        }
        WarmUp::Steady(format!(
            "after {:.1} s and {turn_overs:.1} turn-overs of {}: misses per operation {:.4} then {:.4}, \
             device bytes per operation {:.0} then {:.0}",
            last.at.as_secs_f64(),
            if device_idle { "the engine's cache" } else { "engine and page cache" },
            older.misses_per_operation,
            newer.misses_per_operation,
            older.device_per_operation,
            newer.device_per_operation
        ))
    }
}

struct Window {
    operations: f64,
    misses_per_operation: f64,
    device_per_operation: f64,
    mean_read_bytes: f64,
}

impl Window {
    fn between(a: &CachePoint, b: &CachePoint) -> Window {
        let operations = (b.operations - a.operations) as f64;
        let misses = b.engine_misses - a.engine_misses;
        Window {
            operations,
            misses_per_operation: misses / operations,
            device_per_operation: (b.device_read_bytes - a.device_read_bytes) / operations,
            mean_read_bytes: (b.engine_read_bytes - a.engine_read_bytes) / misses.max(1.0),
        }
    }

    /// Standard error of misses per operation, as of a Poisson count.
    fn miss_error(&self) -> f64 {
        (self.misses_per_operation.max(0.0) / self.operations).sqrt()
    }

    /// Standard error of device bytes per operation: whole engine reads, Poisson.
    fn device_error(&self) -> f64 {
        (self.device_per_operation.max(0.0) * self.mean_read_bytes / self.operations).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: WarmUpRule = WarmUpRule {
        least: Duration::from_secs(1),
        most: Duration::from_secs(60),
        engine_cache_bytes: 5e7,
        page_cache_bytes: 5e7,
    };

    /// Totals of a run whose miss ratio at time t is `ratio(t)`; every miss reads 30 KB, half of them from
    /// the device.
    fn series(seconds: u32, operations_per_s: f64, ratio: impl Fn(f64) -> f64) -> Vec<CachePoint> {
        let mut point = CachePoint {
            at: Duration::ZERO,
            operations: 0,
            engine_misses: 0.0,
            engine_read_bytes: 0.0,
            device_read_bytes: 0.0,
        };
        let mut points = vec![point];
        for step in 1..=seconds * 4 {
            point.at = Duration::from_millis(u64::from(step) * 250);
            point.operations += (operations_per_s / 4.0) as u64;
            let misses = ratio(point.at.as_secs_f64()) * operations_per_s / 4.0;
            point.engine_misses += misses;
            point.engine_read_bytes += misses * 30e3;
            point.device_read_bytes += misses * 15e3;
            points.push(point);
        }
        points
    }

    #[test]
    fn a_flat_miss_ratio_is_steady_once_the_cache_turned_over() {
        let points = series(10, 20_000.0, |_| 0.3);
        assert!(matches!(RULE.judge(&points[..2]), WarmUp::NotYet(_)));
        assert!(
            matches!(RULE.judge(&points[..5]), WarmUp::NotYet(reason) if reason.contains("times what the caches"))
        );
        assert!(matches!(RULE.judge(&points), WarmUp::Steady(_)));
    }

    #[test]
    fn a_falling_miss_ratio_is_not_steady_and_in_the_end_never() {
        let points = series(60, 20_000.0, |t| 0.9 * (-t / 40.0).exp());
        assert!(
            matches!(RULE.judge(&points[..80]), WarmUp::NotYet(reason) if reason.contains("still moves"))
        );
        assert!(matches!(RULE.judge(&points), WarmUp::Never(_)));
    }

    #[test]
    fn a_working_set_that_fits_is_steady_when_misses_end() {
        let points = series(6, 20_000.0, |t| if t < 2.0 { 0.2 } else { 0.0 });
        assert!(matches!(RULE.judge(&points[..8]), WarmUp::NotYet(_)));
        assert!(matches!(RULE.judge(&points), WarmUp::Steady(_)));
    }
}
