//! `tipover pgbench`: the drop-in for pgbench.

use super::Ending;
use crate::pgbench::{self, Ended};
use crate::trial::Interrupt;
use anyhow::Result;
use clap::Args;

/// Run pgbench's scripts and benchmarks, with pgbench's options and output
///
/// Reads pgbench's scripts unmodified and prints what pgbench prints, so that scripts around it go on
/// working; docs/pgbench.md lists what is right here and wrong there. The target is a server's URL
/// (postgres://user@host/database), or as with pgbench a database's name with -h, -p, -U and the variables
/// PGHOST, PGPORT, PGUSER, PGDATABASE. Options are pgbench's: -i and its -I, -s, -F, --partitions,
/// --foreign-keys, --unlogged-tables; -c, -j, -t, -T, -M, -C, -D, -f, -b, -S, -N, -n, -v, -P, -R, -L, -l and
/// the others of version 18; besides --percentiles and --live. Exit codes are pgbench's too: 1 for input that
/// cannot be used, 2 when a client was aborted.
#[derive(Debug, Args)]
#[command(override_usage = "tipover pgbench [OPTIONS] [postgres://... | DATABASE]", disable_help_flag = true)]
pub struct PgbenchCommand {
    /// Print this help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,

    /// pgbench's own options, and the server
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

impl PgbenchCommand {
    /// Carries the verb out; says how it ended.
    pub fn execute(&self, interrupt: &Interrupt) -> Result<Ending> {
        Ok(match pgbench::run(&self.options, interrupt)? {
            Ended::Well => Ending::Held,
            Ended::Aborted => {
                eprintln!("tipover: Run was aborted; the above results are incomplete.");
                Ending::Aborted
            }
        })
    }
}
