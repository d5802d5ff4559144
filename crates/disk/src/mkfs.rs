//! Making a file system that leaves nothing to do in the background: the device must be quiet when the
//! load is.

use crate::protocol::Filesystem;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tipover_core::units::Bytes;

impl Filesystem {
    /// The program that makes it.
    pub fn tool(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "mkfs.ext4",
            Filesystem::Xfs => "mkfs.xfs",
        }
    }
    /// The Debian package that has the program.
    pub fn package(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "e2fsprogs",
            Filesystem::Xfs => "xfsprogs",
        }
    }
    /// As `mount -t` wants it.
    pub fn kind(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "ext4",
            Filesystem::Xfs => "xfs",
        }
    }
    /// The smallest size that it can be made on, in bytes.
    pub fn least(self) -> u64 {
        match self {
            Filesystem::Ext4 => 16 << 20,
            Filesystem::Xfs => 300 << 20,
        }
    }
    /// About how much is written to make it on `size`: more than a machine has cannot be meant.
    pub fn written(self, size: Bytes) -> Bytes {
        match self {
            // An inode of 256 bytes for each 64 KiB, all zeroed, and a journal of at most 1 GiB.
            Filesystem::Ext4 => Bytes(size.0 / 256 + (size.0 / 64).min(1 << 30)),
            // A log of at most 2 GiB, and some blocks for each of the groups of at most 1 TiB.
            Filesystem::Xfs => Bytes((size.0 / 2048).clamp(64 << 20, 2 << 30) + (size.0 >> 40) * (64 << 10)),
        }
    }
    /// The program's path; `sbin` is looked at too, because users often have it not in their `PATH`.
    pub fn find_tool(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let sbin = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
        std::env::split_paths(&path).chain(sbin).map(|d| d.join(self.tool())).find(|p| p.is_file())
    }

    /// Makes one on `device`, unless `unwanted` meanwhile: nobody waits for an end that may be hours away.
    pub(crate) fn make(self, device: &Path, unwanted: &dyn Fn() -> bool) -> Result<(), String> {
        let tool = self.find_tool().ok_or_else(|| format!("{} is not installed", self.tool()))?;
        let mut command = Command::new(tool);
        match self {
            // Lazy initialisation would write for minutes after the mount; few inodes, because each takes
            // space.
            Filesystem::Ext4 => command
                .args(["-q", "-F", "-b", "4096", "-m", "0", "-i", "65536"])
                .args(["-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]),
            Filesystem::Xfs => command.args(["-q", "-f", "-K"]),
        };
        command.arg(device).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // Should we be killed, its device fails under it, and it ends too.
        let mut maker = command.spawn().map_err(|e| e.to_string())?;
        let mut pause = Duration::from_micros(500);
        let status = loop {
            match maker.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if unwanted() => {
                    let _ = maker.kill();
                    let _ = maker.wait();
                    return Err(format!("{} was ended: nobody waits for it any more", self.tool()));
                }
                Ok(None) => std::thread::sleep(pause),
                Err(e) => return Err(e.to_string()),
            }
            pause = (pause * 2).min(Duration::from_millis(20));
        };
        if status.success() {
            return Ok(());
        }
        // It says little, which the pipe held meanwhile.
        let mut said = Vec::new();
        let _ = maker.stderr.take().map(|mut stderr| stderr.read_to_end(&mut said));
        Err(format!("{}: {}", self.tool(), String::from_utf8_lossy(&said).trim()))
    }
}
