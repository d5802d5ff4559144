//! The work around the product, in the product's language: `make <verb>` is `cargo xtask <verb>`.

mod bench;
mod docs;
mod fuzz;
mod lint;
mod package;
mod process;
mod setup;
mod test;
mod tidy;
mod watch;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

use process::{Step, cargo};
use workspace::Workspace;

const HELP: &str = "\
Tipover: a laboratory for databases and disks

  make setup   fetch the third-party sources; install the system packages that are missing (as root, with apt)
               ARGS=--tests: also what only the tests need · ARGS=--servers: also FerretDB, compiled with Go
               ARGS=--polodb: also PoloDB, compiled with RocksDB for a quarter of an hour
               ARGS=--sources: no system packages
  make build   setup's sources, then the release binary
  make demo    setup, build, and run the working-set study    e.g. make demo ARGS=\"--scale tiny\"
  make test    setup --tests, format, clippy, tidy, every bench in miniature, every test; what CI runs
  make bench   every bench in full, one after another, and whether each threshold is met
               one alone: make bench ARGS=generator
  make fuzz    hunts for inputs that break a reader of foreign bytes, ten minutes each
               ARGS=\"TARGET --seconds N\": one, for so long · ARGS=--keep: what it found goes into the corpus
  make lint    format, clippy, tidy, and cargo deny when it is installed
  make tidy    only the house rules: directions, purity, sizes, words, links, licences
               ARGS=--wrap: first break comments that are too wide
  make docs    the guide as a site, in target/guide/site; compiles mdBook once, with the network
  make package build, then a .deb and a tarball in target/package    ARGS=--check: used in a clean root made by debootstrap
               ARGS=--as-built: of the release binary that is there · ARGS=\"--sign KEY\": with signatures by an SSH key
  make clean   remove build output; results stay               ARGS=--all: also the fetched sources
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (verb, rest) = match arguments.split_first() {
        Some((verb, rest)) => (verb.as_str(), rest),
        None => ("help", &[][..]),
    };
    match perform(verb, rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {verb}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(verb: &str, rest: &[String]) -> Result<()> {
    match verb {
        "help" | "-h" | "--help" => print!("{HELP}"),
        "setup" => setup::set_up(&Workspace::locate()?, setup::Purpose::from_flags(rest)?)?,
        "build" => build(&Workspace::locate()?, setup::Purpose::Sources)?,
        "demo" => demo(&Workspace::locate()?, rest)?,
        "test" => test::test(&Workspace::locate()?, rest)?,
        "bench" => bench::bench(&Workspace::locate()?, rest)?,
        "fuzz" => fuzz::fuzz(&Workspace::locate()?, rest)?,
        "lint" => lint::lint(&Workspace::locate()?)?,
        "tidy" if rest.iter().any(|flag| flag == "--wrap") => {
            tidy::wrap(&Workspace::locate()?)?;
            tidy::tidy(&Workspace::locate()?)?;
        }
        "tidy" => tidy::tidy(&Workspace::locate()?)?,
        "package" => package::package(&Workspace::locate()?, rest)?,
        "docs" => docs::docs(&Workspace::locate()?, rest)?,
        "clean" => clean(&Workspace::locate()?, rest)?,
        other => bail!("there is no verb `{other}`; `make help` lists them"),
    }
    Ok(())
}

fn build(workspace: &Workspace, purpose: setup::Purpose) -> Result<()> {
    setup::set_up(workspace, purpose)?;
    let step = Step::begin("build tipover");
    cargo(workspace, &["build", "--release", "-p", "tipover"])?;
    step.done();
    Ok(())
}

fn demo(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    build(workspace, setup::Purpose::Demo)?;
    let step = Step::begin("run the working-set study");
    let binary = workspace.target_folder()?.join("release/tipover");
    let mut command = workspace.command(&binary);
    command.args(["run", "working-set"]).args(arguments);
    process::run(command)?;
    step.done();
    Ok(())
}

fn clean(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if let Some(unknown) = arguments.iter().find(|argument| *argument != "--all") {
        bail!("clean knows --all, not `{unknown}`");
    }
    cargo(workspace, &["clean"])?;
    let sources = workspace.root.join("third_party");
    if !arguments.is_empty() && sources.exists() {
        std::fs::remove_dir_all(&sources)?;
        println!("removed {}", sources.display());
    }
    println!("results/ stays: measurements are never cleaned away");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_knows_every_verb_and_every_one_that_the_readme_types() {
        let makefile = include_str!("../../Makefile");
        let verbs = makefile.lines().find_map(|line| line.strip_prefix("VERBS := ")).unwrap();
        let verbs: Vec<&str> = verbs.split_whitespace().collect();
        let helped = |verb: &str| HELP.lines().any(|line| line.starts_with(&format!("  make {verb} ")));
        assert!(verbs.iter().all(|verb| *verb == "help" || helped(verb)), "{verbs:?}");
        let typed = include_str!("../../README.md").lines().filter_map(|line| line.strip_prefix("make "));
        let typed: Vec<&str> = typed.filter_map(|line| line.split_whitespace().next()).collect();
        assert!(typed.len() > 3 && typed.iter().all(|verb| verbs.contains(verb)), "{typed:?}");
    }
}
