//! The indices of GPUs on a node, as Slurm writes them: in SLURM_JOB_GPUS, and behind the GRES that slurmctld shows.

use crate::node::job_conf::MAX_GPUS;
use crate::slurm::allocation::{Allocation, groups};
use crate::slurm::gres::{placed_items, ranges};
use crate::slurm::gres_list::configured;
use crate::slurm::placed::parts_of;

/// GPUs of one node, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuList {
    /// The indices, in the order in which Slurm wrote them.
    pub indices: Vec<u32>,
    /// Whether some of the text was not an index.
    pub garbled: bool,
}

impl GpuList {
    /// Reads SLURM_JOB_GPUS: `0,2` or `0,2-3`.
    ///
    /// ```
    /// use softmig_policy::slurm::gpu_list::GpuList;
    /// assert_eq!(GpuList::parse("0,2-3").indices, [0, 2, 3]);
    /// assert!(GpuList::parse("3-1").garbled);
    /// ```
    pub fn parse(text: &str) -> Self {
        let mut list = Self::default();
        list.add(text);
        list.bounded()
    }

    /// A job's GPUs on `node`, from the answer of `scontrol -d -o show job`; `None` if it has none there.
    ///
    /// The answer also has words that the user chose. If these name other GPUs, the list is empty.
    pub fn on_node(answer: &str, node: &str) -> Option<Self> {
        if Allocation::parse(answer, node) == Allocation::Nothing {
            return None;
        }
        let mut lists = groups(answer, node).into_iter().map(Self::of_gres);
        let first = lists.next()?;
        let is_sure = lists.all(|other| other == first);
        Some(if is_sure { first } else { Self::default() })
    }

    /// Reads slurmctld's words for a job's GRES on a node.
    fn of_gres(gres: &str) -> Self {
        let mut list = Self::default();
        let is_gpu = |item: &str| configured(item).is_some_and(|gres| gres.is_gpu());
        let all = placed_items(gres).filter(|(item, _)| is_gpu(item));
        for places in all.filter_map(|(_, places)| places) {
            match places.strip_prefix("IDX:") {
                Some("" | "N/A") => {}
                Some(indices) => list.add(indices),
                // The sockets of the GPUs.
                None if places.starts_with("S:") => {}
                None => list.add_held(places),
            }
        }
        list.bounded()
    }

    /// Adds the GPUs of `0,2-3`.
    fn add(&mut self, text: &str) {
        for range in ranges(text) {
            match range {
                Some(range) => self.indices.extend(range),
                None => self.garbled = true,
            }
        }
    }

    /// Adds the GPUs of `0/4,1/4` that have a shard in use.
    fn add_held(&mut self, text: &str) {
        let Some(parts) = parts_of(text) else {
            self.garbled = true;
            return;
        };
        let held = (0..)
            .zip(parts)
            .filter(|(_, part)| part.used.is_some_and(|used| used > 0));
        self.indices.extend(held.map(|(index, _)| index));
    }

    /// Keeps as many GPUs as a job's conf can name. A longer list is garbled.
    fn bounded(mut self) -> Self {
        self.garbled |= self.indices.len() > MAX_GPUS;
        self.indices.truncate(MAX_GPUS);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_in_both_spellings() {
        let places = |gres: &str| GpuList::of_gres(gres).indices;
        assert_eq!(places("shard:l40s:1(IDX:2)"), [2]);
        assert_eq!(places("license:x:1,gpu:l40s:3(IDX:0-1,3)"), [0, 1, 3]);
        assert_eq!(places("shard:l40s:2(0/4,2/4,-/4)"), [1]);
        assert_eq!(places("gres/shard:l40s:1(1/4,0/4)"), [0]);
        assert_eq!(places("gpu:l40s:1(IDX:0),gpu:h200:1(IDX:3)"), [0, 3]);
        for none in [
            "",
            "gpu:0(IDX:N/A)",
            "gpu:l40s:0(IDX:)",
            "disk:1(IDX:1)",
            "nogpu:1(IDX:1)",
            "shard:2",
        ] {
            assert_eq!(places(none), [0u32; 0], "{none}");
        }
    }

    #[test]
    fn only_places_that_cannot_be_read_are_garbled() {
        for (gres, indices, garbled) in [
            ("gpu:l40s:1", vec![], false),
            ("gpu:l40s:2(S:0-1)", vec![], false),
            ("gpu:l40s:1(IDX:N/A)", vec![], false),
            ("gpu:1(IDX:x)", vec![], true),
            ("gpu:2(IDX:x,1)", vec![1], true),
            ("shard:2(x/4,1/4)", vec![], true),
        ] {
            let list = GpuList::of_gres(gres);
            assert_eq!((list.indices, list.garbled), (indices, garbled), "{gres}");
        }
    }

    #[test]
    fn places_are_this_nodes_or_none_if_a_users_words_differ() {
        let here =
            "JobId=1 Nodes=n1 GRES=shard:l40s:1(0/4,1/4) Nodes=n2 GRES=shard:l40s:1(1/4,0/4)";
        let indices = |answer: &str| GpuList::on_node(answer, "n1").map(|list| list.indices);
        assert_eq!(indices(here), Some(vec![1]));
        assert_eq!(indices("JobId=1 Nodes=n1 GRES= SubmitLine=x"), None);
        let typed = format!("Comment=x Nodes=n1 GRES=gpu:l40s:1(IDX:0) {here}");
        assert_eq!(indices(&typed), Some(Vec::new()));
    }

    #[test]
    fn indices_and_ranges_are_read() {
        for (text, indices, garbled) in [
            ("0", vec![0], false),
            ("0,2", vec![0, 2], false),
            ("0,2-4", vec![0, 2, 3, 4], false),
            ("3-1", vec![], true),
            ("x,1", vec![1], true),
            ("0-4000000000", vec![], true),
            ("-1", vec![], true),
        ] {
            let list = GpuList::parse(text);
            assert_eq!((list.indices, list.garbled), (indices, garbled), "{text}");
        }
        let many = GpuList::parse("0-1000");
        assert_eq!((many.indices.len(), many.garbled), (MAX_GPUS, true));
    }
}
