//! `softmig install --hook` and `uninstall --hook` on a machine of their own: good libraries and broken ones, files of
//! others, interruptions at every step.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use softmig_tests::machine::{Machine, Root};
use softmig_tests::softmig::stage;
use softmig_tests::{Output, Slurm, on_each_slurm};

on_each_slurm!(
    the_library_is_in_every_new_process_and_goes_again,
    a_newer_library_comes_under_running_processes,
    the_shipped_library_installs_from_its_own_tree,
);

const PRELOAD: &str = "/etc/ld.so.preload";
const LIBRARY: &str = "/usr/lib/softmig/libsoftmig.so";
/// Not in `/usr/bin`, so that the library's place and the one that it comes from are two.
const SOFTMIG: &str = "/opt/softmig/bin/softmig";

/// Libraries built for a test.
struct Workshop(tempfile::TempDir);

impl Workshop {
    fn open() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a library of this source.
    fn build(&self, name: &str, source: &str, flags: &[&str]) -> Result<PathBuf> {
        let (code, library) = (self.path("library.c"), self.path(name));
        std::fs::write(&code, format!("#include <stdlib.h>\n{source}"))?;
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &code])
            .args(flags)
            .status()
            .context("running cc")?;
        ensure!(status.success(), "cc {name}: {status}");
        Ok(library)
    }

    /// One that does no harm; different numbers make different files.
    fn harmless(&self, number: u32) -> Result<PathBuf> {
        self.build(
            &format!("harmless{number}.so"),
            &format!("int softmig_test_{number} = {number};"),
            &[],
        )
    }

    /// One that runs this when it is loaded.
    fn at_load(&self, name: &str, code: &str) -> Result<PathBuf> {
        let headers = "#include <stdio.h>\n#include <string.h>\n#include <signal.h>\n#include <unistd.h>\n#include <sys/auxv.h>\n";
        let source =
            format!("{headers}__attribute__((constructor)) static void at_load(void) {{ {code} }}");
        self.build(name, &source, &[])
    }
}

/// A machine with the command and these libraries, which are then in `/root`.
fn root(slurm: Slurm, libraries: &[&Path]) -> Result<Root> {
    let mut root = Root::new(slurm).install(stage().join("usr/bin/softmig"), SOFTMIG, 0o755);
    for library in libraries {
        root = root.install(library, in_machine(library)?, 0o644);
    }
    Ok(root)
}

fn in_machine(library: &Path) -> Result<PathBuf> {
    let name = library.file_name().context("a library without a name")?;
    Ok(Path::new("/root").join(name))
}

fn softmig(machine: &Machine, words: &[&str]) -> Result<Output> {
    machine
        .command("root", &[&[SOFTMIG], words].concat())
        .output()
}

fn install(machine: &Machine, library: &Path, more: &[&str]) -> Result<Output> {
    let path = in_machine(library)?.display().to_string();
    softmig(
        machine,
        &[&["install", "--hook", "--from", &path], more].concat(),
    )
}

fn shell(machine: &Machine, script: &str) -> Result<String> {
    machine
        .command("root", &["sh", "-c", script])
        .output()?
        .ok()
}

/// All that an installation could change, in words.
fn state(machine: &Machine) -> Result<String> {
    shell(
        machine,
        &format!(
            "ls -la --time-style=+ {PRELOAD} /etc/.*softmig* 2>/dev/null; cat {PRELOAD} 2>/dev/null; \
             ls -lA --time-style=+ /usr/lib/softmig 2>/dev/null; sha256sum {LIBRARY} 2>/dev/null; true"
        ),
    )
}

/// Fails unless programs run as on any machine; tells which library they have.
fn healthy(machine: &Machine) -> Result<bool> {
    for user in ["root", "alice"] {
        let ran = machine
            .command(user, &["sh", "-c", "true; exit 7"])
            .output()?;
        ensure!(
            ran.status.code() == Some(7) && ran.stderr.is_empty(),
            "{user}: {ran}"
        );
    }
    let ran = machine
        .command("alice", &["cat", "/proc/self/maps"])
        .output()?;
    ensure!(ran.success() && ran.stderr.is_empty(), "{ran}");
    Ok(ran.stdout.contains(LIBRARY))
}

