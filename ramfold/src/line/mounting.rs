//! The command lines of `ramfold mount` and `ramfold umount`.
//!
//! A disk that is mounted is one that `ramfold serve` serves. So most options of `mount` are those
//! of `serve`, and [`Mount::serve_words`] writes them as its command line.
//!
//! Invariant: an option that both commands have means the same to both. Locks: none.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::attribute::Change;
use super::choices::{IoUring, Shuffle, Writeback};
use super::export::device_name;
use super::forms::chain_order;
use super::monitoring::Monitoring;
use super::size;

/// `ramfold mount`
#[derive(Args, Debug)]
pub(crate) struct Mount {
    /// Where to mount it: an empty directory, or one to be made
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Read options from this file: a line KEY = VALUE for --KEY VALUE. An option that is typed
    /// replaces those of the file. See ramfold.conf(5)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Size of the disk, rounded up to whole pages of 4K. Only what is stored takes memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse_disk)]
    #[arg(required = true, allow_negative_numbers = true)]
    pub(crate) size: u64,
    /// The file system
    #[arg(long, value_enum, value_name = "NAME", default_value = "ext4")]
    pub(crate) fs: FileSystem,
    /// Mount options besides discard, separated by commas, as for mount -o
    #[arg(long, value_name = "OPTIONS")]
    pub(crate) options: Option<String>,
    /// Stay in the foreground until a signal, and not in the background until ramfold umount
    #[arg(long, conflicts_with = "command")]
    pub(crate) foreground: bool,
    #[command(flatten)]
    pub(crate) disk: Disk,
    /// A command to run with DIR mounted, after --; DIR is unmounted when it ends
    #[arg(last = true, value_name = "COMMAND ARGUMENT")]
    pub(crate) command: Vec<OsString>,
}

/// Options that `serve` has as well.
#[derive(Args, Debug)]
pub(crate) struct Disk {
    /// Name by which stat, set and check find the disk [default: the last part of DIR]
    #[arg(long, value_parser = device_name)]
    pub(crate) name: Option<String>,
    /// The most memory that stored pages may take: a size, or a part of what is available
    /// [default: 50%]
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = size::parse_memory)]
    #[arg(allow_negative_numbers = true)]
    memory_limit: Option<u64>,
    /// Compression: lzo-rle, lzo, lz4, lz4hc, zstd, deflate or pagelz, perhaps with a level: zstd:7
    /// [default: lz4]
    #[arg(long, value_name = "NAME[:LEVEL]")]
    algorithm: Option<codec::Codec>,
    /// With auto, samples of the pages say where it pays to order their bytes by the size of a
    /// number before they are compressed. Disks of numbers gain by it
    #[arg(long, default_value = "off", value_name = "WHEN")]
    shuffle: Shuffle,
    /// How densely pages are kept that are not used: fast, balanced or dense. balanced and dense
    /// choose the algorithms, so --algorithm turns them off
    #[arg(long, default_value = "fast", value_name = "HOW")]
    density: zram::Density,
    /// Seconds of an age, in which --density counts how long pages were not used
    #[arg(long, default_value = "30", value_name = "SECONDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    tier_age: u32,
    /// The most CPU time that --density uses for a device in the background, in percent of one CPU
    #[arg(long, default_value = "10", value_name = "PERCENT")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    tier_cpu: u32,
    /// Whether --density sends pages to --backing that were not used for 64 ages: asked or auto
    #[arg(long, default_value = "asked", value_name = "WHEN")]
    writeback: Writeback,
    /// Dictionary of what pages share, for lz4, lz4hc, zstd or pagelz; ramfold train makes one
    #[arg(long, value_name = "FILE")]
    dictionary: Option<PathBuf>,
    /// Up to 2^N frames per zspage, N from 0 to 4; a larger N packs denser
    #[arg(long, default_value = "3", value_name = "N", value_parser = chain_order)]
    #[arg(allow_negative_numbers = true)]
    chain_order: u32,
    /// How size classes are chosen: least-waste, used-percent or fitted
    #[arg(long, default_value = "least-waste")]
    rule: zsmalloc::Rule,
    /// Write pages back to this file, block device or NBD export (nbd://HOST/NAME,
    /// nbd+unix:///NAME?socket=PATH) when ramfold set asks for it; its present content is lost
    #[arg(long, value_name = "PATH|URI")]
    backing: Option<PathBuf>,
    /// Note when each page is used, so that pages can be marked idle by age
    #[arg(long)]
    track_ages: bool,
    /// Store pages that are equal once; finding them takes time in each write
    #[arg(long)]
    share_equal_pages: bool,
    /// Hold the memory of stored pages at this size: recompress the coldest, then write them back
    #[arg(long, value_name = "SIZE|PERCENT", value_parser = size::parse_memory)]
    #[arg(allow_negative_numbers = true)]
    memory_target: Option<u64>,
    /// Write an attribute before the disk gets its size, for example recomp_algorithm=algo=zstd
    #[arg(long, value_name = "ATTRIBUTE=VALUE", value_parser = setting)]
    set: Vec<String>,
    /// Take requests for the disk by io_uring: auto, where the kernel offers it, or off
    #[arg(long, default_value = "auto", value_name = "WHEN")]
    fuse_io_uring: IoUring,
    /// Listen for stat, set and check here as well; PATH ends in .ctl
    #[arg(long, value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    /// Write the number of the process that serves the disk here before DIR is mounted, and remove
    /// it at the end
    #[arg(long, value_name = "PATH")]
    pub(crate) pidfile: Option<PathBuf>,
    /// Print only errors and warnings
    #[arg(long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    monitoring: Monitoring,
}

/// `ramfold umount`
#[derive(Args, Debug)]
pub(crate) struct Umount {
    /// The directory that was given to ramfold mount
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
}

