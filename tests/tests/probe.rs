//! `softmig probe` on nodes: it shows all GPUs of a node, or says that some are missing, and it does not take a slice
//! for a GPU. Its words about MIG and about cards that do not answer are tested beside the program.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use softmig_tests::softmig::{enforced, stage};
use softmig_tests::{Gpus, Output, Root, Slurm, on_each_slurm};

on_each_slurm!(a_job_with_a_slice_is_not_shown_the_slice_as_a_gpu);

const PROBE: [&str; 3] = ["softmig", "probe", "--json"];

fn root() -> Root {
    let gpus = [Gpus::l40s(2), Gpus::new("titanrtx", "NVIDIA TITAN RTX", 1)];
    Root::new(Slurm::V22_05).stage(stage()).node("n1", gpus)
}

fn read(output: &Output) -> Result<Value> {
    serde_json::from_str(&output.stdout).with_context(|| output.to_string())
}

#[test]
fn all_gpus_of_a_node_are_its_inventory() -> Result<()> {
    let machine = root().programs().start()?;
    let node = &machine.nodes()[0];
    let output = node.run_as_root(&PROBE)?;
    ensure!(output.status.code() == Some(1), "{output}");
    ensure!(
        output.stderr.contains("the NVIDIA driver is not loaded"),
        "{output}"
    );

    let _driver = node.start_driver()?;
    for user in ["root", "alice"] {
        let output = node.command(user, &PROBE).output()?;
        ensure!(output.status.code() == Some(0), "{output}");
        let found = read(&output)?;
        assert_eq!(
            found["inventory"],
            json!(["l40s:2", "titanrtx:1"]),
            "{user}"
        );
        assert_eq!(found["gpus"][1]["uuid"], json!(node.gpus()[1].uuid));
    }

    // NVML does not show a GPU that the process cannot open; the driver still lists it.
    node.run_as_root(&["rm", "/dev/nvidia1"])?.ok()?;
    let output = node.run_as_root(&PROBE)?;
    ensure!(output.status.code() == Some(1), "{output}");
    let found = read(&output)?;
    assert_eq!(
        (&found["complete"], &found["usable_devices"]),
        (&json!(false), &json!(2))
    );
    let note = found["notes"].to_string();
    let uuid = &node.gpus()[1].uuid;
    ensure!(
        note.contains(&format!(
            "/dev/nvidia1 (NVIDIA L40S, {uuid}) is in the driver's list"
        )),
        "{note}"
    );
    Ok(())
}

#[test]
fn a_node_without_a_driver_has_nothing_to_probe() -> Result<()> {
    let machine = root().start()?;
    let output = machine.nodes()[0].run_as_root(&["softmig", "probe"])?;
    ensure!(
        output.status.code() == Some(1) && output.stdout.is_empty(),
        "{output}"
    );
    ensure!(
        output.stderr.contains("install the NVIDIA driver"),
        "{output}"
    );
    Ok(())
}

/// The library is in every process there, and shows a user of slices no more than those, in jobs and out of them.
fn a_job_with_a_slice_is_not_shown_the_slice_as_a_gpu(slurm: Slurm) -> Result<()> {
    let cluster = enforced(slurm).programs().gpus([Gpus::l40s(1)]).start()?;
    let node = cluster.node(0);
    let _driver = node.start_driver()?;
    let probe = |user: &str| node.command(user, &PROBE).output();
    ensure!(probe("alice")?.success());

    let alice = cluster.user("alice");
    let job = alice.sbatch(&["--gres=gpu:l40s.4:1"], "softmig probe\nsleep 1000")?;
    cluster.wait_job(job, "RUNNING")?;
    cluster.wait_until("what the job says", || {
        Ok(alice.job_output(job)?.contains("run it outside of jobs"))
    })?;
    let output = probe("alice")?;
    ensure!(output.status.code() == Some(1), "{output}");
    ensure!(
        output
            .stderr
            .contains("you have jobs with slices on this node"),
        "{output}"
    );
    let found = read(&probe("root")?)?;
    assert_eq!(found["gpus"][0]["memory"]["total_mib"], 46068);
    Ok(())
}
