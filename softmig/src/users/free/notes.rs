//! Other facts that matter: what this person holds of what the class may hold, and the jobs that are before.

use crate::ask::cluster::all::Cluster;
use crate::ask::cluster::reasons::is_in_line;
use crate::ask::squeue::Job;
use crate::output::say::counted;
use crate::settings::qos;
use crate::users::free::offers::{Offer, Query, sooner};
use softmig_policy::config::classes::ClassLimits;
use softmig_policy::config::gpu_types::GpuType;
use softmig_policy::slurm::gres_list::Configured;
use softmig_policy::{MaybeKnown, Policy, may_hold};
use std::collections::BTreeMap;

/// All of them, in sentences.
pub(super) fn all(
    policy: &Policy,
    cluster: &Cluster,
    query: &Query,
    offers: &[Offer],
) -> Vec<String> {
    let mut notes = Vec::new();
    let is_own = |job: &&Job| query.submitter.user.as_deref() == Some(&job.user);
    let own: Vec<&Job> = cluster.jobs.iter().filter(is_own).collect();
    if let Some(class) = class(policy, query, own.iter().map(|job| job.qos.as_str())) {
        notes.extend(of_class(policy, class, query, &own, offers));
    }
    if query.submitter.account == MaybeKnown::Unknown && !policy.accounts().is_empty() {
        notes.push(
            "what you may have can depend on your account; --account=NAME says it".to_string(),
        );
    }
    for room in offers.iter().filter(|offer| offer.free > 0) {
        let is_sooner = |it: &&Offer| sooner(offers, it).is_some_and(|it| it.gres == room.gres);
        let without: Vec<&str> = offers.iter().filter(is_sooner).map(Offer::typed).collect();
        if !without.is_empty() {
            notes.push(format!(
                "there is no room for {} now, and for {} there is",
                without.join(" and "),
                room.typed()
            ));
        }
    }
    let others = cluster.jobs.iter().filter(|job| !is_own(job));
    let waiting = others.filter(|job| is_in_line(job)).count();
    if waiting > 0 {
        let (wait, them) = match waiting {
            1 => ("waits", "it"),
            _ => ("wait", "them"),
        };
        notes.push(format!(
            "{} of others {wait} for GPUs already, and Slurm may start {them} first",
            counted(waiting as u64, "job")
        ));
    }
    notes
}

/// Tells how much the class may hold at once, how much of it the person's jobs hold, and which sizes wait because of it.
fn of_class(
    policy: &Policy,
    class: &ClassLimits,
    query: &Query,
    own: &[&Job],
    offers: &[Offer],
) -> Option<String> {
    let may = may_hold(policy, class)?;
    let qos = qos::of_class(policy, class)?;
    // Slurm counts the jobs of this QOS alone.
    let running: Vec<&&Job> = own
        .iter()
        .filter(|job| !job.waits() && job.qos == qos.name)
        .collect();
    let held = |job: &&&Job| job.held().unwrap_or_else(|| job.asked.clone());
    let held: Vec<Configured> = running.iter().flat_map(held).collect();
    let held = qos::amounts(policy, &held);
    let jobs = running.len() as u64;

    let amount = |name: &str| held.get(name).unwrap_or(0);
    let of_kind = |kind: &str| amount(&format!("gres/gpu:{kind}"));
    let mig = policy.gpus().filter(|gpu| gpu.is_mig());
    let instances: u64 = mig.map(|gpu| of_kind(gpu.name())).sum();
    let whole = amount("gres/gpu").saturating_sub(instances);
    let mut text = format!(
        "{} may hold at once: {may}. You hold {} and {}",
        class.called(),
        counted(amount("gres/shard"), "shard"),
        counted(whole, "whole GPU")
    );
    for (kind, _) in class.quota.mig.iter().filter(|(_, most)| **most > 0) {
        text += &format!(", and {} of type {kind}", of_kind(kind));
    }
    if class.quota.jobs.is_some() {
        text += &format!(", in {}", counted(jobs, "job"));
    }
    let waits = |offer: &Offer| {
        // Those that are reserved for this person are in no class's limits.
        let is_limited = !policy.is_reserved(&offer.kind, query.now);
        let more = qos::amounts(policy, &[asked(offer)]);
        is_limited && !qos.has_room(jobs, &held, &more)
    };
    let may_have_none = qos.jobs.is_some_and(|most| jobs >= most) && offers.iter().all(waits);
    let waiting = if may_have_none {
        vec!["GPU job".to_string()]
    } else {
        named(policy, offers, waits)
    };
    if let Some((last, before)) = waiting.split_last() {
        let what = match before {
            [] => last.clone(),
            before => format!("{} or {last}", before.join(", ")),
        };
        text += &format!(", so another {what} waits until one of your jobs has ended");
    }
    Some(text)
}

