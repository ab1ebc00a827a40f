//! All that the library can say: its messages, each with its level. `snapshots` has them on one page.

use core::ffi::CStr;

use softmig_policy::node::fixed_str::Text;
use softmig_policy::node::identity::Reason;
use softmig_policy::node::limits::{Ceiling, Limits, Mode, TypeName};
use softmig_policy::node::process_view::OsError;

use crate::os::Error;

/// A line of the log; the longest path or name in it is far shorter.
pub(super) type Line = Text<320>;

/// How much is said: `SOFTMIG_LOG_LEVEL`, the one variable that counts inside a job, since it only adds words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// A call was refused, or would have been.
    Error = 1,
    /// The same again.
    Warning = 2,
    /// The limits of the process, and where they come from.
    Info = 3,
}

/// A sentence about this process.
pub(crate) enum Message<'a> {
    /// It has its job's limits.
    Limited(&'a Limits),
    /// It is in no job, and has the limits of the jobs on its GPUs, which are not known yet.
    LimitedAsNeighbours,
    /// It has the limits that its user set.
    LimitedByVariables,
    /// It has the limits of this job.
    LimitedAs(u32),
    /// It has no limits, as no job on its GPUs has any.
    NoNeighbours,
    /// A call was refused.
    Refused {
        /// The function.
        function: &'a CStr,
        /// The reason.
        why: Why<'a>,
        /// How many calls were refused until now.
        count: u32,
    },
    /// This library comes before softmig's, and the process still has the GPU.
    NotKeptAway(&'a [u8]),
    /// The monitor did not let it through the device gate.
    NotAdmitted(Error),
    /// It is not in its job's pack.
    NotInPack(Outside),
    /// It is, and the monitor does not see to its end.
    NotKept(Error),
    /// A fault on the GPU has ended the work of its pack: CUDA's error.
    PackFault(u32),
    /// There was no room for a request.
    OutOfMemory(&'a Request<'a>),
    /// The GPU has not what the job may have.
    Missing(&'a Missing<'a>),
    /// The account of its memory cannot be had.
    NoAccount(Error),
    /// No monitor gives a seat.
    NoArbiter,
    /// A launch went on that had to wait: no work ended, so that the work in flight may wait for it.
    WentOn,
}

/// Why a call is refused.
#[derive(Clone, Copy)]
pub(crate) enum Why<'a> {
    /// The process gets no GPU.
    Denied(Reason),
    /// The driver knows a form of the function that softmig does not.
    NewForm,
    /// The function is of a second copy of the driver, as `dlmopen` makes one.
    SecondCopy,
    /// This library comes before softmig's.
    HiddenBy(&'a [u8]),
}

/// Why a process is not in its job's pack.
#[derive(Clone, Copy)]
pub(crate) enum Outside {
    /// The monitor does not put it there, or there is no memory.
    Refused(Error),
    /// The pack's MPS server does not take it: CUDA's error.
    NotTaken(u32),
}

/// A request for which there was no room. Figures are in units of the ledger.
pub(crate) struct Request<'a> {
    /// The function.
    pub(crate) function: &'a CStr,
    /// The request.
    pub(crate) units: u32,
    /// The GPU's number in CUDA's order.
    pub(crate) gpu: u8,
    /// Held by the job.
    pub(crate) held: u64,
    /// Held by this process.
    pub(crate) held_here: u32,
    /// The job's limit.
    pub(crate) limit: u32,
    /// Whether it is the job's first.
    pub(crate) is_first: bool,
    /// The next larger slice, where there is one to ask for.
    pub(crate) larger: Option<&'a TypeName>,
}

/// A request for which the job has room and the GPU has not. Figures are in units of the ledger.
pub(crate) struct Missing<'a> {
    /// The function.
    pub(crate) function: &'a CStr,
    /// The request.
    pub(crate) units: u32,
    /// The GPU's number in CUDA's order.
    pub(crate) gpu: u8,
    /// Held by the job.
    pub(crate) held: u64,
    /// The job's limit.
    pub(crate) limit: u32,
    /// Free on the GPU, by the driver.
    pub(crate) free: u32,
}

