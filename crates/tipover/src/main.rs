//! Tipover: one laboratory for a database and its disk.

mod checking;
mod clock;
mod command;
mod drive;
mod endpoints;
mod engine_server;
mod export;
mod fleet;
mod foresight;
mod generator;
mod history;
mod interrupt;
mod live;
mod machine;
mod pgbench;
mod probe;
mod processors;
mod report;
mod runner;
mod running_server;
mod storage;
mod store;
mod study;
mod trial;
mod ycsb;

use clap::{CommandFactory, Parser, Subcommand};
use command::{BadInput, Ending};
use interrupt::{Interrupt, Interrupted};
use std::any::Any;
use std::io::Write;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::ExitCode;

/// Starts a load generator; hidden, because only the laboratory talks to it.
const GENERATOR_VERB: &str = "load-generator";
/// Starts a shaped disk's daemon; hidden likewise.
const DISK_DAEMON_VERB: &str = "disk-daemon";
/// Starts a shaped network's daemon; hidden likewise.
const NETWORK_DAEMON_VERB: &str = "network-daemon";
/// Serves an embedded engine to sessions elsewhere; hidden likewise.
const CHECK_SERVER_VERB: &str = "check-server";
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
    Plan(command::planning::Plan),
    /// List experiments and results
    ///
    /// The experiments that come with tipover, each with its scales and the question that it answers, and
    /// what there is in the results folder.
    List,
    Show(command::report::Show),
    Report(command::report::Report),
    Audit(command::audit::AuditCommand),
    Compare(command::compare::Compare),
    Export(command::export::Export),
    Break(Box<command::breaking::Break>),
    Disk(command::disk::DiskCommand),
    Lab(command::lab::Lab),
    Agent(command::agent::AgentCommand),
    Fleet(command::fleet::Fleet),
    Tour(command::tour::Tour),
    Explain(command::explain::Explain),
    SelfTest(command::self_test::SelfTest),
    Learn(command::learn::Learn),
    Ycsb(command::ycsb::YcsbCommand),
    Pgbench(command::pgbench::PgbenchCommand),
    /// Write manual pages and completions of shells, for packages
    #[command(hide = true)]
    PackageFiles {
        /// Where to write them
        folder: PathBuf,
    },
    /// Write a page that was measured nowhere, to look at
    #[command(hide = true)]
    SampleReport {
        /// Where to write it
        output: PathBuf,
        /// How many cells it has at least, simulated
        #[arg(long, default_value_t = 12)]
        cells: usize,
        /// The file of a page as JSON to write instead
        #[arg(long)]
        page: Option<PathBuf>,
    },
}

impl Verb {
    /// Whether it holds something from its beginning that must be put away. Those that run trials measure
    /// first what is missing, and hold something only then.
    fn holds(&self) -> bool {
        matches!(
            self,
            Verb::Disk(_)
                | Verb::Lab(_)
                | Verb::Agent(_)
                | Verb::Fleet(_)
                | Verb::SelfTest(_)
                | Verb::Ycsb(_)
        )
    }
}

fn main() -> ExitCode {
    // Before anything else: the daemon must be single-threaded when it starts and must not parse or print.
    match std::env::args_os().nth(1) {
        Some(verb) if verb == DISK_DAEMON_VERB => return tipover_disk::serve(),
        Some(verb) if verb == NETWORK_DAEMON_VERB => return tipover_lab::network::serve(),
        Some(verb) if verb == LAB_KEEPER_VERB => {
            return ended(command::lab::keep().map(|()| Ending::Held));
        }
        Some(verb) if verb == CHECK_SERVER_VERB => {
            return ended(engine_server::serve().map(|()| Ending::Held));
        }
        Some(verb) if verb == GENERATOR_VERB => return ended(generator::serve().map(|()| Ending::Held)),
        _ => {}
    }
    tell_what_cannot_be_printed(|| match parsed() {
        Ok(cli) => ended(Interrupt::listen().and_then(|interrupt| {
            let _holding = cli.verb.holds().then(|| interrupt.hold());
            // What a hurried end made go wrong is no news.
            execute(&cli, &interrupt).or_else(|error| interrupt.check().and(Err(error)))
        })),
        Err(code) => code,
    })
}

/// Why the answer could not be printed, if that is what a panic was about.
fn unprinted(payload: &dyn Any) -> Option<&str> {
    let text = payload.downcast_ref::<String>()?;
    let streams = ["stdout", "stderr"].map(|stream| format!("failed printing to {stream}: "));
    streams.iter().find_map(|prefix| text.strip_prefix(prefix))
}

/// Printing panics where it cannot, which puts everything away in good order. A reader that has seen enough,
/// as `head` has, closes the pipe: nothing to tell about, and the exit code is what a shell gives to a closed
/// pipe. Everything else, such as a full disk, is a sentence.
fn tell_what_cannot_be_printed(work: impl FnOnce() -> ExitCode) -> ExitCode {
    const CLOSED_PIPE: u8 = 128 + 13;
    let tell = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        if unprinted(panicked.payload()).is_none() {
            tell(panicked);
        }
    }));
    let ended = panic::catch_unwind(AssertUnwindSafe(work)).or_else(|payload| {
        match unprinted(payload.as_ref()).map(str::to_string) {
            Some(reason) => Err(reason),
            None => panic::resume_unwind(payload),
        }
    });
    // What stands in the buffer still has to find its way out.
    let flushed = std::io::stdout().flush().map_err(|error| error.to_string());
    match ended.and_then(|code| flushed.map(|()| code)) {
        Ok(code) => code,
        Err(reason) if reason.contains("Broken pipe") => ExitCode::from(CLOSED_PIPE),
        Err(reason) => {
            // Standard error may be what cannot be written.
            let _ = writeln!(std::io::stderr(), "tipover: the answer cannot be printed: {reason}");
            ExitCode::from(1)
        }
    }
}

