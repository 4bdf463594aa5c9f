//! `ramfold train`: makes a dictionary from pages, and measures it on pages that it has not seen.
//!
//! ```text
//!   pages    |  stretch 0  |  stretch 1  |  stretch 2  |  stretch 3  |  stretch 4  | ..
//!               train on      train on      train on      hold out      train on
//! ```
//!
//! Neighbouring pages are alike, so whole stretches are held out, and not single pages. What is
//! printed is measured only on those.
//!
//! Invariant: no page is both trained on and measured. Same-filled pages are neither, because a
//! store never compresses them. Locks: none.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use codec::{Codec, CodecError, DICTIONARY_LEN_MIN, Stream};
use host::{PAGE_SIZE, limits};
use serve::shell;

use super::estimate::{Page, Source};
use crate::line::Failure;
use crate::line::args;
use crate::line::output::{one_line, patiently, print};
use crate::line::size::{count, human, plural};

/// Pages in a stretch, if there are enough of them.
const STRETCH_PAGES: u64 = 64;
/// The last of so many stretches is held out.
const STRETCHES: u64 = 4;
/// Bytes of pages that are trained on, for each byte of the dictionary.
const TRAIN_FACTOR: u64 = 100;
/// The most bytes of pages that are trained on.
const TRAIN_BYTES_MAX: u64 = 16 << 20; // 16 MiB
/// The most pages that are measured.
const HELD_OUT_PAGES_MAX: u64 = 4096;
/// The largest dictionary in bytes, as for `algorithm_params`.
const SIZE_MAX: u64 = 16 << 20; // 16 MiB
/// The limit if the system does not say how much memory there is.
const FALLBACK_LIMIT: u64 = 1 << 30; // 1 GiB
/// How many names are tried for a file that is to replace another.
const NAMES: u32 = 100;

/// Trains, measures, writes the dictionary, and prints what it gains.
pub(super) fn run(args: &args::Train) -> Result<(), Failure> {
    args::check_takes_dictionary(&args.algorithm)?;
    if !(DICTIONARY_LEN_MIN as u64..=SIZE_MAX).contains(&args.size) {
        return Err(Failure::Usage("--size: a dictionary has 1K to 16M".to_owned()));
    }
    if let Some(input) = args.files.iter().find(|input| is_same(input, &args.output)) {
        let why = "the dictionary would replace it, but it is one of the files to learn from";
        return Err(Failure::about(input.display(), why));
    }
    check_place(&args.output)?;
    let limit = limits::memory_available().default_limit.unwrap_or(FALLBACK_LIMIT);
    let source = match args.pid {
        Some(pid) => Source::of_process(pid, limit / 2)?,
        None => Source::of_files(&args.files)?,
    };
    let pages = Pages::sort(&source, args.size)?;
    let content = patiently(|| codec::train(&pages.train, args.size as usize))
        .map_err(|error| Failure::about("no dictionary", error))?;
    let with = args.algorithm.with_dictionary(&content);
    let with = with.map_err(|error| Failure::about("the dictionary", error))?;
    let gain = Gain::measure(&args.algorithm, &with, &pages.held_out)?;
    write(&args.output, &content)?;
    print(&report(args, &content, &pages, &gain))
}

/// The pages to train on and the pages to measure on. In each, pages follow one another.
struct Pages {
    train: Vec<u8>,
    held_out: Vec<u8>,
}

impl Pages {
    /// Evenly spaced pages of both sorts, as many as are wanted.
    fn sort(source: &Source, size: u64) -> Result<Pages, Failure> {
        let (pages, stretch) = (source.pages(), stretch(source.pages()));
        let wanted = (size * TRAIN_FACTOR).min(TRAIN_BYTES_MAX) / PAGE_SIZE as u64;
        let stride = |share: u64, wanted: u64| (pages * share / STRETCHES).div_ceil(wanted).max(1);
        let strides = [stride(STRETCHES - 1, wanted), stride(1, HELD_OUT_PAGES_MAX)];
        let mut sorted = Pages { train: Vec::new(), held_out: Vec::new() };
        let mut page: Page = [0; PAGE_SIZE];
        let mut seen = [0; 2];
        for place in 0..pages {
            let is_held_out = usize::from(is_held_out(place, stretch));
            seen[is_held_out] += 1;
            if (seen[is_held_out] - 1) % strides[is_held_out] != 0 {
                continue;
            }
            source.read(place, &mut page)?;
            if codec::same::repeated_word(&page).is_none() {
                let sort = [&mut sorted.train, &mut sorted.held_out];
                sort[is_held_out].extend_from_slice(&page);
            }
        }
        match sorted.train.is_empty() || sorted.held_out.is_empty() {
            true => Err(Failure::Failed("too few pages that are not same-filled".to_owned())),
            false => Ok(sorted),
        }
    }
}

