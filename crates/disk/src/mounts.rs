//! What is mounted where, as the kernel lists it, and how to take it away.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount, as a line of `/proc/self/mountinfo` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Minor device number: a FUSE mount's settings are in `/sys/class/bdi/0:<minor>`.
    pub minor: u32,
    /// The folder inside the mounted file system that is its root.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// `ext4`, `cgroup2`, `fuse.tipover`.
    pub filesystem: String,
    /// `/dev/loop3`, `tipover-...`.
    pub source: String,
    /// Options of the mount and of the file system under it, in that order.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether it refuses writes.
    pub fn read_only(&self) -> bool {
        self.options.first().is_some_and(|first| first == "ro")
    }
}

/// All mounts that this process sees, oldest first.
pub(crate) fn all() -> Vec<Mount> {
    parse_mountinfo(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
}

/// All mounts in `/proc/self/mountinfo`; lines that do not look like one are skipped.
pub fn parse_mountinfo(text: &[u8]) -> Vec<Mount> {
    text.split(|b| *b == b'\n').filter_map(parse).collect()
}

/// The newest mount at `target`, if there is one. The path is compared as text and never looked up: looking
/// at a mount whose server died would fail, and at one whose server hangs would hang.
pub(crate) fn at(target: &Path) -> Option<Mount> {
    all().into_iter().rev().find(|mount| mount.point == target)
}

fn parse(line: &[u8]) -> Option<Mount> {
    // "36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/vda rw,errors=continue"
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let separator = fields.iter().position(|f| *f == b"-")?;
    let text = |field: &[u8]| String::from_utf8_lossy(&unescape(field)).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescape(field)));
    let of_filesystem: &[u8] = fields.get(separator + 3).copied().unwrap_or_default();
    let options = [text(fields.get(5)?), text(of_filesystem)];
    Some(Mount {
        minor: text(fields.get(2)?).split(':').nth(1)?.parse().ok()?,
        root: path(fields.get(3)?),
        point: path(fields.get(4)?),
        filesystem: text(fields.get(separator + 1)?),
        source: text(fields.get(separator + 2)?),
        options: options.iter().flat_map(|options| options.split(',')).map(Into::into).collect(),
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
    use proptest::prelude::*;

    #[test]
    fn mounts_are_read() {
        let text =
            b"36 25 0:47 / /mnt/with\\040blank rw,nosuid shared:1 - fuse.tipover tipover-1-2 rw,user_id=0\n\
                     35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                     40 27 0:50 /sub /mnt/x ro - ext4 /dev/vda rw\nnonsense\n";
        let mounts = parse_mountinfo(text);
        assert_eq!(mounts.len(), 3);
        let first = (mounts[0].minor, mounts[0].filesystem.as_str(), mounts[0].source.as_str());
        assert_eq!(first, (47, "fuse.tipover", "tipover-1-2"));
        assert_eq!(mounts[0].point, Path::new("/mnt/with blank"));
        assert!(mounts[1].options.contains(&"memory".to_string()));
        assert!(mounts[2].read_only() && !mounts[1].read_only());
        assert_eq!(parse(b""), None);
        assert!(all().iter().any(|mount| mount.point == Path::new("/proc")));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PC\n\\\\]*") {
            let _ = parse_mountinfo(text.as_bytes());
        }
    }
}
