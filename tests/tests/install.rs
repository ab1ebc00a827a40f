//! `softmig install --hook` and `uninstall --hook` on a machine of their own: good libraries and broken ones, files of
//! others, interruptions at every step.

mod harm;
mod kills;
mod place;
mod refusals;
mod workshop;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use place::{LIBRARY, PRELOAD, healthy, inode, install, owner, root, shell, softmig, state};
use softmig_tests::programs::STAGED;
use softmig_tests::softmig::stage;
use softmig_tests::{Machine, Root, Slurm, on_each_slurm};
use workshop::Workshop;

on_each_slurm!(
    the_library_is_in_every_new_process_and_goes_again,
    a_newer_library_comes_under_running_processes,
    the_shipped_library_installs_from_its_own_tree,
);

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
    assert_eq!(owner(&machine, LIBRARY)?, "root root 755\n");
    let preload = machine.read(PRELOAD)?.context("no list")?;
    assert_eq!(preload.lines().last(), Some(LIBRARY));
    assert_eq!(owner(&machine, PRELOAD)?, "root root 644\n");

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
    // The node keeps its mode, and programs that run keep the library.
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
    let machine = Root::new(slurm).layer(stage()).start()?;
    assert!(!machine.path(LIBRARY)?.exists());
    let softmig = |words: &[&str]| {
        let words = [&["softmig"], words].concat();
        machine.command("root", &words).output()?.ok()
    };
    let said = softmig(&["install", "--hook"])?;
    assert!(said.contains("none behaves differently"), "{said}");
    // The role for Ansible looks for it.
    assert!(said.contains(": placed anew"), "{said}");
    assert!(healthy(&machine)?);
    assert_eq!(
        shell(&machine, &format!("cmp {LIBRARY} {STAGED}"))?,
        String::new()
    );
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
    assert!(!machine.path(LIBRARY)?.exists());
    assert!(machine.path(STAGED)?.exists());
    Ok(())
}

/// A loader that reads another list, as Nix's does.
#[test]
fn programs_of_another_loader_have_the_library_too() -> Result<()> {
    const LOADER: &str = "/gnu/store/x-glibc-2.36/lib/ld-linux-x86-64.so.2";
    const LIST: &str = "/opt/ld.so.preload";
    let workshop = Workshop::open()?;
    let library = workshop.harmless(1)?;
    let machine = root(Slurm::V24_11, &[&library])?.start()?;
    let loader = format!(
        "install -D /lib64/ld-linux-x86-64.so.2 {LOADER} && sed -i 's|{PRELOAD}|{LIST}|' {LOADER}"
    );
    shell(&machine, &loader)?;
    let has_library = || -> Result<bool> {
        let maps = shell(&machine, &format!("{LOADER} /bin/cat /proc/self/maps"))?;
        Ok(maps.contains(LIBRARY))
    };
    let is_found = || -> Result<bool> {
        let said = softmig(&machine, &["doctor"])?.stdout;
        Ok(said.contains(&format!("LOADER_OTHER {LOADER}: it reads {LIST}")))
    };
    install(&machine, &library, &[])?.ok()?;
    assert!(healthy(&machine)? && !has_library()? && is_found()?);
    let said = install(&machine, &library, &["--list", LIST])?.ok()?;
    assert!(
        said.contains(&format!("{LIST}: names {LIBRARY} now")),
        "{said}"
    );
    assert!(has_library()? && !is_found()?);
    let said = install(&machine, &library, &["--list", LIST])?.ok()?;
    assert!(
        said.contains(&format!("{LIST}: named {LIBRARY} already")),
        "{said}"
    );
    let said = softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    assert!(
        said.contains(&format!("{LIST}: names {LIBRARY} no more")),
        "{said}"
    );
    assert!(!has_library()? && machine.read(LIST)?.is_none());

    // One that others can change is left alone, and the rest holds, the mode too.
    shell(&machine, "chmod 777 /opt")?;
    let refused = install(&machine, &library, &["--list", LIST])?.refused()?;
    assert!(refused.contains(LIST), "{refused}");
    assert!(healthy(&machine)? && !has_library()?);
    // Nor does one that is no list any more keep the library.
    shell(&machine, "chmod 755 /opt")?;
    install(&machine, &library, &["--list", LIST])?.ok()?;
    shell(&machine, &format!("rm {LIST} && mkdir {LIST}"))?;
    let refused = softmig(&machine, &["uninstall", "--hook"])?.refused()?;
    assert!(refused.contains(LIST) && !healthy(&machine)?, "{refused}");
    shell(&machine, &format!("rmdir {LIST}"))?;
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    assert!(machine.read(LIBRARY)?.is_none());
    Ok(())
}

