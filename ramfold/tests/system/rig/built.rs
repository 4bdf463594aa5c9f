//! Programs of `tests/programs`, each built once for all tests of a run.
//!
//! Invariant: another process writes a test's copy. A child that has not yet executed has all files
//! that its parent has open, and the system executes no file that is open for writing.
//!
//! Lock: one for the list, held while a program is built.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use crate::rig::{succeed, tool};

/// A source, and the compiler with its options.
type Recipe = (&'static str, Vec<String>);

static BUILT: Mutex<BTreeMap<Recipe, Arc<[u8]>>> = Mutex::new(BTreeMap::new());

/// Puts a program at `place`, and gives that back.
#[track_caller]
pub(crate) fn built(source: &'static str, compiler: &[&str], place: PathBuf) -> PathBuf {
    let program = program(source, compiler, &place);
    let mut command = tool("install");
    command.args(["-m", "755", "/dev/stdin"]).arg(&place).stdin(Stdio::piped());
    let mut install = command.spawn().expect("it starts");
    let mut input = install.stdin.take().expect("a pipe");
    input.write_all(&program).expect("it reads");
    drop(input);
    assert!(install.wait().expect("ours").success(), "a program at {}", place.display());
    place
}

/// The bytes of a program. If nobody has built it yet, it is built at `place`.
#[track_caller]
fn program(source: &'static str, compiler: &[&str], place: &Path) -> Arc<[u8]> {
    // A test that could not build its program has said so, and others may try.
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    let recipe = (source, compiler.iter().map(|&word| word.to_owned()).collect());
    let program = built.entry(recipe).or_insert_with(|| {
        let mut command = tool(compiler[0]);
        command.args(&compiler[1..]).args(["-O1", "-pthread", "-o"]).arg(place).arg(source);
        succeed(&mut command);
        std::fs::read(place).expect("it was built").into()
    });
    Arc::clone(program)
}
