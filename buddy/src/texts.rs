//! The kernel's tables of a zone, written and read back.
//!
//! They are made of the published counts alone, so that they can be asked for at any rate.

mod buddyinfo;
mod column;
mod extfrag;
mod pagetypeinfo;
mod parse;

pub use buddyinfo::{BuddyInfo, ZoneTotals};
pub use extfrag::{fragmentation_index, unusable_free_index};
pub use pagetypeinfo::{NodePageTypes, PageTypeInfo, TextForm, ZonePageTypes};
pub use parse::{ParseError, ParseProblem};
