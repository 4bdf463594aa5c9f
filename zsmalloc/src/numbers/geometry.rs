//! Size classes: which sizes exist, how many frames a zspage of each takes, which classes merge.
//!
//! ```text
//!   nominal index   0    1    2   ...  253   254
//!   size in bytes  32   48   64   ... 4080  4096      32 + 16 * index
//! ```
//!
//! For every nominal size the geometry picks the chain length that the rule prefers, from one frame
//! to the chain size. It walks down from the largest size. A class whose frames and objects equal
//! those of the class just above is an alias of it. Class 96 (1568 bytes) by hand, with at most 4
//! frames:
//!
//! ```text
//!   frames  1     2     3     4     5
//!   waste   960   352   1312  704   96     bytes of (frames * 4096) mod 1568
//!   used    76 %  95 %  89 %  95 %  99 %
//! ```
//!
//! Two frames waste least, five objects fit, and class 100 (1632 bytes) also puts five objects in
//! two frames: 96 becomes an alias of 100. With at most 8 frames it gets five frames and 13
//! objects, and stands alone.
//!
//! Source: `zs_pool` set-up of Linux; the rule of 6.3 and later ([`Rule::LeastWaste`]) and the one
//! before ([`Rule::UsedPercent`]), whose class counts the kernel's documentation prints. Two
//! departures: there is no header in a slot, so a payload of `n` bytes needs a class of `n` bytes
//! (the kernel: `n + 8`), and the chain size is a property of the pool, 1..=16.
//!
//! [`Rule::Fitted`] is ours. It begins at the other end. A size fits if it is the largest even
//! number of bytes of which so many objects go into so many frames, so that a zspage has next to no
//! tail. Among the sizes that fit, the rule chooses the classes that cost least. The cost is what
//! objects leave of their slots, one object of each length, and for each class as much as for
//! [`SIZE_DELTA`] lengths. Around class 96, with at most 8 frames:
//!
//! ```text
//!   size      1592       1574       1560       1536      1508       bytes
//!   zspage    18 in 7    13 in 5    21 in 8    8 in 3    19 in 7    objects in frames
//!   tail      16         18         8          0         20         bytes
//! ```
//!
//! Invariants
//! - I1 `size(index)` grows with the index; `class_of(len)` is the smallest class that holds `len`.
//! - I2 a merged class shares frames and objects per zspage with its alias, never its size.
//! - I3 no class has more than [`OBJECTS_MAX`] objects in a zspage, so an object index fits 8 bits.

use host::PAGE_SIZE;

/// The smallest nominal size class, in bytes.
pub const SIZE_MIN: usize = 32;
/// Distance between nominal size classes, in bytes.
pub(crate) const SIZE_DELTA: usize = 16;
/// The largest object, in bytes: one page.
pub const SIZE_MAX: usize = PAGE_SIZE; // 4096
/// What every size is a multiple of.
const SIZE_UNIT: usize = 2;
/// Nominal size classes.
pub const CLASSES: usize = (SIZE_MAX - SIZE_MIN).div_ceil(SIZE_DELTA) + 1; // 255
/// What a class costs by the fitted rule, in bytes of slack.
const CLASS_COST: usize = slack_of(SIZE_DELTA); // 120
/// Frames in a zspage at most, over all chain sizes.
pub(crate) const CHAIN_MAX: usize = 16;
/// Objects in a zspage at most, over all chain sizes and rules.
pub const OBJECTS_MAX: usize = 256;
/// The most shards a class can have.
pub const SHARDS_MAX: usize = 8;

const _: () = assert!(CLASSES == 255, "index + 1 must fit the 8-bit class field, 0 is no object");
const _: () = assert!(SIZE_DELTA.is_multiple_of(SIZE_UNIT), "nominal sizes are whole units");
const _: () = assert!(objects_max_over_all() == OBJECTS_MAX, "the object field is sized from it");

/// How sizes and chain lengths of the classes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The fewest bytes wasted per zspage; powers of two take one frame (Linux 6.3 and later).
    LeastWaste,
    /// Greatest percentage used, in integers (Linux up to 6.2).
    UsedPercent,
    /// Least slack and fewest classes, of sizes that fill a chain: not the kernel's.
    Fitted,
}

