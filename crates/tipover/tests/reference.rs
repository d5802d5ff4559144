//! Pages of the guide's reference that are made of the program's own sources, so that they cannot say
//! something else: the keys of plans, and the laws of the audit.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tipover_core::audit;
use tipover_core::device::{self, PowerCut, Rule};
use tipover_core::experiment::{
    self, BreakSpec, DiskSpec, LabSpec, LoadSpec, MachineSpec, Promise, SearchSpec, TenantSpec,
};
use tipover_core::experiment::{FileIoSpec, ScriptsSpec, TargetSpec, TrialSpec, WorkloadSpec};
use tipover_core::schedule::Schedule;
use tipover_core::units::{Bytes, Ratio, span};
use tipover_core::workload::bank::BankSpec;
use tipover_core::workload::distribution::Requests;
use tipover_core::workload::file_io::Blocks;
use tipover_core::workload::script::SampleSpec;
use tipover_core::workload::sysbench::Sysbench;
use tipover_core::workload::{Arrivals, Lengths, Values};

const OURS: &str = "our own source can be read";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a page with its file in docs/, or, with UPDATE_GOLDEN=1, writes the file.
fn assert_page(name: &str, text: &str) {
    let path = repository().join("docs").join(name);
    if std::env::var("UPDATE_GOLDEN").is_ok_and(|v| v == "1") {
        fs::write(&path, text).expect("the source tree can be written");
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    assert!(page == text, "docs/{name} differs from what it is made of; UPDATE_GOLDEN=1 rewrites it");
}

/// A struct or an enum as it stands in the source.
#[derive(Debug, Default, Clone)]
struct Item {
    file: String,
    docs: String,
    is_enum: bool,
    /// Whether it is read by a reader of its own and not by its fields.
    own_reader: bool,
    /// Whether every key of it may be left out.
    may_be_empty: bool,
    /// `snake_case` and the like.
    rename_all: Option<String>,
    parts: Vec<Part>,
}

/// A field or a variant.
#[derive(Debug, Default, Clone)]
struct Part {
    name: String,
    /// Empty of a variant that carries nothing.
    kind: String,
    docs: String,
    serde: String,
}

impl Part {
    /// Its name in a plan.
    fn key(&self, rename_all: Option<&str>) -> String {
        let renamed = self.serde.split("rename = \"").nth(1).and_then(|rest| rest.split('"').next());
        match (renamed, rename_all) {
            (Some(name), _) => name.into(),
            (None, Some("lowercase")) => self.name.to_lowercase(),
            (None, Some("kebab-case")) => snake(&self.name).replace('_', "-"),
            (None, Some(_)) => snake(&self.name),
            (None, None) => self.name.clone(),
        }
    }
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// Every struct and enum of the core that can be read from a text, by name.
fn items() -> BTreeMap<String, Vec<Item>> {
    let mut items: BTreeMap<String, Vec<Item>> = BTreeMap::new();
    let mut folders = vec![repository().join("crates/core/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect(OURS) {
            let path = entry.expect(OURS).path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                for (name, item) in items_of(&path) {
                    items.entry(name).or_default().push(item);
                }
            }
        }
    }
    items
}

/// Of one file, whose form is rustfmt's: an item begins and ends at the first column, its parts at the fifth.
fn items_of(path: &Path) -> Vec<(String, Item)> {
    let text = fs::read_to_string(path).expect(OURS);
    let (mut docs, mut attributes) = (String::new(), String::new());
    let mut found: Vec<(String, Item)> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        let inner = line.trim_start();
        let indent = line.len() - inner.len();
        if let Some(words) = inner.strip_prefix("///") {
            docs += words;
        } else if inner.starts_with("#[") {
            attributes += inner;
        } else if let Some(rest) = inner.strip_prefix("pub ").or(Some(inner)).filter(|_| indent == 0) {
            let head = ["struct ", "enum "].iter().find_map(|kind| Some((*kind, rest.strip_prefix(*kind)?)));
            open = head.is_some() && rest.ends_with('{');
            if let Some((kind, rest)) = head {
                let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
                let own_reader = text.contains(&format!("Deserialize<'de> for {name} "));
                let renamed =
                    attributes.split("rename_all = \"").nth(1).and_then(|rest| rest.split('"').next());
                if own_reader || attributes.contains("Deserialize") {
                    let item = Item {
                        file: path.display().to_string(),
                        docs: docs.trim().into(),
                        is_enum: kind == "enum ",
                        own_reader,
                        may_be_empty: attributes.contains("default"),
                        rename_all: renamed.map(String::from),
                        parts: vec![],
                    };
                    found.push((name, item));
                } else {
                    open = false;
                }
            }
            (docs, attributes) = (String::new(), String::new());
        } else if indent == 4 && open {
            let inner = inner.strip_prefix("pub ").unwrap_or(inner).trim_end_matches([',', '{', ' ']);
            let name: String = inner.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if let (false, Some((_, item))) = (name.is_empty(), found.last_mut()) {
                let kind = inner[name.len()..].trim_start_matches(':').trim().to_string();
                let part = Part { name, kind, docs: docs.trim().into(), serde: attributes.clone() };
                item.parts.push(part);
            }
            (docs, attributes) = (String::new(), String::new());
        } else {
            (docs, attributes) = (String::new(), String::new());
        }
    }
    found
}

