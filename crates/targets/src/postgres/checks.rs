//! A ledger, a bank and lists, for checkers: tables of our own, the bank's as old stroppy made them.

use super::client::{Client, Rows};
use super::message::Report;
use super::outcome::{definite, outcome};
use super::table::literal;
use super::transfer::Vault;
use super::{Postgres, explained};
use crate::connection::{Link, found};
use std::time::Duration;
use tipover_core::check::{Answer, Operation, Step, TransferRow, Version};
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::target::{BankRows, CheckSession, Session, TargetError};

/// Everything that checks keep. Old stroppy's names, with a prefix: they must not meet a user's tables.
const DEFINITIONS: &str = "\
    DROP TABLE IF EXISTS tipover_account, tipover_transfer, tipover_setting, tipover_checksum, tipover_ledger, \
        tipover_list; \
    CREATE TABLE tipover_account (bic TEXT, ban TEXT, balance DECIMAL, PRIMARY KEY (bic, ban)); \
    CREATE TABLE tipover_transfer (transfer_id UUID PRIMARY KEY, src_bic TEXT, src_ban TEXT, dst_bic TEXT, \
        dst_ban TEXT, amount DECIMAL, state TEXT, client_id UUID, client_timestamp TIMESTAMP); \
    CREATE TABLE tipover_setting (key TEXT PRIMARY KEY, value TEXT); \
    CREATE TABLE tipover_checksum (name TEXT PRIMARY KEY, amount DECIMAL); \
    CREATE TABLE tipover_ledger (key BIGINT PRIMARY KEY, value BYTEA); \
    CREATE TABLE tipover_list (key BIGINT PRIMARY KEY, list BIGINT[] NOT NULL)";

/// Set-up must survive the crash that is to come, whatever is promised to transactions.
const FLUSHED: &str = "SELECT set_config('synchronous_commit', 'local', false) \
    WHERE current_setting('synchronous_commit') = 'off'";

/// A session for checks: a link for what is also measured, a client for the rest.
pub struct Checks<'a> {
    target: &'a Postgres,
    link: Link<Vault>,
    client: Option<Client>,
}

impl<'a> Checks<'a> {
    /// A session at `target`.
    pub fn open(target: &'a Postgres) -> Result<Self, TargetError> {
        Ok(Checks { target, link: target.vault(&target.bank)?, client: None })
    }

    /// The client, connected anew if it is gone.
    fn client(&mut self) -> Result<&mut Client, Report> {
        if self.client.is_none() {
            let (target, pause) = (self.target, Duration::from_millis(20));
            let connect = || {
                let timeout = target.place.connect_timeout;
                let connected = Client::connect(&target.route, target.hello(), timeout);
                let (mut client, _) = connected.map_err(|refusal| Report::lost(refusal.reason))?;
                client.set_timeout(target.timeout).map_err(Report::lost)?;
                Ok(client)
            };
            // Whoever tries again at once would only spin.
            self.client = Some(connect().inspect_err(|_| std::thread::sleep(pause))?);
        }
        Ok(self.client.as_mut().expect("just made"))
    }

    /// A query on the client, which is given up when its connection is lost.
    fn query(&mut self, text: &str) -> Result<Rows, Report> {
        let answer = self.client()?.query(text);
        if answer.as_ref().is_err_and(Report::ends_connection)
            && let Some(client) = self.client.take()
        {
            client.abandon(&self.target.route);
        }
        answer
    }

    /// What `work` does, as one transaction; the outcome and what it gave.
    fn transaction<T>(
        &mut self,
        begin: &str,
        work: impl FnOnce(&mut Self) -> Result<T, Report>,
    ) -> Result<T, Outcome> {
        self.query(begin).map_err(|report| definite(&report))?;
        let result = match work(self) {
            Ok(result) => result,
            Err(report) => {
                if self.client.is_some() && self.query("ROLLBACK").is_err() {
                    self.client = None;
                }
                return Err(definite(&report));
            }
        };
        self.query("COMMIT").map_err(|report| outcome(&report, OpKind::Transfer))?;
        match &self.client {
            Some(client) if client.is_unreplicated() => Err(Outcome::Unknown(Failure::Unreplicated)),
            _ => Ok(result),
        }
    }

    fn balances(&mut self) -> Result<Vec<(u64, Option<i64>)>, Report> {
        let rows = self.query("SELECT bic, ban, balance FROM tipover_account")?;
        Ok(rows.iter().map(|row| found::account(&self.target.bank, row)).collect())
    }

    fn transfers(&mut self) -> Result<Vec<TransferRow>, Report> {
        let rows = self.query(
            "SELECT translate(transfer_id::text, '-', ''), src_bic, src_ban, dst_bic, dst_ban, amount \
             FROM tipover_transfer",
        )?;
        Ok(rows.iter().map(|row| found::transfer(&self.target.bank, row)).collect())
    }

