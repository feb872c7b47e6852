//! Objects in files.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

use super::error::Error;
use mczk_api::yaml;

/// The objects in a file of YAML documents or JSON; `-` is standard input. Empty documents count for nothing.
///
/// # Errors
/// [`Error::Usage`] if the file cannot be read, or holds no object.
pub(crate) fn read(file: &Path) -> Result<Vec<Value>, Error> {
    let usage = |error: &dyn std::fmt::Display| Error::Usage(format!("--filename {}: {error}", file.display()));
    let text = if file == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map_err(|error| usage(&error))?;
        text
    } else {
        fs::read_to_string(file).map_err(|error| usage(&error))?
    };
    let documents = parse(&text).map_err(|error| usage(&error))?;
    if documents.is_empty() { Err(usage(&"the file holds no object")) } else { Ok(documents) }
}

/// The one object in a file.
///
/// # Errors
/// As [`read`], and if the file holds several objects.
pub(crate) fn read_one(file: &Path) -> Result<Value, Error> {
    let mut documents = read(file)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(object), true) => Ok(object),
        _ => Err(Error::Usage(format!("--filename {}: the file holds several objects: give one", file.display()))),
    }
}

fn parse(text: &str) -> Result<Vec<Value>, String> {
    let documents = yaml::read(text).map_err(|error| error.to_string())?;
    if documents.iter().all(Value::is_object) { Ok(documents) } else { Err("a document is no object".to_owned()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_of_yaml_and_json() {
        assert_eq!(parse("a: 1\n---\n---\nb: 2\n").unwrap(), [json!({ "a": 1 }), json!({ "b": 2 })]);
        assert_eq!(parse(r#"{ "a": 1 }"#).unwrap(), [json!({ "a": 1 })]);
        assert!(parse("").unwrap().is_empty());
        assert!(parse("7").is_err());
        assert!(parse("a: [").is_err());
    }
}
