//! A shaped disk, from the words of a plan or a recipe to what is mounted.

use std::path::PathBuf;
use tipover_core::device;
use tipover_core::experiment::{self, DiskMode, DiskSpec};
use tipover_disk::{BackingChoice, DaemonCommand, Filesystem, Mode, MountOptions, Transport};

/// What to mount for `spec`, not shaped yet, so that loading is fast; `None` where it wants no disk.
pub fn mount_options(
    spec: &DiskSpec,
    backing: BackingChoice,
    mountpoint: PathBuf,
    daemon: DaemonCommand,
) -> Option<MountOptions> {
    let root = rustix::process::geteuid().is_root();
    let mode = match spec.mode {
        DiskMode::None => return None,
        DiskMode::Auto if root => Mode::Block,
        DiskMode::Auto => Mode::File,
        DiskMode::Block => Mode::Block,
        DiskMode::File => Mode::File,
    };
    Some(MountOptions {
        mode,
        filesystem: match spec.filesystem {
            experiment::Filesystem::Ext4 => Filesystem::Ext4,
            experiment::Filesystem::Xfs => Filesystem::Xfs,
        },
        size: spec.size,
        backing,
        mountpoint,
        spec: device::Spec::default(),
        readahead: spec.readahead,
        power_cuts: false,
        transport: Transport::Auto,
        daemon,
    })
}
