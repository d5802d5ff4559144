//! The bill of materials of a package, as CycloneDX 1.6 in JSON: what is in the program, where each part came
//! from with which hash, under which licence, and what needs what.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::portable::Machine;
use super::tree::{LINKED, Part, tree};
use crate::setup::Source;
use crate::workspace::Workspace;

/// Into which Rust package each foreign source is compiled or embedded.
const INTO: [(&str, &str); 3] =
    [("wiredtiger", "tipover-wiredtiger"), ("plotly", "tipover"), ("ziglang", "tipover")];
const ROOT: &str = "tipover";

/// The whole document; `foreign` is what is in the program besides Rust packages, `sha256` is the program's,
/// and `made` is when the commit was made. Without a serial number, which would be another one at each build.
pub fn bill_of_materials(
    workspace: &Workspace,
    foreign: &[&Source],
    sha256: &str,
    made: &str,
    machine: Machine,
) -> Result<Value> {
    let parts = tree(workspace, LINKED, machine)?;
    let hashes = hashes(&fs::read_to_string(workspace.path("Cargo.lock"))?);
    let (mut root, mut components, mut needs) = (None, Vec::new(), BTreeMap::new());
    for (called, part) in &parts {
        let reference = reference(part);
        let is_root = part.ours && part.name == ROOT;
        let hash = match (is_root, part.ours) {
            (true, _) => Some(sha256),
            (_, true) => None,
            _ => Some(
                hashes.get(called).with_context(|| format!("Cargo.lock has no hash of {called}"))?.as_str(),
            ),
        };
        // With WiredTiger in it the program as a whole is conveyed under this one (NOTICE).
        let licence = if is_root { "GPL-3.0-only" } else { &part.licence };
        let kind = if is_root { "application" } else { "library" };
        let found = component(kind, &reference, (&part.name, &part.version), licence, hash);
        if is_root {
            root = Some(found)
        } else {
            components.push(found)
        }
        needs.insert(reference, part.needs.iter().map(|need| self::reference(&parts[need])).collect());
    }
    for source in foreign {
        let foreign = format!("pkg:pypi/{}@{}", source.project, source.version);
        let (_, into) = INTO.iter().find(|(project, _)| *project == source.project).with_context(|| {
            format!("nobody says into what {} is compiled; add a row to INTO", source.project)
        })?;
        let called = (source.project, source.version);
        components.push(component("library", &foreign, called, source.licence, Some(source.sha256)));
        add_need(&mut needs, into, foreign)?;
    }
    let rust = rust_version(workspace)?;
    let library = format!("pkg:github/rust-lang/rust@{rust}");
    components.push(component("library", &library, ("std", &rust), "MIT OR Apache-2.0", None));
    add_need(&mut needs, ROOT, library)?;
    let dependencies: Vec<Value> =
        needs.iter().map(|(who, parts)| json!({ "ref": who, "dependsOn": parts })).collect();
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "authors": [{ "name": "The Tipover authors" }],
            "component": root.context("tipover is not in its own program")?,
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Who needs what, by reference.
type Needs = BTreeMap<String, BTreeSet<String>>;

/// Notes that our package `into` contains what cargo does not know of.
fn add_need(needs: &mut Needs, into: &str, reference: String) -> Result<()> {
    let start = format!("pkg:generic/{into}@");
    let (_, parts) = needs
        .iter_mut()
        .find(|(who, _)| who.starts_with(&start))
        .with_context(|| format!("{into} is not in the program"))?;
    parts.insert(reference.clone());
    needs.insert(reference, BTreeSet::new());
    Ok(())
}

/// A package URL (purl); in a version `+` has to be escaped.
fn reference(part: &Part) -> String {
    let origin = if part.ours { "generic" } else { "cargo" };
    format!("pkg:{origin}/{}@{}", part.name, part.version.replace('+', "%2B"))
}

fn component(
    kind: &str,
    reference: &str,
    (name, version): (&str, &str),
    licence: &str,
    sha256: Option<&str>,
) -> Value {
    let mut component = json!({
        "type": kind,
        "bom-ref": reference,
        "name": name,
        "version": version,
        "licenses": [{ "expression": licence }],
        "purl": reference,
    });
    if let Some(hash) = sha256 {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": hash }]);
    }
    component
}

/// The compiler's, whose standard library is linked: "1.90.0".
fn rust_version(workspace: &Workspace) -> Result<String> {
    let told = workspace.command("rustc").arg("--version").output().context("cannot start rustc")?;
    let told = String::from_utf8_lossy(&told.stdout);
    match told.split_whitespace().collect::<Vec<_>>()[..] {
        ["rustc", version, ..] => Ok(version.to_string()),
        _ => bail!("rustc --version says `{told}`"),
    }
}

/// SHA-256 of each package's archive, by name and version, from `Cargo.lock`.
fn hashes(lock: &str) -> BTreeMap<String, String> {
    let value = |package: &str, key: &str| {
        let sign = format!("{key} = \"");
        Some(package.lines().find_map(|line| line.strip_prefix(&sign)?.strip_suffix('"'))?.to_string())
    };
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            let called = format!("{} {}", value(package, "name")?, value(package, "version")?);
            Some((called, value(package, "checksum")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::portable::AMD64;
    use super::*;
    use crate::setup::{FOR_PACKAGES, SOURCES};
    use crate::workspace::{array, text};

    #[test]
    fn every_part_is_named_once_with_its_origin_and_what_it_needs() {
        let workspace = Workspace::locate().unwrap();
        let sha256 = "5".repeat(64);
        let foreign: Vec<&Source> = SOURCES.iter().chain([&FOR_PACKAGES[0]]).collect();
        let bill =
            bill_of_materials(&workspace, &foreign, &sha256, "2026-11-23T00:00:00+00:00", AMD64).unwrap();
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&json!("CycloneDX"), &json!("1.6")));
        let program = &bill["metadata"]["component"];
        assert_eq!(program["hashes"][0]["content"], sha256.as_str());
        assert_eq!(program["licenses"][0]["expression"], "GPL-3.0-only");
        let parts = array(&bill["components"]);
        let mut references: BTreeSet<String> = parts.iter().map(|part| text(&part["bom-ref"])).collect();
        assert_eq!(references.len(), parts.len(), "a part is there twice");
        for part in parts {
            let (reference, licence) = (text(&part["bom-ref"]), text(&part["licenses"][0]["expression"]));
            assert!(!licence.is_empty() && !licence.contains('/'), "{reference}: {licence:?}");
            let hash = text(&part["hashes"][0]["content"]);
            let archived = ["pkg:cargo/", "pkg:pypi/"].iter().any(|start| reference.starts_with(start));
            assert_eq!(hash.len(), if archived { 64 } else { 0 }, "{reference}: {hash:?}");
            assert!(!reference.contains('+'), "{reference} is no package URL");
        }
        assert!(references.insert(text(&program["bom-ref"])));
        let tree = array(&bill["dependencies"]);
        let who: BTreeSet<String> = tree.iter().map(|row| text(&row["ref"])).collect();
        assert_eq!(who, references, "each part says what it needs, and nobody else does");
        let named = |row: &Value| array(&row["dependsOn"]).iter().map(text).collect::<Vec<_>>();
        // From the program every part can be reached: none is there for nothing, none is missing.
        let mut reached = BTreeSet::new();
        let mut open = vec![text(&program["bom-ref"])];
        while let Some(next) = open.pop() {
            if reached.insert(next.clone()) {
                open.extend(tree.iter().filter(|row| row["ref"] == next.as_str()).flat_map(named));
            }
        }
        assert_eq!(reached, references);
        // What no Rust manifest names is compiled in all the same; what only tests or the compiler use is
        // not.
        for source in foreign {
            assert!(references.contains(&format!("pkg:pypi/{}@{}", source.project, source.version)));
        }
        let has = |start: &str| references.iter().any(|reference| reference.starts_with(start));
        assert!(has("pkg:cargo/clap@") && has("pkg:github/rust-lang/rust@1."));
        for unlinked in ["pkg:cargo/proptest@", "pkg:cargo/syn@", "pkg:cargo/cc@", "pkg:generic/xtask@"] {
            assert!(!has(unlinked), "{unlinked}");
        }
    }

    #[test]
    fn a_package_of_ours_has_no_hash_in_the_lock() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        assert_eq!(hashes(lock), BTreeMap::from([("a 1.0.0".into(), "ff".into())]));
    }
}
