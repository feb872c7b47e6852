//! The dashboard in headless Chromium: `mczk dashboard` and the operator's page, over a real API server whose objects the
//! test writes in place of the operator, Karmada and the agents.
//!
//! `make test-dashboard` installs Chromium and the driver. With `MCZK_TEST_PICTURES` the test also writes the pictures of
//! the documentation into that folder.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../apiserver/mod.rs"]
mod apiserver;
mod browser;
mod cluster;
#[path = "../patience/mod.rs"]
mod patience;
#[path = "../program/mod.rs"]
mod program;
mod scenes;

use std::path::Path;

use browser::Browser;
use cluster::{Cluster, Page};
use serde_json::json;

const VOTERS: [(&str, &[i32]); 3] = [("berlin", &[1, 2]), ("paris", &[3, 4]), ("rome", &[5])];

/// Largest picture of the documentation, in bytes.
const PICTURE_LIMIT: u64 = 150_000;

#[tokio::test]
#[ignore = "needs Chromium: make test-dashboard"]
async fn the_dashboard_in_a_browser() {
    let cluster = Cluster::start().await;
    let mut browser = Browser::start();
    let page = Page::local(&cluster);
    the_page_shows_every_ensemble(&mut browser, &page);
    it_fits_every_window_and_scheme(&mut browser, &page);
    it_follows_changes(&mut browser, &page, &cluster).await;
    it_shows_a_move(&mut browser, &page, &cluster).await;
    texts_are_no_markup(&mut browser, &page, &cluster).await;
    the_keyboard_reaches_the_content(&mut browser, &page);
    a_wrong_token_shows_nothing(&mut browser, &page);
    the_page_says_that_the_command_has_ended(&mut browser, page);

    let page = Page::of_operator(&cluster).await;
    users_of_the_cluster_log_in(&mut browser, &page, &cluster).await;
}

