//! A job's limits on a GPU: exact, small enough to copy, and readable without an allocator.

use core::fmt;
use core::num::NonZeroU32;

use crate::node::kv::split_once;

/// The most shards a GPU may be cut into, so that no share is below one percent: the C library reads
/// a limit below 1 as 0, which there means no limit at all.
pub const MAX_SHARDS_PER_GPU: u32 = 100;

/// Why limits cannot be formed from these figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsError {
    /// The type's name is empty, too long, or holds a character that Slurm's types cannot have.
    Type,
    /// No shards, more shards than the GPU has, or a GPU of more than [`MAX_SHARDS_PER_GPU`].
    Shards,
    /// Less than one MiB, or more than 2^32 - 1.
    Memory,
    /// Not the word of a [`Mode`].
    Mode,
}

impl fmt::Display for LimitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Type => "not the name of a GPU type",
            Self::Shards => "not a share such as 1/4",
            Self::Memory => "not a size from 1M up",
            Self::Mode => "neither hard nor soft nor a ceiling such as 60%",
        })
    }
}

/// The name of a GPU type as `gres.conf` has it, such as `l40s` or `a100-80gb`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TypeName {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl TypeName {
    /// The longest name that is accepted.
    pub const MAX: usize = 63;

    /// Accepts letters, digits, `-`, `_` and `.`, but not a bare number, which Slurm reads as a count.
    pub fn new(name: &str) -> Result<Self, LimitsError> {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !name.bytes().all(known) || name.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(LimitsError::Type);
        }
        let mut bytes = [0; Self::MAX];
        bytes
            .get_mut(..name.len())
            .ok_or(LimitsError::Type)?
            .copy_from_slice(name.as_bytes());
        let len = u8::try_from(name.len()).map_err(|_| LimitsError::Type)?;
        Ok(Self { bytes, len })
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        self.bytes
            .get(..usize::from(self.len))
            .and_then(|bytes| core::str::from_utf8(bytes).ok())
            .unwrap_or("")
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// How much of the GPU a job gets where no other job wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ceiling {
    /// Its share.
    Share,
    /// So many hundredths of the GPU, from 1 to 99, or its share if that is more.
    Percent(u8),
    /// All of it.
    Gpu,
}

/// The mode of a share: how far the job may exceed it where no other job wants the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Over a long time.
    pub ceiling: Ceiling,
    /// How much GPU time below the ceiling the job saves up for later, in milliseconds.
    pub burst_ms: u32,
}

impl Mode {
    /// What a job saves up unless the policy says otherwise: over a minute, less than one point of the GPU.
    pub const BURST_MS: u32 = 500;
    /// More than this is no burst.
    pub const MOST_BURST_MS: u32 = 60_000;
    /// The share is a cap, also while the GPU is otherwise idle.
    pub const HARD: Self = Self {
        ceiling: Ceiling::Share,
        burst_ms: Self::BURST_MS,
    };
    /// Idle time may be borrowed.
    pub const SOFT: Self = Self {
        ceiling: Ceiling::Gpu,
        burst_ms: Self::BURST_MS,
    };

    /// Reads its word in tag and conf (`SOFTMIG_CEILING`), as `Display` writes it: `hard`, `soft` or `60%`, and behind a slash the burst if that is
    /// another than [`Mode::BURST_MS`].
    pub fn parse(text: &str) -> Result<Self, LimitsError> {
        let (ceiling, burst_ms) = match split_once(text, b'/') {
            Some((ceiling, burst)) => (ceiling, decimal(burst).ok_or(LimitsError::Mode)?),
            None => (text, Self::BURST_MS),
        };
        let ceiling = match ceiling {
            "hard" => Ceiling::Share,
            "soft" => Ceiling::Gpu,
            other => other
                .strip_suffix('%')
                .and_then(decimal)
                .and_then(|percent| u8::try_from(percent).ok())
                .filter(|percent| (1..100).contains(percent))
                .map(Ceiling::Percent)
                .ok_or(LimitsError::Mode)?,
        };
        if burst_ms > Self::MOST_BURST_MS {
            return Err(LimitsError::Mode);
        }
        Ok(Self { ceiling, burst_ms })
    }

