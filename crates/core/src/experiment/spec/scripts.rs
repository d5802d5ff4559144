//! Scripts of statements as a workload of plans.

use super::super::recipe::{self, Recipe};
use super::{LoadSpec, TargetKind};
use crate::nearest::unknown;
use crate::workload::recorded::Recorded;
use crate::workload::script::{BUILT_IN, BuiltIn, Dialect, Protocol, SampleSpec, Scripts, Tables, Value};
use crate::workload::sysbench::{Numbering, OLTP, Oltp, Sysbench};
use crate::workload::{Arrivals, Random, tpcb};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Scripts of statements, as pgbench reads them, or of MongoDB's commands; one run of a script is one
/// operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptsSpec {
    /// Which, with their weights: `["tpcb-like", "browse.sql@7"]`. Needed unless `recorded` is given.
    #[serde(default)]
    pub run: Vec<NamedScript>,
    /// In their place, statements that sessions once sent, by the path of their file: each by its session and
    /// at its time, with `load.arrivals = "trace FILE"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// How many branches pgbench's tables have, each with 100,000 accounts. Absent: one if a script of
    /// pgbench's is run; else these tables are not made.
    pub scale: Option<u64>,
    /// sysbench's tables and transactions, by its own names. Absent: its defaults if a workload of sysbench's
    /// is run; else these tables are not made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysbench: Option<Sysbench>,
    /// Variables of every session, as pgbench's `-D`.
    #[serde(default, deserialize_with = "recipe::words", skip_serializing_if = "BTreeMap::is_empty")]
    pub define: BTreeMap<String, String>,
    /// Files of rows of which every operation draws one, whose columns are variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SampleSpec>,
    /// How statements are sent.
    #[serde(default)]
    pub protocol: Protocol,
    /// A script that is run once on a new cluster, after pgbench's tables are made and before any other: it
    /// makes the tables that those work on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<NamedScript>,
    /// A script of reads that is run once before the load begins; what its `\gset` brings are variables of
    /// every session, such as the least and the greatest key that there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<NamedScript>,
}

/// A built-in script by its name, one's own by the path of its file, or with its text in the plan. The core
/// reads no files: the text of one is put in by [`NamedScript::read`], and from then on belongs to the
/// setting, so that a changed script is another cell.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedScript {
    /// What it is called, or where it is.
    pub name: String,
    /// How often it is chosen, compared with the others.
    pub weight: u64,
    /// What stands in the file.
    text: Option<String>,
}

impl NamedScript {
    fn is_file(&self) -> bool {
        self.text.is_some() || Recipe::is_file(&self.name)
    }

    /// Takes the text of the file, unless it has one or needs none.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&mut self, read: &mut dyn FnMut(&str) -> Result<String, String>) -> Result<(), String> {
        if self.is_file() && self.text.is_none() {
            self.text = Some(read(&self.name)?);
        }
        Ok(())
    }

    /// Whose tables it works on, if it is a built-in one.
    fn owner(&self) -> Option<Owner> {
        match self.is_file() {
            true => None,
            false if Oltp::find(&self.name).is_some() => Some(Owner::Sysbench),
            false => Some(Owner::Pgbench),
        }
    }

    /// The whole text for servers that number rows so; `None` of a file that was not read yet.
    fn whole(&self, sysbench: &Sysbench, numbering: Numbering) -> Result<Option<String>, String> {
        if self.is_file() {
            return Ok(self.text.clone());
        }
        if let Some(oltp) = Oltp::find(&self.name) {
            return Ok(Some(oltp.text(sysbench, numbering)));
        }
        let names: Vec<&str> =
            BUILT_IN.iter().map(|script| script.name).chain(OLTP.map(|oltp| oltp.name)).collect();
        let found = BuiltIn::find(&self.name);
        let built_in = found.map_err(|_| {
            format!("{} (or give the path of a file)", unknown("built-in script", &self.name, &names))
        })?;
        Ok(Some(built_in.portable()))
    }
}

/// Whose language scripts for such a target are written in.
fn dialect(target: TargetKind) -> Dialect {
    if target == TargetKind::Mongodb { Dialect::Commands } else { Dialect::Plan }
}

/// Whose tables a built-in script works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Pgbench,
    Sysbench,
}

impl FromStr for NamedScript {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, weight) = text.rsplit_once('@').unwrap_or((text, "1"));
        let weight = weight.parse().map_err(|_| {
            format!("{text:?}: behind the @ stands a weight, which is a whole number, as in \"browse.sql@7\"")
        })?;
        Ok(NamedScript { name: name.into(), weight, text: None })
    }
}

