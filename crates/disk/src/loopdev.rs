//! Loop devices, by ioctl: a block device on top of a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CLR_FD: libc::c_ulong = 0x4C01;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const BLKFLSBUF: libc::c_ulong = 0x1261;

/// `struct loop_info64` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of the kernel.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const EMPTY: LoopInfo = LoopInfo {
    device: 0,
    inode: 0,
    rdevice: 0,
    offset: 0,
    size_limit: 0,
    number: 0,
    encrypt_type: 0,
    encrypt_key_size: 0,
    flags: 0,
    file_name: [0; 64],
    crypt_name: [0; 64],
    encrypt_key: [0; 32],
    init: [0; 2],
};

/// What stands at the front of the name that we give our loop devices; `losetup` shows the file, this is
/// for us.
const OURS: &str = "tipover:";

/// `/dev/loopN`.
pub(crate) fn device_path(number: u32) -> PathBuf {
    PathBuf::from(format!("/dev/loop{number}"))
}

/// `/sys/block/loopN/<attribute>`.
pub(crate) fn attribute(number: u32, attribute: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/loop{number}/{attribute}"))
}

fn ioctl(fd: RawFd, request: libc::c_ulong, argument: libc::c_ulong) -> io::Result<i32> {
    // SAFETY: the descriptor is open for the call's duration (borrowed by every caller), and each argument
    // below is either a plain number or the address of a struct of the kernel's layout that outlives the
    // call.
    let result = unsafe { libc::ioctl(fd, request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Number of a loop device that was free a moment ago; [`attach`] may still lose the race for it.
pub(crate) fn find_free() -> io::Result<u32> {
    let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
    Ok(ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE, 0)? as u32)
}

/// Puts device `number` on top of `image` with direct I/O, marked as belonging to mount `id`.
pub(crate) fn attach(number: u32, image: BorrowedFd<'_>, id: &str) -> io::Result<()> {
    let device = open(number, true)?;
    let mut info = LoopInfo { flags: LO_FLAGS_DIRECT_IO, ..EMPTY };
    let name = format!("{OURS}{id}");
    let length = name.len().min(info.file_name.len() - 1);
    info.file_name[..length].copy_from_slice(&name.as_bytes()[..length]);
    let config = LoopConfig { fd: image.as_raw_fd() as u32, block_size: 512, info, reserved: [0; 8] };
    ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config as libc::c_ulong)?;
    Ok(())
}

/// Detaches device `number`; while something still holds it, the kernel does so at its last close.
pub(crate) fn detach(number: u32) -> io::Result<()> {
    ioctl(open(number, false)?.as_raw_fd(), LOOP_CLR_FD, 0)?;
    Ok(())
}

/// Drops the device's own cached pages (a file system's metadata) that are clean and unused.
pub(crate) fn drop_buffers(device: &Path) -> io::Result<()> {
    ioctl(File::open(device)?.as_raw_fd(), BLKFLSBUF, 0)?;
    Ok(())
}

/// The mount that device `number` belongs to, if it is one of ours.
pub(crate) fn owner(number: u32) -> Option<String> {
    let device = open(number, false).ok()?;
    let mut info = EMPTY;
    ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info as libc::c_ulong).ok()?;
    let end = info.file_name.iter().position(|b| *b == 0)?;
    let name = std::str::from_utf8(&info.file_name[..end]).ok()?;
    Some(name.strip_prefix(OURS)?.to_string())
}

/// Numbers of all loop devices that have a file behind them.
pub(crate) fn attached() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let number = |name: String| name.strip_prefix("loop")?.parse().ok();
    entries
        .flatten()
        .filter(|entry| entry.path().join("loop/backing_file").exists())
        .filter_map(|entry| number(entry.file_name().into_string().ok()?))
        .collect()
}

fn open(number: u32, write: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(device_path(number))
}
