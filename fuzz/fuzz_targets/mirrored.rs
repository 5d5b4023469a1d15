#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| persimmon_fuzzing::run("mirrored", bytes));
