//! What trials share: the mounted disk and the data sets on it, or the cluster of a cell.

use super::cluster::Running;
use super::generator_process::GeneratorProcess;
use super::{Interrupt, Report};
use crate::clock::Clock;
use crate::generator::{Command, Reply, Servers};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tipover_core::device;
use tipover_core::experiment::{BackingKind, DiskSpec, Part, Spec, TargetKind};
use tipover_core::target::Facts;
use tipover_core::units::Bytes;
use tipover_disk::{BackingChoice, DaemonCommand, Disk, MountOptions};

/// WiredTiger removes its journal at checkpoints; a minute of it must fit.
const JOURNAL_DISK: Bytes = Bytes(2 << 30);

/// A mounted disk and the data on it, or a cluster; never both, because they would share the machine.
/// Dropped, everything is taken away and forgotten.
pub struct Site {
    folder: PathBuf,
    interrupt: Interrupt,
    mounted: Option<Mounted>,
    cluster: Option<Running>,
}

struct Mounted {
    spec: DiskSpec,
    disk: Disk,
    /// A second disk, for the journals of data sets that want one.
    journal: Option<Disk>,
    loaded: BTreeMap<String, Facts>,
    calibrations: BTreeMap<String, serde_json::Value>,
}

impl Site {
    /// Nothing is mounted yet; disks that keep their bytes in files keep them under `folder`.
    pub fn new(folder: &Path, interrupt: &Interrupt) -> Site {
        Site { folder: folder.to_path_buf(), interrupt: interrupt.clone(), mounted: None, cluster: None }
    }

    /// The cluster of `spec`, taken out of the site for a trial: one that goes wrong is not given back with
    /// [`Site::give_back`], and the next trial gets a new one.
    ///
    /// # Errors
    /// It does not start.
    pub fn cluster(&mut self, spec: &Spec, report: &dyn Report) -> Result<Running> {
        self.mounted = None;
        Running::of(self.cluster.take(), spec, &self.folder, report)
    }

    /// Keeps a cluster that can be used again.
    pub fn give_back(&mut self, cluster: Running) {
        self.cluster = Some(cluster);
    }

    /// The disk of `spec`, mounted and unshaped. One that differs in more than its shape replaces the one
    /// before, and the data on that are gone.
    pub fn disk(&mut self, spec: &Spec, report: &dyn Report) -> Result<&Disk> {
        self.cluster = None;
        let root = rustix::process::geteuid().is_root();
        // Without root a mounted disk keeps its readahead.
        let readahead = if root { Bytes(0) } else { spec.disk.readahead };
        let wanted = DiskSpec { readahead, ..spec.disk.as_mounted() };
        // A disk whose daemon died serves nobody any more; the trials after it get a new one.
        let usable = |m: &Mounted| m.spec == wanted && m.disk.counters().is_ok();
        if !self.mounted.as_ref().is_some_and(usable) {
            self.mounted = None;
            report.doing("mounting the disk");
            let disk = self.mount(&wanted)?;
            let (loaded, calibrations) = Default::default();
            self.mounted = Some(Mounted { spec: wanted, disk, journal: None, loaded, calibrations });
        }
        if spec.disk.journal.is_some() && self.journal().is_none() {
            report.doing("mounting the journal's disk");
            let small = DiskSpec { size: JOURNAL_DISK.min(spec.disk.size), ..spec.disk.as_mounted() };
            let journal = self.mount(&small)?;
            self.mounted.as_mut().expect("mounted above").journal = Some(journal);
        }
        self.unshape()?;
        let mounted = self.mounted.as_ref().expect("mounted above");
        if root {
            mounted.disk.set_readahead(spec.disk.readahead)?;
        }
        Ok(&mounted.disk)
    }

    /// Gives the disks the shapes of `spec`, and the readahead that is changed under a running target.
    pub fn shape(&self, spec: &Spec) -> Result<()> {
        if let Some(disk) = self.mounted() {
            disk.set_spec(&spec.shape()?)?;
            if let Some(readahead) = spec.disk.readahead_later {
                disk.set_readahead(readahead)?;
            }
        }
        if let (Some(disk), Some(shape)) = (self.journal(), spec.journal_shape()?) {
            disk.set_spec(&shape)?;
        }
        Ok(())
    }

    /// Makes the disks as fast as they can be.
    pub fn unshape(&self) -> Result<()> {
        for disk in self.mounted().into_iter().chain(self.journal()) {
            disk.set_spec(&device::Spec::default())?;
        }
        Ok(())
    }

