//! What SQL servers have in common: a connection for administration that is kept and made anew, YCSB's table,
//! and sessions for checkers. What differs is said by an [`Sql`].

mod checks;
pub mod found;
mod prepared;
mod sysbench;
mod table;
#[cfg(test)]
pub mod testing;
mod tpcb;

pub use prepared::{Prepared, Which};
pub use table::{Found, Syntax, Table};

use super::course::tell_once;
use super::{Dialect, Link, Protocol, Refusal, Route, Url};
use parking_lot::Mutex;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::experiment::{Durability, Spec};
use tipover_core::op::{Failure, OpKind, Outcome};
use tipover_core::target::{Session, TargetError};
use tipover_core::workload::bank::Bank;
use tipover_core::workload::script::Tables;
use tipover_core::workload::sysbench::Numbering;
use tipover_core::workload::{Dataset, Scripts, Shape, tpcb as pgbench};

/// One row of texts.
pub type Texts = Vec<Option<String>>;

/// How long a question about the server may take; loading and settling take as long as they need.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long making an empty table may take, with whatever must confirm it.
pub const CONFIRMED_WITHIN: Duration = Duration::from_secs(10);

/// What a server says instead of an answer; printed, in its own words.
pub trait Report: Display + Sized {
    /// A report of ours, about a connection that failed.
    fn lost(reason: impl Display) -> Self;

    /// Whether the server closes the connection after it.
    fn ends_connection(&self) -> bool;

    /// Whether it says that a table is not there.
    fn misses_table(&self) -> bool;

    /// What to do about it while connecting or preparing, as a sentence to append; empty if unknown.
    fn advice(&self) -> &'static str;

    /// The outcome of an operation of class `kind`, a transaction of its own, that was answered by it.
    fn outcome(&self, kind: OpKind) -> Outcome;

    /// The outcome of an operation whose transaction nobody asked to commit: nothing stays of it.
    fn definite(&self) -> Outcome;

    /// The outcome of a measured operation. A failure without a word of its own is told on standard error in
    /// the server's words, once each for the first few: a count of "other" helps nobody.
    fn measured_outcome(&self, kind: OpKind) -> Outcome {
        let outcome = self.outcome(kind);
        if matches!(outcome, Outcome::Refused(Failure::Other) | Outcome::Unknown(Failure::Other)) {
            tell_once(&format!("the server does not carry out an operation: {}", self.explained()));
        }
        outcome
    }

    /// The outcome of a script's run; where the session ends with it, whoever ends it tells why.
    fn outcome_of_script(&self, kind: OpKind, ends: bool) -> Outcome {
        if ends { self.outcome(kind) } else { self.measured_outcome(kind) }
    }

    /// With the advice.
    fn explained(&self) -> String {
        format!("{self}{}", self.advice())
    }

    /// As the reason why `doing` failed.
    fn while_doing(&self, doing: impl Into<String>) -> TargetError {
        TargetError::new(doing, self.explained())
    }
}

/// A connection for set-up, statistics and checks: plain queries, one at a time, over the path that is
/// measured.
pub trait Client: Sized {
    /// What it answers instead of rows.
    type Report: Report;

    /// From now on, a single call may take this long; zero is for ever.
    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()>;

    /// Version and cipher, if the connection is encrypted.
    fn encryption(&self) -> Option<String>;

    /// Executes what `text` says and returns its rows.
    fn query(&mut self, text: &str) -> Result<Vec<Texts>, Self::Report>;

    /// The only value of the only row; empty if there is none.
    fn value(&mut self, text: &str) -> Result<String, Self::Report> {
        Ok(self.query(text)?.into_iter().flatten().flatten().next().unwrap_or_default())
    }
}

/// One kind of SQL server.
pub trait Sql: Sized + Send + Sync {
    /// Its connection for administration.
    type Client: Client + Send;
    /// Its sessions on the tables of checks.
    type Vault: Protocol;
    /// Its sessions for scripts.
    type Scripted: Protocol;

