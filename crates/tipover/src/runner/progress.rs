//! How far a run has come and what is left of it, on stderr: a bar for people, a line now and then for logs.

use crate::trial::Report;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::time::{Duration, Instant};
use tipover_core::experiment::Trial;
use tipover_core::units::span;

fn describe(trial: &Trial<'_>) -> String {
    let labels: Vec<&str> = trial.cell.labels.iter().map(|(_, label)| label.as_str()).collect();
    let again = if trial.twin { " again" } else { "" };
    format!("{} {} #{}{again}", trial.cell.sweep, labels.join(", "), trial.repeat + 1)
}

/// Nobody who follows a log is left without a word for longer.
const SILENCE: Duration = Duration::from_secs(30);

/// The progress of a run.
pub struct Progress {
    bar: ProgressBar,
    state: RefCell<State>,
}

struct State {
    trial: String,
    phase: String,
    begun: Instant,
    remaining: u64,
    spent: Vec<Duration>,
    /// When a log heard of us last.
    said: Instant,
}

impl Progress {
    /// Of so many trials, some of which are there already.
    pub fn new(planned: usize, present: usize) -> Self {
        let bar = ProgressBar::new(planned as u64).with_position(present as u64);
        let style =
            ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}").expect("a constant template");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(250));
        let state = State {
            trial: String::new(),
            phase: String::new(),
            begun: Instant::now(),
            remaining: (planned - present) as u64,
            spent: vec![],
            said: Instant::now(),
        };
        Progress { bar, state: RefCell::new(state) }
    }

    /// A line that stays.
    pub fn say(&self, line: &str) {
        if self.bar.is_hidden() {
            eprintln!("{line}")
        } else {
            self.bar.println(line)
        }
        self.state.borrow_mut().said = Instant::now();
    }

    /// These trials begin, which share a warm-up.
    pub fn begin(&self, together: &[Trial<'_>]) {
        let mut state = self.state.borrow_mut();
        state.trial = describe(&together[0]);
        state.begun = Instant::now();
    }

    /// A trial has ended so.
    pub fn end(&self, trial: &Trial<'_>, outcome: &str) {
        let spent = {
            let mut state = self.state.borrow_mut();
            let spent = state.begun.elapsed();
            state.begun = Instant::now();
            state.spent.push(spent);
            state.remaining -= 1;
            spent
        };
        self.bar.inc(1);
        let line = format!("{}: {outcome} ({:.1} s)", describe(trial), spent.as_secs_f64());
        // A bar has what is left in it.
        match self.bar.is_hidden() {
            true => {
                let left = self.state.borrow().left();
                self.say(&format!("[{}] {line}{left}", self.place()));
            }
            false => self.say(&line),
        }
    }

    /// "3/12".
    fn place(&self) -> String {
        format!("{}/{}", self.bar.position(), self.bar.length().unwrap_or_default())
    }

    fn show(&self, detail: &str) {
        let (message, silent) = {
            let state = self.state.borrow();
            let message = format!("{}: {}{detail}{}", state.trial, state.phase, state.left());
            (message, state.said.elapsed())
        };
        if self.bar.is_hidden() && silent >= SILENCE {
            self.say(&format!("[{}] {message}", self.place()));
        }
        self.bar.set_message(message);
    }
}

impl State {
    /// ", about 4 min left", from the mean of the trials that have ended; nothing before the first and after
    /// the last.
    fn left(&self) -> String {
        let n = self.spent.len() as u32;
        if n == 0 || self.remaining == 0 {
            return String::new();
        }
        let mean = self.spent.iter().sum::<Duration>() / n;
        format!(", about {} left", span::rounded(mean * self.remaining as u32))
    }
}

impl Report for Progress {
    fn doing(&self, what: &str) {
        self.state.borrow_mut().phase = what.to_string();
        self.show("");
    }
    fn share(&self, done: f64) {
        self.show(&format!(" {:.0} %", (done * 100.0).clamp(0.0, 100.0)));
    }
    fn note(&self, text: &str) {
        self.show(&format!(" ({text})"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_the_mean_of_what_was_spent() {
        let state = |spent: &[u64], remaining| State {
            trial: String::new(),
            phase: String::new(),
            begun: Instant::now(),
            remaining,
            spent: spent.iter().map(|s| Duration::from_secs(*s)).collect(),
            said: Instant::now(),
        };
        assert_eq!(state(&[], 3).left(), "", "nothing is known yet");
        assert_eq!(
            state(&[10, 20], 4).left(),
            format!(", about {} left", span::rounded(Duration::from_secs(60)))
        );
        assert_eq!(state(&[10], 0).left(), "");
    }
}
