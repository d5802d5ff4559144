//! A ledger, a bank and lists, for checkers: tables of our own, the bank's as old stroppy made them.

use super::found::{self, Transfers};
use super::{Client, Report, ReportOf, Server, Sql, Texts};
use crate::connection::Link;
use std::time::Duration;
use tipover_core::check::{Answer, Operation, Step, Version};
use tipover_core::op::{Failure, Fields, Op, OpKind, Outcome};
use tipover_core::target::{BankRows, CheckSession, Session, TargetError};

/// A session for checks: a link for what is also measured, a client for the rest.
pub struct Checks<'a, S: Sql> {
    server: &'a Server<S>,
    link: Link<S::Vault>,
    client: Option<S::Client>,
    /// What the server said to the transaction that failed last.
    said: String,
}

impl<'a, S: Sql> Checks<'a, S> {
    /// A session at `server`.
    pub fn open(server: &'a Server<S>) -> Result<Self, TargetError> {
        Ok(Checks { server, link: server.vault(&server.bank)?, client: None, said: String::new() })
    }

    /// The client, connected anew if it is gone.
    fn client(&mut self) -> Result<&mut S::Client, ReportOf<S>> {
        const PAUSE: Duration = Duration::from_millis(20);
        if self.client.is_none() {
            let made = self.server.another_client(self.server.timeout);
            // Whoever tries again at once would only spin.
            self.client = Some(made.inspect_err(|_| std::thread::sleep(PAUSE))?);
        }
        Ok(self.client.as_mut().expect("just made"))
    }

    /// A query on the client, which is given up when its connection is lost.
    fn query(&mut self, text: &str) -> Result<Vec<Texts>, ReportOf<S>> {
        let answer = self.client()?.query(text);
        if answer.as_ref().is_err_and(Report::ends_connection) {
            self.give_up();
        }
        answer
    }

    fn give_up(&mut self) {
        if let Some(client) = self.client.take() {
            client.abandon(&self.server.route);
        }
    }

    /// What `work` does, as one transaction that `begin` begins; the outcome and what it gave.
    fn transaction<T>(
        &mut self,
        begin: &[impl AsRef<str>],
        work: impl FnOnce(&mut Self) -> Result<T, ReportOf<S>>,
    ) -> Result<T, Outcome> {
        let begun = begin.iter().try_for_each(|text| self.query(text.as_ref()).map(drop));
        if let Err(report) = begun {
            return Err(self.note(&report, report.definite()));
        }
        let result = match work(self) {
            Ok(result) => result,
            Err(report) => {
                if self.client.is_some() && self.query("ROLLBACK").is_err() {
                    self.client = None;
                }
                return Err(self.note(&report, report.definite()));
            }
        };
        if let Err(report) = self.query("COMMIT") {
            let outcome = report.outcome(OpKind::Transfer);
            // It may have left the transaction open; its locks go with the connection.
            if matches!(outcome, Outcome::Unknown(_)) {
                self.give_up();
            }
            return Err(self.note(&report, outcome));
        }
        match &self.client {
            Some(client) if client.is_unreplicated() => Err(Outcome::Unknown(Failure::Unreplicated)),
            _ => Ok(result),
        }
    }

    /// Keeps the server's words, which an outcome has no room for.
    fn note(&mut self, report: &ReportOf<S>, outcome: Outcome) -> Outcome {
        self.said = report.to_string();
        outcome
    }

    /// Why a final read found nothing: in the server's words, not in ours.
    fn unread(&self, doing: &str, outcome: Outcome) -> TargetError {
        TargetError::new(doing, format!("{} ({})", self.said, found::reason(outcome)))
    }

    fn balances(&mut self) -> Result<Vec<(u64, Option<i64>)>, ReportOf<S>> {
        let rows = self.query("SELECT bic, ban, balance FROM tipover_account")?;
        Ok(rows.iter().map(|row| found::account(&self.server.bank, row)).collect())
    }

    fn transfers(&mut self) -> Result<Transfers, ReportOf<S>> {
        let rows = self.query(S::TRANSFERS)?;
        Ok(rows.iter().map(|row| found::transfer(&self.server.bank, row)).collect())
    }

    fn step(&mut self, step: &Step) -> Result<Option<Vec<u64>>, ReportOf<S>> {
        match *step {
            Step::Append { key, value } => {
                self.query(&S::append(key as i64, value as i64))?;
                Ok(None)
            }
            Step::Read { key } => {
                let rows = self.query(&S::read_list(key as i64))?;
                Ok(Some(rows.first().map(found::list).unwrap_or_default()))
            }
        }
    }
}

impl<S: Sql> CheckSession for Checks<'_, S> {
    fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let prepare = || S::prepare(&mut self.server.patient_client()?, &self.server.bank, accounts);
        prepare().map_err(|report| report.while_doing("preparing the ledger and the bank"))
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
            // One statement without a lock is one snapshot at every level of isolation.
            Operation::ReadBalances => match self.balances() {
                Ok(balances) => (Outcome::Done, Answer::Balances(balances)),
                Err(report) => (report.outcome(OpKind::Read), Answer::Nothing),
            },
            Operation::Transaction { steps } => {
                let work = |checks: &mut Self| steps.iter().map(|step| checks.step(step)).collect();
                match self.transaction(&self.server.sql.begin(), work) {
                    Ok(lists) => (Outcome::Done, Answer::Lists(lists)),
                    Err(outcome) => (outcome, Answer::Nothing),
                }
            }
        }
    }

    fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        let rows = self.transaction(S::SNAPSHOT, |checks| checks.query(S::LEDGER));
        let rows = rows.map_err(|outcome| self.unread("reading the ledger", outcome))?;
        Ok(rows.iter().filter_map(found::version).collect())
    }

    fn read_bank(&mut self) -> Result<BankRows, TargetError> {
        let read = |checks: &mut Self| Ok((checks.balances()?, checks.transfers()?));
        let rows = self.transaction(S::SNAPSHOT, read);
        rows.map_err(|outcome| self.unread("reading the bank", outcome))
    }
}
