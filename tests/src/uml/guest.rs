//! The life of one guest: booted in namespaces of its own, listened to, and ended in time.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::kernel::Kernel;

/// The guest's memory. Only what it touches is taken from the host.
const MEMORY: &str = "768M";

/// Process 1 of the namespace: makes the guest's memory a place that needs no cleaning up, then waits for the kernel.
/// User Mode Linux maps that memory executable and as a file, and the host's own /dev/shm may be small, or noexec.
/// A root with packages laid over it is mounted here too, by names that hold neither `,` nor `:`.
const HOLD: &str = "mount -t tmpfs -o size=1g,mode=700 tmpfs /dev/shm && \
    { [ ! -e packages ] || mount -t overlay -o ro,lowerdir=packages:base overlay root; } && \"$@\"; exit $?";

/// How long the kernel of the host may take to end a killed guest's processes.
const DYING: Duration = Duration::from_secs(20);

/// The rest of a guest that has ended.
#[derive(Debug)]
pub struct Life {
    /// The text that it wrote to its console.
    pub console: String,
    /// Whether it had to be killed because its time was up.
    pub killed: bool,
}

/// Boots the guest whose `root` and `share` lie in `dir`, and returns when nothing of it runs any more.
pub fn boot(kernel: &Kernel, dir: &Path, timeout: Duration) -> Result<Life> {
    let (console, writer) = pipe().context("making the guest's console")?;
    // The first program of the guest and its words travel in the kernel's command line, whose rules for quotes are its
    // own. `/mnt` is an empty folder of every Debian root.
    let first = "\"mount -t hostfs -o /share none /mnt && exec /bin/sh /mnt/init.sh\"";
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig=KILL", "--"])
        .args(["unshare", "--mount", "--pid", "--fork", "--kill-child"])
        .args(["--mount-proc", "--net", "--ipc", "--uts", "--"])
        .args(["/bin/sh", "-c", HOLD, "uml"])
        .arg(&kernel.linux)
        .arg(format!("mem={MEMORY}"))
        // Paths of the host relative to the working directory: they can hold no space, and ours might.
        .args(["hostfs=.", "rootfstype=hostfs", "rootflags=/root", "ro"])
        .args(["uml_dir=/dev/shm", "con=null", "con0=null,fd:1"])
        .args(["init=/bin/sh", "--", "-c", first]);
    command
        .current_dir(dir)
        .env_clear()
        .envs([("PATH", crate::command::PATH), ("HOME", "/dev/shm")])
        .env("TMPDIR", "/dev/shm")
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("making the guest's console")?)
        .stderr(writer);
    let mut guest = Guest(
        command
            .spawn()
            .context("starting setpriv and unshare; is util-linux installed?")?,
    );
    // Our ends of the pipe, so that it ends with the guest.
    drop(command);

    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || told.send(listen(console)));
    // The console ends when the last process of the guest has ended, and not before.
    match heard.recv_timeout(timeout) {
        Ok(console) => Ok(Life {
            console,
            killed: false,
        }),
        Err(RecvTimeoutError::Timeout) => {
            guest.kill();
            match heard.recv_timeout(DYING) {
                Ok(console) => Ok(Life {
                    console,
                    killed: true,
                }),
                Err(_) => bail!("the User Mode Linux guest was killed, but it still runs"),
            }
        }
        Err(RecvTimeoutError::Disconnected) => bail!("the guest's console is closed"),
    }
}

/// The first of the guest's processes on the host; the others end with it.
struct Guest(Child);

impl Guest {
    fn kill(&mut self) {
        // An error means that it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads the console to its end. A console ends its lines as a terminal does.
fn listen(console: PipeReader) -> String {
    let mut text = String::new();
    for line in BufReader::new(console).split(b'\n') {
        let Ok(line) = line else { break };
        text.push_str(String::from_utf8_lossy(&line).trim_end_matches('\r'));
        text.push('\n');
    }
    text
}
