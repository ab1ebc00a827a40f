//! Settings of a GPU that keep jobs from sharing it, now or later.

use std::fmt;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::ComputeMode;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// One process at a time can use it.
    Exclusive,
    /// No process can.
    Prohibited,
    /// MIG is to be switched.
    MigPending,
    /// ECC is to be switched.
    EccPending,
    /// Pages of its memory are to be taken out of use.
    PagesPending,
    /// The driver forgets it while no program uses it.
    NotPersistent,
}

impl Setting {
    /// What keeps jobs from sharing a GPU now.
    pub fn in_effect(device: &Device<'_>) -> Option<Self> {
        match device.compute_mode() {
            Ok(ComputeMode::ExclusiveProcess | ComputeMode::ExclusiveThread) => {
                Some(Self::Exclusive)
            }
            Ok(ComputeMode::Prohibited) => Some(Self::Prohibited),
            _ => None,
        }
    }

    /// That, and what comes later. What cannot be asked is not there: many GPUs have no MIG, no ECC and no such pages.
    pub(crate) fn all(device: &Device<'_>, is_mig_switched: bool) -> Vec<Self> {
        let is_so = |setting, is_so: bool| is_so.then_some(setting);
        let ecc = device.is_ecc_enabled();
        let all = [
            Self::in_effect(device),
            is_so(Self::MigPending, is_mig_switched),
            is_so(
                Self::EccPending,
                ecc.is_ok_and(|ecc| ecc.currently_enabled != ecc.pending_enabled),
            ),
            is_so(
                Self::PagesPending,
                device.are_pages_pending_retired().is_ok_and(|are| are),
            ),
            is_so(
                Self::NotPersistent,
                device.is_in_persistent_mode().is_ok_and(|is_on| !is_on),
            ),
        ];
        all.into_iter().flatten().collect()
    }

    /// What to type, with NVML's index.
    pub fn remedy(self, index: u32) -> String {
        match self {
            Self::Exclusive | Self::Prohibited => format!("nvidia-smi -i {index} -c DEFAULT"),
            Self::MigPending | Self::EccPending | Self::PagesPending => {
                format!("drain the node, then: nvidia-smi -i {index} --gpu-reset")
            }
            Self::NotPersistent => "systemctl enable --now nvidia-persistenced".into(),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exclusive => {
                "its compute mode is exclusive: one process at a time can use it, so jobs cannot share it"
            }
            Self::Prohibited => "its compute mode is PROHIBITED: no job can use it",
            Self::MigPending => "MIG is switched at its next reset, and it is another GPU then",
            Self::EccPending => {
                "ECC is switched at its next reset, and it has more or less memory then"
            }
            Self::PagesPending => "pages of its memory are faulty, and are in use until its next reset",
            Self::NotPersistent => {
                "the driver lets go of it while no program uses it: the next one starts some seconds late, and nvidia-smi's settings are lost"
            }
        })
    }
}
