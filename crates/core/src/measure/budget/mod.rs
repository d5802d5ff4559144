//! Budgets of bytes: what one station of a node gave must have reached the next, by witnesses that do not
//! know each other.
//!
//! Reads: what the engine missed = what the page cache had + what the device served. Writes: the user's bytes
//! → the journal → what the engine wrote → what the kernel was given → what the device wrote and flushed. A
//! budget is made of raw counters ([`Account`]); it closes, does not close and says why, or was not
//! accounted.

mod account;
mod reads;
mod writes;

#[cfg(test)]
mod tests;

pub use account::Account;

use serde::{Deserialize, Serialize};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// From the device to the engine.
    Reads,
    /// From the user to the device.
    Writes,
}

impl Way {
    /// "reads" or "writes".
    pub fn words(self) -> &'static str {
        match self {
            Way::Reads => "reads",
            Way::Writes => "writes",
        }
    }
}

/// A place that bytes pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Station {
    /// Those who asked: keys and values of operations that wrote.
    User,
    /// The engine's journal: write-ahead log, redo log.
    Journal,
    /// The engine: what it missed and read from files, or wrote to files.
    Engine,
    /// The page cache: what it answered, or was given.
    PageCache,
    /// The node's disk.
    Device,
}

/// What passed one station.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The station.
    pub station: Station,
    /// What it is, in words.
    pub what: String,
    /// How many bytes; `None` if nobody counted them.
    pub bytes: Option<f64>,
    /// In how many requests, where they are counted.
    pub requests: Option<f64>,
    /// Flushes, where they are counted.
    pub flushes: Option<f64>,
    /// What of it was for what, as far as it is told apart. Parts need not make up the whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
}

impl Step {
    fn new(station: Station, what: &str, bytes: Option<f64>) -> Step {
        Step { station, what: what.into(), bytes, requests: None, flushes: None, parts: Vec::new() }
    }

    /// With a part, if it was counted and there was any.
    fn part(mut self, what: &str, bytes: Option<f64>) -> Step {
        if let Some(bytes) = bytes.filter(|bytes| *bytes != 0.0) {
            self.parts.push(Part { what: what.into(), bytes });
        }
        self
    }
}

/// Bytes of a step that are told apart.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// What for.
    pub what: String,
    /// How many.
    pub bytes: f64,
}

/// Two witnesses' words on the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Who was compared.
    pub what: String,
    /// What the one has and the other lacks.
    pub residual_bytes: f64,
    /// The same as a share of what was compared.
    pub residual: f64,
    /// Whether the residual is within its tolerance; `None` where it proves nothing.
    pub closes: Option<bool>,
    /// In words: why it does not close, or proves nothing; empty where it closes.
    pub reason: String,
}

/// What passed each station of a node in a window, and whether it fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Budget {
    /// Which way.
    pub way: Way,
    /// In the order of the bytes' way: for reads from the engine to the device, for writes from the user to
    /// the device.
    pub steps: Vec<Step>,
    /// What was compared.
    pub checks: Vec<Agreement>,
    /// Whether all bytes are accounted for; `None` where no independent witness could tell.
    pub closes: Option<bool>,
    /// In words: who agrees, what does not fit, or what is missing.
    pub evidence: String,
}

impl Budget {
    /// Largest residual of a budget that closes, besides what the witnesses' different moments explain.
    pub const TOLERANCE: f64 = 0.02;
    /// If their different moments explain more than this share, nothing is proved.
    const MOST_APART: f64 = 0.10;
    /// Below this a share of nothing is noise: a few pages of bookkeeping.
    const SLACK_BYTES: f64 = 1_048_576.0;

    /// The budget of reads.
    pub fn reads(account: &Account) -> Budget {
        reads::budget(account)
    }

    /// The budget of writes. `user_bytes`: keys and values that operations wrote, if that is known.
    pub fn writes(account: &Account, user_bytes: Option<f64>) -> Budget {
        writes::budget(account, user_bytes)
    }

    /// Bytes that passed `station`, if somebody counted them.
    pub fn bytes(&self, station: Station) -> Option<f64> {
        self.step(station)?.bytes
    }

    /// The step at `station`.
    pub fn step(&self, station: Station) -> Option<&Step> {
        self.steps.iter().find(|step| step.station == station)
    }

