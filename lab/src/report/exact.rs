//! S1's tables of size classes, from empty pools and from arithmetic.
//!
//! ```text
//!   order --> empty pool, rule of the study's time --> classes table --> cell of row and column
//! ```
//!
//! Invariant: nothing here depends on what was stored. So the objects of classes after a test are
//! not here.

use zsmalloc::{ChainSize, ClassRow, Memory, MemoryConfig, Pool, PoolConfig, Rule};

/// Bytes in a page.
const PAGE: usize = 4096;

/// Bytes of an object of class 96.
const CLASS_96: usize = 1568;

/// The `classes` table of an empty pool with chains of this order.
fn classes(order: u32) -> Option<Vec<ClassRow>> {
    let chain = ChainSize::from_order(order)?;
    let config = PoolConfig { chain, rule: Rule::UsedPercent, ..PoolConfig::default() };
    let memory = Memory::new(MemoryConfig::for_disk(PAGE as u64)).ok()?;
    Some(Pool::new(memory, config).ok()?.class_table().rows)
}

/// One cell of that table; rows are `class 202`.
fn cell(order: u32, row: &str, column: &str) -> Option<String> {
    let class: usize = row.strip_prefix("class ")?.parse().ok()?;
    let row = classes(order)?.into_iter().find(|row| row.class == class)?;
    let partly_filled: u64 = row.zspages[..row.zspages.len() - 1].iter().sum();
    Some(match column {
        "size" => row.size.to_string(),
        // There is no zspage yet, so the two coarser groups of that time hold none either.
        "almost_full" | "almost_empty" => partly_filled.to_string(),
        "obj_allocated" => row.obj_allocated.to_string(),
        "obj_used" => row.obj_used.to_string(),
        "pages_used" => row.pages_used.to_string(),
        "pages_per_zspage" => row.pages_per_zspage.to_string(),
        "freeable" => row.freeable.to_string(),
        _ => return None,
    })
}

pub(crate) fn order2(row: &str, column: &str) -> Option<String> {
    cell(2, row, column)
}

pub(crate) fn order3(row: &str, column: &str) -> Option<String> {
    cell(3, row, column)
}

pub(crate) fn order4(row: &str, column: &str) -> Option<String> {
    cell(4, row, column)
}

/// What of a class does not depend on what is stored.
fn shape(order: u32, row: &str, column: &str) -> Option<String> {
    ["size", "pages_per_zspage"].contains(&column).then(|| cell(order, row, column))?
}

pub(crate) fn shape2(row: &str, column: &str) -> Option<String> {
    shape(2, row, column)
}

pub(crate) fn shape3(row: &str, column: &str) -> Option<String> {
    shape(3, row, column)
}

/// Rows are `order 2`.
pub(crate) fn unique(row: &str, _column: &str) -> Option<String> {
    let order = row.strip_prefix("order ")?.parse().ok()?;
    Some(classes(order)?.len().to_string())
}

/// Rows are `5 pages per zspage`.
pub(crate) fn waste(row: &str, column: &str) -> Option<String> {
    let bytes = row.strip_suffix(" pages per zspage")?.parse::<usize>().ok()? * PAGE;
    let wasted = bytes % CLASS_96;
    Some(match column {
        "wasted bytes" => wasted.to_string(),
        "used%" => ((bytes - wasted) * 100 / bytes).to_string(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::published::Published;
    use super::*;

    /// What can be repeated exactly is.
    #[test]
    fn every_value_of_the_geometry_is_as_published() {
        type Cell = fn(&str, &str) -> Option<String>;
        let tables: [(&str, Cell, usize); 8] = [
            ("S1-waste-96", waste, 10),
            ("S1-classes-by-order", unique, 3),
            ("S1-merge-example", order2, 16),
            ("S1-tail-order2", order2, 16),
            ("S1-tail-order3", order3, 48),
            ("S1-tail-order4", order4, 160),
            ("S1-objects-order2", shape2, 32),
            ("S1-objects-order3", shape3, 110),
        ];
        let published = Published::read().unwrap();
        for (id, cell, expected) in tables {
            let table = published.tables().iter().find(|table| table.id == id).unwrap();
            let mut equal = 0;
            for row in &table.rows {
                for column in &table.columns {
                    let Some(ours) = cell(row, column) else { continue };
                    assert_eq!(ours, table.get(row, column).unwrap().text, "{id} {row} {column}");
                    equal += 1;
                }
            }
            assert_eq!(equal, expected, "{id}");
        }
    }
}