/// How types are written that are not made of keys: in words, with an example that is right.
const WRITTEN: &[(&str, &str)] = &[
    ("bool", "`true` or `false`"),
    ("u8", "a whole number"),
    ("u16", "a whole number"),
    ("u32", "a whole number"),
    ("u64", "a whole number"),
    ("f64", "a number"),
    ("String", "a text"),
    ("Bytes", "a size: `\"64 MiB\"`"),
    ("Duration", "a span: `\"7 ms\"`"),
    ("Ratio", "a share: `\"92 %\"`"),
    ("Address", "an address: `\"postgres://me@host/shop\"`"),
    ("Arrivals", "[arrivals](grammar.md#arrivals)"),
    ("Requests", "a [distribution](grammar.md#distributions)"),
    ("Lengths", "[lengths](grammar.md#lengths)"),
    ("Values", "[values](grammar.md#values)"),
    ("Blocks", "[sizes of requests](grammar.md#sizes-of-requests)"),
    ("CacheSize", "`\"auto\"`, or a size"),
    ("MixSpec", "a letter, or a table of weights"),
    ("Sample", "the path of a file, or `{ name, text }`"),
    ("NamedRecipe", "a name, or the path of a file"),
    ("NamedScript", "a name or a path, with a weight: `\"browse.sql@7\"`; or `{ name, weight, text }`"),
    ("Recorded", "the path of a file"),
    ("Schedule", "[faults](grammar.md#faults)"),
    ("Promise", "a [promise](grammar.md#promises)"),
    ("PowerCuts", "[what power cuts do](grammar.md#power-cuts)"),
    ("Words", "a table of names and values"),
    ("Value", "a value of that setting"),
    ("Table", "settings, by their paths"),
    ("ReadsPerWrite", "`\"reads\"`, `\"writes\"`, or `{ reads_per_write = 1.5 }`"),
];

/// Reads a table by its type, and gives all that is then in force.
type Reader = fn(&str) -> serde_json::Value;

/// A table of plans: its path, the type that reads it, and what is in force when only what must be given is.
struct Room {
    path: &'static str,
    kind: &'static str,
    least: &'static str,
    read: Reader,
}