fn inode(machine: &Machine, path: &str) -> Result<String> {
    shell(machine, &format!("stat -c '%i %U %G %a' {path}"))
}

fn the_library_is_in_every_new_process_and_goes_again(slurm: Slurm) -> Result<()> {
    let workshop = Workshop::open()?;
    let library = workshop.harmless(1)?;
    let machine = root(slurm, &[&library])?.start()?;
    let before = state(&machine)?;
    assert!(!healthy(&machine)?);

    let said = install(&machine, &library, &[])?.ok()?;
    assert!(
        said.contains("/etc/softmig/node.conf: the mode is observe"),
        "{said}"
    );
    assert!(healthy(&machine)?, "{said}");
    assert_eq!(
        inode(&machine, LIBRARY)?.split_once(' ').unwrap().1,
        "root root 755\n"
    );
    let preload = machine.read(PRELOAD)?.context("no list")?;
    assert_eq!(preload.lines().last(), Some(LIBRARY));
    assert_eq!(
        inode(&machine, PRELOAD)?.split_once(' ').unwrap().1,
        "root root 644\n"
    );

    // Once more, and nothing is touched.
    let once = [
        inode(&machine, LIBRARY)?,
        inode(&machine, PRELOAD)?,
        state(&machine)?,
    ];
    install(&machine, &library, &[])?.ok()?;
    let twice = [
        inode(&machine, LIBRARY)?,
        inode(&machine, PRELOAD)?,
        state(&machine)?,
    ];
    assert_eq!(once, twice);

    let sleeper = machine.command("alice", &["sleep", "100"]).spawn()?;
    wait_for_maps(&machine, LIBRARY)?;
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    assert!(!healthy(&machine)?);
    assert_eq!(state(&machine)?.replace("total 0\n", ""), before);
    // Its node goes on knowing what it is to do, and who runs keeps what he has.
    assert!(machine.read("/etc/softmig/node.conf")?.is_some());
    wait_for_maps(&machine, &format!("{LIBRARY} (deleted)"))?;
    drop(sleeper);
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    Ok(())
}

