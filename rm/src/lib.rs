//! The resource manager (RM) of NVIDIA's kernel driver, as far as root needs it to divide a GPU's time from outside.
//!
//! The GPU has a scheduler of its own. Each CUDA context has a *channel group*, which is what the scheduler runs, and
//! *channels* in it, which take the program's work. For a GPU, root can
//!
//! - read when which process's group was on the GPU ([`Gpu::switches`]),
//! - take channels out of the scheduler's list and put them back ([`Gpu::enable`]),
//! - say how long a group may run before the next one comes ([`set_time_slice`]).
//!
//! Processes notice nothing: what they launch waits in their channels. What was measured of it is in research/gpu-time.md.
//! The numbers and structures are the driver's own, named in NVIDIA's open kernel modules (MIT licence); those of
//! releases 535 to 595 are alike. What a driver does not know it refuses, and then there is an [`Error`].

#[cfg(test)]
#[macro_use]
mod abi;
mod call;
mod clock;
mod enable;
mod files;
mod group;
mod log;
mod switch;

pub use call::{Error, ErrorKind, Handle};
pub use clock::now;
pub use enable::{Channel, Ended, Untaken};
pub use files::{Files, files_of, has_control};
pub use group::{Group, is_made_by, set_time_slice, time_slice};
pub use switch::{Reading, Switch};

use std::os::fd::OwnedFd;

use call::{Allocation, Control, OLDEST, allocate, control, open};
use enable::{Enabling, MOST_CHANNELS};
use log::Log;

/// How many GPUs a node may have.
const MOST_GPUS: u32 = 32;

const NV01_ROOT_CLIENT: u32 = 0x41;
const NV01_DEVICE_0: u32 = 0x80;
const NV20_SUBDEVICE_0: u32 = 0x2080;

/// Handles of objects that this process makes: any that are not 0.
const DEVICE: Handle = 0x5c00_0001;
const SUBDEVICE: Handle = 0x5c00_0002;

/// A GPU, as one client of the driver has it.
#[derive(Debug)]
pub struct Gpu {
    control: OwnedFd,
    client: Handle,
    /// From the first reading on.
    log: Option<Log>,
    /// The GPU stays attached as long as this is open.
    _device: OwnedFd,
}

