//! `make docs`: the documents as a site, by mdBook.

#[cfg(test)]
mod manifest;
mod pictures;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{Step, run};
use crate::setup;
use crate::tidy::{SUMMARY, links, resolve};
use crate::workspace::Workspace;

/// Makes `target/guide/site/`, and checks that every link of it leads somewhere; with `--pictures` takes the
/// pictures of the ten questions instead.
pub fn docs(workspace: &Workspace, flags: &[String]) -> Result<()> {
    match flags {
        [] => {}
        [flag, numbers @ ..] if flag == "--pictures" => return pictures::take(workspace, numbers),
        other => bail!("docs knows --pictures, not `{}`", other.join(" ")),
    }
    let step = Step::begin("mdBook");
    let mdbook = setup::mdbook(workspace)?;
    step.done();

    let step = Step::begin("make the site");
    let guide = workspace.target_folder()?.join("guide");
    if guide.exists() {
        fs::remove_dir_all(&guide).with_context(|| format!("removing {}", guide.display()))?;
    }
    let source = guide.join("source");
    stage(workspace, &source)?;
    fs::write(guide.join("book.toml"), include_str!("book.toml"))?;
    fs::write(guide.join("guide.css"), include_str!("guide.css"))?;
    let mut build = workspace.command(mdbook);
    build.arg("build").arg(&guide);
    run(build)?;
    let site = guide.join("site");
    let broken = broken_links(&site)?;
    if !broken.is_empty() {
        bail!("links of the site that lead nowhere:\n{}", broken.join("\n"));
    }
    println!("    {}", site.join("index.html").display());
    step.done();
    Ok(())
}

/// Puts the documents and what they link to where they stand in the repository, so that links between them
/// stay true.
fn stage(workspace: &Workspace, source: &Path) -> Result<()> {
    let files = workspace.files()?;
    let mut wanted: BTreeSet<String> =
        files.iter().filter(|path| path.starts_with("docs/")).cloned().collect();
    let mut unread: Vec<String> = wanted.iter().cloned().chain([SUMMARY.to_string()]).collect();
    while let Some(path) = unread.pop() {
        if !path.ends_with(".md") {
            continue;
        }
        let text = fs::read_to_string(workspace.path(&path)).with_context(|| format!("reading {path}"))?;
        let linked = links(&text).into_iter().filter_map(|(link, _)| resolve(&path, &link));
        let included: Vec<String> = included(&text).filter_map(|link| resolve(&path, link)).collect();
        // mdBook would say so and go on.
        if let Some(missing) = included.iter().find(|target| !files.contains(*target)) {
            bail!("{path} takes in {missing}, which is not there");
        }
        for target in linked.chain(included).collect::<Vec<_>>() {
            if files.contains(&target) && target != SUMMARY && wanted.insert(target.clone()) {
                unread.push(target);
            }
        }
    }
    for path in wanted {
        let to = source.join(&path);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(workspace.path(&path), &to).with_context(|| format!("copying {path}"))?;
    }
    let summary = fs::read_to_string(workspace.path(SUMMARY)).context("reading the summary")?;
    fs::write(source.join("SUMMARY.md"), from_the_root(&summary))?;
    Ok(())
}

/// The files that a page takes in with mdBook's `{{#include FILE}}`.
fn included(text: &str) -> impl Iterator<Item = &str> {
    text.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next()).map(str::trim)
}

/// mdBook wants its summary beside the first page, which is the README.
fn from_the_root(summary: &str) -> String {
    summary.replace("](../../../", "](")
}

/// Links of the site's pages to files, and to places in them, that are not there.
fn broken_links(site: &Path) -> Result<Vec<String>> {
    let mut pages = Vec::new();
    let mut folders = vec![site.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "html") {
                pages.push(path);
            }
        }
    }
    let mut broken = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page)?;
        for (link, anchor) in relative_links(&text) {
            let target = target(&page, link);
            let is_there = match anchor {
                Some(anchor) => fs::read_to_string(&target).is_ok_and(|text| has_anchor(&text, anchor)),
                None => target.is_file(),
            };
            if !is_there {
                let anchor = anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
                broken.push(format!("{}: {link}{anchor}", page.display()));
            }
        }
    }
    broken.sort();
    broken.dedup();
    Ok(broken)
}

/// `href` and `src` within the site: the file, which is empty for the page itself, and the place in it.
fn relative_links(page: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let values = [" href=\"", " src=\""].into_iter().flat_map(move |name| page.split(name).skip(1));
    let values = values.filter_map(|rest| rest.split('"').next());
    let inside = values.filter(|link| {
        !link.is_empty() && !link.contains(':') && !link.starts_with("//") && !link.contains("{{")
    });
    inside.map(|link| match link.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor).filter(|anchor| !anchor.is_empty())),
        None => (link, None),
    })
}

fn target(page: &Path, link: &str) -> PathBuf {
    let folder = page.parent().unwrap_or(page);
    match link {
        "" => page.to_path_buf(),
        link if link.ends_with('/') => folder.join(link).join("index.html"),
        link => folder.join(link),
    }
}

fn has_anchor(page: &str, anchor: &str) -> bool {
    page.contains(&format!("id=\"{anchor}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read_from_the_root() {
        assert_eq!(from_the_root("[a](../../../docs/a.md) [b](../../../b.md)"), "[a](docs/a.md) [b](b.md)");
    }

    #[test]
    fn links_within_the_site_are_followed_to_their_place() {
        let page =
            r##"<a href="b.html#x">b</a> <a href="https://c">c</a> <img src="d.png"> <a href="#y">y</a>"##;
        let found: Vec<_> = relative_links(page).collect();
        assert_eq!(found, [("b.html", Some("x")), ("", Some("y")), ("d.png", None)]);
        let folder = std::env::temp_dir().join(format!("xtask-site-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.html"), page).unwrap();
        fs::write(folder.join("b.html"), "<h1 id=\"x\">").unwrap();
        let broken = broken_links(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].ends_with("a.html: #y") && broken[1].ends_with("a.html: d.png"), "{broken:?}");
    }

    #[test]
    fn what_a_page_includes_is_found() {
        assert_eq!(included("a\n{{#include ../b.txt}}\n").collect::<Vec<_>>(), ["../b.txt"]);
    }
}
