//! Data to store: noise that no codec shrinks, and the files of this machine.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

pub(crate) const PAGE_SIZE: u64 = 4096;

/// Bytes that do not compress, different for each seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

/// Writes one file of `mib` MiB from the machine's own programs, libraries and texts.
pub(crate) fn real_files(path: &Path, mib: u64) {
    let mut image = File::create(path).expect("the image can be created");
    let mut left = mib << 20;
    while left > 0 {
        let before = left;
        append_tree(&mut image, Path::new("/usr"), &mut left);
        assert!(left < before, "no readable file below /usr");
    }
}

fn append_tree(image: &mut File, directory: &Path, left: &mut u64) {
    for path in sorted(directory) {
        if *left == 0 {
            return;
        }
        if path.is_symlink() {
            continue; // the target is reached by its own name
        }
        match path.is_dir() {
            true => append_tree(image, &path, left),
            false => append_file(image, &path, left),
        }
    }
}

fn append_file(image: &mut File, path: &Path, left: &mut u64) {
    let Ok(file) = File::open(path) else { return };
    let mut bytes = Vec::new();
    if path.is_file() && file.take(*left).read_to_end(&mut bytes).is_ok() {
        image.write_all(&bytes).expect("the disk has room for the image");
        *left -= bytes.len() as u64;
    }
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}
