//! Has the crate compiled again when a migration is added: the macro that embeds them
//! watches the files that it found, and not their folder.

fn main() {
    println!("cargo:rerun-if-changed=../../migrations");
}
