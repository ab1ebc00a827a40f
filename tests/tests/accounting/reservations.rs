//! GPUs set aside for one user: a type of their own, and a reservation of that type.

use anyhow::Result;
use softmig_tests::{Cluster, Gpus, Slurm, on_each_slurm};

use super::{cluster, end, run, stay};

on_each_slurm!(
    seams:
    a_reserved_type_is_kept_from_those_who_name_it,
    a_request_without_type_takes_a_reserved_gpu,
    a_reservation_of_a_gpu_alone_takes_every_processor,
    a_holder_has_no_more_processors_than_were_reserved,
    a_type_without_shards_needs_a_node_without_shards,
    a_reservation_stays_on_its_node_where_it_is_static,
);

/// Three GPUs for all, and one that is alice's where Slurm can reserve GPUs; nothing where it cannot.
fn reserved(slurm: Slurm, tres: &str) -> Result<Option<Cluster>> {
    let kinds = [Gpus::l40s(3), Gpus::new("l40s_r", "NVIDIA L40S", 1)];
    let cluster = cluster(slurm).gpus(kinds).start()?;
    let tres = format!("TRES={tres}");
    let create = [
        "scontrol",
        "create",
        "reservation",
        "reservationname=hers",
        "users=alice",
    ];
    let when = ["start=now", "duration=60", "flags=ignore_jobs", &tres];
    let made = cluster.run("root", &[&create[..], &when].concat())?;
    if slurm >= Slurm::V24_11 {
        made.ok()?;
        return Ok(Some(cluster));
    }
    let said = made.refused()?;
    assert!(
        said.contains("TRES type 'gres/gpu:l40s_r' not supported with reservations"),
        "{said}"
    );
    Ok(None)
}

const ONE: &str = "cpu=2,gres/gpu:l40s_r=1";
const WITH_IT: &str = "--reservation=hers";

fn a_reserved_type_is_kept_from_those_who_name_it(slurm: Slurm) -> Result<()> {
    let Some(cluster) = reserved(slurm, ONE)? else {
        return Ok(());
    };
    // The others' GPUs are full, and what names their type waits for them. In 26.05 no job begins that would outlast the
    // reservation while another waits for what is reserved, so these come first.
    for _ in 0..3 {
        run(&cluster, "carol", &["--gres=shard:l40s:4"])?;
    }
    let whole = stay(&cluster, "bob", &["--gres=gpu:l40s_r:1"])?;
    cluster.wait_reason(whole, "Resources")?;
    let slice = stay(&cluster, "dave", &["--gres=shard:l40s:1"])?;
    let gpu = stay(&cluster, "dave", &["--gres=gpu:l40s:1"])?;
    let job = run(&cluster, "alice", &["--gres=gpu:l40s_r:1", WITH_IT])?;
    assert_eq!(cluster.job_gpus(job)?, [3]);
    for job in [whole, slice, gpu] {
        assert_eq!(cluster.job_state(job)?.as_deref(), Some("PENDING"));
    }
    Ok(())
}

/// Why job-submit names the type of each request, and keeps the reserved types to their holders itself.
fn a_request_without_type_takes_a_reserved_gpu(slurm: Slurm) -> Result<()> {
    let Some(cluster) = reserved(slurm, ONE)? else {
        return Ok(());
    };
    for _ in 0..3 {
        run(&cluster, "carol", &["--gres=gpu:l40s:1"])?;
    }
    for gres in ["--gres=gpu:1", "--gres=shard:1", "--gres=shard:l40s_r:1"] {
        let job = run(&cluster, "bob", &[gres])?;
        assert_eq!(cluster.job_gpus(job)?, [3], "{gres}");
        let holder = stay(&cluster, "alice", &["--gres=gpu:l40s_r:1", WITH_IT])?;
        cluster.wait_reason(holder, "Resources")?;
        end(&cluster, holder)?;
        end(&cluster, job)?;
    }
    Ok(())
}

fn a_reservation_of_a_gpu_alone_takes_every_processor(slurm: Slurm) -> Result<()> {
    for (tres, cores) in [("gres/gpu:l40s_r=1", "CoreCnt=16 "), (ONE, "CoreCnt=2 ")] {
        let Some(cluster) = reserved(slurm, tres)? else {
            return Ok(());
        };
        let show = ["scontrol", "--oneliner", "show", "reservation", "hers"];
        let said = cluster.run("root", &show)?.ok()?;
        assert!(said.contains(cores), "{tres}: {said}");
    }
    Ok(())
}

