//! Manifests: every dependency is argued for, and every crate obeys the same lints.

use super::{File, Finding};

/// Checks the root manifest and the members'.
pub fn check(files: &[File]) -> Vec<Finding> {
    let manifests = files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    manifests.flat_map(|file| if file.path == "Cargo.toml" { arguments(file) } else { lints(file) }).collect()
}

/// Each external dependency says on its line, or above it, why it is here.
fn arguments(file: &File) -> Vec<Finding> {
    let mut section = "";
    let mut above = "";
    let mut findings = Vec::new();
    for (index, line) in file.text().lines().enumerate() {
        if line.starts_with('[') {
            section = line;
        } else if section == "[workspace.dependencies]" && line.contains('=') && !line.starts_with('#') {
            let is_ours = line.contains("path = ");
            if !is_ours && !line.contains('#') && !above.starts_with('#') {
                let name = line.split('=').next().unwrap_or_default().trim();
                findings.push(Finding::at(
                    &file.path,
                    index + 1,
                    format!("{name}: say in a comment why it is here"),
                ));
            }
        }
        above = line;
    }
    findings
}

fn lints(file: &File) -> Vec<Finding> {
    let inherits =
        file.text().lines().skip_while(|line| *line != "[lints]").nth(1) == Some("workspace = true");
    if inherits {
        Vec::new()
    } else {
        vec![Finding::about(&file.path, "must inherit the lints: [lints] workspace = true")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argued_dependency_is_acquitted_and_a_silent_one_convicted() {
        let head = "[workspace.dependencies]\nours = { path = \"x\" }\n";
        let tail = "# for tests
proptest = \"1\"

[profile.release]
debug = true
";
        let good = format!(
            "{head}serde = \"1\" # formats
{tail}"
        );
        assert!(check(&[File::of("Cargo.toml", &good)]).is_empty());
        let bad = format!("{head}serde = \"1\"\n");
        assert_eq!(check(&[File::of("Cargo.toml", &bad)])[0].line, 3);
    }

    #[test]
    fn a_member_without_lints_is_convicted() {
        assert!(check(&[File::of("crates/a/Cargo.toml", "[lints]\nworkspace = true\n")]).is_empty());
        assert_eq!(check(&[File::of("crates/a/Cargo.toml", "[package]\n")]).len(), 1);
    }
}
