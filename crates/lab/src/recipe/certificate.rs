//! A certificate for one server, signed by an authority made for it alone.

use super::server::ServerError;
use super::{Account, Missing, find_program};
use crate::Launch;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Files in PEM.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    /// What a client must trust.
    pub authority: PathBuf,
    /// What the server shows.
    pub certificate: PathBuf,
    /// What the server keeps.
    pub key: PathBuf,
}

/// Makes one for "localhost" and for `address`, in `folder`, with the `openssl` program. An authority and a
/// certificate apart, because strict clients refuse an authority that serves.
pub(crate) fn make(
    folder: &Path,
    address: &str,
    account: Option<&Account>,
) -> Result<Certificate, ServerError> {
    let openssl = find_program("openssl").ok_or_else(|| Missing {
        what: "openssl".into(),
        looked: "not in PATH".into(),
        advice: "a server with TLS needs a certificate: apt-get install openssl".into(),
    })?;
    let at = |name: &str| folder.join(name);
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| ServerError::File { path, source }
    };
    std::fs::create_dir_all(folder).map_err(io(folder))?;
    let names = format!(
        "subjectAltName=DNS:localhost,IP:{address}\nbasicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\n"
    );
    std::fs::write(at("names"), names).map_err(io(&at("names")))?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&openssl);
        command.current_dir(folder).args(arguments);
        let mut child = Launch::new(command).called("openssl").start()?;
        let exit = child.wait(Duration::from_secs(30)).map_err(io(&openssl))?;
        match exit {
            Some(exit) if exit.succeeded() => Ok(()),
            Some(exit) => Err(ServerError::Step { step: "openssl".into(), ending: exit.explained() }),
            None => Err(ServerError::Step { step: "openssl".into(), ending: "did not end in 30 s".into() }),
        }
    };
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let authority = ["-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=tipover laboratory"];
    run(&[&["req", "-x509"], &curve[..], &authority[..]].concat())?;
    let request = ["-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"];
    run(&[&["req"], &curve[..], &request[..]].concat())?;
    run(&[
        "x509",
        "-req",
        "-in",
        "server.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-out",
        "server.pem",
        "-days",
        "30",
        "-extfile",
        "names",
    ])?;
    let made = Certificate { authority: at("ca.pem"), certificate: at("server.pem"), key: at("server.key") };
    // The key of the authority is of no more use, and no one else shall be trusted.
    std::fs::remove_file(at("ca.key")).map_err(io(&at("ca.key")))?;
    Account::own(account, &made.key).map_err(io(&made.key))?;
    Ok(made)
}
