//! pgbench's command line: short options in clusters, long ones by any beginning that tells them apart.

use crate::live::Address;
use std::time::Duration;
use tipover_core::nearest::did_you_mean;
use tipover_core::workload::script::Protocol;

/// What was typed, or stands in a script, cannot be used: exit code 1, as pgbench's.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Mistake(pub String);

/// Where a script comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    BuiltIn(String),
    File(String),
}

/// Where random numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seed {
    Time,
    Given(u64),
}

/// How `pgbench_accounts` is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Range,
    Hash,
}

/// What was typed.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The server's URL, or the name of a database.
    pub database: Option<String>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub user: Option<String>,
    /// The steps of an initialisation, if that is what is wanted.
    pub steps: Option<String>,
    pub scale: Option<u64>,
    pub fill_factor: u32,
    pub foreign_keys: bool,
    pub unlogged: bool,
    pub partitions: u64,
    pub method: Option<Method>,
    pub table_space: Option<String>,
    pub index_space: Option<String>,
    pub quiet: bool,
    pub no_vacuum: bool,
    pub vacuum_all: bool,
    pub scripts: Vec<(Source, u64)>,
    pub clients: u32,
    pub threads: u32,
    pub transactions: Option<u64>,
    pub duration: Option<Duration>,
    pub protocol: Protocol,
    pub reconnects: bool,
    pub defines: Vec<(String, String)>,
    pub rate: Option<f64>,
    pub latency_limit: Option<Duration>,
    pub progress: Option<Duration>,
    pub progress_timestamp: bool,
    pub per_command: bool,
    pub log: bool,
    pub log_prefix: Option<String>,
    pub aggregate: Option<u64>,
    pub sampling: Option<f64>,
    /// 0 is any number.
    pub max_tries: u32,
    pub failures_detailed: bool,
    pub verbose_errors: bool,
    pub exit_on_abort: bool,
    pub seed: Option<Seed>,
    /// Ours: percentiles and what else an average hides.
    pub percentiles: bool,
    /// Ours: where the run can be followed.
    pub live: Option<Address>,
    /// Lists or shows built-in scripts, and does nothing else.
    pub lists: bool,
    pub shows: Option<String>,
    // Which of them were typed that have no meaning for the other mode.
    benchmarks: bool,
    initializes: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            database: None,
            host: None,
            port: None,
            user: None,
            steps: None,
            scale: None,
            fill_factor: 100,
            foreign_keys: false,
            unlogged: false,
            partitions: 0,
            method: None,
            table_space: None,
            index_space: None,
            quiet: false,
            no_vacuum: false,
            vacuum_all: false,
            scripts: Vec::new(),
            clients: 1,
            threads: 1,
            transactions: None,
            duration: None,
            protocol: Protocol::Simple,
            reconnects: false,
            defines: Vec::new(),
            rate: None,
            latency_limit: None,
            progress: None,
            progress_timestamp: false,
            per_command: false,
            log: false,
            log_prefix: None,
            aggregate: None,
            sampling: None,
            max_tries: 1,
            failures_detailed: false,
            verbose_errors: false,
            exit_on_abort: false,
            seed: None,
            percentiles: false,
            live: None,
            lists: false,
            shows: None,
            benchmarks: false,
            initializes: false,
        }
    }
}

/// Which mode an option belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Initialize,
    Benchmark,
    Both,
}

use Mode::{Benchmark, Both, Initialize};

/// The one option whose value may be left out; ours too.
const LIVE: &str = "live";