/// Waits until the one `sleep` in the machine has this in its memory.
fn wait_for_maps(machine: &Machine, path: &str) -> Result<()> {
    for _ in 0..100 {
        let maps = shell(machine, "cat /proc/$(pgrep -x sleep)/maps; true")?;
        if maps.lines().any(|line| line.ends_with(path)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    anyhow::bail!("the sleeping process never had {path}")
}

fn a_newer_library_comes_under_running_processes(slurm: Slurm) -> Result<()> {
    let workshop = Workshop::open()?;
    let (old, new) = (workshop.harmless(1)?, workshop.harmless(2)?);
    let machine = root(slurm, &[&old, &new])?.start()?;
    install(&machine, &old, &["--mode", "off"])?.ok()?;
    let preload = inode(&machine, PRELOAD)?;
    let sleeper = machine.command("alice", &["sleep", "100"]).spawn()?;
    wait_for_maps(&machine, LIBRARY)?;
    let said = install(&machine, &new, &["--mode", "enforce"])?.ok()?;
    assert!(said.contains("node.conf: stays as it is"), "{said}");
    wait_for_maps(&machine, &format!("{LIBRARY} (deleted)"))?;
    drop(sleeper);
    assert!(healthy(&machine)?);
    assert_eq!(inode(&machine, PRELOAD)?, preload);
    let conf = machine
        .read("/etc/softmig/node.conf")?
        .context("no node.conf")?;
    assert!(conf.contains("\nSOFTMIG_NODE=off\n"), "{conf}");
    Ok(())
}

fn the_shipped_library_installs_from_its_own_tree(slurm: Slurm) -> Result<()> {
    let machine = Root::new(slurm).stage(stage()).start()?;
    let shipped = inode(&machine, LIBRARY)?;
    let softmig = |words: &[&str]| {
        let words = [&["softmig"], words].concat();
        machine.command("root", &words).output()?.ok()
    };
    let said = softmig(&["install", "--hook"])?;
    assert!(said.contains("none behaves differently"), "{said}");
    assert!(healthy(&machine)?);
    assert_eq!(inode(&machine, LIBRARY)?, shipped);
    let said = softmig(&["node"])?;
    for part in [
        "mode:      observe, since 20",
        "library:   /usr/lib/softmig/libsoftmig.so is in /etc/ld.so.preload",
        "would have refused nothing, by the logs of 0 jobs",
    ] {
        assert!(said.contains(part), "{said}");
    }
    softmig(&["uninstall", "--hook"])?;
    assert!(!healthy(&machine)?);
    Ok(())
}

#[test]
fn what_others_wrote_into_the_list_stays_as_it_is() {
    let workshop = Workshop::open().unwrap();
    let (library, other) = (workshop.harmless(1).unwrap(), workshop.harmless(2).unwrap());
    let theirs = "# ours since 2019\n/root/harmless2.so:/root/harmless2.so\t\n\n/root/harmless2.so";
    let machine = root(Slurm::V22_05, &[&library, &other])
        .unwrap()
        .file(PRELOAD, theirs)
        .start()
        .unwrap();
    shell(
        &machine,
        &format!("chmod 755 /root; chmod 444 {PRELOAD}; chgrp alice {PRELOAD}"),
    )
    .unwrap();
    install(&machine, &library, &[]).unwrap().ok().unwrap();
    assert!(healthy(&machine).unwrap());
    assert_eq!(
        machine.read(PRELOAD).unwrap().unwrap(),
        format!("{theirs}\n{LIBRARY}\n")
    );
    assert_eq!(
        inode(&machine, PRELOAD).unwrap().split_once(' ').unwrap().1,
        "root alice 444\n"
    );
    softmig(&machine, &["uninstall", "--hook"])
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(
        machine.read(PRELOAD).unwrap().unwrap(),
        format!("{theirs}\n")
    );
    assert!(!healthy(&machine).unwrap());
}

#[test]
fn a_library_that_does_harm_is_found_out_before_anything_changes() {
    let workshop = Workshop::open().unwrap();
    let good = workshop.harmless(1).unwrap();
    let bytes = std::fs::read(&good).unwrap();
    let made = |name: &str, bytes: &[u8]| {
        std::fs::write(workshop.path(name), bytes).unwrap();
        workshop.path(name)
    };
    let patched = |name: &str, at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        made(name, &bytes)
    };
    let stub = workshop
        .build("libnotthere.so", "int there(void) { return 1; }", &[])
        .unwrap();
    let at_load = |name: &str, code: &str| workshop.at_load(name, code).unwrap();
    let cases = [
        (
            made("text.so", b"not a library at all\n"),
            "standard error: ERROR: ld.so: object",
        ),
        // The machine is aarch64, the class 32 bits.
        (
            patched("arm.so", 18, 183),
            "standard error: ERROR: ld.so: object",
        ),
        (
            patched("class.so", 4, 1),
            "standard error: ERROR: ld.so: object",
        ),
        (made("half.so", &bytes[..bytes.len() / 2]), ""),
        (
            workshop
                .build(
                    "needy.so",
                    "int there(void); int f(void) { return there(); }",
                    &[stub.to_str().unwrap()],
                )
                .unwrap(),
            "libnotthere.so",
        ),
        (
            workshop
                .build(
                    "missing.so",
                    "int not_there(void); int f(void) { return not_there(); }",
                    &[],
                )
                .unwrap(),
            "undefined symbol: not_there",
        ),
        (
            at_load("exits.so", "_exit(3);"),
            "ends with exit status: 3 instead of exit status: 0",
        ),
        (
            at_load("crashes.so", "raise(SIGSEGV);"),
            "signal: 11 (SIGSEGV)",
        ),
        (
            at_load("complains.so", "fputs(\"\\033[2Jno\\n\", stderr);"),
            "standard error: \\x1b[2Jno",
        ),
        (
            at_load("talks.so", "puts(\"hello\");fflush(stdout);"),
            "writes something else: hello",
        ),
        (
            at_load("hangs.so", "for (;;) pause();"),
            "does not come to its end",
        ),
        (
            at_load("set_uid.so", "if (getauxval(AT_SECURE)) abort();"),
            "as user nobody ends with signal: 6 (SIGABRT)",
        ),
        (
            at_load("by_list.so", "if (!getenv(\"LD_PRELOAD\")) _exit(4);"),
            "ends with exit status: 4",
        ),
        (
            at_load("users.so", "if (getuid() == 65534) _exit(5);"),
            "as user nobody ends with exit status: 5",
        ),
    ];
    let libraries: Vec<&Path> = cases.iter().map(|(library, _)| library.as_path()).collect();
    let machine = root(Slurm::V22_05, &libraries).unwrap().start().unwrap();
    // The folder stays; it is empty.
    shell(&machine, "mkdir /usr/lib/softmig").unwrap();
    let before = state(&machine).unwrap();
    for (library, complaint) in &cases {
        let refused = install(&machine, library, &[]).unwrap().refused().unwrap();
        let name = library.display();
        assert!(refused.contains(complaint), "{name}: {refused}");
        assert!(
            refused.contains("would do harm; nothing on this node uses it"),
            "{name}: {refused}"
        );
        assert!(
            refused
                .bytes()
                .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)),
            "{refused}"
        );
        assert_eq!(state(&machine).unwrap(), before, "{name}");
        assert!(!healthy(&machine).unwrap(), "{name}");
    }
    assert!(machine.read("/etc/softmig/node.conf").unwrap().is_none());
}

