#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| crossdock_fuzzing::lbone(input));
