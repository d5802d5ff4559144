//! `disk watch`: a canary for hours or days.

use super::absolute;
use crate::command::{BadInput, Ending};
use crate::report;
use crate::storage::{self, Location};
use crate::trial::Interrupt;
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::storage::canary::{Look, read_log, summary};
use tipover_core::units::{Bytes, span};

/// Watch a disk for hours or days, for less than a hundredth of its time
///
/// Every now and then a few small direct reads and one write with its flush, appended to a log. Says when the
/// disk's level changed and, after two days, whether the hour of the day matters: a disk can be fast by night
/// only. A page with both stands beside the log. Ends by itself; started again it goes on with the same log,
/// counting from its first look.
#[derive(Debug, Args)]
pub struct DiskWatch {
    /// A folder on the disk, a file, or a block device
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// How long in all, from the first look in the log on
    #[arg(long = "for", default_value = "24 h", value_parser = |t: &str| span::parse(t))]
    total: Duration,

    /// From one look to the next
    #[arg(long, default_value = "1 min", value_parser = |t: &str| span::parse(t))]
    every: Duration,

    /// Where looks are kept, one a line; canary-NAME.jsonl in the results folder unless given
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Size of the data file that a folder gets; at least 64 MiB, so that a device's cache does not hold it
    #[arg(long, default_value = "256 MiB")]
    size: Bytes,

    /// Write nothing, only read
    #[arg(long)]
    read_only: bool,

    /// Only sum up what is in the log
    #[arg(long)]
    show: bool,
}

impl DiskWatch {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        self.carry_out(results, json, interrupt).map_err(super::of_measuring)
    }

    fn carry_out(&self, results: &Path, json: bool, interrupt: &Interrupt) -> Result<Ending> {
        if self.every < Duration::from_millis(100) {
            return Err(BadInput("--every must be at least 100 ms, or the canary is a load".into()).into());
        }
        let location = Location::find(&self.path)?;
        let log = self
            .log
            .clone()
            .unwrap_or_else(|| results.join(format!("canary-{}.jsonl", slug(&location.path))));
        let looks = if self.show {
            let text = std::fs::read_to_string(&log)
                .map_err(|e| BadInput(format!("{}: {e}; nothing was watched yet", log.display())))?;
            read_log(&text).map_err(|e| BadInput(format!("{}: {e}", log.display())))?
        } else {
            self.watch(&location, &log, interrupt)?
        };
        let Some(summary) = summary(&looks) else {
            return Err(BadInput(format!("{}: there is no look in it", log.display())).into());
        };
        if json {
            println!("{}", serde_json::to_string_pretty(&summary)?);
        } else {
            summary.sentences().iter().for_each(|sentence| println!("{sentence}"));
        }
        let page = log.with_extension("html");
        let made_by = report::made_by(&super::provenance());
        let path = location.path.display().to_string();
        std::fs::write(&page, report::html(&report::of_watch(&path, &looks, &summary, made_by)))
            .with_context(|| format!("writing {}", page.display()))?;
        eprintln!("log: {}", absolute(&log).display());
        eprintln!("report: {}", absolute(&page).display());
        let failed = looks.iter().any(|look| look.failed > 0);
        Ok(if failed { Ending::NotHeld } else { Ending::Held })
    }

    fn watch(&self, location: &Location, log: &Path, interrupt: &Interrupt) -> Result<Vec<Look>> {
        if let Some(folder) = log.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        let stop = || interrupt.check().is_err();
        let size = Some(Bytes(self.size.0.max(64 << 20)));
        let (writes, size) = match location.what() {
            "a folder" => (!self.read_only, size),
            // What is in somebody's file or on a device is only read.
            _ => (false, None),
        };
        let size = location.prepare(size, writes, false, &stop, &mut |_| ())?;
        let how = storage::Watch { every: self.every, total: self.total, size, writes };
        let mut said = |look: &Look| {
            let flush =
                look.flush.map_or(String::new(), |f| format!(", write and flush {}", span::rounded(f)));
            eprintln!(
                "read {} (slowest of {}: {}){flush}",
                span::rounded(look.read),
                look.reads,
                span::rounded(look.slowest)
            );
        };
        storage::watch(location, log, how, &stop, &mut said)
    }
}

/// A path as part of a file's name.
fn slug(path: &Path) -> String {
    let text = path.to_string_lossy();
    let letters = text.trim_matches('/').chars().map(|c| if c.is_alphanumeric() { c } else { '-' });
    let slug: String = letters.collect();
    if slug.is_empty() { "root".into() } else { slug }
}
