//! The effect of each function of the driver on device memory: memory.txt, and its comparison with the headers.

use std::collections::{BTreeMap, BTreeSet};

/// The effect of a function on device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Takes it, directly or in passing.
    Takes,
    /// Gives it back.
    Gives,
    /// Makes it stay beyond the one who took it.
    Keeps,
    /// Moves it between device and host.
    Moves,
    /// Says from where memory will be taken.
    Finds,
    /// Gives work to the device, which may take memory.
    Launches,
    /// Shows figures of the device or of its processes.
    Shows,
    /// Takes host memory, and none of the device.
    Host,
    /// Is about memory that OpenGL, EGL, VDPAU or another interface took.
    Outside,
    /// None of these.
    Harmless,
}

impl Class {
    /// All of them, as memory.txt calls them.
    const ALL: [(&str, Class); 10] = [
        ("takes", Class::Takes),
        ("gives", Class::Gives),
        ("keeps", Class::Keeps),
        ("moves", Class::Moves),
        ("finds", Class::Finds),
        ("launches", Class::Launches),
        ("shows", Class::Shows),
        ("host", Class::Host),
        ("outside", Class::Outside),
        ("harmless", Class::Harmless),
    ];

    /// Whether an account of device memory has to know of such a function. It then has a row or a reason.
    #[must_use]
    pub fn is_counted(self) -> bool {
        !matches!(self, Class::Host | Class::Outside | Class::Harmless)
    }
}

/// One line of memory.txt: a function in all its forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The effect of its functions.
    pub class: Class,
    /// The names of its forms. One that ends with `*` matches all that begin like it.
    pub names: Vec<String>,
    /// Whether a header that is not read here declares them.
    pub is_elsewhere: bool,
    /// The words behind the colon of the line, or of the one above its group.
    pub reason: Option<&'a str>,
}

/// The lines of memory.txt.
///
/// # Errors
/// A sentence that says what is wrong with a line.
pub fn entries() -> Result<Vec<Entry<'static>>, String> {
    parse(include_str!("../memory.txt"))
}

/// Whether a function's name tells that it gives the GPU work, or what looks like it: kernels, graphs, copies and fills. Each is
/// a row, so that it can be held back, or there is a reason.
#[must_use]
pub fn gives_work(name: &str) -> bool {
    name.contains("Launch") || name.starts_with("cuMemcpy") || name.starts_with("cuMemset")
}

/// Compares memory.txt with the names of all functions that the headers declare.
///
/// # Errors
/// All that is wrong, a sentence a line.
pub fn check(headers: &BTreeSet<String>) -> Result<(), String> {
    let rows = crate::rows().collect();
    compare(&entries()?, &rows, headers)
}

/// Words in the name of a function that may take memory or show figures: a pattern does not match such a name.
const TELLING: &[&str] = &[
    "Accounting",
    "Alloc",
    "Create",
    "Ctx",
    "Export",
    "Import",
    "Instantiate",
    "Launch",
    "Load",
    "Mem",
    "Pids",
    "Pool",
    "Process",
    "Samples",
    "Sessions",
    "Usage",
    "Utilization",
];

