//! What the tables of checks hold, from the texts of their rows.

use super::Texts;
use tipover_core::check::{TransferRow, Version};
use tipover_core::workload::bank::Bank;

/// All accounts, for [`account`].
pub const BALANCES: &str = "SELECT bic, ban, balance FROM tipover_account";

/// The rows of all transfers.
pub type Transfers = Vec<TransferRow>;

/// An account with its balance, from bank code, account number and balance. One that `bank` never made has a
/// number that none of its accounts has.
pub fn account(bank: &Bank, row: &Texts) -> (u64, Option<i64>) {
    (place(bank, &row[0], &row[1]), number(&row[2]))
}

/// A transfer, from the digits of its id, the payer's and the paid one's names, and the amount.
pub fn transfer(bank: &Bank, row: &Texts) -> TransferRow {
    let uuid = row[0].as_deref().and_then(|digits| u128::from_str_radix(digits, 16).ok());
    TransferRow {
        id: bank.number_of(uuid.unwrap_or_default()),
        from: place(bank, &row[1], &row[2]),
        to: place(bank, &row[3], &row[4]),
        amount: number(&row[5]).unwrap_or_default(),
    }
}

/// A key of the ledger with what is there, from the key and the hexadecimal digits of its value.
pub fn version(row: &Texts) -> Option<(u64, Version)> {
    Some((number(&row[0])? as u64, Version::found(&bytes_of(row[1].as_deref().unwrap_or_default()))))
}

/// A list, from its values with commas between.
pub fn list(values: &str) -> Vec<u64> {
    values.split(',').filter_map(|value| value.parse::<i64>().ok()).map(|value| value as u64).collect()
}

/// A list with its key, from the key and the values.
pub fn keyed_list(row: &Texts) -> Option<(u64, Vec<u64>)> {
    Some((number(&row[0])? as u64, list(row[1].as_deref().unwrap_or_default())))
}

fn place(bank: &Bank, bic: &Option<String>, ban: &Option<String>) -> u64 {
    let names = bic.as_deref().zip(ban.as_deref());
    names.and_then(|(bic, ban)| bank.place_of(bic, ban)).unwrap_or(u64::MAX)
}

fn number(text: &Option<String>) -> Option<i64> {
    text.as_deref()?.parse().ok()
}

/// The bytes that hexadecimal digits stand for.
fn bytes_of(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks_exact(2);
    pairs.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
