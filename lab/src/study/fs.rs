//! Study `fs`: real file systems doing real work on a disk, ours and the kernel's (S1, S4).
//!
//! ```text
//!   for every run, --fs, --workload, --design and --chain-order, then the kernel's zram:
//!     an empty disk of --size -> mkfs -> mount -> the workload, then sync    wall_s, files_per_s
//!     mm_stat                                                                mem_used_max
//!     what was written is compared with what should be there
//!     unmount -> the file system's own check
//! ```
//!
//! Ours is a file under a FUSE mount, served by a process of its own and made a block device by a
//! loop device that goes past the page cache; the kernel's zram is a block device already. So the
//! difference of the two is the way to the store, twice through the kernel, more than the store.
//!
//! | workload | what it does |
//! |---|---|
//! | `fsmark` | fs_mark: `--files` of `--file-bytes` bytes, each synced, by `--threads` threads |
//! | `untar` | unpacks the source trees of this build's dependencies, `--copies` times |
//! | `build` | compiles one package of this workspace, sources and results on the disk |
//!
//! `user_s` and `sys_s` are of the tools and their children, and do not have the server's time.
//!
//! With `--classes` there is a row besides for each size class in use after the work, with what it
//! holds. The kernel shows no such table unless it is built for that.
//!
//! Rows are medians over the runs, with minimum and maximum. Against the smallest chain order of
//! ours, `saves_mem_used_max` is the mean of the differences within each run, with its 95 %
//! interval by Student's t.
//!
//! These figures do not show reads of files that left the page cache.

use crate::frame::{Lab, Report, Study, note};
use crate::ground::{LabError, size, stats};
use crate::kernel::{self, KernelZram, Requests};
use crate::rows::{Field, Format, Row, column, fields, grouped};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use zsmalloc::Rule;
use zsmalloc::study::LockDesign;

mod classes;
mod loops;
mod served;
mod server;
mod tool;
mod volume;
mod workload;

pub(super) use server::INSIDE;

use volume::{FileSystem, Volume};
use workload::{Amount, Plan, Workload};

pub(super) const STUDY: Study = Study {
    name: "fs",
    about: "File systems at work on a compressed disk, through FUSE and a loop device",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: true,
    run,
};

/// Options of `lab fs`.
#[derive(Args, Debug)]
struct Options {
    /// File systems
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "ext4")]
    fs: Vec<FileSystem>,
    /// The work that is done on them
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "fsmark")]
    workload: Vec<Workload>,
    /// Lock designs of our allocator
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "class")]
    design: Vec<LockDesign>,
    /// Chain orders of our stores
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "3",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    chain_order: Vec<u32>,
    /// How requests come from the kernel
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "device")]
    requests: Vec<Requests>,
    /// How a size class of ours chooses its chain: least-waste, as the kernel since Linux 6.3, or
    /// used-percent, as study S1
    #[arg(long, value_name = "RULE", default_value = "least-waste")]
    rule: Rule,
    /// Also a row for each size class of ours that is in use after the work
    #[arg(long)]
    classes: bool,
    /// Algorithm, on both sides
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: Codec,
    /// Size of the disk
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = size::parse)]
    size: u64,
    #[command(flatten)]
    amount: Amount,
}

const QUICK_SIZE: u64 = 192 << 20;
const QUICK_FILES: u64 = 64;

/// One thing to be measured, again in every run.
struct Case<'a> {
    fs: FileSystem,
    plan: &'a Plan,
    store: Store<'a>,
}

#[derive(Clone, Copy)]
enum Store<'a> {
    Ours { design: LockDesign, chain_order: u32, requests: Requests },
    Kernel(&'a KernelZram),
}

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let mut options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    if lab.quick() {
        options.size = options.size.min(QUICK_SIZE);
        options.amount.files = options.amount.files.min(QUICK_FILES);
    }
    needs()?;
    let mut notes = Vec::new();
    let peer = lab.kernel_peer(&mut notes);
    let plans = plans(&options, lab)?;
    let cases = cases(&options, &plans, peer.as_ref());
    let measure = |case: &Case<'_>, run| case.measure(&options, run, lab);
    let runs = lab.interleaved(&cases, Case::name, measure)?;
    let rows = rows(&runs);
    compare(&runs, &rows, &mut notes);
    Ok(Report { corpus: None, rows, runs, notes })
}

/// Whatever is mounted, root mounts it, and ours is served by FUSE and has a loop device.
fn needs() -> Result<(), LabError> {
    kernel::needs_root().map_err(|why| LabError::missing("root", why))?;
    let devices = ["/dev/fuse", "/dev/loop-control"];
    match devices.into_iter().find(|device| !std::path::Path::new(device).exists()) {
        Some(device) => Err(LabError::missing(device, "this system has none")),
        None => Ok(()),
    }
}

