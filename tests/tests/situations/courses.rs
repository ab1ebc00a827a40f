//! Course nodes: slices only inside reservations, in units of mps, on the least loaded GPU; and how many jobs a node holds.

use super::{cluster, end, refused, running, stay};
use anyhow::Result;
use softmig_tests::{Cluster, Gpus, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    five_jobs_on_four_gpus_are_spread_where_slurm_can;
    others:
    students_of_a_course_share_its_gpus,
    four_jobs_at_once_are_on_four_gpus,
    a_node_holds_as_many_jobs_as_its_gpus_have_parts,
    slices_and_whole_gpus_keep_off_each_other,
);

const COURSE: &str = "\
[placement]
shards = \"spread\"
[gpu.titanrtx]
memory_mib = 24220
reserved_mib = 256
shards = 80
slices = [4, 8, 10, 16, 20]
[legacy.mps]
type = \"titanrtx\"
units_per_gpu = 320
[[gate]]
what = \"slice\"
reservation = [\"jhl_homework_.*\"]
";

fn course(slurm: Slurm) -> Result<Cluster> {
    let gpus = Gpus::new("titanrtx", "NVIDIA TITAN RTX", 4).shards(80);
    cluster(slurm, COURSE, "[\"titanrtx:4\"]", &[gpus])
}

const SHARED: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";

fn spread(slurm: Slurm) -> Result<Cluster> {
    let policy = format!("[placement]\nshards = \"spread\"\n{SHARED}");
    cluster(slurm, &policy, "[\"l40s:4\"]", &[Gpus::l40s(4)])
}

fn students_of_a_course_share_its_gpus(slurm: Slurm) -> Result<()> {
    let cluster = course(slurm)?;
    for name in ["jhl_homework_gpu_1", "evil_jhl_homework_gpu_1"] {
        cluster.reserve_nodes(name, "alice,bob")?;
    }
    let inside = "--reservation=jhl_homework_gpu_1";
    for (options, code) in [
        (&["--gres=mps:80"][..], "GATE_NO_RESERVATION"),
        (&["--gres=gpu:titanrtx.4:1"], "GATE_NO_RESERVATION"),
        (
            &["--gres=mps:80", "--reservation=evil_jhl_homework_gpu_1"],
            "GATE_RESERVATION",
        ),
        (&["--gres=mps:81", inside], "SLICE_SIZE"),
    ] {
        let refusal = refused(&cluster, "alice", options)?;
        assert!(refusal.contains(code), "{options:?}: {refusal}");
    }
    let mut jobs = Vec::new();
    for user in ["alice", "bob"] {
        for gres in ["--gres=mps:80", "--gres=gpu:titanrtx.8:1"] {
            let job = stay(&cluster, user, &[gres, inside])?;
            cluster.wait_job(job, "RUNNING")?;
            jobs.push(job);
        }
    }
    let confs = jobs.iter().map(|job| {
        let conf = format!("/var/run/softmig/{job}.conf");
        cluster.node(0).read(conf)
    });
    let confs: Vec<String> = confs
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    assert!(confs[0].contains("SOFTMIG_SHARDS=20/80\n"), "{confs:?}");
    assert!(confs[1].contains("SOFTMIG_SHARDS=10/80\n"), "{confs:?}");
    Ok(())
}

fn gpus_of(cluster: &Cluster, jobs: &[u32]) -> Result<Vec<u32>> {
    let mut gpus = Vec::new();
    for job in jobs {
        cluster.wait_job(job, "RUNNING")?;
        gpus.extend(cluster.job_gpus(job)?);
    }
    Ok(gpus)
}

/// How many jobs each of the four GPUs has, the fullest first.
fn loads(gpus: &[u32]) -> Vec<usize> {
    let load = |gpu| gpus.iter().filter(|&&other| other == gpu).count();
    let mut loads: Vec<usize> = (0..4).map(load).collect();
    loads.sort_unstable_by(|one, other| other.cmp(one));
    loads
}

fn five_jobs_on_four_gpus_are_spread_where_slurm_can(slurm: Slurm) -> Result<()> {
    let cluster = spread(slurm)?;
    let mut jobs = Vec::new();
    for _ in 0..5 {
        let job = stay(&cluster, "alice", &["--gres=gpu:l40s.4:1"])?;
        cluster.wait_job(job, "RUNNING")?;
        jobs.push(job);
    }
    let expected = match slurm {
        // It always packs, and `softmig config` says so.
        Slurm::V22_05 => [4, 1, 0, 0],
        Slurm::V24_11 | Slurm::V26_05 => [2, 1, 1, 1],
    };
    assert_eq!(loads(&gpus_of(&cluster, &jobs)?), expected);
    Ok(())
}

fn four_jobs_at_once_are_on_four_gpus(slurm: Slurm) -> Result<()> {
    let cluster = spread(slurm)?;
    let script = "for i in 1 2 3 4; do sbatch --parsable --time=30 --gres=gpu:l40s.4:1 --wrap 'sleep 600' & done; wait";
    let said = cluster.user("alice").run(&["bash", "-c", script])?.ok()?;
    let jobs: Vec<u32> = said.lines().map(str::parse).collect::<Result<_, _>>()?;
    assert_eq!(jobs.len(), 4, "{said}");
    let expected = match slurm {
        Slurm::V22_05 => [4, 0, 0, 0],
        Slurm::V24_11 | Slurm::V26_05 => [1, 1, 1, 1],
    };
    assert_eq!(loads(&gpus_of(&cluster, &jobs)?), expected);
    Ok(())
}

fn a_node_holds_as_many_jobs_as_its_gpus_have_parts(slurm: Slurm) -> Result<()> {
    let cluster = spread(slurm)?;
    for (gres, capacity) in [
        ("--gres=gpu:l40s:1", 4),
        ("--gres=gpu:l40s.2:1", 8),
        ("--gres=gpu:l40s.4:1", 16),
    ] {
        let mut jobs = Vec::new();
        for _ in 0..capacity {
            jobs.push(stay(&cluster, "alice", &[gres])?);
        }
        for job in &jobs {
            cluster.wait_job(job, "RUNNING")?;
        }
        let more = stay(&cluster, "alice", &[gres])?;
        cluster.wait_reason(more, "Resources")?;
        assert_eq!(running(&cluster, &jobs)?, capacity, "{gres}");
        cluster.run("root", &["scancel", "--user=alice"])?.ok()?;
        for job in jobs {
            cluster.wait_job(job, "CANCELLED")?;
        }
        cluster.wait_until("the node is idle", || {
            Ok(cluster.sinfo_states()? == ["idle"])
        })?;
    }
    Ok(())
}

fn slices_and_whole_gpus_keep_off_each_other(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm, SHARED, "[\"l40s:4\"]", &[Gpus::l40s(4)])?;
    let slice = stay(&cluster, "alice", &["--gres=gpu:l40s.4:1"])?;
    let wholes = stay(&cluster, "bob", &["--gres=gpu:l40s:3"])?;
    let mut taken = gpus_of(&cluster, &[slice, wholes])?;
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 2, 3]);
    // The rest of the slice's GPU is for slices alone.
    let whole = stay(&cluster, "bob", &["--gres=gpu:l40s:1"])?;
    cluster.wait_reason(whole, "Resources")?;
    end(&cluster, whole)?;
    let half = stay(&cluster, "alice", &["--gres=gpu:l40s.2:1"])?;
    assert_eq!(gpus_of(&cluster, &[half])?, gpus_of(&cluster, &[slice])?);
    let next = stay(&cluster, "alice", &["--gres=gpu:l40s.2:1"])?;
    cluster.wait_reason(next, "Resources")?;
    end(&cluster, wholes)?;
    cluster.wait_job(next, "RUNNING")?;
    Ok(())
}
