//! A monitor's socket, the exporter, and requests to it.

#![allow(dead_code, reason = "each test uses a part of it")]

use softmig_usage::Node;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Answers as the monitor does until the process ends.
pub fn monitor(socket: &Path, tell: impl Fn() -> Node + Send + 'static) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let text = serde_json::to_vec(&tell()).unwrap();
            // The exporter may be gone.
            let _ = client.unwrap().write_all(&text);
        }
    });
}

/// A program that ends with the test.
pub struct Program(pub Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the exporter, and says where it serves.
pub fn exporter(socket: &Path, options: &[impl AsRef<OsStr>]) -> (Program, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_softmig-exporter"))
        .arg("--socket")
        .arg(socket)
        .args(options)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let program = Program(child);
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let url = line
        .strip_prefix("serving ")
        .expect(&line)
        .trim()
        .to_owned();
    // The rest of its output goes on.
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::stderr()));
    (program, url)
}

/// `127.0.0.1:PORT` of a URL.
pub fn address(url: &str) -> &str {
    let rest = url.split("://").nth(1).unwrap();
    rest.split('/').next().unwrap()
}

/// The status and the body of an answer.
pub fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    answer(stream)
}

/// Reads an answer to its end.
pub fn answer(mut stream: impl Read) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(!head.contains("chunked"), "{head}");
    (status, body.to_owned())
}

/// A certificate for 127.0.0.1 and its key, as files and as PEM.
pub struct Certificate {
    pub files: [String; 2],
    pub pem: [String; 2],
}

impl Certificate {
    /// Makes the files NAME.cert and NAME.key.
    pub fn new(folder: &Path, name: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let pem = [made.cert.pem(), made.signing_key.serialize_pem()];
        let file = |end: &str, text: &str| {
            let path = folder.join(format!("{name}.{end}"));
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let files = [file("cert", &pem[0]), file("key", &pem[1])];
        Self { files, pem }
    }

    /// The exporter's options for it, on a port of loopback; with `clients` only their holders are answered.
    pub fn options(&self, clients: Option<&Self>) -> Vec<String> {
        let [cert, key] = &self.files;
        let mut options = vec![
            "--listen=127.0.0.1:0".to_owned(),
            format!("--tls-cert={cert}"),
            format!("--tls-key={key}"),
        ];
        options.extend(clients.map(|of| format!("--tls-client-ca={}", of.files[0])));
        options
    }
}
