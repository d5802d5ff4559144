//! What it costs to draw a parameter of a statement and write it down: scripts that draw many, without a
//! server. The ratio is that of the nanoseconds for one to the 200 that it may take. Without `--bench`, or
//! with `--test`, it runs tiny and checks that all of them were made.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tipover_core::measure::Threshold;
use tipover_core::workload::script::{Dialect, Quoting, Run, SampleSpec, Scripts, Step, Texts, Value};

/// Nanoseconds that one parameter may take.
const MOST_NS: f64 = 200.0;
/// Parameters of a statement.
const EACH: usize = 50;

const DRAWS: [(&str, &str); 9] = [
    ("uniform", "random(1, 100000 * :scale)"),
    ("gaussian", "random_gaussian(1, 1000000, 2.5)"),
    ("exponential", "random_exponential(1, 1000000, 5)"),
    ("zipfian", "random_zipfian(1, 1000000, 1.1)"),
    ("zipfian below 1", "random_zipf(1, 1000000, 0.8)"),
    ("sysbench's special", "random_special(1, 1000000)"),
    ("hashed", "1 + hash(random(1, 1000000)) % 1000"),
    ("a date", "date(random(18262, 20453))"),
    ("16 digits", "random_digits(4, 4)"),
];

fn main() -> ExitCode {
    let asked = |flag: &str| std::env::args().any(|argument| argument == flag);
    let full = asked("--bench") && !asked("--test");
    let (rounds, operations) = if full { (12, 20_000) } else { (1, 50) };
    let drawn = DRAWS.map(|(name, draw)| (name, drawn(draw))).into_iter();
    for (name, scripts) in drawn.chain([("16 letters alike", alike())]) {
        let mut run = Run::new(Arc::new(scripts), 0);
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let begin = Instant::now();
            (0..operations).for_each(|n| operation(&mut run, n));
            ratios.push(begin.elapsed().as_nanos() as f64 / (operations * EACH as u64) as f64 / MOST_NS);
        }
        match full {
            true => {
                let name = format!("a parameter, {name}: nanoseconds ÷ {MOST_NS:.0}");
                println!("{}", Threshold::AtMost(1.0).judge(&name, &ratios).lines());
            }
            false => println!("{name}: made"),
        }
    }
    ExitCode::SUCCESS
}

/// A statement of parameters that are drawn so.
fn drawn(draw: &str) -> Scripts {
    let sets: String = (0..EACH).map(|n| format!("\\set v{n} {draw}\n")).collect();
    let mut scripts = Scripts::new(7, Dialect::Plan);
    scripts.add("bench", (sets + &statement()).as_bytes(), 1).expect("the script is right");
    for (name, value) in [("scale", 10), ("default_seed", 5)] {
        scripts.preset(name, Value::Integer(value)).expect("it is a name");
    }
    scripts
}

/// The same of texts that are made like those of a sample.
fn alike() -> Scripts {
    let mut scripts = Scripts::new(7, Dialect::Plan);
    scripts.add("bench", statement().as_bytes(), 1).expect("the script is right");
    let line = |value: &dyn Fn(usize) -> String| (0..EACH).map(value).collect::<Vec<_>>().join(",") + "\n";
    let words = ["order", "never", "wagon", "lemon", "stone"];
    let word = |n: usize| words[n % words.len()];
    let rows = (0..100)
        .map(|row| line(&|n| format!("{} {} {}", word(row), word(n + row / 5), &word(row / 25)[1..])));
    let text = Some(line(&|n| format!("v{n}")) + &rows.collect::<String>());
    let (file, prefix, draw) = ("words.csv".into(), String::new(), "random(1, :count)".into());
    let spec = SampleSpec { file, draw, prefix, texts: Texts::Alike, text };
    scripts.add_samples(spec).expect("the rows are right");
    scripts
}

fn statement() -> String {
    let names: Vec<String> = (0..EACH).map(|n| format!(":v{n}")).collect();
    format!("select {};\n", names.join(", "))
}

fn operation(run: &mut Run, number: u64) {
    run.begin(0, number);
    let Ok(Step::Send(command)) = run.step() else { panic!("a statement is sent") };
    let mut out = Vec::with_capacity(1 << 12);
    for parameter in run.statement(command).parameters() {
        run.parameter(parameter).expect("it was drawn").put_constant(Quoting::Standard, &mut out);
        out.push(b',');
    }
    assert!(black_box(&out).iter().filter(|byte| **byte == b',').count() == EACH);
}
