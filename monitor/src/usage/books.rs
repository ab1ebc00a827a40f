//! Each job's use of each GPU, until its conf goes.

use super::ledger::key;
use crate::arbiter::{Account, GpuId, Member, Sharing, Tenant, uuid};
use crate::jobs::confs::{About, Confs};
use crate::measure::Sample;
use crate::measure::report::{JobGpu, Report};
use crate::packs::PackId;
use crate::schedule::{Job, Nanos, Totals};
use softmig_policy::Policy;
use softmig_policy::node::job_conf::JobConf;
use softmig_policy::node::limits::Limits;
use softmig_region::{Record, UNIT, bytes};
use softmig_usage as usage;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// The figures to add up, beside the measurement.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The time, as people tell it.
    pub now: SystemTime,
    /// For how long this monitor runs.
    pub running: Duration,
    /// The arbiter's account of each GPU.
    pub accounts: &'a BTreeMap<GpuId, Account>,
    /// The library's figures of each job's memory.
    pub records: &'a BTreeMap<u32, Vec<Record>>,
    /// The rules about users, which say when a job is idle.
    pub policy: Option<&'a Policy>,
    /// How often all programs of a pack ended by a fault, by the GPU's UUID; none where there never was a pack.
    pub pack_faults: &'a BTreeMap<String, u64>,
}

impl Moment<'_> {
    fn idle_after(&self, about: &About) -> Option<f64> {
        let (user, account) = (about.user.as_deref(), about.account.as_deref());
        let after = self.policy?.idle_after(user, account, about.group);
        after.map(|after| after.as_secs_f64())
    }
}

/// The books of a node.
#[derive(Clone, Debug, Default)]
pub struct Books {
    node: String,
    /// The figures of an earlier monitor, which this one has not taken over yet.
    saved: usage::Node,
    /// The GPUs as they were last seen, and what an earlier monitor had counted.
    gpus: BTreeMap<String, (usage::GpuUsage, usage::GpuUsage)>,
    jobs: BTreeMap<u32, Known>,
}

/// A job.
#[derive(Clone, Debug)]
struct Known {
    since: SystemTime,
    gpus: BTreeMap<String, Past>,
}

/// The state of a job on a GPU, from one sample to the next.
#[derive(Clone, Debug, Default)]
struct Past {
    /// The counts from before the beginning.
    before: usage::JobGpu,
    /// The arbiter's sums at the beginning, which were those of an earlier job of the same number.
    base: Totals,
    /// The arbiter's last sums.
    last: Totals,
    /// For how long this monitor ran at the beginning.
    began: f64,
    /// And when the job last used the GPU or wanted it.
    active: f64,
    peak: u64,
    /// The most that the job's ledger ever said: its user can write there.
    refused: u64,
    recovered: u64,
    refused_largest: u64,
}

impl Books {
    /// For the node of this name, with what an earlier monitor wrote.
    pub fn new(node: String, saved: usage::Node) -> Self {
        Self {
            node,
            saved,
            ..Self::default()
        }
    }

    /// Adds up what was seen just now.
    pub fn note(&mut self, sample: &Sample, moment: &Moment<'_>) -> usage::Node {
        let accounts: BTreeMap<String, &Account> = (moment.accounts.iter())
            .map(|(id, account)| (uuid(*id), account))
            .collect();
        self.note_gpus(&sample.report, &accounts);
        self.jobs.retain(|job, _| !is_over(sample, *job));
        let jobs = known_jobs(&sample.confs);
        let jobs =
            jobs.map(|(id, conf, about)| self.job((id, conf, about), sample, moment, &accounts));
        let jobs: Vec<usage::Job> = jobs.collect();
        let mut gpus: Vec<usage::GpuUsage> =
            self.gpus.values().map(|(gpu, _)| gpu.clone()).collect();
        gpus.sort_by_key(|gpu| gpu.index);
        for gpu in &mut gpus {
            gpu.missing_bytes = missing(gpu, &jobs, &sample.report).unwrap_or(0);
            gpu.pack_faults = moment.pack_faults.get(&gpu.uuid).copied();
        }
        usage::Node {
            schema_version: usage::VERSION,
            time: seconds_since_1970(moment.now),
            node: self.node.clone(),
            error: sample.report.error.clone(),
            gpus,
            jobs,
            ..usage::Node::default()
        }
    }

