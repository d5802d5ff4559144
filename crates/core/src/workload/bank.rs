//! The bank: accounts and transfers between them, generated as the old stroppy did (COMPATIBILITY C6), every
//! account and every transfer a function of (seed, n).
//!
//! Like stroppy: at most 500 banks (BIC), `⌊√count⌋` of them if that is fewer; account numbers (BAN) from a
//! range that is `range multiplier` (1.1) times as large as needed; balances below 10⁶ and amounts below 10⁴;
//! optionally hot accounts by a zipfian with s = 3 over the account numbers.
//!
//! Its traps, by [`Generation`]: an account drawn for a transfer existed only with probability 1/1.1, so
//! 17.4 % of all transfers moved nothing and counted as throughput; an amount could be 0; a hot account
//! number could lie one past the range.

use super::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// Whether the traps of old stroppy are left in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Generation {
    /// Transfers only between accounts that exist, of at least 1.
    #[default]
    Repaired,
    /// As stroppy: accounts that may not exist, amounts that may be 0. To compare with its numbers.
    Stroppy,
}

/// Which accounts are asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hotness {
    /// All alike.
    #[default]
    Uniform,
    /// Account numbers by a zipfian with s = 3 and v = 1 within each bank, as stroppy's `-z`: three of four
    /// draws hit the first number, so conflicts are the rule.
    Zipfian,
}

/// Settings of the bank.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BankSpec {
    /// How many accounts exist.
    pub accounts: u64,
    /// How many account numbers there are for each that exists: stroppy's `banRangeMultiplier`.
    pub range_multiplier: f64,
    /// Which accounts are asked for.
    pub hotness: Hotness,
    /// Whether the traps are left in.
    pub generation: Generation,
    /// What everything is a function of.
    pub seed: u64,
}

impl Default for BankSpec {
    /// Stroppy's 10 000 accounts and multiplier of 1.1, uniform, repaired.
    fn default() -> Self {
        BankSpec {
            accounts: 10_000,
            range_multiplier: 1.1,
            hotness: Hotness::Uniform,
            generation: Generation::Repaired,
            seed: 1,
        }
    }
}

/// A setting with which there is no bank.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BankError {
    /// A transfer needs two accounts.
    #[error("accounts = {0}: a transfer needs at least 2")]
    TooFew(u64),
    /// More would not fit into 14 digits beside the multiplier.
    #[error("accounts = {0}: at most 10^12")]
    TooMany(u64),
    /// Below 1 not all accounts would find a number.
    #[error("range_multiplier = {0}: from 1 to 1000")]
    Multiplier(f64),
}

/// An account as it is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Its place among all that could exist: the number by which histories and checkers know it.
    pub place: u64,
    /// What it begins with, 0..10⁶.
    pub balance: i64,
}

/// A transfer as it is sent. The same n is the same transfer, however often it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// n itself: unique.
    pub id: u64,
    /// The place of the account that pays.
    pub from: u64,
    /// The place of the account that is paid; another one.
    pub to: u64,
    /// How much.
    pub amount: i64,
}

/// Bank code and account number, as texts in the database.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Four letters, a country, two digits.
    pub bic: String,
    /// Fourteen digits.
    pub ban: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.bic, self.ban)
    }
}

const MOST_BANKS: u64 = 500;
const BALANCE_BELOW: u64 = 1_000_000;
const AMOUNT_BELOW: u64 = 10_000;
/// Streams of draws that must not meet.
const BANKS: u64 = 1;
const BALANCES: u64 = 2;
const TRANSFERS: u64 = 3;
const PLACES: u64 = 4;
const IDS: u64 = 5;

/// Countries of bank codes: a part of ISO 3166-1.
const COUNTRIES: [&str; 48] = [
    "AD", "AE", "AT", "AU", "BE", "BG", "BR", "CA", "CH", "CL", "CN", "CY", "CZ", "DE", "DK", "EE", "ES",
    "FI", "FR", "GB", "GR", "HR", "HU", "IE", "IL", "IN", "IS", "IT", "JP", "KR", "LI", "LT", "LU", "LV",
    "MC", "MT", "MX", "NL", "NO", "NZ", "PL", "PT", "RO", "SE", "SG", "SI", "SK", "US",
];

