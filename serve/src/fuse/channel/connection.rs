//! The threads of a mount: they read requests from `/dev/fuse`, ask the files, and answer.
//!
//! ```text
//!   kernel --read--> buffer --parse--> quick ---> Files --> answer --writev--> kernel
//!                                        |- slow: Roles decides which thread
//!                                        `- waiting: one of the Waiters
//! ```
//!
//! A thread owns one buffer. It receives a request in it, and sends the data of a read from it. If
//! a request is put aside, its buffer goes with it, and nothing is copied. See `request`.
//!
//! Invariants: every request except a note is answered once. A thread ends only if the file system
//! is gone, or if the connection to it breaks.
//!
//! Lock: one around the list of threads, a leaf. No lock is held while a file is asked.

use super::answering::{Files, Pace, never_wait_for_oneself, unwound};
use super::greeting::Greeting;
use super::request::{Buffers, DATA_MAX, Request, Waiting};
use super::rings::{Prepared, Rings};
use super::roles::{Part, Roles};
use super::waiters::{self, Waiters};
use super::way::{FuseWay, NoRing};
use super::wire::{self, Body, Call, Caller, Range};
use crate::doors::NoMemory;
use host::Rank;
use host::unmodelled::RankedMutex;
use rustix::io::{self, Errno};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Threads that read the device if requests come by io_uring. What comes by the device then needs
/// no answer.
const THREADS_BESIDE_RINGS: usize = 2;

/// A connection to the kernel, with threads that serve it.
pub(crate) struct Connection {
    threads: RankedMutex<Vec<JoinHandle<()>>>,
    /// Held by the thread that joins the others.
    joining: RankedMutex<()>,
    /// None if requests come by the device, or once they are joined.
    rings: RankedMutex<Option<Rings>>,
    way: FuseWay,
    /// The most threads that work on data.
    threads_max: usize,
    shared: Arc<Shared>,
}

/// How a connection is served.
pub(crate) struct How {
    /// Threads that read the device, at least two.
    pub(crate) threads: usize,
    /// Whether requests may come by io_uring, and the most bytes of data in one that does.
    pub(crate) ring: Option<usize>,
}

struct Shared {
    device: OwnedFd,
    files: Arc<dyn Files>,
    roles: Roles<Request>,
    waiters: Waiters<Request>,
    buffers: Buffers,
}

impl Connection {
    /// Answers the kernel's greeting, and then starts the threads.
    pub(crate) fn start(
        device: OwnedFd,
        files: Arc<dyn Files>,
        how: &How,
    ) -> std::io::Result<Self> {
        let buffers = Buffers::new();
        let greeting = Greeting::receive(&device, &buffers)?;
        let prepared = prepare(how, &greeting, &device, &files, &buffers);
        greeting.answer(&device, how.ring.filter(|_| prepared.is_ok()))?;
        let (rings, way) = match prepared {
            Ok(prepared) => {
                let (rings, refused) = prepared.begin();
                let queues = rings.queues();
                (Some(rings), refused.map_or(FuseWay::IoUring { queues }, FuseWay::Device))
            }
            Err(why) => (None, FuseWay::Device(why)),
        };
        // Reading must not block, because a thread waits before it reads, with a limit.
        io::ioctl_fionbio(&device, true)?;
        let threads = match way {
            FuseWay::IoUring { .. } => THREADS_BESIDE_RINGS,
            FuseWay::Device(_) => how.threads,
        };
        let threads_max = threads + rings.as_ref().map_or(0, Rings::threads);
        let (roles, waiters) = (Roles::new(threads), Waiters::new(waiters::THREADS_MAX));
        let shared = Arc::new(Shared { device, files, roles, waiters, buffers });
        let connection = Self {
            threads: RankedMutex::new(Rank::Leaf, Vec::new()),
            joining: RankedMutex::new(Rank::Ending, ()),
            rings: RankedMutex::new(Rank::Leaf, rings),
            way,
            threads_max,
            shared,
        };
        for _ in 0..threads {
            connection.add_thread()?;
        }
        Ok(connection)
    }