    /// The most that a job with this share gets over a long time.
    pub fn ceiling_of(self, share: Share) -> Share {
        let part = |shards, per_gpu| Share::new(shards, per_gpu).unwrap_or(share);
        match self.ceiling {
            Ceiling::Share => share,
            Ceiling::Percent(percent) if u32::from(percent) * 10 > share.percent_tenths() => {
                part(u32::from(percent), 100)
            }
            Ceiling::Percent(_) => share,
            Ceiling::Gpu => part(1, 1),
        }
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self::HARD
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ceiling {
            Ceiling::Share => f.write_str("hard")?,
            Ceiling::Gpu => f.write_str("soft")?,
            Ceiling::Percent(percent) => write!(f, "{percent}%")?,
        }
        match self.burst_ms {
            Self::BURST_MS => Ok(()),
            other => write!(f, "/{other}"),
        }
    }
}

/// A job's part of a GPU: its shards, of the GPU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    shards: NonZeroU32,
    per_gpu: NonZeroU32,
}

impl Share {
    /// `shards` of a GPU cut into `per_gpu`.
    pub fn new(shards: u32, per_gpu: u32) -> Result<Self, LimitsError> {
        if shards > per_gpu || per_gpu > MAX_SHARDS_PER_GPU {
            return Err(LimitsError::Shards);
        }
        Ok(Self {
            shards: NonZeroU32::new(shards).ok_or(LimitsError::Shards)?,
            per_gpu: NonZeroU32::new(per_gpu).ok_or(LimitsError::Shards)?,
        })
    }

    /// Reads `1/4`.
    pub fn parse(text: &str) -> Result<Self, LimitsError> {
        let (shards, per_gpu) = split_once(text, b'/').ok_or(LimitsError::Shards)?;
        let number = |text: &str| decimal(text).ok_or(LimitsError::Shards);
        Self::new(number(shards)?, number(per_gpu)?)
    }

    /// The job's shards.
    pub const fn shards(self) -> u32 {
        self.shards.get()
    }

    /// The shards the GPU is cut into.
    pub const fn per_gpu(self) -> u32 {
        self.per_gpu.get()
    }

    /// This part of `amount`, rounded down, so that the parts of a GPU never add up to more than it.
    pub const fn part_of(self, amount: u64) -> u64 {
        // Both factors fit in 64 bits: `amount` is MiB or nanoseconds of one GPU, `shards` is at most 100.
        amount.saturating_mul(self.shards() as u64) / self.per_gpu() as u64
    }

    /// The part of a GPU: 0.25 for a quarter.
    pub fn fraction(self) -> f64 {
        f64::from(self.shards()) / f64::from(self.per_gpu())
    }

    /// The percentage, rounded down to one decimal, in tenths: 125 is 12.5 %.
    pub const fn percent_tenths(self) -> u32 {
        self.shards() * 1000 / self.per_gpu()
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shards, self.per_gpu)
    }
}

/// A percentage for people: `25` where it is whole, else `12.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub Share);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.percent_tenths();
        match tenths % 10 {
            0 => write!(f, "{}", tenths / 10),
            rest => write!(f, "{}.{rest}", tenths / 10),
        }
    }
}

/// A slice as `--gres` takes it: `gpu:l40s.4:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceRequest(Limits);

impl fmt::Display for SliceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = self.0.share();
        let size = share.per_gpu().checked_div(share.shards()).unwrap_or(0);
        write!(f, "gpu:{}.{size}:1", self.0.gpu_type())
    }
}

/// The limits of a job on each of its GPUs.
///
/// Made once, at submission, from the policy; afterwards only carried: in the tag, in the job's conf, in the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    gpu_type: TypeName,
    share: Share,
    memory_mib: NonZeroU32,
    mode: Mode,
}

impl Limits {
    /// The request for a slice with these limits, of those that are on offer.
    pub const fn slice_request(self) -> SliceRequest {
        SliceRequest(self)
    }

