//! `tipover list`: plans that can be run, results that can be shown.

use super::Ending;
use super::plan::PLANS;
use crate::store::Store;
use anyhow::Result;
use std::path::Path;
use tipover_core::experiment::Experiment;

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
    println!("Experiments (tipover run NAME):");
    for (name, question, scales) in plans {
        println!("  {name}  [{}]\n    {}", scales.join(", "), question.trim());
    }
    println!("\nResults in {} (tipover show NAME):", results.display());
    if names.is_empty() {
        println!("  none yet");
    }
    for name in names {
        println!("  {name}");
    }
    Ok(Ending::Held)
}
