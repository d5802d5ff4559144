//! Pressure stall information: how long work waited for CPU, memory or a disk, of the whole machine or of one
//! group.

use super::{NotAvailable, Probe, Values, acquire, readable};
use anyhow::Context;
use std::path::{Path, PathBuf};
use tipover_core::metric::{Kind, Metric, Sample};
use tipover_core::units::Tick;

const RESOURCES: [&str; 3] = ["cpu", "io", "memory"];

/// Reads the pressure on some resources.
pub struct Pressure {
    whose: &'static str,
    /// Resource, file and the kinds ("some", "full") that the file has.
    files: Vec<(&'static str, PathBuf, Vec<&'static str>)>,
    missing: Vec<NotAvailable>,
}

impl Pressure {
    /// Of the whole machine, from `/proc/pressure`.
    ///
    /// # Errors
    /// The kernel is older than 4.20, built without PSI, or has it switched off.
    pub fn of_system() -> Result<Pressure, NotAvailable> {
        Pressure::open("system", |resource| Path::new("/proc/pressure").join(resource))
    }

    /// Of a group, from its v2 directory ([`tipover_lab::Group::unified`]).
    ///
    /// # Errors
    /// There is no v2 hierarchy, or the kernel does not keep pressure per group.
    pub fn of_group(unified: Option<&Path>) -> Result<Pressure, NotAvailable> {
        let directory = unified.ok_or_else(|| {
            NotAvailable::new(
                "pressure per group",
                "only cgroup v2 has it, and the group is in no v2 hierarchy",
            )
        })?;
        Pressure::open("cgroup", |resource| directory.join(format!("{resource}.pressure")))
    }

    fn open(whose: &'static str, path: impl Fn(&str) -> PathBuf) -> Result<Pressure, NotAvailable> {
        let (mut files, mut missing) = (Vec::new(), Vec::new());
        for resource in RESOURCES {
            let path = path(resource);
            match readable(&path) {
                Ok(text) => {
                    files.push((resource, path, parse(&text).into_iter().map(|(kind, _)| kind).collect()))
                }
                Err(reason) => missing.push(reason),
            }
        }
        match (files.is_empty(), missing.first()) {
            (true, Some(first)) => {
                let reason = format!("{}; boot with psi=1 if the kernel has it (CONFIG_PSI)", first.reason);
                Err(NotAvailable::new(format!("pressure of {whose}"), reason))
            }
            _ => Ok(Pressure { whose, files, missing }),
        }
    }

    fn name(&self, resource: &str, kind: &str) -> String {
        format!("{}_pressure_{resource}_{kind}_us", self.whose)
    }
}

impl Probe for Pressure {
    fn metrics(&self) -> Vec<Metric> {
        let all = self
            .files
            .iter()
            .flat_map(|(resource, path, kinds)| kinds.iter().map(move |kind| (resource, path, kind)));
        let describe = |(resource, path, kind): (&&'static str, &PathBuf, &&'static str)| {
            let who = if *kind == "some" { "at least one task" } else { "every task that was not idle" };
            let blind = if *resource == "io" {
                " Waits for a FUSE file are not counted, those for a loop device are."
            } else {
                ""
            };
            let file = match self.whose {
                "system" => path.display().to_string(),
                _ => format!("the group's {resource}.pressure"),
            };
            Metric {
                name: self.name(resource, kind),
                kind: Kind::Counter,
                help: format!(
                    "Time during which {who} waited for {resource}, by the kernel's pressure stall information ({file}).{blind}"
                ),
            }
        };
        all.map(describe).collect()
    }

    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample> {
        acquire(now, || {
            let mut values = Values::new();
            for (resource, path, kinds) in &self.files {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("{} is gone", path.display()))?;
                let said = parse(&text).into_iter().filter(|(kind, _)| kinds.contains(kind));
                values.extend(said.map(|(kind, total)| (self.name(resource, kind), total as f64)));
            }
            Ok(values)
        })
    }

    fn missing(&self) -> Vec<NotAvailable> {
        self.missing.clone()
    }
}

/// The totals in microseconds, by "some" and "full".
fn parse(text: &str) -> Vec<(&'static str, u64)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        let kind = ["some", "full"].into_iter().find(|kind| *kind == first)?;
        let total = words.find_map(|word| word.strip_prefix("total="))?;
        Some((kind, total.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::contract;
    use proptest::prelude::*;

    #[test]
    fn a_pressure_file_is_read() {
        let text = "some avg10=1.29 avg60=0.66 avg300=0.51 total=5658480\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=12\n";
        assert_eq!(parse(text), [("some", 5658480), ("full", 12)]);
        assert_eq!(parse("some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"), [("some", 7)]);
    }

    #[test]
    fn the_machines_pressure_keeps_the_contract() {
        match Pressure::of_system() {
            Ok(mut pressure) => drop(contract::keeps(&mut pressure, || ())),
            Err(reason) => println!("SKIPPED: {reason}"),
        }
    }

    #[test]
    fn a_groups_pressure_is_that_of_the_group() {
        let group = match tipover_lab::Group::create("pressure", &tipover_lab::Limits::NONE) {
            Ok(group) => group,
            Err(reason) => return println!("SKIPPED: {reason}"),
        };
        match Pressure::of_group(group.unified()) {
            Ok(mut pressure) => {
                let (first, _) = contract::keeps(&mut pressure, || ());
                assert!(
                    first.values.values().all(|&total| total == 0.0),
                    "an empty group waits for nothing: {first:?}"
                );
            }
            Err(reason) => println!("SKIPPED: {reason}"),
        }
    }

    #[test]
    fn what_is_not_there_is_said() {
        let none = Pressure::of_group(None).err().unwrap();
        assert!(none.to_string().contains("only cgroup v2 has it"), "{none}");
        let empty = tempfile::tempdir().unwrap();
        let off = Pressure::of_group(Some(empty.path())).err().unwrap();
        assert!(off.to_string().contains("psi=1"), "{off}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((some|full|x)( [a-z]*=[0-9.]*)*\n)*\\PC*") {
            let _ = parse(&text);
        }
    }
}
