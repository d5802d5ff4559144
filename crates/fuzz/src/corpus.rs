//! A corpus as one file: inputs one after the other, each after its length in four bytes, the lowest first.
//!
//! One file, because hundreds of tiny ones with odd bytes are a burden to git and to whoever looks for text.

/// First byte of a corpus: no text begins with it.
const MARK: u8 = 0xFF;

/// The inputs in a corpus; `None` for what [`pack`] does not write.
pub fn unpack(packed: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = packed.strip_prefix(&[MARK])?;
    let mut inputs = Vec::new();
    while !rest.is_empty() {
        let (length, more) = rest.split_first_chunk()?;
        let (input, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        inputs.push(input);
        rest = more;
    }
    Some(inputs)
}

/// A corpus of `inputs`.
pub fn pack<'a>(inputs: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut packed = vec![MARK];
    for input in inputs {
        packed.extend_from_slice(&(input.len() as u32).to_le_bytes());
        packed.extend_from_slice(input);
    }
    packed
}
