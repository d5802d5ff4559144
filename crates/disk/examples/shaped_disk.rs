//! Mounts a shaped disk and holds it: `shaped_disk /mnt/point iops=600,latency=7ms [block|file] [seconds]`.

use std::path::PathBuf;
use std::time::Duration;
use tipover_core::units::Bytes;
use tipover_disk::{BackingChoice, DaemonCommand, Disk, Filesystem, Mode, MountOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|a| a == "disk-daemon") {
        tipover_disk::serve();
        return Ok(());
    }
    let argument = |n: usize, default: &str| arguments.get(n).map_or(default.to_string(), String::clone);
    let disk = Disk::mount(MountOptions {
        mode: if argument(2, "block") == "file" { Mode::File } else { Mode::Block },
        filesystem: Filesystem::Ext4,
        size: Bytes::gib(1),
        backing: BackingChoice::Memory,
        mountpoint: PathBuf::from(argument(0, "/mnt/shaped")),
        spec: argument(1, "unlimited").parse()?,
        readahead: Bytes(0),
        power_cuts: false,
        transport: tipover_disk::Transport::Auto,
        daemon: DaemonCommand::this_program(&["disk-daemon"]),
    })?;
    println!("{} on {:?}, daemon {}", disk.path().display(), disk.block_device(), disk.daemon_pid());
    println!("{:?}", disk.privileges());
    println!("{:?}", disk.transport_floor());
    println!("{:?}", disk.calibration());
    let before = disk.counters()?;
    std::thread::sleep(Duration::from_secs(argument(3, "10").parse()?));
    println!("{:?}", disk.counters()?.rates_since(&before));
    println!("daemon CPU {:?}", disk.daemon_cpu()?);
    disk.unmount()?;
    Ok(())
}
