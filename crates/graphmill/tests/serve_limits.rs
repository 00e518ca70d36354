//! Slow and broken clients of `graphmill serve` end by its limits, and others are answered
//! meanwhile.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::client::Service;
use crate::common::Sandbox;

/// Time limit of the services.
const LIMIT: Duration = Duration::from_secs(2);
/// Upper bound of the time in which a connection ends, on a busy machine.
const END: Duration = Duration::from_secs(30);
/// Time between two bytes of a slow client.
const STEP: Duration = Duration::from_millis(100);

const PREDICT: &str = "POST /v1/predict HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n";

fn trained() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.ok("generate sbm data --nodes 400 --classes 4 --dim 8");
    sandbox.ok("train data --out a --epochs 1 --hidden 8 --fanout 3,2 --batch-size 256 --max-batches 2 \
         --eval-nodes 50");
    sandbox
}

/// Writes `head`, and then `part` again and again, until the service ends the connection. Returns
/// its answer and the time that the connection lasted.
fn send_forever(mut stream: TcpStream, head: &str, part: &[u8]) -> (String, Duration) {
    let (began, mut answer) = (Instant::now(), Vec::new());
    let mut is_open = stream.write_all(head.as_bytes()).is_ok();
    while is_open || answer.is_empty() {
        assert!(began.elapsed() < END, "the connection does not end");
        // a service that has answered may have ended its side
        let is_sent = is_open && (part.is_empty() || stream.write_all(part).is_ok());
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&bytes[..count]),
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind()) => continue,
            Err(_) => break,
        }
        is_open = is_sent;
    }
    (String::from_utf8_lossy(&answer).into_owned(), began.elapsed())
}

/// Writes `text` and ends the sending side; returns the answer.
fn send_and_close(service: &Service, text: &str) -> String {
    let mut stream = service.connect(END);
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn slow_clients_end_at_the_limit_and_others_are_answered() {
    let sandbox = trained();
    let service = Service::start(&sandbox, "a --timeout 2 --max-body 200 --max-requests 2");
    let chunked = format!("{PREDICT}Transfer-Encoding: chunked\r\n\r\n");
    let ended = AtomicUsize::new(0);
    let slow = |head: &str, part: &[u8]| {
        let found = send_forever(service.connect(STEP), head, part);
        ended.fetch_add(1, Relaxed);
        found
    };
    thread::scope(|scope| {
        let headers = scope.spawn(|| slow("GET /healthz HTTP/1.1\r\nX-Slow: ", b"x"));
        // as many as the requests that are answered at a time
        let bodies = [(); 2].map(|()| scope.spawn(|| slow(&chunked, b"1\r\n \r\n")));
        let silent = scope.spawn(|| slow(&format!("{PREDICT}Content-Length: 9\r\n\r\n"), b""));
        let idle = scope.spawn(|| slow("", b""));
        let mut answered = 0;
        while ended.load(Relaxed) < 5 {
            let (status, document) = service.client().predict(&json!({ "ids": [1] }));
            assert_eq!(status, 200, "{document}");
            answered += 1;
            if answered == 3 {
                assert_eq!(service.client().post("/v1/reload", "{}").0, 200);
            }
        }
        assert!(answered > 3);
        for (ended, status) in [(headers, ""), (silent, "HTTP/1.1 408"), (idle, "")]
            .into_iter()
            .chain(bodies.map(|body| (body, "HTTP/1.1 408")))
        {
            let (answer, time) = ended.join().unwrap();
            assert!(answer.starts_with(status), "{answer}");
            assert!(time >= LIMIT / 2, "{time:?}: {answer}");
        }
    });
    assert_eq!(service.client().get("/healthz").0, 200);
}

#[test]
fn broken_requests_are_refused_and_half_closed_ones_answered() {
    let sandbox = trained();
    let service = Service::start(&sandbox, "a --timeout 2 --max-body 200");
    let body = json!({ "ids": [1] }).to_string();
    let whole = format!("{PREDICT}Content-Length: {}\r\n\r\n{body}", body.len());
    let answer = send_and_close(&service, &whole);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("predictions"), "{answer}");
    let short = format!("{PREDICT}Content-Length: {}\r\n\r\n{body}", body.len() + 1);
    for (broken, status) in
        [(&short[..], "HTTP/1.1 400"), (&whole[..40], ""), ("\0\u{1}\r\n\r\n", "HTTP/1.1 400"), ("", "")]
    {
        let answer = send_and_close(&service, broken);
        assert!(answer.starts_with(status), "{broken:?}: {answer}");
        assert_eq!(service.client().predict(&json!({ "ids": [1] })).0, 200);
    }
    // more bytes than memory, and a header without an end
    let huge = format!("{PREDICT}Content-Length: {}\r\n\r\n", 1u64 << 50);
    let (answer, _) = send_forever(service.connect(STEP), &huge, &[b' '; 1 << 16]);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    let (answer, _) = send_forever(service.connect(STEP), "GET / HTTP/1.1\r\nX: ", &[b'x'; 1 << 16]);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    assert_eq!(service.client().predict(&json!({ "ids": [1] })).0, 200);
}

