//! What all three forms of a page have to keep.

use super::*;

/// A page with everything that a page can have. It is shaped like the working-set study, but its measurements
/// are invented; the page says so.
fn sample() -> Page {
    serde_json::from_str(include_str!("golden/sample.json")).unwrap()
}

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/golden/sample.txt");

fn small(name: &str) -> Page {
    let mut page = sample();
    page.sections.truncate(1);
    page.sections[0].blocks = vec![Block::Facts(vec![Fact::new(name, name)])];
    page.title = name.into();
    page
}

/// The first lines in which two pages differ; whole pages would flood the screen.
fn first_difference(a: &Page, b: &Page) -> Option<(String, String)> {
    let lines = |page: &Page| page.to_json().lines().map(String::from).collect::<Vec<_>>();
    lines(a).into_iter().zip(lines(b)).find(|(a, b)| a != b)
}

/// `UPDATE_GOLDEN=1 cargo test` writes it anew; read the difference before you believe it.
#[test]
fn the_terminal_shows_the_golden_text() {
    let text = text(&sample(), Terminal::PLAIN);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    for (i, (ours, golden)) in text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(ours, golden, "line {} of {GOLDEN}", i + 1);
    }
    assert_eq!(text.lines().count(), golden.lines().count(), "{GOLDEN} has another number of lines");
}

#[test]
fn text_fits_the_terminal() {
    for width in [48, 64, 80, 110, 160] {
        let text = text(&sample(), Terminal { width, style: false });
        assert!(!text.contains('\x1b'), "colours where nobody sees them");
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width} columns: {line}");
        }
    }
}

#[test]
fn style_changes_looks_and_not_words() {
    let plain = text(&sample(), Terminal::PLAIN);
    let mut styled = text(&sample(), Terminal { style: true, ..Terminal::PLAIN });
    assert_ne!(plain, styled);
    while let Some(start) = styled.find('\x1b') {
        let end = start + styled[start..].find('m').unwrap();
        styled.replace_range(start..=end, "");
    }
    let trimmed: Vec<&str> = styled.lines().map(str::trim_end).collect();
    assert_eq!(plain.lines().collect::<Vec<_>>(), trimmed);
}

#[test]
fn json_reads_back() {
    let page = sample();
    let read: Page = serde_json::from_str(&page.to_json()).unwrap();
    // Without serde_json's feature `float_roundtrip` some numbers come back one unit in the last place off.
    assert!(read == page, "{:?}", first_difference(&read, &page));
}

#[test]
fn html_carries_all_that_is_drawn_as_data_and_nothing_else() {
    let page = sample();
    let html = html(&page);
    let (_, rest) = html.split_once(r#"<script type="application/json" id="page">"#).unwrap();
    let (json, _) = rest.split_once("</script>").unwrap();
    let read: Page = serde_json::from_str(json).unwrap();
    assert!(read.charts().eq(page.charts()) && read.pictures().eq(page.pictures()));
    assert!(page.charts().count() > 5 && page.pictures().count() == 1);
    let blocks = |page: &Page| page.sections.iter().map(|section| section.blocks.len()).sum::<usize>();
    assert!(blocks(&read) < blocks(&page), "tables stand in the HTML");
}

/// Each column says once what its cells have in common; its words cannot leave the style sheet.
#[test]
fn heads_of_columns_stand_in_the_style_once() {
    let hostile = "</style><b>\"\\} p99";
    let columns = vec![Column::words("disk"), Column::numbers(hostile, "ms").group("theirs")];
    let rows = (0..3).map(|n| Row::new(vec!["S1".into(), Number::new(f64::from(n), "ms").into()]));
    let table = Table { caption: "x".into(), columns, rows: rows.collect(), how_to_read: String::new() };
    let mut page = small("x");
    page.sections[0].blocks = vec![Block::Table(table)];
    let html = html(&page);
    let (_, table) = html.split_once("<figure class=\"table\">\n<style>").unwrap();
    let (style, table) = table.split_once("</style>").unwrap();
    assert_eq!(style.matches("--head:").count(), 2);
    let second =
        r#">:nth-child(2){--head:"theirs: \3c /style\3e \3c b\3e \22 \5c \7d  p99, ms";text-align:right}"#;
    assert!(style.contains(second), "{style}");
    let (table, _) = table.split_once("</figure>").unwrap();
    assert!(!table.contains("data-head") && table.matches("<td>").count() == 3, "{table}");
    let class = style.split_once(' ').unwrap().0.trim_start_matches('.');
    assert!(table.contains(&format!("<table class=\"{class}\">")), "{class}: {table}");
}

#[test]
fn nothing_in_a_page_becomes_markup() {
    let hostile = "</script><script>alert(1)</script><!-- \"quoted\" 'too' & {{style}} \u{2028}";
    let (clean, dirty) = (html(&small("harmless")), html(&small(hostile)));
    for tag in ["<script", "</script", "<!--", "alert(1)</script>"] {
        assert_eq!(dirty.matches(tag).count(), clean.matches(tag).count(), "{tag}");
    }
    assert!(dirty.contains("&lt;/script&gt;&lt;script&gt;"));
    assert!(
        dirty.contains("&quot;quoted&quot; &#39;too&#39; &amp; {{style}}"),
        "only the template is filled in"
    );
    let (_, rest) = dirty.split_once(r#"id="page">"#).unwrap();
    let read: Page = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(read.title, hostile);
}

#[test]
fn html_needs_nothing_but_itself() {
    let page = html(&sample());
    // The chart library, which is packed, names hosts of maps and of its maker; the policy in the page's head
    // forbids to ask them, and a test in a browser looks that none is asked.
    for reference in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(reference), "the page refers to {reference}");
    }
    assert!(page.contains("default-src 'none'"));
    assert!(page.len() < 5 << 19, "{} bytes are more than 2.5 MiB", page.len());
}

#[test]
fn every_missing_value_says_why() {
    let text = text(&sample(), Terminal::PLAIN);
    assert!(text.contains("a not printed in the study"));
    assert!(text.contains("– (virtual disks have none)"));
}

#[test]
fn zero_on_a_log_axis_is_told_and_not_drawn() {
    let mut page = sample();
    for block in page.sections.iter_mut().flat_map(|s| &mut s.blocks) {
        if let Block::Chart(chart) = block
            && chart.y.scale == Scale::Log
        {
            chart.series[0].points[0].y = 0.0;
        }
    }
    assert!(html(&page).contains("One point is not drawn"));
    assert!(text(&page, Terminal::PLAIN).contains("One point is not drawn"));
}

#[test]
fn long_series_are_thinned_and_say_so() {
    let text = text(&sample(), Terminal::PLAIN);
    assert!(text.contains("24 of 90 rows, evenly apart"));
}

#[test]
#[should_panic(expected = "1 cells in 3 columns")]
fn a_short_row_is_a_bug() {
    let mut page = sample();
    for block in page.sections.iter_mut().flat_map(|s| &mut s.blocks) {
        if let Block::Table(table) = block
            && table.columns.len() == 3
        {
            table.rows[0].cells.truncate(1);
        }
    }
    html(&page);
}

#[test]
#[should_panic(expected = "have the id")]
fn two_things_with_one_name_are_a_bug() {
    let mut page = sample();
    page.sections[1].id = page.sections[0].id.clone();
    html(&page);
}
