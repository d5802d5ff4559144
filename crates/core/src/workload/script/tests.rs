use super::*;
use crate::op::Op;
use proptest::prelude::*;

fn scripts(text: &str) -> Result<Scripts, Mistake> {
    let mut scripts = Scripts::new(7, Dialect::Pgbench);
    scripts.add("s.sql", text.as_bytes(), 1)?;
    Ok(scripts)
}

/// What a script does until it ends, statements as texts, `debug` as it is printed.
fn carried_out(text: &str) -> Vec<String> {
    let mut scripts = scripts(text).unwrap();
    for (name, value) in [("scale", Value::Integer(1)), ("default_seed", Value::Integer(5))] {
        scripts.preset(name, value).unwrap();
    }
    for (name, text) in [("five", "5"), ("yes", "yes"), ("nul", "null"), ("bad", "5x")] {
        scripts.preset(name, Value::Text(text.into())).unwrap();
    }
    let mut run = Run::new(Arc::new(scripts), 3);
    let mut done = Vec::new();
    run.begin(0, 0);
    loop {
        let step = run.step();
        done.extend(run.notes());
        match step {
            Ok(Step::Send(command)) => {
                let mut text = Vec::new();
                run.put_text(command, Quoting::Standard, &mut text);
                done.push(String::from_utf8(text).unwrap());
            }
            Ok(Step::Over) => return done,
            Ok(step) => done.push(format!("{step:?}")),
            Err(abort) => {
                done.push(format!("{}: {}", abort.command, abort.reason));
                return done;
            }
        }
    }
}

fn value(expression: &str) -> String {
    let done = carried_out(&format!("\\set x debug({expression})"));
    let last = done.last().unwrap();
    last.strip_prefix("debug(script=0,command=1): ").or(last.strip_prefix("0: ")).unwrap().to_string()
}

#[test]
fn expressions_have_the_values_that_pgbench_gives_them() {
    // Observed with pgbench 15.18; the tests of the program compare many more.
    for (expression, expected) in [
        ("~ 1 + 2", "int -4"),
        ("~1 | 2", "int -2"),
        ("- 2 * 3", "int -6"),
        ("5 / 0.0", "double Infinity"),
        ("null or true", "null"),
        ("false and null", "boolean false"),
        ("true or null", "boolean true"),
        ("5 or 0", "cannot coerce int to boolean"),
        ("true = true", "cannot coerce boolean to int"),
        ("1 is true", "boolean false"),
        ("1 = 2 is false", "boolean true"),
        ("1 + null is null", "boolean true"),
        ("not 1 = 2", "boolean true"),
        ("-9223372036854775808 / -1", "bigint div out of range"),
        ("-9223372036854775808 % -1", "int 0"),
        ("9223372036854775807 * 2", "bigint mul out of range"),
        ("int(2.5) + int(3.5)", "int 6"),
        ("int(1e30)", "double to int overflow for 1000000000000000019884624838656.000000"),
        ("1 << 64", "int 1"),
        ("1.5 << 1", "int 4"),
        ("case when 0 then 5 when null then 6 end", "null"),
        ("case when 2 then 5 else 1/0 end", "int 5"),
        ("greatest(1, 2.0, 3)", "double 3"),
        ("7 # 2 & 3 | 1", "int 1"),
        ("10 >> 1 + 1", "int 2"),
        ("5 - -3", "int 8"),
        ("hash(10, 5432)", "int -5817877081768721676"),
        ("hash(null)", "null"),
        (":five + 1", "int 6"),
        (":yes", "boolean true"),
        (":nul", "null"),
        (":bad + 1", "malformed variable \"bad\" value: \"5x\""),
        (":nobody", "undefined variable \"nobody\""),
        ("-0.0", "double 0"),
        (".5", "double 0.5"),
        (":client_id", "int 3"),
        ("random(2, 1)", "empty range given to random"),
        ("1 isnull is null", "boolean false"),
        ("5 % 0", "division by zero"),
    ] {
        assert_eq!(value(expression), expected, "{expression}");
    }
}

