//! The tables of checks on the embedded engine: a ledger, a bank and lists.

use super::durable::Flushes;
use super::session::outcome_of;
use tipover_core::check::payload::payload;
use tipover_core::check::{Returned, TransferRow, Version};
use tipover_core::op::{Failure, Op, Outcome, Step};
use tipover_core::target::{self, BankRows, Lists, TargetError};
use tipover_wiredtiger::{Connection, Cursor, Error, Session};

const LEDGER: &str = "table:ledger";
const ACCOUNTS: &str = "table:accounts";
const TRANSFERS: &str = "table:transfers";
const LISTS: &str = "table:lists";

/// Tables by number; one writer at a time sees a snapshot of them.
pub struct Checks<'a> {
    session: Session,
    flushes: &'a Flushes,
    ledger: Cursor<i64, [u8]>,
    accounts: Cursor<i64, i64>,
    transfers: Cursor<i64, [u8]>,
    lists: Cursor<i64, [u8]>,
    /// What the last read of a key brought.
    fetched: Option<Vec<u8>>,
    /// What the last operation read of balances or lists.
    answer: Returned,
}

impl<'a> Checks<'a> {
    /// A session on `connection`; makes the tables if they do not exist.
    pub fn open(connection: &Connection, flushes: &'a Flushes) -> Result<Self, TargetError> {
        let failed = |error| TargetError::new("opening a session on the tables of checks", error);
        let session = connection.session().map_err(failed)?;
        for table in [LEDGER, TRANSFERS, LISTS] {
            session.create(table, "type=file,key_format=q,value_format=u").map_err(failed)?;
        }
        session.create(ACCOUNTS, "type=file,key_format=q,value_format=q").map_err(failed)?;
        Ok(Checks {
            ledger: session.cursor(LEDGER).map_err(failed)?,
            accounts: session.cursor(ACCOUNTS).map_err(failed)?,
            transfers: session.cursor(TRANSFERS).map_err(failed)?,
            lists: session.cursor(LISTS).map_err(failed)?,
            flushes,
            session,
            fetched: None,
            answer: Returned::Nothing,
        })
    }

    /// Commits what `work` did if that was done, and rolls it back otherwise.
    fn once<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<Result<R, Failure>, Error>,
    ) -> Result<Result<R, Failure>, Error> {
        self.session.begin()?;
        match work(self) {
            Ok(Ok(result)) => self.session.commit().map(|()| Ok(result)),
            other => {
                self.session.rollback()?;
                other
            }
        }
    }

    fn transfer(&mut self, id: u64, from: u64, to: u64, amount: i64) -> Result<Result<(), Failure>, Error> {
        self.once(|checks| {
            if checks.transfers.contains(&(id as i64))? {
                return Ok(Err(Failure::Exists));
            }
            for (account, change) in [(from, -amount), (to, amount)] {
                let Some(balance) = checks.accounts.get_copy(&(account as i64))? else {
                    return Ok(Err(Failure::NotFound));
                };
                if balance + change < 0 {
                    return Ok(Err(Failure::Overdraft));
                }
                checks.accounts.update(&(account as i64), &(balance + change))?;
            }
            let row: Vec<u8> = [from, to, amount as u64].into_iter().flat_map(u64::to_le_bytes).collect();
            checks.transfers.insert(&(id as i64), row.as_slice())?;
            Ok(Ok(()))
        })
    }

    fn balances(&mut self) -> Result<Vec<(u64, Option<i64>)>, Error> {
        let mut found = Vec::new();
        self.accounts.reset()?;
        while self.accounts.next()? {
            self.accounts.record(|account, balance| found.push((*account as u64, Some(*balance))))?;
        }
        self.accounts.reset()?;
        Ok(found)
    }

    fn transaction(&mut self, steps: &[Step]) -> Result<Result<(), Failure>, Error> {
        let answer = self.once(|checks| {
            let mut answers = Vec::new();
            for step in steps {
                let (Step::Append { key, .. } | Step::Read { key }) = *step;
                let mut list = checks.lists.get_copy(&(key as i64))?.unwrap_or_default();
                answers.push(match *step {
                    Step::Append { value, .. } => {
                        list.extend(value.to_le_bytes());
                        checks.lists.put(&(key as i64), list.as_slice())?;
                        None
                    }
                    Step::Read { .. } => Some(list.chunks_exact(8).map(number).collect()),
                });
            }
            Ok(Ok(Returned::Lists(answers)))
        })?;
        Ok(answer.map(|answer| self.answer = answer))
    }

    fn once_executed(&mut self, op: &Op) -> Result<Result<(), Failure>, Error> {
        if let Some((key, version)) = op.written() {
            return self.once(|checks| {
                checks.ledger.put(&(key as i64), payload(key, version).as_slice())?;
                Ok(Ok(()))
            });
        }
        match *op {
            Op::Read { record, .. } => {
                self.fetched = self.ledger.get(&(record as i64), <[u8]>::to_vec)?;
                self.ledger.reset()?;
                Ok(self.fetched.as_ref().map(|_| ()).ok_or(Failure::NotFound))
            }
            Op::Transfer { id, from, to, amount } => self.transfer(id, from, to, amount),
            Op::ReadBalances => {
                let found = self.once(|checks| checks.balances().map(Ok))?;
                Ok(found.map(|found| self.answer = Returned::Balances(found)))
            }
            Op::Transaction { ref steps } => self.transaction(steps),
            _ => Ok(Err(Failure::Unsupported)),
        }
    }
}

