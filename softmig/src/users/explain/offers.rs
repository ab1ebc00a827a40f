//! The requests that a user can make: the answer where nothing is asked for.

use softmig_policy::node::size::{Bytes, MIB};
use softmig_policy::{Context, Policy, Request, Verdict, decide};

/// What can be asked for.
pub(super) struct Listed {
    pub(super) text: String,
    /// Whether nothing has as much memory.
    pub(super) is_empty: bool,
}

/// Whole GPUs and slices of each type, or those with at least so much memory, a line each, and whether this person gets them.
pub(super) fn list(policy: &Policy, context: &Context, least: Option<Bytes>) -> Listed {
    let has_memory = |mib| least.is_none_or(|least| least.is_in(mib));
    let mut offers = Vec::new();
    for gpu in policy.gpus() {
        let name = gpu.name();
        let usable = gpu.usable_mib();
        let whole = if gpu.is_mig() {
            "MIG instance"
        } else {
            "whole GPU"
        };
        if has_memory(usable) {
            offers.push((format!("gpu:{name}:1"), format!("{usable} MiB, a {whole}")));
        }
        let slices = gpu.slices().iter().filter_map(|&size| gpu.slice(size));
        for limits in slices.filter(|limits| has_memory(limits.memory_mib())) {
            let holds = format!(
                "{} MiB, {} % of the GPU's time",
                limits.memory_mib(),
                limits.percent()
            );
            offers.push((limits.slice_request().to_string(), holds));
        }
    }
    // Nobody says how much memory these have.
    for name in policy.plain_types().iter().filter(|_| least.is_none()) {
        offers.push((format!("gpu:{name}:1"), "a whole GPU".to_string()));
    }
    let width = offers.iter().map(|(gres, _)| gres.len()).max().unwrap_or(0);
    let mut text = match least {
        None => "softmig: what can be asked for here".to_string(),
        Some(least) if offers.is_empty() => format!(
            "softmig: nothing here is known to have {} MiB of GPU memory\nsoftmig: 'softmig explain' lists what there is",
            mib(least)
        ),
        Some(least) => format!(
            "softmig: what has {0} MiB of GPU memory; 'softmig free --memory={0}m' says what is free",
            mib(least)
        ),
    };
    let is_empty = offers.is_empty();
    for (gres, holds) in offers {
        text += &format!("\n  --gres={gres:<width$}  {holds}");
        if let Verdict::Refused(refusal) = decide(policy, &request(gres), context) {
            text += &format!(" (refused: {})", refusal.code().as_str());
        }
    }
    Listed { text, is_empty }
}

/// In MiB, rounded up.
fn mib(size: Bytes) -> u64 {
    size.get().div_ceil(MIB)
}

fn request(gres: String) -> Request {
    Request {
        tres_per_node: Some(gres),
        ..Request::default()
    }
}
