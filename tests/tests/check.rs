//! `softmig check` on a real Slurm: a right one is clean, and what Slurm answers is read. Rules and texts are tested beside
//! them, and files in softmig/tests/check.rs.

mod nodes;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use softmig_tests::config::cgroups_usable;
use softmig_tests::softmig::installed;
use softmig_tests::{Accounting, Builder, Cluster, Gpus, Output, Slurm, on_each_slurm};

on_each_slurm!(
    seams:
    a_right_cluster_is_clean;
    others:
    reservations_are_looked_at,
    ways_past_the_policy_are_found,
    qos_are_what_the_policy_makes_them,
    a_slurmctld_that_is_silent_holds_up_no_answer,
);

const POLICY: &str = "/etc/softmig/policy.toml";

const GPUS: &str = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n";

/// A cluster with the policy for its GPUs.
fn site(slurm: Slurm) -> Builder {
    installed(slurm).file(POLICY, GPUS)
}

/// `softmig check`'s report.
#[derive(Debug)]
struct Said {
    status: i32,
    /// The codes of errors and warnings.
    codes: Vec<String>,
    /// Where something could not be looked at.
    skipped: Vec<String>,
    all: Vec<Value>,
}

impl Said {
    fn of(output: &Output) -> Result<Said> {
        let json: Value =
            serde_json::from_str(&output.stdout).with_context(|| output.to_string())?;
        let all = json["findings"].as_array().context("no findings")?.clone();
        let text =
            |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let of = |levels: &[&str], key: &str| {
            let found = all
                .iter()
                .filter(|finding| levels.contains(&text(finding, "level").as_str()));
            found
                .map(|finding| text(finding, key))
                .collect::<Vec<String>>()
        };
        Ok(Said {
            status: output.status.code().context("killed")?,
            codes: of(&["error", "warn"], "code"),
            skipped: of(&["skip"], "where"),
            all,
        })
    }

    fn has(&self, code: &str) -> bool {
        self.codes.iter().any(|own| own == code)
    }
}

fn check_with(cluster: &Cluster, words: &[&str]) -> Result<Said> {
    Said::of(&cluster.run("root", &[&["softmig", "check", "--json"], words].concat())?)
}

/// Its report on Slurm. The machine of slurmctld has devices here that a controller has not.
fn check(cluster: &Cluster) -> Result<Said> {
    check_with(cluster, &["--slurm"])
}

/// The codes, without those of control groups where Slurm has none.
fn beside_control_groups(codes: &[String]) -> Vec<&str> {
    let own = codes.iter().map(String::as_str);
    own.filter(|code| {
        cgroups_usable() || !["PROCTRACK", "CONSTRAIN_DEVICES", "CGROUP_LAYOUT"].contains(code)
    })
    .collect()
}

fn a_right_cluster_is_clean(slurm: Slurm) -> Result<()> {
    let cluster = site(slurm).nodes(2).start()?;
    let said = check(&cluster)?;
    assert_eq!(beside_control_groups(&said.codes), [""; 0], "{said:?}");
    ensure!(!cgroups_usable() || said.status == 0, "{said:?}");
    // The policy has no limits, so slurmdbd is not missed; all else could be looked at.
    assert_eq!(said.skipped, [""; 0], "{said:?}");
    // Every user may run it.
    let output = cluster.run("alice", &["softmig", "check", "--slurm"])?;
    ensure!(
        output
            .stdout
            .ends_with("0 warnings, 0 things not looked at\n"),
        "{output}"
    );
    Ok(())
}

fn reservations_are_looked_at(slurm: Slurm) -> Result<()> {
    let gate = "[[gate]]\nwhat = \"slice\"\nreservation = [\"course_[0-9]+\"]\n";
    let cluster = site(slurm)
        .file(POLICY, format!("{GPUS}{gate}"))
        .accounting(Accounting::new())
        .start()?;
    ensure!(check(&cluster)?.has("GATE_RESERVATION"));
    let reserve = |words: &str| {
        let line =
            format!("scontrol create reservation StartTime=now Duration=60 Users=alice {words}");
        cluster.run("root", &["sh", "-c", &line])?.ok()
    };
    reserve("ReservationName=course_7 Nodes=ALL Flags=IGNORE_JOBS,OVERLAP")?;
    let said = check(&cluster)?;
    ensure!(!said.has("GATE_RESERVATION"), "{said:?}");
    // 22.05 reserves no GRES.
    if slurm >= Slurm::V24_11 {
        cluster
            .run("root", &["scontrol", "delete", "ReservationName=course_7"])?
            .ok()?;
        reserve("ReservationName=course_8 TRES=cpu=1,gres/gpu:l40s=1")?;
        let said = check(&cluster)?;
        ensure!(said.has("RESERVATION_INVADED"), "{said:?}");
    }
    Ok(())
}

