//! The policy alone: `decide` on a mix of requests, in this process.

use crate::figure::{Figure, Question, Target};
use anyhow::{Context as _, Result, ensure};
use softmig_policy::slurm::cli_options::Options;
use softmig_policy::{
    Context, MaybeKnown, NodePolicy, Policy, PolicyError, Request, Submitter, Verdict, decide,
};
use softmig_tests::Slurm;
use std::hint::black_box;
use std::time::Instant;

/// How many rounds.
const ROUNDS: usize = 15;
/// How often each request is decided on in a round.
const TIMES: usize = 2_000;

/// The policy that is installed.
const POLICY: &str = include_str!("../../conf/policy.toml");

/// Requests as their users type them, each half granted and half refused, and those that are not softmig's.
struct Mix {
    granted: Vec<Request>,
    refused: Vec<Request>,
    unchanged: Vec<Request>,
}

/// Measures each kind of answer for itself.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let policy = Policy::parse(POLICY).context("conf/policy.toml")?;
    let mix = Mix::new(&policy)?;
    let kinds = [&mix.granted, &mix.refused, &mix.unchanged];
    let mut rounds = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (kind, rounds) in kinds.into_iter().zip(&mut rounds) {
            rounds.push(round(&policy, kind));
        }
    }
    let [granted, refused, unchanged] = &rounds;
    let large = large_site()?;
    let question = Question {
        what: "decide() in process".into(),
        unit: "us",
        result_unit: "us",
        target: Some(Target::Under(2.0)),
    };
    Ok(vec![
        question.answer(
            &[
                ("granted", granted),
                ("refused", refused),
                ("not ours", unchanged),
            ],
            // The two that have work to do, as often the one as the other.
            |values| f64::midpoint(values[0], values[1]),
        ),
        large,
        reading()?,
    ])
}

/// Each client with a filter reads all of policy.toml, and each prolog the node's part of it.
fn reading() -> Result<Figure> {
    let large = large_policy();
    let mut rounds: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let times = [
            microseconds(|| Policy::parse(black_box(POLICY)).map(drop))?,
            microseconds(|| NodePolicy::parse(black_box(POLICY)).map(drop))?,
            microseconds(|| Policy::parse(black_box(&large)).map(drop))?,
            microseconds(|| Policy::parse_for_client(black_box(&large)).map(drop))?,
        ];
        for (time, rounds) in times.into_iter().zip(&mut rounds) {
            rounds.push(time);
        }
    }
    let question = Question {
        what: "reading policy.toml".into(),
        unit: "us",
        result_unit: "us",
        target: None,
    };
    let [all, node, large, client] = &rounds;
    Ok(question.answer(
        &[
            ("as installed", all),
            ("what a node needs of it", node),
            ("with 200 users, 20 classes and 50 gates", large),
            ("the same in a client", client),
        ],
        |values| values[0],
    ))
}

/// The time of one call.
fn microseconds(call: impl Fn() -> Result<(), PolicyError>) -> Result<f64> {
    const TIMES: u32 = 50;
    let start = Instant::now();
    for _ in 0..TIMES {
        call()?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES))
}

/// The same with many people, classes and gates, all of which the request has to pass.
fn large_site() -> Result<Figure> {
    let policy = Policy::parse(&large_policy()).context("the policy of a large site")?;
    let request = |gres: &str| Request {
        tres_per_node: Some(gres.into()),
        ..Request::default()
    };
    let submitter = |user: &str, account: &str| Submitter {
        user: Some(user.into()),
        account: MaybeKnown::Is(account.into()),
        partition: MaybeKnown::Is("course".into()),
        reservation: Some("course_gpu_7".into()),
        batch: true,
        ..Submitter::default()
    };
    let kinds = [
        ("granted", "gpu:l40s.4:1", submitter("user150", "account3")),
        (
            "granted by account",
            "gpu:l40s.4:1",
            submitter("somebody", "account19"),
        ),
        ("refused", "gpu:l40s:1", submitter("user150", "account3")),
    ];
    let mut rounds: [Vec<f64>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, gres, submitter), rounds) in kinds.iter().zip(&mut rounds) {
            let context = Context {
                submitter: submitter.clone(),
                ..Context::default()
            };
            let request = request(gres);
            let start = Instant::now();
            for _ in 0..TIMES {
                black_box(decide(&policy, black_box(&request), &context));
            }
            rounds.push(start.elapsed().as_secs_f64() * 1e6 / TIMES as f64);
        }
    }
    for (kind, gres, submitter) in kinds {
        let context = Context {
            submitter,
            ..Context::default()
        };
        let verdict = decide(&policy, &request(gres), &context);
        let refused = matches!(verdict, Verdict::Refused(_));
        ensure!(refused == (kind == "refused"), "{kind}: {verdict:?}");
    }
    let question = Question {
        what: "decide() in process with 200 users, 20 classes and 50 gates".into(),
        unit: "us",
        result_unit: "us",
        target: Some(Target::Under(3.0)),
    };
    let [granted, by_account, refused] = &rounds;
    Ok(question.answer(
        &[
            ("granted", granted),
            ("granted by account", by_account),
            ("refused", refused),
        ],
        |values| values[0].max(values[1]).max(values[2]),
    ))
}

