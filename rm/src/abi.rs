//! The structures and numbers here, compared with those of NVIDIA's sources (rm/abi.json, which research/rm_abi.py writes).

use std::collections::BTreeMap;

use crate::{ErrorKind, call, group, log};

/// Lists a module's structures: of each its size, and the places of its fields.
///
/// `layout! { FreeCall is "NVOS00_PARAMETERS" { client: "hRoot" } }` gives `("size NVOS00_PARAMETERS", 16)` and
/// `("place NVOS00_PARAMETERS.hRoot", 0)`.
macro_rules! layout {
    ($($ours:ident is $theirs:literal { $($field:ident: $their:literal),* })*) => {
        /// What is here, by NVIDIA's names.
        pub(crate) fn layout() -> Vec<(&'static str, usize)> {
            vec![$(
                (concat!("size ", $theirs), size_of::<$ours>()),
                $((concat!("place ", $theirs, ".", $their), std::mem::offset_of!($ours, $field)),)*
            )*]
        }
    };
}

/// Each fact, by the first release that has it.
fn facts() -> BTreeMap<String, BTreeMap<String, Option<u64>>> {
    let all: serde_json::Value = serde_json::from_str(include_str!("../abi.json")).unwrap();
    let facts = all["facts"].as_object().unwrap().iter();
    let changes = |value: &serde_json::Value| {
        let of = value.as_object().unwrap().iter();
        of.map(|(tag, value)| (tag.clone(), value.as_u64()))
            .collect()
    };
    facts
        .map(|(name, value)| (name.clone(), changes(value)))
        .collect()
}

/// What holds from the newest release on. Releases have three digits, so that they are in order.
fn newest(facts: &BTreeMap<String, BTreeMap<String, Option<u64>>>, name: &str) -> u64 {
    let changes = facts.get(name).unwrap_or_else(|| panic!("{name}"));
    changes
        .values()
        .next_back()
        .unwrap()
        .unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn structures_and_numbers_are_the_drivers() {
    let facts = facts();
    let layout = [
        call::layout(),
        log::layout(),
        group::layout(),
        crate::layout(),
    ];
    for (name, value) in layout.concat() {
        assert_eq!(newest(&facts, name), value as u64, "{name}");
    }
    let numbers = [log::NUMBERS, group::NUMBERS, crate::NUMBERS].concat();
    for (name, value) in numbers {
        assert_eq!(
            newest(&facts, &format!("number {name}")),
            u64::from(value),
            "{name}"
        );
    }
    for (name, value) in call::CALLS {
        assert_eq!(
            newest(&facts, &format!("number {name}")),
            u64::from(value & 0xff),
            "{name}"
        );
    }
}

#[test]
fn no_driver_since_535_differs_but_by_the_end_of_one_structure() {
    for (name, changes) in facts() {
        let later = changes.keys().any(|tag| tag.as_str() > "535.43.02");
        // Flags were numbered anew.
        let is_known = name.contains("NV_MEMORY_ALLOCATION_PARAMS") || name.starts_with("flags ");
        assert!(!later || is_known, "{name}: {changes:?}");
    }
}

#[test]
fn statuses_have_their_meaning() {
    let facts = facts();
    let kind = |name: &str| {
        let status = newest(&facts, &format!("number NV_ERR_{name}")) as u32;
        crate::Error::Refused { command: 0, status }.kind()
    };
    for name in [
        "BUSY_RETRY",
        "IN_USE",
        "INSUFFICIENT_RESOURCES",
        "NO_MEMORY",
        "NOT_READY",
        "STATE_IN_USE",
        "SIGNAL_PENDING",
        "TIMEOUT",
        "TIMEOUT_RETRY",
    ] {
        assert_eq!(kind(name), ErrorKind::Passing, "{name}");
    }
    for name in [
        "INVALID_CHANNEL",
        "INVALID_CLIENT",
        "INVALID_OBJECT",
        "INVALID_OBJECT_HANDLE",
        "INVALID_OBJECT_PARENT",
        "OBJECT_NOT_FOUND",
    ] {
        assert_eq!(kind(name), ErrorKind::Gone, "{name}");
    }
    for name in [
        "GPU_IS_LOST",
        "INSUFFICIENT_PERMISSIONS",
        "INVALID_ARGUMENT",
        "INVALID_PARAM_STRUCT",
        "NOT_SUPPORTED",
        "RESET_REQUIRED",
    ] {
        assert_eq!(kind(name), ErrorKind::Refused, "{name}");
    }
}
