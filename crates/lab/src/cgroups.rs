//! Looks at which control groups a machine offers and chooses where new ones may be made.
//!
//! Three layouts exist: v1 (one hierarchy per controller), v2 (one for all) and both at once, where v1 holds
//! the controllers and v2 only freezes, kills and reports pressure. All three are used as found.

use crate::group::memory_in;
use crate::limits::{ADVICE_NONE, ADVICE_V1, ADVICE_V2, LimitError};
use crate::own_group::{parse_own_groups, visible};
use crate::{Group, Limits, MemoryUse, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tipover_core::machine::Version;

/// A mounted hierarchy and the group in it to which this process belongs. Paths are real, the root included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub version: Version,
    pub controllers: Vec<String>,
    pub point: PathBuf,
    pub own: PathBuf,
    pub read_only: bool,
}

/// What control groups a machine offers, found by looking.
#[derive(Debug, Clone)]
pub struct Cgroups {
    pub(crate) files: Files,
    pub(crate) hierarchies: Vec<Hierarchy>,
}

/// What a process may use at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Around {
    /// What the group with the least memory uses; `None` where none is limited.
    pub memory: Option<MemoryUse>,
    /// Processors; `None` where none is limited.
    pub cpus: Option<f64>,
}

/// The hierarchies in which a group should exist, chosen for some limits.
pub(crate) type Directories = Vec<(PathBuf, Version, Vec<String>)>;

impl Cgroups {
    /// Looks at this machine.
    pub fn look() -> Result<Cgroups, LimitError> {
        Cgroups::look_under(Path::new("/"))
    }

    /// Looks at a tree of files that stands for a machine; in tests a folder made up by hand.
    pub fn look_under(root: &Path) -> Result<Cgroups, LimitError> {
        Cgroups::look_at("self", root)
    }

    /// What limits a process that somebody else started, under `root` as for [`Cgroups::look_under`]: of its
    /// group and all above it those with the least memory and the fewest processors.
    pub fn around(process: u32, root: &Path) -> Result<Around, LimitError> {
        let cgroups = Cgroups::look_at(&process.to_string(), root)?;
        let files = &cgroups.files;
        let above = |controller: &str| {
            let has = |h: &&Hierarchy| h.controllers.iter().any(|c| c == controller);
            let hierarchy = cgroups.hierarchies.iter().find(has);
            hierarchy.into_iter().flat_map(|h| {
                h.own.ancestors().take_while(|path| path.starts_with(&h.point)).map(|path| (path, h.version))
            })
        };
        let memory = above("memory").filter_map(|(path, version)| memory_in(files, path, version).ok());
        let cpus = above("cpu").filter_map(|(path, version)| {
            let numbers = |file: &str| {
                let text = files.read(&path.join(file)).ok()?;
                Some(text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>())
            };
            let (quota, period) = match version {
                Version::V1 => {
                    (numbers("cpu.cfs_quota_us")?[..].first().copied(), numbers("cpu.cfs_period_us")?)
                }
                // "max" is no number, so that the period stands alone.
                Version::V2 => {
                    let both = numbers("cpu.max")?;
                    ((both.len() == 2).then(|| both[0]), both)
                }
            };
            Some(quota.filter(|quota| *quota > 0.0)? / period.last()?)
        });
        Ok(Around {
            memory: memory.filter(|memory| memory.limit.is_some()).min_by_key(|memory| memory.limit),
            cpus: cpus.min_by(f64::total_cmp),
        })
    }

