//! Each gate is shown a small library that it must refuse, so that none of them passes everything.

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::*;

/// A library as the hook should be: one row, the two lookups, one call into libc.
const SOURCE: &str = "
    #define HIDDEN __attribute__((visibility(\"hidden\")))
    char *getenv(const char *name);
    int cuInit(unsigned flags) { return getenv(\"X\") != 0; }
    void *dlsym(void *handle, const char *name) { return 0; }
    void *dlvsym(void *handle, const char *name, const char *version) { return 0; }
";
const NAMES: [&str; 3] = ["cuInit", "dlsym", "dlvsym"];

/// Builds the library with a change of its source, and with further words for the linker.
fn build(folder: &TempDir, change: &str, words: &[&str]) -> PathBuf {
    let source = folder.path().join("library.c");
    let library = folder.path().join("library.so");
    std::fs::write(&source, format!("{SOURCE}{change}")).unwrap();
    let status = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-Os",
            "-w",
            "-nostartfiles",
            "-ftls-model=initial-exec",
        ])
        .args([
            "-Wl,-z,norelro",
            "-Wl,-z,now",
            "-Wl,-z,noexecstack",
            "-Wl,-z,noseparate-code",
        ])
        .args(words)
        .arg(&source)
        .arg("-o")
        .arg(&library)
        .status()
        .expect("cc, which Rust links with");
    assert!(status.success());
    library
}

fn complaints_of(change: &str, words: &[&str]) -> Vec<String> {
    let folder = TempDir::new().unwrap();
    let library = Library::read(&build(&folder, change, words)).unwrap();
    complaints(&library, &BTreeSet::from(NAMES))
}

/// Exactly one gate is closed, and its words hold these.
#[track_caller]
fn refused(change: &str, words: &[&str], reason: &str) {
    let wrong = complaints_of(change, words);
    assert!(
        matches!(&wrong[..], [one] if one.contains(reason)),
        "{reason}: {wrong:?}"
    );
}

#[test]
fn a_library_as_it_should_be_passes() {
    assert_eq!(complaints_of("", &[]), [""; 0]);
}

#[test]
fn a_large_library_is_refused() {
    refused(
        "static const char text[393216] = {1}; HIDDEN int f(int at) { return text[at]; }",
        &[],
        "bytes, more than 393216",
    );
}

#[test]
fn a_reachable_panic_is_refused() {
    refused(
        "void abort(void); HIDDEN void f(void) { abort(); }",
        &[],
        "abort",
    );
    refused(
        "void rust_eh_personality(void); HIDDEN void f(void) { rust_eh_personality(); }",
        &[],
        "rust_eh_personality",
    );
}

#[test]
fn an_unknown_call_is_refused() {
    refused(
        "int system(const char *); HIDDEN void f(void) { system(\"\"); }",
        &[],
        "calls system:",
    );
}

#[test]
fn a_further_library_is_refused() {
    refused("", &["-Wl,--no-as-needed", "-lm"], "libm.so.6");
    refused("", &["-nostdlib"], "needs []");
}

#[test]
fn an_export_that_is_no_row_is_refused() {
    refused(
        "int cuLaunchKernel(void) { return 0; }",
        &[],
        "exports functions that the table does not have: cuLaunchKernel;",
    );
}

#[test]
fn a_row_that_is_not_exported_is_refused() {
    refused(
        "int cuInit(unsigned) HIDDEN;",
        &[],
        "does not export: cuInit ",
    );
}

/// The words for the linker by which a library asks for this version. With a libc of our own, since a real one has no new
/// version of the functions that the library may call.
fn asking_for(folder: &TempDir, version: &str) -> Vec<String> {
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("libc.c"), "char *getenv(const char *name) { return 0; }").unwrap();
    std::fs::write(at("libc.map"), format!("{version} {{ getenv; }};")).unwrap();
    let status = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-w",
            "-Wl,-soname,libc.so.6",
        ])
        .arg(at("libc.c"))
        .arg(format!("-Wl,--version-script={}", at("libc.map").display()))
        .arg("-o")
        .arg(at("libc.so.6"))
        .status()
        .unwrap();
    assert!(status.success());
    let libc = at("libc.so.6").display().to_string();
    vec!["-nostdlib".into(), "-Wl,--no-as-needed".into(), libc]
}

