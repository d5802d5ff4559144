//! Tipover: one laboratory for a database and its disk.

mod agent;
mod checking;
mod clock;
mod command;
mod drive;
mod history;
mod machine;
mod probe;
mod report;
mod runner;
mod store;
mod study;
mod trial;
mod ycsb;

use clap::{Parser, Subcommand};
use command::{BadInput, Ending};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use trial::{Interrupt, Interrupted};

/// Starts an agent; hidden, because only the laboratory talks to it.
const AGENT_VERB: &str = "agent-child";
/// Starts a shaped disk's daemon; hidden likewise.
const DISK_DAEMON_VERB: &str = "disk-daemon";
/// Starts a shaped network's daemon; hidden likewise.
const NETWORK_DAEMON_VERB: &str = "network-daemon";
/// Holds a laboratory that `tipover lab up` started; hidden likewise.
const LAB_KEEPER_VERB: &str = "lab-keeper";

/// Measure how a database depends on its working set, caches and disk
///
/// Exit codes: 0 everything held, 1 something did not hold or a trial failed, 2 the input cannot be used, 130
/// interrupted.
#[derive(Debug, Parser)]
#[command(name = "tipover", version, max_term_width = 110)]
struct Cli {
    /// Folder for results
    #[arg(long, global = true, default_value = "results", value_name = "DIR")]
    results: PathBuf,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Doctor(command::doctor::Doctor),
    Run(command::run::Run),
    Find(command::find::Find),
    /// List experiments and results
    ///
    /// The experiments that come with tipover, each with its scales and the question that it answers, and
    /// what there is in the results folder.
    List,
    Show(command::report::Show),
    Report(command::report::Report),
    Audit(command::audit::AuditCommand),
    Compare(command::compare::Compare),
    Disk(command::disk::DiskCommand),
    Lab(command::lab::Lab),
    Explain(command::explain::Explain),
    SelfTest(command::self_test::SelfTest),
    Ycsb(command::ycsb::YcsbCommand),
    /// Write a report with invented numbers, to look at
    #[command(hide = true)]
    SampleReport {
        /// Where to write it
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    // Before anything else: the daemon must be single-threaded when it starts and must not parse or print.
    match std::env::args_os().nth(1) {
        Some(verb) if verb == DISK_DAEMON_VERB => return tipover_disk::serve(),
        Some(verb) if verb == NETWORK_DAEMON_VERB => return tipover_lab::network::serve(),
        Some(verb) if verb == LAB_KEEPER_VERB => {
            return ended(command::lab::keep().map(|()| Ending::Held));
        }
        Some(verb) if verb == AGENT_VERB => return ended(agent::serve().map(|()| Ending::Held)),
        _ => {}
    }
    let cli = Cli::parse();
    ended(listen_to_signals().and_then(|interrupt| execute(&cli, &interrupt)))
}

fn execute(cli: &Cli, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    match &cli.verb {
        Verb::Doctor(doctor) => doctor.execute(&cli.results, cli.json),
        Verb::Run(run) => run.execute(&cli.results, cli.json, interrupt),
        Verb::Find(find) => find.execute(&cli.results, cli.json, interrupt),
        Verb::List => command::list::execute(&cli.results, cli.json),
        Verb::Show(show) => show.execute(&cli.results, cli.json),
        Verb::Report(report) => report.execute(&cli.results, cli.json),
        Verb::Audit(audit) => audit.execute(cli.json),
        Verb::Compare(compare) => compare.execute(cli.json),
        Verb::Disk(disk) => disk.execute(cli.json),
        Verb::Lab(lab) => lab.execute(cli.json),
        Verb::Explain(explain) => explain.execute(cli.json),
        Verb::SelfTest(self_test) => self_test.execute(cli.json),
        Verb::Ycsb(ycsb) => ycsb.execute(interrupt),
        Verb::SampleReport { output } => {
            std::fs::write(output, report::html(&report::sample()))?;
            Ok(Ending::Held)
        }
    }
}

/// The first signal asks everything to stop in good order; the second one ends the program at once, and what
/// it mounted is unmounted by the disk's daemon.
fn listen_to_signals() -> anyhow::Result<Interrupt> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(Interrupt(flag))
}

fn ended(result: anyhow::Result<Ending>) -> ExitCode {
    match result {
        Ok(Ending::Held) => ExitCode::SUCCESS,
        Ok(Ending::NotHeld) => ExitCode::from(1),
        Err(error) => {
            let code = if error.is::<BadInput>() {
                2
            } else if error.is::<Interrupted>() {
                130
            } else {
                1
            };
            eprintln!("tipover: {error:#}");
            ExitCode::from(code)
        }
    }
}
