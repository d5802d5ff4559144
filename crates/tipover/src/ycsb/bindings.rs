//! Which target a name or URL means, and where it is, from the properties of YCSB's and go-ycsb's bindings.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::path::PathBuf;
use tipover_core::experiment::{Address, TargetKind, unknown};
use tipover_core::workload::Properties;

/// A target and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// Which system.
    pub kind: TargetKind,
    /// Where the server is.
    pub address: Option<Address>,
    /// Where an embedded engine keeps its data.
    pub folder: Option<PathBuf>,
    /// Records per insert.
    pub batch: u32,
}

const NAMES: [&str; 11] = [
    "null",
    "basic",
    "wiredtiger",
    "postgres",
    "postgresql",
    "pg",
    "jdbc",
    "postgrenosql",
    "mysql",
    "mariadb",
    "mongodb",
];

/// What `name` means: a binding of YCSB or go-ycsb, or the server's own URL.
///
/// # Errors
/// The nearest right name, or which property is missing.
pub fn bind(name: &str, properties: &Properties) -> Result<Binding, String> {
    let p = properties;
    let (kind, address) = match name {
        _ if name.contains("://") => {
            let url = from_jdbc(name, p)?;
            (kind_of(&url)?, Some(url))
        }
        "null" | "basic" => (TargetKind::Null, None),
        "wiredtiger" => (TargetKind::Wiredtiger, None),
        "postgres" | "postgresql" | "pg" | "postgrenosql" => (TargetKind::Postgres, Some(postgres(p)?)),
        "mysql" | "mariadb" => (TargetKind::Mysql, Some(mysql(p)?)),
        "mongodb" | "mongodb-async" => (TargetKind::Mongodb, Some(mongodb(p)?)),
        "jdbc" => {
            let url = p.any(&["db.url", "url"]).ok_or(
                "jdbc needs db.url, as -p db.url=jdbc:postgresql://127.0.0.1/ycsb or jdbc:mysql://...",
            )?;
            let url = from_jdbc(url, p)?;
            (kind_of(&url)?, Some(url))
        }
        other => return Err(unknown("target", other, &NAMES)),
    };
    let address = address.map(|url| url.parse::<Address>()).transpose()?;
    let folder = match (kind, p.any(&["wiredtiger.dir"])) {
        (TargetKind::Wiredtiger, None) => {
            return Err(
                "wiredtiger needs a folder of its own, as -p wiredtiger.dir=data; load and run share it"
                    .into(),
            );
        }
        (_, folder) => folder.map(PathBuf::from),
    };
    let batch = ["batchsize", "mongodb.batchsize", "db.batchsize", "batch.size"];
    let batch = batch.into_iter().find(|name| p.get(name).is_some()).unwrap_or("batchsize");
    let batch = p.at_least(batch, 1, 1)?.min(1 << 20) as u32;
    Ok(Binding { kind, address, folder, batch })
}

fn kind_of(url: &str) -> Result<TargetKind, String> {
    match url.split("://").next().unwrap_or_default() {
        "postgres" | "postgresql" => Ok(TargetKind::Postgres),
        "mysql" | "mariadb" => Ok(TargetKind::Mysql),
        "mongodb" | "mongodb+srv" => Ok(TargetKind::Mongodb),
        other => {
            Err(unknown("kind of server", other, &["postgres", "postgresql", "mysql", "mariadb", "mongodb"]))
        }
    }
}

/// As it may stand in the user part of a URL.
fn escaped(text: &str) -> impl std::fmt::Display + '_ {
    /// Whatever RFC 3986 does not leave alone everywhere.
    const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, &RESERVED)
}

/// Puts user and password before the host, unless the URL has its own.
fn with_user(url: &str, user: Option<&str>, password: Option<&str>) -> String {
    match (url.split_once("://"), user) {
        (Some((scheme, rest)), Some(user)) if !rest.split('/').next().unwrap_or("").contains('@') => {
            let password = password.map(|p| format!(":{}", escaped(p))).unwrap_or_default();
            format!("{scheme}://{}{password}@{rest}", escaped(user))
        }
        _ => url.to_string(),
    }
}

