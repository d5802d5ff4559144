//! Mutants of the bank.

use super::{Change, Mutation, Trial, Truth, pick, pick_two};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tipover_core::check::guilty::{ACCOUNTS, Extent, FIRST_BALANCE, Work};
use tipover_core::check::{Bank, BankScan, Entry, Exposure, Observation, Returned, Source, TransferRow};
use tipover_core::op::{Op, Outcome};
use tipover_core::workload::Random;

type Balances = Vec<(u64, Option<i64>)>;

pub fn bank() -> Trial {
    let mut bank = Bank::new((0..ACCOUNTS).map(|account| (account, FIRST_BALANCE)));
    bank.exposure = Exposure { window: Duration::from_secs(1), least_acknowledged: 1, ..Exposure::default() };
    let of = |end_ms, faults_ms| Extent { clients: 3, keys: 1, end_ms, faults_ms };
    Trial {
        name: "bank",
        work: Work::Bank,
        extents: vec![of(40, vec![]), of(90, vec![30])],
        checkers: vec![Box::new(bank)],
        truth: |_, seen| truth(seen),
        change,
        why,
    }
}

fn asked(entry: &Entry) -> Option<TransferRow> {
    match entry.op {
        Op::Transfer { id, from, to, amount } => Some(TransferRow { id, from, to, amount }),
        _ => None,
    }
}

fn last_reading(seen: &Observation) -> &BankScan {
    let survivors = seen.bank.iter().filter(|scan| scan.source == Source::Survivors);
    survivors.max_by_key(|scan| scan.pass).expect("the survivors were read")
}

/// Money is counted again, coin by coin: who must have moved what, who may have, and what is there.
fn truth(seen: &Observation) -> Truth {
    for entry in seen.history.entries.iter().filter(|entry| entry.is_done()) {
        if let Returned::Balances(balances) = &entry.answer
            && let Some(wrong) = wrong_set(balances)
        {
            return Truth::Broken(format!("snapshot of {}: {wrong}", entry.name()));
        }
    }
    let last = last_reading(seen);
    if let Some(wrong) = wrong_set(&last.balances) {
        return Truth::Broken(format!("at the end: {wrong}"));
    }
    // All attempts with one id are one transfer; one acknowledgement is enough.
    let mut attempts: BTreeMap<u64, Vec<(&Entry, TransferRow)>> = BTreeMap::new();
    for (entry, row) in seen.history.entries.iter().filter_map(|entry| Some((entry, asked(entry)?))) {
        attempts.entry(row.id).or_default().push((entry, row));
    }
    let mut money: BTreeMap<u64, i64> = (0..ACCOUNTS).map(|account| (account, FIRST_BALANCE)).collect();
    for row in &last.transfers {
        let Some(sent) = attempts.get(&row.id) else {
            return Truth::Broken(format!("nobody sent {row:?}"));
        };
        if sent.iter().all(|(entry, _)| matches!(entry.outcome, Outcome::Refused(_))) {
            return Truth::Broken(format!("refused, and there: {row:?}"));
        }
        if sent.iter().all(|(_, asked)| asked != row) {
            return Truth::Broken(format!("sent as {sent:?}, and there as {row:?}"));
        }
        for (account, change) in [(row.from, -row.amount), (row.to, row.amount)] {
            *money.entry(account).or_default() += change;
        }
    }
    for (id, sent) in &attempts {
        let there = last.transfers.iter().filter(|row| row.id == *id).count();
        let least = usize::from(sent.iter().any(|(entry, _)| entry.is_done()));
        if there < least || there > 1 {
            return Truth::Broken(format!("transfer {id} is there {there} times"));
        }
    }
    let counted: BTreeMap<u64, i64> =
        last.balances.iter().map(|(account, balance)| (*account, balance.unwrap_or(0))).collect();
    if counted != money {
        return Truth::Broken("balances are not what the transfers make them".into());
    }
    let sorted = |scan: &BankScan| {
        let (mut balances, mut transfers) = (scan.balances.clone(), scan.transfers.clone());
        balances.sort_unstable();
        transfers.sort_unstable();
        (balances, transfers)
    };
    let differs = |scan: &&BankScan| {
        (scan.source == Source::Survivors || scan.pass == last.pass) && sorted(scan) != sorted(last)
    };
    match seen.bank.iter().find(differs) {
        Some(scan) => Truth::Open(format!("reading {} of {:?} differs", scan.pass, scan.source)),
        None => Truth::Legal,
    }
}

