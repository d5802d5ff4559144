//! Which file of a mounted file system lies where on its device: the kernel's own map (FIEMAP), so that a
//! block mode's trace can be told by files.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A piece of a file that lies in one piece on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Where it begins in the file.
    pub logical: u64,
    /// Where it begins on the device: what a block mode's trace calls the offset.
    pub physical: u64,
    /// How many bytes.
    pub length: u64,
}

const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
/// Write what is delayed first, so that everything has its place.
const SYNC: u32 = 1;
const LAST: u32 = 0x1;
/// Unknown, delayed, encoded, encrypted, not aligned, or inside metadata: `physical` tells no place of data.
const NO_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;
const BATCH: usize = 128;

/// `struct fiemap_extent` of the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
struct Found {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more_reserved: [u32; 3],
}

/// `struct fiemap` of the kernel, with room for its answer.
#[repr(C)]
struct Question {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
    extents: [Found; BATCH],
}

/// The places of the file at `path` on its file system's device, in the order of the file. Holes have none.
pub(crate) fn of(path: &Path) -> io::Result<Vec<Extent>> {
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let nothing =
        Found { logical: 0, physical: 0, length: 0, reserved: [0; 2], flags: 0, more_reserved: [0; 3] };
    let mut extents = Vec::new();
    let mut start = 0;
    loop {
        let mut question = Box::new(Question {
            start,
            length: u64::MAX - start,
            flags: SYNC,
            mapped: 0,
            count: BATCH as u32,
            reserved: 0,
            extents: [nothing; BATCH],
        });
        // SAFETY: the descriptor is open; the struct has the kernel's layout, says how many extents it has
        // room for, and outlives the call.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *question) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        let found = &question.extents[..(question.mapped as usize).min(BATCH)];
        extents.extend(found.iter().filter(|f| f.flags & NO_PLACE == 0).map(|f| Extent {
            logical: f.logical,
            physical: f.physical,
            length: f.length,
        }));
        match found.last() {
            Some(last) if last.flags & LAST == 0 => start = last.logical.saturating_add(last.length),
            _ => return Ok(extents),
        }
    }
}

/// Whose every byte of a device is, as far as files have it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileMap {
    paths: Vec<PathBuf>,
    /// By `physical`: the extent and whose it is.
    places: BTreeMap<u64, (Extent, usize)>,
}

impl FileMap {
    /// Adds a file.
    pub fn insert(&mut self, path: PathBuf, extents: &[Extent]) {
        let owner = self.paths.len();
        self.paths.push(path);
        self.places.extend(extents.iter().map(|extent| (extent.physical, (*extent, owner))));
    }

    /// The file that has this byte of the device, and where in the file it is. `None` for the file system's
    /// own: its journal, its inodes, its maps, its folders.
    pub fn locate(&self, offset: u64) -> Option<(&Path, u64)> {
        let (_, (extent, owner)) = self.places.range(..=offset).next_back()?;
        let into = offset - extent.physical;
        (into < extent.length).then(|| (self.paths[*owner].as_path(), extent.logical + into))
    }

    /// All files in it, each with the end of its last piece: its size, rounded up to the file system's
    /// blocks.
    pub fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        let mut sizes = vec![0; self.paths.len()];
        for (extent, owner) in self.places.values() {
            sizes[*owner] = sizes[*owner].max(extent.logical + extent.length);
        }
        self.paths.iter().map(PathBuf::as_path).zip(sizes)
    }

    /// Writes the map beside a trace, as `TRACE.map`.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn save_beside(&self, trace: &Path) -> io::Result<()> {
        std::fs::write(beside(trace), serde_json::to_vec(self)?)
    }

    /// The map that lies beside a trace; `None` if there is none, as in file mode.
    ///
    /// # Errors
    /// It cannot be read, or is no map; with its path.
    pub fn load_beside(trace: &Path) -> io::Result<Option<FileMap>> {
        let path = beside(trace);
        let wrong = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| wrong(e.into())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(wrong(e)),
        }
    }

    /// All files in it.
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Maps every file below `root`, on this file system only; paths are relative to it. Files that go away
    /// meanwhile are left out.
    pub(crate) fn below(root: &Path) -> io::Result<FileMap> {
        let mut map = FileMap::default();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let entries = match std::fs::read_dir(root.join(&folder)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                other => other?,
            };
            for entry in entries {
                let entry = entry?;
                let path = folder.join(entry.file_name());
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(kind) if kind.is_file() => match of(&root.join(&path)) {
                        Ok(extents) => map.insert(path, &extents),
                        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                        Err(e) => return Err(e),
                    },
                    _ => {}
                }
            }
        }
        Ok(map)
    }
}

fn beside(trace: &Path) -> PathBuf {
    let mut name = trace.file_name().unwrap_or_default().to_os_string();
    name.push(".map");
    trace.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_structs_have_the_kernels_sizes() {
        assert_eq!(size_of::<Found>(), 56);
        assert_eq!(size_of::<Question>(), 32 + BATCH * 56);
    }

    #[test]
    fn bytes_are_located_in_their_files() {
        let mut map = FileMap::default();
        let extent = |logical, physical, length| Extent { logical, physical, length };
        map.insert("a".into(), &[extent(0, 8192, 4096), extent(4096, 65536, 8192)]);
        map.insert("b".into(), &[extent(1 << 20, 12288, 4096)]);
        assert_eq!(map.locate(8192), Some((Path::new("a"), 0)));
        assert_eq!(map.locate(12287), Some((Path::new("a"), 4095)));
        assert_eq!(map.locate(12288), Some((Path::new("b"), 1 << 20)));
        assert_eq!(map.locate(16384), None, "between");
        assert_eq!(map.locate(65536 + 8191), Some((Path::new("a"), 4096 + 8191)));
        assert_eq!(map.locate(0), None);
        assert_eq!(map.locate(u64::MAX), None);
        assert_eq!(map.paths().len(), 2);
        let sizes: Vec<_> = map.files().collect();
        assert_eq!(sizes, [(Path::new("a"), 4096 + 8192), (Path::new("b"), (1 << 20) + 4096)]);
    }
}
