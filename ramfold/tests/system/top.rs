//! `ramfold top`: what it shows, on a terminal of any size, and how it leaves the terminal.
//!
//! Invariant: the figures are compared with those of `ramfold stat`, which prints the same words.

use std::process::Command;

use crate::rig::{BINARY, Process, Scratch, Terminal, noise, ramfold, signal, succeed};

/// What undoes everything that was done to the terminal's screen.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Servers of one user, in a runtime directory of their own.
struct User {
    scratch: Scratch,
}

impl User {
    fn new() -> User {
        User { scratch: Scratch::new() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(words).env("XDG_RUNTIME_DIR", self.scratch.path("run"));
        command.env("LANG", "C.UTF-8").env("TERM", "xterm").env_remove("NO_COLOR");
        command.env_remove("LC_ALL");
        command
    }

    fn serve(&self, name: &str) -> Process {
        let mut command = self.command(&["serve", "--size", "64M", "--memory-limit", "32M"]);
        Process::start(command.args(["--name", name]), "nbd+unix://")
    }

    fn fill(&self, name: &str, mib: usize) {
        let socket = self.scratch.path("run/ramfold").join(format!("{name}.sock"));
        let mut nbd = crate::rig::Nbd::connect(&socket);
        nbd.write(0, &noise(7, mib << 20)).expect("there is room");
    }

    fn top(&self, size: (u16, u16)) -> Terminal {
        Terminal::start(&mut self.command(&["top", "-d", "0.2"]), size)
    }

    /// The figures of `stat` for a device.
    fn stat(&self, name: &str) -> Vec<String> {
        let text = succeed(ramfold(&["stat"]).env("XDG_RUNTIME_DIR", self.scratch.path("run")));
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {text}"));
        line.split_ascii_whitespace().skip(2).map(str::to_owned).collect()
    }
}

/// The row of a name on the screen.
fn row<'a>(lines: &'a [String], name: &str) -> Option<Vec<&'a str>> {
    let line = lines.iter().find(|line| line.starts_with(name))?;
    Some(line.split_ascii_whitespace().collect())
}

#[test]
fn the_figures_are_those_of_stat_at_every_size() {
    let user = User::new();
    let (_one, _other) = (user.serve("zram0"), user.serve("database"));
    user.fill("zram0", 16);
    for size in [(80, 24), (200, 60), (60, 10)] {
        let top = user.top(size);
        let lines = top.until("both devices, as stat has them", |lines| {
            ["zram0", "database"].iter().all(|name| {
                let stat = user.stat(name);
                row(lines, name).is_some_and(|row| {
                    row[1..].starts_with(&stat.iter().map(String::as_str).collect::<Vec<_>>())
                })
            })
        });
        assert!(lines.len() == usize::from(size.1));
        assert_eq!(
            row(&lines, "DEVICE").unwrap()[..6],
            ["DEVICE", "SIZE", "STORED", "HELD", "LIMIT", "RATIO"]
        );
        assert!(lines[0].contains("2 devices, 0 programs"), "{lines:?}");
        assert!(size.0 < 80 || lines[0].contains("; q quits"), "{lines:?}");
        if size.0 >= 80 {
            let zram0 = row(&lines, "zram0").unwrap().join(" ");
            assert!(zram0.contains("[||") && zram0.contains('%'), "{zram0}");
        }
    }
}

#[test]
fn a_program_is_shown_with_what_it_takes() {
    let user = User::new();
    let mut run = user.command(&["run", "--limit", "64M", "--quiet", "--", "sleep", "60"]);
    let run = Process::start(run.env("LD_BIND_NOW", "1"), "");
    let top = user.top((80, 24));
    let pid = run.pid().to_string();
    // For a moment its file is there and not written yet, and a note names it.
    let is_its_row = |line: &&String| line.contains(&pid) && !line.starts_with('!');
    let lines = top.until("the program", |lines| lines.iter().any(|line| is_its_row(&line)));
    let line = lines.iter().find(is_its_row).unwrap();
    assert!(line.starts_with("sleep 60") && line.contains("64.0M"), "{line}");
    assert!(lines[0].contains("1 program;"), "{lines:?}");
}

#[test]
fn a_window_that_changes_is_drawn_anew() {
    let user = User::new();
    let _server = user.serve("zram0");
    let top = user.top((200, 60));
    top.until("a wide screen", |lines| lines[0].contains("1 device"));
    top.resize((40, 4));
    top.until("a small one", |lines| lines.len() == 4 && row(lines, "zram0").is_some());
    top.resize((120, 30));
    top.until("a large one", |lines| lines.iter().any(|line| line.contains("OVER TIME")));
}