impl Message<'_> {
    pub(super) fn level(&self) -> Level {
        match self {
            Self::Limited(_)
            | Self::LimitedAsNeighbours
            | Self::LimitedByVariables
            | Self::LimitedAs(_)
            | Self::NoNeighbours => Level::Info,
            Self::OutOfMemory(Request {
                is_first: false, ..
            })
            | Self::NoArbiter
            | Self::WentOn => Level::Warning,
            Self::Refused { .. }
            | Self::NotKeptAway(_)
            | Self::NotAdmitted(_)
            | Self::NotKept(_)
            | Self::PackFault(_)
            | Self::NotInPack(_)
            | Self::OutOfMemory(_)
            | Self::Missing(_)
            | Self::NoAccount(_) => Level::Error,
        }
    }

    /// Adds its words. On a node that only observes they say how it would be.
    pub(super) fn write(&self, line: &mut Line, observes: bool) {
        match *self {
            Self::Limited(limits) => {
                line.push(limited(observes));
                line.push(b" to ");
                line.push_number(limits.memory_mib().into(), 1);
                line.push(b" MiB and ");
                push_tenths(line, limits.share().percent_tenths().into());
                line.push(b" % of the time of each GPU (");
                push_mode(line, limits.mode());
                line.push(b")");
            }
            Self::LimitedAsNeighbours => {
                line.push(b"outside every job: ");
                line.push(limited(observes));
                line.push(b" as the jobs on its GPUs");
            }
            Self::LimitedByVariables => {
                line.push(limited(observes));
                line.push(b" by CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_SM_LIMIT");
            }
            Self::LimitedAs(job) => {
                line.push(limited(observes));
                line.push(b" as job ");
                line.push_number(job.into(), 1);
                line.push(b", the smallest on its GPUs");
            }
            Self::NoNeighbours => line.push(b"no job on its GPUs has limits"),
            Self::Refused {
                function,
                why,
                count,
            } => {
                line.push(if observes {
                    b"would refuse "
                } else {
                    b"refused "
                });
                line.push(function.to_bytes());
                line.push(b": ");
                why.write(line);
                line.push(b" (");
                line.push_number(count.into(), 1);
                line.push(b")");
            }
            Self::NotKeptAway(library) => {
                push_library(line, library);
                line.push(b", and the kernel cannot keep this process from the GPU");
            }
            Self::NotAdmitted(error) => {
                line.push(b"softmig-monitor did not admit this process through the device gate, so the GPU stays closed for it");
                push_error(line, b" (error ", error.0);
                line.push(b"): does the monitor run, and is /var/run/softmig there?");
            }
            Self::NotInPack(why) => {
                line.push(b"this process is not in its job's pack, and has the GPU in turns with it (");
                match why {
                    Outside::Refused(Error(libc::ENOSYS)) => line.push(b"there is none to be had on this GPU"),
                    Outside::Refused(Error(libc::EUSERS | libc::EBUSY)) => line.push(b"it has as many processes as it may"),
                    Outside::Refused(Error::AGAIN) => line.push(b"its server takes too long"),
                    Outside::Refused(Error(libc::ENOENT | libc::ECONNREFUSED)) => line.push(b"softmig-monitor does not answer"),
                    Outside::Refused(error) => push_error(line, b"softmig-monitor answers error ", error.0),
                    Outside::NotTaken(error) => {
                        line.push(b"its server does not take it, CUDA's error ");
                        line.push_number(error.into(), 1);
                    }
                }
                line.push(b")");
            }
            Self::NotKept(error) => {
                line.push(b"this process gets no GPU: its end would end the other processes of its job's pack, and softmig-monitor does not prevent that");
                push_error(line, b" (error ", error.0);
                line.push(b"): does the monitor run?");
            }
            Self::PackFault(error) => {
                line.push(b"a fault on the GPU, such as a wrong address in a kernel, has ended the work of all programs in the job's pack (CUDA's error ");
                line.push_number(error.into(), 1);
                line.push(b"). The job's log says whose it was: start the others again");
            }
            Self::OutOfMemory(request) => request.write(line, observes),
            Self::Missing(missing) => missing.write(line),
            Self::NoAccount(error) => {
                line.push(b"this process gets no GPU memory and no launches: the ledger of its job cannot be used");
                push_error(line, b", error ", error.0);
                line.push(remark(error));
            }
            Self::NoArbiter => line.push(
                b"softmig-monitor does not share the GPU out: this job keeps to its share of time by itself, and may get less",
            ),
            Self::WentOn => line.push(
                b"a launch that had to wait went on: the work before it did not end",
            ),
        }
    }
}

fn limited(observes: bool) -> &'static [u8] {
    if observes {
        b"would be limited"
    } else {
        b"limited"
    }
}

const SECOND_COPY: &[u8] = b"it is of a second copy of the driver: load the driver once";
const HIDDEN: &[u8] =
    b" and can hide the driver from it: start the program without it, or in a job with a whole GPU";

