//! What a path is, whether it may be used, and the data that the load works on.
//!
//! Nothing of the user's is overwritten: a file that this program made ends with a mark, and everything else
//! needs `--overwrite`.

use super::{Stop, Unusable, check};
use anyhow::{Context, Result, bail};
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tipover_core::units::Bytes;
use tipover_core::workload::Random;

/// The data's name in a folder.
const DATA: &str = "tipover-bench.data";
/// How it is called until it is whole.
const PARTIAL: &str = "tipover-bench.data.partial";
/// The last block of a file that this program made.
const MARK: &[u8] = b"tipover disk bench: this file may be overwritten\n";
const MARK_BLOCK: u64 = 4096;
/// What a folder gets unless told otherwise, if there is room.
const USUAL_SIZE: Bytes = Bytes::gib(1);
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;

/// What is to be done with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Something is written.
    pub writes: bool,
    /// Past the page cache.
    pub direct: bool,
    /// Each write returns when it is durable (`O_DSYNC`).
    pub dsync: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    File,
    Device,
}

/// A path that a load can work on.
#[derive(Debug, Clone)]
pub struct Location {
    /// As given, absolute.
    pub path: PathBuf,
    /// The file or device with the data.
    pub data: PathBuf,
    kind: Kind,
}

impl Location {
    /// Looks at a path.
    ///
    /// # Errors
    /// [`Unusable`]: there is nothing, or something that no data can be on.
    pub fn find(path: &Path) -> Result<Location, Unusable> {
        let path = std::fs::canonicalize(path).map_err(|error| {
            let next = "name a folder on the disk, a file, or a block device";
            Unusable(match error.kind() {
                ErrorKind::NotFound => format!("{}: there is no such file or folder; {next}", path.display()),
                _ => format!("{}: {error}; {next}", path.display()),
            })
        })?;
        let metadata = std::fs::metadata(&path).map_err(|e| Unusable(format!("{}: {e}", path.display())))?;
        let kind = match metadata.file_type() {
            t if t.is_dir() => Kind::Folder,
            t if t.is_file() => Kind::File,
            t if t.is_block_device() => Kind::Device,
            _ => {
                let what = "is neither a folder, nor a file, nor a block device";
                return Err(Unusable(format!("{} {what}", path.display())));
            }
        };
        let data = if kind == Kind::Folder { path.join(DATA) } else { path.clone() };
        Ok(Location { path, data, kind })
    }

    /// Whether it is memory rather than a disk.
    pub fn is_memory(&self) -> bool {
        matches!(rustix::fs::statfs(&self.path).map(|s| s.f_type), Ok(TMPFS | RAMFS))
            && self.kind != Kind::Device
    }

