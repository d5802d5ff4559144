//! A plan for an embedded engine, turned into one for a server at an address.

use super::settings::set;
use super::{Address, PlanError, TargetKind};
use toml::{Table, Value};

/// Settings that belong to whoever runs the server. The working set is a share of the embedded engine's
/// cache.
const ITS_OWN: [&str; 5] = ["disk", "machine", "tenant", "target.wiredtiger", "workload.working_set"];
/// Records where the plan gives a share of a cache instead: 100 MB of YCSB's records.
const RECORDS: i64 = 100_000;

/// Puts the server at `address` into the plan's table, and into what a scale says of its sweeps.
pub fn put(table: &mut Table, of_sweeps: &mut Table, address: &Address) -> Result<(), PlanError> {
    let Some(kind) = kind(address.scheme()) else {
        return Err(PlanError(format!(
            "{address}: there is no target for {}://; there are postgres://, mysql:// and mongodb://",
            address.scheme()
        )));
    };
    leave_out(table);
    // A study's own page compares disks and working sets, which are left out.
    table.remove("published");
    if let Some(Value::Table(target)) = table.get_mut("target") {
        // What an embedded engine lacks of a request path, a server has.
        target.retain(|key, _| key == "settings");
    }
    set(table, "target.kind", Value::try_from(kind).map_err(|e| PlanError(e.to_string()))?)?;
    set(table, "target.address", Value::String(address.with_secrets().into()))?;
    if let Some(Value::Table(workload)) = table.get_mut("workload")
        && workload.get("kind").and_then(Value::as_str) != Some("scripts")
    {
        workload.entry("records").or_insert(Value::Integer(RECORDS));
    }
    if let Some(Value::Array(sweeps)) = table.get_mut("sweep") {
        // What measures a file or another target beside the engine is no question to a server.
        sweeps.retain(|sweep| {
            let target = sweep.get("settings").and_then(|settings| settings.get("target"));
            let stays = target.is_none_or(|target| target.get("kind").is_none());
            if let Some(name) = sweep.get("name").and_then(Value::as_str).filter(|_| !stays) {
                of_sweeps.remove(name);
            }
            stays
        });
        if sweeps.is_empty() {
            return Err(PlanError(
                "every sweep of this plan names a target of its own: none asks a server".into(),
            ));
        }
        for sweep in sweeps.iter_mut().filter_map(Value::as_table_mut) {
            if let Some(Value::Table(settings)) = sweep.get_mut("settings") {
                leave_out(settings);
            }
            let name = sweep.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
            let mut of_scale = of_sweeps.get_mut(&name).and_then(Value::as_table_mut);
            if let Some(of_scale) = &mut of_scale {
                leave_out(of_scale);
            }
            if let Some(Value::Array(axes)) = sweep.get_mut("axis") {
                axes.retain(|axis| {
                    let stays = !axis.get("sets").and_then(Value::as_str).is_some_and(is_its_own);
                    let of_axis = of_scale.as_mut().and_then(|scale| scale.get_mut("axis")?.as_table_mut());
                    if let (Some(name), Some(of_axis), false) =
                        (axis.get("name").and_then(Value::as_str), of_axis, stays)
                    {
                        of_axis.remove(name);
                    }
                    stays
                });
            }
        }
    }
    Ok(())
}

/// The target for the scheme of an address.
fn kind(scheme: &str) -> Option<TargetKind> {
    Some(match scheme {
        "postgres" | "postgresql" => TargetKind::Postgres,
        "mysql" | "mariadb" => TargetKind::Mysql,
        "mongodb" | "mongodb+srv" => TargetKind::Mongodb,
        _ => return None,
    })
}

fn is_its_own(path: &str) -> bool {
    ITS_OWN
        .iter()
        .any(|own| path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

fn leave_out(settings: &mut Table) {
    for path in ITS_OWN {
        match path.split_once('.') {
            None => {
                settings.remove(path);
            }
            Some((table, key)) => {
                if let Some(Value::Table(inner)) = settings.get_mut(table) {
                    inner.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DiskMode, Experiment};
    use super::*;

    fn at(address: &str, overrides: &[(&str, &str)]) -> Result<Experiment, PlanError> {
        let plan = include_str!("../../../../experiments/capacity.toml");
        let overrides: Vec<_> = overrides.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Experiment::parse_for(plan, "tiny", &overrides, Some(&address.parse().unwrap()))
    }

    #[test]
    fn a_plan_for_an_engine_is_asked_of_a_server() {
        let experiment = at("postgres://anna:secret@db/shop", &[("workload.records", "20000")]).unwrap();
        assert_eq!(experiment.sweeps.len(), 1);
        let cells = &experiment.sweeps[0].cells;
        assert_eq!(cells.len(), 1, "the axis over our disks means nothing there");
        let spec = &cells[0].spec;
        assert_eq!((spec.target.kind, spec.records()), (TargetKind::Postgres, 20_000));
        assert_eq!((spec.disk.mode, spec.machine.memory), (DiskMode::None, None));
        assert!(spec.target.request_path_cpu.is_zero());
        assert_eq!(spec.target.address.as_ref().unwrap().with_secrets(), "postgres://anna:secret@db/shop");
        assert!(experiment.search.is_some(), "what is searched stays as it was");
        assert_eq!(at("mongodb://db", &[]).unwrap().sweeps[0].cells[0].spec.records(), RECORDS as u64);
    }

    #[test]
    fn sweeps_over_other_targets_are_left_out() {
        let plan = include_str!("../../../../experiments/working-set.toml");
        let on_server = |plan: &str, scale: &str| {
            Experiment::parse_for(plan, scale, &[], Some(&"mysql://db/x".parse().unwrap()))
        };
        // A scale may speak of them, and of their axes, too.
        for scale in Experiment::scales(plan) {
            let experiment = on_server(plan, &scale).unwrap_or_else(|error| panic!("{scale}: {error}"));
            assert!(experiment.sweeps.iter().all(|sweep| sweep.name != "device"));
            assert!(!experiment.sweeps.is_empty() && experiment.published.is_none());
        }
        let axis = "[scale.full.sweep.reads.axis.disk]\nvalues = [\"iops=9\"]\nlabels = [\"nine\"]\n";
        assert!(on_server(&format!("{plan}\n{axis}"), "full").is_ok());
        let strange = format!("{plan}\n[scale.full.sweep.nonsense]\nload.sessions = 2\n");
        let error = on_server(&strange, "full").unwrap_err().to_string();
        assert!(error.contains("unknown sweep `nonsense`"), "{error}");
        let only_files = include_str!("../../../../experiments/tipping-point.toml");
        assert!(on_server(only_files, "tiny").is_err());
    }

    #[test]
    fn a_scheme_without_a_target_is_refused_with_those_that_have_one() {
        let error = at("oracle://db/shop", &[]).unwrap_err().to_string();
        assert!(error.contains("oracle://") && error.contains("mysql://"), "{error}");
    }
}
