//! The page as one HTML file that needs nothing else: no network, no server, no second file.
//!
//! Words and tables are written here, so that they can be read without JavaScript; only the charts are drawn
//! in the browser, by Plotly.js, from their data as JSON.

use super::number::Number;
use super::page::*;
use super::table::{self, Footnotes};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

const TEMPLATE: &str = include_str!("../../../../web/report.html");
const STYLE: &str = include_str!("../../../../web/report.css");
const SCRIPT: &str = include_str!("../../../../web/report.js");
/// Lets a page follow what goes on.
const LIVE: &str = include_str!("../../../../web/live.js");
/// As gzip in base64: web/report.js unpacks it.
const PLOTLY: &str = include_str!(concat!(env!("OUT_DIR"), "/plotly.min.js.gz.base64"));

/// Rows of a chart's data that a reader may unfold; all of it is in the JSON.
const CHART_ROWS: usize = 500;

/// How many columns fit beside each other on a phone.
const NARROW: usize = 3;

/// Characters of a text that is not worth breaking over two lines of a cell.
const SHORT: usize = 24;

/// The whole page as an HTML document.
pub fn html(page: &Page) -> String {
    document(page, "", "")
}

/// A page that goes on while one reads: it listens to its server for every [`update`].
pub fn following(page: &Page) -> String {
    document(page, "; connect-src 'self'", LIVE)
}

/// What a [`following`] page needs to show `page` instead, as JSON in one line: the page, and the HTML of all
/// that is not drawn, by the id of the element that it replaces.
pub fn update(page: &Page) -> String {
    page.assert_whole();
    let mut html = BTreeMap::from([("answer".to_string(), answer(page))]);
    for part in &page.sections {
        let panels = |block: &Block| match block {
            Block::Panels(panels) => Some((format!("{}-short", panels.id), short(panels))),
            _ => None,
        };
        match part.blocks.iter().filter_map(panels).collect::<Vec<_>>() {
            still if still.is_empty() => drop(html.insert(part.id.clone(), section(part))),
            tables => html.extend(tables),
        }
    }
    serde_json::json!({ "page": page.drawn(), "html": html }).to_string()
}

fn document(page: &Page, policy: &str, live: &str) -> String {
    page.assert_whole();
    fill(TEMPLATE, |name| {
        Some(match name {
            "policy" => policy.into(),
            "live" if live.is_empty() => String::new(),
            "live" => format!("<script>\n{live}</script>\n"),
            "title" => escape(&page.title),
            "version" => escape(&page.made_by.version),
            "question" => escape(&page.question),
            "answer" => answer(page),
            "navigation" => navigation(page),
            "sections" => page.sections.iter().map(section).collect(),
            "provenance" => provenance(&page.made_by),
            "charts" => page.charts().count().to_string(),
            "style" => STYLE.to_string(),
            "page" => json_in_script(page),
            "plotly" => PLOTLY.to_string(),
            "script" => SCRIPT.to_string(),
            "accesses" if page.pictures().count() == 0 => String::new(),
            "accesses" => format!("<script>\n{}</script>\n", super::accesses::SCRIPT),
            _ => return None,
        })
    })
}

/// Replaces each `{{name}}` of the template once; what is put in is not looked at again.
fn fill(template: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").expect("web/report.html closes what it opens");
        out.push_str(before);
        out.push_str(
            &value(name).unwrap_or_else(|| panic!("web/report.html asks for an unknown {{{{{name}}}}}")),
        );
        rest = after;
    }
    out + rest
}

