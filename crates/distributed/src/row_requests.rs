//! Requests of rows that other ranks own, a few at a time.

#![forbid(unsafe_code)]

use std::{collections::VecDeque, time::Instant};

use graphmill_core::{Error, Result, memory};
use graphmill_loader::{
    Traffic,
    feature::{OutputRows, OverlappedWork, TierTraffic},
};

use crate::{Messenger, messenger::HEADER, ownership::Share, row_words::place_rows};

/// Maximum bytes of a reply: a request is split, so that the chunks are read, transferred and
/// stored concurrently.
pub(crate) const MAX_REPLY_BYTES: usize = 512 << 10;
/// Maximum number of pending replies per owner.
pub(crate) const WINDOW: usize = 8;

/// Most rows of `dim` values in a reply, whatever the type of the values: only their owner knows
/// it.
pub(crate) fn rows_of_an_answer(dim: usize) -> usize {
    (MAX_REPLY_BYTES / 4 / dim.max(1)).max(1)
}

/// Reads rows of `dim` values of the `shares` of a request that other ranks own, from their service
/// of that number, and does `work` while they are in transit. `places` are those of the request.
///
/// # Errors
/// A rank did not reply, or `work` failed.
pub(crate) fn read_shares(
    (post, service): (&Messenger, u32),
    dim: usize,
    (shares, places): (&[Share], OutputRows),
    out: &mut [f32],
    work: &mut OverlappedWork,
) -> Result<Traffic> {
    let mut began = Instant::now();
    let mut work = Some(work);
    let (mut traffic, mut bytes) = (Traffic::default(), 0);
    let most = rows_of_an_answer(dim);
    // Owners alternate, and each has a few pending replies at most.
    let remote = || post.others().map(|to| shares[to].ids.len());
    let longest = remote().max().unwrap_or(0);
    let questions = (0..longest.div_ceil(most)).flat_map(|i| post.others().map(move |to| (to, i * most)));
    let mut questions = questions.filter(|&(to, from)| from < shares[to].ids.len());
    let window = WINDOW * (post.size() - 1).max(1);
    let mut asked = VecDeque::with_capacity(window);
    loop {
        while asked.len() < window
            && let Some((to, from)) = questions.next()
        {
            let share = &shares[to];
            let range = from..(from + most).min(share.ids.len());
            let ids = &share.ids[range.clone()];
            let asking = post.ask(to, service, |words| memory::demand_append(words, ids));
            asked.push_back((to, &share.at[range], asking));
        }
        if let Some(work) = work.take() {
            let clock = Instant::now();
            traffic += work(out)?;
            began += clock.elapsed();
        }
        let Some((from, at, asking)) = asked.pop_front() else { break };
        let words = asking.wait()?;
        let to: Vec<u32> = memory::demand_collect(at.iter().map(|&i| place(places, i)));
        let words = words.get(HEADER..).unwrap_or_default();
        bytes += place_rows(words, dim, &to, out).map_err(|message| Error::Peer { rank: from, message })?;
    }
    let rows = remote().sum::<usize>() as u64;
    traffic.remote += TierTraffic::since(began, rows, bytes);
    Ok(traffic)
}

/// Row of the output for row `i` of a request.
pub(crate) fn place(places: OutputRows, i: u32) -> u32 {
    match places {
        OutputRows::InOrder => i,
        OutputRows::At(at) => at[i as usize],
    }
}