/// An option: its letter (or `-` without one), its name, whether it takes a value, where it belongs.
type Known = (char, &'static str, bool, Mode);

const KNOWN: &[Known] = &[
    ('i', "initialize", false, Both),
    ('I', "init-steps", true, Initialize),
    ('F', "fillfactor", true, Initialize),
    ('n', "no-vacuum", false, Both),
    ('q', "quiet", false, Initialize),
    ('s', "scale", true, Both),
    ('-', "foreign-keys", false, Initialize),
    ('-', "index-tablespace", true, Initialize),
    ('-', "partition-method", true, Initialize),
    ('-', "partitions", true, Initialize),
    ('-', "tablespace", true, Initialize),
    ('-', "unlogged-tables", false, Initialize),
    ('b', "builtin", true, Benchmark),
    ('f', "file", true, Benchmark),
    ('N', "skip-some-updates", false, Benchmark),
    ('S', "select-only", false, Benchmark),
    ('c', "client", true, Benchmark),
    ('C', "connect", false, Benchmark),
    ('D', "define", true, Benchmark),
    ('j', "jobs", true, Benchmark),
    ('l', "log", false, Benchmark),
    ('L', "latency-limit", true, Benchmark),
    ('M', "protocol", true, Benchmark),
    ('P', "progress", true, Benchmark),
    ('r', "report-per-command", false, Benchmark),
    ('R', "rate", true, Benchmark),
    ('t', "transactions", true, Benchmark),
    ('T', "time", true, Benchmark),
    ('v', "vacuum-all", false, Benchmark),
    ('-', "aggregate-interval", true, Benchmark),
    ('-', "failures-detailed", false, Benchmark),
    ('-', "log-prefix", true, Benchmark),
    ('-', "max-tries", true, Benchmark),
    ('-', "progress-timestamp", false, Benchmark),
    ('-', "random-seed", true, Both),
    ('-', "sampling-rate", true, Benchmark),
    ('-', "show-script", true, Both),
    ('-', "verbose-errors", false, Benchmark),
    ('-', "exit-on-abort", false, Benchmark),
    ('-', "percentiles", false, Benchmark),
    ('-', LIVE, false, Benchmark),
    ('d', "debug", false, Both),
    ('h', "host", true, Both),
    ('p', "port", true, Both),
    ('U', "username", true, Both),
];

fn bad<T>(words: impl Into<String>) -> Result<T, Mistake> {
    Err(Mistake(words.into()))
}

fn number(name: &str, text: &str) -> Result<u64, Mistake> {
    match text.trim().parse::<i64>() {
        Ok(value) if (1..=i64::from(i32::MAX)).contains(&value) => Ok(value as u64),
        Ok(_) => bad(format!("--{name} must be in range 1..2147483647, and {text} is not")),
        Err(_) => {
            bad(format!("invalid value \"{text}\" for option --{name}: an integer from 1 on is wanted"))
        }
    }
}

fn positive(what: &str, text: &str) -> Result<f64, Mistake> {
    match text.trim().parse::<f64>() {
        Ok(value) if value > 0.0 && value.is_finite() => Ok(value),
        _ => bad(format!("invalid {what}: \"{text}\"; a number above 0 is wanted")),
    }
}

/// `name@weight`, of which the weight may be left out.
fn weighted(text: &str) -> Result<(&str, u64), Mistake> {
    match text.rsplit_once('@') {
        None => Ok((text, 1)),
        Some(("", _)) => bad(format!("empty file name in \"{text}\"")),
        Some((name, weight)) => match weight.parse::<u64>() {
            Ok(weight) if weight <= i32::MAX as u64 => Ok((name, weight)),
            _ => bad(format!("invalid weight specification: @{weight}; an integer from 0 on is wanted")),
        },
    }
}

impl Options {
    /// Reads a command line.
    ///
    /// # Errors
    /// The first mistake, with the nearest right word.
    pub fn parse(line: &[String]) -> Result<Options, Mistake> {
        let mut options = Options::default();
        let mut rest = line.iter();
        let mut only_names = false;
        while let Some(word) = rest.next() {
            if only_names || !word.starts_with('-') || word == "-" {
                if let Some(first) = &options.database {
                    return bad(format!(
                        "too many command-line arguments: \"{word}\" stands behind \"{first}\""
                    ));
                }
                options.database = Some(word.clone());
            } else if word == "--" {
                only_names = true;
            } else if let Some(long) = word.strip_prefix("--") {
                let (name, attached) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (long, None),
                };
                let known = find(name)?;
                let value = match (known.2, attached) {
                    (false, Some(address)) if known.1 == LIVE => address,
                    (false, Some(_)) => return bad(format!("option --{} takes no value", known.1)),
                    (false, None) => "",
                    (true, Some(value)) => value,
                    (true, None) => match rest.next() {
                        Some(value) => value,
                        None => return bad(format!("option --{} needs a value", known.1)),
                    },
                };
                options.take(known, value)?;
            } else {
                options.cluster(&word[1..], &mut rest)?;
            }
        }
        options.check()?;
        Ok(options)
    }

    /// `-Sc8`: letters without values, and at the end one with.
    fn cluster<'a>(
        &mut self,
        letters: &'a str,
        rest: &mut std::slice::Iter<'a, String>,
    ) -> Result<(), Mistake> {
        for (at, letter) in letters.char_indices() {
            let Some(known) = KNOWN.iter().find(|known| known.0 == letter && letter != '-') else {
                return bad(format!(
                    "invalid option -- '{letter}'; `tipover pgbench --help` says which there are"
                ));
            };
            if !known.2 {
                self.take(known, "")?;
                continue;
            }
            let attached = &letters[at + letter.len_utf8()..];
            let value = match attached.is_empty() {
                false => attached,
                true => match rest.next() {
                    Some(value) => value,
                    None => return bad(format!("option requires an argument -- '{letter}'")),
                },
            };
            return self.take(known, value);
        }
        Ok(())
    }

    fn take(&mut self, known: &Known, value: &str) -> Result<(), Mistake> {
        match known.3 {
            Initialize => self.initializes = true,
            Benchmark => self.benchmarks = true,
            Both => {}
        }
        let name = known.1;
        let text = || Some(value.to_string());
        match name {
            "initialize" => drop(self.steps.get_or_insert_with(|| "dtgvp".into())),
            "init-steps" => self.steps = Some(steps(value)?),
            LIVE => {
                let address = if value.is_empty() { Address::DEFAULT } else { value };
                self.live = Some(address.parse().or_else(|error| bad(format!("--live: {error}")))?);
            }
            "fillfactor" => match value.parse() {
                Ok(percent @ 10..=100) => self.fill_factor = percent,
                _ => return bad(format!("-F/--fillfactor must be in range 10..100, and {value} is not")),
            },
            "no-vacuum" => self.no_vacuum = true,
            "quiet" => self.quiet = true,
            "scale" => self.scale = Some(number(name, value)?),
            "foreign-keys" => self.foreign_keys = true,
            "index-tablespace" => self.index_space = text(),
            "tablespace" => self.table_space = text(),
            "partition-method" => {
                self.method = Some(match value.to_ascii_lowercase().as_str() {
                    "range" => Method::Range,
                    "hash" => Method::Hash,
                    _ => {
                        return bad(format!(
                            "invalid partition method, expecting \"range\" or \"hash\", got: \"{value}\""
                        ));
                    }
                });
            }
            "partitions" => self.partitions = number(name, value)?,
            "unlogged-tables" => self.unlogged = true,
            "debug" => {}
            "host" => self.host = text(),
            "port" => match value.parse() {
                Ok(port) => self.port = Some(port),
                Err(_) => return bad(format!("invalid port number: \"{value}\"")),
            },
            "username" => self.user = text(),
            "random-seed" => self.seed = Some(seed(value)?),
            "show-script" => self.shows = text(),
            _ => return self.take_for_benchmark(name, value),
        }
        Ok(())
    }

    fn take_for_benchmark(&mut self, name: &str, value: &str) -> Result<(), Mistake> {
        match name {
            "builtin" if value == "list" => self.lists = true,
            "builtin" => {
                let (script, weight) = weighted(value)?;
                self.scripts.push((Source::BuiltIn(script.into()), weight));
            }
            "file" => {
                let (file, weight) = weighted(value)?;
                self.scripts.push((Source::File(file.into()), weight));
            }
            "skip-some-updates" => self.scripts.push((Source::BuiltIn("simple-update".into()), 1)),
            "select-only" => self.scripts.push((Source::BuiltIn("select-only".into()), 1)),
            "client" => self.clients = number(name, value)? as u32,
            "connect" => self.reconnects = true,
            "define" => match value.split_once('=') {
                Some((name, value)) if !name.is_empty() => self.defines.push((name.into(), value.into())),
                _ => return bad(format!("invalid variable definition: \"{value}\"; NAME=VALUE is wanted")),
            },
            "jobs" => self.threads = number(name, value)? as u32,
            "log" => self.log = true,
            "latency-limit" => {
                self.latency_limit =
                    Some(Duration::from_secs_f64(positive("latency limit", value)? / 1000.0));
            }
            "protocol" => {
                self.protocol = match value {
                    "simple" => Protocol::Simple,
                    "extended" => Protocol::Extended,
                    "prepared" => Protocol::Prepared,
                    _ => {
                        let near = did_you_mean(value, ["simple", "extended", "prepared"]);
                        return bad(format!("invalid query mode (-M): \"{value}\"{near}"));
                    }
                }
            }
            "progress" => self.progress = Some(Duration::from_secs(number(name, value)?)),
            "report-per-command" => self.per_command = true,
            "rate" => self.rate = Some(positive("rate limit", value)?),
            "transactions" => self.transactions = Some(number(name, value)?),
            "time" => self.duration = Some(Duration::from_secs(number(name, value)?)),
            "vacuum-all" => self.vacuum_all = true,
            "aggregate-interval" => self.aggregate = Some(number(name, value)?),
            "failures-detailed" => self.failures_detailed = true,
            "log-prefix" => self.log_prefix = Some(value.into()),
            "max-tries" => match value.parse() {
                Ok(tries) => self.max_tries = tries,
                Err(_) => return bad(format!("invalid number of maximum tries: \"{value}\"")),
            },
            "progress-timestamp" => self.progress_timestamp = true,
            "sampling-rate" => match positive("sampling rate", value)? {
                share if share <= 1.0 => self.sampling = Some(share),
                _ => return bad(format!("invalid sampling rate: \"{value}\"; it is at most 1")),
            },
            "verbose-errors" => self.verbose_errors = true,
            "exit-on-abort" => self.exit_on_abort = true,
            "percentiles" => self.percentiles = true,
            other => unreachable!("an option without a meaning: {other}"),
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Mistake> {
        if self.steps.is_some() {
            if self.benchmarks {
                return bad("some of the specified options cannot be used in initialization (-i) mode");
            }
            if self.partitions == 0 && self.method.is_some() {
                return bad("--partition-method requires greater than zero --partitions");
            }
            return Ok(());
        }
        if self.initializes {
            return bad("some of the specified options cannot be used in benchmarking mode");
        }
        if self.transactions.is_some() && self.duration.is_some() {
            return bad("specify either a number of transactions (-t) or a duration (-T), not both");
        }
        if !self.log {
            let needs = [
                (
                    self.log_prefix.is_some(),
                    "log file prefix (--log-prefix) is allowed only when logging transactions (-l)",
                ),
                (
                    self.sampling.is_some(),
                    "log sampling (--sampling-rate) is allowed only when logging transactions (-l)",
                ),
                (
                    self.aggregate.is_some(),
                    "log aggregation is allowed only when actually logging transactions (-l)",
                ),
            ];
            if let Some((_, words)) = needs.into_iter().find(|(given, _)| *given) {
                return bad(words);
            }
        }
        if self.sampling.is_some() && self.aggregate.is_some() {
            return bad(
                "log sampling (--sampling-rate) and aggregation (--aggregate-interval) cannot be used at the same time",
            );
        }
        if let (Some(every), Some(duration)) = (self.aggregate, self.duration)
            && (every > duration.as_secs() || duration.as_secs() % every != 0)
        {
            return bad(format!(
                "duration ({}) must be a multiple of aggregation interval ({every})",
                duration.as_secs()
            ));
        }
        if self.progress_timestamp && self.progress.is_none() {
            return bad("--progress-timestamp is allowed only under --progress");
        }
        if self.max_tries == 0 && self.latency_limit.is_none() && self.duration.is_none() {
            return bad(
                "an unlimited number of transaction tries can only be used with --latency-limit or a duration (-T)",
            );
        }
        if self.scripts.is_empty() {
            self.scripts.push((Source::BuiltIn("tpcb-like".into()), 1));
        }
        self.threads = self.threads.min(self.clients);
        Ok(())
    }
}

/// The option that `name` is, or begins.
fn find(name: &str) -> Result<&'static Known, Mistake> {
    if let Some(known) = KNOWN.iter().find(|known| known.1 == name) {
        return Ok(known);
    }
    let found: Vec<&Known> = KNOWN.iter().filter(|known| known.1.starts_with(name)).collect();
    match found.as_slice() {
        [one] => Ok(one),
        [] => {
            let near = did_you_mean(name, KNOWN.iter().map(|known| known.1));
            bad(format!("unrecognized option '--{name}'{near}"))
        }
        many => {
            let names: Vec<String> = many.iter().map(|known| format!("--{}", known.1)).collect();
            bad(format!("option '--{name}' is ambiguous: {}", names.join(", ")))
        }
    }
}