/// Pages of a stretch. There are fewer if otherwise there were too few stretches.
fn stretch(pages: u64) -> u64 {
    (pages / (STRETCHES * STRETCHES)).clamp(1, STRETCH_PAGES)
}

fn is_held_out(place: u64, stretch: u64) -> bool {
    (place / stretch) % STRETCHES == STRETCHES - 1
}

/// Bytes that the held-out pages take, without the dictionary and with it.
struct Gain {
    without: u64,
    with: u64,
}

impl Gain {
    fn measure(without: &Codec, with: &Codec, pages: &[u8]) -> Result<Gain, Failure> {
        let failed = |error: CodecError| Failure::about("a page held out", error);
        let without = stored(without, pages).map_err(failed)?;
        Ok(Gain { without, with: stored(with, pages).map_err(failed)? })
    }

    /// How much is saved, in percent of what they take without it. Negative if they take more.
    fn percent(&self) -> f64 {
        (1.0 - self.with as f64 / self.without as f64) * 100.0
    }
}

/// Bytes that a store would keep of these pages. Each page is read back and compared.
fn stored(codec: &Codec, pages: &[u8]) -> Result<u64, CodecError> {
    let (mut stream, mut back) = (Stream::new(), [0; PAGE_SIZE]);
    let mut bytes = 0;
    for page in pages.chunks_exact(PAGE_SIZE) {
        let blob = codec.compress(&mut stream, page)?.to_vec();
        codec.decompress(&mut stream, &blob, &mut back)?;
        if back != page {
            return Err(CodecError::Corrupt);
        }
        bytes += blob.len().min(PAGE_SIZE) as u64;
    }
    Ok(bytes)
}

/// Where the dictionary is written.
enum Place {
    /// A file, which is made or replaced as a whole.
    File { target: PathBuf, replaced: Option<Metadata> },
    /// Something else, such as /dev/stdout, which is written to directly.
    Stream,
}

impl Place {
    /// The place of a path. A link to a file stays a link.
    fn of(path: &Path) -> io::Result<Place> {
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => Ok(Place::Stream),
            Ok(there) => Ok(Place::File { target: fs::canonicalize(path)?, replaced: Some(there) }),
            Err(_) => Ok(Place::File { target: path.to_owned(), replaced: None }),
        }
    }
}

/// Checks before the work whether a file can be made there. The file is removed at once, so that an
/// interrupted command leaves nothing.
fn check_place(path: &Path) -> Result<(), Failure> {
    let checked = Place::of(path).and_then(|place| match place {
        Place::File { target, .. } => fs::remove_file(new_beside(&target)?.1),
        // Opening a pipe would wait for its reader.
        Place::Stream => Ok(()),
    });
    checked.map_err(|error| Failure::about(path.display(), error))
}

/// Writes the dictionary as a whole or not at all. An old one stays until the new one is written.
/// Only the owner can read a new file, because it holds parts of the pages. A file that replaces
/// another takes over its owner and mode.
fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let failed = |error| Failure::about(path.display(), error);
    let (target, replaced) = match Place::of(path).map_err(failed)? {
        Place::File { target, replaced } => (target, replaced),
        Place::Stream => {
            let file = OpenOptions::new().write(true).open(path);
            return file.and_then(|mut file| file.write_all(content)).map_err(failed);
        }
    };
    let (mut file, beside) = new_beside(&target).map_err(failed)?;
    replaced.iter().for_each(|before| inherit(&file, before));
    file.write_all(content).and_then(|()| fs::rename(&beside, &target)).map_err(|error| {
        // Only the first failure is told.
        let _ = fs::remove_file(&beside);
        failed(error)
    })
}

/// Gives a new file the owner and the mode of the file that it replaces. If the owner cannot be
/// kept, the mode is not kept either, because other users than before could read it.
fn inherit(file: &File, before: &Metadata) {
    if fchown(file, Some(before.uid()), Some(before.gid())).is_ok() {
        // If this fails, the file stays closed to others.
        let _ = file.set_permissions(Permissions::from_mode(before.mode() & 0o777));
    }
}

/// A new file in the same directory. It must not exist before, not even as a link, because others
/// may write there too.
fn new_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    let mut names = (0..NAMES).map(|number| format!(".ramfold-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let made = names.find_map(|name| {
        let path = target.with_file_name(name);
        match options.open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            opened => Some(opened.map(|file| (file, path))),
        }
    });
    made.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

/// Whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path| fs::metadata(path).map(|status| (status.dev(), status.ino())).ok();
    file(one).is_some_and(|one| file(other) == Some(one))
}

