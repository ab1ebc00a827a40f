//! Two programs on a GPU that is there.

use softmig_rm::{Channel, Gpu, now};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::program::Program;
use crate::residence::Residence;
use crate::steps::{self, Bench, Figures, Outcome, failed};
use crate::trouble::Trouble;
use crate::verdict::Phase;

/// The time after which a change has its effect.
const SETTLING: Duration = Duration::from_millis(100);

/// Measures on the GPU of this UUID (`GPU-` and so on) whether steering it has effect. Takes some seconds.
///
/// `program` is an executable that keeps a GPU busy when it is called with the word `prove-load` ([`crate::load`]).
///
/// # Errors
/// [`Trouble::NotMeasured`] says why nothing is known.
pub fn prove(uuid: &str, program: &Path) -> Result<Outcome, Trouble> {
    let done = Pair::new(uuid, program).and_then(|mut place| steps::run(&mut place));
    match done {
        // Not even the first step.
        Err(Trouble::Refused(why)) => Ok(Outcome {
            failed: Some(failed("open", why)),
            figures: Figures::default(),
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
        let gpu = Gpu::open(id)?;
        let start = || Program::start(command(uuid, program));
        let mut programs = [start()?, start()?];
        for program in &mut programs {
            program.wait()?;
        }
        std::thread::sleep(SETTLING);
        Ok(Self {
            gpu,
            programs,
            residence: Residence::default(),
        })
    }

    /// Reads the log up to now. Gives each process's time since `from`, and when now is.
    fn read(&mut self, from: u64) -> Result<(crate::residence::Times, u64), Trouble> {
        let mut switches = Vec::new();
        let has_lost = self.gpu.switches(&mut switches)?;
        let to = now();
        let times = self.residence.note(&switches, from, to);
        if has_lost {
            self.residence.forget();
            return Err(Trouble::NotMeasured("the log has lost something".into()));
        }
        Ok((times, to))
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
        let (_, from) = self.read(0)?;
        let (start, before) = (Instant::now(), self.work()?);
        std::thread::sleep(time);
        let (elapsed, after) = (start.elapsed().as_secs_f64(), self.work()?);
        let (times, to) = self.read(from)?;
        let all = to.saturating_sub(from).max(1) as f64;
        let of = |number| times.of.get(&number).copied().unwrap_or(0) as f64 / all;
        let on_gpu = self.programs.each_ref().map(|it| of(it.number()));
        let everybody = times.of.values().sum::<u64>() as f64 / all;
        let pace = |at: usize| after[at].saturating_sub(before[at]) as f64 / elapsed;
        Ok(Phase {
            seconds: elapsed,
            on_gpu,
            others: (everybody - on_gpu[0] - on_gpu[1]).max(0.0),
            is_hidden: times.is_hidden,
            pace: [pace(0), pace(1)],
        })
    }

    fn set_slices(&mut self, slices: [u64; 2]) -> Result<(), Trouble> {
        let mut each = self.programs.iter().zip(slices);
        each.try_for_each(|(program, slice)| program.set_slice(slice))
    }

    fn enable(&mut self, is_on: bool) -> Result<(), Trouble> {
        let error = self.gpu.enable(&self.first(), is_on).error;
        error.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The programs end after that.
        let _ = self.gpu.enable(&self.first(), true);
    }
}

/// One of the programs, on this GPU alone.
fn command(uuid: &str, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .arg("prove-load")
        .env("CUDA_VISIBLE_DEVICES", uuid)
        // No file is kept in a user's home.
        .env("CUDA_CACHE_DISABLE", "1")
        // Its context is its own, and not an MPS server's.
        .env("CUDA_MPS_PIPE_DIRECTORY", "/dev/null");
    command
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
