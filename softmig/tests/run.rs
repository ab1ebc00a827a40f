//! `softmig run` as a user runs it, with a library in the place of softmig's that does nothing. The real one is tested
//! in tests/, on machines made for it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rustix::fs::{FlockOperation, fcntl_lock};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A library that this process has and every other one has too: the C library.
fn library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut paths = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]));
    paths.find(|path| path.contains("/libc.so")).unwrap().into()
}

/// A user's session, with a folder of its own.
struct Session(tempfile::TempDir);

impl Session {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        Self(folder)
    }

    /// Where the folders of runs are.
    fn base(&self) -> PathBuf {
        self.0.path().join("softmig")
    }

    /// The folders of runs that are there.
    fn runs(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.base()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// With a terminal's signals, also where the tests run with some of them ignored.
    fn command(&self, words: &[&str]) -> Command {
        let mut by = Command::new("env");
        by.args(["--default-signal", env!("CARGO_BIN_EXE_softmig")]);
        self.by(by, words)
    }

    fn by(&self, mut command: Command, words: &[&str]) -> Command {
        command
            .arg("run")
            .arg("--library")
            .arg(library())
            .args(words)
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env_remove("LD_PRELOAD")
            .env_remove("SOFTMIG_RUN")
            .env_remove("SOFTMIG_LOG_LEVEL")
            .env_remove("LIBCUDA_LOG_LEVEL");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Starts a shell with a limit, quietly, and waits until it has said its first line.
    fn start(&self, script: &str) -> (Child, BufReader<impl Read + use<>>) {
        let words = ["--memory=4g", "-q", "--", "sh", "-c", script];
        let mut child = self
            .command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        (child, stdout)
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn send(child: &Child, signal: &str) {
    let kill = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
}

/// Waits for something that another process does.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within half a minute: {what}");
}

#[test]
fn the_command_gets_limits_and_a_ledger() {
    let session = Session::new();
    let script = "echo $CUDA_DEVICE_MEMORY_LIMIT $CUDA_DEVICE_SM_LIMIT; stat -c '%a %F %s' $SOFTMIG_RUN; \
                  env | grep -c LIMIT_ ; echo $LD_PRELOAD; cat; exit 7";
    let output = session
        .command(&[
            "--memory",
            "4g",
            "--compute",
            "12.5%",
            "--",
            "sh",
            "-c",
            script,
        ])
        .env("CUDA_DEVICE_MEMORY_LIMIT_0", "1g")
        .env("CUDA_DEVICE_SM_LIMIT_31", "5")
        .env("CUDA_DEVICE_SM_LIMIT", "5")
        .env("LD_PRELOAD", "libc.so.6")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let size = softmig_region::size(8);
    assert_eq!(
        stdout(&output),
        format!(
            "4096M 12.5\n600 regular file {size}\n0\n{}:libc.so.6\n",
            library().display()
        )
    );
    assert_eq!(
        stderr(&output),
        "softmig: all processes of this run together may hold 4096 MiB of each GPU\n\
         softmig: all processes of this run together may have 12.5 % of each GPU's time\n"
    );
    assert_eq!(session.runs(), Vec::<PathBuf>::new());
    let base = session.base().metadata().unwrap();
    assert_eq!(base.mode() & 0o777, 0o700);
}

#[test]
fn what_was_not_asked_for_is_no_limit() {
    let session = Session::new();
    let script = "echo ${CUDA_DEVICE_MEMORY_LIMIT-none} $CUDA_DEVICE_SM_LIMIT";
    let output = session
        .command(&["--compute=25", "-q", "sh", "-c", script])
        .env("CUDA_DEVICE_MEMORY_LIMIT", "1g")
        .output()
        .unwrap();
    assert_eq!(stdout(&output), "none 25\n");
    assert_eq!(stderr(&output), "");
}

#[test]
fn wrong_usage_runs_nothing_and_ends_with_2() {
    let session = Session::new();
    for (words, part) in [
        (
            &["--", "echo", "ran"][..],
            "--memory <SIZE>|--compute <PERCENT>",
        ),
        (&["--memory=4g"], "<CMD>"),
        (
            &["--memory=4x", "echo", "ran"],
            "unknown unit; use K, M or G",
        ),
        (&["--memory=0", "echo", "ran"], "zero"),
        (&["--memory=1k", "echo", "ran"], "less than 1 MiB"),
        (&["--compute=101", "echo", "ran"], "not a percentage"),
        (&["--compute=100", "echo", "ran"], "limits nothing"),
        (&["--memory=4g", "--gpu=1", "echo", "ran"], "--gpu"),
        (&["--memory=4g", ""], "empty"),
    ] {
        let output = session.run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        assert_eq!(stdout(&output), "", "{words:?}");
        assert!(stderr(&output).contains(part), "{words:?}: {output:?}");
    }
}

#[test]
fn a_library_that_is_none_is_refused() {
    let session = Session::new();
    for (file, part) in [
        ("/no/such.so", "No such file"),
        ("/etc/passwd", "not a shared library"),
        ("/", "not a shared library"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_softmig"))
            .args(["run", "--memory=4g", "--library", file, "echo", "ran"])
            .env("XDG_RUNTIME_DIR", session.0.path())
            .env_remove("SOFTMIG_RUN")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(part), "{output:?}");
    }
}

#[test]
fn a_run_in_a_run_is_refused() {
    let session = Session::new();
    let output = session
        .command(&["--memory=4g", "echo", "ran"])
        .env("SOFTMIG_RUN", "/tmp/ledger")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr(&output).contains("inside another run already (SOFTMIG_RUN=/tmp/ledger)"));
}

#[test]
fn a_command_that_cannot_be_run_ends_as_in_a_shell() {
    let session = Session::new();
    let missing = session.run(&["--memory=4g", "-q", "no-such-command"]);
    assert_eq!(missing.status.code(), Some(127), "{missing:?}");
    assert!(stderr(&missing).starts_with("softmig run: no-such-command: No such file"));
    let no_program = session.run(&["--memory=4g", "-q", "/etc/passwd"]);
    assert_eq!(no_program.status.code(), Some(126), "{no_program:?}");
    assert_eq!(session.runs(), Vec::<PathBuf>::new());
}

#[test]
fn a_command_that_a_signal_ended_ends_softmig_by_the_same() {
    let session = Session::new();
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("HUP", 1)] {
        let output = session.run(&["--memory=4g", "-q", "sh", "-c", &format!("kill -{name} $$")]);
        assert_eq!(output.status.signal(), Some(number), "{name}: {output:?}");
    }
    assert_eq!(session.runs(), Vec::<PathBuf>::new());
}

