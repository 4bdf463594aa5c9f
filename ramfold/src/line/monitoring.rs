//! The options of `ramfold serve` and `mount` for monitoring.
//!
//! Invariant: only the form is judged here. Locks: none.

use clap::Args;
use serve::metrics::MetricsPlace;

use super::forms::address;

/// A text format for monitoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Prometheus,
    Openmetrics,
}

/// Where the figures for monitoring are.
#[derive(Args, Debug, Clone)]
pub(crate) struct Monitoring {
    /// Serve figures for Prometheus at http://HOST:PORT/metrics, or on a Unix socket
    #[arg(long, value_name = "HOST:PORT|unix:PATH", value_parser = place)]
    metrics: Option<String>,
    /// Allow --metrics addresses that other machines can reach; there is no password
    #[arg(long, requires = "metrics")]
    metrics_anywhere: bool,
}

impl Monitoring {
    /// Where to listen, if anywhere.
    pub(crate) fn place(&self) -> Option<MetricsPlace> {
        let text = self.metrics.as_deref()?;
        let unix = text.strip_prefix("unix:").map(|path| MetricsPlace::Unix(path.into()));
        let tcp =
            || MetricsPlace::Tcp { address: text.to_owned(), anywhere: self.metrics_anywhere };
        Some(unix.unwrap_or_else(tcp))
    }

    /// The same as words of a command line.
    pub(crate) fn words(&self) -> Vec<String> {
        let place = self.metrics.as_ref().map(|place| format!("--metrics={place}"));
        let anywhere = self.metrics_anywhere.then(|| "--metrics-anywhere".to_owned());
        place.into_iter().chain(anywhere).collect()
    }
}

fn place(text: &str) -> Result<String, String> {
    match text.strip_prefix("unix:") {
        Some("") => Err("unix: has no path after it".to_owned()),
        Some(path) => {
            // The server may change its directory.
            let path = std::path::absolute(path).map_err(|error| format!("{path}: {error}"))?;
            let text = path.into_os_string().into_string();
            text.map(|path| format!("unix:{path}")).map_err(|path| format!("{path:?} is not text"))
        }
        None => address(text).map_err(|why| why.replace("--tcp-", "--metrics-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_path() {
        for text in ["127.0.0.1:9000", "[::1]:0", "unix:/run/m.sock"] {
            assert_eq!(place(text).as_deref(), Ok(text));
        }
        for (text, expected) in
            [("unix:", "no path"), ("9000", "HOST:PORT"), (":9", "--metrics-any")]
        {
            let why = place(text).unwrap_err();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
