//! The kernel's tables, written and read.
//!
//! Claims
//!
//! 1. The live files of this machine, parsed and rendered, are what they were, byte for byte.
//! 2. So are texts of several nodes and zones, with CMA, with counts cut short, with mixed blocks.
//! 3. What is rendered is what the kernel's format strings say, for any counts.
//! 4. The exact form has every count, and reads back as it was.
//! 5. Of whatever numbers a text has, sums are what they are, or the largest number there is.
//! 6. A text that is none of the kernel's is refused, and the error names the line.

use std::fs;

use proptest::prelude::*;
use ramfold_buddy::{
    BuddyInfo, Migratetype, NodePageTypes, Order, PageTypeInfo, ParseError, ParseProblem,
    SharedZone, TextForm, Warm, ZoneCounts, ZoneTotals, fragmentation_index, unusable_free_index,
};

/// A kernel file: none where this system does not let us read it.
fn live(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok();
    if text.is_none() {
        println!("skipped: needs {path}");
    }
    text
}

fn page_types(text: &str) -> String {
    let parsed = PageTypeInfo::parse(text).unwrap_or_else(|error| panic!("{error} in\n{text}"));
    let mut out = String::new();
    parsed.render(TextForm::Kernel, &mut out);
    out
}

#[test]
fn the_live_pagetypeinfo_is_rendered_byte_for_byte() {
    if let Some(text) = live("/proc/pagetypeinfo") {
        assert_eq!(page_types(&text), text);
    }
}

#[test]
fn the_live_buddyinfo_is_rendered_byte_for_byte() {
    let Some(text) = live("/proc/buddyinfo") else { return };
    let mut out = String::new();
    BuddyInfo::parse(&text).expect("a kernel's text").render(&mut out);
    assert_eq!(out, text);
}

/// Two nodes, of which the first has two zones; CMA; a count cut short; mixed blocks in the
/// second.
fn two_nodes() -> String {
    let head = "Page block order: 9\nPages per block:  512\n\n\
         Free pages count per migrate type at order       0      1      2      3      4 \
         \x20    5      6      7      8      9     10 \n";
    let row = |node: u32, zone: &str, mt: &str, cells: &str| {
        format!("Node {node:4}, zone {zone:>8}, type {mt:>12} {cells}\n")
    };
    let zeros = "     0 ".repeat(11);
    let long = format!("     7 >100000 {} 12345 ", "     0 ".repeat(8));
    let zone = |node, name| {
        let types = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "CMA", "Isolate"];
        let cells = |mt| if mt == "Movable" { &long } else { &zeros };
        types.map(|mt| row(node, name, mt, cells(mt))).concat()
    };
    let names = "   Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate \n";
    let blocks = |node: u32, zone: &str, first: u32| {
        let cells: String = (first..first + 6).map(|cell| format!("{cell:12} ")).collect();
        format!("Node {node}, zone {zone:>8} {cells}\n")
    };
    [
        head,
        &zone(0, "DMA32"),
        &zone(0, "Normal"),
        &format!("\nNumber of blocks type  {names}"),
        &blocks(0, "DMA32", 3),
        &blocks(0, "Normal", 123_456),
        head,
        &zone(1, "Normal"),
        &format!("\nNumber of blocks type  {names}"),
        &blocks(1, "Normal", 9),
        &format!("\nNumber of mixed blocks {names}"),
        &blocks(1, "Normal", 0),
    ]
    .concat()
}

#[test]
fn several_nodes_are_rendered_byte_for_byte() {
    let text = two_nodes();
    assert_eq!(page_types(&text), text);
    let parsed = PageTypeInfo::parse(&text).expect("a kernel's text");
    let zones: Vec<usize> = parsed.nodes.iter().map(|node| node.zones.len()).collect();
    assert_eq!(zones, [2, 1], "zones by node");
    let zone = &parsed.nodes[0].zones[1];
    let free = zone.counts.free_blocks[1];
    assert_eq!((free[0], free[1], free[10]), (7, 100_000, 12_345));
    assert_eq!(zone.counts.pageblocks, [123_456, 123_457, 123_458, 123_459, 123_460, 123_461]);
    let mixed: Vec<bool> = parsed.nodes.iter().map(|node| node.zones[0].mixed.is_some()).collect();
    assert_eq!(mixed, [false, true], "who tracks mixed blocks");
}

