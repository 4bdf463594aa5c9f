//! The class tables of the kernel, row by row; and of the rule that is not the kernel's.
//!
//! `data/class_tables.csv` holds every nominal class for chain 4, 8 and 16 under both rules, as
//! computed from the kernel's sources. Its payload columns include the kernel's 8-byte header: a
//! payload of `n` bytes there is a length of `n + 8` here, except in the single-page huge class,
//! which has no header.

use ramfold_zsmalloc::{
    CLASSES, ChainSize, Geometry, OBJECTS_MAX, Rule, SIZE_MAX, SIZE_MIN, Shape,
};

struct Row {
    rule: Rule,
    chain: usize,
    index: usize,
    merged_index: usize,
    merged_size: usize,
    frames: usize,
    objects: usize,
    is_head: bool,
    tail_waste: usize,
    min_payload: usize,
    max_payload: usize,
    huge: bool,
}

fn rows() -> Vec<Row> {
    let text = include_str!("data/class_tables.csv");
    let rows: Vec<Row> = text.lines().skip(1).map(row).collect();
    assert_eq!(rows.len(), 6 * CLASSES, "two rules, three chain sizes");
    rows
}

fn row(line: &str) -> Row {
    let fields: Vec<&str> = line.split(',').collect();
    let number = |field: usize| fields[field].parse::<usize>().expect("a number");
    Row {
        rule: match fields[0] {
            "minwaste" => Rule::LeastWaste,
            _ => Rule::UsedPercent,
        },
        chain: number(1),
        index: number(2),
        merged_index: number(4),
        merged_size: number(5),
        frames: number(6),
        objects: number(7),
        is_head: number(8) == 1,
        tail_waste: number(9),
        min_payload: number(10),
        max_payload: number(11),
        huge: number(12) == 1,
    }
}

fn geometry(rule: Rule, chain: usize) -> Geometry {
    Geometry::new(rule, ChainSize::new(chain).expect("1 to 16"))
}

#[test]
fn both_rules_are_in_the_golden_data() {
    for rule in Rule::KERNEL {
        assert!(rows().iter().any(|row| row.rule == rule), "{rule}");
    }
}

#[test]
fn every_class_is_the_kernels() {
    for row in rows() {
        let geometry = geometry(row.rule, row.chain);
        let header = if row.huge { 0 } else { 8 };
        for payload in [row.min_payload, row.max_payload] {
            let here = format!("{} chain {} class {}", row.rule, row.chain, row.index);
            // The huge class takes what is too long for the class below with its header.
            let len = (payload + header).min(SIZE_MAX);
            let class = geometry.class_of(len).expect("1 to 4096 bytes");
            if payload + 8 > SIZE_MAX || !row.huge {
                assert_eq!(class.get(), row.merged_index, "{here} payload {payload}");
            }
            let shape = geometry.shape(class);
            if class.get() == row.merged_index {
                assert_eq!(usize::from(shape.size), row.merged_size, "{here} size");
                assert_eq!(usize::from(shape.frames), row.frames, "{here} frames");
                assert_eq!(usize::from(shape.objects), row.objects, "{here} objects");
                assert_eq!(shape.tail_waste(), row.tail_waste, "{here} tail waste");
            }
        }
        let is_head = geometry.classes().any(|class| class.get() == row.index);
        assert_eq!(is_head, row.is_head, "{} chain {} class {}", row.rule, row.chain, row.index);
    }
}

#[track_caller]
fn expect_counts(rule: Rule, counts: &[(usize, usize)]) {
    for &(chain, classes) in counts {
        assert_eq!(geometry(rule, chain).classes().count(), classes, "{rule} chain {chain}");
    }
}

#[test]
fn class_counts_are_the_published_ones() {
    // zsmalloc.rst, all thirteen rows, which the rule up to Linux 6.2 gives.
    let used = [69, 86, 93, 112, 123, 140, 143, 159, 164, 180, 183, 188, 191];
    let least = [69, 86, 94, 110, 119, 136, 141, 153, 159, 173, 179, 186, 192];
    let rows = |counts: [usize; 13]| (4..=16).zip(counts).collect::<Vec<_>>();
    expect_counts(Rule::UsedPercent, &rows(used));
    expect_counts(Rule::LeastWaste, &rows(least));
}

#[test]
fn huge_watermarks_are_the_published_ones() {
    let watermarks = [3264, 3408, 3504, 3584, 3632, 3680, 3712, 3744, 3776, 3792, 3808, 3840, 3840];
    for rule in Rule::KERNEL {
        for (chain, watermark) in (4..=16).zip(watermarks) {
            assert_eq!(geometry(rule, chain).huge_watermark(), watermark, "{rule} chain {chain}");
        }
    }
}

