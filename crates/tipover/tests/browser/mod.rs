//! A real browser that looks at pages, and says what it saw, what it fetched and what it complained about.

// Each test binary compiles this folder for itself and uses a part of it.
#![allow(dead_code)]

use base64::Engine as _;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the browser said about a page.
pub struct Seen {
    /// The page after its scripts have run.
    pub document: String,
    /// What was written to the console.
    pub console: Vec<String>,
    /// What was fetched, or asked for.
    pub requests: Vec<String>,
}

impl Seen {
    /// The value of an attribute of the document's root, such as `data-charts`.
    pub fn root(&self, attribute: &str) -> &str {
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

/// Chromium.
pub struct Browser {
    program: PathBuf,
}

impl Browser {
    /// `None`, with the reason on stderr, where there is no browser and there need not be one.
    pub fn find() -> Option<Self> {
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
    pub fn read(&self, page: &str, more: &[&str]) -> Seen {
        self.run((1280, 1000), page, "--dump-dom", more)
    }

    /// A picture of the page, kept as `name`.
    pub fn look(&self, size: (u32, u32), page: &str, name: &str) -> Vec<u8> {
        let picture = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_file(&picture);
        self.run(size, page, &format!("--screenshot={}", picture.display()), &[]);
        fs::read(&picture).unwrap_or_else(|e| panic!("no picture {}: {e}", picture.display()))
    }
}

/// A page that is open, and can be looked at again and again while it changes.
pub struct Tab {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    asked: u64,
    session: String,
    /// What was written to the console, thrown, or logged by the browser.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Opens a page and goes on. The browser is told what to do over a pipe (its DevTools protocol).
    pub fn open(&self, size: (u32, u32), page: &str) -> Tab {
        let profile = tempfile::tempdir().expect("a folder for the browser's profile");
        // The shell puts the pipes where the browser looks for them.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>&1", "sh"])
            .arg(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update"])
            .args(["--remote-debugging-pipe", &format!("--window-size={},{}", size.0, size.1)])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{} does not start: {e}", self.program.display()));
        let (to, out) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (said, from) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if said.send(message).is_err() {
                    return;
                }
            }
        });
        let (session, complaints) = Default::default();
        let mut tab = Tab { child, to, from, asked: 0, session, complaints, _profile: profile };
        let target = tab.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        tab.session = tab.call("Target.attachToTarget", target)["sessionId"].as_str().expect("a name").into();
        for domain in ["Runtime.enable", "Log.enable", "Page.enable"] {
            tab.call(domain, json!({}));
        }
        tab.call("Page.navigate", json!({"url": page}));
        tab
    }
}

impl Tab {
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let mut message = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("the browser listens");
        loop {
            let heard = self.from.recv_timeout(Duration::from_secs(180));
            let heard = heard.unwrap_or_else(|e| panic!("the browser does not answer {method}: {e}"));
            if heard["id"] == self.asked {
                assert!(heard["error"].is_null(), "{method}: {heard}");
                return heard["result"].clone();
            }
            let event = heard["method"].as_str().unwrap_or_default();
            if ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"].contains(&event) {
                self.complaints.push(heard["params"].to_string());
            }
        }
    }

    /// What an expression comes to in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        self.call("Runtime.evaluate", asked)["result"]["value"].clone()
    }

    /// Looks until the expression is true in the page.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let patience = Instant::now() + Duration::from_secs(180);
        while self.evaluate(expression) != json!(true) {
            let text = self.evaluate("document.body?.innerText");
            assert!(Instant::now() < patience, "never came true: {expression}: {text}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Shows the page as it goes onto paper: A4 without its margins, in CSS pixels.
    pub fn as_paper(&mut self) {
        self.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
        let sheet = json!({"width": 688, "height": 1017, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", sheet);
    }

    /// How many sheets the page is on paper, as the browser prints it.
    pub fn sheets(&mut self) -> usize {
        let printed = self.call("Page.printToPDF", json!({"preferCSSPageSize": true}));
        let printed = printed["data"].as_str().expect("base64");
        let printed = base64::engine::general_purpose::STANDARD.decode(printed).expect("base64");
        let page = b"/Type /Page\n";
        printed.windows(page.len()).filter(|at| at == page).count()
    }

    /// What the page holds after all that nobody needs is gone: bytes of its scripts, and nodes.
    pub fn room(&mut self) -> (f64, f64) {
        self.call("HeapProfiler.collectGarbage", json!({}));
        let bytes = self.call("Runtime.getHeapUsage", json!({}))["usedSize"].as_f64().expect("a number");
        let nodes = self.call("Memory.getDOMCounters", json!({}))["nodes"].as_f64().expect("a number");
        (bytes, nodes)
    }

    /// A picture of the whole page, kept as `name`.
    pub fn look(&mut self, name: &str) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let picture = picture["data"].as_str().expect("base64");
        let picture = base64::engine::general_purpose::STANDARD.decode(picture).expect("base64");
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), &picture).expect("our own folder");
        picture
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The address of a file.
pub fn url(file: &Path) -> String {
    format!("file://{}", file.display())
}

/// Fails unless every chart was drawn, nothing was fetched and nobody complained.
pub fn assert_whole(seen: &Seen) {
    let charts = seen.root("data-charts");
    let (drawn, expected) = charts.split_once('/').expect("drawn/expected");
    assert!(drawn == expected && drawn != "0", "{charts} charts were drawn");
    assert_eq!(seen.root("data-errors"), "0", "the page reports errors");
    assert_eq!(seen.root("data-requests"), "0", "the page fetched something");
    assert_eq!(seen.console, Vec::<String>::new(), "the console is not empty");
    assert_eq!(seen.requests, Vec::<String>::new(), "the network was asked");
    let pictures = seen.root("data-pictures");
    assert!(
        pictures.split_once('/').is_none_or(|(drawn, all)| drawn == all),
        "{pictures} pictures are drawn"
    );
    let plots = seen.document.matches("class=\"main-svg\"").count();
    let expected: usize = expected.parse().expect("a number of charts");
    assert!(plots >= expected, "{plots} plots for {expected} charts");
}
