//! `--live` with the built program: a page that follows a run, in a real browser, and the same figures for
//! Prometheus.

mod browser;
mod program;

use browser::Browser;
use program::{Place, alone, can_mount, skipped};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A port that was free a moment ago.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("loopback").port()
}

/// What `/metrics` says; `None` where nobody listens.
fn metrics(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// The value of the line that begins so.
fn value(text: &str, begin: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(begin))?.trim().parse().ok()
}

#[test]
fn a_drop_in_tells_its_figures_while_it_runs() {
    let (place, port) = (Place::new(), port());
    let live = format!("--live={port}");
    let run = place.start(&[
        "ycsb",
        &live,
        "run",
        "null",
        "-p",
        "recordcount=1000",
        "-p",
        "operationcount=0",
        "-p",
        "maxexecutiontime=6",
        "-p",
        "status.interval=1",
    ]);
    let patience = Instant::now() + Duration::from_secs(60);
    let mut seen = Vec::new();
    while let Some(done) = metrics(port)
        .map_or(Some(0.0), |text| value(&text, "tipover_operations_total{outcome=\"done\"}"))
        .filter(|_| seen.len() < 3 && Instant::now() < patience)
    {
        if done > seen.last().copied().unwrap_or(0.0) {
            seen.push(done);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let ended = run.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("live: http://127.0.0.1:{port}/")), "{}", ended.stderr);
    assert!(seen.len() == 3 && seen.is_sorted(), "it grows while the run goes on: {seen:?}");
    let counted = value(&ended.stdout, "[READ], Operations, ").expect("YCSB's own count");
    assert!(seen[2] <= counted * 2.0 && counted > 0.0, "{seen:?} of {counted}: no more than was done");
    assert!(metrics(port).is_none(), "nobody listens when the run is over");
}

/// Hours are many updates: what is drawn again and again must not pile up in the page.
#[test]
fn a_page_that_is_followed_for_long_does_not_grow() {
    let Some(browser) = Browser::find() else { return };
    let (place, port) = (Place::new(), port());
    let live = format!("--live={port}");
    let bounded = ["-p", "recordcount=1000", "-p", "operationcount=0", "-p", "maxexecutiontime=12"];
    let run =
        place.start(&[&["ycsb", &live, "run", "null"][..], &bounded, &["-p", "status.interval=1"]].concat());
    let patience = Instant::now() + Duration::from_secs(60);
    while metrics(port)
        .is_none_or(|text| value(&text, "tipover_operations_total{outcome=\"done\"}") == Some(0.0))
    {
        assert!(Instant::now() < patience, "nothing is measured");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut tab = browser.open((1280, 1000), &format!("http://127.0.0.1:{port}/"));
    tab.wait_for("document.querySelector('#answer')?.innerText.includes('The run is over.')");
    assert_eq!(run.wait().code, Some(0));
    // From here on by hand: the state that came last, a second later each time.
    tab.evaluate(
        "window.later = async (from, to) => {
           window.shown = 0;
           const text = document.getElementById('page').textContent;
           for (let n = from; n < to; n += 1) {
             const page = JSON.parse(text);
             const panels = page.sections.flatMap((s) => s.blocks).flatMap((b) => b.panels?.charts ?? []);
             for (const point of panels.flatMap((c) => c.series).flatMap((s) => s.points)) point.x += n;
             await tipoverShow(page);
             window.shown = n + 1;
           }
         }; 0",
    );
    let mut shown = |from: u32, to: u32| {
        tab.evaluate(&format!("later({from}, {to}).catch(tipoverFailed); 0"));
        tab.wait_for(&format!("window.shown === {to} || document.documentElement.dataset.errors !== '0'"));
        assert_eq!(tab.evaluate("document.documentElement.dataset.errors"), "0");
        tab.room()
    };
    let (early, late) = (shown(0, 60), shown(60, 300));
    println!("bytes and nodes after 60 updates: {early:?}, after 300: {late:?}");
    assert!(early.1 > 500.0, "there are charts");
    // Plotly keeps something of every drawing: 9 kB of them all, so that hours are tens of megabytes.
    let kept = (late.0 - early.0) / 240.0;
    assert!(kept < 16e3, "{kept:.0} bytes an update: {early:?} bytes and nodes grew to {late:?}");
    assert!(late.1 < early.1 * 1.05 + 100.0, "{early:?} bytes and nodes grew to {late:?}");
}