impl Rule {
    /// Every rule, for tables and help texts.
    pub const ALL: [Rule; 3] = [Rule::LeastWaste, Rule::UsedPercent, Rule::Fitted];
    /// The kernel's.
    pub const KERNEL: [Rule; 2] = [Rule::LeastWaste, Rule::UsedPercent];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Rule::LeastWaste => "least-waste",
            Rule::UsedPercent => "used-percent",
            Rule::Fitted => "fitted",
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Rule {
    type Err = String;

    fn from_str(name: &str) -> Result<Rule, String> {
        Rule::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(|| {
            format!("unknown rule \"{name}\": it is least-waste, used-percent or fitted")
        })
    }
}

/// Frames per zspage at most: 1..=16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChainSize(u8);

impl ChainSize {
    /// A chain of at most `frames` frames; `None` outside 1..=16.
    pub fn new(frames: usize) -> Option<ChainSize> {
        (1..=CHAIN_MAX).contains(&frames).then_some(ChainSize(frames as u8))
    }

    /// Chain order N: at most 2^N frames; `None` above order 4.
    pub fn from_order(order: u32) -> Option<ChainSize> {
        1usize.checked_shl(order).and_then(ChainSize::new)
    }

    /// Frames at most.
    pub fn frames(self) -> usize {
        self.0 as usize
    }
}

/// A size class by its nominal index, 0..255.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassIndex(pub(crate) u8);

impl ClassIndex {
    /// The number, 0..=254.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

/// The shape of one class's zspages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes per object slot.
    pub size: u16,
    /// Frames per zspage.
    pub frames: u8,
    /// Object slots per zspage.
    pub objects: u16,
}

impl Shape {
    const fn of(size: usize, frames: usize) -> Shape {
        let objects = frames * PAGE_SIZE / size;
        Shape { size: size as u16, frames: frames as u8, objects: objects as u16 }
    }

    /// Bytes at the end of a zspage that no slot uses.
    ///
    /// ```
    /// use ramfold_zsmalloc::Shape;
    /// let shape = Shape { size: 1400, frames: 1, objects: 2 };
    /// assert_eq!(shape.tail_waste(), 4096 - 2 * 1400);
    /// ```
    pub fn tail_waste(&self) -> usize {
        self.frames as usize * PAGE_SIZE - self.objects as usize * self.size as usize
    }

    /// True where both put as many objects in as many frames: the classes merge.
    fn merges_with(&self, above: &Shape) -> bool {
        self.frames == above.frames && self.objects == above.objects
    }
}

/// Every class of one rule and chain size.
#[derive(Clone, Debug)]
pub struct Geometry {
    rule: Rule,
    chain: ChainSize,
    /// Shape by class index; aliases hold the shape of the class that serves them.
    shapes: Box<[Shape; CLASSES]>,
    /// The classes that have zspages of their own, smallest first.
    classes: Vec<ClassIndex>,
    /// The class that serves objects of a length, by the length in units of [`SIZE_UNIT`].
    by_length: Box<[ClassIndex; SIZE_MAX / SIZE_UNIT + 1]>,
}

impl Geometry {
    /// Builds the table.
    pub fn new(rule: Rule, chain: ChainSize) -> Geometry {
        let mut shapes = Box::new([Shape::of(SIZE_MAX, 1); CLASSES]);
        let classes = match rule {
            Rule::LeastWaste | Rule::UsedPercent => merged(rule, chain, &mut shapes),
            Rule::Fitted => fitted(chain, &mut shapes),
        };
        let mut by_length = Box::new([ClassIndex(0); SIZE_MAX / SIZE_UNIT + 1]);
        let mut from = 0;
        for &class in &classes {
            let units = usize::from(shapes[class.get()].size) / SIZE_UNIT;
            by_length[from..=units].fill(class);
            from = units + 1;
        }
        Geometry { rule, chain, shapes, classes, by_length }
    }

    /// The rule the table was built with.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// The chain size the table was built with.
    pub fn chain(&self) -> ChainSize {
        self.chain
    }

    /// The class that serves objects of `len` bytes; `None` for 0 and for more than a page.
    pub fn class_of(&self, len: usize) -> Option<ClassIndex> {
        if len == 0 || len > SIZE_MAX {
            return None;
        }
        Some(self.by_length[len.div_ceil(SIZE_UNIT)])
    }

    /// The shape of a class (of the class that serves it, for an alias).
    pub fn shape(&self, class: ClassIndex) -> Shape {
        self.shapes[class.get()]
    }

    /// The classes that have zspages of their own, smallest first.
    pub fn classes(&self) -> impl DoubleEndedIterator<Item = ClassIndex> + '_ {
        self.classes.iter().copied()
    }

    /// The largest size that shares a zspage with others; above it an object takes a whole frame.
    pub fn huge_watermark(&self) -> usize {
        let shared = |class: &ClassIndex| self.shape(*class).objects > 1;
        self.classes().rfind(shared).map_or(0, |class| self.shape(class).size as usize)
    }
}