/// Everything in a table, as `value` sees it.
fn rows<T>(table: &mut Cursor<i64, [u8]>, value: impl Fn(&[u8]) -> T) -> Result<Vec<(u64, T)>, Error> {
    let mut found = Vec::new();
    table.reset()?;
    while table.next()? {
        table.record(|key, bytes| found.push((*key as u64, value(bytes))))?;
    }
    table.reset()?;
    Ok(found)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl target::Session for Checks<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        (self.fetched, self.answer) = (None, Returned::Nothing);
        match self.once_executed(op) {
            Err(error) => outcome_of(&error, op.kind()),
            Ok(Err(failure)) => Outcome::Refused(failure),
            Ok(Ok(())) if !op.kind().writes() => Outcome::Done,
            Ok(Ok(())) => match self.flushes.wait(&self.session) {
                Ok(()) => Outcome::Done,
                Err(error) => outcome_of(&error, op.kind()),
            },
        }
    }

    fn fetched(&self, _: u16) -> Option<&[u8]> {
        self.fetched.as_deref()
    }

    fn fetched_records(&self) -> u32 {
        u32::from(self.fetched.is_some())
    }

    fn answer(&self) -> Returned {
        self.answer.clone()
    }
}

impl Checks<'_> {
    /// See [`Target::prepare`](target::Target::prepare).
    pub fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let mut clear = || -> Result<(), Error> {
            for table in [&mut self.ledger, &mut self.transfers, &mut self.lists] {
                table.reset()?;
                while table.next()? {
                    let key = table.key_copy()?;
                    table.remove(&key)?;
                }
                table.reset()?;
            }
            while self.accounts.next()? {
                let key = self.accounts.key_copy()?;
                self.accounts.remove(&key)?;
            }
            self.accounts.reset()?;
            for (account, balance) in accounts {
                self.accounts.put(&(*account as i64), balance)?;
            }
            self.session.checkpoint()
        };
        clear().map_err(|error| TargetError::new("preparing the tables of checks", error))
    }

    /// See [`Target::read_keys`](target::Target::read_keys).
    pub fn read_keys(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        let read = self.once(|checks| rows(&mut checks.ledger, Version::found).map(Ok));
        read.map(Result::unwrap_or_default).map_err(|error| TargetError::new("reading the ledger", error))
    }

    /// See [`Target::read_lists`](target::Target::read_lists).
    pub fn read_lists(&mut self) -> Result<Lists, TargetError> {
        let list = |bytes: &[u8]| bytes.chunks_exact(8).map(number).collect();
        let read = self.once(|checks| rows(&mut checks.lists, list).map(Ok));
        read.map(Result::unwrap_or_default).map_err(|error| TargetError::new("reading the lists", error))
    }

    /// See [`Target::read_bank`](target::Target::read_bank).
    pub fn read_bank(&mut self) -> Result<BankRows, TargetError> {
        let read = self.once(|checks| {
            let balances = checks.balances()?;
            let mut transfers = Vec::new();
            checks.transfers.reset()?;
            while checks.transfers.next()? {
                checks.transfers.record(|id, row| {
                    let word = |n: usize| number(row.get(8 * n..8 * n + 8).unwrap_or_default());
                    let (from, to, amount) = (word(0), word(1), word(2) as i64);
                    transfers.push(TransferRow { id: *id as u64, from, to, amount });
                })?;
            }
            checks.transfers.reset()?;
            Ok(Ok((balances, transfers)))
        });
        read.map(Result::unwrap_or_default).map_err(|error| TargetError::new("reading the bank", error))
    }
}
