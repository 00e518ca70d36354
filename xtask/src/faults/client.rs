//! Client of a service under test: asks every question of its row once the service listens, and
//! then ends the service.

#![allow(unsafe_code, reason = "system calls")]

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    sync::{
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

/// Longest time in which a service must begin to listen, and to end after its signal. One that
/// needs longer is killed, which is a problem of its own.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time of an answer, after which the client asks again.
const ANSWER: Duration = Duration::from_secs(5);
/// Number of times that a question is asked. One call or allocation fails in a run, so that the
/// next try gets an answer.
const TRIES: usize = 3;
/// Time between two looks at a service that does not listen yet, or has not ended.
const PAUSE: Duration = Duration::from_millis(2);
/// Start of the line with the address of a service.
const LISTENING: &str = "listening at http://";

/// Question to a service: its path, and its body for POST, or none for GET.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) path: &'static str,
    pub(super) body: &'static str,
}

/// Answers in the order of the questions; `None` for a question without one.
pub(super) type Answers = Vec<Option<String>>;

/// Runs `work`, which reports the process of a service, beside a client that asks `questions` of
/// it. `messages` receives the service's standard error. Without questions there is no client.
pub(super) fn attended<T>(
    questions: &[Question],
    messages: &Path,
    work: impl FnOnce(&dyn Fn(u32)) -> Result<T>,
) -> Result<(T, Answers)> {
    if questions.is_empty() {
        return Ok((work(&|_| {})?, Vec::new()));
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        let client = scope.spawn(|| match receiver.into_iter().next() {
            Some(process) => Client { process, messages, is_over: &is_over }.attend(questions),
            None => Vec::new(),
        });
        let done = work(&|process| _ = sender.send(process));
        is_over.store(true, SeqCst);
        drop(sender);
        let answers = client.join().map_err(|_| anyhow::anyhow!("the client of the service panicked"))?;
        Ok((done?, answers))
    })
}

/// Client of one service.
struct Client<'c> {
    /// Process of the service, or of the shell that started it, and number of their group.
    process: u32,
    messages: &'c Path,
    /// True if the service has ended.
    is_over: &'c AtomicBool,
}

impl Client<'_> {
    /// Asks the questions, and ends the service.
    fn attend(&self, questions: &[Question]) -> Answers {
        let Some(address) = self.wait_for(|| self.address()) else {
            self.signal(libc::SIGKILL);
            return vec![None; questions.len()];
        };
        let answers = questions.iter().map(|question| self.answer(&address, *question)).collect();
        self.signal(libc::SIGTERM);
        if self.wait_for(|| self.is_over.load(SeqCst).then_some(())).is_none() {
            self.signal(libc::SIGKILL);
        }
        answers
    }

    /// Looks again and again until there is a value, the service has ended, or it needs too long.
    fn wait_for<T>(&self, look: impl Fn() -> Option<T>) -> Option<T> {
        let began = Instant::now();
        loop {
            let is_over = self.is_over.load(SeqCst);
            let found = look();
            if found.is_some() || is_over || began.elapsed() > PATIENCE {
                return found;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Address at which the service listens, if it does.
    fn address(&self) -> Option<String> {
        let text = fs::read_to_string(self.messages).ok()?;
        // a line that is written at present has no end
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        lines.filter_map(|line| line.strip_prefix(LISTENING)).map(String::from).next()
    }

    /// Answer to a question, unless the service refuses it every time, or ends.
    fn answer(&self, address: &str, question: Question) -> Option<String> {
        (0..TRIES).find_map(|_| {
            if self.is_over.load(SeqCst) {
                return None;
            }
            let answer = ask(address, question);
            if answer.is_none() {
                thread::sleep(PAUSE);
            }
            answer
        })
    }

    /// Sends a signal to the group of a service that has not ended.
    fn signal(&self, signal: i32) {
        if !self.is_over.load(SeqCst) {
            // SAFETY: sends a signal to the group that the process of the service leads.
            unsafe { libc::kill(-self.process.cast_signed(), signal) };
        }
    }
}

/// Body of a whole answer with status 200, on a connection of its own.
fn ask(address: &str, question: Question) -> Option<String> {
    let Question { path, body } = question;
    let method = if body.is_empty() { "GET" } else { "POST" };
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let is_good = lines.next()?.split(' ').nth(1) == Some("200");
    let length = lines.filter_map(|line| line.split_once(": "));
    let length =
        length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length")).map(|(_, n)| n).next();
    let is_whole = length.and_then(|length| length.parse().ok()) == Some(body.len());
    (is_good && is_whole).then(|| body.to_string())
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        net::TcpListener,
        os::unix::process::{CommandExt, ExitStatusExt},
        process::Command,
    };

    use super::*;

    /// Replies in turn to whatever is asked.
    fn reply(listener: &TcpListener, replies: &[&str]) {
        for reply in replies {
            let (stream, _) = listener.accept().unwrap();
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                stream.read_line(&mut line).unwrap();
            }
            stream.get_mut().write_all(reply.as_bytes()).unwrap();
        }
    }

    #[test]
    fn questions_are_asked_until_the_answer_is_whole_and_the_service_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let messages = dir.path().join("messages");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        fs::write(&messages, format!("a note\n{LISTENING}{}\n", listener.local_addr().unwrap())).unwrap();
        let questions = [Question { path: "/a", body: "" }, Question { path: "/b", body: "{}" }];
        let failed = "HTTP/1.1 500 Failed\r\nContent-Length: 1\r\n\r\nx";
        let torn = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nyes";
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes";
        let (status, answers) = thread::scope(|scope| {
            scope.spawn(|| reply(&listener, &[failed, torn, whole, torn, failed, failed]));
            attended(&questions, &messages, |started| {
                let mut child = Command::new("sleep").arg("600").process_group(0).spawn()?;
                started(child.id());
                Ok(child.wait()?)
            })
            .unwrap()
        });
        assert_eq!(answers, [Some("yes".to_string()), None]);
        assert_eq!(status.signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn a_service_that_ends_by_itself_has_no_answers() {
        let dir = tempfile::tempdir().unwrap();
        let question = [Question { path: "/", body: "" }];
        let (status, answers) = attended(&question, &dir.path().join("messages"), |started| {
            let mut child = Command::new("true").process_group(0).spawn()?;
            started(child.id());
            Ok(child.wait()?)
        })
        .unwrap();
        assert!(status.success());
        assert_eq!(answers, [None]);
        let failed =
            attended(&question, dir.path(), |_| anyhow::bail!("no program")).map(|(done, _): ((), _)| done);
        assert!(failed.is_err_and(|error| error.to_string() == "no program"));
    }
}
