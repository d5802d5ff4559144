//! The processes that send a trial's load: one on this machine, which also loads and reads the target, and
//! where a fleet sends it together one on each of the others.

use super::generator_process::GeneratorProcess;
use crate::clock::Clock;
use crate::generator::{Command, Cut, Reply, Share};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::time::Duration;
use tipover_core::experiment::{Part, Spec};
use tipover_core::measure::{Books, ClockOffset, Offered};
use tipover_core::metric::Sample;
use tipover_core::record::LoadMachine;
use tipover_core::units::{Bytes, Tick};

/// How long before its moment several machines are told what to do at one moment, besides twice the way to
/// the farthest.
const AHEAD: Duration = Duration::from_millis(20);

/// The other machines of a fleet, for whoever carries out trials on one of them.
pub trait Fellows {
    /// What this machine is called there.
    fn machine(&self) -> &str;

    /// Starts a generator for each part of the load of `spec` but the first, on machines of their own.
    ///
    /// # Errors
    /// There are too few, or one cannot start.
    fn start(&self, spec: &Spec, seed: u64, clock: Clock) -> Result<Vec<Box<dyn Fellow>>>;
}

/// A generator on another machine.
pub trait Fellow: Send {
    /// The machine that it runs on.
    fn machine(&self) -> &str;

    /// How many processors that has.
    fn processors(&self) -> u32;

    /// Sends a command without waiting for its answer.
    ///
    /// # Errors
    /// It cannot be sent.
    fn tell(&mut self, command: &Command) -> Result<()>;

    /// Waits for the answer.
    ///
    /// # Errors
    /// It is gone, does not answer, or could not do it.
    fn hear(&mut self) -> Result<Reply>;

    /// Its clock against ours, asked anew.
    ///
    /// # Errors
    /// It is gone, or its clock was set meanwhile.
    fn offset(&mut self) -> Result<ClockOffset>;
}

/// All generators of a target at work.
pub struct Generators {
    here: GeneratorProcess,
    /// What this machine is called where there are others.
    name: String,
    others: Vec<Other>,
    clock: Clock,
}

struct Other {
    fellow: Box<dyn Fellow>,
    offset: ClockOffset,
}

impl Generators {
    /// One generator.
    pub fn alone(here: GeneratorProcess, clock: Clock) -> Generators {
        Generators { here, name: String::new(), others: vec![], clock }
    }

    /// One on this machine, which the fleet knows by this name, and others that were started.
    ///
    /// # Errors
    /// The clock of one cannot be compared with ours.
    pub fn together(
        here: GeneratorProcess,
        name: &str,
        fellows: Vec<Box<dyn Fellow>>,
        clock: Clock,
    ) -> Result<Generators> {
        let others = fellows.into_iter().map(|mut fellow| Ok(Other { offset: fellow.offset()?, fellow }));
        Ok(Generators { here, name: name.into(), others: others.collect::<Result<_>>()?, clock })
    }

    /// Sends a command to whom it concerns and waits for the answers: sessions work everywhere, everything
    /// else is done here.
    ///
    /// # Errors
    /// One of them could not do it, died or does not answer: with its name.
    pub fn ask(&mut self, command: &Command) -> Result<Reply> {
        if self.others.is_empty() || !command.is_of_sessions() {
            return self.here.ask(command);
        }
        let command = if command.has_a_moment() {
            let farthest = self.others.iter().map(|other| other.offset.bound_ns).max().unwrap_or(0);
            let at = self.clock.now() + AHEAD + Duration::from_nanos(2 * farthest);
            &Command::At { at, command: Box::new(command.clone()) }
        } else {
            command
        };
        for other in &mut self.others {
            other.told(|fellow| fellow.tell(command))?;
        }
        let mut answer = self.here.ask(command)?;
        let shares: Vec<(String, u32, Reply)> = self
            .others
            .iter_mut()
            .map(|other| {
                let answer = other.told(|fellow| fellow.hear())?;
                Ok((other.fellow.machine().to_string(), other.fellow.processors(), answer))
            })
            .collect::<Result<_>>()?;
        match &mut answer {
            Reply::Paused { unanswered } => {
                *unanswered += shares.iter().fold(0, |sum, (_, _, answer)| match answer {
                    Reply::Paused { unanswered } => sum + unanswered,
                    _ => sum,
                });
            }
            Reply::Interval(own) => {
                let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
                let mut cuts = vec![Share { machine: self.name.clone(), processors, cut: (**own).clone() }];
                for (machine, processors, answer) in shares {
                    let Reply::Interval(cut) = answer else { bail!("{machine} answered {answer:?}") };
                    cuts.push(Share { machine, processors, cut: *cut });
                }
                own.add_up(cuts)?;
            }
            _ => {}
        }
        Ok(answer)
    }