    fn note_gpus(&mut self, report: &Report, accounts: &BTreeMap<String, &Account>) {
        if report.error.is_none() && !report.gpus.is_empty() {
            let is_there = |uuid: &str| {
                report
                    .gpus
                    .iter()
                    .any(|it| it.uuid.as_deref() == Some(uuid))
            };
            self.gpus.retain(|uuid, _| is_there(uuid));
        }
        for (gpu, _) in self.gpus.values_mut() {
            (gpu.memory_bytes, gpu.memory_used_bytes) = (None, None);
        }
        for seen in &report.gpus {
            let Some(uuid) = &seen.uuid else { continue };
            let before = || {
                let mut saved = self.saved.gpus.iter();
                saved
                    .find(|it| it.uuid == *uuid)
                    .cloned()
                    .unwrap_or_default()
            };
            let (gpu, _) = self.gpus.entry(uuid.clone()).or_insert_with(|| {
                let before = before();
                (before.clone(), before)
            });
            gpu.index = seen.index;
            gpu.uuid.clone_from(uuid);
            gpu.name.clone_from(&seen.name);
            gpu.mig = seen.mig;
            gpu.setting.clone_from(&seen.setting);
            let usable = |total: u64| total.saturating_sub(seen.reserved_bytes.unwrap_or(0));
            gpu.memory_bytes = seen.total_bytes.map(usable);
            gpu.memory_used_bytes = seen.used_bytes;
        }
        for (uuid, (gpu, before)) in &mut self.gpus {
            (gpu.shared_by, gpu.why) = (None, None);
            let Some(account) = accounts.get(uuid) else {
                continue;
            };
            let (way, why) = match &account.sharing {
                Sharing::Scheduler => ("scheduler", None),
                Sharing::Caps(why) => ("caps", why.clone()),
            };
            (gpu.shared_by, gpu.why) = (Some(way.into()), why);
            gpu.known_seconds = rounded(before.known_seconds + account.known_for.as_secs_f64());
            gpu.charged_seconds = sum(before.charged_seconds, account.book.charged);
            gpu.change_seconds = sum(before.change_seconds, account.book.change);
            gpu.unclaimed_seconds = sum(before.unclaimed_seconds, account.book.unclaimed);
        }
    }

