//! Amounts of what Slurm counts, as sacctmgr and sacct write them: `cpu=4,gres/gpu:l40s=1,mem=2048`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Amounts by name. Memory is in MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tres(BTreeMap<String, u64>);

impl Tres {
    /// Holds a name to an amount, and to the smaller one where there is one already.
    pub(crate) fn limit(&mut self, name: impl Into<String>, amount: u64) {
        let held = self.0.entry(name.into()).or_insert(amount);
        *held = amount.min(*held);
    }

    /// Adds an amount to that of a name.
    pub(crate) fn add(&mut self, name: impl Into<String>, amount: u64) {
        let held = self.0.entry(name.into()).or_default();
        *held = held.saturating_add(amount);
    }

    /// The amount of one name.
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// All of them, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

impl fmt::Display for Tres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, amount)) in self.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{name}={amount}")?;
        }
        Ok(())
    }
}

impl FromStr for Tres {
    type Err = String;

    /// Reads what sacctmgr shows. It shows memory with a unit, `mem=2G`; without one it is MiB. `gres_list` has no
    /// units and skips what it cannot read, and this returns an error.
    fn from_str(text: &str) -> Result<Self, String> {
        let items = text.split(',').filter(|item| !item.is_empty());
        let read = items.map(|item| {
            let read = item.split_once('=').and_then(|(name, amount)| {
                let amount = match name {
                    "mem" => mebibytes(amount)?,
                    _ => amount.parse().ok()?,
                };
                Some((name.to_string(), amount))
            });
            read.ok_or_else(|| format!("\"{item}\" is not NAME=AMOUNT"))
        });
        Ok(Self(read.collect::<Result<_, _>>()?))
    }
}

/// `2G`, `2048M`, `2048`, `1.50G`.
fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let each = match text.get(digits.len()..)? {
        "" | "M" => 1,
        "G" => 1 << 10,
        "T" => 1 << 20,
        "P" => 1 << 30,
        _ => return None,
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let whole = whole.parse::<u64>().ok()?.checked_mul(each)?;
    let tenths = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
    whole.checked_add(part.parse::<u64>().ok()?.checked_mul(each)? / tenths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_sacctmgr_shows_is_read() {
        let read: Tres = "billing=8,cpu=64,gres/gpu:l40s=2,mem=1.50G"
            .parse()
            .unwrap();
        assert_eq!(
            read.to_string(),
            "billing=8,cpu=64,gres/gpu:l40s=2,mem=1536"
        );
        assert_eq!("".parse::<Tres>().unwrap(), Tres::default());
        assert!("cpu".parse::<Tres>().is_err());
        assert!("mem=1X".parse::<Tres>().is_err());
    }

    #[test]
    fn the_smaller_of_two_limits_holds() {
        let mut tres = Tres::default();
        tres.limit("gres/gpu:l40s", 3);
        tres.limit("gres/gpu:l40s", 5);
        assert_eq!(tres.get("gres/gpu:l40s"), Some(3));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            amounts in proptest::collection::btree_map("[a-z/:_0-9]{1,12}", 0u64..1 << 50, 0..6)
        ) {
            let tres = Tres(amounts);
            prop_assert_eq!(&tres.to_string().parse::<Tres>().unwrap(), &tres);
        }
    }
}
