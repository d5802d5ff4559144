//! Every package that we could link has a licence that may be combined with GPL-3.0, because a binary with
//! WiredTiger inside is conveyed under it. The list is `deny.toml`'s, so that there is only one.

use serde_json::Value;

use super::{File, Finding};
use crate::workspace::{array, text};

/// Checks the licence expression of every package against the list in `deny.toml`.
pub fn check(metadata: &Value, files: &[File]) -> Vec<Finding> {
    let Some(deny) = files.iter().find(|file| file.path == "deny.toml") else {
        return vec![Finding::about("deny.toml", "is missing: it holds the list of licences")];
    };
    let allowed = allowed_licences(deny.text());
    let packages = array(&metadata["packages"]).iter();
    packages
        .filter(|package| !is_allowed(&text(&package["license"]), &allowed))
        .map(|package| {
            let (name, version) = (text(&package["name"]), text(&package["version"]));
            let licence = text(&package["license"]);
            Finding::about(
                "Cargo.lock",
                format!("{name} {version}: licence `{licence}` is not on deny.toml's list"),
            )
        })
        .collect()
}

/// The strings of `allow = [..]` in the `[licenses]` section.
fn allowed_licences(deny: &str) -> Vec<String> {
    let section = deny.split("[licenses]").nth(1).unwrap_or_default();
    let list = section.split("allow = [").nth(1).unwrap_or_default();
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    let list = lines.collect::<Vec<_>>().join("\n");
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(String::from).collect()
}

/// Evaluates an SPDX expression: OR needs one side, AND needs both. The old `MIT/Apache-2.0` means OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    !rest.is_empty() && any_of(&mut rest, allowed) && rest.is_empty()
}

fn any_of(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut held = all_of(words, allowed);
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        // Not `||`: the right side has to be read even when the left one suffices.
        held |= all_of(words, allowed);
    }
    held
}

fn all_of(words: &mut &[&str], allowed: &[String]) -> bool {
    let mut held = one(words, allowed);
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        held &= one(words, allowed);
    }
    held
}

fn one(words: &mut &[&str], allowed: &[String]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    *words = rest;
    if *first == "(" {
        let held = any_of(words, allowed);
        *words = words.get(1..).unwrap_or_default();
        return held;
    }
    let mut licence = first.to_string();
    if let ["WITH", exception, ..] = **words {
        licence = format!("{licence} WITH {exception}");
        *words = &words[2..];
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DENY: &str = concat!(
        "[licenses]\nallow = [\n  \"MIT\", # the \"usual\" one\n",
        "  \"Apache-2.0 WITH LLVM-exception\",\n]\n[bans]\n",
    );

    #[test]
    fn the_list_is_read_from_deny_toml() {
        assert_eq!(allowed_licences(DENY), ["MIT", "Apache-2.0 WITH LLVM-exception"]);
    }

    #[test]
    fn expressions_are_evaluated() {
        let allowed = allowed_licences(DENY);
        for good in [
            "MIT",
            "MIT OR SSPL-1.0",
            "GPL-2.0/MIT",
            "(SSPL-1.0 OR MIT) AND MIT",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in
            ["", "SSPL-1.0", "MIT AND SSPL-1.0", "GPL-2.0 OR SSPL-1.0", "Apache-2.0", "(MIT OR X) AND Y"]
        {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }

    #[test]
    fn a_package_without_a_good_licence_is_convicted() {
        let files = [File::of("deny.toml", DENY)];
        let metadata =
            |licence: Value| json!({ "packages": [{ "name": "x", "version": "1.0.0", "license": licence }] });
        assert!(check(&metadata(json!("MIT")), &files).is_empty());
        assert_eq!(check(&metadata(json!("BUSL-1.1")), &files).len(), 1);
        assert_eq!(check(&metadata(Value::Null), &files).len(), 1);
        assert_eq!(check(&metadata(json!("MIT")), &[]).len(), 1, "without deny.toml");
    }
}
