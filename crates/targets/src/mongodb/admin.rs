//! Commands outside of the measured loop: they wait for their answers.

use super::cluster::Cluster;
use super::courier::{Courier, Step};
use super::options::ReadPreference;
use super::reply::{Fault, Reply};
use crate::connection::Wait;
use bson::{RawDocument, RawDocumentBuf};
use std::fmt;
use std::sync::Arc;
use tipover_core::target::TargetError;

/// Why a command has no good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The server answered an error.
    Server(Fault),
    /// It certainly was not executed.
    NotSent(String),
    /// It may have been executed.
    Lost(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Server(fault) if fault.code != 0 => write!(f, "{} (code {})", fault.message, fault.code),
            Refusal::Server(fault) => f.write_str(&fault.message),
            Refusal::NotSent(text) | Refusal::Lost(text) => f.write_str(text),
        }
    }
}

impl Refusal {
    /// MongoDB's error code, if the server gave one.
    pub fn code(&self) -> i32 {
        if let Refusal::Server(fault) = self { fault.code } else { 0 }
    }
}

/// One connection for commands.
pub struct Admin {
    /// How the commands travel.
    pub courier: Courier,
}

impl Admin {
    /// A connection to the primary, or to the one server named.
    pub fn new(cluster: &Arc<Cluster>) -> Result<Admin, TargetError> {
        Ok(Admin { courier: Courier::new(cluster, ReadPreference::Primary)? })
    }

    /// Sends a finished request and waits for the answer, good or bad.
    pub fn exchange(&mut self) -> Result<&RawDocument, Refusal> {
        self.courier.begin(true);
        let deadline = self.courier.deadline();
        match self.courier.go(Wait::Yes, deadline) {
            Step::Answered => {}
            Step::NotSent(trouble) => return Err(Refusal::NotSent(trouble.text().into())),
            Step::Lost(text) => return Err(Refusal::Lost(text)),
            Step::Waiting | Step::Sent | Step::TimedOut => {
                return Err(Refusal::Lost("no answer in time".into()));
            }
        }
        self.courier.answer().map(|incoming| incoming.body).map_err(Refusal::Lost)
    }

    /// Sends a finished request that asks for no answer.
    pub fn post(&mut self) -> Result<(), Refusal> {
        self.courier.begin(false);
        let deadline = self.courier.deadline();
        match self.courier.go(Wait::Yes, deadline) {
            Step::Sent => Ok(()),
            Step::NotSent(trouble) => Err(Refusal::NotSent(trouble.text().into())),
            Step::Lost(text) => Err(Refusal::Lost(text)),
            Step::Answered | Step::Waiting | Step::TimedOut => Err(Refusal::Lost("not sent in time".into())),
        }
    }

    /// Executes `command` in `database`.
    pub fn command(&mut self, database: &str, command: &RawDocument) -> Result<RawDocumentBuf, Refusal> {
        self.write(database, command, 0);
        let body = self.exchange()?.to_owned();
        match Reply::read(&body).fault {
            Some(fault) => {
                if fault.is_change_of_primary() {
                    self.courier.distrust();
                }
                Err(Refusal::Server(fault))
            }
            None => Ok(body),
        }
    }

    /// Inserts `documents`, which travel behind the command and not in it, as drivers send them: there are
    /// servers that look nowhere else. `options` belong to the command.
    pub fn insert(
        &mut self,
        database: &str,
        collection: &str,
        options: &RawDocument,
        documents: &[RawDocumentBuf],
    ) -> Result<RawDocumentBuf, Refusal> {
        let writer = &mut self.courier.request;
        writer.begin(0, 0);
        writer.string("insert", collection.as_bytes());
        writer.elements(options);
        writer.string("$db", database.as_bytes());
        writer.begin_sequence("documents");
        for document in documents {
            writer.begin_item();
            writer.elements(document);
            writer.end();
        }
        writer.finish();
        let body = self.exchange()?.to_owned();
        Reply::read(&body).fault.map_or(Ok(body), |fault| Err(Refusal::Server(fault)))
    }

    /// Writes `command` into the courier's request.
    pub fn write(&mut self, database: &str, command: &RawDocument, flags: u32) {
        let writer = &mut self.courier.request;
        writer.begin(0, flags);
        writer.elements(command);
        writer.string("$db", database.as_bytes());
        writer.finish();
    }
}
