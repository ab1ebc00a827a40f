//! Which devices a program has, and in which order: those it can open, chosen by `CUDA_VISIBLE_DEVICES`.
//!
//! The rules were read off driver 580.159. Numbers are read as by atoi, up to the first entry that names no device. A
//! UUID may be shortened if it still names one device. The same device twice is an error. CUDA uses at most one part of
//! a divided GPU: without the variable only if the program has no whole GPU, and with it only the part whose UUID it
//! names.

use softmig_driver_sys::cuda::*;
use softmig_fake_node::{Description, Device};

use crate::Outcome;

/// The numbers of the devices, in the program's order.
pub(crate) fn choose(
    node: &Description,
    open: &[usize],
    variable: Option<&str>,
) -> Outcome<Vec<usize>> {
    let reachable: Vec<(usize, Device<'_>)> = node
        .all_devices()
        .enumerate()
        .filter(|(_, device)| {
            open.iter()
                .any(|gpu| node.gpus.get(*gpu).is_some_and(|gpu| gpu == device.gpu))
        })
        .collect();
    let whole = reachable
        .iter()
        .filter(|(_, device)| device.instance.is_none());
    let whole: Vec<usize> = whole.map(|(number, _)| *number).collect();
    let chosen = match variable {
        Some(list) => named(&reachable, node, open, list)?,
        None if whole.is_empty() => reachable
            .iter()
            .map(|(number, _)| *number)
            .take(1)
            .collect(),
        None => whole,
    };
    if chosen.is_empty() {
        return Err(CUDA_ERROR_NO_DEVICE);
    }
    Ok(chosen)
}

fn named(
    reachable: &[(usize, Device<'_>)],
    node: &Description,
    open: &[usize],
    list: &str,
) -> Outcome<Vec<usize>> {
    let mut chosen = Vec::new();
    for entry in list.split(',') {
        let entry = entry.trim_start();
        let found = if entry.starts_with("MIG-") || entry.starts_with("GPU-") {
            by_uuid(reachable, entry)
        } else {
            number(entry)
                .and_then(|index| open.get(index))
                .and_then(|gpu| node.gpus.get(*gpu))
                .and_then(|gpu| reachable.iter().find(|(_, device)| device.gpu == gpu))
        };
        let Some((device, described)) = found else {
            break;
        };
        if chosen.contains(device) {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        if described.instance.is_some() {
            return Ok(vec![*device]);
        }
        chosen.push(*device);
    }
    Ok(chosen)
}

fn by_uuid<'a, 'b>(
    reachable: &'a [(usize, Device<'b>)],
    start: &str,
) -> Option<&'a (usize, Device<'b>)> {
    // "GPU-" alone names nothing, also where there is but one.
    if start.len() <= 4 {
        return None;
    }
    let mut matching = reachable
        .iter()
        .filter(|(_, device)| device.uuid().starts_with(start));
    let found = matching.next();
    if matching.next().is_some() {
        return None;
    }
    found
}

/// A number as C's atoi reads it, but `None` without a digit.
fn number(text: &str) -> Option<usize> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.get(..digits)?.parse().ok()
}
