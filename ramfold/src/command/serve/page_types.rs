//! Which frames are free and what the pageblocks are used for, as the kernel prints it and as
//! numbers.
//!
//! ```text
//!   zones of the arena -- counts, added up --> zone `Normal` of node 0
//!                                                |          |
//!                     /proc/pagetypeinfo's text -'          '- every count in full, the sums, and
//!                     (cut short at 100000)                    the indices of fragmentation
//! ```
//!
//! Invariant: each number was exact at some moment. Together they add up if nothing allocates
//! meanwhile.
//!
//! Locks: none. Threads that allocate publish the numbers.

use buddy::{Migratetype, NodePageTypes, ORDERS, Order, TextForm, ZoneCounts, ZoneTotals};
use host::PAGE_SIZE;
use serde_json::{Map, Value, json};
use zsmalloc::Memory;

/// The node and the zone under which a memory is shown. A process has no others.
const NODE: u32 = 0;
const ZONE: &str = "Normal";

/// The unit of the kernel's indices.
const THOUSANDTHS: f64 = 1000.0;

/// The figures of a memory. Each was read once.
struct Frames {
    counts: ZoneCounts,
    mixings: u64,
    /// Frames on per-CPU lists. The counts have them as in use.
    listed: u64,
    free_held: u64,
}

/// The answer of a server: a text for people, and numbers for programs.
pub(crate) fn answer(memory: &Memory) -> Value {
    let frames = Frames {
        counts: memory.zone_counts(),
        mixings: memory.mixings(),
        listed: memory.listed_bytes() / PAGE_SIZE as u64,
        free_held: memory.free_bytes_held() / PAGE_SIZE as u64,
    };
    json!({ "text": text_of(frames.counts), "zone": numbers(&frames) })
}

/// The kernel's text of `/proc/pagetypeinfo`.
pub(crate) fn text(memory: &Memory) -> String {
    text_of(memory.zone_counts())
}

/// The kernel's text of `/proc/buddyinfo`.
pub(crate) fn buddy_text(memory: &Memory) -> String {
    let mut text = String::new();
    ZoneTotals::new(NODE, ZONE, &memory.zone_counts()).render(&mut text);
    text
}

fn text_of(counts: ZoneCounts) -> String {
    let mut text = String::new();
    NodePageTypes::new(NODE, ZONE, counts).render(TextForm::Kernel, &mut text);
    text
}

fn numbers(frames: &Frames) -> Value {
    let counts = &frames.counts;
    let blocks = counts.blocks_by_order();
    let (online, free) = (counts.online_frames(), counts.free_frames());
    json!({
        "node": NODE,
        "zone": ZONE,
        "pageblock_order": Order::PAGEBLOCK.get(),
        "pageblock_frames": Order::PAGEBLOCK.frames(),
        "orders": Order::all().map(Order::get).collect::<Vec<u8>>(),
        "free_blocks": blocks,
        "free_blocks_by_type": by_type(&counts.free_blocks),
        "pageblocks_by_type": by_type(&counts.pageblocks),
        "online_frames": online,
        // The counts are of several moments, so more frames may seem to be free than online.
        "allocated_frames": online.saturating_sub(free + frames.listed),
        "free_frames": free,
        "free_pageblock_frames": counts.free_pageblock_frames(),
        "listed_frames": frames.listed,
        "free_frames_held": frames.free_held,
        "mixed_allocations": frames.mixings,
        "unusable_index": unusable(&blocks),
        "extfrag_index": extfrag(&blocks),
    })
}

/// An object with a field for each migratetype, in the kernel's order.
fn by_type<T: Copy + Into<Value>>(of: &[T; Migratetype::COUNT]) -> Value {
    let field = |(mt, value): (Migratetype, &T)| (mt.name().to_owned(), (*value).into());
    Value::Object(Migratetype::ALL.into_iter().zip(of).map(field).collect::<Map<_, _>>())
}

fn unusable(blocks: &[u64; ORDERS]) -> Vec<f64> {
    let index = |order| buddy::unusable_free_index(blocks, order) as f64 / THOUSANDTHS;
    Order::all().map(index).collect()
}