    /// How its URLs are read, and which parameters it has beside the shared ones.
    const DIALECT: &'static Dialect;
    /// See [`Sql::DIALECT`].
    const PARAMETERS: &'static [&'static str];

    /// Connects to `place`; also says which way of `route` it was.
    fn connect(&self, place: &Url, route: &Route) -> Result<(Self::Client, usize), Refusal>;

    /// A session on the ledger, the lists, and the accounts of `bank`.
    fn vault(&self, place: &Url, bank: &Arc<Bank>) -> Self::Vault;

    /// A session that runs `scripts`.
    fn scripted(&self, place: &Url, scripts: &Arc<Scripts>) -> Self::Scripted;

    /// Looks for the table of `dataset`, in whatever case its names are; `None` if there is none.
    fn find_table(client: &mut Self::Client, dataset: &Dataset) -> FoundTable<Self>;

    /// How it makes the numbers of rows.
    const NUMBERING: Numbering;
    /// Statements that begin a transaction that sees one moment.
    const SNAPSHOT: &'static [&'static str];
    /// All transfers: the digits of the id, the payer's and the paid one's names, the amount.
    const TRANSFERS: &'static str;
    /// The whole ledger: keys, and values in hexadecimal digits.
    const LEDGER: &'static str;
    /// All lists: keys, and values in digits with commas between.
    const LISTS: &'static str;
    /// Makes the tables of checks anew, with these accounts.
    fn prepare(client: &mut Self::Client, bank: &Bank, accounts: &[(u64, i64)])
    -> Result<(), ReportOf<Self>>;
}

/// A durability as plans write it.
pub fn durability_word(durability: Durability) -> String {
    let word = serde_json::to_value(durability).ok();
    word.as_ref().and_then(|word| word.as_str()).unwrap_or_default().to_string()
}

/// What a kind of server says instead of an answer.
pub type ReportOf<S> = <<S as Sql>::Client as Client>::Report;

/// A table, none, or what is wrong with the one that there is.
pub type FoundTable<S> = Result<Option<Result<Table, String>>, ReportOf<S>>;

/// An SQL server.
pub struct Server<S: Sql> {
    /// What is special about it.
    pub sql: S,
    /// Where it is, and as whom to ask it.
    pub place: Url,
    /// What the accounts and transfers of checks are called.
    pub bank: Arc<Bank>,
    route: Route,
    timeout: Duration,
    /// For statistics and facts; made anew when it is lost.
    client: Mutex<Option<S::Client>>,
    /// What the last session found, for the next one.
    table: Mutex<Option<(Dataset, Arc<Table>)>>,
    /// The tables of scripts that were made from here; held by whoever makes them.
    made: Mutex<Made>,
}

/// Tables of scripts.
#[derive(Default)]
struct Made {
    tables: Tables,
    /// Whether what follows the last row was done.
    finished: bool,
}

impl<S: Sql> Server<S> {
    /// Connects to the server of `spec`.
    pub fn connect(spec: &Spec, sql: S) -> Result<Self, TargetError> {
        let missing = || TargetError::new("connecting to the server", "target.address is missing");
        let address = spec.target.address.as_ref().ok_or_else(missing)?;
        let doing = format!("connecting to {address}");
        let failed = |reason: String| TargetError::new(&doing, reason);
        let place = Url::parse(address, S::DIALECT, S::PARAMETERS).map_err(failed)?;
        let route = Route::to(&place).map_err(failed)?;
        let (mut client, way) = sql.connect(&place, &route).map_err(|refusal| failed(refusal.reason))?;
        client.set_timeout(PATIENCE).map_err(|error| failed(error.to_string()))?;
        Ok(Server {
            sql,
            place,
            bank: Arc::new(spec.workload.bank().map_err(|error| failed(error.to_string()))?),
            route: route.narrowed(way),
            timeout: spec.load.timeout,
            client: Mutex::new(Some(client)),
            table: Mutex::new(None),
            made: Mutex::default(),
        })
    }

    /// A session that speaks `protocol`.
    pub fn link<P: Protocol>(&self, protocol: P) -> Result<Link<P>, TargetError> {
        let link = Link::open(protocol, &self.route, self.timeout, self.place.connect_timeout);
        link.map_err(|refusal| {
            TargetError::new(format!("opening a session at {}", self.place), refusal.reason)
        })
    }

    /// A session on the ledger, the lists, and the accounts of `bank`.
    fn vault(&self, bank: &Arc<Bank>) -> Result<Link<S::Vault>, TargetError> {
        self.link(self.sql.vault(&self.place, bank))
    }