/// The kernel's classes: all nominal ones, without those that merge.
fn merged(rule: Rule, chain: ChainSize, shapes: &mut [Shape; CLASSES]) -> Vec<ClassIndex> {
    let mut classes = vec![ClassIndex(CLASSES as u8 - 1)];
    for index in (0..CLASSES - 1).rev() {
        let shape = Shape::of(size_of_class(index), chain_length(rule, chain.frames(), index));
        let merges = shape.merges_with(&shapes[index + 1]);
        shapes[index] = if merges { shapes[index + 1] } else { shape };
        if !merges {
            classes.push(ClassIndex(index as u8));
        }
    }
    classes.reverse();
    classes
}

/// The classes of sizes that fit, those that cost least.
fn fitted(chain: ChainSize, shapes: &mut [Shape; CLASSES]) -> Vec<ClassIndex> {
    let fitting = fitting(chain);
    // What the classes up to each that fits cost at least, itself the last, and the one before it.
    let mut least: Vec<(usize, Option<usize>)> = Vec::with_capacity(fitting.len());
    for shape in &fitting {
        let after = |(at, before): (usize, &(usize, _))| {
            (before.0 + slack_of(usize::from(shape.size - fitting[at].size)), Some(at))
        };
        let first = (slack_of(shape.size.into()), None);
        let (slack, before) = least.iter().enumerate().map(after).fold(first, Ord::min);
        least.push((slack + CLASS_COST, before));
    }
    let mut chosen: Vec<usize> =
        std::iter::successors(Some(fitting.len() - 1), |&at| least[at].1).collect();
    chosen.reverse();
    chosen.iter().zip(&mut shapes[..]).for_each(|(&at, shape)| *shape = fitting[at]);
    (0..chosen.len()).map(|index| ClassIndex(index as u8)).collect()
}

/// Every shape whose size fits, with the shortest chain that it fits; smallest first.
fn fitting(chain: ChainSize) -> Vec<Shape> {
    let mut frames_of = [0; SIZE_MAX / SIZE_UNIT + 1];
    for frames in (1..=chain.frames()).rev() {
        let units = (frames..=OBJECTS_MAX).map(|objects| frames * PAGE_SIZE / objects / SIZE_UNIT);
        units.for_each(|units| frames_of[units] = frames as u8);
    }
    let sizes = (SIZE_MIN..=SIZE_MAX).step_by(SIZE_UNIT);
    let fits = sizes.map(|size| (size, frames_of[size / SIZE_UNIT])).filter(|fits| fits.1 > 0);
    fits.map(|(size, frames)| Shape::of(size, frames.into())).collect()
}

/// What objects leave of their slots, one of each length from a slot's own down.
const fn slack_of(lengths: usize) -> usize {
    lengths * (lengths - 1) / 2
}

/// Bytes of the nominal class `index`.
const fn size_of_class(index: usize) -> usize {
    let size = SIZE_MIN + index * SIZE_DELTA;
    if size < SIZE_MAX { size } else { SIZE_MAX }
}

/// Frames that the rule chooses for the nominal class `index`; the shortest chain wins a tie.
const fn chain_length(rule: Rule, chain: usize, index: usize) -> usize {
    let size = size_of_class(index);
    match rule {
        Rule::LeastWaste if size.is_power_of_two() => 1,
        _ => {
            let mut best = 1;
            let mut frames = 2;
            while frames <= chain {
                if beats(rule, size, frames, best) {
                    best = frames;
                }
                frames += 1;
            }
            best
        }
    }
}

/// True when `frames` is strictly better than `best` for objects of `size` bytes.
const fn beats(rule: Rule, size: usize, frames: usize, best: usize) -> bool {
    match rule {
        Rule::LeastWaste | Rule::Fitted => waste(size, frames) < waste(size, best),
        Rule::UsedPercent => used_percent(size, frames) > used_percent(size, best),
    }
}

const fn waste(size: usize, frames: usize) -> usize {
    (frames * PAGE_SIZE) % size
}

const fn used_percent(size: usize, frames: usize) -> usize {
    let bytes = frames * PAGE_SIZE;
    (bytes - waste(size, frames)) * 100 / bytes
}

/// The most objects any zspage holds, over every chain size, rule and class.
const fn objects_max_over_all() -> usize {
    let mut most = 0;
    let mut chain = 1;
    while chain <= CHAIN_MAX {
        let mut index = 0;
        while index < CLASSES {
            let size = size_of_class(index);
            let least = chain_length(Rule::LeastWaste, chain, index) * PAGE_SIZE / size;
            let used = chain_length(Rule::UsedPercent, chain, index) * PAGE_SIZE / size;
            let here = if least > used { least } else { used };
            most = if here > most { here } else { most };
            index += 1;
        }
        chain += 1;
    }
    most
}
