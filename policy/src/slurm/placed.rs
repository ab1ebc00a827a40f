//! Where on a node the GPUs and shards of jobs are: `GRES=` of `scontrol -d show job`, and `GresUsed=` of `show node`.

use crate::slurm::conf::printed_groups;
use crate::slurm::gres::{MOST_GPUS, placed_items, ranges};
use crate::slurm::gres_list::{Configured, configured};
use crate::slurm::hostlist::expand;

/// A GRES, and where it is on its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The GRES and its count. For shards of a node, 22.05 prints a wrong count.
    pub gres: Configured,
    /// Its places.
    pub places: Places,
}

/// Places on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Places {
    /// Slurm does not say.
    Unknown,
    /// `(IDX:0,2-3)`: on these GPUs of the node, by index.
    Indices(Vec<u32>),
    /// `(3/4,0/4,-/4)`, from 23.11 on: the shards of each GPU. For a job these are all GPUs of the node, for a node those
    /// of one type.
    Parts(Vec<Part>),
}

/// The shards of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Used; `None` if the GPU is used as a whole.
    pub used: Option<u64>,
    /// All that the GPU has.
    pub of: u64,
}

impl Placed {
    /// Reads a list of Slurm's own. Unknown parts are passed over.
    ///
    /// ```
    /// use softmig_policy::slurm::placed::{Placed, Places};
    /// let list = Placed::parse("gpu:l40s:1(IDX:1),shard:l40s:2(2/4,-/4)");
    /// assert_eq!(list[0].places, Places::Indices(vec![1]));
    /// assert_eq!(list[1].on(0), Some(2));
    /// ```
    pub fn parse(gres: &str) -> Vec<Self> {
        let items = placed_items(gres);
        items
            .filter_map(|(item, places)| placed(item, places))
            .collect()
    }

    /// How many of them a GPU of the node has, by its index; `None` if that is not known.
    pub fn on(&self, index: u32) -> Option<u64> {
        match &self.places {
            Places::Unknown => None,
            Places::Indices(indices) if !indices.contains(&index) => Some(0),
            // One on each GPU, or all on one GPU.
            Places::Indices(indices) if self.gres.count == indices.len() as u64 => Some(1),
            Places::Indices(indices) => (indices.len() == 1).then_some(self.gres.count),
            Places::Parts(parts) => {
                let part = parts.get(usize::try_from(index).ok()?)?;
                Some(part.used.unwrap_or(0))
            }
        }
    }
}

/// A job's GRES on each of its nodes, from its line of `scontrol -d -o show job`.
///
/// The line also has words that the job's user chose. So a node counts only if `is_its` says that it is the job's. A
/// node that is named twice with different GRES has `None`: its GRES are not known.
pub fn of_job(line: &str, is_its: impl Fn(&str) -> bool) -> Vec<(String, Option<Vec<Placed>>)> {
    let mut found: Vec<(String, Option<Vec<Placed>>)> = Vec::new();
    for (nodes, gres) in printed_groups(line) {
        let gres = Placed::parse(gres);
        for node in expand(nodes).into_iter().filter(|node| is_its(node)) {
            match found.iter_mut().find(|(known, _)| *known == node) {
                Some((_, known)) if known.as_ref() == Some(&gres) => {}
                Some((_, known)) => *known = None,
                None => found.push((node, Some(gres.clone()))),
            }
        }
    }
    found
}

fn placed(item: &str, places: Option<&str>) -> Option<Placed> {
    let gres = configured(item)?;
    let places = match places.unwrap_or_default() {
        "" | "IDX:" | "IDX:N/A" => Places::Indices(Vec::new()),
        places => match places.strip_prefix("IDX:") {
            Some(indices) => indices_of(indices).map_or(Places::Unknown, Places::Indices),
            None => parts_of(places).map_or(Places::Unknown, Places::Parts),
        },
    };
    // Without brackets, the places are not known.
    let places = match places {
        Places::Indices(indices) if indices.is_empty() && gres.count > 0 => Places::Unknown,
        places => places,
    };
    Some(Placed { gres, places })
}

fn indices_of(text: &str) -> Option<Vec<u32>> {
    let ranges: Vec<_> = ranges(text).collect::<Option<_>>()?;
    let all: Vec<u32> = ranges.into_iter().flatten().collect();
    (all.len() <= MOST_GPUS as usize).then_some(all)
}

/// The shards of each GPU in `3/4,0/4,-/4`.
pub(super) fn parts_of(text: &str) -> Option<Vec<Part>> {
    let part = |text: &str| {
        let (used, of) = text.split_once('/')?;
        let used = match used {
            "-" => None,
            used => Some(used.parse().ok()?),
        };
        Some(Part {
            used,
            of: of.parse().ok()?,
        })
    };
    text.split(',').take(MOST_GPUS as usize).map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(gres: &str, index: u32) -> Option<u64> {
        Placed::parse(gres).last().unwrap().on(index)
    }

    #[test]
    fn both_forms_are_read() {
        for (gres, index, count) in [
            ("shard:l40s:1(IDX:2)", 2, Some(1)),
            ("shard:l40s:3(IDX:2)", 2, Some(3)),
            ("shard:l40s:3(IDX:2)", 1, Some(0)),
            ("shard:l40s:3(IDX:1-2)", 1, None),
            ("gpu:l40s:3(IDX:0-1,3)", 3, Some(1)),
            ("gpu:1(IDX:0),shard:l40s:2(0/4,2/4,-/4)", 1, Some(2)),
            ("shard:l40s:2(0/4,2/4,-/4)", 2, Some(0)),
            ("shard:l40s:2(0/4,2/4)", 7, None),
            ("shard:l40s:0(IDX:N/A)", 0, Some(0)),
            ("shard:l40s:2", 0, None),
            ("gpu:l40s:2(S:0-1)", 0, None),
            ("gpu:l40s:2(IDX:0-4000000000)", 0, None),
            ("gpu:l40s:2(IDX:x)", 0, None),
        ] {
            assert_eq!(on(gres, index), count, "{gres}");
        }
        assert_eq!(
            Placed::parse("gpu:l40s:1(IDX:1),shard:l40s:0(-/4,0/4)").len(),
            2
        );
        assert!(Placed::parse("(null)").is_empty());
    }

    #[test]
    fn a_job_has_its_nodes_gres_or_none_if_its_users_words_differ() {
        let own =
            "Nodes=n[1-2] CPU_IDs=0 Mem=1 GRES=gpu:l40s:1(IDX:0) Nodes=n3 CPU_IDs=0 Mem=1 GRES=";
        let is_its = |node: &str| ["n1", "n2", "n3"].contains(&node);
        let job = of_job(own, is_its);
        let names: Vec<&str> = job.iter().map(|(node, _)| node.as_str()).collect();
        assert_eq!(names, ["n1", "n2", "n3"]);
        assert_eq!(job[2].1, Some(Vec::new()));
        for words in [
            "Comment=x Nodes=n1 GRES=gpu:l40s:9(IDX:0)",
            "Nodes=n9 GRES=gpu:l40s:9",
        ] {
            for line in [format!("{words} {own}"), format!("{own} {words}")] {
                let job = of_job(&line, is_its);
                assert_eq!(job.len(), 3, "{line}");
                assert_eq!(
                    job.iter().any(|(_, gres)| gres.is_none()),
                    words.contains("n1")
                );
            }
        }
    }
}
