//! A program that keeps the GPU busy, from outside. It ends when this is dropped.

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use softmig_rm::{Channel, Error, Group, set_time_slice, time_slice};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::load::Hello;
use crate::trouble::Trouble;

/// How long it may take to begin: the driver may have to wake the GPU first.
const BEGINNING: Duration = Duration::from_secs(40);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

/// A program at work.
#[derive(Debug)]
pub struct Program {
    child: Child,
    file: OwnedFd,
    questions: Option<ChildStdin>,
    answers: Receiver<String>,
    channels: Vec<(Group, Channel)>,
}

fn trouble(why: impl std::fmt::Display) -> Trouble {
    Trouble::NotMeasured(format!("the program that is to keep the GPU busy: {why}"))
}

impl Program {
    /// Starts one on the GPU of this UUID alone, as this user's: `program` is as in [`crate::prove`]. It is a client of the MPS server
    /// whose folder this is; `/dev/null` for none. It is not at work before [`Program::wait`].
    ///
    /// # Errors
    /// It does not start.
    pub fn load(uuid: &str, program: &Path, user: u32, server: &Path) -> Result<Self, Trouble> {
        let mut command = Command::new(program);
        command
            .args(["--prove-load", &user.to_string()])
            .env("CUDA_VISIBLE_DEVICES", uuid)
            // No file is kept in a user's home.
            .env("CUDA_CACHE_DISABLE", "1")
            .env("CUDA_MPS_PIPE_DIRECTORY", server);
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, Trouble> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(trouble)?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let file = file_of(&child);
        let (to, answers) = channel();
        let (Ok(file), (questions, Some(out))) = (file, pipes) else {
            end(&mut child);
            return Err(trouble("this kernel has no files of processes"));
        };
        std::thread::spawn(move || {
            let lines = BufReader::new(out).lines();
            lines
                .map_while(Result::ok)
                .take_while(|line| to.send(line.clone()).is_ok())
                .for_each(drop);
        });
        Ok(Self {
            child,
            file,
            questions,
            answers,
            channels: Vec::new(),
        })
    }

    /// Waits until it is at work.
    ///
    /// # Errors
    /// It says why it is not, or says nothing.
    pub fn wait(&mut self) -> Result<(), Trouble> {
        let hello: Hello = self.answer(BEGINNING)?;
        self.channels = hello.channels().map_err(trouble)?;
        Ok(())
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.child.id()
    }

    /// Its pidfd.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Its channels, and the group of each.
    pub fn grouped_channels(&self) -> &[(Group, Channel)] {
        &self.channels
    }

    /// Its channels.
    pub fn channels(&self) -> Vec<Channel> {
        self.channels.iter().map(|(_, channel)| *channel).collect()
    }

    /// Its kernels take so many nanoseconds from now on.
    ///
    /// # Errors
    /// It does not answer.
    pub fn set_kernel(&mut self, nanos: u64) -> Result<(), Trouble> {
        self.ask(&nanos.to_string()).map(drop)
    }

    /// The count so far.
    ///
    /// # Errors
    /// It does not answer.
    pub fn work(&mut self) -> Result<u64, Trouble> {
        self.ask("")
    }

    fn ask(&mut self, line: &str) -> Result<u64, Trouble> {
        let questions = self
            .questions
            .as_mut()
            .ok_or_else(|| trouble("has ended"))?;
        writeln!(questions, "{line}").map_err(trouble)?;
        self.answer(ANSWER)
    }

    fn answer<T: serde::de::DeserializeOwned>(&self, patience: Duration) -> Result<T, Trouble> {
        let line = self.answers.recv_timeout(patience).map_err(trouble)?;
        serde_json::from_str(&line).map_err(trouble)
    }

    /// Its channel groups.
    pub(crate) fn groups(&self) -> BTreeSet<Group> {
        self.channels.iter().map(|(group, _)| *group).collect()
    }

    /// Sets the time slice of its groups, in microseconds.
    pub(crate) fn set_slice(&self, micros: u64) -> Result<(), Trouble> {
        for group in self.groups() {
            set_time_slice(self.file.as_fd(), self.number(), group, micros)?;
        }
        Ok(())
    }

    /// The time slice of a group, asked for by this program's own file of the driver.
    pub(crate) fn slice_of(&self, group: Group) -> Result<u64, Error> {
        let own = self.groups().first().map_or(group.file, |own| own.file);
        let group = Group { file: own, ..group };
        time_slice(self.file.as_fd(), self.number(), group)
    }

    /// Whether it is a process of this user.
    pub(crate) fn is_of(&self, user: u32) -> bool {
        let folder = format!("/proc/{}", self.number());
        std::fs::metadata(folder).is_ok_and(|folder| folder.uid() == user)
    }
}

fn file_of(child: &Child) -> rustix::io::Result<OwnedFd> {
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pidfd_open(number.ok_or(rustix::io::Errno::SRCH)?, PidfdFlags::empty())
}

fn end(child: &mut Child) {
    // It may have ended by itself.
    let _ = child.kill();
    let _ = child.wait();
}

impl Drop for Program {
    fn drop(&mut self) {
        // It ends when there are no more questions, also where it may not be killed.
        self.questions = None;
        end(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Program::start(command).unwrap()
    }

    #[test]
    fn a_program_says_its_channels_and_what_it_has_done_and_ends() {
        let mut program = shell(
            r#"echo '{"Channels":[[7,193,5,10],[7,193,5,11]]}'; while read line; do echo 42; done; sleep 60"#,
        );
        program.wait().unwrap();
        let handles = program.channels().into_iter().map(|it| it.handle);
        assert_eq!(handles.collect::<Vec<_>>(), [10, 11]);
        assert_eq!(program.work(), Ok(42));
        assert_eq!(program.work(), Ok(42));
        // It has no such file, and no driver was asked.
        assert!(matches!(
            program.set_slice(2000),
            Err(Trouble::NotMeasured(_))
        ));
        let folder = format!("/proc/{}", program.number());
        assert!(std::path::Path::new(&folder).exists());
        drop(program);
        assert!(!std::path::Path::new(&folder).exists());
    }

    #[test]
    fn a_program_that_cannot_begin_says_why() {
        for (script, wanted) in [
            (
                r#"echo '{"Error":"cuInit answers 100"}'"#,
                "cuInit answers 100",
            ),
            (
                r#"echo '{"Channels":[]}'"#,
                "no channel of the program's was seen to be made",
            ),
            ("true", "channel is empty and sending half is closed"),
            ("echo what", "expected value"),
        ] {
            let Err(Trouble::NotMeasured(why)) = shell(script).wait() else {
                panic!("{script}");
            };
            assert!(why.contains(wanted), "{script}: {why}");
        }
    }
}
