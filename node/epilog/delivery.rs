//! Writes a summary into the AdminComment of an ended job, which slurmdbd keeps: a process of its own, which outlives the
//! epilog by at most a minute.
//!
//! sacctmgr sets it as root, whom slurmdbd lets do that. Nothing there is replaced: a summary gets what it lacks, and any
//! other text stays. Nodes of a job write one after the other; each looks again whether its own part is still there.
//!
//! Of a job that was restarted, sacctmgr changes the last run only. So an earlier run's summary is dropped once slurmdbd
//! knows a later run: it would count as that run's, which could not replace it.

use serde::{Deserialize, Serialize};
use softmig_node::job::JobId;
use softmig_node::sacct::{self, Times};
use softmig_node::slurmctld::Commands;
use softmig_policy::slurm::release::SlurmVersion;
use softmig_usage::js1::Js1;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The word by which this program is started for it.
pub const WORD: &str = "admin-comment";

/// The seconds before each look at the accounting. slurmctld tells slurmdbd of an end within some seconds, and jobstats, where
/// it is, writes its own summary after five: what that lacks is added.
const PAUSES: [u64; 4] = [10, 10, 15, 20];

/// A summary of a node's GPUs has a hundredth of it.
const LONGEST: u64 = 1 << 20;

/// The input of that process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Delivery {
    /// The job.
    pub job: u32,
    /// When the run of it began that the summary is of, in seconds since 1970. Slurm says so from 23.02 on.
    pub start: Option<u32>,
    /// Where Slurm's commands are.
    pub folder: PathBuf,
    /// Where slurm.conf is, if Slurm said so.
    pub slurm_conf: Option<PathBuf>,
    /// The values to write.
    pub summary: Js1,
}

impl Delivery {
    /// Starts the process. slurmd ends the epilog's process group with the epilog, so it gets one of its own.
    pub fn send(&self) -> io::Result<()> {
        let text = serde_json::to_vec(self)?;
        let mut child = Command::new("/proc/self/exe")
            .arg(WORD)
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        match child.stdin.take() {
            Some(mut stdin) => stdin.write_all(&text),
            None => Ok(()),
        }
    }

