//! The moving picture of accesses: what a page says of a trace, and the HTML in which it moves.

use super::html::{escape, inline};
use super::number::Number;
use super::page::{Block, Callout, CalloutKind, Cell, Column, Page, Provenance, Row, Section, Table};
use crate::study::accesses::{Accesses, FileAccesses, NO_FILE};
use serde::{Deserialize, Serialize};
use tipover_core::units::{Bytes, span};

/// Draws [`AccessPicture`]s; put into pages that have one.
pub(super) const SCRIPT: &str = include_str!("../../../../web/accesses.js");

/// Files that a table of them has rows for.
const TABLE_FILES: usize = 20;

/// Where and when a disk was accessed, to be played.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccessPicture {
    /// Lower-case letters, digits and "-"; unique on the page.
    pub id: String,
    /// What was traced.
    pub title: String,
    /// What was accessed when.
    pub accesses: Accesses,
}

/// The page of a trace that no experiment recorded; `command` makes it again.
pub fn of_trace(name: &str, accesses: Accesses, command: &str) -> Page {
    let total = |count: fn(&FileAccesses) -> u64| accesses.files.iter().map(count).sum::<u64>();
    let (small, large) = (total(|f| f.small_reads), total(|f| f.large_reads));
    let headline = format!(
        "{small} small reads, {large} larger ones and {} writes reached the device in {}.",
        total(|f| f.writes),
        span::rounded(accesses.window),
    );
    let picture = AccessPicture { id: "picture".into(), title: name.into(), accesses };
    Page {
        title: "Accesses of a disk".into(),
        question: "Which parts of which files are read and written, when, and in pieces of which size?"
            .into(),
        headline: vec![headline],
        sections: vec![section(vec![picture])],
        claims: vec![],
        made_by: Provenance {
            command: command.into(),
            commit: env!("TIPOVER_COMMIT").into(),
            version: env!("CARGO_PKG_VERSION").into(),
            when: "a pure function of the trace".into(),
            facts: vec![],
        },
    }
}

/// The part of a page with moving pictures; without blocks if there are none.
pub fn section(pictures: Vec<AccessPicture>) -> Section {
    let blocks = pictures.into_iter().flat_map(AccessPicture::blocks).collect();
    Section { id: "accesses".into(), title: "Moving picture of accesses".into(), blocks }
}

impl AccessPicture {
    pub(super) const HOW_TO_READ: &'static str = "A file runs from its first byte, top left, to its last, line by \
        line. A cell lights up when it is accessed and fades; what was accessed before stays tinted. Still, the \
        picture shows the whole recording: the colour of what accessed a cell most, the stronger the more often. Right of \
        it the same data with time from left to right. A click there goes to that moment.";
    pub(super) const CANNOT_SAY: &'static str = "What the caches answered: only requests that reached the device are \
        here. Nor which operation wanted them: small and large go by size.";

    /// The picture with a table of its files.
    pub fn blocks(self) -> Vec<Block> {
        let (accesses, title) = (&self.accesses, &self.title);
        let mut blocks = Vec::new();
        if accesses.dropped > 0 || !accesses.complete {
            let text = format!("{title}: {}", accesses.about());
            blocks.push(Block::Callout(Callout { kind: CalloutKind::Warning, text }));
        }
        let table = self.table();
        blocks.push(Block::Accesses(Box::new(self)));
        blocks.push(Block::Table(table));
        blocks
    }

