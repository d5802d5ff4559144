//! A ledger and a bank on the embedded engine, for checkers and for the bank workload.

use super::durable::Flushes;
use super::session::outcome_of;
use tipover_core::check::payload::payload;
use tipover_core::check::{Answer, Operation, Step, TransferRow, Version};
use tipover_core::op::{Failure, OpKind, Outcome};
use tipover_core::target::{BankRows, CheckSession, TargetError};
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
}

impl<'a> Checks<'a> {
    /// A session on `connection`; makes the tables if they do not exist.
    pub fn open(connection: &Connection, flushes: &'a Flushes) -> Result<Self, TargetError> {
        let failed = |error| TargetError::new("opening a session for checks", error);
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

    fn transfer(
        &mut self,
        id: u64,
        from: u64,
        to: u64,
        amount: i64,
    ) -> Result<Result<Answer, Failure>, Error> {
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
            Ok(Ok(Answer::Nothing))
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

    fn lists(&mut self, steps: &[Step]) -> Result<Result<Answer, Failure>, Error> {
        self.once(|checks| {
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
            Ok(Ok(Answer::Lists(answers)))
        })
    }

    fn answer(&mut self, operation: &Operation) -> Result<Result<Answer, Failure>, Error> {
        match operation {
            Operation::Write { key, key_sequence, .. } => self.once(|checks| {
                checks.ledger.put(&(*key as i64), payload(*key, *key_sequence).as_slice())?;
                Ok(Ok(Answer::Nothing))
            }),
            Operation::Read { key } => {
                let found = self.ledger.get(&(*key as i64), Version::found)?;
                self.ledger.reset()?;
                Ok(Ok(Answer::Value(found)))
            }
            Operation::Transfer { id, from, to, amount } => self.transfer(*id, *from, *to, *amount),
            Operation::ReadBalances => {
                self.once(|checks| checks.balances().map(|found| Ok(Answer::Balances(found))))
            }
            Operation::Transaction { steps } => self.lists(steps),
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

impl CheckSession for Checks<'_> {
    fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
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
        clear().map_err(|error| TargetError::new("preparing the ledger and the bank", error))
    }

    fn execute(&mut self, operation: &Operation) -> (Outcome, Answer) {
        let reads = matches!(operation, Operation::Read { .. } | Operation::ReadBalances);
        let kind = if reads { OpKind::Read } else { OpKind::Transfer };
        match self.answer(operation) {
            Err(error) => (outcome_of(&error, kind), Answer::Nothing),
            Ok(Err(failure)) => (Outcome::Refused(failure), Answer::Nothing),
            Ok(Ok(answer)) if reads => (Outcome::Done, answer),
            Ok(Ok(answer)) => match self.flushes.wait(&self.session) {
                Ok(()) => (Outcome::Done, answer),
                Err(error) => (outcome_of(&error, kind), Answer::Nothing),
            },
        }
    }

    fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        let read = self.once(|checks| {
            let mut found = Vec::new();
            checks.ledger.reset()?;
            while checks.ledger.next()? {
                checks.ledger.record(|key, bytes| found.push((*key as u64, Version::found(bytes))))?;
            }
            checks.ledger.reset()?;
            Ok(Ok(found))
        });
        read.map(Result::unwrap_or_default).map_err(|error| TargetError::new("reading the ledger", error))
    }

    fn read_bank(&mut self) -> Result<BankRows, TargetError> {
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
