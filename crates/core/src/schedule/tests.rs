use super::*;
use crate::units::{Bytes, Ratio};
use proptest::prelude::*;

fn names() -> impl Strategy<Value = Vec<String>> {
    proptest::sample::subsequence(vec!["a", "b", "c-1", "n_2", "db.x"], 1..4)
        .prop_map(|names| names.into_iter().map(String::from).collect())
}

fn nodes() -> impl Strategy<Value = Nodes> {
    prop_oneof![
        names().prop_map(Nodes::Named),
        names().prop_map(Nodes::OneOf),
        Just(Nodes::Any),
        Just(Nodes::All),
        Just(Nodes::Primary),
        Just(Nodes::Replica),
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1..1_000_000_000_000u64).prop_map(Duration::from_nanos),
        (1..10_000u64).prop_map(Duration::from_millis),
        (1..600u64).prop_map(Duration::from_secs),
    ]
}

fn link() -> impl Strategy<Value = Link> {
    (nodes(), prop_oneof![nodes(), Just(Nodes::Rest)], any::<bool>()).prop_map(|(from, to, one_way)| Link {
        from,
        to,
        one_way,
    })
}

fn share() -> impl Strategy<Value = Ratio> {
    prop_oneof![(1..=100u32).prop_map(|p| Ratio(f64::from(p) / 100.0)), (1e-6..1.0f64).prop_map(Ratio)]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        nodes().prop_map(|nodes| Fault::Kill { nodes }),
        nodes().prop_map(|nodes| Fault::KillBackend { nodes }),
        nodes().prop_map(|nodes| Fault::PowerCut { nodes }),
        nodes().prop_map(|nodes| Fault::Pause { nodes }),
        nodes().prop_map(|nodes| Fault::StepDown { nodes }),
        link().prop_map(|link| Fault::Cut { link }),
        (link(), time()).prop_map(|(link, period)| Fault::Flap { link, period }),
        (link(), time(), prop_oneof![Just(Duration::ZERO), time()])
            .prop_map(|(link, by, jitter)| Fault::Delay { link, by, jitter }),
        (link(), share()).prop_map(|(link, share)| Fault::Loss { link, share }),
        (nodes(), time()).prop_map(|(nodes, by)| Fault::SlowDisk { nodes, by }),
        nodes().prop_map(|nodes| Fault::FillDisk { nodes }),
        (nodes(), 1..9u32).prop_map(|(nodes, count)| Fault::FailFlush { nodes, count }),
        (nodes(), share()).prop_map(|(nodes, to)| Fault::SqueezeCpu { nodes, to }),
        (nodes(), 1..u64::MAX).prop_map(|(nodes, to)| Fault::SqueezeMemory { nodes, to: Bytes(to) }),
        (nodes(), time(), any::<bool>()).prop_map(|(nodes, by, back)| Fault::JumpClock { nodes, by, back }),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let maybe = || proptest::option::of(time());
    let when = prop_oneof![
        time().prop_map(When::At),
        (time(), maybe(), maybe(), proptest::option::of(1..99u32))
            .prop_map(|(period, from, until, times)| When::Every { period, from, until, times }),
    ];
    (when, fault(), maybe()).prop_map(|(when, fault, undo_after)| Rule { when, fault, undo_after })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn printed_schedules_read_back(rules in proptest::collection::vec(rule(), 0..5)) {
        let schedule = Schedule { rules };
        let text = schedule.to_string();
        prop_assert_eq!(text.parse::<Schedule>(), Ok(schedule), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "[a-z0-9{},:;# ]*") {
        let _ = text.parse::<Schedule>();
    }

    /// Every fault has its undo, after it and not after the end; the seed decides everything.
    #[test]
    fn every_fault_is_undone(rules in proptest::collection::vec(rule(), 1..4), seed in any::<u64>()) {
        let nodes: Vec<String> = ["a", "b", "c-1", "n_2", "db.x", "other"].map(String::from).into();
        let end = Duration::from_secs(700);
        // Some rules would make millions of injections, or cut a node from itself: refused with a reason.
        if let Ok(timed) = (Schedule { rules }).expand(&nodes, end, seed) {
            let mut open = std::collections::BTreeMap::new();
            for line in &timed {
                prop_assert!(line.at <= end);
                match &line.action {
                    Action::Inject { fault } => {
                        prop_assert!(open.insert(line.injection, fault.undo()).is_none());
                    }
                    Action::Undo { undo } => prop_assert_eq!(open.remove(&line.injection), Some(*undo)),
                }
            }
            prop_assert!(open.is_empty());
            prop_assert!(timed.is_sorted_by_key(|line| line.at));
        }
    }
}

fn parse(text: &str) -> Schedule {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_sentences_of_the_handbook_are_understood() {
    for (text, printed) in [
        (
            "every 2 min: kill one of {a,b}, restart after 10 s",
            "every 2 min: kill one of {a, b}, restart after 10 s",
        ),
        ("at 10 s: cut a from b for 5 s", "at 10 s: cut a from b for 5 s"),
        ("at 10s: cut a to b for 5s", "at 10 s: cut a to b for 5 s"),
        ("at 0: pause primary for 1.5 s", "at 0 s: pause primary for 1500 ms"),
        (
            "every 30 s from 5 s until 10 min times 7: power cut all, restart after 0",
            "every 30 s from 5 s until 10 min times 7: power cut all, restart after 0 s",
        ),
        (
            "at 1 s: flap {a,b} from rest every 200 ms for 5 s",
            "at 1 s: flap {a, b} from rest every 200 ms for 5 s",
        ),
        ("at 1 s: delay a and b by 20 ms jitter 5 ms", "at 1 s: delay a and b by 20 ms jitter 5 ms"),
        ("at 1 s: lose 10% from a to b for 1 s", "at 1 s: lose 10 % from a to b for 1 s"),
        ("at 1 s: fail flush of a", "at 1 s: fail flush of a 1 times"),
        (
            "at 1 s: squeeze memory of a to 128MiB for 9 s # tight",
            "at 1 s: squeeze memory of a to 128 MiB for 9 s",
        ),
        ("at 1 s: jump clock of a back 5 s for 1 min", "at 1 s: jump clock of a back 5 s for 1 min"),
        (
            "at 1 s: step down primary\n\nat 2 s: kill backend of a",
            "at 1 s: step down primary; at 2 s: kill backend of a",
        ),
    ] {
        assert_eq!(parse(text).to_string(), printed);
    }
}

#[test]
fn what_is_not_understood_is_answered_with_the_nearest_word() {
    for (text, reason) in [
        ("at 1 s: kil a", "did you mean \"kill\"?"),
        ("evry 1 s: kill a", "did you mean \"every\"?"),
        ("at 1 s: slow dsik of a by 1 s", "did you mean \"disk\"?"),
        ("at 1 s: cut a form b", "did you mean \"from\"?"),
        ("at 1 s: kill a, restrat after 1 s", "did you mean \"restart\"?"),
        ("at 1: kill a", "\"1 :\" is not a span of time"),
        ("at 1 s kill a", "\"kill\" where \":\" should stand"),
        ("at 1 s: cut a", "ends where \"from\" or \"to\" should follow"),
        ("at 1 s: cut rest from a", "second side of a link"),
        ("at 1 s: kill {a, b", "ends where \",\" or \"}\""),
        ("at 1 s: lose 110 % from a to b", "is not a share"),
        ("at 1 s: pause a fr 5 s", "did you mean \"for\"?"),
        ("every 0: kill a", "makes no sense"),
        ("at 1 s: kill", "ends where a node should follow"),
        ("at 1 s: kill from", "is not the name of a node"),
    ] {
        let error = text.parse::<Schedule>().unwrap_err();
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
    let error = "at 1 s: kill a; at 2 s: klil a".parse::<Schedule>().unwrap_err();
    assert_eq!(error.rule, 2);
}

fn cluster() -> Vec<String> {
    ["node-1", "node-2", "node-3"].map(String::from).into()
}

#[test]
fn expansion_names_nodes_and_counts_times() {
    let schedule = parse("every 10 s: kill any, restart after 4 s; at 12 s: cut node-1 from rest");
    let timed = schedule.expand(&cluster(), Duration::from_secs(45), 7).unwrap();
    let text: Vec<String> = timed
        .iter()
        .map(|line| {
            let what = match &line.action {
                Action::Inject { fault } => fault.to_string(),
                Action::Undo { undo } => format!("{undo:?}"),
            };
            format!("{} {} {what}", line.at.as_secs(), line.injection)
        })
        .collect();
    let times: Vec<u64> = timed.iter().map(|line| line.at.as_secs()).collect();
    assert_eq!(times, [10, 12, 14, 20, 24, 30, 34, 40, 44, 45]);
    assert_eq!(text[1], "12 4 cut node-1 from {node-2, node-3}");
    assert_eq!(text[9], "45 4 Heal");
    assert_eq!(timed, schedule.expand(&cluster(), Duration::from_secs(45), 7).unwrap());
    // Over many draws every node has its turn, and a rule in front changes no draw of its own seed's stream.
    let many = parse("every 1 s: kill any").expand(&cluster(), Duration::from_secs(300), 1).unwrap();
    for node in cluster() {
        let named = Fault::Kill { nodes: Nodes::Named(vec![node]) };
        let turns = many.iter().filter(|line| line.action == Action::Inject { fault: named.clone() }).count();
        assert!((70..130).contains(&turns), "{turns}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_before_it_begins() {
    let end = Duration::from_secs(60);
    for (text, reason) in [
        ("at 1 s: kill node-4", "there is no node \"node-4\" among node-1, node-2, node-3; did you mean"),
        ("at 1 s: cut node-1 from {node-2, node-1}", "on both sides"),
        ("at 1 s: cut all from rest", "there is no rest"),
        ("at 2 min: kill any", "never acts within 1 min"),
        ("every 1 us: kill any", "more than 100000 injections"),
    ] {
        let error = parse(text).expand(&cluster(), end, 1).unwrap_err();
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
}

#[test]
fn actions_are_data_that_reads_back() {
    let timed = parse("every 10 s: delay node-1 to rest by 3 ms for 1 s; at 1 s: squeeze cpu of all to 10 %")
        .expand(&cluster(), Duration::from_secs(30), 1)
        .unwrap();
    let json = serde_json::to_string(&timed).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Timed>>(&json).unwrap(), timed);
    let schedule = parse("at 1 s: kill node-1");
    let json = serde_json::to_string(&schedule).unwrap();
    assert_eq!(json, "\"at 1 s: kill node-1\"");
    assert_eq!(serde_json::from_str::<Schedule>(&json).unwrap(), schedule);
}
