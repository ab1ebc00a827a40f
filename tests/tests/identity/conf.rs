//! The job's conf: missing, damaged, or not root's own. All of it ends without a GPU, and in the job's log.

use anyhow::{Context, Result};
use softmig_tests::{Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::place::NO_CONF;
use crate::identity::site::{HALF, Site, loaded, outside, site, start_job};

on_each_slurm!(
    a_missing_conf_gives_no_gpu_and_a_line_in_the_jobs_log,
    a_damaged_conf_gives_no_gpu,
    a_conf_that_is_not_roots_own_gives_no_gpu,
    a_damaged_conf_leaves_sessions_of_its_user_without_gpu,
    a_user_cannot_write_his_conf_as_root_of_a_namespace,
    a_process_that_covers_the_confs_gets_no_gpu,
    a_changed_conf_holds_for_processes_started_later,
);

/// The refusal in a job whose conf is damaged.
const DAMAGED: &str = "this job's conf on this node is damaged";

/// Runs a line as root on the node with jobs of tests' own, `$conf` being the conf of this job.
fn as_root(site: &Site, job: u32, line: &str) -> Result<()> {
    let script = format!("conf=/var/run/softmig/{job}.conf\n{line}");
    let ran = site.empty().run_as_root(&["bash", "-c", &script])?;
    ran.ok().map(drop).with_context(|| line.to_owned())
}

fn a_missing_conf_gives_no_gpu_and_a_line_in_the_jobs_log(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let job = site.job("gpu:l40s.2:1")?;
    let limited = Answer::limited(job, HALF.0, HALF.1);
    assert_eq!(site.step(job, "whose")?, [limited]);
    as_root(site, job, "rm $conf")?;
    // At the usual level nothing but the log is told.
    let quiet = "env --unset=SOFTMIG_LOG_LEVEL whose";
    assert_eq!(site.step(job, quiet)?, [Answer::refused_silently()]);
    let log = site
        .empty()
        .read(format!("/var/run/softmig/jobs/{job}/log"))?;
    let log = log.context("no log")?;
    let line = format!("] job {job}: refused cuInit: {NO_CONF} (1)\n");
    assert!(log.ends_with(&line), "{log}");
    let refused = Answer::refused(job, NO_CONF);
    let said = site.step(job, "whose; env -i SOFTMIG_LOG_LEVEL=3 /opt/programs/whose")?;
    assert_eq!(said, [refused.clone(), refused]);
    site.end(job)
}

fn a_damaged_conf_gives_no_gpu(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let job = site.job("gpu:l40s.2:1")?;
    as_root(site, job, "cp $conf $conf.kept")?;
    for damage in [
        "sed -i /LIMIT/d $conf",
        "sed -i /SM_LIMIT/d $conf",
        "sed -i 0,/22732M/s//90G/ $conf",
        "sed -i s/=22732M/=-1/ $conf",
        "sed -i s/=hard/=whole/ $conf",
        "sed -i s/=hard/=none/ $conf",
        "sed -i /UID/p $conf",
        "echo garbage >>$conf",
        "printf '\\377\\n' >>$conf",
        "truncate --size=-1 $conf",
        "truncate --size=40 $conf",
        "truncate --size=0 $conf",
        "head --bytes=1M /dev/urandom >$conf",
        "for i in {1..99999}; do echo X$i=1; done >>$conf",
    ] {
        as_root(site, job, &format!("cp $conf.kept $conf && {damage}"))?;
        let said = site.step(job, "whose")?;
        assert_eq!(said, [Answer::refused(job, DAMAGED)], "{damage}");
    }
    as_root(site, job, "mv $conf.kept $conf")?;
    let limited = Answer::limited(job, HALF.0, HALF.1);
    assert_eq!(site.step(job, "whose")?, [limited]);
    site.end(job)
}

fn a_conf_that_is_not_roots_own_gives_no_gpu(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let job = site.job("gpu:l40s.2:1")?;
    // A conf as the user would like it: theirs, and well-formed.
    as_root(
        site,
        job,
        "mv $conf $conf.kept && printf 'SOFTMIG_UID=2001\\nSOFTMIG_MODE=whole\\nSOFTMIG_GPUS=\\n' >/tmp/forged &&
         chown alice: /tmp/forged",
    )?;
    // The file system of the confs has no devices.
    let (not_permitted, no_device, a_link) = (1, 13, 40);
    for (forgery, error) in [
        ("cp --preserve /tmp/forged $conf", not_permitted),
        ("cp $conf.kept $conf && chmod 664 $conf", not_permitted),
        ("cp $conf.kept $conf && chmod 646 $conf", not_permitted),
        ("cp $conf.kept $conf && chown bob $conf", not_permitted),
        ("ln -s /tmp/forged $conf", a_link),
        ("ln -s $conf.kept $conf", a_link),
        (
            "ln /tmp/forged $conf 2>/dev/null || cp -p /tmp/forged $conf",
            not_permitted,
        ),
        ("mkfifo $conf", not_permitted),
        ("mkdir $conf", not_permitted),
        ("mknod $conf c 1 5", no_device),
    ] {
        as_root(site, job, &format!("rm -rf $conf && {forgery}"))?;
        let reason = format!("a file of softmig's cannot be read: error {error}");
        let said = site.step(job, "whose")?;
        assert_eq!(said, [Answer::refused(job, &reason)], "{forgery}");
    }
    // The control: root's word for the same is believed.
    as_root(site, job, "rm -rf $conf && cp /tmp/forged $conf")?;
    assert_eq!(site.step(job, "whose")?, [Answer::passive()]);
    site.end(job)
}

/// On a cluster of its own: what other tests damage would come in between.
fn a_damaged_conf_leaves_sessions_of_its_user_without_gpu(slurm: Slurm) -> Result<()> {
    let cluster = loaded(slurm).start()?;
    let node = cluster.node(0);
    let job = start_job(&cluster, node.name(), "alice", "gpu:l40s.2:1")?;
    let damage = format!("truncate --size=40 /var/run/softmig/{job}.conf");
    node.run_as_root(&["sh", "-c", &damage])?.ok()?;
    let alice = outside(node, "alice", "whose")?;
    assert_eq!(alice, [Answer::refused_outside(DAMAGED)]);
    assert_eq!(outside(node, "bob", "whose")?, [Answer::passive()]);
    Ok(())
}

fn a_user_cannot_write_his_conf_as_root_of_a_namespace(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let conf = format!("/var/run/softmig/{}.conf", site.half);
    let forge = format!(
        "(echo SOFTMIG_MODE=whole >>{conf}) 2>/dev/null && echo written\n\
         rm -f {conf} 2>/dev/null && echo removed\n\
         mv /tmp/forged {conf} 2>/dev/null && echo replaced\n\
         chown root: /tmp/forged 2>/dev/null; whose"
    );
    site.assert_known(&format!("touch /tmp/forged\n{forge}"))?;
    site.assert_known(&format!(
        "touch /tmp/forged\nunshare --map-root-user --mount sh -c '{forge}'"
    ))
}

/// The user could also cover the library. The monitor sees what a user's own mounts hide.
fn a_process_that_covers_the_confs_gets_no_gpu(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let cover = "mount -t tmpfs none /run/softmig && exec whose";
    let script = format!("unshare --map-root-user --mount sh -c '{cover}'");
    let refused = Answer::refused(site.quarter, NO_CONF);
    assert_eq!(site.step(site.quarter, &script)?, [refused]);
    Ok(())
}

fn a_changed_conf_holds_for_processes_started_later(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let job = site.job("gpu:l40s.2:1")?;
    // The first process has looked, then waits for the second.
    let script = "mark=$(mktemp -u)\nwhose until $mark >$mark.old 2>&1 & until grep -qs whose: $mark.old; do sleep 0.05; done\n\
        touch $HOME/$SLURM_JOB_ID.looked; until [ -e $HOME/$SLURM_JOB_ID.changed ]; do sleep 0.05; done\n\
        whose; touch $mark; wait; cat $mark.old";
    std::thread::scope(|scope| {
        let step = scope.spawn(|| site.step(job, script));
        let looked = format!("/home/alice/{job}.looked");
        site.cluster
            .wait_until("the first process has looked", || {
                Ok(site.cluster.read(&looked)?.is_some())
            })?;
        as_root(
            site,
            job,
            "sed -i 's/=22732M/=11366M/; s/=50$/=25/; s,=2/4,=1/4,' $conf",
        )?;
        site.cluster
            .write(format!("/home/alice/{job}.changed"), "")?;
        let said = step.join().expect("the step's thread")?;
        let before = Answer::limited(job, HALF.0, HALF.1);
        let after = Answer::limited(job, HALF.0 / 2, "25");
        // The old process says nothing new.
        assert_eq!(said, [after, before, Answer::limited_silently()]);
        site.end(job)
    })
}
