//! Takes in processes and notices their ends: one thread, which waits for everything at once.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;
use softmig_region::seat::{Request, Version};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

use super::admissions::Admissions;
use super::authorizer::{Authorizer, Client};
use super::borrower::Borrower;
use super::clock;
use super::closer::Closer;
use super::connections::{Connection, Connections};
use super::gpus::Gpus;
use super::refusals::Refusals;
use super::session::Newcomer;
use super::settings::{GpuId, Settings, uuid};
use super::socket::{Asked, Listener, PackStep, answer, answer_folder, is_taken, receive};
use crate::jobs::pidfd::Pidfd;
use crate::packs::{PackMember, Packs};
use crate::schedule::{Nanos, SeatId};

/// How long a client may take to ask.
const PATIENCE: Nanos = 1_000_000_000;
/// How long it is believed who has jobs here.
const KNOWN: Nanos = 1_000_000_000;
/// How often processes are looked at that the kernel cannot tell of (before Linux 5.3).
const ROUND: Nanos = 100_000_000;

const LISTENER: u64 = 0;
const END: u64 = 1;

/// The thread's state.
pub(super) struct Server {
    listener: Listener,
    settings: Settings,
    authorizer: Arc<dyn Authorizer>,
    gpus: Arc<Gpus>,
    refusals: Arc<Refusals>,
    connections: Connections,
    admissions: Admissions,
    /// Where jobs can run at the same time.
    packs: Option<Arc<Packs>>,
    closer: Arc<Closer>,
    /// The users that have jobs here, and until when that is believed. They are looked up only when there is a crowd.
    users: (Nanos, BTreeSet<u32>),
    processes: HashMap<u64, Process>,
    /// Each user with seats: as many as there are other references.
    users_with_seats: HashMap<u32, Arc<Borrower>>,
    last: u64,
}

/// A process that has seats.
struct Process {
    client: Client,
    pidfd: Pidfd,
    seats: BTreeMap<GpuId, SeatId>,
}

impl Server {
    pub(super) fn new(
        (listener, closer): (Listener, Arc<Closer>),
        settings: Settings,
        authorizer: Arc<dyn Authorizer>,
        (gpus, refusals, packs): (Arc<Gpus>, Arc<Refusals>, Option<Arc<Packs>>),
        end: Arc<OwnedFd>,
    ) -> io::Result<Self> {
        let server = Self {
            listener,
            admissions: Admissions::default(),
            packs,
            settings,
            authorizer,
            gpus,
            refusals,
            connections: Connections::default(),
            closer,
            users: (Nanos::MIN, BTreeSet::new()),
            processes: HashMap::new(),
            users_with_seats: HashMap::new(),
            last: END,
        };
        server.wait_for(LISTENER, &server.listener)?;
        server.wait_for(END, &end)?;
        Ok(server)
    }

    fn wait_for(&self, number: u64, file: &impl AsFd) -> io::Result<()> {
        let data = EventData::new_u64(number);
        Ok(epoll::add(self.closer.epoll(), file, data, EventFlags::IN)?)
    }

    /// Serves until it is told to end.
    pub(super) fn serve(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(64);
        loop {
            events.clear();
            let timeout = self.timeout();
            match epoll::wait(
                self.closer.epoll(),
                spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return warn!("no process gets a seat any more: {error}"),
            }
            for event in &events {
                match event.data.u64() {
                    END => return,
                    LISTENER => self.accept(),
                    number => self.attend(number),
                }
            }
            self.connections.expire(clock::now());
            self.closer.close();
            self.reap_ended(Process::is_watched);
        }
    }

    /// How long nothing can happen that no file tells of.
    fn timeout(&self) -> Option<Timespec> {
        let is_watching = self.processes.values().any(Process::is_watched);
        let deadline = self.connections.deadline();
        let now = clock::now();
        let round = is_watching.then_some(now + ROUND);
        let time = deadline
            .into_iter()
            .chain(round)
            .chain(self.closer.due())
            .min()?
            - now;
        let time = Duration::from_nanos(u64::try_from(time).unwrap_or(0));
        Timespec::try_from(time).ok()
    }

    fn accept(&mut self) {
        let connection = match self.listener.accept(&self.closer) {
            Ok(Some(accepted)) => accepted,
            Ok(None) => return,
            Err(error) => {
                // There are no more files to be had. It stays there, and waiting for it would end at once.
                warn!("a process that asks for its seat has to wait: {error}");
                return std::thread::sleep(Duration::from_millis(10));
            }
        };
        if !self.connections.may_connect(connection.client.uid) {
            let _ = answer(&connection.socket, Err(Errno::AGAIN));
            return;
        }
        self.last += 1;
        if self.wait_for(self.last, &connection.socket).is_err() {
            return;
        }
        let now = clock::now();
        let users = || {
            if self.users.0 < now {
                self.users = (now + KNOWN, self.authorizer.users());
            }
            self.users.1.clone()
        };
        self.connections
            .add(self.last, connection, now + PATIENCE, users);
    }

