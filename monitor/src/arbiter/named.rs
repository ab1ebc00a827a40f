//! The processes without a seat that a GPU's log names before the next measurement tells of them. Their jobs are to pay.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::authorizer::{Authorizer, Client};
use super::settings::GpuId;
use super::steering::Unseated;
use super::switch_log::Stays;

/// To find out whose a process is reads three files of the kernel's and root's.
const MOST_AT_ONCE: usize = 4;

/// Those since the last measurement.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Knows whose processes are; without it nobody's are known.
    pub(super) authorizer: Option<Arc<dyn Authorizer>>,
    /// Whose each is, if it is a job's with a slice.
    all: BTreeMap<u32, Option<Unseated>>,
}

impl Named {
    /// A measurement told of all that were there. A number may be another process's by now.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    /// Finds the jobs of those that were on the GPU, but for those that are known otherwise.
    pub(super) fn note(
        &mut self,
        gpu: GpuId,
        stays: &BTreeMap<u32, Stays>,
        is_known: impl Fn(u32) -> bool,
    ) {
        let Some(authorizer) = &self.authorizer else {
            return;
        };
        let named = stays.iter().filter(|(_, it)| it.resident > 0);
        let new = named.filter(|(pid, _)| !self.all.contains_key(pid) && !is_known(**pid));
        let new: Vec<u32> = new.map(|(&pid, _)| pid).take(MOST_AT_ONCE).collect();
        for pid in new {
            // The kernel says whose it is, whatever user it has.
            let admission = authorizer.admit(Client { pid, uid: 0 }, gpu).ok();
            let of = admission.map(|of| Unseated {
                job: of.job,
                share: of.share,
                mode: of.mode,
                pack: of.pack,
            });
            self.all.insert(pid, of);
        }
    }

    /// Those of jobs, and these, which a measurement told of.
    pub(super) fn with(&self, unseated: &BTreeMap<u32, Unseated>) -> BTreeMap<u32, Unseated> {
        let of_jobs = self.all.iter().filter_map(|(&pid, of)| Some((pid, (*of)?)));
        of_jobs
            .chain(unseated.iter().map(|(&pid, &of)| (pid, of)))
            .collect()
    }
}
