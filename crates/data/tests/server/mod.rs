//! Test web server on a free port: the test determines the response to every request, faults
//! included.

#![allow(dead_code, reason = "every test file uses a part")]

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Received request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// First requested byte.
    pub(crate) from: Option<usize>,
    /// Last requested byte; `None` up to the end.
    pub(crate) to: Option<usize>,
    pub(crate) if_range: Option<String>,
}

/// Response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// Number of body bytes after which the connection closes.
    pub(crate) cut: Option<usize>,
    /// Delay before closing a cut connection.
    pub(crate) silent: Duration,
    /// True to omit the length: the body ends with the connection.
    pub(crate) unsized_body: bool,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn cut(mut self, bytes: usize) -> Self {
        self.cut = Some(bytes);
        self
    }

    /// Whole file, regardless of the requested range.
    pub(crate) fn whole(bytes: &[u8]) -> Self {
        Self { status: 200, body: bytes.to_vec(), ..Self::default() }
    }

    /// File of a server that supports ranges and versions.
    pub(crate) fn file(request: &Request, bytes: &[u8], etag: &str) -> Self {
        let same = request.if_range.as_deref().is_none_or(|tag| tag == etag);
        let reply = match request.from.filter(|_| same) {
            Some(from) if from < bytes.len() => {
                let last = request.to.unwrap_or(usize::MAX).min(bytes.len() - 1);
                let range = format!("bytes {from}-{last}/{}", bytes.len());
                Self { status: 206, body: bytes[from..=last].to_vec(), ..Self::default() }
                    .header("Content-Range", range)
            }
            Some(_) => Self::status(416).header("Content-Range", format!("bytes */{}", bytes.len())),
            None => Self::whole(bytes),
        };
        reply.header("ETag", etag)
    }
}

/// Server that runs until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that responds with `answer`; its second argument counts the requests from 0.
    pub(crate) fn start(answer: impl Fn(&Request, usize) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (log, stopped) = (seen.clone(), stop.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let Some(request) = read(&stream) else { continue };
                let number = log.lock().unwrap().len();
                log.lock().unwrap().push(request.clone());
                // Some tests close the connection early.
                let _ = write(stream, &answer(&request, number), request.method == "HEAD");
            }
        });
        Self { url: format!("http://{address}"), address, seen, stop, thread: Some(thread) }
    }

    /// Requests received so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// Start of the requested range of each request so far.
    pub(crate) fn ranges(&self) -> Vec<Option<usize>> {
        self.seen().iter().map(|request| request.from).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split_whitespace().map(str::to_string);
    let (method, path) = (words.next()?, words.next()?);
    let mut request = Request { method, path, from: None, to: None, if_range: None };
    for line in lines {
        let line = line.ok()?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "range" => {
                let (from, to) = value.strip_prefix("bytes=")?.split_once('-')?;
                (request.from, request.to) = (from.parse().ok(), to.parse().ok());
            }
            "if-range" => request.if_range = Some(value.to_string()),
            _ => {}
        }
    }
    Some(request)
}

fn write(mut stream: TcpStream, reply: &Reply, is_head: bool) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Test\r\nConnection: close\r\n", reply.status);
    if !reply.unsized_body {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(head.as_bytes())?;
    stream.write_all(b"\r\n")?;
    if is_head {
        return stream.flush();
    }
    let end = reply.cut.unwrap_or(reply.body.len()).min(reply.body.len());
    stream.write_all(&reply.body[..end])?;
    stream.flush()?;
    thread::sleep(reply.silent);
    Ok(())
}
