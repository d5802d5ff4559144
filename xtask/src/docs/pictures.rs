//! `make docs ARGS=--pictures`: carries out the tour and takes the picture of each question.
//!
//! A picture of a page is drawn by the page's own charts, in a browser, and saved as a vector. What a command
//! says in the terminal is drawn line by line.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{Step, find_program};
use crate::workspace::Workspace;

/// What is shown of a question.
enum Shows {
    /// Lines of what the command says, after those that name the machine.
    Terminal { skip: usize, lines: usize },
    /// These charts of the page, by their titles, side by side or below one another.
    Charts { page: &'static str, titles: &'static [&'static str], size: (u32, u32), beside: bool },
}

/// One question after the other, as the tour has them.
const PICTURES: &[Shows] = &[
    Shows::Terminal { skip: 1, lines: 24 },
    Shows::Terminal { skip: 0, lines: 24 },
    Shows::Charts {
        page: "results/working-set/report.html",
        titles: &["Throughput against working set", "What the engine missed"],
        size: (500, 380),
        beside: true,
    },
    Shows::Charts {
        page: "plan.html",
        titles: &["The most it can do against memory", "The most it can do against the disk's IOPS"],
        size: (500, 380),
        beside: true,
    },
    Shows::Charts {
        page: "results/capacity/tipping-points.html",
        titles: &["Trials of"],
        size: (1000, 400),
        beside: true,
    },
    Shows::Terminal { skip: 0, lines: 24 },
    Shows::Charts {
        page: "results/break-wiredtiger-*/report.html",
        titles: &["Operations", "Residence"],
        size: (1000, 190),
        beside: false,
    },
    Shows::Charts {
        page: "results/disk-bench/*/report.html",
        titles: &[""],
        size: (1000, 360),
        beside: true,
    },
    Shows::Terminal { skip: 0, lines: 24 },
    Shows::Terminal { skip: 0, lines: 24 },
];

/// The question whose results others work on.
const MEASURED_BY: (usize, &[usize]) = (3, &[4, 9, 10]);

/// Takes pictures into `docs/images/`, with the release binary, in a folder that is thrown away: of these
/// questions, or of all.
///
/// # Errors
/// There is no browser, no binary, or a picture could not be taken; the others are.
pub fn take(workspace: &Workspace, numbers: &[String]) -> Result<()> {
    let wanted = numbers
        .iter()
        .map(|number| number.parse().ok().filter(|n| (1..=PICTURES.len()).contains(n)).ok_or(number))
        .collect::<Result<Vec<usize>, _>>();
    let wanted = match wanted {
        Ok(all) if all.is_empty() => (1..=PICTURES.len()).collect(),
        Ok(some) => some,
        Err(other) => bail!("there is no question `{other}`"),
    };
    let browser =
        ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| find_program(name));
    let browser = browser.context("no browser takes the pictures: apt-get install chromium")?;
    let program = workspace.target_folder()?.join("release/tipover");
    if !program.is_file() {
        bail!("there is no {}: run `make build` first", program.display());
    }
    let place = std::env::temp_dir().join(format!("tipover-tour-{}", std::process::id()));
    fs::create_dir_all(&place)?;
    let mut missing = Vec::new();
    for (number, shows) in (1..).zip(PICTURES) {
        let is_wanted = wanted.contains(&number);
        let is_needed = number == MEASURED_BY.0 && wanted.iter().any(|n| MEASURED_BY.1.contains(n));
        if !is_wanted && !is_needed {
            continue;
        }
        let step = Step::begin(&format!("question {number}"));
        let taken = carry_out(&program, &place, number).and_then(|said| {
            if is_wanted {
                keep(workspace, number, &picture(&browser, &place, shows, &said)?)
            } else {
                Ok(())
            }
        });
        if let Err(error) = taken {
            missing.push(format!("{error:#}"));
        }
        step.done();
    }
    fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))?;
    if !missing.is_empty() {
        bail!("these pictures were not taken:\n{}", missing.join("\n"));
    }
    Ok(())
}