fn plans(options: &Options, lab: &Lab) -> Result<Vec<Plan>, LabError> {
    options.workload.iter().map(|&workload| Plan::new(workload, &options.amount, lab)).collect()
}

fn cases<'a>(
    options: &'a Options,
    plans: &'a [Plan],
    peer: Option<&'a KernelZram>,
) -> Vec<Case<'a>> {
    let ours = options.design.iter().flat_map(|&design| {
        options.chain_order.iter().flat_map(move |&chain_order| {
            let ways = options.requests.iter();
            ways.map(move |&requests| Store::Ours { design, chain_order, requests })
        })
    });
    let stores: Vec<Store> = ours.chain(peer.map(Store::Kernel)).collect();
    let works = options.fs.iter().flat_map(|&fs| plans.iter().map(move |plan| (fs, plan)));
    works.flat_map(|(fs, plan)| stores.iter().map(move |&store| Case { fs, plan, store })).collect()
}

impl Case<'_> {
    fn name(&self) -> String {
        let work = self.plan.workload.name();
        match self.store {
            Store::Ours { design, chain_order, requests } => {
                let (fs, design, way) = (self.fs.name(), design.name(), requests.name());
                format!("{fs} {work} on zram, {design} {chain_order}, {way}")
            }
            Store::Kernel(_) => format!("{} {work} on {}", self.fs.name(), kernel::NAME),
        }
    }

    fn measure(&self, options: &Options, run: u32, lab: &Lab) -> Result<Vec<Row>, LabError> {
        let volume = match self.store {
            Store::Ours { design, chain_order, requests } => {
                let (algorithm, size) = (options.algorithm.clone(), options.size);
                let rule = options.rule;
                let config =
                    served::Config { design, chain_order, rule, algorithm, size, requests };
                Volume::ours(self.fs, &config, lab)?
            }
            Store::Kernel(peer) => {
                peer.set_up(options.algorithm.algorithm().name(), options.size)?;
                Volume::kernel(self.fs, peer, lab)?
            }
        };
        let done = self.plan.work(volume.path(), lab)?;
        let stat = volume.mm_stat()?;
        let classes = if options.classes { volume.classes()? } else { Vec::new() };
        self.plan.verify(volume.path(), lab)?;
        volume.end(lab)?;
        let mut key = self.key(options);
        key.set("run", run);
        let mut row = key.clone();
        row.set("files_per_s", done.files as f64 / done.wall.as_secs_f64())
            .set("wall_s", done.wall.as_secs_f64())
            .set("user_s", done.cpu.user_s)
            .set("sys_s", done.cpu.sys_s)
            .set("fsmark_files_per_s", done.reported_files_per_s)
            .set("orig_data_size", stat.orig_data_size)
            .set("compr_data_size", stat.compr_data_size)
            .set("mem_used_total", stat.mem_used_total)
            .set("mem_used_max", stat.mem_used_max)
            .set("same_pages", stat.same_pages)
            .set("pages_compacted", stat.pages_compacted)
            .set("huge_pages", stat.huge_pages);
        Ok([row].into_iter().chain(classes.into_iter().map(|class| class.row(&key))).collect())
    }

    fn key(&self, options: &Options) -> Row {
        let mut row = Row::default();
        row.set("fs", self.fs.name()).set("workload", self.plan.workload.name());
        match self.store {
            Store::Ours { design, chain_order, requests } => {
                row.set("store", "zram")
                    .set("requests", requests.name())
                    .set("design", design.name())
                    .set("chain_order", chain_order)
                    .set("rule", options.rule.name());
            }
            Store::Kernel(_) => {
                row.set("store", kernel::NAME);
            }
        }
        row.set("algorithm", options.algorithm.to_string())
            .set("size_bytes", options.size)
            .set("threads", self.plan.threads)
            .set("files", self.plan.files);
        // Of no class, which is said: a run without the field would be of every one.
        for field in ["class", "class_size", "pages_per_zspage"] {
            row.set(field, None::<u64>);
        }
        row
    }
}

