//! The report at the end, line for line as pgbench prints it.

use super::options::Options;
use super::tally::Counts;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tipover_core::measure::Books;
use tipover_core::workload::script::{Protocol, Scripts};

/// What the report is about besides counts.
pub struct Facts<'a> {
    pub options: &'a Options,
    pub scripts: &'a Arc<Scripts>,
    pub scale: u64,
    /// How `pgbench_accounts` is divided, and into how many parts.
    pub partitions: Option<(&'static str, u64)>,
    /// From the first transaction's begin to the last one's end.
    pub elapsed: Duration,
    /// Until all sessions were connected.
    pub connecting: Duration,
    /// Everything that was sent, for percentiles.
    pub books: &'a Books,
}

/// `7 (3.500%)`.
fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole as f64;
    let percent = if percent.is_nan() { "NaN".to_string() } else { format!("{percent:.3}") };
    format!("{part} ({percent}%)")
}

/// The lines.
pub fn lines(facts: &Facts<'_>, by_script: &[Counts]) -> String {
    let options = facts.options;
    let total = by_script.iter().fold(Counts::default(), |mut sum, counts| {
        sum.merge(counts);
        sum
    });
    let mut text = head(facts, &total);
    failures(options, &total, "", &mut text);
    if total.done() + total.skipped == 0 {
        return text;
    }
    retries(options, &total, "", &mut text);
    let seconds = facts.elapsed.as_secs_f64();
    skips(options, &total, "", &mut text);
    if let Some(limit) = options.latency_limit {
        let limit = limit.as_secs_f64() * 1000.0;
        let late = share(total.late, total.done());
        let late = late.replacen(" (", &format!("/{} (", total.done()), 1);
        line(&mut text, format!("number of transactions above the {limit:.1} ms latency limit: {late}"));
    }
    if options.rate.is_some() || options.progress.is_some() || options.latency_limit.is_some() {
        latency(&total, "", &mut text);
    } else {
        let mean = 1000.0 * seconds * f64::from(options.clients) / total.all() as f64;
        let including = if total.failed() > 0 { " (including failures)" } else { "" };
        line(&mut text, format!("latency average = {mean:.3} ms{including}"));
    }
    if options.rate.is_some() {
        let (mean, most) = (0.001 * total.lag.sum / total.lag.count as f64, 0.001 * total.lag.most);
        line(&mut text, format!("rate limit schedule lag: avg {mean:.3} (max {most:.3}) ms"));
    }
    let tps = total.done() as f64 / seconds;
    let connecting = facts.connecting.as_secs_f64() * 1000.0;
    if options.reconnects {
        let mean = connecting / f64::from(options.clients);
        line(&mut text, format!("average connection time = {mean:.3} ms"));
        line(&mut text, format!("tps = {tps:.6} (including reconnection times)"));
    } else {
        line(&mut text, format!("initial connection time = {connecting:.3} ms"));
        line(&mut text, format!("tps = {tps:.6} (without initial connection time)"));
    }
    scripts(facts, by_script, &total, &mut text);
    if options.percentiles {
        percentiles(facts.books, &mut text);
    }
    text
}

fn line(text: &mut String, line: impl AsRef<str>) {
    text.push_str(line.as_ref());
    text.push('\n');
}

fn head(facts: &Facts<'_>, total: &Counts) -> String {
    let (options, scripts) = (facts.options, facts.scripts.scripts());
    let mut text = String::new();
    let kind = if scripts.len() == 1 { scripts[0].name.as_str() } else { "multiple scripts" };
    line(&mut text, format!("transaction type: {kind}"));
    line(&mut text, format!("scaling factor: {}", facts.scale));
    if let Some((method, count)) = facts.partitions {
        line(&mut text, format!("partition method: {method}\npartitions: {count}"));
    }
    let mode = match options.protocol {
        Protocol::Simple => "simple",
        Protocol::Extended => "extended",
        Protocol::Prepared => "prepared",
    };
    line(&mut text, format!("query mode: {mode}"));
    line(&mut text, format!("number of clients: {}", options.clients));
    line(&mut text, format!("number of threads: {}", options.threads));
    if options.max_tries > 0 {
        line(&mut text, format!("maximum number of tries: {}", options.max_tries));
    }
    let done = total.done();
    match options.duration {
        Some(duration) => {
            line(&mut text, format!("duration: {} s", duration.as_secs()));
            line(&mut text, format!("number of transactions actually processed: {done}"));
        }
        None => {
            let each = options.transactions.unwrap_or(10);
            line(&mut text, format!("number of transactions per client: {each}"));
            let wanted = each * u64::from(options.clients);
            line(&mut text, format!("number of transactions actually processed: {done}/{wanted}"));
        }
    }
    text
}