/// `jdbc:postgresql://host/db?user=u&password=secret&ssl=true` as the server's own URL: user and password move
/// before the host, what only a Java driver understands is left out.
fn from_jdbc(url: &str, p: &Properties) -> Result<String, String> {
    let Some(plain) = url.strip_prefix("jdbc:") else {
        return Ok(with_user(url, p.any(&["db.user"]), p.any(&["db.passwd"])));
    };
    // YCSB shards over several URLs; a trial measures one server.
    if plain.contains("jdbc:") {
        return Err("db.url names several servers; give one, the others are trials of their own".into());
    }
    let (base, parameters) = plain.split_once('?').unwrap_or((plain, ""));
    let (mut user, mut password, mut kept) = (p.any(&["db.user"]), p.any(&["db.passwd"]), Vec::new());
    for (name, value) in parameters.split('&').filter_map(|parameter| parameter.split_once('=')) {
        match name {
            "user" => user = user.or(Some(value)),
            "password" => password = password.or(Some(value)),
            "sslmode" | "sslrootcert" => kept.push(format!("{name}={value}")),
            "ssl" if value == "true" => kept.push("sslmode=require".into()),
            "sslMode" => kept.push(format!("sslmode={}", value.to_ascii_lowercase())),
            _ => {}
        }
    }
    let question = if kept.is_empty() { "" } else { "?" };
    Ok(format!("{}{question}{}", with_user(base, user, password), kept.join("&")))
}

fn postgres(p: &Properties) -> Result<String, String> {
    if let Some(url) = p.any(&["postgrenosql.url", "db.url", "url"]) {
        let url = from_jdbc(url, p)?;
        return Ok(with_user(&url, p.any(&["postgrenosql.user"]), p.any(&["postgrenosql.passwd"])));
    }
    // go-ycsb's properties and defaults.
    let (host, port) = (p.any(&["pg.host"]).unwrap_or("127.0.0.1"), p.any(&["pg.port"]).unwrap_or("5432"));
    let database = p.any(&["pg.db"]).unwrap_or("test");
    let mode = p.any(&["pg.sslmode"]).map(|mode| format!("?sslmode={mode}")).unwrap_or_default();
    let url = format!("postgres://{host}:{port}/{database}{mode}");
    Ok(with_user(&url, p.any(&["pg.user"]).or(Some("root")), p.any(&["pg.password"])))
}

fn mysql(p: &Properties) -> Result<String, String> {
    if let Some(url) = p.any(&["db.url", "url"]) {
        return from_jdbc(url, p);
    }
    let (host, port) =
        (p.any(&["mysql.host"]).unwrap_or("127.0.0.1"), p.any(&["mysql.port"]).unwrap_or("3306"));
    let url = format!("mysql://{host}:{port}/{}", p.any(&["mysql.db"]).unwrap_or("test"));
    Ok(with_user(&url, p.any(&["mysql.user"]).or(Some("root")), p.any(&["mysql.password"])))
}

