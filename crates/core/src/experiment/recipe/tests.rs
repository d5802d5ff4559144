use super::*;
use proptest::prelude::*;

fn values(names: &[String], number: usize) -> Values<'static> {
    let nodes = names.iter().zip(2..).map(|(name, last)| (name.clone(), format!("10.0.0.{last}"))).collect();
    Values { nodes, number, primary: 0, port: 5432, user: "u", password: "p", tls: false }
}

fn settings(recipe: &Recipe, number: usize) -> BTreeMap<String, String> {
    let layout = recipe.layout();
    let values = values(&layout.names(), number);
    recipe.settings_of(layout.nodes[number].role, &values).unwrap().into_iter().collect()
}

#[test]
fn every_recipe_that_comes_with_the_program_is_read_and_written_back() {
    for (name, text) in RECIPES {
        let recipe = Recipe::parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(recipe.about.ends_with('.'), "{name}: {}", recipe.about);
        assert!(recipe.claims.isolation.is_some(), "{name}");
        let json = serde_json::to_string(&recipe).unwrap();
        assert_eq!(serde_json::from_str::<Recipe>(&json).unwrap(), recipe, "{name}");
        let toml = toml::to_string(&recipe).unwrap();
        assert_eq!(Recipe::parse(&toml).unwrap(), recipe, "{name}: {toml}");
    }
    let error = Recipe::named("postgers").unwrap_err().to_string();
    assert_eq!(error, "unknown recipe `postgers`: did you mean `postgres`? (or give the path of a file)");
}

#[test]
fn a_standby_is_told_its_primary_and_waits_for_the_others_once_promoted() {
    let recipe = Recipe::named("postgres-sync").unwrap();
    let standby = settings(&recipe, 1);
    assert_eq!(standby["synchronous_standby_names"], "ANY 1 (a,c)");
    assert!(standby["primary_conninfo"].starts_with("host=10.0.0.2 port=5432 user=u password=p"));
    assert!(!settings(&recipe, 0).contains_key("primary_conninfo"));
}

