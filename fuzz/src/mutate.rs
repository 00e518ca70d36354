//! Keyed mutations, for machines without a fuzzer: the same input under the same key gives the same
//! bytes.

use graphmill_core::keyed::{Stream, key};

/// Maximum length of a mutated input.
const MAX_LENGTH: usize = 1 << 14;

/// Applies one to four changes to `input`, drawn under `name` and `index`; `other` may be spliced
/// in, and `tokens` may be inserted.
pub fn mutate(input: &[u8], other: &[u8], tokens: &[&[u8]], name: &str, index: u64) -> Vec<u8> {
    let name = name.bytes().fold(0, |hash, byte| key(&[hash, byte.into()]));
    let mut stream = Stream::new(key(&[name, index]));
    let mut out = input.to_vec();
    for _ in 0..=below(&mut stream, 4) {
        change(&mut out, other, tokens, &mut stream);
    }
    out.truncate(MAX_LENGTH);
    out
}

/// Draws a number below `n`, or 0 if `n` is 0.
fn below(stream: &mut Stream, n: usize) -> usize {
    stream.below(n.max(1) as u64) as usize
}

fn change(out: &mut Vec<u8>, other: &[u8], tokens: &[&[u8]], stream: &mut Stream) {
    let at = below(stream, out.len());
    let end = (at + below(stream, 16)).min(out.len());
    match below(stream, 8) {
        _ if out.is_empty() => out.extend_from_slice(other),
        0 => out[at] ^= 1 << below(stream, 8),
        1 => out[at] = [0, 1, 0x7f, 0x80, 0xff, b'0', b'-', b'\n'][below(stream, 8)],
        2 => drop(out.drain(at..end)),
        3 => {
            let run = out[at..end].to_vec();
            out.splice(at..at, run);
        }
        4 => out.truncate(at),
        5 if !tokens.is_empty() => {
            let token = tokens[below(stream, tokens.len())];
            out.splice(at..at, token.iter().copied());
        }
        6 => {
            // Replaces a number by a number: sizes, counts and ids.
            let Some(digit) = out[at..].iter().position(u8::is_ascii_digit).map(|i| at + i) else { return };
            let digits = out[digit..].iter().take_while(|b| b.is_ascii_digit()).count();
            let number =
                ["0", "1", "3", "255", "65536", "4294967296", "18446744073709551615"][below(stream, 7)];
            out.splice(digit..digit + digits, number.bytes());
        }
        _ => {
            let from = below(stream, other.len());
            let length = below(stream, 64).min(other.len() - from);
            out.splice(at..end, other[from..from + length].iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutations_depend_only_on_the_key() {
        let make = |index| mutate(b"shape 12 of 3", b"other bytes", &[b"TOKEN"], "a", index);
        assert_eq!(make(7), make(7));
        let different = (0..200).map(make).collect::<std::collections::BTreeSet<_>>();
        assert!(different.len() > 100);
        mutate(b"", b"", &[], "a", 0); // no panic
    }
}
