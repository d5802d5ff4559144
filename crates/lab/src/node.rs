//! A node: a server with limits, a disk and an address of its own, and the ways to break it.
//!
//! Every fault returns what it hit, because a fault that hit nothing proves nothing.

use crate::network::Member;
use crate::recipe::{Server, ServerError, ServerOptions, Stop};
use crate::{Group, LimitError, Limits, Scratch, Signal};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, getpeername};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tipover_core::device::{CutReport, PowerCut};
use tipover_core::schedule::{Effect, Outage};
use tipover_core::units::{Bytes, Ratio};
use tipover_disk::{Disk, DiskError, MountError, MountOptions};

/// What a node is made of.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// Its name.
    pub name: String,
    /// Memory and CPU of all its processes together.
    pub limits: Limits,
    /// Its disk; the mount point is chosen by the node. `None`: a throw-away folder on this machine's disk.
    pub disk: Option<MountOptions>,
    /// A second disk, for its server's journal alone.
    pub journal: Option<MountOptions>,
    /// Its place in a shaped network.
    pub member: Option<Member>,
    /// Its address without a shaped network: one of the loopback's.
    pub loopback: Option<Ipv4Addr>,
}

/// Why a node could not be made or broken. What a database does to its clients is never here.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Its limits.
    #[error("node {node}: {source}")]
    Limits {
        /// Which node.
        node: String,
        /// What is wrong.
        source: LimitError,
    },
    /// Its disk could not be mounted.
    #[error("node {node}: {source}")]
    Mount {
        /// Which node.
        node: String,
        /// What is wrong.
        source: MountError,
    },
    /// Its disk does not obey.
    #[error("node {node}: {source}")]
    Disk {
        /// Which node.
        node: String,
        /// What is wrong.
        source: DiskError,
    },
    /// Its server could not be made or started.
    #[error("node {node}: {source}")]
    Server {
        /// Which node.
        node: String,
        /// What is wrong.
        source: ServerError,
    },
    /// The kernel refused.
    #[error("node {node}: {what}: {source}")]
    Kernel {
        /// Which node.
        node: String,
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// This node cannot do that.
    #[error("node {node}: {words}")]
    Senseless {
        /// Which node.
        node: String,
        /// Why, and what to do.
        words: String,
    },
}

/// A node. Dropping it kills what runs on it and takes its disk away.
#[derive(Debug)]
pub struct Node {
    // In this order they are dropped: processes, their disk, their group (whose memory is the disk's pages),
    // and the folder that all lived in.
    server: Option<Server>,
    disk: Option<Disk>,
    journal: Option<Disk>,
    group: Option<Arc<Group>>,
    scratch: Scratch,
    options: NodeOptions,
    paused: bool,
    squeezed: Option<Squeeze>,
    /// Connections that ended with its power, kept until it may reset them.
    ended: Vec<OwnedFd>,
    /// Bytes of its data files that were copied from it.
    copied: Bytes,
}

#[derive(Debug, Clone, Copy)]
struct Squeeze {
    throttled: Duration,
    memory: bool,
    cpus: bool,
}

