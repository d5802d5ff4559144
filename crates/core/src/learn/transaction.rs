//! Which statements belong together. Statistics count statements one by one; that some were seen inside a
//! transaction that somebody had begun, and how long after its begin, comes from samples of sessions.

use super::statement::{Statement, Verb};
use super::{Seen, SeenStatement};

/// A statement that was read, with what was seen of it.
pub type Known<'a> = (&'a SeenStatement, Statement);

/// Statements, sorted into those of transactions and those that stand alone.
#[derive(Debug, Default)]
pub struct Grouping {
    /// How many transactions were begun.
    pub transactions: u64,
    /// Of a hundred that ended, those that were rolled back.
    pub rolled_back: f64,
    /// Numbers of statements in the order in which a transaction has them, each with how often.
    pub inside: Vec<(usize, f64)>,
    /// Numbers of statements that stand alone, each with its calls.
    pub alone: Vec<(usize, u64)>,
    /// Whether it was guessed from counts, because samples showed too little.
    pub is_guessed: bool,
}

/// Samples of a statement that are enough to say whether it belongs to transactions.
const ENOUGH: u64 = 5;

/// Sorts statements that read or change data. `ended` are all transactions, statements that stand alone among
/// them, where the server counts these: it may not count BEGIN and COMMIT that were prepared.
pub fn group(known: &[Known<'_>], ended: Option<u64>) -> Grouping {
    let count = |verb: Verb| -> u64 {
        known.iter().filter(|(_, statement)| statement.verb == verb).map(|(seen, _)| seen.calls).sum()
    };
    let (begun, committed, undone) = (count(Verb::Begin), count(Verb::Commit), count(Verb::Rollback));
    // Without autocommit there is no BEGIN, only ends.
    let counted = begun.max(committed + undone);
    let mut grouping = Grouping {
        rolled_back: 100.0 * undone as f64 / (committed + undone).max(1) as f64,
        ..Grouping::default()
    };
    let shares: Vec<Option<f64>> = known.iter().map(|(seen, _)| share_inside(seen)).collect();
    let inside = |number: usize, share: f64| (known[number].0.calls as f64 * share).round() as u64;
    let loads: Vec<usize> = (0..known.len())
        .filter(|number| {
            let (seen, statement) = &known[*number];
            matches!(statement.verb, Verb::Read | Verb::Change) && seen.calls > 0
        })
        .collect();
    // What ended and did not stand alone was a transaction that somebody had begun.
    let alone: u64 = loads
        .iter()
        .filter_map(|number| Some(known[*number].0.calls - inside(*number, shares[*number]?)))
        .sum();
    let left = ended.unwrap_or(0).saturating_sub(alone);
    grouping.transactions = match counted as f64 >= 0.8 * left as f64 {
        true => counted,
        false => {
            let sampled = loads.iter().filter_map(|number| Some(inside(*number, shares[*number]?)));
            once_in_each(left, sampled)
        }
    };
    for number in loads {
        let calls = known[number].0.calls;
        let share = match shares[number] {
            _ if grouping.transactions == 0 => 0.0,
            Some(share) => share,
            None => {
                grouping.is_guessed = true;
                let each = calls as f64 / grouping.transactions as f64;
                f64::from(u8::from(each >= 0.95 && (each - each.round()).abs() <= 0.02 * each.max(1.0)))
            }
        };
        let inside = inside(number, share);
        if inside > 0 {
            grouping.inside.push((number, inside as f64 / grouping.transactions as f64));
        }
        if calls > inside {
            grouping.alone.push((number, calls - inside));
        }
    }
    let sampled = grouping.inside.iter().all(|(number, _)| known[*number].0.samples_inside >= ENOUGH);
    grouping.inside.sort_by(|(a, _), (b, _)| {
        let ((a_seen, a), (b_seen, b)) = (&known[*a], &known[*b]);
        let rank = |statement: &Statement| {
            ["select", "update", "delete"].iter().position(|word| statement.word == *word).unwrap_or(3)
        };
        match sampled {
            true => a_seen.after_begin_ms.total_cmp(&b_seen.after_begin_ms),
            false => rank(a).cmp(&rank(b)).then(a.shape.cmp(&b.shape)),
        }
    });
    keep_deletes_first(&mut grouping.inside, known);
    grouping.alone.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    grouping
}

/// Who deletes a row and inserts it again in one transaction can only do it in this order, whatever a few
/// samples say.
fn keep_deletes_first(inside: &mut Vec<(usize, f64)>, known: &[Known<'_>]) {
    let is = |entry: &(usize, f64), word: &str| known[entry.0].1.word == word;
    let table = |entry: &(usize, f64)| known[entry.0].1.tables.first().map(|table| table.name.clone());
    let inserts: Vec<(usize, f64)> = inside.iter().filter(|entry| is(entry, "insert")).copied().collect();
    for insert in inserts {
        let from = inside.iter().position(|entry| entry.0 == insert.0);
        let delete = inside.iter().rposition(|entry| is(entry, "delete") && table(entry) == table(&insert));
        if let (Some(from), Some(delete)) = (from, delete)
            && from < delete
        {
            inside.remove(from);
            inside.insert(delete, insert);
        }
    }
}

/// Which share of a statement's calls was part of a transaction; `None` if too few samples show it.
fn share_inside(seen: &SeenStatement) -> Option<f64> {
    let samples = seen.samples_inside + seen.samples_outside;
    let share = seen.samples_inside as f64 / samples as f64;
    // A few samples on the other side are statements that were looked at in the wrong moment.
    (samples >= ENOUGH).then_some(match share {
        share if share > 0.8 => 1.0,
        share if share < 0.2 => 0.0,
        share => share,
    })
}

/// A count of transactions that lags behind by up to a second, mended by statements that seem to come once in
/// each: their own count is exact.
fn once_in_each(transactions: u64, calls: impl Iterator<Item = u64>) -> u64 {
    let near = |calls: &u64| (*calls as f64 / transactions.max(1) as f64 - 1.0).abs() < 0.15;
    let mut near: Vec<u64> = calls.filter(near).collect();
    near.sort_unstable();
    near.get(near.len() / 2).copied().unwrap_or(transactions)
}

/// Whether statements are planned anew with every call, as far as the server tells.
pub fn plans_anew(seen: &Seen) -> Option<bool> {
    let counted = seen.statements.iter().filter_map(|statement| Some((statement.calls, statement.plans?)));
    let (calls, plans) = counted.fold((0, 0), |(calls, plans), (c, p)| (calls + c, plans + p));
    // Where planning is not counted all are zero.
    (plans > 0).then_some(plans as f64 > 0.5 * calls as f64)
}
