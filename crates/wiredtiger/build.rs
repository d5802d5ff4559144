//! Compiles WiredTiger from its PyPI source distribution with nothing but a C compiler: no cmake, swig or
//! libclang.
//!
//! The source is found in `$WT_SRC_DIR`, or else in `third_party/wiredtiger-11.3.1` of the workspace, where
//! `make setup` puts it. `WT_SYSTEM=1` links Debian's `libwiredtiger-dev` (3.2.1) instead; that
//! library has no builtin snappy, so a connection must then name `extensions=[…/libwiredtiger_snappy.so]`
//! itself, and the tests that compress fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The version that `make setup` pins; another one is compiled only when `$WT_SRC_DIR` asks for it.
const VERSION: &str = "11.3.1";

/// These files clash with a neighbour's static names, so each is a translation unit of its own.
const ALONE: [&str; 3] = ["src/block/block_write.c", "src/btree/row_srch.c", "src/config/test_config.c"];

/// What cmake finds on any glibc Linux.
const PRESENT: [&str; 25] = [
    "CLOCK_GETTIME",
    "DLFCN_H",
    "FALLOCATE",
    "FDATASYNC",
    "GETTIMEOFDAY",
    "INTTYPES_H",
    "LIBDL",
    "LIBPTHREAD",
    "LIBRT",
    "MEMORY_H",
    "POSIX_FADVISE",
    "POSIX_FALLOCATE",
    "POSIX_MADVISE",
    "POSIX_MEMALIGN",
    "PTHREAD_COND_MONOTONIC",
    "SETRLIMIT",
    "STDINT_H",
    "STDLIB_H",
    "STRINGS_H",
    "STRING_H",
    "STRTOUQ",
    "SYNC_FILE_RANGE",
    "SYS_STAT_H",
    "TIMER_CREATE",
    "UNISTD_H",
];