    fn add_thread(&self) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let no_memory = |_| std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let request = shared.buffers.take().map_err(no_memory)?;
        let waiting = Waiting::new(&shared.device)?;
        let handle = host::thread::spawn("fuse", move || shared.serve(request, &waiting))?;
        self.threads.lock().push(handle);
        Ok(())
    }

    /// How requests come.
    pub(crate) fn way(&self) -> &FuseWay {
        &self.way
    }

    /// The most threads that work on data.
    pub(crate) fn threads(&self) -> usize {
        self.threads_max
    }

    /// Bytes in the buffers of all threads.
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.shared.buffers.bytes()
    }

    /// Waits until the file system is gone and every request is answered.
    pub(crate) fn join(&self) {
        // Who comes second waits here for the first.
        let _joining = self.joining.lock();
        let threads = std::mem::take(&mut *self.threads.lock());
        for handle in threads {
            // A thread that panicked left its request unanswered, and the others went on.
            let _ = handle.join();
        }
        self.shared.waiters.join();
        let rings = self.rings.lock().take();
        rings.into_iter().for_each(Rings::join);
    }
}

/// Makes rings if they are wanted and offered.
fn prepare(
    how: &How,
    greeting: &Greeting,
    device: &OwnedFd,
    files: &Arc<dyn Files>,
    buffers: &Buffers,
) -> Result<Prepared, NoRing> {
    match how.ring {
        None => Err(NoRing::NotWanted),
        Some(_) if !greeting.offers_ring() => Err(NoRing::NotOffered),
        Some(data) => Rings::prepare(device, Arc::clone(files), buffers.meter(), data),
    }
}

impl Shared {
    /// One thread, until the file system is gone.
    fn serve(self: &Arc<Self>, mut request: Request, waiting: &Waiting) {
        never_wait_for_oneself();
        let mut body = Body::default();
        while waiting.receive(&self.device, &mut request, &self.buffers).is_some() {
            match self.pace(&request) {
                Pace::Quick => self.answer(&mut request, &mut body),
                Pace::Short | Pace::Moderate | Pace::Slow => self.share(&mut request, &mut body),
                Pace::Waiting => match self.buffers.take() {
                    Ok(spare) => self.have_waited_for(std::mem::replace(&mut request, spare)),
                    Err(NoMemory) => self.refuse(&request, Errno::NOMEM),
                },
            }
        }
    }

    fn pace(&self, request: &Request) -> Pace {
        match wire::parse(request.bytes()) {
            Ok((caller, Ok(call))) => self.files.pace(&caller, &call),
            _ => Pace::Quick, // refused without being looked at further
        }
    }

    fn share(&self, request: &mut Request, body: &mut Body) {
        if self.roles.begin() {
            return self.answer_slow(request, body);
        }
        let Ok(spare) = self.buffers.take() else { return self.refuse(request, Errno::NOMEM) };
        match self.roles.put_aside(std::mem::replace(request, spare)) {
            Part::Listen => {}
            Part::Answer(back) => {
                self.buffers.keep(std::mem::replace(request, back));
                self.answer_slow(request, body);
            }
            Part::Refuse(back) => {
                self.buffers.keep(std::mem::replace(request, back));
                self.refuse(request, Errno::NOMEM);
            }
        }
    }

    /// Gives a request to the waiters.
    fn have_waited_for(self: &Arc<Self>, request: Request) {
        let shared = Arc::clone(self);
        let given = self.waiters.give(request, move || {
            never_wait_for_oneself();
            let mut body = Body::default();
            while let Some(mut request) = shared.waiters.take() {
                shared.answer(&mut request, &mut body);
            }
        });
        if let Err(request) = given {
            self.refuse(&request, Errno::NOMEM);
        }
    }

    /// Answers a request, and then the requests that were put aside meanwhile.
    fn answer_slow(&self, request: &mut Request, body: &mut Body) {
        self.answer(request, body);
        while let Some(next) = self.roles.next() {
            self.buffers.keep(std::mem::replace(request, next));
            self.answer(request, body);
        }
    }

    fn answer(&self, request: &mut Request, body: &mut Body) {
        let Ok((caller, call)) = wire::parse(request.bytes()) else { return };
        body.clear();
        let outcome = match call {
            Ok(Call::Note) => return,
            Ok(Call::Read(range)) => return self.answer_read(&caller, &range, request),
            Ok(call) => unwound(|| self.files.answer(&caller, &call, body)),
            Err(errno) => Err(errno),
        };
        self.send(&caller, outcome.map(|()| body.bytes()));
    }

    /// The data goes where the request was.
    fn answer_read(&self, caller: &Caller, range: &Range, request: &mut Request) {
        let buffer = request.data(range.len.min(DATA_MAX as u64) as usize);
        let outcome = unwound(|| self.files.read(caller, range, buffer));
        self.send(caller, outcome.map(|len| &buffer[..len]));
    }

    fn refuse(&self, request: &Request, errno: Errno) {
        if let Ok((caller, _)) = wire::parse(request.bytes()) {
            self.send(&caller, Err(errno));
        }
    }

