//! WiredTiger reports through callbacks; here its words are kept instead of printed, so that an error can
//! quote them.

use crate::raw;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_int};
use std::panic::catch_unwind;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// How many messages a connection keeps; the oldest give way, so that a chatty engine cannot fill the memory.
const KEPT: usize = 256;
/// How many messages a thread keeps for its next error.
const KEPT_BY_THREAD: usize = 16;

/// One line that WiredTiger reported: of an error, or for information.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The code of the error it is about, 0 if it is for information only.
    pub code: i32,
    /// The whole line, with WiredTiger's time, process and thread.
    pub text: String,
}

thread_local! {
    /// WiredTiger calls back on the thread whose call failed, so what is here belongs to that call.
    static OF_THIS_THREAD: RefCell<VecDeque<String>> = const { RefCell::new(VecDeque::new()) };
}

/// The messages of one connection.
#[derive(Default)]
pub(crate) struct MessageLog {
    kept: Mutex<VecDeque<Message>>,
}

impl MessageLog {
    /// The address that WiredTiger's callbacks bring back; good for as long as this log stays where it is.
    pub(crate) fn address(&self) -> *const raw::Log {
        ptr::from_ref(self).cast()
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    fn keep(&self, message: Message) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(message);
    }
}

/// Forgets what earlier calls of this thread reported, so that the next error quotes only its own.
pub(crate) fn forget_of_this_thread() {
    OF_THIS_THREAD.with_borrow_mut(VecDeque::clear);
}

/// What the failed call reported, shortened to what a reader needs.
pub(crate) fn take_of_this_thread() -> Option<String> {
    let texts: Vec<String> = OF_THIS_THREAD.with_borrow_mut(|texts| texts.drain(..).collect());
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Drops WiredTiger's prefix `[time][process:thread], place: [category][ERROR]: function, line: `.
fn shorten(text: &str) -> &str {
    let Some((_, rest)) = text.split_once("][ERROR]: ") else { return text };
    match rest.split_once(": ") {
        Some((place, rest)) if place.starts_with("__") => rest,
        _ => rest,
    }
}

/// Called by the shim, on any thread, also on WiredTiger's own.
#[unsafe(no_mangle)]
extern "C" fn tipover_on_message(log: *const raw::Log, code: c_int, text: *const c_char) {
    if log.is_null() || text.is_null() {
        return;
    }
    // A panic must not cross into C; a message lost to one is the smaller evil.
    let _ = catch_unwind(|| {
        // SAFETY: `log` is the boxed log that the connection keeps until WiredTiger has closed; `text` is a C
        // string.
        let (log, text) = unsafe { (&*log.cast::<MessageLog>(), CStr::from_ptr(text).to_string_lossy()) };
        if code != 0 {
            // The thread may be past the end of its thread-locals.
            let _ = OF_THIS_THREAD.try_with(|texts| {
                let Ok(mut texts) = texts.try_borrow_mut() else { return };
                if texts.len() == KEPT_BY_THREAD {
                    texts.pop_front();
                }
                texts.push_back(shorten(&text).to_owned());
            });
        }
        log.keep(Message { code, text: text.into_owned() });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_is_dropped() {
        let line = "[1763694000:1][7:0x7f], wiredtiger_open: [WT_VERB_DEFAULT][ERROR]: __config_check, 12: unknown key 'x': y";
        assert_eq!(shorten(line), "unknown key 'x': y");
        assert_eq!(shorten("anything else"), "anything else");
    }
}
