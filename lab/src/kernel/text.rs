//! What the kernel says about a zram device, as text: read here, without side effects.
//!
//! ```text
//!   mm_stat         orig compr used limit used_max same compacted huge huge_since
//!   comp_algorithm  lzo-rle [lzo] lz4             the one in brackets is selected
//!   /proc/swaps     a heading, then one line per swap area, device first
//!   /sys/kernel/slab/CACHE/objects                 objects in use, then per node
//! ```

use crate::pages::PAGE_SIZE;

/// Columns 1..9 of `mm_stat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MmStat {
    pub(crate) orig_data_size: u64,
    pub(crate) compr_data_size: u64,
    pub(crate) mem_used_total: u64,
    pub(crate) mem_used_max: u64,
    pub(crate) same_pages: u64,
    pub(crate) pages_compacted: u64,
    pub(crate) huge_pages: u64,
}

impl MmStat {
    pub(crate) fn parse(line: &str) -> Option<MmStat> {
        let columns: Vec<u64> =
            line.split_ascii_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [
            orig_data_size,
            compr_data_size,
            mem_used_total,
            _,
            mem_used_max,
            same_pages,
            pages_compacted,
            huge_pages,
            ..,
        ] = columns[..]
        else {
            return None;
        };
        Some(MmStat {
            orig_data_size,
            compr_data_size,
            mem_used_total,
            mem_used_max,
            same_pages,
            pages_compacted,
            huge_pages,
        })
    }
}

/// What the system says about the device.
pub(super) struct Facts<'a> {
    pub(super) disksize: &'a str,
    pub(super) mounts: &'a str,
    pub(super) device: &'a str,
}

impl Facts<'_> {
    pub(super) fn in_use(&self) -> Option<String> {
        let device = self.device;
        let mounted = |line: &str| line.split(' ').any(|field| field == device);
        if self.mounts.lines().any(mounted) {
            return Some(format!("{device} is mounted"));
        }
        (self.disksize != "0").then(|| {
            format!(
                "{device} holds data, disksize {}; when nobody needs it: zramctl --reset {device}",
                self.disksize
            )
        })
    }
}

/// The number after a name that begins a line, as in `vmstat`.
pub(super) fn field_of(text: &str, name: &str) -> Option<u64> {
    let rest = |line: &&str| line.split_ascii_whitespace().next() == Some(name);
    text.lines().find(rest)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The kibibytes of a line of `meminfo`.
pub(super) fn kib_of(meminfo: &str, name: &str) -> Option<u64> {
    field_of(meminfo, &format!("{name}:"))
}

/// The name in brackets: `lzo [lz4]` has lz4 selected.
pub(super) fn selected(list: &str) -> Option<&str> {
    list.split_once('[')?.1.split_once(']').map(|(name, _)| name)
}

/// Bytes of the objects of a slab cache, each with its share of what the slab leaves unused.
pub(super) fn slab_objects_bytes(objects: &str, per_slab: &str, order: &str) -> Option<u64> {
    let number = |text: &str| text.split_ascii_whitespace().next()?.parse::<u64>().ok();
    let slab = (PAGE_SIZE as u64).checked_shl(u32::try_from(number(order)?).ok()?)?;
    (number(objects)? * slab).checked_div(number(per_slab)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> Facts<'static> {
        Facts { disksize: "0", mounts: "", device: "/dev/zram0" }
    }

    #[test]
    fn a_free_device_is_claimed() {
        assert_eq!(free().in_use(), None);
    }

    #[test]
    fn a_used_device_is_refused_with_the_reason() {
        let sized = Facts { disksize: "1048576", ..free() };
        assert!(sized.in_use().unwrap().contains("holds data, disksize 1048576"));
        let mounts = "36 35 253:0 / /mnt rw,noatime - ext4 /dev/zram0 rw";
        let mounted = Facts { mounts, ..free() };
        assert_eq!(mounted.in_use().unwrap(), "/dev/zram0 is mounted");
    }

    #[test]
    fn a_number_is_that_of_the_whole_name() {
        let meminfo = "MemTotal: 24684096 kB\nZswap:  12 kB\nZswapped:    40 kB\n";
        assert_eq!(kib_of(meminfo, "Zswap"), Some(12));
        assert_eq!(kib_of(meminfo, "Zswapped"), Some(40));
        assert_eq!(kib_of(meminfo, "Zsw"), None);
        assert_eq!(field_of("pswpin 1\npswpout 22\n", "pswpout"), Some(22));
    }

    #[test]
    fn mm_stat_columns() {
        let line = "    8192     100    4096       0   12288        1        2        3        4\n";
        let stat = MmStat::parse(line).unwrap();
        assert_eq!(
            (stat.orig_data_size, stat.compr_data_size, stat.mem_used_total),
            (8192, 100, 4096)
        );
        assert_eq!((stat.mem_used_max, stat.same_pages), (12288, 1));
        assert_eq!((stat.pages_compacted, stat.huge_pages), (2, 3));
        assert_eq!(MmStat::parse("1 2 3"), None);
        assert_eq!(MmStat::parse("a b c d e f g h i"), None);
    }

    #[test]
    fn slabs_and_selected_names() {
        assert_eq!(slab_objects_bytes("146 N0=146", "73", "0"), Some(8192));
        assert_eq!(slab_objects_bytes("10", "5", "1"), Some(16384));
        assert_eq!(slab_objects_bytes("10", "0", "0"), None);
        assert_eq!(selected("lzo-rle lzo [lz4] \n"), Some("lz4"));
        assert_eq!(selected("lzo"), None);
    }
}
