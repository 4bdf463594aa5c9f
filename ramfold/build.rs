//! Builds the library that `ramfold run` puts inside programs, so that the command can carry it.
//!
//! ```text
//!   inside and the crates under it --cargo--> archive --cc, no C library--> shared library
//! ```
//!
//! The library must work in any program, so it is linked without a C library: what the standard
//! library asks of one is in `inside/src/floor`. Cargo cannot build a dependency in this way, so
//! this script calls cargo once more, with the same lock file and a target directory of its own.
//!
//! Invariant: the library is linked from what the same sources and lock file give, and holds no
//! name that it hands out.
//!
//! On other machines than 64-bit Intel and AMD the library is an empty file, and `ramfold run` says
//! so.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATES: [&str; 7] = ["inside", "zram", "zsmalloc", "disk", "codec", "buddy", "host"];
const LIBRARY: &str = "libramfold_inside.so";
/// Names that the library hands out: none.
const NAMES: &str = "{ local: *; };\n";

fn main() {
    let out = PathBuf::from(wanted("OUT_DIR"));
    let supported = variable("CARGO_CFG_TARGET_ARCH").is_some_and(|arch| arch == "x86_64")
        && variable("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux");
    if !supported {
        std::fs::write(out.join(LIBRARY), []).expect("the directory is ours");
        return;
    }
    let manifest = PathBuf::from(wanted("CARGO_MANIFEST_DIR"));
    let version = wanted("CARGO_PKG_VERSION");
    let sources = Sources::beside(&manifest, version.to_str().unwrap_or_default());
    let archive = sources.build(&out);
    link(&archive, &out);
}

/// Where our crates are: in the workspace, or unpacked beside this one.
struct Sources {
    folders: Vec<PathBuf>,
    packed: bool,
}

impl Sources {
    fn beside(manifest: &Path, version: &str) -> Sources {
        let beside = manifest.parent().expect("a package has a folder");
        let packed = !beside.join("inside/Cargo.toml").exists();
        let folder = |name: &&str| match packed {
            true => format!("ramfold-{name}-{version}"),
            false => (*name).to_owned(),
        };
        let names: Vec<String> = CRATES.iter().map(folder).collect();
        for name in &names {
            // From this package on: two checkouts may share a target directory.
            println!("cargo::rerun-if-changed=../{name}/src");
            println!("cargo::rerun-if-changed=../{name}/Cargo.toml");
        }
        Sources { folders: names.iter().map(|name| beside.join(name)).collect(), packed }
    }

    /// Builds the archive, and gives its path.
    fn build(&self, out: &Path) -> PathBuf {
        let target = shared_target(out);
        let manifest = if self.packed { self.workspace(out) } else { self.folders[0].clone() };
        let mut cargo = Command::new(wanted("CARGO"));
        clean(&mut cargo)
            .args(["rustc", "--quiet", "--offline", "--package", "ramfold-inside", "--lib"])
            .args(["--crate-type", "staticlib", "--profile", "inside", "--manifest-path"])
            .arg(manifest.join("Cargo.toml"))
            .args(["--config", "profile.inside.inherits='release'"])
            .args(["--config", "profile.inside.panic='abort'"])
            .args(["--config", "profile.inside.lto='thin'"])
            .args(["--config", "profile.inside.debug=false"])
            .arg("--target-dir")
            .arg(&target)
            .args(if self.packed { &[][..] } else { &["--locked"] })
            .args(["--", "--cfg", "inside_program"])
            // rustix would call the kernel past our `mmap`, which keeps our memory together.
            .env("CARGO_ENCODED_RUSTFLAGS", "--cfg=rustix_use_libc");
        run(&mut cargo);
        target.join("inside/libramfold_inside.a")
    }

    /// A workspace in which our crates are the unpacked ones. They need not be published for that.
    fn workspace(&self, out: &Path) -> PathBuf {
        let root = out.join("workspace");
        std::fs::create_dir_all(root.join("src")).expect("the directory is ours");
        let mut text = "[package]\nname = \"carrier\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                        [workspace]\n[dependencies]\n"
            .to_owned();
        let line = |name: &str, folder: &Path| {
            format!("ramfold-{name} = {{ path = \"{}\" }}\n", folder.display())
        };
        text += &line("inside", &self.folders[0]);
        text += "[patch.crates-io]\n";
        for (name, folder) in CRATES.iter().zip(&self.folders) {
            text += &line(name, folder);
        }
        std::fs::write(root.join("Cargo.toml"), text).expect("the directory is ours");
        std::fs::write(root.join("src/lib.rs"), []).expect("the directory is ours");
        root
    }
}

/// Builds of every profile share one archive: `target/PROFILE/build/PACKAGE/out` is four levels
/// down, and `target/TRIPLE/PROFILE/build/PACKAGE/out` five.
fn shared_target(out: &Path) -> PathBuf {
    let is_target = |folder: &&Path| folder.join("CACHEDIR.TAG").exists();
    let shared = out.ancestors().skip(4).take(2).find(is_target);
    shared.unwrap_or(out).join("inside-library")
}

fn link(archive: &Path, out: &Path) {
    let names = out.join("names.map");
    std::fs::write(&names, NAMES).expect("the directory is ours");
    let compiler = variable("CC").unwrap_or_else(|| "cc".into());
    println!("cargo::rerun-if-env-changed=CC");
    let mut script = OsString::from("-Wl,--version-script=");
    script.push(&names);
    let mut linker = Command::new(compiler);
    linker
        .args(["-shared", "-nostdlib", "-Wl,--gc-sections", "-Wl,-u,ramfold_atfork", "-Wl,-s"])
        .args(["-Wl,-Bsymbolic", "-Wl,-z,now", "-Wl,-z,noexecstack"])
        .arg(script)
        .arg("-o")
        .arg(out.join(LIBRARY))
        .arg(archive);
    run(&mut linker);
}

/// Takes away what the outer cargo said about this build, and leaves what the user said. Tools that
/// build for another system than this one ask for an unstable feature, and this build is for this
/// system.
fn clean(cargo: &mut Command) -> &mut Command {
    let outer = |name: &str| {
        name.starts_with("CARGO_CFG_")
            || name.starts_with("CARGO_FEATURE_")
            || name.starts_with("CARGO_PKG_")
            || name.starts_with("CARGO_PROFILE_")
            || name.ends_with("TARGET_APPLIES_TO_HOST")
            || ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_TARGET"]
                .contains(&name)
    };
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(outer) {
            cargo.env_remove(name);
        }
    }
    cargo
}

fn run(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{command:?} ended with {status}"),
        Err(error) => panic!("{command:?} cannot be started: {error}"),
    }
}

fn wanted(name: &str) -> OsString {
    variable(name).unwrap_or_else(|| panic!("cargo sets {name}"))
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name)
}