    fn look_at(process: &str, root: &Path) -> Result<Cgroups, LimitError> {
        let files = Files { root: root.to_path_buf() };
        let mounts = tipover_disk::parse_mountinfo(files.read(&root.join("proc/self/mountinfo"))?.as_bytes());
        let own_groups = parse_own_groups(
            &files.read(&root.join("proc").join(process).join("cgroup")).unwrap_or_default(),
        );
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for mount in &mounts {
            let version = match mount.filesystem.as_str() {
                "cgroup" => Version::V1,
                "cgroup2" => Version::V2,
                _ => continue,
            };
            let under_root = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
            let point = under_root(&mount.point);
            let own_path = |matches: &dyn Fn(&[String]) -> bool| {
                let own = own_groups.iter().find(|(controllers, _)| matches(controllers));
                own.map_or(point.clone(), |(_, path)| under_root(&visible(mount, path)))
            };
            let (controllers, own) = match version {
                Version::V1 => {
                    let known = |c: &&str| mount.options.iter().any(|option| option == c);
                    let names = ["memory", "cpu", "cpuacct", "cpuset", "freezer", "blkio", "pids", "devices"];
                    let controllers: Vec<String> =
                        names.iter().filter(|c| known(c)).map(|c| c.to_string()).collect();
                    let first = controllers.first().cloned();
                    (
                        controllers,
                        own_path(&|theirs| first.as_ref().is_some_and(|first| theirs.contains(first))),
                    )
                }
                Version::V2 => {
                    let own = own_path(&|theirs| theirs.is_empty());
                    let listed = files.read(&point.join("cgroup.controllers")).unwrap_or_default();
                    (words(&listed), own)
                }
            };
            // A hierarchy may be mounted twice; the first is as good as any.
            let seen = hierarchies.iter().any(|h| h.version == version && h.controllers == controllers);
            // A v1 hierarchy without controllers is systemd's own book-keeping.
            if !seen && (version == Version::V2 || !controllers.is_empty()) {
                // Whoever sits in a group that is not visible here uses the root of what is.
                let own = if own.is_dir() { own } else { point.clone() };
                hierarchies.push(Hierarchy {
                    version,
                    controllers,
                    point,
                    own,
                    read_only: mount.read_only(),
                });
            }
        }
        Ok(Cgroups { files, hierarchies })
    }

    /// Which versions are mounted; both on a hybrid machine.
    pub fn versions(&self) -> BTreeSet<Version> {
        self.hierarchies.iter().map(|h| h.version).collect()
    }

    /// Every controller and the version that holds it.
    pub fn controllers(&self) -> BTreeMap<String, Version> {
        let pairs =
            self.hierarchies.iter().flat_map(|h| h.controllers.iter().map(|c| (c.clone(), h.version)));
        pairs.collect()
    }

    /// Makes a group that holds `limits`; `label` is for messages. The group goes away when the guard is
    /// dropped.
    ///
    /// # Errors
    /// Says which controller is missing or what is not permitted, and what to do about it.
    pub fn create(&self, label: &str, limits: &Limits) -> Result<Group, LimitError> {
        limits.check()?;
        Group::make(self, label, limits)
    }

    /// Whether `limits` can be held here, tried for real with a group that is removed at once.
    pub fn can(&self, limits: &Limits) -> Result<(), LimitError> {
        self.create("trial", limits).map(drop)
    }

    /// Chooses a directory in each hierarchy that serves. Required controllers must be found; the others are
    /// a gain.
    pub(crate) fn directories(&self, limits: &Limits) -> Result<(Directories, Vec<String>), LimitError> {
        let required = limits.controllers();
        let mut directories = Directories::new();
        let mut missing = Vec::new();
        for controller in ["memory", "cpu", "cpuacct", "cpuset", "freezer", "blkio"] {
            // A group in an unused cpuset would only add ways to fail.
            if controller == "cpuset" && !required.contains(&controller) {
                continue;
            }
            let v1 = self.hierarchies.iter().find(|h| h.version == Version::V1 && holds(h, controller));
            let Some(hierarchy) = v1 else { continue };
            match self.writable_v1(hierarchy) {
                Ok(()) if directories.iter().any(|(path, ..)| *path == hierarchy.own) => {}
                Ok(()) => {
                    directories.push((hierarchy.own.clone(), Version::V1, hierarchy.controllers.clone()))
                }
                Err(error) if required.contains(&controller) => return Err(error),
                Err(error) => missing.push(error.to_string()),
            }
        }
        let from_v2: Vec<&str> = required
            .iter()
            .copied()
            .filter(|c| !directories.iter().any(|(.., cs)| cs.iter().any(|x| x == c)))
            .collect();
        if let Some(unified) = self.hierarchies.iter().find(|h| h.version == Version::V2) {
            // Memory is counted even where it is not limited, if that can be had.
            let counted = from_v2.is_empty() && holds(unified, "memory");
            let counted = counted.then(|| self.place_v2(unified, &["memory"]).ok()).flatten();
            match counted.map_or_else(|| self.place_v2(unified, &from_v2), Ok) {
                Ok((path, controllers)) => directories.push((path, Version::V2, controllers)),
                Err(error) if !from_v2.is_empty() => return Err(error),
                Err(error) => missing.push(error.to_string()),
            }
        } else if let Some(controller) = from_v2.first() {
            return Err(self.no_controller(controller));
        }
        if directories.is_empty() {
            return Err(self.no_controller("memory"));
        }
        Ok((directories, missing))
    }

