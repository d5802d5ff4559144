//! Statements that are no load: what a tool must ask and make before and after it.

use super::Postgres;
use super::client::Client;
use super::message::Report;
use crate::connection::sql::{Client as _, Report as _, Texts};
use tipover_core::target::{Complaint, TargetError};

/// A connection on which statements take as long as they need.
pub struct Console(Client);

impl Postgres {
    /// Opens one.
    ///
    /// # Errors
    /// If the server takes no further connection.
    pub fn console(&self) -> Result<Console, TargetError> {
        let client = self.server.patient_client();
        client.map(Console).map_err(|report| report.while_doing("opening a connection for statements"))
    }
}

impl Console {
    /// Executes what `text` says. Of several statements, the rows of the last one that has any.
    ///
    /// # Errors
    /// What the server said instead.
    pub fn query(&mut self, text: &str) -> Result<Vec<Texts>, Complaint> {
        self.0.query(text).map_err(complaint)
    }

    /// Executes a `COPY ... FROM STDIN`. `more` appends data and says whether there is more.
    ///
    /// # Errors
    /// What the server said instead.
    pub fn copy(&mut self, text: &str, more: impl FnMut(&mut Vec<u8>) -> bool) -> Result<(), Complaint> {
        self.0.copy(text, more).map_err(complaint)
    }
}

fn complaint(report: Report) -> Complaint {
    let words = format!("{}:  {}", report.severity, report.explained());
    Complaint { code: report.code, words, ..Complaint::default() }
}
