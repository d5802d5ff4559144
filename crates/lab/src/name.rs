//! Names that tell who made a thing, so that what a killed run left can be found and what a living run uses
//! is spared.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use tipover_disk::{FIRST_NAMESPACE, own_namespace};

/// `tipover-<pid>-<start>-<n>`, with `-ns<number>` behind it when made inside a container.
///
/// `start` is when the owner began, in clock ticks since boot: a pid alone would be used again by a stranger.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name {
    /// Process that made the thing.
    pub owner: u32,
    /// When that process began, in clock ticks since boot.
    pub start: u64,
    /// Counts what one owner made.
    pub number: u32,
    /// The pid namespace in which `owner` means something.
    pub namespace: u64,
}

impl Name {
    /// A name that nobody else has, owned by this process.
    pub fn fresh() -> Name {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let owner = std::process::id();
        // Read anew each time: after a fork the cached start would be the parent's.
        let start = start_of(Path::new("/"), owner).unwrap_or(0);
        Name { owner, start, number: NEXT.fetch_add(1, Ordering::Relaxed), namespace: own_namespace() }
    }

    /// Whether the process that made this still lives, or may live where we cannot see it (in another
    /// container). `root` is "/" except in tests.
    pub fn owner_may_live(&self, root: &Path) -> bool {
        self.namespace != own_namespace() || start_of(root, self.owner) == Some(self.start)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tipover-{}-{}-{}", self.owner, self.start, self.number)?;
        if self.namespace != FIRST_NAMESPACE {
            write!(f, "-ns{}", self.namespace)?;
        }
        Ok(())
    }
}

/// The text is not a name made by [`Name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name of the form tipover-<pid>-<start>-<n>")]
pub struct NotAName(String);

impl FromStr for Name {
    type Err = NotAName;
    fn from_str(text: &str) -> Result<Name, NotAName> {
        read(text).filter(|name| name.to_string() == text).ok_or_else(|| NotAName(text.to_string()))
    }
}

fn read(text: &str) -> Option<Name> {
    let mut parts = text.strip_prefix("tipover-")?.split('-');
    Some(Name {
        owner: parts.next()?.parse().ok()?,
        start: parts.next()?.parse().ok()?,
        number: parts.next()?.parse().ok()?,
        namespace: match parts.next() {
            Some(namespace) => namespace.strip_prefix("ns")?.parse().ok()?,
            None => FIRST_NAMESPACE,
        },
    })
}

/// When process `pid` began, in clock ticks since boot; `None` if there is no such process or it is only
/// waiting to be reaped.
fn start_of(root: &Path, pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?;
    parse_start(&stat)
}

/// The start time in a `/proc/PID/stat`, unless the process is dead already.
fn parse_start(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// All processes that this one can see.
pub(crate) fn processes() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The session of a process that is not dead.
pub(crate) fn session_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_start(&stat)?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn we_live_and_the_dead_do_not() {
        let name = Name::fresh();
        assert_eq!(name.to_string().parse::<Name>().unwrap(), name);
        assert!(name.owner_may_live(Path::new("/")));
        let successor = Name { start: name.start + 1, ..name.clone() };
        assert!(!successor.owner_may_live(Path::new("/")), "a pid used again is not the owner");
        let elsewhere = Name { namespace: 7, ..successor };
        assert!(elsewhere.owner_may_live(Path::new("/")), "who cannot be seen may live");
        assert_ne!(Name::fresh(), Name::fresh());
    }

    #[test]
    fn the_start_is_read_past_an_ugly_program_name() {
        let rest = "1 1 1 0 -1 0 1 0 0 0 0 0 0 0 20 0 1 0 93266 3133440 359";
        assert_eq!(parse_start(&format!("6979 (a) R (b)) S {rest}")), Some(93266));
        assert_eq!(parse_start(&format!("6979 (cat) Z {rest}")), None);
    }

    #[test]
    fn strangers_are_not_ours() {
        for text in [
            "tipover",
            "tipover-1",
            "tipover-1-2-x",
            "tipover-01-2-3",
            "tipover-1-2-3-4",
            "x-1-2-3",
            "tipover-1-2-3-ns",
        ] {
            assert!(text.parse::<Name>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn names_read_back(owner: u32, start: u64, number: u32, namespace: Option<u64>) {
            let namespace = namespace.unwrap_or(FIRST_NAMESPACE);
            let name = Name { owner, start, number, namespace };
            prop_assert_eq!(name.to_string().parse::<Name>().unwrap(), name);
        }
        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Name>();
            let _ = parse_start(&text);
        }
    }
}
