//! The `classes` table of a served disk: what each size class holds after the work.
//!
//! ```text
//!   class  size  10% .. 99% 100%  obj_allocated obj_used pages_used pages_per_zspage freeable
//!   ^ two columns and five at the end are read; the groups of fullness between them are not
//! ```
//!
//! Invariant: a class of the result has slots.

use crate::rows::Row;

/// One class in use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Class {
    class: u64,
    size: u64,
    obj_allocated: u64,
    obj_used: u64,
    pages_used: u64,
    pages_per_zspage: u64,
    freeable: u64,
}

impl Class {
    /// A row of the study; the key of what was measured is `of`.
    pub(super) fn row(self, of: &Row) -> Row {
        let mut row = of.clone();
        row.set("class", self.class)
            .set("class_size", self.size)
            .set("pages_per_zspage", self.pages_per_zspage)
            .set("obj_allocated", self.obj_allocated)
            .set("obj_used", self.obj_used)
            .set("pages_used", self.pages_used)
            .set("freeable", self.freeable);
        row
    }
}

/// The classes in use, in the order of the table. The heading and the line of totals are left out.
pub(super) fn in_use(table: &str) -> Vec<Class> {
    table.lines().filter_map(class).filter(|class| class.obj_allocated > 0).collect()
}

fn class(line: &str) -> Option<Class> {
    let numbers: Result<Vec<u64>, _> = line.split_ascii_whitespace().map(str::parse).collect();
    let numbers = numbers.ok()?;
    let [class, size, .., obj_allocated, obj_used, pages_used, pages_per_zspage, freeable] =
        numbers[..]
    else {
        return None;
    };
    Some(Class { class, size, obj_allocated, obj_used, pages_used, pages_per_zspage, freeable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};

    #[test]
    fn classes_in_use_are_read_from_a_pools_own_table() {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).unwrap();
        let pool = Pool::new(memory, PoolConfig::default()).unwrap();
        assert_eq!(in_use(&pool.class_table().to_string()), []);
        let handles = [1000, 1000, 3000].map(|length| pool.alloc(&vec![7; length]).unwrap());
        let found = in_use(&pool.class_table().to_string());
        let rows = pool.class_table().rows;
        let expected: Vec<Class> = rows
            .iter()
            .filter(|row| row.obj_used > 0)
            .map(|row| Class {
                class: row.class as u64,
                size: row.size as u64,
                obj_allocated: row.obj_allocated,
                obj_used: row.obj_used,
                pages_used: row.pages_used,
                pages_per_zspage: row.pages_per_zspage as u64,
                freeable: row.freeable,
            })
            .collect();
        assert_eq!((found.len(), &found), (2, &expected));
        assert_eq!(found.iter().map(|class| class.obj_used).sum::<u64>(), 3);
        pool.free_batch(handles).unwrap();
    }
}
