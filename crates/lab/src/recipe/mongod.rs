//! MongoDB, by the user's own binaries: Debian has no package, and the licence of later versions lets nobody
//! else bring one. `make setup ARGS=--tests` fetches 3.6, the last one that a distribution has.

use super::server::{Deployment, Engine, Server, ServerError, ServerOptions};
use super::{DATABASES, Missing, find_program, is_program};
use crate::mongodb::ask;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// What a process of MongoDB's is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MongodRole {
    /// It belongs to no set.
    Alone,
    /// A member of this set.
    Member {
        /// The set's name.
        set: String,
        /// `--shardsvr` or `--configsvr`, in a sharded cluster.
        flag: Option<&'static str>,
    },
    /// A router, with the address of the config servers' set.
    Router {
        /// `set/host:port,...`
        configuration: String,
    },
}

/// A mongod, and a mongos where a recipe needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mongod {
    server: PathBuf,
    router: Option<PathBuf>,
    version: String,
}

impl Mongod {
    /// The given binaries, or those in `PATH`; a router is looked for only if it is needed, and first beside
    /// the server.
    ///
    /// # Errors
    /// One is not there, does not say its version, or is not of the `major` version asked for.
    pub fn find(
        server: Option<&Path>,
        router: Option<&Path>,
        needs_router: bool,
        major: Option<u32>,
    ) -> Result<Mongod, Missing> {
        let (server, version) = program("mongod", "mongodb-org-server", server, None)?;
        if let Some(major) = major
            && !version.starts_with(&format!("{major}."))
        {
            return Err(Missing {
                what: format!("mongod {major}"),
                looked: format!("{} is mongod {version}", server.display()),
                advice: "give the path of another one: --mongod PATH".into(),
            });
        }
        let router = match needs_router {
            true => Some(program("mongos", "mongodb-org-mongos", router, server.parent())?.0),
            false => None,
        };
        Ok(Mongod { server, router, version: format!("mongod {version}") })
    }

    /// Whether this version has transactions of several documents, across shards if it is `sharded`. A server
    /// that is not MongoDB, whose version is 0, may have them.
    ///
    /// # Errors
    /// It is too old.
    pub(crate) fn transacts(&self, sharded: bool) -> Result<(), Missing> {
        let first = if sharded { (4, 2) } else { (4, 0) };
        let mut numbers = self.version.trim_start_matches("mongod ").split('.').map_while(|n| n.parse().ok());
        let found: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found.0 == 0 || found >= first {
            return Ok(());
        }
        let across = if sharded { " across shards" } else { "" };
        Err(Missing {
            what: format!("mongod {}.{} or later", first.0, first.1),
            looked: format!(
                "{} is {}, which has no transactions{across}",
                self.server.display(),
                self.version
            ),
            advice: "give the path of another one: --mongod PATH".into(),
        })
    }

    /// Where the server is.
    pub fn path(&self) -> &Path {
        &self.server
    }

    /// A throw-away server that belongs to no set, whose cache is as small as a mongod's can be.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, options: &ServerOptions) -> Result<Server, ServerError> {
        let mut options = options.clone();
        options.settings.insert(0, ("wiredTigerCacheSizeGB".into(), "0.25".into()));
        Server::start_new(Arc::new(self.as_role(MongodRole::Alone)), &options)
    }

    /// This program in a role.
    pub(crate) fn as_role(&self, role: MongodRole) -> Process {
        Process { mongod: self.clone(), role }
    }
}

fn program(
    name: &str,
    package: &str,
    given: Option<&Path>,
    beside: Option<&Path>,
) -> Result<(PathBuf, String), Missing> {
    let missing = |looked: String| Missing {
        what: name.into(),
        looked,
        advice: format!(
            "give the path of one with --{name} PATH, or install MongoDB's own package {package} \
             (https://www.mongodb.com/docs/manual/administration/install-on-linux/)"
        ),
    };
    let found = match given {
        Some(path) if is_program(path) => path.canonicalize().unwrap_or_else(|_| path.to_path_buf()),
        Some(path) => return Err(missing(format!("{} is no program", path.display()))),
        None => {
            let beside = beside.map(|folder| folder.join(name)).filter(|file| is_program(file));
            let found = beside.or_else(|| find_program(name));
            found.ok_or_else(|| missing("not in PATH; no package of Debian has it".into()))?
        }
    };
    let output = Command::new(&found).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match read_version(&text) {
        Some(version) => Ok((found, version)),
        None => Err(missing(format!("{} does not say its version as a {name} does", found.display()))),
    }
}

