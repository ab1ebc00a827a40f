//! The configuration of a running Slurm, as its own commands print it.

use crate::ask::conf::{
    Accounting, Association, Job, Node, Partition, Qos, Reservation, Seen, Settings,
};
use softmig_node::slurmctld::{AskError, Commands};
use softmig_policy::slurm::conf::{printed_pairs, printed_value as value};
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::hostlist::expand;
use softmig_policy::slurm::release::SlurmVersion;

/// The facts that Slurm's commands print.
pub(crate) struct Running {
    /// slurm.conf as it is in force.
    pub(crate) settings: Settings,
    /// cgroup.conf of the controller, if this release prints it.
    pub(crate) cgroup: Option<Settings>,
    /// The nodes.
    pub(crate) nodes: Vec<Node>,
    /// The partitions.
    pub(crate) partitions: Vec<Partition>,
    /// The reservations.
    pub(crate) reservations: Seen<Vec<Reservation>>,
    /// The jobs, if they were asked for.
    pub(crate) jobs: Seen<Vec<Job>>,
    /// The records of slurmdbd.
    pub(crate) accounting: Seen<Accounting>,
}

/// Asks for all of it.
pub(crate) fn ask(commands: &Commands, with_jobs: bool) -> Result<Running, AskError> {
    let scontrol = |words: &[&str]| commands.long_answer("scontrol", words);
    let (settings, cgroup) = config(&scontrol(&["show", "config"])?);
    let nodes = nodes(&scontrol(&["-o", "show", "node"])?);
    let partitions = partitions(&scontrol(&["-a", "-o", "show", "partition"])?);
    let reservations = scontrol(&["-a", "-o", "show", "reservation"]);
    let jobs = match with_jobs {
        true => jobs(commands),
        false => Ok(Vec::new()),
    };
    let accounting = accounting(commands, &settings);
    Ok(Running {
        settings,
        cgroup,
        nodes,
        partitions,
        reservations: reservations
            .map(|answer| reservations_of(&answer))
            .map_err(|error| error.to_string()),
        jobs,
        accounting,
    })
}

