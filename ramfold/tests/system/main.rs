//! `ramfold` from the outside: the built binary, and the clients that its users have.
//!
//! ```text
//!   clients     nbdinfo, nbdcopy, qemu-img, qemu-io, fio
//!   filesystem  nbdfuse, a loop device, ext4
//!   activation  sockets that systemd or libnbd pass to a server
//!   captive     --run, --pidfile, --exit-with-parent
//!   lifecycle   starting, stopping, dying clients, full memory
//!   listing     how stat, set and check find a server
//!   machines    disks of virtual machines
//!   blocks      block devices of this machine, where they cannot be made
//!   notices     what an operator is told, and with what remedy
//!   tree        the mounted tree, file by file
//!   mounting    how the mount begins and ends, and which requests wait
//!   covered     trees under another mount, moved, or mounted twice
//!   service     options from a file, a service manager, units
//!   shells      manual pages and completions
//!   io_uring    requests that come by io_uring, and when they do not
//!   metrics     figures for monitoring
//!   mounted     ramfold mount: a file system by one command; also by users without rights
//!   backing     a backing file that turns bad
//!   far         a backing device that is an NBD server
//!   stack       file systems, and tests of other projects, on the tree
//!   shuffle     pages of numbers
//!   designs     lock designs and ways to free that studies compare
//!   tls         NBD over TLS: who is served, which files do not work
//!   exports     several disks of one server, by name
//!   shared      equal pages of a disk, stored once
//!   figures     what stat, set, check and estimate print
//!   frames      what stat --pagetypeinfo prints
//!   programs    ramfold run: programs in less memory
//!   closed      the same without userfaultfd
//!   edges       programs that do what few programs do, each way
//!   traps       each trap of folded memory, by a program that would fall into it
//!   behind      the same with a disk behind it
//!   jobs        ramfold run: whole programs in 70 % of their memory
//!   torture     the same, with threads that do whatever a program may
//!   runs        how runs are shown by stat, what a report has, why a process does not fold
//!   top         ramfold top, on a terminal and elsewhere
//!   usage       what is refused, and in which words
//!   rig         servers, scratch directories, tools, a bare NBD client
//! ```
//!
//! The names of the tests are the claims. If a tool is not installed, a test that needs it says so
//! and passes, but it fails if CI=true. No claim is about speed. Deadlines only catch hangs.

#![forbid(unsafe_code)]

mod activation;
mod anonymous;
mod attributes;
mod backing;
mod behind;
mod blocks;
mod captive;
mod clients;
mod closed;
mod covered;
mod designs;
mod edges;
mod exports;
mod far;
mod figures;
mod filesystem;
mod frames;
mod interrupted;
mod io_uring;
mod jobs;
mod lifecycle;
mod listing;
mod machines;
mod metrics;
mod mounted;
mod mounted_by_users;
mod mounted_twice;
mod mounting;
mod notices;
mod programs;
mod rig;
mod runs;
mod service;
mod shared;
mod shells;
mod shuffle;
mod stack;
mod tiers;
mod tls;
mod top;
mod torture;
mod traps;
mod tree;
mod usage;
