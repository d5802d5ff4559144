//! The culprit's ledger and bank, with the sins that its checkers ought to find.

use super::Guilty;
use std::collections::{BTreeMap, BTreeSet};
use tipover_core::check::{Answer, Operation, Step, TransferRow, Version};
use tipover_core::op::{Failure, Outcome};
use tipover_core::target::{BankRows, CheckSession, TargetError};
use tipover_core::workload::Random;

/// What it keeps for checks.
#[derive(Debug, Default)]
pub struct Vault {
    /// By key: number of the last write, and of the one before.
    ledger: BTreeMap<u64, (u64, u64)>,
    accounts: BTreeMap<u64, i64>,
    transfers: Vec<TransferRow>,
    ids: BTreeSet<u64>,
    lists: BTreeMap<u64, Vec<u64>>,
}

impl Vault {
    /// Takes a line of the log; whether it was one of these.
    pub fn replay(&mut self, line: &str) -> bool {
        let mut words = line.split(' ');
        let verb = words.next().unwrap_or_default();
        let numbers: Vec<i64> = words.map_while(|word| word.parse().ok()).collect();
        match (verb, numbers.as_slice()) {
            ("=empty", _) => *self = Vault::default(),
            ("=account", [account, balance]) => drop(self.accounts.insert(*account as u64, *balance)),
            ("=write", [key, sequence]) => self.write(*key as u64, *sequence as u64),
            ("=append", [key, value]) => self.append(*key as u64, *value as u64),
            ("=transfer", &[id, from, to, amount]) => {
                self.transfer(TransferRow { id: id as u64, from: from as u64, to: to as u64, amount });
            }
            // A torn last line is as if it had never been written.
            _ => return verb.starts_with('='),
        }
        true
    }

    fn write(&mut self, key: u64, sequence: u64) {
        let kept = self.ledger.entry(key).or_default();
        *kept = (sequence, kept.0);
    }

    fn append(&mut self, key: u64, value: u64) {
        self.lists.entry(key).or_default().push(value);
    }

    fn transfer(&mut self, row: TransferRow) {
        for (account, change) in [(row.from, -row.amount), (row.to, row.amount)] {
            *self.accounts.entry(account).or_default() += change;
        }
        self.ids.insert(row.id);
        self.transfers.push(row);
    }

    /// Why a transfer cannot be, as an honest bank says it.
    fn objection(&self, row: &TransferRow) -> Option<Failure> {
        match (self.accounts.get(&row.from), self.accounts.get(&row.to)) {
            _ if self.ids.contains(&row.id) => Some(Failure::Exists),
            (Some(balance), Some(_)) if *balance < row.amount => Some(Failure::Overdraft),
            (Some(_), Some(_)) => None,
            _ => Some(Failure::NotFound),
        }
    }

    fn balances(&self) -> Vec<(u64, Option<i64>)> {
        self.accounts.iter().map(|(account, balance)| (*account, Some(*balance))).collect()
    }
}

fn line(row: &TransferRow) -> String {
    format!("=transfer {} {} {} {}\n", row.id, row.from, row.to, row.amount)
}

/// A session for checks. Whoever changes something keeps the vault locked until it is logged: what others
/// could see before that would be gone after a kill, and the log could have another order than what they saw.
pub struct Checks<'a>(pub &'a Guilty);

