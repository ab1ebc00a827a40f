//! Packs with a control program that stands for NVIDIA's.

use super::*;
use rustix::io::Errno;
use softmig_node::node::Node;
use std::fs::{self, DirEntry};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

const GPU: &str = "GPU-07070707-0707-0707-0707-070707070707";
const PACK: &str = "uid-2001";
/// The numbers of processes that have ended begin here: Linux has none so large.
const GONE: u32 = 1 << 22;
/// What a supervisor of a test has for its folder.
const FOLDER: &str = "TEST_PACK_FOLDER";

/// What the program of a test's daemon has its process do.
#[test]
#[ignore = "it is a supervisor"]
fn supervises() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    // It is run/packs/GPU/PACK of the test's folder.
    let site = folder.ancestors().nth(4).unwrap();
    let node = Node::in_folder(site, rustix::process::getuid().as_raw());
    if let Err(error) = supervise(&node, &folder) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

/// The packs of a test, whose supervisors end with it.
struct Site {
    packs: Packs,
    gpu: PathBuf,
}

impl Deref for Site {
    type Target = Packs;

    fn deref(&self) -> &Packs {
        &self.packs
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        // A fault leaves a file.
        let is_server = |it: io::Result<DirEntry>| it.is_ok_and(|it| it.path().is_dir());
        let is_any = || fs::read_dir(&self.gpu).is_ok_and(|mut all| all.any(is_server));
        while is_any() && Instant::now() < end {
            self.packs.round(|_| Ok([].into()));
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A node whose control program does what this script does.
fn packs(folder: &Path, control: &str) -> Site {
    let write = |name: &str, text: String| -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let bin = folder.join("bin");
    fs::create_dir(&bin).unwrap();
    if !control.is_empty() {
        write(
            "bin/nvidia-cuda-mps-control",
            format!("#!/bin/sh\n{control}\n"),
        );
    }
    let own = std::env::current_exe().unwrap();
    let name = concat!(module_path!(), "::supervises");
    let name = name.split_once("::").unwrap().1;
    let text = format!(
        "#!/bin/sh\nPATH={}:/usr/bin:/bin\nexport PATH {FOLDER}=\"$2\"\nexec {} --ignored --exact {name} --nocapture >/dev/null 2>&1\n",
        bin.display(),
        own.display()
    );
    let program = write("daemon", text).display().to_string();
    let node = Node::in_folder(folder, rustix::process::getuid().as_raw());
    fs::create_dir(&node.run).unwrap();
    Site {
        packs: Packs::new(&node, Box::leak(program.into_boxed_str())),
        gpu: node.run.join("packs").join(GPU),
    }
}

/// A server that is there until it is ended, and says what is written into a file.
const SERVER: &str = "cd $CUDA_MPS_PIPE_DIRECTORY\n[ $CUDA_VISIBLE_DEVICES = GPU-07070707-0707-0707-0707-070707070707 ] || exit 3\n\
    touch control\nwhile [ ! -e said ]; do sleep 0.05; done\ncat said\nsleep 60 & wait $!";

fn key(pack: &str) -> (String, String) {
    (GPU.to_owned(), pack.to_owned())
}

fn enter(packs: &Packs, process: u32) -> Result<String, Errno> {
    let folder = packs.enter(&key(PACK), process, || Ok([2001].into()))?;
    Ok(folder.file_name().unwrap().to_str().unwrap().to_owned())
}

#[test]
fn a_pack_has_one_server_which_its_user_alone_reaches() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let packs = packs(folder.path(), SERVER);
    assert_eq!(enter(&packs, GONE + 1).as_deref(), Ok("uid-2001-1"));
    assert_eq!(enter(&packs, GONE + 2).as_deref(), Ok("uid-2001-1"));
    let other = packs
        .enter(&key("uid-2002"), GONE + 3, || Ok([2002].into()))
        .unwrap();
    assert!(other.ends_with("uid-2002-1"));
    // What the mode shows as the group's is the access list's.
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&other), 0o750);
    assert_eq!(mode(other.parent().unwrap()), 0o711);
    assert_eq!(mode(&other.join("supervisor")), 0o600);
    // Nobody else, also by a descriptor that is left from before.
    assert_eq!(mode(&other.join("control")), 0o660);
    // Its jobs go on: so does it.
    packs.round(|its| Ok((*its == key(PACK)).then_some(2001).into_iter().collect()));
    assert_eq!(enter(&packs, GONE + 4).as_deref(), Ok("uid-2001-1"));
    let end = Instant::now() + Duration::from_secs(20);
    while fs::read_dir(&packs.gpu).unwrap().next().is_some() {
        packs.round(|_| Ok([].into()));
        assert!(Instant::now() < end, "they do not end");
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(enter(&packs, GONE + 5).as_deref(), Ok("uid-2001-1"), "anew");
}

#[test]
fn the_next_daemon_goes_on_with_the_servers_that_are_there() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let first = packs(folder.path(), SERVER);
    assert_eq!(enter(&first, GONE + 1).as_deref(), Ok("uid-2001-1"));
    let node = Node::in_folder(folder.path(), rustix::process::getuid().as_raw());
    let next = Packs::new(&node, "/nonexistent");
    assert_eq!(enter(&next, GONE + 2).as_deref(), Ok("uid-2001-1"));
}