#[test]
fn other_lines_of_the_preload_list_stay_as_they_are() -> Result<()> {
    let workshop = Workshop::open()?;
    let (library, other) = (workshop.harmless(1)?, workshop.harmless(2)?);
    let theirs = "# ours since 2019\n/root/harmless2.so:/root/harmless2.so\t\n\n/root/harmless2.so";
    let machine = root(Slurm::V22_05, &[&library, &other])?
        .file(PRELOAD, theirs)
        .start()?;
    shell(
        &machine,
        &format!("chmod 755 /root; chmod 444 {PRELOAD}; chgrp alice {PRELOAD}"),
    )?;
    install(&machine, &library, &[])?.ok()?;
    assert!(healthy(&machine)?);
    assert_eq!(
        machine.read(PRELOAD)?.unwrap_or_default(),
        format!("{theirs}\n{LIBRARY}\n")
    );
    assert_eq!(owner(&machine, PRELOAD)?, "root alice 444\n");
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    assert_eq!(
        machine.read(PRELOAD)?.unwrap_or_default(),
        format!("{theirs}\n")
    );
    assert!(!healthy(&machine)?);
    Ok(())
}

/// One file has several paths where `/lib` is a link to `/usr/lib`.
#[test]
fn an_entry_by_another_path_is_the_same_library() -> Result<()> {
    let workshop = Workshop::open()?;
    let library = workshop.harmless(1)?;
    let machine = root(Slurm::V22_05, &[&library])?.start()?;
    shell(&machine, "ln -s /usr/lib/softmig /opt/linked")?;
    const LINKED: &str = "/opt/linked/libsoftmig.so";
    install(&machine, &library, &[])?.ok()?;
    let list = format!("# ours\n{LINKED}:{LIBRARY}\n");
    machine.write(PRELOAD, &list)?;
    install(&machine, &library, &[])?.ok()?;
    assert_eq!(machine.read(PRELOAD)?.unwrap_or_default(), list);
    let said = softmig(&machine, &["uninstall", "--hook", "--dry-run"])?.ok()?;
    assert!(said.contains(&format!("would take {LINKED} out")), "{said}");
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    assert!(!healthy(&machine)?);
    assert_eq!(machine.read(PRELOAD)?.unwrap_or_default(), "# ours\n");
    // Also when the file is gone already, which is shown.
    machine.write(PRELOAD, &format!("{LINKED}\n"))?;
    let said = softmig(&machine, &["node"])?.stdout;
    assert!(said.contains(&format!("{LINKED} is not there")), "{said}");
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    assert!(!healthy(&machine)?);
    // A path for the loader alone may be the library too.
    install(&machine, &library, &[])?.ok()?;
    machine.write(PRELOAD, "/usr/$LIB/../lib/softmig/libsoftmig.so\n")?;
    let refused = softmig(&machine, &["uninstall", "--hook"])?.refused()?;
    assert!(refused.contains("so no file is removed"), "{refused}");
    assert!(machine.path(LIBRARY)?.exists());
    shell(&machine, &format!("rm {PRELOAD}"))?;
    softmig(&machine, &["uninstall", "--hook"])?.ok()?;
    Ok(())
}

#[test]
fn a_dry_run_changes_nothing_and_says_all() -> Result<()> {
    let workshop = Workshop::open()?;
    let library = workshop.harmless(1)?;
    let machine = root(Slurm::V22_05, &[&library])?.start()?;
    let before = state(&machine)?;
    let said = install(&machine, &library, &["--dry-run"])?.ok()?;
    for part in [
        "would place it as /usr/lib/softmig/libsoftmig.so",
        "would add a line",
        "mode observe",
    ] {
        assert!(said.contains(part), "{said}");
    }
    softmig(&machine, &["uninstall", "--hook", "--dry-run"])?.ok()?;
    assert_eq!(state(&machine)?, before);
    assert!(machine.read("/etc/softmig/node.conf")?.is_none());
    Ok(())
}

#[test]
fn the_same_trees_library_is_installed_the_packages_stays() -> Result<()> {
    let workshop = Workshop::open()?;
    let library = workshop.harmless(1)?;
    // An unpacked archive.
    let unpacked = "/opt/softmig/lib/softmig/staged/libsoftmig.so";
    let machine = root(Slurm::V22_05, &[])?
        .install(&library, unpacked, 0o644)
        .install(stage().join("usr/bin/softmig"), "/usr/bin/softmig", 0o755)
        .start()?;
    let package = |word: &str| {
        machine
            .command("root", &["softmig", word, "--hook"])
            .output()
    };
    assert!(
        package("install")?
            .refused()?
            .contains("name one with --from")
    );
    softmig(&machine, &["install", "--hook"])?.ok()?;
    assert!(healthy(&machine)?);
    // A package: the library lies beside its place, and belongs to the user who unpacked it.
    shell(
        &machine,
        &format!(
            "mkdir {0}; mv {unpacked} {0}; chown 1000:1000 {STAGED}",
            Path::new(STAGED)
                .parent()
                .context("a file without a folder")?
                .display()
        ),
    )?;
    package("install")?.ok()?;
    assert_eq!(owner(&machine, LIBRARY)?, "root root 755\n");
    package("uninstall")?.ok()?;
    assert!(!healthy(&machine)?);
    assert!(!machine.path(LIBRARY)?.exists());
    assert_eq!(owner(&machine, STAGED)?, "UNKNOWN UNKNOWN 644\n");
    assert!(machine.read(PRELOAD)?.is_none());
    package("install")?.ok()?;
    assert!(healthy(&machine)?);
    // An administrator removed the library by hand: now every process complains, and this is the way out.
    shell(&machine, &format!("rm {LIBRARY}"))?;
    package("uninstall")?.ok()?;
    assert!(!healthy(&machine)?);
    Ok(())
}