impl Serialize for NamedScript {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match &self.text {
            None => s.collect_str(&format_args!("{}@{}", self.name, self.weight)),
            Some(text) => (&self.name, self.weight, text).serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for NamedScript {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Name(String),
            Read(String, u64, String),
            Here(Here),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Here {
            name: String,
            #[serde(default = "one")]
            weight: u64,
            text: String,
        }
        fn one() -> u64 {
            1
        }
        match Either::deserialize(d)? {
            Either::Name(text) => text.parse().map_err(serde::de::Error::custom),
            Either::Read(name, weight, text) | Either::Here(Here { name, weight, text }) => {
                Ok(NamedScript { name, weight, text: Some(text) })
            }
        }
    }
}

impl ScriptsSpec {
    /// Reads the files of all scripts.
    ///
    /// # Errors
    /// One that cannot be read.
    pub(super) fn attach(
        &mut self,
        read: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<(), String> {
        if let Some(recorded) = self.recorded.as_mut().filter(|recorded| recorded.is_unread()) {
            let text = read(&recorded.path)?;
            recorded.read(&text)?;
        }
        let mut all = self.run.iter_mut().chain(&mut self.prepare).chain(&mut self.ask);
        all.try_for_each(|script| script.read(read))?;
        for samples in self.samples.iter_mut().filter(|samples| samples.text.is_none()) {
            samples.text = Some(read(&samples.file)?);
        }
        Ok(())
    }

    /// Whether a built-in script of this owner is run.
    fn runs(&self, owner: Owner) -> bool {
        self.run.iter().any(|script| script.owner() == Some(owner))
    }

    /// The tables that are made for the scripts.
    pub fn tables(&self) -> Tables {
        if self.sysbench.is_some() || self.runs(Owner::Sysbench) {
            return Tables::Sysbench(self.sysbench.clone().unwrap_or_default());
        }
        match self.scale.or(self.runs(Owner::Pgbench).then_some(1)) {
            Some(scale) => Tables::Pgbench { scale },
            None => Tables::None,
        }
    }

    /// Whether they are pgbench's TPC-B on its own tables, with reads beside it or not, and nothing else.
    pub(super) fn are_tpcb(&self) -> bool {
        let named = |script: &NamedScript| BuiltIn::find(&script.name).ok().filter(|_| !script.is_file());
        let names: Option<Vec<&str>> = self.run.iter().map(|script| named(script).map(|s| s.name)).collect();
        let is_known = |name: &&str| ["tpcb-like", "select-only"].contains(name);
        let all = names.is_some_and(|names| names.contains(&"tpcb-like") && names.iter().all(is_known));
        all && self.prepare.is_none() && self.define.is_empty() && self.samples.is_empty()
    }

    /// Rows of the tables that are made for the scripts: of pgbench's, accounts.
    pub fn rows(&self) -> u64 {
        match self.tables() {
            Tables::None => 0,
            Tables::Pgbench { scale } => scale.saturating_mul(tpcb::ACCOUNTS),
            Tables::Sysbench(sysbench) => sysbench.rows(),
        }
    }

    /// The scripts that are run on a target of this kind; what chance has to say in them comes from `seed`.
    /// `None` while a file was not read.
    ///
    /// # Errors
    /// The first mistake, with script, line and column.
    pub fn scripts(&self, target: TargetKind, seed: u64) -> Result<Option<Scripts>, String> {
        if let Some(recorded) = &self.recorded {
            if recorded.is_unread() {
                return Ok(None);
            }
            let mut scripts = Scripts::new(seed, dialect(target));
            scripts.replays(recorded.clone());
            return Ok(Some(scripts));
        }
        let Some(mut scripts) = self.of(&self.run, target, seed)? else { return Ok(None) };
        let Some(ask) = &self.ask else { return Ok(Some(scripts)) };
        let whole = ask.whole(&self.sysbench.clone().unwrap_or_default(), Numbering::Serial)?;
        let Some(text) = whole else { return Ok(None) };
        scripts.asks(&ask.name, text.as_bytes()).map_err(|mistake| mistake.to_string())?;
        Ok(Some(scripts))
    }

    /// The script that is run once before all others, if there is one and it was read.
    ///
    /// # Errors
    /// As [`ScriptsSpec::scripts`].
    pub fn preparation(&self, target: TargetKind, seed: u64) -> Result<Option<Scripts>, String> {
        let prepare = self.prepare.as_ref();
        prepare.map_or(Ok(None), |script| self.of(std::slice::from_ref(script), target, seed))
    }

    fn of(&self, named: &[NamedScript], target: TargetKind, seed: u64) -> Result<Option<Scripts>, String> {
        let mut scripts = Scripts::new(seed, dialect(target));
        let numbering = match target {
            TargetKind::Mysql => Numbering::AutoIncrement,
            _ => Numbering::Serial,
        };
        let sysbench = self.sysbench.clone().unwrap_or_default();
        for script in named {
            let Some(text) = script.whole(&sysbench, numbering)? else { return Ok(None) };
            let added = scripts.add(&script.name, text.as_bytes(), script.weight);
            added.map_err(|mistake| mistake.to_string())?;
        }
        for samples in &self.samples {
            if samples.text.is_none() {
                return Ok(None);
            }
            scripts.add_samples(samples.clone()).map_err(|mistake| mistake.to_string())?;
        }
        for (name, value) in &self.define {
            scripts.preset(name, Value::Text(value.as_str().into()))?;
        }
        let numbers = [
            ("scale", self.scale.unwrap_or(1) as i64),
            ("random_seed", seed as i64),
            ("default_seed", Random::new(seed, u64::MAX).bits() as i64),
        ];
        for (name, value) in numbers {
            scripts.preset(name, Value::Integer(value))?;
        }
        scripts.protocol = self.protocol;
        scripts.forgets = true;
        scripts.times_statements = true;
        scripts.tables = self.tables();
        Ok(Some(scripts))
    }

    /// What no type can say of scripts that are sent to a target of this kind, in a cluster of the
    /// laboratory's own or not.
    pub(super) fn check(&self, target: TargetKind, in_lab: bool) -> Result<(), String> {
        let is_mysql = target == TargetKind::Mysql;
        let is_mongodb = target == TargetKind::Mongodb;
        if !is_mysql && !is_mongodb && target != TargetKind::Postgres {
            return Err(
                "workload.kind = \"scripts\" needs target.kind = \"postgres\", \"mysql\" or \"mongodb\": scripts \
                 are SQL, or commands of MongoDB"
                    .into(),
            );
        }
        if is_mongodb {
            self.check_commands()?;
        }
        if is_mysql && self.protocol == Protocol::Extended {
            return Err(
                "workload.scripts.protocol = \"extended\" is PostgreSQL's: MySQL's are \"simple\" and \"prepared\""
                    .into(),
            );
        }
        if self.recorded.is_some() {
            return self.check_recorded();
        }
        if self.run.iter().all(|script| script.weight == 0) {
            return Err("workload.scripts.run names no script that has a weight".into());
        }
        if !(1..=MOST_SCALE).contains(&self.scale.unwrap_or(1)) {
            return Err(format!("workload.scripts.scale must be from 1 to {MOST_SCALE}"));
        }
        if matches!(self.tables(), Tables::Sysbench(_)) && (self.scale.is_some() || self.runs(Owner::Pgbench))
        {
            return Err(
                "workload.scripts makes the tables of one program: pgbench's scripts (and scale) and sysbench's \
                 (and workload.scripts.sysbench) are plans of their own"
                    .into(),
            );
        }
        self.sysbench.as_ref().map_or(Ok(()), Sysbench::check)?;
        if self.prepare.is_some() && !in_lab {
            return Err(
                "workload.scripts.prepare needs [lab]: a database at an address is prepared by its owner"
                    .into(),
            );
        }
        let wrong = |mistake| format!("workload.scripts: {mistake}");
        if let Some(ask) = &self.ask
            && self
                .of(std::slice::from_ref(ask), target, 0)
                .map_err(wrong)?
                .is_some_and(|ask| ask.may_change())
        {
            return Err(
                "workload.scripts.ask is asked before every trial: all that it sends begins with SELECT, or \
                 is a command that only reads"
                    .into(),
            );
        }
        for scripts in [self.scripts(target, 0).map_err(wrong)?, self.preparation(target, 0).map_err(wrong)?]
        {
            if !scripts.is_some_and(|scripts| scripts.has_pipelines()) {
                continue;
            }
            if is_mysql || is_mongodb {
                return Err(
                    "workload.scripts: pipelines are PostgreSQL's; neither MySQL's protocol has any nor MongoDB's".into()
                );
            }
            if self.protocol == Protocol::Simple {
                return Err(
                    "workload.scripts: a pipeline needs protocol = \"extended\" or \"prepared\"".into()
                );
            }
        }
        Ok(())
    }
}

impl ScriptsSpec {
    /// What MongoDB has nothing of.
    fn check_commands(&self) -> Result<(), String> {
        if self.protocol != Protocol::Simple {
            return Err("workload.scripts.protocol: MongoDB's commands have no other than \"simple\"".into());
        }
        let built_in = self.run.iter().find(|script| script.owner().is_some());
        if let Some(script) = built_in {
            return Err(format!(
                "workload.scripts.run: {:?} is SQL; what is sent to MongoDB are commands in a file of your own",
                script.name
            ));
        }
        if self.tables() != Tables::None {
            return Err(
                "workload.scripts: pgbench's and sysbench's tables are SQL's; MongoDB has none".into()
            );
        }
        Ok(())
    }

