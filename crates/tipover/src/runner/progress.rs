//! How far a run has come and what is left of it, on stderr: a bar for people, a line now and then for logs;
//! and for whoever follows it in a browser.

use crate::live::{Live, State};
use crate::trial::Report;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::time::{Duration, Instant};
use tipover_core::check::Carried;
use tipover_core::experiment::Trial;
use tipover_core::record::Interval;
use tipover_core::units::span;

fn describe(trial: &Trial<'_>) -> String {
    let labels: Vec<&str> = trial.cell.labels.iter().map(|(_, label)| label.as_str()).collect();
    let again = if trial.twin { " again" } else { "" };
    let cell = [trial.cell.sweep.as_str(), &labels.join(", ")].join(" ");
    format!("{} #{}{again}", cell.trim_end(), trial.repeat + 1)
}

/// Nobody who follows a log is left without a word for longer.
const SILENCE: Duration = Duration::from_secs(30);

/// The progress of a run.
pub struct Progress<'a> {
    bar: ProgressBar,
    live: Option<&'a Live>,
    state: RefCell<Done>,
}

struct Done {
    trial: String,
    phase: String,
    begun: Instant,
    remaining: u64,
    spent: Vec<Duration>,
    /// When a log heard of us last.
    said: Instant,
}

impl<'a> Progress<'a> {
    /// Of this number of trials, some of which are there already.
    pub fn new(planned: usize, present: usize, live: Option<&'a Live>) -> Self {
        let bar = ProgressBar::new(planned as u64).with_position(present as u64);
        let style =
            ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}").expect("a constant template");
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(250));
        let state = Done {
            trial: String::new(),
            phase: String::new(),
            begun: Instant::now(),
            remaining: (planned - present) as u64,
            spent: vec![],
            said: Instant::now(),
        };
        if let Some(live) = live {
            live.tell(|run| run.trials = Some((planned as u64, present as u64)));
        }
        Progress { bar, live, state: RefCell::new(state) }
    }

    fn tell(&self, change: impl FnOnce(&mut State)) {
        if let Some(live) = self.live {
            live.tell(change);
        }
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
        self.tell(|run| run.begin(&state.trial));
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
        self.tell(|run| {
            run.end(&describe(trial), outcome, spent);
            run.left = self.state.borrow().left();
        });
        let line = format!("{}: {outcome} ({:.1} s)", describe(trial), spent.as_secs_f64());
        // A bar has what is left in it.
        match self.bar.is_hidden() {
            true => {
                let left = self.state.borrow().left_in_words();
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
            let message = format!("{}: {}{detail}{}", state.trial, state.phase, state.left_in_words());
            (message, state.said.elapsed())
        };
        if self.bar.is_hidden() && silent >= SILENCE {
            self.say(&format!("[{}] {message}", self.place()));
        }
        self.bar.set_message(message);
    }
}

impl Done {
    /// How long the rest takes, from the mean of the trials that have ended; nothing before the first and
    /// after the last.
    fn left(&self) -> Option<Duration> {
        let n = self.spent.len() as u32;
        let mean = self.spent.iter().sum::<Duration>().checked_div(n)?;
        (self.remaining > 0).then(|| mean * self.remaining as u32)
    }

    /// ", about 4 min left".
    fn left_in_words(&self) -> String {
        self.left().map_or(String::new(), |left| format!(", about {} left", span::rounded(left)))
    }
}

impl Report for Progress<'_> {
    fn doing(&self, what: &str) {
        self.state.borrow_mut().phase = what.to_string();
        self.tell(|run| run.phase(what));
        self.show("");
    }
    fn share(&self, done: f64) {
        self.tell(|run| run.share = Some(done));
        self.show(&format!(" {:.0} %", (done * 100.0).clamp(0.0, 100.0)));
    }
    fn note(&self, text: &str) {
        self.tell(|run| run.note = text.into());
        self.show(&format!(" ({text})"));
    }
    fn interval(&self, interval: &Interval) {
        self.tell(|run| run.interval(interval));
    }
    fn faults(&self, carried: &[Carried]) {
        self.tell(|run| run.faults_carried(carried));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_the_mean_of_what_was_spent() {
        let state = |spent: &[u64], remaining| Done {
            trial: String::new(),
            phase: String::new(),
            begun: Instant::now(),
            remaining,
            spent: spent.iter().map(|s| Duration::from_secs(*s)).collect(),
            said: Instant::now(),
        };
        assert_eq!(state(&[], 3).left_in_words(), "", "nothing is known yet");
        assert_eq!(
            state(&[10, 20], 4).left_in_words(),
            format!(", about {} left", span::rounded(Duration::from_secs(60)))
        );
        assert_eq!(state(&[10], 0).left_in_words(), "");
    }
}
