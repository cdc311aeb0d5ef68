// SPDX-License-Identifier: Apache-2.0
//! Says where libsplitfs.so is: in SPLITFS_LIB_DIR, where pkg-config says, or where the linker looks.
use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=SPLITFS_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    if let Ok(dir) = env::var("SPLITFS_LIB_DIR") {
        println!("cargo:rustc-link-search=native={dir}");
        return;
    }
    let output = Command::new("pkg-config").args(["--libs-only-L", "splitfs"]).output();
    if let Some(output) = output.ok().filter(|o| o.status.success()) {
        for word in String::from_utf8_lossy(&output.stdout).split_whitespace() {
            if let Some(dir) = word.strip_prefix("-L") {
                println!("cargo:rustc-link-search=native={dir}");
            }
        }
    }
}
