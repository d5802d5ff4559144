//! `tipover pgbench` beside pgbench itself, on the same server in the same run: the same scripts, options and
//! mistakes, compared line by line.

mod program;

use program::{Place, skipped};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tipover_lab::recipe::{Postgres, Server, ServerOptions};

/// A server, and the pgbench that came with it.
struct Peers {
    place: Place,
    server: Server,
    pgbench: PathBuf,
}

/// How a program ended.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Peers {
    fn start() -> Option<Peers> {
        let with_pgbench = Postgres::all().into_iter().find(|found| found.programs.join("pgbench").exists());
        let Some(found) = with_pgbench else {
            skipped("no PostgreSQL with its pgbench is installed: apt-get install postgresql");
            return None;
        };
        let server = found.start(&ServerOptions::default()).expect("a throw-away server starts");
        Some(Peers { place: Place::new(), server, pgbench: found.programs.join("pgbench") })
    }

    fn theirs(&self, arguments: &[&str]) -> Said {
        let address = self.server.address();
        let mut command = Command::new(&self.pgbench);
        command.args(arguments).current_dir(self.place.here()).stdin(Stdio::null());
        command.env("PGHOST", address.ip().to_string()).env("PGPORT", address.port().to_string());
        command.env("PGUSER", "tipover").env("PGPASSWORD", self.server.password());
        let output = command.env("PGDATABASE", "tipover").output().expect("it was found");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said {
            code: output.status.code().expect("it ends by itself"),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    fn ours(&self, arguments: &[&str]) -> Said {
        let url = self.server.url();
        let all = [&["pgbench"], arguments, &[url.as_str()]].concat();
        let ended = self.place.run(&all);
        Said { code: ended.code.expect("it ends by itself"), out: ended.stdout, err: ended.stderr }
    }

    /// Runs both, which must end with the same code.
    fn both(&self, arguments: &[&str]) -> (Said, Said) {
        let (theirs, ours) = (self.theirs(arguments), self.ours(arguments));
        assert_eq!(theirs.code, ours.code, "{arguments:?}\n{}\n{}\n{}", theirs.err, ours.err, ours.out);
        (theirs, ours)
    }

    /// Runs a script once with both, which must end with the same code.
    fn script(&self, text: &str, arguments: &[&str]) -> (Said, Said) {
        self.place.write("s.sql", text);
        self.both(&[&["-n", "-t", "1", "-f", "s.sql"], arguments].concat())
    }
}

/// Lines of `debug`, in their order.
fn debugged(said: &Said) -> Vec<&str> {
    said.err.lines().filter(|line| line.starts_with("debug(")).collect()
}

/// A report without its figures: what a line says, `#` for every number. The two programs' names differ.
fn shape(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("pgbench (")) {
        let mut shape = String::new();
        let mut in_number = false;
        for c in line.chars() {
            let is_number = c.is_ascii_digit() || (in_number && c == '.');
            if is_number && !in_number {
                shape.push('#');
            }
            if !is_number {
                shape.push(c);
            }
            in_number = is_number;
        }
        // Numbers are set flush right: how many blanks stand before one depends on it.
        lines.push(shape.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "));
    }
    lines
}

/// Writes expressions of every kind, from a seed; many are mistakes, and both must find them so.
struct Writer(u64);

impl Writer {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    fn leaf(&mut self) -> String {
        self.one_of(&[
            "0",
            "1",
            "2",
            "3",
            "7",
            "-1",
            "10",
            "255",
            "1000003",
            "9223372036854775807",
            "(-9223372036854775808)",
            "0.5",
            "1.5",
            "2.5",
            "-3.25",
            "1e10",
            ".25",
            "1e-7",
            "1e300",
            "null",
            "true",
            "false",
            ":five",
            ":dbl",
            ":yes",
            ":nul",
            ":scale",
        ])
        .to_string()
    }

    fn expression(&mut self, depth: u64) -> String {
        if depth == 0 || self.below(8) == 0 {
            return self.leaf();
        }
        let inner = depth - 1;
        match self.below(12) {
            0..=4 => {
                let operator = self.one_of(&[
                    "+", "-", "*", "/", "%", "|", "&", "#", "<<", ">>", "=", "<>", "!=", "<", "<=", ">",
                    ">=", "and", "or", "+", "-", "*",
                ]);
                let (left, right) = (self.expression(inner), self.expression(inner));
                // Without parentheses too: precedence is part of the language.
                match self.below(3) {
                    0 => format!("{left} {operator} {right}"),
                    1 => format!("({left}) {operator} {right}"),
                    _ => format!("({left} {operator} {right})"),
                }
            }
            5 => {
                let prefix = self.one_of(&["- ", "+ ", "~ ", "not "]);
                format!("{prefix}{}", self.expression(inner))
            }
            6 => {
                let suffix =
                    self.one_of(&["is null", "is not null", "is true", "is not false", "isnull", "notnull"]);
                format!("{} {suffix}", self.expression(inner))
            }
            7 | 8 => {
                let name = self.one_of(&["int", "double", "sqrt", "ln", "exp", "hash", "hash_fnv1a"]);
                let seed = if name.starts_with("hash") { ", 42" } else { "" };
                format!("{name}({}{seed})", self.expression(inner))
            }
            9 => {
                let name = self.one_of(&["greatest", "least", "mod", "pow", "power", "hash_murmur2"]);
                format!("{name}({}, {})", self.expression(inner), self.expression(inner))
            }
            10 => {
                let (when, then) = (self.expression(inner), self.expression(inner));
                let other = self.expression(inner);
                match self.below(2) {
                    0 => format!("case when {when} then {then} else {other} end"),
                    _ => format!("case when {when} then {then} when {other} then 5 end"),
                }
            }
            // There `abs` takes the bytes of a truth value for a number's.
            _ => format!("abs({}) - ({})", self.one_of(&["-2", "7", "-1.5", ":dbl"]), self.expression(inner)),
        }
    }
}

fn expressions(count: usize) -> Vec<String> {
    let mut writer = Writer(20_261_122);
    (0..count).map(|_| writer.expression(3)).collect()
}

#[test]
fn expressions_have_the_same_values() {
    const COUNT: usize = 700;
    let Some(peers) = Peers::start() else { return };
    let defines = ["-D", "five=5", "-D", "dbl=2.5", "-D", "yes=yes", "-D", "nul=null"];
    let mut pending: Vec<Vec<String>> = expressions(COUNT).chunks(10).map(<[String]>::to_vec).collect();
    let (mut values, mut mistakes) = (0, 0);
    // A mistake ends a script: then its halves are tried, down to the one that is wrong.
    while let Some(batch) = pending.pop() {
        let text: String = batch.iter().map(|e| format!("\\set x debug({e})\n")).collect();
        peers.place.write("s.sql", &text);
        let line = [&["-n", "-t", "1", "-f", "s.sql"], defines.as_slice()].concat();
        let theirs = peers.theirs(&line);
        if theirs.code != 0 && batch.len() > 1 {
            let (left, right) = batch.split_at(batch.len() / 2);
            pending.extend([left.to_vec(), right.to_vec()]);
            continue;
        }
        let ours = peers.ours(&line);
        assert_eq!(theirs.code, ours.code, "{batch:?}\n{}\n{}", theirs.err, ours.err);
        let (their_values, our_values) = (debugged(&theirs), debugged(&ours));
        for (at, (theirs, ours)) in their_values.iter().zip(&our_values).enumerate() {
            assert!(same(theirs, ours), "{}: {theirs}, and not {ours}", batch[at]);
        }
        if theirs.code == 0 {
            assert_eq!(their_values.len(), batch.len());
            assert_eq!(our_values.len(), batch.len(), "{}", ours.err);
            values += batch.len();
            continue;
        }
        mistakes += 1;
        // At run time the reason is in the same words. Of two in one comparison there the right one comes
        // first: `a > b` is computed as `b < a`.
        if theirs.code == 2 && !batch[0].contains('>') {
            let reason = theirs.err.lines().next().unwrap().trim_start_matches("pgbench: error: ");
            assert!(ours.err.contains(reason), "{batch:?}: {reason}, and not {}", ours.err);
        }
    }
    println!("{values} values and {mistakes} mistakes are the same");
    assert!(values > COUNT / 3 && mistakes > COUNT / 20, "{values} values, {mistakes} mistakes");
}

/// Whether two lines of `debug` say the same. Functions of C's library and of ours may differ in the last of
/// 15 digits.
fn same(theirs: &str, ours: &str) -> bool {
    let double = |line: &str| line.split_once(": double ").and_then(|(_, value)| value.parse::<f64>().ok());
    match (double(theirs), double(ours)) {
        (Some(theirs), Some(ours)) if theirs.is_finite() && ours.is_finite() => {
            (theirs - ours).abs() <= 2e-14 * theirs.abs()
        }
        _ => theirs == ours,
    }
}

#[test]
fn scripts_do_the_same() {
    let Some(peers) = Peers::start() else { return };
    let extended: &[&str] = &["-M", "extended"];
    let prepared: &[&str] = &["-M", "prepared"];
    let all: &[&[&str]] = &[&[], extended, prepared];
    let pipelines: &[&[&str]] = &[extended, prepared];
    let simple: &[&[&str]] = &[&[]];
    let cases: &[(&str, &[&[&str]])] = &[
        ("select 1 as a \\gset p_\n\\set x debug(:p_a + 1)\n", all),
        ("select 1 as b \\; select 2 as c \\aset\n\\set x debug(:b + :c)\n", simple),
        ("select 1 where false \\gset\n", all),
        ("select 1 as a union select 2 \\gset\n", all),
        ("select 1 as a where false \\aset\n\\set x debug(:a)\n", all),
        ("select 3 as a union select 3 union select 3 \\aset\n\\set x debug(:a)\n", all),
        ("select 2 as \"a b\" \\gset\n", all),
        ("select 'text' as a \\gset\nselect length(:'a');\n", simple),
        ("select true as a, 2.5 as b \\gset\n\\set x debug(:a)\n\\set x debug(:b * 2)\n", all),
        (
            "\\if false\n\\set x debug(1)\n\\elif 2\n\\set x debug(2)\n\\else\n\\set x debug(4)\n\\endif\n",
            all,
        ),
        ("\\if null\n\\set x debug(1)\n\\else\n\\if 1\n\\set x debug(2)\n\\endif\n\\endif\n", all),
        ("\\set y 5\n\\sleep 1 ms\n\\sleep :y us\n\\set x debug(:y)\n", all),
        ("\\sleep :nope\n", all),
        ("select :x;\n", simple),
        ("select :x;\n", pipelines),
        ("select ':y', 1::int, (array[1, 2])[1:2];\n", simple),
        ("selectt 1;\n", all),
        ("select 1/0;\nselect 2;\n", all),
        ("begin;\nselect 1;\n", all),
        ("begin;\nselect 1;\nend;\n", all),
        ("\\set i debug(:client_id)\n\\set j debug(:scale)\n", all),
        ("\\startpipeline\nselect 1;\nselect 2;\n\\endpipeline\n\\set x debug(3)\n", pipelines),
        ("\\startpipeline\nselect 1;\n\\endpipeline\n", simple),
        ("\\startpipeline\nselect 1;\n", pipelines),
        ("\\startpipeline\n\\startpipeline\n", pipelines),
        ("\\endpipeline\n", pipelines),
        ("\\startpipeline\nselect 1/0;\nselect 2;\n\\endpipeline\n", pipelines),
        ("\\startpipeline\nselect 1 as a \\gset\n\\endpipeline\n", pipelines),
        ("copy (select 1) to stdout;\n", simple),
        ("create temp table t(a int);\nselect 1;\ninsert into t values (1);\ndrop table t;\n", simple),
        ("do $$ begin perform 1; end $$;\n", all),
        ("", all),
        ("\\set x 1 +\n", all),
        ("\\if 1\n", all),
        ("\\else\n", all),
        ("\\foo\n", all),
        ("\\gset\n", all),
        ("\\sleep 1 foo\n", all),
        ("\\set x abs(1, 2)\n", all),
        ("\\set x random(1, 0)\n", all),
        ("\\set x random_gaussian(1, 10, 1.0)\n", all),
        ("\\set x random_zipfian(1, 10, 1.0)\n", all),
        ("\\set x random_exponential(1, 10, 0.0)\n", all),
        ("\\set x permute(1, 0)\n", all),
    ];
    for (text, modes) in cases {
        for mode in *modes {
            // What pgbench says of a copy to the client differs by version.
            let (theirs, ours) = match text.starts_with("copy") {
                true => {
                    peers.place.write("s.sql", text);
                    let line = [&["-n", "-t", "1", "-f", "s.sql"], *mode].concat();
                    let ours = peers.ours(&line);
                    assert_eq!(ours.code, 0, "{}", ours.err);
                    continue;
                }
                false => peers.script(text, mode),
            };
            assert_eq!(debugged(&theirs), debugged(&ours), "{text} {mode:?}\n{}\n{}", theirs.err, ours.err);
            // There a transaction that was never completed counts.
            if theirs.code != 1 && !theirs.err.contains("end of script reached") {
                assert_eq!(shape(&theirs.out), shape(&ours.out), "{text} {mode:?}");
            }
            // What the server said, or the program in its own words.
            for reason in
                ["ERROR:  ", "expected one row, got ", "end of script reached ", "undefined variable"]
            {
                if let Some(words) =
                    theirs.err.split_once(reason).map(|(_, rest)| rest.lines().next().unwrap())
                {
                    assert!(
                        ours.err.contains(&format!("{reason}{words}")),
                        "{text} {mode:?}\n{}\n{}",
                        theirs.err,
                        ours.err
                    );
                }
            }
        }
    }
}

#[test]
fn reports_have_the_same_lines() {
    let Some(peers) = Peers::start() else { return };
    peers.both(&["-i", "-s", "2"]);
    for line in [
        &["-t", "20", "-c", "2", "-r"][..],
        &["-S", "-T", "2", "-c", "3", "-j", "2", "-M", "prepared", "-P", "1"],
        &["-N", "-t", "10", "-M", "extended", "-r", "--max-tries=3"],
        &["-b", "tpcb-like@2", "-S", "-t", "20", "-c", "2", "-R", "200", "-L", "1000", "--failures-detailed"],
        &["-b", "se", "-b", "si@3", "-t", "20", "-c", "2", "-r", "--max-tries=0", "-L", "1000"],
        &["-S", "-C", "-t", "5", "-c", "2"],
        &["-S", "-v", "-t", "5"],
    ] {
        let (theirs, ours) = peers.both(line);
        let column = |said: &Said| said.out.lines().find_map(|line| line.find("\\set aid"));
        assert_eq!(column(&theirs), column(&ours), "{line:?}");
        // Which of several scripts a command belongs to is drawn; every script of these runs has its turn.
        assert_eq!(shape(&theirs.out), shape(&ours.out), "{line:?}\n{}\n{}", theirs.out, ours.out);
        let progress = |said: &Said| {
            let lines = shape(&said.err).into_iter();
            lines.filter(|line| !line.contains("warning")).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(progress(&theirs), progress(&ours), "{line:?}");
    }
    let counted = |said: &Said| {
        let line = said.out.lines().find(|line| line.contains("actually processed")).unwrap();
        line.to_string()
    };
    let (theirs, ours) = peers.both(&["-S", "-t", "7", "-c", "3"]);
    assert_eq!(counted(&theirs), counted(&ours));
    assert!(counted(&ours).ends_with(": 21/21"));
}

#[test]
fn tables_are_the_same() {
    let Some(peers) = Peers::start() else { return };
    const SCHEMA: &str = "select string_agg(line, E'\\n' order by line) from (\
        select format('%s %s %s %s %s', c.relname, c.relkind, c.relpersistence, c.reloptions, \
               pg_get_expr(c.relpartbound, c.oid)) as line \
          from pg_class c where c.relname like 'pgbench%' \
        union all select format('%s.%s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull) \
          from pg_attribute where attrelid::regclass::text like 'pgbench%' and attnum > 0 \
        union all select format('%s %s', conrelid::regclass, pg_get_constraintdef(oid)) from pg_constraint \
          where conrelid::regclass::text like 'pgbench%') as lines";
    const CONTENT: &str = "select concat_ws(' ', \
        (select md5(string_agg(t::text, ',' order by bid)) from pgbench_branches t), \
        (select md5(string_agg(t::text, ',' order by tid)) from pgbench_tellers t), \
        (select md5(string_agg(t::text, ',' order by aid)) from pgbench_accounts t), \
        (select count(*) from pgbench_history))";
    for line in [
        &["-i"][..],
        &["-i", "-s", "2", "-F", "70", "--foreign-keys", "-q"],
        &["-i", "-I", "dtGp", "--unlogged-tables"],
        &["-i", "-I", "dtgvpf", "--partitions=3"],
        &["-i", "-n", "--partitions=2", "--partition-method=hash"],
    ] {
        let mut seen = Vec::new();
        for run in [Peers::theirs, Peers::ours] {
            let said = run(&peers, line);
            assert_eq!(said.code, 0, "{line:?}: {}", said.err);
            seen.push((peers.server.query(SCHEMA).unwrap(), peers.server.query(CONTENT).unwrap()));
            let steps = said.err.lines().filter(|line| line.ends_with("...")).map(String::from);
            seen.last_mut().unwrap().1.extend(steps);
        }
        assert_eq!(seen[0], seen[1], "{line:?}");
        assert!(seen[0].0.contains("pgbench_accounts"), "{}", seen[0].0);
    }
}

#[test]
fn logs_have_the_same_columns() {
    let Some(peers) = Peers::start() else { return };
    peers.both(&["-i"]);
    for (line, files, columns) in [
        (&["-S", "-t", "10", "-l"][..], 1, 6),
        (&["-S", "-t", "10", "-c", "3", "-j", "2", "-l"], 2, 6),
        (&["-S", "-t", "10", "-l", "-R", "1000", "--max-tries=2"], 1, 8),
        (&["-S", "-T", "2", "-l", "--aggregate-interval=1"], 1, 15),
    ] {
        for (who, run) in [("theirs", Peers::theirs as fn(&Peers, &[&str]) -> Said), ("ours", Peers::ours)] {
            let prefix = format!("--log-prefix={who}");
            let said = run(&peers, &[line, &[&prefix]].concat());
            assert_eq!(said.code, 0, "{}", said.err);
            let mut lines = Vec::new();
            let mut found = 0;
            for entry in std::fs::read_dir(peers.place.here()).unwrap().flatten() {
                if entry.file_name().to_string_lossy().starts_with(who) {
                    found += 1;
                    let text = std::fs::read_to_string(entry.path()).unwrap();
                    lines.extend(text.lines().map(String::from));
                    std::fs::remove_file(entry.path()).unwrap();
                }
            }
            assert_eq!(found, files, "{who} {line:?}");
            assert!(!lines.is_empty());
            for text in &lines {
                let numbers = text.split(' ').all(|word| word.parse::<u64>().is_ok());
                assert!(numbers && text.split(' ').count() == columns, "{who} {line:?}: {text}");
            }
            if columns < 15 {
                let clients = if line.contains(&"-c") { 3 } else { 1 };
                assert_eq!(lines.len(), 10 * clients, "{who} {line:?}");
                let first = lines.iter().find(|text| text.starts_with("0 ")).unwrap();
                assert!(first.starts_with("0 1 "), "{who}: {first}");
            }
        }
    }
}

#[test]
fn what_is_typed_wrong_is_refused_alike() {
    let Some(peers) = Peers::start() else { return };
    peers.place.write("one.sql", "select 1;\n");
    for line in [
        &["-c", "0"][..],
        &["-t", "0"],
        &["-T", "1", "-t", "1"],
        &["-M", "foo"],
        &["-R", "0"],
        &["-L", "0"],
        &["-b", "foo"],
        &["-b", "s"],
        &["-n", "-f", "nope"],
        &["-n", "-f", "one.sql@0"],
        &["-n", "-f", "one.sql@x"],
        &["-D", "x"],
        &["--aggregate-interval", "1"],
        &["--sampling-rate=2", "-l"],
        &["--max-tries=0"],
        &["--random-seed=foo"],
        &["-i", "-I", "xyz"],
        &["-i", "-t", "5"],
        &["-F", "50"],
        &["-i", "--partition-method=hash"],
        &["--log-prefix=x"],
        &["--foo"],
        &["--progress-timestamp"],
        // The tables are not there.
        &["-S"],
        &["-i", "-I", "g"],
        &["-i", "-I", "p"],
    ] {
        let (theirs, ours) = peers.both(line);
        assert_eq!(theirs.code, 1, "{line:?}");
        assert_eq!(ours.err.lines().filter(|line| line.starts_with("tipover: ")).count(), 1, "{}", ours.err);
    }
}

#[test]
fn conflicts_are_tried_again_and_counted_alike() {
    let Some(peers) = Peers::start() else { return };
    peers.server.query("create table t (a int, b int)").unwrap();
    peers.server.query("insert into t values (1, 0)").unwrap();
    peers.place.write("s.sql", "begin isolation level repeatable read;\nselect b from t;\n\\sleep 2 ms\nupdate t set b = b + 1;\nend;\n");
    let figure = |said: &Said, name: &str| -> u64 {
        let line = said
            .out
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{name}: {}", said.out));
        line.trim_start_matches(": ").split(['/', ' ']).next().unwrap().parse().unwrap()
    };
    let line =
        ["-n", "-c", "4", "-j", "2", "-t", "25", "-f", "s.sql", "--max-tries=1000", "--failures-detailed"];
    let (theirs, ours) = peers.both(&line);
    for said in [&theirs, &ours] {
        assert_eq!(figure(said, "number of transactions actually processed"), 100, "{}", said.out);
        assert!(figure(said, "total number of retries") > 0, "{}", said.out);
    }
    // What was done is in the table: nothing twice, nothing not at all.
    assert_eq!(peers.server.query("select b from t").unwrap().trim(), "200");
    let once = ["-n", "-c", "4", "-j", "2", "-t", "25", "-f", "s.sql", "--failures-detailed"];
    let before = 200;
    let (theirs, ours) = peers.both(&once);
    let mut done = before;
    for said in [&theirs, &ours] {
        let failed = figure(said, "number of serialization failures");
        assert!(failed > 0 && failed == figure(said, "number of failed transactions"), "{}", said.out);
        let processed = figure(said, "number of transactions actually processed");
        assert_eq!(processed + failed, 100);
        done += processed;
    }
    assert_eq!(peers.server.query("select b from t").unwrap().trim(), done.to_string());
}

#[test]
fn what_is_late_is_skipped_and_counted_alike() {
    let Some(peers) = Peers::start() else { return };
    peers.place.write("s.sql", "select pg_sleep(0.02);\n");
    let line = ["-n", "-t", "40", "-f", "s.sql", "-R", "200", "-L", "30"];
    let (theirs, ours) = peers.both(&line);
    for said in [&theirs, &ours] {
        let figure = |name: &str| -> u64 {
            let line = said.out.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(": ").split(['/', ' ']).next().unwrap().parse().unwrap()
        };
        let (done, skipped) =
            (figure("number of transactions actually processed"), figure("number of transactions skipped"));
        assert!(skipped > 0 && done > 0 && done + skipped == 40, "{}", said.out);
    }
}

#[test]
fn hostile_scripts_get_one_sentence() {
    let Some(peers) = Peers::start() else { return };
    let deep = format!("\\set x {}1{}\n", "(".repeat(100_000), ")".repeat(100_000));
    let long = format!("\\set x 1{}\n", "+1".repeat(5_000_000));
    let ifs = "\\if 1\n".repeat(100_000);
    for (text, code, said) in [
        (deep.as_str(), 1, "s.sql:1:"),
        (&long, 1, "s.sql:1:"),
        (&ifs, 1, "\\if without matching \\endif"),
        ("select 1;\n\u{0}\u{1}", 1, "s.sql:2:1: this byte is zero"),
        ("\\set x 1/0\n", 2, "(s.sql:1:1) division by zero"),
        ("select 1;\n  \\set x :nobody\n", 2, "(s.sql:2:3) undefined variable \"nobody\""),
        ("\\set x random(-9223372036854775808, 9223372036854775807)\n", 2, "random range is too large"),
        ("\\setshell x echo 1\n", 1, "s.sql:1:1: \\setshell is not carried out here"),
    ] {
        peers.place.write("s.sql", text);
        let ours = peers.ours(&["-n", "-t", "1", "-f", "s.sql"]);
        assert_eq!(ours.code, code, "{said}: {}", ours.err);
        let words: Vec<&str> = ours.err.lines().filter(|line| line.contains(said)).collect();
        assert!(words.len() == 1 && words[0].len() < 300, "{said}: {}", ours.err);
    }
}

#[test]
fn a_seed_gives_the_same_numbers_again() {
    let Some(peers) = Peers::start() else { return };
    peers.place.write("s.sql", "\\set x debug(random(1, 1000000000))\n");
    let run = |seed: &str, clients: &str| {
        let seed = format!("--random-seed={seed}");
        let said = peers.ours(&["-n", "-t", "12", "-c", clients, "-f", "s.sql", &seed]);
        assert_eq!(said.code, 0, "{}", said.err);
        let mut lines: Vec<String> = debugged(&said).into_iter().map(String::from).collect();
        lines.sort();
        lines
    };
    assert_eq!(run("7", "1"), run("7", "1"));
    assert_ne!(run("7", "1"), run("8", "1"));
    // Operation n is a function of (seed, n), whoever runs it.
    let (one, three): (Vec<String>, Vec<String>) = (run("7", "1"), run("7", "3"));
    assert!(one.iter().all(|line| three.contains(line)), "{one:?} {three:?}");
}

#[test]
fn sessions_that_share_threads_do_the_same() {
    let Some(peers) = Peers::start() else { return };
    let text = "\\sleep 2 ms\nselect :client_id as a \\gset\n\\sleep :a us\n\\set x debug(:a - :client_id)\n";
    peers.place.write("s.sql", text);
    for options in [&["-c", "40", "-j", "2"][..], &["-c", "3", "-R", "500"], &["-c", "20", "-C"]] {
        let line = [&["-n", "-t", "4", "-f", "s.sql"], options].concat();
        let (theirs, ours) = peers.both(&line);
        assert_eq!(shape(&theirs.out), shape(&ours.out), "{options:?}");
        // Lines of pgbench's threads run into one another.
        let count = theirs.err.matches("debug(").count();
        assert_eq!(debugged(&ours), vec!["debug(script=0,command=4): int 0"; count], "{options:?}");
    }
    // A client that is aborted ends, and the others go on.
    peers.place.write("s.sql", "\\sleep 20 ms\n\\set x 1 / :client_id\nselect 1;\n");
    for options in [&["-c", "30", "-M", "prepared"][..], &["-c", "3", "-R", "500"], &["-c", "4"]] {
        let line = [&["-n", "-t", "5", "-f", "s.sql"], options].concat();
        let (_, ours) = peers.both(&line);
        assert_eq!(ours.code, 2);
        let clients: u64 = options[1].parse().unwrap();
        let processed = ours.out.lines().find(|line| line.contains("actually processed")).unwrap();
        let (wanted, all) = (format!(": {}/{}", (clients - 1) * 5, clients * 5), clients * 5);
        // Under a rate the others take over what the one that ended would have sent.
        let taken_over = format!(": {}/{all}", all - 1);
        assert!(processed.ends_with(&wanted) || processed.ends_with(&taken_over), "{processed}");
    }
    // Exactly one reason, for the one client.
    let ours = peers.ours(&["-n", "-t", "5", "-f", "s.sql", "-c", "4", "--exit-on-abort"]);
    assert_eq!((ours.code, ours.err.matches("client 0 script 0 aborted").count()), (2, 1), "{}", ours.err);
    peers
        .place
        .write("p.sql", "\\startpipeline\nselect 1;\n\\syncpipeline\nselect 2;\n\\endpipeline\nselect 3;\n");
    for clients in ["1", "30"] {
        let ours = peers.ours(&["-n", "-t", "5", "-f", "p.sql", "-c", clients, "-M", "prepared"]);
        assert_eq!(ours.code, 0, "{}", ours.err);
    }
}
