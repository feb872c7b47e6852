#![no_main]
//! See `checks::TARGETS`.

#[path = "../checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::check("owner", data));
