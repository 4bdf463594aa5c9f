//! Limits of the system: how much memory this process can get, the default limit that follows from
//! that, and how many mappings it may have.
//!
//! Invariant: a limit that the system does not tell is `None`, and limits nothing. Lock: none; the
//! system is asked each time.

use super::cgroup;
use super::smaps::field;
use std::fs::{self, File};
use std::io::Read;

/// The default limit is the memory that is available, divided by this.
const DEFAULT_SHARE: u64 = 2;
/// Mappings that a process may have if the system does not say: the kernel's default.
const MAPPINGS_MAX: u64 = 65_530;

/// Bytes of memory that are available, as far as the system tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryLimits {
    /// Memory of the machine (`MemTotal`).
    pub mem_total: Option<u64>,
    /// Memory the kernel could hand out without swapping (`MemAvailable`).
    pub mem_available: Option<u64>,
    /// Bytes until the tightest limit of this process's control groups; `None` if there is no
    /// limit.
    ///
    /// The usage of a group includes its page cache. The kernel would give up part of that first,
    /// so this is a lower bound.
    pub cgroup_headroom: Option<u64>,
    /// Half of the smaller of the two above; `None` if neither is known.
    pub default_limit: Option<u64>,
}

impl MemoryLimits {
    /// Bytes that are available: the smaller of what the machine and what the control groups have
    /// left.
    pub fn to_be_had(&self) -> Option<u64> {
        [self.mem_available, self.cgroup_headroom].into_iter().flatten().min()
    }
}

/// Asks the system how much memory is available. A file that cannot be read limits nothing.
pub fn memory_available() -> MemoryLimits {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    limits_from(&meminfo, cgroup::headroom())
}

/// How many mappings a process may have (`vm.max_map_count`). Allocates nothing.
pub fn max_map_count() -> u64 {
    let mut text = [0; 24];
    let read = File::open("/proc/sys/vm/max_map_count").and_then(|mut file| file.read(&mut text));
    let text = text.get(..read.unwrap_or(0)).and_then(|text| str::from_utf8(text).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(MAPPINGS_MAX)
}

fn limits_from(meminfo: &str, cgroup_headroom: Option<u64>) -> MemoryLimits {
    let find = |name| meminfo.lines().find_map(|line| field(line, name));
    let mut limits = MemoryLimits {
        mem_total: find("MemTotal"),
        mem_available: find("MemAvailable"),
        cgroup_headroom,
        default_limit: None,
    };
    limits.default_limit = limits.to_be_had().map(|bytes| bytes / DEFAULT_SHARE);
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "\
MemTotal:        8000000 kB\n\
MemFree:         1000000 kB\n\
MemAvailable:    6000000 kB\n\
SwapTotal:             0 kB\n";

    #[test]
    fn the_smaller_of_machine_and_group_decides() {
        let available = 6_000_000 * 1024;
        let default = |headroom| limits_from(MEMINFO, headroom).default_limit;
        assert_eq!(default(None), Some(available / 2));
        assert_eq!(default(Some(1000)), Some(500));
        assert_eq!(default(Some(u64::MAX)), Some(available / 2));
        assert_eq!(default(Some(0)), Some(0), "a full group has nothing to give");
    }

    #[test]
    fn what_is_absent_or_garbled_limits_nothing() {
        for text in ["", "MemAvailable:", "MemAvailable: many kB\n", "MemFree: 1 kB\n"] {
            let limits = limits_from(text, None);
            assert_eq!(limits, MemoryLimits::default(), "of {text:?}");
            assert_eq!(limits_from(text, Some(10)).default_limit, Some(5), "of {text:?}");
        }
    }

    #[test]
    fn the_bound_of_mappings_is_the_systems() {
        let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        assert_eq!(Ok(max_map_count()), text.trim().parse());
    }

    #[test]
    fn this_machine_has_memory() {
        let limits = memory_available();
        let total = limits.mem_total.expect("/proc is mounted");
        assert!(limits.mem_available.is_some_and(|bytes| bytes <= total), "{limits:?}");
        assert!(limits.default_limit.is_some_and(|bytes| bytes <= total / 2), "{limits:?}");
    }
}