    fn mount(&self, spec: &DiskSpec) -> Result<Disk> {
        let backing = match (spec.backing, &spec.folder) {
            (BackingKind::Memory, _) => BackingChoice::Memory,
            (BackingKind::Disk, Some(folder)) => BackingChoice::Directory(folder.into()),
            (BackingKind::Disk, None) => BackingChoice::Directory(self.folder.clone()),
        };
        let mountpoint = self.folder.join(format!("{}", tipover_lab::Name::fresh()));
        std::fs::create_dir_all(&self.folder)
            .with_context(|| format!("creating {}", self.folder.display()))?;
        let options = mount_options(spec, backing, std::path::absolute(mountpoint)?);
        let options = options.context("this target has no disk of ours")?;
        Ok(Disk::mount_unless(options, &|| self.interrupt.is_set())?)
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
            if let (Some(journal), true) = (&mounted.journal, spec.disk.journal.is_some()) {
                // As one does with mongod: its journal's folder is a link to the other disk.
                let there = journal.path().join(&key);
                let doing = || format!("making the journal's folder {}", there.display());
                if there.exists() {
                    std::fs::remove_dir_all(&there).with_context(doing)?;
                }
                std::fs::create_dir_all(&there).with_context(doing)?;
                std::os::unix::fs::symlink(&there, folder.join("journal")).with_context(doing)?;
            }
            report.doing("loading");
            let (dataset, _) = spec.load_of(0);
            let mut generator = GeneratorProcess::start(None, None)?;
            generator.begin(spec, folder.clone(), &Servers::default(), 0, Part::ALL, Clock::start())?;
            let facts = generator.load(2, |records| {
                report.share(records as f64 / dataset.records as f64);
                interrupt.check()
            })?;
            generator.stop()?;
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

    /// Forgets the disk and everything on it, and the cluster; the next trial gets new ones.
    pub fn clear(&mut self) {
        (self.mounted, self.cluster) = (None, None);
    }

    /// The journal's own disk.
    pub fn journal(&self) -> Option<&Disk> {
        self.mounted.as_ref().and_then(|m| m.journal.as_ref())
    }

    /// The mounted disk.
    pub fn mounted(&self) -> Option<&Disk> {
        self.mounted.as_ref().map(|m| &m.disk)
    }
}

/// Sees to it that a server holds the records of `spec`: what is there already is used, an empty place is
/// loaded, and anything else is left alone and refused. Without `servers` of a cluster it is
/// the one at the cell's address. Gives what the target said, and the evidence.
///
/// # Errors
/// Something else is there, it cannot be written, or an interrupt.
pub fn bring_records(
    spec: &Spec,
    servers: &Servers,
    report: &dyn Report,
    interrupt: &Interrupt,
) -> Result<(Facts, String)> {
    let (dataset, _) = spec.load_of(0);
    report.doing("looking for the records");
    let mut generator = GeneratorProcess::start(None, None)?;
    // Making the tables of scripts takes as long as it takes.
    let mut patient = spec.clone();
    patient.load.timeout = Duration::ZERO;
    let begun = generator.begin(&patient, PathBuf::new(), servers, 0, Part::ALL, Clock::start())?;
    if !matches!(begun, Reply::Started { .. }) {
        bail!("expected to hear of the start");
    }
    let Reply::Examined { found, mut facts } = generator.ask(&Command::Examine)? else {
        bail!("expected to hear what is there");
    };
    let evidence = if dataset.records == 0 && spec.lab.is_none() {
        "the scripts find what is there: no table is ours".into()
    } else if found.loaded(&dataset.table).map_err(anyhow::Error::msg)? {
        let looked =
            || format!("the records were there: all {} looked at, and none after the last", found.asked);
        found.evidence.unwrap_or_else(looked)
    } else {
        report.doing("loading");
        facts = generator.load(2, |records| {
            report.share(records as f64 / dataset.records as f64);
            interrupt.check()
        })?;
        match dataset.records {
            0 => "no table of pgbench's is asked for; what the plan prepares was prepared".into(),
            records => format!("none of the records was there, so all {records} were written"),
        }
    };
    generator.stop()?;
    Ok((facts, evidence))
}

/// See [`tipover_lab::mount_options`]; the daemon is this program.
pub fn mount_options(spec: &DiskSpec, backing: BackingChoice, mountpoint: PathBuf) -> Option<MountOptions> {
    let daemon = DaemonCommand::this_program(&[crate::DISK_DAEMON_VERB]);
    tipover_lab::mount_options(spec, backing, mountpoint, daemon)
}

/// Names the data that trials can share: whatever decides what is written, and nothing else.
pub fn data_key(spec: &Spec) -> String {
    let mut written = spec.clone();
    written.target.request_path_cpu = Default::default();
    written.load.sessions = 1;
    // Where the journal was written decides where it is read; on which shape does not.
    written.disk =
        DiskSpec { journal: spec.disk.journal.as_ref().map(|_| String::new()), ..spec.disk.as_mounted() };
    written.trial = Default::default();
    (written.machine, written.tenant) = Default::default();
    written.workload.records = Some(spec.records());
    written.workload.working_set = None;
    if spec.target.kind == TargetKind::File {
        (written.workload.least_read, written.workload.most_read) = Default::default();
    } else {
        written.target.wiredtiger.cache = tipover_core::experiment::CacheSize::Auto;
    }
    format!("data-{}", &written.fingerprint()[..16])
}
