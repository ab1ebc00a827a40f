//! Tells systemd the state of the daemon, as sd_notify(3) says.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;
use tracing::warn;

/// All is in place.
pub fn ready() {
    tell("READY=1");
}

/// The end has begun.
pub fn stopping() {
    tell("STOPPING=1");
}

/// The daemon works.
pub fn alive() {
    tell("WATCHDOG=1");
}

/// The time after which systemd ends the daemon if the daemon has not said that it works; `None` if systemd does not ask.
pub fn watchdog() -> Option<Duration> {
    let micros = std::env::var("WATCHDOG_USEC").ok()?.parse().ok()?;
    Some(Duration::from_micros(micros))
}

/// Does nothing where systemd does not ask to be told.
fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        warn!("systemd is not told {state}: {error}");
    }
}

fn send(socket: &OsString, state: &str) -> io::Result<()> {
    let to = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(Path::new(socket))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &to)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn systemd_is_told_by_either_kind_of_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        send(&path.into_os_string(), "READY=1").unwrap();
        assert_eq!(received(&socket), "READY=1");

        let name = format!("softmig-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(&format!("@{name}").into(), "STOPPING=1").unwrap();
        assert_eq!(received(&socket), "STOPPING=1");
    }

    #[test]
    fn a_socket_that_is_not_there_is_an_error() {
        assert!(send(&"/nonexistent/notify".into(), "READY=1").is_err());
    }
}