#[test]
fn mistakes_say_where_and_what() {
    let deep = format!("\\set x {}1", "(".repeat(100_000));
    let long = format!("\\set x 1{}", "+1".repeat(5_000_000));
    let many = format!("select {} 1;", ":a,".repeat(300));
    for (text, said) in [
        ("\\set x 1 +", "s.sql:1:11: syntax error: a value should be here, and the line ends"),
        ("select 1;\n  \\set x (1", "s.sql:2:12: syntax error: `)` should be here, and the line ends"),
        ("\\set x 1 < 2 < 3", "s.sql:1:14: syntax error: no second comparison"),
        ("\\set x sqr(2)", "s.sql:1:8: unexpected function name (sqr); did you mean \"sqrt\"?"),
        ("\\set x abs(1, 2)", "s.sql:1:8: unexpected number of arguments (abs): it takes 1, and there are 2"),
        ("\\set x least()", "s.sql:1:8: at least one argument expected (least)"),
        ("\\set x 12345678901234567890", "s.sql:1:8: bigint constant overflow (12345678901234567890)"),
        ("\\set x 9223372036854775808", "s.sql:1:8: bigint constant overflow"),
        ("\\set x 1e400", "s.sql:1:8: double constant overflow (1e400)"),
        ("\\set x 'a'", "s.sql:1:8: unexpected character (')"),
        ("\\set 1x 5", "s.sql:1:6: invalid variable name: \"1x\""),
        ("\\set", "s.sql:1:1: missing argument in command \"set\""),
        ("\\sett x 1", "s.sql:1:2: invalid command \\sett; did you mean \"set\"?"),
        ("\\", "s.sql:1:1: a backslash needs"),
        ("\\shell true", "s.sql:1:1: \\shell is not carried out here"),
        ("\\setshell x true", "s.sql:1:1: \\setshell is not carried out here"),
        ("\\sleep 1 foo", "s.sql:1:10: unrecognized time unit, must be us, ms or s (foo)"),
        ("\\sleep 5x", "s.sql:1:8: unrecognized time unit"),
        ("\\sleep 1 us extra", "s.sql:1:13: too many arguments in command \"sleep\": extra"),
        ("\\if 1\nselect 1;", "s.sql:1:1: \\if without matching \\endif"),
        ("\\else", "s.sql:1:1: \\else without matching \\if"),
        ("\\if 1\n\\else\n\\else\n\\endif", "s.sql:3:1: \\else after \\else"),
        ("\\if 1\n\\else x\n\\endif", "s.sql:2:7: unexpected argument in command \"else\": x"),
        ("\\gset", "s.sql:1:1: \\gset must follow an SQL command"),
        ("select 1 \\gset\n\\gset", "s.sql:2:1: \\gset must follow"),
        ("select 1 \\gset a b", "s.sql:1:18: too many arguments in command \"gset\": b"),
        ("-- nothing\n\n", "s.sql:1:1: empty command list for script \"s.sql\""),
        ("select 'a", "s.sql:1:8: what is opened by ' here is never closed"),
        ("select $x$ a $y$", "s.sql:1:8: what is opened by $x$ here is never closed"),
        ("select /* /* */ 1", "s.sql:1:8: the comment that begins here is never closed"),
        ("é \0", "s.sql:1:3: this byte is zero"),
        (&deep, "s.sql:1:108: the expression is nested more than 100 deep"),
        (&long, "the expression has more than 100000 parts"),
        (&many, "s.sql:1:1: the statement uses 300 variables"),
    ] {
        let error = scripts(text).unwrap_err().to_string();
        assert!(error.contains(said), "{:.60}: {error}", text);
        assert!(error.len() < 300 && !error.contains('\n'), "one sentence: {error}");
    }
    let error =
        Scripts::new(1, Dialect::Pgbench).add("s.sql", b"select 1;\n\xff\xfe", 1).unwrap_err().to_string();
    assert!(error.starts_with("s.sql:2:1: this is not UTF-8"), "{error}");
}

