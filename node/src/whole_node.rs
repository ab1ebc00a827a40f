//! Where NVML shows less than the node has: in jobs, under limits, in containers.
//!
//! The library that holds jobs to their slices is in this process too, and shows it the slice where it has one.

use crate::this_process::ThisProcess;
use softmig_policy::node::cgroup::{Membership, place};
use softmig_policy::node::process_view::ProcessView;

/// Why less is shown here than there is.
#[derive(Debug, thiserror::Error)]
pub enum Narrowed {
    /// In a job.
    #[error("this is a job, which is shown its own part of the node only; run it outside of jobs")]
    Job,
    /// A variable limits this process.
    #[error("{0} is set, which limits what is shown; unset it")]
    Variable(String),
    /// In a container, or what looks like one.
    #[error(
        "this is a container, from which no control group of a job can be seen; run it on the node itself"
    )]
    Container,
    /// The control group cannot be read.
    #[error("reading /proc/self/cgroup: {0}")]
    Unknown(#[from] std::io::Error),
}

/// Variables that begin so limit what a process is shown.
const LIMITS: [&str; 3] = [
    "CUDA_DEVICE_MEMORY_LIMIT",
    "CUDA_DEVICE_SM_LIMIT",
    "SOFTMIG_RUN",
];

/// Fails where less is shown than the node has.
///
/// # Errors
/// The reason why less is shown. [`Narrowed::Container`] is found last: no other reason is known then.
pub fn whole_node() -> Result<(), Narrowed> {
    let list = std::fs::read("/proc/self/cgroup")?;
    if matches!(place(&list), Membership::Job(_)) {
        return Err(Narrowed::Job);
    }
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    if let Some(name) = limit_among(names) {
        return Err(Narrowed::Variable(name));
    }
    if ThisProcess::new().is_in_first_cgroup_namespace() {
        Ok(())
    } else {
        Err(Narrowed::Container)
    }
}

fn limit_among(mut names: impl Iterator<Item = String>) -> Option<String> {
    names.find(|name| LIMITS.iter().any(|limit| name.starts_with(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_one_device_is_a_limit() {
        let names = |list: &[&str]| limit_among(list.iter().map(|name| name.to_string()));
        assert_eq!(names(&["PATH", "CUDA_VISIBLE_DEVICES"]), None);
        assert_eq!(
            names(&["PATH", "CUDA_DEVICE_MEMORY_LIMIT_1"]).as_deref(),
            Some("CUDA_DEVICE_MEMORY_LIMIT_1")
        );
    }
}
