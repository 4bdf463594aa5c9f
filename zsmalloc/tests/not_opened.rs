//! A store goes on when the system opens no more of what is reserved: it has no more room.
#![cfg(not(any(loom, shuttle, miri)))]

use ramfold_zsmalloc::{AllocError, Handle, Memory, MemoryConfig, Pool, PoolConfig};
use std::process::Command;

const CHILD: &str = "RAMFOLD_NOT_OPENED_CHILD";
const TEST: &str = "what_the_system_does_not_open_is_no_room_and_nothing_is_lost";
/// KiB of data that the child may have (`ulimit -d`): its own, and some of the arena.
const DATA_KIB: u32 = 100_000;
const OBJECT: usize = 2000;

/// The story: memory that could not be opened ended the process at its first touch.
#[test]
fn what_the_system_does_not_open_is_no_room_and_nothing_is_lost() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let script = format!("ulimit -d {DATA_KIB} || exit 3; exec \"$0\" \"$@\"");
    let this = std::env::current_exe().expect("this test's path");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).arg(this).args([TEST, "--exact", "--nocapture"]);
    // A panic that looks for names without memory would never end.
    let child = command.env(CHILD, "1").env("RUST_BACKTRACE", "0").output().expect("a child");
    let words = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && words.contains("as told"), "{child:?}");
}

fn child() {
    let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(1 << 30) };
    let memory = Memory::new(config).expect("addresses are no data");
    let pool = Pool::new(memory, PoolConfig::default()).expect("a pool");
    let mut objects = Vec::with_capacity(1 << 17);
    let refused = store(&pool, &mut objects);
    assert_eq!(refused, AllocError::NotOpened);
    let words = refused.to_string();
    assert!(words.contains("max_map_count") && words.contains("ulimit -d"), "{words}");
    assert!(objects.len() * OBJECT > 16 << 20, "{} objects", objects.len());
    for (number, object) in objects.iter().enumerate() {
        let bytes = pool.read(object).expect("the pool's");
        assert!(bytes.iter().all(|&byte| byte == number as u8), "object {number}");
    }
    let before = objects.len();
    for object in objects.drain(..) {
        pool.free_handle(object).expect("the pool's");
    }
    store(&pool, &mut objects);
    // A few more do if the process itself has less data now.
    assert!(objects.len() >= before, "{} of {before} find room again", objects.len());
    pool.check().expect("no defect");
    eprintln!("as told");
}

/// Stores until that is refused.
fn store(pool: &Pool, objects: &mut Vec<Handle>) -> AllocError {
    loop {
        match pool.alloc(&[objects.len() as u8; OBJECT]) {
            Ok(object) => objects.push(object),
            Err(refused) => return refused,
        }
    }
}
