//! What is done on a file system, and whether it was done.
//!
//! ```text
//!   Plan (made once: the tree to unpack is packed beforehand)
//!     .work(path)      the tools at work, then sync: timed
//!     .verify(path)    as many files as there should be, and what is in them
//! ```

use super::tool;
use crate::frame::Lab;
use crate::ground::{LabError, PrivateDirectory, Spent};
use clap::Args;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The work on the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Workload {
    Fsmark,
    Untar,
    Build,
}

impl Workload {
    pub(super) fn name(self) -> &'static str {
        match self {
            Workload::Fsmark => "fsmark",
            Workload::Untar => "untar",
            Workload::Build => "build",
        }
    }
}

/// Options that say how much is done.
#[derive(Args, Debug)]
pub(super) struct Amount {
    /// Files of fsmark, over all threads
    #[arg(long, value_name = "N", default_value = "16000")]
    pub(super) files: u64,
    /// Bytes of each
    #[arg(long, value_name = "N", default_value = "100000")]
    file_bytes: u64,
    /// Threads of fsmark
    #[arg(long, value_name = "N", default_value = "8",
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// How often untar unpacks its tree, each time elsewhere
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    copies: u32,
    /// The package that build compiles
    #[arg(long, value_name = "NAME", default_value = "ramfold-zsmalloc")]
    package: String,
}

/// A workload, ready to be done any number of times.
pub(super) struct Plan {
    pub(super) workload: Workload,
    /// Files written, where it is known beforehand.
    pub(super) files: Option<u64>,
    pub(super) threads: Option<u32>,
    file_bytes: u64,
    copies: u32,
    package: String,
    /// What is unpacked, for those that unpack something.
    archive: Option<Archive>,
}

/// What became of it.
pub(super) struct Done {
    /// Until everything was synced.
    pub(super) wall: Duration,
    /// Of the tools and their children, until then.
    pub(super) cpu: Spent,
    pub(super) files: u64,
    /// As fs_mark counts them: without the creation of threads and directories, and without the
    /// last sync.
    pub(super) reported_files_per_s: Option<f64>,
}

impl Plan {
    pub(super) fn new(workload: Workload, amount: &Amount, lab: &Lab) -> Result<Plan, LabError> {
        let archive = match workload {
            Workload::Fsmark => None,
            Workload::Untar => Some(Archive::new(&crate_sources()?, &[], lab)?),
            Workload::Build => Some(Archive::new(workspace(), &["./target", "./.git"], lab)?),
        };
        let threads = (workload == Workload::Fsmark).then_some(amount.threads);
        let each = amount.files.div_ceil(u64::from(amount.threads));
        let files = match (workload, &archive) {
            (Workload::Fsmark, _) => Some(each * u64::from(amount.threads)),
            (Workload::Untar, Some(archive)) => Some(archive.files * u64::from(amount.copies)),
            _ => None,
        };
        Ok(Plan {
            workload,
            files,
            threads,
            file_bytes: amount.file_bytes,
            copies: amount.copies,
            package: amount.package.clone(),
            archive,
        })
    }

    pub(super) fn work(&self, path: &Path, lab: &Lab) -> Result<Done, LabError> {
        let (start, before) = (Instant::now(), Spent::of_children()?);
        let reported_files_per_s = match self.workload {
            Workload::Fsmark => Some(self.mark(path, lab)?),
            Workload::Untar => self.unpack(path, lab).map(|()| None)?,
            Workload::Build => self.build(path, lab).map(|()| None)?,
        };
        let mut sync = Command::new("sync");
        sync.arg("--file-system").arg(path);
        tool::run(sync, "coreutils", lab)?;
        let (wall, cpu) = (start.elapsed(), Spent::of_children()?.since(before));
        let files = match self.files {
            Some(files) => files,
            None => count(path)?.files,
        };
        Ok(Done { wall, cpu, files, reported_files_per_s })
    }

