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

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

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
               says where and when its first picture is; where no release is built yet it optimises less
  make test    setup --tests, format, clippy, tidy, every bench in miniature, every test; what CI runs
  make bench   every bench in full, one after another, and whether each threshold is met
               one alone: make bench ARGS=generator
  make fuzz    hunts for inputs that break a reader of foreign bytes, ten minutes each
               ARGS=\"TARGET --seconds N\": one, for so long · ARGS=--keep: what it found goes into the corpus
  make lint    format, clippy, tidy, and cargo deny when it is installed
  make tidy    only the house rules: directions, purity, sizes, words, links, licences
               ARGS=--wrap: first break comments that are too wide
  make docs    the guide as a site, in target/guide/site; compiles mdBook once, with the network
               ARGS=--pictures: takes the pictures of the ten questions into docs/images, with the release binary and chromium
  make package build, then a .deb and a tarball in target/package    ARGS=--check: used in a clean root made by debootstrap
               ARGS=--as-built: of the release binary that is there · ARGS=\"--sign KEY\": with signatures by an SSH key
               ARGS=--arm64: for that processor too, after `rustup target add aarch64-unknown-linux-gnu`
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

/// Builds what the demo needs, runs it, and says when and where its first picture is.
fn demo(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let began = Instant::now();
    setup::set_up(workspace, setup::Purpose::Demo)?;
    let target = workspace.target_folder()?;
    // Who has compiled the release goes on with that; a fresh machine sees its first picture sooner without.
    let profile = if target.join("release/tipover").is_file() { "release" } else { "demo" };
    let step = Step::begin("build tipover");
    cargo(workspace, &["build", "--profile", profile, "-p", "tipover"])?;
    step.done();
    let step = Step::begin("run the working-set study");
    let mut command = workspace.command(target.join(profile).join("tipover"));
    command.args(["run", "working-set"]).args(arguments);
    let report = workspace.path("results/working-set/report.html");
    let started = SystemTime::now();
    let mut study = process::start(command)?;
    let mut is_seen = false;
    while !study.is_over()? {
        if !is_seen && has_picture(&report, started) {
            is_seen = true;
            // The line of its progress ends first.
            eprintln!();
            println!(
                "    the first picture is there, {}: {}",
                process::minutes(began.elapsed()),
                report.display()
            );
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    study.succeeded()?;
    step.done();
    println!("    all of it: {}", process::minutes(began.elapsed()));
    Ok(())
}

/// Whether a page was written since then that has something drawn on it.
fn has_picture(page: &Path, since: SystemTime) -> bool {
    let is_new = page.metadata().and_then(|about| about.modified()).is_ok_and(|written| written >= since);
    // The page says in its first lines how many charts there are to be drawn.
    let text = || std::fs::read_to_string(page).unwrap_or_default();
    is_new && !text().lines().take(3).any(|line| line.contains("data-charts=\"0/0\""))
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
    fn a_page_of_before_and_one_without_a_chart_are_no_first_picture() {
        let page = std::env::temp_dir().join(format!("xtask-page-{}.html", std::process::id()));
        let before = SystemTime::now() - Duration::from_secs(5);
        let write = |charts: &str| {
            let html =
                format!("<!doctype html>\n<html lang=\"en\" data-charts=\"{charts}\" data-errors=\"0\">\n");
            std::fs::write(&page, html).unwrap();
        };
        assert!(!has_picture(&page, before), "there is no page");
        write("0/0");
        assert!(!has_picture(&page, before), "nothing is drawn on it");
        write("0/4");
        assert!(has_picture(&page, before));
        assert!(!has_picture(&page, SystemTime::now() + Duration::from_secs(5)), "it was there before");
        std::fs::remove_file(&page).unwrap();
        // The template has what is looked for.
        let template = include_str!("../../web/report.html");
        assert!(template.lines().take(3).any(|line| line.contains("data-charts=\"0/{{charts}}\"")));
    }

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
