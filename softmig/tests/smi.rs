//! `softmig smi` in nvidia-smi's place: a script is the real one, and processes of one `softmig run` are the caller's.
//! The tests beside the filter say which lines it takes out of which form.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// A folder in which softmig is called nvidia-smi and a script is what was there before.
struct Place {
    folder: TempDir,
    /// A process of the caller's own, and one of another user.
    processes: [Child; 2],
}

impl Place {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("nvidia-smi.real");
        std::fs::write(&real, script).unwrap();
        std::fs::set_permissions(&real, PermissionsExt::from_mode(0o755)).unwrap();
        let softmig = env!("CARGO_BIN_EXE_softmig");
        symlink(softmig, folder.path().join("nvidia-smi")).unwrap();
        let processes = ["a", "b"].map(|run| {
            let mut sleep = Command::new("sleep");
            sleep.arg("600").env("SOFTMIG_RUN", run).spawn().unwrap()
        });
        Self { folder, processes }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// nvidia-smi as a user calls it who knows nothing of softmig. The script finds the processes in `$OWN` and
    /// `$OTHER`.
    fn command(&self, words: &[&str]) -> Command {
        self.command_of("nvidia-smi", words)
    }

    fn command_of(&self, name: &str, words: &[&str]) -> Command {
        self.command_named(self.path(name), words)
    }

    fn command_named(&self, program: PathBuf, words: &[&str]) -> Command {
        let [own, other] = self
            .processes
            .each_ref()
            .map(|child| child.id().to_string());
        let mut command = Command::new(program);
        command
            .args(words)
            .env("SOFTMIG_RUN", "a")
            .env("OWN", own)
            .env("OTHER", other)
            .stdin(Stdio::null());
        command
    }

