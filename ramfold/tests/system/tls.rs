//! NBD over TLS, as programs and operators see it.
//!
//! Invariant: a client that has no right to the disk gets neither its size nor a byte of it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{
    BINARY, Process, Scratch, certificates, certificates_within, needs, noise, ramfold, refusal,
    shell_in, succeed, tool,
};

/// A server of 16 MiB on TCP, with `dir` in its scratch directory.
struct Server {
    process: Process,
    scratch: Scratch,
}

impl Server {
    /// Serves with the certificates in `good`; `other` has those of a stranger.
    fn start(options: &[&str]) -> Option<Server> {
        let scratch = Scratch::new();
        for name in ["good", "other"] {
            certificates(&scratch.path(name)).then_some(())?;
        }
        let mut command = Command::new(BINARY);
        command.args(["serve", "--size", "16M", "--tcp", "127.0.0.1:0", "--verbose"]);
        command.arg("--tls-certificates").arg(scratch.path("good")).args(options);
        command.env("XDG_RUNTIME_DIR", scratch.path("run"));
        let process = Process::start(&mut command, "zram0: serving");
        Some(Server { process, scratch })
    }

    /// Where clients connect.
    fn port(&self) -> String {
        let said = self.process.said();
        let (_, rest) = said.split_once("://127.0.0.1:").expect("it says where it serves");
        rest.chars().take_while(char::is_ascii_digit).collect()
    }

    /// The address for a client with the files of a directory, or without TLS.
    fn uri(&self, directory: Option<&str>) -> String {
        let port = self.port();
        directory.map_or(format!("nbd://127.0.0.1:{port}/"), |name| {
            let path = self.scratch.path(name);
            format!("nbds://127.0.0.1:{port}/?tls-certificates={}", path.display())
        })
    }

    /// Every program that reads from this server, with the files of a directory or without TLS.
    fn readers(&self, directory: Option<&str>) -> Vec<Command> {
        let uri = self.uri(directory);
        let back = self.scratch.path("back");
        let mut nbdsh = tool("nbdsh");
        // It takes no directory in an address.
        let tls = directory.map_or(String::new(), |name| {
            let path = self.scratch.path(name);
            format!("h.set_tls(nbd.TLS_REQUIRE); h.set_tls_certificates('{}'); ", path.display())
        });
        let connect = format!("{tls}h.connect_tcp('127.0.0.1', '{}')", self.port());
        let read = "import os; os.write(1, bytes(h.pread(8, 4096)))";
        nbdsh.args(["-c", &connect, "-c", read]);
        // The module that nbdsh needs belongs to the system's Python.
        nbdsh.env("PATH", format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default()));
        let mut nbdinfo = tool("nbdinfo");
        nbdinfo.args(["--size", &uri]);
        let mut nbdcopy = tool("nbdcopy");
        nbdcopy.arg(&uri).arg(&back);
        let mut qemu = tool("qemu-img");
        let disk = format!("driver=nbd,host=127.0.0.1,port={}", self.port());
        qemu.arg("info");
        match directory {
            Some(name) => {
                let dir = self.scratch.path(name);
                let object = format!("tls-creds-x509,id=t,endpoint=client,dir={}", dir.display());
                qemu.args(["--object", &object, "--image-opts", &format!("{disk},tls-creds=t")])
            }
            None => qemu.args(["--image-opts", &disk]),
        };
        vec![nbdinfo, nbdsh, nbdcopy, qemu]
    }

    /// No program reads anything. Their complaints.
    #[track_caller]
    fn refuses(&self, directory: Option<&str>) -> String {
        let mut said = String::new();
        for mut reader in self.readers(directory) {
            let output = reader.output().expect("it is installed");
            let out = String::from_utf8_lossy(&output.stdout);
            assert!(!output.status.success(), "{reader:?} is served: {out}");
            let known = ["16777216", "16 MiB", "secrets!"];
            assert!(!known.iter().any(|known| out.contains(known)), "{reader:?} learns: {out}");
            said += &String::from_utf8_lossy(&output.stderr);
        }
        said
    }
}

fn has_clients() -> bool {
    needs(&["certtool", "nbdinfo", "nbdcopy", "nbdsh", "qemu-img"])
}

