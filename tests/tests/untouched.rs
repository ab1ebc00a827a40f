//! A process that makes no CUDA call is left alone, and one that makes some is left nearly alone: seen by strace.

use anyhow::{Result, ensure};
use softmig_tests::programs::{LIBRARY, PRELOAD, tree};
use softmig_tests::softmig::stage;
use softmig_tests::strace::{Trace, loads_the_library, name};
use softmig_tests::{Gpus, Machine, Root, Slurm};

/// A machine with the clients, on a node with these settings.
fn root(node_conf: Option<&str>) -> Root {
    let root = Root::new(Slurm::V22_05)
        .stage(stage())
        .programs()
        .node("n1", [Gpus::l40s(4)]);
    match node_conf {
        Some(text) => root.file("/etc/softmig/node.conf", text),
        None => root,
    }
}

/// Runs each command without the library and then with it.
fn traces(root: &Root, commands: &[&'static str]) -> Result<Vec<(&'static str, Trace, Trace)>> {
    let machine = root.start()?;
    machine.nodes()[0].start_driver()?;
    let run = |machine: &Machine| -> Result<Vec<Trace>> {
        let node = &machine.nodes()[0];
        commands
            .iter()
            .map(|command| Trace::of(node, command))
            .collect()
    };
    // In the first run the fake driver sees more memory taken than ever, and looks for the dead each time.
    run(&machine)?;
    let without = run(&machine)?;
    machine.write(PRELOAD, &format!("{LIBRARY}\n"))?;
    let with = run(&machine)?;
    let pairs = without.into_iter().zip(with);
    Ok(commands
        .iter()
        .zip(pairs)
        .map(|(command, (without, with))| (*command, without, with))
        .collect())
}

/// The calls of a process beyond its own ones and those of the loader for the library.
fn on_top<'a>(command: &str, without: &Trace, with: &'a Trace) -> Result<Vec<&'a str>> {
    let beyond = with.beyond(without);
    let opened = beyond
        .iter()
        .filter(|call| call.contains(LIBRARY) && name(call) == "openat");
    ensure!(
        opened.count() == with.programs(),
        "{command}: the library is not in every program: {beyond:#?}"
    );
    // A loader without its list looks for it too, in vain.
    let lacking = without.beyond(with);
    ensure!(
        lacking.iter().all(|call| loads_the_library(call)),
        "{command}: does less with the library: {lacking:#?}"
    );
    Ok(beyond
        .into_iter()
        .filter(|call| !loads_the_library(call))
        .collect())
}

#[test]
fn a_process_without_cuda_calls_only_loads_the_library() -> Result<()> {
    let commands = [
        "/bin/true",
        "bash -c true",
        "bash -c '/bin/true; (exit 0); true'",
        "python3 -c pass",
        "./maps",
        "/opt/programs/set-uid quiet",
        // Linked against the driver, loaded and never called.
        "./privileged quiet",
    ];
    for (command, without, with) in traces(&root(None), &commands)? {
        let on_top = on_top(command, &without, &with)?;
        ensure!(
            on_top.is_empty(),
            "{command} does more with the library: {on_top:#?}"
        );
        // The loader's calls for one library; a second file would need as many again.
        let more = with.beyond(&without).len();
        ensure!(more <= 20 * with.programs(), "{command}: {more} calls more");
    }
    Ok(())
}

#[test]
fn a_library_that_does_more_is_noticed() -> Result<()> {
    let busy = tree().join("opt/programs/libbusy.so");
    let root = root(None).install(busy, LIBRARY, 0o755);
    for (command, without, with) in traces(&root, &["/bin/true"])? {
        let on_top = on_top(command, &without, &with)?;
        let names: Vec<&str> = on_top.iter().map(|call| name(call)).collect();
        assert_eq!(names, ["openat", "umask", "rt_sigaction"], "{command}");
    }
    Ok(())
}

/// A node's own settings for a process that is in no job.
const NODES: [Option<&str>; 3] = [
    None,
    Some("SOFTMIG_NODE=off\n"),
    Some("SOFTMIG_NODE=enforce\n"),
];

#[test]
fn a_passive_process_opens_three_files_at_most_and_closes_them() -> Result<()> {
    for node_conf in NODES {
        let commands = ["./linked", "./loads", "./runtime v2", "./nvml"];
        for (command, without, with) in traces(&root(node_conf), &commands)? {
            let on_top = on_top(command, &without, &with)?;
            let opens = |call: &&&str| name(call).starts_with("open");
            let opened: Vec<&&str> = on_top.iter().filter(opens).collect();
            ensure!(opened.len() <= 3, "{command} opens {opened:#?}");
            // Looks at files, and at itself: `getpid` and the like.
            let looks = [
                "openat",
                "openat2",
                "fstatfs",
                "readlink",
                "readlinkat",
                "statx",
            ];
            let acts = |call: &&&str| !looks.contains(&name(call)) && !call.starts_with("get");
            let acts: Vec<&&str> = on_top.iter().filter(acts).collect();
            ensure!(acts.is_empty(), "{command} does {acts:#?}");
            // Closed again: those, and the two that the loader opened in each program.
            let beyond = with.beyond(&without);
            let closed = beyond.iter().filter(|call| name(call) == "close").count();
            let open = opened
                .iter()
                .filter(|call| !call.contains(" = -1 "))
                .count();
            ensure!(
                closed == open + 2 * with.programs(),
                "{command} opens {opened:#?} and closes {closed} in all"
            );
        }
    }
    Ok(())
}