/// Medians, and what each chain order saves of the smallest one's `mem_used_max`.
fn rows(runs: &[Row]) -> Vec<Row> {
    let mut rows = fields::medians(&FIELDS, runs);
    let groups = grouped(runs, &fields::keys(&FIELDS));
    for (row, group) in rows.iter_mut().zip(&groups) {
        let base = base_of(group, &groups).map_or(Vec::new(), |base| column(base, "mem_used_max"));
        let saved = stats::paired(&column(group, "mem_used_max"), &base);
        row.set("saves_mem_used_max", saved.map(|saved| saved.mean));
        row.set("saves_mem_used_max_ci95", saved.and_then(|saved| saved.ci95));
    }
    rows
}

/// The runs of the smallest chain order with everything else equal; none for the kernel's.
fn base_of<'a>(group: &[Row], groups: &'a [Vec<Row>]) -> Option<&'a [Row]> {
    group[0].number("chain_order")?;
    let same = |other: &&Vec<Row>| {
        let keys = fields::keys(&FIELDS);
        let mut others = keys.iter().filter(|&&key| key != "chain_order");
        others.all(|key| other[0].get(key) == group[0].get(key))
    };
    let order = |other: &&Vec<Row>| other[0].number("chain_order").map_or(u64::MAX, |o| o as u64);
    groups.iter().filter(same).min_by_key(order).map(Vec::as_slice)
}

/// Says how ours compares with the kernel's, run by run.
fn compare(runs: &[Row], rows: &[Row], notes: &mut Vec<String>) {
    for row in rows.iter().filter(|row| row.is("store", "zram")) {
        let of = |store: &'static str| {
            let same = move |run: &&Row| {
                let ours = store == "zram";
                let keys = ["fs", "workload"].iter();
                let also = ["design", "chain_order", "requests"].iter().filter(|_| ours);
                run.is("store", store) && keys.chain(also).all(|key| run.get(key) == row.get(key))
            };
            runs.iter().filter(same).filter_map(|run| run.number("files_per_s")).collect::<Vec<_>>()
        };
        let (ours, theirs) = (of("zram"), of(kernel::NAME));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        if let Some(ratio) = stats::spread(&ratios) {
            let text = |key| row.get(key).to_string().replace('"', "");
            note(
                notes,
                format!(
                    "{} {}, {} order {}, {}: {:.2} of {}'s files per second (median of {} runs)",
                    text("fs"),
                    text("workload"),
                    text("design"),
                    text("chain_order"),
                    text("requests"),
                    ratio.median,
                    kernel::NAME,
                    ratios.len(),
                ),
            );
        }
    }
}

const FIELDS: [Field; 32] = [
    Field::key("fs").shown("fs", Format::Plain),
    Field::key("workload").shown("workload", Format::Plain),
    Field::key("store").shown("store", Format::Plain),
    Field::key("design").shown("design", Format::Plain),
    Field::key("chain_order").shown("order", Format::Plain),
    Field::key("rule"),
    Field::key("requests").shown("requests", Format::Plain),
    Field::key("class").shown("class", Format::Plain),
    Field::key("class_size"),
    Field::key("pages_per_zspage"),
    Field::key("algorithm"),
    Field::key("size_bytes"),
    Field::key("threads"),
    Field::key("files"),
    Field::measured("files_per_s").shown("files/s", Format::Fixed(1)),
    Field::measured("wall_s").shown("wall s", Format::Fixed(2)),
    Field::measured("user_s"),
    Field::measured("sys_s"),
    Field::measured("fsmark_files_per_s"),
    Field::measured("orig_data_size"),
    Field::measured("mem_used_max").shown("used max MiB", Format::Mib),
    Field::measured("mem_used_total"),
    Field::measured("compr_data_size").shown("compressed MiB", Format::Mib),
    Field::measured("same_pages"),
    Field::measured("pages_compacted"),
    Field::measured("huge_pages"),
    Field::measured("obj_allocated"),
    Field::measured("obj_used").shown("objects", Format::Fixed(0)),
    Field::measured("pages_used").shown("frames", Format::Fixed(0)),
    Field::measured("freeable"),
    Field::added("saves_mem_used_max").shown("saved MiB", Format::Mib),
    Field::added("saves_mem_used_max_ci95").shown("+- MiB", Format::Mib),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn run(order: u32, used: f64) -> Row {
        let mut row = Row::default();
        row.set("store", "zram").set("chain_order", order).set("mem_used_max", used);
        row
    }

    #[test]
    fn what_an_order_saves_is_paired_by_run() {
        let runs = [run(4, 900.0), run(2, 1000.0), run(4, 1880.0), run(2, 2000.0)];
        let rows = rows(&runs);
        assert_eq!(rows[0].number("saves_mem_used_max"), Some(110.0), "100 and 120");
        assert_eq!(rows[1].number("saves_mem_used_max"), Some(0.0), "the smallest itself");
    }
}
