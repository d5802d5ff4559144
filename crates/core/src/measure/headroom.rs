//! Whether a trial measured its target or its generator.

use std::fmt;

/// Who set the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The generator could have sent twice as much: the figures are the target's.
    Target,
    /// The generator was at its own limit, or late.
    Generator,
    /// What was measured does not tell.
    Unknown,
}

/// The judgement with its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Headroom {
    /// Who set the limit.
    pub bound: Bound,
    /// How many times the measured load the generator's own processor time would have allowed.
    pub times: f64,
    /// Why, as a clause.
    pub because: String,
}

/// What is known of a generator during a phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Generator {
    /// Processor seconds a second that sending and recording took, the target's own work left out.
    pub busy: f64,
    /// Processors that its threads could have used.
    pub processors: f64,
    /// Share of the machine's processor time in which nothing ran; `None` where it is not read.
    pub idle: Option<f64>,
    /// Share of the machine's processor time that its host gave to others; `None` where it is not read.
    pub steal: Option<f64>,
    /// Open loop: whether 1 % of the operations were sent late by more than a tenth of the p99 residence.
    pub late: bool,
}

impl Headroom {
    /// METHODS F3 asks for a generator that could do twice the load. Below a fifth more it is the limit.
    /// Where the machine was nearly without idle time, or its host took processors away, generator and
    /// target may have been in each other's way, and nobody can tell.
    pub fn of(generator: &Generator) -> Headroom {
        let times = generator.processors / generator.busy.max(1e-9);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let (bound, because) = if generator.late {
            (Bound::Generator, "it sent 1 % of the operations late".to_string())
        } else if times < 1.2 {
            let share = percent(generator.busy / generator.processors);
            (Bound::Generator, format!("it took {share} of the processor time that its threads can have"))
        } else if let Some(steal) = generator.steal.filter(|steal| *steal > 0.01) {
            (Bound::Unknown, format!("the host gave {} of the processors to others", percent(steal)))
        } else if times < 2.0 {
            (Bound::Unknown, "twice the load is what a generator should be able to send".to_string())
        } else if let Some(idle) = generator.idle.filter(|idle| *idle < 0.05) {
            let because =
                format!("{} of the machine's processors were idle: all want the same ones", percent(idle));
            (Bound::Unknown, because)
        } else {
            (Bound::Target, "the generator had time to spare".to_string())
        };
        Headroom { bound, times, because }
    }
}

impl fmt::Display for Headroom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.bound {
            Bound::Target => "target-bound",
            Bound::Generator => "generator-bound",
            Bound::Unknown => "unknown",
        };
        if self.times > 1000.0 {
            write!(f, "{word} (over 1000 × headroom): {}", self.because)
        } else {
            write!(f, "{word} ({:.1} × headroom): {}", self.times, self.because)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EASY: Generator =
        Generator { busy: 0.1, processors: 2.0, idle: Some(0.4), steal: Some(0.0), late: false };

    #[test]
    fn each_limit_is_named() {
        let bound = |generator: Generator| Headroom::of(&generator).bound;
        assert_eq!(bound(EASY), Bound::Target);
        assert!((Headroom::of(&EASY).times - 20.0).abs() < 1e-9);
        assert_eq!(bound(Generator { busy: 1.9, ..EASY }), Bound::Generator);
        assert_eq!(bound(Generator { busy: 1.2, ..EASY }), Bound::Unknown);
        assert_eq!(bound(Generator { late: true, ..EASY }), Bound::Generator);
        assert_eq!(bound(Generator { steal: Some(0.05), ..EASY }), Bound::Unknown);
        assert_eq!(bound(Generator { idle: Some(0.0), ..EASY }), Bound::Unknown);
        assert_eq!(bound(Generator { idle: None, steal: None, ..EASY }), Bound::Target);
        assert!(Headroom::of(&EASY).to_string().starts_with("target-bound (20.0 × headroom)"));
    }
}