/// What the command line says; or, as an exit code, that help or a mistake in it was all there was to say.
fn parsed() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|said| match said.print() {
        Ok(()) => ExitCode::from(said.exit_code() as u8),
        // As the other words that cannot be printed.
        Err(error) => panic!("failed printing to stdout: {error}"),
    })
}

/// A command of the tour, with the flags that hold for all of them.
fn on_tour(words: &[String], given: &Cli) -> Result<Cli, clap::Error> {
    let own = std::iter::once("tipover").chain(words.iter().map(String::as_str));
    Ok(Cli { results: given.results.clone(), json: given.json, ..Cli::try_parse_from(own)? })
}

fn execute(cli: &Cli, interrupt: &Interrupt) -> anyhow::Result<Ending> {
    match &cli.verb {
        Verb::Doctor(doctor) => doctor.execute(&cli.results, cli.json),
        Verb::Run(run) => run.execute(&cli.results, cli.json, interrupt),
        Verb::Find(find) => find.execute(&cli.results, cli.json, interrupt),
        Verb::Plan(plan) => plan.execute(&cli.results, cli.json, interrupt),
        Verb::List => command::list::execute(&cli.results, cli.json),
        Verb::Show(show) => show.execute(&cli.results, cli.json),
        Verb::Report(report) => report.execute(&cli.results, cli.json),
        Verb::Audit(audit) => audit.execute(&cli.results, cli.json),
        Verb::Compare(compare) => compare.execute(&cli.results, cli.json),
        Verb::Export(export) => export.execute(&cli.results, cli.json),
        Verb::Break(breaking) => breaking.execute(&cli.results, cli.json, interrupt),
        Verb::Disk(disk) => disk.execute(&cli.results, cli.json, interrupt),
        Verb::Lab(lab) => lab.execute(cli.json, interrupt),
        Verb::Agent(agent) => agent.execute(interrupt),
        Verb::Fleet(fleet) => fleet.execute(cli.json, interrupt),
        Verb::Tour(tour) => tour.execute(cli.json, |words| {
            let cli = on_tour(words, cli)?;
            let _holding = cli.verb.holds().then(|| interrupt.hold());
            execute(&cli, interrupt)
        }),
        Verb::Explain(explain) => explain.execute(cli.json),
        Verb::SelfTest(self_test) => self_test.execute(cli.json),
        Verb::Learn(learn) => learn.execute(cli.json, interrupt),
        Verb::Ycsb(ycsb) => ycsb.execute(interrupt),
        Verb::Pgbench(pgbench) => pgbench.execute(interrupt),
        Verb::PackageFiles { folder } => {
            command::package_files::write(Cli::command(), folder)?;
            Ok(Ending::Held)
        }
        Verb::SampleReport { output, cells, page } => {
            let page = match page {
                Some(page) => serde_json::from_str(&std::fs::read_to_string(page)?)?,
                None => report::sample_of_cells(*cells)?,
            };
            std::fs::write(output, report::html(&page))?;
            Ok(Ending::Held)
        }
    }
}

/// An error with its causes, each said once: many causes stand in the words of what they caused already.
fn in_words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if words.is_empty() {
            words = cause;
        } else if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

fn ended(result: anyhow::Result<Ending>) -> ExitCode {
    match result {
        Ok(Ending::Held) => ExitCode::SUCCESS,
        Ok(Ending::NotHeld) => ExitCode::from(1),
        Ok(Ending::Aborted) => ExitCode::from(2),
        Err(error) => {
            let code = if error.is::<BadInput>() {
                2
            } else if error.is::<Interrupted>() {
                130
            } else {
                1
            };
            let _ = writeln!(std::io::stderr(), "tipover: {}", in_words(&error));
            ExitCode::from(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a line as a shell reads it, up to a comment; here only single quotes quote.
    fn words(line: &str) -> Vec<String> {
        let line = line.split(" #").next().unwrap_or(line);
        let (mut words, mut is_quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                letter => words.last_mut().expect("there is always one").push(letter),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn every_command_of_the_readme_is_one_of_ours() {
        let readme = include_str!("../../../README.md");
        let code = readme.split("```").skip(1).step_by(2).flat_map(str::lines);
        let commands: Vec<&str> = code.filter(|line| line.starts_with("tipover ")).collect();
        assert!(commands.len() > 5, "{commands:?}");
        for command in commands {
            let cli =
                Cli::try_parse_from(words(command)).unwrap_or_else(|error| panic!("{command}: {error}"));
            assert!(!cli.json);
        }
        // The first page is two screens.
        assert!(readme.lines().count() <= 90, "{} lines", readme.lines().count());
    }

    #[test]
    fn every_command_of_the_tour_is_one_of_ours() {
        let given = Cli::parse_from(["tipover", "--results", "there", "tour"]);
        let all = command::tour::questions();
        assert_eq!(all.len(), 10);
        for (place, question) in all.iter().enumerate() {
            let cli = on_tour(&question.command, &given).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(cli.results, PathBuf::from("there"));
            assert!(question.after.is_none_or(|after| (1..=place).contains(&after)), "{}", question.question);
        }
    }
}