#[test]
fn after_a_fault_there_is_another_server() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let packs = packs(folder.path(), SERVER);
    assert_eq!(enter(&packs, GONE + 1).as_deref(), Ok("uid-2001-1"));
    let first = packs.gpu.join("uid-2001-1");
    let line = "[Server 7] Client {PID: 4000000, Context: 1} encountered a fatal GPU error.\n";
    fs::write(first.join("said"), line).unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while enter(&packs, GONE + 2).as_deref() != Ok("uid-2001-2") {
        assert!(Instant::now() < end, "the same server still");
        thread::sleep(Duration::from_millis(20));
    }
    let events = fs::read_to_string(folder.path().join("log/events.jsonl")).unwrap();
    assert!(events.contains("\"event\":\"pack_fault\""), "{events}");
}

#[test]
fn a_server_takes_no_more_clients_than_it_can() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let packs = packs(folder.path(), SERVER);
    let start = |_| Command::new("sleep").arg("600").spawn().unwrap();
    let mut processes: Vec<Child> = (0..41).map(start).collect();
    let numbers: Vec<u32> = processes.iter().map(Child::id).collect();
    let (last, first) = numbers.split_last().unwrap();
    for &process in first {
        assert_eq!(enter(&packs, process).as_deref(), Ok("uid-2001-1"));
    }
    assert_eq!(enter(&packs, *last), Err(Errno::USERS));
    let again = enter(&packs, first[7]);
    assert_eq!(again.as_deref(), Ok("uid-2001-1"), "it asks again");
    let end = |process: &mut Child| {
        process.kill().unwrap();
        process.wait().unwrap();
    };
    end(&mut processes[3]);
    let after_one = enter(&packs, *last);
    assert_eq!(after_one.as_deref(), Ok("uid-2001-1"), "one has ended");
    processes.iter_mut().for_each(end);
}

#[test]
fn without_the_control_program_there_is_no_server_and_it_is_not_tried_again_at_once() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let packs = packs(folder.path(), "");
    assert_eq!(enter(&packs, GONE + 1), Err(Errno::NOSYS));
    let begun = Instant::now();
    for process in 0..1000 {
        assert_eq!(enter(&packs, process), Err(Errno::NOSYS));
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    let process = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    );
    use std::os::fd::AsFd;
    let kept = packs.keep(&key(PACK), (1, process.unwrap().as_fd()), 7);
    assert_eq!(kept, Err(Errno::NODEV));
}

#[test]
fn those_reach_a_server_who_have_jobs_in_its_pack_now() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let packs = packs(folder.path(), SERVER);
    let pack = PackId::Account(7).folder();
    let enter = |users: &[u32]| {
        let users = || Ok(users.iter().copied().collect());
        let entered = packs.enter(&key(&pack), GONE + 1, users).unwrap();
        let mut list = [0_u8; 256];
        let name = "system.posix_acl_access";
        let length = rustix::fs::getxattr(&entered, name, &mut list[..]).unwrap();
        // Each entry has a kind, rights and a number; the named users' kind is 2.
        let entries = list[4..length].chunks(8).filter(|entry| entry[0] == 2);
        let number = |entry: &[u8]| u32::from_le_bytes(entry[4..].try_into().unwrap());
        let visitors: Vec<u32> = entries.map(number).collect();
        (entered, visitors)
    };
    let (first, visitors) = enter(&[2001]);
    assert!(first.ends_with("a-0000000000000007-1"));
    assert_eq!(visitors, [2001]);
    assert_eq!(enter(&[2001, 2002]), (first.clone(), vec![2001, 2002]));
    assert_eq!(enter(&[2002]), (first, vec![2002]));
}
