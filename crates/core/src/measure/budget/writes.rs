//! Writes: the user's bytes → journal → written by the engine → given to the kernel → written by the device.

use super::{Account, Agreement, Budget, Station, Step, Way, rounded};
use crate::metric::name as metric;

/// What the journal's files were given: bytes of journal, and the blocks that were written again because a
/// write ended inside them.
struct Journal {
    bytes: f64,
    written: f64,
}

impl Journal {
    fn of(account: &Account) -> Option<Journal> {
        let bytes = account.grown(metric::ENGINE_JOURNAL_BYTES)?;
        let counted = account.grown(metric::ENGINE_JOURNAL_FILE_WRITE_BYTES);
        // A write begins where the one before it ended, in the middle of a block, and takes that block along.
        let again = || {
            let writes = account.grown(metric::ENGINE_JOURNAL_WRITES)?;
            Some(bytes + writes * account.level(metric::ENGINE_JOURNAL_BLOCK_BYTES)?)
        };
        Some(Journal { bytes, written: counted.or_else(again).unwrap_or(bytes) })
    }
}

pub(super) fn budget(account: &Account, user_bytes: Option<f64>) -> Budget {
    let journal = Journal::of(account);
    let data = account.grown(metric::ENGINE_FILE_WRITE_BYTES);
    let engine = data.map(|data| data + journal.as_ref().map_or(0.0, |journal| journal.written));
    let block = account.grown(metric::DEVICE_WRITE_BYTES);
    let given = account.grown(metric::PROCESS_ASKED_WRITE_BYTES);
    // Above FUSE the kernel books nothing as sent to storage; a zero there is no witness.
    let dirtied = block.and(account.grown(metric::PROCESS_DEVICE_WRITE_BYTES));
    let cancelled = account.grown(metric::PROCESS_CANCELLED_WRITE_BYTES).unwrap_or(0.0);
    // Writes that the kernel carries out by itself (io_uring) are in no write call, and those past the page
    // cache make no page dirty: what is sent past it is counted exactly where pages would be.
    let kernel = if account.is_direct() { dirtied } else { given };
    let waiting = [metric::GROUP_DIRTY_BYTES, metric::GROUP_WRITEBACK_BYTES]
        .iter()
        .filter_map(|name| account.grown(name))
        .sum::<f64>();
    // No more can reach the device than was given, nor more than pages were made dirty, less what was dropped
    // and what still waits.
    let expected =
        kernel.map(|kernel| dirtied.map_or(kernel, |dirtied| kernel.min(dirtied - cancelled)) - waiting);
    let own = account.grown(metric::DISK_WRITE_BYTES);
    // Whoever else writes to the disk is in the disk's counters, and in nobody's account here.
    let tenant = account.grown(metric::TENANT_WRITE_BYTES);
    let device = own.or(block).map(|device| device - tenant.unwrap_or(0.0));

    let mut checks = Vec::new();
    match (engine, kernel) {
        (Some(engine), Some(kernel)) => {
            let what = "the engine's and the kernel's counters";
            checks.push(Agreement::of(what, kernel, engine, account.apart_from_engine(), |residual| {
                let (engine, kernel) = (rounded(engine), rounded(kernel));
                let why = why_engine(account, residual);
                format!("the engine wrote {engine}, the kernel was given {kernel}: {why}")
            }));
        }
        (Some(engine), None) => {
            let reason =
                "the kernel's account of the processes is not available, so nothing checks the engine's";
            checks.push(Agreement::proves_nothing(
                "engine and disk",
                device.unwrap_or(engine),
                engine,
                reason,
            ));
        }
        (None, _) => {}
    }
    if let (Some(expected), Some(device)) = (expected, device) {
        let what = "the kernel's and the disk's counters";
        checks.push(if own.is_none() {
            let reason = "the device belongs to the whole machine, so others' writes may be in its counters";
            Agreement::proves_nothing(what, device, expected, reason)
        } else {
            Agreement::of(what, device, expected, account.apart(), |residual| {
                let why = why_device(account, residual);
                let (expected, device) = (rounded(expected), rounded(device));
                format!("{expected} were on their way to the device, which wrote {device}: {why}")
            })
        });
    }
    if let (Some(block), Some(own)) = (block, own) {
        checks.push(Agreement::of("block layer and disk", block, own, account.apart(), |_| {
            format!("the block layer saw {}, the disk wrote {}", rounded(block), rounded(own))
        }));
    }
    let most = [engine, kernel, device].into_iter().flatten().fold(0.0, f64::max);
    let missing = match engine {
        // Without the engine's word there is nothing to be accounted for.
        None => "the target does not count what it writes to its files",
        Some(_) => "next to nothing was written",
    };
    if engine.is_none() || most < Budget::SLACK_BYTES {
        checks.clear();
    }
    checks.extend(Agreement::with_restarts(account));
    let steps = steps(account, user_bytes, journal, Flow { engine, data, kernel, expected, device, waiting });
    let agree = "the engine's, the kernel's and the disk's counters agree";
    Budget::of(Way::Writes, steps, checks, agree, missing)
}

