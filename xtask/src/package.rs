//! `make package`: a Debian package and a tarball of the release, and whether they work in a clean root.

mod portable;
mod readme;
mod sbom;
mod sign;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use self::portable::{ARM64, Machine};
use crate::process::{Step, find_program, run};
use crate::setup;
use crate::workspace::Workspace;

/// What is made.
struct Package {
    /// Where everything of it lies.
    folder: PathBuf,
    version: String,
    machine: Machine,
    /// When the commit was made, in seconds: what files say of their age, so that two builds give the same
    /// bytes.
    epoch: String,
    /// The same as a date.
    made: String,
}

/// Builds the release and packs it; with `--arm64` for that processor too, with `--check` installs and uses
/// it in a root that has nothing else, with `--sign KEY` signs what was made.
pub fn package(workspace: &Workspace, flags: &[String]) -> Result<()> {
    let (mut is_checked, mut is_built, mut is_for_both, mut key) = (false, false, false, None);
    let mut given = flags.iter();
    while let Some(flag) = given.next() {
        match flag.as_str() {
            "--check" => is_checked = true,
            // Who has just built it, or builds with other settings, packs what is there.
            "--as-built" => is_built = true,
            "--arm64" => is_for_both = true,
            "--sign" => key = Some(sign::key(given.next())?),
            unknown => bail!("package knows --arm64, --check, --as-built and --sign KEY, not `{unknown}`"),
        }
    }
    if let Some(set) = ["WT_SYSTEM", "WT_SRC_DIR"].iter().find(|name| std::env::var_os(name).is_some()) {
        bail!("{set} asks for another WiredTiger than the one that a package says is in it; unset {set}");
    }
    let here = Machine::here()?;
    if is_checked {
        // Known before a quarter of an hour is spent on compiling.
        setup::install("debootstrap")?;
    }
    let program = match is_built {
        true => Program::as_built(workspace)?,
        false => build(workspace, here)?,
    };
    let mut package = Package::new(workspace, here)?;
    if package.folder.exists() {
        fs::remove_dir_all(&package.folder).context("removing the last package")?;
    }
    let mut made = package.pack(workspace, &program)?;
    if is_checked {
        check(workspace, &package, &made[0], &program)?;
    }
    if is_for_both && here != ARM64 {
        let path = portable::build(workspace, ARM64)?;
        portable::prove(&fs::read(&path)?)?;
        package.machine = ARM64;
        made.extend(package.pack(workspace, &Program { path, is_portable: true, ..program.clone() })?);
    }
    match key {
        Some(key) => made.iter().try_for_each(|path| sign::sign(&key, path))?,
        None => println!("    unsigned; an SSH key of yours signs them with ARGS=\"--sign KEY\""),
    }
    Ok(())
}

/// What is packed.
#[derive(Clone)]
struct Program {
    path: PathBuf,
    /// The same for the processor that this runs on, which tells what its manual pages say.
    here: PathBuf,
    /// Whether it was compiled for older systems, with what that puts into it.
    is_portable: bool,
}

impl Program {
    /// The release binary that is there.
    fn as_built(workspace: &Workspace) -> Result<Program> {
        let path = workspace.target_folder()?.join("release/tipover");
        Ok(Program { here: path.clone(), path, is_portable: false })
    }

    /// What is in it besides Rust packages.
    fn foreign(&self) -> Vec<&'static setup::Source> {
        // The compiler, not what lets Cargo use it.
        setup::SOURCES.iter().chain(setup::FOR_PACKAGES.iter().take(usize::from(self.is_portable))).collect()
    }
}

/// Builds the release so that it runs on older systems, or says loudly that it does not.
fn build(workspace: &Workspace, machine: Machine) -> Result<Program> {
    setup::set_up(workspace, setup::Purpose::Sources)?;
    match portable::build(workspace, machine) {
        Ok(path) => {
            portable::prove(&fs::read(&path)?)?;
            Ok(Program { here: path.clone(), path, is_portable: true })
        }
        Err(error) => {
            println!("WARNING: this package will run only where glibc is as new as here: {error:#}");
            crate::build(workspace, setup::Purpose::Sources)?;
            Program::as_built(workspace)
        }
    }
}

