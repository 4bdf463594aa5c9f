//! What `set` can change: zram's attribute names, and what each takes.
//!
//! | attribute | value | effect |
//! |---|---|---|
//! | `mem_limit` | a size, 0 is none | the most that objects may take; what is stored stays |
//! | `mem_used_max` | 0 | the highest use starts anew at the present one |
//! | `compact` | 1 | objects move together, freed frames go back to the system |
//!
//! Invariant: the command line and the server judge a value with the same function, so that what
//! one lets pass the other accepts.

use zram::Zram;

use crate::size;

const KNOWN: &str = "it is mem_limit, mem_used_max or compact";

/// What the kernel's driver also has and this one does not.
const NOT_HERE: [&str; 10] = [
    "algorithm_params",
    "backing_dev",
    "comp_algorithm",
    "disksize",
    "idle",
    "recomp_algorithm",
    "recompress",
    "reset",
    "writeback",
    "writeback_limit",
];

/// A change, well formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Bytes; 0 is no limit.
    MemLimit(u64),
    ResetMemUsedMax,
    Compact,
}

impl Change {
    /// Understands an attribute and its value, or says what would be right.
    pub(crate) fn parse(attribute: &str, value: &str) -> Result<Change, String> {
        match attribute {
            "mem_limit" => size::parse_or_zero(value)
                .map(Change::MemLimit)
                .map_err(|error| format!("mem_limit: {error}")),
            "mem_used_max" if value == "0" => Ok(Change::ResetMemUsedMax),
            "mem_used_max" => Err(format!(
                "mem_used_max can only be set to 0, which starts it anew, not {value:?}"
            )),
            "compact" if !value.is_empty() => Ok(Change::Compact),
            "compact" => Err("compact takes a value to start it; give 1".to_owned()),
            known if NOT_HERE.contains(&known) => {
                Err(format!("{known} cannot be set on a running server; {KNOWN}"))
            }
            _ => Err(format!("there is no attribute {attribute:?}; {KNOWN}")),
        }
    }

    /// Makes the change; gives one line that says what was done.
    pub(crate) fn apply(self, device: &Zram) -> String {
        match self {
            Change::MemLimit(0) => {
                device.set_mem_limit(0);
                "no memory limit".to_owned()
            }
            Change::MemLimit(bytes) => {
                device.set_mem_limit(bytes);
                format!("memory limit {} ({bytes} bytes)", size::human(bytes))
            }
            Change::ResetMemUsedMax => {
                device.reset_mem_used_max();
                "the highest use starts anew".to_owned()
            }
            Change::Compact => {
                let bytes = device.compact() * zsmalloc::PAGE_SIZE as u64;
                format!("compaction freed {}", size::human(bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_attributes_take_their_values() {
        assert_eq!(Change::parse("mem_limit", "64M"), Ok(Change::MemLimit(64 << 20)));
        assert_eq!(Change::parse("mem_limit", "0"), Ok(Change::MemLimit(0)));
        assert_eq!(Change::parse("mem_used_max", "0"), Ok(Change::ResetMemUsedMax));
        assert_eq!(Change::parse("compact", "1"), Ok(Change::Compact));
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let rows = [
            ("colour", "red", "mem_limit, mem_used_max or compact"),
            ("mem_limit", "much", "\"much\" is not a size"),
            ("mem_limit", "-1", "\"-1\" is not a size"),
            ("mem_used_max", "7", "only be set to 0"),
            ("compact", "", "give 1"),
            ("writeback", "idle", "writeback cannot be set"),
        ];
        for (attribute, value, expected) in rows {
            let error = Change::parse(attribute, value).unwrap_err();
            assert!(error.contains(expected), "{attribute} {value}: {error}");
        }
    }
}