    /// Something has happened there.
    fn attend(&mut self, number: u64) {
        if let Some(connection) = self.connections.ask(number) {
            self.serve_client(number, connection);
        } else if let Some(connection) = self.connections.served(number) {
            if is_taken(&connection.socket) {
                self.connections.remove(number);
            }
        } else {
            self.reap(number);
        }
    }

    fn serve_client(&mut self, number: u64, mut connection: Connection) {
        let page = match receive(&connection.socket) {
            None => Err(Errno::INVAL),
            Some(Asked::Seat(request)) => {
                let process = mem::replace(&mut connection.process, Err(Errno::SRCH));
                process.and_then(|process| self.seat(connection.client, process, request).map(Some))
            }
            Some(Asked::Admission) => return self.admit(connection),
            Some(Asked::Pack(step)) => return self.pack(connection, step),
        };
        let is_page = page.is_ok();
        if let Err(why) = page {
            self.refusals.note(connection.client.pid, why);
            // It may have given up the one that it had.
            self.processes.retain(|_, it| !it.seats.is_empty());
        }
        // If it is gone its pidfd tells.
        if answer(&connection.socket, page).is_err() || !is_page {
            return;
        }
        // Each change is told once: that the page was taken, and that its client is gone.
        let (data, flags) = (EventData::new_u64(number), EventFlags::OUT | EventFlags::ET);
        if epoll::modify(self.closer.epoll(), &connection.socket, data, flags).is_ok() {
            self.connections.serve(number, connection);
        }
    }

    /// Has a process admitted to its job's GPUs.
    fn admit(&self, mut connection: Connection) {
        // It would be told of as long as its request is there.
        let _ = epoll::delete(self.closer.epoll(), &connection.socket);
        match self.authorizer.gated_job(connection.client) {
            Some(gated) => {
                self.gpus.stop_measuring(&gated.gpus);
                // In containers processes have other users, whom nothing keeps from being many.
                connection.client.uid = gated.uid;
                let gate = self.settings.gate.clone();
                let admit = move |connection: &Connection| {
                    let Client { pid, uid } = connection.client;
                    let admitted = gate.map_or(Ok(()), |gate| gate.admit(pid, uid));
                    let _ = answer(&connection.socket, admitted.map(|()| None));
                };
                self.admissions.ask(gated.job, connection, Box::new(admit));
            }
            // It needs nothing.
            None => drop(answer(&connection.socket, Ok(None))),
        }
    }

    /// Lets a process be a client of its pack's server.
    fn pack(&self, mut connection: Connection, step: PackStep) {
        let _ = epoll::delete(self.closer.epoll(), &connection.socket);
        let packed = self.authorizer.packed_job(connection.client);
        // The number was this process's while the kernel was asked about it.
        let client = connection.client.pid;
        let lives = |process: &Pidfd| !process.has_ended(client);
        let packed = packed.filter(|_| connection.process.as_ref().is_ok_and(lives));
        let (Some(packed), Some(packs)) = (packed, self.packs.clone()) else {
            return drop(answer(&connection.socket, Err(Errno::NOENT)));
        };
        connection.client.uid = packed.uid;
        let (gpus, settings) = (Arc::clone(&self.gpus), self.settings.clone());
        let authorizer = Arc::clone(&self.authorizer);
        let serve = move |connection: &Connection| {
            let socket = &connection.socket;
            // Where a GPU is not steered, a pack could not be kept to its share. Where its programs do not end alone, there is none.
            let gpu = gpus.get_or_start(packed.gpu, &settings);
            let is_steered = gpu.is_ok_and(|gpu| gpu.is_steered());
            // Who has entered is seen to whatever is known by now.
            let is_proved = || step == PackStep::Keep || settings.may_pack(packed.gpu);
            let may_pack = is_steered && is_proved();
            let process = connection.process.as_ref().ok().and_then(Pidfd::file);
            let Some(process) = process.filter(|_| may_pack) else {
                return drop(answer(socket, Err(Errno::NOSYS)));
            };
            let key = packed.key();
            let pid = connection.client.pid;
            let answered = match step {
                PackStep::Enter => {
                    let users = || authorizer.users_of(packed);
                    match packs.enter(&key, pid, users) {
                        Ok(folder) => answer_folder(socket, &folder),
                        Err(error) => answer(socket, Err(error)),
                    }
                }
                PackStep::Keep => {
                    let kept = packs.keep(&key, (pid, process.as_fd()), packed.job.0);
                    answer(socket, kept.map(|()| None))
                }
            };
            // A process that has gone asks no more.
            drop(answered);
        };
        self.admissions.ask(packed.job, connection, Box::new(serve));
    }

