//! The checks of the fuzz targets, with their corpus and with simple changes of it. `make fuzz` searches further.

#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::unwrap_used
)]

use std::{fs, path::Path};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};

#[path = "fuzz/checks/mod.rs"]
mod checks;

/// Changes of the corpus of each target.
const CHANGES: usize = 5000;
/// Texts that a change inserts.
const TEXTS: [&str; 16] = [
    "null",
    "0",
    "-1",
    "2147483648",
    "1e9",
    "\"\"",
    "[]",
    "{}",
    ",",
    ":",
    "true",
    "\\",
    "\"status\":",
    "\n--\n",
    "server.1=",
    "\u{e9}",
];

#[test]
fn the_corpus_and_its_changes_show_no_defect() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut random = StdRng::seed_from_u64(seed);
    for (target, check) in checks::TARGETS {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/fuzz/corpus").join(target);
        let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let corpus: Vec<Vec<u8>> = files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
        corpus.iter().for_each(|data| check(data));
        for _ in 0..CHANGES {
            let mut data = corpus.choose(&mut random).expect("a corpus").clone();
            for _ in 0..random.random_range(1..4) {
                change(&mut data, &mut random);
            }
            check(&data);
        }
    }
}

/// Replaces some bytes by a text, by other bytes of the data, or by a byte.
fn change(data: &mut Vec<u8>, random: &mut StdRng) {
    let mut place = || {
        let begin = random.random_range(0..=data.len());
        begin..data.len().min(begin + random.random_range(0..8))
    };
    let (at, copied) = (place(), place());
    let new = match random.random_range(0..3) {
        0 => TEXTS.choose(random).expect("a text").as_bytes().to_vec(),
        1 => data[copied].to_vec(),
        _ => vec![random.random()],
    };
    data.splice(at, new);
}
