//! The daemon's life: mount what the first request says, obey further requests, and take everything down
//! when told, when its client is gone, or on a signal.

use crate::clock::process_cpu;
use crate::privilege;
use crate::protocol::{Request, Response};
use crate::stack::{Failure, Stack};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// Runs the daemon; for the hidden verb that [`crate::MountOptions::daemon`] names. It speaks over its
/// standard input, which must be a Unix socket, and returns when everything is unmounted.
pub fn serve() -> ExitCode {
    match connect().and_then(obey) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("tipover disk daemon: {e}");
            ExitCode::FAILURE
        }
    }
}

fn connect() -> io::Result<UnixStream> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control.peer_addr().map_err(|_| {
        io::Error::other(
            "standard input is not a socket; this command is started by `tipover` itself, not by hand",
        )
    })?;
    Ok(control)
}

fn obey(control: UnixStream) -> io::Result<()> {
    let privileges = privilege::claim();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let hang_up = control.try_clone()?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in &mut signals {
            // Looks to the main thread as if the client were gone: one way down for every reason.
            let _ = hang_up.shutdown(Shutdown::Both);
        }
    })?;

    let mut stack: Option<Stack> = None;
    let mut answers = control.try_clone()?;
    for line in BufReader::new(control).lines() {
        let Ok(line) = line else { break };
        let request = serde_json::from_str(&line)?;
        let last = matches!(request, Request::Unmount);
        let response = match (request, &mut stack) {
            (Request::Mount(request), None) => match Stack::build(request, privileges) {
                Ok((built, mounted)) => {
                    stack = Some(built);
                    Ok(Response::Mounted(mounted))
                }
                Err(failure) => Err(failure),
            },
            (Request::Set { spec, compensation }, Some(stack)) => {
                stack.shape().set(spec, compensation);
                Ok(Response::Done)
            }
            (Request::Counters, Some(stack)) => {
                Ok(Response::Counters { counters: stack.shape().counters(), cpu: process_cpu() })
            }
            (Request::DropCaches, Some(stack)) => stack.drop_caches().map(|()| Response::Done),
            (Request::Readahead(size), Some(stack)) => stack.set_readahead(size).map(|()| Response::Done),
            (Request::TraceStart(path), Some(stack)) => stack.trace_start(&path).map(|()| Response::Done),
            (Request::TraceStop, Some(stack)) => stack.trace_stop().map(Response::Traced),
            (Request::Unmount, stack) => {
                drop(stack.take());
                Ok(Response::Done)
            }
            (_, _) => Err(Failure { step: "obeying".into(), reason: "not now".into() }),
        };
        let response = response
            .unwrap_or_else(|failure| Response::Failed { step: failure.step, reason: failure.reason });
        let mut text = serde_json::to_string(&response)?;
        text.push('\n');
        // A client that does not listen any more is gone; the next read says so too.
        if answers.write_all(text.as_bytes()).is_err() || last {
            break;
        }
    }
    drop(stack);
    Ok(())
}
