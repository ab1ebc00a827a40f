//! The test clients with the library in every process, as a node has it, against the same clients without it.

use anyhow::{Result, ensure};
use softmig_tests::programs::{ALL, FOLDER, LIBRARY, PRELOAD, Program, Said};
use softmig_tests::softmig::stage;
use softmig_tests::{Gpus, Machine, Root, Slurm};

/// A machine with the clients, with the library in place but in no process.
fn machine() -> Result<Machine> {
    let machine = Root::new(Slurm::V22_05)
        .stage(stage())
        .programs()
        .node("n1", [Gpus::l40s(4)])
        .start()?;
    machine.nodes()[0].start_driver()?;
    Ok(machine)
}

/// Puts the library into every process from now on.
fn preload(machine: &Machine) -> Result<()> {
    machine.write(PRELOAD, &format!("{LIBRARY}\n"))
}

fn run(machine: &Machine, user: &str, command: &str) -> Result<Said> {
    let call = machine.nodes()[0].command(user, &["bash", "-c", command]);
    Said::of(&call.cwd(FOLDER).output()?)
}

/// Runs clients without the library and with it, and fails with all differences at once.
fn alike<'a>(machine: &Machine, programs: impl Iterator<Item = &'a Program> + Clone) -> Result<()> {
    let before = programs
        .clone()
        .map(|program| run(machine, program.user, program.command));
    let before = before.collect::<Result<Vec<Said>>>()?;
    preload(machine)?;
    let mut complaints = Vec::new();
    for (program, before) in programs.zip(&before) {
        let after = run(machine, program.user, program.command)?;
        complaints.extend(after.complaint(program, before));
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n\n"));
    Ok(())
}

#[test]
fn every_client_behaves_alike_on_a_passive_node() -> Result<()> {
    alike(&machine()?, ALL.iter())
}

#[test]
fn clients_that_look_for_a_driver_find_none_where_there_is_none() -> Result<()> {
    let machine = machine()?;
    run(
        &machine,
        "root",
        "rm /usr/lib/x86_64-linux-gnu/libcuda.so.1",
    )?;
    let look = ["./loads", "./default_scope", "./maps"];
    alike(
        &machine,
        ALL.iter().filter(|program| look.contains(&program.command)),
    )?;
    for command in ["./loads", "./default_scope"] {
        let said = run(&machine, "alice", command)?;
        assert_eq!(
            (said.status, said.stdout.as_str()),
            (0, "no driver"),
            "{said:?}"
        );
    }
    Ok(())
}

#[test]
fn the_driver_stays_where_it_is_when_a_program_lets_it_go() -> Result<()> {
    let machine = machine()?;
    preload(&machine)?;
    let said = run(&machine, "alice", "./kept")?;
    assert_eq!(said.mapped, [true]);
    assert!(
        said.status == 0 && said.stdout.contains("after dlclose: still there\n"),
        "{said:?}"
    );
    Ok(())
}

/// An interposer among a program's own libraries comes after the preloaded ones, so the library asks the driver.
#[test]
fn an_interposer_behind_the_library_is_passed_over() -> Result<()> {
    let machine = machine()?;
    let without = run(&machine, "alice", "./late")?;
    preload(&machine)?;
    let with = run(&machine, "alice", "./late")?;
    assert_eq!(
        (with.status, with.mapped.as_slice()),
        (0, [true].as_slice())
    );
    let saw = |count: u32| format!("the interposer saw: {count}\n");
    assert_eq!(with.stdout, without.stdout.replace(&saw(2), &saw(0)));
    assert!(with.stdout.contains(&saw(0)), "{with:?}");
    Ok(())
}

/// Another C library calls initializers without the arguments that glibc gives them.
#[test]
fn a_program_of_musls_runs_with_the_library_in_its_variable() -> Result<()> {
    let machine = machine()?;
    let said = run(&machine, "alice", &format!("LD_PRELOAD={LIBRARY} ./musl"))?;
    assert_eq!(said.status, 0, "{said:?}");
    Ok(())
}

/// Not softmig's doing: gcc's AddressSanitizer refuses with any library in the loader's list, an empty one too.
#[test]
fn address_sanitizer_wants_to_be_first() -> Result<()> {
    let machine = machine()?;
    assert_eq!(run(&machine, "alice", "./asan")?.status, 0);
    preload(&machine)?;
    let said = run(&machine, "alice", "./asan")?;
    assert_eq!(said.status, 1, "{said:?}");
    assert!(
        said.stderr.contains("ASan runtime does not come first"),
        "{said:?}"
    );
    Ok(())
}

#[test]
fn programs_that_a_static_program_starts_have_the_library_again() -> Result<()> {
    let machine = machine()?;
    preload(&machine)?;
    for command in ["./static", "./static-pie", "./musl", "./musl-static"] {
        let said = run(&machine, "alice", &format!("AND_THEN=./maps {command}"))?;
        assert_eq!(
            (said.status, said.mapped.as_slice()),
            (0, [false, true].as_slice()),
            "{said:?}"
        );
    }
    Ok(())
}
