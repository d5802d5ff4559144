//! A request of the ring without a kernel.

use super::MAX_WRITE;
use super::relay;
use super::wire::{self, InHeader};

/// The most of a message that goes to `fuser` at once, in this trial.
const MOST: usize = 512;

/// Reads `bytes` as an entry of the ring, header and payload, as a queue does and hands it on; and as a
/// message that came through the device.
pub fn ring(bytes: &[u8]) {
    let mut header = [0; wire::ENTRY_HEADER];
    let (head, payload) = bytes.split_at(bytes.len().min(wire::ENTRY_HEADER));
    header[..head.len()].copy_from_slice(head);
    let request = InHeader::read(&header);
    let (_, claimed) = wire::commit_and_payload(&header);
    let payload = &payload[..claimed.min(MAX_WRITE).min(payload.len())];
    let arguments = &header[wire::OPERATION..2 * wire::OPERATION];
    let message = relay::message(&request, &header, arguments, payload);
    assert!(message.len() <= wire::IN_HEADER + wire::OPERATION + payload.len());
    assert_eq!(InHeader::read(&message), request, "what is handed on is the same request");
    let mut answered = header;
    wire::answer(&mut answered, request.unique, 0, payload.len());
    assert_eq!(wire::commit_and_payload(&answered).1, payload.len());
    if bytes.len() > wire::IN_HEADER + 8 {
        let parts = wire::split_forgets(bytes, MOST);
        assert!(parts.iter().all(|part| part.len() <= MOST && InHeader::read(part).length == part.len()));
    }
    let _ = wire::agreed(bytes);
}