#[test]
fn the_terminal_is_restored_whichever_way_it_ends() {
    let user = User::new();
    type End = fn(&mut Terminal);
    let ends: [(&str, End, i32); 5] = [
        ("q", |top| top.press(b"q"), 0),
        ("SIGINT", |top| top.signal("INT"), 0),
        ("SIGTERM", |top| top.signal("TERM"), 143),
        ("SIGHUP", |top| top.signal("HUP"), 129),
        ("SIGQUIT", |top| top.signal("QUIT"), 131),
    ];
    for (what, end, code) in ends {
        let mut top = user.top((80, 24));
        top.until("a screen", |lines| lines[0].starts_with("ramfold top"));
        assert!(!top.is_usual(), "keys are taken at once");
        end(&mut top);
        assert_eq!(top.wait().code(), Some(code), "{what}");
        assert!(top.is_usual(), "{what}: the keyboard is left as it was");
        crate::rig::eventually("the last bytes", || top.bytes().ends_with(LEAVE));
    }
}

/// A job of a shell that set the keyboard from behind was stopped by the system at its end, and
/// stayed for ever: `ramfold top`, Ctrl-Z, `kill %1`.
#[test]
fn behind_another_job_of_a_shell_it_shows_nothing_and_can_be_ended() {
    let user = User::new();
    // The shell keeps the terminal. A job that was stopped by then is continued, as `kill %1` does.
    let script =
        r#""$0" top -d 0.1 & sleep 1; kill -TERM $!; kill -CONT $!; wait $!; echo "is $?""#;
    let mut shell = Command::new("setsid");
    shell.args(["--ctty", "--wait", "sh", "-mc", script, BINARY]);
    shell.env("XDG_RUNTIME_DIR", user.scratch.path("run")).env("TERM", "xterm");
    let terminal = Terminal::start(&mut shell, (80, 24));
    crate::rig::eventually("its end", || terminal.bytes().contains("is "));
    assert_eq!(terminal.bytes().trim_end(), "is 143", "nothing else was shown");
}

#[test]
fn a_server_that_stands_still_holds_nothing_up() {
    let user = User::new();
    let (still, _other) = (user.serve("still"), user.serve("zram0"));
    let mut top = user.top((80, 24));
    top.until("both", |lines| row(lines, "still").is_some() && row(lines, "zram0").is_some());
    still.signal("STOP");
    user.fill("zram0", 8);
    let lines = top.until("what is wrong, and news of the other", |lines| {
        let is_told = lines.iter().any(|line| line.contains("still does not answer"));
        is_told && row(lines, "zram0").is_some_and(|row| row[2] == "8.0M")
    });
    assert!(row(&lines, "still").is_some(), "its row stays: {lines:?}");
    let help = format!("kill -CONT {}", still.pid());
    assert!(lines.iter().any(|line| line.contains(&help)), "{lines:?}");
    still.signal("CONT");
    top.until("that it is over", |lines| !lines.iter().any(|line| line.starts_with('!')));
    signal(still.pid(), "KILL");
    top.until("that it was killed", |lines| {
        row(lines, "still").is_none() && lines.iter().any(|line| line.contains("was killed"))
    });
    top.press(b"q");
    assert_eq!(top.wait().code(), Some(0));
}

#[test]
fn colours_are_left_out_if_they_are_not_wanted() {
    let user = User::new();
    let _server = user.serve("zram0");
    let has_colours = |top: Terminal| {
        top.until("a device", |lines| row(lines, "zram0").is_some());
        let bytes = top.bytes();
        bytes.split("\x1b[").any(|part| {
            part.split_once('m').is_some_and(|(number, _)| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        })
    };
    assert!(has_colours(user.top((80, 24))));
    let mut plain = user.command(&["top", "-d", "0.2"]);
    assert!(!has_colours(Terminal::start(plain.env("NO_COLOR", "1"), (80, 24))));
}

#[test]
fn elsewhere_than_on_a_terminal_it_prints_one_look_after_the_other() {
    let user = User::new();
    let look = |words: &[&str]| {
        let mut command = ramfold(words);
        succeed(command.env("XDG_RUNTIME_DIR", user.scratch.path("run")))
    };
    let nothing = look(&["top", "-n", "1"]);
    assert!(nothing.contains("ramfold serve --size"), "how to start one: {nothing}");
    let _server = user.serve("zram0");
    user.fill("zram0", 4);
    let text = look(&["top", "-b", "-d", "0.1", "-n", "3"]);
    assert!(!text.contains('\x1b') && text.is_ascii(), "{text:?}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(text.matches("ramfold top: 1 device,").count(), 3, "{text}");
    assert_eq!(text.matches("\nzram0 ").count(), 3, "{text}");
    assert!(!text.contains("quits"), "nothing reads keys: {text}");
    assert!(text.contains(&user.stat("zram0")[..2].join("   ")), "{text}");
}
