//! An embedded engine in a process of its own, so that it can be killed and its power cut like a server.
//!
//! The process is this program again with a hidden verb. It serves sessions for checks over TCP, a JSON text
//! a line in each direction, one connection a session. What the client's end gives is a [`CheckSession`] like
//! any other, whose history stays outside of what is broken.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;
use tipover_core::check::{Answer, Completion, Operation, TransferRow, Version};
use tipover_core::experiment::{Durability, Spec};
use tipover_core::op::{Failure, Outcome};
use tipover_core::target::{BankRows, CheckSession, Facts, Target, TargetError};
use tipover_core::units::Tick;

/// What a session is asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum Question {
    Facts,
    Prepare {
        accounts: Vec<(u64, i64)>,
    },
    Execute {
        operation: Operation,
    },
    /// The same, without an answer.
    Send {
        operation: Operation,
    },
    ReadLedger,
    ReadBank,
}

/// What it answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
enum Reply {
    Facts { facts: Facts },
    Prepared,
    Executed { completion: Completion },
    Ledger { rows: Vec<(u64, Version)> },
    Bank { balances: Vec<(u64, Option<i64>)>, transfers: Vec<TransferRow> },
    Failed { reason: String },
}

/// Serves until it is killed; for the hidden verb.
pub fn serve() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let [spec, "--folder", folder, "--listen", address, "--ready", ready] =
        arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        bail!("this command is started by the laboratory");
    };
    let spec: Spec = serde_json::from_str(spec).context("the cell to be served")?;
    let target = tipover_targets::start(&spec, &PathBuf::from(folder))?;
    let listener = TcpListener::bind(address).with_context(|| format!("listening at {address}"))?;
    std::fs::write(ready, std::process::id().to_string()).with_context(|| ready.to_string())?;
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let stream = stream?;
            // A client that hangs up ends its session; nobody waits for its reasons.
            scope.spawn(|| drop(answer(stream, target.as_ref())));
        }
        Ok(())
    })
}

fn answer(stream: TcpStream, target: &dyn Target) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut session = target.open_checks().unwrap_or_else(|error| give_up(&error));
    let mut output = BufWriter::new(stream.try_clone()?);
    for line in BufReader::new(stream).lines() {
        let failed = |error: TargetError| Reply::Failed { reason: error.to_string() };
        let reply = match serde_json::from_str(&line?)? {
            Question::Facts => target.facts().map_or_else(failed, |facts| Reply::Facts { facts }),
            Question::Prepare { accounts } => {
                session.prepare(&accounts).map_or_else(failed, |()| Reply::Prepared)
            }
            Question::Execute { operation } => {
                let (outcome, answer) = session.execute(&operation);
                complain(outcome);
                let completion = Completion { client: 0, sequence: 0, at: Tick(0), outcome, answer };
                Reply::Executed { completion }
            }
            Question::Send { operation } => {
                complain(session.execute(&operation).0);
                continue;
            }
            Question::ReadLedger => session.read_ledger().map_or_else(failed, |rows| Reply::Ledger { rows }),
            Question::ReadBank => session
                .read_bank()
                .map_or_else(failed, |(balances, transfers)| Reply::Bank { balances, transfers }),
        };
        serde_json::to_writer(&mut output, &reply)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    Ok(())
}

/// Says what went wrong with the disk, for whoever filled it or let it fail; an engine that has given up
/// takes its process along.
fn complain(outcome: Outcome) {
    let (Outcome::Refused(failure) | Outcome::Unknown(failure)) = outcome else { return };
    match failure {
        Failure::Full => eprintln!("WiredTiger: No space left on device"),
        Failure::InputOutput => eprintln!("WiredTiger: an error of its disk"),
        Failure::Unavailable => give_up(&"it has given up after an error of its disk"),
        _ => {}
    }
}

/// Ends the process, as mongod ends where its engine panics: every later call would fail, and only a new
/// start with its recovery helps.
fn give_up(why: &dyn std::fmt::Display) -> ! {
    eprintln!("WiredTiger: {why}");
    std::process::exit(1)
}

/// The client's end of a session.
pub struct Remote {
    input: BufReader<TcpStream>,
    output: TcpStream,
    line: String,
    /// Whether a write is done once it is sent.
    unacknowledged: bool,
}