/// The request for one.
fn asked(offer: &Offer) -> Configured {
    let shards = offer.limits.map(|limits| limits.share().shards());
    Configured {
        name: if shards.is_some() { "shard" } else { "gpu" }.to_string(),
        kind: Some(offer.kind.clone()),
        count: u64::from(shards.unwrap_or(1)),
    }
}

/// The offers that wait: "slice" where all slices do, else each by its name, and so for whole GPUs and MIG types.
fn named(policy: &Policy, offers: &[Offer], waits: impl Fn(&Offer) -> bool) -> Vec<String> {
    let mut alike: BTreeMap<&str, Vec<&Offer>> = BTreeMap::new();
    for offer in offers {
        let is_mig = policy.gpu(&offer.kind).is_some_and(GpuType::is_mig);
        let name = match (offer.limits, is_mig) {
            (Some(_), _) => "slice",
            (None, true) => &offer.kind,
            (None, false) => "whole GPU",
        };
        alike.entry(name).or_default().push(offer);
    }
    let names = alike.into_iter().flat_map(|(name, offers)| {
        let waiting: Vec<_> = offers.iter().filter(|offer| waits(offer)).collect();
        if waiting.len() == offers.len() {
            vec![name.to_string()]
        } else {
            waiting
                .iter()
                .map(|offer| offer.typed().to_string())
                .collect()
        }
    });
    names.collect()
}

