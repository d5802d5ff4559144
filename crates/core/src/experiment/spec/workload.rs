//! What is asked.

use super::{ScriptsSpec, TargetKind};
use crate::check::Check;
use crate::measure::BooksText;
use crate::op::OpKind;
use crate::units::{Bytes, Ratio};
use crate::workload::bank::{Bank, BankError, BankSpec};
use crate::workload::distribution::Requests;
use crate::workload::file_io::{Access, Blocks, Flushes, Turns};
use crate::workload::ycsb::{FieldChoice, Requested, Standard};
use crate::workload::{Dataset, Documents, FileIo, Keys, Lengths, Mix, Shape, Values};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// YCSB records, documents like those of a sample, or reads of a file.
    #[serde(default)]
    pub kind: WorkloadKind,
    /// Bytes of the records in the engine's cache, as a share of the effective cache (80 % of it). Gives the
    /// number of records unless that is given.
    pub working_set: Option<Ratio>,
    /// Number of records.
    pub records: Option<u64>,
    /// Which records are asked for. Absent: as the workload that [`WorkloadSpec::mix`] names does, else
    /// uniform.
    pub requests: Option<Requests>,
    /// For `ycsb` and `documents`: the kinds of operations, as the letter of one of YCSB's workloads or as
    /// weights (`{ read = 95, update = 5 }`). Absent: reads only.
    pub mix: Option<MixSpec>,
    /// The table, or collection.
    #[serde(default = "usertable")]
    pub table: String,
    /// Fields per record.
    #[serde(default = "ten")]
    pub fields: u16,
    /// Bytes per field: a number, or as `uniform 1..100`, see [`Lengths`].
    #[serde(default = "hundred")]
    pub field_length: Lengths,
    /// What the bytes look like.
    #[serde(default = "ycsb_values")]
    pub values: Values,
    /// How record numbers become keys.
    #[serde(default)]
    pub keys: Keys,
    /// What reads and scans bring.
    #[serde(default)]
    pub read_fields: FieldChoice,
    /// What updates write.
    #[serde(default = "one_field")]
    pub write_fields: FieldChoice,
    /// Records per scan. Absent: as the workload that [`WorkloadSpec::mix`] names has, else 1 to 1000.
    pub scan_lengths: Option<Lengths>,
    /// Records per insert.
    #[serde(default = "one")]
    pub insert_batch: u32,
    /// For `documents`: the path of a sample, one JSON document a line; or the sample itself.
    pub documents: Option<Sample>,
    /// For `bank`: how many accounts, and which of them are asked for. Absent: as old stroppy's defaults.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bank: Option<BankSpec>,
    /// For `scripts`: which, and the tables that they find.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scripts: Option<ScriptsSpec>,
    /// For `bank`, `ledger`, `register` and `isolation`: whether every operation is written down, and
    /// everything is checked afterwards. Absent: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<bool>,
    /// For file reads and file I/O: the file's size.
    #[serde(default = "file_size")]
    pub file_size: Bytes,
    /// For file reads: the smallest read.
    #[serde(default = "least_read")]
    pub least_read: Bytes,
    /// For file reads: the largest read.
    #[serde(default = "most_read")]
    pub most_read: Bytes,
    /// For `file_io`: what is asked of the file. Absent: random reads of 16 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<FileIoSpec>,
}

/// What is asked of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FileIoSpec {
    /// Places anywhere, or one after the other.
    pub access: Access,
    /// `"reads"`, `"writes"`, or `{ reads_per_write = 1.5 }` by sysbench's rule.
    pub turns: Turns,
    /// How large requests are, as `4 KiB`, `4 KiB-64 KiB` or `4 KiB/60:16 KiB/40`.
    pub block: Blocks,
    /// Through the page cache, with the kernel's readahead. Absent: past it (`O_DIRECT`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub buffered: bool,
    /// Each thread flushes the file's data (`fdatasync`) after so many writes, as fio's option of that name.
    /// 0: never.
    #[serde(skip_serializing_if = "is_never")]
    pub fdatasync: u32,
}

