//! The report as its readers meet it: opened from a file, in a real browser, in both themes, wide and narrow.
//!
//! Needs Chromium (`apt-get install chromium`, or its path in `CHROMIUM`). Without one the tests say so and
//! pass, except in CI, where they fail. The pictures stay in `target/tmp` for whoever wants to look at them.
//!
//! This is the sample, with all that a report can hold; the report of a real study is looked at where that
//! study is run, in `end_to_end.rs`.

mod browser;

use browser::{Browser, assert_whole, url};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sample report, written by the binary as any user would.
fn sample(folder: &Path) -> PathBuf {
    let file = folder.join("sample.html");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/golden/sample.json");
    let status = Command::new(env!("CARGO_BIN_EXE_tipover"))
        .args(["sample-report", "--page", page])
        .arg(&file)
        .status();
    assert!(status.expect("tipover starts").success(), "tipover sample-report failed");
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
    let frame = r#"<body style="margin:0"><iframe src="sample.html?theme=light" style="border:0;width:390px;height:8600px"></iframe>
        <script>
        setInterval(() => {
          const inner = document.querySelector("iframe").contentDocument, root = inner.documentElement;
          document.documentElement.dataset.charts = root.dataset.charts;
          document.documentElement.dataset.beyond = root.scrollWidth - root.clientWidth;
          const pictures = [...inner.querySelectorAll(".main-svg")];
          const right = (picture) => picture.getBoundingClientRect().right;
          document.documentElement.dataset.widest = Math.max(...pictures.map(right));
        }, 100);
        </script>"#;
    fs::write(&phone, frame).expect("the phone can be written");
    let seen = browser.read(&url(&phone), &[]);
    assert!(!seen.root("data-charts").starts_with("0/"), "no charts were drawn on the phone");
    assert_eq!(seen.root("data-beyond"), "0", "the page must be pushed sideways to be read");
    let widest: f64 = seen.root("data-widest").parse().expect("a width");
    assert!((200.0..=390.0).contains(&widest), "a chart reaches to {widest} of 390 pixels");
    browser.look((500, 8600), &url(&phone), "report-phone.png");
}

/// Presses the buttons of the moving picture as a reader does, and notes on the page's root what the canvas
/// then showed. Time is the browser's own and virtual, so a slow machine shows the same.
const PRESSES: &str = r#"<script>
addEventListener("load", async () => {
  const figure = document.querySelector(".accesses"), root = document.documentElement;
  const canvas = figure.querySelector(".places"), play = figure.querySelector(".play");
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const pixels = () => canvas.toDataURL();
  const at = () => Number(figure.dataset.at);
  const note = (name, value) => { root.dataset[name] = String(value); };
  await wait(300);
  const whole = pixels();
  const values = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  note("colours", new Set(Array.from({ length: values.length / 4 }, (_, i) => values.slice(4 * i, 4 * i + 3).join())).size);
  play.click();
  await wait(500);
  const first = pixels();
  await wait(500);
  note("moves", first !== pixels() && first !== whole && figure.dataset.state === "playing");
  play.click();
  const [held, moment] = [pixels(), at()];
  await wait(700);
  note("stops", held === pixels() && moment === at() && figure.dataset.state === "paused");
  const speed = figure.querySelector(".speed"), advanced = {};
  for (const factor of ["0.5", "2"]) {
    speed.value = factor;
    play.click();
    const begin = at(), since = performance.now();
    await wait(400);
    play.click();
    advanced[factor] = (at() - begin) / (performance.now() - since);
  }
  note("faster", (advanced["2"] / advanced["0.5"]).toFixed(2));
  const slider = figure.querySelector(".moment");
  slider.value = "300";
  slider.dispatchEvent(new Event("input"));
  const middle = pixels();
  figure.querySelectorAll(".kind input").forEach((box) => box.click());
  note("hides", middle !== pixels() && at() === 300);
  document.getElementById("theme").click();
  await wait(300);
  note("repaints", pixels() !== middle);
  note("ended", "true");
});
</script></body>"#;

