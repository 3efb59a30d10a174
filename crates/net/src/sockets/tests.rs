use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::*;

#[test]
fn what_does_not_drain_is_closed_in_time() {
    let mut sockets = Sockets::<()>::new(Options::default()).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = sockets.listen(&any.into(), 64).unwrap();
    let Ok(Address::Tcp(address)) = sockets.local(listener) else { panic!("a port") };
    let _peer = TcpStream::connect(address).unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        sockets.poll(None, &mut events).unwrap();
    }
    let What::Accepted { connection, .. } = events.remove(0).what else { panic!("{events:?}") };
    sockets.send(connection, &vec![1; 16 << 20]).unwrap();
    sockets.close(connection, Closing::AfterSending);
    assert_eq!(sockets.send(connection, b"more"), Err(SendError::Closed));
    // The kernel takes what fits into its buffers. Then nothing moves for a minute.
    while sockets.counters().sends == 0 {
        sockets.poll(Some(Duration::from_millis(20)), &mut events).unwrap();
    }
    assert!(events.is_empty() && sockets.timers.len() == 1, "{events:?}");
    sockets.timers.clear();
    sockets.connections.get_mut(connection.0).unwrap().moved = Moment::from_nanoseconds(0);
    sockets.set_timer(connection.0);
    // Polled without a limit: the timer alone ends the wait.
    sockets.poll(None, &mut events).unwrap();
    let closed = |event: &crate::Event<()>| match event.what {
        What::Closed { connection: closed, reason } => {
            (closed, reason) == (connection, EndReason::TimedOut)
        }
        _ => false,
    };
    assert!(events.iter().any(closed), "{events:?}");
}

/// A timer goes with its connection, and only a connection that closes after sending has one.
#[test]
fn contract_18_timers_of_the_gone_are_thrown_away() {
    let mut sockets = Sockets::<()>::new(Options::default()).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = sockets.listen(&any.into(), 64).unwrap();
    let Ok(Address::Tcp(address)) = sockets.local(listener) else { panic!("a port") };
    let peers: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut events = Vec::new();
    let mut accepted = Vec::new();
    while accepted.len() < peers.len() {
        sockets.poll(None, &mut events).unwrap();
        accepted.extend(events.drain(..).filter_map(|event| match event.what {
            What::Accepted { connection, .. } => Some(connection),
            _ => None,
        }));
    }
    assert_eq!(sockets.timers.len(), 0);
    for connection in accepted {
        sockets.send(connection, &vec![1; 16 << 20]).unwrap();
        sockets.close(connection, Closing::AfterSending);
        assert_eq!(sockets.timers.len(), 1);
        sockets.close(connection, Closing::Now);
        assert_eq!(sockets.timers.len(), 0);
    }
}

#[test]
fn sockets_may_move_to_another_thread() {
    fn may_move<T: Send>() {}
    may_move::<Sockets<u64>>();
    may_move::<Poster<u64>>();
    may_move::<crate::Received>();
}
