//! What counters of a server and of its device grew by.

/// What a server's device did for it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeviceUse {
    /// Reads.
    pub reads: f64,
    /// Bytes of them.
    pub read_bytes: f64,
    /// Seconds that they took together.
    pub read_s: f64,
    /// Writes.
    pub writes: f64,
    /// Bytes of them.
    pub write_bytes: f64,
    /// Seconds that they took together.
    pub write_s: f64,
    /// Flushes.
    pub flushes: f64,
    /// Seconds that they took together.
    pub flush_s: f64,
}

/// What counters grew by in a part of the interval.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Part {
    /// How long it was.
    pub seconds: f64,
    /// Operations, as the server counts them.
    pub operations: f64,
    /// Pages asked of the engine's cache.
    pub pages: f64,
    /// Of them, those that were not there.
    pub misses: f64,
    /// Bytes of journal.
    pub journal_bytes: f64,
    /// Flushes of the journal.
    pub journal_syncs: f64,
    /// Seconds of processor time of the server, where they can be seen.
    pub cpu: Option<f64>,
    /// The device, where it can be seen.
    pub device: Option<DeviceUse>,
}

impl Part {
    /// Both together.
    pub fn plus(mut self, other: &Part) -> Part {
        let device = |a: DeviceUse, b: DeviceUse| DeviceUse {
            reads: a.reads + b.reads,
            read_bytes: a.read_bytes + b.read_bytes,
            read_s: a.read_s + b.read_s,
            writes: a.writes + b.writes,
            write_bytes: a.write_bytes + b.write_bytes,
            write_s: a.write_s + b.write_s,
            flushes: a.flushes + b.flushes,
            flush_s: a.flush_s + b.flush_s,
        };
        self.seconds += other.seconds;
        self.operations += other.operations;
        self.pages += other.pages;
        self.misses += other.misses;
        self.journal_bytes += other.journal_bytes;
        self.journal_syncs += other.journal_syncs;
        self.cpu = self.cpu.zip(other.cpu).map(|(a, b)| a + b);
        self.device = self.device.zip(other.device).map(|(a, b)| device(a, b));
        self
    }
}
