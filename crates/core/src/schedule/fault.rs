//! What can be broken, and what puts it right again.

use crate::units::{Bytes, Ratio, span};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Which nodes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nodes {
    /// These: "a", "{a, b}".
    Named(Vec<String>),
    /// One of these, drawn anew each time: "one of {a, b}".
    OneOf(Vec<String>),
    /// Any one node: "any".
    Any,
    /// Every node: "all".
    All,
    /// Every node that is not on the other side: "rest". Only on the second side of a link.
    Rest,
    /// Whoever is primary at that moment; the laboratory finds out: "primary".
    Primary,
    /// One that is not primary at that moment: "replica".
    Replica,
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nodes::Named(names) if names.len() == 1 => f.write_str(&names[0]),
            Nodes::Named(names) => write!(f, "{{{}}}", names.join(", ")),
            Nodes::OneOf(names) => write!(f, "one of {{{}}}", names.join(", ")),
            Nodes::Any => f.write_str("any"),
            Nodes::All => f.write_str("all"),
            Nodes::Rest => f.write_str("rest"),
            Nodes::Primary => f.write_str("primary"),
            Nodes::Replica => f.write_str("replica"),
        }
    }
}

/// Two sides of the network.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Link {
    /// One side; the senders where only one way is meant.
    pub from: Nodes,
    /// The other side.
    pub to: Nodes,
    /// Whether only what `from` sends to `to` is meant.
    pub one_way: bool,
}

impl Link {
    fn print(&self, f: &mut fmt::Formatter<'_>, both: &str) -> fmt::Result {
        if self.one_way {
            write!(f, "{} to {}", self.from, self.to)
        } else {
            write!(f, "{} {both} {}", self.from, self.to)
        }
    }
}

/// What a fault does. Data: the laboratory carries it out and counts what it hit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL to every process of a node. Undone by starting it again.
    Kill {
        /// Which nodes.
        nodes: Nodes,
    },
    /// SIGKILL to one process that serves a client. Undone by making sure that the node is up.
    KillBackend {
        /// Which nodes.
        nodes: Nodes,
    },
    /// The power goes: processes die and what the disk had not made durable is lost, by the disk's own rules.
    PowerCut {
        /// Which nodes.
        nodes: Nodes,
    },
    /// Processes stop and go on later, without noticing.
    Pause {
        /// Which nodes.
        nodes: Nodes,
    },
    /// The primary is asked to hand over. Undone by making sure that there is a primary.
    StepDown {
        /// Which node; usually "primary".
        nodes: Nodes,
    },
    /// No packet gets through.
    Cut {
        /// Between whom.
        link: Link,
    },
    /// Cut and healed in turn, each for half the period.
    Flap {
        /// Between whom.
        link: Link,
        /// From one cut to the next.
        #[serde(rename = "period_ns", with = "span")]
        period: Duration,
    },
    /// Every packet takes longer.
    Delay {
        /// Between whom.
        link: Link,
        /// By so much.
        #[serde(rename = "by_ns", with = "span")]
        by: Duration,
        /// Plus or minus up to so much.
        #[serde(rename = "jitter_ns", with = "span")]
        jitter: Duration,
    },
    /// Packets are lost.
    Loss {
        /// Between whom.
        link: Link,
        /// Which share.
        share: Ratio,
    },
    /// Every request to the disk takes longer.
    SlowDisk {
        /// Which nodes.
        nodes: Nodes,
        /// By so much.
        #[serde(rename = "by_ns", with = "span")]
        by: Duration,
    },
    /// The disk has no space left.
    FillDisk {
        /// Which nodes.
        nodes: Nodes,
    },
    /// The next flushes fail with EIO.
    FailFlush {
        /// Which nodes.
        nodes: Nodes,
        /// How many.
        count: u32,
    },
    /// Less processor.
    SqueezeCpu {
        /// Which nodes.
        nodes: Nodes,
        /// The share of one core that is left.
        to: Ratio,
    },
    /// Less memory.
    SqueezeMemory {
        /// Which nodes.
        nodes: Nodes,
        /// What is left.
        to: Bytes,
    },
    /// The wall clock jumps.
    JumpClock {
        /// Which nodes.
        nodes: Nodes,
        /// By so much.
        #[serde(rename = "by_ns", with = "span")]
        by: Duration,
        /// Back instead of forward.
        back: bool,
    },
}

