//! Outside: processes that Slurm did not start, and those that try to leave their job.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use softmig_tests::{Node, Slurm, on_each_slurm};

use crate::identity::answer::Answer;
use crate::identity::site::{Site, outside, site};

on_each_slurm!(
    seams:
    a_session_not_adopted_gets_its_users_smallest_slice,
    a_user_without_slices_is_left_alone_or_as_he_asks,
    an_adopted_session_is_held_to_its_jobs_slice,
    a_container_with_proc_of_its_own_is_held_to_its_jobs_slice,
    a_container_with_own_groups_gets_its_users_smallest_slice,
    a_process_in_two_jobs_gets_its_users_smallest_slice,
    a_job_cannot_move_to_another_control_group,
    a_users_folder_with_a_jobs_name_does_not_count_as_a_job,
    a_path_like_a_jobs_is_none_in_a_cgroup_namespace,
    leaving_the_job_for_an_own_control_group_gains_nothing,
);

fn a_session_not_adopted_gets_its_users_smallest_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let crowded = site.crowded();
    assert_eq!(outside(crowded, "alice", "whose")?, [site.quarter_answer()]);
    assert_eq!(outside(crowded, "bob", "whose")?, [site.bobs()]);
    // It cannot choose another.
    let script = format!(
        "export SLURM_JOB_ID={} CUDA_DEVICE_MEMORY_LIMIT=90G\nwhose",
        site.whole
    );
    assert_eq!(outside(crowded, "alice", &script)?, [site.quarter_answer()]);
    // By su and by cron it is root who becomes the user.
    let su = "runuser -u alice whose; su alice -c whose";
    assert_eq!(
        outside(
            crowded,
            "root",
            &format!("{su}\nsetsid --fork --wait runuser -u alice whose")
        )?,
        [
            site.quarter_answer(),
            site.quarter_answer(),
            site.quarter_answer()
        ]
    );
    assert_eq!(outside(crowded, "root", "whose")?, [Answer::passive()]);
    Ok(())
}

fn a_user_without_slices_is_left_alone_or_as_he_asks(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let bad = "CUDA_DEVICE_MEMORY_LIMIT or CUDA_DEVICE_SM_LIMIT cannot be read: write for example 4G, and 25";
    let script = "whose\nCUDA_DEVICE_MEMORY_LIMIT=1g whose\nCUDA_DEVICE_SM_LIMIT=25 whose\n\
        CUDA_DEVICE_SM_LIMIT=0 whose\nCUDA_DEVICE_MEMORY_LIMIT=-1 whose";
    assert_eq!(
        outside(site.empty(), "bob", script)?,
        [
            Answer::passive(),
            Answer::limited_by_itself(),
            Answer::limited_by_itself(),
            Answer::passive(),
            Answer::refused_outside(bad)
        ]
    );
    Ok(())
}

/// A script for root that goes where Slurm puts a session that it adopts, and runs this there.
pub fn adopt(site: &Site, job: u32, then: &str) -> String {
    enter(site, &["freezer", "devices", "cpuset", "memory"], job) + then
}

/// A script for root that goes into a job's control groups in some hierarchies.
fn enter(site: &Site, hierarchies: &[&str], job: u32) -> String {
    let node = site.crowded().name();
    format!(
        "for hierarchy in {}; do\n\
         group=/sys/fs/cgroup/$hierarchy/slurm_{node}/uid_2001/job_{job}/step_extern\n\
         [ ! -d $group ] || echo $$ >$group/cgroup.procs || exit\n\
         done\ngrep -q job_{job} /proc/self/cgroup || exit\n",
        hierarchies.join(" ")
    )
}

fn an_adopted_session_is_held_to_its_jobs_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let script = adopt(site, site.half, "exec runuser -u alice whose");
    assert_eq!(
        outside(site.crowded(), "root", &script)?,
        [site.half_answer()]
    );
    // In one hierarchy is as good as in all.
    for hierarchy in ["freezer", "devices"] {
        let script = enter(site, &[hierarchy], site.half) + "exec runuser -u alice whose";
        assert_eq!(
            outside(site.crowded(), "root", &script)?,
            [site.half_answer()]
        );
    }
    Ok(())
}

/// As container runtimes make it that have root's rights.
fn a_container_with_proc_of_its_own_is_held_to_its_jobs_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let own_proc = "exec unshare --pid --fork --mount-proc --ipc --uts runuser -u alice whose";
    let script = adopt(site, site.half, own_proc);
    assert_eq!(
        outside(site.crowded(), "root", &script)?,
        [site.half_answer()]
    );
    Ok(())
}

/// Its list of control groups says nothing any more, but its user is known.
fn a_container_with_own_groups_gets_its_users_smallest_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let own_groups = "exec unshare --cgroup --pid --fork --mount-proc runuser -u alice whose";
    let script = adopt(site, site.whole, own_groups);
    assert_eq!(
        outside(site.crowded(), "root", &script)?,
        [site.quarter_answer()]
    );
    Ok(())
}

fn a_process_in_two_jobs_gets_its_users_smallest_slice(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let script = enter(site, &["freezer"], site.half)
        + &enter(site, &["devices"], site.whole)
        + "exec runuser -u alice whose";
    assert_eq!(
        outside(site.crowded(), "root", &script)?,
        [site.quarter_answer()]
    );
    Ok(())
}

