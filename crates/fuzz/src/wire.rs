//! What processes say to each other.

use crate::text;

/// Whatever prints as a line reads back, and prints as the same line.
pub fn lines(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let disk = [tipover_disk::untrusted::request, tipover_disk::untrusted::response];
    let network = [tipover_lab::untrusted::request, tipover_lab::untrusted::response];
    let of_keeper = tipover_lab::untrusted::keeper::request;
    let keeper = [of_keeper, tipover_lab::untrusted::keeper::order, tipover_lab::untrusted::keeper::answer];
    for read in disk.into_iter().chain(network).chain(keeper) {
        if let Ok(printed) = read(text) {
            assert!(!printed.contains('\n'), "one line: {printed}");
            assert_eq!(read(&printed).expect("what was printed is read"), printed);
        }
    }
}

pub fn mongod(bytes: &[u8]) {
    match tipover_lab::untrusted::answer(bytes) {
        Ok(answer) => assert!(answer.to_vec().is_ok_and(|written| written.len() <= bytes.len())),
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
}