#[test]
fn signals_reach_the_command() {
    let session = Session::new();
    for signal in ["HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM"] {
        // A shell runs a trap at once only while it waits.
        let script =
            format!("trap 'echo got {signal}; exit 3' {signal}; echo ready; sleep 60 & wait $!");
        let (mut child, mut rest) = session.start(&script);
        let ledger = session.runs().pop().unwrap().join("ledger");
        send(&child, &format!("-{signal}"));
        let mut said = String::new();
        rest.read_line(&mut said).unwrap();
        assert_eq!(said, format!("got {signal}\n"));
        assert_eq!(child.wait().unwrap().code(), Some(3), "{signal}");
        end_those_with(&ledger);
    }
}

/// The processes that have this ledger in their environment.
fn processes_with(ledger: &Path) -> Vec<String> {
    let wanted = format!("SOFTMIG_RUN={}", ledger.display());
    let mut pids = Vec::new();
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(process.path().join("environ")).unwrap_or_default();
        let mut variables = environment.split(|byte| *byte == 0);
        if variables.any(|it| it == wanted.as_bytes()) {
            pids.push(process.file_name().into_string().unwrap());
        }
    }
    pids
}

/// Ends the processes that a test left in a run.
fn end_those_with(ledger: &Path) {
    for pid in processes_with(ledger) {
        let _ = Command::new("kill").arg(pid).stderr(Stdio::null()).status();
    }
}

#[test]
fn what_the_caller_ignores_stays_ignored() {
    let session = Session::new();
    let program = Command::new(env!("CARGO_BIN_EXE_softmig"));
    let words = ["--memory=4g", "-q", "sh", "-c", "kill -HUP $$; echo alive"];
    let softmig = session.by(program, &words);
    // The shell ignores it, and so does all that it becomes.
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    shell.arg(softmig.get_program()).args(softmig.get_args());
    for (name, value) in softmig.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    let output = shell.output().unwrap();
    assert_eq!(
        (output.status.code(), stdout(&output).as_str()),
        (Some(0), "alive\n")
    );
}

