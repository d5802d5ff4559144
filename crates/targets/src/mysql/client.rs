//! Set-up, statistics and checks: plain queries, one at a time, over the path that is measured.

use super::greeting::Hello;
use super::packet::{self, Reader, Report, put};
use crate::connection::{Channel, Refusal, Route, Wait, connect};
use std::io;
use std::time::Duration;

/// Rows of texts.
pub type Rows = Vec<Vec<Option<String>>>;

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

    /// From now on, a single call may take so long; zero is for ever.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.channel.set_timeout(timeout)
    }

    /// Version and cipher, if the connection is encrypted.
    pub fn encryption(&self) -> Option<String> {
        self.channel.encryption()
    }

    /// Whether a backslash in a quoted text is just that.
    pub fn backslash_is_a_letter(&self) -> bool {
        self.hello.backslash_is_a_letter()
    }

    /// Executes one statement and returns its rows.
    pub fn query(&mut self, text: &[u8]) -> Result<Rows, Report> {
        put(&mut self.channel.output, 0, |payload| {
            payload.push(0x03);
            payload.extend_from_slice(text);
        });
        self.channel.flush(Wait::Yes, &mut false).map_err(lost)?;
        let first = self.next()?;
        match first.first() {
            Some(0x00) => return Ok(Rows::new()),
            Some(0xff) => return Err(Report::parse(&first)),
            _ => {}
        }
        let mut reader = Reader(&first);
        let columns = reader.length().ok_or_else(|| Report::lost("an answer without columns"))?;
        let described = !self.hello.caches_metadata() || reader.byte() == Some(1);
        for _ in 0..if described { columns } else { 0 } {
            self.next()?;
        }
        let mut rows = Rows::new();
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

    /// The only value of the only row; empty if there is none.
    pub fn value(&mut self, text: &str) -> Result<String, Report> {
        let rows = self.query(text.as_bytes())?;
        Ok(rows.into_iter().flatten().flatten().next().unwrap_or_default())
    }

    fn next(&mut self) -> Result<Vec<u8>, Report> {
        loop {
            if let Some((_, range)) = packet::next(&self.channel.input) {
                let payload = self.channel.input.rest()[range.clone()].to_vec();
                self.channel.input.consume(range.end);
                self.channel.input.forget();
                return Ok(payload);
            }
            self.channel.fill(Wait::Yes).map_err(lost)?;
            if !self.channel.is_flushed() {
                self.channel.flush(Wait::Yes, &mut false).map_err(lost)?;
            }
        }
    }
}

fn lost(error: io::Error) -> Report {
    Report::lost(match error.kind() {
        io::ErrorKind::TimedOut => "the server did not answer in time".to_string(),
        io::ErrorKind::UnexpectedEof => "the server closed the connection".to_string(),
        _ => format!("the connection was lost: {error}"),
    })
}
