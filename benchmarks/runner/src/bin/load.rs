//! Load of a service of predictions: `graphmill-load HOST:PORT --nodes V --size 64`.
//!
//! Without `--rate` the loop is closed: each connection asks again after its answer, which gives
//! the throughput. With `--rate R` it is open: requests are due at fixed times, whatever the
//! service does. A time counts from the moment at which its request was due, if the connection
//! still waited for an answer then: a late answer delays those behind it and shows in their times
//! (no coordinated omission). Otherwise it counts from the moment at which the request is sent, so
//! that the time that the system takes to wake this program is not the service's.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

/// Options of a load.
struct Load {
    address: String,
    nodes: u64,
    size: usize,
    connections: usize,
    seconds: f64,
    /// Requests a second in the open loop.
    rate: Option<f64>,
    /// Other fields of each question, such as `"seed":1,`.
    fields: String,
}

impl Load {
    fn parse() -> Result<Self, String> {
        let mut args = std::env::args().skip(1);
        let address = args
            .next()
            .ok_or("graphmill-load HOST:PORT --nodes V [--size N] [--connections N] [--seconds S]")?;
        let mut load = Self {
            address,
            nodes: 0,
            size: 1,
            connections: 8,
            seconds: 5.0,
            rate: None,
            fields: String::new(),
        };
        while let Some(flag) = args.next() {
            let word = args.next().ok_or_else(|| format!("{flag}: pass a value"))?;
            let wrong = |e: &dyn std::fmt::Display| format!("{flag} {word}: {e}");
            match &flag[..] {
                "--nodes" => load.nodes = word.parse().map_err(|e| wrong(&e))?,
                "--size" => load.size = word.parse().map_err(|e| wrong(&e))?,
                "--connections" => load.connections = word.parse().map_err(|e| wrong(&e))?,
                "--seconds" => load.seconds = word.parse().map_err(|e| wrong(&e))?,
                "--rate" => load.rate = Some(word.parse().map_err(|e| wrong(&e))?),
                "--seed" => load.fields = format!("\"seed\":{word},"),
                _ => return Err(format!("{flag}: there is no such option")),
            }
        }
        if load.nodes == 0 || load.size == 0 || load.connections == 0 {
            return Err("--nodes, --size and --connections: pass numbers above 0".into());
        }
        Ok(load)
    }

    /// Asks on one connection until the end; returns the seconds of each answer.
    fn ask(&self, connection: usize, began: Instant) -> Result<Vec<f64>, String> {
        let stream = TcpStream::connect(&self.address).map_err(|e| format!("{}: {e}", self.address))?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let mut stream = BufReader::new(stream);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ connection as u64;
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % self.nodes
        };
        let period = self.rate.map(|rate| self.connections as f64 / rate);
        let mut times = Vec::new();
        for number in 0.. {
            let due = match period {
                // connections take turns within a period
                Some(period) => {
                    let share = connection as f64 / self.connections as f64;
                    began + Duration::from_secs_f64((number as f64 + share) * period)
                }
                None => Instant::now(),
            };
            if due.duration_since(began).as_secs_f64() >= self.seconds {
                break;
            }
            let ids: Vec<String> = (0..self.size).map(|_| draw().to_string()).collect();
            let body = format!("{{{}\"ids\":[{}]}}", self.fields, ids.join(","));
            let early = due.saturating_duration_since(Instant::now());
            thread::sleep(early);
            let began = if early.is_zero() { due } else { Instant::now() };
            exchange(&mut stream, &body)?;
            times.push(began.elapsed().as_secs_f64());
        }
        Ok(times)
    }
}

/// Sends a question and reads the answer.
fn exchange(stream: &mut BufReader<TcpStream>, body: &str) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("the connection failed: {e}");
    let request = format!(
        "POST /v1/predict HTTP/1.1\r\nHost: load\r\nContent-Type: application/json\r\nContent-Length: \
         {}\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes()).map_err(failed)?;
    let (mut status, mut length) = (String::new(), 0);
    stream.read_line(&mut status).map_err(failed)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).map_err(failed)?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("content-length:") {
            length = bytes.trim().parse().map_err(|_| format!("a wrong header: {line}"))?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).map_err(failed)?;
    match status.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(format!("{}: {}", status.trim(), String::from_utf8_lossy(&answer))),
    }
}

/// Prints a line of JSON: requests a second, and percentiles of the times in milliseconds.
fn main() -> Result<(), String> {
    graphmill_core::signals::end_on_closed_pipe();
    let load = Load::parse()?;
    let began = Instant::now() + Duration::from_millis(50);
    let results: Vec<Result<Vec<f64>, String>> = thread::scope(|scope| {
        let load = &load;
        let start = |c| scope.spawn(move || load.ask(c, began));
        let threads: Vec<_> = (0..load.connections).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".into()))).collect()
    });
    let took = began.elapsed().as_secs_f64();
    let mut times = Vec::new();
    for result in results {
        times.extend(result?);
    }
    times.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        1e3 * times.get(((share * times.len() as f64) as usize).min(last)).copied().unwrap_or(f64::NAN)
    };
    println!(
        "{{\"nodes\": {}, \"connections\": {}, \"rate\": {}, \"requests\": {}, \
         \"requests_per_second\": {:.1}, \"p50_ms\": {:.3}, \"p99_ms\": {:.3}}}",
        load.size,
        load.connections,
        load.rate.map_or("null".into(), |rate| rate.to_string()),
        times.len(),
        times.len() as f64 / took,
        at(0.5),
        at(0.99)
    );
    Ok(())
}