impl Package {
    fn new(workspace: &Workspace, machine: Machine) -> Result<Package> {
        let mut git = workspace.command("git");
        let told = git.args(["log", "-1", "--format=%ct %cI"]).output().context("cannot start git")?;
        let told = String::from_utf8_lossy(&told.stdout).trim().to_string();
        let (epoch, made) = told.split_once(' ').context("git tells no date of the last commit")?;
        let version = fs::read_to_string(workspace.path("Cargo.toml"))?;
        let version = version.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
        Ok(Package {
            folder: workspace.target_folder()?.join("package"),
            version: version.context("Cargo.toml has no version")?.to_string(),
            machine,
            epoch: epoch.to_string(),
            made: made.to_string(),
        })
    }

    /// The tree as it will lie under `/`.
    fn root(&self) -> PathBuf {
        self.folder.join(format!("root-{}", self.machine.debian))
    }

    /// Makes the Debian package, the tarball and the bill of materials: their paths.
    fn pack(&self, workspace: &Workspace, program: &Program) -> Result<Vec<PathBuf>> {
        let step = Step::begin(&format!("pack for {}", self.machine.debian));
        let bill = self.fill(workspace, program)?;
        let made = vec![self.deb(workspace)?, self.tarball(workspace)?, bill];
        for path in &made {
            println!("    {} ({} kB)", path.display(), fs::metadata(path)?.len() / 1000);
        }
        step.done();
        Ok(made)
    }

    /// Puts everything into its place, and the bill of materials also beside the packages: its path.
    fn fill(&self, workspace: &Workspace, program: &Program) -> Result<PathBuf> {
        let usr = self.root().join("usr");
        let binary = usr.join("bin/tipover");
        copy(&program.path, &binary)?;
        // Names of functions stay, for the words of a panic; lines of the source do not.
        let mut strip = portable::object_copier(workspace)?;
        run({
            // The linker's number for a build is made of the lines too, and these of the checkout's folder.
            strip.args(["--strip-debug", "--remove-section=.note.gnu.build-id"]).arg(&binary);
            strip
        })?;
        let made = self.folder.join("made");
        let mut files = workspace.command(&program.here);
        files.arg("package-files").arg(&made);
        run(files)?;
        for page in sorted(&made.join("man"))? {
            copy(&page, &usr.join("share/man/man1").join(name(&page)))?;
        }
        let completions = [
            ("tipover.bash", "bash-completion/completions/tipover"),
            ("_tipover", "zsh/vendor-completions/_tipover"),
            ("tipover.fish", "fish/vendor_completions.d/tipover.fish"),
        ];
        for (from, to) in completions {
            copy(&made.join("completions").join(from), &usr.join("share").join(to))?;
        }
        for folder in ["experiments", "published"] {
            copy_all(&workspace.path(folder), &usr.join("share/tipover").join(folder))?;
        }
        let documents = usr.join("share/doc/tipover");
        for file in ["README.md", "CHANGELOG.md", "NOTICE", "LICENSE"] {
            copy(&workspace.path(file), &documents.join(file))?;
        }
        copy_all(&workspace.path("docs"), &documents.join("docs"))?;
        fs::write(documents.join("copyright"), licences(workspace, &program.foreign(), self.machine)?)?;
        let hash = sha256(workspace, &binary)?;
        let bill = sbom::bill_of_materials(workspace, &program.foreign(), &hash, &self.made, self.machine)?;
        let outside = self.folder.join(format!("tipover_{}_{}.cdx.json", self.version, self.machine.debian));
        fs::write(&outside, serde_json::to_string_pretty(&bill)? + "\n")?;
        copy(&outside, &documents.join("tipover.cdx.json"))?;
        // Pages are compressed as Debian does it, without the time of day in them.
        let pages = sorted(&usr.join("share/man/man1"))?;
        let mut gzip = workspace.command("gzip");
        gzip.args(["-9", "-n"]).args(pages);
        run(gzip)?;
        readable_by_all(workspace, &self.root())?;
        Ok(outside)
    }

