//! Two programs on a GPU that is there.

use rustix::process::{Signal, set_parent_process_death_signal};
use softmig_rm::{Channel, Error, Gpu};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::Program;
use crate::residence::{Residence, Times};
use crate::rights::{self, OTHER, TO_PROVE};
use crate::steps::{self, Bench, Outcome, failed};
use crate::trouble::Trouble;
use crate::verdict::{Phase, Verdict};

/// The time after which a change has its effect.
const SETTLING: Duration = Duration::from_millis(100);

/// How often the log is read: far more often than it could overflow.
const READ_EVERY: Duration = Duration::from_millis(50);

/// Lets this process end with the thread that started it, and have no more of root's rights than [`prove`] takes.
///
/// # Errors
/// The system's.
pub fn confine() -> std::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rights::keep(TO_PROVE)
}

/// Measures on the GPU of this UUID (`GPU-` and so on) whether steering it has effect. Takes some seconds.
///
/// `program` is an executable that keeps a GPU busy when it is called with the words `--prove-load USER` ([`crate::load`]).
///
/// # Errors
/// [`Trouble::NotMeasured`] says why nothing is known.
pub fn prove(uuid: &str, program: &Path) -> Result<Outcome, Trouble> {
    let done = Pair::new(uuid, program).and_then(|mut place| steps::run(&mut place));
    match done {
        // Not even the first step.
        Err(Trouble::Refused(why)) => Ok(Outcome {
            failed: Some(failed("open", why)),
            ..Outcome::default()
        }),
        done => done,
    }
}

/// The GPU with both programs.
struct Pair {
    gpu: Gpu,
    programs: [Program; 2],
    residence: Residence,
}

impl Pair {
    fn new(uuid: &str, program: &Path) -> Result<Self, Trouble> {
        let id = parse(uuid).ok_or_else(|| Trouble::NotMeasured(format!("{uuid}: no UUID")))?;
        let mut gpu = Gpu::open(id)?;
        // The log begins.
        gpu.switches(&mut Vec::new())?;
        // Their contexts are their own, and not an MPS server's.
        let start = |user| Program::load(uuid, program, user, Path::new("/dev/null"));
        let mut first = start(0)?;
        let mut second = start(OTHER)?;
        first.wait()?;
        // Where other users may not have the GPU without a job.
        if second.wait().is_err() {
            second = start(0)?;
            second.wait()?;
        }
        Ok(Self {
            gpu,
            programs: [first, second],
            residence: Residence::default(),
        })
    }

    /// Reads the log up to now. Gives each process's time since `from`, when now is, and whether something before was lost.
    fn read(&mut self, from: u64) -> Result<(Times, u64, bool), Trouble> {
        let mut switches = Vec::new();
        let reading = self.gpu.switches(&mut switches)?;
        let (to, has_lost) = (reading.at, reading.has_lost || reading.lacks_last);
        let times = self.residence.note(&switches, from, to);
        if has_lost {
            self.residence.forget();
        }
        Ok((times, to, has_lost))
    }

    /// The times of all processes from this time on, for so long, and the time then.
    fn watch(&mut self, from: u64, time: Duration) -> Result<(Times, u64), Trouble> {
        let (begun, mut all, mut last) = (Instant::now(), Times::default(), from);
        while let Some(left) = time.checked_sub(begun.elapsed()) {
            std::thread::sleep(left.min(READ_EVERY));
            let (times, to, has_lost) = self.read(last)?;
            if has_lost {
                return Err(Trouble::NotMeasured("the log has lost something".into()));
            }
            all.extend(times);
            last = to;
        }
        Ok((all, last))
    }

    fn work(&mut self) -> Result<[u64; 2], Trouble> {
        let [first, second] = &mut self.programs;
        Ok([first.work()?, second.work()?])
    }

    fn first(&self) -> Vec<Channel> {
        self.programs[0].channels()
    }
}