    /// Closes an interval.
    ///
    /// # Errors
    /// As [`Generators::ask`].
    pub fn cut(&mut self) -> Result<Cut> {
        match self.ask(&Command::Cut)? {
            Reply::Interval(cut) => Ok(*cut),
            other => bail!("expected an interval, got {other:?}"),
        }
    }

    /// The target's statistics, while no sessions run.
    ///
    /// # Errors
    /// As [`Generators::ask`].
    pub fn sample(&mut self) -> Result<Sample> {
        self.here.sample()
    }

    /// How much of the generator's memory here is in huge pages now.
    pub fn huge_pages(&self) -> Option<Bytes> {
        self.here.huge_pages()
    }

    /// The clocks of the others against ours, from their start until now.
    ///
    /// # Errors
    /// One is gone, or its clock was set.
    pub fn offsets(&mut self) -> Result<BTreeMap<String, ClockOffset>> {
        let one = |other: &mut Other| {
            let offset = other.offset.or(other.told(|fellow| fellow.offset())?);
            Ok((other.fellow.machine().to_string(), offset))
        };
        self.others.iter_mut().map(one).collect()
    }

    /// Ends all in good order. Returns how long closing the target took.
    ///
    /// # Errors
    /// As [`Generators::ask`].
    pub fn stop(mut self) -> Result<Duration> {
        for other in &mut self.others {
            other.told(|fellow| fellow.tell(&Command::Stop))?;
            other.told(|fellow| fellow.hear())?;
        }
        self.here.stop()
    }
}

impl Other {
    fn told<T>(&mut self, work: impl FnOnce(&mut dyn Fellow) -> Result<T>) -> Result<T> {
        let done = work(self.fellow.as_mut());
        done.with_context(|| format!("the machine {}, which sends a part of the load", self.fellow.machine()))
    }
}

impl Cut {
    /// Becomes what all machines counted; the target's statistics are those that the first one read.
    fn add_up(&mut self, shares: Vec<Share>) -> Result<()> {
        let mut books = Books::from_text(&self.books).map_err(anyhow::Error::msg)?;
        for Share { cut, .. } in &shares[1..] {
            books.merge(&Books::from_text(&cut.books).map_err(anyhow::Error::msg)?);
            match (&mut self.offered, &cut.offered) {
                (Some(all), Some(more)) => all.add_beside(more).map_err(anyhow::Error::msg)?,
                (None, None) => {}
                _ => bail!("one machine sent an open loop and another a closed one"),
            }
            self.in_flight = self.in_flight.saturating_add(cut.in_flight);
            self.oldest_in_flight_ns = self.oldest_in_flight_ns.max(cut.oldest_in_flight_ns);
            self.process_cpu_ns = self.process_cpu_ns.saturating_add(cut.process_cpu_ns);
            self.sessions_cpu_ns = self.sessions_cpu_ns.saturating_add(cut.sessions_cpu_ns);
        }
        self.books = books.to_text();
        self.shares = shares;
        Ok(())
    }
}

/// What each machine did in a phase, as far as it has come.
pub struct Shares(Vec<Summed>);

struct Summed {
    of: LoadMachine,
    offered: Option<Offered>,
    /// Processor time at its beginning: of the process, of the sessions.
    began: (u64, u64),
}