#[test]
fn connections_beyond_the_maximum_are_answered_once_others_end() {
    let sandbox = trained();
    let service = Service::start(&sandbox, "a --timeout 2 --max-connections 2");
    let idle = [(); 2].map(|()| service.connect(END));
    let began = Instant::now();
    thread::scope(|scope| {
        let asking = [(); 3].map(|()| scope.spawn(|| service.client().predict(&json!({ "ids": [1] })).0));
        for status in asking.map(|asked| asked.join().unwrap()) {
            assert_eq!(status, 200);
        }
    });
    assert!(began.elapsed() >= LIMIT / 2, "the idle connections were open");
    drop(idle);
}

/// Length of a body as that of `predict`, filled up by spaces.
fn padded(length: usize) -> String {
    format!("{{\"ids\": [1]}}{:width$}", "", width = length - "{\"ids\": [1]}".len())
}

#[test]
fn bodies_share_a_budget_and_small_ones_are_always_read() {
    let sandbox = trained();
    // a budget of one body beyond the first 16 KiB of each
    let service = Service::start(&sandbox, "a --max-body 64K --max-requests 1");
    let large = 60 << 10;
    let head = format!("{PREDICT}Content-Length: {large}\r\n\r\n");
    let body = padded(large);
    let began = Instant::now();
    let mut slow = loop {
        let mut slow = service.connect(END);
        slow.write_all(format!("{head}{}", &body[..large - 1]).as_bytes()).unwrap();
        // the service reads the part; if it reads the other body first, both are sent again
        thread::sleep(STEP);
        let mut other = service.connect(END);
        // a service that has answered may have ended its side
        let _ = other.write_all(format!("{head}{body}").as_bytes());
        let mut answer = [0; 12];
        let _ = other.read_exact(&mut answer);
        if answer.starts_with(b"HTTP/1.1 503") {
            break slow;
        }
        assert!(began.elapsed() < END, "the slow body does not count: {}", String::from_utf8_lossy(&answer));
    };
    assert_eq!(service.client().post("/v1/predict", &padded(16 << 10)).0, 200);
    // the rest of the body arrives, and its share is free again
    slow.write_all(b" ").unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert_eq!(service.client().post("/v1/predict", &body).0, 200);
}

#[cfg(target_os = "linux")]
#[test]
fn no_connection_of_a_broken_client_stays_open() {
    let sandbox = trained();
    let service = Service::start(&sandbox, "a --timeout 2");
    assert_eq!(service.client().predict(&json!({ "ids": [1] })).0, 200);
    // the files of the service once the connection above has ended
    let wait_for = |count: usize| {
        let began = Instant::now();
        while service.open_files() > count {
            assert!(began.elapsed() < END, "{} files are open, not {count}", service.open_files());
            thread::sleep(STEP);
        }
    };
    let mut before = service.open_files();
    for _ in 0..20 {
        thread::sleep(STEP / 4);
        before = before.min(service.open_files());
    }
    let body = json!({ "ids": (0..400).collect::<Vec<_>>() }).to_string();
    let request = format!("{PREDICT}Content-Length: {}\r\n\r\n{body}", body.len());
    // asks for answers, which it never reads, until the service takes no more
    let unread: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = service.connect(END);
            stream.set_write_timeout(Some(STEP * 5)).unwrap();
            let began = Instant::now();
            while stream.write_all(request.as_bytes()).is_ok() {
                assert!(began.elapsed() < END, "the service reads on without a reader");
            }
            stream
        })
        .collect();
    let broken: Vec<TcpStream> = (0..32)
        .map(|client| {
            let mut stream = service.connect(END);
            // a header without an end, half a body, and bytes that are not HTTP
            let sent = [&request[..60], &request[..request.len() - 9], "\0\u{1}"][client % 3];
            stream.write_all(sent.as_bytes()).unwrap();
            if client % 2 == 0 {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            stream
        })
        .collect();
    let mut client = service.client();
    for _ in 0..3 {
        assert_eq!(client.post("/v1/reload", "{}").0, 200);
        assert_eq!(client.predict(&json!({ "ids": [1] })).0, 200);
    }
    drop(client);
    // the clients hold their ends
    wait_for(before);
    drop((unread, broken));
    assert_eq!(service.client().get("/healthz").0, 200);
}
