//! `tipover ycsb`: the drop-in for YCSB.

use super::run::command_line;
use super::{BadInput, Ending, follow};
use crate::live::LiveArgument;
use crate::trial::Interrupt;
use crate::ycsb::{Arguments, Mistake, Phase, run};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::io::Write;
use tipover_core::experiment::redact;

/// Run YCSB's workloads from their property files, with YCSB's output
///
/// Reads property files of YCSB and go-ycsb unmodified and prints what YCSB prints, so that scripts around it
/// go on working; docs/ycsb.md lists what is right here and wrong there. TARGET is null, basic, wiredtiger,
/// postgres, mysql, mariadb, mongodb, jdbc with -p db.url=..., or the server's URL. Options are YCSB's: -P
/// FILE, -p NAME=VALUE (beats every file), -threads N, -target OPERATIONS_PER_SECOND, -s (status on standard
/// error), -l LABEL.
#[derive(Debug, Args)]
#[command(
    override_usage = "tipover ycsb [--live] <load|run> <TARGET> [-P FILE]... [-p NAME=VALUE]... [-threads N] \
                            [-target N] [-s] [-l LABEL]"
)]
pub struct YcsbCommand {
    /// Insert the records, or carry out the operations
    #[arg(value_enum)]
    phase: Phase,

    /// What is measured: a binding's name or a server's URL
    target: String,

    /// YCSB's own options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<String>,

    #[command(flatten)]
    live: LiveArgument,
}

impl YcsbCommand {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, interrupt: &Interrupt) -> Result<Ending> {
        self.carry_out(interrupt).map_err(|error| match error.downcast::<Mistake>() {
            Ok(Mistake(text)) => BadInput(text).into(),
            Err(other) => other,
        })
    }

    fn carry_out(&self, interrupt: &Interrupt) -> Result<Ending> {
        eprintln!("Command line: {}", redact(&self.options.join(" ")));
        let arguments = Arguments::parse(&self.options, |path| {
            // Java reads Latin-1; files of today are UTF-8, and those that are not are the old ones.
            let bytes = std::fs::read(path)?;
            if bytes.contains(&0) {
                anyhow::bail!("this is a binary file, and no text with a property in each line");
            }
            Ok(String::from_utf8(bytes)
                .unwrap_or_else(|e| e.into_bytes().iter().map(|b| *b as char).collect()))
        })?;
        let export = arguments.properties.get("exportfile").map(String::from);
        // Found out before anything is measured.
        let mut file = match &export {
            Some(path) => Some(std::fs::File::create(path).map_err(|e| BadInput(format!("{path}: {e}")))?),
            None => None,
        };
        let phase = self.phase.to_possible_value().map_or(String::new(), |value| value.get_name().into());
        let live = follow(self.live, &redact(&format!("ycsb {phase} {}", self.target)), &command_line())?;
        let ended = run(self.phase, &self.target, &arguments, interrupt, live.as_ref())?;
        match (&mut file, &export) {
            (Some(file), Some(path)) => {
                // What was measured is not lost with the place that it was meant for.
                let written = file.write_all(ended.text.as_bytes());
                written.inspect_err(|_| print!("{}", ended.text)).with_context(|| path.clone())?
            }
            _ => {
                print!("{}", ended.text);
                std::io::stdout().flush()?;
            }
        }
        match ended.failed {
            None => Ok(Ending::Held),
            Some(reason) => {
                interrupt.check()?;
                eprintln!("tipover: {}", redact(&reason));
                Ok(Ending::NotHeld)
            }
        }
    }
}