/// The class: by the QOS that the person's jobs have, else by name and account.
fn class<'a, 'b>(
    policy: &'a Policy,
    query: &Query,
    mut qos: impl Iterator<Item = &'b str>,
) -> Option<&'a ClassLimits> {
    let account = match &query.submitter.account {
        MaybeKnown::Is(name) => Some(name.as_str()),
        MaybeKnown::Missing => Some(""),
        MaybeKnown::Unknown if policy.accounts().is_empty() => Some(""),
        MaybeKnown::Unknown => None,
    };
    let Some(account) = account else {
        return qos.find_map(|qos| {
            policy
                .standings()
                .iter()
                .find(|own| own.qos.as_deref() == Some(qos))
        });
    };
    policy.standing_of(
        query.submitter.user.as_deref()?,
        account,
        query.submitter.group,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::free::offers;
    use softmig_policy::Submitter;

    const GPUS: &str = "default_class = \"student\"\n\
        [gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
        [gpu.h200]\nmemory_mib = 143771\nreserved_mib = 616\nshards = 8\n\
        [classes.student]\n";
    const NODES: &str = "NodeName=n1 State=MIXED Gres=gpu:l40s:4,shard:l40s:16 CPUTot=64 CPUAlloc=0\n\
        NodeName=n2 State=MIXED Gres=gpu:h200:4,shard:h200:32 CPUTot=64 CPUAlloc=0\n";

    /// Of alice, whose class has these limits, and with these jobs: user, state, reason, what was asked, and what it has.
    fn notes(limits: &str, jobs: &[[&str; 5]]) -> String {
        let policy = Policy::parse(&format!("{GPUS}{limits}")).unwrap();
        let (mut squeue, mut details) = (String::new(), String::new());
        for (id, [user, state, reason, asked, gres]) in jobs.iter().enumerate() {
            let nodes = if gres.is_empty() { "" } else { "n[1-2]" };
            squeue +=
                &format!("{id}|{id}|{user}|a|{state}|{reason}|main|student|N/A|{nodes}|{asked}|\n");
            details += &format!("JobId={id} {gres}\n");
        }
        let cluster = Cluster::parse(NODES, &squeue, &details);
        let query = Query {
            submitter: Submitter {
                user: Some("alice".into()),
                ..Submitter::default()
            },
            partition: None,
            memory: None,
            now: 0,
        };
        let offers = offers::all(&policy, &cluster, &query);
        all(&policy, &cluster, &query, &offers).join("\n")
    }

    const WHOLE: [&str; 5] = [
        "alice",
        "RUNNING",
        "None",
        "N/A|gres/gpu:l40s:2|N/A|N/A",
        "Nodes=n[1-2] CPU_IDs=0 Mem=1 GRES=gpu:l40s:2(IDX:0-1)",
    ];
    const SLICE: [&str; 5] = [
        "alice",
        "RUNNING",
        "None",
        "N/A|gres/shard:h200:4|N/A|N/A",
        "Nodes=n2 CPU_IDs=0 Mem=1 GRES=shard:h200:4(IDX:0)",
    ];

    #[test]
    fn whole_gpus_are_counted_on_all_nodes() {
        let note = notes("shards = \"unlimited\"\nwhole_gpus = 6\n", &[WHOLE]);
        assert!(
            note.ends_with("You hold 0 shards and 4 whole GPUs"),
            "{note}"
        );
    }

    #[test]
    fn each_limit_that_is_reached_says_what_waits() {
        let unlimited = "shards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n";
        for (limits, job, waits) in [
            (
                "shards = 20\nwhole_gpus = 4\n",
                WHOLE,
                "another whole GPU waits",
            ),
            (
                "shards = 16\nwhole_gpus = 9\n",
                WHOLE,
                "another slice or whole GPU waits",
            ),
            (
                "shards = 18\nwhole_gpus = 9\n",
                WHOLE,
                "another gpu:h200.2 or whole GPU waits",
            ),
            (
                &format!("{unlimited}shards_of = {{ h200 = 4 }}\n"),
                SLICE,
                "another gpu:h200.2, gpu:h200.4 or gpu:h200.8 waits",
            ),
            (
                &format!("{unlimited}jobs = 1\n"),
                SLICE,
                "You hold 4 shards and 0 whole GPUs, in 1 job, so another GPU job waits",
            ),
        ] {
            let note = notes(limits, &[job]);
            assert!(note.contains(waits), "{limits}: {note}");
            assert!(!notes(limits, &[]).contains("waits"), "{limits}");
        }
    }

    #[test]
    fn a_size_without_room_is_told_with_the_one_that_has_some() {
        // Three quarters of each L40S are taken, and half of each H200.
        let limits = "shards = \"unlimited\"\nwhole_gpus = \"unlimited\"\n";
        let threes = [
            "bob",
            "RUNNING",
            "None",
            "N/A|gres/shard:l40s:12|N/A|N/A",
            "Nodes=n1 CPU_IDs=0 Mem=1 GRES=shard:l40s:12(3/4,3/4,3/4,3/4)",
        ];
        let told = notes(limits, &[threes]);
        let line = "there is no room for gpu:l40s and gpu:l40s.2 now, and for gpu:l40s.4 there is";
        assert!(told.contains(line), "{told}");
        assert!(!told.contains("h200"), "{told}");
        assert!(!notes(limits, &[]).contains("room"));
    }

    #[test]
    fn only_jobs_of_others_that_wait_for_their_turn_may_start_first() {
        let slice = "N/A|gres/shard:h200:4|N/A|N/A";
        let waits = |user, reason| [user, "PENDING", reason, slice, ""];
        let others = [
            "JobHeldUser",
            "JobHeldAdmin",
            "Dependency",
            "DependencyNeverSatisfied",
            "BeginTime",
            "QOSMaxBillingPerUser",
            "AssocMaxJobsLimit",
            "ReqNodeNotAvail, UnavailableNodes:n2",
        ];
        let mut jobs: Vec<_> = others.map(|reason| waits("bob", reason)).to_vec();
        jobs.push(waits("alice", "Priority"));
        let limits = "shards = 9\nwhole_gpus = 9\n";
        let told = notes(limits, &jobs);
        assert!(!told.contains("first"), "{told}");
        jobs.extend(["None", "Resources"].map(|reason| waits("bob", reason)));
        let told = notes(limits, &jobs);
        let line = "2 jobs of others wait for GPUs already, and Slurm may start them first";
        assert!(told.ends_with(line), "{told}");
    }
}