/// What a screen reader reads.
fn the_page_shows_every_ensemble(browser: &mut Browser, page: &Page) {
    browser.open(&page.url, 1100, "light");
    browser.wait_for_text("shop/orders");
    let tree = browser.tree();
    for expected in [
        "banner",
        "main",
        "heading ZooKeeper ensembles",
        "heading shop/orders",
        "article shop/orders",
        "heading What it waits for",
        "heading Rollout",
        "heading Quorum",
        "heading Servers",
        "columnheader Role",
        "rowheader 1",
    ] {
        assert!(tree.iter().any(|line| line == expected), "{expected}: {tree:#?}");
    }
    let text = browser.value("document.querySelector('article[data-key=\"shop/orders\"]').innerText");
    let text = text.as_str().unwrap();
    for expected in [
        "Not ready. Rollout: Deploying paris (1/3). 4 of 5 voters serve. The leader is server 1 in berlin.",
        "Server 4 restarts",
        "What to do:",
        "3 of 5 voters are needed, and 4 serve. One voter can be lost now.",
        "unreachable: reports may be old",
        "off: it serves nothing",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let steps = browser.value(
        "[...document.querySelectorAll('article[data-key=\"shop/orders\"] ol li')].map((step) => step.className)",
    );
    assert_eq!(steps, json!(["done", "now", "next"]));
    browser.check(&page.origin, "at 1100 px, light");
}

fn it_fits_every_window_and_scheme(browser: &mut Browser, page: &Page) {
    for (width, scheme) in [(1100, "dark"), (390, "light"), (320, "light"), (320, "dark")] {
        browser.open(&page.url, width, scheme);
        browser.wait_for_text("shop/orders");
        browser.check(&page.origin, &format!("at {width} px, {scheme}"));
    }
    for (width, scheme, name) in [(1100, "light", "dashboard.png"), (390, "dark", "dashboard-phone.png")] {
        browser.open(&page.url, width, scheme);
        browser.wait_for_text("shop/orders");
        write_picture(browser, name);
    }
}

/// Writes a picture of the documentation, if that is asked for.
fn write_picture(browser: &mut Browser, name: &str) {
    let Some(folder) = std::env::var_os("MCZK_TEST_PICTURES") else { return };
    let path = Path::new(&folder).join(name);
    browser.picture(&path);
    let size = std::fs::metadata(&path).unwrap().len();
    assert!(size < PICTURE_LIMIT, "{name} has {size} bytes");
}

async fn it_shows_a_move(browser: &mut Browser, page: &Page, cluster: &Cluster) {
    let voters: [(&str, &[i32]); 3] = [("berlin", &[1, 2]), ("paris", &[3, 4]), ("oslo", &[6])];
    cluster.write_moved("orders", &voters, ("rome", "oslo")).await;
    browser.open(&page.url, 1100, "light");
    browser.wait_for_text("its voters are in oslo");
    browser.check(&page.origin, "with moved voters");
    write_picture(browser, "dashboard-moved.png");
}

async fn it_follows_changes(browser: &mut Browser, page: &Page, cluster: &Cluster) {
    browser.open(&page.url, 1100, "light");
    browser.wait_for_text("shop/orders");
    browser.value("document.querySelector('article[data-key=\"shop/orders\"] details').open = true");
    browser.value("window.card = document.querySelector('article[data-key=\"shop/orders\"]'); 0");
    cluster.write("orders", &VOTERS, 3, None, "").await;
    browser.wait("document.querySelector('article[data-key=\"shop/orders\"] .badge').innerText.includes('Ready')");
    browser.wait("document.querySelectorAll('article[data-key=\"shop/orders\"] li.done').length === 3");
    let news = browser.value("document.getElementById('news').innerText");
    assert!(news.as_str().unwrap().contains("shop/orders: Ready. 5 of 5 voters serve."), "{news}");
    assert_eq!(
        browser.value("window.card.isConnected && window.card.querySelector('details').open"),
        true,
        "the place of a reader stays"
    );
    browser.check(&page.origin, "after a change");
    cluster.delete("sessions").await;
    browser.wait("document.querySelectorAll('article').length === 1");
    browser.wait("document.getElementById('news').textContent.includes('shop/sessions is gone')");
}

async fn texts_are_no_markup(browser: &mut Browser, page: &Page, cluster: &Cluster) {
    browser.open(&page.url, 1100, "light");
    cluster.write("orders", &VOTERS, 1, Some(4), scenes::MARKUP).await;
    browser.wait_for_text(scenes::MARKUP);
    assert_eq!(browser.value("document.querySelectorAll('main img, main script').length"), 0);
    assert_ne!(browser.value("document.title"), "owned");
    browser.check(&page.origin, "with markup in a message");
}

fn the_keyboard_reaches_the_content(browser: &mut Browser, page: &Page) {
    browser.open(&page.url, 1100, "light");
    browser.wait_for_text("shop/orders");
    browser.press("Tab");
    assert_eq!(browser.value("document.activeElement.id"), "skip");
    let visible = "document.activeElement.getBoundingClientRect().left >= 0 && getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.value(visible), "solid", "the focus is visible");
    browser.press("Enter");
    assert_eq!(browser.value("document.activeElement.id"), "main");
    browser.press("Tab");
    assert_eq!(browser.value("document.activeElement.tagName"), "SUMMARY");
    browser.press("Enter");
    browser.wait("document.activeElement.parentElement.open");
}

fn a_wrong_token_shows_nothing(browser: &mut Browser, page: &Page) {
    browser.open(&format!("{}/#token=wrong", page.origin), 320, "light");
    browser.wait_for_text("The token is missing, wrong or expired");
    assert_eq!(browser.value("document.activeElement.id"), "token");
    assert_eq!(browser.value("document.getElementById('cards').childElementCount"), 0);
    let tree = browser.tree();
    assert!(tree.iter().any(|line| line == "form Log in"), "{tree:#?}");
    assert!(tree.iter().any(|line| line == "textbox Token"), "{tree:#?}");
}

fn the_page_says_that_the_command_has_ended(browser: &mut Browser, page: Page) {
    browser.open(&page.url, 1100, "light");
    browser.wait_for_text("shop/orders");
    drop(page);
    browser.wait_for_text("No connection. The page tries again");
    browser.wait_for_text("shop/orders");
}

async fn users_of_the_cluster_log_in(browser: &mut Browser, page: &Page, cluster: &Cluster) {
    let viewer = cluster.token("shop", "viewer").await;
    let log_in = |browser: &mut Browser, token: &str, namespace: &str| {
        browser.wait("!document.getElementById('login').hidden");
        browser.value("document.getElementById('namespace').value = ''; 0");
        browser.type_into("#token", token);
        browser.type_into("#namespace", namespace);
        browser.press("Enter");
    };
    browser.open(&page.url, 390, "dark");
    browser.wait_for_text("Log in");
    browser.check(&page.origin, "the form");
    log_in(browser, "wrong", "shop");
    browser.wait_for_text("The token is missing, wrong or expired");
    log_in(browser, &viewer, "");
    browser.wait_for_text("You need the right to list multiclusterzookeepers.mczk.io in all namespaces");
    log_in(browser, &viewer, "default");
    browser.wait_for_text("You need the right to get multiclusterzookeepers.mczk.io in the namespace default");

    browser.open(&page.url, 1100, "light");
    log_in(browser, &viewer, "shop");
    browser.wait_for_text("shop/orders");
    assert_eq!(browser.value("document.querySelectorAll('article').length"), 1);
    assert_eq!(browser.value("document.getElementById('token').value + location.href.includes('ey')"), "false");
    browser.check(&page.origin, "logged in");
    // The right ends while the page is open.
    cluster.revoke().await;
    browser.wait_for_text("You need the right to get multiclusterzookeepers.mczk.io in the namespace shop");
    assert_eq!(browser.value("document.querySelectorAll('article').length"), 0);
}