fn a_job_cannot_move_to_another_control_group(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    // Every control group of root's, those of the user's other jobs among them: none takes the process.
    let move_away = "before=$(cat /proc/self/cgroup)\n\
        for list in $(find /sys/fs/cgroup -name \"delegated-*\" -prune -o -name cgroup.procs -print -o -name tasks -print 2>/dev/null); do\n\
        echo $$ 2>/dev/null >$list && echo moved to $list\ndone\n\
        mkdir /sys/fs/cgroup/*/job_9 /sys/fs/cgroup/*/slurm_*/job_9 2>/dev/null && echo made a group\n\
        [ \"$before\" = \"$(cat /proc/self/cgroup)\" ] || echo moved\nwhose";
    site.assert_known(move_away)?;
    site.assert_known(&format!(
        "unshare --map-root-user --mount bash -c '{move_away}'"
    ))
}

/// Control groups that root gave to alice, one in each of these hierarchies, as a service manager does for sessions.
struct Delegated<'a> {
    node: &'a Node,
    name: String,
    hierarchies: &'static [&'static str],
}

impl<'a> Delegated<'a> {
    fn new(node: &'a Node, hierarchies: &'static [&'static str]) -> Result<Delegated<'a>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let delegated = Delegated {
            node,
            name: format!("delegated-{}-{count}", std::process::id()),
            hierarchies,
        };
        delegated.each(
            "mkdir $group && { [ ! -e $group/cpuset.cpus ] || \
             { cat $group/../cpuset.cpus >$group/cpuset.cpus && cat $group/../cpuset.mems >$group/cpuset.mems && \
             echo 1 >$group/cgroup.clone_children; }; } && chown -R alice: $group || exit",
        )?;
        Ok(delegated)
    }

    /// Runs a line for each group as root.
    fn each(&self, line: &str) -> Result<()> {
        self.node
            .run_as_root(&["sh", "-c", &self.for_each(line)])?
            .ok()
            .map(drop)
    }

    fn for_each(&self, line: &str) -> String {
        format!(
            "for group in {}; do {line}; done\n",
            self.hierarchies
                .iter()
                .map(|hierarchy| format!("/sys/fs/cgroup/{hierarchy}/{}", self.name))
                .collect::<Vec<_>>()
                .join(" ")
        )
    }

    /// A script for alice that goes into this folder of hers.
    fn enter(&self, folder: &str) -> String {
        self.for_each(&format!(
            "mkdir -p $group/{folder} && echo $$ >$group/{folder}/cgroup.procs || exit"
        ))
    }
}

impl Drop for Delegated<'_> {
    fn drop(&mut self) {
        // The last process may be a moment in leaving.
        let _ = self.each(
            "for i in 1 2 3 4 5 6 7 8 9; do find $group -depth -type d -exec rmdir {} + 2>/dev/null; \
             [ ! -d $group ] || sleep 0.1; done",
        );
    }
}

/// Where Slurm has jobs' control groups on these nodes.
const ALL: &[&str] = &["freezer", "devices", "cpuset", "memory"];

fn a_users_folder_with_a_jobs_name_does_not_count_as_a_job(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let delegated = Delegated::new(site.crowded(), ALL)?;
    for folder in [
        format!("job_{}", site.whole),
        format!("slurm/uid_2001/job_{}/step_0", site.whole),
        format!("slurmstepd.scope/job_{}/step_0/user/task_0", site.whole),
        "sEKNKTV3WPV500".into(),
    ] {
        let script =
            delegated.enter(&folder) + &format!("grep -q {folder} /proc/self/cgroup && whose");
        assert_eq!(
            outside(site.crowded(), "alice", &script)?,
            [site.quarter_answer()],
            "{folder}"
        );
    }
    Ok(())
}

/// A namespace that begins at the user's own folder shows any path that the user likes.
fn a_path_like_a_jobs_is_none_in_a_cgroup_namespace(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let delegated = Delegated::new(site.crowded(), ALL)?;
    let folder = format!("slurm/uid_2001/job_{}/step_0", site.whole);
    let forged = format!(
        "{}unshare --map-root-user --cgroup bash -c '{}grep -q :/{folder} /proc/self/cgroup && whose'",
        delegated.enter("."),
        delegated.enter(&folder)
    );
    assert_eq!(
        outside(site.crowded(), "alice", &forged)?,
        [Answer::limited_as_on_its_gpus(site.quarter)]
    );
    Ok(())
}

fn leaving_the_job_for_an_own_control_group_gains_nothing(slurm: Slurm) -> Result<()> {
    let site = site(slurm)?;
    let folder = format!("slurm/uid_2001/job_{}/step_0", site.whole);
    // All the way out: the smallest slice that the user has here.
    let everywhere = Delegated::new(site.crowded(), ALL)?;
    let look = format!("grep -q {folder} /proc/self/cgroup && whose");
    let script = everywhere.enter(&folder) + &look;
    assert_eq!(site.step(site.half, &script)?, [site.quarter_answer()]);
    // Part of the way: the job still.
    let somewhere = Delegated::new(site.crowded(), &["freezer", "memory"])?;
    let script = somewhere.enter(&folder) + &look;
    assert_eq!(site.step(site.half, &script)?, [site.half_answer()]);
    Ok(())
}
