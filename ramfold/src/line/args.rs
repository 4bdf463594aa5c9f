//! The command line as it is typed: names, types, defaults and help texts.
//!
//! Invariant: every value here is well formed by itself. The command finds out whether the system
//! grants it (a limit, a socket, a file). Locks: none.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Parser, Subcommand};
use codec::{Algorithm, Codec};
use zram::study::{FreeDesign, LockDesign};

use super::attribute::Change;
use super::choices::{IoUring, Shuffle, Tls, Writeback};
use super::export::{Export, device_name};
use super::failure::Failure;
use super::forms::{address, chain_order, digits};
use super::monitoring::{Format, Monitoring};
use super::mounting::{Mount, Umount};
use super::size;

/// Folds memory: programs in less of it, and compressed RAM disks for any NBD client.
#[derive(Parser, Debug)]
#[command(name = "ramfold", version, arg_required_else_help = false, max_term_width = 100)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "Sizes take K, M, G and T, which are binary: 64M, 1.5G. Exit status: 0 \
    done, 1 failed or refused, 2 the command line is wrong; run, mount and serve --run end as \
    their program does. See also `man ramfold`.";

/// The verbs.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Run a program in less memory: cold pages are compressed, and come back when they are touched
    Run(Run),
    /// Serve a compressed RAM disk until interrupted
    Serve(Box<Serve>),
    /// Mount a file system on a compressed RAM disk, and serve it in the background
    Mount(Box<Mount>),
    /// Unmount what ramfold mount has mounted, and give its memory back
    Umount(Umount),
    /// Show the memory and state of a server or of a program under run, or list what runs
    Stat(Stat),
    /// Watch all servers and running programs on a terminal
    Top(Top),
    /// Print an attribute of a running server
    Get(Get),
    /// Change an attribute of a running server
    Set(Set),
    /// Add a device to a running server; it is an NBD export at once
    Add(Add),
    /// Remove a device from a running server, with all that it stores
    Remove(Remove),
    /// Compute what files or a process would take, with each algorithm and chain orders 2 to 4
    Estimate(Estimate),
    /// Build a dictionary from files or a process, and measure what it saves
    Train(Train),
    /// Recount everything a server holds, and compare it with the server's counters
    Check(Check),
    /// Print a manual page, for man -l -
    Manual(Manual),
    /// Print the script by which a shell completes these commands
    Completions(Completions),
}