#[test]
fn programs_with_the_right_certificates_are_served_and_no_others() {
    if !has_clients() {
        return;
    }
    let Some(server) = Server::start(&["--tls-verify-peer"]) else { return };
    let (image, back) = (server.scratch.path("image"), server.scratch.path("back"));
    let mut data = noise(1, 16 << 20);
    data[4096..4104].copy_from_slice(b"secrets!");
    fs::write(&image, &data).unwrap();
    succeed(tool("nbdcopy").arg(&image).arg(server.uri(Some("good"))));
    let outputs: Vec<_> = server.readers(Some("good")).iter_mut().map(succeed).collect();
    assert_eq!(outputs[0].trim(), "16777216", "nbdinfo");
    assert_eq!(outputs[1], "secrets!", "nbdsh");
    assert!(fs::read(&back).unwrap() == data, "nbdcopy brings back other bytes");
    assert!(outputs[3].contains("16 MiB"), "qemu-img: {}", outputs[3]);
    // The files of a stranger: they know another server, and the server knows other clients.
    let said = server.refuses(Some("other"));
    assert!(said.contains("certificate"), "{said}");
    let none = server.scratch.path("none");
    fs::create_dir(&none).unwrap();
    fs::copy(server.scratch.path("good/ca-cert.pem"), none.join("ca-cert.pem")).unwrap();
    server.refuses(Some("none"));
    // The right authority for the server's certificate, and a client's of another.
    for file in ["client-cert.pem", "client-key.pem"] {
        fs::copy(server.scratch.path("other").join(file), none.join(file)).unwrap();
    }
    server.refuses(Some("none"));
    let said = server.refuses(None);
    assert!(said.contains("TLS"), "qemu-img says what is missing: {said}");
    let told = server.process.said();
    for why in ["it has no client certificate", "not in ca-cert.pem"] {
        assert!(told.contains(why), "{why}: {told}");
    }
}

#[test]
fn a_server_that_only_offers_tls_serves_both() {
    if !has_clients() {
        return;
    }
    let Some(server) = Server::start(&["--tls", "on"]) else { return };
    for directory in [Some("good"), None] {
        let outputs: Vec<_> = server.readers(directory).iter_mut().map(succeed).collect();
        assert_eq!(outputs[0].trim(), "16777216", "{directory:?}");
    }
    // This client would be served without TLS, and does not want to be.
    let output = tool("nbdinfo").arg(server.uri(Some("other"))).output().unwrap();
    assert!(!output.status.success(), "a client with another authority takes the server");
}

#[test]
fn a_command_gets_an_address_with_everything_in_it() {
    if !has_clients() {
        return;
    }
    let scratch = Scratch::new();
    certificates(&scratch.path("pki"));
    let script = "nbdinfo --size \"$uri\"; nbdinfo --json \"$uri\" | grep TLS; \
                  \"$0\" stat \"$uri\" --json | grep -c disksize; echo \"$uri\"";
    let script = script.replace("$0", BINARY);
    let mut serve = ramfold(&["serve", "--size", "16M", "--tls-certificates", "pki"]);
    serve.args(["--tls-verify-peer", "--run", &script]).current_dir(scratch.path(""));
    serve.env("XDG_RUNTIME_DIR", scratch.path("run"));
    let said = succeed(&mut serve);
    let lines: Vec<_> = said.lines().collect();
    assert!(lines.contains(&"16777216"), "{said}");
    assert!(said.contains("\"TLS\": true"), "{said}");
    let uri = lines.iter().find(|line| line.starts_with("nbds+unix://")).expect("an address");
    assert!(uri.contains("&tls-certificates=/"), "{uri}");
}

/// The one line with which a server does not start.
#[track_caller]
fn does_not_start(directory: &Path, options: &[&str]) -> String {
    let mut serve = ramfold(&["serve", "--size", "1M", "--tls-certificates"]);
    refusal(serve.arg(directory).args(options))
}

#[test]
fn files_that_cannot_work_are_told_of_before_the_first_client() {
    let scratch = Scratch::new();
    let dir = scratch.path("pki");
    if !certificates(&dir) {
        return;
    }
    let old = scratch.path("old");
    certificates_within(&old, "2001-01-01 00:00:00", "2002-01-01 00:00:00");
    let said = does_not_start(&old, &[]);
    assert!(
        said.contains("server-cert.pem: it has expired, ") && said.contains(" days ago"),
        "{said}"
    );
    let early = scratch.path("early");
    certificates_within(&early, "2080-01-01 00:00:00", "2090-01-01 00:00:00");
    let said = does_not_start(&early, &[]);
    assert!(said.contains("server-cert.pem: it is not valid yet"), "{said}");

    let said = does_not_start(&scratch.path("none"), &[]);
    assert!(
        said.contains("none/ca-cert.pem: No such file") && said.contains("server-key.pem"),
        "{said}"
    );
    let password = "certtool --to-p8 --password x --load-privkey client-key.pem \
                    --outfile server-key.pem";
    let rows = [
        ("cp client-key.pem server-key.pem", "server-key.pem: this is not the key of server-cert"),
        ("echo x > server-key.pem", "server-key.pem: there is no private key in it"),
        (password, "server-key.pem: the key has a password"),
        ("sed -i s/M/=/ server-key.pem", "server-key.pem: not PEM"),
        ("rm server-key.pem", "server-key.pem: No such file"),
        ("rm server-key.pem; mkdir server-key.pem", "server-key.pem: Is a directory"),
        ("cp server-key.pem server-cert.pem", "server-cert.pem: there is no certificate in it"),
        (": > ca-cert.pem", "ca-cert.pem: there is no certificate in it"),
        ("echo x > ca-crl.pem", "ca-crl.pem: there is no list of revoked certificates in it"),
    ];
    for (damage, expected) in rows {
        let copy = scratch.path("copy");
        succeed(shell_in(&dir, "rm -rf ../copy; cp -r . ../copy").current_dir(&dir));
        succeed(&mut shell_in(&copy, damage));
        let said = does_not_start(&copy, &["--tls-verify-peer"]);
        assert!(said.contains(expected), "{damage}: {said}");
    }
    let said = refusal(&mut ramfold(&["serve", "--size", "1M", "--tls", "require"]));
    assert!(said.contains("--tls-certificates"), "{said}");
    let said = refusal(ramfold(&["serve", "--fuse", "/x", "--tls-certificates"]).arg(&dir));
    assert!(said.contains("no NBD"), "{said}");
    let said = refusal(&mut ramfold(&["serve", "--size", "1M", "--tls-verify-peer"]));
    assert!(said.contains("--tls-certificates"), "{said}");
}

