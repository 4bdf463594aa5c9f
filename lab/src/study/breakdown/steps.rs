//! The steps of giving up stored pages, each a set of modules.
//!
//! ```text
//!   slot -> cell -> class -> fullness ------------------------> the object is gone
//!                      \ zspage empty:  descriptor -> release -> frames -> page allocator
//!   tables, locks: everywhere            other: libc, the standard library called by neither
//! ```
//!
//! Invariant: an instruction is counted in one step. It belongs to the module of this workspace
//! that it was written in; what was written in the standard library belongs to the module of the
//! function that it is compiled into.

use crate::apparatus::valgrind::Spent;

/// One step.
pub(super) struct Step {
    pub(super) name: &'static str,
    /// `crate` or `crate::module`.
    modules: &'static [&'static str],
    /// Self time of the like step in S3's profile of the kernel, as a fraction: its share with what
    /// it calls, less that of the next step.
    pub(super) published: Option<f64>,
}

const fn step(
    name: &'static str,
    modules: &'static [&'static str],
    published: Option<f64>,
) -> Step {
    Step { name, modules, published }
}

/// In the order they are gone through.
pub(super) const STEPS: [Step; 12] = [
    // Notification and slot_free: 89 % with everything below, of which zs_free has 56.
    step("slot", &["zram", "zswap", "disk"], Some(0.33)),
    // Of a zswap: the kernel's LRU list.
    step("order", &["zswap::order"], None),
    step("cell", &["zsmalloc::names::cell", "zsmalloc::leaves", "zsmalloc::numbers::word"], None),
    // zs_free: 56 %, of which free_zspage has 48.
    step("class", &["zsmalloc"], Some(0.08)),
    // free_zspage: 48 %, of which releasing it has 37.
    step("fullness", &["zsmalloc::class::fullness"], Some(0.11)),
    step(
        "descriptor",
        &[
            "zsmalloc::zspages::descriptor",
            "zsmalloc::zspages::descriptor_heap",
            "zsmalloc::zspages::slabs",
        ],
        None,
    ),
    // Releasing the zspage: 37 %, of which releasing pages has 19.
    step("release", &["zsmalloc::pool::leaving", "zsmalloc::memory"], Some(0.18)),
    step("frames", &["host"], None),
    step("page allocator", &["buddy"], Some(0.19)),
    step("tables", &["host::memory::table"], None),
    step("locks", &["host::locks"], None),
    step(OTHER, &[], None),
];

/// What is nobody's.
const OTHER: &str = "other";
/// Crates of this workspace that are on the path.
const CRATES: [&str; 7] = ["zram", "zswap", "disk", "zsmalloc", "host", "buddy", "codec"];

/// The step that instructions of a place belong to, as a place in `STEPS`: the one that names its
/// module, or else the room around it, or else the crate.
pub(super) fn of(place: &Spent) -> usize {
    let module = module_of_file(&place.file).or_else(|| module_of_function(&place.function));
    let module = module.unwrap_or_default();
    let has = |name: &str| STEPS.iter().position(|step| step.modules.contains(&name));
    let found = std::iter::successors(Some(module.as_str()), |name| around(name)).find_map(has);
    found.unwrap_or(STEPS.len() - 1)
}

/// `zsmalloc::names` of `zsmalloc::names::cell`.
fn around(module: &str) -> Option<&str> {
    module.rsplit_once("::").map(|(outer, _)| outer)
}

/// `zsmalloc::names::cell` of `/some/where/zsmalloc/src/names/cell.rs`.
fn module_of_file(file: &str) -> Option<String> {
    let (directory, rest) = file.rsplit_once("/src/")?;
    let krate = directory.rsplit('/').next()?;
    let module = rest.trim_end_matches(".rs").replace('/', "::");
    CRATES.contains(&krate).then(|| format!("{krate}::{module}"))
}

/// `zsmalloc::objects::batch::Batch` of `<zsmalloc::objects::batch::Batch as Drop>::drop`.
fn module_of_function(function: &str) -> Option<String> {
    let starts = CRATES.iter().filter_map(|krate| {
        let at = function.find(&format!("{krate}::"))?;
        Some((at, &function[at..]))
    });
    let (_, rest) = starts.min_by_key(|(at, _)| *at)?;
    let end = rest.find(|c: char| c != '_' && c != ':' && !c.is_ascii_alphanumeric());
    Some(rest[..end.unwrap_or(rest.len())].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_step(file: &str, function: &str, expected: &str) {
        let place = Spent { file: file.into(), function: function.into(), instructions: 1 };
        assert_eq!(STEPS[of(&place)].name, expected, "{file}, {function}");
    }

    #[test]
    fn a_place_belongs_to_the_module_it_was_written_in() {
        assert_step("/x/zsmalloc/src/names/cell.rs", "buddy::zone::Zone::free", "cell");
        assert_step("/x/zsmalloc/src/objects/free.rs", "main", "class");
        assert_step("/x/buddy/src/zone/merge.rs", "main", "page allocator");
        assert_step("/x/host/src/memory/table.rs", "zram::slots::discard", "tables");
        assert_step("/x/host/src/memory/arena.rs", "main", "frames");
        assert_step("/x/zswap/src/order/blocks.rs", "main", "order");
        assert_step("/x/zswap/src/areas/area.rs", "main", "slot");
        assert_step("/x/zsmalloc/src/memory/zones.rs", "main", "release");
        assert_step("/x/zsmalloc/src/zspages/slabs.rs", "main", "descriptor");
        assert_step("/x/zsmalloc/src/zspages/zspage.rs", "main", "class");
    }

    #[test]
    fn library_code_belongs_to_whom_it_is_compiled_into() {
        let library = "/rustc/0/library/core/src/option.rs";
        assert_step(library, "zsmalloc::class::fullness::Order::place", "fullness");
        assert_step(library, "<zram::slots::Slots as core::ops::Drop>::drop", "slot");
        assert_step(
            library,
            "core::ptr::drop_in_place<alloc::sync::Arc<zsmalloc::pool::Pool>>",
            "class",
        );
        assert_step(library, "lab::study::main", "other");
        assert_step("./malloc/malloc.c", "free", "other");
        assert_step("/x/lab/src/study/breakdown.rs", "lab::main", "other");
    }

    #[test]
    fn the_published_shares_are_those_of_the_profile() {
        let sum: f64 = STEPS.iter().filter_map(|step| step.published).sum();
        assert!((sum - 0.89).abs() < 1e-9, "89 % of the path were in the profile, not {sum}");
    }
}