    /// Reads it from standard input.
    pub fn receive() -> io::Result<Self> {
        let mut text = Vec::new();
        io::stdin().take(LONGEST).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Writes the summary. Tells why it is not there afterwards.
    pub fn deliver(&self) -> Result<(), String> {
        let slurm_conf = self.slurm_conf.clone().map(PathBuf::into_os_string);
        let commands = Commands::in_folder(&self.folder, slurm_conf);
        check_release(&commands)?;
        let slurm = Slurm {
            commands,
            job: JobId::parse(&self.job.to_string()).ok_or("no job")?,
            start: self.start.ok_or("Slurm did not say when this run began")?,
        };
        let pause = |seconds| std::thread::sleep(Duration::from_secs(seconds));
        write(&self.summary, &slurm, pause)
    }
}

/// Slurm's accounting of a job.
trait Accounting {
    /// The job's name in sacctmgr, and its AdminComment; `None` as long as slurmdbd does not know the job. It is an error if
    /// slurmdbd gives another run of the job.
    fn look(&self) -> Result<Option<(String, String)>, String>;
    fn set(&self, name: &str, comment: &str) -> Result<(), String>;
}

fn write(summary: &Js1, slurm: &impl Accounting, pause: impl Fn(u64)) -> Result<(), String> {
    let mut last = "slurmdbd does not know the job".to_string();
    for seconds in PAUSES {
        pause(seconds);
        match step(summary, slurm) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Whether all is there that is to be there.
fn step(summary: &Js1, slurm: &impl Accounting) -> Result<bool, String> {
    let Some((name, there)) = slurm.look()? else {
        return Ok(false);
    };
    let comment = summary.beside(&there).map_err(|error| error.to_string())?;
    let Some(comment) = comment else {
        return Ok(true);
    };
    slurm.set(&name, &comment)?;
    // Another node may have written at the same moment.
    Err("the job has several nodes, and others replaced what this one wrote".to_string())
}

struct Slurm {
    commands: Commands,
    job: JobId,
    /// When the run began.
    start: u32,
}

fn check_release(commands: &Commands) -> Result<(), String> {
    let answer = commands.answer("sacctmgr", &["--version"]);
    let answer = answer.map_err(|error| error.to_string())?;
    let release: SlurmVersion = answer.parse()?;
    if release.keeps_case_of_admin_comment() {
        Ok(())
    } else {
        Err(format!(
            "sacctmgr of Slurm {release} makes an AdminComment lower case; it takes {} or later",
            SlurmVersion::KEEPS_CASE_OF_ADMIN_COMMENT
        ))
    }
}

impl Slurm {
    /// The run's own line of what sacct said.
    fn read(&self, answer: &str) -> Result<Option<(String, String)>, String> {
        match sacct::row_of(answer, self.job) {
            // A run that waits has Unknown there.
            Some(row) if row.start.parse() != Ok(self.start) => Err(
                "slurmdbd gives another run of the job: Slurm restarted or resized it".to_string(),
            ),
            Some(row) => Ok(Some((row.name.to_string(), row.comment.to_string()))),
            None => Ok(None),
        }
    }
}

impl Accounting for Slurm {
    fn look(&self) -> Result<Option<(String, String)>, String> {
        let answer = sacct::ask(&self.commands, self.job, Times::Seconds);
        let answer = answer.map_err(|error| error.to_string())?;
        self.read(&answer)
    }

    fn set(&self, name: &str, comment: &str) -> Result<(), String> {
        let (which, what) = (format!("jobid={name}"), format!("AdminComment={comment}"));
        let words = [
            "--immediate",
            "modify",
            "job",
            "where",
            &which,
            "set",
            &what,
        ];
        let answer = self.commands.answer("sacctmgr", &words);
        answer.map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// slurmdbd, which knows the job from the second look on.
    struct Fake {
        comment: RefCell<String>,
        looks: Cell<u32>,
        sets: Cell<u32>,
        /// The text that another node writes at the same moment.
        other: RefCell<Option<Js1>>,
    }

    impl Fake {
        fn with(comment: &str) -> Self {
            Self {
                comment: RefCell::new(comment.to_string()),
                looks: Cell::new(0),
                sets: Cell::new(0),
                other: RefCell::new(None),
            }
        }
    }

    impl Accounting for Fake {
        fn look(&self) -> Result<Option<(String, String)>, String> {
            self.looks.set(self.looks.get() + 1);
            let known = self.looks.get() > 1;
            Ok(known.then(|| ("100_7".to_string(), self.comment.borrow().clone())))
        }

        fn set(&self, name: &str, comment: &str) -> Result<(), String> {
            assert_eq!(name, "100_7");
            self.sets.set(self.sets.get() + 1);
            *self.comment.borrow_mut() = match self.other.borrow_mut().take() {
                Some(other) => other.encode().unwrap(),
                None => comment.to_string(),
            };
            Ok(())
        }
    }

    fn summary(node: &str) -> Js1 {
        let json = format!(
            r#"{{"nodes":{{"{node}":{{"gpu_total_memory":{{"0":9}},"gpu_used_memory":{{"0":1}}}}}},"total_time":5,"gpus":1}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_summary_is_written_once_slurmdbd_knows_the_job() {
        let slurm = Fake::with("");
        write(&summary("n1"), &slurm, |_| {}).unwrap();
        assert_eq!((slurm.looks.get(), slurm.sets.get()), (3, 1));
        assert_eq!(Js1::decode(&slurm.comment.borrow()).unwrap(), summary("n1"));
    }

    #[test]
    fn what_another_node_wrote_over_is_written_again() {
        let slurm = Fake::with("");
        *slurm.other.borrow_mut() = Some(summary("n2"));
        write(&summary("n1"), &slurm, |_| {}).unwrap();
        let both = Js1::decode(&slurm.comment.borrow()).unwrap();
        assert_eq!(both.nodes.len(), 2);
        assert_eq!(both.gpus, 2);
    }

    #[test]
    fn what_people_wrote_stays() {
        let slurm = Fake::with("ticket 4711");
        write(&summary("n1"), &slurm, |_| {}).unwrap();
        assert_eq!(
            (slurm.sets.get(), &**slurm.comment.borrow()),
            (0, "ticket 4711")
        );
    }

    #[test]
    fn the_row_of_another_run_is_not_taken() {
        let slurm = Slurm {
            commands: Commands::in_folder("/usr/bin".as_ref(), None),
            job: JobId::parse("7").unwrap(),
            start: 1000,
        };
        let read = |lines: &str| slurm.read(&format!("JobIDRaw|JobID|Start|AdminComment\n{lines}"));
        let there = Ok(Some(("6_2".to_string(), "a|b".to_string())));
        assert_eq!(read("6|6_3|1000|\n7|6_2|1000|a|b\n"), there);
        assert_eq!(read("6|6_3|1000|\n"), Ok(None));
        // The next run, which waits or runs, and an earlier one.
        for start in ["Unknown", "None", "2000", "900"] {
            let told = read(&format!("7|6_2|{start}|\n"));
            assert!(told.unwrap_err().contains("another run"), "{start}");
        }
    }

    #[test]
    fn a_slurmdbd_that_does_not_answer_ends_it_in_a_minute() {
        struct Away;
        impl Accounting for Away {
            fn look(&self) -> Result<Option<(String, String)>, String> {
                Err("away".to_string())
            }
            fn set(&self, _: &str, _: &str) -> Result<(), String> {
                panic!()
            }
        }
        let waited = Cell::new(0);
        let told = write(&summary("n1"), &Away, |seconds| {
            waited.set(waited.get() + seconds)
        });
        assert_eq!((told, waited.get() < 60), (Err("away".to_string()), true));
    }
}
