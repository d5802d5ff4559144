//! sysbench's tables: made and filled, and looked at.

use super::{Report, ReportOf, Server, Sql};
use crate::connection::sql::Client;
use std::ops::Range;
use tipover_core::target::TargetError;
use tipover_core::workload::script::Tables;
use tipover_core::workload::sysbench::{Numbering, Sysbench};

/// Rows of one INSERT.
const ROWS: u64 = 1_000;

impl<S: Sql> Server<S> {
    /// See [`Target::count_sysbench`](tipover_core::target::Target::count_sysbench).
    pub fn count_sysbench(&self, tables: u64) -> Result<Vec<Option<u64>>, TargetError> {
        let failed = |report: ReportOf<S>| report.while_doing("looking at sysbench's tables");
        let mut client = self.patient_client().map_err(failed)?;
        let mut last =
            |number| match client.value(&format!("SELECT coalesce(max(id), 0) FROM sbtest{number}")) {
                Err(report) if report.misses_table() => Ok(None),
                value => value.map(|value| Some(value.parse().unwrap_or(0))),
            };
        (1..=tables).map(|number| last(number).map_err(failed)).collect()
    }

    /// Writes these rows, counted from 0 over all tables. Makes the tables if they are not there.
    pub fn load_sysbench(&self, sysbench: &Sysbench, rows: Range<u64>) -> Result<(), ReportOf<S>> {
        let mut client = self.patient_client()?;
        {
            let mut made = self.made.lock();
            if made.tables == Tables::None {
                for number in 1..=sysbench.tables {
                    client.query(&Sysbench::create(number, S::NUMBERING))?;
                }
                made.tables = Tables::Sysbench(sysbench.clone());
            }
        }
        let mut at = rows.start;
        while at < rows.end {
            let (table, id) = sysbench.place(at);
            let end = rows.end.min(at + ROWS).min(at + 1 + (sysbench.table_size - id));
            let mut text = format!("INSERT INTO sbtest{table}(id, k, c, pad) VALUES");
            for row in at..end {
                if row > at {
                    text.push(',');
                }
                sysbench.put_row(row, &mut text);
            }
            client.query(&text)?;
            at = end;
        }
        Ok(())
    }

    /// What sysbench does when all rows are there: the second index, and here the number of the next row.
    pub fn finish_sysbench(&self, client: &mut S::Client) -> Result<(), ReportOf<S>> {
        let mut made = self.made.lock();
        let Tables::Sysbench(sysbench) = &made.tables else { return Ok(()) };
        if made.finished {
            return Ok(());
        }
        for number in 1..=sysbench.tables {
            client.query(&Sysbench::create_index(number))?;
            if S::NUMBERING == Numbering::Serial {
                let last = sysbench.table_size;
                client.query(&format!("SELECT setval('sbtest{number}_id_seq', {last})"))?;
            }
        }
        made.finished = true;
        Ok(())
    }
}