#[test]
fn what_cannot_be_listened_on_is_said_before_anything_runs() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = taken.local_addr().expect("an address").port();
    for live in [format!("--live={port}"), "--live=nowhere".into()] {
        let ended = place.run(&["ycsb", &live, "run", "null", "-p", "operationcount=1"]);
        assert_eq!(ended.code, Some(2), "{}", ended.stderr);
        assert!(!ended.stderr.contains("Starting test"), "{}", ended.stderr);
    }
}

/// How many faults a result speaks of: those that tested something, and those before which a busy machine had
/// too little acknowledged for that. Nothing may be lost.
fn faults_of(said: &str) -> u32 {
    let number =
        |before: &str| -> Option<u32> { said.split_once(before)?.1.split_whitespace().next()?.parse().ok() };
    let tested = number("0 acknowledged writes lost in ").unwrap_or_default();
    assert!(tested > 0 && !said.contains("CONVICTED"), "{said}");
    let besides = said.split_once(" tested nothing").map_or(0, |(before, _)| {
        before.split_whitespace().rev().nth(2).and_then(|word| word.parse().ok()).unwrap_or_default()
    });
    tested + besides
}

/// Three faults, whose course is watched; then the same program again, for one run more, on the same port.
#[test]
fn a_browser_follows_a_database_that_is_broken_and_goes_on_with_the_next_run() {
    let Some(browser) = Browser::find() else { return };
    if !can_mount("a laboratory to be followed") {
        return;
    }
    let _alone = alone();
    let (place, port) = (Place::new(), port());
    let live = format!("--live={port}");
    let faults = "at 3 s: kill primary; at 7 s: slow disk of a by 20 ms for 2 s; at 11 s: pause a for 1 s";
    let run = |times: &str| {
        let arguments =
            ["break", "postgres", "--faults", faults, "--length", "14 s", "--disk", "latency=1ms"];
        place.start(&[&arguments[..], &["--disk-mode", "file", "--times", times, &live]].concat())
    };
    let first = run("1");
    let patience = Instant::now() + Duration::from_secs(120);
    while metrics(port).is_none() {
        assert!(Instant::now() < patience, "nobody listens");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut tab = browser.open((1280, 1000), &format!("http://127.0.0.1:{port}/"));
    let marks = "document.querySelectorAll('#now .plot')[0]?.layout?.annotations?.length";
    tab.wait_for("document.documentElement.dataset.updates > 1");
    tab.wait_for(&format!("{marks} === 3"));
    tab.wait_for("document.querySelector('#answer').innerText.includes('The run is over.')");
    let ended = first.wait();
    if ended.stderr.contains("is not installed") {
        return skipped("PostgreSQL to be followed: it is not installed");
    }
    assert_eq!(faults_of(&ended.stdout), 3, "{}{}", ended.stdout, ended.stderr);
    let budgets = tab.evaluate("document.querySelector('#budgets').innerText");
    let budgets = budgets.as_str().expect("a text");
    assert!(budgets.contains("node") && budgets.contains("device"), "bytes are accounted for: {budgets}");
    for title in ["Operations", "Residence of all operations", "Processor", "Disk queue"] {
        let there =
            format!("[...document.querySelectorAll('#now .panel b')].some((b) => b.innerText === '{title}')");
        assert_eq!(tab.evaluate(&there), true, "{title}");
    }
    let cells =
        "document.querySelectorAll('#now .plot')[2].data[0].z.flat().filter((z) => z !== null).length";
    assert!(tab.evaluate(cells).as_u64() > Some(20), "the map of residence has cells");
    assert!(tab.look("live.png").len() > 20_000, "a picture of it");
    tab.wait_for("document.querySelector('[role=status]').innerText.startsWith('No connection since')");

    let second = run("2");
    tab.wait_for("document.querySelector('[role=status]').innerText.startsWith('Connected')");
    tab.wait_for("document.querySelector('#answer').innerText.includes('2 of 2 trials are over')");
    assert_eq!(tab.evaluate("document.documentElement.dataset.errors"), "0");
    assert_eq!(faults_of(&second.wait().stdout), 6);
    // That nobody answered in between is what the browser has to say of a server that is gone.
    let own = |complaint: &&String| !complaint.contains("net::ERR_");
    let complaints: Vec<&String> = tab.complaints.iter().filter(own).collect();
    assert!(complaints.is_empty(), "the console is not empty: {complaints:?}");
}
