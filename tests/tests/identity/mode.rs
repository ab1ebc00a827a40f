//! node.conf, which all of it hangs on: switched, damaged, and not root's own. These tests have clusters of their own.

use anyhow::{Context, Result};
use softmig_tests::{Cluster, Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::place::NO_CONF;
use crate::identity::site::{HALF, QUARTER, loaded, outside, start_job, step};

on_each_slurm!(
    a_damaged_node_conf_gives_no_gpu,
    a_node_conf_that_is_not_roots_own_gives_no_gpu,
    an_observing_node_refuses_nothing_and_says_so,
    a_node_that_is_switched_off_lets_go_of_new_processes_only,
    without_a_node_conf_a_user_limits_himself,
    a_node_by_the_environment_protects_other_users_jobs,
);

const NODE_CONF: &str = "/etc/softmig/node.conf";

/// A cluster with a quarter of alice's on its only node.
fn cluster(slurm: Slurm) -> Result<(Cluster, u32)> {
    let cluster = loaded(slurm).start()?;
    let job = start_job(&cluster, cluster.node(0).name(), "alice", "gpu:l40s.4:1")?;
    Ok((cluster, job))
}

fn quarter(job: u32) -> Answer {
    Answer::limited(job, QUARTER.0, QUARTER.1)
}

/// Runs a line as root, `$conf` being node.conf.
fn as_root(cluster: &Cluster, line: &str) -> Result<()> {
    let script = format!("conf={NODE_CONF}\n{line}");
    let ran = cluster.node(0).run_as_root(&["bash", "-c", &script])?;
    ran.ok().map(drop).with_context(|| line.to_owned())
}

fn a_damaged_node_conf_gives_no_gpu(slurm: Slurm) -> Result<()> {
    let (cluster, job) = cluster(slurm)?;
    let reason = "/etc/softmig/node.conf is damaged: write it with `softmig node`";
    let refused = [Answer::refused_outside(reason)];
    for text in [
        "",
        "garbage\n",
        "SOFTMIG_NODE=\n",
        "SOFTMIG_NODE=of\n",
        "SOFTMIG_NODE=OFF\n",
        "SOFTMIG_NODE=off\nSOFTMIG_NODE=enforce\n",
        "SOFTMIG_NODE=off\nSOFTMIG_IDENTITY=\n",
    ] {
        cluster.write(NODE_CONF, text)?;
        let said = step(&cluster, "alice", job, "whose")?;
        assert_eq!(said, refused, "{text:?}");
    }
    assert_eq!(outside(cluster.node(0), "bob", "whose")?, refused);
    cluster.write(NODE_CONF, "# as ever\nSOFTMIG_NODE=enforce\n")?;
    assert_eq!(step(&cluster, "alice", job, "whose")?, [quarter(job)]);
    Ok(())
}

fn a_node_conf_that_is_not_roots_own_gives_no_gpu(slurm: Slurm) -> Result<()> {
    let (cluster, job) = cluster(slurm)?;
    as_root(
        &cluster,
        "echo SOFTMIG_NODE=off >/tmp/off; chown alice: /tmp/off",
    )?;
    let (not_permitted, too_large, a_link) = (1, 27, 40);
    for (forgery, error) in [
        ("cp --preserve /tmp/off $conf", not_permitted),
        ("cp /tmp/off $conf && chmod 664 $conf", not_permitted),
        ("cp /tmp/off $conf && chmod 646 $conf", not_permitted),
        ("ln -s /tmp/off $conf", a_link),
        ("mkfifo $conf", not_permitted),
        ("mkdir $conf", not_permitted),
        ("head --bytes=1M /dev/zero >$conf", too_large),
    ] {
        as_root(&cluster, &format!("rm -rf $conf && {forgery}"))?;
        let reason = format!("a file of softmig's cannot be read: error {error}");
        let said = step(&cluster, "alice", job, "whose")?;
        assert_eq!(said, [Answer::refused_outside(&reason)], "{forgery}");
    }
    // The control: root's word for the same is obeyed.
    as_root(&cluster, "rm -rf $conf && cp /tmp/off $conf")?;
    assert_eq!(step(&cluster, "alice", job, "whose")?, [Answer::passive()]);
    Ok(())
}

fn an_observing_node_refuses_nothing_and_says_so(slurm: Slurm) -> Result<()> {
    let (cluster, job) = cluster(slurm)?;
    let node = cluster.node(0);
    node.run_as_root(&["softmig", "node", "observe"])?.ok()?;
    let said = step(&cluster, "alice", job, "whose")?;
    assert_eq!(said, [Answer::observed_limits(job, QUARTER.0, QUARTER.1)]);
    let said = step(&cluster, "alice", job, "LD_PRELOAD=libc.so.6 whose")?;
    let kept = quarter(job).kept_from_driver(job, "libc.so.6", true);
    assert_eq!(said, [kept.observed()]);
    node.run_as_root(&["rm", &format!("/var/run/softmig/{job}.conf")])?
        .ok()?;
    let said = step(&cluster, "alice", job, "whose; whose")?;
    let observed = Answer::observed_refusal(job, NO_CONF);
    assert_eq!(said, [observed.clone(), observed]);
    let told = node.run_as_root(&["softmig", "node"])?.ok()?;
    for counted in [
        format!("2+ times in 1 job: cuInit: {NO_CONF}\n"),
        "1+ times in 1 job: cuMemAlloc_v2: it is of a second copy of the driver".into(),
        "1+ times in 1 job: the GPU: libc.so.6 comes before softmig's library".into(),
    ] {
        assert!(told.contains(&counted), "{told}");
    }
    // The control: an enforcing node refuses the very same.
    node.run_as_root(&["softmig", "node", "enforce", "--anyway"])?
        .ok()?;
    node.run_as_root(&["rm", "-f", &format!("/var/run/softmig/{job}.conf")])?
        .ok()?;
    let said = step(&cluster, "alice", job, "whose")?;
    assert_eq!(said, [Answer::refused(job, NO_CONF)]);
    Ok(())
}

fn a_node_that_is_switched_off_lets_go_of_new_processes_only(slurm: Slurm) -> Result<()> {
    let (cluster, job) = cluster(slurm)?;
    let node = cluster.node(0);
    // The first process has looked, then waits for the second.
    let script = "whose until /tmp/mark >/tmp/old 2>&1 & until grep -qs whose: /tmp/old; do sleep 0.05; done\n\
        touch /tmp/looked; until [ -e /tmp/off ]; do sleep 0.05; done\n\
        whose; touch /tmp/mark; wait; cat /tmp/old";
    let said = std::thread::scope(|scope| -> Result<Vec<Answer>> {
        let step = scope.spawn(|| step(&cluster, "alice", job, script));
        cluster.wait_until("the first process has looked", || {
            node.exists("/tmp/looked")
        })?;
        node.run_as_root(&["softmig", "node", "off"])?.ok()?;
        node.write("/tmp/off", "")?;
        step.join().expect("the step's thread")
    })?;
    let still = Answer::limited_silently();
    assert_eq!(said, [Answer::passive(), quarter(job), still]);
    node.run_as_root(&["softmig", "node", "enforce"])?.ok()?;
    assert_eq!(step(&cluster, "alice", job, "whose")?, [quarter(job)]);
    Ok(())
}

fn without_a_node_conf_a_user_limits_himself(slurm: Slurm) -> Result<()> {
    let (cluster, job) = cluster(slurm)?;
    for without in ["rm $conf", "echo SOFTMIG_NODE=off >$conf"] {
        as_root(&cluster, without)?;
        let said = step(
            &cluster,
            "alice",
            job,
            "whose\nCUDA_DEVICE_MEMORY_LIMIT=1g whose",
        )?;
        let own = [Answer::passive(), Answer::limited_by_itself()];
        assert_eq!(said, own, "{without}");
    }
    Ok(())
}

/// For nodes whose jobs have no control groups: a user can choose among their own jobs.
fn a_node_by_the_environment_protects_other_users_jobs(slurm: Slurm) -> Result<()> {
    let (cluster, job) = cluster(slurm)?;
    let node = cluster.node(0);
    let half = start_job(&cluster, node.name(), "alice", "gpu:l40s.2:1")?;
    let whole = start_job(&cluster, node.name(), "bob", "gpu:l40s:1")?;
    let text = "SOFTMIG_NODE=enforce\nSOFTMIG_IDENTITY=env\n";
    cluster.write(NODE_CONF, text)?;
    let half_of = Answer::limited(half, HALF.0, HALF.1);
    let script = format!(
        "whose\nSLURM_JOB_ID={whole} whose\nSLURM_JOB_ID=none whose\nSLURM_JOB_ID= whose\n\
         env -i SOFTMIG_LOG_LEVEL=3 /opt/programs/whose"
    );
    let smallest = || quarter(job);
    let said = step(&cluster, "alice", half, &script)?;
    assert_eq!(
        said,
        [half_of, smallest(), smallest(), smallest(), smallest()]
    );
    Ok(())
}
