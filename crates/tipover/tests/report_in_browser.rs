//! The report as its readers meet it: opened from a file, in a real browser, in both themes, wide and narrow.
//!
//! Needs Chromium (`apt-get install chromium`, or its path in `CHROMIUM`). Without one the tests say so and
//! pass, except in CI, where they fail. The pictures stay in `target/tmp` for whoever wants to look at them.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the browser said about a page.
struct Seen {
    document: String,
    console: Vec<String>,
    requests: Vec<String>,
}

impl Seen {
    /// The value of an attribute of the document's root, such as `data-charts`.
    fn root(&self, attribute: &str) -> &str {
        let root = self.document.split_once("<html").and_then(|(_, rest)| rest.split_once('>'));
        let (root, _) = root.unwrap_or_else(|| panic!("no document came back: {:.300}", self.document));
        root.split_once(&format!("{attribute}=\""))
            .and_then(|(_, v)| v.split_once('"'))
            .map_or("", |(v, _)| v)
    }
}

/// A proxy that lets nothing through and remembers who asked: what a page fetches, it fetches from here.
struct Tollgate {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tollgate {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
        let address = listener.local_addr().expect("a bound listener has an address").to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || {
                    let mut line = String::new();
                    let _ = BufReader::new(&stream).read_line(&mut line);
                    // Chromium calls home (time, sign-in, updates) whatever it is told; no page of ours would
                    // ask Google.
                    if !["google.com", "googleapis.com", "gstatic.com", "gvt1.com"]
                        .iter()
                        .any(|h| line.contains(h))
                    {
                        log.lock().expect("no thread panics with the log").push(line.trim().to_string());
                    }
                    let _ = stream.write_all(
                        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                    );
                });
            }
        });
        Tollgate { address, asked }
    }
}

struct Browser {
    program: PathBuf,
}