    fn step(&mut self, step: &Step) -> Result<Option<Vec<u64>>, Report> {
        match *step {
            Step::Append { key, value } => {
                let (key, value) = (key as i64, value as i64);
                self.query(&format!(
                    "INSERT INTO tipover_list (key, list) VALUES ({key}, ARRAY[{value}]::bigint[]) \
                     ON CONFLICT (key) DO UPDATE SET list = tipover_list.list || excluded.list"
                ))?;
                Ok(None)
            }
            Step::Read { key } => {
                let rows =
                    self.query(&format!("SELECT list FROM tipover_list WHERE key = {}", key as i64))?;
                let list = rows.first().and_then(|row| row[0].as_deref()).unwrap_or("{}");
                let values = list.trim_matches(['{', '}']).split(',');
                Ok(Some(values.filter_map(|value| value.parse::<i64>().ok()).map(|v| v as u64).collect()))
            }
        }
    }

    fn try_prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), Report> {
        let mut client = self.target.patient_client()?;
        client.query(FLUSHED)?;
        client.query(DEFINITIONS)?;
        let bank = &self.target.bank;
        let mut left = accounts.iter();
        client.copy("COPY tipover_account FROM STDIN", |data| {
            for (place, balance) in left.by_ref().take(1_000) {
                let name = bank.name(*place);
                data.extend_from_slice(format!("{}\t{}\t{balance}\n", name.bic, name.ban).as_bytes());
            }
            left.len() > 0
        })?;
        let total: i64 = accounts.iter().map(|(_, balance)| balance).sum();
        let spec = bank.spec();
        let settings = [
            ("count", accounts.len().to_string()),
            ("seed", spec.seed.to_string()),
            ("ban_range_multiplier", spec.range_multiplier.to_string()),
        ];
        let settings = settings.map(|(key, value)| format!("({}, {})", literal(key), literal(&value)));
        client.query(&format!(
            "INSERT INTO tipover_setting VALUES {}; INSERT INTO tipover_checksum VALUES ('total', {total}); \
             ANALYZE tipover_account",
            settings.join(", ")
        ))?;
        Ok(())
    }
}

const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

impl CheckSession for Checks<'_> {
    fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let failed =
            |report: Report| TargetError::new("preparing the ledger and the bank", explained(&report));
        self.try_prepare(accounts).map_err(failed)
    }

    fn execute(&mut self, operation: &Operation) -> (Outcome, Answer) {
        match operation {
            Operation::Write { key, key_sequence, .. } => {
                let write = Op::Update { record: *key, fields: Fields::All, version: *key_sequence };
                (self.link.execute(&write), Answer::Nothing)
            }
            Operation::Read { key } => {
                match self.link.execute(&Op::Read { record: *key, fields: Fields::All }) {
                    Outcome::Refused(Failure::NotFound) => (Outcome::Done, Answer::Value(None)),
                    Outcome::Done => {
                        let found = self.link.fetched(0).map(Version::found);
                        (Outcome::Done, Answer::Value(found))
                    }
                    outcome => (outcome, Answer::Nothing),
                }
            }
            &Operation::Transfer { id, from, to, amount } => {
                (self.link.execute(&Op::Transfer { id, from, to, amount }), Answer::Nothing)
            }
            // One statement is one snapshot at every level of isolation.
            Operation::ReadBalances => match self.balances() {
                Ok(balances) => (Outcome::Done, Answer::Balances(balances)),
                Err(report) => (outcome(&report, OpKind::Read), Answer::Nothing),
            },
            Operation::Transaction { steps } => {
                let begin = format!("BEGIN ISOLATION LEVEL {}", self.target.isolation());
                let work = |checks: &mut Self| steps.iter().map(|step| checks.step(step)).collect();
                match self.transaction(&begin, work) {
                    Ok(lists) => (Outcome::Done, Answer::Lists(lists)),
                    Err(outcome) => (outcome, Answer::Nothing),
                }
            }
        }
    }

    fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        let text = "SELECT key, encode(value, 'hex') FROM tipover_ledger";
        let rows = self.transaction(SNAPSHOT, |checks| checks.query(text));
        let rows = rows.map_err(|outcome| TargetError::new("reading the ledger", found::reason(outcome)))?;
        Ok(rows.iter().filter_map(found::version).collect())
    }

    fn read_bank(&mut self) -> Result<BankRows, TargetError> {
        let read = |checks: &mut Self| Ok((checks.balances()?, checks.transfers()?));
        let rows = self.transaction(SNAPSHOT, read);
        rows.map_err(|outcome| TargetError::new("reading the bank", found::reason(outcome)))
    }
}