/// The picture of a question to which this was said.
fn picture(browser: &Path, place: &Path, shows: &Shows, said: &str) -> Result<String> {
    Ok(match shows {
        Shows::Terminal { skip, lines } => terminal(&excerpt(said, *skip, *lines)),
        Shows::Charts { page, titles, size, beside } => {
            let page = place.join(found(place, page)?);
            compose(&charts(browser, &page, place, titles, *size)?, *size, *beside)
        }
    })
}

/// Puts a picture where the guide looks for it, instead of an older one.
fn keep(workspace: &Workspace, number: usize, picture: &str) -> Result<()> {
    let path = workspace.path(format!("docs/images/question-{number}.svg"));
    fs::write(&path, picture).with_context(|| format!("writing {}", path.display()))?;
    println!("    {} ({} kB)", path.display(), picture.len() / 1000);
    Ok(())
}

/// The command of a question, and what it says. Some trial may not be believable on a busy machine; the
/// picture shows what there is.
fn carry_out(program: &Path, place: &Path, number: usize) -> Result<String> {
    let mut command = Command::new(program);
    command.args(["tour", &number.to_string()]).current_dir(place).env("COLUMNS", "120");
    let ended = command.stdin(Stdio::null()).output().context("the tour does not start")?;
    let (said, beside) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    if ended.status.code() == Some(2) || said.trim().is_empty() && beside.contains("tipover: ") {
        bail!("question {number}: {beside}");
    }
    // The question and the command stand at the top of what is said beside the answer.
    let typed = beside.lines().find(|line| line.starts_with("$ ")).unwrap_or_default();
    Ok(format!("{typed}\n{said}"))
}

/// The command, and below it the first lines of what it says, after those that are skipped.
fn excerpt(said: &str, skip: usize, most: usize) -> Vec<String> {
    let mut lines = said.lines();
    let typed = lines.next().unwrap_or_default().to_string();
    let answer: Vec<&str> = lines.skip_while(|line| line.is_empty()).skip(skip).collect();
    let shown = answer.iter().take(most).map(|line| line.trim_end().to_string());
    let cut = (answer.len() > most).then(|| "…".to_string());
    std::iter::once(typed).chain(shown).chain(cut).collect()
}

/// The file that a pattern with one `*` in a folder's name means, below `place`.
fn found(place: &Path, pattern: &str) -> Result<PathBuf> {
    let Some((before, after)) = pattern.split_once('*') else { return Ok(pattern.into()) };
    let (folder, begin) = before.rsplit_once('/').unwrap_or(("", before));
    let mut names = fs::read_dir(place.join(folder))?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<String>>>()?;
    names.sort();
    let name = names
        .into_iter()
        .find(|name| name.starts_with(begin) && place.join(folder).join(format!("{name}{after}")).is_file());
    let name = name.with_context(|| format!("there is no page {pattern}"))?;
    Ok(Path::new(folder).join(format!("{name}{after}")))
}

/// What asks the page for its charts as vectors, once they are drawn, and leaves nothing else in it.
const ASK: &str = r##"
<script>
(async () => {
  const root = document.documentElement;
  const [titles, [width, height]] = WANTED;
  for (let drawn = "0/1"; drawn.split("/")[0] !== drawn.split("/")[1] || drawn.startsWith("0/"); drawn = root.dataset.charts) {
    await new Promise((wake) => setTimeout(wake, 50));
  }
  const page = JSON.parse(document.getElementById("page").textContent);
  const blocks = page.sections.flatMap((section) => section.blocks);
  const all = blocks.flatMap((block) => block.panels?.charts ?? (block.chart ? [block.chart] : []));
  const taken = [];
  for (const title of titles) {
    const chart = all.find((chart) => chart.title.startsWith(title));
    if (!chart) continue;
    const plot = document.getElementById(chart.id);
    const layout = { ...plot.layout, width, height, paper_bgcolor: "#ffffff" };
    // Of panels only the last has the axis that all share, and it may not be shown.
    const panels = blocks.find((block) => block.panels?.charts.includes(chart))?.panels;
    if (panels && title === titles.at(-1)) {
      const shared = document.getElementById(panels.charts.at(-1).id).layout.xaxis;
      layout.xaxis = { ...layout.xaxis, title: shared.title, showticklabels: true };
      layout.margin = { ...layout.margin, b: 44 };
    }
    const picture = await Plotly.toImage({ data: plot.data, layout }, { format: "svg", width, height });
    const named = panels && chart.y.unit ? `${chart.title}, ${chart.y.unit}` : chart.title;
    taken.push([named, decodeURIComponent(picture.split(",").slice(1).join(","))]);
  }
  document.body.replaceChildren(Object.assign(document.createElement("pre"), { id: "taken", textContent: JSON.stringify(taken) }));
})();
</script>"##;

