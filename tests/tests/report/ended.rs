//! A job after its end, as `softmig job` and `softmig report` have it from the accounting.

use crate::report::site::{FIGURES, Site};
use anyhow::{Context, Result};
use serde_json::Value;
use softmig_tests::{Output, Slurm, on_each_slurm};
use softmig_usage::js1::Js1;

on_each_slurm!(a_job_that_has_ended_is_told_with_what_its_summary_knows,);

fn told(site: &Site, user: &str, words: &[&str]) -> Result<Output> {
    site.cluster.run(user, &[&["softmig"], words].concat())
}

fn a_job_that_has_ended_is_told_with_what_its_summary_knows(slurm: Slurm) -> Result<()> {
    let site = Site::new(slurm, "admin_comment = true\n")?;
    // The report leaves out jobs that ran for no second.
    let job = site.start("sleep 1.5")?;
    let monitor = site.monitor(job, FIGURES)?;
    site.finish(job)?;
    let (id, node) = (job.to_string(), site.cluster.node(0).name());

    // Before the summary is there, and for ever on 22.05.
    let mut said = String::new();
    site.cluster.wait_until("the accounting has the end", || {
        let output = told(&site, "alice", &["job", &id])?;
        said.clone_from(&output.stdout);
        let is_kept = !output
            .stderr
            .contains("admin_comment = true under [report]");
        Ok(!said.is_empty() && (output.success() || !is_kept))
    })?;
    println!("{said}");
    assert!(
        said.starts_with(&format!("job {id} on {node}: 1 ")),
        "{said}"
    );
    assert!(said.contains(", COMPLETED; it started 20"), "{said}");
    if slurm == Slurm::V22_05 {
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(
            lines[0].ends_with(": 1 shard of type l40s (l40s.4)"),
            "{said}"
        );
        return a_task_is_found(&site);
    }

    site.wait_for_comment(job, "JS1:")?;
    drop(monitor);
    let said = told(&site, "alice", &["job", &id])?.ok()?;
    println!("{said}");
    let mut lines: Vec<&str> = said.lines().collect();
    assert!(
        lines.remove(1).contains(", COMPLETED; it started 20"),
        "{said}"
    );
    let head = format!("job {id} on {node}: 1 quarter of type l40s, 11.1 GiB and 25 % of its time");
    assert_eq!(
        lines,
        [
            &*head,
            "  memory   7.9 GiB at most, of 11.1 GiB",
            "  time     152.5 s charged of 250.0 s allowed: 61 %",
            "  waited   40.0 s of 1000.0 s: 4 %",
            "  refused  no allocation",
            "  smaller  there is no smaller slice",
        ]
    );
    let json = told(&site, "alice", &["job", "--json", &id])?.ok()?;
    println!("{json}");
    let json: Value = serde_json::from_str(&json)?;
    let ended = &json["ended"];
    assert_eq!((&json["job"], &json["node"]), (&Value::Null, &node.into()));
    assert_eq!(
        (&ended["job"], &ended["user"]),
        (&job.into(), &"alice".into())
    );
    assert_eq!(ended["memory_peak_bytes"], 8_493_465_600_u64);
    assert_eq!(
        (&ended["shards"], &json["allowed_seconds"]),
        (&1.into(), &250.0.into())
    );

    // A job that had no GPU, and one that there never was.
    let none = site.cluster.user("alice").sbatch(&[], "true")?.to_string();
    site.cluster
        .wait_until("the accounting has the other's end", || {
            let said = told(&site, "alice", &["job", &none])?;
            Ok(said
                .stderr
                .contains("had no GPU that Slurm's accounting knows of: COMPLETED at 20"))
        })?;
    let said = told(&site, "alice", &["job", "99999"])?;
    assert!(
        !said.success() && said.stderr.contains("Slurm shows you no job 99999"),
        "{said}"
    );

    // The same figures, added up.
    let said = told(&site, "alice", &["report"])?.ok()?;
    println!("{said}");
    let row: Vec<&str> = said
        .lines()
        .nth(1)
        .context("no row")?
        .split_whitespace()
        .collect();
    assert_eq!(row[..4], ["alice", "science", "normal", "1"], "{said}");
    assert_eq!(
        row[5..],
        ["71", "%", "61", "%", "4", "%", "0.0", "0", "0.0"],
        "{said}"
    );
    let json: Value = serde_json::from_str(&told(&site, "alice", &["report", "--json"])?.ok()?)?;
    println!("{json}");
    let row = &json["rows"][0];
    assert_eq!(
        (&row["user"], &row["jobs"], &row["unknown_jobs"]),
        (&"alice".into(), &1.into(), &0.into())
    );
    assert_eq!((&row["time"], &row["waited"]), (&0.61.into(), &0.04.into()));
    assert_eq!(json["schema_version"], 1);
    a_task_is_found(&site)
}