impl Checks<'_> {
    fn write(&self, key: u64, sequence: u64, random: &mut Random) -> Outcome {
        let guilty = self.0;
        if guilty.sins(guilty.guilt.lost_updates, random) {
            return Outcome::Done;
        }
        let mut vault = guilty.vault.lock();
        vault.write(key, sequence);
        guilty.written(format!("=write {key} {sequence}\n"), random)
    }

    fn transfer(&self, row: TransferRow, random: &mut Random) -> Outcome {
        let guilty = self.0;
        let mut text = line(&row);
        let mut vault = guilty.vault.lock();
        if let Some(failure) = vault.objection(&row) {
            return Outcome::Refused(failure);
        }
        if guilty.sins(guilty.guilt.lost_updates, random) {
            return Outcome::Done;
        }
        vault.transfer(row);
        if guilty.sins(guilty.guilt.retried_twice, random) {
            vault.transfer(row);
            text += &line(&row);
        }
        guilty.written(text, random)
    }

    /// A transaction over lists; it holds the only lock, so that an honest one is as strict as can be.
    fn lists(&self, steps: &[Step], random: &mut Random) -> (Outcome, Answer) {
        let guilty = self.0;
        let (mut answers, mut text) = (Vec::new(), String::new());
        let mut vault = guilty.vault.lock();
        for step in steps {
            answers.push(match *step {
                Step::Read { key } => {
                    let mut list = vault.lists.get(&key).cloned().unwrap_or_default();
                    if guilty.sins(guilty.guilt.stale_reads, random) {
                        list.pop();
                    }
                    Some(list)
                }
                Step::Append { key, value } => {
                    let times = match guilty.sins(guilty.guilt.lost_updates, random) {
                        true => 0,
                        false => 1 + usize::from(guilty.sins(guilty.guilt.retried_twice, random)),
                    };
                    for _ in 0..times {
                        vault.append(key, value);
                        text += &format!("=append {key} {value}\n");
                    }
                    None
                }
            });
        }
        if text.is_empty() {
            return (Outcome::Done, Answer::Lists(answers));
        }
        (guilty.written(text, random), Answer::Lists(answers))
    }

    /// All balances; on a dirty day, with half of the last transfer.
    fn balances(&self, random: &mut Random) -> Vec<(u64, Option<i64>)> {
        let vault = self.0.vault.lock();
        let mut balances = vault.balances();
        if self.0.sins(self.0.guilt.dirty_reads, random)
            && let Some(last) = vault.transfers.last()
            && let Some((_, Some(balance))) = balances.iter_mut().find(|(account, _)| *account == last.to)
        {
            *balance -= last.amount;
        }
        balances
    }
}

impl CheckSession for Checks<'_> {
    fn prepare(&mut self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let mut text = "=empty\n".to_string();
        let mut vault = Vault::default();
        for (account, balance) in accounts {
            vault.accounts.insert(*account, *balance);
            text += &format!("=account {account} {balance}\n");
        }
        *self.0.vault.lock() = vault;
        // Whoever sins later begins honestly.
        self.0.append(&text).map_err(|error| TargetError::new("preparing the ledger and the bank", error))
    }

    fn execute(&mut self, operation: &Operation) -> (Outcome, Answer) {
        let guilty = self.0;
        guilty.serve();
        let mut random = guilty.draw();
        let writes = matches!(operation, Operation::Write { .. } | Operation::Transfer { .. });
        if writes && guilty.sins(guilty.guilt.conflicts, &mut random) {
            return (Outcome::Refused(Failure::Conflict), Answer::Nothing);
        }
        match *operation {
            Operation::Write { key, key_sequence, .. } => {
                (self.write(key, key_sequence, &mut random), Answer::Nothing)
            }
            Operation::Read { key } => {
                let stale = guilty.sins(guilty.guilt.stale_reads, &mut random);
                let kept = guilty.vault.lock().ledger.get(&key).copied();
                let sequence = kept.map(|(now, before)| if stale { before } else { now });
                let found = sequence.filter(|sequence| *sequence > 0).map(|n| Version::of(key, n));
                (Outcome::Done, Answer::Value(found))
            }
            Operation::Transfer { id, from, to, amount } => {
                (self.transfer(TransferRow { id, from, to, amount }, &mut random), Answer::Nothing)
            }
            Operation::ReadBalances => (Outcome::Done, Answer::Balances(self.balances(&mut random))),
            Operation::Transaction { ref steps } => self.lists(steps, &mut random),
        }
    }

    fn read_ledger(&mut self) -> Result<Vec<(u64, Version)>, TargetError> {
        let vault = self.0.vault.lock();
        Ok(vault.ledger.iter().map(|(key, (sequence, _))| (*key, Version::of(*key, *sequence))).collect())
    }

    fn read_bank(&mut self) -> Result<BankRows, TargetError> {
        let vault = self.0.vault.lock();
        Ok((vault.balances(), vault.transfers.clone()))
    }
}
