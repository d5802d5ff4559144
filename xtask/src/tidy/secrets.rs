//! What must not be in a public repository: secrets, one machine's paths, and build output.

use super::{File, Finding};

/// Written in two halves, so that this file does not convict itself.
const SECRETS: &[(&str, &str)] = &[
    (concat!("PRIVATE", " KEY-----"), "a private key"),
    (concat!("AK", "IA"), "an access key"),
    (concat!("gh", "p_"), "an access token"),
    (concat!("github", "_pat_"), "an access token"),
    (concat!("xo", "xb-"), "an access token"),
];

const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

const REGISTRY_HOSTS: &[&str] = &[
    concat!("pypi", ".org"),
    concat!("python", "hosted.org"),
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
    concat!("registry.", "npmjs"),
    concat!("proxy.", "golang.org"),
    concat!("deb.", "debian.org"),
    concat!("archive.", "ubuntu.com"),
];

const OUTPUT_FOLDERS: &[&str] = &["target/", "third_party/", "results/"];
const OUTPUT_ENDINGS: &[&str] =
    &[".o", ".a", ".so", ".rlib", ".rmeta", ".pyc", ".whl", ".gz", ".img", ".profraw", ".log"];
const SIZE_LIMIT: u64 = 1 << 20;

/// Checks every file of the repository.
pub fn check(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(output(file));
        for (index, line) in file.text().lines().enumerate() {
            let complaints = secrets(line).chain(machine(line));
            findings.extend(complaints.map(|message| Finding::at(&file.path, index + 1, message)));
        }
    }
    findings
}

fn output(file: &File) -> Option<Finding> {
    let inside = OUTPUT_FOLDERS.iter().any(|folder| file.path.starts_with(folder));
    if inside || OUTPUT_ENDINGS.iter().any(|ending| file.path.ends_with(ending)) {
        return Some(Finding::about(&file.path, "looks like build output; ignore it instead"));
    }
    (file.size > SIZE_LIMIT)
        .then(|| Finding::about(&file.path, "is over 1 MiB; can it be made or fetched instead?"))
}

fn secrets(line: &str) -> impl Iterator<Item = String> {
    let known = SECRETS.iter().filter(|(mark, _)| marks_a_secret(line, mark)).map(|(_, what)| *what);
    known
        .chain(has_password_in_address(line).then_some("a password in an address"))
        .map(|what| format!("looks like {what}"))
}

/// A mark alone is only a word; a token has at least sixteen letters or digits after it.
fn marks_a_secret(line: &str, mark: &str) -> bool {
    line.match_indices(mark).any(|(at, _)| {
        let token = line[at + mark.len()..].chars().take_while(|letter| letter.is_ascii_alphanumeric());
        mark.ends_with('-') && mark.contains(' ') || token.count() >= 16
    })
}

/// `scheme://name:password@host`, unless the password is an obvious placeholder.
fn has_password_in_address(line: &str) -> bool {
    line.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', ' ', '"', '\'', '`', ')']).next().unwrap_or_default();
        let Some((user, _)) = authority.rsplit_once('@') else { return false };
        let Some((_, password)) = user.split_once(':') else { return false };
        let is_placeholder = ["password", "pass", "secret", "***"].contains(&password)
            || password.starts_with(['<', '{', '$']);
        !password.is_empty() && !is_placeholder
    })
}

fn machine(line: &str) -> impl Iterator<Item = String> {
    let paths = MACHINE_PATHS.iter().filter(|path| begins_a_path(line, path));
    let hosts = REGISTRY_HOSTS.iter().filter(|host| line.contains(**host));
    paths
        .map(|path| format!("`{path}` is a path of one machine"))
        .chain(hosts.map(|host| format!("`{host}`: the registry is the machine's choice, never ours")))
}

/// In `docs/root/` the same letters are the middle of a relative path.
fn begins_a_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-~*}$".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Vec<String> {
        check(&[File::of("a.md", text)]).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn secrets_are_convicted() {
        assert_eq!(judged(&format!("key = {}{}", SECRETS[2].0, "a".repeat(36))).len(), 1);
        assert_eq!(judged(&format!("-----BEGIN {}", SECRETS[0].0)).len(), 1);
        assert_eq!(
            judged(concat!("mongodb://me:hunter", "2@host/db")),
            ["looks like a password in an address"]
        );
    }

    #[test]
    fn words_about_secrets_are_acquitted() {
        assert!(judged(&format!("a token begins with {}", SECRETS[2].0)).is_empty());
        assert!(judged("postgres://user:password@host and mongodb://host:27017/?a=b@c").is_empty());
    }

    #[test]
    fn one_machines_paths_and_registries_are_convicted() {
        assert_eq!(judged(&format!("see {}main/x", MACHINE_PATHS[0])).len(), 1);
        assert_eq!(judged(&format!("from {}", REGISTRY_HOSTS[0])).len(), 1);
        assert!(judged(&format!("docs{}x and crates.io", MACHINE_PATHS[1])).is_empty());
    }

    #[test]
    fn build_output_is_convicted() {
        assert_eq!(check(&[File::of("third_party/x/y.c", "")]).len(), 1);
        assert_eq!(check(&[File::of("crates/a/b.o", "")]).len(), 1);
        assert_eq!(
            check(&[File { path: "big.json".to_string(), size: SIZE_LIMIT + 1, text: None }]).len(),
            1
        );
        assert!(check(&[File::of("crates/a/b.rs", "")]).is_empty());
    }
}
