//! From records to a typed, serialisable study, and from a study to verdicts on the claims of the text that
//! it repeats. Pure functions, so that any report can be made again from its results.

pub mod bank;
mod block_layer;
mod broken;
mod cells;
mod claim;
pub mod evidence;
mod expression;
mod faults;
mod figure;
mod foretold;
pub mod large_values;
mod machines;
pub mod nodes;
pub mod spells;
mod spent;
pub mod tenants;
pub mod timeline;
mod tipped;
pub mod tipping_point;
pub mod working_set;
pub mod write_concern;

pub use block_layer::{DeviceRates, Flow};
pub use broken::{BrokenCell, Calm, Range, Spans};
pub use cells::{CellRecords, Cells};
pub use claim::{Claim, Claims, Criterion, Judged, JudgedFigure, Kind, Tally, Verdict};
pub use expression::{Condition, Expression};
pub use figure::{Figure, Known};
pub use foretold::{Foretold, Quantity, foretold};
pub use machines::{MachineFigures, machines};
pub use spent::{Spent, time_spent};
pub use tipped::tipped;

use serde::Serialize;

/// What the records of an experiment say about the text that it repeats: the content of `study.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Studied {
    /// How many claims have each verdict.
    pub tally: Tally,
    /// What of it is so by construction, in a sentence; empty where nothing is.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub caveat: String,
    /// The text's claims, judged.
    pub claims: Vec<Judged>,
    /// The figures.
    pub study: Study,
}

/// The figures of one experiment, in the form that is its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Study {
    /// How working set and disk set throughput and latency.
    WorkingSet(working_set::Study),
    /// A cache of large values.
    LargeValues(large_values::Study),
    /// Where a disk tips.
    TippingPoint(tipping_point::Study),
    /// What safety costs, and what is lost without it.
    WriteConcern(write_concern::Study),
    /// Transfers between accounts.
    Bank(bank::Study),
}

/// A study: the name by which a plan asks for it, how its figures are computed, and the claims of its text.
struct Registered {
    name: &'static str,
    compute: fn(&Cells<'_>) -> Result<Study, String>,
    claims: &'static str,
}

/// One row for each study.
const REGISTRY: &[Registered] = &[
    Registered {
        name: "working-set",
        compute: |cells| working_set::Study::of(cells).map(Study::WorkingSet),
        claims: include_str!("../../../../published/working-set.claims.toml"),
    },
    Registered {
        name: "large-values",
        compute: |cells| Ok(Study::LargeValues(large_values::Study::of(cells))),
        claims: include_str!("../../../../published/large-values.claims.toml"),
    },
    Registered {
        name: "tipping-point",
        compute: |cells| Ok(Study::TippingPoint(tipping_point::Study::of(cells))),
        claims: include_str!("../../../../published/tipping-point.claims.toml"),
    },
    Registered {
        name: "write-concern",
        compute: |cells| Ok(Study::WriteConcern(write_concern::Study::of(cells))),
        claims: include_str!("../../../../published/write-concern.claims.toml"),
    },
    Registered {
        name: "bank",
        compute: |cells| Ok(Study::Bank(bank::Study::of(cells))),
        claims: include_str!("../../../../published/bank.claims.toml"),
    },
];

impl Studied {
    /// The study called `name` with its claims judged; `None` if there is none of that name.
    ///
    /// # Errors
    /// The plan's cells are not those of the study.
    pub fn of(name: &str, cells: &Cells<'_>) -> Result<Option<Studied>, String> {
        let Some(row) = REGISTRY.iter().find(|row| row.name == name) else { return Ok(None) };
        let study = (row.compute)(cells)?;
        let text = Claims::parse(row.claims)?;
        let claims = text.judge(&study.to_json());
        Ok(Some(Studied { tally: Tally::of(&claims), caveat: text.caveat, claims, study }))
    }
}

impl Study {
    /// As data, for paths to lead into.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).expect("a study is lists of figures with names for keys")
    }
}

#[cfg(test)]
mod tests;