#[test]
fn nodes_are_made_of_counts() {
    let names = |recipe: &Recipe| recipe.layout().names().join(" ");
    let with = |name: &str, counts: &[(Role, u32)]| {
        let count = |count| RoleSpec { count: Some(count), ..RoleSpec::default() };
        let counts = counts.iter().map(|(role, n)| (*role, count(*n))).collect();
        Recipe::named(name).unwrap().with_roles(&counts)
    };
    assert_eq!(names(&with("postgres-sync", &[]).unwrap()), "a b c");
    assert_eq!(names(&with("postgres-sync", &[(Role::Replica, 4)]).unwrap()), "a b c d e");
    assert_eq!(names(&with("galera", &[(Role::Member, 30)]).unwrap()).split(' ').next_back(), Some("ad"));

    let sharded =
        with("mongodb-sharded", &[(Role::Arbiter, 1), (Role::Member, 2), (Role::Router, 2)]).unwrap();
    let layout = sharded.layout();
    assert_eq!(layout.names().join(" "), "a b c d e f g h i router1 router2");
    let sets: Vec<_> = layout.sets.iter().map(|set| (set.name.as_str(), set.members.join(""))).collect();
    let wanted = [("shard1", "abc"), ("shard2", "def"), ("config", "ghi")];
    assert_eq!(sets, wanted.map(|(name, members)| (name, members.to_string())));
    assert_eq!((layout.sets[1].arbiters.join(""), layout.sets[1].majority()), ("f".into(), 2));
    assert!(layout.sets[2].arbiters.is_empty(), "MongoDB allows a config set no arbiters");
    assert!(settings(&sharded, 9).is_empty(), "a router takes none of the servers' settings");
    // Each set has the configuration, and no server takes it for an option of its own.
    let timeout = |set: &ReplicaSet| set.configuration["settings.electionTimeoutMillis"] == "3000";
    assert!(layout.sets.iter().all(timeout));
    assert_eq!(settings(&sharded, 0).into_keys().collect::<Vec<_>>(), ["wiredTigerCacheSizeGB"]);

    for (name, counts, words) in [
        (
            "postgres",
            &[(Role::Primary, 2)][..],
            "roles.primary.count: a cluster without replication is one node",
        ),
        (
            "postgres",
            &[(Role::Replica, 1)],
            "roles.replica: a cluster of this replication has the roles primary",
        ),
        ("postgres-sync", &[(Role::Primary, 2)], "there is one primary; the others are replicas"),
        ("postgres-sync", &[(Role::Replica, 0)], "roles.replica: there must be one at least"),
        ("mongodb-sharded", &[(Role::Shard, 100)], "roles.shard: more than 64 nodes in all"),
        ("mongodb-sharded", &[(Role::Member, u32::MAX)], "roles.member: more than 64 nodes in all"),
    ] {
        let error = with(name, counts).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn only_a_sharded_cluster_spreads_collections_and_only_in_known_ways() {
    let (sharded, set) = (
        include_str!("../../../recipes/mongodb-sharded.toml"),
        include_str!("../../../recipes/mongodb-replica-set.toml"),
    );
    let with = |how: &str| Recipe::parse(&sharded.replace("\"hashed\"", how));
    assert_eq!(with("\"ranged\"").unwrap().settings[SHARDING], "ranged");
    let error = with("\"zoned\"").unwrap_err().to_string();
    assert!(error.contains("settings.sharding: it is hashed, ranged or none"), "{error}");
    let error = Recipe::parse(&set.replace("[settings]", "[settings]\nsharding = \"hashed\"")).unwrap_err();
    assert!(error.to_string().contains("settings.sharding: only a sharded cluster"), "{error}");
}

#[test]
fn a_role_differs_in_limits_settings_and_disk() {
    let recipe = Recipe::parse(
        r#"
        about = "Two."
        server = "postgres"
        port = 5432
        replication = "streaming"
        memory = "256 MiB"
        disk = { size = "1 GiB", shape = "iops=600" }
        [settings]
        max_connections = 20
        [roles.primary]
        cpus = 2
        disk = { journal = "latency=1ms", backing = "disk", folder = "/srv" }
        [roles.replica]
        memory = "64 MiB"
        settings = { hot_standby = false }
        "#,
    )
    .unwrap();
    assert_eq!(
        (recipe.memory_of(Role::Primary), recipe.cpus_of(Role::Primary)),
        (Some(Bytes::mib(256)), Some(2.0))
    );
    assert_eq!(
        (recipe.memory_of(Role::Replica), recipe.cpus_of(Role::Replica)),
        (Some(Bytes::mib(64)), None)
    );
    assert_eq!(settings(&recipe, 1)["hot_standby"], "false");
    assert_eq!(settings(&recipe, 0)["max_connections"], "20");
    let (of_primary, of_replica) =
        (recipe.disk_of(Role::Primary).unwrap(), recipe.disk_of(Role::Replica).unwrap());
    assert_eq!((of_primary.shape.as_str(), of_primary.size), ("iops=600", Bytes::gib(1)));
    assert_eq!(of_primary.journal.as_deref(), Some("latency=1ms"));
    assert_eq!((of_primary.backing, of_primary.folder.as_deref()), (BackingKind::Disk, Some("/srv")));
    assert_eq!((of_replica.backing, of_replica.journal), (BackingKind::Memory, None));
    let over = RoleSpec {
        disk: Some(RoleDisk { shape: Some("iops=5".into()), ..RoleDisk::default() }),
        ..RoleSpec::default()
    };
    let recipe = recipe.with_roles(&[(Role::Primary, over)].into()).unwrap();
    let disk = recipe.disk_of(Role::Primary).unwrap();
    assert_eq!((disk.shape.as_str(), disk.journal.as_deref()), ("iops=5", Some("latency=1ms")));
}

#[test]
fn what_is_wrong_is_named_with_line_key_and_the_right_word() {
    let whole = Recipe::text("postgres-sync").unwrap();
    for (from, to, words) in [
        ("count = 2", "cuont = 2", "line 21: unknown setting `cuont`: did you mean `count`?"),
        ("[roles.replica]", "[roles.replcia]", "unknown value `replcia`: did you mean `replica`?"),
        (
            "server = \"postgres\"",
            "server = \"postgers\"",
            "line 2: unknown value `postgers`: did you mean `postgres`?",
        ),
        ("port = 5432\n", "", "missing field `port`"),
        ("\"streaming\"", "\"galera\"", "line 4: replication: Postgres does not replicate by Galera"),
        ("count = 2", "count = 0", "line 20: roles.replica: there must be one at least"),
        (
            "{others}",
            "{otehrs}",
            "line 8: settings.synchronous_standby_names: unknown placeholder `otehrs`: did you mean `others`?",
        ),
        ("{name}", "{name", "roles.replica.settings.primary_conninfo: "),
        ("count = 2", "cpus = 0", "line 21: roles.replica.cpus: must be more than 0"),
        (
            "count = 2",
            "disk = { size = \"1 GiB\", shape = \"iosp=5\" }",
            "line 21: roles.replica.disk.shape: ",
        ),
        ("count = 2", "disk = { shape = \"iops=5\" }", "line 21: roles.replica.disk: say its size"),
        ("snapshot_isolation", "snapshot_isloation", "did you mean `snapshot_isolation`?"),
        ("window = \"600 ms\"", "window = \"soon\"", "line "),
    ] {
        let text = whole.replacen(from, to, 1);
        assert_ne!(text, whole, "{from}");
        let error = Recipe::parse(&text).unwrap_err().to_string();
        assert!(error.contains(words), "{to}: {error}");
    }
    let set = Recipe::text("mongodb-replica-set").unwrap();
    for (place, words) in [
        ("members", "settings.replSetConfig.members: follows from the recipe's roles"),
        ("settings.", "a place in the configuration is meant, such as settings.chainingAllowed"),
    ] {
        let text =
            set.replace("replSetConfig.settings.heartbeatIntervalMillis", &format!("replSetConfig.{place}"));
        let error = Recipe::parse(&text).unwrap_err().to_string();
        assert!(error.contains(words), "{place}: {error}");
    }
    let alone = Recipe::text("mongodb").unwrap().replace("[settings]", "[settings]\n\"replSetConfig.a\" = 1");
    let error = Recipe::parse(&alone).unwrap_err().to_string();
    assert!(error.contains("only MongoDB's replica sets have a configuration"), "{error}");
    let arbiter = Recipe::text("ferretdb").unwrap();
    for (more, words) in [
        ("tls = true", "tls: a laboratory's Ferretdb is started without TLS"),
        (
            "disk = { size = \"1 GiB\", journal = \"iops=5\" }",
            "Ferretdb has no journal that could be kept apart",
        ),
        ("disk = { size = \"1 GiB\", folder = \"/srv\" }", "disk.folder: needs backing = \"disk\""),
    ] {
        let error = Recipe::parse(&format!("{more}\n{arbiter}")).unwrap_err().to_string();
        assert!(error.contains(words), "{more}: {error}");
    }
    let asks = Recipe::parse(&arbiter.replace("password = false", "password = true")).unwrap_err();
    assert!(asks.to_string().contains("Ferretdb asks for none"), "{asks}");
}

#[test]
fn losses_are_documented_by_setting_and_the_greatest_counts() {
    let recipe = Recipe::named("postgres").unwrap();
    let given = |name: &str, value: &str| BTreeMap::from([(name.to_string(), value.to_string())]);
    let most = Duration::from_millis(600);
    assert_eq!(recipe.documented(&given("synchronous_commit", "off"), None), most);
    assert_eq!(recipe.documented(&given("synchronous_commit", "on"), None), Duration::ZERO);
    assert_eq!(recipe.documented(&BTreeMap::new(), Some("acknowledged")), most);
    let sync = Recipe::named("mariadb").unwrap();
    let off = given("innodb_flush_log_at_trx_commit", "2");
    assert_eq!(sync.documented(&off, None), Duration::from_secs(1));
    // The window grows with the interval that it is a multiple of, in the server's own unit.
    for (recipe, name, value, window_ms) in [
        ("postgres", "wal_writer_delay", "2s", 6_000),
        ("postgres", "wal_writer_delay", "50", 150),
        ("postgres", "wal_writer_delay", "often", 0),
        ("mariadb", "innodb_flush_log_at_timeout", "3", 3_000),
        ("mongodb", "journalCommitInterval", "500", 500),
        ("mongodb-replica-set", "setParameter.journalCommitInterval", "300", 300),
    ] {
        let window = Recipe::named(recipe).unwrap().documented(&given(name, value), Some("acknowledged"));
        assert_eq!(window, Duration::from_millis(window_ms), "{recipe}: {name} = {value}");
    }
}

proptest! {
    #[test]
    fn text_without_placeholders_stays(text in "[^{]*") {
        let names = ["a", "b"].map(String::from);
        prop_assert_eq!(values(&names, 0).fill(&text).unwrap(), text);
    }
    #[test]
    fn no_text_panics(text in "[{}a-z.]*") {
        let _ = values(&["a".to_string()], 0).fill(&text);
    }
}
