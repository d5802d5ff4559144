//! Makes a fresh machine able to build, run and test Tipover. Running it again does nothing and says so.

mod packages;
mod servers;
mod third_party;
mod tools;

pub use packages::install;
pub use third_party::{FOR_PACKAGES, SOURCES, Source, fetch};
pub use tools::mdbook;

use anyhow::{Result, bail};

use crate::process::Step;
use crate::workspace::Workspace;

/// What the machine is set up for. Each purpose includes the one before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Purpose {
    /// Compiling: third-party sources and what fetches and compiles them.
    Sources,
    /// Running experiments: file systems and FUSE.
    Demo,
    /// The tests: also a browser for the report, and database servers.
    Tests,
    /// Also the server that is compiled in minutes.
    Servers,
    /// Also the one that takes a quarter of an hour.
    Polodb,
}

impl Purpose {
    /// Reads the flags of `setup`.
    pub fn from_flags(flags: &[String]) -> Result<Purpose> {
        let mut purpose = Purpose::Demo;
        for flag in flags {
            purpose = match flag.as_str() {
                "--tests" => Purpose::Tests,
                "--servers" => Purpose::Servers,
                "--polodb" => Purpose::Polodb,
                "--sources" => Purpose::Sources,
                other => bail!("setup knows --tests, --servers, --polodb and --sources, not `{other}`"),
            };
        }
        Ok(purpose)
    }
}

/// Sources are required: without them nothing compiles. A system package that cannot be installed is not:
/// Tipover then does what the machine allows and says what is missing, so setup prints the remedy and
/// goes on.
pub fn set_up(workspace: &Workspace, purpose: Purpose) -> Result<()> {
    let step = Step::begin("system packages");
    packages::install_missing(purpose)?;
    step.done();

    for source in third_party::SOURCES {
        let step = Step::begin(&format!("{} {}", source.project, source.version));
        third_party::fetch(workspace, source)?;
        step.done();
    }
    if purpose >= Purpose::Tests {
        for source in third_party::FOR_TESTS {
            let step = Step::begin(&format!("{} {}", source.project, source.version));
            // The test that needs it says so.
            if let Err(error) = third_party::fetch(workspace, source) {
                println!("    not available: {error:#}");
            }
            step.done();
        }
        let step = Step::begin("database servers");
        servers::fetch_postgres(workspace);
        servers::fetch_mongod(workspace);
        servers::build_nats(workspace);
        if purpose >= Purpose::Servers {
            servers::build_ferret(workspace);
        }
        if purpose >= Purpose::Polodb {
            servers::build_polodb(workspace);
        }
        step.done();
    }
    if purpose >= Purpose::Demo {
        packages::check_fuse_device();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_choose_the_purpose() {
        let read = |flags: &[&str]| {
            Purpose::from_flags(&flags.iter().map(|flag| flag.to_string()).collect::<Vec<_>>())
        };
        assert_eq!(read(&[]).unwrap(), Purpose::Demo);
        assert_eq!(read(&["--tests"]).unwrap(), Purpose::Tests);
        assert_eq!(read(&["--sources"]).unwrap(), Purpose::Sources);
        assert!(read(&["--test"]).unwrap_err().to_string().contains("--tests"));
    }
}
