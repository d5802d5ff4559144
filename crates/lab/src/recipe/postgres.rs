//! PostgreSQL, as installed by a package or fetched into `third_party/`.

use super::server::{Deployment, Engine, Server, ServerError, ServerOptions};
use super::{Authentication, DATABASES, Missing, Stop, Transport, USER, find_program, is_program};
use crate::{Launch, Signal};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::units::Bytes;
use tipover_disk::Mode;

/// An installed PostgreSQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Postgres {
    /// Where `postgres` and `initdb` are.
    pub programs: PathBuf,
    /// The major version.
    pub major: u32,
    version: String,
}

impl Postgres {
    /// The installed one of this major version, or the newest.
    pub fn find(version: Option<u32>) -> Result<Postgres, Missing> {
        let all = Postgres::all();
        let found: Vec<String> = all.iter().map(|postgres| postgres.version.clone()).collect();
        let wanted = |postgres: &Postgres| version.is_none_or(|version| postgres.major == version);
        all.into_iter().filter(wanted).max_by_key(|postgres| postgres.major).ok_or_else(|| Missing {
            what: version.map_or("PostgreSQL".into(), |version| format!("PostgreSQL {version}")),
            looked: match found.as_slice() {
                [] => "neither below /usr/lib/postgresql, nor in third_party, nor in PATH".into(),
                found => format!("found only {}", found.join(", ")),
            },
            advice: match version {
                None => "apt-get install postgresql".into(),
                Some(version) => {
                    format!("apt-get install postgresql-{version}, or `make setup` in a checkout")
                }
            },
        })
    }

    /// The newest that can bring an old primary back, as a copy of the new one; where none can, the newest.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_for_copies() -> Result<Postgres, Missing> {
        let able = Postgres::all().into_iter().filter(Postgres::can_copy);
        able.max_by_key(|postgres| postgres.major).map_or_else(|| Postgres::find(None), Ok)
    }

    /// Whether its package has `pg_basebackup`.
    fn can_copy(&self) -> bool {
        is_program(&self.programs.join("pg_basebackup"))
    }

    /// Every one that is installed here.
    pub fn all() -> Vec<Postgres> {
        let mut folders: Vec<PathBuf> = Vec::new();
        let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        folders.extend(versions.map(|entry| entry.path().join("bin")));
        folders.extend(super::third_party("postgresql-").into_iter().map(|folder| folder.join("bin")));
        // A distribution may put links into PATH; what belongs to it lies where they lead.
        let real = find_program("postgres").and_then(|program| program.canonicalize().ok());
        folders.extend(real.and_then(|program| Some(program.parent()?.to_path_buf())));
        folders.sort();
        folders.dedup();
        folders.iter().filter_map(|folder| Postgres::at(folder)).collect()
    }

    /// The one whose programs are in this folder.
    pub fn at(programs: &Path) -> Option<Postgres> {
        let postgres = programs.join("postgres");
        if !is_program(&postgres) || !is_program(&programs.join("initdb")) {
            return None;
        }
        let output = Command::new(&postgres).arg("--version").output().ok()?;
        let (version, major) = read_version(&String::from_utf8_lossy(&output.stdout))?;
        Some(Postgres { programs: programs.to_path_buf(), major, version })
    }

    /// Makes a server and waits until it is ready.
    pub fn start(&self, options: &ServerOptions) -> Result<Server, ServerError> {
        Server::start_new(Arc::new(self.clone()), options)
    }

    /// Replaces a stopped server's files by a copy of a running one's, and makes it a standby; how much was
    /// copied.
    pub(crate) fn copy_from(
        &self,
        server: &Server,
        address: &str,
        port: u16,
        network: Option<&Arc<File>>,
    ) -> Result<Bytes, ServerError> {
        if !self.can_copy() {
            let advice = "use a PostgreSQL from a package: apt-get install postgresql".into();
            let looked = format!("not in {}", self.programs.display());
            return Err(Missing { what: "pg_basebackup".into(), looked, advice }.into());
        }
        let data = server.data();
        let file = |source| ServerError::File { path: data.into(), source };
        for entry in std::fs::read_dir(data).map_err(file)? {
            let path = entry.map_err(file)?.path();
            let removed =
                if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(file)?;
        }
        let mut command = self.program("pg_basebackup");
        command.env("PGPASSWORD", server.password()).args(["-h", address, "-p", &port.to_string()]);
        command.args(["-U", USER, "-X", "stream", "-c", "fast", "--no-sync", "-D"]).arg(data);
        let mut launch = Launch::new(command).called("pg_basebackup");
        if let Some(account) = server.account() {
            launch = launch.user(account.user, account.group);
        }
        if let Some(network) = network {
            launch = launch.network(network);
        }
        let exit = launch.start()?.wait(Duration::from_secs(300)).map_err(file)?;
        match exit {
            Some(exit) if exit.succeeded() => {}
            other => {
                let ending = other.map_or("did not end in 300 s".into(), |exit| exit.explained());
                return Err(ServerError::Step { step: "pg_basebackup".into(), ending });
            }
        }
        let copied = lengths_below(data).map_err(file)?;
        std::fs::write(data.join("standby.signal"), "").map_err(file)?;
        Ok(Bytes(copied))
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        // Nothing of ours may steer it, and it cannot enter our current folder.
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/");
        command
    }
}