impl Default for FileIoSpec {
    fn default() -> Self {
        FileIoSpec {
            access: Access::Random,
            turns: Turns::Reads,
            block: Blocks::One(Bytes::kib(16)),
            buffered: false,
            fdatasync: 0,
        }
    }
}

fn is_never(writes: &u32) -> bool {
    *writes == 0
}

fn usertable() -> String {
    "usertable".into()
}
fn ten() -> u16 {
    10
}
fn hundred() -> Lengths {
    Lengths::Constant(100)
}
fn ycsb_values() -> Values {
    Values::Ycsb
}
fn one_field() -> FieldChoice {
    FieldChoice::One
}
fn one() -> u32 {
    1
}
fn file_size() -> Bytes {
    Bytes::mib(64)
}
fn least_read() -> Bytes {
    Bytes::kib(4)
}
fn most_read() -> Bytes {
    Bytes::kib(32)
}

/// The workloads that a plan can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// YCSB, 100 % reads.
    #[default]
    YcsbReads,
    /// YCSB's CoreWorkload.
    Ycsb,
    /// The same operations on documents like those of a sample.
    Documents,
    /// Random reads of one file, as fio's randread.
    FileReads,
    /// Transfers between accounts, each a transaction.
    Bank,
    /// Writes of keys, each of which is looked for afterwards.
    Ledger,
    /// Keys that are written again and again while others read them.
    Register,
    /// Transactions over lists.
    Isolation,
    /// Reads and writes of one file past the page cache, as sysbench's fileio with `direct`.
    FileIo,
    /// Scripts of statements, as pgbench's.
    Scripts,
}

impl WorkloadKind {
    /// Whether it works on records of a data set, which are loaded once and stay as they are.
    pub fn has_records(self) -> bool {
        matches!(self, WorkloadKind::YcsbReads | WorkloadKind::Ycsb | WorkloadKind::Documents)
    }

    /// Whether it works on one file.
    pub fn is_file(self) -> bool {
        matches!(self, WorkloadKind::FileReads | WorkloadKind::FileIo)
    }

    /// Whether what it did is checked afterwards, on tables that every trial makes anew.
    pub fn is_checked(self) -> bool {
        self.check().is_some()
    }

    /// The check that it is for.
    pub fn check(self) -> Option<Check> {
        match self {
            WorkloadKind::Bank => Some(Check::Bank),
            WorkloadKind::Ledger => Some(Check::Ledger),
            WorkloadKind::Register => Some(Check::Register),
            WorkloadKind::Isolation => Some(Check::Isolation),
            _ => None,
        }
    }
}

/// The kinds of operations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MixSpec {
    /// Of one of YCSB's workloads.
    Letter(String),
    /// As weights.
    Weights(Mix),
}

/// A sample of documents, by the path of its file, or with a name and its text. The core reads no files: what
/// was learned is put in by [`Sample::learn`], and from then on belongs to the setting, so that a changed
/// sample is another cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Where it is, or its name.
    pub path: String,
    /// What was learned from it.
    pub learned: Option<Arc<Documents>>,
}

impl Sample {
    /// Learns from the text of the file.
    pub fn learn(&mut self, ndjson: &str) -> Result<(), String> {
        let learned = Documents::learn(ndjson).map_err(|e| format!("{}: {e}", self.path))?;
        self.learned = Some(Arc::new(learned));
        Ok(())
    }
}

impl Serialize for Sample {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match &self.learned {
            None => s.serialize_str(&self.path),
            Some(learned) => (&self.path, learned.as_ref()).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for Sample {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Path(String),
            Written { name: String, text: String },
            Learned(String, Box<Documents>),
        }
        Ok(match Either::deserialize(d)? {
            Either::Path(path) => Sample { path, learned: None },
            Either::Written { name, text } => {
                let mut sample = Sample { path: name, learned: None };
                sample.learn(&text).map_err(serde::de::Error::custom)?;
                sample
            }
            Either::Learned(path, learned) => Sample { path, learned: Some(Arc::from(learned)) },
        })
    }
}

