//! Steps of a job that has a slice, where they ask for a GPU.

use crate::decision::rewrite::{replaced, shards_of};
use crate::node::limits::Limits;
use crate::slurm::gres::{Gres, Item, Name, items};
use crate::slurm::job_request::{CountedPer, Request};

/// The request of a step that asks for one GPU, in a job whose GPU on each node is this slice: for the slice. `None` for any other
/// request.
///
/// Programs and their launchers ask for as many GPUs as `$SLURM_GPUS_ON_NODE` says, which is one.
pub fn one_gpu_as_slice(step: &Request, slice: &Limits) -> Option<Request> {
    let is_it = |gres: &Gres<'_>| {
        let is_its_type = gres
            .kind
            .is_none_or(|kind| kind == slice.gpu_type().as_str());
        gres.name == Name::Gpu && gres.count() == 1 && is_its_type
    };
    let mut wanted = step.tres().flat_map(|(place, text)| {
        let all = items(text).map(move |(raw, item)| (place, raw, item));
        all.filter(|(_, _, item)| !matches!(item, Item::Other(_)))
    });
    let (place, raw, Item::Gpu(gres)) = wanted.next()? else {
        return None;
    };
    // One for each of several tasks is more than one.
    let is_one = place != CountedPer::Task || step.num_tasks.unwrap_or(1) <= 1;
    if !is_it(&gres) || !is_one || wanted.next().is_some() {
        return None;
    }
    let mut own = step.clone();
    let field = own.tres_mut(place);
    let text = field.as_deref().unwrap_or_default();
    *field = Some(replaced(text, raw, &shards_of(gres.prefix, slice)));
    Some(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::limits::{Mode, Share, TypeName};

    #[test]
    fn one_gpu_of_the_jobs_type_is_its_slice() {
        let kind = TypeName::new("l40s").unwrap();
        let slice = Limits::new(kind, Share::new(2, 4).unwrap(), 22732, Mode::HARD).unwrap();
        let on_node = |gres: &str| {
            let request = Request {
                tres_per_node: Some(gres.into()),
                ..Request::default()
            };
            one_gpu_as_slice(&request, &slice)?.tres_per_node
        };
        for (gres, own) in [
            ("gpu:1", Some("shard:l40s:2")),
            ("gres:gpu", Some("gres:shard:l40s:2")),
            ("license:x,gpu:l40s:1", Some("license:x,shard:l40s:2")),
            ("gpu:2", None),
            ("gpu:h100:1", None),
            ("gpu:l40s.2:1", None),
            ("gpu:1,gpu:l40s:1", None),
            ("shard:l40s:1", None),
            ("license:x", None),
        ] {
            assert_eq!(on_node(gres).as_deref(), own, "{gres}");
        }
        let by_task = |num_tasks| Request {
            tres_per_task: Some("gpu:1".into()),
            num_tasks,
            ..Request::default()
        };
        let own = one_gpu_as_slice(&by_task(Some(1)), &slice).unwrap();
        assert_eq!(own.tres_per_task.as_deref(), Some("shard:l40s:2"));
        assert_eq!(one_gpu_as_slice(&by_task(Some(2)), &slice), None);
    }
}
