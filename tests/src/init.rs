//! Process 1 of a machine: puts the root together, starts what every cluster needs, then reaps.
//!
//! It runs in fresh mount, process, network, host name and IPC namespaces. When it ends, the kernel ends every
//! process in the machine.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{WaitOptions, wait};

use crate::spec::{Answer, NodeSpec, Spec};
use crate::{mounts, place};

/// The name the machine gives itself, the same in every run.
pub const HOST: &str = "softmig";

/// A user of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Person {
    /// The login name.
    pub name: &'static str,
    /// The user's number.
    pub uid: u32,
    /// The name of the primary group.
    pub group: &'static str,
    /// The primary group's number.
    pub gid: u32,
}

impl Person {
    /// With a primary group of the same name and number, as Debian makes users.
    const fn alone(name: &'static str, uid: u32) -> Person {
        Person {
            name,
            uid,
            group: name,
            gid: uid,
        }
    }

    /// With the primary group `course`.
    const fn of_course(name: &'static str, uid: u32) -> Person {
        Person {
            name,
            uid,
            group: "course",
            gid: 3100,
        }
    }
}

/// The machine's users beside root.
pub const USERS: [Person; 6] = [
    Person::alone("alice", 2001),
    Person::alone("bob", 2002),
    Person::alone("carol", 2003),
    Person::alone("dave", 2004),
    Person::of_course("erin", 2005),
    Person::of_course("frank", 2006),
];

/// Makes the machine that standard input describes, says so, and stays until standard input ends.
pub fn main() -> Result<()> {
    let mut stdin = BufReader::new(std::io::stdin());
    let mut line = String::new();
    stdin.read_line(&mut line).context("reading what to make")?;
    let spec: Spec = serde_json::from_str(&line).context("reading what to make")?;

    let holders = match set_up(&spec) {
        Ok(holders) => holders,
        Err(error) => {
            say(&Answer::Failed(format!("{error:#}")))?;
            return Ok(());
        }
    };

    // Should the supervisor be killed, the end of its pipe ends the machine too.
    std::thread::spawn(move || {
        std::io::copy(&mut stdin.by_ref(), &mut std::io::sink()).ok();
        std::process::exit(0);
    });
    // The holders live as long as this process, so there is always something to wait for.
    let _pipes: Vec<_> = holders
        .into_iter()
        .map(|mut holder| holder.stdin.take())
        .collect();
    loop {
        if let Err(rustix::io::Errno::CHILD) = wait(WaitOptions::empty()) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

fn set_up(spec: &Spec) -> Result<Vec<Child>> {
    let init = host_pid()?;
    let root = mounts::layer_over(&spec.root, &spec.layers)?;
    users(&root)?;
    furnish(&root, spec)?;
    mounts::base(&root)?;
    mounts::dev(&root, &[])?;

    let mut holders = Vec::new();
    let mut nodes = Vec::new();
    for node in &spec.nodes {
        let (holder, pid) = start_holder(&root, node)?;
        holders.push(holder);
        nodes.push(pid);
    }

    rustix::system::sethostname(HOST.as_bytes()).context("setting the host name")?;
    mounts::move_into(&root)?;
    run("ip", &["link", "set", "lo", "up"])?;
    quick_answers()?;
    // Slurm looks up where to listen with AI_ADDRCONFIG, which takes a machine with loopback addresses alone for one
    // without any network. This address is reserved for documentation; nothing is sent to it.
    run("ip", &["address", "add", "192.0.2.1/32", "dev", "lo"])?;
    if !spec.nodes.is_empty() {
        start_munge()?;
    }
    say(&Answer::Up { init, nodes })?;
    Ok(holders)
}

/// Has the network acknowledge at once what it gets.
///
/// slurmdbd and its clients write each message in two pieces, and the second one waits until the first is acknowledged.
/// Without this each message of 22.05 takes 40 ms.
fn quick_answers() -> Result<()> {
    for local in ["127.0.0.0/8", "127.0.0.1"] {
        let change = ["route", "replace", "local", local, "dev", "lo"];
        let same = ["table", "local", "proto", "kernel", "scope", "host"];
        let new = ["src", "127.0.0.1", "quickack", "1"];
        run("ip", &[&change[..], &same, &new].concat())?;
    }
    Ok(())
}

/// This process's number as the test sees it: `/proc` is still the one outside.
pub fn host_pid() -> Result<i32> {
    let link = std::fs::read_link("/proc/self").context("reading /proc/self")?;
    let text = link.to_str().context("reading /proc/self")?;
    text.parse().context("reading /proc/self")
}

/// Answers in one line on standard output.
pub fn say(answer: &impl serde::Serialize) -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::to_string(answer)?).context("answering")?;
    out.flush().context("answering")
}

