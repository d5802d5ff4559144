//! FUSE over io_uring: a queue for each processor, answered where the request came from.
//!
//! On the classic way a read wakes a thread that waits in /dev/fuse, often on another processor, and its
//! answer is a system call more. Here a thread for each processor answers and waits in one call. Data
//! requests are answered from the ring; everything else goes on to `fuser` through a [`relay`].
//!
//! The protocol is in the kernel's `include/uapi/linux/fuse.h` and `Documentation/filesystems/fuse/
//! fuse-io-uring.rst`; Linux has it since 6.14, switched off.

mod queue;
mod relay;
mod reply;
pub(crate) mod untrusted;
mod uring;
pub(crate) mod wire;

pub(crate) use reply::{Via, errno};

use crate::privilege;
use crate::softirq::Softirqs;
use fuser::{BackgroundSession, Config, FileHandle, INodeNo, ReplyData, ReplyEmpty, ReplyWrite, Session};
use fuser::{SessionACL, WriteFlags};
use queue::Queue;
use relay::Relay;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, Error, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Of a queue's thread while the disk is shaped: that of the classic transport's workers.
const PRIORITY: i32 = privilege::WORKER_PRIORITY;

/// The largest write, and what an entry has room for.
pub(crate) const MAX_WRITE: usize = 1 << 20;

/// Requests that carry data or make it durable.
pub(crate) trait Hot: Send + Sync {
    /// Whether answers have a time of their own, or are due at once.
    fn is_shaped(&self) -> bool;
    fn read(&self, node: INodeNo, handle: FileHandle, offset: u64, size: u32, reply: Via<ReplyData>);
    fn write(
        &self,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        reply: Via<ReplyWrite>,
    );
    fn fsync(&self, node: INodeNo, handle: FileHandle, reply: Via<ReplyEmpty>);
}

/// The kernel's switch, for the whole machine. It is asked when a file system is mounted, and not again.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the kernel offers the ring to file systems that are mounted now; `None` if it does not know it.
pub(crate) fn is_offered() -> Option<bool> {
    std::fs::read_to_string(SWITCH).ok().map(|state| state.starts_with(['Y', '1']))
}

/// Whether this process may use io_uring at all: containers and `kernel.io_uring_disabled` forbid it.
pub(crate) fn is_allowed() -> io::Result<()> {
    uring::Uring::new(1).map(drop)
}

/// Keeps the switch on while it lives, and puts it back as it was. Others who do the same wait for their
/// turn.
pub(crate) struct SwitchedOn {
    switch: File,
    was_on: bool,
}

impl SwitchedOn {
    /// `note` is told before it is turned on, in case we do not live to turn it off.
    pub fn new(note: impl FnOnce() -> io::Result<()>) -> io::Result<SwitchedOn> {
        let mut switch = File::options().read(true).write(true).open(SWITCH)?;
        rustix::fs::flock(&switch, FlockOperation::LockExclusive)?;
        let was_on = is_offered() == Some(true);
        if !was_on {
            note()?;
            switch.write_all(b"Y")?;
        }
        Ok(SwitchedOn { switch, was_on })
    }
}

/// Turns it off after somebody who did not live to do so.
pub(crate) fn switch_off() -> io::Result<()> {
    let mut switch = File::options().write(true).open(SWITCH)?;
    rustix::fs::flock(&switch, FlockOperation::LockExclusive)?;
    switch.write_all(b"N")
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        if !self.was_on {
            let _ = self.switch.write_all(b"N");
        }
    }
}

/// How many queues the kernel wants: one for each processor that there may ever be.
fn possible_processors() -> io::Result<u16> {
    let ranges = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = ranges.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    last.map(|last| last + 1).ok_or_else(|| Error::other(format!("possible processors: {ranges:?}")))
}

/// Serves a connection to the kernel, not answered yet: data requests through the ring, everything else by
/// `filesystem`, which must ask for [`wire::OVER_IO_URING`]. `block_mode`: a loop device is the only client.
pub(crate) fn serve(
    device: Arc<OwnedFd>,
    filesystem: impl fuser::Filesystem,
    hot: &Arc<dyn Hot>,
    config: Config,
    block_mode: bool,
) -> io::Result<BackgroundSession> {
    let (relay, theirs) = Relay::new(device.clone())?;
    relay.begin()?;
    let acl = config.acl;
    let session = Session::from_fd(filesystem, theirs, acl, config)?;
    if !relay.agree()? {
        return Err(Error::other("the kernel does not offer FUSE over io_uring"));
    }
    let relay = Arc::new(relay);
    // The kernel holds all requests back until every queue is there.
    let (report, reports) = channel();
    let queues = possible_processors()?;
    for number in 0..queues {
        let (device, hot, relay, report) = (device.clone(), hot.clone(), relay.clone(), report.clone());
        std::thread::Builder::new().name(format!("ring-{number}")).spawn(move || {
            privilege::stay_on(number);
            let softirqs = block_mode.then(Softirqs::new).and_then(Result::ok);
            let queue = match Queue::new(number, device.as_raw_fd(), softirqs) {
                Ok(queue) => queue,
                Err(e) => return drop(report.send(Err(e))),
            };
            let _ = report.send(Ok(()));
            drop(report);
            if let Err(e) = queue.serve(&*hot, &relay) {
                eprintln!("tipover disk daemon: queue {number}: {e}");
            }
        })?;
    }
    for _ in 0..queues {
        reports.recv().unwrap_or_else(|_| Err(Error::other("a queue's thread is gone")))?;
    }
    let session = session.spawn()?;
    let back = relay.clone();
    let name = |name: &str| std::thread::Builder::new().name(name.into());
    name("ring-back").spawn(move || back.give_back())?;
    name("ring-on").spawn(move || relay.pass_on())?;
    Ok(session)
}

/// Mounts a file system of which nothing is known yet but the device through which it will be served.
pub(crate) fn mount(at: &Path, source: &str, acl: SessionACL) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::MountFlags;
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let others = if acl == SessionACL::Owner { "" } else { ",allow_other,default_permissions" };
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,subtype=tipover{others}", device.as_raw_fd());
    let options = std::ffi::CString::new(options).map_err(Error::other)?;
    let flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
    rustix::mount::mount(source, at, "fuse", flags, options.as_c_str())?;
    Ok(device)
}