impl Shares {
    /// Of a phase that begins at the end of `first`, with this number of sessions.
    pub fn from(first: &Cut, sessions: u32) -> Shares {
        let of = first.shares.len() as u32;
        let one = |(number, share): (u32, &Share)| Summed {
            of: LoadMachine {
                machine: share.machine.clone(),
                processors: share.processors,
                sessions: Part { number, of }.sessions(sessions),
                operations: 0,
                process_ns: 0,
                sessions_ns: 0,
                late_ns: None,
                clock: None,
                apart_ns: apart(first.end, share.cut.end),
            },
            offered: None,
            began: (share.cut.process_cpu_ns, share.cut.sessions_cpu_ns),
        };
        Shares((0..).zip(&first.shares).map(one).collect())
    }

    /// Adds an interval.
    pub fn add(&mut self, cut: &Cut) -> Result<()> {
        let end = cut.shares.first().map_or(cut.end, |first| first.cut.end);
        for (sum, Share { cut, .. }) in self.0.iter_mut().zip(&cut.shares) {
            let done = Books::from_text(&cut.books).map_err(anyhow::Error::msg)?.done();
            sum.of.operations = sum.of.operations.saturating_add(done);
            sum.of.process_ns = cut.process_cpu_ns.saturating_sub(sum.began.0);
            sum.of.sessions_ns = cut.sessions_cpu_ns.saturating_sub(sum.began.1);
            sum.of.apart_ns = sum.of.apart_ns.max(apart(end, cut.end));
            match (&mut sum.offered, &cut.offered) {
                (Some(offered), Some(next)) => offered.append(next).map_err(anyhow::Error::msg)?,
                (none, next) => *none = next.clone(),
            }
        }
        Ok(())
    }

    /// For the record, with the clocks of all but the first.
    pub fn into_machines(self, clocks: &BTreeMap<String, ClockOffset>) -> Result<Vec<LoadMachine>> {
        let late = |offered: &Offered| -> Result<u64> {
            Ok(offered.lateness().map_err(anyhow::Error::msg)?.value_at_quantile(0.99))
        };
        let one = |sum: Summed| {
            let late_ns = sum.offered.as_ref().map(late).transpose()?;
            let clock = clocks.get(&sum.of.machine).copied();
            Ok(LoadMachine { late_ns, clock, ..sum.of })
        };
        self.0.into_iter().map(one).collect()
    }
}

fn apart(a: Tick, b: Tick) -> u64 {
    a.0.abs_diff(b.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;
    use tipover_core::op::{OpKind, Outcome, Timing};

    fn cut(books: &Books) -> Cut {
        Cut {
            begin: Tick(0),
            end: Tick(1_000_000_000),
            books: books.to_text(),
            offered: None,
            in_flight: 1,
            oldest_in_flight_ns: 1,
            target: Sample::default(),
            process_cpu_ns: 2,
            sessions_cpu_ns: 1,
            shares: vec![],
        }
    }

    #[test]
    fn what_a_thousand_machines_counted_adds_up_to_what_one_would_have() {
        let (mut shares, mut one) = (Vec::new(), Books::new(false));
        for machine in 0..1_000_u64 {
            let mut own = Books::new(false);
            for operation in 0..200 {
                // Latencies from 1 us to 10 s, as many of each power.
                let latency = 1_000 * 10_u64.pow((operation % 8) as u32) + machine * 997 + operation;
                let timing = Timing { due: Tick(0), began: Tick(0), ended: Tick(latency) };
                own.record(OpKind::Read, Outcome::Done, &timing, 100);
                one.record(OpKind::Read, Outcome::Done, &timing, 100);
            }
            shares.push(Share { machine: machine.to_string(), processors: 1, cut: cut(&own) });
        }
        let mut all = shares[0].cut.clone();
        let began = Instant::now();
        all.add_up(shares).unwrap();
        println!("1,000 machines' histograms added up in {:?}", began.elapsed());
        assert_eq!(all.books, one.to_text(), "nothing is lost and nothing averaged");
        assert_eq!((all.in_flight, all.process_cpu_ns, all.shares.len()), (1_000, 2_000, 1_000));
    }
}
