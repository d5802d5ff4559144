//! FerretDB 1: MongoDB's wire protocol on SQLite. It knows no transactions, ignores write concerns, and reads
//! a document by scanning: it tests a driver, not a database.

use super::server::{Deployment, Engine, Server, ServerError, ServerOptions};
use super::{DATABASES, Missing, find_built};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// An installed FerretDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ferret {
    server: PathBuf,
    version: String,
}

impl Ferret {
    /// The one that `make setup ARGS=--servers` has built into `third_party/`, or the one in `PATH`.
    pub fn find() -> Result<Ferret, Missing> {
        let missing = |looked: &str| Missing {
            what: "FerretDB".into(),
            looked: looked.into(),
            advice: "`make setup ARGS=--servers` in a checkout builds it; that needs Go and two minutes"
                .into(),
        };
        let server = find_built("ferretdb").ok_or_else(|| missing("neither in third_party nor in PATH"))?;
        let output = Command::new(&server).arg("--version").output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let version = text.ok().and_then(|text| read_version(&text));
        let version =
            version.ok_or_else(|| missing(&format!("{} does not say its version", server.display())))?;
        Ok(Ferret { server, version })
    }

    /// Makes a server and waits until it is ready. It knows neither passwords nor TLS here.
    pub fn start(&self, options: &ServerOptions) -> Result<Server, ServerError> {
        if options.transport != super::Transport::Plain {
            return Err(ServerError::Senseless("the recipe of FerretDB offers no TLS".into()));
        }
        Server::start_new(Arc::new(self.clone()), options)
    }
}

/// "version: v1.24.0" → "FerretDB 1.24.0".
fn read_version(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("version:"))?;
    Some(format!("FerretDB {}", line.trim().trim_start_matches('v')))
}

impl Engine for Ferret {
    fn version(&self) -> &str {
        &self.version
    }

    fn account(&self) -> &'static str {
        "nobody"
    }

    fn is_created(&self, deployment: &Deployment) -> bool {
        deployment.data.join("sqlite").is_dir()
    }

    fn create(&self, deployment: &Deployment) -> Result<(), ServerError> {
        let mut command = Command::new("/bin/mkdir");
        command.current_dir("/").arg(deployment.data.join("sqlite")).arg(deployment.data.join("state"));
        deployment.step("mkdir", command, None).map(drop)
    }

    fn command(&self, deployment: &Deployment) -> Command {
        let mut command = Command::new(&self.server);
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        let mut set = |name: &str, value: String| {
            command.arg(format!("--{name}={value}"));
        };
        set("listen-addr", deployment.address.to_string());
        set("listen-unix", self.socket(deployment).display().to_string());
        set("debug-addr", "-".into());
        set("telemetry", "disable".into());
        set("state-dir", deployment.data.join("state").display().to_string());
        set("handler", "sqlite".into());
        set("sqlite-url", format!("file:{}/", deployment.data.join("sqlite").display()));
        for (name, value) in &deployment.settings {
            set(name, value.clone());
        }
        command
    }

    fn is_ready(&self, deployment: &Deployment, _: u32) -> bool {
        UnixStream::connect(self.socket(deployment)).is_ok()
    }

    fn socket(&self, deployment: &Deployment) -> PathBuf {
        deployment.runtime.join("ferretdb.sock")
    }

    fn url(&self, deployment: &Deployment) -> String {
        format!("mongodb://{}/{}?directConnection=true", deployment.address, DATABASES[0])
    }

    fn client(&self, _: &Deployment, _: &str) -> Result<Command, Missing> {
        Err(Missing {
            what: "a client of FerretDB".into(),
            looked: "it speaks MongoDB's protocol, and no package of Debian brings a shell for it".into(),
            advice: "use a driver".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        assert_eq!(read_version("version: v1.24.0\ncommit: x\n"), Some("FerretDB 1.24.0".into()));
        assert_eq!(read_version("what?"), None);
    }
}
