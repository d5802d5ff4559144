//! Who may do what: a key for those who ask for work, one for machines, and the servers' side of both.

use anyhow::{Context, Result, bail};
use nkeys::KeyPair;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What those who ask for work are called, in files and in the names of inboxes.
pub const ASKER: &str = "ask";
/// What machines are called there.
pub const AGENT: &str = "agent";

/// Streams and buckets that a machine may look at.
const SEEN: [&str; 8] = [
    "tipover-log",
    "tipover-blocks",
    "tipover-results",
    "KV_tipover-machines",
    "KV_tipover-lanes",
    "KV_tipover-holders",
    "KV_tipover-orders",
    "OBJ_tipover-objects",
];

/// What a machine may say. It may take blocks and give none, write what is its own to write, and make,
/// change and remove no stream.
fn said_by_machines() -> Vec<String> {
    let mut subjects: Vec<String> = [
        "tipover.result.>",
        "tipover.log.>",
        "tipover.part.>",
        "$KV.tipover-machines.>",
        "$KV.tipover-holders.>",
        "$O.tipover-objects.>",
        "$JS.ACK.tipover-blocks.>",
        "$JS.API.INFO",
        "$JS.API.CONSUMER.MSG.NEXT.tipover-blocks.>",
        "$JS.API.CONSUMER.INFO.tipover-blocks.>",
        // Following the lanes: a consumer without acknowledgements, of its own.
        "$JS.API.CONSUMER.CREATE.KV_tipover-lanes",
        "$JS.API.CONSUMER.CREATE.KV_tipover-lanes.>",
        "$JS.API.CONSUMER.DELETE.KV_tipover-lanes.>",
        "$JS.FC.>",
    ]
    .map(String::from)
    .into();
    for stream in SEEN {
        subjects.push(format!("$JS.API.STREAM.INFO.{stream}"));
        subjects.push(format!("$JS.API.STREAM.MSG.GET.{stream}"));
        subjects.push(format!("$JS.API.DIRECT.GET.{stream}"));
        subjects.push(format!("$JS.API.DIRECT.GET.{stream}.>"));
    }
    subjects
}

/// The files of a fleet's keys, in a folder.
#[derive(Debug, Clone)]
pub struct Keys {
    /// For those who ask for work.
    pub asker: PathBuf,
    /// For machines.
    pub agent: PathBuf,
    /// What nats-server is started with.
    pub server: PathBuf,
}

impl Keys {
    /// Where they are in `folder`.
    pub fn in_folder(folder: &Path) -> Keys {
        let of = |name: &str| folder.join(name);
        Keys { asker: of("ask.nk"), agent: of("agent.nk"), server: of("nats-server.conf") }
    }

    /// Makes a key for each role, and the configuration of a server that knows them, listening at `listen`.
    ///
    /// # Errors
    /// There are some already: whoever has them would be locked out.
    pub fn make(folder: &Path, listen: &str) -> Result<Keys> {
        let keys = Keys::in_folder(folder);
        for path in [&keys.asker, &keys.agent, &keys.server] {
            if path.exists() {
                bail!(
                    "{} is there already: a new key would lock out whoever has the old one",
                    path.display()
                );
            }
        }
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let asker = make_key(&keys.asker)?;
        let agent = make_key(&keys.agent)?;
        let store = std::path::absolute(folder.join("jetstream"))?;
        let text = configuration(listen, &store, &asker, &agent);
        write_new(&keys.server, 0o644, &text)?;
        Ok(keys)
    }
}

/// Writes the seed, and gives the public key.
fn make_key(path: &Path) -> Result<String> {
    let pair = KeyPair::new_user();
    let seed = pair.seed().map_err(|error| anyhow::anyhow!("making a key: {error}"))?;
    write_new(path, 0o600, &format!("{seed}\n"))?;
    Ok(pair.public_key())
}

fn write_new(path: &Path, mode: u32, text: &str) -> Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.with_context(|| format!("writing {}", path.display()))
}

/// The configuration of a server, in its own words. What is acknowledged is on the disk: by default a
/// JetStream acknowledges before it flushes.
fn configuration(listen: &str, store: &Path, asker: &str, agent: &str) -> String {
    let quoted = |subjects: &[String]| {
        let lines: Vec<String> =
            subjects.iter().map(|subject| format!("            \"{subject}\"")).collect();
        lines.join("\n")
    };
    let store = store.display();
    let machines = quoted(&said_by_machines());
    format!(
        r#"# A nats-server for a fleet of tipover. Reach it from other machines only over TLS:
#   tls {{ cert_file: "server.pem", key_file: "server-key.pem" }}
listen: "{listen}"
# A block of thousands of cells is one message.
max_payload: 8MB
jetstream {{
  store_dir: "{store}"
  sync_interval: always
}}
accounts {{
  TIPOVER {{
    jetstream: enabled
    users: [
      # Whoever has this key makes the machines of the fleet start programs.
      {{ nkey: {asker}, permissions: {{
        publish: ["tipover.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "$KV.>", "$O.>"]
        subscribe: ["_INBOX.{ASKER}.>", "tipover.log.>"]
      }} }}
      # A machine takes work and gives results; it gives no work, and hears no other's answers.
      {{ nkey: {agent}, permissions: {{
        publish: [
{machines}
        ]
        subscribe: ["_INBOX.{AGENT}.>", "tipover.part.>"]
        # What is asked of it by one that sends the same load it may answer.
        allow_responses: {{ max: 1, expires: "2m" }}
      }} }}
    ]
  }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_secret_and_are_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::make(folder.path(), "127.0.0.1:4222").unwrap();
        for secret in [&keys.asker, &keys.agent] {
            assert_eq!(std::fs::metadata(secret).unwrap().permissions().mode() & 0o777, 0o600);
            let seed = std::fs::read_to_string(secret).unwrap();
            let public = KeyPair::from_seed(seed.trim()).unwrap().public_key();
            let server = std::fs::read_to_string(&keys.server).unwrap();
            assert!(server.contains(&public) && !server.contains(seed.trim()));
        }
        let again = Keys::make(folder.path(), "127.0.0.1:4222").unwrap_err().to_string();
        assert!(again.contains("there already"), "{again}");
    }

    #[test]
    fn a_machine_may_not_give_work() {
        let may = said_by_machines();
        for subject in
            ["tipover.block", "tipover.>", "$JS.API.>", "$JS.API.STREAM.CREATE", "$KV.tipover-orders"]
        {
            assert!(!may.iter().any(|allowed| allowed.starts_with(subject)), "{subject}");
        }
    }
}
