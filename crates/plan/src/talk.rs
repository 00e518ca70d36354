//! Processor time of sending and receiving.

use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    thread,
};

use graphmill_engine::{Error, Result, cores::busy_seconds};

/// Bytes sent through a connection, and bytes of each call.
const TRANSFER: [usize; 2] = [32 << 20, 60 << 10];

/// Processor seconds per byte on one side of a loopback connection.
///
/// # Errors
/// The system refuses the connection.
pub(crate) fn seconds_of_byte() -> Result<f64> {
    talk().map_err(|error| Error::usage(format!("no loopback connection: {error}")))
}

fn talk() -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut from = TcpStream::connect(listener.local_addr()?)?;
    let (mut to, _) = listener.accept()?;
    let [all, each] = TRANSFER;
    let (said, mut received) = (vec![1; each], vec![0; each]);
    let began = busy_seconds();
    thread::scope(|scope| {
        let writing = scope.spawn(move || -> io::Result<()> {
            (0..all / each).try_for_each(|_| from.write_all(&said))?;
            from.shutdown(Shutdown::Write)
        });
        while to.read(&mut received)? > 0 {}
        writing.join().unwrap_or_else(|_| Err(io::Error::other("the thread that writes has ended")))
    })?;
    Ok((busy_seconds() - began) / (2 * all) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_byte_is_positive_and_below_that_of_a_slow_disk() {
        let seconds = seconds_of_byte().unwrap();
        assert!(seconds > 0.0 && seconds < 1e-6, "{seconds}");
    }
}