/// Text as HTML, in elements and in attributes between quotes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// What is drawn, as JSON that no text in it can end: within `<script>`, "<" could begin "</script>" or
/// "<!--". What is written stands in the HTML, and twice is half a megabyte for a hundred cells.
fn json_in_script(page: &Page) -> String {
    serde_json::to_string(&page.drawn())
        .expect("a page is strings and finite numbers")
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Text with `code` between backticks. A "%" stays with its number.
pub(super) fn inline(text: &str) -> String {
    let text = text.replace(" %", "\u{a0}%");
    let parts: Vec<&str> = text.split('`').collect();
    // An odd backtick has no partner and stays what it is.
    let paired = if parts.len() % 2 == 1 { parts.len() } else { parts.len() - 1 };
    let mut out = String::new();
    for (i, part) in parts.iter().enumerate() {
        match i {
            _ if i >= paired => out.push_str(&format!("`{}", escape(part))),
            _ if i % 2 == 1 => out.push_str(&format!("<code>{}</code>", escape(part))),
            _ => out.push_str(&escape(part)),
        }
    }
    out
}

fn answer(page: &Page) -> String {
    let sentences: String =
        page.headline.iter().map(|sentence| format!("<p>{}</p>\n", inline(sentence))).collect();
    format!("<div class=\"headline\" id=\"answer\">\n{sentences}</div>")
}

fn navigation(page: &Page) -> String {
    let link =
        |id: &str, title: &str| format!("<li><a href=\"#{}\">{}</a></li>\n", escape(id), escape(title));
    let mut out: String = page.sections.iter().map(|s| link(&s.id, &s.title)).collect();
    out.push_str(&link("made-by", "Made by"));
    out
}

fn section(section: &Section) -> String {
    let id = escape(&section.id);
    let mut out = format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\">\n<h2 id=\"{id}-h\">{}</h2>\n",
        inline(&section.title)
    );
    let mut in_charts = false;
    for block in &section.blocks {
        // Neighbouring charts share a row where there is room.
        let is_chart = matches!(block, Block::Chart(_));
        if is_chart != in_charts {
            out.push_str(if is_chart { "<div class=\"charts\">\n" } else { "</div>\n" });
            in_charts = is_chart;
        }
        out.push_str(&match block {
            Block::Prose(text) => prose(text),
            Block::Callout(c) => format!(
                "<aside class=\"callout {}\"><strong>{}</strong> {}</aside>\n",
                c.kind.class(),
                c.kind.word(),
                inline(&c.text)
            ),
            Block::Facts(facts) => self::facts(facts),
            Block::Table(table) => self::table(table),
            Block::Chart(chart) => self::chart(chart),
            Block::Panels(panels) => self::panels(panels),
            Block::Accesses(picture) => picture.html(),
        });
    }
    if in_charts {
        out.push_str("</div>\n");
    }
    out + "</section>\n"
}

fn prose(text: &str) -> String {
    text.split("\n\n").map(|p| format!("<p class=\"prose\">{}</p>\n", inline(p.trim()))).collect()
}

fn facts(facts: &[Fact]) -> String {
    let mut out = String::from("<dl class=\"facts\">\n");
    for fact in facts {
        let value = match &fact.value {
            Cell::Missing { reason } => {
                format!("<span class=\"missing\">–</span> <small>{}</small>", inline(reason))
            }
            Cell::Published { source, .. } => {
                format!("{} <small>published: {}</small>", cell(&fact.value, ""), escape(source))
            }
            other => cell(other, ""),
        };
        let note = if fact.note.is_empty() {
            String::new()
        } else {
            format!(" <small>{}</small>", inline(&fact.note))
        };
        out.push_str(&format!("<div><dt>{}</dt><dd>{value}{note}</dd></div>\n", inline(&fact.name)));
    }
    out + "</dl>\n"
}

/// A cell without its mark.
fn cell(cell: &Cell, column_unit: &str) -> String {
    match cell {
        Cell::Text(text) => inline(text),
        Cell::Number(n) => number(n, column_unit),
        Cell::Published { number: n, .. } => {
            format!("<span class=\"published\">{}</span>", number(n, column_unit))
        }
        Cell::Missing { .. } => "<span class=\"missing\">–</span>".into(),
        Cell::Verdict { verdict, text } => {
            let sign =
                format!("<span role=\"img\" aria-label=\"{}\">{}</span>", verdict.word(), verdict.sign());
            let class = verdict.class();
            match text.as_str() {
                "" => format!(
                    "<span class=\"verdict {class}\"><span aria-hidden=\"true\">{}</span> {}</span>",
                    verdict.sign(),
                    verdict.word()
                ),
                short if short.chars().count() <= SHORT => {
                    format!("<span class=\"verdict {class}\">{sign} {}</span>", inline(short))
                }
                long => format!("<span class=\"verdict {class}\">{sign}</span> {}", inline(long)),
            }
        }
    }
}

