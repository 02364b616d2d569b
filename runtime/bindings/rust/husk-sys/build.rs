//! Finds libhusk and libhusk_ops: in the folder HUSK_LIB_DIR, or by pkg-config.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=HUSK_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let folder = env::var("HUSK_LIB_DIR").or_else(|_| pkg_config()).unwrap_or_else(|reason| {
        panic!(
            "libhusk was not found: {}. Set HUSK_LIB_DIR to the folder of libhusk.so and \
             libhusk_ops.so, or PKG_CONFIG_PATH to that of husk.pc.",
            reason
        )
    });
    println!("cargo:rustc-link-search=native={}", folder);
    println!("cargo:lib={}", folder); // DEP_HUSK_LIB of the crates that depend on this one
}

fn pkg_config() -> Result<String, String> {
    let run = Command::new("pkg-config").args(["--variable=libdir", "husk"]).output();
    let output = run.map_err(|error| format!("pkg-config cannot run ({})", error))?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if output.status.success() && !folder.is_empty() {
        return Ok(folder);
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " "))
}