    /// What no type can say of a record.
    fn check_recorded(&self) -> Result<(), String> {
        let alone = self.run.is_empty() && self.ask.is_none() && self.define.is_empty();
        if !alone || self.protocol != Protocol::Simple {
            let words = "a record is sent as it is: without run, ask and define, by protocol = \"simple\"";
            return Err(format!("workload.scripts.recorded: {words}"));
        }
        Ok(())
    }

    /// What a record demands of its load: a session for each of its own, and its own times.
    pub(super) fn check_load(&self, load: &LoadSpec) -> Result<(), String> {
        let Some(recorded) = &self.recorded else { return Ok(()) };
        let (path, sessions) = (&recorded.path, recorded.sessions());
        match load.arrivals.as_ref().and_then(Arrivals::trace) {
            Some(trace) if trace.path() == path => {}
            _ => {
                return Err(format!(
                    "workload.scripts.recorded = {path:?} needs load.arrivals = \"trace {path}\": its statements have \
                     their times, and no others"
                ));
            }
        }
        if load.sessions < sessions || load.machines != 1 {
            return Err(format!(
                "{path}: {sessions} sessions sent it, so it needs load.sessions = {sessions}, on one machine"
            ));
        }
        Ok(())
    }
}

/// Ten thousand million accounts: more than a terabyte.
const MOST_SCALE: u64 = 100_000;

#[cfg(test)]
mod tests {
    use crate::experiment::{Experiment, Spec};
    use crate::op::OpKind;
    use crate::workload::Records;
    use crate::workload::script::{Quoting, Run, Scripts, Step};
    use std::sync::Arc;