fn steps(text: &str) -> Result<String, Mistake> {
    const STEPS: &str = "dtgGvpf";
    match text.chars().find(|step| !STEPS.contains(*step) && *step != ' ') {
        Some(step) => bad(format!("unrecognized initialization step \"{step}\"; allowed are \"{STEPS}\"")),
        None if text.trim().is_empty() => bad("no initialization steps specified"),
        None => Ok(text.to_string()),
    }
}

/// What `--random-seed` and `PGBENCH_RANDOM_SEED` say.
pub fn seed(text: &str) -> Result<Seed, Mistake> {
    match text {
        "time" | "rand" => Ok(Seed::Time),
        number => match number.parse() {
            Ok(number) => Ok(Seed::Given(number)),
            Err(_) => bad(format!(
                "unrecognized random seed option \"{text}\"; expecting an unsigned integer, \"time\" or \"rand\""
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Mistake> {
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        Options::parse(&words)
    }

    #[test]
    fn lines_are_read_as_getopt_reads_them() {
        let options =
            parse("-nSc8 -j 2 --time=5 -Mprepared bank -D a=1 --def b=x=y -f my@file@3 -L 2.5").unwrap();
        assert_eq!((options.clients, options.threads, options.no_vacuum), (8, 2, true));
        assert_eq!(options.duration, Some(Duration::from_secs(5)));
        assert_eq!(options.database.as_deref(), Some("bank"));
        assert_eq!(options.protocol, Protocol::Prepared);
        assert_eq!(options.defines, [("a".into(), "1".into()), ("b".into(), "x=y".into())]);
        assert_eq!(options.scripts[0], (Source::BuiltIn("select-only".into()), 1));
        assert_eq!(options.scripts[1], (Source::File("my@file".into()), 3));
        assert_eq!(options.latency_limit, Some(Duration::from_micros(2500)));
        let options = parse("-i -s 10 --foreign-keys postgres://me@here/bank").unwrap();
        assert_eq!((options.steps.as_deref(), options.scale), (Some("dtgvp"), Some(10)));
        assert_eq!(parse("-j 9").unwrap().threads, 1, "no more than clients");
    }

    #[test]
    fn mistakes_are_pgbenchs() {
        for (line, said) in [
            ("-c 0", "must be in range 1..2147483647"),
            ("-t x", "invalid value \"x\""),
            ("-T 1 -t 1", "specify either a number of transactions (-t) or a duration (-T), not both"),
            ("-M foo", "invalid query mode (-M): \"foo\""),
            ("-M prepard", "did you mean \"prepared\"?"),
            ("-R 0", "invalid rate limit: \"0\""),
            ("-L 0", "invalid latency limit: \"0\""),
            ("-D x", "invalid variable definition: \"x\""),
            ("-b t@x", "invalid weight specification: @x"),
            ("--aggregate-interval 1", "log aggregation is allowed only when actually logging"),
            ("--sampling-rate=2 -l", "invalid sampling rate: \"2\""),
            ("--sampling-rate 0.5", "is allowed only when logging transactions"),
            ("-l --aggregate-interval=1 --sampling-rate=0.5", "cannot be used at the same time"),
            ("-l --aggregate-interval=3 -T 10", "must be a multiple of aggregation interval"),
            ("--max-tries=0", "an unlimited number of transaction tries"),
            ("--random-seed=foo", "unrecognized random seed option \"foo\""),
            ("-i -I xyz", "unrecognized initialization step \"x\""),
            ("-i -I ", "option requires an argument -- 'I'"),
            ("-i -t 5", "cannot be used in initialization (-i) mode"),
            ("-F 50", "cannot be used in benchmarking mode"),
            ("-i --partition-method=hash", "requires greater than zero --partitions"),
            ("--log-prefix=x", "is allowed only when logging transactions"),
            ("--foo", "unrecognized option '--foo'"),
            ("--tim 5 --trans", "option --transactions needs a value"),
            ("--partition 5", "is ambiguous: --partition-method, --partitions"),
            ("-x", "invalid option -- 'x'"),
            ("a b", "too many command-line arguments"),
            ("--progress-timestamp", "is allowed only under --progress"),
        ] {
            let error = parse(line).expect_err(line).to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