    fn job(
        &mut self,
        (id, conf, about): (u32, &JobConf, &About),
        sample: &Sample,
        moment: &Moment<'_>,
        accounts: &BTreeMap<String, &Account>,
    ) -> usage::Job {
        if self
            .jobs
            .get(&id)
            .is_some_and(|known| known.since != about.since)
        {
            // Slurm has started it anew, or gave its number to another.
            let old = self.jobs.remove(&id);
            let gpus = old
                .into_iter()
                .flat_map(|known| known.gpus)
                .map(|(uuid, past)| {
                    let new = Past {
                        base: past.last,
                        last: past.last,
                        began: moment.running.as_secs_f64(),
                        active: moment.running.as_secs_f64(),
                        ..Past::default()
                    };
                    (uuid, new)
                });
            let new = Known {
                since: about.since,
                gpus: gpus.collect(),
            };
            self.jobs.insert(id, new);
        }
        let rows: Vec<&JobGpu> = (sample.report.jobs.iter())
            .filter(|job| job.job == Some(id))
            .flat_map(|job| &job.gpus)
            .collect();
        let mut uuids: Vec<String> = conf.gpus.iter().map(|it| it.as_str().to_owned()).collect();
        let used = rows.iter().filter_map(|row| row.holding.uuid.clone());
        let asked = accounts.iter().filter(|(_, it)| totals(it, id).is_some());
        for uuid in used.chain(asked.map(|(uuid, _)| uuid.clone())) {
            if !uuids.contains(&uuid) {
                uuids.push(uuid);
            }
        }
        let saved = self.saved_job(id, about);
        let known = self.jobs.entry(id).or_insert_with(|| Known {
            since: about.since,
            gpus: BTreeMap::new(),
        });
        let gpus = uuids.into_iter().map(|uuid| {
            let running = moment.running.as_secs_f64();
            let past = known.gpus.entry(uuid.clone()).or_insert_with(|| {
                let before = saved.as_ref().and_then(|saved| {
                    let mut gpus = saved.gpus.iter();
                    gpus.find(|it| it.uuid == uuid).cloned()
                });
                Past::new(before, about, moment)
            });
            let row = rows
                .iter()
                .find(|row| row.holding.uuid.as_ref() == Some(&uuid));
            let record = key(&uuid).and_then(|key| {
                let mut records = moment.records.get(&id)?.iter();
                records.find(|it| it.key.get() == key)
            });
            let is_busy = row.is_some_and(|row| is_busy(row, sample));
            let is_seen =
                conf.limits.is_some() || row.is_some_and(|row| row.holding.memory_bytes.is_some());
            let account = accounts.get(&uuid);
            let tenant = account.and_then(|it| tenant(it, id));
            // Where it is not the scheduler's, each process's library knows it alone.
            let is_steered = account.is_some_and(|it| matches!(it.sharing, Sharing::Scheduler));
            let credit = tenant.filter(|_| is_steered).map_or(0, |it| it.credit);
            let all = account.and_then(|it| totals(it, id)).unwrap_or(past.last);
            let is_active =
                all.charged > past.last.charged || tenant.is_some_and(|it| it.wants_gpu);
            past.last = all;
            // A GPU that is not measured may be busy.
            if is_active || is_busy || !is_seen {
                past.active = running;
            }
            let seen = row.and_then(|row| row.holding.memory_bytes);
            // What is in no process's figure, by the library's word. A process of the job's may have it again.
            let orphans = record.map_or(0, |it| at_most(it.orphans, conf.limits.as_ref()));
            let most = at_most(u64::MAX, conf.limits.as_ref());
            let memory = seen.map(|seen| seen.max(seen.saturating_add(orphans).min(most)));
            let own = record.map_or(0, |record| at_most(record.peak, conf.limits.as_ref()));
            past.peak = past.peak.max(memory.unwrap_or(0)).max(own);
            if let Some(record) = record {
                past.refused = past.refused.max(record.refused.into());
                past.recovered = past.recovered.max(record.recovered.into());
                past.refused_largest = past.refused_largest.max(bytes(record.refused_largest));
            }
            let (before, base) = (&past.before, &past.base);
            usage::JobGpu {
                index: row.and_then(|row| row.holding.index),
                memory_bytes: memory,
                memory_peak_bytes: (memory.is_some() || past.peak > 0).then_some(past.peak),
                refused: past.refused,
                recovered: past.recovered,
                refused_largest_bytes: past.refused_largest,
                known_seconds: rounded(before.known_seconds + running - past.began),
                charged_seconds: sum(before.charged_seconds, all.charged - base.charged),
                waited_seconds: sum(before.waited_seconds, all.waited - base.waited),
                interruptions: before.interruptions
                    + all.interruptions.saturating_sub(base.interruptions),
                idle_seconds: rounded(running - past.active),
                credit_seconds: sum(0.0, credit),
                processes: row.map_or(0, |row| row.holding.pids.len() as u32),
                wants_gpu: tenant.is_some_and(|it| it.wants_gpu),
                is_held: tenant.is_some_and(|it| it.is_held),
                seats: tenant
                    .map_or(&[][..], |tenant| &tenant.members)
                    .iter()
                    .map(seat)
                    .collect(),
                uuid,
            }
        });
        usage::Job {
            job: id,
            uid: conf.uid,
            user: about.user.clone(),
            account: about.account.clone(),
            since: seconds_since_1970(about.since),
            slice: conf.limits.as_ref().map(Into::into),
            // The use of whole GPUs is not counted while no slice is on the node.
            idle_after_seconds: (conf.limits.as_ref()).and_then(|_| moment.idle_after(about)),
            pack: pack_of(id, conf, &sample.confs),
            gpus: gpus.collect(),
        }
    }

    /// An earlier monitor's figures of this very job.
    fn saved_job(&self, id: u32, about: &About) -> Option<usage::Job> {
        /// The precision of what is written.
        const SAME: f64 = 0.001;
        let mut saved = self.saved.jobs.iter();
        let since = seconds_since_1970(about.since);
        let is_it = |job: &&usage::Job| job.job == id && (job.since - since).abs() < SAME;
        saved.find(is_it).cloned()
    }
}

impl Past {
    fn new(before: Option<usage::JobGpu>, about: &About, moment: &Moment<'_>) -> Self {
        let running = moment.running.as_secs_f64();
        let now = seconds_since_1970(moment.now);
        let age = (now - seconds_since_1970(about.since)).max(0.0);
        // While no monitor ran, nothing was counted, and no GPU was seen to be idle.
        let began = match &before {
            Some(_) => 0.0,
            None => (running - age).max(0.0),
        };
        let before = before.unwrap_or_default();
        Self {
            peak: before.memory_peak_bytes.unwrap_or(0),
            refused: before.refused,
            recovered: before.recovered,
            refused_largest: before.refused_largest_bytes,
            began,
            active: (began - before.idle_seconds).max(running - age),
            before,
            ..Self::default()
        }
    }
}

/// Contexts take some MiB that no figure has: what is missing may be this part of a GPU's memory.
const INEXACT: u64 = 64;