/// "db version v7.0.5" or "mongos version v7.0.5" → "7.0.5".
fn read_version(text: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.split_once("version v").map(|(_, version)| version))?;
    let version = line.split_whitespace().next()?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_string())
}

/// One process of a cluster of MongoDB's.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    mongod: Mongod,
    role: MongodRole,
}

impl Process {
    fn arguments(&self, deployment: &Deployment) -> Vec<String> {
        let mut arguments = Vec::new();
        match &self.role {
            MongodRole::Alone => {}
            MongodRole::Member { set, flag } => {
                arguments.extend(flag.map(|flag| format!("--{flag}")));
                arguments.extend(["--replSet".into(), set.clone()]);
            }
            MongodRole::Router { configuration } => {
                arguments.extend(["--configdb".into(), configuration.clone()]);
            }
        }
        if !matches!(self.role, MongodRole::Router { .. }) {
            arguments.extend(["--dbpath".into(), deployment.data.display().to_string()]);
        }
        // The socket is named among the addresses: without an address of localhost there is none otherwise.
        let addresses = format!("{},{}", deployment.address.ip(), self.socket(deployment).display());
        arguments.extend(["--bind_ip".into(), addresses]);
        arguments.extend(["--port".into(), deployment.address.port().to_string()]);
        for (name, value) in &deployment.settings {
            match (name.strip_prefix("setParameter."), value.as_str()) {
                (Some(name), value) => {
                    arguments.extend(["--setParameter".into(), format!("{name}={value}")]);
                }
                // As --directoryperdb, which takes no value.
                (None, "" | "true") => arguments.push(format!("--{name}")),
                (None, value) => arguments.extend([format!("--{name}"), value.into()]),
            }
        }
        arguments
    }
}

impl Engine for Process {
    fn version(&self) -> &str {
        &self.mongod.version
    }

