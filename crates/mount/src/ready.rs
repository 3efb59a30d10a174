//! Reports that the mount is there to a service manager (`sd_notify(3)`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports to the service manager that started this program, if one did.
pub(crate) fn report() -> io::Result<()> {
    std::env::var_os("NOTIFY_SOCKET").map_or(Ok(()), |socket| report_to(&socket))
}

fn report_to(socket: &OsStr) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_manager_hears_at_a_path_and_at_an_abstract_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let name = format!("forebay-mount-test-{}", std::process::id());
        let at_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (manager, socket) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str()),
            (UnixDatagram::bind_addr(&at_name).unwrap(), format!("@{name}").as_ref()),
        ] {
            report_to(socket).unwrap();
            let mut bytes = [0; 16];
            let length = manager.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..length], b"READY=1");
        }
        assert!(report_to(path.as_os_str()).is_err(), "nobody listens");
    }
}
