//! The GPU of a pack, as its supervisor has it.

use softmig_policy::node::job_conf::Uuid;
use softmig_rm::{Channel, ErrorKind, Gpu, is_made_by};
use std::collections::{BTreeMap, BTreeSet};
use tracing::warn;

use super::kept::Left;

/// A GPU whose channels are disabled when clients end.
pub(super) struct Device {
    id: Option<Uuid>,
    /// From the first client with channels on.
    gpu: Option<Gpu>,
}

impl Device {
    /// The one with this UUID, as the driver writes it.
    pub(super) fn of(uuid: &str) -> Self {
        Self {
            id: Uuid::parse(uuid).filter(Uuid::is_gpu),
            gpu: None,
        }
    }

    /// Opens it, if it is not open.
    pub(super) fn open(&mut self) -> Option<&Gpu> {
        if let (None, Some(id)) = (&self.gpu, self.id) {
            match Gpu::open(id.bytes()) {
                Ok(gpu) => self.gpu = Some(gpu),
                Err(error) => warn!("channels of clients that end are left to the daemon: {error}"),
            }
        }
        self.gpu.as_ref()
    }

    /// Takes channels off the GPU for good: those of processes that have ended. A client of the driver's that was not made by the
    /// process's own file is another's by now.
    pub(super) fn disable(&mut self, left: &[Left<'_>]) {
        let channels = left.iter().flat_map(own);
        let channels: Vec<Channel> = channels.collect();
        if channels.is_empty() {
            return;
        }
        let untaken = self
            .open()
            .map(|gpu| gpu.enable(&channels, false, &BTreeSet::new));
        let error = untaken.and_then(|untaken| untaken.error);
        if let Some(error) = error.filter(|error| error.kind() != ErrorKind::Gone) {
            let count = channels.len();
            warn!("{count} channels of clients that have ended: {error}");
        }
    }
}

/// The channels that were the process's own.
fn own(left: &Left<'_>) -> Vec<Channel> {
    let mut proved: BTreeMap<(u32, u32), bool> = BTreeMap::new();
    let mut channels = Vec::new();
    for &(client, group, handle) in left.channels {
        let is_own = proved.entry((client, group)).or_insert_with(|| {
            let mut files = left.files.control.iter();
            files.any(|(_, file)| is_made_by(file, client, group))
        });
        if *is_own {
            channels.push(Channel { client, handle });
        }
    }
    channels
}