#[test]
fn a_new_glibc_is_refused() {
    let folder = TempDir::new().unwrap();
    for (version, is_refused) in [
        ("GLIBC_2.2.5", false),
        ("GLIBC_2.17", false),
        ("GLIBC_2.17.1", true),
        ("GLIBC_2.18", true),
        ("GLIBC_2.34", true),
        ("GLIBC_3.0", true),
        ("GLIBC_PRIVATE", true),
        ("GCC_3.0", true),
    ] {
        let words = asking_for(&folder, version);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if is_refused {
            refused("", &words, &format!("asks for {version},"));
        } else {
            assert_eq!(complaints_of("", &words), [""; 0], "{version}");
        }
    }
}

/// The verdict of the tree's gate on a tree with this file in it.
fn floors_of(path: &str, words: &[&str]) -> Result<(), String> {
    let folder = TempDir::new().unwrap();
    let stage = folder.path().join("stage");
    let at = stage.join(path);
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    std::fs::copy(build(&folder, "", words), at).unwrap();
    std::fs::write(stage.join("usr/text"), "no program").unwrap();
    floors::check(&stage).map_err(|error| error.to_string())
}

#[test]
fn programs_may_ask_for_a_newer_glibc_than_what_others_load() {
    let folder = TempDir::new().unwrap();
    let words = |version| asking_for(&folder, version);
    for (path, version, is_refused) in [
        ("usr/bin/softmig", "GLIBC_2.28", false),
        ("usr/bin/softmig", "GLIBC_2.29", true),
        ("usr/libexec/softmig-monitor", "GLIBC_2.34", true),
        ("usr/lib/softmig/lua/5.4/module.so", "GLIBC_2.17", false),
        ("usr/lib/softmig/lua/5.4/module.so", "GLIBC_2.28", true),
    ] {
        let words = words(version);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match floors_of(path, &words) {
            Ok(()) => assert!(!is_refused, "{path} {version}"),
            Err(said) => {
                assert!(is_refused, "{said}");
                assert!(said.contains(path), "{said}");
                assert!(said.contains(&format!("asks for {version},")), "{said}");
            }
        }
    }
}

#[test]
fn a_program_that_needs_more_than_glibc_is_refused() {
    let folder = TempDir::new().unwrap();
    let other = folder.path().join("libother.so.1");
    let status = Command::new("cc")
        .args([
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-Wl,-soname,libother.so.1",
            "-x",
            "c",
            "/dev/null",
            "-o",
        ])
        .arg(&other)
        .status()
        .unwrap();
    assert!(status.success());
    let words = ["-Wl,--no-as-needed", other.to_str().unwrap()];
    let said = floors_of("usr/bin/softmig", &words).unwrap_err();
    assert!(said.contains("needs libother.so.1,"), "{said}");
}

#[test]
fn a_tree_without_programs_is_an_error() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("text"), "no program").unwrap();
    assert!(floors::check(folder.path()).is_err());
}

#[test]
fn code_that_runs_at_load_is_refused() {
    refused(
        "__attribute__((constructor)) static void f(void) { cuInit(0); }
         __attribute__((constructor)) static void g(void) { cuInit(0); }",
        &[],
        "DT_INIT_ARRAY",
    );
    refused(
        "__attribute__((destructor)) static void f(void) { cuInit(0); }",
        &[],
        "DT_FINI_ARRAY",
    );
    refused("", &["-Wl,-init,cuInit"], "DT_INIT,");
    refused("", &["-Wl,-fini,cuInit"], "DT_FINI,");
}

#[test]
fn thread_local_storage_is_refused() {
    refused(
        "static __thread int each; HIDDEN int f(void) { return ++each; }",
        &[],
        "thread-local",
    );
}

#[test]
fn memory_that_should_be_read_only_is_refused() {
    refused("", &["-Wl,-z,execstack"], "executable stack");
    refused(
        "__asm__(\".section .both,\\\"awx\\\",@progbits\\n.byte 0\\n.text\");",
        &["-Wl,--no-warn-rwx-segments"],
        "can be written",
    );
    refused(
        "__asm__(\".text\\n.quad cuInit\");",
        &["-Wl,-z,notext"],
        "relocations in code",
    );
    refused("", &["-Wl,-z,lazy"], "when they are first used");
}

#[test]
fn more_mappings_than_two_are_refused() {
    refused("", &["-Wl,-z,relro"], "more mappings");
    refused("", &["-Wl,-z,separate-code"], "more mappings");
}

#[test]
fn a_search_path_is_refused() {
    refused("", &["-Wl,-rpath,/opt/lib"], "/opt/lib");
    refused(
        "",
        &["-Wl,-rpath,/opt/lib", "-Wl,--disable-new-dtags"],
        "/opt/lib",
    );
}

#[test]
fn what_is_no_library_is_an_error() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "text").unwrap();
    assert!(Library::read(&file).is_err());
    assert!(Library::read(&folder.path().join("missing")).is_err());
}
