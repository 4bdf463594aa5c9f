//! Texts of the board.
//!
//! Invariant: a text is written before any process of the run is started. Lock: none.

use super::words::{put_text, text};
use super::{BACKING_LEN, Board};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

impl Board {
    /// The name of the algorithm.
    pub fn algorithm(&self) -> String {
        String::from_utf8_lossy(&text(&self.head().algorithm)).into_owned()
    }

    /// Says in which directory the stores have their files, before any process is started. False
    /// if the path has [`BACKING_LEN`] bytes or more.
    pub fn set_backing(&self, directory: &Path) -> bool {
        let path = directory.as_os_str().as_bytes();
        let fits = path.len() < BACKING_LEN;
        if fits {
            put_text(&self.head().backing, path);
        }
        fits
    }

    /// The directory in which the stores have their files, if there is a disk behind them.
    pub fn backing(&self) -> Option<PathBuf> {
        let path = text(&self.head().backing);
        (!path.is_empty()).then(|| PathBuf::from(OsString::from_vec(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_comes_back_whatever_its_bytes_and_a_long_one_is_refused() {
        let path = std::env::temp_dir().join(format!("board-texts-{}", std::process::id()));
        let board = Board::create(&path, 1000, "lz4").expect("a board");
        let seen = Board::open(&path).expect("the same");
        std::fs::remove_file(&path).expect("it is there");
        let long = "x".repeat(BACKING_LEN);
        assert!(!board.set_backing(Path::new(&long)));
        assert_eq!(seen.backing(), None);
        let (longest, short) = (Path::new(&long[1..]), Path::new("/tmp/\u{e9} disk"));
        assert!(board.set_backing(short));
        assert_eq!(seen.backing().as_deref(), Some(short));
        assert!(board.set_backing(longest));
        assert_eq!(seen.backing().as_deref(), Some(longest));
    }
}
