//! Chromium, driven by `browser.mjs`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A browser. It ends when this value is dropped: its driver ends with its standard input.
pub struct Browser {
    driver: Child,
    answers: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts Chromium with the modules that `make test-dashboard` has installed.
    pub fn start() -> Self {
        let variable = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the test with make test-dashboard"))
        };
        let mut driver = Command::new("node")
            .arg(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("tests/dashboard/browser.mjs"))
            .args([variable("MCZK_TEST_BROWSER_MODULES"), variable("MCZK_TEST_CHROMIUM")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(driver.stdout.take().unwrap());
        Self { driver, answers }
    }

    /// The answer to one command of the driver.
    fn ask(&mut self, command: &Value) -> Value {
        writeln!(self.driver.stdin.as_mut().unwrap(), "{command}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("the driver ended: {command}"));
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        answer["value"].clone()
    }

    /// Opens a page in a new window of a width in CSS pixels, in the `light` or `dark` scheme.
    pub fn open(&mut self, url: &str, width: u16, scheme: &str) {
        self.ask(&json!({ "do": "open", "url": url, "width": width, "height": 800, "scheme": scheme }));
    }

    /// Waits until an expression of the page is true.
    pub fn wait(&mut self, code: &str) {
        self.ask(&json!({ "do": "wait", "code": code }));
    }

    /// Waits until the page shows a text.
    pub fn wait_for_text(&mut self, text: &str) {
        self.wait(&format!("document.body.innerText.includes({})", json!(text)));
    }

    /// The value of an expression of the page.
    pub fn value(&mut self, code: &str) -> Value {
        self.ask(&json!({ "do": "value", "code": code }))
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        self.ask(&json!({ "do": "press", "key": key }));
    }

    /// Types a text into a field.
    pub fn type_into(&mut self, selector: &str, text: &str) {
        self.ask(&json!({ "do": "type", "selector": selector, "text": text }));
    }

    /// What a screen reader reads: role and name of each node, in order.
    pub fn tree(&mut self) -> Vec<String> {
        serde_json::from_value(self.ask(&json!({ "do": "tree" }))).unwrap()
    }

    /// A picture of the first article, with what is above it, as PNG.
    pub fn picture(&mut self, path: &Path) {
        self.ask(&json!({ "do": "picture", "path": path }));
    }

    /// Fails if axe finds a violation, if the page is wider than its window, complains, or asks another origin.
    pub fn check(&mut self, origin: &str, what: &str) {
        let violations = self.ask(&json!({ "do": "axe" }));
        assert_eq!(violations, json!([]), "{what}");
        let overflow = self.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(overflow, 0, "{what}: the page scrolls sideways");
        let requests: Vec<String> = serde_json::from_value(self.ask(&json!({ "do": "requests" }))).unwrap();
        assert!(!requests.is_empty() && requests.iter().all(|url| url.starts_with(origin)), "{what}: {requests:?}");
        let complaints = self.ask(&json!({ "do": "complaints" }));
        assert_eq!(complaints, json!([]), "{what}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        drop(self.driver.stdin.take());
        let _ = self.driver.wait();
    }
}