    fn output(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Its output, with `OWN` and `OTHER` for the processes.
    fn stdout(&self, words: &[&str]) -> String {
        self.named(&String::from_utf8(self.output(words).stdout).unwrap())
    }

    fn named(&self, text: &str) -> String {
        let [own, other] = self
            .processes
            .each_ref()
            .map(|child| child.id().to_string());
        text.replace(&own, "OWN").replace(&other, "OTHER")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for child in &mut self.processes {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Two rows for pmon; the longer name is the caller's.
const PMON: &str = "#!/bin/sh\n\
    echo '# gpu  pid  type  command'\n\
    echo \"    0  $OWN  C  mine   \"\n\
    echo \"    0  $OTHER  C  his    \"\n";

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn rows_of_others_are_left_out() {
    let place = Place::new(PMON);
    assert_eq!(
        place.stdout(&["pmon"]),
        "# gpu  pid  type  command\n    0  OWN  C  mine   \n"
    );
}

#[test]
fn by_its_own_name_softmig_does_the_same() {
    let place = Place::new(PMON);
    symlink(env!("CARGO_BIN_EXE_softmig"), place.path("softmig")).unwrap();
    let mut command = place.command_of("softmig", &["smi", "pmon"]);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert_eq!(place.named(&said).lines().count(), 2, "{said}");
}

#[test]
fn the_moved_one_is_found_beside_a_relative_name() {
    let place = Place::new(PMON);
    // The name is looked for in the working folder of the new process.
    let mut command = place.command_named("./nvidia-smi".into(), &["pmon"]);
    let output = command.current_dir(place.folder.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().count(), 2, "{said}");
}

#[test]
fn a_query_is_asked_for_the_process_id_and_does_not_show_it() {
    let place = Place::new(
        "#!/bin/sh\n\
         echo \"$@\" >\"$(dirname \"$0\")/words\"\n\
         echo \"pid, process_name\"; echo \"$OWN, mine\"; echo \"$OTHER, his\"\n",
    );
    let words = ["-i", "0", "--query-compute-apps=name", "--format=csv"];
    assert_eq!(place.stdout(&words), "process_name\nmine\n");
    assert_eq!(
        read(&place.path("words")),
        "-i 0 --query-compute-apps=pid,name --format=csv\n"
    );
}

#[test]
fn words_standard_input_and_standard_error_are_nvidia_smis() {
    let place =
        Place::new("#!/bin/sh\nfor word; do echo \"<$word>\"; done\ncat\necho no >&2\nexit 9\n");
    let file = place.path("input");
    std::fs::write(&file, "typed\n").unwrap();
    for words in [&["--help", "a b", ""][..], &["dmon", "--", "-x"]] {
        let mut command = place.command(words);
        let output = command.stdin(File::open(&file).unwrap()).output().unwrap();
        let mut shown: String = words.iter().map(|word| format!("<{word}>\n")).collect();
        shown += "typed\n";
        assert_eq!(String::from_utf8(output.stdout).unwrap(), shown);
        assert_eq!(output.stderr, b"no\n");
        assert_eq!(output.status.code(), Some(9));
    }
}

#[test]
fn bytes_that_are_no_text_and_an_open_line_pass() {
    let place = Place::new("#!/bin/sh\nprintf 'a\\377\\000b\\r\\n\\n| Pro'\n");
    assert_eq!(place.output(&[]).stdout, b"a\xff\0b\r\n\n| Pro");
}

#[test]
fn the_end_by_a_signal_is_passed_on() {
    for (name, number) in [("SEGV", 11), ("TERM", 15), ("KILL", 9), ("PIPE", 13)] {
        let place = Place::new(&format!("#!/bin/sh\necho first\nkill -{name} $$\n"));
        let output = place.output(&[]);
        assert_eq!(output.stdout, b"first\n");
        assert_eq!(output.status.signal(), Some(number), "{output:?}");
    }
}

/// Starts it with a pipe at each end.
fn start(place: &Place, words: &[&str]) -> Child {
    let mut command = place.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Reads as many bytes as these, and compares them.
fn expect(child: &mut Child, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut read)
        .unwrap();
    assert_eq!(read, bytes);
}

#[test]
fn a_signal_reaches_nvidia_smi_which_says_how_it_ends() {
    let place = Place::new(
        "#!/bin/sh\ntrap 'echo bye; exit 5' TERM\necho ready\nwhile :; do sleep 0.05; done\n",
    );
    let mut child = start(&place, &[]);
    expect(&mut child, b"ready\n");
    let softmig = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(softmig, rustix::process::Signal::TERM).unwrap();
    expect(&mut child, b"bye\n");
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn a_question_is_shown_before_its_line_ends() {
    let place = Place::new("#!/bin/sh\nprintf 'Sure? '\nread answer\necho \"$answer it is\"\n");
    let mut child = start(&place, &[]);
    expect(&mut child, b"Sure? ");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"yes\n").unwrap();
    expect(&mut child, b"yes it is\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn samples_come_as_nvidia_smi_takes_them() {
    // It goes on when the test has seen the sample before.
    let place = Place::new(
        "#!/bin/sh\n\
         echo '# gpu  pid  type  command'\n\
         for sample in 1 2; do echo \"    0  $OTHER  C  his    \"; read go; done\n",
    );
    let mut child = start(&place, &["pmon"]);
    expect(&mut child, b"# gpu  pid  type  command\n");
    let [_, other] = place
        .processes
        .each_ref()
        .map(|child| child.id().to_string());
    let idle = format!("    0  {}  -  -      \n", " ".repeat(other.len() - 1) + "-");
    for _ in 0..2 {
        expect(&mut child, idle.as_bytes());
        child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn when_the_reader_is_gone_nvidia_smi_ends_as_it_would() {
    let place = Place::new("#!/bin/sh\nwhile :; do echo line; sleep 0.05; done\n");
    let mut child = start(&place, &[]);
    expect(&mut child, b"line\n");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().signal(), Some(13));
}

/// Writes to standard output until it has read its options, and then to its file, as nvidia-smi does.
const TO_FILE: &str = "#!/bin/sh\n\
    echo early\n\
    [ \"$1\" = pmon ] && shift\n\
    case $1 in -f) file=$2;; --filename=*) file=${1#*=};; esac\n\
    exec >\"$file\" || exit 7\n\
    echo '# gpu  pid  type  command'\n\
    echo \"    0  $OWN  C  mine   \"\n\
    echo \"    0  $OTHER  C  his    \"\n";

#[test]
fn what_goes_to_a_file_is_filtered_on_its_way() {
    let place = Place::new(TO_FILE);
    let file = place.path("log");
    std::fs::write(
        &file,
        "what was in it before, and more of it than will be\n".repeat(9),
    )
    .unwrap();
    let long = format!("--filename={}", file.display());
    for words in [
        &["pmon", "-f", file.to_str().unwrap()][..],
        &["pmon", &long],
    ] {
        assert_eq!(place.stdout(words), "early\n");
        assert_eq!(
            place.named(&read(&file)),
            "# gpu  pid  type  command\n    0  OWN  C  mine   \n"
        );
    }
}

#[test]
fn a_file_that_cannot_be_written_is_nvidia_smis_to_complain_of() {
    let place = Place::new(TO_FILE);
    let output = place.output(&["pmon", "-f", "/nonexistent/log"]);
    assert_eq!(output.stdout, b"early\n");
    assert_ne!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("/nonexistent/log") && !said.contains("softmig"),
        "{said}"
    );
}

#[test]
fn a_full_disk_is_said() {
    let place = Place::new(PMON);
    let mut command = place.command(&["pmon"]);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
}

#[test]
fn where_nothing_is_left_out_softmig_stands_aside() {
    let place = Place::new("#!/bin/sh\necho $$ $PPID\n");
    for (words, run) in [
        (&[][..], None),
        (&["dmon"], Some("a")),
        (&["topo", "-m"], Some("a")),
    ] {
        let mut command = place.command(words);
        match run {
            Some(run) => command.env("SOFTMIG_RUN", run),
            None => command.env_remove("SOFTMIG_RUN"),
        };
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let process = format!("{} {}\n", child.id(), std::process::id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            process,
            "{words:?}"
        );
    }
}

#[test]
fn a_program_that_cannot_be_run_is_named() {
    let place = Place::new("#!/nonexistent/shell\n");
    for words in [&[][..], &["dmon"]] {
        let output = place.output(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(126), "{said}");
        assert!(
            said.starts_with("softmig smi: ") && said.contains("nvidia-smi.real"),
            "{said}"
        );
    }
}
