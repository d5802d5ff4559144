//! `tipover audit`: do results, ours or anyone's, obey the laws they must obey?

use super::run::command_line;
use super::{BadInput, Ending};
use crate::history;
use crate::report::{self, Terminal};
use anyhow::{Context, Result};
use clap::Args;
use std::path::{Path, PathBuf};
use tipover_core::audit::{self, Audit, Mapping, Study};
use tipover_core::check::Verdict;

/// Check results, ours or anyone's, against the laws they must obey
///
/// Reads folders of results, single record.json files, YCSB and go-ycsb text, sysbench, pgbench, iostat -x,
/// fio JSON, HdrHistogram logs, and any JSON or CSV table with a NAME.mapping.toml beside it that says which
/// column is what. Says which cell breaks which law, what would restore it, and what can be concluded
/// nevertheless. Exit codes: 0 nothing broken, 1 findings, 2 nothing that could be read.
#[derive(Debug, Args)]
pub struct AuditCommand {
    /// Files or folders
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Judge stored histories again: what sessions saw, against what was read back
    #[arg(long, conflicts_with = "output")]
    checks: bool,

    /// Write the page as HTML too
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl AuditCommand {
    /// Carries it out.
    pub fn execute(&self, json: bool) -> Result<Ending> {
        if self.checks {
            return judge_again(&self.paths, json);
        }
        let (mut studies, mut refused) = (Vec::new(), Vec::new());
        for path in &self.paths {
            let files = files(path)?;
            let single = !path.is_dir();
            for file in files {
                match study_of(&file, single) {
                    Ok(found) => studies.extend(found),
                    Err(error) => refused.push(format!("{}: {error}", file.display())),
                }
            }
        }
        if studies.is_empty() || (!refused.is_empty() && self.paths.iter().all(|path| !path.is_dir())) {
            let why = if refused.is_empty() { "no results there".into() } else { refused.join("; ") };
            return Err(BadInput(why).into());
        }
        let mut whole = Audit::default();
        for study in &studies {
            whole.merge(audit::audit(study));
        }
        let page = report::of_audit(&studies, &whole, &refused, &command_line());
        if let Some(output) = &self.output {
            std::fs::write(output, report::html(&page))
                .with_context(|| format!("writing {}", output.display()))?;
        }
        if json {
            let answer = serde_json::json!({"audit": whole, "left_out": refused, "page": page});
            println!("{}", serde_json::to_string_pretty(&answer)?);
        } else {
            print!("{}", report::text(&page, Terminal::detect()));
        }
        Ok(if whole.findings.is_empty() { Ending::Held } else { Ending::NotHeld })
    }
}

/// Judges every history below `paths` again.
fn judge_again(paths: &[PathBuf], json: bool) -> Result<Ending> {
    let mut folders = Vec::new();
    for path in paths {
        let histories = files(path)?.into_iter().filter(|file| file.ends_with(history::HISTORY));
        folders.extend(histories.filter_map(|file| file.parent().map(Path::to_path_buf)));
    }
    if folders.is_empty() {
        let why = format!("there is no {} below: only trials that are checked leave one", history::HISTORY);
        return Err(BadInput(why).into());
    }
    let mut judged = Vec::new();
    for folder in folders {
        let (judgement, torn) = history::judge_again(&folder)?;
        if !json {
            println!("{}: {}", folder.display(), judgement.verdict.words());
            if torn > 0 {
                println!("  {torn} bytes at the end of the history are no whole record, and were given up");
            }
            for finding in &judgement.findings {
                println!("  {}: {}", finding.checker, finding.summary);
                finding.evidence.iter().chain(&finding.notes).for_each(|text| println!("    {text}"));
            }
        }
        judged.push((folder, judgement, torn));
    }
    if json {
        let mut all = Vec::new();
        for (folder, judgement, torn) in &judged {
            let judgement = serde_json::to_value(judgement)?;
            all.push(serde_json::json!({"folder": folder, "judgement": judgement, "torn_bytes": torn}));
        }
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    let held = judged.iter().all(|(_, judgement, _)| judgement.verdict == Verdict::Valid);
    Ok(if held { Ending::Held } else { Ending::NotHeld })
}

/// The file itself, or all files below a folder, in the order of their names.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        if !path.exists() {
            return Err(BadInput(format!("{}: no such file or folder", path.display())).into());
        }
        return Ok(vec![path.to_path_buf()]);
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .with_context(|| format!("reading {}", path.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    entries.sort();
    let mut found = Vec::new();
    for entry in entries {
        // A link could lead round in a circle.
        if entry.is_dir() && !entry.is_symlink() {
            found.extend(files(&entry)?);
        } else if entry.is_file() {
            found.push(entry);
        }
    }
    Ok(found)
}

/// The study in a file; `None` for a file in a folder that is no result. A mapping beside it is used.
pub fn study_of(path: &Path, named: bool) -> Result<Option<Study>, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.ends_with(".mapping.toml") && !named {
        return Ok(None);
    }
    let Ok(text) = std::fs::read_to_string(path) else {
        return if named { Err("cannot be read as text".into()) } else { Ok(None) };
    };
    let beside = path.with_extension("mapping.toml");
    if let Ok(mapping) = std::fs::read_to_string(&beside)
        && beside != path
    {
        let mapping = Mapping::parse(&mapping).map_err(|error| format!("{}: {error}", beside.display()))?;
        if mapping.file == name {
            return audit::read(&name, &text, Some(&mapping)).map(Some);
        }
    }
    if !named && audit::detect(&text).is_none() {
        // A table that nobody described is said to be left out; plans, pages and series are no tables.
        let table = matches!(path.extension().and_then(|e| e.to_str()), Some("json" | "csv"));
        return if table { Err("a table without a NAME.mapping.toml beside it".into()) } else { Ok(None) };
    }
    audit::read(&path.display().to_string(), &text, None).map(Some)
}