    const PLAN: &str = r#"
        name = "s"
        title = "S"
        question = "q"
        why = "w"
        how_to_read = "h"
        repeats = 1
        [target]
        kind = "postgres"
        [workload]
        kind = "scripts"
        [workload.scripts]
        run = ["tpcb-like@3", "browse.sql"]
        define = { items = 50 }
        [load]
        sessions = 2
        [lab]
        recipe = "postgres"
        [[sweep]]
        name = "s"
        question = "q"
        axis = []
        [scale.quick]
    "#;
    const BROWSE: &str = "\\set n :n + random(1, :items)\nselect :n;\n";

    fn read(plan: &str, browse: &str) -> Result<Spec, String> {
        let experiment = Experiment::parse(plan, "quick", &[]).map_err(|error| error.to_string())?;
        let mut spec = experiment.sweeps[0].cells[0].spec.clone();
        spec.attach(&mut |path| {
            assert_eq!(path, "browse.sql");
            Ok(browse.into())
        })
        .map_err(|error| error.to_string())?;
        Ok(spec)
    }

    #[test]
    fn scripts_belong_to_the_cell_with_their_texts() {
        let spec = read(PLAN, BROWSE).unwrap();
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&text).unwrap(), spec);
        assert_ne!(spec.fingerprint(), read(PLAN, "select 1;").unwrap().fingerprint());
        assert_eq!(spec.records(), 100_000, "a built-in script needs pgbench's tables");
        let scripts = spec.scripts(1).unwrap();
        assert!(scripts.may_change() && !scripts.has_pipelines());
        assert_eq!(spec.class_name(OpKind::Script(1)), "SCRIPT-2 (browse.sql)");
        let alone = PLAN.replace("[\"tpcb-like@3\", \"browse.sql\"]", "[\"browse.sql\"]");
        let alone = read(&alone, BROWSE).unwrap();
        assert_eq!((alone.records(), alone.scripts(1).unwrap().may_change()), (0, false));
        let both = serde_json::to_string(&spec.scripts(1)).unwrap();
        assert!(!both.contains("END;"), "no server but PostgreSQL takes it for COMMIT");
    }

