//! An embedded engine in a process of its own, so that it can be killed and its power cut like a server.
//!
//! Its process serves over TCP, a JSON text a line in each direction, one connection a session. The client's
//! end is a [`Link`] like that to any server, with its time-outs, its wire, and its new connections; the
//! session's data set is told in the greeting.

use crate::connection::{Dialect, Framing, Greeting, Input, Link, Protocol, Received, Refusal, Route, Url};
use crate::connection::{Step, connect};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::time::Duration;
use tipover_core::check::payload::payload;
use tipover_core::check::{self, Version};
use tipover_core::experiment::{Durability, Spec};
use tipover_core::metric::Metric;
use tipover_core::op::{Failure, Op, OpKind, Outcome};
use tipover_core::peer;
use tipover_core::target::{BankRows, Facts, Lists, Session, Target, TargetError};
use tipover_core::workload::{Dataset, Shape};

/// What the engine's process is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum Question {
    Facts,
    Metrics,
    Sample,
    Settle,
    Load {
        dataset: Box<Dataset>,
        records: Range<u64>,
    },
    Prepare {
        accounts: Vec<(u64, i64)>,
    },
    ReadKeys,
    ReadBank,
    ReadLists,
    /// The session's operations are on this data set.
    Open {
        dataset: Box<Dataset>,
    },
    /// One that is not acknowledged has no answer.
    Execute {
        op: Op,
        acknowledged: bool,
    },
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
enum Reply {
    Did,
    Facts { facts: Facts },
    Metrics { metrics: Vec<Metric> },
    Sample { values: BTreeMap<String, f64> },
    Keys { keys: Vec<(u64, Version)> },
    Bank { bank: BankRows },
    Lists { lists: Lists },
    Executed { outcome: Outcome, records: u32, answer: check::Returned },
    Failed { reason: String },
}

/// Serves one connection until the client hangs up. `heard` is told every outcome.
///
/// # Errors
/// The connection is lost, or what comes is none of ours.
pub fn serve(stream: TcpStream, target: &dyn Target, heard: &dyn Fn(Outcome)) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let mut output = BufWriter::new(stream);
    while let Some(line) = lines.next() {
        match serde_json::from_str(&line?)? {
            Question::Open { dataset } => match target.open(&dataset) {
                Ok(mut session) => return serve_session(session.as_mut(), &dataset, lines, output, heard),
                Err(error) => peer::say(&mut output, &Reply::Failed { reason: error.to_string() })?,
            },
            question => peer::say(&mut output, &administer(target, question))?,
        }
    }
    Ok(())
}

fn serve_session(
    session: &mut dyn Session,
    dataset: &Dataset,
    lines: impl Iterator<Item = io::Result<String>>,
    mut output: impl Write,
    heard: &dyn Fn(Outcome),
) -> io::Result<()> {
    peer::say(&mut output, &Reply::Did)?;
    let is_checked = matches!(dataset.shape, Shape::Checks(_));
    for line in lines {
        let Question::Execute { op, acknowledged } = serde_json::from_str(&line?)? else {
            return Err(io::Error::other("a session is asked for operations only"));
        };
        let outcome = session.execute(&op);
        heard(outcome);
        if !acknowledged {
            continue;
        }
        let answer = match session.fetched(0).filter(|_| is_checked) {
            Some(bytes) if outcome == Outcome::Done => check::Returned::Value(Some(Version::found(bytes))),
            _ => session.answer(),
        };
        peer::say(&mut output, &Reply::Executed { outcome, records: session.fetched_records(), answer })?;
    }
    Ok(())
}

fn administer(target: &dyn Target, question: Question) -> Reply {
    let answer = || -> Result<Reply, TargetError> {
        Ok(match question {
            Question::Facts => Reply::Facts { facts: target.facts()? },
            Question::Metrics => Reply::Metrics { metrics: target.metrics() },
            Question::Sample => Reply::Sample { values: target.sample()? },
            Question::Settle => target.settle().map(|()| Reply::Did)?,
            Question::Load { dataset, records } => target.load(&dataset, records).map(|()| Reply::Did)?,
            Question::Prepare { accounts } => target.prepare(&accounts).map(|()| Reply::Did)?,
            Question::ReadKeys => Reply::Keys { keys: target.read_keys()? },
            Question::ReadBank => Reply::Bank { bank: target.read_bank()? },
            Question::ReadLists => Reply::Lists { lists: target.read_lists()? },
            Question::Open { .. } | Question::Execute { .. } => {
                return Err(TargetError::new("answering", "a session is opened before it is asked"));
            }
        })
    };
    answer().unwrap_or_else(|error| Reply::Failed { reason: error.to_string() })
}

const DIALECT: Dialect = Dialect {
    schemes: &["tipover"],
    port: 0,
    encryption: "encryption",
    authorities: "authorities",
    password_variable: "TIPOVER_PASSWORD",
    user: "tipover",
    socket_name: |_| None,
};