/// A file system that can be made on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileSystem {
    Ext4,
    Btrfs,
    Xfs,
}

impl FileSystem {
    /// Its name for `mount` and in `mkfs.NAME`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Btrfs => "btrfs",
            FileSystem::Xfs => "xfs",
        }
    }
}

/// Judges a change, and gives the text back.
fn setting(text: &str) -> Result<String, String> {
    Change::setting(text).map(|_| text.to_owned())
}

impl Mount {
    /// The command line of the server, with its tree at a directory.
    pub(crate) fn serve_words(&self, name: &str, tree: &Path) -> Vec<OsString> {
        let disk = &self.disk;
        let option = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            word
        };
        let mut words: Vec<OsString> = vec!["ramfold".into(), "serve".into(), "--quiet".into()];
        words.push(option("name", &name));
        words.push(option("fuse", &tree));
        words.push(option("size", &self.size.to_string()));
        let algorithm = disk.algorithm.as_ref().map(|it| option("algorithm", &it.to_string()));
        words.extend(algorithm);
        let shuffled = disk.shuffle == Shuffle::Auto;
        words.extend(shuffled.then(|| "--shuffle=auto".into()));
        words.push(option("density", &disk.density.to_string()));
        words.push(option("tier-age", &disk.tier_age.to_string()));
        words.push(option("tier-cpu", &disk.tier_cpu.to_string()));
        let by_age = disk.writeback == Writeback::Auto;
        words.extend(by_age.then(|| "--writeback=auto".into()));
        words.push(option("chain-order", &disk.chain_order.to_string()));
        words.push(option("rule", &disk.rule.to_string()));
        let sizes = [("memory-limit", disk.memory_limit), ("memory-target", disk.memory_target)];
        let sizes = sizes.into_iter().filter_map(|(name, size)| Some((name, size?)));
        words.extend(sizes.map(|(name, size)| option(name, &size.to_string())));
        let files = [
            ("dictionary", &disk.dictionary),
            ("backing", &disk.backing),
            ("control", &disk.control),
            ("pidfile", &disk.pidfile),
        ];
        let files = files.into_iter().filter_map(|(name, file)| Some((name, file.as_ref()?)));
        words.extend(files.map(|(name, file)| option(name, file)));
        words.extend(disk.set.iter().map(|change| option("set", change)));
        words.extend(disk.monitoring.words().into_iter().map(OsString::from));
        words.extend(disk.track_ages.then(|| "--track-ages".into()));
        let off = disk.fuse_io_uring == IoUring::Off;
        words.extend(off.then(|| "--fuse-io-uring=off".into()));
        words.extend(disk.share_equal_pages.then(|| "--share-equal-pages".into()));
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::args::{Command, Line};
    use clap::{CommandFactory, Parser};

    /// Options that say something only to `mount`.
    const OWN: [&str; 5] = ["config", "fs", "options", "foreground", "help"];

    #[test]
    fn every_option_reaches_the_server() {
        let given = [
            "ramfold",
            "mount",
            "/mnt",
            "--size=5000",
            "--name=a",
            "--memory-limit=1M",
            "--algorithm=zstd:7",
            "--shuffle=auto",
            "--density=balanced",
            "--tier-age=7",
            "--tier-cpu=20",
            "--writeback=auto",
            "--dictionary=d",
            "--chain-order=4",
            "--rule=fitted",
            "--backing=b",
            "--control=c.ctl",
            "--pidfile=p",
            "--track-ages",
            "--share-equal-pages",
            "--memory-target=512K",
            "--set=recomp_algorithm=algo=zstd",
            "--metrics=127.0.0.1:0",
            "--metrics-anywhere",
            "--fuse-io-uring=off",
            "--quiet",
        ];
        let of_mount = Line::command();
        let of_mount = of_mount.find_subcommand("mount").unwrap().get_arguments();
        for option in of_mount.filter_map(clap::Arg::get_long).filter(|it| !OWN.contains(it)) {
            let word = format!("--{option}");
            assert!(given.iter().any(|it| it.starts_with(&word)), "{word} is in no row here");
        }
        let Command::Mount(mount) = Line::try_parse_from(given).unwrap().command else {
            panic!("mount is mount")
        };
        let words = mount.serve_words("a", Path::new("/run/tree"));
        let Command::Serve(serve) = Line::try_parse_from(words).unwrap().command else {
            panic!("serve is serve")
        };
        assert_eq!((&*serve.name, serve.size), ("a", Some(5000)));
        assert_eq!((serve.memory_limit, serve.memory_target), (Some(1 << 20), Some(512 << 10)));
        let algorithm = serve.algorithm.map(|algorithm| algorithm.to_string());
        assert_eq!((algorithm.as_deref(), serve.chain_order), (Some("zstd:7"), 4));
        assert_eq!(serve.density, zram::Density::Balanced);
        assert_eq!((serve.tier_age, serve.tier_cpu), (7, 20));
        assert_eq!(serve.writeback, Writeback::Auto);
        assert_eq!(serve.dictionary.as_deref(), Some(Path::new("d")));
        assert_eq!(serve.rule, zsmalloc::Rule::Fitted);
        assert_eq!(serve.backing.as_deref(), Some(Path::new("b")));
        assert_eq!(serve.control.as_deref(), Some(Path::new("c.ctl")));
        assert_eq!(serve.pidfile.as_deref(), Some(Path::new("p")));
        assert_eq!(serve.fuse.as_deref(), Some(Path::new("/run/tree")));
        assert!(serve.monitoring.place().is_some());
        assert_eq!(serve.fuse_io_uring, IoUring::Off);
        assert!(serve.track_ages && serve.share_equal_pages);
        assert!(serve.quiet && serve.set.len() == 1);
    }
}