fn parse(text: &str) -> Result<Vec<Entry<'_>>, String> {
    let mut class = None;
    let mut shared_reason = None;
    let mut entries = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        let wrong = |what: &str| format!("hook/bindings/memory.txt:{number}: {what}: {line}");
        if line.is_empty() {
            shared_reason = None;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(reason) = line.strip_prefix(':') {
            shared_reason = Some(reason.trim());
            continue;
        }
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            let known = Class::ALL.into_iter().find(|(known, _)| *known == name);
            class = Some(known.ok_or_else(|| wrong("no such class"))?.1);
            continue;
        }
        let class = class.ok_or_else(|| wrong("a name before the first class"))?;
        let (names, reason) = match line.split_once(':') {
            Some((names, reason)) => (names, Some(reason.trim())),
            None => (line, shared_reason),
        };
        let mut entry = Entry {
            class,
            names: Vec::new(),
            is_elsewhere: false,
            reason,
        };
        for word in names.split_whitespace() {
            match (entry.names.first(), word) {
                (Some(_), "(elsewhere)") => entry.is_elsewhere = true,
                (Some(first), _) if word.starts_with('_') => {
                    let form = format!("{first}{word}");
                    entry.names.push(form);
                }
                (None, _) if word.starts_with("cu") || word.starts_with("nvml") => {
                    entry.names.push(word.into());
                }
                _ => return Err(wrong("neither a name nor a form of the one before it")),
            }
        }
        if entry.reason == Some("") {
            return Err(wrong("a colon without a reason"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn compare(
    entries: &[Entry<'_>],
    rows: &BTreeSet<&str>,
    headers: &BTreeSet<String>,
) -> Result<(), String> {
    let mut wrong: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut say = |what, name| wrong.entry(what).or_default().push(name);
    let mut exact: BTreeMap<&str, &Entry<'_>> = BTreeMap::new();
    let mut patterns: BTreeMap<&str, bool> = BTreeMap::new();
    for entry in entries {
        for name in &entry.names {
            if let Some(start) = name.strip_suffix('*') {
                if entry.class != Class::Harmless {
                    say(
                        "patterns are for what is harmless; name each of these",
                        name,
                    );
                }
                patterns.insert(start, false);
                continue;
            }
            if exact.insert(name, entry).is_some() {
                say("classed twice in hook/bindings/memory.txt", name);
            }
            match (headers.contains(name), entry.is_elsewhere) {
                (false, false) => say(
                    "classed in hook/bindings/memory.txt and in no header; if a header that is not read has it, write \
                     (elsewhere) behind it",
                    name,
                ),
                (true, true) => say("not elsewhere: a header has it", name),
                _ => {}
            }
            let is_known = rows.contains(name.as_str()) || entry.reason.is_some();
            if entry.class.is_counted() && !is_known {
                say(
                    "to be counted, and neither in hook/bindings/rows.txt nor with a reason in hook/bindings/memory.txt",
                    name,
                );
            }
        }
    }
    let bases: BTreeSet<&str> = rows.iter().map(|row| base(row)).collect();
    for name in headers {
        let entry = exact.get(name.as_str());
        if entry.is_none() {
            let tells = TELLING.iter().any(|word| name.contains(word));
            let mut starts = patterns.iter_mut();
            match starts.find(|(start, _)| !tells && name.starts_with(**start)) {
                Some((_, used)) => *used = true,
                None => say(
                    "in a header and not classed: say in hook/bindings/memory.txt what it does to device memory",
                    name,
                ),
            }
        }
        if gives_work(name)
            && !rows.contains(name.as_str())
            && entry.is_none_or(|entry| entry.reason.is_none())
        {
            say(
                "by its name gives the GPU work, and neither in hook/bindings/rows.txt nor with a reason in \
                 hook/bindings/memory.txt",
                name,
            );
        }
        let is_form = bases.contains(base(name)) && !rows.contains(name.as_str());
        if is_form && entry.is_none_or(|entry| entry.reason.is_none()) {
            say(
                "a form of a function in hook/bindings/rows.txt, by which programs would come to the driver: give it a row",
                name,
            );
        }
    }
    for (start, used) in patterns {
        if !used {
            say("a pattern that matches nothing", start);
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let lines = wrong
        .into_iter()
        .map(|(what, names)| format!("{what}: {}", names.join(", ")));
    Err(lines.collect::<Vec<_>>().join("\n"))
}

/// A function's name without what tells its forms apart: `_v2`, `_ptsz`, `_ptds`.
fn base(name: &str) -> &str {
    let name = name
        .strip_suffix("_ptsz")
        .or(name.strip_suffix("_ptds"))
        .unwrap_or(name);
    let before = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    match before.strip_suffix("_v") {
        Some(base) if before.len() < name.len() => base,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        # What a test needs.
        [takes]
        cuMemAlloc _v2
        cuStreamCreate : next to nothing
        [harmless]
        cuMemcpy _ptds : of old programs
        cuTexRef*
        cuTexRefCreate
        cuProfilerStart (elsewhere)
    ";
    const HEADER: [&str; 7] = [
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemcpy",
        "cuMemcpy_ptds",
        "cuStreamCreate",
        "cuTexRefCreate",
        "cuTexRefSetFlags",
    ];
    const ROWS: [&str; 2] = ["cuMemAlloc", "cuMemAlloc_v2"];

    fn with(text: &str, rows: &[&'static str], more: &[&str], less: &[&str]) -> String {
        let names = HEADER
            .iter()
            .chain(more)
            .filter(|name| !less.contains(name));
        let headers = names.map(ToString::to_string).collect();
        let rows = rows.iter().copied().collect();
        match parse(text).and_then(|entries| compare(&entries, &rows, &headers)) {
            Ok(()) => String::new(),
            Err(wrong) => wrong,
        }
    }

    #[test]
    fn the_list_can_be_read() {
        let all = entries().unwrap();
        for (name, class) in Class::ALL {
            assert!(all.iter().any(|entry| entry.class == class), "{name}");
        }
        let allocate = all.iter().find(|entry| entry.names[0] == "cuMemAlloc");
        assert_eq!(allocate.unwrap().names, ["cuMemAlloc", "cuMemAlloc_v2"]);
    }

    #[test]
    fn all_rows_are_in_the_list() {
        let all = entries().unwrap();
        let names: BTreeSet<&str> = all
            .iter()
            .flat_map(|entry| &entry.names)
            .map(String::as_str)
            .collect();
        let missing: Vec<&str> = crate::rows().filter(|row| !names.contains(row)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_function_without_a_class_is_an_error() {
        assert_eq!(with(TEXT, &ROWS, &[], &[]), "");
        let wrong = with(TEXT, &ROWS, &["cuMemTakeAll"], &[]);
        assert!(wrong.starts_with("in a header and not classed"), "{wrong}");
        assert!(wrong.ends_with(": cuMemTakeAll"), "{wrong}");
    }

    #[test]
    fn a_new_form_of_a_row_is_an_error_until_it_has_a_reason() {
        let text = format!("{TEXT}\ncuMemAlloc_v3 : tells nothing");
        assert_eq!(with(&text, &ROWS, &["cuMemAlloc_v3"], &[]), "");
        let text = format!("{TEXT}\ncuMemAlloc_v3");
        let wrong = with(&text, &ROWS, &["cuMemAlloc_v3"], &[]);
        assert!(wrong.contains("give it a row: cuMemAlloc_v3"), "{wrong}");
    }

    #[test]
    fn what_takes_memory_is_a_row_or_has_a_reason() {
        let line = "cuStreamCreate : next to nothing";
        let text = TEXT.replace(line, ": next to nothing\ncuStreamCreate");
        assert_eq!(with(&text, &ROWS, &[], &[]), "");
        let text = TEXT.replace(line, ": next to nothing\n\ncuStreamCreate");
        let wrong = with(&text, &ROWS, &[], &[]);
        assert!(wrong.starts_with("to be counted"), "{wrong}");
        assert!(wrong.ends_with(": cuStreamCreate"), "{wrong}");
    }

    #[test]
    fn a_call_that_gives_work_is_a_row_or_has_a_reason() {
        for name in ["cuGraphDeviceLaunch_v2", "cuMemset4D", "cuMemcpyFast"] {
            let text = format!("{TEXT}\n{name} : no program can call it");
            assert_eq!(with(&text, &ROWS, &[name], &[]), "");
            let text = format!("{TEXT}\n{name}");
            let wrong = with(&text, &ROWS, &[name], &[]);
            assert!(
                wrong.starts_with("by its name gives the GPU work"),
                "{wrong}"
            );
            assert!(wrong.ends_with(&format!(": {name}")), "{wrong}");
        }
        assert!(!gives_work("cuGraphAddMemcpyNode"));
    }

    #[test]
    fn a_pattern_does_not_stand_for_a_name_that_tells_of_memory() {
        let text = TEXT.replace("cuTexRefCreate", "");
        let wrong = with(&text, &ROWS, &[], &[]);
        assert!(
            wrong.contains("not classed") && wrong.ends_with("cuTexRefCreate"),
            "{wrong}"
        );
        let text = TEXT.replace("cuStreamCreate :", "cuStream* :");
        let wrong = with(&text, &ROWS, &[], &[]);
        assert!(wrong.contains("name each of these: cuStream*"), "{wrong}");
    }

    #[test]
    fn a_name_that_no_header_has_is_an_error() {
        let wrong = with(TEXT, &ROWS, &[], &["cuMemcpy_ptds"]);
        assert!(
            wrong.contains("in no header") && wrong.ends_with(": cuMemcpy_ptds"),
            "{wrong}"
        );
        let wrong = with(TEXT, &ROWS, &["cuProfilerStart"], &[]);
        assert!(
            wrong.contains("not elsewhere") && wrong.ends_with(": cuProfilerStart"),
            "{wrong}"
        );
        let wrong = with(TEXT, &ROWS, &[], &["cuTexRefSetFlags"]);
        assert_eq!(wrong, "a pattern that matches nothing: cuTexRef");
    }

    #[test]
    fn lines_that_say_nothing_are_errors() {
        for (text, what) in [
            ("cuMemAlloc", "before the first class"),
            ("[eats]", "no such class"),
            ("[takes]\ncuMemAlloc cuMemFree", "neither a name nor a form"),
            ("[takes]\ncuMemAlloc :", "a colon without a reason"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(
                wrong.contains(what) && wrong.contains("memory.txt:"),
                "{wrong}"
            );
        }
        let wrong = with(&format!("{TEXT}\ncuMemcpy : again"), &ROWS, &[], &[]);
        assert_eq!(wrong, "classed twice in hook/bindings/memory.txt: cuMemcpy");
    }

    #[test]
    fn forms_have_one_base() {
        for name in [
            "cuMemcpy",
            "cuMemcpy_v2",
            "cuMemcpy_ptds",
            "cuMemcpy_v2_ptds",
        ] {
            assert_eq!(base(name), "cuMemcpy");
        }
        assert_eq!(base("cuMemcpy2D_v2"), "cuMemcpy2D");
    }
}
