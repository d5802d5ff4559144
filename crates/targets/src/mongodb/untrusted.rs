//! What a server may say to this client, without a socket.

use super::cluster::Hello;
use super::message::{self, Writer};
use super::options::Options;
use super::reply::Reply;
use super::scram::{Exchange, Mechanism};
use super::session::cursor;
use super::statistics::Statistics;
use super::transfer::{Broken, Next, Numbered, Transfer};
use bson::RawDocument;
use tipover_core::op::{OpKind, Outcome};

/// Reads `bytes` as messages, one after the other, as everything that a server's answer can be; what they
/// answer in a transfer of the bank is believed until it is over.
pub fn mongodb(mut bytes: &[u8]) {
    let options = Options::parse("mongodb://localhost/?w=majority").expect("a constant");
    let mut transfer = Transfer::new(1, 2, 3, 4);
    let mut writer = Writer::default();
    let (mut commits, mut in_doubt) = (0, false);
    while let Ok(Some(length)) = message::length(bytes) {
        let Some((message, rest)) = bytes.split_at_checked(length) else { return };
        bytes = rest;
        let Ok(incoming) = message::parse(message) else { continue };
        read(incoming.body);
        transfer.write(&mut writer, &options, Numbered { logical: &[7; 16], number: 1 });
        message::parse(writer.bytes()).expect("what is sent is a message");
        commits += u32::from(transfer.commits());
        in_doubt |= transfer.commits() && incoming.response_to < 0;
        let next = match incoming.response_to {
            // As if the connection had broken now and then.
            i32::MIN..0 => transfer.broken(Broken::Lost),
            _ => transfer.answered(incoming.body),
        };
        if let Next::Finished(outcome) = next {
            let certain = is_certainly_over(incoming.body);
            assert!(
                !matches!(outcome, Outcome::Refused(_)) || !in_doubt || certain || commits == 0,
                "a commit in doubt became a refusal: {:?}",
                incoming.body
            );
            (transfer, commits, in_doubt) = (Transfer::new(1, 2, 3, 4), 0, false);
        }
    }
}

/// Whether the server has said of a commit that it is not done, and will not be.
fn is_certainly_over(body: &RawDocument) -> bool {
    let mut labels = body.get_array("errorLabels").ok().into_iter().flatten().flatten();
    labels.any(|label| label.as_str() == Some("TransientTransactionError"))
        && !matches!(body.get("writeConcernError"), Ok(Some(_)))
}

fn read(body: &RawDocument) {
    let answer = Reply::read(body);
    for kind in [OpKind::Read, OpKind::Update, OpKind::InsertMany, OpKind::Insert] {
        let _ = answer.outcome(kind, 3);
    }
    if let Some(fault) = &answer.fault {
        let _ = (fault.is_change_of_primary(), fault.is_retryable_write());
    }
    let _ = (Hello::read(body), cursor(body));
    let statistics = Statistics::of(Some(body));
    assert_eq!(statistics.values(Some(body)).len(), statistics.metrics().len() - statistics_of_ours());
    let first = body.get_binary("payload").map(|binary| binary.bytes).unwrap_or_default();
    let first = std::str::from_utf8(first).unwrap_or_default();
    let mut exchange = Exchange::new(Mechanism::Sha256, "anna", "abc".into());
    // The rounds are not walked: a million of them take a second, and are allowed.
    if exchange.prove(first, |_, _| vec![1; 32]).is_ok() {
        let _ = exchange.is_proved(first);
    }
}

/// How many metrics are counted by our sessions.
fn statistics_of_ours() -> usize {
    super::statistics::client(&Default::default()).len()
}
