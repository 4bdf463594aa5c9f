//! A cache for regions.

use disk::Disk;
use ramfold_region::zswap::{GroupId, Limit, Zswap, ZswapConfig};
use ramfold_region::{Pager, StoreConfig};
use std::sync::Arc;

/// A cache of so many bytes in a pager's memory, over a disk.
pub(crate) fn cache(pager: &Pager, bytes: u64, backing: Option<Arc<dyn Disk>>) -> Arc<Zswap> {
    let config = ZswapConfig { limit: Limit::Bytes(bytes), backing, ..ZswapConfig::new("test") };
    Arc::new(Zswap::new(Arc::clone(pager.memory()), config).expect("a cache"))
}

/// A region's store in a cache.
pub(crate) fn over(cache: &Arc<Zswap>) -> StoreConfig {
    StoreConfig::Zswap { cache: Arc::clone(cache), group: GroupId::ROOT }
}
