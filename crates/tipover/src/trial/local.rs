//! A server on this machine: its process, found by the port that it listens on, and the block device under
//! its data. Both are the kernel's word and not the server's; where they cannot be had, a sentence
//! says why.

use crate::machine::{self, Home};
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{Address, TargetKind};

/// The process that listens at `address`.
///
/// # Errors
/// A sentence, when there is none on this machine that this user can see.
pub fn process(address: &Address, kind: TargetKind) -> Result<u32, String> {
    let (host, port) = place(address.shown(), kind).ok_or("the address names no single host")?;
    let here = |(host, port): (&str, u16)| -> std::io::Result<bool> {
        // An address is of this machine if one can listen at it.
        Ok((host, port).to_socket_addrs()?.any(|at| TcpListener::bind((at.ip(), 0)).is_ok()))
    };
    let network = match here((host.as_str(), port)).map_err(|error| format!("{host}: {error}"))? {
        true => "/proc/self/net".to_string(),
        // The laboratory's servers have addresses of their own, in network namespaces of this machine.
        false => match namespace_of(&host) {
            Some(process) => format!("/proc/{process}/net"),
            None => return Err(format!("{host} is another machine")),
        },
    };
    let tables = ["tcp", "tcp6"]
        .map(|table| std::fs::read_to_string(format!("{network}/{table}")).unwrap_or_default());
    let sockets: Vec<String> = tables
        .iter()
        .flat_map(|table| listeners(table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let holds = |pid: &u32| {
        let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        descriptors.flatten().any(|descriptor| {
            std::fs::read_link(descriptor.path())
                .is_ok_and(|link| sockets.iter().any(|socket| link == Path::new(socket)))
        })
    };
    let entries = std::fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let processes = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // Children inherit the socket; the first one made it.
    processes.filter(holds).min().ok_or_else(|| {
        format!(
            "no process that this user can see listens on port {port}: it is another user's or in a container"
        )
    })
}

/// A process in whose network namespace `host` is an address of this machine's, if there is one to be seen.
fn namespace_of(host: &str) -> Option<u32> {
    let host: std::net::Ipv4Addr = host.parse().ok()?;
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let mut known = vec![namespace("self")?];
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Some(namespace) = namespace(&process.to_string()).filter(|it| !known.contains(it)) else {
            continue;
        };
        known.push(namespace);
        let routes = std::fs::read_to_string(format!("/proc/{process}/net/fib_trie")).unwrap_or_default();
        if is_local(&routes, host) {
            return Some(process);
        }
    }
    None
}

/// Whether a table of routes, as `fib_trie` prints it, has `host` among the addresses of the machine itself.
fn is_local(routes: &str, host: std::net::Ipv4Addr) -> bool {
    let wanted = format!("|-- {host}");
    let mut lines = routes.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if line == wanted && lines.peek().is_some_and(|next| *next == "/32 host LOCAL") {
            return true;
        }
    }
    false
}

/// Where the server at `address` keeps its data and its log.
///
/// # Errors
/// A sentence, when it does not run on this machine or cannot be seen.
pub fn home(address: &Address, kind: TargetKind) -> Result<Home, String> {
    let folder = data_folder(process(address, kind)?);
    let device_of = |path: &Path| std::fs::metadata(path).map(|about| about.dev()).ok();
    let wal_apart = match kind {
        TargetKind::Postgres => {
            device_of(&folder.join("pg_wal")).zip(device_of(&folder)).map(|(wal, data)| wal != data)
        }
        _ => None,
    };
    Ok(Home { device: machine::device_under(&folder), wal_apart })
}

/// Where a server keeps its data: in its working folder by habit, unless that is `/`, where daemons go that
/// fork; then with the largest file that it holds open for writing.
fn data_folder(process: u32) -> PathBuf {
    let working = PathBuf::from(format!("/proc/{process}/cwd"));
    if std::fs::read_link(&working).is_ok_and(|folder| folder != Path::new("/")) {
        return working;
    }
    let written = |descriptor: std::fs::DirEntry| {
        let number = descriptor.file_name().into_string().ok()?;
        let info = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        let mode = i32::from_str_radix(flags.trim(), 8).ok()? & libc::O_ACCMODE;
        let about = std::fs::metadata(descriptor.path()).ok().filter(|about| about.is_file())?;
        let path = std::fs::read_link(descriptor.path()).ok()?;
        // Seen through the process's own root, as its working folder is.
        let inside = PathBuf::from(format!("/proc/{process}/root")).join(path.strip_prefix("/").ok()?);
        (mode != libc::O_RDONLY && inside.exists()).then_some((about.len(), inside))
    };
    let open = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let largest = open.filter_map(written).max();
    largest.and_then(|(_, file)| file.parent().map(Path::to_path_buf)).unwrap_or(working)
}