/// `scontrol show config`: slurm.conf, and below a heading of its own cgroup.conf. Each line is one pair, whose value may have
/// blanks without quotes.
fn config(answer: &str) -> (Settings, Option<Settings>) {
    let mut settings = Settings::default();
    let mut cgroup = None;
    let mut other = false;
    for line in answer.lines() {
        if line.starts_with("Cgroup Support Configuration") {
            cgroup = Some(Settings::default());
        } else if line.ends_with("Configuration:") {
            other = true;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let section = match &mut cgroup {
            _ if other => continue,
            Some(cgroup) => cgroup,
            None => &mut settings,
        };
        section.add(key.trim(), value.trim());
    }
    (settings, cgroup)
}

/// The release that is in force.
pub(crate) fn version(settings: &Settings) -> Option<SlurmVersion> {
    settings.get("SLURM_VERSION").parse().ok()
}

fn nodes(answer: &str) -> Vec<Node> {
    let lines = answer.lines().filter(|line| line.starts_with("NodeName="));
    lines
        .map(|line| Node {
            name: value(line, "NodeName").to_string(),
            gres: Configured::parse(value(line, "Gres")),
            cpus: value(line, "CPUTot").parse().ok(),
            state: value(line, "State").to_string(),
        })
        .collect()
}

fn partitions(answer: &str) -> Vec<Partition> {
    let lines = answer
        .lines()
        .filter(|line| line.starts_with("PartitionName="));
    lines
        .map(|line| Partition {
            name: value(line, "PartitionName").to_string(),
            nodes: expand(value(line, "Nodes")),
            settings: printed_pairs(line).collect(),
        })
        .collect()
}

fn reservations_of(answer: &str) -> Vec<Reservation> {
    let lines = answer
        .lines()
        .filter(|line| line.starts_with("ReservationName="));
    lines
        .map(|line| Reservation {
            name: value(line, "ReservationName").to_string(),
            nodes: expand(value(line, "Nodes")),
            tres: value(line, "TRES").to_string(),
        })
        .collect()
}

/// The columns of a job. Each of the last four may have a request for GPUs.
const JOB_COLUMNS: [&str; 8] = [
    "JobArrayID:64|",
    "UserName:64|",
    "Account:64|",
    "Reason:32|",
    "tres-per-job:128|",
    "tres-per-node:128|",
    "tres-per-socket:128|",
    "tres-per-task:128|",
];

fn jobs(commands: &Commands) -> Seen<Vec<Job>> {
    let format = format!("--Format={}", JOB_COLUMNS.join(","));
    let answer = commands.long_answer(
        "squeue",
        &[
            "--noheader",
            "--all",
            "--local",
            "--states=PENDING,CONFIGURING,RUNNING,SUSPENDED",
            &format,
        ],
    );
    let answer = answer.map_err(|error| format!("squeue did not say: {error}"))?;
    Ok(answer.lines().filter_map(job_of).collect())
}

fn job_of(line: &str) -> Option<Job> {
    let mut columns = line.split('|').map(|column| column.trim().to_string());
    let id = columns.next().filter(|id| !id.is_empty())?;
    let (user, account) = (columns.next()?, columns.next()?);
    // A job that an administrator holds cannot be released by its user.
    if columns.next()? == "JobHeldAdmin" {
        return None;
    }
    let gres = columns
        .flat_map(|asked| Configured::parse(&asked))
        .collect();
    Some(Job {
        id,
        user,
        account,
        gres,
    })
}

/// The columns of a QOS, by sacctmgr's names.
const QOS_COLUMNS: [&str; 14] = [
    "Name",
    "Priority",
    "Flags",
    "MaxTRESPerUser",
    "MaxTRES",
    "MaxJobsPU",
    "MaxWall",
    "GrpTRES",
    "MaxTRESPerAccount",
    "MaxTRESPerNode",
    "MinTRES",
    "GrpTRESMins",
    "MaxTRESMins",
    "GrpTRESRunMins",
];

/// The columns of an association. The last ones are limits.
const ASSOCIATION_COLUMNS: [&str; 8] = [
    "Account",
    "User",
    "QOS",
    "GrpTRES",
    "MaxTRES",
    "MaxTRESPerNode",
    "GrpTRESMins",
    "MaxTRESMins",
];

fn accounting(commands: &Commands, settings: &Settings) -> Seen<Accounting> {
    if !settings.get("AccountingStorageType").ends_with("slurmdbd") {
        return Err("Slurm does not use slurmdbd here, so it has no QOS".into());
    }
    let sacctmgr = |words: &[&str]| {
        let answer = commands.long_answer("sacctmgr", &[&["-nP", "show"], words].concat());
        answer.map_err(|error| format!("slurmdbd did not say: {error}"))
    };
    let format = |columns: &[&str]| format!("format={}", columns.join(","));
    let qos = sacctmgr(&["qos", &format(&QOS_COLUMNS)])?;
    let cluster = format!("cluster={}", settings.get("ClusterName"));
    let associations = sacctmgr(&["assoc", &cluster, &format(&ASSOCIATION_COLUMNS)])?;
    Ok(Accounting {
        qos: qos.lines().filter_map(qos_of).collect(),
        associations: associations.lines().filter_map(association_of).collect(),
    })
}

fn qos_of(line: &str) -> Option<Qos> {
    let fields: Settings = QOS_COLUMNS.into_iter().zip(line.split('|')).collect();
    let name = fields.get("Name").to_string();
    (!name.is_empty()).then_some(Qos { name, fields })
}

fn association_of(line: &str) -> Option<Association> {
    let mut columns = line.split('|');
    let account = columns.next().filter(|name| !name.is_empty())?.to_string();
    let user = columns.next()?.to_string();
    let qos = columns.next()?.split(',').filter(|name| !name.is_empty());
    let qos = qos.map(str::to_string).collect();
    let limits: Vec<&str> = columns.filter(|limit| !limit.is_empty()).collect();
    Some(Association {
        account,
        user,
        qos,
        limits: limits.join(","),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_both_releases_is_read() {
        let answer = "Configuration data as of 2026-11-22T08:55:18\n\
            AccountingStorageType   = (null)\n\
            Prolog[0]               = /a\nProlog[1]               = /b\n\
            SelectTypeParameters    = CR_CORE_MEMORY\n\
            SLURM_VERSION           = 24.11.5\n\n\
            Cgroup Support Configuration:\nConstrainDevices        = yes\n\n\
            MPI Plugins Configuration:\nPMIxDebug               = 0\n\n\
            Slurmctld(primary) at c is UP\n";
        let (settings, cgroup) = config(answer);
        assert_eq!(settings.get("prolog"), "/a,/b");
        assert_eq!(settings.get("AccountingStorageType"), "");
        assert!(settings.has("SelectTypeParameters", "CR_Core_Memory"));
        assert_eq!(version(&settings), "24.11.5".parse().ok());
        assert!(cgroup.unwrap().is_yes("ConstrainDevices"));
        assert_eq!(settings.get("PMIxDebug"), "");
    }

    #[test]
    fn nodes_partitions_and_reservations_are_read() {
        let node =
            &nodes("NodeName=n1 CPUTot=16 Gres=gpu:l40s:4(S:0),shard:l40s:16 OS=Linux 6\n")[0];
        assert_eq!((node.count("shard", "l40s"), node.cpus), (16, Some(16)));
        let partition = &partitions(
            "PartitionName=main Nodes=n[1-2] JobDefaults=(null) TRESBillingWeights=GRES/gpu=4.0\n",
        )[0];
        assert_eq!(partition.nodes, ["n1", "n2"]);
        assert_eq!(partition.settings.get("TRESBillingWeights"), "GRES/gpu=4.0");
        let reservations = "ReservationName=r Nodes=n1 TRES=cpu=1,gres/gpu:l40s=1 Users=root\n";
        assert_eq!(
            reservations_of(reservations)[0].tres,
            "cpu=1,gres/gpu:l40s=1"
        );
        assert!(reservations_of("No reservations in the system\n").is_empty());
    }

    #[test]
    fn what_squeue_prints_is_read() {
        let job = |reason: &str, asked: &str| {
            job_of(&format!("12_[0-3]  |alice   |teaching |{reason} |{asked}|"))
        };
        let kinds = |asked: &str| -> Vec<String> {
            let job = job("Priority", asked).unwrap();
            let gpus = job.gres.into_iter().filter(|gres| gres.name == "gpu");
            gpus.filter_map(|gres| gres.kind).collect()
        };
        let own = job("None", "N/A |N/A |N/A |N/A ").unwrap();
        assert_eq!(
            [own.id, own.user, own.account],
            ["12_[0-3]", "alice", "teaching"]
        );
        assert_eq!(kinds("N/A |gres:gpu:l40s_r:1 |N/A |N/A "), ["l40s_r"]);
        assert_eq!(kinds("gres/gpu:l40s_r |N/A |N/A |N/A "), ["l40s_r"]);
        assert_eq!(kinds("N/A|N/A|N/A|cpu=2,gres/gpu:l40s_r=1 "), ["l40s_r"]);
        assert!(job("JobHeldAdmin", "N/A|gres/gpu:l40s_r:1|N/A|N/A").is_none());
        assert!(job_of("").is_none());
    }

    #[test]
    fn what_sacctmgr_prints_is_read() {
        let qos =
            qos_of("student|10|DenyOnLimit|billing=2|gres/shard=2|3|1-00:00:00|||||||").unwrap();
        assert_eq!(qos.fields.get("MaxTRESPerUser"), "billing=2");
        let association = association_of("teaching|alice|normal,student|gres/gpu=4||||").unwrap();
        assert_eq!(association.called(), "alice in teaching");
        assert_eq!(association.qos, ["normal", "student"]);
        assert_eq!(association.limits, "gres/gpu=4");
        assert!(association_of("").is_none());
    }
}