impl Browser {
    /// `None`, with the reason on stderr, where there is no browser and there need not be one.
    fn find() -> Option<Self> {
        let named = std::env::var_os("CHROMIUM").filter(|v| !v.is_empty()).map(PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
        let on_path =
            || std::env::split_paths(&path).flat_map(|dir| names.map(|n| dir.join(n))).find(|p| p.exists());
        match named.or_else(on_path) {
            Some(program) => Some(Browser { program }),
            None if std::env::var("CI").is_ok_and(|v| v == "true") => {
                panic!("CI must look at the report, and there is no Chromium: apt-get install chromium")
            }
            None => {
                eprintln!(
                    "SKIPPED: nobody looked at the report, there is no Chromium (apt-get install chromium)"
                );
                None
            }
        }
    }

    fn run(&self, size: (u32, u32), page: &str, what: &str, more: &[&str]) -> Seen {
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        let gate = Tollgate::open();
        let (out, err) = (profile.path().join("stdout"), profile.path().join("stderr"));
        let mut child = Command::new(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--hide-scrollbars", "--enable-logging=stderr", "--virtual-time-budget=30000"])
            .args(["--proxy-bypass-list=<-loopback>", "--allow-file-access-from-files"])
            .arg(format!("--proxy-server=http://{}", gate.address))
            .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
            .arg(format!("--window-size={},{}", size.0, size.1))
            .args(more)
            .args([what, page])
            .stdin(Stdio::null())
            .stdout(File::create(&out).expect("a file for the browser's output"))
            .stderr(File::create(&err).expect("a file for the browser's complaints"))
            .spawn()
            .unwrap_or_else(|e| panic!("{} does not start: {e}", self.program.display()));
        let began = Instant::now();
        while child.try_wait().expect("the browser is our child").is_none() {
            if began.elapsed() > Duration::from_secs(180) {
                child.kill().expect("the browser is our child");
                panic!("the browser did not finish {page} in three minutes");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let text = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let console = text(&err).lines().filter(|l| l.contains("CONSOLE")).map(String::from).collect();
        let requests = gate.asked.lock().expect("no thread panics with the log").clone();
        Seen { document: text(&out), console, requests }
    }

    /// The page after its scripts have run.
    fn read(&self, page: &str, more: &[&str]) -> Seen {
        self.run((1280, 1000), page, "--dump-dom", more)
    }

    /// A picture of the page, kept as `name`.
    fn look(&self, size: (u32, u32), page: &str, name: &str) -> Vec<u8> {
        let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_file(&picture);
        self.run(size, page, &format!("--screenshot={}", picture.display()), &[]);
        fs::read(&picture).unwrap_or_else(|e| panic!("no picture {}: {e}", picture.display()))
    }
}

/// The sample report, written by the binary as any user would.
fn sample(folder: &Path) -> PathBuf {
    let file = folder.join("sample.html");
    let status = Command::new(env!("CARGO_BIN_EXE_tipover")).args(["sample-report"]).arg(&file).status();
    assert!(status.expect("tipover starts").success(), "tipover report --sample failed");
    file
}

/// The sample report, with `from` replaced by `to`.
fn sample_with(folder: &Path, from: &str, to: &str) -> String {
    let file = sample(folder);
    let text = fs::read_to_string(&file).expect("the report is a file");
    assert!(text.contains(from), "the report has no {from:?} any more; this test checks nothing");
    fs::write(&file, text.replacen(from, to, 1)).expect("the report can be changed");
    url(&file)
}

fn url(file: &Path) -> String {
    format!("file://{}", file.display())
}

fn assert_whole(seen: &Seen) {
    let charts = seen.root("data-charts");
    let (drawn, expected) = charts.split_once('/').expect("drawn/expected");
    assert!(drawn == expected && drawn != "0", "{charts} charts were drawn");
    assert_eq!(seen.root("data-errors"), "0", "the page reports errors");
    assert_eq!(seen.root("data-requests"), "0", "the page fetched something");
    assert_eq!(seen.console, Vec::<String>::new(), "the console is not empty");
    assert_eq!(seen.requests, Vec::<String>::new(), "the network was asked");
    let plots = seen.document.matches("class=\"main-svg\"").count();
    let expected: usize = expected.parse().expect("a number of charts");
    assert!(plots >= expected, "{plots} plots for {expected} charts");
}

#[test]
fn every_chart_is_drawn_in_both_themes_without_network() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = url(&sample(folder.path()));
    for (asked, offered) in [("light", "Dark theme"), ("dark", "Light theme")] {
        let seen = browser.read(&format!("{page}?theme={asked}"), &[]);
        assert_whole(&seen);
        assert_eq!(seen.root("data-theme"), asked);
        assert!(
            seen.document.contains(&format!(">{offered}</button>")),
            "{asked}: the button offers the other theme"
        );
    }
}

#[test]
fn the_theme_follows_the_system() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = url(&sample(folder.path()));
    for (setting, offered) in [("1", "Dark theme"), ("0", "Light theme")] {
        let seen = browser.read(&page, &[&format!("--blink-settings=preferredColorScheme={setting}")]);
        assert_whole(&seen);
        assert!(seen.document.contains(&format!(">{offered}</button>")), "setting {setting} is not followed");
    }
}

#[test]
fn pictures_are_neither_blank_nor_alike() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = url(&sample(folder.path()));
    let light = browser.look((1280, 5400), &format!("{page}?theme=light"), "report-light.png");
    let dark = browser.look((1280, 5400), &format!("{page}?theme=dark"), "report-dark.png");
    for picture in [&light, &dark] {
        assert!(picture.starts_with(b"\x89PNG"), "a picture is a PNG");
        // A blank picture of this size is about 30 kB: PNG folds equal pixels away.
        assert!(picture.len() > 200_000, "a page full of text and charts in only {} bytes", picture.len());
    }
    assert_ne!(light, dark, "the themes look the same");
}

/// Chromium's own window is never narrower than 500 pixels, so the phone is a frame.
#[test]
fn a_phone_shows_all_of_it() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    sample(folder.path());
    let phone = folder.path().join("phone.html");
    let frame = r#"<body style="margin:0"><iframe src="sample.html?theme=light" style="border:0;width:420px;height:8600px"></iframe>
        <script>
        setInterval(() => {
          const inner = document.querySelector("iframe").contentDocument, root = inner.documentElement;
          document.documentElement.dataset.charts = root.dataset.charts;
          document.documentElement.dataset.beyond = root.scrollWidth - root.clientWidth;
          document.documentElement.dataset.widest = Math.max(...[...inner.querySelectorAll(".main-svg")].map((s) => s.getBoundingClientRect().right));
        }, 100);
        </script>"#;
    fs::write(&phone, frame).expect("the phone can be written");
    let seen = browser.read(&url(&phone), &[]);
    assert!(!seen.root("data-charts").starts_with("0/"), "no charts were drawn on the phone");
    assert_eq!(seen.root("data-beyond"), "0", "the page must be pushed sideways to be read");
    let widest: f64 = seen.root("data-widest").parse().expect("a width");
    assert!((200.0..=420.0).contains(&widest), "a chart reaches to {widest} of 420 pixels");
    browser.look((500, 8600), &url(&phone), "report-phone.png");
}

/// The other tests are worth something only if a broken page fails them.
#[test]
fn a_broken_page_says_so() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = sample_with(folder.path(), "await Plotly.react(", "await Plotly.missing(");
    let seen = browser.read(&page, &[]);
    assert!(seen.root("data-charts").starts_with("0/"), "{}", seen.root("data-charts"));
    assert_ne!(seen.root("data-errors"), "0");
    assert!(!seen.document.contains("role=\"alert\" hidden"), "the banner is hidden");
    assert!(seen.document.contains("is not a function"), "the banner does not say what is wrong");
}

#[test]
fn the_page_cannot_reach_the_network_even_if_it_tries() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let spy = r#"<main><img src="http://example.org/spy.png">"#;
    let refused = browser.read(&sample_with(folder.path(), "<main>", spy), &[]);
    assert_eq!(refused.requests, Vec::<String>::new(), "the page's policy let a request through");
    assert_ne!(refused.root("data-errors"), "0", "a refused request is not shown");
    assert!(!refused.console.is_empty(), "the browser's console is not read");

    // Without its policy the same page is caught asking, so an empty list above means something.
    let open = folder.path().join("open.html");
    fs::write(&open, format!("<html><body>{spy}</body></html>")).expect("the page can be written");
    let caught = browser.read(&url(&open), &[]);
    assert!(
        caught.requests.iter().any(|r| r.contains("example.org")),
        "nobody watches: {:?}",
        caught.requests
    );
}