    /// The Debian package.
    fn deb(&self, workspace: &Workspace) -> Result<PathBuf> {
        let (version, architecture) = (&self.version, self.machine.debian);
        let tree = self.folder.join(format!("deb-{architecture}"));
        let mut link = workspace.command("cp");
        link.args(["-a"]).arg(self.root()).arg(&tree);
        run(link)?;
        let binary = fs::read(self.root().join("usr/bin/tipover"))?;
        let glibc = portable::glibc(&binary).context("the program names no version of glibc")?;
        // What unwinds the stack is inside of a program that Zig links.
        let unwinder = if portable::names(&binary, "libgcc_s.so.1") { ", libgcc-s1" } else { "" };
        let control = format!(
            "Package: tipover\nVersion: {version}\nArchitecture: {architecture}\nSection: database\nPriority: optional\n\
             Maintainer: The Tipover authors <tipover@localhost>\nDepends: libc6 (>= {glibc}){unwinder}\n\
             Recommends: e2fsprogs, fuse3, mount\nSuggests: xfsprogs, postgresql, mariadb-server\n\
             Description: laboratory for a database and its disk\n \
             Measures how a database behaves as working set, caches, disk, concurrency and durability vary,\n \
             finds the load at which a promise still holds, breaks databases on purpose, and says whether an\n \
             acknowledged write was lost.\n"
        );
        fs::create_dir(tree.join("DEBIAN"))?;
        fs::write(tree.join("DEBIAN/control"), control)?;
        readable_by_all(workspace, &tree.join("DEBIAN"))?;
        let path = self.folder.join(format!("tipover_{version}_{architecture}.deb"));
        let mut build = workspace.command("dpkg-deb");
        build.env("SOURCE_DATE_EPOCH", &self.epoch).args(["--root-owner-group", "-Zxz", "--build"]);
        run({
            build.arg(&tree).arg(&path);
            build
        })?;
        Ok(path)
    }

