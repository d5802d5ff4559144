use super::*;
use proptest::prelude::*;
use serde_json::json;

const CLAIMS: &str = r#"
study = "t"
source = "a text"
[[claim]]
id = "t-1"
claim = "Half remains."
theirs = "50 %"
kind = "ratio"
[[claim.figure]]
what = "b to a"
is = "cells[name=b].rate / cells[name=a].rate * 100"
unit = "%"
must = "in 40 .. 60"
[[claim]]
id = "t-2"
claim = "Whales are large."
theirs = "no figure"
kind = "qualitative"
not_tested = "there are no whales here"
"#;

fn known(value: f64, half: f64, trials: u32) -> Value {
    json!({"value": value, "low": value - half, "high": value + half, "trials": trials, "basis": "t"})
}

fn study(a: Value, b: Value) -> Value {
    json!({"cells": [{"name": "a", "rate": a, "broken_laws": []}, {"name": "b", "rate": b}]})
}

fn verdict(study: &Value) -> Verdict {
    Claims::parse(CLAIMS).unwrap().judge(study).remove(0).verdict
}

#[test]
fn honest_twins_are_confirmed_and_culprits_contradicted() {
    assert_eq!(verdict(&study(known(100.0, 5.0, 3), known(50.0, 2.0, 3))), Verdict::Confirmed);
    assert_eq!(verdict(&study(known(100.0, 5.0, 3), known(80.0, 2.0, 3))), Verdict::Contradicted);
    // A culprit with an interval that reaches the honest one is not convicted.
    let wide = verdict(&study(known(100.0, 5.0, 3), known(80.0, 30.0, 3)));
    assert!(matches!(wide, Verdict::CannotTell { more_trials: Some(1..), .. }), "{wide:?}");
    let judged = Claims::parse(CLAIMS).unwrap().judge(&study(known(100.0, 5.0, 3), known(80.0, 2.0, 3)));
    let figure = &judged[0].figures[0];
    assert_eq!((figure.value, figure.holds), (Some(80.0), Some(false)));
    assert!((figure.low.unwrap() - 78.0 / 105.0 * 100.0).abs() < 1e-9, "{figure:?}");
    assert!((figure.high.unwrap() - 82.0 / 95.0 * 100.0).abs() < 1e-9, "{figure:?}");
    assert_eq!(judged[1].verdict, Verdict::NotTested { why: "there are no whales here".into() });
    assert_eq!(Tally::of(&judged), Tally { contradicted: 1, not_tested: 1, ..Tally::default() });
}

#[test]
fn nothing_is_confirmed_or_contradicted_on_nothing_seen() {
    let missing = |trials: u32| json!({"missing": "not measured", "trials": trials});
    for empty in [json!({}), json!({"cells": []}), study(missing(0), missing(0))] {
        assert!(matches!(verdict(&empty), Verdict::NotTested { .. }), "{empty}");
    }
    let partly = verdict(&study(known(100.0, 5.0, 3), missing(2)));
    assert!(matches!(partly, Verdict::CannotTell { more_trials: None, .. }), "{partly:?}");
    // A single trial decides nothing, however well it knows itself.
    let single = verdict(&study(known(100.0, 0.1, 1), known(50.0, 0.1, 3)));
    assert!(matches!(single, Verdict::CannotTell { more_trials: Some(1), .. }), "{single:?}");
    let nothing = verdict(&study(known(0.0, 0.0, 3), known(0.0, 0.0, 3)));
    assert!(matches!(nothing, Verdict::CannotTell { .. }), "{nothing:?}");
}

#[test]
fn what_breaks_a_law_of_the_audit_is_not_used() {
    let mut honest = study(known(100.0, 5.0, 3), known(50.0, 2.0, 3));
    honest["cells"][1]["broken_laws"] = json!(["Little's law"]);
    let said = verdict(&honest);
    assert!(matches!(&said, Verdict::CannotTell { why, .. } if why.contains("Little's law")), "{said:?}");
}

#[test]
fn so_many_more_trials_would_do_and_one_fewer_would_not() {
    let at = |trials: u32, share: f64| study(known(100.0, 0.0, trials), known(50.0, share, trials));
    let Verdict::CannotTell { more_trials: Some(more), .. } = verdict(&at(3, 25.0)) else { panic!() };
    let half = |n: u32| student_quantile(0.05, f64::from(n - 1)) / f64::from(n).sqrt();
    let later = |n: u32| verdict(&at(n, 25.0 * half(n) / half(3)));
    assert_eq!(later(3 + more), Verdict::Confirmed);
    assert!(matches!(later(3 + more - 1), Verdict::CannotTell { .. }));
    // On the edge itself no number of trials would.
    let edge = verdict(&study(known(100.0, 0.0, 3), known(60.0, 1.0, 3)));
    assert!(matches!(edge, Verdict::CannotTell { more_trials: None, .. }), "{edge:?}");
}