/// `ramfold serve`
#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Read options from this file: a line KEY = VALUE for --KEY VALUE. An option that is typed
    /// replaces those of the file. See ramfold.conf(5)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of the device and of its export; stat, set and check find the server by it
    #[arg(long, default_value = "zram0", value_parser = device_name)]
    pub(crate) name: String,
    /// Size of the disk as clients see it, rounded up to whole pages of 4K. Only stored pages take
    /// memory. With --fuse alone it may be left out, and written to disksize later
    #[arg(long, value_name = "SIZE", value_parser = size::parse_disk)]
    #[arg(required_unless_present = "fuse", allow_negative_numbers = true)]
    pub(crate) size: Option<u64>,
    /// Another device, and an export of this name. May be repeated
    #[arg(long, value_name = "NAME=SIZE", requires = "size", value_parser = Export::parse)]
    pub(crate) export: Vec<Export>,
    /// The export that clients get who ask for none [default: that of --name]
    #[arg(long, value_name = "NAME", requires = "size")]
    pub(crate) default_export: Option<String>,
    /// The most memory that stored pages of a device may take: a size, or a part of what is
    /// available [default: 50%, divided by the devices]
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = size::parse_memory)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) memory_limit: Option<u64>,
    /// Compression: lzo-rle, lzo, lz4, lz4hc, zstd, deflate or pagelz, perhaps with a level: zstd:7
    /// [default: lz4]
    #[arg(long, value_name = "NAME[:LEVEL]")]
    pub(crate) algorithm: Option<codec::Codec>,
    /// With auto, samples of the pages say where it pays to order their bytes by the size of a
    /// number before they are compressed. Disks of numbers gain by it
    #[arg(long, default_value = "off", value_name = "WHEN")]
    pub(crate) shuffle: Shuffle,
    /// How densely pages that are not used are kept: fast, balanced or dense. balanced and dense
    /// choose the algorithms, so --algorithm turns them off
    #[arg(long, default_value = "fast", value_name = "HOW")]
    pub(crate) density: zram::Density,
    /// Seconds of an age, in which --density counts how long pages were not used
    #[arg(long, default_value = "30", value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tier_age: u32,
    /// The most CPU time that --density uses for a device in the background, in percent of one CPU
    #[arg(long, default_value = "10", value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) tier_cpu: u32,
    /// Whether --density sends pages to --backing that were not used for 64 ages: asked or auto
    #[arg(long, default_value = "asked", value_name = "WHEN")]
    pub(crate) writeback: Writeback,
    /// Dictionary of what pages share, for lz4, lz4hc, zstd or pagelz; ramfold train makes one
    #[arg(long, value_name = "FILE")]
    pub(crate) dictionary: Option<PathBuf>,
    /// Up to 2^N frames per zspage, N from 0 to 4; a larger N packs denser
    #[arg(long, default_value = "3", value_name = "N", value_parser = chain_order)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) chain_order: u32,
    /// How size classes are chosen: least-waste, used-percent or fitted
    #[arg(long, default_value = "least-waste")]
    pub(crate) rule: zsmalloc::Rule,
    /// Lock design of the allocator: class, or for studies hierarchical or pool
    #[arg(long, default_value = "class")]
    pub(crate) design: LockDesign,
    /// How discarded pages are freed: range, or for studies sync, entries or handles
    #[arg(long, default_value = "range", value_name = "WAY")]
    pub(crate) free: FreeDesign,
    /// Mount devices here as the kernel shows them: DIR/zram0/disk, disksize, mm_stat and so on,
    /// DIR/zram-control/hot_add. DIR is made if it is missing, but its parents are not. Without
    /// --unix or --tcp there is no NBD then
    #[arg(long, value_name = "DIR")]
    pub(crate) fuse: Option<PathBuf>,
    /// Take requests of --fuse by io_uring: auto, where the kernel offers it, or off
    #[arg(long, default_value = "auto", value_name = "WHEN", requires = "fuse")]
    pub(crate) fuse_io_uring: IoUring,
    /// Listen on this Unix socket, and for control on PATH.ctl as well
    #[arg(long, value_name = "PATH", requires = "size")]
    pub(crate) unix: Option<PathBuf>,
    /// Listen on this address; control stays local, under the server's name
    #[arg(long, value_name = "HOST:PORT", requires = "size", value_parser = address)]
    pub(crate) tcp: Option<String>,
    /// Serve a disk to a virtual machine at this Unix socket, over vhost-user-blk: the device of
    /// this name, or the first. Once for each device. Without --unix or --tcp there is no NBD then
    #[arg(long, value_name = "[NAME=]PATH", requires = "size")]
    pub(crate) vhost_user: Vec<OsString>,
    /// Make a device a block device of this machine, /dev/ublkbID, by the kernel's ublk: the device
    /// of this name, or the first. ID may be auto. For root. Without --unix or --tcp there is no
    /// NBD then
    #[arg(long, value_name = "[NAME=]ID", requires = "size", conflicts_with = "fuse")]
    pub(crate) ublk: Vec<String>,
    /// Allow --tcp addresses that other machines can reach; NBD has no password, only certificates
    #[arg(long, requires = "tcp")]
    pub(crate) tcp_anywhere: bool,
    #[command(flatten)]
    pub(crate) tls: Tls,
    /// Listen for stat, set and check here as well; PATH ends in .ctl. A server whose NBD sockets
    /// were passed by systemd or libnbd has no other control socket of its own
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Serve a private socket while this shell command runs, and end with its exit status. It has
    /// $uri (and $nbd), $unixsocket and $exportname. Not with --unix, --tcp or --fuse
    #[arg(long, value_name = "COMMAND", requires = "size")]
    #[arg(conflicts_with_all = ["unix", "tcp", "fuse"])]
    pub(crate) run: Option<String>,
    /// Write the number of the process here once clients can connect, and remove it at the end
    #[arg(long, value_name = "PATH")]
    pub(crate) pidfile: Option<PathBuf>,
    /// End, as at SIGTERM, when the process that started the server ends
    #[arg(long)]
    pub(crate) exit_with_parent: bool,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Write pages back to this file, block device or NBD export (nbd://HOST/NAME,
    /// nbd+unix:///NAME?socket=PATH) when ramfold set asks for it; its present content is lost
    #[arg(long, value_name = "PATH|URI")]
    pub(crate) backing: Option<PathBuf>,
    /// Note when each page is used, so that pages can be marked idle by age
    #[arg(long)]
    pub(crate) track_ages: bool,
    /// Store pages that are equal once; finding them takes time in each write
    #[arg(long)]
    pub(crate) share_equal_pages: bool,
    /// Hold the memory of stored pages at this size: recompress the coldest, then write them back
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = size::parse_memory)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) memory_target: Option<u64>,
    /// Write an attribute before the disk gets its size, for example recomp_algorithm=algo=zstd
    #[arg(long, value_name = "ATTRIBUTE=VALUE", value_parser = Change::setting)]
    pub(crate) set: Vec<Change>,
    /// Print only errors and warnings: neither where it serves nor what is gone at the end
    #[arg(long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) monitoring: Monitoring,
    /// Also print which clients connect and how each connection ends
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// `ramfold run`
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The most memory that the program and all processes it starts may take, compressed pages
    /// included: a size, or a part of what is available, as in 50% [default: 80%]
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = limit, allow_negative_numbers = true)]
    pub(crate) limit: Option<Limit>,
    /// How densely cold pages are compressed: fast takes lz4; balanced too, and pagelz or a
    /// longer search for pages that stay out; dense takes zstd [default: balanced]
    #[arg(long, value_name = "HOW", conflicts_with = "algorithm")]
    pub(crate) density: Option<zram::Density>,
    /// Compression: lzo-rle, lzo, lz4, lz4hc, zstd, deflate or pagelz, perhaps with a level: zstd:7
    #[arg(long, value_name = "NAME[:LEVEL]")]
    pub(crate) algorithm: Option<codec::Codec>,
    /// Put pages that do not fit, or do not compress, in files without a name in this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) backing: Option<PathBuf>,
    /// Write what the program takes over time: FILE.html is a page with a picture, FILE.svg the
    /// picture; any other FILE gets the figures as JSON, and a picture beside it
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Say which means are used and why, before the program starts. RAMFOLD_PATH=userfaultfd or
    /// RAMFOLD_PATH=closed in the environment asks for one way
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) explain: bool,
    /// Print nothing at the end and no warnings, and do not name programs that cannot fold
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The program and its arguments, after --
    #[arg(required = true, last = true, value_name = "PROGRAM ARGUMENT")]
    pub(crate) program: Vec<OsString>,
}

