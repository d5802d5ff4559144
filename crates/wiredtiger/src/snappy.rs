//! Snappy for WiredTiger's blocks and journal, called by the shim on whatever thread reads or writes a page.

use snap::raw::{Decoder, Encoder, max_compress_len};
use std::cell::RefCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

thread_local! {
    /// An encoder owns a table of 2–32 KiB that is worth keeping from page to page.
    static ENCODER: RefCell<Encoder> = RefCell::new(Encoder::new());
}

#[unsafe(no_mangle)]
extern "C" fn tipover_snappy_bound(size: usize) -> usize {
    max_compress_len(size)
}

/// # Safety
/// `from` is readable for `size` bytes, `to` writable for `room`, they do not overlap, and `written` is
/// writable.
#[unsafe(no_mangle)]
unsafe extern "C" fn tipover_snappy_compress(
    from: *const u8,
    size: usize,
    to: *mut u8,
    room: usize,
    written: *mut usize,
) -> c_int {
    // SAFETY: as the caller promises; WiredTiger's buffers are never null here, because the shim stands in
    // front.
    let (from, to) = unsafe { (slice::from_raw_parts(from, size), slice::from_raw_parts_mut(to, room)) };
    let compressed = catch_unwind(AssertUnwindSafe(|| {
        // WiredTiger may compress on a thread that is already past its thread-locals.
        match ENCODER
            .try_with(|encoder| encoder.try_borrow_mut().map(|mut encoder| encoder.compress(from, to)))
        {
            Ok(Ok(compressed)) => compressed,
            _ => Encoder::new().compress(from, to),
        }
    }));
    // SAFETY: `written` is writable, as the caller promises.
    unsafe { conclude(compressed, written) }
}

/// # Safety
/// As for [`tipover_snappy_compress`].
#[unsafe(no_mangle)]
unsafe extern "C" fn tipover_snappy_decompress(
    from: *const u8,
    size: usize,
    to: *mut u8,
    room: usize,
    written: *mut usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let (from, to) = unsafe { (slice::from_raw_parts(from, size), slice::from_raw_parts_mut(to, room)) };
    let decompressed = catch_unwind(AssertUnwindSafe(|| Decoder::new().decompress(from, to)));
    // SAFETY: `written` is writable, as the caller promises.
    unsafe { conclude(decompressed, written) }
}

/// Zero and the size, or one: corrupt input is an error to the caller, and so is a panic, which must not
/// reach C.
///
/// # Safety
/// `written` is writable.
unsafe fn conclude(outcome: std::thread::Result<snap::Result<usize>>, written: *mut usize) -> c_int {
    let Ok(Ok(bytes)) = outcome else { return 1 };
    // SAFETY: as the caller promises.
    unsafe { *written = bytes };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(from: &[u8]) {
        let mut packed = vec![0; tipover_snappy_bound(from.len())];
        let mut unpacked = vec![0; from.len()];
        let mut bytes = 0;
        // SAFETY: the buffers are as long as is said.
        let codes = unsafe {
            let code = tipover_snappy_compress(
                from.as_ptr(),
                from.len(),
                packed.as_mut_ptr(),
                packed.len(),
                &mut bytes,
            );
            packed.truncate(bytes);
            let room = unpacked.len();
            (code, tipover_snappy_decompress(packed.as_ptr(), bytes, unpacked.as_mut_ptr(), room, &mut bytes))
        };
        assert_eq!(codes, (0, 0));
        assert_eq!((bytes, unpacked.as_slice()), (from.len(), from));
    }

    #[test]
    fn what_is_packed_can_be_unpacked() {
        round_trip(b"");
        round_trip(&b"tipping point ".repeat(3000));
        round_trip(
            &(0..40_000u32)
                .flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes())
                .collect::<Vec<_>>(),
        );
    }

    #[test]
    fn corrupt_or_too_small_is_an_error() {
        let (from, mut to, mut bytes) = ([0xffu8; 64], [0u8; 16], 0);
        // SAFETY: the buffers are as long as is said.
        let codes = unsafe {
            (
                tipover_snappy_decompress(from.as_ptr(), from.len(), to.as_mut_ptr(), to.len(), &mut bytes),
                tipover_snappy_compress(from.as_ptr(), from.len(), to.as_mut_ptr(), to.len(), &mut bytes),
            )
        };
        assert_eq!(codes, (1, 1));
    }
}
