//! libFuzzer's program: the target is named by the environment variable `TIPOVER_FUZZ`, everything else by
//! libFuzzer's own options.
#![no_main]

use std::sync::OnceLock;
use tipover_fuzz::Target;

/// Which reader is hunted.
static HUNTED: OnceLock<Target> = OnceLock::new();

fn hunted() -> Target {
    let name = std::env::var("TIPOVER_FUZZ").unwrap_or_default();
    Target::named(&name).unwrap_or_else(|| panic!("TIPOVER_FUZZ names no target: {name:?}"))
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    HUNTED.get_or_init(hunted).try_out(bytes);
});
