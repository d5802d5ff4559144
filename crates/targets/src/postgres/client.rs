//! Set-up, statistics and checks: simple queries, one at a time, over the path that is measured.

use super::greeting::Hello;
use super::message::{self, Report, put, put_text};
use crate::connection::sql::{self, Report as _, Texts};
use crate::connection::{Channel, Refusal, Route, connect};
use std::io;
use std::time::Duration;

/// A connection for administration.
pub struct Client {
    channel: Channel,
}

impl Client {
    /// Connects; also says which way of `route` it was.
    pub fn connect(route: &Route, mut hello: Hello, timeout: Duration) -> Result<(Client, usize), Refusal> {
        let (channel, way) = connect(route, &mut hello, timeout)?;
        Ok((Client { channel }, way))
    }

    /// Executes a `COPY ... FROM STDIN`. `more` appends data and says whether there is more.
    pub fn copy(&mut self, text: &str, mut more: impl FnMut(&mut Vec<u8>) -> bool) -> Result<(), Report> {
        put(&mut self.channel.output, b'Q', |body| put_text(body, text));
        self.flush()?;
        let mut failure = None;
        loop {
            let (letter, body) = self.next()?;
            match letter {
                b'G' => {
                    let mut go_on = true;
                    while go_on {
                        put(&mut self.channel.output, b'd', |data| go_on = more(data));
                        self.flush()?;
                    }
                    put(&mut self.channel.output, b'c', |_| {});
                    self.flush()?;
                }
                b'E' => failure = Some(report(&body)?),
                b'Z' => return failure.map_or(Ok(()), Err),
                message::BROKEN => return Err(Report::lost("an answer that is none")),
                _ => {}
            }
        }
    }

    fn flush(&mut self) -> Result<(), Report> {
        self.channel.say().map_err(Report::lost)
    }

    fn next(&mut self) -> Result<(u8, Vec<u8>), Report> {
        self.channel.message(message::next).map_err(Report::lost)
    }
}

/// An error after which the server goes on; one after which it does not ends the query.
fn report(body: &[u8]) -> Result<Report, Report> {
    let report = Report::parse(body);
    if report.ends_connection() { Err(report) } else { Ok(report) }
}

/// The answer to a query, message by message.
#[derive(Default)]
pub struct Rows {
    /// What came.
    pub found: Vec<Texts>,
    failure: Option<Report>,
}

impl Rows {
    /// Understands a message; true if more are to come.
    ///
    /// # Errors
    /// What the server said before it closed the connection, or that it is no answer.
    pub fn take(&mut self, letter: u8, body: &[u8]) -> Result<bool, Report> {
        match letter {
            b'T' => self.found.clear(),
            b'D' => {
                let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
                self.found.push(message::columns(body).map(|value| value.map(text)).collect());
            }
            b'E' => self.failure = Some(report(body)?),
            b'Z' => return Ok(false),
            message::BROKEN => return Err(Report::lost("an answer that is none")),
            _ => {}
        }
        Ok(true)
    }
}

impl sql::Client for Client {
    type Report = Report;

    fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.channel.set_timeout(timeout)
    }

    fn encryption(&self) -> Option<String> {
        self.channel.encryption()
    }

    /// Of several statements, the rows of the last one that has any.
    fn query(&mut self, text: &str) -> Result<Vec<Texts>, Report> {
        put(&mut self.channel.output, b'Q', |body| put_text(body, text));
        self.flush()?;
        let mut rows = Rows::default();
        loop {
            let (letter, body) = self.next()?;
            if !rows.take(letter, &body)? {
                return rows.failure.map_or(Ok(rows.found), Err);
            }
        }
    }
}
