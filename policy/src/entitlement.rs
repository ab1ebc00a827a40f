//! Who may have it: gates, reserved GPUs, and what the asker's class may ever hold.
//!
//! What the class holds at the moment is Slurm's to count: a job that has to wait for that waits in the queue. Only a job that
//! could never start is refused here.

use crate::asker::Asker;
use crate::catalogue::GpuType;
use crate::classes::{Standing, Unknown};
use crate::decide::{Context, Grant, Wanted, with_limits};
use crate::gates::{Closed, Gate, What};
use crate::gres::{Gres, is_named};
use crate::host;
use crate::policy::Policy;
use crate::refusal::{Code, Refusal};
use crate::request::{Place, Request};
use crate::reservable::{Reservable, Window};

/// What is said to a job that passes, and set in its record, besides its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The QOS that it is to have; `None` leaves what it has.
    pub qos: Option<String>,
    /// The partition that it is to have; `None` leaves what it has.
    pub partition: Option<String>,
    /// A line for its user.
    pub notice: Option<String>,
}

/// The terms of a job without a slice, or why it cannot be had.
pub(crate) fn of_wholes(
    policy: &Policy,
    request: &Request,
    context: &Context,
    wanted: &Wanted<'_>,
) -> Result<Terms, Refusal> {
    let asker = &context.asker;
    if asker.is_exempt {
        return Ok(Terms::default());
    }
    let asked = Asked::of(policy, request, wanted);
    asked.take_reserved(context)?;
    if asked.wholes > 0 || request.implies_gpus() {
        asked.pass(asker, &What::Whole, &asked.text)?;
    }
    if !asked.mig.is_empty() {
        asked.pass(asker, &What::Mig, &asked.text)?;
    }
    asked.pass_others(asker, wanted)?;
    let gpus = !asked.is_nothing() || request.implies_gpus();
    match policy.standing(asker) {
        Ok(Some(standing)) if gpus => {
            asked.fit(standing, asker)?;
            asked.terms(standing, asker)
        }
        // A job on nothing but GPUs that are kept for it, or without any.
        Ok(standing) => {
            let own = standing.and_then(|standing| standing.qos.as_deref());
            refuse_foreign_qos(policy, asker, own, &asked.text)?;
            Ok(Terms::default())
        }
        Err(Unknown) => Ok(Terms::default()),
    }
}

/// The terms of a slice; gives it its part of the host.
pub(crate) fn of_slice(
    policy: &Policy,
    context: &Context,
    wanted: &Wanted<'_>,
    grant: &mut Grant,
) -> Result<Terms, Refusal> {
    if context.asker.is_exempt {
        return Ok(Terms::default());
    }
    let gpu_type = grant.limits.gpu_type();
    let shards = grant.limits.share().shards();
    let asked = Asked {
        policy,
        text: grant.asked.clone(),
        wholes: 0,
        whole_shards: 0,
        unknown_types: Vec::new(),
        mig: Vec::new(),
        reserved: Vec::new(),
        untyped: false,
        slice: policy
            .gpu(gpu_type.as_str())
            .map(|gpu| (gpu, u64::from(shards))),
        types: Vec::new(),
    };
    let partition = route(policy, gpu_type.as_str(), &context.asker);
    let routed;
    let asker = match &partition {
        Some(partition) => {
            routed = Asker {
                partition: crate::Fact::Is(partition.clone()),
                ..context.asker.clone()
            };
            &routed
        }
        None => &context.asker,
    };
    asked.pass(asker, &What::Slice, &asked.text)?;
    asked.pass_others(asker, wanted)?;
    let standing = match policy.standing(asker) {
        Ok(Some(standing)) => standing,
        Ok(None) | Err(Unknown) => {
            return Ok(Terms {
                partition,
                ..Terms::default()
            });
        }
    };
    asked.fit(standing, asker)?;
    host::fit(
        &mut grant.request,
        &grant.asked,
        shards,
        standing,
        context.is_change,
    )?;
    Ok(Terms {
        partition,
        ..asked.terms(standing, asker)?
    })
}