#[test]
fn statements_end_where_they_should() {
    let texts = |text: &str| carried_out(text);
    assert_eq!(texts("select 1; select\n 2;\nselect 3"), ["select 1;", "select\n 2;", "select 3"]);
    assert_eq!(
        texts("select ';' || \";\" || $$;$$ || $a$;$b$;$a$ /* ; /* ; */ ; */;"),
        ["select ';' || \";\" || $$;$$ || $a$;$b$;$a$ /* ; /* ; */ ; */;"]
    );
    assert_eq!(texts("select E'a\\';';select 'a\\';"), ["select E'a\\';';", "select 'a\\';"]);
    assert_eq!(texts("select 1 -- no ; end\n;"), ["select 1 -- no ; end\n;"]);
    assert_eq!(texts("-- first\nselect (1;2);;\n;"), ["select (1;2);"]);
    assert_eq!(texts("select 1 \\; select 2;"), ["select 1 ; select 2;"]);
    let function =
        "create function f() returns int begin atomic select 1; select case when true then 2 end; end;";
    assert_eq!(texts(function), [function]);
    assert_eq!(texts("begin; select 1; end;"), ["begin;", "select 1;", "end;"]);
    assert_eq!(
        texts("\\set a 1 \\\n + 2\nselect :a, 1::int, a[1:2], ':a', :none;"),
        ["select 3, 1::int, a[1:2], '3', :none;"]
    );
}

#[test]
fn conditions_choose_one_branch() {
    let chosen = |x: &str| {
        let text = format!(
            "\\set x {x}\n\\if :x = 1\nselect 1;\n\\if false\nselect 0;\n\\endif\n\\elif :x = 2\nselect 2;\n\
             \\elif :x = 3\nselect 3;\n\\else\nselect 4;\n\\endif\nselect 5;"
        );
        carried_out(&text).concat()
    };
    for (x, statements) in [
        ("1", "select 1;select 5;"),
        ("2", "select 2;select 5;"),
        ("3", "select 3;select 5;"),
        ("9", "select 4;select 5;"),
    ] {
        assert_eq!(chosen(x), statements, "{x}");
    }
    assert_eq!(
        carried_out("\\if 0\n\\if 1/0\n\\endif\n\\endif\n\\sleep 5 ms\n\\startpipeline\n\\endpipeline"),
        ["Sleep(5ms)", "StartPipeline", "EndPipeline"]
    );
}

#[test]
fn operations_are_a_function_of_seed_and_number() {
    let mut two = Scripts::new(11, Dialect::Pgbench);
    two.add("a", b"\\set x random(1, 1000000)\nselect :x;", 3).unwrap();
    two.add("b", b"\\set x random_gaussian(1, 1000000, 3)\nselect :x;", 1).unwrap();
    let runs = ScriptRuns(Arc::new(two));
    let records = Records::new(0);
    let texts = |numbers: &mut dyn Iterator<Item = u64>| -> Vec<(u64, Vec<u8>)> {
        let mut run = Run::new(runs.0.clone(), 0);
        let mut texts: Vec<(u64, Vec<u8>)> = numbers
            .map(|n| {
                let Op::Script { script, number } = runs.op(n, &records) else { panic!("scripts only") };
                run.begin(script, number);
                let mut text = Vec::new();
                let Ok(Step::Send(command)) = run.step() else { panic!("a statement is sent") };
                run.put_text(command, Quoting::Standard, &mut text);
                (n, text)
            })
            .collect();
        texts.sort();
        texts
    };
    assert_eq!(texts(&mut (0..500)), texts(&mut (0..500).rev()));
    let first = (0..10_000).filter(|n| runs.0.chosen(*n) == 0).count();
    assert!((7_200..7_800).contains(&first), "three of four: {first}");
}

#[test]
fn what_a_server_brings_is_a_variable() {
    let scripts = scripts("select 1 as a \\gset p_\nselect :p_a;").unwrap();
    let mut run = Run::new(Arc::new(scripts), 0);
    run.begin(0, 0);
    assert_eq!(run.step(), Ok(Step::Send(0)));
    assert_eq!(run.bring(0, "a", Some("42")), Ok(()));
    assert_eq!(run.bring(0, "unused", None), Ok(()));
    assert!(run.bring(0, "?column?", None).unwrap_err().reason.contains("\"p_?column?\""));
    assert_eq!(run.step(), Ok(Step::Send(1)));
    let mut text = Vec::new();
    run.put_text(1, Quoting::Standard, &mut text);
    assert_eq!(text, b"select 42;");
    assert_eq!(run.with_parameters(1, |n| format!("${n}")), "select $1;");
}

