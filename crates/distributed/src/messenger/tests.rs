use std::thread;

use super::{driver::may_spin, *};
use crate::{
    Collective, local,
    transport::{FRAME_WORDS, Frame, local::Local},
};

/// Runs the same closure on every rank.
pub(crate) fn on_ranks<T: Send>(
    size: usize,
    patience: Duration,
    run: impl Fn(Arc<Messenger>) -> T + Sync,
) -> Vec<T> {
    let ends = local(size);
    let run = &run;
    thread::scope(|scope| {
        let start = |end: Local| {
            let options = MessengerOptions { patience, ..MessengerOptions::default() };
            scope.spawn(move || run(Messenger::start(options, move || Ok(end)).unwrap()))
        };
        let ranks: Vec<_> = ends.into_iter().map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(400);

/// Service that doubles its request, and rejects an empty one.
struct Twice;

impl Service for Twice {
    fn answer(&self, from: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        if words.is_empty() {
            return Err(Error::invalid(format!("nothing to double for rank {from}")));
        }
        assert!(words[0] != 1313, "unlucky");
        answer.extend(words.iter().map(|word| 2 * word));
        Ok(())
    }
}

#[test]
fn every_request_gets_its_reply() {
    let sent = on_ranks(4, LONG, |post| {
        post.serve(7, Arc::new(Twice));
        let all = Collective::new(post.clone());
        all.barrier(0).unwrap();
        let asked: Vec<_> = (0..50u32)
            .flat_map(|i| post.others().map(move |to| (to, i)))
            .map(|(to, i)| (i, post.ask(to, 7, |words| words.extend([i, 100 + to as u32]))))
            .map(|(i, asked)| (i, asked.to, asked))
            .collect();
        for (i, to, asked) in asked.into_iter().rev() {
            assert_eq!(asked.wait().unwrap()[HEADER..], [2 * i, 200 + 2 * to as u32]);
        }
        let refused = post.ask((post.rank() + 1) % 4, 7, |_| {}).wait().unwrap_err().to_string();
        assert!(refused.contains("nothing to double for rank"), "{refused}");
        let fault = post.ask((post.rank() + 1) % 4, 7, |words| words.push(1313)).wait().unwrap_err();
        assert!(fault.to_string().contains("fault of the program"), "{fault}");
        let none = post.ask((post.rank() + 1) % 4, 8, |_| {}).wait().unwrap_err().to_string();
        assert!(none.contains("no service 8"), "{none}");
        all.barrier(1).unwrap();
        let sent = post.sent(7);
        post.close().unwrap();
        (sent.messages, sent.bytes)
    });
    // 150 requests and as many replies of five words, and two rejected requests of 3 and 4 words.
    assert!(sent.iter().all(|&(messages, bytes)| messages == 304 && bytes > 300 * 20 + 28), "{sent:?}");
}

/// Clock that a test sets, in microseconds.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Time for Clock {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Relaxed))
    }

    fn wait<'m>(
        &self,
        _: &'m Mutex<Mailboxes>,
        boxes: MutexGuard<'m, Mailboxes>,
        _: &Condvar,
        _: Duration,
    ) -> MutexGuard<'m, Mailboxes> {
        boxes
    }
}

#[test]
fn drivers_spin_for_a_limited_time_after_a_message_and_then_pause() {
    let clock = Clock::default();
    let start = |(rank, end): (usize, Local)| {
        let (out, outbox) = channel();
        let options = MessengerOptions { patience: LONG, ..MessengerOptions::default() };
        let shared = Arc::new(Shared::new(rank, 2, options, out, Box::new(clock.clone())));
        let driver = Driver::new(shared.clone(), end, Box::new(|_| {}), outbox).spinning(rank == 0);
        (shared, driver)
    };
    let mut ranks: Vec<_> = local(2).into_iter().enumerate().map(start).collect();
    let (sender, mut other) = ranks.pop().unwrap();
    let (receiver, mut driver) = ranks.pop().unwrap();
    let (none, pause) = (Some(Duration::ZERO), Some(Duration::from_micros(200)));
    let at = |micros: u64, of: &mut Driver<Local>| {
        clock.0.store(micros, Relaxed);
        of.turn()
    };
    let taken = || lock(&receiver.boxes).mail.values().map(VecDeque::len).sum::<usize>();
    assert_eq!([0, 49, 50, 300].map(|micros| at(micros, &mut driver)), [none, none, pause, pause]);
    assert_eq!(at(300, &mut other), pause, "a driver without a core of its own pauses");
    for (time, count) in [(1000, 1), (1020, 2), (1090, 3)] {
        sender.send(0, Lane::Urgent, kind::PUT, 0, count, |words| words.push(7));
        at(time, &mut other);
        // taken in the next turn, which begins the time again
        assert_eq!((at(time, &mut driver), taken()), (none, count as usize));
        assert_eq!(at(time + 19, &mut driver), none);
    }
    assert_eq!([1139, 1140].map(|micros| at(micros, &mut driver)), [none, pause]);
}

