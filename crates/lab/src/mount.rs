//! Reads `/proc/self/mountinfo` and `/proc/self/cgroup`: where the control groups are, and which is ours.

use std::path::{Component, Path, PathBuf};

/// One line of `/proc/self/mountinfo`, as far as we need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The directory inside the mounted filesystem that forms this mount's root.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
    /// `ext4`, `cgroup2`, `fuse.tipover`, ...
    pub filesystem: String,
    /// The device or whatever stands in its place.
    pub source: String,
    /// Options of the mount and of the filesystem under it, in that order.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether the mount refuses writes.
    pub fn read_only(&self) -> bool {
        self.options.first().is_some_and(|first| first == "ro")
    }
}

/// All mounts in `/proc/self/mountinfo`; lines that do not look like one are skipped.
pub fn parse_mountinfo(text: &str) -> Vec<Mount> {
    text.lines().filter_map(mount).collect()
}

fn mount(line: &str) -> Option<Mount> {
    // "36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/vda rw,errors=continue"
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point, options) = (before.next()?, before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (filesystem, source) = (after.next()?, after.next()?);
    Some(Mount {
        root: unescape(root).into(),
        point: unescape(point).into(),
        filesystem: filesystem.into(),
        source: unescape(source),
        options: options.split(',').chain(after.next().unwrap_or("").split(',')).map(Into::into).collect(),
    })
}

/// The kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let code = (bytes[i] == b'\\')
            .then(|| bytes.get(i + 1..i + 4))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                i += 4;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Which group this process is in: controllers (empty for v2) and the path inside the hierarchy.
pub(crate) fn parse_own_groups(text: &str) -> Vec<(Vec<String>, PathBuf)> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            let path = parts.next()?;
            let controllers = controllers.split(',').filter(|c| !c.is_empty()).map(Into::into).collect();
            Some((controllers, path.into()))
        })
        .collect()
}

/// Where the group with path `own` shows up under `mount`: its mount point if the group is outside of what is
/// mounted (a container with a namespace of its own).
pub(crate) fn visible(mount: &Mount, own: &Path) -> PathBuf {
    let outside = own.components().any(|part| part == Component::ParentDir);
    match own.strip_prefix(&mount.root) {
        Ok(inside) if !outside => mount.point.join(inside),
        _ => mount.point.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts_are_read() {
        let text = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                    35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                    40 27 0:50 /sub /mnt/with\\040space ro - fuse.tipover tipover rw,user_id=0\n\
                    nonsense\n";
        let mounts = parse_mountinfo(text);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[1].filesystem, "cgroup");
        assert!(mounts[1].options.contains(&"memory".to_string()));
        assert_eq!(mounts[2].point, Path::new("/mnt/with space"));
        assert!(mounts[2].read_only() && !mounts[1].read_only());
    }

    #[test]
    fn a_container_sees_its_group_under_its_own_mount() {
        let mount = |root: &str| Mount {
            root: root.into(),
            point: "/sys/fs/cgroup/memory".into(),
            filesystem: "cgroup".into(),
            source: "cgroup".into(),
            options: vec![],
        };
        let at = |root: &str, own: &str| visible(&mount(root), Path::new(own));
        assert_eq!(at("/", "/"), Path::new("/sys/fs/cgroup/memory/"));
        assert_eq!(at("/", "/user/7"), Path::new("/sys/fs/cgroup/memory/user/7"));
        assert_eq!(at("/docker/abc", "/docker/abc"), Path::new("/sys/fs/cgroup/memory/"));
        assert_eq!(at("/docker/abc", "/docker/abc/x"), Path::new("/sys/fs/cgroup/memory/x"));
        assert_eq!(at("/docker/abc", "/other"), Path::new("/sys/fs/cgroup/memory"));
        assert_eq!(at("/", "/../sibling"), Path::new("/sys/fs/cgroup/memory"));
    }

    #[test]
    fn own_groups_are_read() {
        let groups = parse_own_groups("4:memory:/a/b\n1:cpu,cpuacct:/\n9:name=systemd:/\n0::/user:odd\n");
        assert_eq!(groups[0], (vec!["memory".into()], "/a/b".into()));
        assert_eq!(groups[1].0, ["cpu", "cpuacct"]);
        assert_eq!(groups[3], (vec![], "/user:odd".into()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[\\PC\n\\\\]*") {
            let _ = parse_mountinfo(&text);
            let _ = parse_own_groups(&text);
            let _ = unescape(&text);
        }
    }
}
