//! `softmig check` of nodes: from inside, and from elsewhere by a step on each.

use anyhow::{Result, ensure};
use softmig_tests::config::cgroups_usable;
use softmig_tests::programs::{LIBRARY, PRELOAD};
use softmig_tests::{Gpus, Slurm, on_each_slurm};

use crate::check::{GPUS, POLICY, Said, beside_control_groups, check_with, site};

on_each_slurm!(
    a_node_is_looked_at_from_inside,
    nodes_answer_by_steps_of_their_own,
);

fn a_node_is_looked_at_from_inside(slurm: Slurm) -> Result<()> {
    let cluster = site(slurm).programs().gpus([Gpus::l40s(2)]).start()?;
    let node = cluster.node(0);
    let look = || -> Result<Said> { Said::of(&node.run_as_root(&["softmig", "check", "--json"])?) };
    let at_node = || -> Result<Said> {
        Said::of(&node.run_as_root(&["softmig", "check", "--json", "--node"])?)
    };
    let said = at_node()?;
    assert_eq!(
        beside_control_groups(&said.codes),
        ["NODE_CONF", "PRELOAD", "MONITOR"],
        "{said:?}"
    );
    ensure!(said.skipped.contains(&"NVML".to_string()), "{said:?}");

    let _driver = node.start_driver()?;
    cluster.write("/etc/softmig/node.conf", "SOFTMIG_NODE=observe\n")?;
    cluster.write(PRELOAD, &format!("{LIBRARY}\n"))?;
    let said = look()?;
    assert_eq!(
        beside_control_groups(&said.codes),
        ["MONITOR", "NODE_MODE"],
        "{said:?}"
    );
    ensure!(!said.skipped.contains(&"NVML".to_string()), "{said:?}");

    // No driver answers the calls that steering takes, so nothing is measured.
    let scheduler = "the scheduler of NVIDIA L40S".to_string();
    let said = at_node()?;
    ensure!(said.skipped.contains(&scheduler), "{said:?}");
    let kept = r#"{"version":1,"proofs":[{"gpu":"NVIDIA L40S","driver":"580.105.08",
        "time":"2026-11-23T12:00:00Z","failed":{"step":"hold","why":"it ran on"}}]}"#;
    let write =
        format!("mkdir -p /var/lib/softmig; echo '{kept}' > /var/lib/softmig/scheduler.json");
    node.run_as_root(&["sh", "-c", &write])?.ok()?;
    let said = look()?;
    ensure!(said.has("SCHEDULER_NO_EFFECT"), "{said:?}");
    ensure!(!said.skipped.contains(&scheduler), "{said:?}");
    let shown = node.run_as_root(&["softmig", "node"])?.ok()?;
    let line = "GPU 1:     NVIDIA L40S, shared by each job's own cap: it ran on (seen 2026-11-23, driver 580.105.08)";
    ensure!(shown.contains(line), "{shown}");
    node.run_as_root(&["rm", "/var/lib/softmig/scheduler.json"])?
        .ok()?;

    // More memory than there is; a GPU more than there is.
    cluster.write(POLICY, &GPUS.replace("46068", "50000"))?;
    let said = look()?;
    let too_much = said
        .codes
        .iter()
        .filter(|code| *code == "NVML_MEMORY")
        .count();
    assert_eq!(too_much, 2, "{said:?}");
    node.run_as_root(&["rm", "/dev/nvidia1"])?.ok()?;
    ensure!(look()?.has("NVML_GPUS"));

    cluster.write(PRELOAD, "/usr/lib/softmig/gone.so\n")?;
    ensure!(look()?.has("PRELOAD"));
    Ok(())
}

fn nodes_answer_by_steps_of_their_own(slurm: Slurm) -> Result<()> {
    let cluster = site(slurm).nodes(2).start()?;
    cluster.write("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")?;
    let said = check_with(&cluster, &["--slurm", "--nodes"])?;
    let about = |said: &Said, code: &str| -> Vec<String> {
        let found = said.all.iter().filter(|finding| finding["code"] == code);
        found
            .map(|finding| finding["where"].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    // Both say the same, together. The job's control groups are known, and its policy is this machine's.
    let both = format!("{}[1-2]: ", cluster.node(0).name().trim_end_matches('1'));
    let preload = about(&said, "PRELOAD");
    ensure!(
        preload.iter().any(|place| place.starts_with(&both)),
        "{said:?}"
    );
    ensure!(!said.has("POLICY_DIFFERS"), "{said:?}");
    ensure!(!cgroups_usable() || !said.has("CGROUP_LAYOUT"), "{said:?}");

    let other = format!("# the new one\n{GPUS}");
    cluster.write("/root/policy.toml", &other)?;
    let said = check_with(
        &cluster,
        &["--slurm", "--nodes", "--policy=/root/policy.toml"],
    )?;
    let differs = about(&said, "POLICY_DIFFERS");
    assert_eq!(differs, [format!("{both}policy.toml")], "{said:?}");

    // Nor is one without a policy.
    let mv = |from: &str, to: &str| cluster.run("root", &["mv", from, to])?.ok();
    mv("/etc/softmig/policy.toml", "/etc/softmig/kept")?;
    let said = check_with(
        &cluster,
        &["--slurm", "--nodes", "--policy=/root/policy.toml"],
    )?;
    let missing = about(&said, "POLICY_MISSING");
    assert_eq!(missing, [format!("{both}policy.toml")], "{said:?}");
    mv("/etc/softmig/kept", "/etc/softmig/policy.toml")?;

    // A node that does not answer is reported as skipped.
    cluster.kill_slurmd(cluster.node(1))?;
    cluster
        .run(
            "root",
            &[
                "scontrol",
                "update",
                &format!("NodeName={}", cluster.node(1).name()),
                "State=DOWN",
                "Reason=x",
            ],
        )?
        .ok()?;
    let said = check_with(&cluster, &["--slurm", "--nodes"])?;
    ensure!(
        said.skipped.contains(&cluster.node(1).name().to_string()),
        "{said:?}"
    );
    Ok(())
}
