//! Where processes come in and where their deaths are heard of: one thread, which waits for everything at once.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

use super::jobs::{Client, Doorkeeper};
use super::socket::{Listener, answer, receive};
use super::{GpuId, Gpus, Settings, gpu};
use crate::turns::{Nanos, SeatId};

/// How long a client may take to ask.
const PATIENCE: Nanos = 1_000_000_000;
/// How many may have connected without having asked yet, in all and of one user.
const MOST_SILENT: usize = 256;
const MOST_SILENT_OF_A_USER: usize = 16;
/// How often processes are looked at that the kernel cannot tell of (before Linux 5.3).
const ROUND: Nanos = 100_000_000;

const LISTENER: u64 = 0;
const END: u64 = 1;

/// The thread's state.
pub(super) struct Reception {
    listener: Listener,
    settings: Settings,
    doorkeeper: Box<dyn Doorkeeper>,
    gpus: Arc<Gpus>,
    epoll: OwnedFd,
    /// Clients that have not asked yet.
    silent: BTreeMap<u64, Silent>,
    processes: HashMap<u64, Process>,
    /// The seats of each user: as many as there are other references.
    seats: HashMap<u32, Arc<()>>,
    last: u64,
}

struct Silent {
    socket: OwnedFd,
    client: Client,
    deadline: Nanos,
}

/// A process that has seats.
struct Process {
    client: Client,
    death: Death,
    seats: BTreeMap<GpuId, SeatId>,
}

/// How one learns of a process's death.
enum Death {
    /// Readable when it has ended.
    Told(OwnedFd),
    /// When it began: another process with its number began at another time.
    Seen(String),
}

impl Reception {
    pub(super) fn new(
        listener: Listener,
        settings: Settings,
        doorkeeper: Box<dyn Doorkeeper>,
        gpus: Arc<Gpus>,
        end: Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let reception = Self {
            listener,
            settings,
            doorkeeper,
            gpus,
            epoll,
            silent: BTreeMap::new(),
            processes: HashMap::new(),
            seats: HashMap::new(),
            last: END,
        };
        reception.wait_for(LISTENER, &reception.listener)?;
        reception.wait_for(END, &end)?;
        Ok(reception)
    }

    fn wait_for(&self, number: u64, file: &impl AsFd) -> io::Result<()> {
        let data = EventData::new_u64(number);
        Ok(epoll::add(&self.epoll, file, data, EventFlags::IN)?)
    }

