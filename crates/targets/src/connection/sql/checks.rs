//! The tables of checks: made anew before a run, and read back after it, each in one snapshot. The bank's are
//! as old stroppy made them.

use super::found::{self, Transfers};
use super::{Client, Report, ReportOf, Server, Sql, Texts};
use tipover_core::check::Version;
use tipover_core::target::{BankRows, Lists, TargetError};

impl<S: Sql> Server<S> {
    /// See [`Target::prepare`](tipover_core::target::Target::prepare).
    pub fn prepare(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let prepare = || S::prepare(&mut self.patient_client()?, &self.bank, accounts);
        prepare().map_err(|report| report.while_doing("preparing the tables of checks"))
    }

    /// See [`Target::read_keys`](tipover_core::target::Target::read_keys).
    pub fn read_keys(&self) -> Result<Vec<(u64, Version)>, TargetError> {
        let rows = self.snapshot("reading the ledger", |client| client.query(S::LEDGER))?;
        Ok(rows.iter().filter_map(found::version).collect())
    }

    /// See [`Target::read_bank`](tipover_core::target::Target::read_bank).
    pub fn read_bank(&self) -> Result<BankRows, TargetError> {
        let account = |row: &Texts| found::account(&self.bank, row);
        let transfer = |row: &Texts| found::transfer(&self.bank, row);
        self.snapshot("reading the bank", |client| {
            let balances = client.query(found::BALANCES)?.iter().map(account).collect();
            let transfers: Transfers = client.query(S::TRANSFERS)?.iter().map(transfer).collect();
            Ok((balances, transfers))
        })
    }

    /// See [`Target::read_lists`](tipover_core::target::Target::read_lists).
    pub fn read_lists(&self) -> Result<Lists, TargetError> {
        let rows = self.snapshot("reading the lists", |client| client.query(S::LISTS))?;
        Ok(rows.iter().filter_map(found::keyed_list).collect())
    }

    /// What `read` finds in a transaction that sees one moment.
    pub(super) fn snapshot<T>(
        &self,
        doing: &str,
        read: impl FnOnce(&mut S::Client) -> Result<T, ReportOf<S>>,
    ) -> Result<T, TargetError> {
        let read = || {
            let mut client = self.another_client(self.timeout)?;
            S::SNAPSHOT.iter().try_for_each(|text| client.query(text).map(drop))?;
            let found = read(&mut client)?;
            client.query("COMMIT")?;
            Ok(found)
        };
        // In the server's words.
        read().map_err(|report: ReportOf<S>| report.while_doing(doing))
    }
}
