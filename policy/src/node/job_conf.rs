//! A job's conf on the node: the text that the prolog writes and the hook reads.
//!
//! `KEY=VALUE` lines. The first ones are those of the C library, which can read the file too. Unknown keys are passed
//! over, so that prolog, hook and epilog of different versions understand each other's files; every known key must be
//! there once and must agree with the rest, or the conf is not valid.

use crate::node::kv::{split, split_once};
use crate::node::limits::{Ceiling, Limits, LimitsError, Mode, Share, TypeName, decimal};
use crate::node::size::{Bytes, SizeError};
use core::fmt::{self, Write};
use core::num::NonZeroU32;

/// The most GPUs of one node that a conf names.
pub const MAX_GPUS: usize = 32;

/// The reason why a text is not a job's conf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfError {
    /// Not text.
    Encoding,
    /// A line that is not `KEY=VALUE`.
    Line,
    /// A key is written twice.
    Twice(&'static str),
    /// A key is missing.
    Missing(&'static str),
    /// The value of this key cannot be read.
    Value(&'static str),
    /// A size cannot be read.
    Size(SizeError),
    /// Figures that are no limits.
    Limits(LimitsError),
    /// Two keys contradict each other.
    Contradiction(&'static str),
    /// More GPUs than [`MAX_GPUS`].
    TooManyGpus,
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding => f.write_str("not plain text"),
            Self::Line => f.write_str("a line is not KEY=VALUE"),
            Self::Twice(key) => write!(f, "{key} is there twice"),
            Self::Missing(key) => write!(f, "{key} is missing"),
            Self::Value(key) => write!(f, "{key} cannot be read"),
            Self::Size(error) => write!(f, "{MEMORY}: {error}"),
            Self::Limits(error) => write!(f, "the limits are wrong: {error}"),
            Self::Contradiction(key) => write!(f, "{key} contradicts the other lines"),
            Self::TooManyGpus => write!(f, "more than {MAX_GPUS} GPUs"),
        }
    }
}

impl From<LimitsError> for ConfError {
    fn from(error: LimitsError) -> Self {
        Self::Limits(error)
    }
}

const MEMORY: &str = "CUDA_DEVICE_MEMORY_LIMIT";
const COMPUTE: &str = "CUDA_DEVICE_SM_LIMIT";
const JOB: &str = "SOFTMIG_JOB";
const UID: &str = "SOFTMIG_UID";
const TYPE: &str = "SOFTMIG_TYPE";
const SHARDS: &str = "SOFTMIG_SHARDS";
const MODE: &str = "SOFTMIG_MODE";
const CEILING: &str = "SOFTMIG_CEILING";
const GPUS: &str = "SOFTMIG_GPUS";
const RUN: &str = "SOFTMIG_RUN";
const START: &str = "SOFTMIG_START";
const GATE: &str = "SOFTMIG_DEVICE_GATE";
const LARGER: &str = "SOFTMIG_LARGER";
const PACK: &str = "SOFTMIG_PACK";
const USER: &str = "user";
const PACK_OF_ACCOUNT: &str = "account-";
const PACK_OF_RESERVATION: &str = "reservation-";
const WHOLE: &str = "whole";
/// Named in errors about the `_N` lines.
const DEVICE: &str = "a per-device line";

/// A GPU's UUID as the driver prints it: `GPU-` or `MIG-` and 36 characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Uuid([u8; Self::LEN]);

impl Uuid {
    const LEN: usize = 40;

    /// Reads the driver's form; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text
            .strip_prefix("GPU-")
            .or_else(|| text.strip_prefix("MIG-"))?;
        let form = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        if !digits.bytes().enumerate().all(form) {
            return None;
        }
        text.as_bytes().try_into().ok().map(Self)
    }

    /// The UUID.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or("")
    }

    /// Its bytes, as programs have them.
    pub fn bytes(&self) -> [u8; 16] {
        let digits = self.0.iter().skip("GPU-".len());
        let digits = digits.filter_map(|&digit| char::from(digit).to_digit(16));
        let number = digits.fold(0u128, |number, digit| number << 4 | u128::from(digit));
        number.to_be_bytes()
    }

    /// Whether it is a GPU's, and not that of a MIG instance.
    pub fn is_gpu(&self) -> bool {
        self.0.starts_with(b"GPU-")
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The GPUs of a job on a node, in the order of their index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    uuids: [Option<Uuid>; MAX_GPUS],
}

impl Gpus {
    /// Adds a GPU.
    pub fn push(&mut self, uuid: Uuid) -> Result<(), ConfError> {
        let free = self.uuids.iter_mut().find(|place| place.is_none());
        *free.ok_or(ConfError::TooManyGpus)? = Some(uuid);
        Ok(())
    }

    /// The GPUs.
    pub fn iter(&self) -> impl Iterator<Item = &Uuid> {
        self.uuids.iter().flatten()
    }

    /// Reads a comma list.
    fn parse(text: &str) -> Result<Self, ConfError> {
        let mut gpus = Self::default();
        for uuid in split(text, b',').filter(|_| !text.is_empty()) {
            gpus.push(Uuid::parse(uuid).ok_or(ConfError::Value(GPUS))?)?;
        }
        Ok(gpus)
    }
}

