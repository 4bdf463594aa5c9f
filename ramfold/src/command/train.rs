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

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use codec::{Codec, CodecError, DICTIONARY_LEN_MIN, Stream};
use host::{PAGE_SIZE, limits};
use serve::shell;

use super::estimate::{Page, Source};
use crate::line::Failure;
use crate::line::args;
use crate::line::output::{one_line, patiently, print};
use crate::line::size::{count, human, plural};
use crate::line::whole;

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
    whole::check(&args.output)?;
    let limit = limits::memory_available().default_limit.unwrap_or(FALLBACK_LIMIT);
    let source = match args.pid {
        Some(pid) => Source::of_process(pid, limit / 2)?,
        None => Source::of_files(&args.files)?,
    };
    let pages = Pages::sort(&source, args.size)?;
    let content =
        patiently(|| codec::train(args.algorithm.algorithm(), &pages.train, args.size as usize))
            .map_err(|error| Failure::about("no dictionary", error))?;
    let with = args.algorithm.with_dictionary(&content);
    let with = with.map_err(|error| Failure::about("the dictionary", error))?;
    let gain = Gain::measure(&args.algorithm, &with, &pages.held_out)?;
    whole::write(&args.output, &content)?;
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
        for text in ["zstd", "lz4", "lz4hc", "pagelz"] {
            let codec: Codec = text.parse().unwrap();
            let content = codec::train(codec.algorithm(), &pages.train, 8 << 10).unwrap();
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
