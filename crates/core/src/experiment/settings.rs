//! A plan's settings as nested tables: laid over each other, and set by their paths.

use super::{PlanError, unknown, wrong};
use toml::{Table, Value};

/// Takes the scales out of a plan and puts one of them in force; what it says of single sweeps is given back.
pub fn take_scale(table: &mut Table, scale: &str) -> Result<Table, PlanError> {
    let scales = match table.remove("scale") {
        Some(Value::Table(scales)) => scales,
        Some(_) => return wrong("`scale` must be tables: [scale.quick] and so on"),
        None => Table::new(),
    };
    let mut of_sweeps = Table::new();
    match scales.get(scale) {
        Some(Value::Table(patch)) => {
            let mut patch = patch.clone();
            // Tables are of single sweeps; a list replaces all of them, as any other key would.
            if patch.get("sweep").is_some_and(Value::is_table)
                && let Some(Value::Table(patches)) = patch.remove("sweep")
            {
                of_sweeps = patches;
            }
            merge(table, &patch);
        }
        Some(_) => return wrong(format!("[scale.{scale}] must be a table")),
        None if scales.is_empty() => {
            return wrong(format!(
                "the plan has no scale: it needs a table [scale.{scale}], which may be empty"
            ));
        }
        None => {
            let names: Vec<&str> = scales.keys().map(String::as_str).collect();
            return wrong(unknown("scale", scale, &names));
        }
    }
    Ok(of_sweeps)
}

/// A value as one types it: "128 MiB" is not TOML, and then the text itself is the value.
pub fn typed(text: &str) -> Value {
    let value = format!("v = {text}").parse::<Table>().ok().and_then(|mut table| table.remove("v"));
    value.unwrap_or_else(|| Value::String(text.into()))
}

/// Whether a table has something at a path, or a value where the path leads on.
pub fn says(settings: &Table, path: &str) -> bool {
    match path.split_once('.') {
        None => settings.contains_key(path),
        Some((table, rest)) => match settings.get(table) {
            Some(Value::Table(inner)) => says(inner, rest),
            other => other.is_some(),
        },
    }
}

/// Lays `patch` over `table`, table by table.
pub fn merge(table: &mut Table, patch: &Table) {
    for (key, value) in patch {
        match (table.get_mut(key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => merge(under, over),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Sets `a.b.c` in a nested table, making tables on the way.
pub fn set(table: &mut Table, path: &str, value: Value) -> Result<(), PlanError> {
    match path.split_once('.') {
        None => {
            table.insert(path.to_string(), value);
            Ok(())
        }
        Some((first, rest)) => {
            match table.entry(first.to_string()).or_insert_with(|| Value::Table(Table::new())) {
                Value::Table(inner) => set(inner, rest, value),
                _ => wrong(format!("`{first}` in `{path}` is a value, not a table of settings")),
            }
        }
    }
}

/// Whether some sweeps of a plan have a laboratory, and the plan itself has none.
pub fn has_laboratories_of_sweeps(plan: &Table) -> bool {
    let sweeps = plan.get("sweep").and_then(Value::as_array).into_iter().flatten();
    let settings = sweeps.filter_map(|sweep| sweep.get("settings")?.as_table());
    !plan.contains_key("lab") && settings.into_iter().any(|settings| settings.contains_key("lab"))
}
