//! What systemd lets the programs of a unit do, and what they did under strace.

use std::collections::BTreeSet;

/// The calls that systemd lets through for this word of `SystemCallFilter=`, by the list that `systemd-analyze
/// syscall-filter` prints.
pub fn allowed(list: &str, word: &str) -> BTreeSet<String> {
    let lines = list.lines().skip_while(|line| *line != word).skip(1);
    let words = lines
        .take_while(|line| line.starts_with(' '))
        .map(str::trim);
    let mut calls = BTreeSet::new();
    for word in words {
        match word.starts_with('@') {
            true => calls.extend(allowed(list, word)),
            false => calls.extend([word.to_owned()]),
        }
    }
    calls
}

/// The calls in what `strace -f` wrote into a file.
pub fn called(trace: &str) -> BTreeSet<String> {
    // PID NAME(...) or PID <... NAME resumed>...
    let name = |line: &str| {
        let (_, call) = line.split_once(' ')?;
        let call = call.trim_start().trim_start_matches("<... ");
        let end = call.find(|c: char| c != '_' && !c.is_ascii_alphanumeric())?;
        (end > 0).then(|| call[..end].to_owned())
    };
    trace.lines().filter_map(name).collect()
}
