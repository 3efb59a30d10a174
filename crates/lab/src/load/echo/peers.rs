//! The same server as one writes it on an asynchronous runtime: a task for each connection that
//! reads and writes back. One thread, as the others have. In the program only where it is built
//! with `peers`.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use compio::BufResult;
use compio::buf::{IntoInner as _, IoBuf as _};
use compio::io::AsyncWriteExt as _;
use forebay_net::Address;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot::Receiver;

use super::READ_BYTES;
use super::server::Served;
use super::work::Work;
use crate::echo::EchoWay;
use crate::load::{CellError, Context};

pub(super) fn describe(way: EchoWay) -> String {
    match way {
        EchoWay::Compio => "compio, one thread".to_owned(),
        _ => "tokio, one thread".to_owned(),
    }
}

/// Serves until told to stop.
pub(super) fn serve(
    way: EchoWay,
    listener: (OwnedFd, &Address),
    work: Work,
    served: &Arc<Served>,
    stopped: Receiver<()>,
) -> Result<(), CellError> {
    let served = Arc::clone(served);
    let ended = match way {
        EchoWay::Compio => on_compio(listener, work, served, stopped),
        _ => on_tokio(listener, work, served, stopped),
    };
    ended.context("the server failed")
}

fn on_tokio(
    (listener, address): (OwnedFd, &Address),
    work: Work,
    served: Arc<Served>,
    stopped: Receiver<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async move {
        macro_rules! accept {
            ($listener:ident $(, $option:ident)?) => {{
                let listener = tokio::net::$listener::from_std(listener.into())?;
                tokio::spawn(async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        $(let _ = stream.$option(true);)?
                        tokio::spawn(tokio_echo(stream, work.clone(), Arc::clone(&served)));
                    }
                });
            }};
        }
        match address {
            Address::Tcp(_) => accept!(TcpListener, set_nodelay),
            Address::Unix(_) => accept!(UnixListener),
        }
        // Dropping the sender stops it too.
        let _ = stopped.await;
        Ok(())
    })
}

async fn tokio_echo<S>(mut stream: S, mut work: Work, served: Arc<Served>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let mut buffer = vec![0; READ_BYTES];
    let mut begun = 0;
    while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
        work.received(&mut begun, bytes);
        served.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if stream.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}

fn on_compio(
    (listener, address): (OwnedFd, &Address),
    work: Work,
    served: Arc<Served>,
    stopped: Receiver<()>,
) -> io::Result<()> {
    let runtime = compio::runtime::Runtime::new()?;
    runtime.block_on(async move {
        macro_rules! accept {
            ($listener:ident $(, $option:ident)?) => {{
                let listener = compio::net::$listener::from_std(listener.into())?;
                let accepting = async move {
                    while let Ok((stream, _)) = listener.accept().await {
                        $(let _ = stream.$option(true);)?
                        let echo = compio_echo(stream, work.clone(), Arc::clone(&served));
                        compio::runtime::spawn(echo).detach();
                    }
                };
                compio::runtime::spawn(accepting).detach();
            }};
        }
        match address {
            Address::Tcp(_) => accept!(TcpListener, set_nodelay),
            Address::Unix(_) => accept!(UnixListener),
        }
        let _ = stopped.await;
        Ok(())
    })
}

async fn compio_echo<S>(mut stream: S, mut work: Work, served: Arc<Served>)
where
    S: compio::io::AsyncRead + compio::io::AsyncWrite,
{
    let mut buffer = Vec::with_capacity(READ_BYTES);
    let mut begun = 0;
    loop {
        buffer.clear();
        let BufResult(read, filled) = stream.read(buffer).await;
        let Ok(bytes @ 1..) = read else { return };
        work.received(&mut begun, bytes);
        served.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let BufResult(written, sent) = stream.write_all(filled.slice(..bytes)).await;
        if written.is_err() {
            return;
        }
        buffer = sent.into_inner();
    }
}