    /// Gives a process a seat, in the place of one that it may have at that GPU.
    fn seat(&mut self, client: Client, pidfd: Pidfd, request: Request) -> Result<OwnedFd, Errno> {
        let id = request.gpu;
        let admission = self.authorizer.admit(client, id)?;
        // In containers processes have other users, whom nothing keeps from being many.
        let client = Client {
            uid: admission.uid,
            ..client
        };
        // The number was this process's while the kernel was asked about it.
        if pidfd.has_ended(client.pid) {
            return Err(Errno::SRCH);
        }
        // An earlier process may have had its number.
        let has_number = |it: &Process| it.client.pid == client.pid;
        self.reap_ended(has_number);
        let known = self
            .processes
            .iter()
            .find(|(_, it)| has_number(it))
            .map(|(&number, _)| number);
        if let Some(number) = known {
            self.give_up(number, id);
        }
        let refused = |error: io::Error| {
            warn!(
                "no seat for process {} of job {}: {error}",
                client.pid, admission.job.0
            );
            Errno::from_io_error(&error).unwrap_or(Errno::IO)
        };
        let gpu = self.gpus.get_or_start(id, &self.settings);
        let gpu = gpu.map_err(refused)?;
        // It asks again and again, and that must not use up what its user may have.
        if request.version == Version::Turns && !gpu.takes_old() {
            return Err(Errno::NOSYS);
        }
        self.check_room(client)?;
        if !self.connections.may_have(client.uid, clock::now()) {
            return Err(Errno::AGAIN);
        }
        let number = match known {
            Some(number) => number,
            None => self.note(client, pidfd).map_err(refused)?,
        };
        self.users_with_seats
            .retain(|&uid, user| uid == client.uid || Arc::strong_count(user) > 1);
        let user = Arc::clone(self.users_with_seats.entry(client.uid).or_default());
        let process = self
            .processes
            .get(&number)
            .and_then(|it| it.pidfd.file())
            .and_then(|file| file.try_clone().ok());
        let newcomer = Newcomer {
            pid: client.pid,
            process,
            version: request.version,
            user,
            pack: admission
                .pack
                .zip(self.packs.as_ref())
                .map(|(pack, packs)| {
                    let packs = Arc::clone(packs);
                    PackMember::new(packs, (uuid(id), pack.folder()), client.pid)
                }),
        };
        let (seat, page) = gpu.sit(admission, newcomer).map_err(refused)?;
        if let Some(process) = self.processes.get_mut(&number) {
            process.seats.insert(id, seat);
        }
        Ok(page)
    }

    fn check_room(&self, client: Client) -> Result<(), Errno> {
        // A seat that was given up counts until no thread listens there any more.
        let count = |user: &Arc<Borrower>| Arc::strong_count(user).saturating_sub(1);
        let all: usize = self.users_with_seats.values().map(count).sum();
        let of_this_user = self.users_with_seats.get(&client.uid).map_or(0, count);
        // A user with many seats leaves some to users with few.
        let left = self.settings.seats.saturating_sub(all);
        if of_this_user >= self.settings.seats_of_a_user {
            Err(Errno::AGAIN)
        } else if of_this_user >= left {
            Err(Errno::USERS)
        } else {
            Ok(())
        }
    }

    fn note(&mut self, client: Client, pidfd: Pidfd) -> io::Result<u64> {
        self.last += 1;
        if let Some(file) = pidfd.file() {
            self.wait_for(self.last, file)?;
        }
        let process = Process {
            client,
            pidfd,
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
            gpu.remove(seat);
        }
    }

    /// A process has ended.
    fn reap(&mut self, number: u64) {
        let Some(process) = self.processes.remove(&number) else {
            return;
        };
        let gpus = self.gpus.all();
        for (id, seat) in process.seats {
            if let Some(gpu) = gpus.get(&id) {
                gpu.note_end(seat);
            }
        }
    }

    fn reap_ended(&mut self, which: impl Fn(&Process) -> bool) {
        let processes = self
            .processes
            .iter()
            .filter(|(_, it)| which(it) && !it.is_alive());
        let dead: Vec<u64> = processes.map(|(&number, _)| number).collect();
        for number in dead {
            self.reap(number);
        }
    }
}

impl Process {
    fn is_watched(&self) -> bool {
        self.pidfd.file().is_none()
    }

    fn is_alive(&self) -> bool {
        !self.pidfd.has_ended(self.client.pid)
    }
}