impl Gpu {
    /// The GPU with this UUID.
    ///
    /// # Errors
    /// If the driver or the GPU is not there, this is not root, or the driver does not know one of the calls.
    pub fn open(uuid: [u8; 16]) -> Result<Self, Error> {
        // An older driver writes its answers elsewhere, so that all that it refuses seems to be done.
        check_version(&std::fs::read_to_string(VERSION).map_err(Error::Io)?)?;
        let control = open("nvidiactl")?;
        // The driver shows the GPUs of which a device file is open.
        let mut missing = Error::NoGpu;
        for minor in 0..MOST_GPUS {
            let Ok(device) = open(&format!("nvidia{minor}")) else {
                continue;
            };
            match Self::at(&control, uuid) {
                Ok(client) => {
                    return Ok(Self {
                        control,
                        client,
                        log: None,
                        _device: device,
                    });
                }
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }

    /// A client with the GPU of this UUID as its device.
    fn at(control: &OwnedFd, uuid: [u8; 16]) -> Result<Handle, Error> {
        let client = allocate(control, 0, 0, 0, &mut RootParameters)?;
        for number in 0..MOST_GPUS {
            let mut device = DeviceParameters {
                number,
                ..DeviceParameters::default()
            };
            if allocate(control, client, client, DEVICE, &mut device).is_err() {
                continue;
            }
            let mut subdevice = SubdeviceParameters { number: 0 };
            allocate(control, client, DEVICE, SUBDEVICE, &mut subdevice)?;
            let mut name = GidInfo::default();
            call::control(control, client, SUBDEVICE, &mut name)?;
            if name.data.starts_with(&uuid) {
                return Ok(client);
            }
            call::free(control, client, client, DEVICE)?;
        }
        call::free(control, client, 0, client)?;
        Err(Error::NoGpu)
    }

    /// Puts what the driver logged since the last call at the end of `to`: when which process's group was on the GPU. The first call
    /// begins the log. Readings of several GPUs within a millisecond are of the same moment.
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub fn switches(&mut self, to: &mut Vec<Switch>) -> Result<Reading, Error> {
        let log = match &mut self.log {
            Some(log) => log,
            None => {
                let log = Log::start(&self.control, self.client, SUBDEVICE)?;
                self.log.insert(log)
            }
        };
        log.read(&self.control, self.client, to)
    }

    /// Lets channels run, or holds what is launched in them. What runs just then is interrupted, and goes on later. All channels are
    /// as they should be but for those that it gives. `ended` is asked if one no longer exists: those that it
    /// gives need not be.
    pub fn enable(&self, channels: &[Channel], is_on: bool, ended: Ended<'_>) -> Untaken {
        let enabling = Enabling {
            is_on,
            ended,
            tell: |channels: &[Channel], is_on: bool| self.disable(channels, !is_on),
            untaken: Untaken::default(),
        };
        enabling.all(channels)
    }

    fn disable(&self, channels: &[Channel], is_off: bool) -> Result<(), Error> {
        let mut parameters = DisableChannels {
            is_off: is_off.into(),
            count: channels.len() as u32,
            ..DisableChannels::default()
        };
        let places = parameters.clients.iter_mut().zip(&mut parameters.channels);
        for ((client, handle), channel) in places.zip(channels) {
            (*client, *handle) = (channel.client, channel.handle);
        }
        control(&self.control, self.client, SUBDEVICE, &mut parameters)
    }
}

/// Where the driver tells its version.
const VERSION: &str = "/proc/driver/nvidia/version";

/// Fails by the driver's page where it is too old.
fn check_version(page: &str) -> Result<(), Error> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    let mut words = page.lines().next().unwrap_or_default().split_whitespace();
    let version = words.find(|word| word.contains('.') && word.split('.').all(is_number));
    let first: Option<u32> = version.and_then(|version| version.split('.').next()?.parse().ok());
    match (version, first) {
        (Some(version), Some(first)) if first < OLDEST => Err(Error::Old(version.to_owned())),
        // One that says nothing of itself is taken for a later one.
        _ => Ok(()),
    }
}

/// A client has no parameters.
#[derive(Clone, Copy)]
struct RootParameters;

// SAFETY: the driver reads nothing for this class.
unsafe impl Allocation for RootParameters {
    const CLASS: u32 = NV01_ROOT_CLIENT;
}

/// `NV2080_ALLOC_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SubdeviceParameters {
    number: u32,
}

// SAFETY: the structure that this class takes.
unsafe impl Allocation for SubdeviceParameters {
    const CLASS: u32 = NV20_SUBDEVICE_0;
}

/// `NV0080_ALLOC_PARAMETERS`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct DeviceParameters {
    number: u32,
    client_share: Handle,
    target_client: Handle,
    target_device: Handle,
    flags: u32,
    padding: u32,
    va_space: [u64; 3],
    va_mode: u32,
    padding_2: u32,
}

// SAFETY: the structure that this class takes.
unsafe impl Allocation for DeviceParameters {
    const CLASS: u32 = NV01_DEVICE_0;
}

/// `NV2080_CTRL_GPU_GET_GID_INFO_PARAMS`: the GPU's UUID.
#[repr(C)]
#[derive(Clone, Copy)]
struct GidInfo {
    index: u32,
    flags: u32,
    length: u32,
    data: [u8; 256],
}

impl Default for GidInfo {
    fn default() -> Self {
        /// The bytes themselves, of the first kind.
        const BINARY_SHA1: u32 = 2;
        Self {
            index: 0,
            flags: BINARY_SHA1,
            length: 0,
            data: [0; 256],
        }
    }
}