#[test]
fn a_library_that_does_harm_only_in_force_is_taken_back() {
    let workshop = Workshop::open().unwrap();
    let good = workshop.harmless(1).unwrap();
    // Where it is tried there is another /tmp.
    let late = workshop
        .at_load("late.so", "if (!access(\"/tmp/trap\", F_OK) && !getenv(\"LD_PRELOAD\")) fputs(\"late\\n\", stderr);")
        .unwrap();
    let machine = root(Slurm::V22_05, &[&good, &late])
        .unwrap()
        .start()
        .unwrap();
    shell(&machine, "mkdir -p /usr/lib/softmig; touch /tmp/trap").unwrap();
    for there in [None, Some(""), Some("# theirs")] {
        if let Some(text) = there {
            machine.write(PRELOAD, text).unwrap();
        }
        let before = state(&machine).unwrap();
        let refused = install(&machine, &late, &[]).unwrap().refused().unwrap();
        assert!(refused.contains("all is as it was before: '"), "{refused}");
        assert!(
            refused.contains("writes to standard error: late"),
            "{refused}"
        );
        assert_eq!(state(&machine).unwrap(), before);
        assert!(!healthy(&machine).unwrap());
    }
    // The same where an earlier one is in force.
    install(&machine, &good, &[]).unwrap().ok().unwrap();
    let before = [
        state(&machine).unwrap(),
        inode(&machine, LIBRARY).unwrap(),
        inode(&machine, PRELOAD).unwrap(),
    ];
    install(&machine, &late, &[]).unwrap().refused().unwrap();
    let after = [
        state(&machine).unwrap(),
        inode(&machine, LIBRARY).unwrap(),
        inode(&machine, PRELOAD).unwrap(),
    ];
    assert_eq!(after, before);
    assert!(healthy(&machine).unwrap());
}

