//! Helpers that random tests share.

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

/// The seed of this run, printed.
pub(crate) fn seed() -> u64 {
    let seed = number("RAMFOLD_SEED", u64::from(std::process::id()) << 20);
    eprintln!("RAMFOLD_SEED={seed}");
    seed
}

/// A file without a name.
pub(crate) fn nameless_file() -> std::fs::File {
    let path = std::env::temp_dir().join(format!("ramfold-twin-{:?}", std::thread::current().id()));
    let path = path.with_extension(std::process::id().to_string());
    let file = std::fs::File::create(&path).expect("a file");
    std::fs::remove_file(&path).expect("it is ours");
    file
}