#[test]
fn a_failed_operation_is_tried_again_with_its_variables() {
    let mut scripts = scripts("\\set n :n + 1\nselect :n;").unwrap();
    scripts.preset("n", Value::Integer(0)).unwrap();
    scripts.retries = true;
    let mut run = Run::new(Arc::new(scripts), 0);
    for (number, undone, expected) in
        [(0, true, "select 1;"), (0, false, "select 1;"), (1, false, "select 2;")]
    {
        run.begin(0, number);
        assert_eq!(run.step(), Ok(Step::Send(1)));
        let mut text = Vec::new();
        run.put_text(1, Quoting::Standard, &mut text);
        assert_eq!(text, expected.as_bytes());
        if undone {
            run.undo();
        }
    }
}

#[test]
fn built_in_scripts_are_found_by_how_they_begin() {
    assert_eq!(BuiltIn::find("tpcb").unwrap().name, "tpcb-like");
    assert!(BuiltIn::find("s").unwrap_err().contains("2 builtin scripts found"));
    assert!(BuiltIn::find("x").unwrap_err().contains("no builtin script"));
    for script in BUILT_IN {
        scripts(script.text).unwrap();
    }
}

/// What a plan's script sends as texts, with its parameters apart, and what makes it another statement.
fn of_a_plan(text: &str, quoting: Quoting) -> Result<Vec<[String; 3]>, String> {
    let mut scripts = Scripts::new(7, Dialect::Plan);
    scripts.add("s.sql", text.as_bytes(), 1).map_err(|mistake| mistake.to_string())?;
    let mut run = Run::new(Arc::new(scripts), 0);
    run.begin(0, 3);
    let mut sent = Vec::new();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    loop {
        match run.step() {
            Ok(Step::Send(command)) => {
                let (mut whole, mut words) = (Vec::new(), Vec::new());
                run.put_text(command, quoting, &mut whole);
                run.put_words(command, &mut words);
                sent.push([text(whole), run.with_parameters(command, |n| format!("${n}")), text(words)]);
            }
            Ok(_) => return Ok(sent),
            Err(abort) => return Err(format!("{}: {}", abort.command, abort.reason)),
        }
    }
}

#[test]
fn a_variable_in_a_word_is_no_parameter() {
    let sent =
        of_a_plan("\\set t 12\nselect :t, a:t, b_:t.c:t, :t:t, ':t', 1::int, x:none;", Quoting::Standard);
    let expected = [
        "select 12, a12, b_12.c12, 1212, '12', 1::int, x:none;",
        "select $1, a12, b_12.c12, $2$3, '$4', 1::int, x:none;",
        "12\x0012\x0012\0:none\0",
    ];
    assert_eq!(sent, Ok(vec![expected.map(String::from)]));
}

#[test]
fn texts_that_were_drawn_stand_between_quotes() {
    let sent = of_a_plan("\\set d date(20781)\nselect :d, t:d;", Quoting::Standard).unwrap();
    assert_eq!(sent[0], ["select '2026-11-24', t2026-11-24;", "select $1, t2026-11-24;", "2026-11-24\0"]);
    let value = Value::Quoted("it's a \\".into());
    for (quoting, expected) in [(Quoting::Standard, "'it''s a \\'"), (Quoting::Backslashes, "'it''s a \\\\'")]
    {
        let mut out = Vec::new();
        value.put_constant(quoting, &mut out);
        assert_eq!(out, expected.as_bytes());
    }
}

