//! Which crate may see which. The compiler forbids cycles; this table forbids the wrong direction.

use serde_json::Value;

use super::Finding;
use crate::workspace::{array, members, text};

/// `core <- targets, disk <- lab <- tipover; wiredtiger <- targets`: who may use which of our crates. The
/// laboratory of nodes runs servers that it knows as programs, never as targets.
const DIRECTION: &[(&str, &[&str])] = &[
    ("tipover-core", &[]),
    ("tipover-wiredtiger", &[]),
    ("tipover-targets", &["tipover-core", "tipover-wiredtiger"]),
    ("tipover-disk", &["tipover-core"]),
    // A peer for tests: it knows nothing of us, so that it can be believed when it disagrees.
    ("tipover-reference-mongod", &[]),
    ("tipover-lab", &["tipover-core", "tipover-disk"]),
    ("tipover", &["tipover-core", "tipover-targets", "tipover-disk", "tipover-lab"]),
    // Whatever reads foreign bytes.
    ("tipover-fuzz", &["tipover-core", "tipover-targets", "tipover-disk", "tipover-lab"]),
    ("xtask", &[]),
];

/// What tests alone may use besides, and why: targets are tested on real servers, which the laboratory
/// starts, and the laboratory's recipes of MongoDB are started with our peer in mongod's place.
const DIRECTION_IN_TESTS: &[(&str, &[&str])] = &[
    ("tipover-targets", &["tipover-lab", "tipover-reference-mongod"]),
    ("tipover-lab", &["tipover-reference-mongod"]),
    ("tipover-reference-mongod", &["tipover-core", "tipover-lab"]),
    ("tipover", &["tipover-reference-mongod"]),
];

/// What the pure core may use: formats, arithmetic and errors; nothing that reaches the machine.
/// `proptest`, `snap`, and `adya`, which judges our isolation checker, are for its tests only.
const CORE_MAY_USE: &[&str] = &[
    "adya",
    "base64",
    "blake3",
    "crc32fast",
    "flate2",
    "hdrhistogram",
    "proptest",
    "serde",
    "serde_json",
    "snap",
    "statrs",
    "strsim",
    "thiserror",
    "toml",
];

/// Our crates see each other only along [`DIRECTION`], and in tests along [`DIRECTION_IN_TESTS`] too.
pub fn direction(metadata: &Value) -> Vec<Finding> {
    let ours: Vec<String> = members(metadata).iter().map(|package| text(&package["name"])).collect();
    let mut findings = Vec::new();
    for package in members(metadata) {
        let name = text(&package["name"]);
        let manifest = manifest_of(&name);
        let Some((_, allowed)) = DIRECTION.iter().find(|(known, _)| *known == name) else {
            findings.push(Finding::about(
                &manifest,
                "a new crate needs a row in the table of directions (xtask)",
            ));
            continue;
        };
        let in_tests = DIRECTION_IN_TESTS.iter().find(|(known, _)| *known == name);
        for dependency in array(&package["dependencies"]) {
            let used = text(&dependency["name"]);
            let for_tests = dependency["kind"] == "dev"
                && in_tests.is_some_and(|(_, allowed)| allowed.contains(&used.as_str()));
            if ours.contains(&used) && used != name && !allowed.contains(&used.as_str()) && !for_tests {
                findings.push(Finding::about(&manifest, format!("{name} must not see {used}")));
            }
        }
    }
    findings
}

/// The core's dependencies are a closed list.
pub fn purity(metadata: &Value) -> Vec<Finding> {
    let core = members(metadata).into_iter().filter(|package| package["name"] == "tipover-core");
    core.flat_map(dependencies)
        .filter(|dependency| !CORE_MAY_USE.contains(&dependency.as_str()))
        .map(|dependency| {
            Finding::about(
                &manifest_of("tipover-core"),
                format!("core is pure, so {dependency} needs an argument here"),
            )
        })
        .collect()
}

fn dependencies(package: &Value) -> Vec<String> {
    array(&package["dependencies"]).iter().map(|dependency| text(&dependency["name"])).collect()
}

fn manifest_of(package: &str) -> String {
    match package {
        "xtask" => "xtask/Cargo.toml".to_string(),
        other => format!("crates/{}/Cargo.toml", other.trim_start_matches("tipover-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn workspace(edges: &[(&str, &[&str])]) -> Value {
        let packages: Vec<Value> = edges
            .iter()
            .map(|(name, uses)| {
                let dependencies: Vec<Value> = uses.iter().map(|used| json!({ "name": used })).collect();
                json!({ "id": name, "name": name, "dependencies": dependencies })
            })
            .collect();
        let ids: Vec<&str> = edges.iter().map(|(name, _)| *name).collect();
        json!({ "packages": packages, "workspace_members": ids })
    }

    #[test]
    fn the_designed_direction_is_acquitted() {
        let edges: &[(&str, &[&str])] = &[
            ("tipover-core", &["serde"]),
            ("tipover-targets", &["tipover-core", "bson"]),
            ("tipover-lab", &["tipover-disk", "tipover-core"]),
            ("tipover-disk", &["tipover-core"]),
            // A peer for tests: it knows nothing of us, so that it can be believed when it disagrees.
            ("tipover-reference-mongod", &[]),
        ];
        assert!(direction(&workspace(edges)).is_empty());
        assert!(purity(&workspace(edges)).is_empty());
    }

    #[test]
    fn a_wrong_direction_is_convicted() {
        let edges: &[(&str, &[&str])] = &[("tipover-disk", &["tipover-targets"]), ("tipover-targets", &[])];
        assert_eq!(
            direction(&workspace(edges))[0].to_string(),
            "crates/disk/Cargo.toml: tipover-disk must not see tipover-targets"
        );
        assert_eq!(direction(&workspace(&[("tipover-new", &[])])).len(), 1, "a crate without a row");
    }

    #[test]
    fn only_tests_of_targets_may_start_servers() {
        let with = |kind: Value| {
            json!({
                "workspace_members": ["tipover-targets", "tipover-lab"],
                "packages": [
                    { "id": "tipover-targets", "name": "tipover-targets",
                      "dependencies": [{ "name": "tipover-lab", "kind": kind }] },
                    { "id": "tipover-lab", "name": "tipover-lab", "dependencies": [] },
                ],
            })
        };
        assert!(direction(&with(json!("dev"))).is_empty());
        assert_eq!(direction(&with(Value::Null)).len(), 1);
    }

    #[test]
    fn a_clock_in_the_core_is_convicted() {
        assert_eq!(purity(&workspace(&[("tipover-core", &["serde", "chrono"])])).len(), 1);
    }
}
