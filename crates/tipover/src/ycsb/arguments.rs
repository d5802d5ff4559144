//! YCSB's command line, and go-ycsb's: single dashes before long names, values behind a blank or `=`.

use super::Mistake;
use anyhow::{Context, Result};
use tipover_core::experiment::{redact, unknown};
use tipover_core::workload::Properties;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Phase {
    /// Insert the records
    Load,
    /// Carry out the operations
    Run,
}

/// What was typed behind the target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arguments {
    /// Files and `-p`, in the order in which they count: `-p` beats every file.
    pub properties: Properties,
    /// What had no effect, in sentences.
    pub notices: Vec<String>,
}

const NAMES: [&str; 11] =
    ["P", "p", "threads", "target", "s", "l", "load", "t", "interval", "label", "table"];

impl Arguments {
    /// Reads options; `read` gives the text of a file.
    ///
    /// # Errors
    /// An unknown option, with the nearest; a value that is missing; a file that cannot be read.
    pub fn parse(options: &[String], read: impl Fn(&str) -> Result<String>) -> Result<Arguments> {
        let mut arguments = Arguments::default();
        let mut overrides: Vec<(String, String)> = Vec::new();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let Some(name) = option.strip_prefix("--").or_else(|| option.strip_prefix('-')) else {
                return bad(format!("`{option}` is no option; YCSB's begin with a dash, as `-threads 16`"));
            };
            let (name, attached) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (name, None),
            };
            let mut value = || match attached.clone().or_else(|| options.next().cloned()) {
                Some(value) => Ok(value),
                None => bad(format!("-{name} needs a value")),
            };
            match name {
                "P" | "property_file" => {
                    let path = value()?;
                    let text = read(&path).with_context(|| path.clone());
                    let text = text.map_err(|error| Mistake(format!("{error:#}")))?;
                    arguments.properties.read(&text, &path);
                }
                "p" | "prop" => {
                    let pair = value()?;
                    match pair.split_once('=') {
                        Some((name, value)) => overrides.push((name.into(), value.into())),
                        None => return bad(format!("`-p {}` is not name=value", redact(&pair))),
                    }
                }
                "threads" => overrides.push(("threadcount".into(), value()?)),
                "target" => overrides.push(("target".into(), value()?)),
                "interval" => overrides.push(("status.interval".into(), value()?)),
                "table" => overrides.push(("table".into(), value()?)),
                "l" | "label" => overrides.push(("label".into(), value()?)),
                "s" => overrides.push(("status".into(), "true".into())),
                // What the verb says already.
                "load" | "t" => {}
                "db" | "cp" | "jvm-args" => {
                    let value = value()?;
                    arguments.notices.push(format!("-{name} {value} has no effect: there is no Java here"));
                }
                other => return bad(unknown("option", other, &NAMES)),
            }
        }
        for (name, value) in overrides {
            arguments.properties.set(&name, &value, "the command line");
        }
        Ok(arguments)
    }
}

fn bad<T>(text: String) -> Result<T> {
    Err(Mistake(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        let options: Vec<String> = line.split_whitespace().map(String::from).collect();
        Arguments::parse(&options, |path| match path {
            "workloads/a" => Ok("recordcount=1000\nthreadcount=3\n".into()),
            "mine" => Ok("recordcount = 7\n".into()),
            other => anyhow::bail!("no {other}"),
        })
    }

    #[test]
    fn ycsbs_lines_and_go_ycsbs_are_understood() {
        let ycsb =
            parse("-P workloads/a -P mine -p recordcount=9 -threads 16 -target 500 -s -l mine -cp x.jar");
        let ycsb = ycsb.unwrap();
        for (name, value) in [
            ("recordcount", "9"),
            ("threadcount", "16"),
            ("target", "500"),
            ("status", "true"),
            ("label", "mine"),
        ] {
            assert_eq!(ycsb.properties.get(name), Some(value), "{name}");
        }
        assert_eq!(ycsb.notices.len(), 1);
        let early = parse("-p recordcount=9 -P workloads/a").unwrap();
        assert_eq!(early.properties.get("recordcount"), Some("9"), "-p beats -P wherever it stands");
        let go =
            parse("--property_file=mine --prop threadcount=4 --threads=8 --interval 1 --table t").unwrap();
        assert_eq!(go.properties.get("threadcount"), Some("8"));
        assert_eq!(go.properties.get("status.interval"), Some("1"));
        assert_eq!(go.properties.get("table"), Some("t"));
    }

    #[test]
    fn mistakes_are_answered() {
        for (line, answer) in [
            ("-thread 5", "did you mean `threads`?"),
            ("-P", "-P needs a value"),
            ("-P nowhere", "nowhere: no nowhere"),
            ("-p recordcount", "is not name=value"),
            ("-p db.passwd:secret", "is not name=value"),
            ("16", "is no option"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.is::<Mistake>() && error.to_string().contains(answer), "{line}: {error:#}");
        }
    }
}
