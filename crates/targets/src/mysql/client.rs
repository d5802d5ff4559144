//! Set-up, statistics and checks: plain queries, one at a time, over the path that is measured.

use super::greeting::Hello;
use super::packet::{self, Reader, Report, put};
use crate::connection::sql::{self, Report as _, Texts};
use crate::connection::{Channel, Refusal, Route, connect};
use std::io;
use std::time::Duration;

/// A connection for administration.
pub struct Client {
    channel: Channel,
    hello: Hello,
}

impl Client {
    /// Connects; also says which way of `route` it was.
    pub fn connect(route: &Route, mut hello: Hello, timeout: Duration) -> Result<(Client, usize), Refusal> {
        let (channel, way) = connect(route, &mut hello, timeout)?;
        Ok((Client { channel, hello }, way))
    }

    /// Whether a backslash in a quoted text is just that.
    pub fn backslash_is_a_letter(&self) -> bool {
        self.hello.backslash_is_a_letter()
    }

    /// Executes one statement, whose values may be any bytes, and returns its rows.
    pub fn execute(&mut self, text: &[u8]) -> Result<Vec<Texts>, Report> {
        put(&mut self.channel.output, 0, |payload| {
            payload.push(0x03);
            payload.extend_from_slice(text);
        });
        self.channel.say().map_err(Report::lost)?;
        let mut rows = Rows::new(self.hello.caches_metadata());
        while rows.take(&self.next()?)? {}
        Ok(rows.found)
    }

    fn next(&mut self) -> Result<Vec<u8>, Report> {
        self.channel.message(packet::next).map(|(_, payload)| payload).map_err(Report::lost)
    }
}

/// The answer to a query, packet by packet.
pub struct Rows {
    caches_metadata: bool,
    /// As the first packet says.
    columns: Option<u64>,
    /// How many descriptions of columns are still to come.
    described: u64,
    /// What came.
    pub found: Vec<Texts>,
}

impl Rows {
    /// Of an answer that begins; whether it says if columns are described was agreed upon in the greeting.
    pub fn new(caches_metadata: bool) -> Rows {
        Rows { caches_metadata, columns: None, described: 0, found: Vec::new() }
    }

    /// Understands a packet; true if more are to come.
    ///
    /// # Errors
    /// What the server said instead, or that it is no answer.
    pub fn take(&mut self, packet: &[u8]) -> Result<bool, Report> {
        let mut reader = Reader(packet);
        match (self.columns, packet.first()) {
            (_, Some(0xff)) => return Err(Report::parse(packet)),
            (None, Some(0x00)) => return Ok(false),
            (None, _) => {
                let columns = reader.length().filter(|columns| *columns <= packet::MOST_COLUMNS);
                let columns = columns.ok_or_else(|| Report::lost("an answer without columns"))?;
                self.columns = Some(columns);
                self.described = if !self.caches_metadata || reader.byte() == Some(1) { columns } else { 0 };
            }
            (Some(_), _) if self.described > 0 => self.described -= 1,
            (Some(_), Some(0xfe)) => return Ok(false),
            (Some(columns), _) => {
                let value = |_| reader.counted().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
                self.found.push((0..columns).map(value).collect());
            }
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

    fn query(&mut self, text: &str) -> Result<Vec<Texts>, Report> {
        self.execute(text.as_bytes())
    }
}
