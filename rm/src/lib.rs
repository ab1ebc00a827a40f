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

mod call;
mod clock;
mod group;
mod log;
mod switch;

pub use call::{Error, Handle};
pub use clock::now;
pub use group::{Group, set_time_slice, time_slice};
pub use switch::Switch;

use std::os::fd::OwnedFd;

use call::{Control, allocate, control, open};
use log::Log;

/// A channel of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel {
    /// The driver's client that made it.
    pub client: Handle,
    /// Its own handle.
    pub handle: Handle,
}

/// How many GPUs a node may have.
const MOST_GPUS: u32 = 32;
/// How many channels one call can name.
const MOST_CHANNELS: usize = 64;

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
    log: Log,
    /// The GPU stays attached as long as this is open.
    _device: OwnedFd,
}

impl Gpu {
    /// The GPU with this UUID.
    ///
    /// # Errors
    /// If the driver or the GPU is not there, this is not root, or the driver does not know one of the calls.
    pub fn open(uuid: [u8; 16]) -> Result<Self, Error> {
        let control = open("nvidiactl")?;
        // The driver shows the GPUs of which a device file is open.
        let mut missing = Error::NoGpu;
        for minor in 0..MOST_GPUS {
            let Ok(device) = open(&format!("nvidia{minor}")) else {
                continue;
            };
            match Self::at(&control, uuid) {
                Ok(client) => {
                    let log = Log::start(&control, client, SUBDEVICE)?;
                    return Ok(Self {
                        control,
                        client,
                        log,
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
        let client = allocate(control, 0, 0, 0, NV01_ROOT_CLIENT, &mut ())?;
        for number in 0..MOST_GPUS {
            let mut device = DeviceParameters {
                number,
                ..DeviceParameters::default()
            };
            if allocate(control, client, client, DEVICE, NV01_DEVICE_0, &mut device).is_err() {
                continue;
            }
            let mut subdevice = 0u32;
            allocate(
                control,
                client,
                DEVICE,
                SUBDEVICE,
                NV20_SUBDEVICE_0,
                &mut subdevice,
            )?;
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

    /// Puts what the driver logged since the last call at the end of `to`: when which process's group was on the GPU.
    /// Tells whether something was lost before.
    ///
    /// # Errors
    /// Returns the error of the driver.
    pub fn switches(&mut self, to: &mut Vec<Switch>) -> Result<bool, Error> {
        self.log.read(&self.control, self.client, to)
    }

    /// Lets channels run, or holds what is launched in them. What runs just then is interrupted, and goes on later. Gives the
    /// channels that the driver would not take, with its error: those of a process that has ended, or of another GPU, and all
    /// where [`Error::may_pass`]. All others are as they should be.
    pub fn enable(&self, channels: &[Channel], is_on: bool) -> Vec<(Channel, Error)> {
        let mut refused = Vec::new();
        for some in channels.chunks(MOST_CHANNELS) {
            match (some, self.disable(some, !is_on)) {
                (_, Ok(())) => {}
                (&[channel], Err(error)) => refused.push((channel, error)),
                // A channel that no longer exists makes the whole call fail, after it had its effect on those before. The driver
                // counts how often each is to wait (research/gpu-time.md).
                (some, Err(_)) => refused.extend(some.iter().filter_map(|&channel| {
                    if !is_on {
                        let _ = self.disable(&[channel], false);
                    }
                    let error = self.disable(&[channel], !is_on).err()?;
                    Some((channel, error))
                })),
            }
        }
        refused
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

const _: () = assert!(size_of::<DeviceParameters>() == 56);
const _: () = assert!(size_of::<GidInfo>() == 268);
const _: () = assert!(size_of::<DisableChannels>() == 536);

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
