//! Where the system that was measured keeps its records, and what it may use: what is particular to each
//! engine.

use super::{AT_ADDRESS, Told, at_address};
use crate::experiment::{Spec, TargetKind};
use crate::predict::cache::{Policy, Popularity};
use crate::predict::{Engine, Range};
use crate::record::Record;
use crate::units::Bytes;
use crate::workload::distribution::Requests;

/// Leaves below an inner page of InnoDB: 16 KiB, two thirds full, of about 40 bytes for a key of YCSB and
/// its page.
const INNODB_FANOUT: f64 = 270.0;

const WIREDTIGER: &str = "WiredTiger";
const MONGODB: &str = "MongoDB";

/// Memory and processors that the one node of a laboratory's server is limited to.
fn of_node(spec: &Spec) -> Result<(Option<Bytes>, Option<f64>), String> {
    if spec.lab.as_ref().is_some_and(|lab| !lab.roles.is_empty()) {
        return Err("its nodes have memory, processors or disks of their own".into());
    }
    let recipe = spec.cluster().map_err(|error| error.to_string())?;
    let layout = recipe.layout();
    match layout.nodes.as_slice() {
        [node] => Ok((recipe.memory_of(node.role), recipe.cpus_of(node.role))),
        nodes => Err(format!("it ran on {} nodes, and one with its disk can be planned", nodes.len())),
    }
}

/// Pages of a table and of its index, the cache above them, and the machine.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    /// Whose figures may stand together.
    pub system: &'static str,
    pub engine: Engine,
    /// As it is configured.
    pub cache_bytes: f64,
    /// Of pages with records, as they stand in the engine's cache.
    pub table_bytes: f64,
    /// Of pages that say where a record is; 0 where none but those that every operation asks for does.
    pub index_bytes: f64,
    pub memory_bytes: f64,
    pub cores: f64,
    /// Whether part of the cache is kept free or for other pages, however large it is.
    pub has_reserve: bool,
    /// Whether the generator took its time from these processors and is no part of the system.
    pub clients_beside: bool,
}

/// Bytes that pages take in their files.
pub(super) struct PagesInFile {
    /// One with records, on average over those that one load made.
    pub record: Range,
    /// A leaf of the index, whose keys are alike and so compress well.
    pub index: f64,
    /// What of this is assumed of a load that was not measured, and why.
    pub words: &'static str,
    pub because: &'static str,
}