#[test]
fn paths_that_lead_nowhere_are_found() {
    let claims = Claims::parse(CLAIMS).unwrap();
    assert_eq!(claims.astray(&study(known(1.0, 0.0, 0), known(1.0, 0.0, 0))), Vec::<String>::new());
    assert_eq!(claims.astray(&json!({})).len(), 2);
    let text = json!({"cells": [{"name": "a", "rate": "fast"}, {"name": "b", "rate": known(1.0, 0.0, 1)}]});
    assert_eq!(claims.astray(&text), ["t-1: `rate` of `cells` is no figure"]);
    let twice = json!({"cells": [
        {"name": "a", "rate": known(1.0, 0.0, 1)}, {"name": "a", "rate": known(1.0, 0.0, 1)},
        {"name": "b", "rate": known(1.0, 0.0, 1)},
    ]});
    assert_eq!(claims.astray(&twice), ["t-1: cells[name=a].rate means 2 rows"]);
    let neither = CLAIMS.replace("not_tested", "# not_tested");
    assert!(Claims::parse(&neither).unwrap_err().contains("t-2 needs either"));
}

#[test]
fn ends_are_carried_through_arithmetic() {
    let span = |value, low, high| Span { value, low, high };
    let (a, b) = (span(4.0, 2.0, 6.0), span(2.0, 1.0, 4.0));
    assert_eq!(a.combined(Operator::Subtract, b), span(2.0, -2.0, 5.0));
    assert_eq!(a.combined(Operator::Divide, b), span(2.0, 0.5, 6.0));
    assert_eq!(span(-1.0, -2.0, 3.0).combined(Operator::Multiply, b), span(-2.0, -8.0, 12.0));
    let perhaps_zero = a.combined(Operator::Divide, span(1.0, 0.0, 2.0));
    assert_eq!((perhaps_zero.low, perhaps_zero.high), (1.0, f64::INFINITY));
    let unknown = a.combined(Operator::Divide, span(1.0, -1.0, 2.0));
    assert_eq!((unknown.low, unknown.high), (f64::NEG_INFINITY, f64::INFINITY));
    assert_eq!(a.extreme(Extreme::Largest, b), span(4.0, 2.0, 6.0));
    assert_eq!(a.extreme(Extreme::Smallest, b), span(2.0, 1.0, 4.0));
}

proptest! {
    /// Narrower intervals around the same values never take a verdict back.
    #[test]
    fn narrower_intervals_never_take_a_verdict_back(
        a in 1.0..200.0f64, b in 1.0..200.0f64, halves in (0.0..150.0f64, 0.0..150.0f64), share in 0.0..1.0f64
    ) {
        let wide = verdict(&study(known(a, halves.0, 3), known(b, halves.1, 3)));
        let narrow = verdict(&study(known(a, halves.0 * share, 3), known(b, halves.1 * share, 3)));
        if !matches!(wide, Verdict::CannotTell { .. }) {
            prop_assert_eq!(wide, narrow);
        }
    }

    /// The interval that comes out holds what any truth within those that went in gives.
    #[test]
    fn the_truth_stays_inside(
        a in -50.0..200.0f64, b in 1.0..200.0f64, halves in (0.0..60.0f64, 0.0..0.9f64),
        at in (0.0..1.0f64, 0.0..1.0f64)
    ) {
        let x = Span { value: a, low: a - halves.0, high: a + halves.0 };
        let y = Span { value: b, low: b * (1.0 - halves.1), high: b * (1.0 + halves.1) };
        let within = |span: Span, share: f64| span.low + share * (span.high - span.low);
        let (true_x, true_y) = (within(x, at.0), within(y, at.1));
        for (operator, truth) in [
            (Operator::Add, true_x + true_y),
            (Operator::Subtract, true_x - true_y),
            (Operator::Multiply, true_x * true_y),
            (Operator::Divide, true_x / true_y),
        ] {
            let span = x.combined(operator, y);
            let slack = 1e-9 * (1.0 + truth.abs());
            prop_assert!(span.low - slack <= truth && truth <= span.high + slack, "{operator:?}");
        }
    }
}

#[test]
fn a_counterpart_is_judged_where_it_was_measured_and_left_out_where_not() {
    let counterpart =
        "[[counterpart]]\nnames = [\"b\", \"the other\"]\nreplaces = [\"name=b\", \"name=c\"]\n[[claim]]";
    let claims = Claims::parse(&CLAIMS.replacen("[[claim]]", counterpart, 1)).unwrap();
    let spared = CLAIMS.replacen(
        "[[claim]]",
        &counterpart.replace("\n[[claim]]", "\nexcept = [\"t-1\"]\n[[claim]]"),
        1,
    );
    assert_eq!(Claims::parse(&spared).unwrap().all[0].figures.len(), 1);
    let mut both = study(known(100.0, 5.0, 3), known(50.0, 2.0, 3));
    let judged = |study: &Value| claims.judge(study).remove(0);
    let without = judged(&both);
    assert_eq!((without.figures.len(), without.verdict), (1, Verdict::Confirmed));
    let missing = json!({"missing": "not measured", "trials": 0});
    both["cells"].as_array_mut().unwrap().push(json!({"name": "c", "rate": missing}));
    assert_eq!(judged(&both).verdict, Verdict::Confirmed, "a sweep that was left out");
    both["cells"][2]["rate"] = known(80.0, 2.0, 3);
    let other = judged(&both);
    assert_eq!(other.verdict, Verdict::Contradicted);
    assert_eq!(other.figures[1].what, "the other to a");
    both["cells"][2]["rate"] = json!({"missing": "no trial is valid", "trials": 2});
    assert!(matches!(judged(&both).verdict, Verdict::CannotTell { .. }), "it was measured, in vain");
}
