//! What Tipover measures: one module per system behind `core::target::Target`, its statistics beside its
//! driver. No target knows another one.

#[cfg(feature = "connection")]
mod connection;
#[cfg(test)]
mod contract;
pub mod file;
mod guilty;
#[cfg(feature = "mongodb")]
mod mongodb;
#[cfg(feature = "mysql")]
mod mysql;
mod null;
#[cfg(feature = "postgres")]
mod postgres;
mod request_path;
#[cfg(feature = "connection")]
pub mod served;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

/// A server's bytes given to our clients without a socket, one function for each way to read them: whatever
/// stands at the other end, nothing that it says may do more than end the conversation. They are tried with
/// bytes that nobody wrote (`crates/fuzz`).
pub mod untrusted {
    #[cfg(feature = "mongodb")]
    pub use crate::mongodb::untrusted::mongodb;
    #[cfg(feature = "mysql")]
    pub use crate::mysql::untrusted::{mysql, mysql_key};
    #[cfg(feature = "postgres")]
    pub use crate::postgres::untrusted::postgres;
}

pub use file::FileTarget;
pub use guilty::Guilty;
#[cfg(feature = "mongodb")]
pub use mongodb::{MongoDb, Profiler, Transactor};
#[cfg(feature = "mysql")]
pub use mysql::Mysql;
pub use null::Null;
#[cfg(feature = "postgres")]
pub use postgres::{Console, Postgres};
pub use request_path::RequestPath;
#[cfg(feature = "wiredtiger")]
pub use wiredtiger::WiredTiger;

use std::path::Path;
use tipover_core::experiment::{Spec, TargetKind, WorkloadKind};
use tipover_core::target::{Target, TargetError};

/// Why a target has no session for scripts.
fn no_scripts() -> TargetError {
    TargetError::new(
        "opening a session for scripts of statements",
        "this target runs none; SQL servers and MongoDB do",
    )
}

/// Starts the target that `spec` names, with its data in `folder`, which must exist. An empty folder becomes
/// a new, empty target; one that was used before is recovered. An embedded engine with an address is served
/// there by another process.
pub fn start(spec: &Spec, folder: &Path) -> Result<Box<dyn Target>, TargetError> {
    #[cfg(feature = "connection")]
    if matches!(spec.target.kind, TargetKind::Wiredtiger | TargetKind::Guilty)
        && spec.target.address.is_some()
    {
        return Ok(Box::new(served::Served::connect(spec)?));
    }
    Ok(match spec.target.kind {
        TargetKind::Null => Box::new(Null),
        TargetKind::File if spec.workload.kind == WorkloadKind::FileIo => {
            let io = spec.workload.io.clone().unwrap_or_default();
            Box::new(FileTarget::asked(folder, io.block.most().0 as usize, io.buffered))
        }
        TargetKind::File => Box::new(FileTarget::new(folder)),
        #[cfg(feature = "wiredtiger")]
        TargetKind::Wiredtiger => Box::new(WiredTiger::open(spec, folder)?),
        #[cfg(not(feature = "wiredtiger"))]
        TargetKind::Wiredtiger => {
            return Err(TargetError::new(
                "starting WiredTiger",
                "this binary was built without it; build with --features wiredtiger",
            ));
        }
        TargetKind::Guilty => Box::new(Guilty::open(spec, folder)?),
        #[cfg(feature = "postgres")]
        TargetKind::Postgres => Box::new(Postgres::open(spec)?),
        #[cfg(feature = "mongodb")]
        TargetKind::Mongodb => Box::new(MongoDb::open(spec)?),
        #[cfg(feature = "mysql")]
        TargetKind::Mysql => Box::new(Mysql::open(spec)?),
        #[allow(unreachable_patterns, reason = "it is reached when a feature is left out")]
        kind => {
            return Err(TargetError::new(
                "starting the target",
                format!("{kind:?} is not built into this binary"),
            ));
        }
    })
}
