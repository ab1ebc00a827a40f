//! Tries whether programs run with the library as they do without it: first apart from the node, then on it.
//!
//! Each program must end the same way, write the same and, where it can tell, have the library in its memory. Tried are
//! programs of root's and of an ordinary user's, and set-uid ones, in which the loader takes another way.

use crate::machine::install::program::{Program, Ran, find};
use crate::machine::install::rehearsal::Rehearsal;
use crate::machine::preload::Preload;
use crate::machine::preload::entries::with;
use anyhow::{Context, bail, ensure};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A program that shows its own libraries.
const MAPS: [&str; 2] = ["cat", "/proc/self/maps"];

/// A program and what it does without the library.
#[derive(Debug)]
struct Part {
    program: Program,
    alone: Ran,
    shows_memory: bool,
    /// Whether the program is there only in the rehearsal.
    rehearsal_only: bool,
}

/// The programs, with what each did without the library.
#[derive(Debug)]
pub(crate) struct Trial {
    parts: Vec<Part>,
}

impl Trial {
    /// Tries the candidate apart from the node: by a variable, then by a list of libraries that is like the real one
    /// will be. The first complaint is the error.
    pub(crate) fn rehearse(
        candidate: &Path,
        library: &Path,
        preload: &Preload,
    ) -> anyhow::Result<Self> {
        Rehearsal::with(|place| {
            let without = preload.text_without(library);
            place.preload(&without)?;
            place.check_set_uid()?;
            let trial = Self::alone(place)?;
            let harm = || format!("{} does harm", candidate.display());
            trial.by_variable(candidate).with_context(harm)?;
            place.preload(&with(&without, candidate))?;
            for part in &trial.parts {
                part.try_with(&part.program, candidate).with_context(harm)?;
            }
            Ok(trial)
        })
    }

    /// Tries the library as the node has it now.
    pub(crate) fn in_force(&self, library: &Path) -> anyhow::Result<()> {
        self.parts
            .iter()
            .filter(|part| !part.rehearsal_only)
            .try_for_each(|part| part.try_with(&part.program, library))
    }

    /// How many programs these are.
    pub(crate) fn programs(&self) -> usize {
        self.parts.len()
    }

    /// Runs all programs without the library.
    fn alone(place: &Rehearsal) -> anyhow::Result<Self> {
        let mut trial = Self { parts: Vec::new() };
        for words in [&["true"][..], &["sh", "-c", "exit 7"], &MAPS] {
            let program = Program::new(words).with_context(|| format!("{words:?} is missing"))?;
            trial.add(program.clone(), words == MAPS, false)?;
            trial.add(program.by_ordinary_user(), words == MAPS, false)?;
        }
        trial.add(place.set_uid(&MAPS)?, true, true)?;
        for name in ["su", "sudo", "mount", "passwd"] {
            if is_set_uid(name) {
                let program = Program::new(&[name, "--version"]).map(Program::by_ordinary_user);
                trial.add(
                    program.with_context(|| format!("{name} is missing"))?,
                    false,
                    false,
                )?;
            }
        }
        Ok(trial)
    }

    fn add(
        &mut self,
        program: Program,
        shows_memory: bool,
        rehearsal_only: bool,
    ) -> anyhow::Result<()> {
        let alone = program.run()?.with_context(|| {
            format!(
                "{} does not end even without the library, so nothing can be tried",
                program.name()
            )
        })?;
        self.parts.push(Part {
            program,
            alone,
            shows_memory,
            rehearsal_only,
        });
        Ok(())
    }

    /// With LD_PRELOAD, which set-uid programs ignore. Once with all symbols resolved at the
    /// start: one that is missing would otherwise end a program much later.
    fn by_variable(&self, candidate: &Path) -> anyhow::Result<()> {
        let path = candidate.display().to_string();
        for part in self.parts.iter().filter(|part| !part.program.as_nobody) {
            let program = part.program.clone().with_variable("LD_PRELOAD", &path);
            part.try_with(&program, candidate)?;
            part.try_with(&program.with_variable("LD_BIND_NOW", "1"), candidate)?;
        }
        Ok(())
    }
}

impl Part {
    /// Runs this form of the program and compares.
    fn try_with(&self, program: &Program, library: &Path) -> anyhow::Result<()> {
        let name = program.name();
        let Some(ran) = program.run()? else {
            bail!("{name} does not come to its end");
        };
        ensure!(
            ran.stderr == self.alone.stderr,
            "{name} writes to standard error: {}",
            shown(&ran.stderr)
        );
        ensure!(
            ran.status == self.alone.status,
            "{name} ends with {} instead of {}",
            ran.status,
            self.alone.status
        );
        if self.shows_memory {
            ensure!(
                has(&ran.stdout, library),
                "{name} does not have it in its memory"
            );
        } else {
            ensure!(
                ran.stdout == self.alone.stdout,
                "{name} writes something else: {}",
                shown(&ran.stdout)
            );
        }
        Ok(())
    }
}

fn is_set_uid(name: &str) -> bool {
    find(name)
        .and_then(|path| path.metadata().ok())
        .is_some_and(|file| file.uid() == 0 && file.mode() & 0o4000 != 0)
}

/// Whether a process's memory has this file in it.
fn has(maps: &[u8], library: &Path) -> bool {
    let library = library.as_os_str().as_encoded_bytes();
    maps.split(|byte| *byte == b'\n').any(|line| {
        line.strip_suffix(library)
            .is_some_and(|rest| rest.ends_with(b" "))
    })
}

/// The beginning of what a program said, harmless on a terminal.
fn shown(said: &[u8]) -> String {
    let said = said.get(..300).unwrap_or(said).trim_ascii();
    if said.is_empty() {
        "nothing".into()
    } else {
        said.escape_ascii().to_string().replace("\\n", "; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapped_library_is_found_by_its_whole_path() {
        let maps = b"7f00-7f01 r-xp 00000000 fe:00 77    /usr/lib/softmig/libsoftmig.so\n7f02-7f03 rw-p 0 00:00 0\n";
        assert!(has(maps, Path::new("/usr/lib/softmig/libsoftmig.so")));
        assert!(!has(maps, Path::new("/lib/softmig/libsoftmig.so")));
        assert!(!has(maps, Path::new("/usr/lib/softmig/libsoftmig")));
    }

    #[test]
    fn what_a_program_says_cannot_act_on_the_terminal() {
        assert_eq!(shown(b"ERROR: \x1b[2J\nno\n"), "ERROR: \\x1b[2J; no");
        assert_eq!(shown(b" \n"), "nothing");
    }
}