impl Bench for Pair {
    fn measure(&mut self, time: Duration) -> Result<Phase, Trouble> {
        std::thread::sleep(SETTLING);
        // Whatever was lost before does not matter.
        let (_, from, _) = self.read(0)?;
        let (start, before) = (Instant::now(), self.work()?);
        let (times, to) = self.watch(from, time)?;
        let (elapsed, after) = (start.elapsed().as_secs_f64(), self.work()?);
        let all = to.saturating_sub(from).max(1) as f64;
        let of = |number| times.of.get(&number).copied().unwrap_or(0) as f64 / all;
        let on_gpu = self.programs.each_ref().map(|it| of(it.number()));
        let everybody = times.of.values().sum::<u64>() as f64 / all;
        let pace = |at: usize| after[at].saturating_sub(before[at]) as f64 / elapsed;
        Ok(Phase {
            seconds: elapsed,
            on_gpu,
            others: (everybody - on_gpu[0] - on_gpu[1]).max(0.0),
            changes: f64::from(times.changes) * 1e9 / all,
            is_hidden: times.is_hidden,
            pace: [pace(0), pace(1)],
        })
    }

    fn set_slices(&mut self, slices: [u64; 2]) -> Result<(), Trouble> {
        let mut each = self.programs.iter().zip(slices);
        each.try_for_each(|(program, slice)| program.set_slice(slice))
    }

    fn ask_for_others(&mut self) -> Verdict {
        /// `NV_ERR_INVALID_CLIENT`.
        const NOT_OWN: u32 = 0x23;
        let [first, second] = &self.programs;
        for group in first.groups() {
            match second.slice_of(group) {
                Err(Error::Refused { status, .. }) if status == NOT_OWN => {}
                Err(error) => match error.into() {
                    Trouble::Refused(why) => {
                        return Ok(Some(format!(
                            "of another program's group {why}, not {NOT_OWN:#x}"
                        )));
                    }
                    other => return Err(other),
                },
                Ok(_) => {
                    let why = "a program's file of the driver is answered for another program's channel group";
                    return Ok(Some(why.into()));
                }
            }
        }
        Ok(None)
    }

    fn slice(&mut self) -> Result<u64, Trouble> {
        let [first, _] = &self.programs;
        let group = first.groups().into_iter().next();
        let group = group.ok_or_else(|| Trouble::NotMeasured("no channel group".into()))?;
        Ok(first.slice_of(group)?)
    }

    fn set_kernel(&mut self, nanos: u64) -> Result<(), Trouble> {
        self.programs[0].set_kernel(nanos)
    }

    fn has_other_user(&self) -> bool {
        self.programs[1].is_of(OTHER)
    }

    fn enable(&mut self, is_on: bool) -> Result<(), Trouble> {
        let error = self.gpu.enable(&self.first(), is_on, &BTreeSet::new).error;
        error.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The programs end after that.
        let _ = self.gpu.enable(&self.first(), true, &BTreeSet::new);
    }
}

/// A UUID's bytes.
fn parse(uuid: &str) -> Option<[u8; 16]> {
    let digits = uuid.strip_prefix("GPU-")?.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok();
    number.filter(|_| digits.len() == 32).map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_sixteen_bytes() {
        let bytes = parse("GPU-50f7316a-0001-4000-8000-0000000000ff").unwrap();
        assert_eq!(bytes[..5], [0x50, 0xf7, 0x31, 0x6a, 0]);
        assert_eq!((bytes[5], bytes[15]), (1, 0xff));
        for wrong in [
            "",
            "GPU-",
            "GPU-50f7316a",
            "MIG-50f7316a-0001-4000-8000-0000000000ff",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn without_a_gpu_nothing_is_measured_and_no_program_starts() {
        let uuid = "GPU-a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5";
        let outcome = prove(uuid, Path::new("/nonexistent"));
        let Err(Trouble::NotMeasured(why)) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(!why.contains("keep the GPU busy"), "{why}");
    }
}
