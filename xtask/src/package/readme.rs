//! The README's commands, carried out as they are printed in a root that has nothing but the package and what
//! each command says that it needs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::copy;
use crate::process::run;
use crate::workspace::Workspace;

/// How a command of the README is shown to work.
enum Shown {
    /// As printed, after these lines of a shell in the folder in which it runs.
    Here { first: &'static str, most_s: u32, then: &'static str },
    /// Not here; why, and where instead.
    Elsewhere(&'static str),
}

/// Nothing to be prepared, and nothing to be looked at but how it ends.
const fn here(most_s: u32) -> Shown {
    Shown::Here { first: "", most_s, then: "" }
}

/// By the command's first words. Each line of the README matches one row, and each row a line.
const COMMANDS: &[(&str, Shown)] = &[
    (
        "make ",
        Shown::Elsewhere("needs the sources and a compiler; a build machine runs it from a fresh clone"),
    ),
    (
        "tipover run working-set --fleet",
        Shown::Elsewhere("needs a fleet; tests/fleet.rs has one of real servers"),
    ),
    // A whole study or search takes up to an hour: what it had found when it was stopped is kept, and shown.
    (
        "tipover run working-set",
        Shown::Here { first: "", most_s: 300, then: "test -s results/working-set/report.html" },
    ),
    (
        "tipover find capacity --target",
        Shown::Here { first: SERVER, most_s: 180, then: "tipover show capacity | grep -q ." },
    ),
    ("tipover find capacity", Shown::Here { first: "", most_s: 180, then: "ls results/capacity" }),
    ("tipover break postgres", here(300)),
    ("tipover plan working-set", here(60)),
    (
        "tipover plan postgres",
        Shown::Elsewhere("needs a server under a steady load; tests/planning.rs has real ones"),
    ),
    (
        "tipover learn",
        Shown::Here { first: WATCHED, most_s: 240, then: "wait; grep -q pgbench_accounts shop.toml" },
    ),
    (
        "tipover disk mount",
        Shown::Here {
            first: "mkdir -p DIR",
            most_s: 120,
            then: "echo it > DIR/file && tipover disk umount DIR",
        },
    ),
    ("tipover ycsb run", Shown::Here { first: LOADED, most_s: 120, then: "" }),
    ("tipover pgbench", Shown::Here { first: "echo 'SELECT 1;' > mine.sql", most_s: 120, then: "" }),
    (
        "tipover audit published/",
        Shown::Here { first: "ln -sfn /usr/share/tipover/published published", most_s: 60, then: "" },
    ),
    ("tipover run my-plan.toml", Shown::Here { first: PLAN, most_s: 300, then: "" }),
];

/// What `tipover plan` says when it refuses figures of a busy machine. Then it has kept its word, and whoever
/// checks has seen nothing of what it does on a quiet one.
const BUSY: &str = "measure again when nothing else runs";
const SKIPPED: &str = "SKIPPED: the machine was busy; check again when nothing else runs";

/// The README's server, on a network that is the root's own: `host` is this machine, `me` may do all.
const SERVER: &str = "grep -q ' host$' /etc/hosts || echo '127.0.0.1 host' >> /etc/hosts
for file in /etc/postgresql/*/main/postgresql.conf; do printf '%s\\n' \"listen_addresses = 'localhost,host'\" \
\"shared_preload_libraries = 'pg_stat_statements'\" >> \"$file\"; done
echo 'host all me 127.0.0.1/32 trust' > /etc/postgresql/hba
cat /etc/postgresql/*/main/pg_hba.conf >> /etc/postgresql/hba
for file in /etc/postgresql/*/main/pg_hba.conf; do cat /etc/postgresql/hba > \"$file\"; done
pg_ctlcluster $(pg_lsclusters -h | cut -d' ' -f1) main restart
su postgres -c \"createuser me\"
su postgres -c \"createdb -O me shop\"
su postgres -c \"createdb -O me db\"";

/// Statements to be learned from, for as long as somebody watches.
const WATCHED: &str = "su postgres -c \"psql -qc 'CREATE EXTENSION pg_stat_statements' shop\"
tipover pgbench -i -q postgres://me@host/shop > load.out 2>&1
tipover pgbench -c 2 -T 150 postgres://me@host/shop > load.out 2>&1 &";

/// YCSB's workload A, as its files are, and its records.
const LOADED: &str =
    "printf '%s\\n' recordcount=10000 operationcount=20000 workload=site.ycsb.workloads.CoreWorkload \
    readallfields=true readproportion=0.5 updateproportion=0.5 requestdistribution=zipfian > workloada
tipover ycsb load postgres://me@host/db -P workloada > /dev/null";

/// An example under a name of its own, with its scales exchanged: what takes a minute is what runs without
/// being asked for.
const PLAN: &str = "sed -e '1s/working-set/mine/' -e 's/^\\[scale.tiny\\]/[scale.other]/' \
    -e 's/^\\[scale.quick\\]/[scale.tiny]/' -e 's/^\\[scale.other\\]/[scale.quick]/' \
    /usr/share/tipover/experiments/working-set.toml > my-plan.toml";

/// What the commands need besides the package: a server, and what the package recommends.
pub const NEEDS: &[&str] = &["postgresql", "e2fsprogs", "fuse3", "mount", "iproute2", "procps"];

/// The README's commands, without their remarks.
fn commands(readme: &str) -> Vec<String> {
    let blocks = readme.split("```\n").skip(1).step_by(2);
    let lines = blocks.flat_map(|block| block.lines()).filter(|line| !line.trim().is_empty());
    lines
        .map(|line| {
            line.split("    #").next().unwrap_or(line).split(" # ").next().unwrap_or(line).trim().into()
        })
        .collect()
}

fn shown(command: &str) -> Result<&'static Shown> {
    let row = COMMANDS.iter().find(|(begin, _)| command.starts_with(begin));
    Ok(&row
        .with_context(|| format!("say in xtask/src/package/readme.rs how `{command}` is shown to work"))?
        .1)
}

/// Runs every command of the README in `root`, by `inside`, which carries out a shell's lines there.
///
/// # Errors
/// One of them did not do what it says.
pub fn carry_out(workspace: &Workspace, root: &Path, inside: impl Fn(&[&str]) -> Command) -> Result<()> {
    let readme = fs::read_to_string(workspace.path("README.md"))?;
    let place = root.join("srv/readme");
    fs::create_dir_all(&place)?;
    // However it ends, its server ends with it, and frees the folder.
    let mut script = String::from(
        "set -e\ntrap 'pg_ctlcluster $(pg_lsclusters -h | cut -d\" \" -f1) main stop' EXIT\n\
         cd /srv/readme\nip link set lo up\n",
    );
    let mut number = 0;
    for command in commands(&readme) {
        match shown(&command)? {
            Shown::Elsewhere(why) => println!("    not here: {command} ({why})"),
            Shown::Here { first, most_s, then } => {
                number += 1;
                // 0 and 1 are answers: it held, or it did not. 124 is our own limit of time.
                script += &format!(
                    "{first}\necho '==> {}'\nbegan=$(date +%s)\ncode=0\ntimeout --signal=INT {most_s} {command} \
                     > {number}.out 2> {number}.err || code=$?\n\
                     echo \"    ended with $code after $(( $(date +%s) - began )) s\"\n\
                     case $code in 0|1|124) ;; *) grep -q '{BUSY}' {number}.err && echo '{SKIPPED}' || {{ tail -n 20 \
                     {number}.out {number}.err; exit 1; }};; esac\n",
                    command.replace('\'', "'\\''"),
                );
                if !then.is_empty() {
                    script += &format!("{{ {then}; }} || {{ tail -n 20 {number}.err; exit 1; }}\n");
                }
            }
        }
    }
    fs::write(place.join("commands.sh"), script)?;
    run(inside(&["sh", "/srv/readme/commands.sh"])).context("the README promises more than the package does")
}

/// Lets the root install packages: names are looked up as the machine does.
pub fn prepare(root: &Path, inside: impl Fn(&[&str]) -> Command) -> Result<()> {
    copy(Path::new("/etc/resolv.conf"), &root.join("etc/resolv.conf"))?;
    run(inside(&["apt-get", "-qq", "update"]))?;
    let install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "/tmp/tipover.deb"];
    run(inside(&[&install[..], NEEDS].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_of_the_readme_is_shown_to_work_or_has_a_reason() {
        let commands = commands(include_str!("../../../README.md"));
        assert!(commands.len() > 12, "{commands:?}");
        for command in &commands {
            assert!(shown(command).is_ok(), "{command}");
            assert!(!command.contains('#'), "{command}");
        }
        for (begin, _) in COMMANDS {
            let of =
                |command: &&String| COMMANDS.iter().find(|(begin, _)| command.starts_with(begin)).unwrap().0;
            assert!(commands.iter().any(|command| of(&command) == *begin), "no command begins with {begin}");
        }
        let here = COMMANDS.iter().filter(|(_, shown)| matches!(shown, Shown::Here { .. })).count();
        assert!(here >= 9, "most of them run");
    }
}
