//! The names of MIG instances: `1g.10gb` is one slice of seven with 10 GB, `1c.3g.20gb` one of three compute instances in
//! a `3g.20gb`, `1g.10gb+me` one with the media engines.

use crate::memory::MIB;
const GIB: u64 = 1 << 30;

/// A GPU's memory is handed out in eighths.
const MEMORY_SLICES: u64 = 8;

/// The profile at the end of a device's name, `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
pub(crate) fn in_name(name: &str) -> Option<&str> {
    let (_, profile) = name.rsplit_once(" MIG ")?;
    let profile = profile.trim();
    (!profile.is_empty()).then_some(profile)
}

/// Whether other instances may have the same memory: compute instances that are less than their GPU instance.
pub(crate) fn shares_memory(profile: &str) -> bool {
    profile
        .split('.')
        .next()
        .is_some_and(|first| first.ends_with('c'))
}

/// The profile without what does not belong to its size, as a type's name can have it: `1g.10gb` for `1g.10gb+me`.
pub fn size(profile: &str) -> &str {
    profile.split(['+', '-']).next().unwrap_or(profile)
}

/// The parts of an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) slices: u32,
    pub(crate) compute_slices: u32,
    pub(crate) memory_mib: u64,
}

impl Sizes {
    /// The profile's name where NVML does not give it. It names the instance's part, in eighths, of the GB that the
    /// card is sold with: 16384 MiB of an H200's 143771 are `1g.18gb`.
    pub(crate) fn profile(&self, card: Option<u64>) -> String {
        let own = self.memory_mib * MIB;
        let gigabytes = match card {
            Some(card) if card > 0 => {
                let eighths = (own * MEMORY_SLICES).div_ceil(card);
                (eighths * card.div_ceil(GIB) + MEMORY_SLICES / 2) / MEMORY_SLICES
            }
            _ => own.div_ceil(GIB),
        };
        let compute = if self.compute_slices == self.slices {
            String::new()
        } else {
            format!("{}c.", self.compute_slices)
        };
        format!("{compute}{}g.{gigabytes}gb", self.slices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_ends_with_the_profile() {
        assert_eq!(in_name("NVIDIA A100-SXM4-40GB MIG 1g.5gb"), Some("1g.5gb"));
        assert_eq!(
            in_name("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"),
            Some("1c.3g.40gb")
        );
        assert_eq!(in_name("NVIDIA A100-SXM4-40GB"), None);
        assert_eq!(in_name("NVIDIA A100 MIG "), None);
    }

    /// Card in MiB, slices, MiB of the instance and profile, as nvidia-smi's list of profiles has them.
    #[test]
    fn without_a_name_the_sizes_say_it() {
        for (card, slices, memory_mib, profile) in [
            (40_960, 1, 4_864, "1g.5gb"),
            (40_960, 2, 9_984, "2g.10gb"),
            (40_960, 3, 20_096, "3g.20gb"),
            (40_960, 7, 40_448, "7g.40gb"),
            (81_920, 1, 9_728, "1g.10gb"),
            (81_920, 1, 19_968, "1g.20gb"),
            (81_559, 7, 81_152, "7g.80gb"),
            (143_771, 1, 16_384, "1g.18gb"),
        ] {
            let sizes = Sizes {
                slices,
                compute_slices: slices,
                memory_mib,
            };
            assert_eq!(sizes.profile(Some(card * MIB)), profile);
        }
        let part = Sizes {
            slices: 3,
            compute_slices: 1,
            memory_mib: 20_096,
        };
        assert_eq!(part.profile(Some(40_960 * MIB)), "1c.3g.20gb");
        assert_eq!(part.profile(None), "1c.3g.20gb");
    }

    #[test]
    fn compute_instances_of_one_gpu_instance_share_its_memory() {
        assert!(shares_memory("1c.3g.20gb"));
        assert!(!shares_memory("3g.20gb"));
        assert!(!shares_memory("1g.10gb+me"));
    }

    #[test]
    fn a_type_is_called_by_the_size_alone() {
        assert_eq!(size("1g.10gb+me"), "1g.10gb");
        assert_eq!(size("1g.10gb+me.all"), "1g.10gb");
        assert_eq!(size("1g.10gb-me"), "1g.10gb");
        assert_eq!(size("1c.3g.20gb"), "1c.3g.20gb");
    }
}