#[test]
fn ranks_without_two_cores_each_never_spin() {
    assert!(may_spin(4, 2) && !may_spin(3, 2) && !may_spin(1, 1));
    for cores in 0..40 {
        let most = (0..40).rev().find(|&ranks| may_spin(cores, ranks));
        assert_eq!(most, Some(cores / 2), "{cores} cores");
        assert!(!may_spin(cores, usize::MAX));
    }
    // ranks that are threads share the cores of this process
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for ranks in [cores / 2 + 1, cores + 1] {
        assert!(local(ranks).iter().all(|end| !may_spin_here(end)), "{ranks} ranks on {cores} cores");
    }
    assert_eq!(may_spin_here(&local(1)[0]), cores > 1);
}

#[test]
fn sums_follow_rank_order_bit_for_bit() {
    for size in 1..5 {
        let value = |rank: usize, i: usize| ((rank * 31 + i * 7) as f32).sin() * 10f32.powi(i as i32 % 9 - 4);
        for len in [0, 1, 3, 1000] {
            let sums = on_ranks(size, LONG, |post| {
                let all = Collective::new(post.clone());
                let mut values: Vec<f32> = (0..len).map(|i| value(post.rank(), i)).collect();
                all.sum(3, &mut values).unwrap();
                let results = all.gather(4, &[post.rank() as u32; 2]).unwrap();
                assert_eq!(results, (0..size as u32).map(|rank| vec![rank; 2]).collect::<Vec<_>>());
                assert_eq!(all.broadcast(5, vec![9 + post.rank() as u32]).unwrap(), [9]);
                all.barrier(6).unwrap();
                post.close().unwrap();
                values
            });
            let expected = (0..len).map(|i| (0..size).fold(0.0, |sum, rank| sum + value(rank, i)));
            let expected: Vec<u32> = expected.map(f32::to_bits).collect();
            for sum in sums {
                assert_eq!(sum.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), expected);
            }
        }
    }
}

#[test]
fn failures_reach_all_waiting_ranks_at_once_with_the_reason() {
    // Repeatedly, because messages of a consequential failure may arrive before those of the first.
    for _ in 0..40 {
        let began = Instant::now();
        let results = on_ranks(3, LONG, |post| {
            let all = Collective::new(post.clone());
            let met = all.barrier(0);
            if post.rank() == 1 {
                met.unwrap();
                post.abort("the disk is full");
                return String::new();
            }
            // Also while waiting for another rank. The failure may overtake that rank's message of
            // the barrier, which rank 1 has left by then.
            met.and(all.gather(1, &[])).and(post.take(0, 2)).unwrap_err().to_string()
        });
        assert!(began.elapsed() < LONG / 2);
        assert_eq!(results[0], "rank 1: the disk is full");
        assert_eq!(results[2], "rank 1: the disk is full");
    }
}

#[test]
fn ranks_that_vanish_are_detected() {
    let results = on_ranks(2, LONG, |post| {
        if post.rank() == 1 {
            return String::new(); // dropped
        }
        post.take(1, 2).unwrap_err().to_string()
    });
    assert_eq!(results[0], "rank 1: it ended before its work was complete");
    let results = on_ranks(2, LONG, |post| {
        if post.rank() == 1 {
            post.close().unwrap();
            return String::new();
        }
        post.take(1, 2).unwrap_err().to_string()
    });
    assert!(results[0].contains("run different operations"), "{}", results[0]);
}