fn route(policy: &Policy, gpu_type: &str, asker: &Asker) -> Option<String> {
    if asker.named_partition {
        return None;
    }
    let mut routes = policy.routes().iter();
    let route = routes.find(|route| route.takes(gpu_type, asker))?;
    Some(route.partition().to_string())
}

/// What a job asks for, counted.
struct Asked<'a> {
    policy: &'a Policy,
    /// As the user wrote it.
    text: String,
    /// Whole GPUs that are for everybody, of any type.
    wholes: u64,
    /// The shards of those.
    whole_shards: u64,
    /// Types that the policy knows nothing of.
    unknown_types: Vec<&'a str>,
    /// MIG instances.
    mig: Vec<(&'a GpuType, u64)>,
    /// Types of GPUs that are kept for somebody.
    reserved: Vec<&'a str>,
    /// Whether any type will do.
    untyped: bool,
    slice: Option<(&'a GpuType, u64)>,
    /// Whole GPUs by type.
    types: Vec<(&'a GpuType, u64)>,
}

impl<'a> Asked<'a> {
    fn of(policy: &'a Policy, request: &Request, wanted: &Wanted<'a>) -> Self {
        let mut asked = Self {
            policy,
            text: String::new(),
            wholes: 0,
            whole_shards: 0,
            unknown_types: Vec::new(),
            mig: Vec::new(),
            reserved: Vec::new(),
            untyped: false,
            slice: None,
            types: Vec::new(),
        };
        for (place, gres) in &wanted.wholes {
            asked.add(request, *place, gres);
        }
        if asked.text.is_empty() {
            asked.text = if request.exclusive {
                "--exclusive".to_string()
            } else {
                "this job".to_string()
            };
        }
        asked
    }

    fn add(&mut self, request: &Request, place: Place, gres: &Gres<'a>) {
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text += &gres.to_string();
        let count = request.in_all(place, gres.count());
        if count == 0 {
            return;
        }
        match gres.kind.map(|kind| (kind, self.policy.gpu(kind))) {
            Some((_, Some(gpu))) if gpu.is_mig() => self.mig.push((gpu, count)),
            Some((_, Some(gpu))) => {
                self.wholes = self.wholes.saturating_add(count);
                let shards = count.saturating_mul(u64::from(gpu.shards_per_gpu()));
                self.whole_shards = self.whole_shards.saturating_add(shards);
                self.types.push((gpu, count));
            }
            Some((kind, None)) if self.is_reservable(kind) => self.reserved.push(kind),
            unknown => {
                match unknown {
                    Some((kind, _)) => self.unknown_types.push(kind),
                    None => self.untyped = true,
                }
                self.wholes = self.wholes.saturating_add(count);
                // Whichever type it will be, it has no fewer.
                let types = self.policy.gpus().filter(|gpu| !gpu.is_mig());
                let least = types.map(GpuType::shards_per_gpu).min().unwrap_or(1);
                let shards = count.saturating_mul(u64::from(least));
                self.whole_shards = self.whole_shards.saturating_add(shards);
            }
        }
    }

    fn is_reservable(&self, kind: &str) -> bool {
        let mut reservables = self.policy.reservables().iter();
        reservables.any(|reservable| reservable.kind() == kind)
    }

    /// Whether it is no GPU that is everybody's.
    fn is_nothing(&self) -> bool {
        self.wholes == 0 && self.mig.is_empty() && self.slice.is_none()
    }

    /// GPUs that are kept for somebody are only for them, and only in their time.
    fn take_reserved(&self, context: &Context) -> Result<(), Refusal> {
        for kind in &self.reserved {
            let own = self
                .policy
                .reservables()
                .iter()
                .filter(|own| own.kind() == *kind);
            let own: Vec<&Reservable> = own.collect();
            self.check_holder(&own, context)?;
        }
        // An untyped request could be given one of them.
        let reservables = self.policy.reservables();
        if !self.untyped || reservables.is_empty() {
            return Ok(());
        }
        let types: Vec<String> = self
            .policy
            .gpus()
            .filter(|gpu| !gpu.is_mig())
            .map(|gpu| format!("--gres=gpu:{}:1", gpu.name()))
            .collect();
        let kinds: Vec<&str> = reservables.iter().map(Reservable::kind).collect();
        Err(Refusal::new(
            Code::Reserved,
            format!(
                "{}: names no type of GPU, and could be given one that is kept for somebody ({})",
                self.text,
                kinds.join(", ")
            ),
            format!("name the type: {}", types.join(" or ")),
        ))
    }

    fn check_holder(&self, own: &[&Reservable], context: &Context) -> Result<(), Refusal> {
        let window = |window| own.iter().find(|one| one.window(context.now) == window);
        let refuse = |message: String, of: &str| {
            Err(Refusal::new(
                Code::Reserved,
                format!("{}: {message}", self.text),
                format!("ask for another GPU, for example --gres=gpu:{of}:1"),
            ))
        };
        if let Some(now) = window(Window::Open) {
            return match now.is_held_by(&context.asker) {
                Some(true) | None => Ok(()),
                Some(false) => refuse(
                    format!(
                        "kept for {} until {} ({})",
                        now.holder().called(),
                        now.end_local(),
                        now.reason()
                    ),
                    now.of(),
                ),
            };
        }
        if let Some(next) = own
            .iter()
            .filter(|one| one.window(context.now) == Window::Ahead)
            .min_by_key(|one| one.start())
        {
            return refuse(
                format!(
                    "kept for {} from {} to {} ({})",
                    next.holder().called(),
                    next.start_local().unwrap_or_default(),
                    next.end_local(),
                    next.reason()
                ),
                next.of(),
            );
        }
        match own.iter().max_by_key(|one| one.end()) {
            Some(last) => refuse(
                format!(
                    "was kept for {} until {}, and is not given back to all yet",
                    last.holder().called(),
                    last.end_local()
                ),
                last.of(),
            ),
            None => Ok(()),
        }
    }

    /// Every gate about `what` has to be open.
    fn pass(&self, asker: &Asker, what: &What, text: &str) -> Result<(), Refusal> {
        match self.policy.closed_gate(what, asker) {
            Some((gate, closed)) => Err(refused_at(gate, &closed, text)),
            None => Ok(()),
        }
    }

    /// The same for GRES that are not about GPUs.
    fn pass_others(&self, asker: &Asker, wanted: &Wanted<'_>) -> Result<(), Refusal> {
        let named = self.policy.gates().iter().filter_map(Gate::gres_name);
        for name in named {
            let what = What::Gres(name.to_string());
            for raw in wanted.others.iter().filter(|raw| is_named(raw, name)) {
                self.pass(asker, &what, raw)?;
            }
        }
        Ok(())
    }

    /// Refuses what the class may never hold.
    fn fit(&self, standing: &Standing, asker: &Asker) -> Result<(), Refusal> {
        let (quota, who) = (&standing.quota, standing.called());
        let refuse = |code, message: String| {
            Err(Refusal::new(
                code,
                format!("{}: {message}", self.text),
                self.instead(standing),
            ))
        };
        if quota.jobs == Some(0) {
            return refuse(Code::LimitJob, format!("{who} may run no jobs with GPUs"));
        }
        for (gpu, count) in &self.mig {
            if let Some(most) = quota.mig.get(gpu.name()).filter(|most| count > most) {
                return refuse(
                    Code::LimitJob,
                    format!(
                        "MIG instances of type {} asked for are {count}, and {who} may hold {most} at once",
                        gpu.name()
                    ),
                );
            }
        }
        if self.untyped && quota.shards.is_some() && self.policy.weights().by_type() {
            let types = self.policy.gpus().filter(|gpu| !gpu.is_mig());
            let types: Vec<String> = types
                .map(|gpu| format!("--gres=gpu:{}:1", gpu.name()))
                .collect();
            return Err(Refusal::new(
                Code::LimitJob,
                format!(
                    "{}: names no type of GPU, and types count differently in what {who} may hold",
                    self.text
                ),
                format!("name the type: {}", types.join(" or ")),
            ));
        }
        match quota.whole_gpus {
            Some(0) if self.wholes > 0 => {
                return refuse(Code::WholeGpuClass, format!("{who} may have no whole GPUs"));
            }
            Some(most) if self.wholes > most => {
                return refuse(
                    Code::LimitJob,
                    format!(
                        "{} whole GPUs are asked for, and {who} may hold {most} at once",
                        self.wholes
                    ),
                );
            }
            _ => {}
        }
        let shards = self.whole_shards + self.slice.map_or(0, |(_, shards)| shards);
        let count = |shards: u64| match self.wholes {
            0 => format!("{shards} shards are asked for"),
            _ => format!("this counts as {shards} shards"),
        };
        for (most, what) in [
            (quota.shards, "hold"),
            (quota.max_shards_per_job, "have in one job"),
        ] {
            if let Some(most) = most.filter(|&most| shards > most) {
                return refuse(
                    Code::LimitJob,
                    format!(
                        "{}, and {who} may {what} {most}{}",
                        count(shards),
                        match what {
                            "hold" => " at once",
                            _ => "",
                        }
                    ),
                );
            }
        }
        for (kind, most) in &quota.shards_of {
            let wholes = self.types.iter().filter(|(gpu, _)| gpu.name() == kind);
            let wholes: u64 = wholes
                .map(|(gpu, count)| count * u64::from(gpu.shards_per_gpu()))
                .sum();
            let slice = self.slice.filter(|(gpu, _)| gpu.name() == kind);
            let shards = wholes + slice.map_or(0, |(_, shards)| shards);
            if shards > *most {
                return refuse(
                    Code::LimitJob,
                    format!(
                        "{}, and {who} may hold {most} of type {kind} at once",
                        count(shards)
                    ),
                );
            }
        }
        if let (Some(most), Some(asked)) = (quota.wall_time, asker.time_limit)
            && asked > most.minutes()
        {
            return Err(Refusal::new(
                Code::LimitJob,
                format!(
                    "{}: {asked} minutes are asked for, and {who} may have {most}",
                    self.text
                ),
                format!("use --time={most} or less"),
            ));
        }
        Ok(())
    }

    /// The largest slice that the class may have, of the type that was asked for if there is one.
    fn instead(&self, standing: &Standing) -> String {
        let quota = &standing.quota;
        let named = self
            .slice
            .map(|(gpu, _)| gpu)
            .or(self.types.first().map(|(gpu, _)| *gpu));
        let gpus = named.into_iter().chain(self.policy.gpus());
        let fits = |gpu: &GpuType, size: &u32| {
            let shards = u64::from(gpu.shards_per_gpu() / size);
            let of_type = quota.shards_of.get(gpu.name()).copied();
            quota.jobs != Some(0)
                && [quota.shards, quota.max_shards_per_job, of_type]
                    .into_iter()
                    .flatten()
                    .all(|most| shards <= most)
        };
        for gpu in gpus {
            let size = gpu.slices().iter().find(|size| fits(gpu, size));
            if let Some(slice) = size.and_then(|&size| with_limits(gpu, size)) {
                return format!("use {slice}");
            }
        }
        format!("ask your administrator what {} may have", standing.called())
    }

    /// What the job's record gets, and its user hears.
    fn terms(&self, standing: &Standing, asker: &Asker) -> Result<Terms, Refusal> {
        let qos = self.qos(standing, asker)?;
        let notice = self.policy.limit_notice.then(|| notice(standing)).flatten();
        Ok(Terms {
            qos,
            partition: None,
            notice,
        })
    }

    /// The QOS to put the job in, unless it is in it.
    fn qos(&self, standing: &Standing, asker: &Asker) -> Result<Option<String>, Refusal> {
        let own = standing.qos.as_deref();
        refuse_foreign_qos(self.policy, asker, own, &self.text)?;
        let Some(own) = own else { return Ok(None) };
        let others = &standing.quota.other_qos;
        let may_be = |name: &str| {
            let mut names = others.iter().map(String::as_str).chain([own]);
            names.any(|other| other.eq_ignore_ascii_case(name))
        };
        let Some(named) = asker.qos.as_deref() else {
            let stays = asker.qos_now.as_deref().is_some_and(may_be);
            return Ok((!stays).then(|| own.to_string()));
        };
        if may_be(named) {
            return Ok(None);
        }
        let hint = match others.as_slice() {
            [] => format!("leave --qos out, or use --qos={own}"),
            others => format!(
                "leave --qos out, or use --qos={own} or {}",
                others.join(" or ")
            ),
        };
        Err(Refusal::new(
            Code::LimitQos,
            format!(
                "{}: jobs with GPUs of {} are not in QOS {named}",
                self.text,
                standing.called()
            ),
            hint,
        ))
    }
}

/// A QOS that holds one class to its limits is not for others, whatever their job asks for.
fn refuse_foreign_qos(
    policy: &Policy,
    asker: &Asker,
    own: Option<&str>,
    text: &str,
) -> Result<(), Refusal> {
    let Some(named) = asker.qos.as_deref() else {
        return Ok(());
    };
    let named = named.to_ascii_lowercase();
    if !policy.is_qos(&named) || own == Some(&*named) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::LimitQos,
        format!("{text}: QOS {named} is for another class of users"),
        "leave --qos out",
    ))
}