    /// In words: "a folder", "a block device".
    pub fn what(&self) -> &'static str {
        match self.kind {
            Kind::Folder => "a folder",
            Kind::File => "a file",
            Kind::Device => "a block device",
        }
    }

    /// Sees to it that there is data, of this size if one is given, and says how much the load may use.
    /// `progress` hears how far filling has come.
    ///
    /// # Errors
    /// [`Unusable`] where the user must decide or make room.
    pub fn prepare(
        &self,
        size: Option<Bytes>,
        writes: bool,
        overwrite: bool,
        stop: Stop<'_>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Bytes> {
        match self.kind {
            Kind::Folder => self.prepare_folder(size, overwrite, stop, progress),
            Kind::File | Kind::Device => self.prepare_existing(size, writes, overwrite),
        }
    }

    fn prepare_existing(&self, size: Option<Bytes>, writes: bool, overwrite: bool) -> Result<Bytes> {
        let mut file = File::open(&self.data).map_err(|e| self.cannot("read", &e))?;
        let length = file.seek(SeekFrom::End(0)).with_context(|| self.data.display().to_string())?;
        let ours = self.kind == Kind::File && is_ours(&file, length);
        if writes && !ours && !overwrite {
            let what = if self.kind == Kind::Device { "everything on it" } else { "what is in it" };
            bail!(Unusable(format!(
                "{}: this load writes and would destroy {what}, and tipover did not make it; read only (--rw randread), \
                 name a folder, or say --overwrite",
                self.path.display()
            )));
        }
        let usable = if ours { length - MARK_BLOCK } else { length / 512 * 512 };
        let wanted = size.map_or(usable, |size| size.0);
        if wanted > usable || usable == 0 {
            bail!(Unusable(format!(
                "{} holds {}, not {}; give a smaller --size",
                self.path.display(),
                Bytes(usable).rounded(),
                Bytes(wanted).rounded()
            )));
        }
        Ok(Bytes(wanted))
    }

    fn prepare_folder(
        &self,
        size: Option<Bytes>,
        overwrite: bool,
        stop: Stop<'_>,
        progress: &mut dyn FnMut(f64),
    ) -> Result<Bytes> {
        match File::open(&self.data) {
            Ok(file) => {
                let length = file.metadata()?.len();
                if !is_ours(&file, length) && !overwrite {
                    bail!(Unusable(format!(
                        "{} is there and tipover did not make it; move it away, or say --overwrite",
                        self.data.display()
                    )));
                }
                let usable = length.saturating_sub(MARK_BLOCK);
                if is_ours(&file, length) && size.is_none_or(|size| size.0 <= usable) {
                    return Ok(size.unwrap_or(Bytes(usable)));
                }
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(self.cannot("read", &e).into()),
        }
        let size = self.affordable(size)?;
        self.fill(size, stop, progress)?;
        Ok(size)
    }

    /// The size that fits, with room to spare for the file system itself.
    fn affordable(&self, size: Option<Bytes>) -> Result<Bytes> {
        let stat = rustix::fs::statvfs(&self.path).with_context(|| self.path.display().to_string())?;
        let free = stat.f_bavail * stat.f_frsize;
        // What is there already and would be replaced is free by then.
        let replaced = std::fs::metadata(&self.data).map_or(0, |m| m.len());
        let room = (free + replaced) / 100 * 95;
        let wanted = size.unwrap_or(Bytes(USUAL_SIZE.0.min(room / 2) >> 20 << 20));
        if wanted.0 + MARK_BLOCK > room || wanted.0 == 0 {
            bail!(Unusable(format!(
                "{}: no room for {}: {} are free; give a smaller --size, or make room",
                self.path.display(),
                size.unwrap_or(Bytes::mib(1)).rounded(),
                Bytes(free).rounded()
            )));
        }
        Ok(wanted)
    }

    /// Writes noise that no disk can compress, then the mark, then the name: a run that was killed half-way
    /// leaves a partial file that the next one replaces.
    fn fill(&self, size: Bytes, stop: Stop<'_>, progress: &mut dyn FnMut(f64)) -> Result<()> {
        let partial = self.path.join(PARTIAL);
        let _ = std::fs::remove_file(&self.data);
        let _guard = Unfinished(&partial);
        let mut file = File::create(&partial).map_err(|e| self.cannot("write", &e))?;
        let mut random = Random::new(size.0, 1);
        let mut piece = vec![0u8; 1 << 20];
        let mut written = 0;
        while written < size.0 {
            check(stop)?;
            for word in piece.chunks_exact_mut(8) {
                word.copy_from_slice(&random.bits().to_le_bytes());
            }
            let length = (size.0 - written).min(piece.len() as u64);
            file.write_all(&piece[..length as usize]).map_err(|e| self.cannot("write", &e))?;
            written += length;
            // What is dirty is written out as it comes, or the first trial would pay for it.
            if written.is_multiple_of(64 << 20) {
                file.sync_data().map_err(|e| self.cannot("flush", &e))?;
                progress(written as f64 / size.0 as f64);
            }
        }
        let mut mark = vec![0u8; MARK_BLOCK as usize];
        mark[..MARK.len()].copy_from_slice(MARK);
        file.write_all(&mark).and_then(|()| file.sync_all()).map_err(|e| self.cannot("write", &e))?;
        std::fs::rename(&partial, &self.data).map_err(|e| self.cannot("rename", &e))?;
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(|e| self.cannot("flush", &e))?;
        Ok(())
    }

    /// Opens the data for a load.
    ///
    /// # Errors
    /// [`Unusable`] without direct I/O, without permission, or for a device that is in use.
    pub fn open(&self, access: Access) -> Result<File, Unusable> {
        let mut flags = OFlags::empty();
        if access.direct {
            flags |= OFlags::DIRECT;
        }
        if access.dsync {
            flags |= OFlags::DSYNC;
        }
        // Whoever mounts a device has it exclusively; writing beneath a file system destroys it.
        if access.writes && self.kind == Kind::Device {
            flags |= OFlags::EXCL;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access.writes).custom_flags(flags.bits() as i32);
        options.open(&self.data).map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) if access.direct => Unusable(format!(
                "{}: this file system has no direct I/O (O_DIRECT); use --buffered, with more data than memory",
                self.path.display()
            )),
            Some(libc::EBUSY) => Unusable(format!(
                "{} is in use ({}); unmount it first, or name a folder on it",
                self.path.display(),
                mounted_at(&self.path).map_or("by the kernel".into(), |at| format!("mounted at {at}"))
            )),
            _ => self.cannot(if access.writes { "write" } else { "read" }, &error),
        })
    }

    fn cannot(&self, what: &str, error: &std::io::Error) -> Unusable {
        let path = self.path.display();
        Unusable(match error.raw_os_error() {
            Some(libc::EROFS) => format!("{path} is mounted read-only; name a folder that can be written"),
            Some(libc::EACCES | libc::EPERM) => {
                format!(
                    "{path}: no permission to {what} it; run as its owner or as root, or name another folder"
                )
            }
            Some(libc::ENOSPC) => {
                format!("{path}: there is no room left; give a smaller --size, or make room")
            }
            Some(libc::EIO) => format!("{path}: the disk reports an error (EIO) when asked to {what}"),
            Some(libc::ENOTCONN) => {
                format!("{path}: the daemon of this mount is gone; `tipover doctor --clean` removes it")
            }
            _ => format!("cannot {what} {path}: {error}"),
        })
    }

    /// Removes the data that a folder was given.
    pub fn remove(&self) {
        if self.kind == Kind::Folder {
            let _ = std::fs::remove_file(&self.data);
        }
    }
}

