//! The answers that clients get, and the harm that they cannot do.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{Certificate, Program, address, answer, exporter, get, monitor};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use softmig_usage::{Node, VERSION};
use std::ffi::OsStr;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn node() -> Node {
    Node {
        schema_version: VERSION,
        time: 1.0,
        ..Node::default()
    }
}

/// The exporter of a monitor that answers.
fn served(folder: &Path, options: &[impl AsRef<OsStr>]) -> (Program, String) {
    let socket = folder.join("usage.sock");
    monitor(&socket, node);
    exporter(&socket, options)
}

#[test]
fn metrics_and_usage_are_read_and_nothing_else_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (_exporter, url) = served(folder.path(), &["--listen=127.0.0.1:0"]);
    let at = address(&url);
    let (status, body) = get(at, "/metrics");
    assert_eq!(status, 200);
    assert!(body.contains("\nsoftmig_build_info{version=\""), "{body}");
    assert_eq!(get(at, "/").0, 200);
    let (status, body) = get(at, "/usage");
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Node>(&body).unwrap(), node());
    assert_eq!(get(at, "/../etc/passwd").0, 404);
    let mut stream = TcpStream::connect(at).unwrap();
    stream
        .write_all(b"POST /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    assert_eq!(answer(stream).0, 405);
}

#[test]
fn a_scrape_without_figures_fails_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("usage.sock");
    let (_exporter, url) = exporter(&socket, &["--listen=127.0.0.1:0"]);
    let fails = |page: &str, why: &str| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        let (status, body) = get(address(&url), page);
        assert!(status == 503 && body.contains(why), "{status} {body}");
    };
    fails("/metrics", "softmig-monitor does not run");
    fails("/usage", "softmig-monitor does not run");
    let silent = UnixListener::bind(&socket).unwrap();
    fails("/metrics", "does not answer: deadline has elapsed");
    drop(silent);
    std::fs::remove_file(&socket).unwrap();
    monitor(&socket, || Node {
        schema_version: VERSION + 1,
        ..node()
    });
    fails("/metrics", "one of the two programs is older");
    // It comes back by itself.
    std::fs::remove_file(&socket).unwrap();
    monitor(&socket, node);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(get(address(&url), "/metrics").0, 200);
}

#[test]
fn clients_that_say_nothing_are_ended_and_others_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (_exporter, url) = served(folder.path(), &["--listen=127.0.0.1:0"]);
    let at = address(&url);
    let silent: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(at).unwrap()).collect();
    let mut half = TcpStream::connect(at).unwrap();
    half.write_all(b"GET /metrics HTTP/1.1\r\nHos").unwrap();
    assert_eq!(get(at, "/metrics").0, 200);
    // The first was closed.
    let read = (&silent[0]).read(&mut [0; 64]);
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    // A head without end is refused.
    let mut long = TcpStream::connect(at).unwrap();
    let sent = long.write_all(&[b'a'; 1 << 20]);
    let mut said = String::new();
    let read = long.read_to_string(&mut said);
    assert!(
        sent.is_err() || read.is_err() || !said.contains("200 OK"),
        "{said}"
    );
}

#[test]
fn a_scrape_waits_for_no_client_that_says_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (_exporter, url) = served(folder.path(), &["--listen=127.0.0.1:0"]);
    let at = address(&url);
    // Twice as many as there are places for.
    let silent: Vec<TcpStream> = (0..32).map(|_| TcpStream::connect(at).unwrap()).collect();
    assert_eq!(get(at, "/metrics").0, 200);
    // They would have been ended one after the other, after some time: the oldest are closed, and the newest not yet.
    let read = |mut client: &TcpStream| {
        client.set_nonblocking(true).unwrap();
        client.read(&mut [0; 64]).map_err(|error| error.kind())
    };
    assert_eq!(read(&silent[0]), Ok(0));
    assert_eq!(read(&silent[31]), Err(ErrorKind::WouldBlock));
}

#[test]
fn a_unix_socket_is_for_its_owner_and_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("metrics.sock");
    // Of one that was killed.
    drop(UnixListener::bind(&path).unwrap());
    let listen = format!("--listen={}", path.display());
    let (_exporter, _) = served(folder.path(), &[&listen]);
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert_eq!(answer(stream).0, 200);
}

#[test]
fn the_network_is_served_only_with_tls_or_by_word() {
    let refused = |options: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_softmig-exporter"))
            .args(options)
            .output()
            .unwrap();
        let said = String::from_utf8(run.stderr).unwrap();
        (run.status.code(), said)
    };
    let (status, said) = refused(&["--listen=0.0.0.0:0"]);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("--tls-cert FILE and --tls-key FILE, or --without-tls"),
        "{said}"
    );
    let (status, said) = refused(&["--listen=0.0.0.0:0", "--tls-cert=/none", "--tls-key=/none"]);
    assert_eq!(status, Some(1));
    assert!(said.contains("reading /none"), "{said}");
}

/// Reads the metrics as a client with or without a certificate.
fn over_tls(
    at: &str,
    server: &Certificate,
    client: Option<&Certificate>,
) -> std::io::Result<String> {
    let certificate =
        |of: &Certificate| CertificateDer::from_pem_slice(of.pem[0].as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(server)).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match client {
        None => config.with_no_client_auth(),
        Some(client) => {
            let key = PrivateKeyDer::from_pem_slice(client.pem[1].as_bytes()).unwrap();
            let chain = vec![certificate(client)];
            config.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = "127.0.0.1".try_into().unwrap();
    let talk = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(talk, TcpStream::connect(at)?);
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")?;
    let mut said = String::new();
    match stream.read_to_string(&mut said) {
        // The connection is closed without a farewell.
        Err(error) if said.is_empty() => Err(error),
        _ => Ok(said),
    }
}

#[test]
fn a_port_with_tls_says_nothing_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = Certificate::new(folder.path(), "server");
    let (_exporter, url) = served(folder.path(), &server.options(None));
    assert!(url.starts_with("https://"), "{url}");
    let mut stream = TcpStream::connect(address(&url)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said);
    assert!(!said.contains("softmig"), "{said}");
    let page = over_tls(address(&url), &server, None).unwrap();
    assert!(page.contains("softmig_build_info"), "{page}");
}

#[test]
fn with_an_authority_for_clients_others_read_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [server, client, other] =
        ["server", "client", "other"].map(|name| Certificate::new(folder.path(), name));
    let (_exporter, url) = served(folder.path(), &server.options(Some(&client)));
    let read = |by: Option<&Certificate>| over_tls(address(&url), &server, by);
    assert!(read(None).is_err());
    assert!(read(Some(&other)).is_err());
    let page = read(Some(&client)).unwrap();
    assert!(page.contains("softmig_build_info"), "{page}");
}