    /// Serves until it is told to end.
    pub(super) fn serve(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        loop {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return warn!("no process gets a seat any more: {error}"),
            }
            for event in &events {
                match event.data.u64() {
                    END => return,
                    LISTENER => self.accept(),
                    number if self.silent.contains_key(&number) => self.serve_client(number),
                    number => self.bury(number),
                }
            }
            let now = gpu::now();
            self.silent.retain(|_, silent| now < silent.deadline);
            self.look_for_the_dead(Process::is_watched);
        }
    }

    /// How long nothing can happen that no file tells of.
    fn timeout(&self) -> Option<Timespec> {
        let is_watching = self.processes.values().any(Process::is_watched);
        let deadline = self.silent.values().map(|silent| silent.deadline).min();
        let now = gpu::now();
        let round = is_watching.then_some(now + ROUND);
        let time = deadline.into_iter().chain(round).min()? - now;
        let time = Duration::from_nanos(u64::try_from(time).unwrap_or(0));
        Timespec::try_from(time).ok()
    }

    fn accept(&mut self) {
        let (socket, client) = match self.listener.accept() {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return,
            Err(error) => {
                // There are no more files to be had. It stays there, and waiting for it would end at once.
                warn!("a process that asks for its seat has to wait: {error}");
                return std::thread::sleep(Duration::from_millis(10));
            }
        };
        let clients = self.silent.values().map(|silent| silent.client);
        let of_this_user = clients.filter(|it| it.uid == client.uid).count();
        if self.silent.len() >= MOST_SILENT || of_this_user >= MOST_SILENT_OF_A_USER {
            let _ = answer(&socket, Err(Errno::AGAIN));
            return;
        }
        self.last += 1;
        if self.wait_for(self.last, &socket).is_ok() {
            let deadline = gpu::now() + PATIENCE;
            let silent = Silent {
                socket,
                client,
                deadline,
            };
            self.silent.insert(self.last, silent);
        }
    }

    fn serve_client(&mut self, number: u64) {
        let Some(silent) = self.silent.remove(&number) else {
            return;
        };
        let page = receive(&silent.socket)
            .ok_or(Errno::INVAL)
            .and_then(|gpu| self.seat(silent.client, gpu));
        // If it is gone its death is heard of.
        let _ = answer(&silent.socket, page);
    }

    /// Gives a process a seat, in the place of one that it may have at that GPU.
    fn seat(&mut self, client: Client, id: GpuId) -> Result<OwnedFd, Errno> {
        // First this, so that the number is this process's while the kernel is asked about it.
        let death = Death::of(client.pid)?;
        let guest = self.doorkeeper.admit(client, id)?;
        // An earlier process may have had its number.
        let has_number = |it: &Process| it.client.pid == client.pid;
        self.look_for_the_dead(has_number);
        let known = self.processes.iter().find(|(_, it)| has_number(it));
        let known = known.map(|(&number, _)| number);
        if let Some(number) = known {
            self.give_up(number, id);
        }
        self.check_room(client)?;
        let refused = |error: io::Error| {
            warn!(
                "no seat for process {} of job {}: {error}",
                client.pid, guest.job.0
            );
            Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)
        };
        let number = match known {
            Some(number) => number,
            None => self.note(client, death).map_err(refused)?,
        };
        let gpu = self.gpus.get_or_start(id, self.settings.rules);
        self.seats
            .retain(|&uid, counted| uid == client.uid || Arc::strong_count(counted) > 1);
        let count = Arc::clone(self.seats.entry(client.uid).or_default());
        let sat = gpu.and_then(|gpu| gpu.sit(guest, client.pid, &count));
        let (seat, page) = sat.map_err(refused)?;
        if let Some(process) = self.processes.get_mut(&number) {
            process.seats.insert(id, seat);
        }
        Ok(page)
    }

    fn check_room(&self, client: Client) -> Result<(), Errno> {
        // A seat that was given up counts until nobody listens there any more.
        let count = |counted: &Arc<()>| Arc::strong_count(counted).saturating_sub(1);
        let all: usize = self.seats.values().map(count).sum();
        let of_this_user = self.seats.get(&client.uid).map_or(0, count);
        let is_full = all >= self.settings.seats || of_this_user >= self.settings.seats_of_a_user;
        if is_full { Err(Errno::USERS) } else { Ok(()) }
    }

    fn note(&mut self, client: Client, death: Death) -> io::Result<u64> {
        self.last += 1;
        if let Death::Told(file) = &death {
            self.wait_for(self.last, file)?;
        }
        let process = Process {
            client,
            death,
            seats: BTreeMap::new(),
        };
        self.processes.insert(self.last, process);
        Ok(self.last)
    }

    fn give_up(&mut self, number: u64, id: GpuId) {
        let Some(process) = self.processes.get_mut(&number) else {
            return;
        };
        if let (Some(seat), Some(gpu)) = (process.seats.remove(&id), self.gpus.all().get(&id)) {
            gpu.leave(seat);
        }
    }

    /// A process has ended.
    fn bury(&mut self, number: u64) {
        let Some(process) = self.processes.remove(&number) else {
            return;
        };
        let gpus = self.gpus.all();
        for (id, seat) in process.seats {
            if let Some(gpu) = gpus.get(&id) {
                gpu.leave(seat);
            }
        }
    }

    fn look_for_the_dead(&mut self, which: impl Fn(&Process) -> bool) {
        let processes = self
            .processes
            .iter()
            .filter(|(_, it)| which(it) && !it.is_alive());
        let dead: Vec<u64> = processes.map(|(&number, _)| number).collect();
        for number in dead {
            self.bury(number);
        }
    }
}

impl Process {
    fn is_watched(&self) -> bool {
        matches!(self.death, Death::Seen(_))
    }

    fn is_alive(&self) -> bool {
        match &self.death {
            Death::Told(file) => {
                let mut ended = [PollFd::new(file, PollFlags::IN)];
                poll(&mut ended, Some(&Timespec::default())) == Ok(0)
            }
            Death::Seen(began) => start_time(self.client.pid).as_ref() == Some(began),
        }
    }
}

impl Death {
    fn of(pid: u32) -> Result<Self, Errno> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        match pidfd_open(number.ok_or(Errno::SRCH)?, PidfdFlags::empty()) {
            Ok(file) => Ok(Self::Told(file)),
            Err(Errno::NOSYS | Errno::PERM) => start_time(pid).map(Self::Seen).ok_or(Errno::SRCH),
            Err(error) => Err(error),
        }
    }
}

/// When a process began, as `/proc/PID/stat` counts it; `None` when it has ended.
fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // Its name is the second field, may have anything in it, and is in parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let state = rest.chars().next()?;
    let began = rest.split(' ').nth(19)?.to_owned();
    (!matches!(state, 'Z' | 'X')).then_some(began)
}