/// The memory that jobs may still have by their slices and that processes outside them hold. While none of the jobs has a process
/// there, what no process has was left behind by others too; otherwise it may be the jobs' own managed memory.
fn missing(gpu: &usage::GpuUsage, jobs: &[usage::Job], report: &Report) -> Option<u64> {
    let all = gpu.memory_bytes?;
    let free = all.saturating_sub(gpu.memory_used_bytes?);
    let slices = jobs.iter().filter_map(|job| {
        let own = job.gpus.iter().find(|own| own.uuid == gpu.uuid)?;
        Some((job.slice.as_ref()?, own))
    });
    let mut promised = 0_u64;
    for (slice, own) in slices.clone() {
        let held = match own.memory_bytes {
            None if own.processes > 0 => return None,
            held => held.unwrap_or(0),
        };
        promised = promised.saturating_add(slice.memory_bytes.saturating_sub(held));
    }
    let is_here = |uuid: &Option<String>| uuid.as_ref() == Some(&gpu.uuid);
    let seen = report.gpus.iter().find(|seen| is_here(&seen.uuid))?;
    let holdings = report.users.iter().flat_map(|user| &user.gpus);
    let holdings = holdings.filter(|holding| is_here(&holding.uuid));
    let outside = holdings.filter_map(|holding| holding.memory_bytes);
    let left = seen.unlisted_bytes.unwrap_or(0);
    let left = if slices.clone().any(|(_, own)| own.processes > 0) {
        0
    } else {
        left
    };
    let held = outside.fold(left, u64::saturating_add);
    let missing = promised.saturating_sub(free).min(held);
    (missing > all / INEXACT).then_some(missing)
}

/// Whether the confs could be read.
pub fn are_known(sample: &Sample) -> bool {
    sample.report.error.is_none() || !sample.confs.jobs.is_empty()
}

/// Whether a job's conf has gone. Where confs could not be read, none is known to have.
pub fn is_over(sample: &Sample, job: u32) -> bool {
    are_known(sample) && !sample.confs.jobs.contains_key(&job)
}

fn known_jobs(confs: &Confs) -> impl Iterator<Item = (u32, &JobConf, &About)> {
    confs.jobs.iter().filter_map(|(id, conf)| {
        let about = confs.about.get(id)?;
        Some((*id, conf.as_ref().ok()?, about))
    })
}

/// The pack that a job is in, with the others that have its GPU together with it.
fn pack_of(id: u32, conf: &JobConf, confs: &Confs) -> Option<usage::Pack> {
    let pack = PackId::of(conf)?;
    // A slice is on one GPU.
    let gpu = conf.gpus.iter().next()?;
    let is_in =
        |conf: &JobConf| PackId::of(conf) == Some(pack) && conf.gpus.iter().next() == Some(gpu);
    let others = known_jobs(confs).filter(|(other, its, _)| *other != id && is_in(its));
    Some(usage::Pack {
        name: pack.to_string(),
        jobs: others.map(|(other, ..)| other).collect(),
    })
}

fn totals(account: &Account, job: u32) -> Option<Totals> {
    let mut jobs = account.book.jobs();
    jobs.find(|(id, _)| *id == Job(job))
        .map(|(_, totals)| totals)
}

fn tenant(account: &Account, job: u32) -> Option<&Tenant> {
    let mut tenants = account.tenants.iter();
    tenants.find(|tenant| tenant.job == Job(job))
}

fn seat(member: &Member) -> usage::Seat {
    usage::Seat {
        pid: member.pid,
        not_steered: member.not_steered.map(|why| why.to_string()),
    }
}

/// Whether one of the job's processes had the GPU since the last sample, by NVML.
fn is_busy(row: &JobGpu, sample: &Sample) -> bool {
    let index = row.holding.index;
    let busy = index.and_then(|index| sample.busy.get(&index));
    let of = |pid: &u32| busy.and_then(|busy| busy.get(pid)).copied().unwrap_or(0);
    row.holding.pids.iter().any(|pid| of(pid) > 0)
}

/// The job's user can write there: no more counts than the job can have.
fn at_most(units: u64, limits: Option<&Limits>) -> u64 {
    let memory = |limits: &Limits| u64::from(limits.memory_mib()) << 20;
    limits.map_or(0, |limits| units.saturating_mul(UNIT).min(memory(limits)))
}

/// To the microsecond, which is what there is to see.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn sum(before: f64, more: Nanos) -> f64 {
    rounded(before + (more / 1000) as f64 / 1e6)
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    rounded(since.unwrap_or_default().as_secs_f64())
}

#[cfg(test)]
mod tests;
