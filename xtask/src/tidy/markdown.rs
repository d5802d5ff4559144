//! Documents: no link leads nowhere, no document is out of reach, and the guide has each of them once.

use super::{File, Finding};

/// Checks the relative links of every document, and that each file in `docs/` is linked from somewhere.
pub fn check(files: &[File], exists: impl Fn(&str) -> bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut linked = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (link, line) in links(file.text()) {
            let Some(path) = resolve(&file.path, &link) else {
                findings.push(Finding::at(
                    &file.path,
                    line,
                    format!("the link `{link}` leaves the repository"),
                ));
                continue;
            };
            if !exists(&path) {
                findings.push(Finding::at(&file.path, line, format!("the link `{link}` leads nowhere")));
            } else if path != file.path {
                linked.push(path);
            }
        }
    }
    for file in files.iter().filter(|file| file.path.starts_with("docs/")) {
        // A link to a folder, such as the decisions', reaches the files in it.
        let reached = |link: &String| *link == file.path || file.path.starts_with(&format!("{link}/"));
        if !linked.iter().any(reached) {
            findings.push(Finding::about(&file.path, "no document links to it"));
        }
    }
    findings.extend(summary(files));
    findings
}

/// Where the guide says which document stands in which of its parts.
pub const SUMMARY: &str = "xtask/src/docs/SUMMARY.md";

/// Checks that the guide's summary has every document once: those for whoever uses or changes the program.
fn summary(files: &[File]) -> Vec<Finding> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else { return vec![] };
    let listed: Vec<String> =
        links(summary.text()).iter().filter_map(|(link, _)| resolve(SUMMARY, link)).collect();
    let is_document =
        |path: &str| path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
    let documents = files.iter().filter(|file| is_document(&file.path));
    documents
        .filter_map(|file| {
            let times = listed.iter().filter(|path| **path == file.path).count();
            (times != 1).then(|| Finding::about(&file.path, format!("{SUMMARY} has it {times} times")))
        })
        .collect()
}

/// The relative targets of `[words](target)` and `[word]: target`, outside of code.
pub fn links(text: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        // Every second piece between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let inline = prose.split("](").skip(1).filter_map(|piece| piece.split([')', ' ']).next());
        let reference = prose
            .starts_with('[')
            .then(|| prose.split_once("]: "))
            .flatten()
            .map(|(_, target)| target.trim());
        for target in inline.chain(reference) {
            let path = target.trim_matches(['<', '>']).split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains("://") && !path.starts_with("mailto:") {
                found.push((path.to_string(), index + 1));
            }
        }
    }
    found
}

/// A link's path from the repository's root, or None when it leads out of it.
pub fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Vec<Finding> {
        let files = [File::of("README.md", text), File::of("docs/a.md", "[home](../README.md#top)")];
        check(&files, |path| ["README.md", "docs/a.md", "docs"].contains(&path))
    }

    #[test]
    fn good_links_are_acquitted() {
        assert_eq!(judged("See [a](docs/a.md \"title\"), [web](https://example.org), `[x](none)`"), []);
        assert_eq!(judged("```\n[x](none)\n```\nall of [docs](docs/)"), []);
        assert_eq!(judged("[a]: docs/a.md"), []);
    }

    #[test]
    fn broken_links_and_lost_documents_are_convicted() {
        assert_eq!(
            judged("[a](docs/a.md) [b](docs/b.md)")[0].to_string(),
            "README.md:1: the link `docs/b.md` leads nowhere"
        );
        assert_eq!(judged("no link")[0].to_string(), "docs/a.md: no document links to it");
        assert!(judged("[a](docs/a.md) [out](../../x)")[0].message.contains("leaves the repository"));
    }

    #[test]
    fn a_document_stands_once_in_the_guide() {
        let guide = |text: &str| {
            let files = [File::of(SUMMARY, text), File::of("docs/a.md", ""), File::of("crates/b.md", "")];
            summary(&files).iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        let a = "- [a](../../../docs/a.md)";
        assert_eq!(guide(a), [""; 0]);
        assert_eq!(guide("- [b](../../../b.md)"), [format!("docs/a.md: {SUMMARY} has it 0 times")]);
        assert_eq!(guide(&format!("{a}\n{a}")), [format!("docs/a.md: {SUMMARY} has it 2 times")]);
    }
}