    /// That everything is there.
    pub(super) fn verify(&self, path: &Path, lab: &Lab) -> Result<(), LabError> {
        let found = count(path)?;
        if self.files.is_some_and(|files| found.files != files) {
            let why = format!("{} files, {:?} expected", found.files, self.files);
            return Err(LabError::Wrong(format!("{}: {why}", self.workload.name())));
        }
        match (self.workload, &self.archive) {
            (Workload::Fsmark, _) if found.bytes != found.files * self.file_bytes => {
                Err(LabError::Wrong(format!("fsmark: {} bytes are there", found.bytes)))
            }
            (Workload::Untar, Some(archive)) => {
                self.places(path).try_for_each(|place| archive.compare(&place, lab))
            }
            _ => Ok(()),
        }
    }

    /// fs_mark's own figure.
    fn mark(&self, path: &Path, lab: &Lab) -> Result<f64, LabError> {
        let directory = path.join("fsmark");
        let threads = self.threads.unwrap_or(1);
        let each = self.files.unwrap_or(0) / u64::from(threads);
        let mut command = Command::new("fs_mark");
        // -k keeps the files; one sync of each file before it is closed is its default. Its log
        // goes nowhere: it would lie in the working directory.
        command.args(["-k", "-l", "/dev/null", "-L", "1", "-n", &each.to_string()]);
        command.args(["-s", &self.file_bytes.to_string()]);
        // Each directory has a thread. In one directory, threads that begin in the same microsecond
        // give their files the same names, and some files are written over.
        std::fs::create_dir_all(&directory).map_err(LabError::io("a directory for fs_mark"))?;
        for thread in 0..threads {
            command.arg("-d").arg(directory.join(thread.to_string()));
        }
        let said = tool::run(command, "fsmark", lab)?;
        let not_understood = || LabError::Store { what: "fs_mark".into(), why: said.clone() };
        files_per_s(&said).ok_or_else(not_understood)
    }

    fn unpack(&self, path: &Path, lab: &Lab) -> Result<(), LabError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        self.places(path).try_for_each(|place| archive.unpack(&place, lab))
    }

    fn build(&self, path: &Path, lab: &Lab) -> Result<(), LabError> {
        let Some(archive) = &self.archive else { return Ok(()) };
        let sources = path.join("sources");
        archive.unpack(&sources, lab)?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["build", "--release", "--offline", "--locked", "--package", &self.package]);
        command.current_dir(&sources).env("CARGO_TARGET_DIR", path.join("target"));
        tool::run(command, "cargo", lab).map(drop)
    }

    fn places(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        let path = path.to_owned();
        (0..self.copies).map(move |copy| path.join(format!("tree{copy}")))
    }
}

/// A tree packed beforehand, so that only its unpacking is measured.
struct Archive {
    file: PathBuf,
    files: u64,
    _directory: PrivateDirectory,
}

impl Archive {
    fn new(tree: &Path, without: &[&str], lab: &Lab) -> Result<Archive, LabError> {
        let directory = PrivateDirectory::new(&lab.cleanup)?;
        let file = directory.path().join("tree.tar");
        let mut command = Command::new("tar");
        command.arg("-cf").arg(&file);
        command.args(without.iter().map(|path| format!("--exclude={path}")));
        command.arg("-C").arg(tree).arg(".");
        tool::run(command, "tar", lab)?;
        let mut list = Command::new("tar");
        list.args(["-tf"]).arg(&file);
        let said = tool::run(list, "tar", lab)?;
        let files = said.lines().filter(|line| !line.ends_with('/')).count() as u64;
        Ok(Archive { file, files, _directory: directory })
    }

    fn unpack(&self, place: &Path, lab: &Lab) -> Result<(), LabError> {
        fs::create_dir_all(place).map_err(LabError::io(place.display()))?;
        self.tar("-xf", place, lab)
    }

    fn compare(&self, place: &Path, lab: &Lab) -> Result<(), LabError> {
        self.tar("--compare", place, lab)
    }

    fn tar(&self, what: &str, place: &Path, lab: &Lab) -> Result<(), LabError> {
        let mut command = Command::new("tar");
        command.arg(what).args((what == "--compare").then_some("-f")).arg(&self.file);
        command.arg("-C").arg(place);
        tool::run(command, "tar", lab).map(drop)
    }
}