/// Bytes of the files below a copied folder that were files of the server's: its journal comes by
/// replication, and the manifest is made for the copy.
fn lengths_below(folder: &Path) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (about, name) = (entry.metadata()?, entry.file_name());
        sum += match about.is_dir() {
            true if name == "pg_wal" => 0,
            true => lengths_below(&entry.path())?,
            false if name == "backup_manifest" => 0,
            false => about.len(),
        };
    }
    Ok(sum)
}

/// "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)" → "PostgreSQL 15.18" and 15.
fn read_version(text: &str) -> Option<(String, u32)> {
    let number = text.split("(PostgreSQL)").nth(1)?.split_whitespace().next()?;
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    Some((format!("PostgreSQL {number}"), digits.parse().ok()?))
}

impl Engine for Postgres {
    fn write_out(&self, disk: Mode) -> Option<&'static str> {
        // As files, whatever it has written since its last checkpoint is at risk, and one more would flush
        // it.
        (disk == Mode::Block).then_some("CHECKPOINT")
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn account(&self) -> &'static str {
        "postgres"
    }

    fn is_created(&self, deployment: &Deployment) -> bool {
        deployment.data.join("PG_VERSION").exists()
    }

    fn create(&self, deployment: &Deployment) -> Result<(), ServerError> {
        // The password file is read once; it may lie where the server's user can read it alone.
        let password = deployment.runtime.join("password");
        deployment.write_private(&password, &deployment.password)?;
        let method = method(deployment.authentication);
        let mut initdb = self.program("initdb");
        // Not flushed file by file: on a slow disk that takes minutes. `flush_new_data` does it at once.
        initdb.args(["-U", USER, "-E", "UTF8", "--locale=C", "-N", "-A", method]);
        initdb.arg("--pwfile").arg(&password).arg("-D").arg(&deployment.data);
        let made = deployment.step("initdb", initdb, None);
        let _ = std::fs::remove_file(&password);
        made?;

        // Without a client program at hand, and before anybody can connect.
        let mut single = self.program("postgres");
        single.args(["--single", "-F", "-D"]).arg(&deployment.data).arg("postgres");
        let statements: String =
            DATABASES.iter().map(|name| format!("CREATE DATABASE {name} OWNER {USER}\n")).collect();
        let said = deployment.step("postgres --single", single, Some(&statements))?;
        // A statement that failed does not make it fail.
        if let Some(error) = said.lines().find(|line| line.contains("ERROR") || line.contains("FATAL")) {
            return Err(ServerError::Step { step: "CREATE DATABASE".into(), ending: error.into() });
        }

        let over_tcp = match deployment.transport {
            Transport::TlsRequired => "hostssl",
            Transport::Plain | Transport::TlsOffered => "host",
        };
        let access = format!(
            "local all,replication all {method}\n\
             {over_tcp} all all all {method}\n\
             {over_tcp} replication all all {method}\n"
        );
        deployment.write_private(&deployment.data.join("pg_hba.conf"), &access)
    }

    fn move_journal(&self, deployment: &Deployment, journal: &Path) -> Result<(), ServerError> {
        deployment.link_journal("pg_wal", journal)
    }

    fn command(&self, deployment: &Deployment) -> Command {
        let mut command = self.program("postgres");
        command.arg("-D").arg(&deployment.data).arg("-k").arg(&deployment.runtime);
        command.args(["-p", &deployment.address.port().to_string()]);
        let mut set = |name: &str, value: &str| {
            command.arg("-c").arg(format!("{name}={value}"));
        };
        set("listen_addresses", &deployment.address.ip().to_string());
        // Segments of this kind are freed by the kernel with the last process, even after a kill -9; without
        // root there is no memory of our own, and a file in the data folder is what leaves no trace.
        set("dynamic_shared_memory_type", if deployment.account.is_some() { "sysv" } else { "mmap" });
        if self.major >= 14 {
            // Recovery otherwise opens and flushes every file: seconds instead of a fifth of one.
            set("recovery_init_sync_method", "syncfs");
        }
        if let Some(certificate) = &deployment.certificate {
            set("ssl", "on");
            set("ssl_cert_file", &certificate.certificate.to_string_lossy());
            set("ssl_key_file", &certificate.key.to_string_lossy());
        }
        // The last one of a name counts.
        for (name, value) in &deployment.settings {
            set(name, value);
        }
        command
    }

    /// The server writes its state into its pid file, as `pg_ctl` reads it; a file of an earlier process
    /// names another one.
    fn is_ready(&self, deployment: &Deployment, pid: u32) -> bool {
        let text = std::fs::read_to_string(deployment.data.join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        lines.first() == Some(&pid.to_string().as_str()) && lines.get(7) == Some(&"ready")
    }

    fn socket(&self, deployment: &Deployment) -> PathBuf {
        deployment.runtime.join(format!(".s.PGSQL.{}", deployment.address.port()))
    }

    fn url(&self, deployment: &Deployment) -> String {
        let mode = match deployment.transport {
            Transport::Plain => "disable",
            Transport::TlsOffered => "prefer",
            Transport::TlsRequired => "verify-full",
        };
        let authority = match (&deployment.certificate, deployment.transport) {
            (Some(certificate), Transport::TlsRequired) => {
                format!("&sslrootcert={}", certificate.authority.display())
            }
            _ => String::new(),
        };
        let (password, database) = (&deployment.password, DATABASES[0]);
        format!("postgres://{USER}:{password}@{}/{database}?sslmode={mode}{authority}", deployment.address)
    }

    fn stop_signal(&self, stop: Stop) -> Signal {
        match stop {
            Stop::Fast => Signal::INT,
            Stop::Immediate => Signal::QUIT,
        }
    }

    fn client(&self, deployment: &Deployment, statement: &str) -> Result<Command, Missing> {
        let client = find_program("psql").ok_or_else(|| Missing {
            what: "PostgreSQL's client".into(),
            looked: "psql is not in PATH".into(),
            advice: "apt-get install postgresql-client".into(),
        })?;
        let mut command = Command::new(client);
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-U", USER, "-d", DATABASES[0]]);
        command.arg("-h").arg(&deployment.runtime).args(["-p", &deployment.address.port().to_string()]);
        // Not as an argument: every user of this machine can read those.
        command.env("PGPASSWORD", &deployment.password).env("PGCONNECT_TIMEOUT", "5");
        command.args(["-c", statement]);
        Ok(command)
    }

    /// Those that show a client in their title: "postgres: tipover ycsb 127.0.0.1(40404) idle".
    fn backends(&self, _: &Deployment, pid: u32) -> Vec<u32> {
        let serves = |&child: &u32| {
            let title = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            is_backend(&String::from_utf8_lossy(&title))
        };
        super::server::descendants(pid).into_iter().filter(serves).collect()
    }
}

