//! A server that is a program of ours: one that obeys the arguments it is started with, `--folder`,
//! `--listen` and `--ready`, and writes its process number into the last file when it serves.

use super::server::{Deployment, Engine, ServerError};
use super::{Missing, Stop};
use crate::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use tipover_disk::DaemonCommand;

/// A program of ours that serves, and what it is called.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// "WiredTiger 11.3.1".
    pub name: String,
    /// How to start it; the three arguments above are added.
    pub command: DaemonCommand,
}

impl Own {
    fn ready_file(deployment: &Deployment) -> PathBuf {
        deployment.runtime.join("ready")
    }
}

impl Engine for Own {
    fn version(&self) -> &str {
        &self.name
    }

    fn account(&self) -> &'static str {
        "nobody"
    }

    fn move_journal(&self, deployment: &Deployment, journal: &Path) -> Result<(), ServerError> {
        deployment.link_journal("journal", journal)
    }

    fn command(&self, deployment: &Deployment) -> Command {
        let mut command = Command::new(&self.command.program);
        command.args(&self.command.arguments).envs(self.command.environment.iter().cloned());
        command.arg("--folder").arg(&deployment.data).arg("--listen").arg(deployment.address.to_string());
        command.arg("--ready").arg(Own::ready_file(deployment)).current_dir("/");
        command
    }

    /// A file of an earlier process names another one.
    fn is_ready(&self, deployment: &Deployment, pid: u32) -> bool {
        std::fs::read_to_string(Own::ready_file(deployment)).is_ok_and(|text| text.trim() == pid.to_string())
    }

    fn socket(&self, deployment: &Deployment) -> PathBuf {
        deployment.runtime.join("no-socket")
    }

    fn url(&self, deployment: &Deployment) -> String {
        deployment.address.to_string()
    }

    fn stop_signal(&self, _: Stop) -> Signal {
        Signal::TERM
    }

    fn client(&self, _: &Deployment, _: &str) -> Result<Command, Missing> {
        Err(Missing {
            what: format!("a client of {}", self.name),
            looked: "it is embedded in a process of ours and has none".into(),
            advice: "ask it through the target that is served there".into(),
        })
    }
}