/// Transport that neither receives nor sends after some time.
struct Hangs(Local, Instant);

impl Transport for Hangs {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        if Instant::now() < self.1 { self.0.send(to, frame) } else { Ok(()) }
    }
    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        if Instant::now() < self.1 { self.0.poll() } else { Ok(None) }
    }
}

#[test]
fn hanging_ranks_time_out_and_slow_ones_do_not() {
    let mut ends = local(2);
    let (second, first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let hang = Instant::now() + 3 * SHORT;
    let options = MessengerOptions { patience: SHORT, ..MessengerOptions::default() };
    let second = Messenger::start(options, move || Ok(Hangs(second, hang))).unwrap();
    let post = Messenger::start(options, move || Ok(first)).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(2 * SHORT);
            second.put(0, 5, |_| {});
        });
        // Slower than the timeout, but alive.
        post.take(1, 5).unwrap();
        let error = post.take(1, 6).unwrap_err().to_string();
        assert!(error.starts_with("rank 1: it was silent for 0.4 seconds"), "{error}");
        let late = Instant::now().saturating_duration_since(hang);
        assert!(late < 4 * SHORT, "{late:?}");
    });
}

/// End of a transport.
#[derive(Clone, Copy)]
enum Break {
    Panics,
    Fails,
    /// It delivers a frame of a rank that no rank has sent.
    Invents,
}

/// Transport that breaks after some time, with a reference that lives as long.
struct Breaks(Local, Instant, Break, #[expect(dead_code, reason = "dropped")] Arc<()>);

impl Transport for Breaks {
    fn rank(&self) -> usize {
        self.0.rank()
    }
    fn size(&self) -> usize {
        self.0.size()
    }
    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        self.0.send(to, frame)
    }
    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        match self.2 {
            _ if Instant::now() < self.1 => Ok(None),
            Break::Panics => panic!("broken"),
            Break::Fails => Err(Error::invalid("the cable is out")),
            Break::Invents => Ok(Some((0, Frame::new(Lane::Urgent, true, vec![kind::REQUEST])))),
        }
    }
}