/// 20 classes of 10 users and an account each, 50 gates.
fn large_policy() -> String {
    let mut text = format!("{POLICY}\n[defaults]\nshards = 1\nwhole_gpus = 0\nmig = {{}}\n");
    for class in 0..20 {
        let users: Vec<String> = (0..10)
            .map(|user| format!("\"user{}\"", class * 10 + user))
            .collect();
        text += &format!(
            "[classes.class{class}]\nmembers = {{ users = [{}], accounts = [\"account{class}\"], groups = [{class}] }}\n\
             shards = 4\nmax_cpus_per_shard = 4\ncpus_per_shard = 2\n",
            users.join(", ")
        );
    }
    for gate in 0..50 {
        text += &format!(
            "[[gate]]\nwhat = \"slice\"\nreservation = [\"lab_{gate}\", \"course_[a-z]+_[0-9]+\"]\npartitions = [\"course\"]\n\
             exempt_classes = [\"class{}\"]\n",
            gate % 15
        );
    }
    text
}

/// Microseconds a decision.
fn round(policy: &Policy, requests: &[Request]) -> f64 {
    let context = Context::default();
    let start = Instant::now();
    for _ in 0..TIMES {
        for request in requests {
            black_box(decide(policy, black_box(request), &context));
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / (TIMES * requests.len()) as f64
}

impl Mix {
    fn new(policy: &Policy) -> Result<Mix> {
        let requests = |options: Vec<Options>| -> Result<Vec<Request>> {
            let version = Slurm::V24_11
                .to_string()
                .parse()
                .map_err(anyhow::Error::msg)?;
            options
                .iter()
                .map(|options| Ok(options.to_request(version)?))
                .collect()
        };
        let gres = |gres: &str| Options {
            gres: Some(gres.into()),
            ..Options::default()
        };
        let quarter = || Some("l40s.4:1".to_owned());
        let mix = Mix {
            granted: requests(vec![
                gres("gpu:l40s.4:1"),
                gres("gpu:l40s.2"),
                gres("shard:l40s:1"),
                Options {
                    gpus: quarter(),
                    ..Options::default()
                },
                Options {
                    gpus_per_node: quarter(),
                    ..Options::default()
                },
                Options {
                    gpus_per_task: quarter(),
                    ntasks: Some(1),
                    ..Options::default()
                },
            ])?,
            refused: requests(vec![
                gres("gpu:l40s.3:1"),
                gres("gpu:l40s.4:2"),
                gres("gpu:rtx.4:1"),
                gres("gpu:l40s.4:1,gpu:l40s:1"),
                gres("shard:1"),
                Options {
                    exclusive: true,
                    ..gres("gpu:l40s.4:1")
                },
            ])?,
            unchanged: requests(vec![
                gres("gpu:l40s:1"),
                gres("gpu:1"),
                gres("none"),
                Options::default(),
            ])?,
        };
        let verdict = |request: &Request| decide(policy, request, &Context::default());
        for (kind, as_expected) in [
            (
                &mix.granted,
                (|verdict| matches!(verdict, Verdict::Granted(_))) as fn(&Verdict) -> bool,
            ),
            (&mix.refused, |verdict| {
                matches!(verdict, Verdict::Refused(_))
            }),
            (&mix.unchanged, |verdict| {
                matches!(verdict, Verdict::Unchanged { .. })
            }),
        ] {
            for request in kind {
                let verdict = verdict(request);
                ensure!(as_expected(&verdict), "{request:?}: {verdict:?}");
            }
        }
        Ok(mix)
    }
}
