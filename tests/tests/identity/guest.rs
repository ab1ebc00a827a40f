//! The same on control groups of version 2, in a guest kernel: one boot for each version of Slurm, with all in one script.

use std::fs;

use anyhow::{Context, Result};
use softmig_tests::programs::{LIBRARY, PRELOAD, tree};
use softmig_tests::softmig::stage;
use softmig_tests::uml::{Uml, UmlOutput};
use softmig_tests::{Gpus, Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::place::NO_CONF;
use crate::identity::site::{HALF, QUARTER};

on_each_slurm!(seams: on_cgroup_v2_a_job_is_known_wherever_it_goes);

/// Alice's jobs with slices. Bob's half is the second, on the GPU of the first; the fourth is alice's, a whole GPU.
const QUARTER_JOB: u32 = 1;
const HALF_JOB: u32 = 3;

/// Brings the jobs up.
const JOBS: &str = r#"
export SOFTMIG_LOG_LEVEL=3 PATH=/opt/programs:$PATH
cgroups=/sys/fs/cgroup scope=/sys/fs/cgroup/system.slice/n1_slurmstepd.scope
stay() { as $1 sbatch --parsable --output=/dev/null --gres=$2 --wrap 'touch $HOME/$SLURM_JOB_ID.up; exec sleep 1000'; }
stay alice gpu:l40s.4:1; stay bob gpu:l40s.2:1; stay alice gpu:l40s.2:1; stay alice gpu:l40s:1
wait_until '[ "$(echo /home/*/*.up | wc -w)" = 4 ]' || exit
first=$(group 1) third=$(group 3) fourth=$(group 4)
# step NAME USER JOB: what clients say in a step, by the script on standard input.
step() { as $2 srun --jobid=$3 --overlap bash -c "exec 2>&1; $(cat)" >$OUT/$1 </dev/null; }
# there NAME GROUP COMMAND...: what they say where root puts them.
there() {
    local name=$1 group=$2
    shift 2
    mkdir -p $group && bash -c "echo \$\$ >$group/cgroup.procs && exec \"\$@\"" there "$@" >$OUT/$name 2>&1
}
"#;

/// Changes of a job's process to itself: it stays that job's.
const DISGUISES: &str = r#"
step known alice 3 <<'END'
    whose
    env -i SOFTMIG_LOG_LEVEL=3 /opt/programs/whose
    SLURM_JOB_ID=4 CUDA_DEVICE_MEMORY_LIMIT=90G whose
    unshare --user whose
    unshare --map-root-user whose
    unshare --map-root-user unshare --map-root-user whose
    unshare --map-root-user --mount --pid --fork whose
    before=$(cat /proc/self/cgroup)
    for list in $(find /sys/fs/cgroup -name cgroup.procs); do
        echo $$ 2>/dev/null >$list && echo moved to $list
    done
    mkdir /sys/fs/cgroup/job_9 ${before#0::}/job_9 2>/dev/null && echo made a group
    [ "$before" = "$(cat /proc/self/cgroup)" ] || echo moved
    setsid --wait whose
END
for job in 1 4; do echo unshare --map-root-user --cgroup whose | step hidden$job alice $job; done
echo whose | step whole alice 4
echo unshare --map-root-user --cgroup whose | step hidden2 bob 2
"#;

/// Processes that Slurm did not start.
const ELSEWHERE: &str = r#"
as alice whose >$OUT/alice 2>&1
as bob unshare --map-root-user --cgroup whose >$OUT/hidden 2>&1
extern=$scope/$third/step_extern/user/task_special
there adopted $extern runuser -u alice whose
there container $extern unshare --cgroup runuser -u alice whose
there root $extern whose
# A session as a service manager makes it: the user's own from his service on.
service=$cgroups/user.slice/user-2001.slice/user@2001.service
mkdir -p $service && chown -R alice: $service
there service $service runuser -u alice -- bash -c "
    for group in $fourth app.slice/slurmstepd.scope/$fourth/step_0/user/task_0 slurm/uid_2001/job_4 sEKNKTV3WPV500; do
        mkdir -p $service/\$group && echo \$\$ >$service/\$group/cgroup.procs && whose
    done"
# A namespace that begins at the user's own folder shows any path that he likes.
forged=$service/slurmstepd.scope/$fourth/step_0
there forged $service runuser -u alice -- unshare --map-root-user --cgroup bash -c "
    mkdir -p $forged && echo \$\$ >$forged/cgroup.procs && grep -qx 0::/slurmstepd.scope/$fourth/step_0 /proc/self/cgroup && whose"
there docker $cgroups/docker/4f/system.slice/slurmstepd.scope/$fourth/step_0 runuser -u alice whose
# Layouts of other sites and versions.
there slice $cgroups/hpc.slice/hpc-slurm.slice/slurmstepd.scope/$third/step_0/user/task_0 runuser -u alice whose
sluid=$cgroups/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0
there sluid_without_conf $sluid runuser -u alice whose
cp /run/softmig/3.conf /run/softmig/sEKNKTV3WPV500.conf
there sluid $sluid runuser -u alice whose
# Without its conf, as a job is from before softmig came, and without the second name of it, as from before an upgrade.
rm -f /run/softmig/1.conf /run/softmig/$first.conf
echo whose | step missing alice 1
softmig node enforce >$OUT/enforced
echo whose | step given alice 1
rm -f /run/softmig/$first.conf
softmig node enforce >$OUT/upgraded
echo whose | step named alice 1
"#;

/// Boots with the library in every process, and the client.
fn run(slurm: Slurm) -> Result<UmlOutput> {
    let client = tempfile::tempdir()?;
    for (from, to) in [
        ("whose", "opt/programs/whose"),
        ("libbare.so", "usr/lib/x86_64-linux-gnu/libcuda.so.1"),
    ] {
        let to = client.path().join(to);
        fs::create_dir_all(to.parent().context("a folder")?)?;
        fs::copy(tree().join("opt/programs").join(from), to)?;
    }
    Uml::builder(slurm)
        .gpus([Gpus::l40s(4)])
        .stage(stage())
        .stage(client.path())
        .file("/etc/softmig/node.conf", "SOFTMIG_NODE=enforce\n")
        .file(PRELOAD, format!("{LIBRARY}\n"))
        .run(&[JOBS, DISGUISES, ELSEWHERE].concat())?
        .ok()
}

fn on_cgroup_v2_a_job_is_known_wherever_it_goes(slurm: Slurm) -> Result<()> {
    let run = run(slurm)?;
    let quarter = || Answer::limited(QUARTER_JOB, QUARTER.0, QUARTER.1);
    let half = || Answer::limited(HALF_JOB, HALF.0, HALF.1);
    let on_its_gpus = Answer::limited_as_on_its_gpus;
    for (name, expected) in [
        ("known", vec![half(); 8]),
        ("whole", vec![Answer::passive()]),
        ("hidden1", vec![on_its_gpus(QUARTER_JOB)]),
        ("hidden2", vec![on_its_gpus(QUARTER_JOB)]),
        ("hidden4", vec![Answer::alone_on_its_gpus()]),
        ("alice", vec![quarter()]),
        ("hidden", vec![on_its_gpus(QUARTER_JOB)]),
        ("adopted", vec![half()]),
        ("container", vec![quarter()]),
        ("root", vec![half()]),
        ("service", vec![quarter(); 4]),
        ("forged", vec![on_its_gpus(QUARTER_JOB)]),
        ("docker", vec![quarter()]),
        ("slice", vec![half()]),
        ("sluid_without_conf", vec![Answer::refused_outside(NO_CONF)]),
        ("sluid", vec![half()]),
        ("given", vec![quarter()]),
        ("named", vec![quarter()]),
    ] {
        let said = Answer::all(run.output(name)?)?;
        assert_eq!(said, expected, "{name} of {slurm}\n{run}");
    }
    // A SLUID tells no number.
    let missing = match slurm {
        Slurm::V22_05 | Slurm::V24_11 => Answer::refused(QUARTER_JOB, NO_CONF),
        Slurm::V26_05 => Answer::refused_outside(NO_CONF),
    };
    assert_eq!(Answer::all(run.output("missing")?)?, [missing], "{run}");
    let enforced = run.output("enforced")?;
    assert!(enforced.contains("job 1 ran without a conf"), "{enforced}");
    let upgraded = run.output("upgraded")?;
    let named = upgraded.contains("job 1 ran without its SLUID");
    assert_eq!(named, slurm >= Slurm::V26_05, "{upgraded}");
    Ok(())
}
