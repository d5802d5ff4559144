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
        let first = self.next()?;
        match first.first() {
            Some(0x00) => return Ok(Vec::new()),
            Some(0xff) => return Err(Report::parse(&first)),
            _ => {}
        }
        let mut reader = Reader(&first);
        let columns = reader.length().ok_or_else(|| Report::lost("an answer without columns"))?;
        let described = !self.hello.caches_metadata() || reader.byte() == Some(1);
        for _ in 0..if described { columns } else { 0 } {
            self.next()?;
        }
        let mut rows = Vec::new();
        loop {
            let row = self.next()?;
            match row.first() {
                Some(0xfe) => return Ok(rows),
                Some(0xff) => return Err(Report::parse(&row)),
                _ => {}
            }
            let mut reader = Reader(&row);
            let value = |_| reader.counted().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            rows.push((0..columns).map(value).collect());
        }
    }

    fn next(&mut self) -> Result<Vec<u8>, Report> {
        self.channel.message(packet::next).map(|(_, payload)| payload).map_err(Report::lost)
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
