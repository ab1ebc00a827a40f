//! The GPU of a pack, as its supervisor has it.

use softmig_policy::node::job_conf::Uuid;
use softmig_rm::{Channel, Error, ErrorKind, Gpu, is_made_by};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;
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
        let Some(gpu) = self.open() else { return };
        let mut left = channels;
        let disabled = insist(|| {
            let untaken = gpu.enable(&left, false, &BTreeSet::new);
            left = untaken.rest;
            match untaken.error {
                Some(error) if !left.is_empty() => Err(error),
                // Those that are gone run no more.
                _ => Ok(()),
            }
        });
        if let Err(error) = disabled {
            let count = left.len();
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
            files.any(|(_, file)| {
                let is_own = insist(|| is_made_by(file, client, group));
                is_own.unwrap_or_else(|error| {
                    warn!("a channel of a client that has ended is left on the GPU: {error}");
                    false
                })
            })
        });
        if *is_own {
            channels.push(Channel { client, handle });
        }
    }
    channels
}

/// Asks the driver again where it cannot do it just now: it may be busy with the ends of others. A GPU that gives no answer is not asked
/// again: that would take seconds each time.
fn insist<T>(mut ask: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    const PAUSES_MS: [u64; 4] = [2, 10, 30, 100];
    for pause in PAUSES_MS {
        match ask() {
            Err(error) if error.kind() == ErrorKind::Passing && !error.is_timeout() => {
                thread::sleep(Duration::from_millis(pause));
            }
            done => return done,
        }
    }
    ask()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often the driver is asked that answers with this status so many times, and what comes of it.
    fn asked(status: u32, times: u32) -> (u32, bool) {
        let mut count = 0;
        let done = insist(|| {
            count += 1;
            let command = 0;
            (count > times)
                .then_some(())
                .ok_or(Error::Refused { command, status })
        });
        (count, done.is_ok())
    }

    #[test]
    fn a_driver_that_is_busy_is_asked_again() {
        const BUSY_RETRY: u32 = 0x03;
        const TIMEOUT: u32 = 0x65;
        const INVALID_CLIENT: u32 = 0x23;
        assert_eq!(asked(BUSY_RETRY, 0), (1, true));
        assert_eq!(asked(BUSY_RETRY, 4), (5, true));
        assert_eq!(asked(BUSY_RETRY, 1000), (5, false));
        assert_eq!(asked(TIMEOUT, 1), (1, false));
        assert_eq!(asked(INVALID_CLIENT, 1), (1, false));
    }
}
