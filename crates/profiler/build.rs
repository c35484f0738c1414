//! Builds the library of `src/plugin` for each kind of machine for which this Rust can: it needs that target's `core` and a
//! linker, and nothing of a C library. What cannot be built is left out, and the program says so where it would deliver it.

use std::env::var;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "src/plugin/root.rs";

fn main() {
    println!("cargo::rerun-if-changed=src/plugin");
    let (Ok(out), Ok(rustc)) = (var("OUT_DIR"), var("RUSTC")) else { return };
    let mut table = String::from("const LIBRARIES: &[(&str, &[u8])] = &[");
    for machine in ["x86_64", "aarch64"] {
        let library = Path::new(&out).join(format!("{machine}.so"));
        if build(&rustc, machine, &library) {
            table += &format!("({machine:?}, include_bytes!({:?})),", library.display().to_string());
        }
    }
    table.push_str("];\n");
    // Without the table the crate does not compile, and says why.
    let _ = fs::write(Path::new(&out).join("libraries.rs"), table);
}

/// Builds it with the first linker that can.
fn build(rustc: &str, machine: &str, library: &Path) -> bool {
    let target = format!("{machine}-unknown-linux-gnu");
    let Some(folder) = answer(rustc, &["--print", "target-libdir", "--target", &target]) else {
        return false;
    };
    let has_core = fs::read_dir(folder).is_ok_and(|mut files| {
        files.any(|file| file.is_ok_and(|file| file.file_name().to_string_lossy().starts_with("libcore-")))
    });
    let of_rust = answer(rustc, &["--print", "sysroot"]).zip(var("HOST").ok()).map(|(root, host)| {
        PathBuf::from(root).join("lib/rustlib").join(host).join("bin/rust-lld").display().to_string()
    });
    // Rust's own linker needs nothing else; `cc` links for the machine that builds.
    let linkers = [(of_rust.as_deref(), "ld.lld"), (Some("ld.lld"), "ld.lld"), (Some("cc"), "gcc")];
    has_core
        && linkers.into_iter().any(|(linker, flavor)| {
            linker.is_some_and(|linker| compile(rustc, &target, linker, flavor, library))
        })
}

fn compile(rustc: &str, target: &str, linker: &str, flavor: &str, library: &Path) -> bool {
    let arguments: &[&str] = if flavor == "gcc" {
        // Only what the library itself holds: a symbol of the C library that the build machine has would carry that one's version.
        &["-nostdlib", "-Wl,-soname,libweftrun-nccl.so", "-Wl,-z,now,-z,nodelete,-z,noexecstack"]
    } else {
        // NCCL unloads it while its thread runs: `nodelete` keeps its code mapped. A symbol that is missing fails at loading.
        &["-soname", "libweftrun-nccl.so", "-z", "now", "-z", "nodelete"]
    };
    let mut command = Command::new(rustc);
    command.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "weftrun_nccl"]);
    command.args(["--target", target, "-C", "panic=abort", "-C", "opt-level=2", "-C", "codegen-units=1"]);
    command.args(["-C", "strip=symbols", "-C", "lto=fat", "-C", "debug-assertions=off"]);
    command.arg("-C").arg(format!("linker={linker}")).arg("-C").arg(format!("linker-flavor={flavor}"));
    command.args(arguments.iter().flat_map(|argument| ["-C".to_owned(), format!("link-arg={argument}")]));
    match command.arg("-o").arg(library).arg(SOURCE).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr);
            let line = why.lines().find(|line| line.contains("error")).unwrap_or("no reason given");
            println!("cargo::warning=no NCCL profiler library for {target} with {linker}: {line}");
            false
        }
        Err(_) => false,
    }
}

fn answer(rustc: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(rustc).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