#[test]
fn the_moving_picture_plays_stops_and_obeys_its_speed() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let page = sample_with(folder.path(), "</body>", PRESSES);
    for theme in ["light", "dark"] {
        let seen = browser.read(&format!("{page}?theme={theme}"), &[]);
        assert_eq!(seen.root("data-ended"), "true", "the script did not come to its end: {:?}", seen.console);
        assert_eq!(seen.root("data-errors"), "0", "the page reports errors");
        assert_eq!(seen.root("data-pictures"), "1/1");
        for what in ["data-moves", "data-stops", "data-hides", "data-repaints"] {
            assert_eq!(seen.root(what), "true", "{theme}: {what}");
        }
        let colours: usize = seen.root("data-colours").parse().expect("a number");
        assert!(colours >= 3, "{theme}: paper, small and large reads differ, found {colours} colours");
        // Four times as fast; frames of the virtual clock are coarse.
        let faster: f64 = seen.root("data-faster").parse().expect("a number");
        assert!((3.0..5.5).contains(&faster), "{theme}: twice against half speed is {faster}");
    }
}

/// Saves the first chart in both forms, and notes on the page's root what a reader would find in the files.
const SAVES: &str = r#"<script>
addEventListener("load", async () => {
  const root = document.documentElement, saved = {};
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  HTMLAnchorElement.prototype.click = function () { saved[this.download.split(".").pop()] = this.href; };
  await wait(500);
  const caption = document.querySelector("figure.chart figcaption").textContent;
  document.querySelectorAll("figure.chart .save")[0].querySelectorAll("button").forEach((button) => button.click());
  for (let n = 0; n < 100 && Object.keys(saved).length < 2; n += 1) await wait(100);
  root.dataset.svg = String(decodeURIComponent(saved.svg ?? "").includes(caption.slice(0, 20)));
  root.dataset.png = String((saved.png ?? "").startsWith("data:image/png") && saved.png.length > 10000);
  root.dataset.ended = "true";
});
</script></body>"#;

#[test]
fn pictures_are_saved_with_their_caption() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let seen = browser.read(&sample_with(folder.path(), "</body>", SAVES), &[]);
    assert_eq!(seen.root("data-ended"), "true", "the script did not come to its end: {:?}", seen.console);
    assert_eq!((seen.root("data-svg"), seen.root("data-png")), ("true", "true"));
    assert_eq!(seen.root("data-errors"), "0", "{:?}", seen.console);
}

/// No table of many columns is wider than a phone.
#[test]
fn a_phone_shows_wide_tables_as_cards() {
    const MEASURES: &str = r#"<script>
addEventListener("load", () => {
  const wide = [...document.querySelectorAll("main > section > figure > .scroll > .wide")];
  const root = document.documentElement;
  root.dataset.wide = String(wide.length);
  root.dataset.over = String(wide.filter((table) => table.scrollWidth > table.closest("figure").clientWidth + 1).length);
});
</script></body>"#;
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    // A headless browser's own window is never narrower than 500 pixels, which is a phone to the page's
    // style.
    let page = sample_with(folder.path(), "</body>", MEASURES);
    let seen = browser.read(&page, &["--window-size=500,1000"]);
    assert_ne!(seen.root("data-wide"), "0", "the sample has wide tables");
    assert_eq!(seen.root("data-over"), "0", "tables run off the edge");
}

/// Paper cannot be scrolled: what does not fit onto the sheet is gone.
#[test]
fn on_paper_nothing_is_cut_and_heads_come_again() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let mut tab = browser.open((1280, 1000), &url(&sample(folder.path())));
    tab.wait_for("document.documentElement.dataset.drawnAfterMs !== undefined");
    let sheets = tab.sheets();
    assert!((4..=10).contains(&sheets), "{sheets} sheets");
    tab.as_paper();
    let mut of = |what: &str| tab.evaluate(what);
    assert_eq!(of("getComputedStyle(document.querySelector('nav')).display"), "none");
    assert_eq!(of("getComputedStyle(document.querySelector('thead')).display"), "table-header-group");
    // What is printed is what stands there when printing begins: nothing is drawn anew before.
    let end = "getBoundingClientRect().bottom";
    let plots = "[...document.querySelectorAll('.chart .plot')]";
    let over = format!("{plots}.filter((p) => p.querySelector('svg').{end} > p.{end} + 1).length");
    assert_ne!(of(&format!("{plots}.length")), 0);
    assert_eq!(
        of(&format!("dispatchEvent(new Event('beforeprint')), {over}")),
        0,
        "a picture lies over its words"
    );
    // Wherever a table is in a box, all of it is shown; the browser makes a sheet a quarter smaller at most.
    let boxes = "[...document.querySelectorAll('main > section > figure > .scroll')]";
    assert_ne!(of(&format!("{boxes}.length")), 0);
    let cut = of(&format!("{boxes}.filter((b) => getComputedStyle(b).overflow !== 'visible').length"));
    assert_eq!(cut, 0, "a box hides a part of its table");
    let wide = of(&format!("Math.max(...{boxes}.map((b) => b.firstElementChild.scrollWidth)) / 688"));
    assert!(wide.as_f64().is_some_and(|wide| wide < 1.25), "a table of {wide} sheets' width");
}

