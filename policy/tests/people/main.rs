//! The rights of users: gates, classes, reserved GPUs, routes, older units; one behaviour a test.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod classes;
mod gates;
mod hints;
mod idle;
mod requests;
mod reserved;
mod wrong;

use softmig_policy::{
    Code, Context, Grant, MaybeKnown, Policy, Refusal, Request, Submitter, Terms, Verdict,
    WallTime, decide,
};

const GPUS: &str = "\
[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
[gpu.h200]\nmemory_mib = 143771\nreserved_mib = 616\nshards = 8\n\
[gpu.titanrtx]\nmemory_mib = 24220\nreserved_mib = 0\nshards = 80\nslices = [4, 8, 10, 16, 20]\n\
[gpu.\"h100_1g.10gb\"]\nmemory_mib = 9856\nreserved_mib = 4\nshards = 1\nmig = true\n";

/// 2026-11-22T00:00:00Z.
const NOW: i64 = 1_795_305_600;

fn policy(text: &str) -> Policy {
    // Keys of the top level come before any table.
    let text = format!("plain_types = [\"v100\", \"h100\"]\n{text}\n{GPUS}");
    Policy::parse_at(&text, "UTC").unwrap_or_else(|error| panic!("{error}"))
}

fn wrong(text: &str) -> String {
    let error = Policy::parse_at(&format!("{text}\n{GPUS}"), "UTC");
    error.unwrap_err().to_string()
}

fn alice() -> Submitter {
    Submitter {
        user: Some("alice".into()),
        group: Some(2001),
        account: MaybeKnown::Is("students".into()),
        partition: MaybeKnown::Is("main".into()),
        batch: true,
        ..Submitter::default()
    }
}

fn ask(policy: &Policy, gres: &str, submitter: Submitter) -> Verdict {
    let request = Request {
        tres_per_node: Some(gres.into()),
        ..Request::default()
    };
    ask_for(policy, &request, submitter)
}

fn ask_for(policy: &Policy, request: &Request, submitter: Submitter) -> Verdict {
    let context = Context {
        submitter,
        now: NOW,
        ..Context::default()
    };
    decide(policy, request, &context)
}

#[track_caller]
fn refused(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn granted(verdict: Verdict) -> Grant {
    match verdict {
        Verdict::Granted(grant) => *grant,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn passed(verdict: Verdict) -> Terms {
    match verdict.terms() {
        Some(terms) => terms.clone(),
        None => panic!("{verdict:?}"),
    }
}

const GATE: &str =
    "[[gate]]\nwhat = \"slice\"\nreservation = [\"jhl_homework_gpu_.*\", \"course_[0-9]+\"]\n";

const CLASSES: &str = "\
[defaults]\nshards = 1\nwhole_gpus = 0\nmig = {}\n\
[classes.student]\nmembers = { users = [\"alice\"], accounts = [\"teaching\"], groups = [3001] }\nshards = 2\n\
[classes.researcher]\nmembers = { accounts = [\"research\"] }\nshards = 16\nmax_shards_per_job = 8\nwhole_gpus = 2\nshards_of = { h200 = 4 }\nmig = { \"h100_1g.10gb\" = 2 }\nwall_time = \"1-00:00:00\"\nother_qos = [\"long\"]\n\
[classes.admin]\nmembers = { users = [\"carol\"] }\nshards = \"unlimited\"\nwhole_gpus = \"unlimited\"\nmig = { \"h100_1g.10gb\" = \"unlimited\" }\nqos = \"gpu-admin\"\n\
[users.dave]\nclass = \"student\"\nshards = 4\n";

fn researcher() -> Submitter {
    Submitter {
        user: Some("rita".into()),
        account: MaybeKnown::Is("research".into()),
        ..alice()
    }
}

const RESERVED: &str = "\
[[reservable]]\ntype = \"l40s_r\"\nof = \"l40s\"\nuser = \"alice\"\nstart = 2026-11-21T08:00:00\nend = 2026-11-28T08:00:00\nreason = \"paper deadline\"\n";
