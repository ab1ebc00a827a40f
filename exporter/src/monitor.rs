//! The monitor's answer: all of the node, as JSON, to all who may connect to its socket.

use anyhow::Context;
use softmig_usage::Node;
use std::path::Path;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// An answer is far shorter.
const LONGEST: u64 = 16 << 20;

/// Asks the monitor that listens at `path`.
pub async fn ask(path: &Path) -> anyhow::Result<Node> {
    let text = timeout(PATIENCE, said(path))
        .await
        .context("softmig-monitor does not answer")??;
    Node::read(&text).map_err(|error| anyhow::anyhow!("softmig-monitor's answer {error}"))
}

async fn said(path: &Path) -> anyhow::Result<Vec<u8>> {
    let connecting = || {
        format!(
            "connecting to {}: softmig-monitor does not run, or this user is not in the group softmig",
            path.display()
        )
    };
    let stream = UnixStream::connect(path).await.with_context(connecting)?;
    let mut text = Vec::new();
    let mut bounded = stream.take(LONGEST);
    bounded
        .read_to_end(&mut text)
        .await
        .context("reading softmig-monitor's answer")?;
    Ok(text)
}
