//! Reads: what the engine missed = what the page cache had + what the device served.

use super::{Account, Agreement, Budget, Station, Step, Way, rounded};
use crate::metric::name as metric;

/// What is compared where the engine's statistics are old.
const BY_OPERATION: &str = "the engine's misses by operation, the kernel's and the disk's counters";

pub(super) fn budget(account: &Account) -> Budget {
    // A file that became shorter made no page.
    let made = account.grown(metric::ENGINE_FILE_MADE_BYTES).map(|made| made.max(0.0));
    let counted = account.grown(metric::ENGINE_FILE_READ_BYTES);
    // What is copied to make another node anew is read by the server and counted by no engine.
    let copied = account.grown(metric::PROCESS_COPIED_BYTES).unwrap_or(0.0);
    let missed = counted.map(|counted| (counted - made.unwrap_or(0.0)).max(0.0) + copied);
    let asked = account.grown(metric::PROCESS_ASKED_READ_BYTES);
    let block = account.grown(metric::DEVICE_READ_BYTES);
    // Above FUSE the kernel books nothing as fetched from storage; a zero there is no witness.
    let fetched = block.and(account.grown(metric::PROCESS_DEVICE_READ_BYTES));
    let own = account.grown(metric::DISK_READ_BYTES);
    // Whoever else reads from the disk is in the disk's counters, and in nobody's account here.
    let tenant = account.grown(metric::TENANT_READ_BYTES);
    let device = own.or(block).map(|device| device - tenant.unwrap_or(0.0));
    let hits = match (asked, fetched) {
        (Some(asked), Some(fetched)) => Some((asked - fetched).max(0.0)),
        _ => missed.zip(device).map(|(missed, device)| (missed - device).max(0.0)),
    };
    let ahead = asked.zip(fetched).map(|(asked, fetched)| (fetched - asked).max(0.0));

    let mut checks = Vec::new();
    if let (Some(missed), Some(hits), Some(device)) = (missed, hits, device) {
        let what = "the engine's, the kernel's and the disk's counters";
        let given = hits + device;
        checks.push(if asked.is_none() || fetched.is_none() {
            let reason = "page-cache hits are the difference of the engine's and the disk's counters: the \
                          kernel's own are not available, so nothing checks them";
            Agreement::proves_nothing(what, missed, given, reason)
        } else if own.is_none() {
            let reason = "the device belongs to the whole machine, so others' reads may be in its counters";
            Agreement::proves_nothing(what, missed, given, reason)
        } else {
            let of = |what: &str, missed: f64, apart: f64| {
                Agreement::of(what, missed, given, apart, |residual| {
                    format!(
                        "the engine missed {}, but page cache ({}) and device ({}) gave {}: {}",
                        rounded(missed),
                        rounded(hits),
                        rounded(device),
                        rounded(given),
                        why(account, residual, ahead.unwrap_or(0.0))
                    )
                })
            };
            // What old statistics say of each operation acquits where it fits; it accuses nobody, because
            // operations need not miss by chance.
            let by_operations = account.by_operations().filter(|(_, noise)| *noise <= Budget::TOLERANCE);
            let each = by_operations
                .map(|(factor, noise)| of(BY_OPERATION, missed * factor, account.apart() + noise))
                .filter(|each| each.closes == Some(true));
            each.unwrap_or_else(|| of(what, missed, account.apart_from_engine()))
        });
    }
    if let (Some(block), Some(own)) = (block, own) {
        checks.push(Agreement::of("block layer and disk", block, own, account.apart(), |_| {
            format!("the block layer saw {}, the disk served {}", rounded(block), rounded(own))
        }));
    }
    if let (Some(fetched), Some(group)) = (fetched, account.grown(metric::GROUP_DEVICE_READ_BYTES)) {
        checks.push(Agreement::of("processes and control group", group, fetched, account.apart(), |_| {
            format!(
                "the node's processes fetched {}, its control group {}: a process is in one account only",
                rounded(fetched),
                rounded(group)
            )
        }));
    }
    // Without the engine's word there is nothing to be accounted for.
    if missed.is_none() {
        checks.clear();
    }
    checks.extend(Agreement::with_restarts(account));
    let cache = if account.is_direct() { "page cache, which direct I/O passes by" } else { "page cache" };
    let steps = vec![
        Step::new(Station::Engine, "missed by the engine", missed)
            .part("of that, copied to make another node anew", Some(copied))
            .part("besides, counted as read and only made", made),
        Step::new(Station::PageCache, cache, hits),
        Step {
            requests: account
                .grown(metric::DISK_READ_REQUESTS)
                .or(account.grown(metric::DEVICE_READ_REQUESTS)),
            ..Step::new(Station::Device, "device", device)
                .part("read ahead and not asked for", ahead)
                .part("besides, read by another tenant", tenant)
        },
    ];
    let agree = match checks.iter().any(|check| check.what == BY_OPERATION) {
        true => format!("{BY_OPERATION} agree"),
        false => "the engine's, the kernel's and the disk's counters agree".into(),
    };
    Budget::of(Way::Reads, steps, checks, &agree, "the target counts no reads of its files")
}

/// What a residual may be.
fn why(account: &Account, residual: f64, ahead: f64) -> String {
    if residual < 0.0 {
        let temporary = account.grown(metric::ENGINE_TEMPORARY_WRITE_BYTES).unwrap_or(0.0);
        if ahead > Budget::SLACK_BYTES {
            return format!("{} were read ahead and not asked for", rounded(ahead));
        }
        if temporary > Budget::SLACK_BYTES {
            return format!(
                "{} of temporary files were written, and are read without being missed",
                rounded(temporary)
            );
        }
        if account.grown(metric::PROCESS_COPIED_BYTES) > Some(0.0) {
            return "of a node that replicates, the engine does not count what it reads of its journal, to send it to its \
                    standbys and to replay what it was sent before"
                .into();
        }
        return "something is read that the engine does not count as missed: its journal, temporary files, \
                or files of other programs"
            .into();
    }
    "pages were counted as read that were only made, as those of growing tables, or a process is in \
     nobody's account"
        .into()
}
