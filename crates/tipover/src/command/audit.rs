//! `tipover audit`: do results, ours or anyone's, obey the laws they must obey?

use super::report::STUDY;
use super::run::command_line;
use super::{BadInput, Ending, located};
use crate::history::{self, JudgedAgain};
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
/// nevertheless. A damaged file is a finding. Exit codes: 0 nothing broken, 1 findings, 2 nothing that could
/// be read.
#[derive(Debug, Args)]
pub struct AuditCommand {
    /// Files, folders, or names of results that `tipover list` shows
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
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let paths = self.paths.iter().map(|path| located(path, results)).collect::<Result<Vec<_>>>()?;
        if self.checks {
            return judge_again(&paths, json);
        }
        let (mut studies, mut refused) = (Vec::new(), Vec::new());
        for path in &paths {
            let files = files(path)?;
            let single = !path.is_dir();
            for file in files {
                match study_of(&file, single) {
                    Ok(found) => studies.extend(found),
                    Err(error) => refused.push(format!("{}: {error}", file.display())),
                }
            }
        }
        let unreadable = |study: &Study| {
            !study.damaged.is_empty() && study.tables.iter().all(|table| table.rows.is_empty())
        };
        if paths.iter().all(|path| !path.is_dir()) {
            let damaged = studies.iter().filter(|study| unreadable(study));
            refused.extend(damaged.map(|study| format!("{}: {}", study.name, study.damaged.join("; "))));
        }
        if studies.is_empty() || (!refused.is_empty() && paths.iter().all(|path| !path.is_dir())) {
            let why = if refused.is_empty() { "no results there".into() } else { refused.join("; ") };
            return Err(BadInput(why).into());
        }
        let mut whole = Audit::default();
        for study in &studies {
            whole.merge(audit::audit(study));
        }
        if whole.checks() == 0 {
            let left_out = studies.iter().flat_map(|study| &study.left_out).chain(&refused).take(5);
            let why = left_out.map(String::as_str).collect::<Vec<_>>().join("; ");
            return Err(BadInput(format!("nothing there can be checked: {why}")).into());
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
        let again = history::judge_again(&folder)?;
        if !json {
            tell(&folder, &again);
        }
        judged.push((folder, again));
    }
    if json {
        let mut all = Vec::new();
        for (folder, JudgedAgain { judgement, recorded, torn }) in &judged {
            all.push(serde_json::json!({
                "folder": folder,
                "judgement": serde_json::to_value(judgement)?,
                "recorded": recorded,
                "torn_bytes": torn,
            }));
        }
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    let holds = |again: &JudgedAgain| {
        let verdict = again.judgement.verdict;
        verdict == Verdict::Valid && again.recorded.is_none_or(|recorded| recorded == verdict)
    };
    let held = judged.iter().all(|(_, again)| holds(again));
    Ok(if held { Ending::Held } else { Ending::NotHeld })
}

fn tell(folder: &Path, again: &JudgedAgain) {
    let JudgedAgain { judgement, recorded, torn } = again;
    println!("{}: {}", folder.display(), judgement.verdict.words());
    if let Some(recorded) = recorded.filter(|recorded| *recorded != judgement.verdict) {
        println!(
            "  its record says: {}; another version of this program judged it, or a file was changed",
            recorded.words()
        );
    }
    if *torn > 0 {
        println!("  {torn} bytes at the end of the history are no whole record, and were given up");
    }
    for finding in &judgement.findings {
        println!("  {}: {}", finding.checker, finding.summary);
        finding.evidence.iter().chain(&finding.notes).for_each(|text| println!("    {text}"));
    }
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

/// Endings of what is text, and damaged if it is not.
const TEXTS: [&str; 7] = ["json", "csv", "hlog", "hdr", "txt", "log", "out"];

/// The study in a file; `None` for a file in a folder that is no result. A mapping beside it is used. What
/// should be a result and cannot be read is a study with its damage.
///
/// # Errors
/// A table that nobody described, or a mapping that does not fit.
pub fn study_of(path: &Path, named: bool) -> Result<Option<Study>, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // What we made of records ourselves is no result beside them.
    if (name.ends_with(".mapping.toml") || name == STUDY) && !named {
        return Ok(None);
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let shown = path.display().to_string();
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => return Ok(Some(Study::damaged(&shown, format!("cannot be read: {error}")))),
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // A log is read line by line, and says itself which of them are damaged.
        Err(error) if matches!(ending, "hlog" | "hdr") => {
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }
        Err(error) if named || TEXTS.contains(&ending) => {
            let at = error.utf8_error().valid_up_to();
            return Ok(Some(Study::damaged(&shown, format!("byte {at} is no text"))));
        }
        Err(_) => return Ok(None),
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
    if ending == "json"
        && !text.contains("\"fio version\"")
        && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&text)
    {
        return Ok(Some(Study::damaged(&shown, format!("damaged JSON: {error}"))));
    }
    let format = audit::detect(&text);
    if !named && format.is_none() && !matches!(ending, "hlog" | "hdr") && name != "record.json" {
        // A table that nobody described is said to be left out; plans, pages and series are no tables.
        let table = matches!(ending, "json" | "csv");
        return if table { Err("a table without a NAME.mapping.toml beside it".into()) } else { Ok(None) };
    }
    match audit::read(&shown, &text, None) {
        // A record of another version is whole, and a text without figures no result.
        Err(error) if name == "record.json" && !error.starts_with("a record of format") => {
            Ok(Some(Study::damaged(&shown, error)))
        }
        Err(error) if error.starts_with("damaged") => Ok(Some(Study::damaged(&shown, error))),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(name: &str, bytes: &[u8], named: bool) -> Result<Option<Study>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        study_of(&path, named)
    }

    /// Damage, its honest twin, and nothing at all.
    #[test]
    fn damaged_files_are_damaged_and_strange_ones_are_strange() {
        let damage = |name: &str, bytes: &[u8]| match study(name, bytes, false) {
            Ok(Some(study)) => study.damaged.join("; "),
            other => panic!("{name}: {other:?}"),
        };
        assert!(
            damage("record.json", b"{\"format\": 2, \"experiment\": \"a\", \"verd")
                .starts_with("damaged JSON")
        );
        assert!(damage("record.json", b"").starts_with("damaged JSON"), "nothing at all is no JSON either");
        assert!(
            damage("fio.json", b"{\"fio version\": \"fio-3.33\", \"jobs\": [").starts_with("damaged JSON")
        );
        assert!(damage("ycsb.txt", b"[OVERALL], Throughput(ops/sec), \xff\xfe").starts_with("byte 32"));
        assert!(
            damage("latency.hlog", b"#[Histogram log format version 1.3]\nTag=A,0.0,1.0,2.0,HISTFAAA\n")
                .contains("line 2")
        );
        assert!(damage("record.json", b"{}").starts_with("of no known format"));
        let older = b"{\"format\": 1, \"experiment\": \"a\", \"verdict\": {}}";
        assert!(study("record.json", older, false).unwrap_err().starts_with("a record of format 1"));
        let empty = study("latency.hlog", b"#[Histogram log format version 1.3]\n", false).unwrap().unwrap();
        assert!(empty.damaged.is_empty() && empty.left_out == ["holds no histograms"], "{empty:?}");
        assert!(damage("latency.hlog", b"\x80\x81").contains("line 1: bytes that are no text"));
        let sound = b"{\"rows\": [1, 2]}";
        assert_eq!(
            study("table.json", sound, false).unwrap_err(),
            "a table without a NAME.mapping.toml beside it"
        );
        assert_eq!(study("accesses.trace", b"\xff\xfe", false), Ok(None));
        assert_eq!(study("plan.toml", b"a = 1", false), Ok(None));
        assert_eq!(study("report.html", b"", false), Ok(None));
        assert_eq!(study(STUDY, b"{}", false), Ok(None));
    }
}
