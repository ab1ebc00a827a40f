//! The proof that a pack's programs can be held, and end, without the others: three are clients of a server with a supervisor, as jobs'
//! programs would be. One is held, another is killed within a kernel, and the third has to go on.

use softmig_node::proofs::Failed;
use softmig_proof::{Program, Trouble};
use softmig_rm::Gpu;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::question::{Answer, Question, ask};

/// The name of the pack of a measurement, which no job has.
pub const PROOF: &str = "proof";

/// How long the server may take to be there, and its supervisor to take a program's channels off the GPU.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time after which a change has its effect.
const SETTLING: Duration = Duration::from_millis(100);
/// How long a look takes.
const LOOK: Duration = Duration::from_millis(300);
/// A kernel within which a program is killed, in nanoseconds: it outlives its program.
const KERNEL: u64 = 20_000_000;
/// So long it is waited for that kernel.
const LEFT: Duration = Duration::from_secs(1);

/// Which of the programs ends, and which is held.
const ENDS: usize = 0;
const HELD: usize = 1;
const GOES_ON: usize = 2;

/// Measures with the server in this folder, on the GPU that is the folder's parent: the step that had no effect, if one had none.
///
/// # Errors
/// [`Trouble::NotMeasured`] says why nothing is known.
pub fn prove(folder: &Path, program: &Path) -> Result<Result<(), Failed>, Trouble> {
    let uuid = folder.parent().and_then(Path::file_name);
    let uuid = uuid.and_then(|name| name.to_str()).unwrap_or_default();
    let id = softmig_policy::node::job_conf::Uuid::parse(uuid);
    let id = id.ok_or_else(|| not_measured(format!("{uuid}: no UUID")))?;
    let gpu = Gpu::open(id.bytes())?;
    let mut programs = [
        client(folder, uuid, program)?,
        client(folder, uuid, program)?,
        client(folder, uuid, program)?,
    ];
    for program in &mut programs {
        program.wait()?;
        keep(folder, program)?;
    }
    let programs = programs.map(Some);
    steps(&mut Pack {
        folder,
        gpu,
        programs,
    })
}

fn not_measured(why: impl Display) -> Trouble {
    Trouble::NotMeasured(why.to_string())
}

/// A program that enters the pack.
fn client(folder: &Path, uuid: &str, program: &Path) -> Result<Program, Trouble> {
    let program = Program::load(uuid, program, 0, folder)?;
    insist(folder, &Question::Enter(program.number()))?;
    Ok(program)
}

/// Asks until the answer is yes.
fn insist(folder: &Path, question: &Question) -> Result<(), Trouble> {
    let end = Instant::now() + PATIENCE;
    loop {
        match ask(folder, question.clone(), None) {
            Ok(Answer::Yes) => return Ok(()),
            _ if Instant::now() < end => sleep(SETTLING),
            answer => return Err(not_measured(format!("{question:?}: {answer:?}"))),
        }
    }
}

/// Has the supervisor keep a program's files.
fn keep(folder: &Path, program: &Program) -> Result<(), Trouble> {
    let number = program.number();
    let channels = program.grouped_channels().iter();
    let channels = channels.map(|(group, it)| (it.client, group.handle, it.handle));
    let questions = [
        Question::Keep(number, 0),
        Question::Channels(number, channels.collect()),
    ];
    for question in questions {
        match ask(folder, question, Some(program.file())) {
            Ok(Answer::Yes) => {}
            answer => return Err(not_measured(format!("the pack's supervisor: {answer:?}"))),
        }
    }
    Ok(())
}

/// Three programs of a pack.
trait Clients {
    /// What each does in the time of a look; that which has ended does nothing.
    fn look(&mut self) -> Result<[u64; 3], Trouble>;
    /// Lets one run, or not.
    fn enable(&mut self, is_on: bool) -> Result<(), Trouble>;
    /// Kills one within a kernel.
    fn end(&mut self) -> Result<(), Trouble>;
}

