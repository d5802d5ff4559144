//! What FUSE's messages look like, as far as we read and write them ourselves: `include/uapi/linux/fuse.h`.
//! Numbers are in the machine's own order.

/// `FUSE_OVER_IO_URING`, among the flags of INIT.
pub(crate) const OVER_IO_URING: u64 = 1 << 41;

pub(super) const READ: u32 = 15;
pub(super) const WRITE: u32 = 16;
pub(super) const FSYNC: u32 = 20;
pub(super) const READDIR: u32 = 28;
pub(super) const BATCH_FORGET: u32 = 42;
pub(super) const READDIRPLUS: u32 = 44;

/// `FUSE_IO_URING_CMD_REGISTER`: an entry is there.
pub(super) const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: its request is answered, and it is there again.
pub(super) const COMMIT_AND_FETCH: u32 = 2;

/// `struct fuse_in_header`.
pub(super) const IN_HEADER: usize = 40;
/// `struct fuse_out_header`.
pub(super) const OUT_HEADER: usize = 16;
/// `struct fuse_uring_req_header`: a request's or an answer's header, what is particular to the operation,
/// and `struct fuse_uring_ent_in_out`.
pub(super) const ENTRY_HEADER: usize = 288;
/// Where the part begins that is particular to the operation.
pub(super) const OPERATION: usize = 128;
const COMMIT_ID: usize = 256 + 8;
const PAYLOAD: usize = 256 + 16;

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|n| bytes[at + n]))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|n| bytes[at + n]))
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_ne_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_ne_bytes());
}

/// `struct fuse_in_header`, as far as anybody here asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InHeader {
    /// Of the whole message.
    pub length: usize,
    pub opcode: u32,
    pub unique: u64,
    pub node: u64,
}

impl InHeader {
    pub fn read(bytes: &[u8]) -> InHeader {
        InHeader {
            length: u32_at(bytes, 0) as usize,
            opcode: u32_at(bytes, 4),
            unique: u64_at(bytes, 8),
            node: u64_at(bytes, 16),
        }
    }
}

/// Of a request in an entry: how to name it when it is answered, and how many bytes of payload it has.
pub(super) fn commit_and_payload(entry: &[u8]) -> (u64, usize) {
    (u64_at(entry, COMMIT_ID), u32_at(entry, PAYLOAD) as usize)
}

/// An answer in an entry, with `length` bytes of payload; `error` is zero or minus an error number.
pub(super) fn answer(entry: &mut [u8], unique: u64, error: i32, payload: usize) {
    put_u32(entry, 0, (OUT_HEADER + payload) as u32);
    put_u32(entry, 4, error as u32);
    put_u64(entry, 8, unique);
    put_u32(entry, PAYLOAD, payload as u32);
}

/// `struct fuse_write_out`: how much was written.
pub(super) fn written(payload: &mut [u8], size: u32) -> usize {
    put_u32(payload, 0, size);
    put_u32(payload, 4, 0);
    8
}

/// Tells the kernel to forget a file's cached pages.
pub(crate) fn forget_pages(node: u64) -> [u8; OUT_HEADER + 24] {
    const INVAL_INODE: u32 = 2;
    let mut message = [0; OUT_HEADER + 24];
    put_u32(&mut message, 0, (OUT_HEADER + 24) as u32);
    put_u32(&mut message, 4, INVAL_INODE);
    // A notification has no unique number; offset and length of zero are the whole file.
    put_u64(&mut message, OUT_HEADER, node);
    message
}

/// The flags that an answer to INIT agrees to.
pub(super) fn agreed(answer: &[u8]) -> u64 {
    const INIT_EXT: u64 = 1 << 30;
    if answer.len() < OUT_HEADER + 36 || u32_at(answer, 4) != 0 {
        return 0;
    }
    let low = u64::from(u32_at(answer, OUT_HEADER + 12));
    if low & INIT_EXT == 0 { low } else { low | u64::from(u32_at(answer, OUT_HEADER + 32)) << 32 }
}

/// Cuts one BATCH_FORGET into messages of at most `most` bytes: as much as fits is what the kernel sends.
pub(super) fn split_forgets(message: &[u8], most: usize) -> Vec<Vec<u8>> {
    const FRONT: usize = IN_HEADER + 8;
    const ONE: usize = 16;
    let count = u32_at(message, IN_HEADER) as usize;
    let end = (FRONT + count * ONE).min(message.len());
    message[FRONT.min(end)..end]
        .chunks((most - FRONT) / ONE * ONE)
        .map(|some| {
            let mut part = [&message[..FRONT], some].concat();
            let length = part.len() as u32;
            put_u32(&mut part, 0, length);
            put_u32(&mut part, IN_HEADER, (some.len() / ONE) as u32);
            part
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_are_split_and_none_is_lost() {
        let mut message = vec![0; IN_HEADER + 8];
        put_u32(&mut message, 4, BATCH_FORGET);
        put_u32(&mut message, IN_HEADER, 100);
        for node in 0..100_u64 {
            message.extend_from_slice(&node.to_ne_bytes());
            message.extend_from_slice(&1_u64.to_ne_bytes());
        }
        let parts = split_forgets(&message, 512);
        let mut nodes = Vec::new();
        for part in &parts {
            assert!(part.len() <= 512 && InHeader::read(part).length == part.len());
            let count = u32_at(part, IN_HEADER) as usize;
            nodes.extend((0..count).map(|n| u64_at(part, IN_HEADER + 8 + n * 16)));
        }
        assert_eq!(nodes, (0..100).collect::<Vec<u64>>());
        assert!(parts.len() > 3);
    }

    #[test]
    fn an_answer_to_init_is_understood() {
        let mut answer = vec![0; OUT_HEADER + 64];
        put_u32(&mut answer, OUT_HEADER + 12, 1 << 30);
        put_u32(&mut answer, OUT_HEADER + 32, 1 << 9);
        assert_eq!(agreed(&answer), OVER_IO_URING | 1 << 30);
        put_u32(&mut answer, OUT_HEADER + 12, 0);
        assert_eq!(agreed(&answer), 0, "the second half counts only if the first says so");
        assert_eq!(agreed(&answer[..OUT_HEADER]), 0);
    }

    #[test]
    fn an_answer_in_an_entry_has_its_parts_in_place() {
        let mut entry = vec![0xFF; ENTRY_HEADER];
        answer(&mut entry, 77, -5, 9);
        assert_eq!((u32_at(&entry, 0), u32_at(&entry, 4) as i32, u64_at(&entry, 8)), (25, -5, 77));
        assert_eq!(commit_and_payload(&entry).1, 9);
    }
}
