//! A router that is a process of its own, started as a mongos is. It splits no collection: everything goes to
//! the primary of the first shard, where MongoDB keeps collections that nobody has sharded.

use crate::command::{failure, unknown};
use crate::member::Peer;
use crate::state::Manners;
use crate::{Served, listen_with, message};
use bson::{Document, doc};
use std::io;
use std::sync::Arc;

const SHARDS: &str = "shards";

/// Serves until the process is killed. `configuration` is `set/host:port,...`.
pub fn serve(configuration: &str, addresses: &[String], port: u16, manners: Manners) -> io::Result<()> {
    let router = Arc::new(Router { configuration: hosts(configuration), manners });
    for address in addresses {
        let router = router.clone();
        listen_with(address, port, move |stream| router.serve(stream))?;
    }
    loop {
        std::thread::park();
    }
}

fn hosts(set: &str) -> Vec<String> {
    let (_, hosts) = set.split_once('/').unwrap_or(("", set));
    hosts.split(',').map(str::to_string).collect()
}

/// The member that takes writes, with a connection to it.
fn primary(hosts: &[String]) -> Option<Peer> {
    hosts.iter().find_map(|host| {
        let mut peer = Peer::new(host);
        // Members of every age know this one.
        let answer = peer.ask(&doc! { "isMaster": 1 }).ok()?;
        answer.get_bool("ismaster").unwrap_or(false).then_some(peer)
    })
}

struct Router {
    configuration: Vec<String>,
    manners: Manners,
}

impl Router {
    fn serve(&self, mut stream: Box<dyn Served>) {
        let mut upstream = None;
        while let Ok(request) = message::read(&mut stream) {
            let Some(answer) = self.answer(&request.command, &mut upstream) else { return };
            if request.expects_answer && message::write(&mut stream, request.id, &answer).is_err() {
                return;
            }
        }
    }

    /// `None` closes the connection: what was sent on may have happened.
    fn answer(&self, command: &Document, upstream: &mut Option<Peer>) -> Option<Document> {
        match command.keys().next().map(String::as_str).unwrap_or_default() {
            name if !self.manners.knows(name) => Some(unknown(name)),
            "hello" | "isMaster" | "ismaster" => Some(doc! {
                "ok": 1.0, "isWritablePrimary": true, "ismaster": true, "msg": "isdbgrid",
                "maxWireVersion": if self.manners == Manners::V4_0 { 7 } else { 21 },
                "minWireVersion": 0, "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000,
                "maxWriteBatchSize": 100_000, "logicalSessionTimeoutMinutes": 30, "readOnly": false,
                "msgFromTipover": "this is not MongoDB",
            }),
            "ping" => Some(doc! { "ok": 1.0 }),
            "addShard" => Some(self.add(command)),
            _ => self.pass_on(command, upstream),
        }
    }

    fn add(&self, command: &Document) -> Document {
        let address = command.get_str("addShard").unwrap_or_default();
        let name = command.get_str("name").or(command.get_str("addShard")).unwrap_or_default();
        let shard = doc! { "_id": name, "host": address };
        let upsert = doc! { "update": SHARDS, "$db": "config", "writeConcern": { "w": "majority" },
        "updates": [{ "q": { "_id": name }, "u": { "$set": { "host": address } }, "upsert": true }] };
        let told = primary(&self.configuration).map(|mut peer| peer.ask(&upsert));
        match told {
            Some(Ok(answer)) if answer.get_f64("ok").is_ok_and(|ok| ok == 1.0) => {
                doc! { "ok": 1.0, "shardAdded": shard.get_str("_id").unwrap_or_default() }
            }
            _ => failure(133, "FailedToSatisfyReadPreference", "the config servers have no primary"),
        }
    }

    fn pass_on(&self, command: &Document, upstream: &mut Option<Peer>) -> Option<Document> {
        if upstream.is_none() {
            *upstream = self.first_shard();
        }
        let Some(peer) = upstream else {
            return Some(failure(133, "FailedToSatisfyReadPreference", "no shard has a primary"));
        };
        let answer = peer.forward(command).ok()?;
        // Whoever says so is no primary any more.
        if answer.get_i32("code").is_ok_and(|code| [10107, 11602, 13435].contains(&code)) {
            *upstream = None;
        }
        Some(answer)
    }

    fn first_shard(&self) -> Option<Peer> {
        let find = doc! { "find": SHARDS, "$db": "config", "sort": { "_id": 1 }, "limit": 1 };
        let found = primary(&self.configuration)?.ask(&find).ok()?;
        let batch = found.get_document("cursor").ok()?.get_array("firstBatch").ok()?.clone();
        let first = batch.first()?.as_document()?.get_str("host").ok()?.to_string();
        primary(&hosts(&first))
    }
}
