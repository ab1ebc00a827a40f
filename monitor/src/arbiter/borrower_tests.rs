//! A user whose file has the name of the driver's, and keeps waiting who closes it.

use super::*;
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::fs::{DirEntry, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

/// What [`program`] has its process do.
#[test]
#[ignore = "it is the process that borrows"]
fn borrows() {
    borrow().unwrap();
}

/// A program that is what the daemon is with `--borrow`.
fn program(folder: &Path) -> &'static str {
    let own = std::env::current_exe().unwrap();
    let name = concat!(module_path!(), "::borrows");
    let name = name.split_once("::").unwrap().1;
    let text = format!(
        "#!/bin/sh\nexec {} --ignored --exact {name} --nocapture\n",
        own.display()
    );
    let path = folder.join("borrow");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Box::leak(path.display().to_string().into_boxed_str())
}

/// A file system in which each name is a file that can be opened. Who closes one waits until this is dropped.
struct Files(PathBuf);

fn mount_files(folder: &Path) -> Files {
    // SAFETY: this thread alone has other mounts from here on, and no descriptors of its own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).unwrap();
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let options = CString::new(options).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("files", folder, "fuse", flags, Some(options.as_c_str())).unwrap();
    thread::spawn(move || serve(device));
    Files(folder.into())
}

impl Drop for Files {
    fn drop(&mut self) {
        // Who waits for it is told that it is not there.
        unmount(&self.0, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
    }
}

/// Answers the kernel (linux/fuse.h).
fn serve(mut device: File) {
    const LOOKUP: u32 = 1;
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const OPEN: u32 = 14;
    const RELEASE: u32 = 18;
    const FLUSH: u32 = 25;
    const INIT: u32 = 26;
    const INTERRUPT: u32 = 36;
    const NOSYS: i32 = -38;
    let attributes = |node: u64| {
        let mode: u32 = if node == 1 { 0o40_755 } else { 0o100_666 };
        let mut words = vec![0u8; 88];
        words[..8].copy_from_slice(&node.to_ne_bytes());
        words[60..64].copy_from_slice(&mode.to_ne_bytes());
        words[64..68].copy_from_slice(&1u32.to_ne_bytes());
        words
    };
    let mut question = vec![0; 1 << 17];
    while let Ok(length) = device.read(&mut question) {
        let word = |at: usize| u32::from_ne_bytes(question[at..at + 4].try_into().unwrap());
        let long = |at: usize| u64::from_ne_bytes(question[at..at + 8].try_into().unwrap());
        assert!(length >= 40);
        let (unique, node) = (long(8), long(16));
        let (error, answer) = match word(4) {
            FORGET | RELEASE | FLUSH | INTERRUPT => continue,
            INIT => {
                let mut answer = vec![0; 64];
                answer[..4].copy_from_slice(&7u32.to_ne_bytes());
                answer[4..8].copy_from_slice(&31u32.to_ne_bytes());
                answer[20..24].copy_from_slice(&65_536u32.to_ne_bytes());
                (0, answer)
            }
            LOOKUP => {
                let mut answer = vec![0; 40];
                answer[..8].copy_from_slice(&2u64.to_ne_bytes());
                answer.extend(attributes(2));
                (0, answer)
            }
            GETATTR => {
                let mut answer = vec![0; 16];
                answer.extend(attributes(node));
                (0, answer)
            }
            OPEN => (0, vec![0; 16]),
            _ => (NOSYS, Vec::new()),
        };
        let mut all = Vec::new();
        all.extend((16 + answer.len() as u32).to_ne_bytes());
        all.extend(error.to_ne_bytes());
        all.extend(unique.to_ne_bytes());
        all.extend(answer);
        if device.write_all(&all).is_err() {
            return;
        }
    }
}

/// A process that has opened this file. No other may have it open, not even for a moment: it would have to close it.
fn process(file: &Path) -> (Child, OwnedFd, Question) {
    let path = file.to_owned();
    let opened = move || -> io::Result<()> {
        let _ = open(&path, OFlags::RDONLY, Mode::empty())?.into_raw_fd();
        Ok(())
    };
    let mut sleeper = Command::new("sleep");
    // SAFETY: calls the kernel alone.
    unsafe { sleeper.pre_exec(opened) };
    let child = sleeper.arg("1000").spawn().unwrap();
    let number = Pid::from_raw(child.id().cast_signed()).unwrap();
    let is_it = |entry: &DirEntry| std::fs::read_link(entry.path()).is_ok_and(|it| it == file);
    let files = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let its = files.flatten().find(is_it).unwrap().file_name();
    let question = Question {
        pid: child.id(),
        groups: vec![(its.to_str().unwrap().parse().unwrap(), 0xc1d0_0001, 5)],
        slice: 0,
    };
    let pidfd = pidfd_open(number, PidfdFlags::empty()).unwrap();
    (child, pidfd, question)
}

/// Asks until there is an answer or a user keeps it: other tests take files and programs from a new process for a moment.
fn ask(borrower: &Borrower, process: &OwnedFd, question: &Question) -> Result<Answer, NoAnswer> {
    loop {
        match borrower.ask(process, question) {
            Err(NoAnswer::Passing) => thread::sleep(Duration::from_millis(10)),
            answer => return answer,
        }
    }
}

#[test]
fn a_file_named_like_the_drivers_hangs_no_monitor() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = program(folder.path());
    let (one, other) = (Borrower::of(program), Borrower::of(program));
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    let mounted = mount_files(&files);
    let (mut hostile, its, of_hostile) = process(&files.join("nvidiactl"));
    let (mut honest, own, of_honest) = process(Path::new("/dev/full"));

    assert_eq!(ask(&one, &its, &of_hostile), Err(NoAnswer::Kept));
    // Nobody waits for it any more, nor for its end.
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(ask(&one, &its, &of_hostile), Err(NoAnswer::Kept));
        assert_eq!(ask(&one, &own, &of_honest), Err(NoAnswer::Kept));
    }
    let refused = ask(&other, &own, &of_honest).unwrap();
    assert!(refused.own.is_empty() && refused.refusal.is_some());
    assert!(begun.elapsed() < Duration::from_secs(10));
    // It was ended, and has not gone.
    let mut state = one.state();
    let State::Kept(helper) = &mut *state else {
        panic!();
    };
    assert!(helper.try_wait().unwrap().is_none());
    drop(state);

    // When the file system has gone, so has the helper, and the user is asked again.
    drop(mounted);
    while ask(&one, &own, &of_honest) == Err(NoAnswer::Kept) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(ask(&one, &own, &of_honest), Ok(refused));
    for child in [&mut hostile, &mut honest] {
        let _ = child.kill();
        child.wait().unwrap();
    }
}
