//! What the rules let the zone choose from.
//!
//! The twin has no lists, so it does not know which of several blocks is the first of one. Where
//! the rules name the first, it goes on with each of them, and gives every way that may end.

use ramfold_buddy::{AllocError, Migratetype, Order};

use super::blocks::{Block, Frame, PAGEBLOCK, Twin, mergeable, ordinary};

/// One way a request may be served.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) block: Block,
    /// Pageblocks that change to the block's type with it.
    pub(crate) claimed: Vec<usize>,
    /// Whether it came from another type's blocks.
    pub(crate) fallback: bool,
}

fn fallbacks(mt: Migratetype) -> Vec<Migratetype> {
    use Migratetype::*;
    match mt {
        Unmovable => vec![Reclaimable, Movable],
        Movable => vec![Reclaimable, Unmovable],
        Reclaimable => vec![Unmovable, Movable],
        HighAtomic | Cma | Isolate => vec![],
    }
}

impl Twin {
    /// The blocks that may serve a request, any one of them. Brings pageblocks online as the zone
    /// must.
    pub(crate) fn expect_alloc(
        &mut self,
        frames: u32,
        mt: Migratetype,
    ) -> Result<Vec<Choice>, AllocError> {
        if frames == 0 || frames > 1024 {
            return Err(AllocError::BadLength { frames });
        }
        if mt == Migratetype::Isolate {
            return Err(AllocError::Isolated);
        }
        let order = Order::all().find(|order| order.frames() >= frames).expect("at most 1024");
        let choices = self.choices(order, mt);
        if choices.is_empty() { Err(AllocError::NoFreeRun { order }) } else { Ok(choices) }
    }

    /// The warm blocks of the type that may serve a request, any one of them.
    pub(crate) fn expect_warm(&self, frames: u32, mt: Migratetype) -> Vec<Choice> {
        let order = Order::all().find(|order| order.frames() >= frames && frames > 0);
        let Some(order) = order.filter(|_| mt != Migratetype::Isolate) else { return Vec::new() };
        let own = self.own(order, mt).into_iter();
        own.filter(|choice| !untouched(&choice.block)).collect()
    }

    fn choices(&mut self, order: Order, mt: Migratetype) -> Vec<Choice> {
        let mut from = vec![mt];
        if mt == Migratetype::Movable && self.cma {
            from.insert(usize::from(!self.cma_is_next()), Migratetype::Cma);
        }
        for mt in from {
            let own = self.own(order, mt);
            if !own.is_empty() {
                return own;
            }
        }
        match mt {
            Migratetype::HighAtomic => self.choices(order, Migratetype::Unmovable),
            Migratetype::Cma => Vec::new(),
            _ if self.bring_online(order, mt) => self.own(order, mt),
            _ => self.fallback(order, mt),
        }
    }

    fn cma_is_next(&self) -> bool {
        let frames = |of: &dyn Fn(Migratetype) -> bool| -> u32 {
            let blocks = self.blocks().into_iter().filter(|block| of(block.migratetype));
            blocks.map(|block| block.order.frames()).sum()
        };
        let cma = frames(&|mt| mt == Migratetype::Cma);
        cma > frames(&|mt| mt != Migratetype::Isolate) / 2
    }

    /// Blocks of the type itself: warm before untouched, then the smallest.
    fn own(&self, order: Order, mt: Migratetype) -> Vec<Choice> {
        let fits = |block: &Block| block.order >= order && block.migratetype == mt;
        let blocks = best(self.blocks().into_iter().filter(fits), |b| (untouched(b), b.order));
        let choice = |block| Choice { block, claimed: Vec::new(), fallback: false };
        blocks.into_iter().map(choice).collect()
    }

    /// Of these blocks those of other types and one order: by type, then warm before untouched.
    fn others(blocks: &[Block], order: Order, mt: Migratetype) -> Vec<Block> {
        let types = fallbacks(mt);
        let rank = |block: &Block| types.iter().position(|mt| *mt == block.migratetype);
        let fits = |block: &Block| block.order == order && rank(block).is_some();
        best(blocks.iter().copied().filter(fits), |b| (rank(b), untouched(b)))
    }

    /// Claimed from the largest order down, unless the first of each is refused; else the smallest
    /// stolen.
    fn fallback(&self, order: Order, mt: Migratetype) -> Vec<Choice> {
        let (mut choices, blocks) = (Vec::new(), self.blocks());
        for candidates in Order::all().rev().take_while(|candidates| *candidates >= order) {
            if mt == Migratetype::Movable && candidates.get() < 4 {
                break;
            }
            let firsts = Twin::others(&blocks, candidates, mt);
            let claims: Vec<_> = firsts.iter().map(|block| self.claim(block, order, mt)).collect();
            choices.extend(claims.iter().flatten().flatten().cloned());
            if !claims.is_empty() && claims.iter().all(Option::is_some) {
                return choices;
            }
        }
        let orders = Order::all().filter(|larger| *larger >= order);
        let stolen =
            orders.map(|order| Twin::others(&blocks, order, mt)).find(|blocks| !blocks.is_empty());
        let choice = |block| Choice { block, claimed: Vec::new(), fallback: true };
        choices.extend(stolen.into_iter().flatten().map(choice));
        choices
    }