/// Bytes at the stations.
struct Flow {
    engine: Option<f64>,
    data: Option<f64>,
    kernel: Option<f64>,
    expected: Option<f64>,
    device: Option<f64>,
    waiting: f64,
}

fn steps(account: &Account, user: Option<f64>, journal: Option<Journal>, flow: Flow) -> Vec<Step> {
    let of = |name: &str| account.grown(name);
    let absorbed = flow.kernel.zip(flow.expected).map(|(kernel, expected)| kernel - flow.waiting - expected);
    vec![
        Step::new(Station::User, "user's keys and values", user),
        Step {
            requests: of(metric::ENGINE_JOURNAL_WRITES),
            flushes: of(metric::ENGINE_JOURNAL_SYNCS),
            ..Step::new(Station::Journal, "journal", journal.as_ref().map(|journal| journal.bytes))
                .part("page images", of(metric::ENGINE_PAGE_IMAGE_BYTES))
        },
        Step::new(Station::Engine, "written by the engine", flow.engine)
            .part("journal", journal.as_ref().map(|journal| journal.written))
            .part(
                "journal blocks written again",
                journal.as_ref().map(|journal| journal.written - journal.bytes),
            )
            .part("data files", flow.data)
            .part("checkpoints", of(metric::ENGINE_CHECKPOINT_WRITE_BYTES))
            .part("evictions", of(metric::ENGINE_EVICTION_WRITE_BYTES))
            .part("double writes", of(metric::ENGINE_DOUBLE_WRITE_BYTES))
            .part("temporary files", of(metric::ENGINE_TEMPORARY_WRITE_BYTES)),
        Step::new(Station::PageCache, "given to the kernel", flow.kernel)
            .part("written again before it was sent", absorbed.filter(|bytes| *bytes > 0.0))
            .part("waiting, more than before", Some(flow.waiting)),
        Step {
            requests: of(metric::DISK_WRITE_REQUESTS),
            flushes: of(metric::DISK_FLUSH_REQUESTS),
            ..Step::new(Station::Device, "device", flow.device)
                .part(
                    "more than it was given",
                    flow.device.zip(flow.expected).map(|(device, expected)| (device - expected).max(0.0)),
                )
                .part("besides, written by another tenant", of(metric::TENANT_WRITE_BYTES))
        },
    ]
}

/// What may lie between engine and kernel.
fn why_engine(account: &Account, residual: f64) -> String {
    if residual < 0.0 {
        return "a process is in nobody's account, writes went past the write calls (mapped files, io_uring), or the \
                engine counts twice"
            .into();
    }
    let files = account.grown(metric::ENGINE_JOURNAL_FILES_BYTES).unwrap_or(0.0);
    if files > Budget::SLACK_BYTES {
        return format!(
            "the journal got {} of new files, which are filled with zeros before use",
            rounded(files)
        );
    }
    "the processes write what the engine does not count: temporary files, logs, replication".into()
}

/// What may lie between kernel and device.
fn why_device(account: &Account, residual: f64) -> String {
    if residual < 0.0 {
        return "pages were written again before they were sent, or dropped with their files".into();
    }
    let commits = account.grown(metric::FILESYSTEM_COMMITS).filter(|commits| *commits > 0.0);
    let often = commits.map_or(String::new(), |commits| format!(", committed {commits:.0} times,"));
    format!(
        "the file system's own journal{often} and metadata, pages of which only a part was new, or a writer that \
         is in nobody's account"
    )
}
