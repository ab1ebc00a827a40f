//! `cargo xtask gates`: what the library that is loaded into every process of a node must not be or have, and which C
//! library all programs may ask for.

mod floors;
mod library;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use library::Library;

use crate::stage::HOOK;

/// The largest that the library may be. Every process maps it; a jump means that a part of std came in, or text of
/// messages that it never prints.
const CEILING: usize = 384 * 1024;

/// The most mappings: one for code and constants, one for data.
const MAPPINGS: usize = 2;

/// All that is loaded with the library: each further one costs every exec on the node.
const NEEDED: &str = "libc.so.6";

/// The newest glibc that the library may ask for: that of the oldest distributions still in use on GPU nodes.
const FLOOR: &[u32] = &[2, 17];

/// The functions that the library exports besides the rows of the hook's table: programs look the driver's functions up
/// by two of them, and libcuda asks the kernel driver by the third.
const LOOKUPS: [&str; 3] = ["dlsym", "dlvsym", "ioctl"];

/// The functions of libc that the library may call, and what for.
const LIBC: &[(&str, &str)] = &[
    ("__environ", "a variable for the driver alone"),
    ("__errno_location", "what was wrong with a system call"),
    ("bcmp", "written by the compiler"),
    ("dl_iterate_phdr", "where glibc's own dlsym lies"),
    ("getauxval", "whether the process is set-uid"),
    ("getenv", "limits outside of jobs"),
    ("memcmp", "written by the compiler"),
    ("memcpy", "written by the compiler"),
    ("memmove", "written by the compiler"),
    ("memset", "written by the compiler"),
    ("strlen", "written by the compiler"),
    ("syscall", "everything else that is asked of the kernel"),
];

/// Symbols that only a panic needs.
const PANIC: [&str; 3] = ["abort", "rust_eh_personality", "_Unwind_Resume"];

/// Checks this library, or the one in target/stage and all programs there.
pub(crate) fn check(path: Option<PathBuf>) -> Result<()> {
    if path.is_none() {
        floors::check(&softmig_tests::softmig::shipped())?;
    }
    let path = path.unwrap_or_else(|| softmig_tests::softmig::shipped().join(HOOK));
    ensure!(
        path.exists(),
        "{} does not exist: run `cargo xtask stage`",
        path.display()
    );
    let library = Library::read(&path)?;
    let names: BTreeSet<&str> = softmig_bindings::rows().chain(LOOKUPS).collect();
    let wrong = complaints(&library, &names);
    if !wrong.is_empty() {
        bail!("{}:\n  {}", path.display(), wrong.join("\n  "));
    }
    println!(
        "{}: {} bytes, {} exports, no reachable panic, one initializer.",
        path.display(),
        library.size,
        library.exported.len()
    );
    Ok(())
}

/// Every gate that the library fails: what was found, and where to look.
fn complaints(library: &Library, names: &BTreeSet<&str>) -> Vec<String> {
    let gates = [
        size(library),
        panics(library),
        calls(library),
        needed(library),
        exports(library, names),
        versions(library),
        loading(library),
        segments(library),
        search(library),
    ];
    gates.into_iter().flatten().collect()
}

fn size(library: &Library) -> Option<String> {
    (library.size > CEILING).then(|| {
        format!(
            "{} bytes, more than {CEILING}: `nm -S --size-sort` on a build without strip tells what grew",
            library.size
        )
    })
}

fn panics(library: &Library) -> Option<String> {
    let found = PANIC
        .iter()
        .find(|name| library.undefined.contains(**name))?;
    Some(format!(
        "asks for {found}, so a panic can be reached: look for an index, an arithmetic operator or an unwrap in hook/src"
    ))
}

fn calls(library: &Library) -> Option<String> {
    let known = |name: &str| PANIC.contains(&name) || LIBC.iter().any(|(libc, _)| *libc == name);
    let unknown = list(library.undefined.iter().filter(|name| !known(name)))?;
    Some(format!(
        "calls {unknown}: do without, or add it to LIBC in xtask/src/gates.rs with the reason"
    ))
}

fn needed(library: &Library) -> Option<String> {
    (library.needed != [NEEDED]).then(|| {
        format!(
            "needs {:?} and not {NEEDED} alone: look at #[link] and at the flags in hook/build.rs",
            library.needed
        )
    })
}

fn exports(library: &Library, names: &BTreeSet<&str>) -> Option<String> {
    let extra = library
        .exported
        .iter()
        .filter(|name| !names.contains(name.as_str()));
    let missing = names
        .iter()
        .filter(|name| !library.exported.contains(**name));
    match (list(extra), list(missing)) {
        (None, None) => None,
        (extra, missing) => Some(format!(
            "exports functions that the table does not have: {}; rows that it does not export: {} (compare hook/bindings/rows.txt \
             with the hook's table)",
            extra.as_deref().unwrap_or("none"),
            missing.as_deref().unwrap_or("none")
        )),
    }
}

fn versions(library: &Library) -> Option<String> {
    let newer = library
        .versions
        .iter()
        .filter(|name| !is_at_most(name, FLOOR));
    let newer = list(newer)?;
    Some(format!(
        "asks for {newer}, newer than glibc {}.{}: `objdump -T` tells for which function; look it up at run time",
        FLOOR[0], FLOOR[1]
    ))
}

/// Whether every glibc from the floor on has the version; names without a number are for glibc's own parts.
fn is_at_most(version: &str, floor: &[u32]) -> bool {
    let Some(numbers) = version.strip_prefix("GLIBC_") else {
        return false;
    };
    let numbers: Result<Vec<u32>, _> = numbers.split('.').map(str::parse).collect();
    numbers.is_ok_and(|numbers| numbers.as_slice() <= floor)
}

fn loading(library: &Library) -> Option<String> {
    let runs = list(&library.runs)?;
    Some(format!(
        "has {runs}, so other code than hook/src/exports/load.rs runs when a process starts or ends: look for constructors, \
         and for -nostartfiles in hook/build.rs, without which the compiler adds its own"
    ))
}

fn segments(library: &Library) -> Option<String> {
    let wrong = [
        (
            library.has_tls,
            "thread-local storage, which every thread of every process pays for (look for thread_local)",
        ),
        (
            library.has_executable_stack,
            "an executable stack (look for assembly without a .note.GNU-stack section)",
        ),
        (
            library.has_writable_code,
            "code that can be written to (look for link_section)",
        ),
        (
            library.has_text_relocations,
            "relocations in code (look for assembly with absolute addresses)",
        ),
        (
            library.mappings > MAPPINGS,
            "more mappings than one for code and one for data (-z noseparate-code, -z norelro in hook/build.rs)",
        ),
        (
            !library.binds_now,
            "symbols that are bound when they are first used (-z now)",
        ),
    ];
    let wrong = wrong
        .iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, what)| what);
    Some(format!("has {}", list(wrong)?))
}

fn search(library: &Library) -> Option<String> {
    let folders = list(&library.search)?;
    Some(format!(
        "searches {folders} for libraries: look for -rpath in RUSTFLAGS and hook/build.rs"
    ))
}

/// The names with commas between them, if there are any.
fn list<T: ToString>(names: impl IntoIterator<Item = T>) -> Option<String> {
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
