//! docs/kubernetes.yaml against the schema of Kubernetes, which takes no field that it does not know.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The definitions of every kind, if setup fetched them.
fn definitions() -> Option<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../third_party");
    let folders = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("kubernetes-validate-")
    };
    let Some(folder) = folders.into_iter().find(is_it) else {
        println!("SKIPPED: the schema of Kubernetes is not here: `make setup ARGS=--tests` fetches it");
        return None;
    };
    let text = fs::read(folder.join("v1.34.0-local-strict/_definitions.json")).expect("it is whole");
    Some(serde_json::from_slice(&text).expect("it is JSON"))
}

/// What is wrong with an object of some kind.
fn wrong_with(object: &Value, definitions: &Value) -> Vec<String> {
    let of = |name: &str| object[name].as_str().unwrap_or_default().to_string();
    let version = match of("apiVersion").split_once('/') {
        Some((group, version)) => format!("{group}.{version}"),
        None => format!("core.{}", of("apiVersion")),
    };
    let schema = json!({
        "$ref": format!("#/$defs/io.k8s.api.{version}.{}", of("kind")),
        "$defs": definitions["$defs"],
    });
    match jsonschema::draft202012::new(&schema) {
        Ok(schema) => {
            let errors = schema.iter_errors(object);
            errors.map(|error| format!("{}: {error}", error.instance_path)).collect()
        }
        Err(error) => vec![format!("no schema for {version} {}: {error}", of("kind"))],
    }
}

#[test]
fn the_manifest_is_one_that_kubernetes_takes() {
    let Some(definitions) = definitions() else { return };
    let text = include_str!("../../../docs/kubernetes.yaml");
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    assert_eq!(objects.len(), 4);
    for object in &objects {
        assert_eq!(wrong_with(object, &definitions), Vec::<String>::new(), "{}", object["kind"]);
    }
    // A culprit for each way to be wrong.
    let spoilt = |path: &str, value: Value| {
        let mut object = objects[3].clone();
        *object.pointer_mut(path).expect("it is there") = value;
        wrong_with(&object, &definitions)
    };
    let container = "/spec/template/spec/containers/0";
    assert!(
        !spoilt(container, json!({"name": "agent", "comand": ["tipover"]})).is_empty(),
        "a misspelt field"
    );
    assert!(
        !spoilt("/spec/template/spec/terminationGracePeriodSeconds", json!("60 s")).is_empty(),
        "a wrong type"
    );
    assert!(!spoilt(container, json!({"image": "tipover"})).is_empty(), "no name");
    assert!(!spoilt("/kind", json!("DemonSet")).is_empty(), "no such kind");
}