impl Remote {
    /// Connects; every answer is waited for as long as `timeout`.
    ///
    /// # Errors
    /// Nobody serves there.
    pub fn connect(address: &str, timeout: Duration) -> Result<Remote, TargetError> {
        let doing = format!("connecting to {address}");
        let failed = |error: &dyn std::fmt::Display| TargetError::new(&doing, error.to_string());
        let place: SocketAddr = address.parse().map_err(|error| failed(&error))?;
        let patience = if timeout.is_zero() { Duration::from_secs(60) } else { timeout };
        let connected = TcpStream::connect_timeout(&place, patience).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            Ok((BufReader::new(stream.try_clone()?), stream))
        });
        let (input, output) = connected.map_err(|error| failed(&error))?;
        Ok(Remote { input, output, line: String::new(), unacknowledged: false })
    }

    /// With `durability`: what this end of it does, which is not to wait for what nobody acknowledges.
    pub fn with(mut self, durability: Durability) -> Remote {
        self.unacknowledged = durability == Durability::Unacknowledged;
        self
    }

    fn send(&mut self, question: &Question) -> std::io::Result<()> {
        let mut text = serde_json::to_vec(question)?;
        text.push(b'\n');
        self.output.write_all(&text)
    }

    fn receive(&mut self) -> std::io::Result<Reply> {
        self.line.clear();
        match self.input.read_line(&mut self.line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(serde_json::from_str(&self.line)?),
        }
    }

    fn ask(&mut self, doing: &str, question: &Question) -> Result<Reply, TargetError> {
        match self.send(question).and_then(|()| self.receive()) {
            Ok(Reply::Failed { reason }) => Err(TargetError::new(doing, reason)),
            Ok(reply) => Ok(reply),
            Err(error) => Err(TargetError::new(doing, error)),
        }
    }

    /// What the engine says of itself.
    ///
    /// # Errors
    /// It does not answer.
    pub fn facts(&mut self) -> Result<Facts, TargetError> {
        match self.ask("asking for facts", &Question::Facts)? {
            Reply::Facts { facts } => Ok(facts),
            other => Err(out_of_step("asking for facts", &other)),
        }
    }
}

fn out_of_step(doing: &str, reply: &Reply) -> TargetError {
    TargetError::new(doing, format!("it answered another question: {reply:?}"))
}

impl CheckSession for Remote {
    fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let doing = "preparing the ledger and the bank";
        match self.ask(doing, &Question::Prepare { accounts: accounts.to_vec() })? {
            Reply::Prepared => Ok(()),
            other => Err(out_of_step(doing, &other)),
        }
    }

    fn execute(&mut self, operation: &Operation) -> (Outcome, Answer) {
        let reads = matches!(operation, Operation::Read { .. } | Operation::ReadBalances);
        // Once a byte of it is sent it may have arrived whole.
        let lost = |failure| if reads { Outcome::Refused(failure) } else { Outcome::Unknown(failure) };
        if self.unacknowledged && !reads {
            let sent = self.send(&Question::Send { operation: operation.clone() });
            let outcome = sent.map_or(lost(Failure::Unavailable), |()| Outcome::Done);
            return (outcome, Answer::Nothing);
        }
        let sent = self.send(&Question::Execute { operation: operation.clone() });
        match sent.and_then(|()| self.receive()) {
            Ok(Reply::Executed { completion }) => (completion.outcome, completion.answer),
            Ok(_) => (lost(Failure::Other), Answer::Nothing),
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                (lost(Failure::Timeout), Answer::Nothing)
            }
            Err(_) => (lost(Failure::Unavailable), Answer::Nothing),
        }
    }

    fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        match self.ask("reading the ledger", &Question::ReadLedger)? {
            Reply::Ledger { rows } => Ok(rows),
            other => Err(out_of_step("reading the ledger", &other)),
        }
    }

    fn read_bank(&mut self) -> Result<BankRows, TargetError> {
        match self.ask("reading the bank", &Question::ReadBank)? {
            Reply::Bank { balances, transfers } => Ok((balances, transfers)),
            other => Err(out_of_step("reading the bank", &other)),
        }
    }
}
