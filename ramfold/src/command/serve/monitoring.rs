//! The figures of `serve --metrics`: made of the answer that `ramfold stat` gets.
//!
//! Invariant: a scrape asks what `stat` asks, so the two agree. Locks: none.

use std::sync::Arc;

use serve::control::{Handler, Request, Response};
use serve::metrics::{Metrics, MetricsFormat, MetricsPlace, Render};
use serve::{Observer, ServeError};

use super::watch::Log;
use crate::line::Failure;
use crate::line::args;
use crate::line::exposition;

/// Serves the figures, if it was asked for.
pub(super) fn start(
    args: &args::Serve,
    handler: &Arc<Handler>,
    observer: Observer,
    log: &Log,
) -> Result<Option<Arc<Metrics>>, Failure> {
    let Some(place) = args.monitoring.place() else { return Ok(None) };
    let handler = Arc::clone(handler);
    let render: Arc<Render> = Arc::new(move |format| document(&*handler, format));
    let metrics =
        Metrics::start(&place, render, observer).map_err(|error| refusal(&place, error))?;
    log.mention(format!("{}: metrics at {}", args.name, metrics.address()));
    Ok(Some(Arc::new(metrics)))
}

fn document(handler: &Handler, format: MetricsFormat) -> String {
    match handler(Request::Stat { device: None }) {
        Response::Ok(stat) => exposition::render(&[(None, &stat)], format),
        // The server cannot be asked only if it is about to end.
        _ => exposition::render(&[], format),
    }
}

/// Names the option, because other doors fail in the same way.
fn refusal(place: &MetricsPlace, error: ServeError) -> Failure {
    match (&error, place) {
        (ServeError::NotLoopback(_), _) => {
            let right = "or give --metrics-anywhere if it is meant";
            Failure::Usage(format!("--metrics: {error}, {right}"))
        }
        _ => Failure::about("--metrics", error),
    }
}