/// What balances that were read together may not be.
fn wrong_set(balances: &Balances) -> Option<String> {
    let names: Vec<u64> = balances.iter().map(|(account, _)| *account).collect();
    let set: BTreeSet<u64> = names.iter().copied().collect();
    let money: Option<Vec<i64>> = balances.iter().map(|(_, balance)| *balance).collect();
    let Some(money) = money else { return Some("a balance is null".into()) };
    let total: i64 = money.iter().sum();
    if set.len() != names.len() || set != (0..ACCOUNTS).collect() {
        Some(format!("accounts {names:?}"))
    } else if total != ACCOUNTS as i64 * FIRST_BALANCE {
        Some(format!("a total of {total}"))
    } else {
        money.iter().any(|balance| *balance < 0).then(|| "a debt".into())
    }
}

fn change(mutation: Mutation, seen: &mut Observation, random: &mut Random) -> bool {
    match mutation {
        Mutation::Forge => forge_snapshot(seen, random).is_some(),
        Mutation::RollBack => roll_back(seen, random).is_some(),
        Mutation::OneReading => {
            let Some(one) = pick(random, &seen.bank) else { return false };
            let mut alone = seen.clone();
            let kind = [Mutation::DropRow, Mutation::DoubleRow, Mutation::SwapRows, Mutation::ForgeRow]
                [random.below(4) as usize];
            let changed = rows(kind, &mut alone, random).is_some();
            seen.bank[one] = alone.bank[one].clone();
            changed
        }
        _ => rows(mutation, seen, random).is_some(),
    }
}

/// Changes balances that were read together.
fn forge(balances: &mut Balances, kind: u64, at: usize, other: usize, amount: i64) {
    let move_money = |balances: &mut Balances, amount: i64| {
        for (place, change) in [(at, amount), (other, -amount)] {
            if let Some(balance) = &mut balances[place].1 {
                *balance += change;
            }
        }
    };
    match kind {
        0 => balances[at].1 = None,
        1 => balances[at].1 = balances[at].1.map(|balance| balance + amount),
        2 => move_money(balances, amount),
        3 => move_money(balances, 20 * FIRST_BALANCE),
        4 => drop(balances.remove(at)),
        5 => balances.push(balances[at]),
        6 => balances.push((ACCOUNTS + at as u64, Some(0))),
        7 => balances[at].0 = ACCOUNTS + at as u64,
        _ => balances[at].0 = balances[other].0,
    }
}

fn forge_snapshot(seen: &mut Observation, random: &mut Random) -> Option<()> {
    let snapshots: Vec<usize> = (0..seen.history.entries.len())
        .filter(|at| matches!(seen.history.entries[*at].answer, Returned::Balances(_)))
        .collect();
    let entry = &mut seen.history.entries[snapshots[pick(random, &snapshots)?]];
    let Returned::Balances(balances) = &mut entry.answer else { return None };
    let (at, other) = pick_two(random, balances)?;
    forge(balances, random.below(9), at, other, 1 + random.below(50) as i64);
    Some(())
}