fn a_holder_has_no_more_processors_than_were_reserved(slurm: Slurm) -> Result<()> {
    let Some(cluster) = reserved(slurm, ONE)? else {
        return Ok(());
    };
    if slurm >= Slurm::V26_05 {
        // A reservation holds whole GPUs of its type, and nothing else.
        let whole = run(&cluster, "alice", &["--gres=gpu:l40s_r:1", WITH_IT])?;
        assert_eq!(cluster.job_gpus(whole)?, [3]);
        let other = stay(&cluster, "alice", &["--gres=shard:l40s:1", WITH_IT])?;
        return cluster.wait_reason(other, "Resources");
    }
    let slice = run(&cluster, "alice", &["--gres=shard:l40s_r:1", WITH_IT])?;
    assert_eq!(cluster.job_gpus(slice)?, [3]);
    // GPUs that were not reserved are no less hers.
    let other = run(&cluster, "alice", &["--gres=shard:l40s:1", WITH_IT])?;
    assert_eq!(cluster.job_gpus(other)?, [0]);
    let third = stay(&cluster, "alice", &["--gres=shard:l40s_r:1", WITH_IT])?;
    cluster.wait_reason(third, "Resources")?;
    // Without its name, alice is one of the others.
    let outside = stay(&cluster, "alice", &["--gres=gpu:l40s_r:1"])?;
    run(&cluster, "alice", &["--gres=shard:l40s:1"])?;
    assert_eq!(cluster.job_state(outside)?.as_deref(), Some("PENDING"));
    Ok(())
}

/// slurmd of 24.11 reports no shards of such a type as zero shards, which slurmctld takes for an error.
fn a_type_without_shards_needs_a_node_without_shards(slurm: Slurm) -> Result<()> {
    let cluster = cluster(slurm)
        .gpus([Gpus::l40s(1), Gpus::new("h100", "NVIDIA H100", 1)])
        .start()?;
    for file in ["/etc/slurm/slurm.conf", "/etc/slurm/gres.conf"] {
        let text = cluster.read(file)?.unwrap_or_default();
        let keep = |line: &&str| !line.contains("Name=shard Type=h100");
        let lines: Vec<&str> = text.lines().filter(keep).collect();
        cluster.write(file, &lines.join("\n").replace(",shard:h100:4", ""))?;
    }
    cluster.kill_slurmd(cluster.node(0))?;
    cluster.restart_slurmctld()?;
    cluster.start_slurmd(cluster.node(0))?;
    let expected = match slurm {
        Slurm::V22_05 => "idle",
        Slurm::V24_11 | Slurm::V26_05 => "inval",
    };
    cluster.wait_until(&format!("the node is {expected}"), || {
        Ok(cluster.sinfo_states()? == [expected])
    })
}

/// Why softmig-reservations.sh names the nodes, and asks for STATIC_ALLOC.
fn a_reservation_stays_on_its_node_where_it_is_static(slurm: Slurm) -> Result<()> {
    if slurm < Slurm::V24_11 {
        return Ok(());
    }
    let kept = [Gpus::l40s(2), Gpus::new("l40s_r", "NVIDIA L40S", 2)];
    let cluster = cluster(slurm)
        .nodes(2)
        .gpus([Gpus::l40s(4)])
        .gpus_of(1, kept)
        .start()?;
    let node = cluster.node(1).name();
    let here = format!(" Nodes={node} ");
    let shown = |name: &str| {
        let show = ["scontrol", "--oneliner", "show", "reservation", name];
        cluster.run("root", &show)?.ok()
    };
    let fixed = format!("flags=ignore_jobs,static_alloc,flex,magnetic nodes={node}");
    for (name, words) in [("stays", &*fixed), ("walks", "flags=ignore_jobs")] {
        let create = format!(
            "scontrol create reservation reservationname={name} users=alice start=now duration=60 tres={ONE} {words}"
        );
        cluster.run("root", &["sh", "-c", &create])?.ok()?;
        let said = shown(name)?;
        assert!(said.contains(&here), "{said}");
        assert!(said.contains("gres/gpu:l40s_r=1"), "{said}");
    }
    let drain = format!("scontrol update nodename={node} reason=x state=drain");
    cluster.run("root", &["sh", "-c", &drain])?.ok()?;
    cluster.wait_until("the reservation is elsewhere", || {
        Ok(!shown("walks")?.contains(&here))
    })?;
    // It was looked at before the other one.
    let said = shown("stays")?;
    assert!(said.contains(&here), "{said}");
    assert!(said.contains("gres/gpu:l40s_r=1"), "{said}");
    Ok(())
}
