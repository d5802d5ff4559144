//! MariaDB, as installed by a package.

use super::server::{Deployment, Engine, Server, ServerError, ServerOptions};
use super::{Account, Authentication, DATABASES, Missing, Transport, USER, find_program};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tipover_disk::Mode;

/// An installed MariaDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mariadb {
    server: PathBuf,
    installer: PathBuf,
    /// The major version.
    pub major: u32,
    version: String,
}

impl Mariadb {
    /// The installed one, if its major version (10, 11, ...) is the one asked for.
    pub fn find(version: Option<u32>) -> Result<Mariadb, Missing> {
        let what = version.map_or("MariaDB".into(), |version| format!("MariaDB {version}"));
        let advice = "apt-get install mariadb-server".to_string();
        let missing = |looked: String| Missing { what: what.clone(), looked, advice: advice.clone() };
        let program =
            |name: &str| find_program(name).ok_or_else(|| missing(format!("{name} is not in PATH")));
        let (server, installer) = (program("mariadbd")?, program("mariadb-install-db")?);
        let output = Command::new(&server).args(["--no-defaults", "--version"]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let (name, major) = text
            .ok()
            .and_then(|text| read_version(&text))
            .ok_or_else(|| missing(format!("{} does not say its version", server.display())))?;
        if version.is_some_and(|version| version != major) {
            return Err(missing(format!("found only {name}")));
        }
        Ok(Mariadb { server, installer, major, version: name })
    }

    /// Makes a server and waits until it is ready.
    pub fn start(&self, options: &ServerOptions) -> Result<Server, ServerError> {
        Server::start_new(Arc::new(self.clone()), options)
    }

    /// The statements that make the users and the databases.
    fn first_statements(deployment: &Deployment) -> String {
        let password = match deployment.authentication {
            Authentication::Password => deployment.password.as_str(),
            Authentication::Trust => "",
        };
        let over_tcp =
            if deployment.transport == Transport::TlsRequired { "REQUIRE SSL" } else { "REQUIRE NONE" };
        let mut lines: Vec<String> =
            DATABASES.iter().map(|name| format!("CREATE DATABASE IF NOT EXISTS {name};")).collect();
        for (host, requires) in [("localhost", "REQUIRE NONE"), ("%", over_tcp)] {
            lines.push(format!(
                "CREATE USER IF NOT EXISTS '{USER}'@'{host}' IDENTIFIED BY '{password}' {requires};"
            ));
            lines.push(format!("GRANT ALL ON *.* TO '{USER}'@'{host}' WITH GRANT OPTION;"));
        }
        lines.push(format!("ALTER USER 'root'@'localhost' IDENTIFIED BY '{password}';"));
        // Users can be made only when the privileges are looked at, which the installer does not.
        format!("FLUSH PRIVILEGES;\n{}\n", lines.join("\n"))
    }
}

/// "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)" → "MariaDB 10.11.19"
/// and 10.
fn read_version(text: &str) -> Option<(String, u32)> {
    let number = text.split("Ver ").nth(1)?.split(['-', ' ']).next()?;
    let major = number.split('.').next()?.parse().ok()?;
    text.contains("MariaDB").then(|| (format!("MariaDB {number}"), major))
}

impl Engine for Mariadb {
    fn version(&self) -> &str {
        &self.version
    }

    fn account(&self) -> &'static str {
        "mysql"
    }

    fn is_created(&self, deployment: &Deployment) -> bool {
        deployment.data.join("mysql").is_dir()
    }

    fn create(&self, deployment: &Deployment) -> Result<(), ServerError> {
        let mut command = Command::new(&self.installer);
        command.env_clear().env("PATH", PROGRAMS).env("LC_ALL", "C").current_dir("/");
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command.arg("--skip-name-resolve");
        // A server that starts removes what earlier ones left in its folder for temporary tables, which in a
        // shared one are those of another that is being made.
        command.env("TMPDIR", &deployment.runtime);
        command.arg(format!("--datadir={}", deployment.data.display()));
        let first = deployment.runtime.join("first.sql");
        deployment.write_private(&first, &Mariadb::first_statements(deployment))?;
        command.arg(format!("--extra-file={}", first.display()));
        let made = deployment.step("mariadb-install-db", command, None);
        let _ = std::fs::remove_file(&first);
        made.map(drop)
    }