#[test]
fn what_only_plans_have_is_refused_by_the_drop_in() {
    for call in ["random_special(1, 2)", "random_digits(1, 1)", "date(1)", "random_zipf(1, 5, 0.5)"] {
        let text = format!("\\set x {call}\nselect :x;");
        assert!(of_a_plan(&text, Quoting::Standard).is_ok(), "{call}");
        let name = call.split('(').next().unwrap();
        let refused =
            format!("s.sql:1:8: {name} is none of pgbench's functions: it is for the scripts of plans");
        assert_eq!(scripts(&text).unwrap_err().to_string(), refused);
    }
    let near = scripts("\\set x random_specia(1, 2)").unwrap_err().to_string();
    assert!(near.contains("(random_specia)") && !near.contains("random_special"), "{near}");
    for (call, reason) in [
        ("random_special(2, 1)", "empty range given to random"),
        ("random_pareto(1, 2, 1)", "pareto parameter must be between 0 and 1"),
        ("random_zipf(1, 2, -1)", "zipf parameter must be in range"),
        ("random_digits(1 << 62, 4)", "characters in all"),
        ("timestamp(9223372036854775807)", "date takes days"),
        ("date(1) + 1", "cannot coerce text to int"),
    ] {
        let said = of_a_plan(&format!("\\set x {call}"), Quoting::Standard).unwrap_err();
        assert!(said.contains(reason), "{call}: {said}");
    }
}

#[test]
fn remarks_name_statements_and_say_what_is_expected() {
    let text = "-- name: one\n-- expect: 1 row\n\\set x 2\nselect 1;\nselect 2; -- name: two\n-- expect: :value = :x\n-- a remark\n\
        select 2;\n-- expect: 0..10 rows\nselect 3;\n-- name: one\nselect 4;\n";
    let mut all = Scripts::new(1, Dialect::Plan);
    all.add("s.sql", text.as_bytes(), 1).unwrap();
    let statements: Vec<(usize, usize)> = all.scripts()[0]
        .commands
        .iter()
        .filter_map(|command| match &command.action {
            Action::Sql(statement) => Some((statement.class, statement.expected.len())),
            _ => None,
        })
        .collect();
    assert_eq!(statements, [(0, 1), (1, 0), (2, 1), (3, 1), (0, 0)]);
    let names: Vec<&str> = (0..5).filter_map(|class| all.class(class)).collect();
    assert_eq!(names, ["one", "two", "s.sql:8 select 2;", "s.sql:10 select 3;"]);
    let mut run = Run::new(Arc::new(all), 0);
    run.begin(0, 0);
    let mut check = |command: usize, rows: u64, value: Option<&str>| {
        while run.command() < command {
            run.step().unwrap();
        }
        run.check(command, rows, value).map_err(|abort| abort.reason)
    };
    assert_eq!(check(1, 1, None), Ok(None));
    assert_eq!(check(1, 0, None), Ok(Some("expected 1 row, and there are 0 rows".into())));
    assert_eq!(check(2, 0, None), Ok(None), "nothing is expected");
    assert_eq!(check(3, 1, Some("2")), Ok(None));
    let said = check(3, 1, Some("three")).unwrap_err();
    assert!(said.contains("cannot coerce text"), "{said}");
    let said = check(3, 5, Some("4"));
    assert_eq!(said, Ok(Some("expected :value = :x, and there are 5 rows, the first value is 4".into())));
    assert_eq!(check(4, 11, None), Ok(Some("expected 0..10 rows, and there are 11 rows".into())));
}

#[test]
fn remarks_that_say_nothing_are_mistakes_in_plans_alone() {
    let long = format!("-- name: {}\nselect 1;", "x".repeat(61));
    for (text, said) in [
        ("select 1;\n-- name: last", "s.sql:2:4: no statement follows that this could be about"),
        ("-- name:\nselect 1;", "a name has from 1 to 60 characters"),
        (&long, "a name has from 1 to 60 characters"),
        ("-- name: a\n-- name: b\nselect 1;", "s.sql:2:4: the statement has a name already"),
        ("-- expect: 5..1 rows\nselect 1;", "rows are expected as `1 row`"),
        ("-- expect: 1 rowx\nselect 1;", "s.sql:1:14: syntax error"),
        ("-- expect: :value = sqr(1)\nselect 1;", "s.sql:1:21: unexpected function name (sqr)"),
    ] {
        let error = of_a_plan(text, Quoting::Standard).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
        scripts(text).expect("pgbench reads no remarks");
    }
    let many: String = (0..100).map(|n| format!("select {n};\n")).collect();
    let mut all = Scripts::new(1, Dialect::Plan);
    all.add("s.sql", many.as_bytes(), 1).unwrap();
    assert!(all.class(OpKind::STATEMENTS - 1).is_some() && all.class(OpKind::STATEMENTS).is_none());
}

