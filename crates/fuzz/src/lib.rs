//! Every reader of foreign bytes, tried with bytes that nobody wrote.
//!
//! [`TARGETS`] is the one table of them: `cargo xtask fuzz` hunts in it with libFuzzer, and the tests replay
//! in it what was found, from the corpus (`corpus/<target>`, see [`corpus`]).
//!
//! A target must not panic, and must not take more memory than [`Target::most_bytes`] says. Beyond that, what
//! is printed must read back as what it was printed from, where something is printed.

pub mod corpus;
mod documents;
mod files;
mod learned;
mod sentences;
mod wire;

use peak_alloc::PeakAlloc;
use std::sync::{Mutex, PoisonError};
use tipover_targets::untrusted;

/// As a text, which most readers want; others have nothing to do with it.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A reader of foreign bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, and its corpus's.
    pub name: &'static str,
    /// What it reads.
    pub about: &'static str,
    /// Reads bytes; panics where something is wrong with the reader, whatever is wrong with the bytes.
    pub read: fn(&[u8]),
}

const fn target(name: &'static str, read: fn(&[u8]), about: &'static str) -> Target {
    Target { name, about, read }
}

/// All of them.
pub const TARGETS: [Target; 26] = [
    target("postgres", untrusted::postgres, "what a PostgreSQL server says, from its greeting on"),
    target("mysql", untrusted::mysql, "what a MySQL or MariaDB server says, from its greeting on"),
    target("mysql-key", untrusted::mysql_key, "a public key in PEM, as MySQL 8 hands it out"),
    target("mongodb", untrusted::mongodb, "answers of a mongod: OP_MSG, BSON, errors, transfers"),
    target("mongod", wire::mongod, "what a mongod of the laboratory answers to a question about itself"),
    target("ring", tipover_disk::untrusted::ring, "requests of the FUSE ring, also on the classic way"),
    target("lines", wire::lines, "JSON lines of a laboratory's daemons and of its keeper"),
    target("history", files::history, "history.bin: what clients saw"),
    target("evidence", files::evidence, "evidence.json, and the judgement by it"),
    target("trace", files::trace, "the trace of a shaped disk"),
    target("record", files::record, "record.json of a trial, and its audit"),
    target("series", files::series, "lines of series.jsonl"),
    target("search", files::search, "search.json: the trials of a search"),
    target("hlog", files::hlog, "an HdrHistogram log"),
    target("audit", files::audit, "outputs of other tools: iostat, YCSB, go-ycsb, sysbench, fio, pgbench"),
    target("mapping", files::mapping, "a mapping, and the JSON or CSV table that it maps"),
    target("plan", documents::plan, "an experiment's plan"),
    target("recipe", documents::recipe, "a user's recipe of a cluster"),
    target("properties", documents::properties, "YCSB's property files, and what they ask for"),
    target(
        "script",
        documents::script,
        "a script of statements as pgbench has them, or of MongoDB's commands, read and run",
    ),
    target("samples", documents::samples, "sample documents, one a line"),
    target("log", learned::log, "logs of PostgreSQL, MariaDB and MySQL, and records made of them"),
    target(
        "statement",
        learned::statement,
        "a statement as a server's statistics keep it, and the plan of it",
    ),
    target("schedule", sentences::schedule, "a schedule of faults"),
    target("disk", sentences::disk, "a disk's specification, its faults and power cuts"),
    target("quantities", sentences::quantities, "sizes, rates, spans, promises, arrivals, distributions"),
];

/// No reader takes more than this beside sixteen times its input: the longest
/// histogram has 28 MB of counters, read from 33 MB.
const MOST_BYTES: usize = 128 << 20;

impl Target {
    /// The target called `name`.
    pub fn named(name: &str) -> Option<Target> {
        TARGETS.into_iter().find(|target| target.name == name)
    }

    /// The memory that it may take for an input of this length.
    pub fn most_bytes(&self, input: usize) -> usize {
        MOST_BYTES + 16 * input
    }

    /// Reads `bytes`, and returns how much memory that took at its height.
    ///
    /// # Panics
    /// If it took more than it may, or if something is wrong with what was read.
    pub fn try_out(&self, bytes: &[u8]) -> usize {
        // What others allocate at the same time would be counted too.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        (self.read)(bytes);
        let taken = MEMORY.peak_usage().saturating_sub(before);
        let most = self.most_bytes(bytes.len());
        assert!(taken <= most, "{}: {} bytes of input took {taken} bytes of memory", self.name, bytes.len());
        taken
    }
}