#[track_caller]
fn refused(text: &str, line: usize, problem: ParseProblem) {
    let expected = ParseError { line, problem };
    assert_eq!(PageTypeInfo::parse(text).expect_err("refused"), expected, "in\n{text}");
}

#[test]
fn a_pagetypeinfo_that_is_none_is_refused() {
    let text = two_nodes();
    let with = |from: &str, to: &str| {
        assert!(text.contains(from), "{from} is not in the text");
        text.replacen(from, to, 1)
    };
    refused("", 1, ParseProblem::Expected("Page block order: "));
    refused("Page block order: x\n", 1, ParseProblem::BadNumber);
    refused("Page block order: 9\n", 2, ParseProblem::Expected("Pages per block:  "));
    refused(&with("512\n\n", "512\nx\n"), 3, ParseProblem::Expected("an empty line"));
    refused(&with("9     10 \n", "9     11 \n"), 4, ParseProblem::Expected("the orders 0 to 10"));
    refused(&with("9     10 \n", "9 \n"), 4, ParseProblem::BadNumber);
    refused(&with(">100000", "+10000"), 6, ParseProblem::BadNumber);
    refused(&with(">100000", "99999999999999999999"), 6, ParseProblem::BadNumber);
    refused(&with(" 12345 ", " 12345 1 "), 6, ParseProblem::TooLong);
    refused(&with("Reclaimable", "Reclaimed"), 7, ParseProblem::UnknownType);
    refused(&with("Reclaimable", "Movable"), 7, ParseProblem::OtherTable);
    refused(&with("Node    0, zone   Normal", "Node    0, zone    DMA32"), 11, {
        ParseProblem::OtherTable
    });
    refused(&with("\nNumber", "\nX"), 18, ParseProblem::Expected("Number of blocks type "));
    let headless = with("type     Un", "type    xUn");
    refused(&headless, 18, ParseProblem::OtherTable);
    refused(&with("\nNode 0, zone   Normal", "\nNode 0, zone   Ordina"), 20, {
        ParseProblem::OtherTable
    });
    let cut = text.find("\nNode 0, zone   Normal ").expect("the second zone's pageblocks");
    refused(&text[..=cut], 20, ParseProblem::Expected("Node"));
    refused(&format!("{text}x"), 37, ParseProblem::Expected("Page block order: "));
}

/// A line cut short anywhere is refused, and no cut makes the parser go on for ever.
#[test]
fn every_cut_of_a_text_is_refused_or_whole() {
    let text = two_nodes();
    for end in 0..text.len() {
        if let Ok(parsed) = PageTypeInfo::parse(&text[..end]) {
            let lines = text[..end].lines().count();
            assert!([20, 33, 36].contains(&lines), "{lines} lines are {parsed:?}");
        }
    }
}

#[test]
fn a_buddyinfo_that_is_none_is_refused() {
    let refused = |text: &str, line, problem| {
        let found = BuddyInfo::parse(text).expect_err("refused");
        assert_eq!(found, ParseError { line, problem }, "in {text}");
    };
    let line = format!("Node 0, zone   Normal {}\n", "     0 ".repeat(11));
    assert_eq!(BuddyInfo::parse(&line).expect("a kernel's line").zones.len(), 1);
    refused("", 1, ParseProblem::Expected("Node"));
    refused("Node 0 Normal", 1, ParseProblem::Expected(", zone"));
    refused("Node 4294967296, zone   Normal ", 1, ParseProblem::BadNumber);
    refused("Node 0, zone   Normal", 1, ParseProblem::Expected(" "));
    refused(&format!("{line}Node 0, zone   Normal 1 2 3"), 2, ParseProblem::BadNumber);
    refused(&line.replace("0 \n", "0 0 \n"), 1, ParseProblem::TooLong);
}

