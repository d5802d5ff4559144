//! Settings of the kernel, and of the device under a folder, that vendors' production notes speak of.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tipover_core::machine::{BlockDevice, KernelSettings};
use tipover_core::units::Bytes;

/// From `/proc/sys/vm` and the modules; ratios are of `memory`.
pub fn settings(memory: Bytes) -> KernelSettings {
    let number = |name: &str| -> Option<u64> {
        std::fs::read_to_string(format!("/proc/sys/vm/{name}")).ok()?.trim().parse().ok()
    };
    // One of the two is 0, and the other counts.
    let bytes = |bytes: &str, ratio: &str| match number(bytes) {
        Some(bytes) if bytes > 0 => Some(Bytes(bytes)),
        _ => number(ratio).map(|ratio| Bytes((memory.0 as f64 * ratio as f64 / 100.0) as u64)),
    };
    KernelSettings {
        swappiness: number("swappiness").map(|n| n as u32),
        dirty_background: bytes("dirty_background_bytes", "dirty_background_ratio"),
        dirty_most: bytes("dirty_bytes", "dirty_ratio"),
        zone_reclaim: number("zone_reclaim_mode").map(|n| n as u32),
        fuse_ring: match tipover_disk::ring_state() {
            (switched_on, None) => Some(switched_on),
            (_, Some(_)) => None,
        },
    }
}

/// The device under `folder`; `None` where there is none, as under tmpfs or overlay.
pub fn device_under(folder: &Path) -> Option<BlockDevice> {
    let device = std::fs::metadata(folder).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let system = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    // A partition has its queue in its disk.
    let disk = if system.join("queue").exists() { system.as_path() } else { system.parent()? };
    let read = |name: &str| -> Option<String> {
        let text = std::fs::read_to_string(disk.join("queue").join(name)).ok()?;
        Some(text.trim().to_string())
    };
    let scheduler = read("scheduler").map(|text| super::chosen(&text).unwrap_or(text));
    let readahead = read("read_ahead_kb").and_then(|kib| kib.parse().ok()).map(Bytes::kib);
    let real = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    Some(BlockDevice {
        name: system.file_name()?.to_str()?.to_string(),
        scheduler,
        readahead,
        write_cache: read("write_cache"),
        mount_options: mount_options(&mounts, &real).unwrap_or_default(),
    })
}

/// Options of the mount that holds `path`, its own and its filesystem's.
fn mount_options(mountinfo: &str, path: &Path) -> Option<String> {
    Some(super::mount_of(mountinfo, path)?.options.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_those_of_the_mount_above() {
        let mounts = "1 0 8:1 / / rw,relatime - ext4 a rw,errors=remount-ro\n\
                      2 1 8:2 / /data rw,noatime - xfs b rw,nobarrier\n";
        assert_eq!(mount_options(mounts, Path::new("/data/x")).as_deref(), Some("rw,noatime,rw,nobarrier"));
        assert_eq!(
            mount_options(mounts, Path::new("/home")).as_deref(),
            Some("rw,relatime,rw,errors=remount-ro")
        );
        assert_eq!(mount_options("", Path::new("/")), None);
    }

    #[test]
    fn this_kernel_can_be_asked() {
        let settings = settings(Bytes::gib(10));
        assert!(
            settings.swappiness.is_some() && settings.dirty_most >= settings.dirty_background,
            "{settings:?}"
        );
        // What lies under the temporary folder is this machine's affair; looking must not fail.
        let _ = device_under(&std::env::temp_dir());
        assert_eq!(device_under(Path::new("/proc")), None, "no device is under a made-up filesystem");
    }
}