    /// Its redo log is named by a setting, and made beside the data before that is said.
    fn move_journal(&self, deployment: &Deployment, journal: &Path) -> Result<(), ServerError> {
        let failed = |source| ServerError::File { path: journal.into(), source };
        deployment.make_folder(journal, 0o700)?;
        for entry in std::fs::read_dir(&deployment.data).map_err(failed)?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("ib_logfile") {
                std::fs::copy(entry.path(), journal.join(&name)).map_err(failed)?;
                Account::own(deployment.account.as_ref(), &journal.join(&name)).map_err(failed)?;
                std::fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn command(&self, deployment: &Deployment) -> Command {
        let mut command = Command::new(&self.server);
        command.env_clear().env("PATH", PROGRAMS).env("LC_ALL", "C").current_dir("/");
        // Without it a donor calls the machine's `sync`: more than it needs, and still right.
        if let Ok(file) = own_sync(deployment) {
            command.env("BASH_ENV", file);
        }
        command.arg("--no-defaults");
        let mut set = |name: &str, value: &str| {
            command.arg(format!("--{name}={value}"));
        };
        set("datadir", &deployment.data.to_string_lossy());
        set("tmpdir", &deployment.runtime.to_string_lossy());
        set("socket", &self.socket(deployment).to_string_lossy());
        set("pid-file", &deployment.runtime.join("server.pid").to_string_lossy());
        set("bind-address", &deployment.address.ip().to_string());
        set("port", &deployment.address.port().to_string());
        set("skip-name-resolve", "1");
        if let Some(journal) = &deployment.journal {
            set("innodb_log_group_home_dir", &journal.to_string_lossy());
        }
        if let Some(certificate) = &deployment.certificate {
            set("ssl-ca", &certificate.authority.to_string_lossy());
            set("ssl-cert", &certificate.certificate.to_string_lossy());
            set("ssl-key", &certificate.key.to_string_lossy());
        }
        // The last one of a name counts.
        for (name, value) in &deployment.settings {
            set(name, value);
        }
        command
    }

    /// It greets whoever connects, with the version of its protocol first; a socket file of an earlier
    /// process refuses, and an error greets with 255.
    fn is_ready(&self, deployment: &Deployment, _: u32) -> bool {
        let Ok(mut stream) = UnixStream::connect(self.socket(deployment)) else { return false };
        let mut greeting = [0; 5];
        stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
            && stream.read_exact(&mut greeting).is_ok()
            && greeting[4] == 10
    }

    fn socket(&self, deployment: &Deployment) -> PathBuf {
        deployment.runtime.join("mariadb.sock")
    }

    fn url(&self, deployment: &Deployment) -> String {
        let password = match deployment.authentication {
            Authentication::Password => format!(":{}", deployment.password),
            Authentication::Trust => String::new(),
        };
        let encryption = match (&deployment.certificate, deployment.transport) {
            (Some(certificate), Transport::TlsRequired) => {
                format!("?ssl-mode=verify-full&ssl-ca={}", certificate.authority.display())
            }
            _ => String::new(),
        };
        format!("mysql://{USER}{password}@{}/{}{encryption}", deployment.address, DATABASES[0])
    }

    fn client(&self, deployment: &Deployment, statement: &str) -> Result<Command, Missing> {
        let client = find_program("mariadb").ok_or_else(|| Missing {
            what: "MariaDB's client".into(),
            looked: "mariadb is not in PATH".into(),
            advice: "apt-get install mariadb-client".into(),
        })?;
        let mut command = Command::new(client);
        command.args(["--no-defaults", "--skip-column-names", "--batch", "--connect-timeout=5"]);
        command.arg(format!("--user={USER}")).arg(format!("--socket={}", self.socket(deployment).display()));
        if deployment.authentication == Authentication::Password {
            // Not as an argument: every user of this machine can read those.
            command.env("MYSQL_PWD", &deployment.password);
        }
        command.arg(format!("--execute={statement}")).arg(DATABASES[0]);
        Ok(command)
    }

    fn write_out(&self, _: Mode) -> Option<&'static str> {
        // Its page cleaner has then too many dirty pages with the first one; a restart forgets it.
        Some("SET GLOBAL innodb_max_dirty_pages_pct = 0")
    }

    /// Replicas fetch the log as the same user, and are no clients.
    fn connection_of_a_client(&self) -> Option<String> {
        Some(format!(
            "SELECT id FROM information_schema.processlist WHERE user = '{USER}' AND id <> CONNECTION_ID() \
             AND command NOT LIKE 'Binlog Dump%' AND command <> 'Killed' ORDER BY id LIMIT 1"
        ))
    }
}

/// Where the programs are that the server's scripts call.
const PROGRAMS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A file for bash to read before its scripts, in which `sync` flushes the file system of this node's data
/// and no other. Galera's donor calls it before it gives a copy, and the machine's would write out every
/// other node's disk as well, wait for the slowest of them, and for ever where one of anybody's does not
/// answer. A program of that name would not be found: the server puts its own folder first in PATH.
fn own_sync(deployment: &Deployment) -> std::io::Result<PathBuf> {
    let file = deployment.runtime.join("sync.bash");
    let data = deployment.data.to_string_lossy().replace('\'', r"'\''");
    std::fs::write(&file, format!("sync() {{ command sync -f '{data}'; }}\n"))?;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_others_refused() {
        let text = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(read_version(text), Some(("MariaDB 10.11.19".into(), 10)));
        assert_eq!(read_version("mysqld  Ver 8.0.39 for Linux on x86_64 (MySQL Community Server)"), None);
    }

    #[test]
    fn a_version_that_nobody_has_is_missing_in_words() {
        let missing = Mariadb::find(Some(3)).unwrap_err().to_string();
        assert!(missing.starts_with("MariaDB 3 is not installed"), "{missing}");
        assert!(missing.contains("apt-get install mariadb-server"), "{missing}");
    }
}
