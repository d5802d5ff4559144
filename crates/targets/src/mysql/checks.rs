//! A ledger, a bank and lists, for checkers: tables of our own, the bank's as old stroppy's of PostgreSQL.

use super::client::{Client, Rows};
use super::outcome::{definite, ends_connection, outcome};
use super::packet::Report;
use super::transfer::Vault;
use super::{Mysql, explained};
use crate::connection::{Link, found};
use std::time::Duration;
use tipover_core::check::{Answer, Operation, Step, TransferRow, Version};
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::target::{BankRows, CheckSession, Session, TargetError};

/// Everything that checks keep. Names with a prefix: they must not meet a user's tables.
const TABLES: [(&str, &str); 6] = [
    ("tipover_account", "bic VARCHAR(8), ban VARCHAR(64), balance DECIMAL(20), PRIMARY KEY (bic, ban)"),
    (
        "tipover_transfer",
        "transfer_id BINARY(16) PRIMARY KEY, src_bic VARCHAR(8), src_ban VARCHAR(64), dst_bic VARCHAR(8), \
         dst_ban VARCHAR(64), amount DECIMAL(20), state VARCHAR(16), client_id BINARY(16), \
         client_timestamp DATETIME",
    ),
    ("tipover_setting", "name VARCHAR(64) PRIMARY KEY, value VARCHAR(64)"),
    ("tipover_checksum", "name VARCHAR(64) PRIMARY KEY, amount DECIMAL(30)"),
    ("tipover_ledger", "ledger_key BIGINT PRIMARY KEY, value VARBINARY(256)"),
    ("tipover_list", "list_key BIGINT PRIMARY KEY, list LONGTEXT NOT NULL"),
];

/// A session for checks: a link for what is also measured, a client for the rest.
pub struct Checks<'a> {
    target: &'a Mysql,
    link: Link<Vault>,
    client: Option<Client>,
}

impl<'a> Checks<'a> {
    /// A session at `target`.
    pub fn open(target: &'a Mysql) -> Result<Self, TargetError> {
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
        let answer = self.client()?.query(text.as_bytes());
        if answer.as_ref().is_err_and(ends_connection) {
            self.client = None;
        }
        answer
    }

    /// What `work` does, as one transaction that `begin` begins; the outcome and what it gave.
    fn transaction<T>(
        &mut self,
        begin: &[&str],
        work: impl FnOnce(&mut Self) -> Result<T, Report>,
    ) -> Result<T, Outcome> {
        begin.iter().try_for_each(|text| self.query(text).map(drop)).map_err(|report| definite(&report))?;
        match work(self) {
            Ok(result) => match self.query("COMMIT") {
                Ok(_) => Ok(result),
                Err(report) => {
                    self.client = None;
                    Err(outcome(&report, OpKind::Transfer))
                }
            },
            Err(report) => {
                if self.client.is_some() && self.query("ROLLBACK").is_err() {
                    self.client = None;
                }
                Err(definite(&report))
            }
        }
    }

    fn balances(&mut self) -> Result<Vec<(u64, Option<i64>)>, Report> {
        let rows = self.query("SELECT bic, ban, balance FROM tipover_account")?;
        Ok(rows.iter().map(|row| found::account(&self.target.bank, row)).collect())
    }

    fn transfers(&mut self) -> Result<Vec<TransferRow>, Report> {
        let columns = "HEX(transfer_id), src_bic, src_ban, dst_bic, dst_ban, amount";
        let rows = self.query(&format!("SELECT {columns} FROM tipover_transfer"))?;
        Ok(rows.iter().map(|row| found::transfer(&self.target.bank, row)).collect())
    }

