//! `tipover list`: plans that can be run, results that can be shown.

use super::Ending;
use super::plan::PLANS;
use crate::report::{Terminal, wrap};
use crate::store::Store;
use anyhow::Result;
use std::path::Path;
use tipover_core::experiment::Experiment;

/// "12 trials, 1 search".
fn what(results: &Path, name: &str) -> String {
    let Ok(store) = Store::existing(results, name) else { return "unreadable".into() };
    let (trials, searches) = store.counts();
    let counted = [(trials, "trial", "trials"), (searches, "search", "searches")];
    let words: Vec<String> = counted
        .iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, more)| format!("{count} {}", if *count == 1 { one } else { more }))
        .collect();
    if words.is_empty() { "nothing measured yet".into() } else { words.join(", ") }
}

/// Prints both.
pub fn execute(results: &Path, json: bool) -> Result<Ending> {
    let mut plans = Vec::new();
    for (name, text) in PLANS {
        let scales = Experiment::scales(text);
        let scale = scales.first().cloned().unwrap_or_default();
        let experiment = Experiment::parse(text, &scale, &[])?;
        plans.push((name, experiment.question, scales));
    }
    let names = Store::names(results);
    if json {
        let plans: Vec<_> = plans
            .iter()
            .map(|(name, question, scales)| serde_json::json!({"name": name, "question": question.trim(), "scales": scales}))
            .collect();
        println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::json!({"experiments": plans, "results": names}))?
        );
        return Ok(Ending::Held);
    }
    let width = Terminal::detect().width;
    println!("Experiments (tipover run NAME):");
    for (name, question, scales) in plans {
        println!("  {name}  [{}]", scales.join(", "));
        // Questions are sentences, and their lines end where the plan's file has an end of line.
        wrap(&question, width - 4).iter().for_each(|line| println!("    {line}"));
    }
    println!("\nResults in {} (tipover show NAME):", results.display());
    if names.is_empty() {
        println!("  none yet");
    }
    for name in names {
        println!("  {name}  ({})", what(results, &name));
    }
    Ok(Ending::Held)
}