/// What a limit is given as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Bytes(u64),
    /// Of what is available, 1 to 100.
    Percent(u64),
}

/// `ramfold stat`
#[derive(Args, Debug)]
pub(crate) struct Stat {
    /// Socket, nbd+unix address or name of a server, or program or process of ramfold run
    /// [default: list what runs]
    pub(crate) target: Option<String>,
    /// A device of a server [default: all]
    pub(crate) device: Option<String>,
    /// Print JSON, with bytes as integers
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the table of size classes, in the kernel's columns
    #[arg(long, requires = "target")]
    pub(crate) classes: bool,
    /// Print the free frames by migratetype and order, as the kernel's /proc/pagetypeinfo does
    #[arg(long, requires = "target", conflicts_with = "classes")]
    pub(crate) pagetypeinfo: bool,
    /// Print figures for monitoring: prometheus or openmetrics
    #[arg(long, value_enum, conflicts_with_all = ["json", "classes", "pagetypeinfo", "watch"])]
    pub(crate) format: Option<Format>,
    /// Print again every so many seconds until interrupted [default: 1]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1", value_parser = interval)]
    pub(crate) watch: Option<Duration>,
}

/// `ramfold top`
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) delay: Duration,
    /// End after so many looks [default: at the key q]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Print one look after the other, for a file or a pipe. Where standard output is no terminal
    /// this is so anyway
    #[arg(short, long)]
    pub(crate) batch: bool,
}