fn users(root: &Path) -> Result<()> {
    let append = |file: &str, line: String| -> Result<()> {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(root.join(file))
            .with_context(|| format!("opening /{file}"))?;
        file.write_all(line.as_bytes()).context("adding a user")
    };
    let groups: BTreeMap<&str, u32> = USERS.iter().map(|user| (user.group, user.gid)).collect();
    for (group, gid) in groups {
        append("etc/group", format!("{group}:x:{gid}:\n"))?;
    }
    for Person { name, uid, gid, .. } in USERS {
        append(
            "etc/passwd",
            format!("{name}:x:{uid}:{gid}::/home/{name}:/bin/bash\n"),
        )?;
        // An account without this line counts as locked for sudo.
        append("etc/shadow", format!("{name}:*:20000:0:99999:7:::\n"))?;
        let home = root.join("home").join(name);
        std::fs::create_dir_all(&home).context("making a home")?;
        std::os::unix::fs::chown(&home, Some(uid), Some(gid)).context("making a home")?;
    }
    append("etc/hosts", format!("127.0.0.1 localhost {HOST}\n"))
}

/// Everything that lies in the root beside Debian's own files.
fn furnish(root: &Path, spec: &Spec) -> Result<()> {
    for dir in [
        "cluster/log",
        "cluster/run",
        "cluster/state",
        "cluster/spool",
        "cluster/munge",
        // Each node mounts its own here.
        "var/log/softmig",
        "var/lib/softmig",
    ] {
        std::fs::create_dir_all(root.join(dir)).with_context(|| format!("making /{dir}"))?;
    }
    // A program that the test starts as a user leaves its own log and socket here.
    place::chmod(&root.join("cluster/run"), 0o1777)?;
    for tree in &spec.stages {
        place::stage(root, tree)?;
    }
    for file in &spec.installs {
        place::install(root, &file.from, &file.to, file.mode)?;
    }
    for file in &spec.files {
        place::write(root, &file.path, file.contents.as_bytes(), file.mode)?;
    }
    Ok(())
}

/// Starts the process that holds a node's mounts; it begins with a copy of ours.
fn start_holder(root: &Path, node: &NodeSpec) -> Result<(Child, i32)> {
    let mut holder = Command::new("unshare")
        .args(["--mount", "--"])
        .arg(std::env::current_exe().context("finding this program")?)
        .arg("node")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting unshare")?;
    let order = serde_json::to_string(&(root, node))?;
    let pipe = holder.stdin.as_mut().context("talking to a node")?;
    writeln!(pipe, "{order}").context("talking to a node")?;
    let mut line = String::new();
    BufReader::new(holder.stdout.take().context("listening to a node")?)
        .read_line(&mut line)
        .context("listening to a node")?;
    let pid = line
        .trim()
        .parse()
        .with_context(|| format!("node {} did not come up", node.name))?;
    Ok((holder, pid))
}

/// Starts munge with a key of its own, so that no two clusters believe each other.
fn start_munge() -> Result<()> {
    let mut key = [0; 128];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut key))
        .context("making the munge key")?;
    place::write(
        Path::new("/"),
        Path::new("/cluster/munge/munge.key"),
        &key,
        0o400,
    )?;
    run(
        "munged",
        &[
            "--force",
            "--num-threads=2",
            "--key-file=/cluster/munge/munge.key",
            "--socket=/cluster/munge/munge.socket",
            "--pid-file=/cluster/munge/munged.pid",
            "--log-file=/cluster/munge/munged.log",
            "--seed-file=/cluster/munge/munge.seed",
        ],
    )
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let done = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .env("PATH", crate::command::PATH)
        .status()
        .with_context(|| format!("starting {program}"))?;
    if !done.success() {
        bail!("{program} {}: {done}", arguments.join(" "));
    }
    Ok(())
}