/// The block device under the data of a process.
///
/// # Errors
/// A sentence, when there is none, or it cannot be seen.
pub fn device(process: u32) -> Result<String, String> {
    let folder = data_folder(process);
    let about = std::fs::metadata(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let (major, minor) = (rustix::fs::major(about.dev()), rustix::fs::minor(about.dev()));
    let device = std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}"))
        .map_err(|_| "the server's data is on no block device".to_string())?;
    let name = device.file_name().and_then(|name| name.to_str());
    name.map(ToString::to_string).ok_or_else(|| "the device has no name".into())
}

/// Host and port of a URL with one host.
fn place(url: &str, kind: TargetKind) -> Option<(String, u16)> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.is_empty() || host.contains([',', '%']) {
        return None;
    }
    let usual = match kind {
        TargetKind::Mysql => 3306,
        TargetKind::Mongodb => 27017,
        _ => 5432,
    };
    match host.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') => {
            Some((host.trim_matches(['[', ']']).into(), port.parse().ok()?))
        }
        _ => Some((host.trim_matches(['[', ']']).into(), usual)),
    }
}

/// Inodes of the sockets that listen on `port`, from a table of `/proc/net`.
fn listeners(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = rows.filter(|words| words.len() > 9 && words[1].ends_with(&wanted) && words[3] == LISTEN);
    listening.map(|words| words[9].to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_found_in_urls() {
        let of = |url| place(url, TargetKind::Postgres);
        assert_eq!(of("postgres://anna@db.example:5433/bank"), Some(("db.example".into(), 5433)));
        assert_eq!(of("postgres://anna@db.example/bank"), Some(("db.example".into(), 5432)));
        assert_eq!(of("postgres://anna@[::1]:5433/bank?sslmode=require"), Some(("::1".into(), 5433)));
        assert_eq!(of("mongodb://one,two/bank"), None);
        assert_eq!(place("mongodb://one", TargetKind::Mongodb), Some(("one".into(), 27017)));
    }

    #[test]
    fn an_address_of_a_namespace_is_told_from_a_neighbours() {
        let routes = "Local:\n  +-- 10.1.0.0/24 2 0 2\n     |-- 10.1.0.0\n        /24 link UNICAST\n     |-- 10.1.0.2\n        \
                      /32 host LOCAL\n     |-- 10.1.0.255\n        /32 link BROADCAST\n";
        assert!(is_local(routes, [10, 1, 0, 2].into()));
        assert!(!is_local(routes, [10, 1, 0, 255].into()) && !is_local(routes, [10, 1, 0, 20].into()));
        let own = std::fs::read_to_string("/proc/self/net/fib_trie").unwrap();
        assert!(is_local(&own, [127, 0, 0, 1].into()), "{own}");
    }

    #[test]
    fn a_daemon_that_went_to_the_root_is_found_by_what_it_writes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| folder.path().join(name);
        std::fs::create_dir(path("data")).unwrap();
        std::fs::write(path("data/large"), vec![0; 1 << 20]).unwrap();
        std::fs::write(path("log"), "small").unwrap();
        std::fs::write(path("only-read"), vec![0; 2 << 20]).unwrap();
        let script = "exec 3<>data/large 4>>log 5<only-read; cd $0; exec sleep 60";
        let found = |place: &str| {
            let mut server = std::process::Command::new("sh")
                .args(["-c", script, place])
                .current_dir(folder.path())
                .spawn()
                .unwrap();
            let comm = format!("/proc/{}/comm", server.id());
            while std::fs::read_to_string(&comm).unwrap().trim() != "sleep" {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let found = data_folder(server.id()).canonicalize().unwrap();
            server.kill().unwrap();
            server.wait().unwrap();
            found
        };
        assert_eq!(found("/"), path("data").canonicalize().unwrap());
        // Elsewhere the habit counts.
        assert_eq!(found("."), folder.path().canonicalize().unwrap());
    }

    #[test]
    fn this_process_is_found_by_the_port_that_it_listens_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let address = format!("postgres://127.0.0.1:{port}/x").parse().unwrap();
        assert_eq!(process(&address, TargetKind::Postgres), Ok(std::process::id()));
        drop(listener);
        assert!(process(&address, TargetKind::Postgres).unwrap_err().contains("no process"));
    }
}
