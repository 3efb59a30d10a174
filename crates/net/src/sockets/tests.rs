use std::net::{SocketAddr, TcpStream};

use super::*;

/// Timers of connections that end long before their idle time do not pile up.
#[test]
fn contract_18_timers_of_the_gone_are_thrown_away() {
    let idle = Some(Duration::from_secs(3600));
    let mut sockets = Sockets::<()>::new(Options { idle, ..Options::default() }).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listener = sockets.listen(&any.into(), 64).unwrap();
    let Ok(Address::Tcp(address)) = sockets.local(listener) else { panic!("a port") };
    let (mut events, mut most) = (Vec::new(), 0);
    for _ in 0..STALE_TIMERS / 16 + 20 {
        let peers: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
        let gone = sockets.counters().closes + 32;
        while sockets.counters().closes < gone {
            sockets.poll(Some(Duration::from_secs(1)), &mut events).unwrap();
            for event in events.drain(..) {
                if let What::Accepted { connection, .. } = event.what {
                    // Set again and again, but only one timer counts.
                    (0..5).for_each(|_| sockets.set_idle(connection, idle));
                    sockets.close(connection, Closing::Now);
                }
            }
            most = most.max(sockets.timers.len());
        }
        drop(peers);
    }
    assert!(sockets.counters().closes > STALE_TIMERS as u64, "enough to have piled up");
    assert!(most <= STALE_TIMERS + 2 * 32 + 1, "{most} timers");
}

#[test]
fn sockets_may_move_to_another_thread() {
    fn may_move<T: Send>() {}
    may_move::<Sockets<u64>>();
    may_move::<Poster<u64>>();
    may_move::<crate::Received>();
}