/// `ramfold get`
#[derive(Args, Debug)]
pub(crate) struct Get {
    /// Socket, nbd+unix address or name of a server
    pub(crate) target: String,
    /// An attribute of zram, such as mm_stat, comp_algorithm or writeback_limit. A server with
    /// several devices needs the device, too: zram1/mm_stat
    pub(crate) attribute: String,
}

/// `ramfold set`
#[derive(Args, Debug)]
pub(crate) struct Set {
    /// Socket, nbd+unix address or name of a server
    pub(crate) target: String,
    /// An attribute of zram, such as mem_limit, idle, writeback, recompress or compact. A server
    /// with several devices needs the device, too: zram1/mem_limit. Also zram-control/hot_add and
    /// zram-control/hot_remove
    pub(crate) attribute: String,
    /// The new value; several words are joined by blanks. compact takes any value
    #[arg(required = true, num_args = 1.., allow_negative_numbers = true)]
    pub(crate) value: Vec<String>,
}

/// `ramfold estimate`
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("pages").required(true))]
pub(crate) struct Estimate {
    /// Files whose pages to store, the last page of each filled with zeros
    #[arg(value_name = "FILE", group = "pages")]
    pub(crate) files: Vec<PathBuf>,
    /// Store the resident anonymous pages of this process instead
    #[arg(long, value_parser = process, allow_negative_numbers = true, group = "pages")]
    pub(crate) pid: Option<u32>,
    /// Print JSON, with bytes as integers
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ramfold train`
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("pages").required(true))]
pub(crate) struct Train {
    /// Files whose pages to learn from
    #[arg(value_name = "FILE", group = "pages")]
    pub(crate) files: Vec<PathBuf>,
    /// Learn from the resident anonymous pages of this process instead
    #[arg(long, value_parser = process, allow_negative_numbers = true, group = "pages")]
    pub(crate) pid: Option<u32>,
    /// Write the dictionary here; it holds parts of the pages
    #[arg(short, long, value_name = "DICT")]
    pub(crate) output: PathBuf,
    /// The largest size of the dictionary
    #[arg(long, default_value = "64K", value_name = "BYTES", value_parser = size::parse)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) size: u64,
    /// The algorithm it is for: zstd, lz4, lz4hc or pagelz, optionally with a level: zstd:7
    #[arg(long, default_value = "zstd", value_name = "NAME[:LEVEL]")]
    pub(crate) algorithm: codec::Codec,
}

/// `ramfold check`
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Socket, nbd+unix address or name of a server
    pub(crate) target: String,
    /// A device of the server [default: all]
    pub(crate) device: Option<String>,
}

/// `ramfold add`
#[derive(Args, Debug)]
pub(crate) struct Add {
    /// Socket, nbd+unix address or name of a server
    pub(crate) target: String,
    /// The name and the size of the device
    #[arg(value_name = "NAME=SIZE", value_parser = Export::parse)]
    pub(crate) export: Export,
}

/// `ramfold remove`
#[derive(Args, Debug)]
pub(crate) struct Remove {
    /// Socket, nbd+unix address or name of a server
    pub(crate) target: String,
    /// The name of the device; it is refused while a client has it open
    #[arg(value_name = "NAME")]
    pub(crate) device: String,
}

/// `ramfold manual`
#[derive(Args, Debug)]
pub(crate) struct Manual {
    /// The page: a command, or ramfold.conf for the file of --config [default: all commands]
    pub(crate) page: Option<String>,
    /// Write all pages into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "page")]
    pub(crate) into: Option<PathBuf>,
}

/// `ramfold completions`
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Refuses an algorithm that uses no dictionary.
pub(crate) fn check_takes_dictionary(codec: &Codec) -> Result<(), Failure> {
    let algorithm = codec.algorithm();
    if algorithm.takes_dictionary() {
        return Ok(());
    }
    let takers = Algorithm::ALL.iter().filter(|algorithm| algorithm.takes_dictionary());
    let names: Vec<&str> = takers.map(|algorithm| algorithm.name()).collect();
    let text = format!("{algorithm} uses no dictionary; these do: {}", names.join(" "));
    Err(Failure::Usage(text))
}

/// Reads a size, or a part in percent.
fn limit(text: &str) -> Result<Limit, String> {
    let Some(part) = text.strip_suffix('%') else { return size::parse(text).map(Limit::Bytes) };
    let percent = digits(part).and_then(|part| part.parse().ok());
    let percent = percent.filter(|percent| (1..=100).contains(percent));
    percent.map(Limit::Percent).ok_or_else(|| format!("{text:?} is no part; it is 1% to 100%"))
}

fn interval(text: &str) -> Result<Duration, String> {
    const SECONDS_MAX: f64 = 86_400.0;
    let seconds: Option<f64> = text.parse().ok().filter(|s| (0.1..=SECONDS_MAX).contains(s));
    let seconds = seconds.ok_or_else(|| format!("{text:?} is not 0.1 to {SECONDS_MAX} seconds"))?;
    Ok(Duration::from_secs_f64(seconds))
}

fn process(text: &str) -> Result<u32, String> {
    let pid = digits(text).and_then(|text| text.parse().ok()).filter(|&pid| pid > 0);
    pid.ok_or_else(|| format!("{text:?} is not the number of a process"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Line::command().debug_assert();
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let line = Line::try_parse_from(["ramfold", "serve", "--size", "1G"]).unwrap();
        let Command::Serve(serve) = line.command else { panic!("serve is serve") };
        assert_eq!((&*serve.name, serve.size), ("zram0", Some(1 << 30)));
        assert_eq!((serve.algorithm, serve.density), (None, zram::Density::Fast));
        assert_eq!((serve.chain_order, serve.rule), (3, zsmalloc::Rule::LeastWaste));
        assert_eq!((serve.design, serve.free), (LockDesign::Class, FreeDesign::Range));
        assert_eq!((serve.memory_limit, serve.unix, serve.tcp), (None, None, None));
        assert!(!serve.tcp_anywhere && !serve.read_only);
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for text in ["127.0.0.1:0", "[::1]:10809", "localhost:65535"] {
            assert_eq!(address(text).as_deref(), Ok(text));
        }
        let rows = [
            ("10809", "HOST:PORT"),
            ("localhost", "127.0.0.1:10809"),
            (":10999", "127.0.0.1:10999, or 0.0.0.0:10999 with --tcp-anywhere"),
            ("localhost:", "\"\" is no port"),
            ("127.0.0.1:99999", "\"99999\" is no port"),
            ("127.0.0.1:+80", "\"+80\" is no port"),
            ("127.0.0.1: 80", "\" 80\" is no port"),
        ];
        for (text, expected) in rows {
            let line = address(text).unwrap_err();
            assert!(line.contains(expected), "{text}: {line}");
        }
    }

    #[test]
    fn a_number_has_digits_and_nothing_else() {
        assert_eq!((chain_order("3"), process("3")), (Ok(3), Ok(3)));
        for text in ["", "+3", " 3", "3 ", "-3", "3.0", "0x3"] {
            assert!(chain_order(text).is_err() && process(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_watch_has_an_interval_of_its_own() {
        let watch = |words: &[&str]| {
            let line = ["ramfold", "stat"].iter().chain(words).chain(&["zram0"]);
            match Line::try_parse_from(line).unwrap().command {
                Command::Stat(stat) => stat.watch,
                other => panic!("stat is not {other:?}"),
            }
        };
        assert_eq!(watch(&[]), None);
        assert_eq!(watch(&["--watch"]), Some(Duration::from_secs(1)));
        assert_eq!(watch(&["--watch=0.5"]), Some(Duration::from_millis(500)));
        for text in ["0", "-1", "nan", "inf", "1e300", "soon"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
