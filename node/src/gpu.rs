//! The node's GPUs, as the driver lists them below `/proc/driver/nvidia/gpus`: no NVML, no device opened.

use softmig_policy::node::job_conf::{Gpus, Uuid};
use std::path::Path;

/// A GPU of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// The N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Its UUID; `None` while the driver has not read it from the card yet, which it does at its first use.
    pub uuid: Option<Uuid>,
    /// Its name, such as `NVIDIA L40S`.
    pub model: String,
    /// The version of the firmware that runs the driver's part on the card; `N/A` where the driver does it all by itself.
    pub firmware: String,
}

/// All GPUs of this node, in any order; none without a driver.
pub fn installed(folder: &Path) -> Vec<Card> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("information")).ok())
        .filter_map(|text| parse(&text))
        .collect()
}

/// Reads one `information` file: `Key: <tab> value` lines.
fn parse(text: &str) -> Option<Card> {
    let value = |wanted: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == wanted)
            .map(|(_, value)| value.trim())
    };
    Some(Card {
        minor: value("Device Minor")?.parse().ok()?,
        uuid: value("GPU UUID").and_then(Uuid::parse),
        model: value("Model").unwrap_or_default().to_string(),
        firmware: value("GPU Firmware").unwrap_or_default().to_string(),
    })
}

/// The job's GPUs among the node's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    /// Those that were found.
    pub gpus: Gpus,
    /// The first one's name.
    pub model: Option<String>,
    /// The indices without a GPU that has a UUID.
    pub missing: Vec<u32>,
}

/// Finds the GPUs of these indices.
///
/// Slurm's index is a GPU's place in the node's gres.conf, not a minor number. The two are the same where gres.conf
/// lists all devices in order (`File=/dev/nvidia[0-3]`, or `AutoDetect=nvml` on a node whose driver numbers the cards
/// as NVML does), which docs/install.md asks for.
pub fn assigned(cards: &[Card], indices: &[u32]) -> Assigned {
    let mut assigned = Assigned::default();
    for &index in indices {
        let card = cards.iter().find(|card| card.minor == index);
        assigned.model = assigned
            .model
            .or_else(|| card.map(|card| card.model.clone()));
        let pushed = card
            .and_then(|card| card.uuid)
            .is_some_and(|uuid| assigned.gpus.push(uuid).is_ok());
        if !pushed {
            assigned.missing.push(index);
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFORMATION: &str = "Model: \t\t NVIDIA L40S\nIRQ:   \t\t 63\n\
        GPU UUID: \t GPU-00000000-1111-2222-3333-444444444444\nVideo BIOS: \t 95.02.66.00.02\nBus Type: \t PCIe\n\
        Bus Location: \t 0000:01:00.0\nDevice Minor: \t 1\nGPU Firmware: \t 580.159.04\nGPU Excluded:\t No\n";

    #[test]
    fn the_drivers_page_is_read() {
        let card = parse(INFORMATION).unwrap();
        assert_eq!((card.minor, card.model.as_str()), (1, "NVIDIA L40S"));
        assert_eq!(card.firmware, "580.159.04");
        assert_eq!(
            card.uuid.unwrap().as_str(),
            "GPU-00000000-1111-2222-3333-444444444444"
        );
    }

    #[test]
    fn a_card_that_no_process_has_used_yet_has_no_uuid() {
        let text = INFORMATION.replace(
            "00000000-1111-2222-3333-444444444444",
            "????????-????-????-????-????????????",
        );
        assert_eq!(parse(&text).unwrap().uuid, None);
        assert_eq!(parse("Model: x\n"), None);
    }

    #[test]
    fn an_index_without_a_card_is_reported_and_the_others_stay() {
        let cards = [parse(INFORMATION).unwrap()];
        let assigned = assigned(&cards, &[0, 1]);
        assert_eq!(assigned.missing, [0]);
        assert_eq!(assigned.gpus.iter().count(), 1);
        assert_eq!(assigned.model.as_deref(), Some("NVIDIA L40S"));
    }

    #[test]
    fn a_node_without_a_driver_has_no_cards() {
        assert_eq!(installed(Path::new("/nonexistent")), []);
    }
}
