//! Places and checksums of messages, so that messages which a faulty network, library or memory
//! loses, repeats, reorders or changes are found.
//!
//! A message has its place among those of the same ranks and lane, and a checksum. A heartbeat has
//! the number of messages that were sent before it in each lane: as frames arrive in sending order,
//! the receiver misses a message at the latest with the next heartbeat.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::HEADER;
use crate::transport::Lane;

/// Word of the place in a message.
const PLACE: usize = HEADER - 2;
/// Word of the checksum in a message.
const CHECKSUM: usize = HEADER - 1;

/// Counts of messages by lane.
type Counts = [u32; Lane::ALL.len()];

/// Seals of the messages to and from all ranks. Counts wrap.
pub(super) struct Seals {
    rank: usize,
    sealed: Vec<Counts>,
    sent: Vec<Counts>,
    received: Vec<Counts>,
}

/// Checksum of a message, whose own word is taken as zero.
fn checksum(from: usize, lane: Lane, words: &[u32]) -> u32 {
    let (header, payload) = words.split_at(CHECKSUM);
    let seed = xxh3_64_with_seed(bytemuck::cast_slice(header), (from as u64) << 8 | lane as u64);
    xxh3_64_with_seed(bytemuck::cast_slice(&payload[1..]), seed) as u32
}

impl Seals {
    /// Seals of rank `rank` of `size`.
    pub(super) fn new(rank: usize, size: usize) -> Self {
        let counts = || vec![Counts::default(); size];
        Self { rank, sealed: counts(), sent: counts(), received: counts() }
    }

    /// Writes the place and the checksum of the next message of this lane to rank `to`.
    pub(super) fn seal(&mut self, to: usize, lane: Lane, words: &mut [u32]) {
        let place = &mut self.sealed[to][lane as usize];
        words[PLACE] = *place;
        *place = place.wrapping_add(1);
        words[CHECKSUM] = checksum(self.rank, lane, words);
    }

    /// Counts a message whose last frame was given to the transport.
    pub(super) fn count_sent(&mut self, to: usize, lane: Lane) {
        let sent = &mut self.sent[to][lane as usize];
        *sent = sent.wrapping_add(1);
    }

    /// Messages sent to rank `to` so far, by lane.
    pub(super) fn sent(&self, to: usize) -> Counts {
        self.sent[to]
    }

    /// Checks the next message of this lane from rank `from`.
    ///
    /// # Errors
    /// It is damaged or another one: the reason.
    pub(super) fn open(&mut self, from: usize, lane: Lane, words: &[u32]) -> Result<(), String> {
        if words.len() < HEADER || words[CHECKSUM] != checksum(from, lane, words) {
            return Err(reason("a message of it arrived with a wrong checksum"));
        }
        let expected = &mut self.received[from][lane as usize];
        if words[PLACE] != *expected {
            let place = words[PLACE];
            return Err(reason(&format!("message {place} of it arrived in the place of {expected}")));
        }
        *expected = expected.wrapping_add(1);
        Ok(())
    }

    /// Checks the counts of a heartbeat from rank `from`.
    ///
    /// # Errors
    /// Fewer messages have arrived: the reason.
    pub(super) fn compare(&self, from: usize, counts: &[u32]) -> Result<(), String> {
        for (&received, &sent) in self.received[from].iter().zip(counts) {
            let lost = sent.wrapping_sub(received).cast_signed();
            if lost > 0 {
                return Err(reason(&format!("{lost} of its messages did not arrive")));
            }
        }
        Ok(())
    }
}

fn reason(found: &str) -> String {
    format!(
        "{found}: the network, the MPI library or the memory of a machine is faulty, or the ranks run \
         different programs; --resume continues from the last checkpoint"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seals: &mut Seals, lane: Lane, payload: &[u32]) -> Vec<u32> {
        let mut words = [&[1, 2, 3, 0, 0], payload].concat();
        seals.seal(1, lane, &mut words);
        seals.count_sent(1, lane);
        words
    }

    #[test]
    fn messages_open_once_in_order_and_unchanged() {
        let (mut sender, mut receiver) = (Seals::new(0, 2), Seals::new(1, 2));
        let lane = Lane::Rows;
        let all = [&[][..], &[0], &[5, 6, 7]].map(|payload| message(&mut sender, lane, payload));
        let urgent = message(&mut sender, Lane::Urgent, &[]);
        assert!(receiver.compare(0, &sender.sent(1)).unwrap_err().contains("1 of its messages"));
        let is_damaged = |opened: Result<(), String>| opened.is_err_and(|e| e.contains("checksum"));
        assert!(is_damaged(receiver.open(1, lane, &all[0])), "another rank");
        assert!(is_damaged(receiver.open(0, Lane::Draws, &all[0])), "another lane");
        receiver.open(0, lane, &all[0]).unwrap();
        assert!(receiver.open(0, lane, &all[0]).unwrap_err().contains("message 0 of it"), "repeated");
        assert!(receiver.open(0, lane, &all[2]).unwrap_err().contains("in the place of 1"), "lost");
        assert!(receiver.open(0, Lane::Draws, &all[1]).is_err(), "another lane");
        for word in 0..all[1].len() {
            let mut damaged = all[1].clone();
            damaged[word] ^= 1 << (7 * word % 32);
            assert!(receiver.open(0, lane, &damaged).is_err(), "word {word}");
        }
        assert!(receiver.open(0, lane, &all[1][..5]).is_err(), "cut");
        assert!(receiver.open(0, lane, &[1]).is_err(), "without a header");
        assert!(receiver.compare(0, &sender.sent(1)).is_err());
        receiver.open(0, lane, &all[1]).unwrap();
        receiver.open(0, lane, &all[2]).unwrap();
        receiver.open(0, Lane::Urgent, &urgent).unwrap();
        receiver.compare(0, &sender.sent(1)).unwrap();
    }
}
