//! Which control group is ours, and where it can be seen.

use std::path::{Component, Path, PathBuf};
use tipover_disk::Mount;

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
    fn a_container_sees_its_group_under_its_own_mount() {
        let mount = |root: &str| Mount {
            minor: 0,
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
            let _ = parse_own_groups(&text);
        }
    }
}
