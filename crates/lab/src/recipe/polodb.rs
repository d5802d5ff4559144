//! PoloDB: MongoDB's wire protocol with transactions, on RocksDB. Its updates lose each other, which makes it
//! a culprit that nobody planted (`docs/correctness.md`).

use super::server::{Deployment, Engine};
use super::{DATABASES, Missing, find_built, is_program};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An installed PoloDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Polodb {
    server: PathBuf,
    version: String,
}

impl Polodb {
    /// The given program, the one that `make setup ARGS=--polodb` has built into `third_party/`, or the one
    /// in `PATH`.
    ///
    /// # Errors
    /// It is not there, or does not say its version.
    pub fn find(given: Option<&Path>) -> Result<Polodb, Missing> {
        let missing = |looked: String| Missing {
            what: "PoloDB".into(),
            looked,
            advice:
                "give its path with --polodb PATH; `make setup ARGS=--polodb` in a checkout builds it, which \
                     takes a quarter of an hour of two processors because RocksDB is part of it"
                    .into(),
        };
        let server = match given {
            Some(path) if is_program(path) => path.canonicalize().unwrap_or_else(|_| path.to_path_buf()),
            Some(path) => return Err(missing(format!("{} is no program", path.display()))),
            None => {
                find_built("polodb").ok_or_else(|| missing("neither in third_party nor in PATH".into()))?
            }
        };
        let output = Command::new(&server).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        match text.ok().as_deref().and_then(read_version) {
            Some(version) => Ok(Polodb { server, version }),
            None => Err(missing(format!("{} does not say its version", server.display()))),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.server
    }
}

/// "PoloDB 5.3.0".
fn read_version(text: &str) -> Option<String> {
    text.lines().map(str::trim).find(|line| line.starts_with("PoloDB ")).map(str::to_string)
}

impl Engine for Polodb {
    fn version(&self) -> &str {
        &self.version
    }

    fn account(&self) -> &'static str {
        "nobody"
    }

    /// It has no settings but these.
    fn command(&self, deployment: &Deployment) -> Command {
        let mut command = Command::new(&self.server);
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        command.args(["serve", "--host", &deployment.address.ip().to_string()]);
        command.args(["--port", &deployment.address.port().to_string()]);
        command.arg("--path").arg(deployment.data.join("polodb"));
        command
    }

    fn is_ready(&self, deployment: &Deployment, _: u32) -> bool {
        TcpStream::connect_timeout(&deployment.address, Duration::from_secs(1)).is_ok()
    }

    fn socket(&self, deployment: &Deployment) -> PathBuf {
        deployment.runtime.join("no-socket")
    }

    fn url(&self, deployment: &Deployment) -> String {
        format!("mongodb://{}/{}?directConnection=true", deployment.address, DATABASES[0])
    }

    fn client(&self, _: &Deployment, _: &str) -> Result<Command, Missing> {
        Err(Missing {
            what: "a client of PoloDB".into(),
            looked: "it speaks a part of MongoDB's protocol, and no shell goes with it".into(),
            advice: "use a driver".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_and_what_is_missing_says_what_to_do() {
        assert_eq!(read_version("PoloDB 5.3.0\n"), Some("PoloDB 5.3.0".into()));
        assert_eq!(read_version("what?"), None);
        let missing = Polodb::find(Some(Path::new("/nowhere/polodb"))).unwrap_err().to_string();
        assert!(
            missing.contains("/nowhere/polodb is no program") && missing.contains("--polodb PATH"),
            "{missing}"
        );
    }
}