    fn step(&mut self, step: &Step) -> Result<Option<Vec<u64>>, Report> {
        match *step {
            Step::Append { key, value } => {
                self.query(&format!(
                    "INSERT INTO tipover_list (list_key, list) VALUES ({}, '{value}') \
                     ON DUPLICATE KEY UPDATE list = CONCAT(list, ',', VALUES(list))",
                    key as i64
                ))?;
                Ok(None)
            }
            Step::Read { key } => {
                let text = format!("SELECT list FROM tipover_list WHERE list_key = {}", key as i64);
                let rows = self.query(&text)?;
                let list = rows.first().and_then(|row| row[0].as_deref()).unwrap_or_default();
                Ok(Some(list.split(',').filter_map(|value| value.parse().ok()).collect()))
            }
        }
    }

    fn try_prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), Report> {
        const ROWS: usize = 1_000;
        let mut client = self.target.patient_client()?;
        for (table, columns) in TABLES {
            client.query(format!("DROP TABLE IF EXISTS {table}").as_bytes())?;
            let bytes = "CHARACTER SET ascii COLLATE ascii_bin";
            client.query(format!("CREATE TABLE {table} ({columns}) {bytes}").as_bytes())?;
        }
        let bank = &self.target.bank;
        for part in accounts.chunks(ROWS) {
            let row = |(place, balance): &(u64, i64)| {
                let name = bank.name(*place);
                format!("('{}', '{}', {balance})", name.bic, name.ban)
            };
            let rows: Vec<String> = part.iter().map(row).collect();
            client.query(format!("INSERT INTO tipover_account VALUES {}", rows.join(", ")).as_bytes())?;
        }
        let total: i64 = accounts.iter().map(|(_, balance)| balance).sum();
        let (count, spec) = (accounts.len(), bank.spec());
        let settings = format!(
            "INSERT INTO tipover_setting VALUES ('count', '{count}'), ('seed', '{}'), \
             ('ban_range_multiplier', '{}')",
            spec.seed, spec.range_multiplier
        );
        client.query(settings.as_bytes())?;
        let checksum = format!("INSERT INTO tipover_checksum VALUES ('total', {total})");
        client.query(checksum.as_bytes())?;
        // Set-up must survive the crash that is to come, whatever is promised to transactions.
        match client.query(b"FLUSH ENGINE LOGS") {
            Err(report) if ends_connection(&report) => Err(report),
            _ => Ok(()),
        }
    }
}

const SNAPSHOT: [&str; 2] =
    ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"];

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
                    Outcome::Done => (Outcome::Done, Answer::Value(self.link.fetched(0).map(Version::found))),
                    outcome => (outcome, Answer::Nothing),
                }
            }
            &Operation::Transfer { id, from, to, amount } => {
                (self.link.execute(&Op::Transfer { id, from, to, amount }), Answer::Nothing)
            }
            // One statement without a lock is one snapshot.
            Operation::ReadBalances => match self.balances() {
                Ok(balances) => (Outcome::Done, Answer::Balances(balances)),
                Err(report) => (outcome(&report, OpKind::Read), Answer::Nothing),
            },
            Operation::Transaction { steps } => {
                let work = |checks: &mut Self| steps.iter().map(|step| checks.step(step)).collect();
                match self.transaction(&["START TRANSACTION"], work) {
                    Ok(lists) => (Outcome::Done, Answer::Lists(lists)),
                    Err(outcome) => (outcome, Answer::Nothing),
                }
            }
        }
    }

    fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        let text = "SELECT ledger_key, HEX(value) FROM tipover_ledger";
        let rows = self.transaction(&SNAPSHOT, |checks| checks.query(text));
        let rows = rows.map_err(|outcome| TargetError::new("reading the ledger", found::reason(outcome)))?;
        Ok(rows.iter().filter_map(found::version).collect())
    }

    fn read_bank(&mut self) -> Result<BankRows, TargetError> {
        let read = |checks: &mut Self| Ok((checks.balances()?, checks.transfers()?));
        let rows = self.transaction(&SNAPSHOT, read);
        rows.map_err(|outcome| TargetError::new("reading the bank", found::reason(outcome)))
    }
}
