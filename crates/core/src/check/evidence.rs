//! Everything but the history that a judgement rests on, so that a stored run can be judged again.

use super::{
    Bank, BankScan, Checker, History, Judgement, KeyScan, Ledger, Observation, Operation, Register, judge,
};
use crate::schedule::Injection;
use crate::workload::bank::{Bank as BankData, BankError, BankSpec};
use serde::{Deserialize, Serialize};

/// Stands beside the history, as `evidence.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// What was broken, in the order of time.
    #[serde(default)]
    pub injections: Vec<Injection>,
    /// Final reads of the ledger's keys; none if no ledger was kept.
    #[serde(default)]
    pub keys: Vec<KeyScan>,
    /// The accounts as they were before the first transfer, if a bank was kept.
    pub accounts: Option<BankSpec>,
    /// Final reads of the bank.
    #[serde(default)]
    pub bank: Vec<BankScan>,
}

impl Evidence {
    /// Judges `history` by this: the bank if there is one, else the ledger; keys that were read during the
    /// run as registers, too.
    ///
    /// # Errors
    /// Accounts of which no bank can be made.
    pub fn judge(self, history: History) -> Result<Judgement, BankError> {
        let Evidence { injections, keys, accounts, bank } = self;
        let checks_keys = accounts.is_none() || !keys.is_empty();
        let reads = history.entries.iter().any(|entry| matches!(entry.operation, Operation::Read { .. }));
        let accounts = accounts.map(BankData::new).transpose()?.map(|data| {
            let accounts = (0..data.spec().accounts).map(|n| data.account(n));
            Bank::new(accounts.map(|account| (account.place, account.balance)))
        });
        let (ledger, register) = (Ledger::default(), Register);
        let mut checkers: Vec<&dyn Checker> = Vec::new();
        if checks_keys {
            checkers.push(&ledger);
        }
        if reads {
            checkers.push(&register);
        }
        checkers.extend(accounts.iter().map(|bank| bank as &dyn Checker));
        Ok(judge(&checkers, &Observation { history, injections, keys, bank }))
    }
}
