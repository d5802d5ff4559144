//! Whether the tables of scripts are there, as the plan says they are.

use super::Examined;
use tipover_core::target::Target;
use tipover_core::workload::Dataset;
use tipover_core::workload::script::Tables;
use tipover_core::workload::sysbench::Sysbench;
use tipover_core::workload::tpcb::{self, Counts};

/// Looks for them.
pub fn examine(target: &dyn Target, dataset: &Dataset, tables: &Tables) -> Examined {
    match tables {
        Tables::Sysbench(sysbench) => examine_sysbench(target, sysbench),
        Tables::Pgbench { .. } | Tables::None => examine_tpcb(target, dataset),
    }
}

/// Counts the rows of pgbench's tables.
fn examine_tpcb(target: &dyn Target, dataset: &Dataset) -> Examined {
    let mut found = Examined::default();
    let counts = match target.count_tpcb() {
        Ok(counts) => counts.unwrap_or_default(),
        Err(error) => return Examined { reason: Some(error.to_string()), ..found },
    };
    let wanted = Counts::at(dataset.records / tpcb::ACCOUNTS);
    found.asked = u32::try_from(wanted.accounts).unwrap_or(u32::MAX);
    if counts == wanted {
        found.there = found.asked;
    } else if counts != Counts::default() {
        let Counts { branches, tellers, accounts } = counts;
        found.refusal = Some(
            match counts == Counts::at(branches) {
                true => format!(
                    "pgbench's tables are there at scale {branches}: say workload.scripts.scale = {branches}"
                ),
                false => format!(
                    "pgbench's tables hold {branches} branches, {tellers} tellers and {accounts} accounts, which is no \
                 scale: nothing was changed; drop them"
                ),
            } + ", or name another database in the address",
        );
    }
    found
}

/// Looks at the largest key of each of sysbench's tables. Its runs insert and delete rows, so no count of
/// them says more.
fn examine_sysbench(target: &dyn Target, sysbench: &Sysbench) -> Examined {
    let mut found = Examined::default();
    let keys = match target.count_sysbench(sysbench.tables) {
        Ok(keys) => keys,
        Err(error) => return Examined { reason: Some(error.to_string()), ..found },
    };
    let Sysbench { tables, table_size, .. } = sysbench;
    found.asked = u32::try_from(sysbench.rows()).unwrap_or(u32::MAX);
    let there: Vec<u64> = keys.iter().copied().flatten().collect();
    let least = there.iter().copied().min().unwrap_or(0);
    if there.len() as u64 == *tables && least >= *table_size {
        found.there = found.asked;
        found.evidence =
            Some(format!("the tables were there: the largest key of the smallest one is {least}"));
    } else if !there.is_empty() {
        found.refusal = Some(format!(
            "{} of {tables} tables of sysbench's are there, the smallest with keys up to {least}, and {table_size} rows \
             are asked for in each: nothing was changed; drop them, say workload.scripts.sysbench.tables and \
             table_size as they are, or name another database in the address",
            there.len()
        ));
    }
    found
}