/// What puts a fault right again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undo {
    /// Start the processes of nodes that are down.
    Restart,
    /// Let paused processes go on.
    Resume,
    /// Wait until there is a primary; ask for an election where there is none.
    EnsurePrimary,
    /// The link as it was.
    Heal,
    /// The disk as it was.
    RestoreDisk,
    /// The limits as they were.
    RestoreLimits,
    /// The clock as it would be.
    RestoreClock,
}

impl Fault {
    /// Every fault has one.
    pub fn undo(&self) -> Undo {
        match self {
            Fault::Kill { .. } | Fault::KillBackend { .. } | Fault::PowerCut { .. } => Undo::Restart,
            Fault::Pause { .. } => Undo::Resume,
            Fault::StepDown { .. } => Undo::EnsurePrimary,
            Fault::Cut { .. } | Fault::Flap { .. } | Fault::Delay { .. } | Fault::Loss { .. } => Undo::Heal,
            Fault::SlowDisk { .. } | Fault::FillDisk { .. } | Fault::FailFlush { .. } => Undo::RestoreDisk,
            Fault::SqueezeCpu { .. } | Fault::SqueezeMemory { .. } => Undo::RestoreLimits,
            Fault::JumpClock { .. } => Undo::RestoreClock,
        }
    }

    /// Whether the fault's time is said as "restart after 10 s" and not as "for 10 s".
    pub(super) fn restarts(&self) -> bool {
        self.undo() == Undo::Restart
    }

    /// The sides that it names: nodes, or both ends of a link.
    pub(super) fn sides(&mut self) -> Vec<&mut Nodes> {
        match self {
            Fault::Kill { nodes }
            | Fault::KillBackend { nodes }
            | Fault::PowerCut { nodes }
            | Fault::Pause { nodes }
            | Fault::StepDown { nodes }
            | Fault::SlowDisk { nodes, .. }
            | Fault::FillDisk { nodes }
            | Fault::FailFlush { nodes, .. }
            | Fault::SqueezeCpu { nodes, .. }
            | Fault::SqueezeMemory { nodes, .. }
            | Fault::JumpClock { nodes, .. } => vec![nodes],
            Fault::Cut { link }
            | Fault::Flap { link, .. }
            | Fault::Delay { link, .. }
            | Fault::Loss { link, .. } => vec![&mut link.from, &mut link.to],
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |span: &Duration| span::print(*span);
        match self {
            Fault::Kill { nodes } => write!(f, "kill {nodes}"),
            Fault::KillBackend { nodes } => write!(f, "kill backend of {nodes}"),
            Fault::PowerCut { nodes } => write!(f, "power cut {nodes}"),
            Fault::Pause { nodes } => write!(f, "pause {nodes}"),
            Fault::StepDown { nodes } => write!(f, "step down {nodes}"),
            Fault::Cut { link } => {
                f.write_str("cut ")?;
                link.print(f, "from")
            }
            Fault::Flap { link, period } => {
                f.write_str("flap ")?;
                link.print(f, "from")?;
                write!(f, " every {}", time(period))
            }
            Fault::Delay { link, by, jitter } => {
                f.write_str("delay ")?;
                link.print(f, "and")?;
                write!(f, " by {}", time(by))?;
                if jitter.is_zero() { Ok(()) } else { write!(f, " jitter {}", time(jitter)) }
            }
            Fault::Loss { link, share } => {
                write!(f, "lose {share} ")?;
                f.write_str(if link.one_way { "from " } else { "between " })?;
                link.print(f, "and")
            }
            Fault::SlowDisk { nodes, by } => write!(f, "slow disk of {nodes} by {}", time(by)),
            Fault::FillDisk { nodes } => write!(f, "fill disk of {nodes}"),
            Fault::FailFlush { nodes, count } => write!(f, "fail flush of {nodes} {count} times"),
            Fault::SqueezeCpu { nodes, to } => write!(f, "squeeze cpu of {nodes} to {to}"),
            Fault::SqueezeMemory { nodes, to } => write!(f, "squeeze memory of {nodes} to {to}"),
            Fault::JumpClock { nodes, by, back } => {
                write!(f, "jump clock of {nodes} {} {}", if *back { "back" } else { "forward" }, time(by))
            }
        }
    }
}
