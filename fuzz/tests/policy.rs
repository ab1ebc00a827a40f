//! Texts of users, administrators and Slurm, which `policy` reads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;

use softmig_fuzz::{bytes, text};
use softmig_node::job::JobId;
use softmig_policy::node::cgroup;
use softmig_policy::node::env_limits::Environment;
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::node_conf::NodeConf;
use softmig_policy::node::size::Bytes;
use softmig_policy::node::tag::{self, Tag};
use softmig_policy::slurm::allocation::Allocation;
use softmig_policy::slurm::conf;
use softmig_policy::slurm::gres::{self, Gres, Item};
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::slurm::hostlist;
use softmig_policy::{Context, NodePolicy, Policy, Request, Verdict, WallTime, decide};

const POLICY: &str = include_str!("../../conf/policy.toml");
const CONF: &str = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nCUDA_DEVICE_MEMORY_LIMIT_0=11366M\n\
    CUDA_DEVICE_SM_LIMIT_0=25\nSOFTMIG_JOB=7\nSOFTMIG_UID=2001\nSOFTMIG_TYPE=l40s\nSOFTMIG_SHARDS=1/4\n\
    SOFTMIG_MODE=hard\nSOFTMIG_GPUS=GPU-00000000-1111-2222-3333-444444444444\nSOFTMIG_RUN=2\nSOFTMIG_START=1799654400\n";

#[test]
fn gres() {
    let valid = [
        "gpu:l40s.4:1",
        "gres/gpu:l40s.4=1,gres/shard:l40s:1",
        "gres:gpu:2,license:x:2",
        "shard:l40s:1,gpu",
    ];
    text(3000, &valid, |text| {
        let mut pieces = Vec::new();
        for (piece, item) in gres::items(text) {
            pieces.push(piece);
            match item {
                Item::Gpu(gres) => {
                    let printed = gres.to_string();
                    let again = gres::items(&printed).map(|(_, item)| item);
                    let plain = gres::items("gpu").find_map(|(_, item)| match item {
                        Item::Gpu(gpu) => Some(gpu.prefix),
                        _ => None,
                    });
                    let expected = Gres {
                        prefix: plain.unwrap(),
                        ..gres
                    };
                    assert_eq!(again.collect::<Vec<_>>(), [Item::Gpu(expected)]);
                }
                Item::Malformed(whole) | Item::Other(whole) => assert_eq!(whole, piece),
            }
        }
        assert_eq!(pieces.join(","), text);
        Configured::parse(text);
    });
}

#[test]
fn requests() {
    let policy = Policy::parse(POLICY).unwrap();
    let valid = ["gres/gpu:l40s.4:1", "gres/shard:l40s:1", "gres/gpu:h200:2"];
    text(3000, &valid, |text| {
        let request = Request {
            tres_per_node: Some(text.into()),
            ..Request::default()
        };
        let verdict = decide(&policy, &request, &Context::default());
        if let Some(tag) = verdict.tag() {
            assert_eq!(Tag::parse(&tag.to_string()), Ok(tag));
        }
        if let Verdict::Refused(refusal) = verdict {
            assert!(!refusal.to_string().is_empty());
        }
    });
}

#[test]
fn host_lists() {
    let valid = [
        "gpu[01-03,7],login",
        "a[1-2]b[3-4]",
        "n1",
        "n[1-999999999],m",
    ];
    text(3000, &valid, |text| {
        let Ok(names) = hostlist::parse(text) else {
            hostlist::expand(text);
            return;
        };
        // Those of the others take seconds.
        if names.len() < 1000 {
            let list = hostlist::compress(names.iter().map(String::as_str));
            let again: BTreeSet<_> = hostlist::parse(&list).unwrap().into_iter().collect();
            assert_eq!(again, names.into_iter().collect(), "{list}");
        }
    });
}

