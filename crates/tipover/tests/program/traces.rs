//! What a run has made in the machine around it: mounts, loop devices, processes, control groups. Looked up
//! in the kernel's own lists, without any of the program's code.

use std::fs;
use std::path::{Path, PathBuf};

/// Whose traces are looked for.
pub struct Suspect {
    /// Below this folder nothing may be mounted.
    pub folder: PathBuf,
    /// The laboratory, whose number is in the names of its groups.
    pub laboratory: u32,
    /// Disk daemons, whose numbers are in the names of their mounts and devices.
    pub daemons: Vec<u32>,
}

/// Everything of the suspect that is there now, as sentences; groups apart, because the kernel keeps them
/// when the laboratory is killed.
pub fn left(suspect: &Suspect) -> Vec<String> {
    let mut found = Vec::new();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the kernel lists mounts");
    for line in mounts.lines() {
        let below = line.split(' ').nth(4).is_some_and(|at| Path::new(at).starts_with(&suspect.folder));
        let ours = suspect.daemons.iter().any(|id| line.contains(&format!("tipover-{id}-")));
        if below || ours {
            found.push(format!("mount: {line}"));
        }
    }
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if suspect.daemons.iter().any(|id| file.contains(&format!("/{id}-"))) {
            found.push(format!("loop device {}: {}", device.file_name().to_string_lossy(), file.trim()));
        }
    }
    for folder in ["/run/tipover", "/dev/shm"] {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let bare = name.strip_prefix("tipover-").unwrap_or(&name);
            if suspect.daemons.iter().any(|id| bare.starts_with(&format!("{id}-"))) {
                found.push(format!("{}", entry.path().display()));
            }
        }
    }
    let work = suspect.folder.join("results/.work");
    if fs::read_dir(&work).is_ok_and(|mut entries| entries.next().is_some()) {
        found.push(format!("{} is not empty", work.display()));
    }
    found
}

/// Memory groups of the suspect's laboratory.
pub fn groups(suspect: &Suspect) -> Vec<PathBuf> {
    let prefix = format!("tipover-{}-", suspect.laboratory);
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                if entry.file_name().to_string_lossy().starts_with(&prefix) {
                    found.push(entry.path());
                }
                folders.push(entry.path());
            }
        }
    }
    found
}

/// Living processes whose environment has `mark=folder` and whose first argument is `verb`.
pub fn processes(mark: &str, folder: &Path, verb: &str) -> Vec<u32> {
    let marked = format!("{mark}={}", folder.display());
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let read = |what| fs::read(format!("/proc/{id}/{what}")).unwrap_or_default();
        let arguments = read("cmdline");
        // The dead have no arguments any more.
        arguments.split(|b| *b == 0).nth(1) == Some(verb.as_bytes())
            && read("environ").split(|b| *b == 0).any(|variable| variable == marked.as_bytes())
    })
    .collect()
}

/// Living processes of this program whose working folder lies in `folder`.
pub fn named(program: &str, folder: &Path) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        let name = fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        let works_in = fs::read_link(format!("/proc/{id}/cwd")).unwrap_or_default();
        name.trim() == program && works_in.starts_with(folder)
    })
    .collect()
}

/// A line of `/proc/PID/status` in bytes, such as `VmHWM`; `None` once the process has ended.
pub fn memory_of(id: u32, line: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let value = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}