    fn account(&self) -> &'static str {
        "mongodb"
    }

    fn move_journal(&self, deployment: &Deployment, journal: &Path) -> Result<(), ServerError> {
        match self.role {
            MongodRole::Router { .. } => Ok(()),
            _ => deployment.link_journal("journal", journal),
        }
    }

    fn command(&self, deployment: &Deployment) -> Command {
        let program = match (&self.role, &self.mongod.router) {
            (MongodRole::Router { .. }, Some(router)) => router,
            _ => &self.mongod.server,
        };
        let mut command = Command::new("/bin/sh");
        command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/");
        // Its log, and so its last words, go to standard output; what is kept is standard error.
        command.args(["-c", "exec \"$0\" \"$@\" >&2"]).arg(program).args(self.arguments(deployment));
        command
    }

    fn is_ready(&self, deployment: &Deployment, _: u32) -> bool {
        ask(&self.socket(deployment), &bson::doc! { "ping": 1 }).is_ok()
    }

    fn socket(&self, deployment: &Deployment) -> PathBuf {
        deployment.runtime.join(format!("mongodb-{}.sock", deployment.address.port()))
    }

    /// This one server, whatever it is in its set.
    fn url(&self, deployment: &Deployment) -> String {
        let database = DATABASES[0];
        match self.role {
            MongodRole::Alone | MongodRole::Member { .. } => {
                format!("mongodb://{}/{database}?directConnection=true", deployment.address)
            }
            MongodRole::Router { .. } => format!("mongodb://{}/{database}", deployment.address),
        }
    }

    fn client(&self, _: &Deployment, _: &str) -> Result<Command, Missing> {
        Err(Missing {
            what: "a client of MongoDB for statements".into(),
            looked: "the laboratory asks by the wire protocol".into(),
            advice: "use mongosh or a driver at the address that `tipover lab status` shows".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::{Authentication, Transport};

    fn deployment(settings: &[(&str, &str)]) -> Deployment {
        Deployment {
            data: "/data".into(),
            runtime: "/run/x".into(),
            address: "10.78.1.2:27017".parse().unwrap(),
            account: None,
            settings: settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
            authentication: Authentication::Trust,
            transport: Transport::Plain,
            password: String::new(),
            certificate: None,
            journal: None,
        }
    }

    fn mongod() -> Mongod {
        let (server, router) = ("/opt/mongod".into(), Some("/opt/mongos".into()));
        Mongod { server, router, version: "mongod 7.0.5".into() }
    }

    fn line(role: MongodRole, settings: &[(&str, &str)]) -> String {
        let command = mongod().as_role(role).command(&deployment(settings));
        let words: Vec<String> =
            command.get_args().skip(2).map(|word| word.to_string_lossy().into_owned()).collect();
        words.join(" ")
    }

    #[test]
    fn an_old_server_has_no_transactions_and_says_so() {
        let of = |version: &str, sharded| {
            Mongod { version: format!("mongod {version}"), ..mongod() }.transacts(sharded)
        };
        for (version, alone, sharded) in
            [("3.6.8", false, false), ("4.0.28", true, false), ("4.2.0", true, true), ("7.0.5", true, true)]
        {
            assert_eq!(
                (of(version, false).is_ok(), of(version, true).is_ok()),
                (alone, sharded),
                "{version}"
            );
        }
        assert!(of("0.0.0-reference", true).is_ok(), "what is not MongoDB is asked itself");
        let said = of("4.0.28", true).unwrap_err().to_string();
        assert!(
            said.contains("mongod 4.2 or later") && said.contains("no transactions across shards"),
            "{said}"
        );
    }

    #[test]
    fn command_lines_are_as_the_manual_has_them() {
        let member = MongodRole::Member { set: "first".into(), flag: Some("shardsvr") };
        let settings =
            [("wiredTigerCacheSizeGB", "0.25"), ("directoryperdb", "true"), ("setParameter.a", "1")];
        assert_eq!(
            line(member, &settings),
            "/opt/mongod --shardsvr --replSet first --dbpath /data \
             --bind_ip 10.78.1.2,/run/x/mongodb-27017.sock --port 27017 \
             --wiredTigerCacheSizeGB 0.25 --directoryperdb --setParameter a=1"
        );
        assert_eq!(
            line(MongodRole::Alone, &[]),
            "/opt/mongod --dbpath /data --bind_ip 10.78.1.2,/run/x/mongodb-27017.sock --port 27017"
        );
        let router = MongodRole::Router { configuration: "config/10.78.1.8:27017".into() };
        assert_eq!(
            line(router, &[]),
            "/opt/mongos --configdb config/10.78.1.8:27017 \
             --bind_ip 10.78.1.2,/run/x/mongodb-27017.sock --port 27017"
        );
    }

    #[test]
    fn a_member_is_addressed_alone() {
        let member = mongod().as_role(MongodRole::Member { set: "rs".into(), flag: None });
        let url = member.url(&deployment(&[]));
        assert!(url.starts_with("mongodb://10.78.1.2:27017/tipover?directConnection=true"), "{url}");
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(read_version("db version v7.0.5\nBuild Info: {\n"), Some("7.0.5".into()));
        assert_eq!(read_version("mongos version v8.0.0-rc1\n"), Some("8.0.0-rc1".into()));
        assert_eq!(read_version("FerretDB v1.24"), None);
    }

    #[test]
    fn what_is_not_there_is_missing_with_what_to_do() {
        let given = Path::new("/nowhere/mongod");
        let missing = Mongod::find(Some(given), None, false, None).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/mongod is no program"), "{missing}");
        assert!(missing.contains("--mongod PATH") && missing.contains("mongodb-org-server"), "{missing}");
        let other = Mongod::find(Some(Path::new("/bin/true")), None, false, None).unwrap_err().to_string();
        assert!(other.contains("does not say its version"), "{other}");
    }
}
