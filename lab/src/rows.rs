//! Rows of figures: what they are made of, how they are printed, and how they are kept.

pub(crate) mod fields;
pub(crate) mod record;
mod row;
pub(crate) mod table;

pub(crate) use fields::{Field, Format};
pub(crate) use row::{Row, column, grouped};
