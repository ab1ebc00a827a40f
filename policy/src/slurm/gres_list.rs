//! GRES as Slurm lists them: of a node `gpu:l40s:4,shard:l40s:16(S:0-1)`, of a job or a reservation `cpu=1,gres/gpu:l40s=1`.

use crate::slurm::gres::{Prefix, count, placed_items};

/// A GRES and its count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Configured {
    /// Its name: `gpu`, `shard`, `mps` and others.
    pub name: String,
    /// Its type, where it has one.
    pub kind: Option<String>,
    /// The number of them.
    pub count: u64,
}

impl Configured {
    /// Reads such a list; a TRES that is not a GRES counts as a GRES of its name. Other text is passed over, since
    /// Slurm has read the line before.
    ///
    /// ```
    /// use softmig_policy::slurm::gres_list::Configured;
    /// let list = Configured::parse("gpu:l40s:4(S:0-1),shard:16");
    /// assert_eq!((list[0].kind.as_deref(), list[0].count), (Some("l40s"), 4));
    /// assert_eq!((list[1].kind.as_deref(), list[1].count), (None, 16));
    /// ```
    pub fn parse(gres: &str) -> Vec<Self> {
        let items = placed_items(gres);
        items.filter_map(|(item, _)| configured(item)).collect()
    }

    /// Whether these are GPUs or shards.
    pub fn is_gpu(&self) -> bool {
        matches!(self.name.as_str(), "gpu" | "shard")
    }
}

/// Reads one item.
pub(crate) fn configured(text: &str) -> Option<Configured> {
    let (_, text) = Prefix::split(text);
    let mut words = text.split([':', '=']).filter(|word| *word != "no_consume");
    let name = words.next().filter(|name| !name.is_empty())?;
    let rest: Vec<&str> = words.collect();
    let (kind, count) = match rest.as_slice() {
        [] => (None, 1),
        [word] => match count(word) {
            Some(count) => (None, count),
            None => (Some(*word), 1),
        },
        [kind, amount, ..] => (Some(*kind), count(amount)?),
    };
    Some(Configured {
        name: name.to_string(),
        kind: kind.map(str::to_string),
        count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_slurms_is_read() {
        for (text, list) in [
            ("gpu", vec![("gpu", None, 1)]),
            ("gpu:4", vec![("gpu", None, 4)]),
            ("gpu:l40s", vec![("gpu", Some("l40s"), 1)]),
            (
                "gpu:l40s:3(S:0,1),gpu:l40s_r:1(S:1),shard:l40s:12",
                vec![
                    ("gpu", Some("l40s"), 3),
                    ("gpu", Some("l40s_r"), 1),
                    ("shard", Some("l40s"), 12),
                ],
            ),
            ("gpu:a100:no_consume:2", vec![("gpu", Some("a100"), 2)]),
            ("craynetwork:4K", vec![("craynetwork", None, 4096)]),
            ("gpu:h100_1g.10gb:7", vec![("gpu", Some("h100_1g.10gb"), 7)]),
            ("gres:gpu:l40s", vec![("gpu", Some("l40s"), 1)]),
            (
                "cpu=2,gres/gpu:l40s=1",
                vec![("cpu", None, 2), ("gpu", Some("l40s"), 1)],
            ),
            ("(null)", vec![]),
            ("", vec![]),
        ] {
            let parsed = Configured::parse(text);
            let parsed: Vec<_> = parsed
                .iter()
                .map(|gres| (gres.name.as_str(), gres.kind.as_deref(), gres.count))
                .collect();
            assert_eq!(parsed, list, "{text}");
        }
    }
}