    fn send(&self, caller: &Caller, outcome: Result<&[u8], Errno>) {
        let header = wire::answer_header(caller.unique, outcome.map(<[u8]>::len));
        let parts = [IoSlice::new(&header), IoSlice::new(outcome.unwrap_or_default())];
        // If the caller or the file system is gone, nothing waits for the answer.
        let _ = io::writev(&self.device, &parts);
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::REQUEST_MAX;

    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const LOOKUP: u32 = 1;
    const READ: u32 = 15;
    const INIT: u32 = 26;
    const THREADS: usize = 3;
    /// A read from there on waits for a disk.
    const ON_DISK: u64 = 250;

    /// Files whose reads wait until the test lets one go. Everything else is quick.
    struct Stalled {
        reading: Mutex<Sender<u64>>,
        go: Mutex<Receiver<()>>,
    }

    impl Files for Stalled {
        fn pace(&self, _: &Caller, call: &Call<'_>) -> Pace {
            match call {
                Call::Read(range) if range.offset == ON_DISK => Pace::Waiting,
                Call::Read(_) => Pace::Slow,
                _ => Pace::Quick,
            }
        }

        fn read(&self, caller: &Caller, range: &Range, buffer: &mut [u8]) -> Result<usize, Errno> {
            self.reading.lock().unwrap().send(caller.unique).unwrap();
            self.go.lock().unwrap().recv().unwrap();
            assert_ne!(range.offset, 13, "a bug of a file's");
            buffer.fill(range.offset as u8);
            Ok(buffer.len())
        }

        fn answer(&self, _: &Caller, call: &Call<'_>, body: &mut Body) -> Result<(), Errno> {
            assert_eq!(*call, Call::Lookup(b"name"));
            body.u64(77);
            Ok(())
        }
    }

    /// The kernel's end of a connection, and the test's end of the files.
    struct Kernel {
        line: OwnedFd,
        reading: Receiver<u64>,
        go: Sender<()>,
        connection: Connection,
    }

    impl Kernel {
        fn new() -> Self {
            // This kind of socket keeps requests apart, as the device does.
            let kind = SocketType::SEQPACKET;
            let (line, device) =
                rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
                    .unwrap();
            let timeout = Some(Duration::from_secs(20));
            let what = rustix::net::sockopt::Timeout::Recv;
            rustix::net::sockopt::set_socket_timeout(&line, what, timeout).unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(&device, 4 << 20).unwrap();
            let hello = [7_u32, 45, 1 << 17, u32::MAX, u32::MAX].map(u32::to_ne_bytes).concat();
            send(&line, INIT, 1, &hello);
            let (told, reading) = channel();
            let (go, goes) = channel();
            let files = Stalled { reading: Mutex::new(told), go: Mutex::new(goes) };
            let connection = Connection::start(
                device,
                Arc::new(files),
                &How { threads: THREADS, ring: Some(DATA_MAX) },
            )
            .unwrap();
            assert!(matches!(connection.way(), FuseWay::Device(NoRing::Refused(_))), "a socket");
            let kernel = Self { line, reading, go, connection };
            let (unique, error, body) = kernel.answer();
            assert_eq!((unique, error, body.len()), (1, 0, 64));
            kernel
        }

        fn send(&self, opcode: u32, unique: u64, body: &[u8]) {
            send(&self.line, opcode, unique, body);
        }

        fn read(&self, unique: u64, offset: u64, len: u32) {
            let body = [0_u64.to_ne_bytes(), offset.to_ne_bytes()].concat();
            self.send(READ, unique, &[&body[..], &len.to_ne_bytes(), &[0; 20]].concat());
        }

        /// The next answer: its number, its error, its body.
        fn answer(&self) -> (u64, i32, Vec<u8>) {
            let mut bytes = vec![0; REQUEST_MAX];
            let len = io::read(&self.line, &mut bytes[..]).expect("an answer comes");
            let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            assert_eq!(word(0) as usize, len, "the length is that of the answer");
            let unique = u64::from(word(12)) << 32 | u64::from(word(8));
            (unique, word(4) as i32, bytes[16..len].to_vec())
        }

        fn end(self) {
            drop(self.line);
            self.connection.join();
        }
    }

    fn send(line: &OwnedFd, opcode: u32, unique: u64, body: &[u8]) {
        let mut request = (40 + body.len() as u32).to_ne_bytes().to_vec();
        request.extend(opcode.to_ne_bytes());
        request.extend(unique.to_ne_bytes());
        request.resize(40, 0);
        request.extend(body);
        assert_eq!(io::write(line, &request), Ok(request.len()));
    }

    #[test]
    fn looking_up_waits_for_no_data() {
        let kernel = Kernel::new();
        let reads: Vec<u64> = (100..110).collect();
        for &unique in &reads {
            kernel.read(unique, unique, 4096);
        }
        // Not always the first ones: a thread may have one in hand while others take the next.
        let under_way: Vec<u64> = (1..THREADS).map(|_| kernel.reading.recv().unwrap()).collect();
        assert!(under_way.iter().all(|unique| reads.contains(unique)), "{under_way:?}");
        for unique in 200..300 {
            kernel.send(LOOKUP, unique, b"name\0");
            assert_eq!(kernel.answer(), (unique, 0, 77_u64.to_ne_bytes().to_vec()));
        }
        assert!(kernel.reading.try_recv().is_err(), "one thread is in no read");
        for _ in &reads {
            kernel.go.send(()).unwrap();
        }
        let mut answers: Vec<_> = reads.iter().map(|_| kernel.answer()).collect();
        answers.sort();
        let expected: Vec<_> = reads.iter().map(|&n| (n, 0, vec![n as u8; 4096])).collect();
        assert!(answers == expected, "each read has its own bytes");
        kernel.end();
    }

    #[test]
    fn data_in_memory_waits_for_no_disk() {
        let kernel = Kernel::new();
        // These are more than the threads for data, and none of them is let go.
        let waiting: Vec<u64> = (100..100 + 2 * THREADS as u64).collect();
        for &unique in &waiting {
            kernel.read(unique, ON_DISK, 4096);
        }
        let mut under_way: Vec<u64> =
            waiting.iter().map(|_| kernel.reading.recv().unwrap()).collect();
        under_way.sort_unstable();
        assert_eq!(under_way, waiting, "all of them wait at a time");
        for unique in 200..300 {
            kernel.send(LOOKUP, unique, b"name\0");
            assert_eq!(kernel.answer().0, unique);
        }
        kernel.read(300, 7, 4096);
        assert_eq!(kernel.reading.recv().unwrap(), 300, "a thread for data took it");
        for _ in 0..=waiting.len() {
            kernel.go.send(()).unwrap();
        }
        let mut answers: Vec<_> = (0..=waiting.len()).map(|_| kernel.answer()).collect();
        answers.sort();
        let from_disk = waiting.iter().map(|&n| (n, 0, vec![ON_DISK as u8; 4096]));
        let expected: Vec<_> = from_disk.chain([(300, 0, vec![7; 4096])]).collect();
        assert!(answers == expected, "each read has its own bytes");
        kernel.end();
    }

    /// The heap used to keep freed buffers, and each thread kept its own at its largest size.
    #[test]
    fn buffers_are_given_back_when_nothing_is_asked_for() {
        let kernel = Kernel::new();
        // One after the other, because the socket takes only so much at a time, unlike the device.
        for unique in 100..140 {
            kernel.read(unique, unique, DATA_MAX as u32);
            kernel.go.send(()).unwrap();
            assert_eq!(kernel.answer().2.len(), DATA_MAX);
        }
        assert!(kernel.connection.buffer_bytes() >= DATA_MAX, "they were used");
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let kept = |kernel: &Kernel| kernel.connection.buffer_bytes();
        while kept(&kernel) > THREADS * 4096 {
            assert!(std::time::Instant::now() < deadline, "{} bytes are kept", kept(&kernel));
            std::thread::sleep(Duration::from_millis(10));
        }
        kernel.read(200, 7, 4096);
        kernel.go.send(()).unwrap();
        assert_eq!(kernel.answer(), (200, 0, vec![7; 4096]), "and it goes on");
        kernel.end();
    }

    #[test]
    fn a_bug_fails_its_own_request_only() {
        let kernel = Kernel::new();
        for unique in [13, 14, 13, 15] {
            kernel.read(unique, unique, 1);
            kernel.go.send(()).unwrap();
            let error = if unique == 13 { -Errno::IO.raw_os_error() } else { 0 };
            let (answered, found, _) = kernel.answer();
            assert_eq!((answered, found), (unique, error));
        }
        kernel.end();
    }

    #[test]
    fn what_is_not_understood_is_answered() {
        let kernel = Kernel::new();
        kernel.send(READ, 5, &[0; 3]);
        assert_eq!(kernel.answer(), (5, -Errno::INVAL.raw_os_error(), vec![]), "cut short");
        kernel.read(6, 6, u32::MAX);
        kernel.go.send(()).unwrap();
        let (unique, error, data) = kernel.answer();
        assert_eq!((unique, error, data.len()), (6, 0, DATA_MAX), "no more than was agreed");
        kernel.end();
    }
}
