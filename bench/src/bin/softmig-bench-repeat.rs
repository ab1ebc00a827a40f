//! Runs commands in turns, again and again, and prints how many nanoseconds each took: a line for each command.
//!
//! `softmig-bench-repeat [--number VARIABLE] [--journal] TIMES -- COMMAND... [-- COMMAND...]`
//!
//! It runs inside a test machine, so it measures fork, exec and the command, and no way into the machine. The
//! variable counts the turns. Words with a `=` before a command are variables of its environment, as in a shell. With
//! `--journal` it listens on journald's socket.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Where programs send what they log on a machine with systemd.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The first turns only fill caches.
const WARM_UP: u32 = 3;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("softmig-bench-repeat: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = words.split(|word| word == "--");
    let (mut number, mut times) = (None, 0);
    let mut options = parts.next().unwrap_or_default().iter();
    while let Some(option) = options.next() {
        match option.as_str() {
            "--number" => number = options.next(),
            "--journal" => listen()?,
            count => times = count.parse()?,
        }
    }
    let commands: Vec<&[String]> = parts.collect();
    let mut taken = vec![Vec::new(); commands.len()];
    for turn in 0..WARM_UP + times {
        for (command, taken) in commands.iter().zip(&mut taken) {
            let nanoseconds = once(command, number, turn)?;
            if turn >= WARM_UP {
                taken.push(nanoseconds.to_string());
            }
        }
    }
    for taken in taken {
        println!("{}", taken.join(" "));
    }
    Ok(())
}

fn once(words: &[String], number: Option<&String>, turn: u32) -> Result<u128, Failure> {
    let variables = words.iter().map_while(|word| word.split_once('='));
    let (_, words) = words.split_at(variables.clone().count());
    let (program, arguments) = words.split_first().ok_or("a command is missing")?;
    let mut command = Command::new(program);
    command
        .envs(variables)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    if let Some(variable) = number {
        command.env(variable, (1 + turn).to_string());
    }
    let start = Instant::now();
    let status = command.status()?;
    let taken = start.elapsed();
    if !status.success() {
        return Err(format!("{words:?}: {status}").into());
    }
    Ok(taken.as_nanos())
}

/// Takes what is logged and drops it.
fn listen() -> Result<(), Failure> {
    let path = std::path::Path::new(JOURNAL);
    std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
    let journal = UnixDatagram::bind(path)?;
    std::thread::spawn(move || {
        let mut datagram = [0; 4096];
        while journal.recv(&mut datagram).is_ok() {}
    });
    Ok(())
}
