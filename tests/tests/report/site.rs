//! A cluster with accounting, the programs around a job, and a monitor that says what a test wants.

use anyhow::{Context, Result};
use softmig_tests::softmig::installed;
use softmig_tests::{Accounting, Cluster, Slurm};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TASK_EPILOG: &str = include_str!("../../../conf/task_epilog.sh");

const LOG: &str = "/var/log/softmig/node.log";

/// The figures of a quarter that used 7.9 of 11.1 GiB, and 61 % of its time.
pub const FIGURES: &str = r#"{"schema_version":1,"time":1.0,"node":"host","jobs":[{"job":JOB,"since":1.0,
    "slice":{"type":"l40s","shards":1,"shards_per_gpu":4,"mode":"hard","memory_bytes":11918114816},
    "gpus":[{"index":0,"uuid":"GPU-0","memory_peak_bytes":8493465600,"known_seconds":1000.0,"charged_seconds":152.5,"waited_seconds":40.0}]}]}"#;

pub struct Site {
    pub cluster: Cluster,
}

impl Site {
    /// A cluster whose policy has this under [report].
    pub fn new(slurm: Slurm, report: &str) -> Result<Self> {
        let policy = format!(
            "[gpu.l40s]\nmemory_mib = 46068\nreserved_mib = 604\nshards = 4\n\
             [node]\nlog_file = \"{LOG}\"\n[report]\n{report}"
        );
        let builder = installed(slurm).job_submit(false).cli_filter(false);
        let cluster = builder
            .accounting(Accounting::new())
            .file("/etc/softmig/policy.toml", policy)
            .file("/etc/slurm/task_epilog.sh", TASK_EPILOG)
            .slurm_conf("TaskEpilog=/etc/slurm/task_epilog.sh")
            .start()?;
        Ok(Self { cluster })
    }

    /// Starts a job with a quarter, which waits for [`Site::finish`] and then does this.
    pub fn start(&self, script: &str) -> Result<u32> {
        let script = format!("until [ -e go ]; do sleep 0.05; done\n{script}");
        let job = self
            .cluster
            .user("alice")
            .sbatch(&["--gres=shard:l40s:1"], &script)?;
        self.cluster.wait_job(job, "RUNNING")?;
        let node = self.cluster.node(0);
        let conf = format!("/var/run/softmig/{job}.conf");
        self.cluster
            .wait_until("the prolog is through", || node.exists(&conf))?;
        Ok(job)
    }

    /// Lets the job end, and waits until its epilog has ended, too.
    pub fn finish(&self, job: u32) -> Result<()> {
        self.cluster.write("/home/alice/go", "")?;
        self.cluster.wait_job(job, "COMPLETED")?;
        self.cluster.wait_until("the node is idle", || {
            Ok(self.cluster.sinfo_states()? == ["idle"])
        })
    }

    /// The file and the socket of a monitor, with these figures.
    pub fn monitor(&self, job: u32, figures: &str) -> Result<Monitor> {
        let figures = figures.replace("JOB", &job.to_string());
        let node = self.cluster.node(0);
        node.write(format!("/var/run/softmig/jobs/{job}/usage"), &figures)?;
        let path = node.path("/var/run/softmig/usage.sock")?;
        let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
        listener.set_nonblocking(true)?;
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                match listener.accept() {
                    // A client that is gone does not matter.
                    Ok((mut client, _)) => drop(client.write_all(figures.as_bytes())),
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        });
        Ok(Monitor { over })
    }

    /// A job's stored comment.
    pub fn admin_comment(&self, job: u32) -> Result<String> {
        let which = format!("--jobs={job}");
        let sacct = ["sacct", "-X", "-n", "-P", "--format=AdminComment", &which];
        let said = self.cluster.run("root", &sacct)?.ok()?;
        Ok(said.trim().to_string())
    }

    pub fn wait_for_comment(&self, job: u32, begins: &str) -> Result<()> {
        self.cluster.wait_until(&format!("a comment {begins}"), || {
            Ok(self.admin_comment(job)?.starts_with(begins))
        })
    }

    pub fn wait_for_log(&self, words: &str) -> Result<()> {
        let node = self.cluster.node(0);
        self.cluster.wait_until(words, || {
            Ok(node.read(LOG)?.unwrap_or_default().contains(words))
        })
    }
}

/// A monitor, until it is dropped.
pub struct Monitor {
    over: Arc<AtomicBool>,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}
