//! `lab codec-tables`: trains the tables that pagelz is shipped with, and writes their source file.
//!
//! ```text
//!   corpora of lab/corpus/train.py --> codec::train --> hex digits in pagelz/shipped.rs
//! ```
//!
//! Evenly spaced pages are taken of each corpus, up to a number, so that a large one has no more
//! say than others.

use super::{Corpus, PAGE_SIZE, is_same_filled};
use crate::ground::LabError;
use codec::{Algorithm, TABLES_LEN};
use std::path::{Path, PathBuf};

/// Options of `lab codec-tables`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Corpora, as lab/corpus/train.py writes them
    #[arg(required = true, value_name = "FILE")]
    corpora: Vec<PathBuf>,
    /// The source file to write
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"),
          "/../codec/src/algorithms/pagelz/shipped.rs"))]
    out: PathBuf,
}

/// The most pages of a corpus that have a say.
const PAGES_MAX: usize = 4096;
/// Hex digits of a line.
const DIGITS: usize = 90;

const HEAD: &str = "\
//! The shipped lengths of codes, as hex digits of their bytes. `lab codec-tables` writes this file.
//!
//! Invariant: they make complete codes, or `lengths` does not compile. Locks: none.

pub(super) const DIGITS: &[u8] = b\"\\
";

/// Trains and writes; says from how many pages.
pub(crate) fn run(options: &Options) -> Result<String, LabError> {
    let mut pages = Vec::new();
    for path in &options.corpora {
        add(&mut pages, path)?;
    }
    let tables = codec::train(Algorithm::Pagelz, &pages, TABLES_LEN);
    let tables = tables.map_err(LabError::store("training"))?;
    std::fs::write(&options.out, source(&tables)).map_err(LabError::io(options.out.display()))?;
    let (count, corpora) = (pages.len() / PAGE_SIZE, options.corpora.len());
    Ok(format!("{}: from {count} pages of {corpora} corpora", options.out.display()))
}

/// Adds evenly spaced pages of a corpus.
fn add(pages: &mut Vec<u8>, path: &Path) -> Result<(), LabError> {
    let corpus = Corpus::open(Some(path), 0)?;
    let stride = corpus.pages().div_ceil(PAGES_MAX);
    let some = (0..corpus.pages()).step_by(stride).map(|page| corpus.page(page));
    some.filter(|page| !is_same_filled(page)).for_each(|page| pages.extend_from_slice(page));
    Ok(())
}

fn source(tables: &[u8]) -> String {
    let digits: String = tables.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines = digits.as_bytes().chunks(DIGITS).map(String::from_utf8_lossy);
    let lines: String = lines.map(|line| format!("    {line}\\\n")).collect();
    format!("{HEAD}{lines}\";\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is in the repository was written by this.
    #[test]
    fn the_shipped_source_is_that_of_the_shipped_tables() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../codec/src/algorithms/pagelz/shipped.rs");
        assert_eq!(std::fs::read_to_string(path).unwrap(), source(&codec::shipped_tables()));
    }
}
