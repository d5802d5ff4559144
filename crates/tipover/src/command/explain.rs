//! `tipover explain`: what a word in a plan, report or finding means.

use super::{BadInput, Ending};
use crate::report::{Terminal, wrap};
use anyhow::Result;
use clap::Args;
use tipover_core::explain::{self, Entry, Shares};
use tipover_core::units::significant;

/// Say what a term means, with its formula and source
///
/// Without a term it lists all. For a key distribution (zipfian, uniform, latest, hotspot, exponential) it
/// also computes how much of the traffic the hottest keys get, because that decides what a cache is worth.
#[derive(Debug, Args)]
pub struct Explain {
    /// The term; blanks need no quotes
    #[arg(value_name = "TERM")]
    term: Vec<String>,

    /// For key distributions: how many keys there are, 100 to 10,000,000
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,

    /// For key distributions: how steep the true zipfian is, 0 or more
    #[arg(long, default_value_t = 0.99)]
    theta: f64,
}

const WIDTH: usize = 100;
const DISTRIBUTIONS: [&str; 5] = ["zipfian", "uniform", "latest", "hotspot", "exponential"];

impl Explain {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        if self.term.is_empty() {
            list(json)?;
            return Ok(Ending::Held);
        }
        let entry = explain::explain(&self.term.join(" ")).map_err(|error| BadInput(error.to_string()))?;
        let shares = match DISTRIBUTIONS.contains(&entry.term.as_str()) {
            true => Some(self.shares()?),
            false => None,
        };
        if json {
            let mut answer = serde_json::to_value(&entry)?;
            if let (Some(shares), Some(object)) = (shares, answer.as_object_mut()) {
                object.insert("keys".into(), self.keys.into());
                object.insert("theta".into(), self.theta.into());
                object.insert("shares".into(), serde_json::to_value(shares)?);
            }
            println!("{}", serde_json::to_string_pretty(&answer)?);
            return Ok(Ending::Held);
        }
        print(&entry);
        if let Some(shares) = shares {
            println!();
            table(&shares, self.keys, self.theta);
        }
        Ok(Ending::Held)
    }

    fn shares(&self) -> Result<Vec<Shares>> {
        if !(self.theta.is_finite() && self.theta >= 0.0) {
            return Err(BadInput(format!("--theta {}: 0 or more is needed", self.theta)).into());
        }
        explain::shares(self.keys, self.theta).map_err(|error| BadInput(format!("--keys: {error}")).into())
    }
}

fn list(json: bool) -> Result<()> {
    let groups = explain::groups();
    if json {
        println!("{}", serde_json::to_string_pretty(&groups)?);
        return Ok(());
    }
    for group in groups {
        println!("{}", group.name);
        let terms: Vec<String> = group.terms.into_iter().map(|entry| entry.term).collect();
        indented(&terms.join(" · "));
    }
    Ok(())
}

fn print(entry: &Entry) {
    println!("{}", entry.term);
    indented(&entry.text);
    for (name, value) in [
        ("formula", entry.formula.clone()),
        ("source", entry.source.clone()),
        ("also", (!entry.also.is_empty()).then(|| entry.also.join(", "))),
        ("see", (!entry.related.is_empty()).then(|| entry.related.join(", "))),
    ] {
        if let Some(value) = value {
            indented(&format!("{name}: {value}"));
        }
    }
}

/// Broken between words, two blanks in front.
fn indented(text: &str) {
    let width = Terminal::detect().width.min(WIDTH);
    wrap(text, width - 2).iter().for_each(|line| println!("  {line}"));
}

fn table(shares: &[Shares], keys: u64, theta: f64) {
    let percent = |share: f64| format!("{} %", significant(100.0 * share, 3));
    println!("Share of the traffic over {keys} keys (true zipfian: θ = {theta}) that goes to");
    let heads = ["hottest key", "hottest 1 %", "hottest 10 %", "hottest 50 %"];
    let cells =
        |row: &Shares| [row.hottest, row.of_1_percent, row.of_10_percent, row.of_50_percent].map(percent);
    // A table that is broken in the middle of its rows is none.
    if Terminal::detect().width < WIDTH {
        for row in shares {
            let parts = heads.iter().zip(cells(row)).map(|(head, cell)| format!("{head} {cell}"));
            let parts = parts.collect::<Vec<_>>().join(", ");
            indented(&format!("{}: {parts}; hot keys: {}", row.distribution, row.hot_keys));
        }
        return;
    }
    let line = |name: &str, [a, b, c, d]: [String; 4], hot: &str| {
        println!("  {name:<38} {a:>12} {b:>12} {c:>12} {d:>12}  {hot}");
    };
    line("", heads.map(String::from), "hot keys");
    shares.iter().for_each(|row| line(row.distribution, cells(row), row.hot_keys));
}
