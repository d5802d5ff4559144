//! What answers where no MongoDB does as it was asked for: one without TLS, or something else.

use super::cluster::Cluster;
use super::link::Trouble;
use super::message::{self, Writer};
use super::options::Host;
use crate::connection::{Channel, NUDGE, Wait};
use std::time::Duration;

/// How long an answer may take: whoever does not know our words still has to answer others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Asks whoever is at `host` on a connection of its own, in plain words and without a name; `None` if that
/// tells nothing. It may take two seconds.
pub fn identify(cluster: &Cluster, host: &Host) -> Option<Trouble> {
    let route = cluster.plain_route(host).ok()?;
    let mut channel = Channel::begin(&route, 0, PATIENCE).ok()?;
    let mut hello = Writer::default();
    hello.begin(1, 0);
    hello.int32("hello", 1);
    hello.string("$db", b"admin");
    // A web server waits for the end of a line, which a binary message may not have.
    for words in [hello.finish(), NUDGE] {
        channel.output.extend_from_slice(words);
        channel.flush(Wait::Yes, &mut false).ok()?;
        if channel.fill(Wait::Yes).is_ok() {
            break;
        }
    }
    let said = channel.input.rest();
    match message::length(said) {
        Err(strange) => Some(Trouble::Hopeless(format!("{host}: {strange}"))),
        Ok(Some(_)) if cluster.options.encryption.is_some() => Some(Trouble::Hopeless(format!(
            "{host} speaks MongoDB's protocol, but without TLS: leave tls=true out of the address, or give the \
             server a certificate"
        ))),
        Ok(_) => None,
    }
}