/// What the first operation of a script of commands sends, as bytes of BSON.
fn commands(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut scripts = Scripts::new(7, Dialect::Commands);
    scripts.add("s", text.as_bytes(), 1).map_err(|mistake| mistake.to_string())?;
    scripts.preset("who", Value::Text("{\"$oid\": \"000102030405060708090a0b\"}".into()))?;
    let scripts = Arc::new(scripts);
    let mut run = Run::new(scripts.clone(), 0);
    run.begin(0, 3);
    let mut sent = Vec::new();
    let placed = |abort: Abort| {
        let here = &scripts.scripts()[0].commands[abort.command];
        format!("s:{}:{}: {}", here.line, here.column, abort.reason)
    };
    loop {
        let step = run.step().map_err(placed)?;
        let Step::Send(command) = step else { return Ok(sent) };
        let order = scripts.order((0, 3), command).map_err(placed)?;
        let mut document = crate::workload::documents::Bson::default();
        if let Order::Command(template) = order.as_ref() {
            run.put_document(command, template, &mut document).map_err(placed)?;
        }
        sent.push(document.bytes);
    }
}

#[test]
fn commands_are_documents_with_values_at_any_place() {
    let sent = commands(
        "\\set n 5\nbegin;\n{\"a:n\": [:n, \"x:n\"], \"b\": {\"c\": {\"$numberLong\": :n}}}; COMMIT",
    );
    let expected = b"\x32\0\0\0\x04a5\0\x16\0\0\0\x100\0\x05\0\0\0\x021\0\x03\0\0\0x5\0\0\
        \x03b\0\x10\0\0\0\x12c\0\x05\0\0\0\0\0\0\0\0\0";
    assert_eq!(sent, Ok(vec![vec![], expected.to_vec(), vec![]]));
    // The words that mean values are none of variables, and blanks may be anywhere.
    let compact = commands("{\"a\":true,\"b\":null,\"c\":-1.5,\"d\":5000000000,\"e\":\"12:30\"}").unwrap();
    let loose =
        commands("{ \"a\" :\ttrue,\n\"b\": null , \"c\": -1.5,\"d\" : 5000000000, \"e\": \"12:30\" }\n;")
            .unwrap();
    assert_eq!(compact, loose);
    let expected = b"\x2f\0\0\0\x08a\0\x01\x0ab\0\x01c\0\0\0\0\0\0\0\xf8\xbf\x12d\0\0\xf2\x05\x2a\x01\0\0\0\
        \x02e\0\x06\0\0\x0012:30\0\0";
    assert_eq!(compact[0], expected, "{:x?}", compact[0]);
    // What came from outside is read as JSON; what is unset in a text stays there.
    let sent = commands("{\"_id\": :who, \"t\": \"a:none\"};").unwrap();
    let expected =
        b"\x24\0\0\0\x07_id\0\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x02t\0\x07\0\0\0a:none\0\0";
    assert_eq!(sent[0], expected, "{:x?}", sent[0]);
}

#[test]
fn what_a_command_may_do_is_seen_in_it() {
    for (text, changes, repeatable) in [
        ("{\"find\": \"t\"}", false, false),
        ("{\"aggregate\": \"t\", \"pipeline\": []}", false, false),
        ("{\"aggregate\": \"t\", \"pipeline\": [{\"$out\": \"u\"}]}", true, false),
        ("{\"insert\": \"t\", \"documents\": [{}]}", true, true),
        ("{\"update\": \"t\", \"updates\": [{\"q\": {}, \"u\": {}, \"multi\": true}]}", true, false),
        ("{\"delete\": \"t\", \"deletes\": [{\"q\": {}, \"limit\": 0}]}", true, false),
        ("{\"delete\": \"t\", \"deletes\": [{\"q\": {}, \"limit\" : 1}]}", true, true),
        (
            "{\"delete\": \"t\", \"deletes\": [{\"q\": {}, \"limit\": 1}, {\"q\": {}, \"limit\": 0}]}",
            true,
            false,
        ),
        ("{\"dropDatabase\": 1}", true, false),
    ] {
        let mut scripts = Scripts::new(7, Dialect::Commands);
        scripts.add("s", text.as_bytes(), 1).unwrap();
        assert_eq!(scripts.may_change(), changes, "{text}");
        let order = scripts.order((0, 0), 0).unwrap();
        let Order::Command(template) = order.as_ref() else { panic!("{text}") };
        assert_eq!(template.is_repeatable, repeatable, "{text}");
    }
}