// SAFETY: the structure that this command takes.
unsafe impl Control for GidInfo {
    const COMMAND: u32 = 0x2080_014a;
}

/// `NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DisableChannels {
    is_off: u8,
    padding: [u8; 3],
    count: u32,
    only_scheduling: u8,
    rewind: u8,
    padding_2: [u8; 6],
    event: u64,
    clients: [Handle; MOST_CHANNELS],
    channels: [Handle; MOST_CHANNELS],
}

impl Default for DisableChannels {
    fn default() -> Self {
        Self {
            is_off: 0,
            padding: [0; 3],
            count: 0,
            only_scheduling: 0,
            rewind: 0,
            padding_2: [0; 6],
            event: 0,
            clients: [0; MOST_CHANNELS],
            channels: [0; MOST_CHANNELS],
        }
    }
}

// SAFETY: the structure that this command takes.
unsafe impl Control for DisableChannels {
    const COMMAND: u32 = 0x2080_110b;
}

#[cfg(test)]
layout! {
    DeviceParameters is "NV0080_ALLOC_PARAMETERS" {
        number: "deviceId", client_share: "hClientShare", target_client: "hTargetClient", target_device: "hTargetDevice",
        flags: "flags", va_space: "vaSpaceSize", va_mode: "vaMode"
    }
    SubdeviceParameters is "NV2080_ALLOC_PARAMETERS" { number: "subDeviceId" }
    GidInfo is "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS" { index: "index", flags: "flags", length: "length", data: "data" }
    DisableChannels is "NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS" {
        is_off: "bDisable", count: "numChannels", only_scheduling: "bOnlyDisableScheduling", rewind: "bRewindGpPut",
        event: "pRunlistPreemptEvent", clients: "hClientList", channels: "hChannelList"
    }
}

#[cfg(test)]
const NUMBERS: &[(&str, u32)] = &[
    ("NV01_DEVICE_0", NV01_DEVICE_0),
    ("NV20_SUBDEVICE_0", NV20_SUBDEVICE_0),
    ("NV2080_CTRL_CMD_GPU_GET_GID_INFO", GidInfo::COMMAND),
    (
        "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS",
        DisableChannels::COMMAND,
    ),
    (
        "NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES",
        MOST_CHANNELS as u32,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn without_such_a_gpu_there_is_an_error() {
        // On a machine with GPUs none has this UUID; on one without a driver the device file is missing.
        let error = Gpu::open([0xa5; 16]).unwrap_err();
        assert!(matches!(error, Error::Io(_) | Error::NoGpu), "{error}");
    }

    #[test]
    fn an_old_driver_is_told_by_its_version() {
        let check = |version: &str| {
            let page =
                format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  Release\n");
            check_version(&page)
        };
        let error = check("530.30.02").unwrap_err().to_string();
        assert_eq!(
            error,
            "the driver is 530.30.02, and its scheduler can be steered from 535 on"
        );
        assert!(check("535.43.02").is_ok() && check("1000.1").is_ok());
        assert!(check_version("").is_ok());
    }

    #[test]
    fn a_file_that_is_not_the_drivers_is_told_nothing() {
        use std::os::fd::AsRawFd;
        let own = rustix::process::getpid();
        let Ok(process) = rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())
        else {
            return;
        };
        let number = std::process::id();
        let file = File::open("/dev/null").unwrap();
        let group = |file| Group {
            file,
            client: 0xc1d0_0001,
            handle: 0x5c00_0015,
        };
        use std::os::fd::AsFd;
        let asked = time_slice(process.as_fd(), number, group(file.as_raw_fd()));
        assert!(matches!(asked, Err(Error::Io(_))), "{asked:?}");
        let told = set_time_slice(process.as_fd(), number, group(file.as_raw_fd()), 2000);
        assert!(matches!(told, Err(Error::Io(_))), "{told:?}");
        let missing = set_time_slice(process.as_fd(), number, group(-1), 2000);
        assert!(matches!(missing, Err(Error::Io(_))), "{missing:?}");
    }
}
