//! The list of studies. A new study is one file, or a folder with it, and one line of `STUDIES`.
//!
//! Invariant: no study uses another. What several use is in `apparatus`.

use crate::apparatus::mix;
use crate::frame::{Inside, Study};

mod alloc;
mod breakdown;
mod cache;
mod chain;
mod codecs;
mod compact;
mod cpulists;
mod device;
mod doors;
mod far;
mod faultin;
mod fs;
mod locks;
mod pagealloc;
mod pagetypeinfo;
mod recompress;
mod run;
mod teardown;
mod tiers;
mod writeback;

pub(crate) use run::swapped;

/// Every study there is.
pub(crate) const STUDIES: [Study; 20] = [
    alloc::STUDY,
    breakdown::STUDY,
    cache::STUDY,
    chain::STUDY,
    codecs::STUDY,
    compact::STUDY,
    cpulists::STUDY,
    device::STUDY,
    doors::STUDY,
    far::STUDY,
    faultin::STUDY,
    fs::STUDY,
    locks::STUDY,
    pagealloc::STUDY,
    pagetypeinfo::STUDY,
    recompress::STUDY,
    run::STUDY,
    teardown::STUDY,
    tiers::STUDY,
    writeback::STUDY,
];
/// What studies run in processes of their own.
pub(crate) const INSIDES: [Inside; 7] = [
    alloc::INSIDE,
    breakdown::INSIDE,
    fs::INSIDE,
    mix::count::INSIDE,
    pagealloc::INSIDE,
    run::INSIDE,
    teardown::INSIDE,
];

#[cfg(test)]
mod tests {
    use crate::report::newest_fields;
    use crate::study::STUDIES;

    /// Documents, charts and `lab compare` read records by these names.
    #[test]
    fn no_study_has_lost_a_field_of_its_newest_record() {
        let newest = newest_fields();
        assert!(!newest.is_empty(), "there are records");
        for study in STUDIES {
            let known: Vec<String> = study.fields.iter().flat_map(|field| field.names()).collect();
            for field in newest.get(study.name).into_iter().flatten() {
                let there = field == "runs" || known.contains(field);
                assert!(there, "{}: the newest record has {field}", study.name);
            }
        }
    }
}