    /// A connection of its own, on which a call may take `timeout`; zero is for ever.
    pub fn another_client(&self, timeout: Duration) -> Result<S::Client, ReportOf<S>> {
        let connected = self.sql.connect(&self.place, &self.route);
        let (mut client, _) = connected.map_err(|refusal| Report::lost(refusal.reason))?;
        client.set_timeout(timeout).map_err(Report::lost)?;
        Ok(client)
    }

    /// A connection of its own, on which statements may take as long as they need.
    pub fn patient_client(&self) -> Result<S::Client, ReportOf<S>> {
        self.another_client(Duration::ZERO)
    }

    /// Asks on the connection that is kept for that; if it is lost, once more on a new one.
    pub fn ask<T>(&self, ask: impl Fn(&mut S::Client) -> Result<T, ReportOf<S>>) -> Result<T, ReportOf<S>> {
        let mut kept = self.client.lock();
        for attempt in 0.. {
            if kept.is_none() {
                *kept = Some(self.another_client(PATIENCE)?);
            }
            match ask(kept.as_mut().expect("just made")) {
                Err(report) if report.ends_connection() => {
                    *kept = None;
                    if attempt > 0 {
                        return Err(report);
                    }
                }
                answer => return answer,
            }
        }
        unreachable!("it returns at the second attempt")
    }

    /// Version and cipher of the encryption; `none` without.
    pub fn encryption(&self) -> Result<String, ReportOf<S>> {
        Ok(self.ask(|client| Ok(client.encryption()))?.unwrap_or_else(|| "none".into()))
    }

    /// The table of `dataset`, which must exist.
    pub fn table(&self, dataset: &Dataset) -> Result<Arc<Table>, TargetError> {
        if let Some((_, table)) = self.table.lock().as_ref().filter(|(known, _)| known == dataset) {
            return Ok(table.clone());
        }
        let doing = format!("looking for the table \"{}\"", dataset.table);
        let found = self.ask(|client| S::find_table(client, dataset));
        let table = found.map_err(|report| report.while_doing(&doing))?.ok_or_else(|| {
            TargetError::new(&doing, "it does not exist in this database; load it first, or name another one")
        })?;
        let table = Arc::new(table.map_err(|reason| TargetError::new(&doing, reason))?);
        *self.table.lock() = Some((dataset.clone(), table.clone()));
        Ok(table)
    }

    /// Writes these rows of the tables of scripts, of pgbench's by their accounts.
    pub fn load_tables(&self, scripts: &Scripts, all: u64, rows: Range<u64>) -> Result<(), ReportOf<S>> {
        match &scripts.tables {
            Tables::Sysbench(sysbench) => self.load_sysbench(sysbench, rows),
            Tables::Pgbench { .. } | Tables::None => self.load_tpcb(all, rows),
        }
    }

    /// Names of the tables of scripts that were made from here.
    pub fn loaded_tables(&self) -> Vec<String> {
        match &self.made.lock().tables {
            Tables::None => vec![],
            Tables::Pgbench { .. } => {
                pgbench::tables(1).iter().map(|table| format!("pgbench_{}", table.name)).collect()
            }
            Tables::Sysbench(sysbench) => {
                (1..=sysbench.tables).map(|number| format!("sbtest{number}")).collect()
            }
        }
    }

    /// The table that was found last, with its data set.
    pub fn known_table(&self) -> Option<(Dataset, Arc<Table>)> {
        self.table.lock().clone()
    }

    /// Forgets it: somebody has made another one.
    #[cfg(test)]
    pub fn forget_table(&self) {
        *self.table.lock() = None;
    }

    /// A session for operations on `dataset`; `operations` makes the protocol for those on its table.
    pub fn session<'a, P: Protocol + 'a>(
        &'a self,
        dataset: &Dataset,
        operations: impl FnOnce(Arc<Table>) -> P,
    ) -> Result<Box<dyn Session + 'a>, TargetError>
    where
        S::Vault: 'a,
        S::Scripted: 'a,
    {
        Ok(match &dataset.shape {
            Shape::Bank(bank) | Shape::Checks(bank) => Box::new(self.vault(bank)?),
            Shape::Scripts(scripts) => Box::new(self.link(self.sql.scripted(&self.place, scripts))?),
            Shape::Fields | Shape::Documents(_) => Box::new(self.link(operations(self.table(dataset)?))?),
        })
    }
}