/// A permutation of 0..n that needs no memory: a Feistel network over the next even number of bits, walked
/// until it lands inside (Black and Rogaway 2002).
#[derive(Debug, Clone, Copy)]
struct Permutation {
    n: u64,
    half: u32,
    keys: [u64; 4],
}

impl Permutation {
    fn new(n: u64, seed: u64, stream: u64) -> Self {
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        let mut random = Random::new(seed, stream << 56);
        let keys = std::array::from_fn(|_| random.bits());
        Permutation { n, half: bits.div_ceil(2).max(1), keys }
    }

    fn mask(&self) -> u64 {
        (1 << self.half) - 1
    }

    fn round(&self, value: u64, key: u64) -> u64 {
        Random::new(key, value).bits() & self.mask()
    }

    fn walk(&self, start: u64, step: impl Fn(u64, u64) -> (u64, u64)) -> u64 {
        debug_assert!(start < self.n, "{start} is outside of 0..{}", self.n);
        let mut x = start;
        loop {
            let (left, right) = step(x >> self.half, x & self.mask());
            x = left << self.half | right;
            if x < self.n {
                return x;
            }
        }
    }

    fn forward(&self, x: u64) -> u64 {
        self.walk(x, |left, right| {
            self.keys.iter().fold((left, right), |(l, r), key| (r, l ^ self.round(r, *key)))
        })
    }

    fn backward(&self, x: u64) -> u64 {
        self.walk(x, |left, right| {
            self.keys.iter().rev().fold((left, right), |(l, r), key| (r ^ self.round(l, *key), l))
        })
    }
}

/// Zipfian over 0..=most with P(k) ∝ (1 + k)^−3, by rejection-inversion (Hörmann and Derflinger 1996), which
/// is how Go's `rand.NewZipf(r, 3, 1, most)` draws it.
#[derive(Debug, Clone, Copy)]
struct Zipfian {
    most: f64,
    h_most: f64,
    h_first: f64,
    squeeze: f64,
}

impl Zipfian {
    fn new(most: u64) -> Self {
        let h = |x: f64| -0.5 * (1.0 + x).powi(-2);
        let (most, inverse) = (most as f64, |y: f64| (-2.0 * y).powf(-0.5) - 1.0);
        let (h_most, h_first) = (h(most + 0.5), h(0.5) - 1.0);
        Zipfian { most, h_most, h_first, squeeze: 1.0 - inverse(h(1.5) - 0.125) }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let y = self.h_most + random.unit() * (self.h_first - self.h_most);
            let x = (-2.0 * y).powf(-0.5) - 1.0;
            let k = (x + 0.5).floor().clamp(0.0, self.most);
            let h = -0.5 * (1.5 + k).powi(-2);
            if k - x <= self.squeeze || y >= h - (1.0 + k).powi(-3) {
                return k as u64;
            }
        }
    }
}

/// The bank, ready to be loaded and asked.
#[derive(Debug, Clone)]
pub struct Bank {
    spec: BankSpec,
    banks: Vec<String>,
    /// Which of them has a code.
    codes: HashMap<String, u64>,
    bans: u64,
    places: Permutation,
    zipfian: Zipfian,
    ids: Permutation,
}

impl Bank {
    /// The bank of `spec`.
    ///
    /// # Errors
    /// Fewer than 2 accounts, more than 10¹², or a multiplier outside of 1 to 1000.
    pub fn new(spec: BankSpec) -> Result<Self, BankError> {
        if spec.accounts < 2 {
            return Err(BankError::TooFew(spec.accounts));
        }
        if spec.accounts > 1_000_000_000_000 {
            return Err(BankError::TooMany(spec.accounts));
        }
        if !(1.0..=1000.0).contains(&spec.range_multiplier) {
            return Err(BankError::Multiplier(spec.range_multiplier));
        }
        let banks = spec.accounts.isqrt().min(MOST_BANKS);
        // Stroppy's rounding down can leave fewer numbers than accounts; it would then load for ever.
        let bans = (spec.accounts as f64 * spec.range_multiplier / banks as f64) as u64;
        let bans = bans.max(spec.accounts.div_ceil(banks));
        let names = bank_codes(spec.seed, banks);
        let most = match spec.generation {
            Generation::Stroppy => bans,
            Generation::Repaired => bans - 1,
        };
        Ok(Bank {
            spec,
            codes: (0..).zip(&names).map(|(bank, code)| (code.clone(), bank)).collect(),
            banks: names,
            bans,
            places: Permutation::new(banks * bans, spec.seed, PLACES),
            zipfian: Zipfian::new(most),
            ids: Permutation::new(1 << 60, spec.seed, IDS),
        })
    }

