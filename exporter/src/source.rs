//! The page that is served: the monitor's answer as metrics.

use crate::cli::View;
use crate::monitor;
use crate::window::Window;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A page that is younger is served again, so that many readers are no load for the monitor.
const YOUNG: Duration = Duration::from_millis(250);

/// Makes pages.
#[derive(Debug)]
pub struct Source {
    socket: PathBuf,
    views: Vec<View>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    page: Option<(Instant, Result<String, String>)>,
    window: Window,
    /// The last trouble, so that it is logged once.
    trouble: Option<String>,
}

impl Source {
    /// Of the monitor that listens at `socket`.
    pub fn new(socket: PathBuf, views: Vec<View>) -> Self {
        Self {
            socket,
            views,
            last: Mutex::default(),
        }
    }

    /// All metrics of now, or why there are none.
    pub async fn page(&self) -> Result<String, String> {
        // Readers wait here for each other: the monitor is asked once at a time.
        let mut last = self.last.lock().await;
        if let Some((at, page)) = &last.page
            && at.elapsed() < YOUNG
        {
            return page.clone();
        }
        let node = monitor::ask(&self.socket).await;
        let page = node
            .map(|node| {
                let mut page = softmig_metrics::page(&node);
                for view in &self.views {
                    view.add(&mut page, &node, &last.window);
                }
                last.window.keep(node);
                page.text()
            })
            .map_err(|error| format!("{error:#}"));
        let trouble = page.as_ref().err().cloned();
        if trouble != last.trouble {
            match &trouble {
                Some(trouble) => eprintln!("no metrics: {trouble}"),
                None => eprintln!("metrics again"),
            }
        }
        last.trouble = trouble;
        last.page = Some((Instant::now(), page.clone()));
        page
    }
}