impl Default for WorkloadSpec {
    /// What an empty table gives: reads, of a number of records that is still to be said.
    fn default() -> Self {
        toml::Table::new().try_into().expect("every field has a default")
    }
}

impl WorkloadSpec {
    /// Bytes of keys and values that the operations in `books` wrote, on average lengths; `None` where some
    /// of them write what has no length of its own, such as a transfer.
    pub fn written_bytes(&self, books: &BooksText) -> Option<f64> {
        if !matches!(self.kind, WorkloadKind::YcsbReads | WorkloadKind::Ycsb) {
            return None;
        }
        // YCSB's keys have a prefix and 19 digits as a rule.
        let key = self.keys.prefix.len() as f64 + 19.0;
        let field = self.field_length.mean();
        let record = key + f64::from(self.fields) * field;
        let update = match self.write_fields {
            FieldChoice::One => key + field,
            FieldChoice::All | FieldChoice::EachByName => record,
        };
        let done = |kind| books.of(kind).map(|book| book.done).sum::<u64>() as f64;
        Some(
            done(OpKind::Update) * update
                + done(OpKind::Insert) * record
                + done(OpKind::InsertMany) * f64::from(self.insert_batch) * record,
        )
    }

    fn standard(&self) -> Option<Standard> {
        match &self.mix {
            Some(MixSpec::Letter(letter)) => Standard::of(letter),
            _ => None,
        }
    }

    /// Which records are asked for.
    pub fn requests(&self) -> Requests {
        self.requests.or(self.standard().map(|standard| standard.requests)).unwrap_or(Requests::Uniform)
    }

    /// The kinds of operations.
    pub fn mix(&self) -> Mix {
        match &self.mix {
            Some(MixSpec::Weights(mix)) => *mix,
            _ => self.standard().map_or(Mix::READS, |standard| standard.mix),
        }
    }

    /// What is asked of `dataset`.
    pub(super) fn requested(&self, dataset: &Dataset) -> Requested {
        let longest_scan = self.standard().map_or(1000, |standard| standard.longest_scan);
        Requested {
            read: self.read_fields,
            write: self.write_fields,
            scan_lengths: self.scan_lengths.clone().unwrap_or(Lengths::Uniform(1, longest_scan)),
            insert_batch: self.insert_batch,
            ..Requested::new(dataset, self.mix(), self.requests())
        }
    }

    /// What `sessions` sessions ask of the file.
    pub(super) fn file_io(&self, sessions: u32, seed: u64) -> FileIo {
        let FileIoSpec { access, turns, block, fdatasync, .. } = self.io.clone().unwrap_or_default();
        let flushes = (fdatasync > 0).then_some(Flushes { every_writes: fdatasync, data_only: true });
        FileIo { access, turns, blocks: block, size: self.file_size, flushes, streams: sessions, seed }
    }

    /// What a record looks like.
    pub(super) fn shape(&self) -> Shape {
        match &self.documents {
            Some(Sample { learned: Some(learned), .. }) if self.kind == WorkloadKind::Documents => {
                Shape::Documents(learned.clone())
            }
            _ => Shape::Fields,
        }
    }

    /// Whether what sessions see is written down, and checked afterwards.
    pub fn keeps_history(&self) -> bool {
        self.kind.is_checked() && self.history != Some(false)
    }

    /// The bank, as its settings say.
    ///
    /// # Errors
    /// Settings with which there is none.
    pub fn bank(&self) -> Result<Bank, BankError> {
        Bank::new(self.bank.unwrap_or_default())
    }