    /// Its settings.
    pub fn spec(&self) -> &BankSpec {
        &self.spec
    }

    /// How many accounts could exist: their places are 0..this.
    pub fn places(&self) -> u64 {
        self.banks.len() as u64 * self.bans
    }

    /// Account `n` of 0..accounts, in the order in which they are loaded: anywhere in the range, each once.
    pub fn account(&self, n: u64) -> Account {
        let place = self.places.forward(n);
        let balance = Random::new(self.spec.seed ^ BALANCES << 56, place).below(BALANCE_BELOW);
        Account { place, balance: balance as i64 }
    }

    /// Whether there is an account in this place.
    pub fn exists(&self, place: u64) -> bool {
        place < self.places() && self.places.backward(place) < self.spec.accounts
    }

    /// The names under which a place stands in the database. A place beyond its bank's range, for which only
    /// stroppy's hot draws ask, has a name too, and no account.
    pub fn name(&self, place: u64) -> Name {
        let banks = self.banks.len() as u64;
        let (bank, ban) = match place.checked_sub(self.places()) {
            None => (place / self.bans, place % self.bans),
            Some(beyond) => (beyond % banks, self.bans + beyond / banks),
        };
        // The digits from the last to the first, as stroppy writes them.
        let ban = format!("{ban:014}").chars().rev().collect();
        Name { bic: self.banks[bank as usize].clone(), ban }
    }

    /// The place that has these names; `None` for names that this bank never gave.
    pub fn place_of(&self, bic: &str, ban: &str) -> Option<u64> {
        let bank = *self.codes.get(bic)?;
        let number = ban.bytes().rev().try_fold(0u64, |number, digit| {
            let digit = char::from(digit).to_digit(10)?;
            number.checked_mul(10)?.checked_add(u64::from(digit))
        })?;
        let place = match number.checked_sub(self.bans) {
            None => bank * self.bans + number,
            Some(beyond) => self.places() + beyond * self.banks.len() as u64 + bank,
        };
        // Zeros in front are part of a name.
        (self.name(place).ban == ban).then_some(place)
    }

    /// Transfer `n`. Without stroppy's traps both accounts exist; with them, either may not.
    pub fn transfer(&self, n: u64) -> Transfer {
        let mut random = Random::new(self.spec.seed ^ TRANSFERS << 56, n);
        let from = self.draw(&mut random);
        let to = loop {
            let to = self.draw(&mut random);
            if to != from {
                break to;
            }
        };
        let amount = match self.spec.generation {
            Generation::Stroppy => random.below(AMOUNT_BELOW),
            Generation::Repaired => 1 + random.below(AMOUNT_BELOW - 1),
        };
        Transfer { id: n, from, to, amount: amount as i64 }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let place = match (self.spec.hotness, self.spec.generation) {
                (Hotness::Uniform, Generation::Repaired) => {
                    return self.places.forward(random.below(self.spec.accounts));
                }
                (Hotness::Uniform, Generation::Stroppy) => random.below(self.places()),
                (Hotness::Zipfian, _) => {
                    let bank = random.below(self.banks.len() as u64);
                    match self.zipfian.draw(random) {
                        ban if ban < self.bans => bank * self.bans + ban,
                        _ => self.places() + bank,
                    }
                }
            };
            if self.spec.generation == Generation::Stroppy || self.exists(place) {
                return place;
            }
        }
    }

    /// The id of transfer `n` as a UUID (version 8, RFC 9562): the same for every attempt, scattered like a
    /// random one so that an index meets it as such, and readable back by [`Bank::transfer_of`].
    pub fn uuid(&self, n: u64) -> u128 {
        let scattered = u128::from(self.ids.forward(n & ((1 << 60) - 1)));
        let tag = u128::from(self.tag());
        (scattered >> 12) << 80 | 0x8 << 76 | (scattered & 0xFFF) << 64 | 0b10 << 62 | tag
    }

    /// Which transfer of this bank has the UUID; `None` for one that this bank never gave out.
    pub fn transfer_of(&self, uuid: u128) -> Option<u64> {
        let scattered = ((uuid >> 80) << 12 | (uuid >> 64 & 0xFFF)) as u64;
        let n = self.ids.backward(scattered);
        (self.uuid(n) == uuid).then_some(n)
    }

    /// The number by which checkers know the transfer of `uuid`. One of a UUID that this bank never gave out
    /// has a number above all others, so that it is found as one that nobody sent.
    pub fn number_of(&self, uuid: u128) -> u64 {
        self.transfer_of(uuid).unwrap_or(uuid as u64 | 1 << 63)
    }

    /// 62 bits that mark this bank's transfers.
    fn tag(&self) -> u64 {
        Random::new(self.spec.seed, IDS << 57).bits() >> 2
    }
}