fn failures(options: &Options, counts: &Counts, indent: &str, text: &mut String) {
    let of = |part| share(part, counts.all());
    line(text, format!("{indent}number of failed transactions: {}", of(counts.failed())));
    if options.failures_detailed {
        line(text, format!("{indent}number of serialization failures: {}", of(counts.serialization)));
        line(text, format!("{indent}number of deadlock failures: {}", of(counts.deadlock)));
    }
}

fn retries(options: &Options, counts: &Counts, indent: &str, text: &mut String) {
    if options.max_tries != 1 {
        line(
            text,
            format!("{indent}number of transactions retried: {}", share(counts.retried, counts.all())),
        );
        line(text, format!("{indent}total number of retries: {}", counts.retries));
    }
}

fn skips(options: &Options, counts: &Counts, indent: &str, text: &mut String) {
    if options.rate.is_some() && options.latency_limit.is_some() {
        line(
            text,
            format!("{indent}number of transactions skipped: {}", share(counts.skipped, counts.all())),
        );
    }
}

fn latency(counts: &Counts, indent: &str, text: &mut String) {
    if counts.done() > 0 {
        line(text, format!("{indent}latency average = {:.3} ms", counts.latency.mean_ms()));
        line(text, format!("{indent}latency stddev = {:.3} ms", counts.latency.deviation_ms()));
    }
}

fn scripts(facts: &Facts<'_>, by_script: &[Counts], total: &Counts, text: &mut String) {
    let (options, all) = (facts.options, facts.scripts.scripts());
    let several = all.len() > 1;
    if !several && !options.per_command {
        return;
    }
    for (number, (script, counts)) in all.iter().zip(by_script).enumerate() {
        if several {
            let targets = 100.0 * script.weight as f64 / facts.scripts.total_weight() as f64;
            line(text, format!("SQL script {}: {}", number + 1, script.name));
            line(text, format!(" - weight: {} (targets {targets:.1}% of total)", script.weight));
            let (done, seconds) = (counts.done(), facts.elapsed.as_secs_f64());
            let percent = 100.0 * done as f64 / total.done() as f64;
            let tps = done as f64 / seconds;
            line(text, format!(" - {done} transactions ({percent:.1}% of total, tps = {tps:.6})"));
            failures(options, counts, " - ", text);
            if counts.all() > 0 {
                retries(options, counts, " - ", text);
                skips(options, counts, " - ", text);
            }
            latency(counts, " - ", text);
        }
        if options.per_command {
            commands(facts, number, several, text);
        }
    }
}

fn commands(facts: &Facts<'_>, script: usize, several: bool, text: &mut String) {
    let retried = facts.options.max_tries != 1;
    let what = if retried { ", failures and retries" } else { " and failures" };
    let indent = if several { " - " } else { "" };
    line(text, format!("{indent}statement latencies in milliseconds{what}:"));
    for (number, command) in facts.scripts.scripts()[script].commands.iter().enumerate() {
        let figures = facts.scripts.figures(script as u32, number).expect("every command has figures");
        let runs = figures.runs.load(Ordering::Relaxed);
        let time = figures.time_ns.load(Ordering::Relaxed) as f64 / 1e6;
        let mean = if runs > 0 { time / runs as f64 } else { 0.0 };
        let (failures, retries) =
            (figures.failures.load(Ordering::Relaxed), figures.retries.load(Ordering::Relaxed));
        let _ = write!(text, "   {mean:11.3}  {failures:10}");
        if retried {
            let _ = write!(text, "  {retries:10}");
        }
        line(text, format!("  {}", command.shown));
    }
}

/// What the averages above hide, of all transactions that were sent, failed ones included.
fn percentiles(books: &Books, text: &mut String) {
    let (residence, service) = (books.residence(), books.service());
    for (name, histogram) in [("latency", &residence), ("latency since it was sent", &service)] {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e6;
        line(
            text,
            format!(
                "{name}: 50% {:.3} ms, 95% {:.3} ms, 99% {:.3} ms, 99.9% {:.3} ms, max {:.3} ms",
                at(0.5),
                at(0.95),
                at(0.99),
                at(0.999),
                histogram.max() as f64 / 1e6
            ),
        );
    }
}