/// axe-core's rules of what keyboards and screen readers need; `None` where it was not fetched.
fn axe() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = root.join("third_party/axe-playwright-python-0.1.8/axe.min.js");
    let found = fs::read_to_string(file).ok();
    if found.is_none() {
        eprintln!(
            "SKIPPED: nobody checked the report for screen readers: `make setup ARGS=--tests` fetches axe-core"
        );
    }
    found
}

/// Runs axe-core when all is drawn, and notes on the page's root what it found wrong and how much was right.
const AXE: &str = r#"<script>
addEventListener("load", async () => {
  const root = document.documentElement;
  const drawn = () => root.dataset.charts.split("/");
  while (drawn()[0] !== drawn()[1]) await new Promise((wake) => setTimeout(wake, 50));
  const { violations, passes } = await axe.run(document);
  const nodes = (rule) => rule.nodes.slice(0, 3).map((node) => node.target.join(" ")).join(", ");
  root.dataset.wrong = violations.map((rule) => `${rule.id} (${rule.nodes.length}: ${nodes(rule)})`).join("; ").replace(/"/g, "'");
  root.dataset.right = String(passes.length);
});
</script></body>"#;

#[test]
fn keyboards_and_screen_readers_reach_everything() {
    let (Some(browser), Some(axe)) = (Browser::find(), axe()) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let file = sample(folder.path());
    let text = fs::read_to_string(&file).expect("the report is a file");
    let (before, after) = text.rsplit_once("</body>").expect("a page has a body");
    fs::write(&file, format!("{before}<script>{axe}</script>{AXE}{after}")).expect("it can be changed");
    for theme in ["light", "dark"] {
        let seen = browser.read(&format!("{}?theme={theme}", url(&file)), &[]);
        let right: usize = seen.root("data-right").parse().expect("axe-core came to its end");
        assert!(right > 20, "{theme}: only {right} rules were applied");
        assert_eq!(seen.root("data-wrong"), "", "{theme}");
    }
    // A page that is wrong is found out.
    let wrong = text.replacen("<main>", "<main><img src=\"data:,\"><button></button>", 1);
    let (before, after) = wrong.rsplit_once("</body>").expect("a page has a body");
    fs::write(&file, format!("{before}<script>{axe}</script>{AXE}{after}")).expect("it can be changed");
    let seen = browser.read(&url(&file), &[]);
    for rule in ["image-alt", "button-name"] {
        assert!(seen.root("data-wrong").contains(rule), "{rule}: {}", seen.root("data-wrong"));
    }
}

/// A hundred cells: under 3 MB, and there to be read before anything is drawn. The times are printed; how
/// long a second is depends on what else the machine does.
#[test]
fn a_page_of_a_hundred_cells_is_light() {
    let folder = tempfile::tempdir().expect("a folder");
    let large = folder.path().join("large.html");
    let written = Command::new(env!("CARGO_BIN_EXE_tipover"))
        .args(["sample-report", "--cells", "100"])
        .arg(&large)
        .status();
    assert!(written.expect("tipover starts").success(), "the page was not written");
    let bytes = fs::metadata(&large).expect("the report is a file").len();
    assert!(bytes < 3_000_000, "{bytes} bytes");
    let Some(browser) = Browser::find() else { return };
    let mut tab = browser.open((1280, 1000), &url(&large));
    tab.wait_for("document.documentElement.dataset.drawnAfterMs !== undefined");
    let mut after_ms = |what: &str| tab.evaluate(what).as_f64().unwrap_or_else(|| panic!("no {what}"));
    let painted = after_ms("performance.getEntriesByName('first-contentful-paint')[0].startTime");
    let read = after_ms("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd");
    let drawn = after_ms("Number(document.documentElement.dataset.drawnAfterMs)");
    println!(
        "{bytes} bytes; painted after {painted:.0} ms, read after {read:.0} ms, drawn after {drawn:.0} ms"
    );
    assert!(painted < drawn && read < drawn, "words wait for charts");
    let charts = tab.evaluate("document.documentElement.dataset.charts");
    let charts = charts.as_str().and_then(|charts| charts.split_once('/')).expect("drawn/all");
    assert!(charts.0 == charts.1 && charts.0 != "0", "{charts:?}");
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
