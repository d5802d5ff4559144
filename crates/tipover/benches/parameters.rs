//! What it costs to draw a parameter of a statement and write it down: scripts that draw many, without a
//! server. The ratio is that of the nanoseconds for one to the 200 that it may take. Without `--bench`, or
//! with `--test`, it runs tiny and checks that all of them were made.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use tipover_core::measure::Threshold;
use tipover_core::workload::script::{Dialect, Quoting, Run, Scripts, Step, Value};

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
    for (name, draw) in DRAWS {
        let mut text = String::new();
        (0..EACH).for_each(|n| text += &format!("\\set v{n} {draw}\n"));
        let names: Vec<String> = (0..EACH).map(|n| format!(":v{n}")).collect();
        text += &format!("select {};\n", names.join(", "));
        let mut scripts = Scripts::new(7, Dialect::Plan);
        scripts.add("bench", text.as_bytes(), 1).expect("the script is right");
        for (name, value) in [("scale", 10), ("default_seed", 5)] {
            scripts.preset(name, Value::Integer(value)).expect("it is a name");
        }
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
