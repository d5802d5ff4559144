//! What Tipover measures: one module per system behind `core::target::Target`, its statistics beside its
//! driver. No target knows another one.

#[cfg(test)]
mod contract;
mod file;
mod null;
mod request_path;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

pub use file::FileTarget;
pub use null::Null;
pub use request_path::RequestPath;
#[cfg(feature = "wiredtiger")]
pub use wiredtiger::WiredTiger;

use std::path::Path;
use tipover_core::experiment::{Spec, TargetKind};
use tipover_core::target::{Target, TargetError};

/// Starts the target that `spec` names, with its data in `folder`, which must exist. An empty folder becomes
/// a new, empty target; one that was used before is recovered.
pub fn start(spec: &Spec, folder: &Path) -> Result<Box<dyn Target>, TargetError> {
    Ok(match spec.target.kind {
        TargetKind::Null => Box::new(Null),
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
    })
}