fn main() {
    for variable in ["WT_SRC_DIR", "WT_SYSTEM"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=c/shim.c");
    let built = if env::var_os("WT_SYSTEM").is_some() { link_system() } else { compile_source() };
    if let Err(reason) = built {
        // Cargo then fails by itself, with this sentence and without a dump of what the script printed.
        println!("cargo::error={reason}");
    }
}

/// Links the distribution's library; the shim compiles unchanged against its older header.
fn link_system() -> Result<(), String> {
    cc::Build::new().file("c/shim.c").define("TIPOVER_SYSTEM_WIREDTIGER", None).compile("tipover_shim");
    println!("cargo::rustc-link-lib=dylib=wiredtiger");
    println!("cargo::rustc-env=TIPOVER_WIREDTIGER_SOURCE=");
    println!("cargo::rustc-env=TIPOVER_WIREDTIGER_BUILD=");
    Ok(())
}

fn compile_source() -> Result<(), String> {
    let source = source_folder()?;
    let build = PathBuf::from(variable("OUT_DIR")?);
    // One small file stands for the whole tree: a pinned distribution does not change in place.
    println!("cargo::rerun-if-changed={}", source.join("RELEASE_INFO").display());

    let include = write_headers(&source, &build).map_err(|error| readable(&source, &error))?;
    let units = write_units(&source, &build).map_err(|error| readable(&source, &error))?;
    println!("cargo::rustc-env=TIPOVER_WIREDTIGER_SOURCE={}", source.display());
    println!("cargo::rustc-env=TIPOVER_WIREDTIGER_BUILD={}", build.display());
    // Clippy has a build folder of its own and links nothing, so there the engine would be compiled for
    // nobody.
    if env::var("RUSTC_WORKSPACE_WRAPPER").is_ok_and(|wrapper| wrapper.contains("clippy-driver")) {
        return Ok(());
    }
    compile_engine(&source, &build, &include, &units)?;
    cc::Build::new().file("c/shim.c").include(&include).opt_level(2).warnings(true).compile("tipover_shim");
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    env::var(name).map_err(|_| format!("cargo did not set {name}"))
}

fn readable(source: &Path, error: &io::Error) -> String {
    format!("cannot read the WiredTiger source in {}: {error}", source.display())
}

fn source_folder() -> Result<PathBuf, String> {
    let (folder, hint) = match env::var_os("WT_SRC_DIR") {
        Some(folder) => (
            PathBuf::from(folder),
            "unset WT_SRC_DIR, or point it at an unpacked source distribution".to_string(),
        ),
        None => {
            let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
            let root = manifest.ancestors().nth(2).unwrap_or(&manifest).to_path_buf();
            let folder = root.join("third_party").join(format!("wiredtiger-{VERSION}"));
            (folder, format!("run `make setup` in {}", root.display()))
        }
    };
    folder
        .join("dist/filelist")
        .exists()
        .then(|| folder.canonicalize().unwrap_or_else(|_| folder.clone()))
        .ok_or_else(|| format!("the source of WiredTiger {VERSION} is not in {}: {hint}", folder.display()))
}

/// Makes `wiredtiger.h` from its template and `wiredtiger_config.h` from [`PRESENT`].
fn write_headers(source: &Path, build: &Path) -> io::Result<PathBuf> {
    let release = fs::read_to_string(source.join("RELEASE_INFO"))?;
    let part = |name: &str| {
        let key = format!("WIREDTIGER_VERSION_{name}=");
        release.lines().find_map(|line| line.strip_prefix(&key)).unwrap_or("0").trim().to_owned()
    };
    let (major, minor, patch) = (part("MAJOR"), part("MINOR"), part("PATCH"));
    let includes = ["sys/types.h", "inttypes.h", "stdarg.h", "stdbool.h", "stdint.h", "stdio.h"]
        .map(|name| format!("#include <{name}>\n"))
        .concat();
    let header = fs::read_to_string(source.join("src/include/wiredtiger.in"))?
        .replace("@VERSION_MAJOR@", &major)
        .replace("@VERSION_MINOR@", &minor)
        .replace("@VERSION_PATCH@", &patch)
        .replace("@VERSION_STRING@", &format!("\"WiredTiger {major}.{minor}.{patch}\""))
        .replace("@wiredtiger_includes_decl@", &includes)
        .replace("@off_t_decl@", "typedef off_t wt_off_t;")
        .replace("@uintmax_t_decl@", "")
        .replace("@uintptr_t_decl@", "");
    let mut config = String::from("#pragma once\n");
    for name in PRESENT {
        config += &format!("#define HAVE_{name} 1\n");
    }
    // Snappy must be builtin: a compressed journal is recovered inside wiredtiger_open, before a compressor
    // can be added.
    config += "#define HAVE_BUILTIN_EXTENSION_SNAPPY 1\n";
    config += "#define SPINLOCK_TYPE SPINLOCK_PTHREAD_MUTEX\n";
    config += "#define WT_BUFFER_ALIGNMENT_DEFAULT 4096\n#define WT_STANDALONE_BUILD 1\n";
    config += &format!("#define VERSION \"{major}.{minor}.{patch}\"\n");

    let include = build.join("include");
    fs::create_dir_all(&include)?;
    fs::write(include.join("wiredtiger.h"), header)?;
    fs::write(include.join("wiredtiger_config.h"), config)?;
    Ok(include)
}

/// Writes one translation unit per source folder, longest first: every file parses the same huge internal
/// header, so this takes a third of the compile time of one unit per file.
fn write_units(source: &Path, build: &Path) -> io::Result<Vec<PathBuf>> {
    let host = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("aarch64") => "ARM64_HOST",
        _ => "X86_HOST",
    };
    let mut units: BTreeMap<String, String> = BTreeMap::new();
    for line in
        fs::read_to_string(source.join("dist/filelist"))?.lines().filter(|line| !line.starts_with('#'))
    {
        let mut words = line.split_whitespace();
        let Some(file) = words.next() else { continue };
        if words.next().is_some_and(|only| !["POSIX_HOST", "LINUX_HOST", host].contains(&only)) {
            continue;
        }
        let folder = file.split('/').nth(1).unwrap_or(file);
        let alone = ALONE.contains(&file) || folder == "checksum";
        let unit = if alone { file.replace('/', "_") } else { format!("{folder}.c") };
        *units.entry(unit).or_default() += &format!("#include \"{}\"\n", source.join(file).display());
    }
    let folder = build.join("units");
    fs::create_dir_all(&folder)?;
    let mut units: Vec<_> = units.into_iter().collect();
    units.sort_by_key(|(_, body)| std::cmp::Reverse(body.len()));
    units
        .into_iter()
        .map(|(name, body)| {
            let path = folder.join(format!("unit_{name}"));
            fs::write(&path, body)?;
            Ok(path)
        })
        .collect()
}

/// Compiles the engine, unless this very build is already there: editing the shim must not cost half a
/// minute.
fn compile_engine(source: &Path, build: &Path, include: &Path, units: &[PathBuf]) -> Result<(), String> {
    let flags: &[&str] = match variable("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => &["-DHAVE_X86INTRIN_H"],
        "aarch64" => &["-march=armv8-a+crc", "-moutline-atomics", "-DHAVE_ARM_NEON_INTRIN_H"],
        other => return Err(format!("WiredTiger is wired up for x86_64 and aarch64, not for {other}")),
    };
    let mut compiler = cc::Build::new();
    compiler.include(include).include(source.join("src/include")).files(units);
    compiler.opt_level(2).debug(false).warnings(false).pic(true);
    for flag in ["-w", "-fno-strict-aliasing", "-D_GNU_SOURCE", "-DNDEBUG"].iter().chain(flags) {
        compiler.flag(flag);
    }
    let recipe = format!("{:?} {units:?}", compiler.get_compiler().to_command());
    let stamp = build.join("engine.recipe");
    let archive = build.join("libtipover_wiredtiger.a");
    if archive.exists() && fs::read_to_string(&stamp).is_ok_and(|last| last == recipe) {
        println!("cargo::rustc-link-search=native={}", build.display());
        println!("cargo::rustc-link-lib=static=tipover_wiredtiger");
        return Ok(());
    }
    compiler
        .try_compile("tipover_wiredtiger")
        .map_err(|error| format!("WiredTiger does not compile: {error}"))?;
    fs::write(&stamp, recipe).map_err(|error| format!("cannot write {}: {error}", stamp.display()))
}