/// Removes what was not finished.
struct Unfinished<'a>(&'a Path);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        // After the renaming there is nothing of this name.
        let _ = std::fs::remove_file(self.0);
    }
}

fn is_ours(file: &File, length: u64) -> bool {
    let mut found = vec![0; MARK.len()];
    length > MARK_BLOCK && file.read_exact_at(&mut found, length - MARK_BLOCK).is_ok() && found == MARK
}

fn mounted_at(device: &Path) -> Option<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let device = device.to_str()?;
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some(device)).then(|| words.next().unwrap_or_default().to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: Stop<'static> = &|| false;

    fn prepared(location: &Location, size: u64, writes: bool, overwrite: bool) -> Result<Bytes, String> {
        location
            .prepare(Some(Bytes(size)), writes, overwrite, NEVER, &mut |_| ())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_folder_gets_data_that_is_used_again_and_marked_as_ours() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::find(folder.path()).unwrap();
        assert_eq!(prepared(&location, 1 << 20, true, false), Ok(Bytes::mib(1)));
        let made = std::fs::metadata(&location.data).unwrap().modified().unwrap();
        assert_eq!(prepared(&location, 1 << 19, true, false), Ok(Bytes::kib(512)));
        assert_eq!(std::fs::metadata(&location.data).unwrap().modified().unwrap(), made, "it was used again");
        assert_eq!(prepared(&location, 2 << 20, true, false), Ok(Bytes::mib(2)), "more was asked for");
        let as_file = Location::find(&location.data).unwrap();
        assert_eq!(as_file.prepare(None, true, false, NEVER, &mut |_| ()).unwrap(), Bytes::mib(2));
        location.remove();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_not_ours_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join("theirs");
        std::fs::write(&theirs, vec![7; 1 << 20]).unwrap();
        let location = Location::find(&theirs).unwrap();
        let refused = prepared(&location, 4096, true, false).unwrap_err();
        assert!(refused.contains("--overwrite") && refused.contains("did not make it"), "{refused}");
        assert_eq!(prepared(&location, 4096, false, false), Ok(Bytes::kib(4)), "reading harms nobody");
        assert_eq!(prepared(&location, 4096, true, true), Ok(Bytes::kib(4)));
        let short = prepared(&location, 2 << 20, false, false).unwrap_err();
        assert!(short.contains("holds 1.00 MiB"), "{short}");
        assert_eq!(std::fs::read(&theirs).unwrap(), vec![7; 1 << 20]);
        std::fs::write(folder.path().join(DATA), "mine").unwrap();
        let refused = prepared(&Location::find(folder.path()).unwrap(), 4096, true, false).unwrap_err();
        assert!(refused.contains("did not make it"), "{refused}");
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Location::find(&folder.path().join("nowhere")).unwrap_err().to_string();
        assert!(missing.contains("no such file or folder; name a folder"), "{missing}");
        let odd = Location::find(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(odd.contains("neither a folder"), "{odd}");
        let location = Location::find(folder.path()).unwrap();
        let large = prepared(&location, 1 << 60, true, false).unwrap_err();
        assert!(large.contains("no room") && large.contains("--size"), "{large}");
        let stopped = location.prepare(Some(Bytes::mib(1)), true, false, &|| true, &mut |_| ()).unwrap_err();
        assert!(stopped.is::<super::super::Stopped>());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left half-made");
    }
}