fn number(number: &Number, column_unit: &str) -> String {
    let (value, interval) = number.parts();
    // A cell that is too narrow breaks between the value and its interval, never within either.
    let mut out = format!("<span class=\"number\"><span>{}</span>", escape(&value));
    if !interval.is_empty() {
        out.push_str(&format!(" <span class=\"interval\">{}</span>", escape(&interval)));
    }
    match table::own_unit(number, column_unit) {
        "" => {}
        unit => out.push_str(&format!(" <span class=\"unit\">{}</span>", escape(unit))),
    }
    out + "</span>"
}

fn mark(mark: &str) -> String {
    if mark.is_empty() { String::new() } else { format!("<sup>{}</sup>", escape(mark)) }
}

/// What all cells of a column have in common, said once and not in each of them: numbers are flush right, and
/// on a phone, where a row is a card, each of its lines begins with its column's head.
fn columns_style(class: &str, columns: &[Column]) -> String {
    let rule = |(n, column): (usize, &Column)| {
        let right = if column.align == Align::Right { ";text-align:right" } else { "" };
        format!(".{class} tr:not(.groups)>:nth-child({n}){{--head:{}{right}}}", css_text(&head(column)))
    };
    (1..).zip(columns).map(rule).collect()
}

/// Text as a string of a style sheet. What could end it, or the element around it, is written as a number.
fn css_text(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || " .,:;%/()+-_·".contains(c);
    let parts = text.chars().map(|c| if plain(c) { c.to_string() } else { format!("\\{:x} ", u32::from(c)) });
    format!("\"{}\"", parts.collect::<String>())
}

/// The same for the same columns, in every page.
fn columns_class(columns: &[Column]) -> String {
    let mut hasher = std::hash::DefaultHasher::new();
    columns.iter().for_each(|column| (head(column), column.align == Align::Right).hash(&mut hasher));
    format!("c{:x}", hasher.finish())
}

