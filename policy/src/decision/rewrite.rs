//! From a granted slice to what Slurm can place: shards on each node, and no option that Slurm cannot combine with them.

use crate::config::gpu_types::GpuType;
use crate::decision::gpu_request::Part;
use crate::decision::reason::{Reason, SliceOrShards};
use crate::decision::refusal::Refusal;
use crate::decision::verdict::Context;
use crate::node::limits::Limits;
use crate::slurm::gres::{Item, Name, Prefix, items};
use crate::slurm::job_request::{CountedPer, Request};

/// The request with the slice as shards of one GPU on each node, in `tres_per_node`.
pub(crate) fn to_shards(
    request: &Request,
    context: &Context,
    gpu: &GpuType,
    part: &Part<'_>,
    limits: &Limits,
) -> Result<Request, Refusal> {
    let slice = Slice { gpu, part, limits };
    let mut request = request.clone();
    Slice::pin_nodes(&mut request);
    slice.check_place(&request)?;
    slice.move_to_node(&mut request, context);
    slice.refuse_options(&request)?;
    Slice::convert_tasks(&mut request);
    slice.convert_cpus(&mut request)?;
    slice.convert_memory(&mut request);
    // All tasks of a node share the one GPU; Slurm's per-task binding would want a GPU for each.
    request.tres_bind = request.tres_bind.filter(|bind| !bind.contains("per_task"));
    Ok(request)
}

/// The slice as Slurm takes it: `gres/shard:l40s:1`.
pub(crate) fn shards_of(prefix: Prefix, limits: &Limits) -> String {
    format!(
        "{}{}:{}:{}",
        prefix.as_str(),
        Name::Shard.as_str(),
        limits.gpu_type(),
        limits.share().shards()
    )
}

/// A TRES string with another item in the place of this one.
pub(crate) fn replaced(text: &str, raw: &str, by: &str) -> String {
    let items = text.split(',');
    let items: Vec<&str> = items
        .map(|item| if item == raw { by } else { item })
        .collect();
    items.join(",")
}

struct Slice<'a> {
    gpu: &'a GpuType,
    part: &'a Part<'a>,
    limits: &'a Limits,
}

