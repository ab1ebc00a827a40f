//! Hands log lines to a thread of their own.
//!
//! journald and syslog are sockets whose writers wait for their reader, and the policy's log file may be on a server
//! that is gone. A job is not to wait for any of that: the lines are written beside the work, and when the work is
//! done they have [`PATIENCE`] more.

use std::fmt::Debug;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Dispatch, Event, Level, Subscriber, error, info, warn};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// How long the end of the program waits for lines that are not written yet.
const PATIENCE: Duration = Duration::from_secs(1);

static END: OnceLock<End> = OnceLock::new();

struct End {
    lines: Sender<Option<Line>>,
    written: Mutex<Receiver<()>>,
}

/// Makes `sinks`, called in the thread, the place where all lines of this process go.
pub fn start(sinks: impl FnOnce() -> Dispatch + Send + 'static) {
    let (lines, queue) = channel();
    let (written, end) = channel();
    let thread = std::thread::Builder::new().spawn(move || {
        tracing::dispatcher::with_default(&sinks(), || write(&queue));
        // If it took too long, the program no longer listens.
        let _ = written.send(());
    });
    if thread.is_err() {
        return;
    }
    let layer = Queue(lines.clone()).with_filter(LevelFilter::INFO);
    // It fails only when this was called before.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer));
    let written = Mutex::new(end);
    let _ = END.set(End { lines, written });
}

/// Waits for the lines so far, but not for long.
pub fn finish() {
    let Some(end) = END.get() else {
        return;
    };
    if end.lines.send(None).is_ok() {
        let written = end.written.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = written.recv_timeout(PATIENCE);
    }
}

/// A line on its way to the thread.
struct Line {
    level: Level,
    job: Option<u64>,
    uid: Option<u64>,
    message: String,
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "job" => self.job = Some(value),
            "uid" => self.uid = Some(value),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

/// The one layer of the process: it takes the lines.
struct Queue(Sender<Option<Line>>);

impl<S: Subscriber> Layer<S> for Queue {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line {
            level: *event.metadata().level(),
            job: None,
            uid: None,
            message: String::new(),
        };
        event.record(&mut line);
        let _ = self.0.send(Some(line));
    }
}

/// Writes until the end is announced.
fn write(queue: &Receiver<Option<Line>>) {
    while let Ok(Some(line)) = queue.recv() {
        let Line {
            job, uid, message, ..
        } = line;
        // A level is part of the place in the code.
        match line.level {
            Level::ERROR => error!(job, uid, "{message}"),
            Level::WARN => warn!(job, uid, "{message}"),
            _ => info!(job, uid, "{message}"),
        }
    }
}
