//! The culprit's tables of checks, with the sins that its checkers ought to find.

use super::Guilty;
use std::collections::{BTreeMap, BTreeSet};
use tipover_core::check::payload::payload;
use tipover_core::check::{Returned, TransferRow, Version};
use tipover_core::op::{Failure, Op, OpKind, Outcome, Step};
use tipover_core::target::{BankRows, Lists, Session, TargetError};
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

/// A session on the tables of checks. Whoever changes something keeps the vault locked until it is logged:
/// what others could see before that would be gone after a kill, and the log could have another order than
/// what they saw.
pub struct Checks<'a> {
    guilty: &'a Guilty,
    /// What the last read of a key brought.
    fetched: Option<Vec<u8>>,
    /// What the last operation read of balances or lists.
    answer: Returned,
}

impl<'a> Checks<'a> {
    /// A session with `guilty`.
    pub fn new(guilty: &'a Guilty) -> Self {
        Checks { guilty, fetched: None, answer: Returned::Nothing }
    }

    fn write(&self, key: u64, sequence: u64, random: &mut Random) -> Outcome {
        let guilty = self.guilty;
        if guilty.sins(guilty.guilt.lost_updates, random) {
            return Outcome::Done;
        }
        let mut vault = guilty.vault.lock();
        vault.write(key, sequence);
        guilty.written(format!("=write {key} {sequence}\n"), random)
    }

    fn transfer(&self, row: TransferRow, random: &mut Random) -> Outcome {
        let guilty = self.guilty;
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
    fn lists(&mut self, steps: &[Step], random: &mut Random) -> Outcome {
        let guilty = self.guilty;
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
        self.answer = Returned::Lists(answers);
        if text.is_empty() { Outcome::Done } else { guilty.written(text, random) }
    }

    fn read(&mut self, key: u64, random: &mut Random) -> Outcome {
        let stale = self.guilty.sins(self.guilty.guilt.stale_reads, random);
        let kept = self.guilty.vault.lock().ledger.get(&key).copied();
        let version = kept.map(|(now, before)| if stale { before } else { now });
        let version = version.filter(|version| *version > 0);
        self.fetched = version.map(|version| payload(key, version).to_vec());
        if version.is_some() { Outcome::Done } else { Outcome::Refused(Failure::NotFound) }
    }

    /// All balances; on a dirty day, with half of the last transfer.
    fn balances(&self, random: &mut Random) -> Vec<(u64, Option<i64>)> {
        let vault = self.guilty.vault.lock();
        let mut balances = vault.balances();
        if self.guilty.sins(self.guilty.guilt.dirty_reads, random)
            && let Some(last) = vault.transfers.last()
            && let Some((_, Some(balance))) = balances.iter_mut().find(|(account, _)| *account == last.to)
        {
            *balance -= last.amount;
        }
        balances
    }
}

impl Session for Checks<'_> {
    fn execute(&mut self, op: &Op) -> Outcome {
        let guilty = self.guilty;
        (self.fetched, self.answer) = (None, Returned::Nothing);
        guilty.serve();
        let mut random = guilty.draw();
        let refusable = op.kind().writes() && op.kind() != OpKind::Transaction;
        if refusable && guilty.sins(guilty.guilt.conflicts, &mut random) {
            return Outcome::Refused(Failure::Conflict);
        }
        match *op {
            Op::Insert { record } => self.write(record, 1, &mut random),
            Op::Update { record, version, .. } => self.write(record, version, &mut random),
            Op::Read { record, .. } => self.read(record, &mut random),
            Op::Transfer { id, from, to, amount } => {
                self.transfer(TransferRow { id, from, to, amount }, &mut random)
            }
            Op::ReadBalances => {
                self.answer = Returned::Balances(self.balances(&mut random));
                Outcome::Done
            }
            Op::Transaction { ref steps } => self.lists(steps, &mut random),
            _ => Outcome::Refused(Failure::Unsupported),
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

impl Guilty {
    /// Makes the tables of checks anew.
    pub(super) fn begin_honestly(&self, accounts: &[(u64, i64)]) -> Result<(), TargetError> {
        let mut text = "=empty\n".to_string();
        let mut vault = Vault::default();
        for (account, balance) in accounts {
            vault.accounts.insert(*account, *balance);
            text += &format!("=account {account} {balance}\n");
        }
        *self.vault.lock() = vault;
        // Whoever sins later begins honestly.
        self.append(&text).map_err(|error| TargetError::new("preparing the tables of checks", error))
    }
}

impl Vault {
    /// All keys with what is there.
    pub fn keys(&self) -> Vec<(u64, Version)> {
        self.ledger.iter().map(|(key, (version, _))| (*key, Version::of(*key, *version))).collect()
    }

    /// All accounts and transfers.
    pub fn bank(&self) -> BankRows {
        (self.balances(), self.transfers.clone())
    }

    /// All lists.
    pub fn lists(&self) -> Lists {
        self.lists.iter().map(|(key, list)| (*key, list.clone())).collect()
    }
}
