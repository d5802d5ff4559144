//! A peer is a program: what it printed, what it cost, and what the machine did meanwhile.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::process::{Command, Stdio};

/// A program that ran to its end.
#[allow(dead_code, reason = "a bench without a server asks what others did, one with a server what all did")]
pub struct Ran {
    /// What it wrote to its standard output.
    pub output: String,
    /// Processor time of its whole life, in steps of 10 ms and at least one of them.
    pub cpu_s: f64,
    /// Processor time of everybody meanwhile, of all there was.
    pub busy_percent: f64,
    /// Processor time of everybody else; the host's other guests (steal) are others too.
    pub others_percent: f64,
}

impl Ran {
    /// Runs `command` and waits; its failure is an error.
    pub fn to_end(command: &mut Command) -> Result<Ran> {
        let (before, children) = (Machine::now()?, children_s()?);
        // Its arguments may hold a password, so they are not shown.
        let program = command.get_program().to_string_lossy().into_owned();
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting {program}"))?;
        let (own_s, meanwhile) = (children_s()? - children, Machine::now()?.since(&before));
        if !output.status.success() {
            bail!("{program}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Ran {
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            cpu_s: own_s.max(0.01),
            busy_percent: meanwhile.busy_percent(),
            others_percent: meanwhile.percent((meanwhile.busy_s - own_s).max(0.0)),
        })
    }
}

/// The first line of /proc/stat.
pub struct Machine {
    busy_s: f64,
    all_s: f64,
}

impl Machine {
    /// Since the machine started.
    pub fn now() -> Result<Machine> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().context("/proc/stat is empty")?;
        // user nice system idle iowait irq softirq steal, in ticks of 10 ms; guests are in user already.
        let ticks: Vec<f64> =
            line.split_whitespace().skip(1).take(8).map(str::parse).collect::<Result<_, _>>()?;
        ensure!(ticks.len() == 8, "/proc/stat: {line}");
        let all: f64 = ticks.iter().sum();
        Ok(Machine { busy_s: (all - ticks[3] - ticks[4]) / 100.0, all_s: all / 100.0 })
    }

    /// Between `before` and this.
    pub fn since(&self, before: &Machine) -> Machine {
        Machine { busy_s: self.busy_s - before.busy_s, all_s: self.all_s - before.all_s }
    }

    /// All that was busy, of all there was.
    pub fn busy_percent(&self) -> f64 {
        self.percent(self.busy_s)
    }

    fn percent(&self, s: f64) -> f64 {
        100.0 * s / self.all_s.max(0.01)
    }
}

/// Processor time of all children that were waited for.
fn children_s() -> Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    // Fields 16 and 17; the program's name, field 2, may hold blanks and ends with the last bracket.
    let (_, fields) = text.rsplit_once(')').context("/proc/self/stat has no name")?;
    let ticks: f64 = fields
        .split_whitespace()
        .skip(13)
        .take(2)
        .map(|ticks| Ok(ticks.parse::<f64>()?))
        .sum::<Result<f64>>()?;
    Ok(ticks / 100.0)
}