fn ways_past_the_policy_are_found(slurm: Slurm) -> Result<()> {
    let kept_for = |user: &str| {
        format!(
            "{GPUS}[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"{user}\"\nend = 2199-01-01T00:00:00Z\nreason = \"x\"\n"
        )
    };
    let kept = Gpus::new("l40s_r", "NVIDIA L40S", 1).shards(1);
    let cluster = site(slurm)
        .gpus([Gpus::l40s(1), kept, Gpus::l40s(2)])
        .slurm_conf("PartitionName=DEFAULT OverSubscribe=EXCLUSIVE")
        .file(POLICY, kept_for("alice"))
        .start()?;
    // One that waits, and one that runs, whichever option asks for the GPU.
    let alice = cluster.user("alice");
    let waits = alice.sbatch(&["--begin=now+1hour", "--gpus=l40s_r:1"], "true")?;
    let runs = alice.sbatch(&["--gres=gpu:l40s_r:1"], "sleep 600")?;
    cluster.wait_job(runs, "RUNNING")?;
    let from_settings = ["GPUS_ORDER", "PARTITION_EXCLUSIVE"];
    let said = check(&cluster)?;
    assert_eq!(
        beside_control_groups(&said.codes),
        from_settings,
        "{said:?}"
    );

    // Both outlive the time in which they were let in.
    cluster.write(POLICY, &kept_for("bob"))?;
    let named = |said: &Said| -> Vec<u32> {
        let found = said.all.iter();
        let texts = found.filter(|finding| finding["code"] == "RESERVABLE_JOBS");
        let texts: Vec<&str> = texts
            .filter_map(|finding| finding["what"].as_str())
            .collect();
        let is_named = |job: &u32| {
            texts
                .iter()
                .any(|text| text.contains(&format!("{job} (alice")))
        };
        [waits, runs].into_iter().filter(is_named).collect()
    };
    assert_eq!(named(&check(&cluster)?), [waits, runs]);
    cluster
        .run("root", &["scontrol", "hold", &waits.to_string()])?
        .ok()?;
    assert_eq!(named(&check(&cluster)?), [runs]);
    cluster.run("root", &["scancel", &runs.to_string()])?.ok()?;
    cluster.wait_until("the job's end", || Ok(named(&check(&cluster)?).is_empty()))
}

fn qos_are_what_the_policy_makes_them(slurm: Slurm) -> Result<()> {
    let policy = format!(
        "{GPUS}[defaults]\nshards = 2\njobs = 3\nwall_time = \"1-00:00:00\"\npriority = 10\nhost_memory_mib = 4096\n"
    );
    let cluster = site(slurm)
        .file(POLICY, policy)
        .accounting(Accounting::new())
        .start()?;
    let said = check(&cluster)?;
    assert_eq!(
        beside_control_groups(&said.codes),
        ["BILLING_WEIGHTS", "QOS_MISSING"],
        "{said:?}"
    );

    // The printed config makes it right.
    let config = format!(
        "mkdir /root/made && softmig config --slurm-version {slurm} --write /root/made && sh /root/made/softmig-qos.sh"
    );
    cluster.run("root", &["sh", "-c", &config])?.ok()?;
    let made = cluster
        .read("/root/made/softmig.conf")?
        .context("softmig.conf")?;
    let weights = made
        .split_ascii_whitespace()
        .find(|word| word.starts_with("TRESBillingWeights="));
    let conf = cluster
        .read("/etc/slurm/slurm.conf")?
        .context("slurm.conf")?;
    let with = conf.replace(
        "PartitionName=main",
        &format!("PartitionName=main {}", weights.context("no weights")?),
    );
    cluster.write("/etc/slurm/slurm.conf", &with)?;
    cluster.restart_slurmctld()?;
    let said = check(&cluster)?;
    assert_eq!(beside_control_groups(&said.codes), [""; 0], "{said:?}");

    // An administrator changes it by hand.
    for (words, code) in [
        (
            "modify qos softmig set MaxTRESPerUser=billing=9",
            "QOS_LIMITS",
        ),
        (
            "modify qos softmig set MaxTRESPerUser=billing=2,mem=4G MaxWall=2-00:00:00",
            "QOS_LIMITS",
        ),
        (
            "modify qos softmig set MaxWall=1-00:00:00 Priority=1",
            "QOS_PRIORITY",
        ),
        (
            "modify qos softmig set Priority=10 Flags-=DenyOnLimit",
            "QOS_FLAGS",
        ),
        ("modify qos softmig set Flags+=DenyOnLimit", ""),
        ("modify user bob set qos=normal", "QOS_NOT_ALLOWED"),
        ("modify user bob set qos=normal,softmig", ""),
        ("add qos long GrpTRES=gres/gpu=4", "LIMIT_GPU_ONLY"),
        ("delete qos long", ""),
        ("modify user bob set MaxTRES=gres/gpu=1", "LIMIT_GPU_ONLY"),
    ] {
        cluster.sacctmgr(words)?;
        let said = check(&cluster)?;
        let expected: Vec<&str> = Some(code)
            .filter(|code| !code.is_empty())
            .into_iter()
            .collect();
        assert_eq!(
            beside_control_groups(&said.codes),
            expected,
            "{words}: {said:?}"
        );
    }

    // Rules that would ask slurmdbd are reported as skipped while it is away.
    cluster.stop_slurmdbd()?;
    let said = check(&cluster)?;
    ensure!(
        said.skipped.contains(&"QOS and associations".to_string()),
        "{said:?}"
    );
    Ok(())
}

fn a_slurmctld_that_is_silent_holds_up_no_answer(slurm: Slurm) -> Result<()> {
    let cluster = site(slurm).start()?;
    let pid = cluster.slurmctld_pid()?.context("slurmctld")?;
    cluster.run("root", &["kill", "-STOP", &pid])?.ok()?;
    let start = Instant::now();
    let said = check(&cluster);
    cluster.run("root", &["kill", "-CONT", &pid])?.ok()?;
    let said = said?;
    ensure!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
    assert_eq!((said.status, said.skipped.len()), (1, 1), "{said:?}");
    assert_eq!(said.skipped, ["Slurm"], "{said:?}");
    Ok(())
}
