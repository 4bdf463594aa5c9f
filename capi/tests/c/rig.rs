//! An installed library, and programs in C that are built with it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Are these programs installed? If not, the test is skipped, which CI refuses.
#[track_caller]
pub(crate) fn needs(programs: &[&str]) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let is_installed =
        |program: &&&str| std::env::split_paths(&paths).any(|path| path.join(program).is_file());
    let missing = programs.iter().find(|program| !is_installed(program));
    if let Some(missing) = missing {
        println!("skipped: needs {missing}");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs {missing}, and this is CI");
    }
    missing.is_none()
}

/// Where `install` has put the library, once for all tests of a file.
pub(crate) fn installed() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = scratch("installed");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/install");
        let profile = std::env::var("RAMFOLD_C_PROFILE").unwrap_or("dev".into());
        succeed(Command::new(script).args(["--profile", &profile, "--prefix"]).arg(&place));
        place
    })
}

/// A directory for this process's files of a name.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = std::env::current_exe().expect("this test's path");
    let file = file.file_stem().and_then(OsStr::to_str).expect("a name that cargo gave").to_owned();
    let place = directory.join(format!("{file}-{name}"));
    std::fs::create_dir_all(&place).expect("the directory is ours");
    place
}

/// The words that a compiler needs for the installed library.
pub(crate) fn flags() -> Vec<String> {
    flags_of(&["--cflags", "--libs"])
}

/// The words that `pkg-config` has for these questions.
pub(crate) fn flags_of(questions: &[&str]) -> Vec<String> {
    let mut tool = Command::new("pkg-config");
    tool.args(questions).arg("ramfold");
    tool.env("PKG_CONFIG_PATH", installed().join("lib/pkgconfig"));
    succeed(&mut tool).split_whitespace().map(str::to_owned).collect()
}

/// Builds a program, with warnings as errors.
pub(crate) fn build(compiler: &str, source: &Path, words: &[&str], name: &str) -> PathBuf {
    let program = scratch("programs").join(name);
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g"]).args(words).arg("-o").arg(&program);
    command.arg(source).args(flags()).arg("-lpthread");
    succeed(&mut command);
    program
}

/// A command that finds the installed library.
pub(crate) fn run(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", installed().join("lib"));
    command
}

/// What a command prints. It has to succeed.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", describe(command, &output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub(crate) fn describe(command: &Command, output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{command:?}: {}\n-- stdout\n{out}-- stderr\n{err}", output.status)
}

/// A file of the crate.
pub(crate) fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
