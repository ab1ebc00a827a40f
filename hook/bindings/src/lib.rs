//! The names of the driver functions that softmig knows: one list, which the hook's table, the declarations in
//! hook/sys, the fake driver and the gates on the built library are compared with.

pub mod classes;

/// The functions that the hook changes, in the order of its table.
pub fn rows() -> impl Iterator<Item = &'static str> {
    names(include_str!("../rows.txt"))
}

/// The functions that the fake driver offers besides the rows.
pub fn offered() -> impl Iterator<Item = &'static str> {
    names(include_str!("../offered.txt"))
}

/// One name a line; `#` begins a comment.
fn names(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_name_is_there_once() {
        let mut seen = HashSet::new();
        for name in rows().chain(offered()) {
            assert!(name.starts_with("cu") || name.starts_with("nvml"), "{name}");
            assert!(seen.insert(name), "{name} is there twice");
        }
        assert!(seen.contains("cuMemAlloc_v2") && seen.contains("nvmlShutdown"));
    }
}