impl Node {
    /// Makes one, without a server yet.
    pub fn new(options: NodeOptions) -> Result<Node, NodeError> {
        let node = options.name.clone();
        let scratch = Scratch::create().map_err(|source| NodeError::Kernel {
            node: node.clone(),
            what: "its folder",
            source,
        })?;
        let group = match Group::create(&node, &options.limits) {
            Ok(group) => Some(Arc::new(group)),
            // Without limits to hold the group is only for pausing and counting.
            Err(_) if options.limits == Limits::NONE => None,
            Err(source) => return Err(NodeError::Limits { node, source }),
        };
        let mount = |options: &Option<MountOptions>, name: &str| {
            let mountpoint = scratch.path().join(name);
            let options = options.clone().map(|options| MountOptions { mountpoint, ..options });
            let failed = |source| NodeError::Mount { node: node.clone(), source };
            options.map(|options| Disk::mount(options).map_err(failed)).transpose()
        };
        let (disk, journal) = (mount(&options.disk, "disk")?, mount(&options.journal, "journal-disk")?);
        Ok(Node {
            server: None,
            disk,
            journal,
            group,
            scratch,
            options,
            paused: false,
            squeezed: None,
            ended: vec![],
            copied: Bytes(0),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Its address.
    pub fn address(&self) -> IpAddr {
        let own = self.options.member.as_ref().map(|member| member.address);
        IpAddr::V4(own.or(self.options.loopback).unwrap_or(Ipv4Addr::LOCALHOST))
    }

    /// Its network namespace, if it has one.
    pub fn member(&self) -> Option<&Member> {
        self.options.member.as_ref()
    }

    /// Where its server's files belong: on its disk.
    pub fn folder(&self) -> PathBuf {
        match &self.disk {
            Some(disk) => disk.path().join("server"),
            None => self.scratch.path().join("server"),
        }
    }

    /// These options with the node's own group, address and folder.
    pub fn server_options(&self, options: &ServerOptions) -> ServerOptions {
        ServerOptions {
            folder: Some(self.folder()),
            journal: self.journal.as_ref().map(|disk| disk.path().join("journal")),
            group: self.group.clone(),
            network: self.options.member.as_ref().and_then(|member| member.namespace.clone()),
            address: Some(self.address()),
            flush_new_data: self.disk.is_some(),
            ..options.clone()
        }
    }

    /// Puts a server on it, which was started with [`Node::server_options`].
    pub fn place(&mut self, server: Server) {
        self.server = Some(server);
    }

    /// Its server, if it has one.
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Its server, to change it.
    pub fn server_mut(&mut self) -> Result<&mut Server, NodeError> {
        let node = self.options.name.clone();
        self.server.as_mut().ok_or_else(|| NodeError::Senseless { node, words: "no server is on it".into() })
    }

    /// Its disk, if it has one of its own.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// Bytes of its data files that were copied from it to make other nodes anew: its server reads them, and
    /// its engine does not count it.
    pub fn copied(&self) -> Bytes {
        self.copied
    }

    /// Takes note of another copy.
    pub(crate) fn was_copied(&mut self, bytes: Bytes) {
        self.copied.0 += bytes.0;
    }

    /// Its journal's own disk, if it has one.
    pub fn journal(&self) -> Option<&Disk> {
        self.journal.as_ref()
    }

    /// Its control group, where this machine has those.
    pub fn group(&self) -> Option<&Arc<Group>> {
        self.group.as_ref()
    }

    /// Whether its server runs and is not paused.
    pub fn is_running(&mut self) -> bool {
        !self.paused && self.server.as_mut().is_some_and(Server::is_running)
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    fn kernel(&self, what: &'static str) -> impl FnOnce(io::Error) -> NodeError + use<> {
        let node = self.options.name.clone();
        move |source| NodeError::Kernel { node, what, source }
    }

    fn limits(&self, source: LimitError) -> NodeError {
        NodeError::Limits { node: self.options.name.clone(), source }
    }

    fn processes(&self) -> Vec<u32> {
        match &self.group {
            Some(group) => group.processes(),
            None => self.server.as_ref().map(Server::processes).unwrap_or_default(),
        }
    }

    /// Starts its server, if it does not run, and waits until it is ready.
    pub fn start(&mut self) -> Result<(), NodeError> {
        let node = self.options.name.clone();
        self.server_mut()?.start().map_err(|source| NodeError::Server { node, source })
    }

    /// Stops its server; a paused one is resumed first, because it could not obey.
    pub fn stop(&mut self, stop: Stop) -> Result<Effect, NodeError> {
        self.resume()?;
        let failed = self.kernel("stopping its server");
        let stopped = self.server_mut()?.stop(stop).map_err(failed)?;
        Ok(effect(usize::from(stopped.is_some()), "its server did not run"))
    }

    /// Kills every process on it at once.
    pub fn kill(&mut self) -> Result<Effect, NodeError> {
        let count = self.processes().len();
        let failed = self.kernel("killing its server");
        let killed = self.server_mut()?.kill().map_err(failed)?;
        // Whoever is started in a group that stayed frozen would never begin.
        if let Some(group) = self.group.as_ref().filter(|_| self.paused) {
            group.thaw().map_err(|source| self.limits(source))?;
        }
        self.paused = false;
        Ok(effect(killed.map_or(0, |_| count), "its server did not run"))
    }

    /// Stops its server in good order if it runs, and starts it.
    pub fn restart(&mut self) -> Result<(), NodeError> {
        self.stop(Stop::Fast)?;
        self.start()
    }

    /// Kills one process that serves a client, or ends a client's connection where threads serve them.
    pub fn kill_one_backend(&mut self) -> Result<Effect, NodeError> {
        let killed = self.server_mut()?.kill_one_backend();
        Ok(effect(usize::from(killed.is_some()), "nobody served a client there"))
    }

    /// The power goes: every process on it stands still, and its disks lose what was not flushed, as `cut`
    /// says. What stands still is to be killed ([`Node::kill`]) once nobody can hear of it, and the node
    /// stays down until [`Node::power_on`].
    ///
    /// In this order no honest database is convicted and no guilty one escapes. Whatever a process has
    /// promised, it has promised before it stood still. A promise rests on flushes that were answered, those
    /// are durable, and no process lives to see how its disk dies: not the error of a flush that was under
    /// way, nor a file system that has turned read-only and answers the next flush without asking the disk. A
    /// promise that rests on no flush is lost with what the disk loses one message to its daemon later. A
    /// flush that is answered in just that time is made good: who acknowledges when a flush begins can be
    /// lucky in a cut, and is not in several.
    ///
    /// # Errors
    /// It has no shaped disk, one without account of what is flushed, or its power is off.
    pub fn power_cut(&mut self, cut: &PowerCut) -> Result<Outage, NodeError> {
        let node = self.options.name.clone();
        if self.disk.is_none() {
            let words = "it has no disk of its own whose power could be cut; give it a shaped one".into();
            return Err(NodeError::Senseless { node, words });
        }
        match &self.group {
            Some(group) => group.halt().map_err(|source| self.limits(source))?,
            None => signal_all(&self.processes(), Signal::STOP),
        }
        self.paused = true;
        let failed = |source| NodeError::Disk { node: node.clone(), source };
        let disks = self.disk.iter().chain(&self.journal);
        let reports: Result<Vec<CutReport>, _> = disks.map(|disk| disk.power_cut(cut)).collect();
        let disk = match reports.map_err(failed) {
            Ok(reports) => reports.into_iter().fold(CutReport::default(), CutReport::and),
            Err(error) => {
                self.resume()?;
                return Err(error);
            }
        };
        // Nobody dirties a page any more, and none of them can reach the disk.
        let memory = self.group.as_ref().and_then(|group| group.memory().ok());
        let page_cache = memory.and_then(|memory| Some(Bytes(memory.dirty? + memory.writeback?)));
        Ok(Outage { node, disk, page_cache })
    }

    /// Keeps the connections of its processes, until [`Node::reset_connections`]: for those that end with its
    /// power, once its links are cut and before its processes are killed.
    pub fn keep_connections(&mut self) -> Result<(), NodeError> {
        self.ended = connections(&self.processes());
        Ok(())
    }

    /// Resets the connections that its power cut ended. What its kernel still held for them is gone, as the
    /// memory of a machine without power is: sent after the cut, it would be a promise of the dead.
    pub fn reset_connections(&mut self) -> Result<(), NodeError> {
        self.ended.clear();
        Ok(())
    }

    /// Gives the power back and mounts what survived; its server is started by [`Node::start`].
    pub fn power_on(&mut self) -> Result<(), NodeError> {
        let node = self.options.name.clone();
        let mut disks = self.disk.iter_mut().chain(&mut self.journal);
        disks.try_for_each(Disk::power_on).map_err(|source| NodeError::Disk { node, source })
    }

    /// Mounts its disk anew if the file system made itself read-only, as an administrator does after an error
    /// of the disk; whether it did. Its processes die, and whatever the disk was given is kept.
    pub fn remount_read_only(&mut self) -> Result<bool, NodeError> {
        let probe = self.folder().join("is-writable");
        let written = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
        let read_only =
            matches!(written, Err(error) if error.kind() == std::io::ErrorKind::ReadOnlyFilesystem);
        if self.disk.is_some() && read_only {
            self.power_cut(&PowerCut { survive: Ratio(1.0), ..PowerCut::default() })?;
            self.kill()?;
            self.power_on()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Stops every process on it where it stands, until [`Node::resume`]. Its connections stay, silent.
    pub fn pause(&mut self) -> Result<Effect, NodeError> {
        let processes = self.processes();
        if self.paused || processes.is_empty() {
            return Ok(effect(0, "nothing ran on it"));
        }
        match &self.group {
            Some(group) => group.freeze().map_err(|source| self.limits(source))?,
            None => signal_all(&processes, Signal::STOP),
        }
        self.paused = true;
        Ok(effect(processes.len(), ""))
    }

    /// Lets a paused node go on.
    pub fn resume(&mut self) -> Result<Effect, NodeError> {
        if !self.paused {
            return Ok(effect(0, "it was not paused"));
        }
        let processes = self.processes();
        match &self.group {
            Some(group) => group.thaw().map_err(|source| self.limits(source))?,
            None => signal_all(&processes, Signal::CONT),
        }
        self.paused = false;
        Ok(effect(processes.len(), ""))
    }

    /// Holds it to tighter limits until [`Node::release`]; a limit that is `None` stays as it was.
    ///
    /// # Errors
    /// Without control groups nothing can be squeezed; and cgroup v1 refuses a memory limit below what cannot
    /// be reclaimed.
    pub fn squeeze(&mut self, cpus: Option<f64>, memory: Option<u64>) -> Result<(), NodeError> {
        let Some(group) = &self.group else {
            let words = "it has no control group, so it cannot be squeezed; run as root".into();
            return Err(NodeError::Senseless { node: self.options.name.clone(), words });
        };
        let own = &self.options.limits;
        let limits =
            Limits { cpus: cpus.or(own.cpus), memory: memory.or(own.memory), cpu_set: own.cpu_set.clone() };
        let throttled = group.cpu_time().ok().and_then(|time| time.throttled).unwrap_or_default();
        group.set_limits(&limits).map_err(|source| self.limits(source))?;
        self.squeezed = Some(Squeeze { throttled, memory: memory.is_some(), cpus: cpus.is_some() });
        Ok(())
    }

    /// Gives it its own limits back. The effect counts how often a limit was felt: milliseconds in which CPU
    /// time was denied, and whether memory was at its limit.
    pub fn release(&mut self) -> Result<Effect, NodeError> {
        let (Some(group), Some(squeeze)) = (&self.group, self.squeezed.take()) else {
            return Ok(effect(0, "it was not squeezed"));
        };
        let throttled = group.cpu_time().ok().and_then(|time| time.throttled).unwrap_or_default();
        let denied = throttled.saturating_sub(squeeze.throttled).as_millis() as usize;
        let full = group.memory().is_ok_and(|memory| {
            // Within one per cent: the kernel frees some before it is full.
            memory.limit.is_some_and(|limit| memory.usage >= limit - limit / 100)
        });
        group.set_limits(&self.options.limits).map_err(|source| self.limits(source))?;
        let felt = usize::from(squeeze.memory && full) + if squeeze.cpus { denied } else { 0 };
        Ok(effect(felt, "no limit was ever felt"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A frozen process does not die, and its disk could not be taken away.
        let _ = self.resume();
    }
}

pub(crate) fn effect(count: usize, otherwise: &str) -> Effect {
    match count {
        0 => Effect::Nothing { reason: otherwise.into() },
        count => Effect::Fired { count: count as u64 },
    }
}

/// The TCP connections of these processes, which live as long as this list does. Each forgets what it has not
/// sent, and is reset, when its last holder closes it (`SO_LINGER` of zero).
fn connections(processes: &[u32]) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    for &id in processes {
        let open = Pid::from_raw(id as i32).map(|id| pidfd_open(id, PidfdFlags::empty()));
        let (Some(Ok(process)), Ok(files)) = (open, std::fs::read_dir(format!("/proc/{id}/fd"))) else {
            continue;
        };
        for file in files.flatten() {
            let is_socket = |path: &PathBuf| path.to_string_lossy().starts_with("socket:");
            let number = file.file_name().to_str().and_then(|name| name.parse().ok());
            let (true, Some(number)) =
                (std::fs::read_link(file.path()).is_ok_and(|path| is_socket(&path)), number)
            else {
                continue;
            };
            let Ok(socket) = pidfd_getfd(&process, number, PidfdGetfdFlags::empty()) else { continue };
            // One that listens, or has no peer yet, has nothing to say.
            let peer = getpeername(&socket).ok().flatten();
            let inet = peer.is_some_and(|peer| peer.address_family() == AddressFamily::INET);
            if inet && set_socket_linger(&socket, Some(Duration::ZERO)).is_ok() {
                found.push(socket);
            }
        }
    }
    found
}

fn signal_all(processes: &[u32], signal: Signal) {
    for process in processes.iter().filter_map(|&pid| rustix::process::Pid::from_raw(pid as i32)) {
        // One that ended meanwhile needs no signal.
        let _ = rustix::process::kill_process(process, signal);
    }
}