fn table(table: &Table) -> String {
    let notes = Footnotes::of(table);
    let class = columns_class(&table.columns);
    let mut out = format!(
        "<figure class=\"table\">\n<style>{}</style>\n<figcaption>{}</figcaption>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">\n\
         <table class=\"{class}{}\">\n<thead>\n",
        columns_style(&class, &table.columns),
        inline(&table.caption),
        escape(&table.caption),
        if table.columns.len() > NARROW { " wide" } else { "" }
    );
    out.push_str(&table_head(table));
    out.push_str("</thead>\n<tbody>\n");
    for (i, row) in table.rows.iter().enumerate() {
        let continues = table::continues_group(table, i);
        let mut classes = Vec::new();
        match row.emphasis {
            Emphasis::Plain => {}
            Emphasis::Strong => classes.push("strong"),
            Emphasis::Faint => classes.push("faint"),
        }
        classes.push(if continues { "continues" } else { "begins" });
        out.push_str(&format!("<tr class=\"{}\">", classes.join(" ")));
        for (j, value) in row.cells.iter().enumerate() {
            let text = cell(value, &table.columns[j].unit) + &mark(notes.mark_of(value));
            let short = match value {
                Cell::Text(words) if (1..=SHORT).contains(&words.chars().count()) => " class=\"short\"",
                _ => "",
            };
            out.push_str(&match j {
                0 => format!("<th scope=\"row\"{short}>{text}{}</th>", mark(notes.mark(&row.note))),
                _ => format!("<td{short}>{text}</td>"),
            });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    for (mark, text) in notes.lines() {
        out.push_str(&format!("<p class=\"footnote\"><sup>{mark}</sup> {}</p>\n", inline(&text)));
    }
    if !table.how_to_read.is_empty() {
        out.push_str(&format!("<p class=\"guide\">{}</p>\n", inline(&table.how_to_read)));
    }
    out + "</figure>\n"
}

/// What stands above a column, in one line: "Latency: p99, ms".
fn head(column: &Column) -> String {
    let group = if column.group.is_empty() { String::new() } else { format!("{}: ", column.group) };
    let unit = if column.unit.is_empty() { String::new() } else { format!(", {}", column.unit) };
    format!("{group}{}{unit}", column.title)
}

fn table_head(table: &Table) -> String {
    let mut out = String::new();
    if table.columns.iter().any(|c| !c.group.is_empty()) {
        out.push_str("<tr class=\"groups\">");
        for (group, n) in table::groups(table) {
            out.push_str(&match group {
                "" => format!("<td colspan=\"{n}\"></td>"),
                _ => format!("<th scope=\"colgroup\" colspan=\"{n}\">{}</th>", inline(group)),
            });
        }
        out.push_str("</tr>\n");
    }
    out.push_str("<tr>");
    for column in &table.columns {
        let unit = if column.unit.is_empty() {
            String::new()
        } else {
            format!(" <span class=\"unit\">{}</span>", escape(&column.unit))
        };
        out.push_str(&format!("<th scope=\"col\">{}{unit}</th>", inline(&column.title)));
    }
    out + "</tr>\n"
}

fn chart(chart: &Chart) -> String {
    let id = escape(&chart.id);
    let remark = match table::not_drawn(chart) {
        text if text.is_empty() => text,
        text => format!("<p class=\"guide\">{text}</p>\n"),
    };
    let data =
        Table { caption: String::from("The data of this chart"), ..table::of_chart(chart, CHART_ROWS) };
    format!(
        "<figure class=\"chart\" aria-labelledby=\"{id}-t\">\n<figcaption id=\"{id}-t\">{title}</figcaption>\n\
         <div class=\"plot\" id=\"{id}\" data-chart role=\"group\" aria-label=\"{name}. {read}\"></div>\n{remark}\
         <p class=\"guide\"><b>How to read it</b> {how}</p>\n\
         <p class=\"guide\"><b>What it cannot say</b> {cannot}</p>\n\
         <details><summary>Data as a table</summary>\n{table}</details>\n</figure>\n",
        title = inline(&chart.title),
        name = escape(&chart.title),
        read = escape(&chart.how_to_read),
        how = inline(&chart.how_to_read),
        cannot = inline(&chart.cannot_say),
        table = table(&data),
    )
}

fn panels(panels: &Panels) -> String {
    let id = escape(&panels.id);
    let mut out = format!(
        "<figure class=\"panels\" id=\"{id}\" aria-labelledby=\"{id}-t\">\n<figcaption id=\"{id}-t\">{}</figcaption>\n",
        inline(&panels.title)
    );
    for chart in &panels.charts {
        let unit = if chart.y.unit.is_empty() { String::new() } else { format!(", {}", chart.y.unit) };
        out.push_str(&format!(
            "<p class=\"panel\"><b>{}</b><span class=\"unit\">{}</span></p>\n<div class=\"plot panel\" id=\"{}\" \
             data-chart role=\"group\" aria-label=\"{}. {}\"></div>\n",
            inline(&chart.title),
            inline(&unit),
            escape(&chart.id),
            escape(&chart.title),
            escape(&panels.how_to_read),
        ));
    }
    // The data of what goes on would be old before they are read.
    let drawn = panels.charts.iter().filter(|_| !panels.live);
    let tables: String = drawn.map(|chart| table(&table::of_chart(chart, CHART_ROWS))).collect();
    out + &format!(
        "<p class=\"guide\"><b>How to read it</b> {}</p>\n<p class=\"guide\"><b>What it cannot say</b> {}</p>\n\
         <details class=\"all\"><summary>Data as tables</summary>\n{}{tables}</details>\n</figure>\n",
        inline(&panels.how_to_read),
        inline(&panels.cannot_say),
        short(panels)
    )
}

/// Panels in few rows.
fn short(panels: &Panels) -> String {
    format!("<div id=\"{}-short\">\n{}</div>\n", escape(&panels.id), table(&panels.in_short))
}

fn provenance(made: &Provenance) -> String {
    let mut all = vec![
        Fact::new("command", format!("`{}`", made.command)),
        Fact::new("commit", format!("`{}`", made.commit)),
        Fact::new("version", made.version.as_str()),
        Fact::new("made", made.when.as_str()),
    ];
    all.extend(made.facts.iter().cloned());
    facts(&all)
}