/// Whose jobs on one GPU run at the same time, as clients of one MPS server, and have their shares together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pack {
    /// Those of the job's user.
    User,
    /// Those of the job's account, by [`Pack::number`] of its name.
    Account(u64),
    /// Those in the job's reservation, by that of its name.
    Reservation(u64),
}

impl Pack {
    /// What stands for a name, whatever is in it: FNV-1a, 64 bits (draft-eastlake-fnv, 2.1).
    pub const fn number(name: &str) -> u64 {
        let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
        let bytes = name.as_bytes();
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        hash
    }

    /// Reads the text that `Display` writes. A kind that this release does not know is none: the job has its share by itself.
    fn parse(text: &str) -> Option<Self> {
        let number = |digits: &str| {
            let is_whole = digits.len() == 16 && !digits.starts_with('+');
            u64::from_str_radix(digits, 16).ok().filter(|_| is_whole)
        };
        if text == USER {
            Some(Self::User)
        } else if let Some(digits) = text.strip_prefix(PACK_OF_ACCOUNT) {
            number(digits).map(Self::Account)
        } else {
            let digits = text.strip_prefix(PACK_OF_RESERVATION)?;
            number(digits).map(Self::Reservation)
        }
    }
}

impl fmt::Display for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str(USER),
            Self::Account(number) => write!(f, "{PACK_OF_ACCOUNT}{number:016x}"),
            Self::Reservation(number) => write!(f, "{PACK_OF_RESERVATION}{number:016x}"),
        }
    }
}

/// A job, as its node knows it.
///
/// ```
/// use softmig_policy::node::job_conf::JobConf;
/// let text = "CUDA_DEVICE_MEMORY_LIMIT=11366M\nCUDA_DEVICE_SM_LIMIT=25\nSOFTMIG_UID=2001\nSOFTMIG_TYPE=l40s\n\
///             SOFTMIG_SHARDS=1/4\nSOFTMIG_MODE=hard\nSOFTMIG_GPUS=\n";
/// let conf = JobConf::parse(text.as_bytes()).unwrap();
/// assert_eq!(conf.limits.unwrap().memory_mib(), 11366);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobConf {
    /// The job's number, which names its folder, also for a process that found the conf by its second name. `None` in
    /// the conf of a prolog from before there was this line.
    pub job: Option<NonZeroU32>,
    /// The job's user.
    pub uid: u32,
    /// How often Slurm had restarted the job when the conf was written.
    pub run: u32,
    /// When this run of the job began, in seconds since 1970; from Slurm 23.02 on.
    pub start: Option<u32>,
    /// The limits on each GPU; `None` for a job that has whole GPUs.
    pub limits: Option<Limits>,
    /// The GPUs.
    pub gpus: Gpus,
    /// Whether only processes that the monitor has admitted can open the job's GPUs.
    pub gate: bool,
    /// A request with more memory, as `--gres=gpu:` takes it (`l40s.2`). The library names it when memory runs out.
    pub larger: Option<TypeName>,
    /// The pack that the job is in; `None` where it has the GPU by itself in its time.
    pub pack: Option<Pack>,
}

impl fmt::Display for JobConf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(limits) = &self.limits {
            writeln!(f, "{MEMORY}={}M", limits.memory_mib())?;
            writeln!(f, "{COMPUTE}={}", limits.percent())?;
            // The C library also wants each device by its CUDA ordinal.
            for ordinal in 0..self.gpus.iter().count() {
                writeln!(f, "{MEMORY}_{ordinal}={}M", limits.memory_mib())?;
                writeln!(f, "{COMPUTE}_{ordinal}={}", limits.percent())?;
            }
        }
        if let Some(job) = self.job {
            writeln!(f, "{JOB}={job}")?;
        }
        writeln!(f, "{UID}={}", self.uid)?;
        if let Some(limits) = &self.limits {
            writeln!(f, "{TYPE}={}", limits.gpu_type())?;
            writeln!(f, "{SHARDS}={}", limits.share())?;
        }
        match self.limits.map(|limits| limits.mode()) {
            None => writeln!(f, "{MODE}={WHOLE}")?,
            Some(mode) => {
                // Older readers know these two only, and keep the job to its share in doubt.
                let known = match mode.ceiling {
                    Ceiling::Gpu => Mode::SOFT,
                    _ => Mode::HARD,
                };
                writeln!(f, "{MODE}={known}")?;
                if mode != known {
                    writeln!(f, "{CEILING}={mode}")?;
                }
            }
        }
        write!(f, "{GPUS}=")?;
        for (at, uuid) in self.gpus.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}", uuid.as_str())?;
        }
        writeln!(f, "\n{RUN}={}", self.run)?;
        if let Some(start) = self.start {
            writeln!(f, "{START}={start}")?;
        }
        if self.gate {
            writeln!(f, "{GATE}=1")?;
        }
        if let Some(larger) = self.larger {
            writeln!(f, "{LARGER}={larger}")?;
        }
        match self.pack {
            Some(pack) => writeln!(f, "{PACK}={pack}"),
            None => Ok(()),
        }
    }
}