    #[test]
    fn sysbenchs_workloads_have_its_tables() {
        let text =
            PLAN.replace("[\"tpcb-like@3\", \"browse.sql\"]", "[\"oltp-read-write@3\", \"browse.sql\"]");
        let spec = read(&text, BROWSE).unwrap();
        assert_eq!(spec.records(), 10_000);
        assert_eq!(spec.class_name(OpKind::Script(0)), "SCRIPT (oltp-read-write)");
        let ten = text.replace("define", "sysbench = { tables = 10, table_size = 7 }\ndefine");
        let ten = read(&ten, BROWSE).unwrap();
        assert_eq!(ten.records(), 70);
        let both = serde_json::to_string(&ten).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&both).unwrap(), ten);
        let wrong = text.replace("define", "sysbench = { tables = 0 }\ndefine");
        assert!(
            read(&wrong, BROWSE).unwrap_err().contains("workload.scripts.sysbench.tables must be from 1 to")
        );
        // Tables of sysbench's for scripts of one's own.
        let own = PLAN.replace("[\"tpcb-like@3\", \"browse.sql\"]", "[\"browse.sql\"]");
        assert_eq!(read(&own, BROWSE).unwrap().records(), 0);
        let own = own.replace("define", "sysbench = {}\ndefine");
        assert_eq!(read(&own, BROWSE).unwrap().records(), 10_000);
    }

    #[test]
    fn a_script_may_stand_in_the_plan_and_begin_with_what_was_asked_before() {
        let text = PLAN
            .replace("\"browse.sql\"]", "{ name = \"look\", weight = 7, text = \"select :least;\" }]")
            .replace(
                "define",
                "ask = { name = \"bounds\", text = \"select min(id) as least from t \\\\gset\" }\ndefine",
            );
        let experiment = Experiment::parse(&text, "quick", &[]).unwrap();
        let mut spec = experiment.sweeps[0].cells[0].spec.clone();
        spec.attach(&mut |path| panic!("{path} is no file")).unwrap();
        assert_eq!(serde_json::from_str::<Spec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
        let scripts = Arc::new(spec.scripts(1).unwrap());
        let written = serde_json::to_string(scripts.as_ref()).unwrap();
        assert_eq!(serde_json::from_str::<Scripts>(&written).unwrap(), *scripts);
        assert!((0..50).all(|n| scripts.chosen(n) < 2), "what is asked is no operation");
        // A session asks; those that begin later know the answer.
        let ask = scripts.asked().unwrap();
        let mut run = Run::new(scripts.clone(), 0);
        run.begin(ask, 0);
        let Step::Send(command) = run.step().unwrap() else { panic!() };
        run.bring(command, "least", Some("41")).unwrap();
        assert_eq!(run.step(), Ok(Step::Over));
        let (mut run, mut text) = (Run::new(scripts, 3), Vec::new());
        run.begin(1, 5);
        let Step::Send(command) = run.step().unwrap() else { panic!() };
        run.put_text(command, Quoting::Standard, &mut text);
        assert_eq!(String::from_utf8(text).unwrap(), "select 41;");
    }

    /// What operation `n` of `seed` sends on a session that ran `before` first.
    fn sent(scripts: &Arc<Scripts>, before: &[u64], n: u64) -> String {
        let mut run = Run::new(scripts.clone(), 0);
        let mut text = Vec::new();
        for number in before.iter().chain([&n]) {
            text.clear();
            run.begin(scripts.chosen(*number), *number);
            loop {
                match run.step().unwrap() {
                    Step::Send(command) => run.put_text(command, Quoting::Standard, &mut text),
                    Step::Over => break,
                    step => panic!("{step:?}"),
                }
            }
        }
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn what_operation_n_sends_depends_on_nothing_but_the_seed_and_n() {
        // Its own last value would be in every operation after the first.
        let spec = read(&PLAN.replace("items = 50", "items = 50, n = 0"), BROWSE).unwrap();
        let (_, workload) = spec.load_of(7);
        let scripts = Arc::new(spec.scripts(7).unwrap());
        for n in 0..40 {
            assert_eq!(workload.op(n, &Records::new(0)), workload.op(n, &Records::new(0)));
            assert_eq!(sent(&scripts, &[], n), sent(&scripts, &[3, 9, 1], n), "operation {n}");
        }
        let other = Arc::new(spec.scripts(8).unwrap());
        assert!((0..40).any(|n| sent(&scripts, &[], n) != sent(&other, &[], n)));
    }

    #[test]
    fn what_cannot_be_is_refused_in_a_sentence() {
        for (from, to, words) in [
            ("tpcb-like@3", "tpcb-like@x", "a weight, which is a whole number"),
            ("tpcb-like@3", "tpcb-lik3", "did you mean `tpcb-like`? (or give the path of a file)"),
            ("tpcb-like@3", "oltp_read_write", "did you mean `oltp-read-write`?"),
            ("\"browse.sql\"", "\"oltp-insert\"", "makes the tables of one program"),
            ("define", "sysbench = { tables = 2 }\ndefine", "makes the tables of one program"),
            ("[\"tpcb-like@3\", \"browse.sql\"]", "[]", "names no script that has a weight"),
            ("run =", "recorded = \"r\"\nrun =", "needs load.arrivals"),
            (
                "[\"tpcb-like@3\", \"browse.sql\"]\n        define = { items = 50 }",
                "[]\nrecorded = \"browse.sql\"",
                "needs load.arrivals",
            ),
            ("items = 50", "\"no name\" = 1", "invalid variable name"),
            ("kind = \"scripts\"", "kind = \"ycsb\"", "workload.scripts needs workload.kind = \"scripts\""),
            ("kind = \"scripts\"", "kind = \"scripts\"\nrecords = 5", "workload.scripts.scale"),
            ("kind = \"scripts\"", "kind = \"scripts\"\nmix = \"a\"", "scripts have weights"),
            ("define", "scale = 0\ndefine", "from 1 to"),
            ("define", "ask = { name = \"a\", text = \"delete from t;\" }\ndefine", "begins with SELECT"),
            ("define", "ask = { name = \"a\", text = \"select 'x\" }\ndefine", "a:1:8: what is opened by '"),
            ("[lab]", "[break]\nchecks = [\"ledger\"]\n[lab]", "nobody would run the scripts"),
            ("kind = \"postgres\"", "kind = \"wiredtiger\"", "target.kind must be \"postgres\""),
            (
                "[lab]\n        recipe = \"postgres\"",
                "[target.wiredtiger]\ncache = \"64 MiB\"",
                "a server needs target.address",
            ),
        ] {
            let text = PLAN.replacen(from, to, 1);
            assert_ne!(text, PLAN, "{from}");
            let error = read(&text, BROWSE).unwrap_err();
            assert!(error.contains(words), "{to}: {error}");
        }
        let lab = "[lab]\n        recipe = \"postgres\"";
        for (target, words) in
            [("mongodb", "\"tpcb-like\" is SQL"), ("null", "needs target.kind = \"postgres\"")]
        {
            let text = PLAN.replace(
                "kind = \"postgres\"\n",
                &format!("kind = \"{target}\"\naddress = \"{target}://db/x\"\n"),
            );
            let error = read(&text.replace(lab, ""), BROWSE).unwrap_err();
            assert!(error.contains(words), "{target}: {error}");
        }
        let mysql = |from: &str, to: &str, browse| {
            let text = PLAN.replace("kind = \"postgres\"", "kind = \"mysql\"");
            let text = if from.is_empty() { text } else { text.replace(from, to) };
            read(&text.replace("recipe = \"postgres\"", "recipe = \"mariadb\""), browse)
        };
        assert!(mysql("define", "protocol = \"prepared\"\ndefine", BROWSE).is_ok());
        let extended = mysql("define", "protocol = \"extended\"\ndefine", BROWSE).unwrap_err();
        assert!(extended.contains("is PostgreSQL's"), "{extended}");
        let pipeline = mysql("", "", "\\startpipeline\nselect 1;\n\\endpipeline\n").unwrap_err();
        assert!(pipeline.contains("neither MySQL's protocol has any"), "{pipeline}");
        let prepared = PLAN
            .replace("define", "prepare = \"browse.sql\"\ndefine")
            .replace(lab, "")
            .replace("kind = \"postgres\"\n", "kind = \"postgres\"\naddress = \"postgres://db/x\"\n");
        assert!(read(&prepared, BROWSE).unwrap_err().contains("needs [lab]"));
        for (script, words) in [
            ("\\set x 1 +\nselect 1;", "browse.sql:1:"),
            ("select 1;\n\\sett x 1\n", "browse.sql:2:2: invalid command \\sett; did you mean"),
            ("\\startpipeline\nselect 1;\n\\endpipeline\n", "a pipeline needs protocol"),
        ] {
            let error = read(PLAN, script).unwrap_err();
            assert!(error.contains(words), "{script}: {error}");
        }
    }
}