/// The sources of what this build depends on, as cargo keeps them.
fn crate_sources() -> Result<PathBuf, LabError> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let sources = home.map(|home| home.join("registry/src")).filter(|path| path.is_dir());
    sources.ok_or_else(|| LabError::missing("a tree to unpack", "no CARGO_HOME/registry/src"))
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The column `Files/sec` of the line behind the heading.
fn files_per_s(said: &str) -> Option<f64> {
    let mut lines = said.lines().skip_while(|line| !line.starts_with("FSUse%"));
    let heading = lines.next()?.split_ascii_whitespace();
    let column = heading.into_iter().position(|word| word == "Files/sec")?;
    let row = lines.find(|line| !line.trim().is_empty())?;
    row.split_ascii_whitespace().nth(column)?.parse().ok()
}

/// Files below a path, and their bytes.
#[derive(Default)]
struct Count {
    files: u64,
    bytes: u64,
}

fn count(path: &Path) -> Result<Count, LabError> {
    let mut count = Count::default();
    walk(path, &mut |_, file| {
        count.files += 1;
        count.bytes += file.symlink_metadata()?.len();
        Ok(())
    })
    .map_err(LabError::io(path.display()))?;
    Ok(count)
}

/// One number for names and contents of everything below a path.
pub(super) fn digest(path: &Path) -> Result<u64, LabError> {
    let mut hasher = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 20];
    walk(path, &mut |name, file| {
        name.hash(&mut hasher);
        if file.symlink_metadata()?.is_symlink() {
            return file.read_link().map(|to| to.hash(&mut hasher));
        }
        let mut file = fs::File::open(file)?;
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(()),
                len => hasher.write(&buffer[..len]),
            }
        }
    })
    .map_err(LabError::io(path.display()))?;
    Ok(hasher.finish())
}

/// Everything below `path` that is no directory, in the order of names.
fn walk(path: &Path, visit: &mut dyn FnMut(&Path, &Path) -> io::Result<()>) -> io::Result<()> {
    let mut left = vec![PathBuf::new()];
    while let Some(relative) = left.pop() {
        let directory = path.join(&relative);
        let entries = fs::read_dir(&directory)?.collect::<io::Result<Vec<_>>>()?;
        let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in names {
            let (relative, full) = (relative.join(&name), directory.join(&name));
            match full.symlink_metadata()?.is_dir() {
                true => left.push(relative),
                false => visit(&relative, &full)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_found_in_what_fs_mark_says() {
        let said = "#  fs_mark  -d  /x\n\nFSUse%        Count         Size    Files/sec     App \
                    Overhead\n     2           64       100000       2133.7            11232\n";
        assert_eq!(files_per_s(said), Some(2133.7));
        assert_eq!(files_per_s("fs_mark: cannot\n"), None);
    }

    /// A build of the default package takes longer than a test may.
    #[test]
    fn the_package_that_is_built_is_one_of_this_workspace() {
        let line = Amount::augment_args(clap::Command::new("fs")).get_matches_from(["fs"]);
        let package: &String = line.get_one("package").unwrap();
        let folder = package.strip_prefix("ramfold-").unwrap_or("none");
        let manifest = fs::read_to_string(workspace().join(folder).join("Cargo.toml")).unwrap();
        assert!(manifest.contains(&format!("name = \"{package}\"")), "{package}");
    }

    #[test]
    fn a_digest_tells_names_and_contents_apart() {
        let cleanup = crate::ground::Cleanup::default();
        let directory = PrivateDirectory::new(&cleanup).expect("a directory");
        let path = directory.path();
        let put = |name: &str, text: &str| fs::write(path.join(name), text).expect("ours");
        fs::create_dir(path.join("sub")).expect("ours");
        put("sub/a", "1");
        let first = digest(path).expect("readable");
        put("sub/a", "2");
        let second = digest(path).expect("readable");
        put("sub/a", "1");
        assert_eq!(digest(path).expect("readable"), first);
        fs::rename(path.join("sub/a"), path.join("sub/b")).expect("ours");
        let third = digest(path).expect("readable");
        assert!(first != second && first != third && second != third);
        let count = count(path).expect("readable");
        assert_eq!((count.files, count.bytes), (1, 1));
    }
}
