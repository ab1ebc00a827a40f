//! The world of a test of the kernel's part: a bpf file system and control groups that end with the test, and processes
//! there.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use softmig_gate::{Devices, Gate, Jobs, Library, Settings};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// An ordinary user.
const USER: u32 = 2001;

/// A node with a gate, of which only this test knows.
pub struct World {
    pub settings: Settings,
    pub library: Library,
    /// The control group that has the program.
    pub group: PathBuf,
    pub folder: tempfile::TempDir,
    _mounts: [OwnedFd; 2],
}

/// A mount that no other process sees, and that ends when it is closed; and its path.
fn mount(kind: &str) -> Result<(OwnedFd, PathBuf), Errno> {
    let system = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(system.as_fd())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let mount = fsmount(system.as_fd(), flags, MountAttrFlags::empty())?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), mount.as_raw_fd());
    Ok((mount, path.into()))
}

/// Both file systems; `None`, with a line that says so, where this machine lets root not have them, or load no BPF programs.
fn mounts() -> Option<[(OwnedFd, PathBuf); 2]> {
    let skipped = |why: &dyn std::fmt::Display| eprintln!("skipped: not permitted here: {why}");
    let mounted = mount("bpf").and_then(|bpf| Ok([bpf, mount("cgroup2")?]));
    let mounts = match mounted {
        Err(error @ Errno::PERM) => {
            skipped(&error);
            return None;
        }
        mounted => mounted.unwrap(),
    };
    match softmig_gate::check(&mounts[0].1.join("gate")) {
        Err(error) if error.is_permission() => {
            skipped(&error);
            None
        }
        checked => {
            checked.unwrap();
            Some(mounts)
        }
    }
}

impl World {
    /// `None` where this machine does not permit it.
    pub fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "these tests need root");
        let [(bpf, files), (groups, root)] = mounts()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let group = root.join(format!("softmig-gate-{}-{number}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        let mode = Mode::from_raw_mode(0o666);
        // As every machine has them: /dev/null in the place of a GPU, /dev/zero in that of the control device.
        for (name, minor) in [("gpu", 3), ("control", 5)] {
            let device = path.join(name);
            mknodat(
                CWD,
                &device,
                FileType::CharacterDevice,
                mode,
                makedev(1, minor),
            )
            .unwrap();
            fs::set_permissions(&device, fs::Permissions::from_mode(0o666)).unwrap();
        }
        let library = path.join("library.so");
        fs::copy(a_library(), &library).unwrap();
        let known = Library::default();
        known.add(&library).unwrap();
        Some(Self {
            settings: Settings {
                folder: files.join("gate"),
                devices: Devices {
                    major: 1,
                    last_gpu: 3,
                    control: 5,
                },
                group: Some(group.clone()),
            },
            library: known,
            group,
            folder,
            _mounts: [bpf, groups],
        })
    }

    pub fn gate(&self) -> Gate {
        Gate::set_up(&self.settings).unwrap()
    }

    /// The gate is closed for this job from now on.
    pub fn add(&self, job: &str) {
        self.jobs().add(job).unwrap();
    }

    pub fn jobs(&self) -> Jobs {
        Jobs::open(&self.settings.folder).unwrap().unwrap()
    }

    /// A shell in that group, which is made. It knows the words `gpu` and `control`, which tell whether they can be opened.
    pub fn process(&self, groups: &[PathBuf], as_root: bool, with_library: bool) -> Process {
        let user = if as_root { 0 } else { USER };
        for group in groups {
            fs::create_dir_all(group).unwrap();
        }
        let join = groups
            .iter()
            .map(|group| format!("echo $$ > {}/cgroup.procs && ", group.display()));
        let join: String = join.collect();
        let command =
            "exec setpriv --reuid \"$1\" --regid \"$1\" --clear-groups env $2 bash --norc";
        let library = self.folder.path().join("library.so");
        let preload = format!("LD_PRELOAD={}", library.display());
        let mut child = Command::new("sh")
            .args(["-c", &format!("{join}{command}"), "sh", &user.to_string()])
            .arg(if with_library { &preload } else { "" })
            .current_dir(self.folder.path())
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut process = Process {
            child,
            input,
            output: BufReader::new(output),
        };
        process.define();
        process
    }

    /// A shell of a user in a job of this name.
    pub fn in_job(&self, job: &str, with_library: bool) -> Process {
        self.process(&[self.job(job)], false, with_library)
    }

    pub fn job(&self, name: &str) -> PathBuf {
        self.group
            .join("slurmstepd.scope")
            .join(name)
            .join("step_0/user/task_0")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        remove(&self.group);
    }
}

/// Removes a control group with those in it. Its processes have ended, which the kernel notices a moment later.
pub fn remove(group: &Path) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    for _ in 0..500 {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            _ => return,
        }
    }
}

/// Any library that shells do not have.
fn a_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let names = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let libc = names.into_iter().find(|name| name.ends_with("/libc.so.6"));
    Path::new(libc.unwrap()).with_file_name("libm.so.6")
}

/// A shell that does what it is told.
pub struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// All of it is done in the shell itself: a child would be another process. Nothing goes to /dev/null, which is the GPU.
    const WORDS: &str = "gpu() { { exec 9<gpu; } 2>&- && echo open || echo refused; exec 9<&-; }; \
        control() { { exec 9<control; } 2>&- && echo open || echo refused; exec 9<&-; }";

    fn define(&mut self) {
        writeln!(self.input, "{}", Self::WORDS).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Runs a line, and gives the line that it prints.
    pub fn say(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim_end().into()
    }

    /// Executes another program in the place of this one: a shell again.
    pub fn execute(&mut self, command: &str) {
        writeln!(self.input, "exec {command} bash --norc").unwrap();
        self.define();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