/// An engine that is served at an address.
pub struct Served {
    route: Route,
    shown: String,
    timeout: Duration,
    connect_timeout: Duration,
    metrics: Vec<Metric>,
    /// Whether writes are done once they are sent.
    unacknowledged: bool,
}

/// The address of an engine that is served at `host` and port.
pub fn address(host_and_port: &str) -> String {
    format!("tipover://{host_and_port}/?{}=disable", DIALECT.encryption)
}

/// The only conversation besides a session's.
struct Silence;

impl Greeting for Silence {
    fn start(&mut self, _: bool, _: &mut Vec<u8>) {}
    fn greet(&mut self, _: &mut Input, _: &mut Vec<u8>, _: bool) -> Step {
        Step::Ready
    }
}

fn line(input: &Input) -> Option<(u8, Range<usize>)> {
    let end = input.rest().iter().position(|byte| *byte == b'\n')?;
    Some((0, 0..end + 1))
}

fn ask(output: &mut Vec<u8>, question: &Question) {
    peer::say(output, question).expect("a vector takes everything");
}

impl Served {
    /// Connects to the engine that `spec` has an address of.
    ///
    /// # Errors
    /// Nobody serves there.
    pub fn connect(spec: &Spec) -> Result<Self, TargetError> {
        let missing = || TargetError::new("connecting to the engine", "target.address is missing");
        let address = spec.target.address.as_ref().ok_or_else(missing)?;
        let failed = |reason: String| TargetError::new(format!("connecting to {address}"), reason);
        let place = Url::parse(address, &DIALECT, &[]).map_err(failed)?;
        let mut served = Served {
            route: Route::to(&place).map_err(failed)?,
            shown: address.shown().to_string(),
            timeout: spec.load.timeout,
            connect_timeout: match spec.load.timeout.is_zero() {
                true => place.connect_timeout,
                false => spec.load.timeout,
            },
            metrics: vec![],
            unacknowledged: spec.target.durability == Durability::Unacknowledged,
        };
        served.metrics = match served.asked("asking what it counts", &Question::Metrics)? {
            Reply::Metrics { metrics } => metrics,
            other => return Err(out_of_step("asking what it counts", &other)),
        };
        Ok(served)
    }

    /// The answer to a question that is not a session's.
    fn asked(&self, doing: &str, question: &Question) -> Result<Reply, TargetError> {
        let failed = |reason: String| TargetError::new(format!("{doing} at {}", self.shown), reason);
        let connected = connect(&self.route, &mut Silence, self.connect_timeout);
        let (mut channel, _) = connected.map_err(|refusal| failed(refusal.reason))?;
        channel.set_timeout(self.timeout).map_err(|error| failed(error.to_string()))?;
        ask(&mut channel.output, question);
        channel.say().map_err(failed)?;
        let (_, text) = channel.message(line as Framing).map_err(failed)?;
        match serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))? {
            Reply::Failed { reason } => Err(TargetError::new(doing, reason)),
            reply => Ok(reply),
        }
    }

    fn told(&self, doing: &str, question: &Question) -> Result<(), TargetError> {
        match self.asked(doing, question)? {
            Reply::Did => Ok(()),
            other => Err(out_of_step(doing, &other)),
        }
    }
}

fn out_of_step(doing: &str, reply: &Reply) -> TargetError {
    TargetError::new(doing, format!("it answered another question: {reply:?}"))
}

impl Target for Served {
    fn facts(&self) -> Result<Facts, TargetError> {
        match self.asked("asking for facts", &Question::Facts)? {
            Reply::Facts { facts } => Ok(facts),
            other => Err(out_of_step("asking for facts", &other)),
        }
    }

    fn accepts(&self, kind: OpKind) -> bool {
        !matches!(kind, OpKind::ReadAt | OpKind::WriteAt | OpKind::Flush | OpKind::Script(_))
    }

    fn load(&self, dataset: &Dataset, records: Range<u64>) -> Result<(), TargetError> {
        self.told("loading", &Question::Load { dataset: Box::new(dataset.clone()), records })
    }

    fn settle(&self) -> Result<(), TargetError> {
        self.told("settling", &Question::Settle)
    }

    fn open<'a>(&'a self, dataset: &'a Dataset) -> Result<Box<dyn Session + 'a>, TargetError> {
        let lines = Lines {
            dataset,
            unacknowledged: self.unacknowledged,
            is_answered: true,
            key: 0,
            writes: false,
            fetched: None,
            records: 0,
            answer: check::Returned::Nothing,
        };
        let link = Link::open(lines, &self.route, self.timeout, self.connect_timeout);
        let doing = || format!("opening a session at {}", self.shown);
        Ok(Box::new(link.map_err(|refusal| TargetError::new(doing(), refusal.reason))?))
    }

    fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        self.told("preparing the tables of checks", &Question::Prepare { accounts: accounts.to_vec() })
    }

    fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        match self.asked("reading the ledger", &Question::ReadKeys)? {
            Reply::Keys { keys } => Ok(keys),
            other => Err(out_of_step("reading the ledger", &other)),
        }
    }

    fn read_bank(&self) -> Result<BankRows, TargetError> {
        match self.asked("reading the bank", &Question::ReadBank)? {
            Reply::Bank { bank } => Ok(bank),
            other => Err(out_of_step("reading the bank", &other)),
        }
    }

    fn read_lists(&self) -> Result<Lists, TargetError> {
        match self.asked("reading the lists", &Question::ReadLists)? {
            Reply::Lists { lists } => Ok(lists),
            other => Err(out_of_step("reading the lists", &other)),
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        self.metrics.clone()
    }

    fn sample(&self) -> Result<BTreeMap<String, f64>, TargetError> {
        match self.asked("reading statistics", &Question::Sample)? {
            Reply::Sample { values } => Ok(values),
            other => Err(out_of_step("reading statistics", &other)),
        }
    }
}

/// A session's side of the conversation.
struct Lines<'a> {
    dataset: &'a Dataset,
    unacknowledged: bool,
    /// Whether the operation at hand is answered.
    is_answered: bool,
    /// The record that it reads, if it reads one.
    key: u64,
    writes: bool,
    fetched: Option<Vec<u8>>,
    records: u32,
    answer: check::Returned,
}

impl Greeting for Lines<'_> {
    fn start(&mut self, _: bool, output: &mut Vec<u8>) {
        ask(output, &Question::Open { dataset: Box::new(self.dataset.clone()) });
    }

    fn greet(&mut self, input: &mut Input, _: &mut Vec<u8>, _: bool) -> Step {
        let Some((_, range)) = line(input) else { return Step::More };
        let reply = serde_json::from_slice(&input.rest()[range.clone()]);
        input.consume(range.end);
        match reply {
            Ok(Reply::Did) => Step::Ready,
            Ok(Reply::Failed { reason }) => Step::Refused(Refusal::unavailable(reason)),
            _ => Step::Refused(Refusal::unavailable("what answers there is no engine of ours")),
        }
    }
}

impl Protocol for Lines<'_> {
    fn encode(&mut self, op: &Op, output: &mut Vec<u8>) -> bool {
        self.writes = op.kind().writes();
        self.is_answered = !(self.unacknowledged && self.writes);
        self.key = if let Op::Read { record, .. } = op { *record } else { 0 };
        (self.fetched, self.records, self.answer) = (None, 0, check::Returned::Nothing);
        ask(output, &Question::Execute { op: op.clone(), acknowledged: self.is_answered });
        true
    }

    fn answer(&mut self, input: &mut Input, _: &mut Vec<u8>) -> Received {
        let Some((_, range)) = line(input) else { return Received::More };
        let reply = serde_json::from_slice(&input.rest()[range.clone()]);
        input.consume(range.end);
        let Ok(Reply::Executed { outcome, records, answer }) = reply else {
            let lost = if self.writes { Outcome::Unknown } else { Outcome::Refused };
            return Received::Last(lost(Failure::Corrupt));
        };
        self.records = records;
        if let check::Returned::Value(Some(version)) = &answer {
            // Only which write was found is told; its bytes follow from that.
            let bytes = payload(self.key, version.key_sequence);
            let is_whole = Version::found(&bytes) == *version;
            self.fetched = Some(if is_whole { bytes.to_vec() } else { Vec::new() });
        }
        self.answer = answer;
        Received::Complete(outcome)
    }

    fn fetched<'a>(&'a self, _: &'a Input, _: u16) -> Option<&'a [u8]> {
        self.fetched.as_deref()
    }

    fn fetched_records(&self) -> u32 {
        self.records
    }

    fn brought(&self) -> check::Returned {
        self.answer.clone()
    }

    fn is_answered(&self) -> bool {
        self.is_answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::testing;
    use crate::{Guilty, contract};
    use std::net::TcpListener;
    use std::path::Path;

    /// The store in memory, served until the test's process ends, and a client of it.
    fn served() -> Served {
        let mut spec = testing::spec("guilty", "tipover://nowhere/");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        spec.target.address = Some(address(&listener.local_addr().unwrap().to_string()).parse().unwrap());
        let engine: &'static Guilty = Box::leak(Box::new(Guilty::open(&spec, Path::new("")).unwrap()));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || serve(stream, engine, &|_| ()));
            }
        });
        Served::connect(&spec).unwrap()
    }

    #[test]
    fn keeps_the_contract_of_checks() {
        contract::check_ledger_and_bank(&served());
    }

    #[test]
    fn what_nobody_acknowledges_is_done_once_it_is_sent() {
        let target = Served { unacknowledged: true, ..served() };
        let dataset = contract::tables();
        let mut session = target.open(&dataset).unwrap();
        for record in 0..100 {
            assert_eq!(session.execute(&Op::Insert { record }), Outcome::Done);
        }
        let read = Op::Read { record: 99, fields: tipover_core::op::Fields::All };
        assert_eq!(session.execute(&read), Outcome::Done, "what comes after it is answered");
        assert_eq!(session.answer(), check::Returned::Value(Some(Version::of(99, 1))));
        assert_eq!(target.read_keys().unwrap().len(), 100);
    }
}
