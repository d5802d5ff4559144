//! `tipover export`: results as tables for DuckDB, pandas, R and spreadsheets.

use super::report::unless_damaged;
use super::{BadInput, Ending, audit, located};
use crate::export::{self, Source, Table};
use crate::store::replace_file;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::{Path, PathBuf};
use tipover_core::nearest::unknown;
use tipover_core::record;

/// Write results as tables for DuckDB, pandas, R or a spreadsheet
///
/// Makes tidy tables of all trials: trials, intervals, percentiles, statements, faults and findings, with
/// units in the columns' names. A folder gets all of them and dictionary.csv, which says what every column
/// means; a file gets one (--table). `SELECT * FROM 'folder/trials.parquet'` is all that DuckDB needs.
#[derive(Debug, Args)]
pub struct Export {
    /// The results: a name that `tipover list` shows, or a folder
    #[arg(value_name = "RESULTS")]
    from: PathBuf,

    /// Where to: a file that ends with .parquet or .csv, or a folder
    #[arg(long, short, value_name = "PATH")]
    output: PathBuf,

    /// The form of the files in a folder
    #[arg(long, value_enum, default_value_t = Form::Parquet)]
    form: Form,

    /// Which table goes into a file: trials, intervals, percentiles, statements, faults or findings
    #[arg(long, default_value = "trials")]
    table: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Parquet,
    Csv,
}

impl Form {
    fn ending(self) -> &'static str {
        match self {
            Form::Parquet => "parquet",
            Form::Csv => "csv",
        }
    }
}

impl Export {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, results: &Path, json: bool) -> Result<Ending> {
        let form = match self.output.extension().and_then(|ending| ending.to_str()) {
            Some("parquet") => Some(Form::Parquet),
            Some("csv") => Some(Form::Csv),
            Some(other) if !self.output.is_dir() => {
                let path = self.output.display();
                let words = format!("{path}: .{other} is neither .parquet nor .csv; a folder has no ending");
                return Err(BadInput(words).into());
            }
            _ => None,
        };
        let tables = export::tables(&sources(&located(&self.from, results)?)?)?;
        let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
        if !names.contains(&self.table.as_str()) {
            return Err(BadInput(format!("--table: {}", unknown("table", &self.table, &names))).into());
        }
        let mut written = Vec::new();
        match form {
            Some(form) => {
                let table = tables.iter().find(|table| table.name == self.table);
                write(table.context("the name was looked up")?, form, &self.output)?;
                written.extend(table.map(|table| (self.output.clone(), table.rows.len())));
            }
            None => {
                let failed = |error| BadInput(format!("{}: {error}", self.output.display()));
                std::fs::create_dir_all(&self.output).map_err(failed)?;
                for table in &tables {
                    let path = self.output.join(table.name).with_extension(self.form.ending());
                    write(table, self.form, &path)?;
                    written.push((path, table.rows.len()));
                }
                let text = export::dictionary(&tables);
                let path = self.output.join("dictionary.csv");
                replace_file(&path, |file| Ok(file.write_all(text.as_bytes())?))?;
            }
        }
        if json {
            let files = written.iter().map(|(path, rows)| serde_json::json!({"file": path, "rows": rows}));
            println!("{}", serde_json::to_string_pretty(&files.collect::<Vec<_>>())?);
        } else {
            for (path, rows) in &written {
                println!("{}  {rows} {}", path.display(), if *rows == 1 { "row" } else { "rows" });
            }
        }
        Ok(Ending::Held)
    }
}

fn write(table: &Table, form: Form, path: &Path) -> Result<()> {
    replace_file(path, |file| match form {
        Form::Parquet => export::parquet(table, file),
        Form::Csv => Ok(file.write_all(export::csv(table).as_bytes())?),
    })
    .with_context(|| format!("writing {}", path.display()))
}

/// Every trial below `folder`. What is damaged is said and left out.
///
/// # Errors
/// There is none.
fn sources(folder: &Path) -> Result<Vec<Source>> {
    let (mut sources, mut damaged) = (Vec::new(), Vec::new());
    let records = audit::files(folder)?.into_iter().filter(|file| file.ends_with("record.json"));
    for path in records {
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        match record::read(&text) {
            Ok(record) => {
                let series = path.with_file_name("series.jsonl");
                // A trial under faults, and one that failed, has none.
                let intervals = if series.exists() { crate::store::intervals(&series) } else { Ok(vec![]) };
                let intervals = unless_damaged(intervals, &mut damaged).unwrap_or_default();
                sources.push(Source { record, intervals });
            }
            Err(error) => damaged.push(format!("{}: {error}", path.display())),
        }
    }
    damaged.iter().for_each(|sentence| eprintln!("{sentence}"));
    if sources.is_empty() {
        return Err(BadInput(format!("{}: there is no trial in it", folder.display())).into());
    }
    Ok(sources)
}
