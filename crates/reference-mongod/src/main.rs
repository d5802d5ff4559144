//! The reference peer as a program, for trying things by hand.

use std::io::BufRead;
use std::time::Duration;
use tipover_reference_mongod::{Bugs, Manners, ReplicaSet, Settings, member, router};

const HELP: &str =
    "reference-mongod [--nodes N] [--set NAME] [--port P] [--login USER:PASSWORD]
    [--manners current|4.0] [--bug NAME]...
This is not MongoDB: a small server with its wire protocol and the manners of a replica set, in memory.
It prints its address, then obeys lines on stdin: kill N, restart N, cut N, heal, step-down N, bug NAME, quit.
It ends when stdin does.

With --replSet (and --configdb) it is started as a mongod (and a mongos) is, one process a member:
--replSet NAME --dbpath D --port P --bind_ip ADDRESS,SOCKET, or --configdb SET/HOST:PORT,... --port P --bind_ip A.
`--manners 4.0` makes it know no hello. --journalCommitInterval MS is obeyed, and so are replSetInitiate, hello,
replSetGetStatus, replSetStepDown, -StepUp and -Freeze; other options are taken and ignored.";

fn main() {
    if let Err(text) = run() {
        eprintln!("reference-mongod: {text}\n\n{HELP}");
        std::process::exit(2);
    }
}

fn manners(name: &str) -> Result<Manners, String> {
    Manners::named(name).ok_or(format!("--manners is current or 4.0, not \"{name}\""))
}

fn settings() -> Result<Settings, String> {
    let mut settings = Settings::default();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--help" || word == "-h" {
            println!("{HELP}\nBugs: {}", Bugs::NAMES.join(", "));
            std::process::exit(0);
        }
        let value = words.next().ok_or(format!("{word} needs a value"))?;
        let wrong = |_| format!("{word} needs a number, not \"{value}\"");
        match word.as_str() {
            "--nodes" => settings.nodes = value.parse().map_err(wrong)?,
            "--port" => settings.port = value.parse().map_err(wrong)?,
            "--set" => settings.set_name = Some(value),
            "--manners" => settings.manners = manners(&value)?,
            "--login" => {
                let (user, password) = value.split_once(':').ok_or("--login needs USER:PASSWORD")?;
                settings.login = Some((user.into(), password.into()));
            }
            "--bug" if settings.bugs.switch_on(&value) => {}
            "--bug" => return Err(format!("no bug \"{value}\"; there are: {}", Bugs::NAMES.join(", "))),
            _ => return Err(format!("unknown option {word}")),
        }
    }
    if !(1..=7).contains(&settings.nodes) {
        return Err("--nodes is 1 to 7".into());
    }
    if settings.nodes > 1 {
        settings.set_name.get_or_insert_with(|| "rs0".into());
    }
    Ok(settings)
}

/// As a mongod or a mongos, if it is started like one; `None` if not.
fn as_mongod() -> Option<Result<(), String>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--version") {
        println!("db version v0.0.0-reference\nThis is not MongoDB.");
        return Some(Ok(()));
    }
    let value = |name: &str| {
        let at = words.iter().position(|word| word == name)?;
        words.get(at + 1).cloned()
    };
    let addresses = || value("--bind_ip").unwrap_or_default().split(',').map(str::to_string).collect();
    let port = value("--port").and_then(|port| port.parse().ok()).unwrap_or(27017);
    let text = |error: std::io::Error| error.to_string();
    let manners = match value("--manners").map_or(Ok(Manners::Current), |name| manners(&name)) {
        Ok(manners) => manners,
        Err(wrong) => return Some(Err(wrong)),
    };
    if let Some(configuration) = value("--configdb") {
        let addresses: Vec<String> = addresses();
        return Some(router::serve(&configuration, &addresses, port, manners).map_err(text));
    }
    let set = value("--replSet")?;
    let folder = value("--dbpath").unwrap_or_else(|| "/data/db".into()).into();
    let journal = match value("--journalCommitInterval").map(|text| (text.parse(), text)) {
        None => None,
        Some((Ok(ms @ 1..=500), _)) => Some(Duration::from_millis(ms)),
        Some((_, text)) => {
            return Some(Err(format!("--journalCommitInterval is 1 to 500 ms, not \"{text}\"")));
        }
    };
    let started = member::Started { set, folder, addresses: addresses(), port, manners, journal };
    Some(member::serve(started).map_err(text))
}

fn run() -> Result<(), String> {
    if let Some(ended) = as_mongod() {
        return ended;
    }
    let settings = settings()?;
    let (nodes, mut bugs) = (settings.nodes, settings.bugs);
    let mut set = ReplicaSet::start(settings).map_err(|error| error.to_string())?;
    println!("{}", set.url());
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        let (verb, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
        let node = rest.parse::<usize>().ok().filter(|node| *node < nodes);
        match (verb, node) {
            ("kill", Some(node)) => set.kill(node),
            ("restart", Some(node)) => set.restart(node).map_err(|error| error.to_string())?,
            ("cut", Some(node)) => set.cut(&[node]),
            ("step-down", Some(node)) => set.step_down(node),
            ("heal", _) => set.heal(),
            ("bug", _) if bugs.switch_on(rest) => set.set_bugs(bugs),
            ("quit", _) => break,
            _ => eprintln!("not understood: {line}"),
        }
        println!("primary: {:?}", set.primary());
    }
    Ok(())
}
