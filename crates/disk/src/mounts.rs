//! What is mounted where, as the kernel lists it, and how to take it away.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Minor device number: a FUSE mount's settings are in `/sys/class/bdi/0:<minor>`.
    pub minor: u32,
    /// Where.
    pub target: PathBuf,
    /// `ext4`, `fuse.tipover`.
    pub kind: String,
    /// `/dev/loop3`, `tipover-...`.
    pub source: String,
}

/// All mounts that this process sees, oldest first.
pub(crate) fn all() -> Vec<Entry> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|b| *b == b'\n').filter_map(parse).collect()
}

/// The newest mount at `target`, if there is one. The path is compared as text and never looked up: looking
/// at a mount whose server died would fail, and at one whose server hangs would hang.
pub(crate) fn at(target: &Path) -> Option<Entry> {
    all().into_iter().rev().find(|entry| entry.target == target)
}

fn parse(line: &[u8]) -> Option<Entry> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let separator = fields.iter().position(|f| *f == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    Some(Entry {
        minor: text(fields.get(2)?).split(':').nth(1)?.parse().ok()?,
        target: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        kind: text(fields.get(separator + 1)?),
        source: text(fields.get(separator + 2)?),
    })
}

/// The kernel writes blanks and backslashes as `\040`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(byte) if first == b'\\' => {
                plain.push(byte);
                rest = &tail[3..];
            }
            _ => {
                plain.push(first);
                rest = tail;
            }
        }
    }
    plain
}

/// Takes the mount at `target` away from the tree now; whoever still uses it keeps it until they close.
pub(crate) fn detach(target: &Path) -> io::Result<()> {
    use rustix::mount::{UnmountFlags, unmount};
    match unmount(target, UnmountFlags::DETACH) {
        // Not root: the setuid helper may do it.
        Err(rustix::io::Errno::PERM) => {
            let done = std::process::Command::new("fusermount3").arg("-uz").arg("--").arg(target).output()?;
            if done.status.success() {
                Ok(())
            } else {
                Err(io::Error::other(String::from_utf8_lossy(&done.stderr).trim().to_string()))
            }
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_understood() {
        let line =
            b"36 25 0:47 / /mnt/with\\040blank rw,nosuid shared:1 - fuse.tipover tipover-1-2 rw,user_id=0";
        let entry = parse(line).unwrap();
        assert_eq!(entry.target, Path::new("/mnt/with blank"));
        assert_eq!(
            (entry.minor, entry.kind.as_str(), entry.source.as_str()),
            (47, "fuse.tipover", "tipover-1-2")
        );
        assert_eq!(parse(b""), None);
        assert!(all().iter().any(|entry| entry.target == Path::new("/proc")));
    }
}
