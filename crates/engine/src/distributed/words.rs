//! Files as words of messages between ranks.

use crate::checkpoint::Files;

/// Packs files into words.
pub(super) fn pack(files: &Files) -> Vec<u32> {
    let mut words = Vec::new();
    for (name, bytes) in files {
        for bytes in [name.as_bytes(), bytes] {
            let len = bytes.len() as u64;
            words.extend([len as u32, (len >> 32) as u32]);
            words.extend(bytes.chunks(4).map(|four| {
                let mut word = [0; 4];
                word[..four.len()].copy_from_slice(four);
                u32::from_le_bytes(word)
            }));
        }
    }
    words
}

/// Unpacks the files of [`pack`]; `None` if the words are malformed.
pub(super) fn unpack(mut words: &[u32]) -> Option<Files> {
    let mut next = || {
        let (&[low, high], rest) = words.split_first_chunk()?;
        let len = usize::try_from(u64::from(high) << 32 | u64::from(low)).ok()?;
        let (these, rest) = rest.split_at_checked(len.div_ceil(4))?;
        words = rest;
        let mut bytes: Vec<u8> = these.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(len);
        Some((bytes, rest.is_empty()))
    };
    let mut files = Vec::new();
    loop {
        let (name, _) = next()?;
        let (bytes, is_last) = next()?;
        files.push((String::from_utf8(name).ok()?, bytes));
        if is_last {
            return Some(files);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpack_returns_packed_files_and_refuses_truncated_words() {
        let file =
            |name: &str, len: usize| (name.to_string(), (0..len).map(|i| i as u8).collect::<Vec<u8>>());
        for files in [vec![file("a", 0)], vec![file("state.json", 7), file("b", 4096), file("", 3)]] {
            let words = pack(&files);
            assert_eq!(unpack(&words), Some(files));
            assert_eq!(unpack(&words[..words.len() - 1]), None);
        }
    }
}