fn refused_at(gate: &Gate, closed: &Closed, text: &str) -> Refusal {
    let what = match gate.what() {
        "slice" => "parts of GPUs are",
        "whole" => "whole GPUs are",
        "mig" => "MIG instances are",
        _ => "this is",
    };
    let place = match gate.partitions() {
        [] => String::new(),
        [one] => format!(" in partition {one}"),
        several => format!(" in partitions {}", several.join(", ")),
    };
    let names = gate.reservations().join(" or ");
    let hint = format!(
        "use --reservation=NAME with one that is called {names}; 'scontrol show reservation' lists those that there are"
    );
    match closed {
        Closed::NoReservation => Refusal::new(
            Code::GateNoReservation,
            format!(
                "{text}: {what} for jobs inside certain reservations{place}, and this job names none"
            ),
            hint,
        ),
        Closed::Reservation(name) => Refusal::new(
            Code::GateReservation,
            format!(
                "{text}: {what} for jobs inside certain reservations{place}, and {name} is not one of them"
            ),
            hint,
        ),
    }
}

/// What the class may have, and what becomes of a job beyond that.
fn notice(standing: &Standing) -> Option<String> {
    let quota = &standing.quota;
    let mut may = Vec::new();
    if let Some(shards) = quota.shards {
        may.push(format!("{shards} shards"));
    }
    may.extend(
        quota
            .shards_of
            .iter()
            .map(|(kind, most)| format!("{most} shards of type {kind}")),
    );
    if let Some(wholes) = quota.whole_gpus {
        may.push(format!("{wholes} whole GPUs"));
    }
    if let Some(jobs) = quota.jobs {
        may.push(format!("{jobs} jobs with GPUs"));
    }
    if may.is_empty() {
        return None;
    }
    Some(format!(
        "softmig: {} may hold at once: {}; a job beyond that waits in the queue [{}]",
        standing.called(),
        may.join(", "),
        Code::LimitNotice.as_str()
    ))
}