/// A task of an array, by the number that squeue shows.
fn a_task_is_found(site: &Site) -> Result<()> {
    let options = ["--array=3,5", "--gres=shard:l40s:1"];
    let array = site.cluster.user("alice").sbatch(&options, "true")?;
    for task in [3, 5] {
        let name = format!("{array}_{task}");
        let head = format!(", which is {name}, on {}: 1 ", site.cluster.node(0).name());
        site.cluster
            .wait_until("the accounting has the task's end", || {
                let said = told(site, "alice", &["job", &name])?;
                Ok(said.stdout.contains(&head))
            })?;
    }
    let said = told(site, "alice", &["job", &format!("{array}_4")])?;
    assert!(said.stderr.contains("Slurm shows you no job"), "{said}");
    Ok(())
}

/// jobstats writes its own summary at a job's end, and knows nothing of slices. sacctmgr of 22.05 would destroy it.
#[test]
fn a_summary_of_jobstats_gets_what_it_lacks() -> Result<()> {
    let site = Site::new(Slurm::V24_11, "admin_comment = true\n")?;
    let node = site.cluster.node(0).name().to_string();
    let jobstats = format!(
        r#"{{"nodes":{{"{node}":{{"total_memory":8000,"used_memory":70,"total_time":3.5,"cpus":4}}}},"total_time":9,"gpus":0,"later":true}}"#
    );
    let jobstats: Js1 = serde_json::from_str(&jobstats)?;
    let job = site.start("true")?;
    let monitor = site.monitor(job, FIGURES)?;
    site.finish(job)?;
    let set = format!(
        "modify job where jobid={job} set AdminComment={}",
        jobstats.encode()?
    );
    site.cluster.wait_until("slurmdbd knows the job", || {
        // Before that, nothing is modified.
        drop(site.cluster.try_sacctmgr(&set)?);
        Ok(site.admin_comment(job)?.starts_with("JS1:"))
    })?;
    let mut both = Value::Null;
    site.cluster.wait_until("the summary has both", || {
        both = serde_json::to_value(Js1::decode(&site.admin_comment(job)?)?)?;
        Ok(both["nodes"][&node].get("softmig").is_some())
    })?;
    drop(monitor);
    let of_node = &both["nodes"][&node];
    assert_eq!(
        (&of_node["cpus"], &of_node["total_memory"]),
        (&4.into(), &8000.into()),
        "{both}"
    );
    assert_eq!(of_node["gpu_used_memory"]["0"], 8_493_465_600_u64, "{both}");
    assert_eq!(
        (&both["total_time"], &both["later"]),
        (&9.into(), &true.into()),
        "{both}"
    );
    assert_eq!(both["gpus"], 1, "{both}");
    let said = told(&site, "alice", &["job", &job.to_string()])?.ok()?;
    assert!(
        said.contains("\n  time     152.5 s charged of 250.0 s allowed: 61 %\n"),
        "{said}"
    );
    Ok(())
}
