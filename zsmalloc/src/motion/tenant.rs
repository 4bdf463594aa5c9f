//! What the memory asks of a pool.

use host::Pfn;

use crate::memory::{Frames, MigrateError, Tenant};
use crate::pool::Pool;

impl Tenant for Pool {
    fn id(&self) -> u32 {
        self.id
    }

    fn compact_at_rest(&self) -> bool {
        Pool::compact_at_rest(self)
    }

    fn compact(&self) {
        Pool::compact(self);
    }

    fn flush_lagging(&self) {
        Pool::flush_lagging(self);
    }

    fn flush_deferred(&self) {
        Pool::flush_deferred(self);
    }

    fn drain_deferred(&self) {
        Pool::drain_deferred(self);
    }

    fn pending_bytes(&self) -> u64 {
        self.deferred().pending_bytes
    }

    fn migrate(&self, pfn: Pfn, to: Frames) -> Result<(), MigrateError> {
        Pool::migrate(self, pfn, to)
    }
}