fn mongodb(p: &Properties) -> Result<String, String> {
    let url = p.any(&["mongodb.url", "url"]).unwrap_or("mongodb://localhost:27017/ycsb?w=1");
    if !url.contains("://") {
        return Err("mongodb.url must begin with mongodb://".into());
    }
    let mut url = with_user(url, p.any(&["mongodb.username"]), p.any(&["mongodb.password"]));
    let mut options: Vec<String> = Vec::new();
    if let Some(concern) = p.get("mongodb.writeConcern") {
        let names = [
            "errors_ignored",
            "unacknowledged",
            "acknowledged",
            "journaled",
            "replica_acknowledged",
            "majority",
        ];
        options.push(match concern {
            "errors_ignored" | "unacknowledged" => "w=0".into(),
            "acknowledged" => "w=1".into(),
            "journaled" => "journal=true".into(),
            "replica_acknowledged" => "w=2".into(),
            "majority" => "w=majority".into(),
            other => return Err(unknown("mongodb.writeConcern", other, &names)),
        });
    }
    if let Some(preference) = p.get("mongodb.readPreference") {
        options.push(format!("readPreference={preference}"));
    }
    if let Some(most) = p.get("mongodb.maxconnections") {
        options.push(format!("maxPoolSize={most}"));
    }
    for option in options {
        let name = option.split('=').next().unwrap_or_default();
        // What the URL says counts, as in YCSB.
        if !url.contains(&format!("?{name}=")) && !url.contains(&format!("&{name}=")) {
            // Options stand behind a path, be it empty.
            if !url.split("://").nth(1).unwrap_or_default().contains('/') {
                url.push('/');
            }
            url.push(if url.contains('?') { '&' } else { '?' });
            url.push_str(&option);
        }
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(name: &str, given: &str) -> Result<Binding, String> {
        let mut properties = Properties::default();
        given
            .split_whitespace()
            .filter_map(|pair| pair.split_once('='))
            .for_each(|(n, v)| properties.set(n, v, "-p"));
        bind(name, &properties)
    }

    #[track_caller]
    fn assert_bound(name: &str, given: &str, kind: TargetKind, url: &str) {
        let binding = bound(name, given).unwrap();
        assert_eq!((binding.kind, binding.address.unwrap().with_secrets()), (kind, url), "{name} {given}");
    }

    #[test]
    fn bindings_find_their_servers() {
        use TargetKind::{Mongodb, Mysql, Postgres};
        let jdbc = "db.driver=org.postgresql.Driver db.user=anna db.passwd=s:e@c";
        assert_bound(
            "jdbc",
            &format!("{jdbc} db.url=jdbc:postgresql://h:1/d"),
            Postgres,
            concat!("postgresql://anna:", "s%3Ae%40c", "@h:1/d"),
        );
        assert_bound(
            "jdbc",
            "db.url=jdbc:mysql://h/d?user=u&password=secret&rewriteBatchedStatements=true&ssl=true",
            Mysql,
            "mysql://u:secret@h/d?sslmode=require",
        );
        assert_bound("pg", "", Postgres, "postgres://root@127.0.0.1:5432/test");
        assert_bound(
            "postgres",
            "pg.host=h pg.user=u pg.password=secret pg.db=d pg.sslmode=disable",
            Postgres,
            "postgres://u:secret@h:5432/d?sslmode=disable",
        );
        assert_bound(
            "postgrenosql",
            "postgrenosql.url=jdbc:postgresql://h/d postgrenosql.user=u postgrenosql.passwd=secret",
            Postgres,
            "postgresql://u:secret@h/d",
        );
        assert_bound("mariadb", "mysql.port=3307", Mysql, "mysql://root@127.0.0.1:3307/test");
        assert_bound("mongodb", "", Mongodb, "mongodb://localhost:27017/ycsb?w=1");
        assert_bound(
            "mongodb",
            "mongodb.url=mongodb://a,b/?replicaSet=r mongodb.writeConcern=journaled",
            Mongodb,
            "mongodb://a,b/?replicaSet=r&journal=true",
        );
        assert_bound(
            "mongodb",
            "mongodb.url=mongodb://a mongodb.writeConcern=majority",
            Mongodb,
            "mongodb://a/?w=majority",
        );
        assert_bound(
            "mongodb",
            "mongodb.url=mongodb://a/?w=1 mongodb.writeConcern=majority",
            Mongodb,
            "mongodb://a/?w=1",
        );
        assert_bound("postgres://u:secret@h/d", "", Postgres, "postgres://u:secret@h/d");
        assert_eq!(bound("basic", "").unwrap().kind, TargetKind::Null);
    }

    #[test]
    fn batches_have_four_names() {
        for given in ["batchsize=50", "mongodb.batchsize=50", "db.batchsize=50", "batch.size=50"] {
            assert_eq!(bound("null", given).unwrap().batch, 50, "{given}");
        }
        assert_eq!(bound("null", "").unwrap().batch, 1);
        assert!(bound("null", "batchsize=0").unwrap_err().contains("at least 1"));
    }

    #[test]
    fn what_is_missing_or_misspelt_is_said() {
        for (name, given, answer) in [
            ("postgress", "", "did you mean `postgres`?"),
            ("jdbc", "", "jdbc needs db.url"),
            ("jdbc", "db.url=jdbc:sqlite://x", "unknown kind of server"),
            ("jdbc", "db.url=jdbc:mysql://a/d;jdbc:mysql://b/d", "several servers"),
            ("wiredtiger", "", "-p wiredtiger.dir=data"),
            ("mongodb", "mongodb.writeConcern=journalled", "did you mean `journaled`?"),
            ("redis://x", "", "unknown kind of server"),
        ] {
            let error = bound(name, given).unwrap_err();
            assert!(error.contains(answer), "{name} {given}: {error}");
        }
    }
}