impl Kept {
    /// By the settings of a cell and what a trial of it read back.
    pub fn of(spec: &Spec, record: &Record, told: &Told) -> Result<Kept, String> {
        let unlimited = "its memory was not limited, so the page cache's is not known";
        let processors = (record.machine.cores > 0).then(|| f64::from(record.machine.cores));
        let processors = processors.ok_or("the record does not say how many processors there were")?;
        if !spec.is_served() {
            return Ok(Kept {
                system: WIREDTIGER,
                engine: Engine::WIREDTIGER,
                cache_bytes: spec.cache_bytes().0 as f64,
                table_bytes: (spec.records() * spec.target.wiredtiger.record_resident_bytes) as f64,
                index_bytes: 0.0,
                memory_bytes: spec.machine.memory.ok_or(unlimited)?.0 as f64,
                cores: processors,
                has_reserve: false,
                clients_beside: false,
            });
        }
        // A table is looked at when it was just loaded.
        let said =
            |name: &str| record.target.get(name).or_else(|| record.target.get(&format!("loaded_{name}")));
        let fact = |name: &str| {
            let value = said(name).and_then(|value| value.as_f64());
            value.filter(|value| *value > 0.0).ok_or_else(|| format!("the record does not say its {name}"))
        };
        let (memory, cpus) = match at_address(spec) {
            false => of_node(spec)?,
            true if told.memory.is_none() => {
                return Err(format!("{AT_ADDRESS}: say what its machine has, with --memory"));
            }
            true => (told.memory, told.cores),
        };
        let memory_bytes = memory.ok_or(unlimited)?.0 as f64;
        let cpus = cpus.filter(|cpus| *cpus < processors);
        let (cores, clients_beside) = (cpus.unwrap_or(processors), cpus.is_none());
        if spec.target.kind == TargetKind::Mongodb
            && said("storage_engine").and_then(|value| value.as_str()) == Some("wiredTiger")
        {
            // The same engine below another path: what a record takes in its cache is the plan's word.
            return Ok(Kept {
                system: MONGODB,
                engine: Engine::WIREDTIGER,
                cache_bytes: fact("engine_cache_bytes")?,
                table_bytes: (spec.records() * spec.target.wiredtiger.record_resident_bytes) as f64,
                index_bytes: 0.0,
                memory_bytes,
                cores,
                has_reserve: false,
                clients_beside,
            });
        }
        let (table_bytes, index) = (fact("table_file_bytes")?, fact("index_file_bytes"));
        let is_innodb = || said("table_engine").and_then(|value| value.as_str()) == Some("InnoDB");
        let (system, index_bytes, policies): (_, _, &[Policy]) = match spec.target.kind {
            // A page that is used again stays for some rounds of the clock, as under LRU.
            TargetKind::Postgres => ("PostgreSQL", index?, &[Policy::Lru]),
            // Records stand in the leaves of their key, below its inner pages.
            TargetKind::Mysql if is_innodb() => {
                ("MariaDB or MySQL", table_bytes / INNODB_FANOUT, &[Policy::Lru, Policy::Random])
            }
            _ => return Err("how its engine keeps records is not modelled".into()),
        };
        Ok(Kept {
            system,
            engine: Engine {
                fills: 1.0,
                overhead: 1.0,
                is_buffered: true,
                pages_per_operation: 2.0,
                policies,
            },
            cache_bytes: fact("engine_cache_bytes")?,
            table_bytes,
            index_bytes,
            memory_bytes,
            cores,
            has_reserve: spec.target.kind == TargetKind::Mysql,
            clients_beside,
        })
    }

    /// Bytes of all that is read.
    pub fn data_bytes(&self) -> f64 {
        self.table_bytes + self.index_bytes
    }

    /// How `requests` for `records` are spread over pages of `page_bytes`.
    pub fn popularity(&self, requests: Requests, records: f64, page_bytes: f64) -> Popularity {
        let of = |bytes: f64| match requests {
            Requests::Uniform => Popularity::uniform(),
            _ => {
                let per_page = (page_bytes * records / bytes).round().max(1.0);
                Popularity::scrambled_zipfian(records as u64, per_page as u64)
            }
        };
        match self.index_bytes > 0.0 {
            false => of(self.table_bytes),
            true => Popularity::beside(&[
                (of(self.index_bytes), 0.5, self.index_bytes),
                (of(self.table_bytes), 0.5, self.table_bytes),
            ]),
        }
    }

    /// Where the load decides how a page lies in its file.
    pub fn pages_in_file(&self) -> Option<PagesInFile> {
        let kib = 1024.0;
        [WIREDTIGER, MONGODB].contains(&self.system).then_some(PagesInFile {
            record: Range::new(28.0 * kib, 35.0 * kib),
            index: 12.0 * kib,
            words: "a page takes 28 to 35 KiB in its file, and one operation in a hundred may also need one of the index",
            because: "each load of WiredTiger splits its pages in its own way, and its eviction is only nearly LRU",
        })
    }

    /// Of the configured cache, the share that holds records where no cell says, or the bytes that do not
    /// if it has a reserve; in words, and why that is assumed.
    pub fn usual(&self) -> (Range, &'static str, &'static str) {
        let mib = 1_048_576.0;
        match (self.has_reserve, self.engine.fills < 1.0) {
            (true, _) => (
                Range::new(16.0 * mib, 40.0 * mib),
                "16 to 40 MiB of the buffer pool hold no records",
                "InnoDB keeps innodb_lru_scan_depth pages free, and some of its own",
            ),
            (false, true) => (
                Range::new(0.70, 0.82),
                "70 % to 82 % of the engine's configured cache hold records",
                "WiredTiger evicts above 80 %, and counts 8 % of overhead",
            ),
            (false, false) => (
                Range::new(0.90, 1.0),
                "90 % to 100 % of the engine's configured cache hold records",
                "catalogues and inner pages of indexes stand there too",
            ),
        }
    }
}
