//! What both clients work with: options, pages, and the figures that follow from a rate.

use crate::frame::Lab;
use crate::ground::size;
use crate::pages::PAGE_SIZE;
use crate::rows::Row;
use clap::Args;
use codec::Codec;
use std::path::PathBuf;

/// Options of `lab device`.
#[derive(Args, Debug)]
pub(super) struct Options {
    /// Which clients measure
    #[arg(
        long,
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        default_value = "fio,in-process"
    )]
    pub(super) client: Vec<Client>,
    /// Other servers for fio
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "nbdkit")]
    pub(super) peers: Vec<Peer>,
    /// Algorithms of our disks, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "lz4,zstd")]
    pub(super) algorithm: Vec<Codec>,
    /// Chain order of the in-process disk
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    pub(super) chain_order: u32,
    /// The server to measure [default: ramfold beside this program]
    #[arg(long, value_name = "PATH")]
    pub(super) ramfold: Option<PathBuf>,
    /// Memory limit of the served disk, as in 512M [default: the server's own]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(super) memory_limit: Option<u64>,
    /// Use the first N MiB of the corpus [default: all of it]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    pub(super) mib: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Client {
    Fio,
    InProcess,
    /// fio on the disk as a file of a mounted tree, with requests by /dev/fuse and by io_uring
    Tree,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Peer {
    /// nbdkit's memory plugin, plain and with its zstd allocator
    Nbdkit,
    /// The same as --vs-kernel
    Kernel,
}

/// What both clients work with.
pub(super) struct Bench<'a> {
    pub(super) options: &'a Options,
    pub(super) lab: &'a Lab,
    /// The pages stored: whole pages, all of the disk.
    pub(super) pages: &'a [u8],
    pub(super) kernel: bool,
}

/// The throughput fields that follow from a rate of 4 KiB requests.
pub(super) fn set_rate(row: &mut Row, iops: f64) {
    row.set("iops", iops).set("mib_per_s", iops * PAGE_SIZE as f64 / f64::from(1 << 20));
}

/// Median ns per page of one kind of pass, for messages and ratios.
pub(super) fn ns_per_page(elapsed: std::time::Duration, pages: usize) -> f64 {
    if pages == 0 { f64::NAN } else { elapsed.as_nanos() as f64 / pages as f64 }
}