#[test]
fn a_folder_or_a_list_that_others_can_change_is_refused() {
    let workshop = Workshop::open().unwrap();
    let library = workshop.harmless(1).unwrap();
    let machine = root(Slurm::V22_05, &[&library]).unwrap().start().unwrap();
    shell(
        &machine,
        "mkdir -p /opt/open/lib /opt/alice/lib; chmod 775 /opt/open; chown alice /opt/alice; ln -s /tmp /opt/link",
    )
    .unwrap();
    for (folder, complaint) in [
        (
            "/opt/open/lib",
            "/opt/open can be written to by others than root (mode 0775)",
        ),
        ("/opt/alice/lib", "/opt/alice belongs to user 2001"),
        ("/opt/alice", "/opt/alice belongs to user 2001"),
        ("/opt/link/lib", "/tmp can be written to by others"),
        ("/opt/no/lib", "make /opt/no first"),
        ("lib", "give the folder as a path from /"),
    ] {
        let refused = install(&machine, &library, &["--libdir", folder])
            .unwrap()
            .refused()
            .unwrap();
        assert!(refused.contains(complaint), "{folder}: {refused}");
    }
    for (setup, complaint) in [
        (
            format!("touch {PRELOAD}; chmod 666 {PRELOAD}"),
            "can be changed by others than root",
        ),
        (
            format!("chmod 644 {PRELOAD}; chown alice {PRELOAD}"),
            "can be changed by others than root",
        ),
        (
            format!("rm {PRELOAD}; ln -s /etc/other {PRELOAD}; touch /etc/other"),
            "is a link",
        ),
        (format!("rm {PRELOAD}; mkdir {PRELOAD}"), "is no plain file"),
        (
            format!("rmdir {PRELOAD}; echo /var/lib/shared/libsoftmig.so > {PRELOAD}"),
            "already names /var/lib/shared/libsoftmig.so",
        ),
        (
            format!("echo > {PRELOAD}; mount --bind {PRELOAD} {PRELOAD}"),
            "something is mounted there",
        ),
    ] {
        shell(&machine, &setup).unwrap();
        let before = state(&machine).unwrap();
        let refused = install(&machine, &library, &[]).unwrap().refused().unwrap();
        assert!(refused.contains(complaint), "{setup}: {refused}");
        let listed = |state: &str| state.lines().filter(|line| line.contains("/etc/")).count();
        assert_eq!(
            listed(&state(&machine).unwrap()),
            listed(&before),
            "{setup}"
        );
    }
    shell(&machine, &format!("umount {PRELOAD}; rm {PRELOAD}")).unwrap();
    let stranger = machine
        .command("alice", &[SOFTMIG, "install", "--hook"])
        .output()
        .unwrap();
    assert!(stranger.refused().unwrap().contains("try it with sudo"));
    install(&machine, &library, &["--libdir", "/opt"])
        .unwrap()
        .ok()
        .unwrap();
    assert!(
        machine
            .read(PRELOAD)
            .unwrap()
            .unwrap()
            .ends_with("/opt/libsoftmig.so\n")
    );
    let left = softmig(&machine, &["uninstall", "--hook"])
        .unwrap()
        .refused()
        .unwrap();
    assert!(left.contains("still names /opt/libsoftmig.so"), "{left}");
    softmig(&machine, &["uninstall", "--hook", "--libdir", "/opt"])
        .unwrap()
        .ok()
        .unwrap();
    assert!(machine.read(PRELOAD).unwrap().is_none());
}

#[test]
fn a_dry_run_changes_nothing_and_says_all() {
    let workshop = Workshop::open().unwrap();
    let library = workshop.harmless(1).unwrap();
    let machine = root(Slurm::V22_05, &[&library]).unwrap().start().unwrap();
    let before = state(&machine).unwrap();
    let said = install(&machine, &library, &["--dry-run"])
        .unwrap()
        .ok()
        .unwrap();
    for part in [
        "would place it as /usr/lib/softmig/libsoftmig.so",
        "would add a line",
        "mode observe",
    ] {
        assert!(said.contains(part), "{said}");
    }
    softmig(&machine, &["uninstall", "--hook", "--dry-run"])
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(state(&machine).unwrap(), before);
    assert!(machine.read("/etc/softmig/node.conf").unwrap().is_none());
}

