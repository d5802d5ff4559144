//! What trials share: the mounted disk and the data sets on it.

use super::agent_process::AgentProcess;
use super::{Interrupt, Report};
use crate::agent::{Answer, Command};
use crate::clock::Clock;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tipover_core::device;
use tipover_core::experiment::{BackingKind, DiskMode, DiskSpec, Filesystem, Spec, TargetKind};
use tipover_core::target::Facts;
use tipover_disk::{BackingChoice, DaemonCommand, Disk, MountOptions};

/// A mounted disk and the data on it. Dropped, everything is unmounted and forgotten.
pub struct Site {
    folder: PathBuf,
    mounted: Option<Mounted>,
}

struct Mounted {
    spec: DiskSpec,
    disk: Disk,
    loaded: BTreeMap<String, Facts>,
    calibrations: BTreeMap<String, serde_json::Value>,
}

impl Site {
    /// Nothing is mounted yet; disks that keep their bytes in files keep them under `folder`.
    pub fn new(folder: &Path) -> Site {
        Site { folder: folder.to_path_buf(), mounted: None }
    }

    /// The disk of `spec`, mounted and unshaped. One that differs in more than its shape replaces the one
    /// before, and the data on that are gone.
    pub fn disk(&mut self, spec: &Spec, report: &dyn Report) -> Result<&Disk> {
        let wanted = DiskSpec { shape: String::new(), ..spec.disk.clone() };
        // A disk whose daemon died serves nobody any more; the trials after it get a new one.
        let usable = |m: &Mounted| m.spec == wanted && m.disk.counters().is_ok();
        if !self.mounted.as_ref().is_some_and(usable) {
            self.mounted = None;
            report.doing("mounting the disk");
            let disk = self.mount(&wanted)?;
            self.mounted =
                Some(Mounted { spec: wanted, disk, loaded: BTreeMap::new(), calibrations: BTreeMap::new() });
        }
        let mounted = self.mounted.as_ref().expect("mounted above");
        mounted.disk.set_spec(&device::Spec::default())?;
        Ok(&mounted.disk)
    }