    /// Limits with this memory.
    pub fn new(
        gpu_type: TypeName,
        share: Share,
        memory_mib: u64,
        mode: Mode,
    ) -> Result<Self, LimitsError> {
        let memory_mib = u32::try_from(memory_mib)
            .ok()
            .and_then(NonZeroU32::new)
            .ok_or(LimitsError::Memory)?;
        Ok(Self {
            gpu_type,
            share,
            memory_mib,
            mode,
        })
    }

    /// One shard of each GPU, for a job whose shards lie on several GPUs in a way that is not known: in doubt less.
    pub fn of_one_shard(&self) -> Self {
        let shards = self.share.shards();
        Self {
            share: Share {
                shards: NonZeroU32::MIN,
                ..self.share
            },
            memory_mib: NonZeroU32::new(self.memory_mib() / shards).unwrap_or(NonZeroU32::MIN),
            ..*self
        }
    }

    /// The type of GPU.
    pub const fn gpu_type(&self) -> &TypeName {
        &self.gpu_type
    }

    /// The part of each GPU.
    pub const fn share(&self) -> Share {
        self.share
    }

    /// The memory on each GPU, in MiB.
    pub const fn memory_mib(&self) -> u32 {
        self.memory_mib.get()
    }

    /// Cap or share.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The share as a percentage.
    pub const fn percent(&self) -> Percent {
        Percent(self.share)
    }
}

/// A decimal number without sign or leading zero.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if leading_zero || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_part_of_one_gpu() {
        assert_eq!(Share::parse("1/4"), Share::new(1, 4));
        for text in [
            "", "1", "/4", "1/", "0/4", "5/4", "1/0", "01/4", "+1/4", "1/4/4", "1/101", " 1/4",
        ] {
            assert_eq!(Share::parse(text), Err(LimitsError::Shards), "{text:?}");
        }
    }

    #[test]
    fn a_percentage_is_shown_with_a_decimal_only_where_it_has_one() {
        for (share, shown) in [
            ((1, 4), "25"),
            ((1, 8), "12.5"),
            ((1, 3), "33.3"),
            ((4, 4), "100"),
        ] {
            let share = Share::new(share.0, share.1).unwrap();
            assert_eq!(Percent(share).to_string(), shown);
        }
    }

    #[test]
    fn a_mode_is_one_word() {
        for text in ["hard", "soft", "60%", "hard/20", "soft/0", "99%/60000"] {
            assert_eq!(Mode::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Mode::parse("hard"), Ok(Mode::HARD));
        for text in [
            "",
            "Hard",
            "0%",
            "100%",
            "60",
            "60 %",
            "hard/",
            "hard/60001",
            "hard/-1",
            "hard/500/500",
            "/20",
        ] {
            assert_eq!(Mode::parse(text), Err(LimitsError::Mode), "{text}");
        }
    }

    #[test]
    fn a_ceiling_is_the_share_at_least() {
        let [quarter, most] = [1, 3].map(|shards| Share::new(shards, 4).unwrap());
        let ceiling = |text: &str, share| {
            Mode::parse(text)
                .unwrap()
                .ceiling_of(share)
                .percent_tenths()
        };
        assert_eq!(ceiling("hard", quarter), 250);
        assert_eq!(ceiling("soft", quarter), 1000);
        assert_eq!(ceiling("60%", quarter), 600);
        assert_eq!(ceiling("60%", most), 750);
    }

    #[test]
    fn no_share_is_shown_as_nothing() {
        let smallest = Share::new(1, MAX_SHARDS_PER_GPU).unwrap();
        assert!(smallest.percent_tenths() >= 10);
    }

    #[test]
    fn a_type_is_what_slurm_takes_for_one() {
        for name in ["l40s", "a100-80gb", "h100_1g.10gb", "2080ti"] {
            assert_eq!(TypeName::new(name).unwrap().as_str(), name);
        }
        let long = "x".repeat(64);
        for name in [
            "",
            "4",
            "a b",
            "a:b",
            "a,b",
            "a/b",
            "a=b",
            "\u{e9}",
            long.as_str(),
        ] {
            assert_eq!(TypeName::new(name), Err(LimitsError::Type), "{name:?}");
        }
    }
}