/// The charts of a page with these titles: each its title and its picture.
fn charts(
    browser: &Path,
    page: &Path,
    place: &Path,
    titles: &[&str],
    size: (u32, u32),
) -> Result<Vec<(String, String)>> {
    let text = fs::read_to_string(page).with_context(|| format!("reading {}", page.display()))?;
    let wanted = serde_json::to_string(&(titles, size))?;
    let (before, after) = text.rsplit_once("</body>").context("a page has a body")?;
    let asking = place.join("asking.html");
    fs::write(&asking, format!("{before}{}</body>{after}", ASK.replace("WANTED", &wanted)))?;
    let mut look = Command::new(browser);
    look.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    look.args(["--disable-background-networking", "--virtual-time-budget=30000", "--dump-dom"]);
    look.arg(format!("--user-data-dir={}", place.join("browser").display()));
    look.arg("--window-size=1280,1000").arg(format!("file://{}?theme=light", asking.display()));
    let seen = look.stderr(Stdio::null()).output().context("the browser does not start")?;
    let seen = String::from_utf8_lossy(&seen.stdout);
    let taken = seen.split_once("<pre id=\"taken\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (taken, _) = taken.with_context(|| format!("{} gave no pictures", page.display()))?;
    let plain =
        taken.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&nbsp;", "\u{a0}");
    let taken: Vec<(String, String)> = serde_json::from_str(&plain).context("the page's pictures")?;
    if taken.len() < titles.len() {
        let page: Value = text
            .split_once("id=\"page\">")
            .and_then(|(_, rest)| rest.split_once("</script>"))
            .and_then(|(page, _)| serde_json::from_str(page).ok())
            .unwrap_or_default();
        bail!(
            "of {titles:?} there are only {:?} on the page {}",
            taken.iter().map(|t| &t.0).collect::<Vec<_>>(),
            page["title"]
        );
    }
    Ok(taken)
}

/// Room for a chart's title.
const TITLE: u32 = 30;

/// One picture of several charts.
fn compose(charts: &[(String, String)], size: (u32, u32), beside: bool) -> String {
    let (columns, rows) = if beside { (charts.len() as u32, 1) } else { (1, charts.len() as u32) };
    let (width, height) = (columns * size.0, rows * (size.1 + TITLE));
    let mut svg = begin(width, height);
    for (at, (title, chart)) in charts.iter().enumerate() {
        let at = at as u32;
        let (x, y) = if beside { (at * size.0, 0) } else { (0, at * (size.1 + TITLE)) };
        let _ = writeln!(
            svg,
            r##"<text x="{}" y="{}" font-family="{SANS}" font-size="15" font-weight="600" fill="#1b1f23">{}</text>"##,
            x + 12,
            y + 21,
            escaped(title)
        );
        // A picture within a picture has its place as its own attributes.
        let chart = chart.trim_start().replacen("<svg", &format!("<svg x=\"{x}\" y=\"{}\"", y + TITLE), 1);
        // Two charts may give their parts the same names.
        let chart = names_of_its_own(&chart, at);
        svg += &chart;
        svg.push('\n');
    }
    svg + "</svg>\n"
}

/// Puts the chart's number behind what its parts are called, where they are defined and where they are meant.
fn names_of_its_own(chart: &str, number: u32) -> String {
    let mut chart = chart.to_string();
    let names: Vec<String> =
        chart.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).map(String::from).collect();
    for name in names {
        chart = chart.replace(&format!(" id=\"{name}\""), &format!(" id=\"{name}-{number}\""));
        chart = chart.replace(&format!("#{name})"), &format!("#{name}-{number})"));
        chart = chart.replace(&format!("#{name}'"), &format!("#{name}-{number}'"));
        chart = chart.replace(&format!("#{name}&"), &format!("#{name}-{number}&"));
    }
    chart
}

