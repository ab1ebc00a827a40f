//! The program in this machine's kernel. The tests need root; where root is not permitted to load BPF programs they
//! say so and pass.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "not all for each file of tests")]
mod world;

use softmig_gate::{Jobs, NotAdmitted, Refusal, Settings};
use std::path::Path;
use std::time::{Duration, Instant};
use world::{World, remove};

const OPEN: &str = "open";
const REFUSED: &str = "refused";

#[test]
fn who_has_not_the_library_opens_no_gpu() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let mut without = world.in_job("job_7", false);
    assert_eq!(without.say("gpu"), REFUSED);
    assert_eq!(without.say("control"), OPEN);
    let admitted = gate.admit(without.pid(), 2001, &world.library);
    assert!(
        matches!(admitted, Err(NotAdmitted::NoLibrary)),
        "{admitted:?}"
    );
    assert_eq!(without.say("gpu"), REFUSED);
    let refusal = Refusal {
        group: "job_7".into(),
        uid: 2001,
        pid: without.pid(),
        minor: 3,
    };
    // Once, however often.
    assert_eq!(gate.refusals().unwrap(), [refusal]);
    assert_eq!(gate.refusals().unwrap(), []);
}

#[test]
fn who_has_the_library_opens_it_once_admitted() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let mut with = world.in_job("job_7", true);
    assert_eq!(with.say("gpu"), REFUSED);
    // A program that only opens a GPU has not asked.
    let admitted = gate.admit(with.pid(), 2001, &world.library);
    assert!(
        matches!(admitted, Err(NotAdmitted::NotAsked)),
        "{admitted:?}"
    );
    assert_eq!(with.say("control"), OPEN);
    gate.admit(with.pid(), 2001, &world.library).unwrap();
    assert_eq!(with.say("gpu"), OPEN);
    // A child is another process, also with everything that its parent has.
    assert_eq!(with.say("(gpu)"), REFUSED);
    // Those that have ended are forgotten, and this one has not.
    gate.forget_the_dead().unwrap();
    assert_eq!(with.say("gpu"), OPEN);
}

#[test]
fn an_exec_takes_no_admission_along() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let mut process = world.in_job("job_7", true);
    process.say("control");
    gate.admit(process.pid(), 2001, &world.library).unwrap();
    assert_eq!(process.say("gpu"), OPEN);
    // Each second program has the memory of the first at the same address.
    for _ in 0..8 {
        process.execute("env -u LD_PRELOAD");
        assert_eq!(process.say("gpu"), REFUSED);
    }
    // Nor does what asked before it.
    process.execute("env -u LD_PRELOAD");
    process.say("control");
    let library = world.folder.path().join("library.so");
    process.execute(&format!("env LD_PRELOAD={}", library.display()));
    process.say("echo is there");
    gate.admit(process.pid(), 2001, &world.library).unwrap();
    assert_eq!(process.say("gpu"), REFUSED);
    process.say("control");
    gate.admit(process.pid(), 2001, &world.library).unwrap();
    assert_eq!(process.say("gpu"), OPEN);
}

#[test]
fn the_gate_outlives_the_daemon() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let mut admitted = world.in_job("job_7", true);
    let mut other = world.in_job("job_7", true);
    admitted.say("control");
    gate.admit(admitted.pid(), 2001, &world.library).unwrap();
    drop(gate);
    assert_eq!(admitted.say("gpu"), OPEN);
    assert_eq!(other.say("gpu"), REFUSED);
    other.say("control");
    // The next one goes on where this one was.
    let gate = world.gate();
    assert_eq!(admitted.say("gpu"), OPEN);
    assert_eq!(other.say("gpu"), REFUSED);
    gate.admit(other.pid(), 2001, &world.library).unwrap();
    assert_eq!(other.say("gpu"), OPEN);
    assert_eq!(gate.refusals().unwrap().len(), 1);
}

#[test]
fn without_its_files_there_is_no_gate() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let mut process = world.in_job("job_7", false);
    assert_eq!(process.say("gpu"), REFUSED);
    assert!(gate.is_there());
    assert!(softmig_gate::remove(&world.settings.folder).unwrap());
    assert!(!gate.is_there());
    // The kernel detaches the program when no call may be in it any more.
    let deadline = Instant::now() + Duration::from_secs(60);
    while process.say("gpu") != OPEN {
        assert!(Instant::now() < deadline, "the gate is still there");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Jobs::open(&world.settings.folder).unwrap().is_none());
    assert!(!softmig_gate::remove(&world.settings.folder).unwrap());
    // A new one begins with nothing.
    let _gate = world.gate();
    assert_eq!(process.say("gpu"), OPEN);
    world.add("job_7");
    assert_eq!(process.say("gpu"), REFUSED);
}

#[test]
fn a_whole_gpu_job_meets_no_gate() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let mut whole = world.in_job("job_78", false);
    assert_eq!(whole.say("gpu"), OPEN);
    let mut none = world.process(&[world.group.join("session")], false, false);
    assert_eq!(none.say("gpu"), OPEN);
    // And after its end no other job of this number does.
    assert!(world.jobs().remove("job_7").unwrap());
    assert!(!world.jobs().remove("job_7").unwrap());
    let mut again = world.in_job("job_7", false);
    assert_eq!(again.say("gpu"), OPEN);
    assert_eq!(gate.refusals().unwrap(), []);
}