/// The format strings of kernel-facts, one call of `format!` for each.
fn by_the_format_strings(node: u32, zone: &str, counts: &ZoneCounts) -> String {
    let shown = |mt: &Migratetype| *mt != Migratetype::Cma || counts.pageblocks[4] > 0;
    let types: Vec<Migratetype> = Migratetype::ALL.into_iter().filter(shown).collect();
    let mut out = String::from("Page block order: 9\nPages per block:  512\n\n");
    out += &format!("{:<43} ", "Free pages count per migrate type at order");
    out += &(0..11).map(|order| format!("{order:6} ")).collect::<String>();
    out += "\n";
    for mt in &types {
        out += &format!("Node {node:4}, zone {zone:>8}, type {mt:>12} ");
        for blocks in counts.free_blocks[*mt as usize] {
            let over = if blocks >= 100_000 { ">" } else { "" };
            out += &format!("{over}{:6} ", blocks.min(100_000));
        }
        out += "\n";
    }
    out += &format!("\n{:<23}", "Number of blocks type ");
    out += &types.iter().map(|mt| format!("{:>12} ", mt.name())).collect::<String>();
    out += &format!("\nNode {node}, zone {zone:>8} ");
    out += &types
        .iter()
        .map(|mt| format!("{:12} ", counts.pageblocks[*mt as usize]))
        .collect::<String>();
    out + "\n"
}

fn counts() -> impl Strategy<Value = ZoneCounts> {
    let cell = || prop_oneof![0..10u64, 99_990..100_010u64, 0..u64::from(u32::MAX)];
    let free = prop::array::uniform6(prop::array::uniform11(cell()));
    let pageblocks = prop::array::uniform6(prop_oneof![Just(0), cell()]);
    (free, pageblocks).prop_map(|(free_blocks, pageblocks)| ZoneCounts { free_blocks, pageblocks })
}

/// Up to the largest that a text may have.
fn huge_blocks() -> impl Strategy<Value = [u64; 11]> {
    let shift = |(number, bits): (u64, u32)| number >> bits;
    prop::array::uniform11((any::<u64>(), 0..64u32).prop_map(shift))
}

fn saturated(exact: u128) -> u64 {
    u64::try_from(exact).unwrap_or(u64::MAX)
}

