#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| esker_torture::fuzz::run("raft_closed", bytes));
