//! Plots of arrays that have ended, for arrays of the same length that come next.
//!
//! ```text
//!   end of an array --> put --> | oldest .. newest | --> take --> an array of that length
//!                                    `--> dropped, if they take more than they may
//! ```
//!
//! A new plot has pages that are not there, so an array in it meets a fault for each few of them.
//! An expression such as `a * b + c` makes and ends an array for each operation, mostly of the same
//! length. The pages of the last one are still there.
//!
//! Invariant: `bytes` is the length of all plots. Lock: none; the owner has one.

use region::Plot;
use std::collections::VecDeque;

/// The most plots, so that none has to be looked for among many.
const PLOTS_MAX: usize = 32;

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Spare {
    plots: VecDeque<Plot>,
    bytes: usize,
}

impl Spare {
    /// A plot of exactly so many bytes, with whatever content it had.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<Plot> {
        let at = self.plots.iter().rposition(|plot| plot.len() == bytes)?;
        self.bytes -= bytes;
        self.plots.remove(at)
    }

    /// Keeps a plot of at most half of `max` bytes. Returns the plots that have to go, so that all
    /// that stay take at most `max`.
    pub(crate) fn put(&mut self, plot: Plot, max: usize) -> Vec<Plot> {
        // There is to be room for two, because an operation makes one array while it reads another.
        if plot.len() > max / 2 {
            return vec![plot];
        }
        self.bytes += plot.len();
        self.plots.push_back(plot);
        let mut gone = Vec::new();
        while self.bytes > max || self.plots.len() > PLOTS_MAX {
            let Some(oldest) = self.plots.pop_front() else { break };
            self.bytes -= oldest.len();
            gone.push(oldest);
        }
        gone
    }
}
