//! The generated pages of the reference. `make reference` writes them from the program's own tables; the test fails if a
//! committed page differs.
#![allow(
    clippy::format_push_string,
    clippy::format_collect,
    clippy::similar_names,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::{env, fs, path::PathBuf};

use rstest::rstest;

mod conditions;
mod events;
mod fields;
mod flags;
mod metrics;
mod settings;
mod table;

/// Variable that makes the test write the pages.
const UPDATE: &str = "UPDATE_REFERENCE";

#[rstest]
#[case("conditions.md", conditions::page)]
#[case("events.md", events::page)]
#[case("fields.md", fields::page)]
#[case("flags.md", flags::page)]
#[case("metrics.md", metrics::page)]
#[case("settings.md", settings::page)]
fn the_page_is_current(#[case] name: &str, #[case] page: fn() -> String) {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("docs/reference").join(name);
    let page = page();
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, page).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(page.lines()).find(|(committed, page)| committed != page);
    assert!(
        committed == page,
        "docs/reference/{name} is not current: run `make reference` and commit the page. First difference: {differs:?}"
    );
}
