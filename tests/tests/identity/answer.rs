//! Output of the client `whose`, with the library's words.

use anyhow::{Context, Result, bail};

/// CUDA_ERROR_NO_DEVICE: what a process hears that gets no GPU.
const NO_DEVICE: i32 = 100;
/// A second driver copy's answer to a call without a context: it does not know of any limits.
const NO_CONTEXT: i32 = 201;
/// CUDA_ERROR_NOT_SUPPORTED: what the library says in its place where limits hold.
const NOT_SUPPORTED: i32 = 801;

/// One look of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    library: bool,
    init: i32,
    copy: i32,
    words: Vec<String>,
}

impl Answer {
    fn new(init: i32, copy: i32, words: &[String]) -> Answer {
        Answer {
            library: true,
            init,
            copy,
            words: words.into(),
        }
    }

    /// Held to a job's limits.
    pub fn limited(job: u32, mib: u32, percent: &str) -> Answer {
        let limits = format!("limited to {mib} MiB and {percent} % of the time of each GPU (hard)");
        let words = [limits, SECOND_COPY.into()];
        Answer::new(
            0,
            NOT_SUPPORTED,
            &words.map(|words| format!("job {job}: {words}")),
        )
    }

    /// The same of a process that the GPU was taken from when it started, since this comes before the library: its lookups, which
    /// then find the driver's own functions, or the driver's functions alone.
    pub fn kept_from_driver(mut self, job: u32, by: &str, hides_lookups: bool) -> Answer {
        let taken = format!(
            "job {job}: refused the GPU: {by} comes before softmig's library and can hide the driver from it: start the program \
             without it, or in a job with a whole GPU (1)"
        );
        self.words.insert(1, taken);
        self.init = NO_DEVICE;
        if hides_lookups {
            self.copy = NO_CONTEXT;
        }
        // Said the first time that anything is refused, and this was.
        self.again()
    }

    /// A process that may ask nothing of the driver, since its parent was kept from it.
    pub fn without_driver(mut self) -> Answer {
        self.init = NO_DEVICE;
        self
    }

    /// The same of a process that was refused two calls before.
    pub fn after_two_refusals(mut self) -> Answer {
        for words in &mut self.words {
            *words = words.replace("(1)", "(3)");
        }
        self
    }

    /// The same of a process that was refused something before: a second time is not worth a line.
    pub fn again(mut self) -> Answer {
        self.words.retain(|words| !words.ends_with(SECOND_COPY));
        self
    }

    /// Held to some limits, by a library that says nothing.
    pub fn limited_silently() -> Answer {
        Answer::new(0, NOT_SUPPORTED, &[])
    }

    /// Held to the limits of this job, which is the smallest on the GPUs that the process sees.
    pub fn limited_as_on_its_gpus(job: u32) -> Answer {
        let words = [
            ON_ITS_GPUS.into(),
            format!("limited as job {job}, the smallest on its GPUs"),
            SECOND_COPY.into(),
        ];
        Answer::new(0, NOT_SUPPORTED, &words)
    }

    /// Held to what its own environment says.
    pub fn limited_by_itself() -> Answer {
        let words = "limited by CUDA_DEVICE_MEMORY_LIMIT and CUDA_DEVICE_SM_LIMIT";
        Answer::new(0, NOT_SUPPORTED, &[words.into(), SECOND_COPY.into()])
    }

    /// In no job that can be seen, on GPUs where no job has limits.
    pub fn alone_on_its_gpus() -> Answer {
        let words = [ON_ITS_GPUS.into(), "no job on its GPUs has limits".into()];
        Answer::new(0, NO_CONTEXT, &words)
    }

    /// Left alone by a library that says nothing.
    pub fn passive() -> Answer {
        Answer::new(0, NO_CONTEXT, &[])
    }

    /// Without the library.
    pub fn without_library() -> Answer {
        Answer {
            library: false,
            ..Answer::passive()
        }
    }

    /// Given no GPU, in a job.
    pub fn refused(job: u32, reason: &str) -> Answer {
        let words = format!("job {job}: refused cuInit: {reason} (1)");
        Answer::new(NO_DEVICE, NOT_SUPPORTED, &[words])
    }

    /// Given no GPU, in a job that is not known.
    pub fn refused_outside(reason: &str) -> Answer {
        let words = format!("refused cuInit: {reason} (1)");
        Answer::new(NO_DEVICE, NOT_SUPPORTED, &[words])
    }

    /// Given no GPU by a library that says nothing.
    pub fn refused_silently() -> Answer {
        Answer::new(NO_DEVICE, NOT_SUPPORTED, &[])
    }

    /// Told the limits that it would be held to.
    pub fn observed_limits(job: u32, mib: u32, percent: &str) -> Answer {
        Answer::limited(job, mib, percent).observed()
    }

    /// Told why it would get no GPU.
    pub fn observed_refusal(job: u32, reason: &str) -> Answer {
        Answer::refused(job, reason).observed()
    }

    /// The same on a node that only observes.
    pub fn observed(mut self) -> Answer {
        for words in &mut self.words {
            *words = words
                .replace(": refused ", ": would refuse ")
                .replace(": limited to ", ": would be limited to ");
        }
        (self.init, self.copy) = (0, NO_CONTEXT);
        self
    }

    /// All answers in what one or several processes wrote to standard output and standard error.
    pub fn all(text: &str) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        let mut words = Vec::new();
        for line in text.lines() {
            if let Some(said) = line.strip_prefix("whose: ") {
                let number = |key: &str| -> Result<i32> {
                    let value = said.split(' ').find_map(|word| word.strip_prefix(key));
                    let number = value.context("a number is missing")?.parse();
                    number.with_context(|| format!("not a number in {line:?}"))
                };
                answers.push(Answer {
                    library: number("library=")? == 1,
                    init: number("cuInit=")?,
                    copy: number("copy=")?,
                    words: std::mem::take(&mut words),
                });
            } else if let Some((_, sentence)) = line.split_once(" softmig[")
                && let Some((_, sentence)) = sentence.split_once("] ")
            {
                words.push(sentence.to_owned());
            } else {
                bail!("{line:?} is nothing that the client says, in\n{text}");
            }
        }
        Ok(answers)
    }
}

const SECOND_COPY: &str =
    "refused cuMemAlloc_v2: it is of a second copy of the driver: load the driver once (1)";
const ON_ITS_GPUS: &str = "outside every job: limited as the jobs on its GPUs";