    /// What no type can say of scripts.
    fn check_scripts(&self, target: TargetKind, in_lab: bool) -> Result<(), String> {
        let Some(scripts) = &self.scripts else {
            return Err(
                "workload.kind = \"scripts\" needs workload.scripts.run = [\"tpcb-like\"], or other scripts"
                    .into(),
            );
        };
        if self.records.is_some() || self.working_set.is_some() || self.documents.is_some() {
            return Err(
                "scripts have no records of ours: how large pgbench's tables are is workload.scripts.scale"
                    .into(),
            );
        }
        if self.mix.is_some() || self.requests.is_some() {
            return Err(
                "workload.mix and workload.requests belong to records: scripts have weights, and draw for themselves"
                    .into(),
            );
        }
        scripts.check(target, in_lab)
    }

    /// What no type can say; what is asked of a target of this kind, in a cluster of the laboratory's own or
    /// not.
    pub(super) fn check(&self, target: TargetKind, in_lab: bool) -> Result<(), String> {
        if self.kind == WorkloadKind::Scripts {
            return self.check_scripts(target, in_lab);
        }
        if self.scripts.is_some() {
            return Err("workload.scripts needs workload.kind = \"scripts\"".into());
        }
        self.bank().map_err(|error| format!("workload.bank.{error}"))?;
        if self.bank.is_some() && self.kind != WorkloadKind::Bank {
            return Err("workload.bank needs workload.kind = \"bank\"".into());
        }
        if self.history.is_some() && !self.kind.is_checked() {
            return Err(
                "workload.history needs workload.kind = \"bank\", \"ledger\", \"register\" or \"isolation\", which \
                 can be checked"
                    .into(),
            );
        }
        if self.kind.is_checked() && self.mix.is_some() {
            return Err(
                "workload.mix belongs to records; what checks ask for is given by workload.kind".into()
            );
        }
        if self.io.is_some() && self.kind != WorkloadKind::FileIo {
            return Err("workload.io needs workload.kind = \"file_io\"".into());
        }
        if self.kind == WorkloadKind::FileIo {
            let io = self.file_io(1, 0);
            let buffered = self.io.as_ref().is_some_and(|io| io.buffered);
            if !buffered && !io.blocks.least().0.is_multiple_of(512) {
                return Err(
                    "workload.io.block must be a multiple of 512 B: it goes past the page cache".into()
                );
            }
            if io.flushes.is_some() && io.turns != Turns::Writes {
                return Err(
                    "workload.io.fdatasync counts writes: it needs workload.io.turns = \"writes\"".into()
                );
            }
            return io.check().map_err(|e| format!("workload.io: {e}"));
        }
        if !self.kind.has_records() {
            return Ok(());
        }
        if self.mix.is_some() && self.kind == WorkloadKind::YcsbReads {
            return Err("workload.mix needs workload.kind = \"ycsb\": \"ycsb_reads\" is reads only".into());
        }
        if let Some(MixSpec::Letter(letter)) = &self.mix
            && Standard::of(letter).is_none()
        {
            return Err(format!("workload.mix = {letter:?} is none of YCSB's workloads a, b, c, d, e, f"));
        }
        let mix = self.mix();
        mix.check().map_err(|e| format!("workload.mix: {e}"))?;
        if (self.kind == WorkloadKind::Documents) != self.documents.is_some() {
            return Err(
                "workload.documents = \"sample.ndjson\" and workload.kind = \"documents\" need each other"
                    .into(),
            );
        }
        if self.fields == 0 || self.insert_batch == 0 {
            return Err("workload.fields and workload.insert_batch must be at least 1".into());
        }
        if self.values == Values::Integrity && !matches!(self.field_length, Lengths::Constant(_)) {
            return Err(
                "values = \"integrity\" can only be checked if all fields have the same length".into()
            );
        }
        if let Some(Sample { path, learned: Some(learned) }) = &self.documents {
            let updates = mix.update + mix.read_modify_write > 0.0;
            if self.write_fields != FieldChoice::One || self.read_fields != FieldChoice::All {
                return Err("documents are read whole, and updates set one value".into());
            }
            if updates && learned.paths().is_empty() {
                return Err(format!("{path}: its documents have no value that an update could set"));
            }
        }
        Ok(())
    }
}
