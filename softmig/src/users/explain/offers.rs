//! The requests that a user can make: the answer where nothing is asked for.

use softmig_policy::{Context, Policy, Request, Verdict, decide};

/// Whole GPUs and slices of each type, a line each, and whether this person gets them.
pub(super) fn all(policy: &Policy, context: &Context) -> String {
    let mut offers = Vec::new();
    for gpu in policy.gpus() {
        let name = gpu.name();
        let usable = gpu.memory_mib() - gpu.reserved_mib();
        let whole = if gpu.is_mig() {
            "MIG instance"
        } else {
            "whole GPU"
        };
        offers.push((format!("gpu:{name}:1"), format!("{usable} MiB, a {whole}")));
        for limits in gpu
            .slices()
            .iter()
            .filter_map(|&size| Some((size, gpu.slice(size)?)))
        {
            let (size, limits) = limits;
            let holds = format!(
                "{} MiB, {} % of the GPU's time",
                limits.memory_mib(),
                limits.percent()
            );
            offers.push((format!("gpu:{name}.{size}:1"), holds));
        }
    }
    for name in policy.plain_types() {
        offers.push((format!("gpu:{name}:1"), "a whole GPU".to_string()));
    }
    let width = offers.iter().map(|(gres, _)| gres.len()).max().unwrap_or(0);
    let mut text = "softmig: what can be asked for here".to_string();
    for (gres, holds) in offers {
        text += &format!("\n  --gres={gres:<width$}  {holds}");
        if let Verdict::Refused(refusal) = decide(policy, &request(gres), context) {
            text += &format!(" (refused: {})", refusal.code().as_str());
        }
    }
    text
}

fn request(gres: String) -> Request {
    Request {
        tres_per_node: Some(gres),
        ..Request::default()
    }
}
