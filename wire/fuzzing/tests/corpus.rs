//! Replays the fuzzing corpus, on a stable compiler.

use std::fs;
use std::path::PathBuf;

use crossdock_fuzzing::{TARGETS, Target};

fn corpus(target: &Target) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target.name)
}

/// Goal: nothing that fuzzing ever kept makes a decoder fail again.
#[test]
fn corpus_of_every_target_passes() {
    for target in TARGETS {
        let mut count = 0;
        for file in fs::read_dir(corpus(target)).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display()); // Shown if the target panics.
            (target.run)(&fs::read(path).unwrap());
            count += 1;
        }
        assert!(count > 0, "{} has no corpus", target.name);
    }
}

/// Goal: the corpus in the repository is the one that the samples make
/// (else: `cargo run -p crossdock-fuzzing --example seed_corpus`).
#[test]
fn seeds_in_the_corpus_are_fresh() {
    for target in TARGETS {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = corpus(target).join(format!("seed-{number:02}"));
            assert!(
                fs::read(&path).is_ok_and(|found| found == *seed),
                "{} is stale",
                path.display()
            );
        }
    }
}

/// Goal: every target is wrapped for libFuzzer.
#[test]
fn every_target_is_a_fuzz_target() {
    let fuzz = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for target in TARGETS {
        let source = format!("fuzz_targets/{}.rs", target.name);
        assert!(manifest.contains(&source), "{} is not listed", target.name);
        assert!(fuzz.join(source).exists());
    }
}
