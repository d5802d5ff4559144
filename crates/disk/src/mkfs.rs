//! Making a file system that leaves nothing to do in the background: the device must be quiet when the
//! load is.

use crate::mount::Filesystem;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    /// The program's path; `sbin` is looked at too, because users often have it not in their `PATH`.
    pub fn find_tool(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let sbin = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
        std::env::split_paths(&path).chain(sbin).map(|d| d.join(self.tool())).find(|p| p.is_file())
    }

    /// Makes one on `device`.
    pub(crate) fn make(self, device: &Path) -> Result<(), String> {
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
        let output = command.arg(device).output().map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{}: {}", self.tool(), String::from_utf8_lossy(&output.stderr).trim()))
    }
}