fn is_backend(title: &str) -> bool {
    let Some(words) = title.trim_end_matches(['\0', ' ']).strip_prefix("postgres: ") else { return false };
    let client = words.split_whitespace().nth(2).unwrap_or_default();
    client == "[local]" || (client.contains('(') && client.ends_with(')'))
}

fn method(authentication: Authentication) -> &'static str {
    match authentication {
        Authentication::Password => "scram-sha-256",
        Authentication::Trust => "trust",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let read = |text| read_version(text).unwrap();
        assert_eq!(
            read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"),
            ("PostgreSQL 15.18".into(), 15)
        );
        assert_eq!(read("postgres (PostgreSQL) 18beta1\n"), ("PostgreSQL 18beta1".into(), 18));
        assert_eq!(read_version("something else"), None);
    }

    #[test]
    fn backends_are_told_from_helpers_by_their_title() {
        assert!(is_backend("postgres: tipover ycsb 127.0.0.1(40404) idle\0\0"));
        assert!(is_backend("postgres: tipover tipover [local] SELECT"));
        for other in ["postgres: checkpointer \0", "postgres: walwriter ", "/usr/lib/postgres -D x", "psql"] {
            assert!(!is_backend(other), "{other}");
        }
    }

    #[test]
    fn a_version_that_nobody_has_is_missing_in_words() {
        let missing = Postgres::find(Some(7)).unwrap_err().to_string();
        assert!(missing.starts_with("PostgreSQL 7 is not installed"), "{missing}");
        assert!(missing.contains("apt-get install postgresql-7"), "{missing}");
    }
}
