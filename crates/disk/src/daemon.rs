//! The daemon's life: mount what the first request says, obey further requests, and take everything down
//! when told, on a signal, or when its client is gone, unless that client wanted it to stay.

use crate::clock::process_cpu;
use crate::privilege::{self, Privileges};
use crate::protocol::{Notes, Request, Response};
use crate::shape::Shape;
use crate::stack::{Failure, Stack, failed};
use parking_lot::Mutex;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::OpenOptions;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use tipover_core::peer;

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

/// The socket that a daemon of ours is started with, as its standard input.
///
/// # Errors
/// It was not started by us.
pub fn connect() -> io::Result<UnixStream> {
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    control.peer_addr().map_err(|_| {
        io::Error::other(
            "standard input is not a socket; this command is started by `tipover` itself, not by hand",
        )
    })?;
    Ok(control)
}

struct Daemon {
    privileges: Privileges,
    stack: Mutex<Option<Stack>>,
    /// The mounted disk's, without waiting for whoever holds the stack: that one may be waiting for a request
    /// that is stalled.
    shape: OnceLock<Arc<Shape>>,
    notes: Mutex<Option<Box<Notes>>>,
    /// The client that started it.
    parent: UnixStream,
    /// Says that it is time to go.
    end: Sender<()>,
}

fn obey(control: UnixStream) -> io::Result<()> {
    let privileges = privilege::claim();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (end, ended) = channel();
    let (hang_up, told) = (control.try_clone()?, end.clone());
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in &mut signals {
            // Looks to the main thread as if the client were gone: one way down for every reason.
            let _ = hang_up.shutdown(Shutdown::Both);
            let _ = told.send(());
        }
    })?;
    let (stack, shape, notes) = (Mutex::default(), OnceLock::new(), Mutex::default());
    let daemon = Arc::new(Daemon { privileges, stack, shape, notes, parent: control.try_clone()?, end });
    daemon.converse(control)?;
    if daemon.notes.lock().is_some() && daemon.stack.lock().is_some() {
        let _ = ended.recv();
    }
    daemon.release();
    drop(daemon.stack.lock().take());
    Ok(())
}

/// Whether whoever was at the other end is gone.
fn is_closed(stream: &UnixStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let mut byte = [0];
    matches!(recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((0, _)))
}

impl Daemon {
    /// Obeys one client until it is gone, or until there is nothing left to obey with.
    fn converse(self: &Arc<Self>, control: UnixStream) -> io::Result<()> {
        let mut answers = control.try_clone()?;
        let mut requests = BufReader::new(control);
        while let Some(request) = peer::hear_or_gone(&mut requests)? {
            let last = matches!(request, Request::Unmount);
            let response = self
                .act(request)
                .unwrap_or_else(|failure| Response::Failed { step: failure.step, reason: failure.reason });
            // A client that does not listen any more is gone; the next read says so too.
            if peer::say(&mut answers, &response).is_err() || last {
                if last {
                    let _ = self.parent.shutdown(Shutdown::Both);
                    let _ = self.end.send(());
                }
                break;
            }
        }
        Ok(())
    }

    /// Nobody may go on waiting for a stalled request.
    fn release(&self) {
        if let Some(shape) = self.shape.get() {
            shape.clear_faults(None);
        }
    }

    fn act(self: &Arc<Self>, request: Request) -> Result<Response, Failure> {
        match (&request, self.shape.get()) {
            (Request::AddFault(rule), Some(shape)) => {
                return Ok(Response::Number(shape.add_fault((**rule).clone())));
            }
            (Request::Faults, Some(shape)) => return Ok(Response::Faults(shape.faults())),
            (Request::ClearFaults(number), Some(shape)) => {
                return Ok(Response::Number(shape.clear_faults(*number) as u64));
            }
            (Request::Counters, Some(shape)) => {
                return Ok(Response::Counters { counters: shape.counters(), cpu: process_cpu() });
            }
            (Request::Unmount, _) => self.release(),
            _ => {}
        }
        self.act_on_stack(request)
    }

    fn act_on_stack(self: &Arc<Self>, request: Request) -> Result<Response, Failure> {
        let mut stack = self.stack.lock();
        Ok(match (request, &mut *stack) {
            (Request::Mount(request), None) => {
                let (built, mounted) = Stack::build(request, self.privileges, &|| is_closed(&self.parent))?;
                let _ = self.shape.set(built.shared_shape());
                *stack = Some(built);
                Response::Mounted(mounted)
            }
            (Request::Set { spec, compensation }, Some(stack)) => {
                stack.shape().set(*spec, compensation);
                Response::Done
            }
            (Request::DropCaches, Some(stack)) => stack.drop_caches().map(|()| Response::Done)?,
            (Request::Readahead(size), Some(stack)) => stack.set_readahead(size).map(|()| Response::Done)?,
            (Request::TraceStart(path), Some(stack)) => stack.trace_start(&path).map(|()| Response::Done)?,
            (Request::TraceStop, Some(stack)) => stack.trace_stop().map(Response::Traced)?,
            (Request::TracePath, Some(stack)) => Response::Path(stack.trace_path()),
            (Request::PowerCut(cut), Some(stack)) => Response::Cut(stack.cut(&cut)?),
            (Request::PowerOn(before), Some(stack)) => Response::Mounted(stack.power_on(&before)?),
            (Request::Keep(notes), Some(stack)) => {
                self.stay(stack).map_err(failed("staying without a client"))?;
                *self.notes.lock() = Some(notes);
                Response::Done
            }
            (Request::Remember(notes), Some(_)) => {
                *self.notes.lock() = Some(notes);
                Response::Done
            }
            (Request::Recall, Some(_)) => match &*self.notes.lock() {
                Some(notes) => Response::Notes(notes.clone()),
                None => return Err(failed("recalling")("nothing was noted")),
            },
            (Request::Unmount, stack) => {
                drop(stack.take());
                Response::Done
            }
            (_, _) => return Err(failed("obeying")("not now")),
        })
    }

    /// Lets go of everything that ties it to its client, and listens for others.
    fn stay(self: &Arc<Self>, stack: &mut Stack) -> io::Result<()> {
        let (socket, log) = stack.note_socket()?;
        let listener = UnixListener::bind(socket)?;
        // Whoever started the client may wait for the end of its standard error.
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        rustix::stdio::dup2_stderr(&log)?;
        std::env::set_current_dir("/")?;
        let daemon = self.clone();
        std::thread::Builder::new().name("clients".into()).spawn(move || {
            for client in listener.incoming().flatten() {
                let daemon = daemon.clone();
                let talk = move || daemon.converse(client);
                let _ = std::thread::Builder::new().name("client".into()).spawn(talk);
            }
        })?;
        Ok(())
    }
}
