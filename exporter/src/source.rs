//! The pages that are served: the monitor's answer, as metrics and as JSON.

use crate::cli::View;
use crate::monitor;
use crate::window::Window;
use softmig_usage::Node;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// A page that is younger is served again, so that many readers do not load the monitor.
const YOUNG: Duration = Duration::from_millis(250);

/// Makes pages.
#[derive(Debug)]
pub struct Source {
    socket: PathBuf,
    views: Vec<View>,
    last: Mutex<Last>,
}

/// The pages of one moment.
#[derive(Clone, Debug)]
pub struct Pages {
    /// All metrics.
    pub metrics: String,
    /// The monitor's figures for every user in the form of [`Node`], as JSON.
    pub usage: String,
}

#[derive(Debug, Default)]
struct Last {
    pages: Option<(Instant, Result<Pages, String>)>,
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

    /// The pages of now, or why there are none.
    pub async fn pages(&self) -> Result<Pages, String> {
        // Readers wait here for each other: the monitor is asked once at a time.
        let mut last = self.last.lock().await;
        if let Some((at, pages)) = &last.pages
            && at.elapsed() < YOUNG
        {
            return pages.clone();
        }
        let pages = self.ask(&mut last.window).await;
        let pages = pages.map_err(|error| format!("{error:#}"));
        let trouble = pages.as_ref().err().cloned();
        if trouble != last.trouble {
            match &trouble {
                Some(trouble) => eprintln!("no metrics: {trouble}"),
                None => eprintln!("metrics again"),
            }
        }
        last.trouble = trouble;
        last.pages = Some((Instant::now(), pages.clone()));
        pages
    }

    async fn ask(&self, window: &mut Window) -> anyhow::Result<Pages> {
        let node = monitor::ask(&self.socket).await?;
        let mut page = softmig_usage::metrics::page(&node);
        for view in &self.views {
            view.add(&mut page, &node, window);
        }
        let usage = serde_json::to_string(&for_everybody(node.clone()))?;
        window.keep(node);
        Ok(Pages {
            metrics: page.text(),
            usage,
        })
    }
}

/// Without process ids, and without what the monitor ended: both are the administrator's alone.
fn for_everybody(mut node: Node) -> Node {
    node.ending = None;
    for gpu in node.jobs.iter_mut().flat_map(|job| &mut job.gpus) {
        gpu.seats.clear();
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;
    use softmig_usage::{Job, JobGpu, Seat};

    #[test]
    fn everybody_is_told_no_process_id_and_no_ending() {
        let gpu = JobGpu {
            refused: 7,
            seats: vec![Seat::default()],
            ..JobGpu::default()
        };
        let job = Job {
            gpus: vec![gpu],
            ..Job::default()
        };
        let told = for_everybody(Node {
            jobs: vec![job],
            ending: Some(Default::default()),
            ..Node::default()
        });
        let gpu = &told.jobs[0].gpus[0];
        assert_eq!((gpu.refused, gpu.seats.len(), told.ending), (7, 0, None));
    }
}