#[test]
fn a_client_whose_certificate_was_revoked_is_refused() {
    if !has_clients() {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.path("pki");
    certificates(&dir);
    let run = || {
        let mut serve = ramfold(&["serve", "--size", "1M", "--tls-certificates"]);
        serve.arg(&dir).args(["--tls-verify-peer", "--run", "nbdinfo --size \"$uri\""]);
        serve.output().expect("it starts").status.success()
    };
    assert!(run(), "before");
    let revoke = "printf 'crl_next_update = 90\ncrl_number = 1\n' > crl.info; \
        certtool --generate-crl --load-ca-privkey ca-key.pem --load-ca-certificate ca-cert.pem \
        --load-certificate client-cert.pem --template crl.info --outfile ca-crl.pem";
    succeed(&mut shell_in(&dir, revoke));
    assert!(!run(), "after");
}

#[test]
fn what_is_open_to_the_world_or_signed_by_another_is_warned_of() {
    let starts = |options: &[&str]| {
        let scratch = Scratch::new();
        let mut serve = Command::new(BINARY);
        serve.args(["serve", "--size", "1M", "--tcp", "127.0.0.1:0"]).args(options);
        serve.env("XDG_RUNTIME_DIR", scratch.path("run"));
        let mut process = Process::start(&mut serve, "zram0: serving");
        process.signal("TERM");
        process.wait();
        process.said()
    };
    let warning = "warning: --tcp-anywhere without TLS";
    assert!(starts(&["--tcp-anywhere"]).contains(warning));
    assert!(!starts(&[]).contains("warning: --tcp"));
    let scratch = Scratch::new();
    let dir = scratch.path("pki");
    if !certificates(&dir) {
        return;
    }
    let path = dir.to_str().unwrap();
    let with = |options: &[&str]| {
        starts(&[&["--tcp-anywhere", "--tls-certificates", path], options].concat())
    };
    assert!(!with(&[]).contains("warning: "), "{}", with(&[]));
    assert!(with(&["--tls", "on"]).contains(warning));
    assert!(with(&["--tls", "off"]).contains(warning));
    let other = scratch.path("other");
    certificates(&other);
    fs::copy(other.join("ca-cert.pem"), dir.join("ca-cert.pem")).unwrap();
    assert!(with(&[]).contains("ca-cert.pem has signed server-cert.pem"), "{}", with(&[]));
}

/// As they stand there, except for the port, and for the time that the server takes to start.
#[test]
fn commands_of_the_tls_document_work() {
    if !needs(&["certtool", "nbdinfo", "qemu-img", "nbdcopy"]) {
        return;
    }
    let document = include_str!("../../../docs/serve.md");
    let (_, section) = document.split_once("\n## TLS\n").expect("it has this section");
    let blocks = section.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let [files, clients] = blocks.take(2).collect::<Vec<_>>().try_into().expect("two blocks");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it has one").port();
    drop(listener);
    let uri = format!("nbds://localhost:{port}/?tls-certificates=$PWD/pki");
    let wait = format!(
        "& server=$!; trap 'kill $server' EXIT\n\
         for i in $(seq 300); do nbdinfo --size \"{uri}\" && break; sleep 0.1; done\n"
    );
    let clients = clients
        .replacen("&\n", &wait, 1)
        .replace("10809", &port.to_string())
        .replace("nbds://localhost/", &format!("nbds://localhost:{port}/"))
        .replace("host=localhost,", &format!("host=localhost,port={port},"));
    let scratch = Scratch::new();
    fs::write(scratch.path("somefile"), noise(1, 1 << 20)).expect("room");
    let binaries = Path::new(BINARY).parent().expect("a file is in a directory").display();
    let mut shell = tool("sh");
    shell.args(["-e", "-c", &format!("PATH={binaries}:$PATH\n{files}\n{clients}")]);
    shell.env("XDG_RUNTIME_DIR", scratch.path("run")).current_dir(scratch.path(""));
    let said = succeed(&mut shell);
    assert!(said.contains("newstyle-fixed with TLS") && said.contains("virtual size"), "{said}");
}
