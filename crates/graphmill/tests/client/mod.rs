//! A service of the program in its own process, and a client of HTTP.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::Mutex,
    time::Duration,
};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use serde_json::Value;

use crate::common::Sandbox;

/// A running service, killed with the test.
pub(crate) struct Service {
    child: Mutex<Child>,
    id: u32,
    address: String,
}

impl Service {
    /// Starts `graphmill serve` with these arguments at a free port.
    pub(crate) fn start(sandbox: &Sandbox, args: &str) -> Self {
        let mut command = sandbox.command(&format!("serve {args} --listen 127.0.0.1:0 --threads 2"));
        command.env_remove("GRAPHMILL_TOKEN");
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut notes = String::new();
        let address = loop {
            let begin = notes.len();
            assert!(lines.read_line(&mut notes).unwrap() > 0, "{notes}");
            if let Some(address) = notes[begin..].trim().strip_prefix("listening at http://") {
                break address.to_string();
            }
        };
        // the service's messages must not fill the pipe
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        Self { id: child.id(), child: Mutex::new(child), address }
    }

    /// A client without a token.
    pub(crate) fn client(&self) -> Client {
        Client { address: self.address.clone(), token: String::new(), stream: None }
    }

    /// A connection whose reads wait for at most `patience`.
    pub(crate) fn connect(&self, patience: Duration) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(patience)).unwrap();
        stream
    }

    /// Number of file descriptors of the service.
    #[cfg(target_os = "linux")]
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id)).unwrap().count()
    }

    /// Waits until the service computes batches by exactly two threads, none of which is one of the
    /// `old`: that of the batcher and those of its pool, which have its name. Threads start and end
    /// beside the answers.
    #[cfg(target_os = "linux")]
    pub(crate) fn batch_threads(&self, old: &[u32]) -> Vec<u32> {
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id)).unwrap();
            // a thread may end meanwhile
            let computes = |task: &std::fs::DirEntry| {
                let name = std::fs::read(task.path().join("comm"));
                name.is_ok_and(|name| name.trim_ascii_end() == b"batches")
            };
            let computing = tasks.flatten().filter(computes);
            let id = |task: std::fs::DirEntry| task.file_name().to_str().unwrap().parse().unwrap();
            let threads: Vec<u32> = computing.map(id).collect();
            if threads.len() == 2 && threads.iter().all(|id| !old.contains(id)) {
                return threads;
            }
            assert!(std::time::Instant::now() < deadline, "threads {threads:?}, before {old:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id.to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for the end; returns the status.
    pub(crate) fn end(&self) -> Option<i32> {
        self.child.lock().unwrap().wait().unwrap().code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(|e| e.into_inner());
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A client that keeps its connection.
pub(crate) struct Client {
    address: String,
    /// Token; empty for none.
    token: String,
    stream: Option<BufReader<TcpStream>>,
}

impl Client {
    /// The client with a token.
    pub(crate) fn with_token(self, token: &str) -> Self {
        Self { token: token.into(), ..self }
    }

    /// Asks for predictions; returns status and document.
    pub(crate) fn predict(&mut self, question: &Value) -> (u16, Value) {
        self.post("/v1/predict", &question.to_string())
    }

    pub(crate) fn post(&mut self, path: &str, body: &str) -> (u16, Value) {
        let length = body.len();
        self.send(
            &format!(
                "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
            ),
            body,
        )
    }

    /// Asks for an Arrow stream; returns status and body.
    pub(crate) fn post_for_arrow(&mut self, path: &str, question: &Value) -> (u16, Vec<u8>) {
        let body = question.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nAccept: \
             application/vnd.apache.arrow.stream\r\nContent-Length: {}\r\n",
            body.len()
        );
        self.exchange(&head, &body)
    }

    pub(crate) fn get(&mut self, path: &str) -> (u16, Value) {
        self.send(&format!("GET {path} HTTP/1.1\r\n"), "")
    }

    /// Sends a request; returns the status and the body, as text if it is not JSON.
    fn send(&mut self, head: &str, body: &str) -> (u16, Value) {
        let (status, bytes) = self.exchange(head, body);
        let text = String::from_utf8(bytes).unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Sends a request; returns the status and the body.
    pub(crate) fn exchange(&mut self, head: &str, body: &str) -> (u16, Vec<u8>) {
        let token = match &self.token[..] {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let stream = self.stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(&self.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            stream.set_nodelay(true).unwrap();
            BufReader::new(stream)
        });
        write!(stream.get_mut(), "{head}Host: test\r\n{token}\r\n{body}").unwrap();
        let (mut status, mut length, mut closes) = (0, 0, false);
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().unwrap();
            } else if let Some(rest) = line.strip_prefix("content-length: ") {
                length = rest.parse().unwrap();
            } else if line == "connection: close" {
                closes = true;
            } else if line.is_empty() {
                break;
            }
        }
        let mut bytes = vec![0; length];
        stream.read_exact(&mut bytes).unwrap();
        // The service answers these before it reads the body, and may then end the connection.
        if closes || [401, 413].contains(&status) {
            self.stream = None;
        }
        (status, bytes)
    }
}

/// The record batch of an Arrow answer.
pub(crate) fn batch(bytes: &[u8]) -> RecordBatch {
    let mut stream = StreamReader::try_new(bytes, None).unwrap();
    let batch = stream.next().unwrap().unwrap();
    assert!(stream.next().is_none(), "one batch");
    batch
}