fn frames(blocks: &[u64; 11]) -> u128 {
    (0..11).map(|order| u128::from(blocks[order]) << order).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn a_zone_is_rendered_by_the_format_strings(
        node in prop_oneof![0..20_000u32, any::<u32>()],
        zone in "[A-Za-z0-9]{1,12}",
        counts in counts(),
    ) {
        let table = NodePageTypes::new(node, &zone, counts);
        let (mut kernel, mut exact) = (String::new(), String::new());
        table.render(TextForm::Kernel, &mut kernel);
        prop_assert_eq!(&kernel, &by_the_format_strings(node, &zone, &counts));
        prop_assert_eq!(page_types(&kernel), kernel);
        table.render(TextForm::Exact, &mut exact);
        let mut read = PageTypeInfo::parse(&exact).expect("the exact form").nodes;
        let cma = counts.pageblocks[Migratetype::Cma as usize] > 0;
        let unshown = Migratetype::Cma as usize;
        if !cma {
            read[0].zones[0].counts.free_blocks[unshown] = counts.free_blocks[unshown];
        }
        prop_assert_eq!(read, vec![table]);
    }

    #[test]
    fn sums_of_huge_numbers_hold_or_saturate(
        free_blocks in prop::array::uniform6(huge_blocks()),
        pageblocks in prop::array::uniform6(any::<u64>()),
    ) {
        let counts = ZoneCounts { free_blocks, pageblocks };
        let mut twice = counts;
        twice.add(&counts);
        for (mt, blocks) in free_blocks.iter().enumerate() {
            prop_assert_eq!(twice.free_blocks[mt], blocks.map(|blocks| blocks.saturating_mul(2)));
        }
        prop_assert_eq!(twice.pageblocks, pageblocks.map(|blocks| blocks.saturating_mul(2)));
        let online: u128 = pageblocks.iter().map(|&blocks| u128::from(blocks) * 512).sum();
        prop_assert_eq!(counts.online_frames(), saturated(online));
        prop_assert_eq!(counts.free_frames(), saturated(free_blocks.iter().map(frames).sum()));
        for (order, blocks) in counts.blocks_by_order().into_iter().enumerate() {
            let sum = free_blocks.iter().map(|blocks| u128::from(blocks[order])).sum();
            prop_assert_eq!(blocks, saturated(sum));
        }
    }

    #[test]
    fn indices_of_huge_numbers_are_those_of_their_shares(
        blocks in huge_blocks(),
        few in 1..12usize,
    ) {
        // Nothing free from some order on, or requests of all would succeed.
        let mut blocks = blocks;
        blocks[few..].fill(0);
        let mut text = String::new();
        let zone = ZoneTotals { node: 0, zone: "Normal".into(), free_blocks: blocks };
        zone.render(&mut text);
        let read = BuddyInfo::parse(&text).expect("any numbers").zones;
        prop_assert_eq!(&read, std::slice::from_ref(&zone));
        zone.render_unusable_index(&mut text);
        zone.render_extfrag_index(&mut text);
        for order in (0..11).filter_map(Order::new) {
            let index = usize::from(order.get());
            let mut too_small = blocks;
            too_small[index..].fill(0);
            let unusable = (frames(&too_small) * 1000).checked_div(frames(&blocks));
            let found = unusable_free_index(&blocks, order);
            prop_assert_eq!(u128::from(found), unusable.unwrap_or(1000));
            let sum: u128 = blocks.iter().map(|&blocks| u128::from(blocks)).sum();
            let fragmented = (1000 + ((frames(&blocks) * 1000) >> order.get())).checked_div(sum);
            let expected = match fragmented {
                _ if too_small != blocks => -1000,
                None => 0,
                Some(share) => 1000 - i64::try_from(share).expect("at most 2000"),
            };
            prop_assert_eq!(fragmentation_index(&blocks, order), expected);
        }
    }

    #[test]
    fn a_buddyinfo_line_is_rendered_by_the_format_string(node: u32, counts in counts()) {
        let mut out = String::new();
        ZoneTotals::new(node, "Normal", &counts).render(&mut out);
        let mut expected = format!("Node {node}, zone {:>8} ", "Normal");
        for order in 0..11 {
            let blocks: u64 = counts.free_blocks.iter().map(|orders| orders[order]).sum();
            expected += &format!("{blocks:6} ");
        }
        prop_assert_eq!(out, expected + "\n");
    }
}

#[test]
fn a_zone_says_what_it_has() {
    let zone = SharedZone::new(2048);
    let run = zone.alloc_run(3, Migratetype::Movable).expect("an empty zone has room");
    zone.alloc_run(512, Migratetype::Unmovable).expect("another pageblock");
    zone.free_run(run, 3, Warm::Resident).expect("it was allocated");
    let counts = zone.published().read();
    let mut out = String::new();
    ZoneTotals::new(0, "arena", &counts).render(&mut out);
    let line = format!("Node 0, zone    arena {}     1      0 \n", "     0 ".repeat(9));
    assert_eq!(out, line);
    let movable = Migratetype::Movable as usize;
    assert_eq!(counts.free_blocks[movable][usize::from(Order::PAGEBLOCK.get())], 1);
    assert_eq!(counts.pageblocks, [1, 1, 0, 0, 0, 0]);
}