fn steps(pack: &mut impl Clients) -> Result<Result<(), Failed>, Trouble> {
    let failed = |step: &str, why: String| {
        let step = step.into();
        Ok(Err(Failed { step, why }))
    };
    let at_once = pack.look()?;
    if at_once.contains(&0) {
        return failed(
            "clients",
            format!("of three programs at once, they did {at_once:?}"),
        );
    }
    match pack.enable(false) {
        Err(Trouble::Refused(why)) => return failed("hold", why),
        done => done?,
    }
    let held = pack.look()?;
    if held.map(|work| work > 0) != [true, false, true] {
        return failed(
            "hold",
            format!("with the second of three held, they did {held:?}"),
        );
    }
    pack.end()?;
    let left = pack.look()?;
    if left[GOES_ON] == 0 {
        let why = "one of three was killed, and another ended with it".into();
        return failed("end", why);
    }
    match pack.enable(true) {
        Err(Trouble::Refused(why)) => return failed("go_on", why),
        done => done?,
    }
    let after = pack.look()?;
    if after.map(|work| work > 0) != [false, true, true] {
        return failed(
            "go_on",
            format!("after one of three had ended, they did {after:?}"),
        );
    }
    Ok(Ok(()))
}

struct Pack<'a> {
    folder: &'a Path,
    gpu: Gpu,
    programs: [Option<Program>; 3],
}

impl Pack<'_> {
    fn work(&mut self) -> Result<[u64; 3], Trouble> {
        let mut work = [0; 3];
        for (work, program) in work.iter_mut().zip(&mut self.programs) {
            if let Some(program) = program {
                *work = program.work()?;
            }
        }
        Ok(work)
    }
}

impl Clients for Pack<'_> {
    fn look(&mut self) -> Result<[u64; 3], Trouble> {
        sleep(SETTLING);
        let before = self.work()?;
        sleep(LOOK);
        let mut work = self.work()?;
        for (work, before) in work.iter_mut().zip(before) {
            *work = work.saturating_sub(before);
        }
        Ok(work)
    }

    fn enable(&mut self, is_on: bool) -> Result<(), Trouble> {
        let held = self.programs[HELD].as_ref();
        let channels = held.map(Program::channels).unwrap_or_default();
        let error = self.gpu.enable(&channels, is_on, &BTreeSet::new).error;
        error.map_or(Ok(()), |error| Err(error.into()))
    }

    fn end(&mut self) -> Result<(), Trouble> {
        let Some(mut program) = self.programs[ENDS].take() else {
            return Ok(());
        };
        program.set_kernel(KERNEL)?;
        sleep(SETTLING);
        let number = program.number();
        drop(program);
        sleep(LEFT);
        insist(self.folder, &Question::IsOff(number))?;
        let done = ask(self.folder, Question::LetGo(number), None);
        done.map(drop).map_err(not_measured)
    }
}

impl Drop for Pack<'_> {
    fn drop(&mut self) {
        // The programs end after that.
        let _ = self.enable(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pack that does as it is told, but for this step.
    #[derive(Default)]
    struct Programs {
        deaf_to: &'static str,
        is_held: bool,
        has_ended: bool,
        was_held: bool,
    }

    impl Clients for Programs {
        fn look(&mut self) -> Result<[u64; 3], Trouble> {
            let is_gone = self.has_ended && self.deaf_to == "end";
            let stays = self.was_held && !self.is_held && self.deaf_to == "go_on";
            let held = self.is_held && self.deaf_to != "hold" || stays;
            let part = |works: bool| u64::from(works && !is_gone) * 100;
            Ok([
                part(!self.has_ended),
                part(!held),
                part(self.deaf_to != "clients"),
            ])
        }

        fn enable(&mut self, is_on: bool) -> Result<(), Trouble> {
            self.is_held = !is_on;
            self.was_held = true;
            match (self.deaf_to, is_on) {
                ("refused", false) | ("refused later", true) => {
                    Err(Trouble::Refused("refused".into()))
                }
                ("gone", _) => Err(not_measured("gone")),
                _ => Ok(()),
            }
        }

        fn end(&mut self) -> Result<(), Trouble> {
            self.has_ended = true;
            Ok(())
        }
    }

    #[test]
    fn each_step_without_effect_is_found() {
        for (deaf_to, step) in [
            ("", ""),
            ("clients", "clients"),
            ("hold", "hold"),
            ("refused", "hold"),
            ("end", "end"),
            ("go_on", "go_on"),
            ("refused later", "go_on"),
        ] {
            let mut programs = Programs {
                deaf_to,
                ..Programs::default()
            };
            let proved = steps(&mut programs).unwrap();
            let failed = proved.err().map_or(String::new(), |failed| failed.step);
            assert_eq!(failed, step, "{deaf_to}");
        }
        let mut programs = Programs {
            deaf_to: "gone",
            ..Programs::default()
        };
        assert!(steps(&mut programs).is_err(), "nothing is known");
    }
}