impl PartialEq for Bank {
    /// Everything follows from the settings.
    fn eq(&self, other: &Bank) -> bool {
        self.spec == other.spec
    }
}

/// Codes that differ from each other; stroppy's may collide, which merges two banks.
fn bank_codes(seed: u64, banks: u64) -> Vec<String> {
    let mut known = std::collections::BTreeSet::new();
    let code = |bank: u64| {
        let mut random = Random::new(seed ^ BANKS << 56, bank);
        loop {
            let mut code: String = (0..4).map(|_| char::from(b'A' + random.below(26) as u8)).collect();
            code += COUNTRIES[random.below(COUNTRIES.len() as u64) as usize];
            code += &format!("{:02}", random.below(100));
            if known.insert(code.clone()) {
                return code;
            }
        }
    };
    (0..banks).map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bank(accounts: u64, hotness: Hotness, generation: Generation) -> Bank {
        Bank::new(BankSpec { accounts, hotness, generation, ..BankSpec::default() }).unwrap()
    }

    proptest! {
        #[test]
        fn permutations_are_undone(
            n in 1..1u64 << 60,
            x in any::<prop::sample::Index>(),
            seed in any::<u64>(),
        ) {
            let permutation = Permutation::new(n, seed, 3);
            let x = x.index(n as usize) as u64;
            prop_assert_eq!(permutation.backward(permutation.forward(x)), x);
        }

        #[test]
        fn a_name_gives_its_place_back(place in 0..1u64 << 40, accounts in 2..1_000_000u64, ban in "[0-9]{0,16}") {
            let bank = bank(accounts, Hotness::Uniform, Generation::Repaired);
            let name = bank.name(place);
            prop_assert_eq!(bank.place_of(&name.bic, &name.ban), Some(place));
            let found = bank.place_of(&name.bic, &ban).map(|place| bank.name(place));
            prop_assert!(found.is_none_or(|found| found.ban == ban));
            prop_assert_eq!(bank.place_of("NOSUCHXX", &name.ban), None);
        }

        #[test]
        fn a_uuid_gives_its_transfer_back(n in 0..1u64 << 60, seed in any::<u64>(), other in any::<u128>()) {
            let bank = Bank::new(BankSpec { seed, ..BankSpec::default() }).unwrap();
            let uuid = bank.uuid(n);
            prop_assert_eq!(bank.transfer_of(uuid), Some(n));
            prop_assert_eq!((uuid >> 76 & 0xF, uuid >> 62 & 3), (8, 2));
            prop_assert_eq!(bank.transfer_of(other), None);
        }
    }

    #[test]
    fn accounts_are_as_many_as_said_and_differ() {
        for accounts in [2, 3, 10, 999, 10_000] {
            let bank = bank(accounts, Hotness::Uniform, Generation::Repaired);
            let places: BTreeSet<u64> = (0..accounts).map(|n| bank.account(n).place).collect();
            assert_eq!(places.len() as u64, accounts);
            assert!(places.iter().all(|place| bank.exists(*place)));
            assert_eq!((0..bank.places()).filter(|place| bank.exists(*place)).count() as u64, accounts);
            let names: BTreeSet<Name> = places.iter().map(|place| bank.name(*place)).collect();
            assert_eq!(names.len() as u64, accounts, "names are unique");
        }
        let bank = bank(10_000, Hotness::Uniform, Generation::Stroppy);
        // 100 banks of 110 numbers.
        assert_eq!((bank.banks.len(), bank.bans), (100, 110));
        let name = bank.name(bank.bans + 23);
        assert_eq!((name.bic.len(), name.ban.as_str()), (8, "32000000000000"));
        let mean: f64 = (0..10_000).map(|n| bank.account(n).balance as f64).sum::<f64>() / 10_000.0;
        assert!((mean - 500_000.0).abs() < 15_000.0, "{mean}");
    }

    #[test]
    fn stroppys_transfers_miss_as_often_as_its_own_did() {
        // Both accounts exist with (1/1.1)² = 82.6 %; its own sample says 1756 + 49 of 10 000 did nothing.
        let bank = bank(10_000, Hotness::Uniform, Generation::Stroppy);
        let misses = (0..100_000)
            .map(|n| bank.transfer(n))
            .filter(|transfer| !(bank.exists(transfer.from) && bank.exists(transfer.to)))
            .count();
        assert!((16_900..17_900).contains(&misses), "{misses}");
        assert!((0..100_000).any(|n| bank.transfer(n).amount == 0));
    }

    #[test]
    fn repaired_transfers_move_money_between_accounts_that_exist() {
        for hotness in [Hotness::Uniform, Hotness::Zipfian] {
            let bank = bank(10_000, hotness, Generation::Repaired);
            for n in 0..20_000 {
                let transfer = bank.transfer(n);
                assert!(bank.exists(transfer.from) && bank.exists(transfer.to), "{transfer:?}");
                assert!(transfer.from != transfer.to && (1..10_000).contains(&transfer.amount));
                assert_eq!(transfer, bank.transfer(n));
            }
        }
        // Two accounts are enough.
        let tiny = bank(2, Hotness::Uniform, Generation::Repaired);
        assert_ne!(tiny.transfer(5).from, tiny.transfer(5).to);
    }

    #[test]
    fn hot_accounts_are_hot_by_the_law() {
        // P(k) ∝ (1 + k)^−3: ζ(3) = 1.2020569.
        let zipfian = Zipfian::new(1000);
        let mut counts = [0f64; 1001];
        let draws = 400_000;
        for n in 0..draws {
            counts[zipfian.draw(&mut Random::new(9, n)) as usize] += 1.0 / draws as f64;
        }
        for (k, share) in counts.iter().enumerate().take(6) {
            let expected = (1.0 + k as f64).powi(-3) / 1.202_056_9;
            assert!((share - expected).abs() < 0.003, "{k}: {share} instead of {expected}");
        }
        let stroppy = bank(100, Hotness::Zipfian, Generation::Stroppy);
        let hottest = (0..10_000).filter(|n| stroppy.transfer(*n).from.is_multiple_of(stroppy.bans)).count();
        assert!((8000..8700).contains(&hottest), "{hottest}");
    }

    #[test]
    fn what_makes_no_bank_is_refused() {
        let error = |accounts, range_multiplier| {
            Bank::new(BankSpec { accounts, range_multiplier, ..BankSpec::default() }).unwrap_err().to_string()
        };
        assert_eq!(error(1, 1.1), "accounts = 1: a transfer needs at least 2");
        assert_eq!(error(10, 0.5), "range_multiplier = 0.5: from 1 to 1000");
        assert_eq!(error(10, f64::NAN), "range_multiplier = NaN: from 1 to 1000");
        assert!(error(u64::MAX, 1.1).contains("at most 10^12"));
        let million = bank(1_000_000_000, Hotness::Uniform, Generation::Repaired);
        assert_eq!(million.banks.len(), 500);
    }

    #[test]
    fn accounts_and_transfers_never_change() {
        // Written down once: results of older runs stay repeatable.
        let bank = bank(10_000, Hotness::Uniform, Generation::Repaired);
        let (account, transfer) = (bank.account(7), bank.transfer(7));
        let text = format!("{} {} {transfer:?}", bank.name(account.place), account.balance);
        let expected =
            "RKRJHR7195000000000000 199712 Transfer { id: 7, from: 10813, to: 4351, amount: 8511 }";
        assert_eq!(text, expected);
    }
}
