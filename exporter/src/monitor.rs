//! The monitor's answer: all of the node, as JSON, to all who may connect to its socket.

use anyhow::{Context, ensure};
use softmig_usage::{Node, VERSION};
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
    let node: Node = serde_json::from_slice(&text)
        .context("the softmig-monitor that runs is of another version: restart it")?;
    ensure!(
        node.schema_version != 0,
        "softmig-monitor has not measured yet; journalctl -t softmig-monitor may say why"
    );
    ensure!(
        node.schema_version == VERSION,
        "softmig-monitor answers in form {}, and this exporter reads form {VERSION}: upgrade both to one release",
        node.schema_version
    );
    Ok(node)
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
