//! System packages. As root on a machine with apt we install what is missing; elsewhere we print the command.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::Purpose;
use crate::process::{find_program, run};

/// A package, known by a program that it brings: asking for the program works on every distribution.
struct Package {
    /// Debian's and Ubuntu's name.
    name: &'static str,
    /// Any of these means that it is there.
    programs: &'static [&'static str],
    /// From which purpose on it is wanted.
    wanted_for: Purpose,
    /// Setup fails without it.
    required: bool,
    /// What is lost without it.
    reason: &'static str,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "gcc",
        programs: &["cc", "gcc", "clang"],
        wanted_for: Purpose::Sources,
        required: true,
        reason: "compiles WiredTiger",
    },
    Package {
        name: "python3",
        programs: &["python3"],
        wanted_for: Purpose::Sources,
        required: true,
        reason: "fetches and unpacks the third-party sources",
    },
    Package {
        name: "e2fsprogs",
        programs: &["mkfs.ext4"],
        wanted_for: Purpose::Demo,
        required: false,
        reason: "makes the file system on a shaped block device; without it: file mode",
    },
    Package {
        name: "mount",
        programs: &["losetup"],
        wanted_for: Purpose::Demo,
        required: false,
        reason: "attaches and mounts a shaped block device; without it: file mode",
    },
    Package {
        name: "util-linux",
        programs: &["lsblk"],
        wanted_for: Purpose::Demo,
        required: false,
        reason: "describes the machine's disks in a record",
    },
    Package {
        name: "fuse3",
        programs: &["fusermount3"],
        wanted_for: Purpose::Demo,
        required: false,
        reason: "mounts and unmounts a shaped disk for an ordinary user",
    },
    Package {
        name: "xfsprogs",
        programs: &["mkfs.xfs"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "compares xfs with ext4; without it: ext4 only",
    },
    Package {
        name: "postgresql",
        // Debian keeps the server itself out of PATH; this tool comes with it.
        programs: &["pg_lsclusters", "postgres"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "a real database to measure and to break",
    },
    Package {
        name: "mariadb-server",
        programs: &["mariadbd"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "a real database to measure and to break",
    },
    Package {
        name: "mariadb-plugin-rocksdb",
        programs: &["mysql_ldb", "mariadb-ldb"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "MyRocks, so that a log-structured engine is tested beside InnoDB",
    },
    Package {
        name: "galera-4",
        // A library, at the place where MariaDB looks for it.
        programs: &["/usr/lib/galera/libgalera_smm.so"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "joins three MariaDB servers into a cluster",
    },
    Package {
        name: "debootstrap",
        programs: &["debootstrap"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "fetches MongoDB's last version that a distribution has",
    },
    Package {
        name: "rsync",
        programs: &["rsync"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "copies the data to a node that joins a Galera cluster",
    },
    Package {
        name: "lsof",
        programs: &["lsof"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "tells a Galera node that its copy has arrived",
    },
    Package {
        name: "iproute2",
        programs: &["ip"],
        wanted_for: Purpose::Demo,
        required: false,
        reason: "gives each node a network address of its own; without it: loopback ports",
    },
    Package {
        name: "openssl",
        programs: &["openssl"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "makes the certificates of servers that are tested with TLS",
    },
    Package {
        name: "openssh-client",
        programs: &["ssh-keygen"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "signs a package, in tests with a key that is thrown away",
    },
    Package {
        name: "python3-lmdb",
        // A module of the system's own Python, whichever other comes first in PATH.
        programs: &["/usr/lib/python3/dist-packages/lmdb/__init__.py"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "a store that is cut off from power on a shaped disk",
    },
    Package {
        name: "fio",
        programs: &["fio"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "the peer of the disk's bench",
    },
    Package {
        name: "sysbench",
        programs: &["sysbench"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "a peer of PostgreSQL's bench",
    },
    Package {
        name: "chromium",
        programs: &["chromium", "chromium-browser", "google-chrome"],
        wanted_for: Purpose::Tests,
        required: false,
        reason: "opens the report in a real browser, in tests",
    },
];

/// Installs what the purpose wants and the machine lacks, or says how to.
pub fn install_missing(purpose: Purpose) -> Result<()> {
    let wanted: Vec<&Package> = PACKAGES.iter().filter(|package| package.wanted_for <= purpose).collect();
    let mut missing = absent(&wanted);
    if missing.is_empty() && pip_works() {
        println!("    nothing is missing");
        return Ok(());
    }
    let names = names_to_install(&missing, pip_works());
    if !is_root() {
        println!(
            "    missing; install with: sudo apt-get install --no-install-recommends {}",
            names.join(" ")
        );
    } else if find_program("apt-get").is_none() {
        println!("    missing, and this machine has no apt; install with its own tool: {}", names.join(" "));
    } else if let Err(error) = apt_install(&names) {
        println!("    apt could not install all of them together: {error:#}");
        // One package that this distribution lacks must not cost the others.
        for name in &names {
            if let Err(error) = apt_install_once(&[name]) {
                println!("    {name}: {error:#}");
            }
        }
    }
    missing = absent(&wanted);
    for package in &missing {
        println!("    not available: {} ({})", package.name, package.reason);
    }
    if let Some(package) = missing.iter().find(|package| package.required) {
        bail!("cannot go on without {}: it {}", package.name, package.reason);
    }
    if !pip_works() {
        // Not an error yet: the sources may have been fetched before.
        println!("    not available: python3-pip (fetches the third-party sources)");
    }
    Ok(())
}

/// Installs a package that no purpose wants, called as its program, where that is missing.
///
/// # Errors
/// Who runs this may not install, or apt does not have it.
pub fn install(name: &str) -> Result<()> {
    if find_program(name).is_some() {
        return Ok(());
    }
    if !is_root() || find_program("apt-get").is_none() {
        bail!("{name} is not installed; on Debian and Ubuntu: sudo apt-get install {name}");
    }
    apt_install(&[name])
}

fn absent<'a>(wanted: &[&'a Package]) -> Vec<&'a Package> {
    let there = |package: &Package| package.programs.iter().any(|name| find_program(name).is_some());
    wanted.iter().copied().filter(|package| !there(package)).collect()
}

/// gcc alone brings no C headers when recommendations are off, so the two go together.
fn names_to_install(missing: &[&Package], pip_works: bool) -> Vec<&'static str> {
    let mut names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if names.contains(&"gcc") {
        names.push("libc6-dev");
    }
    if !pip_works {
        names.push("python3-pip");
    }
    names
}

fn pip_works() -> bool {
    python_with_pip().is_some()
}

/// The Python to fetch with: the user's own, or the system's when only that one has pip (apt installs it
/// there).
pub fn python_with_pip() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let output = Command::new(python).args(["-m", "pip", "--version"]).output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// A fresh image has no package lists and an old one has stale ones; in both cases an update helps.
fn apt_install(names: &[&str]) -> Result<()> {
    println!("    installing: {}", names.join(" "));
    let _no_services = NoServices::begin();
    if has_package_lists() && apt_install_once(names).is_ok() {
        return Ok(());
    }
    run(apt(&["update"]))?;
    apt_install_once(names)
}

fn apt_install_once(names: &[&str]) -> Result<()> {
    let mut command = apt(&["install", "-y", "--no-install-recommends"]);
    command.args(names);
    run(command)
}

/// Quiet, without questions, and patient when another apt is at work.
fn apt(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args([
        "-qq",
        "-o",
        "DPkg::Lock::Timeout=300",
        "-o",
        "Acquire::Retries=3",
        "-o",
        "Dpkg::Use-Pty=0",
    ]);
    command.args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(std::process::Stdio::null());
    command
}

fn has_package_lists() -> bool {
    let folder = std::fs::read_dir("/var/lib/apt/lists");
    folder.is_ok_and(|entries| {
        entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("Packages"))
    })
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    effective_user(&status) == Some(0)
}

/// The effective user of `/proc/self/status`: `Uid:` lists the real, the effective, the saved and the
/// file system's.
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// While it lives, Debian's packages start no services; it never replaces a policy that the machine has.
struct NoServices {
    ours: Option<PathBuf>,
}

impl NoServices {
    fn begin() -> NoServices {
        use std::os::unix::fs::OpenOptionsExt;
        let path = Path::new("/usr/sbin/policy-rc.d");
        let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(path);
        let ours = made.ok().map(|mut file| {
            // Best effort: without the policy a package could start its service, which harms nothing here.
            let _ = std::io::Write::write_all(&mut file, b"#!/bin/sh\nexit 101\n");
            path.to_path_buf()
        });
        NoServices { ours }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if let Some(path) = &self.ours {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Without the device there is no shaped disk. A module can be loaded; a container needs its owner's help.
pub fn check_fuse_device() {
    let device = Path::new("/dev/fuse");
    if device.exists() {
        return;
    }
    if is_root() && find_program("modprobe").is_some() {
        let _ = Command::new("modprobe").arg("fuse").output();
    }
    if device.exists() {
        println!("    /dev/fuse appeared after `modprobe fuse`");
        return;
    }
    println!("not available: /dev/fuse, so there will be no shaped disk.");
    println!("    On a machine of your own: `modprobe fuse`. In a container: start it with");
    println!("    `--device /dev/fuse --cap-add SYS_ADMIN`; if the kernel has fuse (see /proc/filesystems)");
    println!("    and you are root, `mknod -m 666 /dev/fuse c 10 229` may be enough.");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compiler_comes_with_its_headers_and_python_with_its_pip() {
        let gcc: Vec<&Package> = PACKAGES.iter().filter(|package| package.name == "gcc").collect();
        assert_eq!(names_to_install(&gcc, false), ["gcc", "libc6-dev", "python3-pip"]);
        assert_eq!(names_to_install(&[], true), [""; 0]);
    }

    #[test]
    fn the_demo_needs_no_browser() {
        let browser = PACKAGES.iter().find(|package| package.name == "chromium").unwrap();
        assert!(browser.wanted_for > Purpose::Demo);
    }

    #[test]
    fn the_effective_user_is_the_second_number() {
        assert_eq!(effective_user("Name:\tx\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user("Uid:\t1000\t1000\t1000\t1000\n"), Some(1000));
        assert_eq!(effective_user(""), None);
    }
}