fn report(args: &args::Train, content: &[u8], pages: &Pages, gain: &Gain) -> String {
    let (output, algorithm) = (args.output.to_string_lossy(), &args.algorithm);
    let held_out = (pages.held_out.len() / PAGE_SIZE) as u64;
    let trained = count((pages.train.len() / PAGE_SIZE) as u64, "page");
    let (without, with) = (gain.without / held_out, gain.with / held_out);
    let (percent, per_page) = (gain.percent(), count(without, "byte"));
    let others = format!("{held_out} other page{}", plural(held_out));
    let advice = match percent > 0.0 {
        true => format!(
            "use it: ramfold serve --algorithm {algorithm} --dictionary {} ..",
            shell::word(&args.output)
        ),
        false => "do without it: it does not help on pages it has not seen".to_owned(),
    };
    format!(
        "{}: {} from {trained}; it holds parts of them\n\
         {others} with {algorithm}: {per_page} a page without it, {with} with it: {percent:.1} % \
         saved\n{advice}\n",
        one_line(&output),
        human(content.len() as u64)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another user who may write to the directory could have made it, to redirect our bytes.
    #[test]
    fn what_has_the_name_of_the_new_file_is_neither_followed_nor_written() {
        let directory = std::env::temp_dir().join(format!("ramfold-beside-{}", std::process::id()));
        fs::create_dir(&directory).expect("a directory");
        let victim = directory.join("victim");
        fs::write(&victim, "precious").expect("room");
        let planted = directory.join(format!(".ramfold-{}-0", std::process::id()));
        std::os::unix::fs::symlink(&victim, planted).expect("a link");
        let target = directory.join("n".repeat(250));
        write(&target, b"content").expect("another name is free");
        assert_eq!(fs::read(&target).expect("written"), b"content");
        let kind = fs::symlink_metadata(&target).expect("there");
        assert!(kind.is_file() && kind.mode() & 0o777 == 0o600);
        assert_eq!(fs::read(&victim).expect("there"), b"precious");
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 3, "nothing is left over");
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn what_is_replaced_stays_for_whom_it_was() {
        let directory = std::env::temp_dir().join(format!("ramfold-mode-{}", std::process::id()));
        fs::create_dir(&directory).expect("a directory");
        let target = directory.join("dictionary");
        fs::write(&target, "before").expect("room");
        for mode in [0o644, 0o600, 0o440] {
            fs::set_permissions(&target, Permissions::from_mode(mode)).expect("ours");
            check_place(&target).expect("it can be replaced");
            write(&target, b"content").expect("room");
            assert_eq!(fs::metadata(&target).expect("there").mode() & 0o777, mode);
        }
        assert_eq!(fs::read_dir(&directory).expect("there").count(), 1, "nothing is left over");
        fs::remove_dir_all(&directory).expect("ours");
    }

    #[test]
    fn a_quarter_is_held_out_in_stretches() {
        for pages in [16, 100, 1024, 100_000] {
            let stretch = stretch(pages);
            let held_out = (0..pages).filter(|&place| is_held_out(place, stretch)).count() as u64;
            assert!(held_out * 5 > pages && held_out * 3 < pages, "{held_out} of {pages}");
        }
        let ends = [0, 191, 192, 255, 256].map(|place| is_held_out(place, STRETCH_PAGES));
        assert_eq!(ends, [false, false, true, true, false]);
    }

    /// Pages of records with the same words in another order: what a dictionary is for.
    fn records(pages: usize) -> Vec<u8> {
        let words = ["timestamp", "identifier", "description", "quantity", "warehouse", "customer"];
        let mut state = 1_usize;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let text = std::iter::repeat_with(|| {
            format!("{{\"{}\": {}}}, ", words[next() % words.len()], next() % 100_000)
        });
        text.flat_map(String::into_bytes).take(pages * PAGE_SIZE).collect()
    }

    #[test]
    fn what_is_saved_is_measured_on_other_pages() {
        let file = std::env::temp_dir().join(format!("ramfold-train-{}", std::process::id()));
        std::fs::write(&file, records(400)).unwrap();
        let source = Source::of_files(std::slice::from_ref(&file)).unwrap();
        let pages = Pages::sort(&source, 8 << 10).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(!pages.train.windows(PAGE_SIZE).any(|page| page == &pages.held_out[..PAGE_SIZE]));
        let content = codec::train(&pages.train, 8 << 10).unwrap();
        for text in ["zstd", "lz4", "lz4hc"] {
            let codec: Codec = text.parse().unwrap();
            let with = codec.with_dictionary(&content).unwrap();
            let gain = Gain::measure(&codec, &with, &pages.held_out).unwrap();
            assert!(gain.percent() > 1.0, "{text}: {} of {}", gain.with, gain.without);
        }
    }

    #[test]
    fn what_grows_is_said_to() {
        let gain = Gain { without: 100, with: 110 };
        assert!(gain.percent() < 0.0);
    }
}
