//! A run while it goes on: a page in the browser that follows it, and the same figures for Prometheus.
//!
//! The run only tells what it has read anyway. Pages are made in a thread of the lowest priority, once a
//! second at most, and only while somebody looks.

mod metrics;
mod page;
mod server;
mod state;

pub use server::{Address, Live};
pub use state::State;

use crate::drive::Tally;
use anyhow::Result;
use clap::Args;
use std::collections::BTreeMap;
use std::time::Duration;
use tipover_core::measure::{Books, Offered};
use tipover_core::record::{Interval, Phase};
use tipover_core::units::Tick;

/// `--live`, as every verb that takes a while has it.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct LiveArgument {
    /// Follow the run in a browser, on this machine; elsewhere with a token that is printed once
    ///
    /// The same figures are at /metrics for Prometheus.
    #[arg(long, value_name = "[ADDRESS:]PORT", num_args = 0..=1, require_equals = true,
          default_missing_value = Address::DEFAULT)]
    live: Option<Address>,
}

impl From<Option<Address>> for LiveArgument {
    fn from(live: Option<Address>) -> Self {
        LiveArgument { live }
    }
}

impl LiveArgument {
    /// Serves the run `name`, if that was asked for, and says where.
    ///
    /// # Errors
    /// Nobody can listen there.
    pub fn open(self, name: &str, command: &str) -> Result<Option<Live>> {
        let Some(address) = self.live else { return Ok(None) };
        let live = Live::open(address, name, command)?;
        eprintln!("live: {}", live.url());
        Ok(Some(live))
    }
}

/// The intervals of a load without a trial around it.
pub struct Pulse<'a> {
    live: &'a Live,
    begin: Tick,
    so_far: Option<(Books, Option<Offered>)>,
}

/// As often as a trial closes an interval.
const PULSE: Duration = Duration::from_secs(1);

impl<'a> Pulse<'a> {
    /// Of a load that begins now.
    pub fn new(live: &'a Live, doing: &str, now: Tick) -> Self {
        live.tell(|run| run.phase(doing));
        Pulse { live, begin: now, so_far: None }
    }

    /// Whether it is time to close an interval.
    pub fn is_due(&self, now: Tick) -> bool {
        now.since(self.begin) >= PULSE
    }

    /// Adds what was done since the last time.
    pub fn add(&mut self, tally: &Tally) {
        let (books, offered) = match self.so_far.take() {
            None => (tally.books.clone(), tally.offered.clone()),
            Some((mut books, mut offered)) => {
                books.merge(&tally.books);
                if let (Some(all), Some(more)) = (&mut offered, &tally.offered)
                    && all.append(more).is_err()
                {
                    // Of damaged counts, the last ones are still right.
                    offered.clone_from(&tally.offered);
                }
                (books, offered)
            }
        };
        if !self.is_due(tally.end) {
            self.so_far = Some((books, offered));
            return;
        }
        let interval = Interval {
            phase: Phase::Measure,
            begin: std::mem::replace(&mut self.begin, tally.end),
            end: tally.end,
            books: books.to_text(),
            offered,
            samples: BTreeMap::new(),
            disk: None,
            nodes: BTreeMap::new(),
        };
        self.live.tell(|run| run.interval(&interval));
    }
}