    /// The same for systems without dpkg, to be unpacked over `/` or `/usr/local`'s parent.
    fn tarball(&self, workspace: &Workspace) -> Result<PathBuf> {
        let whole = format!("tipover-{}-linux-{}", self.version, self.machine.kernel);
        fs::rename(self.root().join("usr"), self.folder.join(&whole))?;
        let path = self.folder.join(format!("{whole}.tar.gz"));
        let mut tar = workspace.command("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg(format!("--mtime=@{}", self.epoch)).arg("--use-compress-program=gzip -9n");
        tar.arg("-C").arg(&self.folder).arg("-cf").arg(&path).arg(&whole);
        run(tar)?;
        Ok(path)
    }
}

/// Installs the package in a root that debootstrap makes, measures there, and removes it again.
fn check(workspace: &Workspace, package: &Package, deb: &Path, program: &Program) -> Result<()> {
    let step = Step::begin("install, use and remove it in a clean root");
    let root = package.folder.join("clean");
    // The oldest release that has the glibc that it asks for.
    let is_old = portable::prove(&fs::read(&program.path)?).is_ok();
    let release = if is_old { "bullseye" } else { "bookworm" };
    let mut bootstrap = workspace.command(find_program("debootstrap").context("debootstrap is gone")?);
    run({
        bootstrap.args(["--variant=minbase", release]).arg(&root);
        bootstrap
    })?;
    let before = files_below(&root.join("usr"))?;
    copy(deb, &root.join("tmp/tipover.deb"))?;
    // Mounts in a namespace of their own end with the command.
    let script = r#"mount --rbind /dev "$0/dev" && mount --rbind /sys "$0/sys" && mount -t proc proc "$0/proc" && exec chroot "$0" "$@""#;
    let entering = |more: &[&str], words: &[&str]| {
        let mut command = workspace.command("unshare");
        command.args(["--mount", "--propagation", "private"]).args(more).args(["sh", "-c", script]);
        command.arg(&root).args(words);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let inside = |words: &[&str]| run(entering(&[], words));
    inside(&["dpkg", "-i", "/tmp/tipover.deb"])?;
    inside(&["tipover", "--version"])?;
    inside(&["tipover", "explain", "tipping", "point"])?;
    inside(&["tipover", "list"])?;
    // On a busy machine some trial may be not valid, and the exit code says so; what the run leaves is
    // read by the next command in any case.
    if let Err(error) =
        inside(&["tipover", "--results", "/tmp/results", "run", "working-set", "--scale", "tiny"])
    {
        println!("    {error:#}");
    }
    let report = root.join("tmp/results/working-set/report.html");
    if !report.is_file() {
        bail!("{} is missing: nothing was measured", report.display());
    }
    inside(&["tipover", "--results", "/tmp/results", "export", "working-set", "-o", "/tmp/tables"])?;
    inside(&["dpkg", "--purge", "tipover"])?;
    let after = files_below(&root.join("usr"))?;
    let left: Vec<_> = after.difference(&before).take(5).collect();
    if !left.is_empty() {
        bail!("removed, and still there: {left:?}");
    }
    readme::prepare(&root, |words| entering(&[], words))?;
    readme::carry_out(workspace, &root, |words| entering(&["--net"], words))?;
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    if mounts.contains(root.to_string_lossy().as_ref()) {
        bail!("something is mounted below {}: take it away before you remove the folder", root.display());
    }
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    step.done();
    Ok(())
}

/// The notice and every licence that a binary has to carry: ours, WiredTiger's, Plotly's and those of the
/// Rust packages in it, each text once.
fn licences(workspace: &Workspace, foreign: &[&setup::Source], machine: Machine) -> Result<String> {
    let mut text = fs::read_to_string(workspace.path("NOTICE"))?;
    let mut add = |title: &str, path: &Path| -> Result<()> {
        let words = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        text += &format!("\n\n{}\n{title}\n{}\n\n{words}", "=".repeat(78), "=".repeat(78));
        Ok(())
    };
    add("Tipover", &workspace.path("LICENSE"))?;
    for source in foreign {
        let called = format!("{}-{}", source.project, source.version);
        let folder = source.folder(workspace);
        // Of a compiler its own and that of LLVM's library, which unwinds the stack.
        let files = ["LICENSE", "LICENSE.txt", "lib/libunwind/LICENSE.TXT"].map(|file| folder.join(file));
        let found: Vec<&PathBuf> = files.iter().filter(|at| at.is_file()).collect();
        if found.is_empty() {
            bail!("{called} brings no licence; run `make setup`");
        }
        found.into_iter().try_for_each(|at| add(&called, at))?;
    }
    let metadata = workspace.metadata()?;
    let parts = tree::tree(workspace, tree::LINKED_OR_WRITTEN_BY, machine)?;
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    for package in crate::workspace::array(&metadata["packages"]) {
        let is = |key: &str| crate::workspace::text(&package[key]);
        let called = format!("{} {}", is("name"), is("version"));
        if parts.get(&called).is_none_or(|part| part.ours) {
            continue;
        }
        let manifest = PathBuf::from(is("manifest_path"));
        let folder = manifest.parent().context("a manifest lies in a folder")?;
        let mut found = false;
        for file in sorted(folder)? {
            let upper = name(&file).to_uppercase();
            let is_licence =
                ["LICENSE", "LICENCE", "COPYING", "NOTICE"].iter().any(|word| upper.starts_with(word));
            if let (true, true, Ok(words)) = (is_licence, file.is_file(), fs::read_to_string(&file)) {
                found = true;
                match texts.iter_mut().find(|(text, _)| *text == words) {
                    Some((_, of)) if of.contains(&called) => {}
                    Some((_, of)) => of.push(called.clone()),
                    None => texts.push((words, vec![called.clone()])),
                }
            }
        }
        if !found {
            texts.push((
                format!("Its licence is {}; it brings no text of it.\n", is("license")),
                vec![called],
            ));
        }
    }
    for (words, of) in texts {
        text += &format!("\n\n{}\n{}\n{}\n\n{words}", "=".repeat(78), of.join(", "), "=".repeat(78));
    }
    Ok(text)
}

/// Of a file, in hexadecimal.
fn sha256(workspace: &Workspace, path: &Path) -> Result<String> {
    let told = workspace.command("sha256sum").arg(path).output().context("cannot start sha256sum")?;
    let told = String::from_utf8_lossy(&told.stdout);
    let hash = told.split_whitespace().next().filter(|hash| hash.len() == 64);
    Ok(hash.with_context(|| format!("sha256sum says nothing of {}", path.display()))?.to_string())
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
    fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn copy_all(from: &Path, to: &Path) -> Result<()> {
    for path in sorted(from)? {
        let to = to.join(name(&path));
        if path.is_dir() { copy_all(&path, &to)? } else { copy(&path, &to)? }
    }
    Ok(())
}

/// Gives a tree the modes of installed files, whatever the umask was under which it was made.
fn readable_by_all(workspace: &Workspace, folder: &Path) -> Result<()> {
    let mut modes = workspace.command("chmod");
    modes.args(["-R", "u=rwX,go=rX"]).arg(folder);
    run(modes)
}

/// Everything below a folder, but for what the system itself writes as it goes.
fn files_below(folder: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for path in sorted(folder)? {
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_below(&path)?);
        }
        found.insert(path);
    }
    Ok(found)
}
