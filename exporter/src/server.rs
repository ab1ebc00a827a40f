//! HTTP: few connections at once, none for long.

use crate::cli::Address;
use crate::source::Source;
use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Connections at once. If there are more, those that have sent no request yet are closed, the oldest first.
const CONNECTIONS: usize = 16;
/// How long a connection keeps its place at least, so that a client in a crowd can send its request.
const LEAST: Duration = Duration::from_millis(20);
/// How long a connection may take, from its first byte to its last.
const LONGEST: Duration = Duration::from_secs(10);
/// How long a request's head may take, and TLS before it.
const HEAD: Duration = Duration::from_secs(2);

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// Answers at an address.
pub struct Server {
    listener: Listener,
    tls: Option<TlsAcceptor>,
    /// Where it answers, for people.
    pub url: String,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Listener {
    async fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

impl Server {
    /// Listens, with TLS where there is a key.
    pub async fn start(address: &Address, tls: Option<TlsAcceptor>) -> anyhow::Result<Self> {
        let (listener, url) = match address {
            Address::Tcp(at) => {
                let listening = || format!("listening at {at}");
                let listener = TcpListener::bind(at).await.with_context(listening)?;
                let scheme = if tls.is_some() { "https" } else { "http" };
                let url = format!("{scheme}://{}/metrics", listener.local_addr()?);
                (Listener::Tcp(listener), url)
            }
            Address::Unix(path) => {
                let listening = || format!("listening at {}", path.display());
                let listener = unix(path).with_context(listening)?;
                (
                    Listener::Unix(listener),
                    format!("{}: /metrics", path.display()),
                )
            }
        };
        Ok(Self { listener, tls, url })
    }

    /// Answers for ever.
    pub async fn run(self, source: Arc<Source>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut silent = VecDeque::new();
        loop {
            let Ok(stream) = self.listener.accept().await else {
                // There are no more descriptors to be had.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(place) = place(&room, &mut silent).await else {
                // The semaphore is never closed.
                return;
            };
            let (tls, source) = (self.tls.clone(), Arc::clone(&source));
            let has_asked = Arc::new(AtomicBool::new(false));
            let asked = Arc::clone(&has_asked);
            let task = tokio::spawn(async move {
                // A client that is gone, slow or wrong needs no answer.
                let _ = timeout(LONGEST, converse(stream, tls, source, &asked)).await;
                drop(place);
            });
            silent.push_back(Silent {
                has_asked,
                since: Instant::now(),
                task: task.abort_handle(),
            });
        }
    }
}

/// A connection that had sent no request when it was last looked at.
struct Silent {
    has_asked: Arc<AtomicBool>,
    since: Instant,
    task: AbortHandle,
}

impl Silent {
    // Relaxed: the flag orders nothing else, and all tasks run in one thread.
    fn is_silent(&self) -> bool {
        !self.has_asked.load(Ordering::Relaxed) && !self.task.is_finished()
    }
}

/// A place for one more connection: if none is free, that of the oldest silent one, which is closed.
async fn place(
    room: &Arc<Semaphore>,
    silent: &mut VecDeque<Silent>,
) -> Result<OwnedSemaphorePermit, AcquireError> {
    loop {
        silent.retain(Silent::is_silent);
        // Those that have asked are answered, or end after `LONGEST`.
        let wait = silent.front().map_or(LONGEST, |oldest| {
            LEAST.saturating_sub(oldest.since.elapsed())
        });
        if let Ok(place) = timeout(wait, Arc::clone(room).acquire_owned()).await {
            return place;
        }
        if let Some(oldest) = silent.pop_front().filter(Silent::is_silent) {
            oldest.task.abort();
            return Arc::clone(room).acquire_owned().await;
        }
    }
}

/// Listens in the place of one that is no more; its owner and group may connect.
fn unix(path: &Path) -> std::io::Result<UnixListener> {
    let mut new = OsString::from(path);
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o660))?;
    fs::rename(&new, path)?;
    Ok(listener)
}

/// One request.
async fn converse(
    stream: Box<dyn Stream>,
    tls: Option<TlsAcceptor>,
    source: Arc<Source>,
    has_asked: &AtomicBool,
) -> anyhow::Result<()> {
    let stream: Box<dyn Stream> = match tls {
        Some(tls) => Box::new(timeout(HEAD, tls.accept(stream)).await??),
        None => stream,
    };
    let answer = service_fn(move |request| {
        has_asked.store(true, Ordering::Relaxed);
        let source = Arc::clone(&source);
        async move { Ok::<_, Infallible>(answer(&request, &source).await) }
    });
    http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), answer)
        .await?;
    Ok(())
}

async fn answer(request: &Request<Incoming>, source: &Source) -> Response<Full<Bytes>> {
    let path = request.uri().path();
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let (status, kind, text) = match (path, is_read) {
        ("/metrics" | "/usage", true) => match (source.pages().await, path) {
            (Ok(pages), "/usage") => (StatusCode::OK, JSON, pages.usage),
            (Ok(pages), _) => (StatusCode::OK, METRICS, pages.metrics),
            (Err(error), _) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, error + "\n"),
        },
        ("/", true) => (
            StatusCode::OK,
            TEXT,
            "softmig-exporter: /metrics, /usage\n".to_owned(),
        ),
        (_, true) => (StatusCode::NOT_FOUND, TEXT, "/metrics, /usage\n".to_owned()),
        (_, false) => (StatusCode::METHOD_NOT_ALLOWED, TEXT, "GET\n".to_owned()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if !is_read {
        let read = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, read);
    }
    response
}