    fn no_controller(&self, controller: &str) -> LimitError {
        let all: Vec<String> = self.controllers().into_keys().collect();
        let found = match (all.is_empty(), self.hierarchies.is_empty()) {
            (_, true) => "no cgroup hierarchy is mounted".to_string(),
            (true, _) => "the mounted ones have no controllers".to_string(),
            _ => format!("found: {}", all.join(", ")),
        };
        LimitError::NoController { controller: controller.into(), found, advice: ADVICE_NONE }
    }

    fn writable_v1(&self, hierarchy: &Hierarchy) -> Result<(), LimitError> {
        let refused =
            |source| LimitError::NotPermitted { path: hierarchy.own.clone(), advice: ADVICE_V1, source };
        if hierarchy.read_only {
            return Err(refused(io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        writable(&hierarchy.own).map_err(refused)
    }

    /// Finds the nearest group at or above ours that hands `required` down to its children.
    ///
    /// v2 forbids a group that has both processes and controlled children, so a group made for us alone (a
    /// delegated scope) must first be emptied into a child of its own.
    fn place_v2(&self, unified: &Hierarchy, required: &[&str]) -> Result<(PathBuf, Vec<String>), LimitError> {
        let refused =
            |path: &Path, source| LimitError::NotPermitted { path: path.into(), advice: ADVICE_V2, source };
        if unified.read_only {
            return Err(refused(&unified.point, io::ErrorKind::ReadOnlyFilesystem.into()));
        }
        if let Some(controller) = required.iter().find(|c| !unified.controllers.iter().any(|x| x == *c)) {
            return Err(self.no_controller(controller));
        }
        let listed = |path: &Path, file: &str| words(&self.files.read(&path.join(file)).unwrap_or_default());
        let wanted = |path: &Path| {
            let handed = listed(path, "cgroup.subtree_control");
            (required.iter().all(|c| handed.iter().any(|h| h == c))).then_some(handed)
        };
        let ancestors = || unified.own.ancestors().take_while(|path| path.starts_with(&unified.point));
        let mut why = None;
        for path in ancestors() {
            match (wanted(path), writable(path).and_then(|()| writable(&path.join("cgroup.procs")))) {
                (Some(handed), Ok(())) => return Ok((path.into(), handed)),
                (Some(_), Err(source)) => why = why.or(Some(refused(path, source))),
                (None, _) => {}
            }
        }
        // Nobody hands the controllers down yet: switch them on, in our own group if it is delegated to us,
        // else at the top.
        for path in [&unified.own, &unified.point] {
            let available = listed(path, "cgroup.controllers");
            if !required.iter().all(|c| available.iter().any(|a| a == c)) || writable(path).is_err() {
                continue;
            }
            match self.hand_down(path, required) {
                Ok(()) => return Ok((path.clone(), listed(path, "cgroup.subtree_control"))),
                Err(error) => why = why.or(Some(error)),
            }
        }
        let nobody =
            || refused(&unified.own, io::Error::other(format!("nobody hands down {}", required.join(", "))));
        Err(why.unwrap_or_else(nobody))
    }

    fn hand_down(&self, path: &Path, required: &[&str]) -> Result<(), LimitError> {
        // Every controller that we can use is switched on, but only the required ones may fail.
        let switch = |name: &str| self.files.write(&path.join("cgroup.subtree_control"), &format!("+{name}"));
        let first = required.first().copied().unwrap_or("memory");
        if let Err(error) = switch(first) {
            match &error {
                LimitError::Write { source, .. } if source.kind() == io::ErrorKind::ResourceBusy => {}
                _ => return Err(error),
            }
            let leaf = path.join(Name::fresh().to_string());
            self.files.make(&leaf)?;
            for process in self.files.read(&path.join("cgroup.procs"))?.lines() {
                self.files.write(&leaf.join("cgroup.procs"), process)?;
            }
            switch(first)?;
        }
        for name in ["memory", "cpu", "cpuset", "io", "pids"].into_iter().filter(|name| *name != first) {
            match switch(name) {
                Err(error) if required.contains(&name) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn holds(hierarchy: &Hierarchy, controller: &str) -> bool {
    hierarchy.controllers.iter().any(|c| c == controller)
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(Into::into).collect()
}

/// Whether this process may write here, asked of the kernel so that capabilities and read-only mounts count.
fn writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}

/// Reads and writes control files, real ones or those of a made-up tree.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub root: PathBuf,
}

impl Files {
    /// In a made-up tree no kernel creates the control files, so writing does.
    pub fn made_up(&self) -> bool {
        self.root != Path::new("/")
    }

    pub fn read(&self, path: &Path) -> Result<String, LimitError> {
        std::fs::read_to_string(path).map_err(|source| LimitError::Read { path: path.into(), source })
    }

    pub fn write(&self, path: &Path, value: &str) -> Result<(), LimitError> {
        let written = std::fs::OpenOptions::new()
            .write(true)
            .create(self.made_up())
            .truncate(self.made_up())
            .open(path)
            .and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|source| LimitError::Write { path: path.into(), value: value.into(), source })
    }

    /// Writes where older kernels or other builds have no such file.
    pub fn write_if_there(&self, path: &Path, value: &str) -> Result<(), LimitError> {
        match self.write(path, value) {
            Err(LimitError::Write { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub fn make(&self, path: &Path) -> Result<(), LimitError> {
        let advice = if path.parent().is_some_and(|parent| parent.join("cgroup.controllers").exists()) {
            ADVICE_V2
        } else {
            ADVICE_V1
        };
        std::fs::create_dir(path).map_err(|source| LimitError::NotPermitted {
            path: path.into(),
            advice,
            source,
        })
    }

    /// Removes a group's directory; one that is gone already is fine.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = if self.made_up() { std::fs::remove_dir_all(path) } else { std::fs::remove_dir(path) };
        match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The real kernel refuses to switch a controller on in a group that has processes; ours must first empty
    /// it.
    #[test]
    fn a_group_with_processes_is_emptied_before_it_hands_down() {
        let cgroups = Cgroups::look().unwrap();
        let unified =
            cgroups.hierarchies.iter().find(|h| h.version == Version::V2 && !h.controllers.is_empty());
        let Some(unified) = unified.filter(|unified| writable(&unified.point).is_ok()) else {
            return println!("SKIPPED: needs root and a v2 hierarchy with a controller");
        };
        let controller = unified.controllers[0].as_str();
        let write = |path: &Path, text: &str| cgroups.files.write(path, text).unwrap();
        let switches = unified.point.join("cgroup.subtree_control");
        let was_on = words(&cgroups.files.read(&switches).unwrap()).iter().any(|c| c == controller);
        write(&switches, &format!("+{controller}"));
        let scope = unified.point.join(Name::fresh().to_string());
        cgroups.files.make(&scope).unwrap();
        let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        write(&scope.join("cgroup.procs"), &sleeper.id().to_string());

        let done = cgroups.hand_down(&scope, &[controller]);
        let handed = cgroups.files.read(&scope.join("cgroup.subtree_control")).unwrap();
        let left = cgroups.files.read(&scope.join("cgroup.procs")).unwrap();
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        crate::group::remove_below(&cgroups.files, &scope).unwrap();
        if !was_on {
            // Another test's group may still be there and hold the switch; then it stays on, which harms
            // nobody.
            let _ = cgroups.files.write(&switches, &format!("-{controller}"));
        }
        done.unwrap();
        assert!(words(&handed).iter().any(|c| c == controller), "{handed:?}");
        assert_eq!(left, "", "its processes were to be moved out of the way");
    }
}