/// Takes back the last transfers that were acknowledged: wholly, their rows, their money, or half of it.
fn roll_back(seen: &mut Observation, random: &mut Random) -> Option<()> {
    let done = seen.history.entries.iter().filter_map(|entry| Some((entry.acknowledged()?, asked(entry)?)));
    let mut done: Vec<_> = done.collect();
    done.sort_unstable();
    let last = done.split_off(done.len().checked_sub(1 + random.below(5) as usize)?);
    let kind = random.below(4);
    for scan in &mut seen.bank {
        for (_, row) in &last {
            let there = scan.transfers.len();
            if kind != 1 {
                scan.transfers.retain(|known| known.id != row.id);
            }
            let halves = match kind {
                0 => &[(row.from, row.amount), (row.to, -row.amount)][..],
                1 => &[(row.from, row.amount), (row.to, -row.amount)],
                2 => &[],
                _ => &[(row.from, row.amount)],
            };
            for (account, change) in halves.iter().filter(|_| kind == 1 || scan.transfers.len() < there) {
                let balances = scan.balances.iter_mut().filter(|(known, _)| known == account);
                balances.for_each(|(_, balance)| *balance = balance.map(|balance| balance + change));
            }
        }
    }
    Some(())
}

/// Changes rows of all readings in the same way.
fn rows(mutation: Mutation, seen: &mut Observation, random: &mut Random) -> Option<()> {
    let last = last_reading(seen).clone();
    let (at, other) = pick_two(random, &last.balances)?;
    let of_transfers = random.below(2) == 0;
    let transfers = pick_two(random, &last.transfers);
    let [kind, field, amount] = [random.below(9), random.below(4), 1 + random.below(50)];
    for scan in &mut seen.bank {
        match (mutation, of_transfers) {
            (Mutation::DropRow, true) => drop(scan.transfers.remove(transfers?.0)),
            (Mutation::DropRow, false) => drop(scan.balances.remove(at)),
            (Mutation::DoubleRow, true) => scan.transfers.push(last.transfers[transfers?.0]),
            (Mutation::DoubleRow, false) => scan.balances.push(last.balances[at]),
            (Mutation::SwapRows, true) => {
                let (a, b) = transfers?;
                (scan.transfers[a].id, scan.transfers[b].id) = (last.transfers[b].id, last.transfers[a].id);
            }
            (Mutation::SwapRows, false) => {
                (scan.balances[at].1, scan.balances[other].1) = (last.balances[other].1, last.balances[at].1);
            }
            (_, true) => {
                let row = &mut scan.transfers[transfers?.0];
                match field {
                    0 => row.id += 1_000_000,
                    1 => row.from = (row.from + 1) % ACCOUNTS,
                    2 => row.to = ACCOUNTS + 1,
                    _ => row.amount += amount as i64,
                }
            }
            (_, false) => forge(&mut scan.balances, kind, at, other, amount as i64),
        }
    }
    Some(())
}

fn why(mutation: Mutation, change: &Change) -> &'static str {
    let Some(before) = &change.before else {
        return match mutation {
            Mutation::OneReading => "a replica's first reading: it may catch up until the last one",
            Mutation::RollBack => "they had not been found before either",
            _ => "two rows or balances that were the same",
        };
    };
    match (&before.op, mutation) {
        (Op::ReadBalances, Mutation::Forge | Mutation::Swap)
            if change.after.as_ref().is_some_and(|after| matches!(after.answer, Returned::Balances(_))) =>
        {
            "a snapshot that adds up, of another moment or with money moved: which transfers a snapshot shows is \
             not promised"
        }
        (Op::ReadBalances, _) => "a snapshot less or again says nothing else",
        (_, Mutation::Double) => "an attempt more with the id of the same transfer",
        (_, Mutation::Reorder) => "the order of transfers is not promised",
        (_, Mutation::Swap) => "both had the same result, or what is found fits either",
        _ if !before.is_done() => {
            "it was refused or never answered, and not found: it may as well be another result"
        }
        _ if change.after.as_ref().is_some_and(|after| matches!(after.outcome, Outcome::Unknown(_))) => {
            "it says less: without an answer, either may be found"
        }
        _ => "another result that fits what is found",
    }
}
