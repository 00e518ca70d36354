use std::{iter::once, slice::from_ref};

use super::*;

/// Bytes of a chunk, of the header before the values, and of a row; no divisor of another.
const CHUNK: usize = 16;
const HEADER: usize = 10;
const ROW: usize = 6;
/// Number of rows: 76 chunks, so that two words record them, of which the last is short.
const ROWS: usize = 200;
/// Byte that counts as a value that is not finite.
const NOT_FINITE: u8 = 255;

/// Checksum of a chunk, which depends on every byte and its position.
fn leaf(bytes: &[u8]) -> u128 {
    bytes.iter().fold(7, |sum, &byte| (sum ^ u128::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn root(len: u64, leaves: &[u128]) -> String {
    let sum = leaves.iter().fold(u128::from(len), |sum, leaf| sum.wrapping_mul(31).wrapping_add(*leaf));
    format!("{sum:x}")
}

fn file() -> Vec<u8> {
    (0..HEADER + ROWS * ROW).map(|i| (i % 251) as u8).collect()
}

/// Verifier of the file `now`, with the checksums of `written`.
fn verifier(written: &[u8], now: Vec<u8>, chunk: usize, has_leaves: bool) -> ChunkVerifier {
    let leaves: Vec<u128> = written.chunks(chunk).map(leaf).collect();
    let whole = root(written.len() as u64, &leaves);
    let sums = Checksums { chunk, whole, leaves: has_leaves.then_some(leaves), leaf, root };
    ChunkVerifier::new("rows.npy".into(), now.into(), HEADER, sums, |bytes| {
        bytes.iter().position(|&byte| byte == NOT_FINITE)
    })
}

/// Sees parts of a file.
type See<'s> = dyn FnMut(&[u8]) + 's;

/// Reads ranges of `bytes`, and counts the reads of each byte.
fn reader<'b>(bytes: &'b [u8], reads: &'b [AtomicUsize]) -> impl Fn(Range<u64>, &mut See) -> Result<()> {
    |range, see| {
        let range = range.start as usize..range.end as usize;
        for count in &reads[range.clone()] {
            count.fetch_add(1, Relaxed);
        }
        see(&bytes[range]);
        Ok(())
    }
}

/// Chunks in which a row lies.
fn chunks_of(v: usize) -> Range<usize> {
    (HEADER + v * ROW) / CHUNK..(HEADER + (v + 1) * ROW).div_ceil(CHUNK)
}

#[test]
fn exactly_the_rows_of_a_damaged_chunk_are_refused() {
    let written = file();
    // the first ones, those at the end of a word of bits and of a window, and the last
    for chunk in [0, 1, 3, 4, 63, 64, written.len() / CHUNK] {
        let place = chunk * CHUNK..((chunk + 1) * CHUNK).min(written.len());
        for at in [place.start, place.end - 1] {
            let mut now = written.clone();
            now[at] ^= 1;
            let verifier = verifier(&written, now, CHUNK, true);
            for v in 0..ROWS {
                let verified = verifier.verify_rows(&[v as NodeId], ROW);
                assert_eq!(verified.is_err(), chunks_of(v).contains(&chunk), "row {v}, byte {at}");
            }
            // a refused chunk is refused again
            let message = verifier.verify_all().unwrap_err().to_string();
            let says = format!("rows.npy: bytes {} to {}: the features are damaged", place.start, place.end);
            assert!(message.starts_with(&says) && !verifier.is_done(), "{message}");
        }
    }
}

#[test]
fn every_chunk_is_read_once_whatever_the_ranges_are() {
    let bytes = file();
    let reads: Vec<AtomicUsize> = bytes.iter().map(|_| AtomicUsize::new(0)).collect();
    let count =
        |range: Range<usize>| reads[range].iter().map(|count| count.load(Relaxed)).collect::<Vec<_>>();
    let verifier = verifier(&bytes, bytes.clone(), CHUNK, true);
    let read = &reader(&bytes, &reads);
    let verify = |ranges: &[Range<u64>]| verifier.verify_ranges(ranges.iter().cloned(), read).unwrap();
    assert_eq!(verify(&[5..5, 40..40]), 0, "empty ranges lie in no chunk");
    // two chunks, of which each is named twice: the first, with the header, and the fourth
    assert_eq!(verify(&[63..64, 11..16, 0..1, 48..49]), 2 * CHUNK as u64);
    assert_eq!((count(0..16), count(16..48), count(48..64)), (vec![1; 16], vec![0; 32], vec![1; 16]));
    assert_eq!(verifier.bytes_verified(), (2 * CHUNK - HEADER) as u64, "bytes of the header are not counted");
    assert_eq!(verify(from_ref(&(0..64))), 2 * CHUNK as u64, "the two between them");
    // a clone shares what was verified
    let all: Vec<NodeId> = (0..ROWS as NodeId).collect();
    verifier.clone().verify_rows(&all, ROW).unwrap();
    assert_eq!(
        (verify(from_ref(&(0..bytes.len() as u64))), count(64..bytes.len())),
        (0, vec![0; bytes.len() - 64])
    );
    assert!(verifier.is_done() && verifier.bytes_verified() == verifier.bytes());
    assert_eq!((verifier.bytes(), verifier.bytes_at_opening()), ((ROWS * ROW) as u64, 0));
    assert_eq!(format!("{verifier:?}"), "ChunkVerifier(\"rows.npy\", 1200 of 1200 bytes)");
}

#[test]
fn the_first_damaged_chunk_is_reported_for_any_number_of_threads() {
    let written = file();
    let mut now = written.clone();
    [70, 500, 900].into_iter().for_each(|at| now[at] ^= 4);
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let verify = || {
            let verifier = verifier(&written, now.clone(), CHUNK, true);
            let all: Vec<NodeId> = (0..ROWS as NodeId).rev().collect();
            [verifier.verify_rows(&all, ROW), verifier.verify_all(), verifier.verify_at_opening()]
                .map(|verified| verified.unwrap_err().to_string())
        };
        let messages = pool.install(verify);
        assert!(messages.iter().all(|message| message.contains("bytes 64 to 80")), "{messages:?}");
    }
}

#[test]
fn chunks_that_were_not_read_stay_unverified() {
    let bytes = file();
    let verifier = verifier(&bytes, bytes.clone(), CHUNK, true);
    let fails = |_: Range<u64>, _: &mut dyn FnMut(&[u8])| -> Result<()> { Err(Error::invalid("no disk")) };
    let error = verifier.verify_ranges(once(0..40), &fails).unwrap_err();
    assert!(error.to_string().contains("no disk"));
    assert_eq!((verifier.bytes_verified(), verifier.is_done()), (0, false));
}

#[test]
fn values_that_are_not_finite_are_refused_with_their_place() {
    let mut bytes = file();
    // the header may hold any byte
    bytes[3] = NOT_FINITE;
    verifier(&bytes, bytes.clone(), CHUNK, true).verify_all().unwrap();
    for (at, says) in
        [(HEADER, "bytes 0 to 16: value 0 from byte 10"), (37, "bytes 32 to 48: value 5 from byte 32")]
    {
        let mut bytes = bytes.clone();
        bytes[at] = NOT_FINITE;
        for has_leaves in [true, false] {
            let verifier = verifier(&bytes, bytes.clone(), CHUNK, has_leaves);
            let message = verifier.verify_all().unwrap_err().to_string();
            assert!(message.contains(says) && message.contains("not a finite number"), "{message}");
        }
        let row = ((at - HEADER) / ROW) as NodeId;
        let message = verifier(&bytes, bytes.clone(), CHUNK, true).verify_rows(&[row], ROW).unwrap_err();
        assert!(message.to_string().contains(says), "{message}");
    }
    // a header longer than the first chunk
    let bytes = [NOT_FINITE; HEADER];
    verifier(&bytes, bytes.to_vec(), HEADER / 2, true).verify_all().unwrap();
}

#[test]
fn files_without_checksums_of_chunks_are_verified_whole() {
    let written = file();
    let verifier_of = |now: Vec<u8>| verifier(&written, now, CHUNK, false);
    let verifier = verifier_of(written.clone());
    assert!(!verifier.has_checksums() && verifier.is_done(), "rows alone cannot be verified");
    verifier.verify_rows(&[3], ROW).unwrap();
    assert_eq!(verifier.bytes_verified(), 0);
    verifier.verify_at_opening().unwrap();
    let bytes = (ROWS * ROW) as u64;
    assert_eq!((verifier.bytes_verified(), verifier.bytes_at_opening()), (bytes, bytes));
    let mut now = written.clone();
    now[HEADER + 77] ^= 1;
    let damaged = verifier_of(now.clone());
    let message = damaged.verify_all().unwrap_err().to_string();
    assert!(
        message.contains("the file has the checksum") && message.contains(damaged.checksum()),
        "{message}"
    );
    assert_eq!(damaged.bytes_verified(), 0);
    // a file of one chunk has the checksum of that chunk
    for (now, is_whole) in [(written.clone(), true), (now, false)] {
        let one = self::verifier(&written, now, 2048, false);
        assert!(one.has_checksums());
        assert_eq!((one.verify_rows(&[3], ROW).is_ok(), one.is_done()), (is_whole, is_whole));
    }
}

#[test]
fn nothing_is_read_once_verification_is_off() {
    let written = file();
    let mut now = written.clone();
    now.fill(9);
    let verifier = verifier(&written, now, CHUNK, true);
    assert!(!verifier.is_off() && !verifier.is_done());
    verifier.clone().turn_off();
    assert!(verifier.is_off() && verifier.is_done());
    verifier.verify_rows(&[0, 7], ROW).unwrap();
    verifier.verify_all().unwrap();
    assert_eq!((verifier.bytes_verified(), verifier.path()), (0, Path::new("rows.npy")));
}