impl Slice<'_> {
    /// The slice as the user may ask for it.
    fn asked(&self) -> SliceOrShards {
        SliceOrShards::from_limits(self.gpu, self.limits)
    }

    fn refuse(&self, reason: Reason) -> Refusal {
        Refusal::new(self.part.gres.to_string(), reason)
    }

    /// There is one slice on each node: a count for each task or socket is that only if each node has one of them.
    fn check_place(&self, request: &Request) -> Result<(), Refusal> {
        let nodes = request.nodes();
        let is_one_each = nodes == 1 || request.ntasks_per_node == Some(1);
        let (each, number) = match self.part.place {
            CountedPer::Job if nodes > 1 => {
                return Err(self.refuse(Reason::SeveralNodes {
                    nodes,
                    slice: self.asked(),
                    may_have_each: true,
                }));
            }
            CountedPer::Task if request.tasks() == nodes && is_one_each => return Ok(()),
            CountedPer::Node | CountedPer::Job => return Ok(()),
            CountedPer::Task => ("task", request.tasks()),
            CountedPer::Socket => ("socket", request.sockets_per_node.unwrap_or(1).into()),
        };
        if number <= 1 {
            return Ok(());
        }
        Err(self.refuse(Reason::SlicePer {
            each,
            number,
            slice: self.asked(),
        }))
    }

    fn move_to_node(&self, request: &mut Request, context: &Context) {
        let prefix = match (self.part.gres.prefix, context.prefix) {
            (Prefix::None, Some(prefix)) => prefix,
            (prefix, _) => prefix,
        };
        let shards = shards_of(prefix, self.limits);
        let field = request.tres_mut(self.part.place);
        let text = field.as_deref().unwrap_or_default();
        if self.part.place == CountedPer::Node {
            *field = Some(replaced(text, self.part.raw, &shards));
        } else {
            let kept = text.split(',');
            let others: Vec<&str> = kept.filter(|item| *item != self.part.raw).collect();
            *field = Some(others.join(",")).filter(|others| !others.is_empty());
            let node = request.tres_per_node.take();
            request.tres_per_node = Some(match node {
                Some(node) => format!("{node},{shards}"),
                None => shards,
            });
        }
    }

    /// Limits count the job's slices, so it gets as many nodes as it needs and no more.
    fn pin_nodes(request: &mut Request) {
        let by_tasks = match (request.num_tasks, request.ntasks_per_node) {
            (Some(tasks), Some(each)) => tasks.div_ceil(each.max(1)),
            _ => 1,
        };
        let nodes = request.min_nodes.unwrap_or(1).max(by_tasks).max(1);
        request.min_nodes = Some(nodes);
        request.max_nodes = Some(nodes);
    }

    /// Options that mean the whole GPU or the whole node.
    fn refuse_options(&self, request: &Request) -> Result<(), Refusal> {
        let gpu_type = self.gpu.name().to_string();
        if request.exclusive {
            return Err(self.refuse(Reason::ExclusiveSlice { gpu_type }));
        }
        if request
            .tres_freq
            .as_deref()
            .is_some_and(|freq| freq.contains("gpu"))
        {
            return Err(self.refuse(Reason::SliceFrequency { gpu_type }));
        }
        Ok(())
    }

    /// `--ntasks-per-gpu` on one GPU is `--ntasks`; where both are given Slurm's clients let this one win. With several nodes it
    /// is `--ntasks-per-node`.
    fn convert_tasks(request: &mut Request) {
        if let Some(each) = request.ntasks_per_tres.take() {
            let nodes = request.min_nodes.unwrap_or(1);
            let tasks = each.saturating_mul(nodes);
            request.num_tasks = Some(tasks);
            if nodes > 1 {
                request.ntasks_per_node = Some(each);
            }
            let needed = tasks.saturating_mul(request.cpus_per_task.unwrap_or(1));
            request.min_cpus = request.min_cpus.map(|cpus| cpus.max(needed));
        }
    }

    /// `--cpus-per-gpu` on one GPU of each node is the number of CPUs of the job, divided by its nodes.
    fn convert_cpus(&self, request: &mut Request) -> Result<(), Refusal> {
        let Some(each) = per_gpu(&mut request.cpus_per_tres) else {
            return Ok(());
        };
        let tasks = request.tasks();
        let cpus = each.saturating_mul(request.nodes());
        let per_task = u32::try_from(cpus / tasks).ok().filter(|&per_task| {
            cpus % tasks == 0
                && per_task > 0
                && request.cpus_per_task.is_none_or(|other| other == per_task)
        });
        let (Some(per_task), Ok(cpus)) = (per_task, u32::try_from(cpus)) else {
            return Err(self.refuse(Reason::CpusPerGpu {
                cpus: each,
                tasks,
                cpus_per_task: request.cpus_per_task,
                slice: self.asked(),
            }));
        };
        request.cpus_per_task = Some(per_task);
        request.min_cpus = Some(request.min_cpus.unwrap_or(0).max(cpus));
        Ok(())
    }

    /// `--mem-per-gpu` on one GPU of each node is `--mem`.
    fn convert_memory(&self, request: &mut Request) {
        // No node has an EiB, and Lua's floating point numbers cannot hold larger figures exactly.
        const MOST: u64 = 1 << 40;
        if let Some(mib) = per_gpu(&mut request.mem_per_tres) {
            request.memory_per_node = Some(mib.min(MOST));
        }
    }
}

/// Takes the figure for GPUs out of a `gres:gpu:2` field; 0 means that none is set.
fn per_gpu(field: &mut Option<String>) -> Option<u64> {
    let text = field.take()?;
    let mut figure = None;
    let mut others = Vec::new();
    for (raw, item) in items(&text) {
        match item {
            Item::Gpu(gres) => figure = Some(gres.count()),
            Item::Other(_) | Item::Malformed(_) => others.push(raw),
        }
    }
    *field = Some(others.join(",")).filter(|others| !others.is_empty());
    figure.filter(|&figure| figure > 0)
}
