//! `disk fault`, `power-cut` and `power-on`: breaking a disk on purpose.

use super::{find, quoted};
use crate::command::{BadInput, Ending};
use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use tipover_core::device::{Armed, CutReport, PowerCut, Rule};
use tipover_disk::Disk;

/// Make a disk fail on purpose
///
/// A fault is a rule: an effect, and when it happens. Each counts how often it did: a fault that never fired
/// proves nothing.
#[derive(Debug, Args)]
pub struct FaultCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put a fault in force
    ///
    /// Effects: eio, eio-sticky (the range stays bad), enospc, stall (until cleared) or stall:2s, slow:50ms,
    /// torn:512B, lost (acknowledged, not written), corrupt (a bit flips), lying-sync (a flush does nothing).
    /// Conditions, all of which must hold: kind=read|write|flush, path=base/* (file mode), range=0-4MiB,
    /// nth=3, every=10, probability=1%, from=2s, until=10s (after the rule was added), times=1, seed=7.
    #[command(after_long_help = "Examples:
  tipover disk fault add /mnt/slow eio-sticky,kind=read,range=64MiB-65MiB
  tipover disk fault add /mnt/slow stall:2s,kind=flush,path=pg_wal/*,nth=10
  tipover disk fault add /mnt/slow lying-sync")]
    Add {
        /// Where the disk is mounted
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The fault, such as eio,kind=read,probability=1%,seed=7
        #[arg(value_name = "RULE")]
        rule: String,
    },
    /// List the faults in force, and how often each fired
    List {
        /// Where the disk is mounted
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Take faults back, and release what they stalled
    Clear {
        /// Where the disk is mounted
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Only the fault of this number
        #[arg(value_name = "NUMBER")]
        number: Option<u64>,
    },
}

impl FaultCommand {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        match &self.verb {
            Verb::Add { folder, rule } => {
                let rule: Rule = rule.parse().map_err(|e| BadInput(format!("{e}")))?;
                let disk = find(folder)?;
                let number = disk.add_fault(&rule)?;
                match json {
                    true => println!("{}", json!({"number": number, "rule": rule})),
                    false => println!("fault {number} is in force: {rule}"),
                }
            }
            Verb::List { folder } => list(&find(folder)?, json)?,
            Verb::Clear { folder, number } => {
                let disk = find(folder)?;
                let before = disk.faults()?;
                let cleared = disk.clear_faults(*number)?;
                if let (Some(number), 0) = (number, cleared) {
                    let known: Vec<String> = before.iter().map(|armed| armed.number.to_string()).collect();
                    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                    return Err(BadInput(format!("there is no fault {number}; in force: {known}")).into());
                }
                match json {
                    true => println!("{}", json!({"cleared": cleared})),
                    false => println!("{cleared} cleared"),
                }
            }
        }
        Ok(Ending::Held)
    }
}

fn list(disk: &Disk, json: bool) -> Result<()> {
    let faults = disk.faults()?;
    if json {
        println!("{}", serde_json::to_string_pretty(&faults)?);
        return Ok(());
    }
    if faults.is_empty() {
        println!("no fault is in force");
    }
    for Armed { number, rule, matched, fired } in &faults {
        let warning = if *fired == 0 { "  (never: it proves nothing yet)" } else { "" };
        println!("{number}: {rule}\n    fired {fired} times of {matched} requests that matched{warning}");
    }
    Ok(())
}

/// Cut a disk's power
///
/// What was written and not flushed is lost, and every request fails with EIO until `disk power-on`. Kill the
/// programs that use the disk as well, as a real power cut would: what they have in memory must not survive.
#[derive(Debug, Args)]
pub struct Cut {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// With which probability a block that was not flushed survives, and more: survive=50%, torn=512B,
    /// drained_after=30s, seed=7
    #[arg(long, value_name = "HOW", default_value = "survive=0%")]
    how: String,

    /// Give the power back at once
    #[arg(long)]
    on: bool,
}

impl Cut {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        let cut: PowerCut = self.how.parse().map_err(|e| BadInput(format!("--how: {e}")))?;
        let mut disk = find(&self.folder)?;
        let report = disk.power_cut(&cut)?;
        if self.on {
            disk.power_on()?;
        }
        let next = format!("tipover disk power-on {}", quoted(&disk.path().to_string_lossy()));
        if json {
            println!(
                "{}",
                serde_json::to_string_pretty(&json!({
                    "cut": cut,
                    "blocks_at_risk": report.blocks_at_risk(),
                    "report": report,
                    "on": self.on,
                }))?
            );
        } else {
            print!("{}", told(&report));
            match self.on {
                true => println!("the power is back: what survived is mounted again"),
                false => println!("everything fails now; {next} mounts what survived"),
            }
        }
        Ok(Ending::Held)
    }
}

/// Give a disk its power back
///
/// What survived the cut is mounted again at the same place; on a block device the file system replays its
/// journal. What was open before the cut stays dead.
#[derive(Debug, Args)]
pub struct On {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl On {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        let mut disk = find(&self.folder)?;
        disk.power_on()?;
        match json {
            true => println!("{}", json!({"mountpoint": disk.path(), "device": disk.block_device()})),
            false => println!("{} has power: what survived is mounted again", disk.path().display()),
        }
        Ok(Ending::Held)
    }
}

/// What the disk lost, and what is not counted in that.
fn told(report: &CutReport) -> String {
    let CutReport { lost_blocks, torn_blocks, kept_blocks, lost_names, kept_names, .. } = report;
    let at_risk = report.blocks_at_risk();
    let mut text = format!(
        "on the disk {at_risk} blocks were written and not durable: {lost_blocks} lost, {torn_blocks} torn, \
         {kept_blocks} kept\n"
    );
    if lost_names + kept_names > 0 {
        text += &format!("changes of names: {lost_names} undone, {kept_names} kept\n");
    }
    if report.failed_writes + report.failed_flushes > 0 {
        let CutReport { failed_writes, failed_flushes, .. } = report;
        text += &format!("under way, and failed: {failed_flushes} flushes, {failed_writes} writes\n");
    }
    text + "not counted: what was still in memory, of programs and in the page cache; it never reached this disk\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_told_with_what_was_at_risk_and_what_is_not_counted() {
        let nothing = told(&CutReport::default());
        assert!(nothing.starts_with("on the disk 0 blocks were written and not durable"), "{nothing}");
        assert!(nothing.contains("not counted: what was still in memory"), "{nothing}");
        let report = CutReport {
            lost_blocks: 3,
            torn_blocks: 1,
            kept_blocks: 2,
            lost_names: 5,
            ..CutReport::default()
        };
        let report = told(&CutReport { failed_flushes: 1, ..report });
        for words in ["6 blocks", "3 lost, 1 torn, 2 kept", "5 undone, 0 kept", "1 flushes, 0 writes"] {
            assert!(report.contains(words), "{words}: {report}");
        }
    }
}