#[test]
fn policy_toml() {
    let short = "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n[[nodes]]\nnames = \"n[1-2]\"\ngpus = { l40s = 4 }\n";
    text(400, &[POLICY, short, short], |text| {
        let for_node = NodePolicy::parse(text);
        match Policy::parse(text) {
            Ok(policy) => {
                for_node.unwrap();
                let request = Request {
                    tres_per_node: Some("gres/gpu:l40s.4:1".into()),
                    ..Request::default()
                };
                decide(&policy, &request, &Context::default());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        let _ = Policy::parse_for_client(text);
    });
}

#[test]
fn confs_of_jobs() {
    let whole = "SOFTMIG_UID=2001\nSOFTMIG_MODE=whole\nSOFTMIG_GPUS=\n";
    bytes(3000, &[CONF, whole], |bytes| {
        if let Ok(conf) = JobConf::parse(bytes) {
            assert_eq!(JobConf::parse(conf.to_string().as_bytes()), Ok(conf));
        }
    });
}

#[test]
fn confs_of_nodes() {
    let valid = [
        "SOFTMIG_NODE=observe\nSOFTMIG_IDENTITY=env\n",
        include_str!("../../conf/node.conf"),
    ];
    bytes(3000, &valid, |bytes| {
        if let Ok(conf) = NodeConf::parse(bytes) {
            assert_eq!(NodeConf::parse(conf.to_string().as_bytes()), Ok(conf));
        }
    });
}

#[test]
fn tags() {
    let valid = [
        "my first run softmig=1:l40s:1/4:11366:hard",
        "softmig=1:whole",
        "softmig=1:ask and more",
    ];
    text(3000, &valid, |text| {
        for word in tag::tokens(text) {
            if let Ok(read) = Tag::parse(word) {
                assert_eq!(Tag::parse(&read.to_string()), Ok(read));
            }
        }
        assert_eq!(Tag::find(&tag::strip(text)), None);
        let put = Tag::Whole.put(text);
        assert_eq!(Tag::find(&put), Some(Ok(Tag::Whole)), "{put}");
        assert!(put.len() <= tag::FIELD_MAX);
    });
}

#[test]
fn numbers() {
    let valid = [
        "11366M",
        "1.5GiB",
        "30",
        "4:00:00",
        "7-00:00:00",
        "1-12",
        "7",
    ];
    text(3000, &valid, |text| {
        let _ = Bytes::parse(text);
        let _ = Environment::read(|_, _| Some(text.as_bytes()));
        if let Some(time) = WallTime::parse(text) {
            assert_eq!(WallTime::parse(&time.to_string()), Some(time));
        }
        if let Some(job) = JobId::parse(text) {
            assert_eq!(job.to_string(), text);
        }
    });
}

#[test]
fn what_scontrol_prints() {
    let valid = [
        "JobId=7 Nodes=n1 CPU_IDs=0 Mem=500 GRES=shard:l40s:1(IDX:0)",
        "Nodes=n[1-2] CPU_IDs=0-3 Mem=0 GRES=gpu:l40s:2(IDX:0-1),shard:l40s:1(1/4,0/4)",
        "Nodes=n2 GRES=gpu:1(IDX:0) Nodes=n1 GRES=",
    ];
    text(3000, &valid, |text| {
        Allocation::parse(text, "n1");
    });
}

#[test]
fn slurm_conf() {
    let valid = [
        "SlurmctldParameters=allow_user_triggers,extra\nStateSaveLocation=/var/spool # here\n",
        include_str!("../../conf/slurm.conf"),
    ];
    text(1000, &valid, |text| {
        conf::parses_extra(text);
        conf::state_save_location(text);
    });
}

#[test]
fn control_groups() {
    let valid = [
        "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n",
        "9:devices:/slurm/uid_2001/job_12/step_batch\n0::/\n",
    ];
    bytes(3000, &valid, |bytes| {
        cgroup::place(bytes);
    });
}