impl JobConf {
    /// Reads the text that `Display` writes.
    pub fn parse(text: &[u8]) -> Result<Self, ConfError> {
        let lines = Lines::read(core::str::from_utf8(text).map_err(|_| ConfError::Encoding)?)?;
        let number = |key, text| decimal(text).ok_or(ConfError::Value(key));
        let optional = |key| -> Result<Option<u32>, ConfError> {
            let value = lines.value(key)?;
            value.map(|text| number(key, text)).transpose()
        };
        let job = |id| NonZeroU32::new(id).ok_or(ConfError::Value(JOB));
        Ok(Self {
            job: optional(JOB)?.map(job).transpose()?,
            uid: number(UID, lines.needed(UID)?)?,
            run: optional(RUN)?.unwrap_or(0),
            start: optional(START)?,
            limits: lines.limits()?,
            gpus: Gpus::parse(lines.needed(GPUS)?)?,
            gate: match lines.value(GATE)? {
                None => false,
                Some("1") => true,
                Some(_) => return Err(ConfError::Value(GATE)),
            },
            larger: lines.value(LARGER)?.map(TypeName::new).transpose()?,
            pack: lines.value(PACK)?.and_then(Pack::parse),
        })
    }
}

/// The lines of a conf, each with a key and a value.
pub(super) struct Lines<'a>(&'a str);

impl<'a> Lines<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, ConfError> {
        // Every line ends in a line feed: a text that was cut off is not valid.
        let lines = Self(text.strip_suffix('\n').ok_or(ConfError::Line)?);
        let count = split(lines.0, b'\n').count();
        if lines.pairs().count() == count {
            Ok(lines)
        } else {
            Err(ConfError::Line)
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        split(self.0, b'\n').filter_map(|line| split_once(line, b'='))
    }

    /// The value of a key, which may be there once.
    pub(super) fn value(&self, key: &'static str) -> Result<Option<&'a str>, ConfError> {
        let mut values = self.pairs().filter(|(own, _)| *own == key);
        let value = values.next().map(|(_, value)| value);
        match values.next() {
            None => Ok(value),
            Some(_) => Err(ConfError::Twice(key)),
        }
    }

    fn needed(&self, key: &'static str) -> Result<&'a str, ConfError> {
        self.value(key)?.ok_or(ConfError::Missing(key))
    }

    /// Whether each `KEY_N` line has this value: every GPU of a job has the same limits.
    fn all_devices_have(&self, key: &str, value: Option<&str>) -> bool {
        let is_device = |own: &str| {
            let ordinal = own.strip_prefix(key).and_then(|own| own.strip_prefix('_'));
            ordinal.is_some_and(|ordinal| decimal(ordinal).is_some())
        };
        let mut devices = self.pairs().filter(|(own, _)| is_device(own));
        devices.all(|(_, own)| Some(own) == value)
    }

    fn limits(&self) -> Result<Option<Limits>, ConfError> {
        let mode = self.needed(MODE)?;
        let (memory, compute) = (self.value(MEMORY)?, self.value(COMPUTE)?);
        let (gpu_type, shards) = (self.value(TYPE)?, self.value(SHARDS)?);
        let ceiling = self.value(CEILING)?;
        let devices_agree =
            self.all_devices_have(MEMORY, memory) && self.all_devices_have(COMPUTE, compute);
        if mode == WHOLE {
            let limit = memory.or(compute).or(gpu_type).or(shards).or(ceiling);
            return if limit.is_none() && devices_agree {
                Ok(None)
            } else {
                Err(ConfError::Contradiction(MODE))
            };
        }
        if !devices_agree {
            return Err(ConfError::Contradiction(DEVICE));
        }
        let memory = Bytes::parse(memory.ok_or(ConfError::Missing(MEMORY))?)
            .map_err(ConfError::Size)?
            .mib()
            .ok_or(ConfError::Size(SizeError::Zero))?;
        let limits = Limits::new(
            TypeName::new(gpu_type.ok_or(ConfError::Missing(TYPE))?)?,
            Share::parse(shards.ok_or(ConfError::Missing(SHARDS))?)?,
            memory,
            Mode::parse(ceiling.unwrap_or(mode))?,
        )?;
        if prints_as(
            &limits.percent(),
            compute.ok_or(ConfError::Missing(COMPUTE))?,
        ) {
            Ok(Some(limits))
        } else {
            Err(ConfError::Contradiction(COMPUTE))
        }
    }
}

/// Whether `value` prints as exactly `text`; without an allocator.
fn prints_as(value: &impl fmt::Display, text: &str) -> bool {
    struct Rest<'a>(&'a str);
    impl Write for Rest<'_> {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            self.0 = self.0.strip_prefix(part).ok_or(fmt::Error)?;
            Ok(())
        }
    }
    let mut rest = Rest(text);
    write!(rest, "{value}").is_ok() && rest.0.is_empty()
}

#[cfg(test)]
mod tests;
