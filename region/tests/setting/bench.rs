//! A pager, and a cache before a disk whose troubles the test chooses.

use crate::cache;
use crate::rough::{RoughDisk, Trouble};
use crate::setting;
use ramfold_region::zswap::Zswap;
use ramfold_region::{Pager, PagerConfig};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

const CHILD: &str = "RAMFOLD_TEST_CHILD";
const SIGABRT: i32 = 6;

pub(crate) struct Bench {
    pub(crate) pager: Arc<Pager>,
    pub(crate) cache: Arc<Zswap>,
    pub(crate) trouble: Arc<Trouble>,
}

impl Bench {
    /// A cache of so many bytes before a disk with room for everything. `adjust` sets the disk's
    /// troubles before the cache gets the disk. `None` if there can be no pager.
    pub(crate) fn with(bytes: u64, adjust: impl FnOnce(&Trouble)) -> Option<Bench> {
        let pager = setting::pager(&PagerConfig::default())?;
        let (disk, trouble) = RoughDisk::new(256 << 20);
        adjust(&trouble);
        let cache = cache::cache(&pager, bytes, Some(disk));
        Some(Bench { pager, cache, trouble })
    }
}

/// Runs the test of that name again, in a child that must say these words and abort. True in the
/// child.
pub(crate) fn is_child_that_aborts(test: &str, words: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("this test's path");
    let child = Command::new(this).args([test, "--exact"]).env(CHILD, "1").output();
    let child = child.expect("a child");
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(SIGABRT), "{said}");
    assert!(said.contains(words), "{said}");
    false
}