#[test]
fn roots_daemons_meet_no_gate() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    for group in [world.group.join("daemons"), world.job("job_7")] {
        let mut root = world.process(&[group], true, false);
        assert_eq!(root.say("gpu"), OPEN);
    }
    // Root of a namespace is a user.
    let mut user = world.in_job("job_7", false);
    assert_eq!(
        user.say(
            "unshare --user --map-root-user bash -c 'exec 9<gpu' 2>&- && echo open || echo refused"
        ),
        REFUSED
    );
    assert_eq!(gate.refusals().unwrap().len(), 1);
}

#[test]
fn root_of_a_namespace_is_named_as_the_user_it_is() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    // As a user's own group may be called.
    let group = world.group.join("user@2001.service/job_7");
    let mut user = world.process(&[group], false, false);
    user.say("unshare --user --map-root-user bash -c 'exec 9<gpu' 2>&-; echo done");
    let refusals = gate.refusals().unwrap();
    let named = refusals.iter().map(|it| (it.group.as_str(), it.uid));
    assert_eq!(named.collect::<Vec<_>>(), [("job_7", 2001)]);
}

#[test]
fn a_job_is_known_however_deep_its_processes_are() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let deeper = |group: &Path| {
        let names = (0..40).map(|number| format!("below_{number}"));
        names.fold(group.to_path_buf(), |group, name| group.join(name))
    };
    let mut deep = world.process(&[deeper(&world.job("job_7"))], false, false);
    assert_eq!(deep.say("gpu"), REFUSED);
    // A process so deep that no job is seen above it is refused as well.
    let mut other = world.process(&[deeper(&world.group.join("session"))], false, true);
    assert_eq!(other.say("gpu"), REFUSED);
    other.say("control");
    gate.admit(other.pid(), 2001, &world.library).unwrap();
    assert_eq!(other.say("gpu"), OPEN);
}

#[test]
fn a_job_is_known_by_groups_of_version_1() {
    let Some(world) = World::new() else { return };
    let _gate = world.gate();
    world.add("job_7");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for controller in ["devices", "freezer"] {
        let mount = mounts.lines().find(|line| {
            let (before, after) = line.split_once(" - cgroup ").unwrap_or((line, ""));
            !before.is_empty() && after.rsplit([' ', ',']).next() == Some(controller)
        });
        let Some(mount) = mount.and_then(|line| line.split(' ').nth(4)) else {
            eprintln!("skipped: no {controller} of version 1 here");
            continue;
        };
        let slurm = Path::new(mount).join(format!("softmig-gate-{}", std::process::id()));
        let mut opened = Vec::new();
        for job in ["job_7", "job_8"] {
            let group = slurm.join("uid_2001").join(job).join("step_0/task_0");
            let mut process = world.process(&[world.group.join("all"), group], false, false);
            opened.push(process.say("gpu"));
        }
        remove(&slurm);
        assert_eq!(opened, [REFUSED, OPEN], "{controller}");
    }
}

#[test]
fn a_descriptor_that_is_handed_on_passes() {
    let Some(world) = World::new() else { return };
    let gate = world.gate();
    world.add("job_7");
    let mut process = world.in_job("job_7", true);
    process.say("control");
    gate.admit(process.pid(), 2001, &world.library).unwrap();
    process.say("exec 8>gpu; echo opened");
    process.execute("env -u LD_PRELOAD");
    assert_eq!(process.say("echo x >&8 && echo written"), "written");
    assert_eq!(process.say("gpu"), REFUSED);
}

/// As on a node: at the root of all groups, of the driver's devices.
#[test]
fn the_program_is_where_all_processes_are() {
    let Some(world) = World::new() else { return };
    let settings = Settings::of_node(&world.settings.folder);
    let gate = softmig_gate::Gate::set_up(&settings).unwrap();
    // No job of this machine has this name.
    world.add("job_of_a_test");
    let gpu = world.folder.path().join("nvidia0");
    let mut made = std::process::Command::new("mknod");
    made.args(["-m", "666"]).arg(&gpu).args(["c", "195", "0"]);
    assert!(made.status().unwrap().success());
    let error =
        "perl -e 'open(F, \"<\", \"nvidia0\") ? print \"open\" : print $!+0; print \"\\n\"'";
    let mut inside = world.in_job("job_of_a_test", false);
    assert_eq!(inside.say(error), libc::EPERM.to_string());
    let mut outside = world.in_job("job_7", false);
    let answer = outside.say(error);
    // With a driver or without one.
    assert!(
        answer == "open" || answer == libc::ENXIO.to_string(),
        "{answer}"
    );
    assert_eq!(gate.refusals().unwrap().len(), 1);
}

/// `cargo test --release -p softmig-gate --test kernel -- --ignored --nocapture costs`
#[test]
#[ignore = "prints figures"]
fn what_opening_a_device_costs() {
    let Some(world) = World::new() else { return };
    let per_open = || {
        const TIMES: u32 = 200_000;
        let start = std::time::Instant::now();
        for _ in 0..TIMES {
            std::fs::File::open("/dev/null").unwrap();
        }
        start.elapsed().as_nanos() / u128::from(TIMES)
    };
    for round in 0..5 {
        let without = per_open();
        let gate = softmig_gate::Gate::set_up(&Settings::of_node(&world.settings.folder)).unwrap();
        let with = per_open();
        drop(gate);
        softmig_gate::remove(&world.settings.folder).unwrap();
        println!("round {round}: {without} ns without the gate, {with} ns with it");
    }
}
