//! Gives the shared library the name that programs ask the loader for, which cargo does not.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Once the handler of faults is installed, the library must stay: dlclose does nothing then.
    for argument in ["-Wl,-soname,libramfold.so.0", "-Wl,-z,nodelete"] {
        println!("cargo::rustc-cdylib-link-arg={argument}");
    }
}