    /// How many bytes passed a step for each byte of the last counted step before it; `None` for the first,
    /// and where nothing was counted.
    pub fn amplification(&self, step: usize) -> Option<f64> {
        let before = self.steps[..step].iter().rev().find_map(|step| step.bytes)?;
        let bytes = self.steps[step].bytes?;
        (before > 0.0).then(|| bytes / before)
    }

    /// The comparison that fits worst; `None` if nothing was compared.
    fn worst(&self) -> Option<&Agreement> {
        self.checks.iter().max_by(|a, b| a.residual.abs().total_cmp(&b.residual.abs()))
    }

    /// Its residual, as a share.
    pub fn residual(&self) -> Option<f64> {
        self.worst().map(|worst| worst.residual)
    }

    /// The same in words: "residual -1.3 %", or in bytes where so few passed that a share of them says
    /// nothing.
    pub fn residual_in_words(&self) -> Option<String> {
        let Agreement { residual, residual_bytes, closes, .. } = self.worst()?;
        let is_share = *closes != Some(true)
            || residual.abs() <= Budget::TOLERANCE
            || residual_bytes.abs() > Budget::SLACK_BYTES;
        Some(match is_share {
            true => format!("residual {:+.1} %", residual * 100.0),
            false => format!("all but {}", rounded(residual_bytes.abs())),
        })
    }

    /// Whether anybody counted anything.
    pub fn is_accounted(&self) -> bool {
        !self.checks.is_empty()
    }

    fn of(way: Way, steps: Vec<Step>, checks: Vec<Agreement>, agree: &str, missing: &str) -> Budget {
        let fails = checks.iter().any(|check| check.closes == Some(false));
        let unproved = checks.is_empty() || checks.iter().any(|check| check.closes.is_none());
        let closes = if fails { Some(false) } else { (!unproved).then_some(true) };
        let reasons: Vec<&str> =
            checks.iter().map(|check| check.reason.as_str()).filter(|reason| !reason.is_empty()).collect();
        let evidence = match (checks.is_empty(), reasons.is_empty()) {
            (true, _) => format!("not accounted: {missing}"),
            (_, true) => agree.to_string(),
            (_, false) => reasons.join("; "),
        };
        Budget { way, steps, checks, closes, evidence }
    }
}

impl Agreement {
    /// Compares `one` with `other`, of which `apart` is the share that may lie between their readings.
    /// `why` says of a residual too large what it may be.
    fn of(what: &str, one: f64, other: f64, apart: f64, why: impl FnOnce(f64) -> String) -> Agreement {
        let whole = one.abs().max(other.abs());
        let residual_bytes = one - other;
        let tolerance = (whole * Budget::TOLERANCE).max(Budget::SLACK_BYTES) + whole * apart;
        let fits = residual_bytes.abs() <= tolerance;
        let blurred = apart > Budget::MOST_APART && whole * apart > Budget::SLACK_BYTES;
        let reason = match (blurred, fits) {
            (true, _) => format!(
                "{what} were read so far apart that {} may lie between them: nothing is proved",
                rounded(whole * apart)
            ),
            (false, true) => String::new(),
            (false, false) => why(residual_bytes),
        };
        let residual = if whole > 0.0 { residual_bytes / whole } else { 0.0 };
        Agreement { what: what.into(), residual_bytes, residual, closes: (!blurred).then_some(fits), reason }
    }

    /// Of a server that was started again in the window: its counters began anew, so it is no witness.
    fn with_restarts(account: &Account) -> Option<Agreement> {
        let times = match account.restarts() {
            0.0 => return None,
            1.0 => "once".to_string(),
            n => format!("{n} times"),
        };
        let reason =
            format!("its server was started again {times} meanwhile, and counts anew: nothing is proved");
        Some(Agreement::proves_nothing("before and after a restart", 0.0, 0.0, &reason))
    }

    /// A comparison of which the two sides are not independent.
    fn proves_nothing(what: &str, one: f64, other: f64, reason: &str) -> Agreement {
        let nothing = Agreement::of(what, one, other, 0.0, |_| String::new());
        Agreement { closes: None, reason: reason.into(), ..nothing }
    }
}

/// "12.3 MB".
fn rounded(bytes: f64) -> String {
    match bytes.abs() {
        ..1e3 => format!("{bytes:.0} B"),
        1e3..1e6 => format!("{:.1} kB", bytes / 1e3),
        1e6..1e9 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.2} GB", bytes / 1e9),
    }
}