impl Why<'_> {
    /// Words by which the job's log tells whether the job's user was told this before; `None` for what stays in the log, since
    /// programs without a need for a GPU ask for one too.
    pub(super) fn told_by(self) -> Option<&'static [u8]> {
        match self {
            Self::SecondCopy => Some(SECOND_COPY),
            Self::HiddenBy(_) => Some(HIDDEN),
            Self::Denied(_) | Self::NewForm => None,
        }
    }

    fn write(self, line: &mut Line) {
        let words: &[u8] = match self {
            Self::Denied(Reason::NoConf) => b"no conf for this job on this node: did its prolog run?",
            Self::Denied(Reason::BadConf) => b"this job's conf on this node is damaged",
            Self::Denied(Reason::BadNodeConf) => {
                b"/etc/softmig/node.conf is damaged: write it with `softmig node`"
            }
            Self::Denied(Reason::BadVariable) => {
                b"CUDA_DEVICE_MEMORY_LIMIT or CUDA_DEVICE_SM_LIMIT cannot be read: write for example 4G, and 25"
            }
            Self::Denied(Reason::Unreadable(OsError(error))) => {
                return push_error(line, b"a file of softmig's cannot be read: error ", error);
            }
            Self::NewForm => b"the driver has a newer form of it than softmig knows: update softmig",
            Self::SecondCopy => SECOND_COPY,
            Self::HiddenBy(library) => {
                push_library(line, library);
                HIDDEN
            }
        };
        line.push(words);
    }
}

/// The function that takes managed memory.
const MANAGED: &CStr = c"cuMemAllocManaged";

impl Request<'_> {
    fn write(&self, line: &mut Line, observes: bool) {
        line.push(if observes {
            b"would be out of memory on GPU "
        } else {
            b"out of memory on GPU "
        });
        line.push_number(self.gpu.into(), 1);
        line.push(b": ");
        line.push(self.function.to_bytes());
        line.push(b" asked for ");
        push_mib(line, self.units.into());
        line.push(b", the job holds ");
        push_mib(line, self.held);
        line.push(b" (this process ");
        push_mib(line, self.held_here.into());
        line.push(b") and may hold ");
        push_mib(line, self.limit.into());
        // Programs use it to go beyond a GPU's memory.
        if self.function.to_bytes() == MANAGED.to_bytes() {
            line.push(
                b"; managed memory counts wherever it is: switch the program's unified memory off",
            );
        }
        if let Some(larger) = self.larger {
            line.push(b"; for more, ask for gpu:");
            line.push(larger.as_str().as_bytes());
            line.push(b":1");
        }
    }
}

impl Missing<'_> {
    fn write(&self, line: &mut Line) {
        line.push(b"GPU ");
        line.push_number(self.gpu.into(), 1);
        line.push(b" is full: ");
        line.push(self.function.to_bytes());
        line.push(b" asked for ");
        push_mib(line, self.units.into());
        line.push(b", the job holds ");
        push_mib(line, self.held);
        line.push(b" and may hold ");
        push_mib(line, self.limit.into());
        line.push(b", but the GPU has ");
        push_mib(line, self.free.into());
        line.push(MISSING);
    }
}

/// The end of a message, by which it is known.
pub(crate) const MISSING: &[u8] =
    b" free: others hold memory beyond their slices; tell your administrator";

/// The likely cause of an account that cannot be had.
fn remark(error: Error) -> &'static [u8] {
    match error {
        Error::MISSING => b" (there is none: did softmig's prolog run?)",
        Error(libc::EACCES | libc::EPERM) => {
            b" (it is another user's: only the job's own user and root get memory)"
        }
        Error(libc::EUSERS) => b" (too many processes)",
        Error(libc::EOPNOTSUPP) => b" (its file system keeps no locks: it has to be on a tmpfs)",
        _ => b"",
    }
}

/// Names a library that comes before softmig's. A user chooses its name.
fn push_library(line: &mut Line, library: &[u8]) {
    const LONGEST: usize = 64;
    line.push(library.get(..LONGEST).unwrap_or(library));
    line.push(b" comes before softmig's library");
}

fn push_error(line: &mut Line, words: &[u8], error: i32) {
    line.push(words);
    line.push_number(error.unsigned_abs().into(), 1);
}

fn push_mode(line: &mut Line, mode: Mode) {
    match mode.ceiling {
        Ceiling::Share => line.push(b"hard"),
        Ceiling::Gpu => line.push(b"soft"),
        Ceiling::Percent(percent) => {
            line.push(b"up to ");
            line.push_number(percent.into(), 1);
            line.push(b" %");
        }
    }
}

fn push_tenths(line: &mut Line, tenths: u64) {
    line.push_number(tenths / 10, 1);
    if !tenths.is_multiple_of(10) {
        line.push(b".");
        line.push_number(tenths % 10, 1);
    }
}

/// Units as MiB, with one decimal where it is not a whole number.
fn push_mib(line: &mut Line, units: u64) {
    const IN_A_MIB: u64 = (1 << 20) / softmig_region::UNIT;
    line.push_number(units / IN_A_MIB, 1);
    let tenths = (units % IN_A_MIB).saturating_mul(10) / IN_A_MIB;
    if tenths > 0 {
        line.push(b".");
        line.push_number(tenths, 1);
    }
    line.push(b" MiB");
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
