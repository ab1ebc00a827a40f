//! A process with a seat that always wants the GPU.
//!
//! It is this test program itself, started anew ([`Client::start`]), and prints a line whenever the arbiter has polled it.

use memmap2::MmapRaw;
use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketType, connect, recvmsg, send, socket,
};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};
use softmig_region::seat::{ANSWER, Request, Seat, Version};
use std::io::{BufRead, BufReader, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How this program knows that it is a client, and where the arbiter is.
pub const SOCKET: &str = "SOFTMIG_TEST_SOCKET";
/// The kinds of clients.
pub const KIND: &str = "SOFTMIG_TEST_KIND";

/// When an arbiter that says nothing is gone.
const GONE: u64 = 300_000_000;

pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

pub fn connected(path: &Path) -> std::io::Result<OwnedFd> {
    let socket = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Asks for a seat.
pub fn ask(path: &Path, request: &[u8]) -> std::io::Result<(i32, Option<OwnedFd>)> {
    let socket = connected(path)?;
    send(&socket, request, SendFlags::NOSIGNAL)?;
    take(&socket)
}

/// Takes the answer.
pub fn take(socket: &OwnedFd) -> std::io::Result<(i32, Option<OwnedFd>)> {
    let mut bytes = [0; ANSWER];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut data = [IoSliceMut::new(&mut bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let length = recvmsg(socket, &mut data, &mut beside, flags)?.bytes;
    assert_eq!(length, ANSWER);
    let page = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    Ok((i32::from_le_bytes(bytes), page))
}

pub struct Sat {
    map: MmapRaw,
}

impl Sat {
    pub fn at(file: &OwnedFd) -> Self {
        let map = MmapRaw::map_raw(file).unwrap();
        Self { map }
    }

    pub fn seat(&self) -> &Seat {
        // SAFETY: mapped as long as `self` lives, and sealed.
        unsafe { Seat::at(self.map.as_ptr()) }.unwrap()
    }

    /// Asks until there is an arbiter.
    fn down(path: &Path, gpu: [u8; 16]) -> Self {
        loop {
            let version = Version::Cap;
            if let Ok((0, Some(file))) = ask(path, &Request { version, gpu }.to_bytes()) {
                return Self::at(&file);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn wake(&self) {
        let seat = self.seat();
        seat.wakes().fetch_add(1, SeqCst);
        futex::wake(seat.wakes(), futex::Flags::empty(), u32::MAX >> 1).unwrap();
    }

    /// Wakes the arbiter, and waits until it was polled; `None` when the arbiter is gone.
    pub fn be_polled(&self) -> Option<u64> {
        let seat = self.seat();
        let (begun, before) = (now(), seat.heartbeat().load(SeqCst));
        self.wake();
        loop {
            let polled = seat.heartbeat().load(SeqCst);
            if polled > before {
                return Some(polled);
            }
            if now() - begun > GONE {
                return None;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    let told = writeln!(out, "{line}").and_then(|()| out.flush());
    // The test that wants to know is gone.
    if told.is_err() {
        std::process::exit(0);
    }
}

/// The doings of the started program.
pub fn run() {
    let Some(path) = std::env::var_os(SOCKET) else {
        return;
    };
    let path = Path::new(&path);
    let kind = std::env::var(KIND).unwrap();
    if kind == "arbiter" {
        return super::be_an_arbiter(path.into());
    }
    let mut go = String::new();
    std::io::stdin().read_line(&mut go).unwrap();
    if kind == "garbage" {
        return write_garbage(&Sat::down(path, super::GPU));
    }
    loop {
        let sat = Sat::down(path, super::GPU);
        tell("sat");
        sat.seat().wants_gpu().store(1, SeqCst);
        while let Some(time) = sat.be_polled() {
            tell(&format!("polled {time}"));
            std::thread::sleep(Duration::from_millis(1));
        }
        tell("gone");
    }
}

/// Everything that it may write to, with anything, and waking the arbiter as fast as it can.
fn write_garbage(sat: &Sat) {
    tell("sat");
    let mut bits = 0x9e37_79b9_7f4a_7c15u64;
    loop {
        for at in 0..Seat::SIZE / 4 {
            bits ^= bits << 13;
            bits ^= bits >> 7;
            bits ^= bits << 17;
            let start = sat.map.as_mut_ptr().cast::<u32>();
            // SAFETY: within the page.
            let word = unsafe { start.add(at) };
            // SAFETY: all other readers use atomics too.
            let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(word) };
            word.store(bits as u32, SeqCst);
        }
        sat.wake();
    }
}

/// A client as its test sees it. It ends with it.
pub struct Client {
    child: Child,
    lines: Receiver<String>,
}

impl Client {
    /// Starts one, which does nothing before it is told to go.
    pub fn start(socket: &Path, kind: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "client", "--ignored", "--nocapture"])
            .env(SOCKET, socket)
            .env(KIND, kind)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn go(&mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        self.wait_for("sat");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for a line that begins so.
    pub fn wait_for(&self, start: &str) -> String {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap();
            // The test harness writes its own words in the same line as the first one.
            if let Some(at) = line.find(start) {
                return line[at..].to_owned();
            }
        }
    }

    /// Waits until it was polled after that.
    pub fn wait_until_polled_after(&self, time: u64) {
        loop {
            let line = self.wait_for("polled");
            let (_, polled) = line.split_once(' ').unwrap();
            if polled.parse::<u64>().unwrap() >= time {
                return;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