    /// What a request may get after the pageblocks of a block were claimed for it; none if they
    /// are not to be.
    fn claim(&self, block: &Block, order: Order, mt: Migratetype) -> Option<Vec<Choice>> {
        let first = block.pfn as usize / PAGEBLOCK;
        if block.order < Order::PAGEBLOCK {
            let here = self.occupancy(first).expect("a block's pageblock is online");
            let alike = match (mt, here.migratetype) {
                (Migratetype::Movable, _) => here.movable,
                (_, Migratetype::Movable) => here.fixed,
                _ => 0,
            };
            if here.free + alike < 256 {
                return None;
            }
        }
        let last = (block.pfn + block.order.frames() - 1) as usize / PAGEBLOCK;
        let claimed: Vec<usize> = (first..=last).collect();
        let mut after = self.clone();
        after.types[first..=last].fill(mt);
        let choice = |own: Choice| Choice { claimed: claimed.clone(), fallback: true, ..own };
        Some(after.own(order, mt).into_iter().map(choice).collect())
    }

    /// Carries out the choice that the zone made.
    pub(crate) fn choose(&mut self, choice: &Choice, frames: u32, asked: Migratetype) {
        for index in &choice.claimed {
            self.types[*index] = choice.block.migratetype;
        }
        let here = self.occupancy(choice.block.pfn as usize / PAGEBLOCK).expect("it is online");
        let beside = if asked == Migratetype::Movable { here.fixed } else { here.movable };
        self.mixings += u64::from(choice.fallback && beside > 0);
        self.occupy(choice.block.pfn, frames, asked);
    }

    fn bring_online(&mut self, order: Order, mt: Migratetype) -> bool {
        let span = if order == Order::MAX { 2 } else { 1 };
        let starts = (0..self.types.len()).step_by(span);
        let mut groups = starts.map(|start| start..start + span);
        let offline = |index: usize| self.frames.get(index * PAGEBLOCK) == Some(&Frame::Offline);
        let joins = |index: usize| {
            let free = self.whole((index * PAGEBLOCK) as u32, Order::PAGEBLOCK);
            free.is_some_and(|block| mergeable(block.migratetype, mt))
        };
        let suits = |group: &std::ops::Range<usize>| {
            group.clone().any(offline) && group.clone().all(|index| offline(index) || joins(index))
        };
        let Some(group) = groups.find(suits) else { return false };
        for index in group {
            if self.is_offline(index) {
                self.bring_one_online(index, mt);
            }
        }
        true
    }

    /// Warm blocks of the largest order that has one, without the reserve and what is isolated.
    pub(crate) fn largest_warm(&self, min: Order) -> Vec<Block> {
        let kept = [Migratetype::HighAtomic, Migratetype::Isolate];
        let fits = |block: &Block| {
            block.order >= min && !untouched(block) && !kept.contains(&block.migratetype)
        };
        best(self.blocks().into_iter().filter(fits), |b| std::cmp::Reverse(b.order))
    }

    /// Wholly free pageblocks that may become a reserve or CMA.
    pub(crate) fn reservable(&self) -> Vec<usize> {
        let fits = |block: &Block| block.order >= Order::PAGEBLOCK && ordinary(block.migratetype);
        let blocks = self.blocks().into_iter().filter(fits);
        pageblocks(best(blocks, |b| (untouched(b), b.order, b.migratetype)))
    }

    /// Pageblocks of the reserve that may be given back.
    pub(crate) fn unreservable(&self) -> Vec<usize> {
        let fits = |block: &Block| block.migratetype == Migratetype::HighAtomic;
        pageblocks(best(self.blocks().into_iter().filter(fits), |b| (b.order, untouched(b))))
    }
}

fn pageblocks(blocks: Vec<Block>) -> Vec<usize> {
    blocks.into_iter().map(|block| block.pfn as usize / PAGEBLOCK).collect()
}

fn untouched(block: &Block) -> bool {
    block.warm == ramfold_buddy::Warm::Untouched
}

/// The blocks with the least key.
fn best<K: Ord>(blocks: impl Iterator<Item = Block>, key: impl Fn(&Block) -> K) -> Vec<Block> {
    let blocks: Vec<Block> = blocks.collect();
    let least = blocks.iter().map(&key).min();
    blocks.into_iter().filter(|block| Some(key(block)) == least).collect()
}