const SANS: &str = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Liberation Sans', 'DejaVu Sans', sans-serif";
const MONO: &str = "ui-monospace, 'SF Mono', Consolas, 'Liberation Mono', 'DejaVu Sans Mono', monospace";
/// Of a letter in the terminal, and from line to line.
const LETTER: (f64, f64) = (7.8, 18.0);

/// Lines as a terminal shows them; the first is what was typed.
fn terminal(lines: &[String]) -> String {
    let columns = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default().max(60);
    let (width, height) = (columns as f64 * LETTER.0 + 32.0, lines.len() as f64 * LETTER.1 + 28.0);
    let mut svg = begin(width.ceil() as u32, height.ceil() as u32);
    let _ =
        writeln!(svg, r##"<g font-family="{MONO}" font-size="13" fill="#1b1f23" style="white-space: pre">"##);
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| !line.is_empty()) {
        let y = 26.0 + at as f64 * LETTER.1;
        let bold = if at == 0 { r##" font-weight="700" fill="#0b5c94""## } else { "" };
        // Whatever font there is: columns stay below one another.
        let length = line.chars().count() as f64 * LETTER.0;
        let _ = writeln!(
            svg,
            r##"<text x="16" y="{y:.0}" textLength="{length:.1}" lengthAdjust="spacingAndGlyphs"{bold}>{}</text>"##,
            escaped(line)
        );
    }
    svg + "</g>\n</svg>\n"
}

fn begin(width: u32, height: u32) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"{width}\" \
         height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#ffffff\"/>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_of_the_tour_has_a_picture() {
        let tour = include_str!("../../../crates/tipover/src/command/tour.toml");
        assert_eq!(tour.matches("[[question]]").count(), PICTURES.len());
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
        let (mut bytes, mut taken) = (0, 0);
        for number in 1..=PICTURES.len() {
            let Ok(picture) = fs::read_to_string(images.join(format!("question-{number}.svg"))) else {
                // They want a quiet machine: a plan refuses what a busy one measured; a search finds less.
                assert!([4, 5].contains(&number), "question {number} has no picture");
                continue;
            };
            assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "question {number}");
            (bytes, taken) = (bytes + picture.len(), taken + 1);
        }
        assert!(taken >= 5 && bytes < 1_000_000, "{taken} pictures of {bytes} bytes");
    }

    #[test]
    fn a_terminal_keeps_its_columns_and_what_it_cuts_is_marked() {
        let lines = excerpt("$ tipover x\n\nfirst\nNAME <a>  B\n1  2\n3  4\n", 1, 2);
        assert_eq!(lines, ["$ tipover x", "NAME <a>  B", "1  2", "…"]);
        let svg = terminal(&lines);
        assert!(svg.contains(">NAME &lt;a&gt;  B</text>") && svg.contains("textLength=\"85.8\""), "{svg}");
    }

    #[test]
    fn two_charts_do_not_share_the_names_of_their_parts() {
        let chart = r#"<svg class="a"><clipPath id="clip1"/><g clip-path="url(#clip1)"/></svg>"#;
        let both = compose(&[("A".into(), chart.into()), ("B".into(), chart.into())], (100, 50), false);
        for number in 0..2 {
            assert!(both.contains(&format!("id=\"clip1-{number}\"")), "{both}");
            assert!(both.contains(&format!("url(#clip1-{number})")), "{both}");
        }
        assert!(both.contains("<svg x=\"0\" y=\"110\" class=\"a\">"), "{both}");
    }
}
