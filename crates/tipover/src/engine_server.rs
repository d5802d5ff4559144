//! The process of an embedded engine that is served, so that it can be killed and its power cut like a
//! server: this program again with a hidden verb.

use anyhow::{Context, Result, bail};
use std::net::TcpListener;
use std::path::PathBuf;
use tipover_core::experiment::Spec;
use tipover_core::op::{Failure, Outcome};
use tipover_targets::served;

/// Serves until it is killed; for the hidden verb.
pub fn serve() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let [spec, "--folder", folder, "--listen", address, "--ready", ready] =
        arguments.iter().map(String::as_str).collect::<Vec<_>>()[..]
    else {
        bail!("this command is started by the laboratory");
    };
    let spec: Spec = serde_json::from_str(spec).context("the cell to be served")?;
    let target = tipover_targets::start(&spec, &PathBuf::from(folder))?;
    let listener = TcpListener::bind(address).with_context(|| format!("listening at {address}"))?;
    std::fs::write(ready, std::process::id().to_string()).with_context(|| ready.to_string())?;
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let stream = stream?;
            // A client that hangs up ends its session; nobody waits for its reasons.
            scope.spawn(|| drop(served::serve(stream, target.as_ref(), &complain)));
        }
        Ok(())
    })
}

/// Says what went wrong with the disk, for whoever filled it or let it fail. An engine that has given up
/// takes its process along, as mongod ends where its engine panics: every later call would fail, and only a
/// new start with its recovery helps.
fn complain(outcome: Outcome) {
    let (Outcome::Refused(failure) | Outcome::Unknown(failure)) = outcome else { return };
    match failure {
        Failure::Full => eprintln!("WiredTiger: No space left on device"),
        Failure::InputOutput => eprintln!("WiredTiger: an error of its disk"),
        Failure::Unavailable => {
            eprintln!("WiredTiger: it has given up after an error of its disk");
            std::process::exit(1)
        }
        _ => {}
    }
}