    fn mount(&self, spec: &DiskSpec) -> Result<Disk> {
        let root = rustix::process::geteuid().is_root();
        let mode = match spec.mode {
            DiskMode::Block => tipover_disk::Mode::Block,
            DiskMode::File => tipover_disk::Mode::File,
            DiskMode::None => bail!("this target has no disk of ours"),
            DiskMode::Auto if root => tipover_disk::Mode::Block,
            DiskMode::Auto => tipover_disk::Mode::File,
        };
        let backing = match spec.backing {
            BackingKind::Memory => BackingChoice::Memory,
            BackingKind::Disk => BackingChoice::Directory(self.folder.clone()),
        };
        let mountpoint = self.folder.join(format!("{}", tipover_lab::Name::fresh()));
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("creating {}", self.folder.display()))?;
        Ok(Disk::mount(MountOptions {
            mode,
            filesystem: match spec.filesystem {
                Filesystem::Ext4 => tipover_disk::Filesystem::Ext4,
                Filesystem::Xfs => tipover_disk::Filesystem::Xfs,
            },
            size: spec.size,
            backing,
            mountpoint: std::path::absolute(mountpoint)?,
            spec: device::Spec::default(),
            readahead: spec.readahead,
            power_cuts: false,
            daemon: DaemonCommand::this_program(&[crate::DISK_DAEMON_VERB]),
        })?)
    }

    /// The folder with the data of `spec`, loaded now if it was not before, with nothing of it in the page
    /// cache; and what the target said after loading.
    pub fn data(
        &mut self,
        spec: &Spec,
        report: &dyn Report,
        interrupt: &Interrupt,
    ) -> Result<(PathBuf, Facts)> {
        self.disk(spec, report)?;
        let mounted = self.mounted.as_mut().expect("just mounted");
        let key = data_key(spec);
        let folder = mounted.disk.path().join(&key);
        if !mounted.loaded.contains_key(&key) {
            // What a load that failed half way left behind would be taken for data.
            if folder.exists() {
                std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
            }
            std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
            report.doing("loading");
            let (dataset, _) = spec.load_of(0);
            let mut agent = AgentProcess::start(None)?;
            agent.begin(spec, folder.clone(), 0, Clock::start())?;
            let facts = agent.load(2, |records| {
                report.share(records as f64 / dataset.records as f64);
                interrupt.check()
            })?;
            agent.stop()?;
            mounted.loaded.insert(key.clone(), facts);
        }
        mounted.disk.drop_caches()?;
        Ok((folder, mounted.loaded[&key].clone()))
    }

    /// An empty folder on the disk of `spec`.
    pub fn empty(&mut self, spec: &Spec, report: &dyn Report) -> Result<PathBuf> {
        let folder = self.disk(spec, report)?.path().join("checked");
        let doing = || format!("making {} anew", folder.display());
        if folder.exists() {
            std::fs::remove_dir_all(&folder).with_context(doing)?;
        }
        std::fs::create_dir_all(&folder).with_context(doing)?;
        Ok(folder)
    }

    /// Sees to it that a server holds the records of `spec`: what is there already is used, an empty place is
    /// loaded, and anything else is left alone and refused. Gives what the target said, and the evidence.
    pub fn served(
        &mut self,
        spec: &Spec,
        report: &dyn Report,
        interrupt: &Interrupt,
    ) -> Result<(Facts, String)> {
        let (dataset, _) = spec.load_of(0);
        report.doing("looking for the records");
        let mut agent = AgentProcess::start(None)?;
        let Answer::Started { mut facts, .. } = agent.begin(spec, PathBuf::new(), 0, Clock::start())? else {
            bail!("expected to hear of the start");
        };
        let Answer::Examined(found) = agent.ask(&Command::Examine)? else {
            bail!("expected to hear what is there");
        };
        let evidence = if found.loaded(&dataset.table).map_err(anyhow::Error::msg)? {
            format!("the records were there: all {} looked at, and none after the last", found.asked)
        } else {
            report.doing("loading");
            facts = agent.load(2, |records| {
                report.share(records as f64 / dataset.records as f64);
                interrupt.check()
            })?;
            format!("none of the records was there, so all {} were written", dataset.records)
        };
        agent.stop()?;
        Ok((facts, evidence))
    }

    /// Calibrates the disk for a shape, once; the disk must be idle. It is unshaped afterwards.
    pub fn calibrate(&mut self, shape: &device::Spec) -> Result<serde_json::Value> {
        let mounted = self.mounted.as_mut().context("no disk is mounted")?;
        let key = shape.to_string();
        if !mounted.calibrations.contains_key(&key) {
            let calibration = mounted.disk.calibrate(shape)?;
            mounted.calibrations.insert(key.clone(), serde_json::to_value(calibration)?);
            mounted.disk.set_spec(&device::Spec::default())?;
        }
        Ok(mounted.calibrations[&key].clone())
    }

    /// Forgets the disk and everything on it; the next trial mounts a new one.
    pub fn unmount(&mut self) {
        self.mounted = None;
    }

    /// The mounted disk.
    pub fn mounted(&self) -> Option<&Disk> {
        self.mounted.as_ref().map(|m| &m.disk)
    }
}

/// Names the data that trials can share: whatever decides what is written, and nothing else.
pub fn data_key(spec: &Spec) -> String {
    let mut written = spec.clone();
    written.target.request_path_cpu = Default::default();
    written.load.sessions = 1;
    written.disk.shape = String::new();
    written.trial = Default::default();
    written.machine = Default::default();
    written.workload.records = Some(spec.records());
    written.workload.working_set = None;
    if spec.target.kind == TargetKind::File {
        (written.workload.least_read, written.workload.most_read) = Default::default();
    } else {
        written.target.wiredtiger.cache = tipover_core::experiment::CacheSize::Auto;
    }
    format!("data-{}", &written.fingerprint()[..16])
}