fn extfrag(blocks: &[u64; ORDERS]) -> Vec<f64> {
    let index = |order| buddy::fragmentation_index(blocks, order) as f64 / THOUSANDTHS;
    Order::all().map(index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zsmalloc::{MemoryConfig, Pool, PoolConfig};

    const MOVABLE: usize = 1;

    /// Three pageblocks: two are in use except for single frames, and one is wholly free.
    fn frames() -> Frames {
        let mut counts = ZoneCounts::default();
        counts.free_blocks[MOVABLE][0] = 30;
        counts.free_blocks[MOVABLE][9] = 1;
        counts.pageblocks[MOVABLE] = 3;
        Frames { counts, mixings: 4, listed: 5, free_held: 530 }
    }

    #[test]
    fn the_text_is_the_kernels() {
        let text = text_of(frames().counts);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["Page block order: 9", "Pages per block:  512"]);
        let movable = "Node    0, zone   Normal, type      Movable     30      0      0      0 \
                       \x20    0      0      0      0      0      1      0 ";
        assert!(lines.contains(&movable), "{text}");
        let blocks = "Node 0, zone   Normal            0            3            0            0 \
                      \x20          0 ";
        assert!(lines.contains(&blocks), "no CMA, because nothing is set aside: {text}");
    }

    #[test]
    fn the_numbers_add_up() {
        let zone = numbers(&frames());
        assert_eq!(zone["free_blocks"], json!([30, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]));
        assert_eq!(zone["free_blocks_by_type"]["Movable"], zone["free_blocks"]);
        assert_eq!(zone["pageblocks_by_type"]["Movable"], 3);
        assert_eq!(zone["pageblocks_by_type"]["CMA"], 0, "every type, whatever the text shows");
        let field = |name: &str| zone[name].as_u64().expect(name);
        assert_eq!((field("online_frames"), field("free_frames")), (1536, 542));
        assert_eq!((field("allocated_frames"), field("free_frames_held")), (989, 530));
        assert_eq!((field("listed_frames"), field("free_pageblock_frames")), (5, 512));
        assert_eq!(field("mixed_allocations"), 4);
    }

    #[test]
    fn indices_are_the_numbers_that_the_kernel_prints() {
        let zone = numbers(&frames());
        let unusable =
            json!([0.0, 0.055, 0.055, 0.055, 0.055, 0.055, 0.055, 0.055, 0.055, 0.055, 1.0]);
        assert_eq!(zone["unusable_index"], unusable);
        let extfrag = json!([-1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0, 0.951]);
        assert_eq!(zone["extfrag_index"], extfrag);
    }

    #[test]
    fn counts_are_cut_short_in_the_text_alone() {
        let mut frames = frames();
        frames.counts.free_blocks[MOVABLE][0] = 123_456;
        assert!(text_of(frames.counts).contains(" Movable >100000 "), "{}", text_of(frames.counts));
        assert_eq!(numbers(&frames)["free_blocks"][0], 123_456);
    }

    #[test]
    fn a_freed_frame_is_free_and_held_until_it_is_released() {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(1 << 20) };
        let memory = Memory::new(config).unwrap();
        let pool = Pool::new(Arc::clone(&memory), PoolConfig::default()).unwrap();
        let handle = pool.alloc(&[7; PAGE_SIZE]).unwrap();
        let figures = || {
            let names = ["allocated_frames", "free_frames", "listed_frames", "free_frames_held"];
            names.map(|name| answer(&memory)["zone"][name].as_u64().unwrap())
        };
        assert_eq!(figures(), [1, 511, 0, 0], "one pageblock online, one frame of it in use");
        pool.free_handle(handle).unwrap();
        pool.flush_deferred();
        assert_eq!(figures(), [0, 511, 1, 1], "on the list of the CPU that freed it");
        memory.release(0);
        assert_eq!(figures(), [0, 0, 0, 0], "and the pageblock offline");
    }

    #[test]
    fn counts_of_two_moments_are_no_crash() {
        let mut frames = frames();
        frames.counts.pageblocks[MOVABLE] = 0;
        assert_eq!(numbers(&frames)["allocated_frames"], 0);
    }
}