/// The one sentence about a script, read and then run: with its line and column.
fn complaint(dialect: Dialect, bytes: &[u8]) -> String {
    if dialect == Dialect::Commands
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return commands(text).expect_err(text);
    }
    let mut scripts = Scripts::new(7, dialect);
    if let Err(mistake) = scripts.add("s", bytes, 1) {
        return mistake.to_string();
    }
    let scripts = Arc::new(scripts);
    let mut run = Run::new(scripts.clone(), 0);
    run.begin(0, 3);
    loop {
        match run.step() {
            Ok(Step::Over) => panic!("nothing is wrong with {:?}", String::from_utf8_lossy(bytes)),
            Ok(_) => {}
            Err(abort) => {
                let here = &scripts.scripts()[0].commands[abort.command];
                return format!("s:{}:{}: {}", here.line, here.column, abort.reason);
            }
        }
    }
}

#[test]
fn hostile_scripts_get_one_sentence_with_line_and_column() {
    let deep = format!("\\set x {}1", "(".repeat(100_000));
    let ifs = "\\if 1\n".repeat(1_000);
    let long = format!("select 1;\n\\set x {}:", "1+".repeat(500_000));
    let many = format!("select 1;\nselect {};", ":a,".repeat(300));
    let nested = format!("{{\"a\": {}", "[".repeat(100_000));
    let objects = "{\"a\":".repeat(100_000);
    let all = [Dialect::Pgbench, Dialect::Plan, Dialect::Commands];
    let sql = [Dialect::Pgbench, Dialect::Plan];
    let ours = [Dialect::Commands];
    let cases: &[(&[Dialect], &[u8], &str)] = &[
        (&all, b"", "s:1:1: empty command list"),
        (&all, b"-- nothing\n", "s:1:1: empty command list"),
        (&sql, b"select 1;\n\xff\xfe", "s:2:1: this is not UTF-8"),
        (&ours, b"begin;\n\xff\xfe", "s:2:1: this is not UTF-8"),
        (&all, b"\\set x 1\n\0", "s:2:1: this byte is zero"),
        (&all, b"\\set", "s:1:1: missing argument"),
        (&all, b"\\set 1x 5", "s:1:6: invalid variable name"),
        (&all, b"\\set x 1 +", "s:1:"),
        (&all, b"\\set x nope(1)", "s:1:8: unexpected function name (nope)"),
        (&all, b"\\set x 99999999999999999999999", "s:1:"),
        (&all, deep.as_bytes(), "s:1:"),
        (&all, long.strip_prefix("select 1;").unwrap().as_bytes(), "s:2:"),
        (&sql, long.as_bytes(), "s:2:"),
        (&sql, many.as_bytes(), "s:2:1: the statement uses 300 variables, and 255 is the most"),
        (&all, ifs.as_bytes(), "s:1000:1: \\if without matching \\endif"),
        (&all, b"\\if 1\n\\else\n\\else\n\\endif", "s:3:1: \\else after \\else"),
        (&all, b"\\endif", "s:1:1: \\endif without matching \\if"),
        (&all, b"\\gset", "s:1:1: \\gset must follow an SQL command"),
        (&all, b"\\shell rm -rf /", "s:1:1: \\shell is not carried out here"),
        (&all, b"\\sleep 5 years", "s:1:"),
        (&all, b"\\loop", "s:1:2: invalid command \\loop"),
        (&sql, b"select 1;\nselect 'x", "s:2:8: what is opened by ' here is never closed"),
        (&sql, b"select /* x", "s:1:8: the comment that begins here is never closed"),
        // What is seen when it is run.
        (&all, b"\\set y 1\n\\set x :y / 0", "s:2:1: division by zero"),
        (&all, b"\\set x 1 % 0", "s:1:1: division by zero"),
        (&all, b"\\set x 1\n  \\set x :nope", "s:2:3: undefined variable \"nope\""),
        (&all, b"\\sleep :nope s", "s:1:1: sleep: undefined variable \"nope\""),
        (&all, b"\\set x random(2, 1)", "s:1:1: empty range given to random"),
        (&all, b"\\set x random(-9223372036854775807, 9223372036854775807)", "s:1:1: "),
        (&all, b"\\set x 9223372036854775807 + 1", "s:1:1: "),
        (&all, b"\\set x random_zipfian(1, 10, 0.5)", "s:1:1: "),
        (&all, b"\\if 'x'\n\\endif", "s:1:"),
        // Commands.
        (&ours, b"find {}", "s:1:1: a statement for MongoDB is a command"),
        (&ours, b"select 1;", "s:1:1: a statement for MongoDB is a command"),
        (&ours, b"{}", "s:1:1: an empty document is no command"),
        (&ours, b"{", "s:1:2: the document ends where a name must stand"),
        (&ours, b"{\"find\": }", "s:1:10: '}' begins no value"),
        (&ours, b"{\"find\": \"x\"", "s:1:13: the document is not closed"),
        (&ours, b"{\"a\": [1", "s:1:9: the array is not closed"),
        (&ours, b"{\"a\": 1} {\"b\": 2}", "s:1:10: a semicolon ends a command"),
        (&ours, b"{\"a\": \"x", "s:1:7: what is opened by \" here is never closed"),
        (&ours, b"{\"a\": \"\\x\"}", "s:1:7: this is no text of JSON"),
        (&ours, b"{\"a\\u0000b\": 1}", "s:1:2: a name has no character that is zero"),
        (&ours, b"{\"a\": 1e999}", "s:1:7: 1e999 is no value"),
        (&ours, b"{\"a\": 'x'}", "s:1:7: '\\'' begins no value"),
        (&ours, b"{a: 1}", "s:1:2: here stands 'a' where a name"),
        (&ours, b"{\"a\": :}", "s:1:7: behind a colon"),
        (&ours, b"{\"a\": {\"$oid\": \"12\"}}", "s:1:7: an ObjectId has 24 hexadecimal digits"),
        (&ours, b"{\"a\": {\"$date\": \"yesterday\"}}", "s:1:7: a date is such as"),
        (&ours, b"{\"a\": {\"$numberInt\": 5000000000}}", "s:1:7: $numberInt: 5000000000 does not fit"),
        (&ours, b"{\"a\": {\"$numberDecimal\": \"1\"}}", "s:1:7: decimal numbers of 128 bits"),
        (
            &ours,
            b"{\"a\": {\"$binary\": {\"base64\": \"?\", \"subType\": \"00\"}}}",
            "s:1:7: $binary: base64 is not",
        ),
        (&ours, nested.as_bytes(), "s:1:106: documents are nested up to 100 levels"),
        (&ours, objects.as_bytes(), "s:1:501: documents are nested up to 100 levels"),
        (&ours, b"begin;\n{\"a\": :nope};", "s:2:1: undefined variable \"nope\""),
        (&ours, b"\\set n 5\n{\"a\": {\"$oid\": :n}};", "s:2:1: an ObjectId has 24"),
    ];
    for (dialects, text, begins) in cases {
        for dialect in *dialects {
            let said = complaint(*dialect, text);
            let shown: String = String::from_utf8_lossy(text).chars().take(60).collect();
            assert!(said.starts_with(begins), "{dialect:?} {shown:?}: {said}");
            assert!(!said.contains('\n') && said.len() < 400, "{dialect:?} {shown:?}: {said}");
        }
    }
}

proptest! {
    #[test]
    fn no_command_panics(text in "(\\{\"(find|a:n)\": ?)?[\\{\\}\\[\\]\":,$a-z0-9 \\\\.e-]{0,60}") {
        let _ = commands(&text);
    }

    #[test]
    fn no_script_panics(text in "(\\\\(set|if|elif|else|endif|sleep|gset) ?)?\\PC{0,60}\n?(\\PC{0,40}\n){0,3}") {
        if let Ok(scripts) = scripts(&text) {
            let mut run = Run::new(Arc::new(scripts), 0);
            run.begin(0, 1);
            while let Ok(step) = run.step() {
                if step == Step::Over {
                    break;
                }
            }
        }
    }
}