#[test]
fn the_library_of_the_same_tree_is_installed_and_that_of_the_same_package_stays() {
    let workshop = Workshop::open().unwrap();
    let library = workshop.harmless(1).unwrap();
    // An unpacked archive.
    let machine = root(Slurm::V22_05, &[])
        .unwrap()
        .install(&library, "/opt/softmig/lib/softmig/libsoftmig.so", 0o644)
        .install(stage().join("usr/bin/softmig"), "/usr/bin/softmig", 0o755)
        .start()
        .unwrap();
    let nothing = machine
        .command("root", &["softmig", "install", "--hook"])
        .output()
        .unwrap();
    assert!(nothing.refused().unwrap().contains("name one with --from"));
    softmig(&machine, &["install", "--hook"])
        .unwrap()
        .ok()
        .unwrap();
    assert!(healthy(&machine).unwrap());
    // A package: the library is where it belongs, of whoever unpacked it.
    shell(
        &machine,
        &format!("chown 1000:1000 {LIBRARY}; chmod 644 {LIBRARY}"),
    )
    .unwrap();
    let package = |word: &str| {
        machine
            .command("root", &["softmig", word, "--hook"])
            .output()
            .unwrap()
            .ok()
            .unwrap()
    };
    package("install");
    assert_eq!(
        inode(&machine, LIBRARY).unwrap().split_once(' ').unwrap().1,
        "root root 755\n"
    );
    let said = package("uninstall");
    assert!(said.contains("it came with this command"), "{said}");
    assert!(!healthy(&machine).unwrap());
    assert!(machine.read(PRELOAD).unwrap().is_none());
    package("install");
    assert!(healthy(&machine).unwrap());
    // A library that somebody removed by hand: now every process complains, and this is the way out.
    shell(&machine, &format!("rm {LIBRARY}")).unwrap();
    softmig(&machine, &["uninstall", "--hook"])
        .unwrap()
        .ok()
        .unwrap();
    assert!(!healthy(&machine).unwrap());
}

/// The calls that change files or say something: the command is killed before each one that it makes.
const CALLS: [&str; 8] = [
    "mkdirat", "fsync", "fchmod", "fchown", "linkat", "unlinkat", "renameat", "write",
];

/// Runs softmig and kills it before the `at`-th `call`; whether it lived to its end.
fn survives(machine: &Machine, call: &str, at: u32, words: &[&str]) -> Result<bool> {
    let trace = format!("trace={call}");
    let kill = format!("inject={call}:signal=KILL:when={at}");
    let strace = [
        "strace",
        "-o",
        "/dev/null",
        "-e",
        &trace,
        "-e",
        &kill,
        SOFTMIG,
    ];
    let ran = machine
        .command("root", &[&strace, words].concat())
        .output()?;
    // strace ends as the command did; nsenter makes a number of it.
    let killed = ran.status.code() == Some(128 + 9) || ran.status.signal() == Some(9);
    ensure!(ran.success() || killed, "{words:?}: {ran}");
    Ok(ran.success())
}

/// From the state that `prepare` makes, kills the command at each of its steps in turn. Returns how many there were.
fn kill_at_each_step(machine: &Machine, prepare: &[&str], words: &[&str]) -> Result<u32> {
    let is_install = words.first() == Some(&"install");
    let empty = state(machine)?;
    let mut kills = 0;
    for call in CALLS {
        for at in 1.. {
            let step = format!("{words:?} killed before {call} {at}");
            if !prepare.is_empty() {
                softmig(machine, prepare)?.ok()?;
            }
            let survived = survives(machine, call, at, words)?;
            healthy(machine).context(step.clone())?;
            // What was begun can be done again, and undone.
            softmig(machine, words)?.ok().context(step.clone())?;
            ensure!(healthy(machine)? == is_install, "{step}");
            softmig(machine, &["uninstall", "--hook"])?.ok()?;
            let after = state(machine)?;
            ensure!(after == empty, "{step}: {after}");
            shell(machine, "rm -r /etc/softmig")?;
            if survived {
                break;
            }
            kills += 1;
        }
    }
    Ok(kills)
}

#[test]
fn a_kill_at_any_step_leaves_a_node_that_works() {
    let workshop = Workshop::open().unwrap();
    let (old, new) = (workshop.harmless(1).unwrap(), workshop.harmless(2).unwrap());
    let machine = root(Slurm::V22_05, &[&old, &new]).unwrap().start().unwrap();
    shell(&machine, "mkdir /usr/lib/softmig").unwrap();
    let path = |library: &Path| in_machine(library).unwrap().display().to_string();
    let (old, new) = (path(&old), path(&new));
    let (old, new) = (
        ["install", "--hook", "--from", &old],
        ["install", "--hook", "--from", &new],
    );
    for (prepare, words, least) in [
        (&[][..], &new[..], 15),
        (&old, &new, 10),
        (&old, &["uninstall", "--hook"], 5),
    ] {
        let kills = kill_at_each_step(&machine, prepare, words).unwrap();
        assert!(kills >= least, "{words:?}: only {kills} steps were seen");
    }
}