fn read<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) -> serde_json::Value {
    let read = toml::from_str::<T>(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    serde_json::to_value(read).expect("settings are plain data")
}

const ROOMS: &[Room] = &[
    Room { path: "target", kind: "TargetSpec", least: "kind = \"null\"", read: read::<TargetSpec> },
    Room { path: "machine", kind: "MachineSpec", least: "", read: read::<MachineSpec> },
    Room { path: "disk", kind: "DiskSpec", least: "size = \"1 GiB\"", read: read::<DiskSpec> },
    Room { path: "workload", kind: "WorkloadSpec", least: "", read: read::<WorkloadSpec> },
    Room { path: "load", kind: "LoadSpec", least: "sessions = 1", read: read::<LoadSpec> },
    Room { path: "trial", kind: "TrialSpec", least: "", read: read::<TrialSpec> },
    Room { path: "search", kind: "SearchSpec", least: "", read: read::<SearchSpec> },
    Room { path: "lab", kind: "LabSpec", least: "recipe = \"postgres\"", read: read::<LabSpec> },
    Room { path: "break", kind: "BreakSpec", least: "", read: read::<BreakSpec> },
    Room { path: "tenant", kind: "TenantSpec", least: "", read: read::<TenantSpec> },
];

/// The same of tables that are absent unless given.
const LEAST: &[(&str, &str, Reader)] = &[
    ("BankSpec", "", read::<BankSpec>),
    ("FileIoSpec", "", read::<FileIoSpec>),
    ("ScriptsSpec", "", read::<ScriptsSpec>),
    ("Sysbench", "", read::<Sysbench>),
    ("SampleSpec", "file = \"items.csv\"", read::<SampleSpec>),
];

/// The page while it is written.
struct Page {
    items: BTreeMap<String, Vec<Item>>,
    text: String,
}

impl Page {
    /// The type `name` as `file` means it.
    fn item(&self, name: &str, file: &str) -> &Item {
        let all = self.items.get(name).unwrap_or_else(|| panic!("{name} in {file} is not known"));
        let near = all.iter().find(|item| item.file == file);
        // Of two with one name, the one whose module is named where it is used.
        let text = fs::read_to_string(file).expect(OURS);
        let named = all.iter().find(|item| {
            let stem = Path::new(&item.file).file_stem().expect(OURS).to_string_lossy().into_owned();
            text.contains(&format!("{stem}::"))
        });
        near.or(if all.len() == 1 { all.first() } else { named })
            .unwrap_or_else(|| panic!("which {name} does {file} mean?"))
    }

    /// One table of keys, and those below it.
    fn table(
        &mut self,
        title: &str,
        path: &str,
        kind: &str,
        file: &str,
        room: Option<(&str, serde_json::Value)>,
    ) {
        let item = self.item(kind, file).clone();
        self.text += &format!("\n## {title}\n\n{}\n\n", plain(&item.docs));
        self.text += "| key | what is written | unless given | what it is |\n|---|---|---|---|\n";
        let (mut below, mut choices) = (vec![], vec![]);
        for part in &item.parts {
            let key = part.key(item.rename_all.as_deref());
            let (kind, is_list, is_optional) = bare(&part.kind);
            let kind = alias(&kind, &part.serde);
            let default = match &room {
                Some((least, _)) if least.starts_with(&format!("{key} =")) => "must be given".to_string(),
                Some((_, values)) => default(&values[key.as_str()], &kind),
                None if is_optional || item.may_be_empty || part.serde.contains("default") => "–".into(),
                None => "must be given".into(),
            };
            let written = match WRITTEN.iter().find(|(name, _)| *name == kind) {
                Some((_, words)) => words.to_string(),
                None => {
                    let inner = self.item(kind.trim_start_matches("by role: "), &item.file).clone();
                    if inner.is_enum {
                        choices.push((key.clone(), inner.clone()));
                        self.choice(&inner)
                    } else {
                        // The parts of the settings have their places of their own.
                        if ROOMS.iter().all(|room| room.path != format!("{path}{key}")) {
                            below.push((key.clone(), kind.clone(), inner.file.clone()));
                        }
                        "a table, below".into()
                    }
                }
            };
            let written = if is_list { format!("a list; each {written}") } else { written };
            let default = if written == "a table, below" { "–".into() } else { default };
            self.text += &format!("| `{key}` | {written} | {default} | {} |\n", plain(&part.docs));
        }
        for (key, item) in choices {
            self.text += &format!("\n`{path}{key}`:\n\n");
            for variant in &item.parts {
                let name = variant.key(item.rename_all.as_deref());
                self.text += &format!("- `{name}`: {}\n", plain(&variant.docs));
            }
        }
        for (key, kind, file) in below {
            let values = room.as_ref().map(|(_, values)| ("", values[key.as_str()].clone()));
            let least = LEAST.iter().find(|(name, ..)| *name == kind);
            let values = values
                .filter(|(_, values)| values.is_object())
                .or(least.map(|(_, least, read)| (*least, read(least))));
            let (path, kind) = match kind.strip_prefix("by role: ") {
                Some(kind) => (format!("{path}{key}.ROLE."), kind),
                None => (format!("{path}{key}."), kind.as_str()),
            };
            self.table(&format!("`[{}]`", path.trim_end_matches('.')), &path, kind, &file, values);
        }
    }

    fn choice(&self, item: &Item) -> String {
        assert!(!item.own_reader, "say in WRITTEN how {item:?} is written");
        let names = item.parts.iter().map(|part| {
            assert!(part.kind.is_empty(), "say in WRITTEN how {item:?} is written");
            format!("`\"{}\"`", part.key(item.rename_all.as_deref()))
        });
        names.collect::<Vec<_>>().join(", ")
    }
}

/// A type without `Option` and `Vec`, and which of the two it had.
fn bare(kind: &str) -> (String, bool, bool) {
    let strip = |kind: &str, outer: &str| {
        let inner = kind.strip_prefix(outer)?.strip_prefix('<')?.strip_suffix('>')?;
        Some(inner.to_string())
    };
    let (kind, is_optional) = match strip(kind, "Option") {
        Some(inner) => (inner, true),
        None => (kind.to_string(), false),
    };
    match strip(&kind, "Vec") {
        Some(inner) => (inner, true, is_optional),
        None => (kind, false, is_optional),
    }
}

/// Types whose name is not enough to say how they are written.
fn alias(kind: &str, serde: &str) -> String {
    match kind {
        "BTreeMap<String, String>" => "Words".into(),
        "BTreeMap<Role, RoleSpec>" => "by role: RoleSpec".into(),
        "Turns" => "ReadsPerWrite".into(),
        _ if serde.contains("with = \"span\"") => "Duration".into(),
        _ => kind.into(),
    }
}

/// What is in force when a key is absent.
fn default(value: &serde_json::Value, kind: &str) -> String {
    let quoted = |text: String| format!("`\"{text}\"`");
    match (value, kind) {
        (serde_json::Value::Null | serde_json::Value::Object(_), _) => "–".into(),
        (value, "Duration") => {
            let ns = value.as_u64().unwrap_or_else(|| panic!("{value} is no span"));
            quoted(span::print(std::time::Duration::from_nanos(ns)))
        }
        (value, "Bytes") if value.is_u64() => quoted(Bytes(value.as_u64().unwrap_or_default()).to_string()),
        (value, "Ratio") => quoted(Ratio(value.as_f64().unwrap_or_default()).to_string()),
        (value, _) => format!("`{value}`"),
    }
}

/// Words of a docstring, for a page: what links to other types is only a name there.
fn plain(docs: &str) -> String {
    let mut out = String::new();
    let mut rest = docs;
    while let Some((before, after)) = rest.split_once("[`") {
        let Some((name, after)) = after.split_once("`]") else { break };
        out += before;
        let grammar = ["Arrivals", "Lengths"].contains(&name);
        let last = name.rsplit("::").next().unwrap_or(name);
        out += &match grammar {
            true => format!("[{}](grammar.md#{})", last.to_lowercase(), last.to_lowercase()),
            false => format!("`{last}`"),
        };
        rest = after;
    }
    out += rest;
    out.replace("; see `device::Spec`", " ([grammar](grammar.md#disks))").replace('|', "\\|")
}

#[test]
fn the_page_of_plans_says_what_plans_are_read_by() {
    let mut page = Page { items: items(), text: String::new() };
    page.text += "# Plans, key by key\n\n\
        Made from the code that reads plans. A plan is a TOML file: keys about the experiment, one table for each\n\
        part of the settings, a list of sweeps, and a table for each scale. The plans in `experiments/` are examples,\n\
        and `tipover run PLAN --list` says what is wrong with one before anything runs. Any setting can be an axis of\n\
        a sweep, stand in a scale, or be given with `--set`, by its path: `disk.shape`. A sweep's own settings win over\n\
        the plan's, those of a table `[scale.NAME.sweep.SWEEP]` over the sweep's (and its `axis.AXIS.values` over those of\n\
        an axis), and `--set` over all of them but for `target.kind`, `workload.kind` and `lab.recipe`.\n\n\
        *Unless given* is what is in force without the key; – is nothing, and the last column says what that means.\n";
    let of = |name: &str| repository().join("crates/core/src/experiment").join(name).display().to_string();
    page.table("At the top", "", "Header", &of("mod.rs"), None);
    for Room { path, kind, least, read } in ROOMS {
        let file = page.items[*kind][0].file.clone();
        page.table(&format!("`[{path}]`"), &format!("{path}."), kind, &file, Some((least, read(least))));
    }
    assert_page("plan-keys.md", &page.text);
}

#[test]
fn every_table_of_settings_has_its_place_on_the_page() {
    for part in experiment::Spec::PARTS {
        assert!(ROOMS.iter().any(|room| room.path == part), "{part} is not on the page of plans");
    }
}

#[test]
fn the_page_of_laws_says_what_the_audit_knows() {
    let mut text = String::from(
        "# Laws of the audit\n\n\
         Made from the table that `tipover audit` works with. A law lets pass what rounding of the printed digits\n\
         explains, and besides that its tolerance. A *broken* law cannot be broken by true numbers; a *doubtful* row\n\
         may be true and means something else than it seems to. A law whose cells are not all there is not checked,\n\
         and the audit says so.\n",
    );
    for law in audit::laws() {
        write!(
            text,
            "\n## {}\n\n`{}`, within {} %: {}. Where it does not hold the row is *{}*. {}\n",
            law.name,
            law.formula,
            audit::significant(100.0 * law.tolerance),
            law.why,
            format!("{:?}", law.severity).to_lowercase(),
            law.nevertheless
        )
        .unwrap();
    }
    assert_page("laws.md", &text);
    // A law that is not in the list would be missing from the page.
    let folder = repository().join("crates/core/src/audit");
    let written: usize = fs::read_dir(folder)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .map(|text| {
            let calls = text.matches(" law(\n").count() - text.matches("fn law(\n").count();
            text.matches(": Law = Law {").count() + calls
        })
        .sum();
    assert_eq!(written, audit::laws().count());
}

#[test]
fn the_page_of_ten_questions_is_the_tour() {
    let tour = fs::read_to_string(repository().join("crates/tipover/src/command/tour.toml")).unwrap();
    let tour: toml::Table = tour.parse().unwrap();
    let mut text = String::from(
        "# Ten questions, and a command for each\n\n\
         Each takes less than a minute on a machine that does nothing else, and needs no server: the engine is embedded.\n\
         `tipover tour` lists them, `tipover tour 3` carries out the third, `tipover tour all` one after another. As root\n\
         the disks are block devices; without root they are folders behind FUSE, and pages say what could not be measured\n\
         that way.\n",
    );
    for (place, question) in tour["question"].as_array().unwrap().iter().enumerate() {
        let word = |key: &str| question[key].as_str().unwrap();
        let words = question["command"].as_array().unwrap().iter().map(|word| match word.as_str().unwrap() {
            word if word.contains(' ') => format!("'{word}'"),
            word => word.to_string(),
        });
        let command = words.collect::<Vec<_>>().join(" ");
        write!(text, "\n## {}. {}\n\n```\ntipover {command}\n```\n\n", place + 1, word("question")).unwrap();
        if let Some(after) = question.get("after") {
            write!(text, "It works on the results of question {after}.\n\n").unwrap();
        }
        write!(text, "**Picture.** {}\n\n**Look for.** {}\n", word("picture"), word("look_for")).unwrap();
        // Taken by `make docs ARGS=--pictures`.
        let images = ["svg", "png"].map(|kind| format!("images/question-{}.{kind}", place + 1));
        let taken = images.iter().find(|image| repository().join("docs").join(image).is_file());
        if let Some(image) = taken {
            write!(text, "\n![{}]({image})\n", word("picture").replace(['`', '*'], "")).unwrap();
        }
    }
    assert_page("ten-questions.md", &text);
}

/// Reads an example and reads again what it prints; what is wrong with it.
fn again<T: FromStr + Display + PartialEq>(example: &str) -> Result<(), String>
where
    T::Err: Display,
{
    let read: T = example.parse().map_err(|error: T::Err| error.to_string())?;
    let printed = read.to_string();
    let again = printed.parse::<T>().map_err(|error| format!("printed as {printed}: {error}"))?;
    if again == read { Ok(()) } else { Err(format!("printed as {printed}, which is something else")) }
}

/// Says what is wrong with an example.
type Judge = fn(&str) -> Result<(), String>;

/// By the word at an example's fence.
const GRAMMAR: &[(&str, Judge)] = &[
    ("disk", again::<device::Spec>),
    ("disk-fault", again::<Rule>),
    ("power-cut", again::<PowerCut>),
    ("faults", again::<Schedule>),
    ("arrivals", again::<Arrivals>),
    ("requests", again::<Requests>),
    ("lengths", again::<Lengths>),
    ("values", again::<Values>),
    ("blocks", again::<Blocks>),
    ("promise", again::<Promise>),
];

#[test]
fn every_example_of_the_grammar_is_read() {
    let page = fs::read_to_string(repository().join("docs/grammar.md")).unwrap();
    let mut seen = BTreeMap::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (word, examples) = block.split_once('\n').unwrap();
        let (_, reader) = GRAMMAR.iter().find(|(name, _)| *name == word).unwrap_or_else(|| panic!("{word}?"));
        for example in examples.lines() {
            reader(example).unwrap_or_else(|error| panic!("{word}: {example}: {error}"));
            *seen.entry(word).or_insert(0) += 1;
        }
    }
    assert!(GRAMMAR.iter().all(|(name, _)| seen.get(name).is_some_and(|count| *count > 1)), "{seen:?}");
}

#[test]
fn the_page_of_verbs_takes_in_every_help_text() {
    let page = fs::read_to_string(repository().join("docs/verbs.md")).unwrap();
    for entry in fs::read_dir(repository().join("crates/tipover/tests/program/golden")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let line = format!("{{{{#include ../crates/tipover/tests/program/golden/{name}}}}}");
        assert_eq!(page.matches(&line).count(), usize::from(name.ends_with("-long.txt")), "{name}");
    }
}