#[test]
fn transport_failures_reach_all_ranks_with_the_reason() {
    let breaks = [
        (Break::Fails, "the cable is out"),
        (Break::Panics, "a fault of the program"),
        (Break::Invents, "rank 0: a message of it arrived with a wrong checksum"),
    ];
    for (way, why) in breaks {
        let mut ends = local(2);
        let (second, first) = (ends.pop().unwrap(), ends.pop().unwrap());
        let breaks = Instant::now() + SHORT;
        let options = MessengerOptions { patience: LONG, ..MessengerOptions::default() };
        let alive = Arc::new(());
        let held = alive.clone();
        let second = Messenger::start(options, move || Ok(Breaks(second, breaks, way, held))).unwrap();
        let post = Messenger::start(options, move || Ok(first)).unwrap();
        for result in [post.take(1, 5), second.take(0, 5)] {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
        assert!(breaks.elapsed() < LONG / 2);
        drop((post, second));
        assert_eq!(Arc::strong_count(&alive), 1, "a failed transport is dropped");
    }
}

/// Transport over a link that takes a fixed time per frame.
struct Slow {
    end: Local,
    frame: Duration,
    /// Frames in flight, and the arrival time of the first.
    link: VecDeque<(usize, Frame)>,
    next: Instant,
}

impl Slow {
    fn carry(&mut self) {
        while !self.link.is_empty() && Instant::now() >= self.next {
            let (to, frame) = self.link.pop_front().unwrap();
            self.end.send(to, frame).unwrap();
            self.next += self.frame;
        }
    }
}

impl Transport for Slow {
    fn rank(&self) -> usize {
        self.end.rank()
    }
    fn size(&self) -> usize {
        self.end.size()
    }
    fn send(&mut self, to: usize, frame: Frame) -> Result<()> {
        self.carry();
        if self.link.is_empty() {
            self.next = Instant::now() + self.frame;
        }
        self.link.push_back((to, frame));
        Ok(())
    }
    fn poll(&mut self) -> Result<Option<(usize, Frame)>> {
        self.carry();
        self.end.poll()
    }
    fn in_flight(&mut self, _: usize) -> usize {
        self.carry();
        self.link.len()
    }
}

/// Service that replies with this many words.
struct Much(usize);

impl Service for Much {
    fn answer(&self, _: usize, words: &[u32], answer: &mut Vec<u32>) -> Result<()> {
        answer.resize(answer.len() + self.0, words[0]);
        Ok(())
    }
    fn lane(&self) -> Lane {
        Lane::Rows
    }
}

#[test]
fn replies_do_not_depend_on_the_window() {
    let (frames, frame) = (60, Duration::from_micros(50));
    for delay in [Duration::ZERO, MessengerOptions::default().delay, LONG] {
        let start = |end: Local| {
            let slow = Slow { end, frame, link: VecDeque::new(), next: Instant::now() };
            let options = MessengerOptions { patience: LONG, delay, ..MessengerOptions::default() };
            Messenger::start(options, move || Ok(slow)).unwrap()
        };
        let posts: Vec<Arc<Messenger>> = local(2).into_iter().map(start).collect();
        posts.iter().for_each(|post| post.serve(9, Arc::new(Much(frames * FRAME_WORDS))));
        let replies: Vec<(u32, PendingReply)> =
            (0..8).map(|i| (i, posts[0].ask(1, 9, |words| words.push(i)))).collect();
        for (i, reply) in replies {
            assert_eq!(reply.wait().unwrap()[HEADER..], vec![i; frames * FRAME_WORDS], "{delay:?}");
        }
        posts.iter().for_each(|post| post.close().unwrap());
    }
}

#[test]
fn a_full_batch_of_frames_is_followed_by_the_next_at_once() {
    let mut ends = local(2);
    let (mut second, first) = (ends.remove(1), ends.remove(0));
    // pieces of a message that does not end
    (0..40).for_each(|_| second.send(0, Frame::new(Lane::Rows, false, vec![0; HEADER])).unwrap());
    let (out, outbox) = channel();
    let shared = Arc::new(Shared::new(0, 2, MessengerOptions::default(), out, Box::new(Machine::start())));
    let mut driver =
        Driver::new(shared, first, Box::new(|answer: Box<dyn FnOnce() + Send>| answer()), outbox);
    assert_eq!([0; 2].map(|_| driver.turn()), [Some(Duration::ZERO); 2]);
    assert!(driver.turn().unwrap() > Duration::ZERO, "eight frames are no batch");
}

#[test]
fn sums_overtake_rows_requested_before() {
    let (frames, frame) = (60, Duration::from_millis(10));
    let start = |end: Local| {
        let slow = Slow { end, frame, link: VecDeque::new(), next: Instant::now() };
        Messenger::start(MessengerOptions { patience: LONG, ..MessengerOptions::default() }, move || Ok(slow))
            .unwrap()
    };
    let posts: Vec<Arc<Messenger>> = local(2).into_iter().map(start).collect();
    thread::scope(|scope| {
        for post in &posts {
            scope.spawn(move || {
                post.serve(9, Arc::new(Much(frames * FRAME_WORDS)));
                let all = Collective::new(post.clone());
                all.barrier(0).unwrap();
                let other = 1 - post.rank();
                let rows: Vec<PendingReply> =
                    (0..2).map(|i| post.ask(other, 9, |words| words.push(i))).collect();
                // The rows are in flight.
                thread::sleep(20 * frame);
                let began = Instant::now();
                let mut values = vec![1.0; 100];
                all.sum(1, &mut values).unwrap();
                let took = began.elapsed();
                assert_eq!(values, [2.0; 100]);
                for (i, rows) in rows.into_iter().enumerate() {
                    assert_eq!(rows.wait().unwrap()[HEADER..], vec![i as u32; frames * FRAME_WORDS]);
                }
                // Twice the maximum in flight, of more than a hundred frames.
                assert!(took < began.elapsed() / 2, "{took:?} of {:?}", began.elapsed());
                all.barrier(2).unwrap();
                post.close().unwrap();
            });
        }
    });
}