#[test]
fn the_log_of_the_run_is_told_at_its_end() {
    let session = Session::new();
    let script = "for i in $(seq 25); do echo line $i; done >$(dirname $SOFTMIG_RUN)/log";
    let output = session.run(&["--memory=4g", "-q", "sh", "-c", script]);
    let told = stderr(&output);
    assert_eq!(told.lines().count(), 21, "{told}");
    assert!(told.starts_with("line 1\nline 2\n"), "{told}");
    assert!(told.ends_with("line 20\nsoftmig: 5 more\n"), "{told}");
    // Anything may be there: it is neither followed nor waited for.
    for script in [
        "cd $(dirname $SOFTMIG_RUN); rm log; ln -s /etc/passwd log",
        "cd $(dirname $SOFTMIG_RUN); rm log; mkfifo log",
        "cd $(dirname $SOFTMIG_RUN); rm log",
    ] {
        let output = session.run(&["--memory=4g", "-q", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(!stderr(&output).contains("root:"), "{output:?}");
    }
    assert_eq!(session.runs(), Vec::<PathBuf>::new());
}

#[test]
fn a_run_keeps_its_folder_until_its_processes_are_gone() {
    let session = Session::new();
    let script = "setsid sleep 60 >/dev/null 2>&1 </dev/null & echo $SOFTMIG_RUN";
    let output = session.run(&["--memory=4g", "-q", "sh", "-c", script]);
    let ledger = PathBuf::from(stdout(&output).trim());
    assert!(
        stderr(&output).contains("processes of this run are still there"),
        "{output:?}"
    );
    // Another run leaves it alone.
    session.run(&["--memory=4g", "-q", "true"]);
    assert!(ledger.exists());
    end_those_with(&ledger);
    wait_until("the folder is gone", || {
        session.run(&["--memory=4g", "-q", "true"]);
        session.runs().is_empty()
    });
}

#[test]
fn a_folder_stays_while_a_process_of_its_run_lives() {
    let session = Session::new();
    let (mut killed, _) = session.start("echo ready; exec sleep 60");
    // Only its `softmig run` says that it is there.
    let (mut living, _) = session.start("echo ready; exec env -i sleep 60");
    send(&killed, "-KILL");
    killed.wait().unwrap();
    // Its command lives.
    session.run(&["--memory=4g", "-q", "true"]);
    let mut runs = session.runs();
    assert_eq!(runs.len(), 2);
    let pid = living.id().to_string();
    runs.retain(|run| !run.to_str().unwrap().contains(&format!("run-{pid}-")));
    end_those_with(&runs[0].join("ledger"));
    wait_until("the folder is gone", || {
        session.run(&["--memory=4g", "-q", "true"]);
        session.runs().len() == 1
    });
    send(&living, "-TERM");
    living.wait().unwrap();
    assert_eq!(session.runs(), Vec::<PathBuf>::new());
}

/// A process in a container may be out of sight; its lock is not.
#[test]
fn a_folder_whose_ledger_a_process_has_locked_stays() {
    let session = Session::new();
    let (mut killed, _rest) = session.start("echo ready; exec sleep 60");
    let ledger = session.runs()[0].join("ledger");
    send(&killed, "-KILL");
    killed.wait().unwrap();
    let file = std::fs::File::options().write(true).open(&ledger).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    end_those_with(&ledger);
    wait_until("the command is gone", || processes_with(&ledger).is_empty());
    session.run(&["--memory=4g", "-q", "true"]);
    assert!(ledger.exists());
    drop(file);
    session.run(&["--memory=4g", "-q", "true"]);
    assert_eq!(session.runs(), Vec::<PathBuf>::new());
}

#[test]
fn a_folder_that_others_could_change_is_refused() {
    type Spoil = fn(&Path);
    let spoilt: [(Spoil, &str); 4] = [
        (
            |base| symlink("/tmp", base).unwrap(),
            "is a link or no folder",
        ),
        (
            |base| std::fs::write(base, "").unwrap(),
            "is a link or no folder",
        ),
        (
            |base| {
                std::fs::create_dir(base).unwrap();
                std::fs::set_permissions(base, PermissionsExt::from_mode(0o777)).unwrap();
            },
            "can be written to by others; use 'chmod 700 ",
        ),
        (
            |base| {
                std::fs::create_dir(base).unwrap();
                std::os::unix::fs::chown(base, Some(65534), None).unwrap();
            },
            "belongs to another user",
        ),
    ];
    for (spoil, part) in spoilt {
        let session = Session::new();
        let is_root = session.0.path().metadata().unwrap().uid() == 0;
        if part.contains("another user") && !is_root {
            continue;
        }
        spoil(&session.base());
        let output = session.run(&["--memory=4g", "echo", "ran"]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr(&output).contains(part), "{output:?}");
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_session_that_is_not_the_users_own_is_passed_over() {
    let session = Session::new();
    std::fs::set_permissions(session.0.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let output = session.run(&["--memory=4g", "-q", "sh", "-c", "echo $SOFTMIG_RUN"]);
    assert!(stdout(&output).starts_with("/tmp/softmig-"), "{output:?}");
    assert!(!session.base().exists());
}

#[test]
fn a_program_that_the_library_cannot_be_in_is_named() {
    let session = Session::new();
    let program = session.0.path().join("static");
    // A program without any part asks for no loader, and ends at once or cannot be run.
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(64, 0);
    std::fs::write(&program, head).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let output = session.run(&["--memory=4g", program.to_str().unwrap()]);
    assert!(
        stderr(&output).contains(
            "static: no limit holds in this program itself, because it is statically linked"
        ),
        "{output:?}"
    );
}