    fn table(&self) -> Table {
        let all = &self.accesses.files;
        let row = |file: &FileAccesses| {
            let count = |n: u64| Cell::from(Number::exact(n as f64, ""));
            let megabytes = |n: u64| Cell::from(Number::new(n as f64 / 1e6, "MB"));
            let no_file = file.name == NO_FILE;
            let reads = file.small_reads + file.large_reads;
            let touched = file.pages_read as f64 * 4096.0 / file.size_bytes.max(1) as f64;
            Row::new(vec![
                file.name.as_str().into(),
                match no_file {
                    true => Cell::missing("no file"),
                    false => megabytes(file.size_bytes),
                },
                count(file.small_reads),
                count(file.large_reads),
                match reads {
                    0 => Cell::missing("nothing was read"),
                    _ => Number::new(file.read_bytes as f64 / 1024.0 / reads as f64, "KiB").into(),
                },
                match no_file {
                    true => Cell::missing("no file"),
                    false => Number::new(touched.min(1.0) * 100.0, "%").into(),
                },
                count(file.writes),
                megabytes(file.write_bytes),
            ])
        };
        let mut how_to_read = format!(
            "Reads that go on where the one before ended, within 5 ms, are one read. Small is up to {}. Sizes are those \
             of the files, in file mode how far they were accessed.",
            Bytes(self.accesses.small_bytes).rounded()
        );
        if all.len() > TABLE_FILES {
            how_to_read +=
                &format!(" {} more files were accessed, each less than these.", all.len() - TABLE_FILES);
        }
        Table {
            caption: "Accesses by file".into(),
            columns: vec![
                Column::words("file"),
                Column::numbers("size", "MB"),
                Column::numbers("small", "").group("reads"),
                Column::numbers("large", "").group("reads"),
                Column::numbers("mean size", "KiB").group("reads"),
                Column::numbers("of the file", "%").group("reads"),
                Column::numbers("requests", "").group("writes"),
                Column::numbers("written", "MB").group("writes"),
            ],
            rows: all.iter().take(TABLE_FILES).map(row).collect(),
            how_to_read,
        }
    }

    /// The frame that the script fills.
    pub(super) fn html(&self) -> String {
        let (id, accesses) = (escape(&self.id), &self.accesses);
        let kinds = [
            ("small", format!("reads up to {}", Bytes(accesses.small_bytes).rounded())),
            ("large", "larger reads".to_string()),
            ("write", "writes".to_string()),
        ];
        let kinds: String = (kinds.iter().enumerate())
            .map(|(n, (class, text))| {
                format!(
                    "<label class=\"kind {class}\"><input type=\"checkbox\" value=\"{n}\" checked> {}</label>\n",
                    escape(text)
                )
            })
            .collect();
        let mut bands = String::new();
        for (n, band) in accesses.drawn.iter().enumerate() {
            bands.push_str(&format!(
                "<p class=\"band\"><b>{}</b> {} in {} rows</p>\n\
                 <canvas class=\"places\" width=\"{}\" height=\"{}\" data-band=\"{n}\" role=\"img\" \
                 aria-label=\"{0}: where it was accessed\"></canvas>\n\
                 <canvas class=\"times\" width=\"{}\" height=\"{4}\" data-band=\"{n}\" role=\"img\" \
                 aria-label=\"{0}: where it was accessed, against time\"></canvas>\n",
                escape(&band.name),
                Bytes(band.size_bytes).rounded(),
                band.rows,
                accesses.row_cells,
                band.rows,
                accesses.frames,
            ));
        }
        format!(
            "<figure class=\"accesses\" id=\"{id}\" data-accesses aria-labelledby=\"{id}-t\">\n\
             <figcaption id=\"{id}-t\">{title}</figcaption>\n\
             <div class=\"player\" hidden>\n\
             <button type=\"button\" class=\"play\">Play</button>\n\
             <label>speed <select class=\"speed\"></select></label>\n\
             <input type=\"range\" class=\"moment\" min=\"0\" max=\"{frames}\" step=\"1\" value=\"0\" \
             aria-label=\"moment of the recording\">\n\
             <output class=\"now\"></output>\n{kinds}</div>\n\
             <div class=\"bands\">\n<p class=\"axis\">first byte top left, last byte bottom right</p>\n\
             <p class=\"axis\">0 s to {seconds:.2} s, from left to right</p>\n{bands}</div>\n\
             <p class=\"guide\">{about}</p>\n\
             <p class=\"guide\"><b>How to read it</b> {how}</p>\n\
             <p class=\"guide\"><b>What it cannot say</b> {cannot}</p>\n</figure>\n",
            title = inline(&self.title),
            frames = accesses.frames,
            seconds = accesses.window.as_secs_f64(),
            about = inline(&accesses.about()),
            how = inline(Self::HOW_TO_READ),
            cannot = inline(Self::CANNOT_SAY),
        )
    }
}