/// The example of the chain-size study, computed by hand there: 1568-byte objects.
#[test]
fn class_96_merges_at_four_frames_and_stands_alone_at_eight() {
    for rule in Rule::KERNEL {
        let four = geometry(rule, 4);
        let class = four.class_of(1568).expect("a class");
        assert_eq!((class.get(), four.shape(class).objects), (100, 5), "{rule}: alias of 1632");
        let eight = geometry(rule, 8);
        let class = eight.class_of(1568).expect("a class");
        let shape = eight.shape(class);
        assert_eq!((class.get(), shape.frames, shape.objects), (96, 5, 13), "{rule}");
        assert_eq!(shape.tail_waste(), 96, "{rule}");
    }
}

#[test]
fn every_length_has_the_smallest_class_that_holds_it() {
    for rule in Rule::ALL {
        for chain in 1..=16 {
            let geometry = geometry(rule, chain);
            let mut last = 0;
            for len in 1..=SIZE_MAX {
                let shape = geometry.shape(geometry.class_of(len).expect("a class"));
                let size = usize::from(shape.size);
                assert!(size >= len && size >= last, "{rule} {chain} {len}: {size}");
                assert!(usize::from(shape.frames) <= chain, "{rule} {chain} {len}");
                last = size;
            }
            assert!(geometry.class_of(0).is_none());
            assert!(geometry.class_of(SIZE_MAX + 1).is_none());
        }
    }
}

/// The shapes of a rule, largest first.
fn shapes(rule: Rule, chain: usize) -> Vec<Shape> {
    let geometry = geometry(rule, chain);
    geometry.classes().rev().map(|class| geometry.shape(class)).collect()
}

/// The frames that objects of `size` bytes fit: those to which two bytes more would go less often.
fn fits(size: usize, chain: usize) -> Option<usize> {
    (1..=chain).find(|frames| {
        let (objects, bytes) = (frames * SIZE_MAX / size, frames * SIZE_MAX);
        objects <= OBJECTS_MAX && objects * (size + 2) > bytes
    })
}

/// What a geometry of these sizes costs, as the rule counts it; sizes are largest first.
fn cost(sizes: &[usize]) -> usize {
    let slack = |lengths: usize| lengths * (lengths - 1) / 2;
    let below = sizes[1..].iter().copied().chain([0]);
    sizes.iter().zip(below).map(|(size, below)| slack(size - below) + slack(16)).sum()
}

/// Against a search through all sizes: those that fit are known, and of them neither one more, nor
/// one less, nor another one instead would cost less.
#[test]
fn fitted_classes_are_the_cheapest_of_the_sizes_that_fit() {
    for chain in 1..=16 {
        let sizes: Vec<usize> = (SIZE_MIN..=SIZE_MAX).rev().step_by(2).collect();
        let shapes = shapes(Rule::Fitted, chain);
        for shape in &shapes {
            assert_eq!(fits(shape.size.into(), chain), Some(shape.frames.into()), "{shape:?}");
        }
        let chosen: Vec<usize> = shapes.iter().map(|shape| shape.size.into()).collect();
        assert_eq!(chosen[0], SIZE_MAX, "chain {chain}");
        let least = cost(&chosen);
        let expect = |larger: &[usize], size: &[usize], smaller: &[usize]| {
            let others = [larger, size, smaller].concat();
            assert!(others[0] != SIZE_MAX || cost(&others) >= least, "chain {chain}: {size:?}");
        };
        for &size in sizes.iter().filter(|&&size| fits(size, chain).is_some()) {
            let (larger, smaller) = chosen.split_at(chosen.partition_point(|&other| other > size));
            match smaller {
                [class, rest @ ..] if *class == size => expect(larger, &[], rest),
                _ => {
                    expect(larger, &[size], smaller);
                    expect(&larger[..larger.len() - 1], &[size], smaller);
                    expect(larger, &[size], smaller.get(1..).unwrap_or_default());
                }
            }
        }
    }
}

/// As many classes as by the kernel's rules, or nearly, and less of a zspage that is no object's.
#[test]
fn fitted_classes_are_denser_than_the_kernels() {
    for (chain, classes, watermark) in [(4, 72, 3276), (8, 122, 3640), (16, 194, 3854)] {
        let (geometry, kernels) =
            (geometry(Rule::Fitted, chain), geometry(Rule::LeastWaste, chain));
        assert_eq!(geometry.classes().count(), classes, "chain {chain}");
        assert_eq!(geometry.huge_watermark(), watermark, "chain {chain}");
        let (ours, theirs) = (overhead(&geometry), overhead(&kernels));
        assert!(ours < 0.95 * theirs, "chain {chain}: {ours} and {theirs}");
    }
}

/// The part of full zspages that is no object's, where any length up to the watermark is as likely.
fn overhead(geometry: &Geometry) -> f64 {
    let lengths = 1..=geometry.huge_watermark();
    let share = |len| {
        let shape = geometry.shape(geometry.class_of(len).expect("a class"));
        f64::from(shape.frames) * SIZE_MAX as f64 / f64::from(shape.objects)
    };
    lengths.clone().map(share).sum::<f64>() / lengths.sum::<usize>() as f64 - 1.0
}
