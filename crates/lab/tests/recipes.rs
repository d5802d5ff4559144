//! Real servers from the recipes: started, used with their own clients, killed, restarted, stopped.

#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers in here are tests too")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tipover_lab::recipe::{
    Authentication, Ferret, Mariadb, Missing, Postgres, Server, ServerOptions, Stop, Transport,
};
use tipover_lab::{Ending, Limits};

/// What was found, or `None` after saying what is missing.
fn found<T>(found: Result<T, Missing>) -> Option<T> {
    found.map_err(|missing| println!("SKIPPED: {missing}")).ok()
}

/// A program's answer; panics with what it said when it fails.
fn answer(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

fn psql(server: &Server, statement: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement]);
    command.arg(server.url());
    if let Some(authority) = server.authority() {
        command.env("PGSSLROOTCERT", authority);
    }
    command
}

fn mariadb(server: &Server, statement: &str) -> Command {
    let mut command = Command::new("mariadb");
    let address = server.address();
    command.args(["--no-defaults", "-N", "-B", "--protocol=tcp", "-u", "tipover"]);
    command.args(["-h", &address.ip().to_string(), "-P", &address.port().to_string()]);
    command.arg(format!("-p{}", server.password())).args(["tipover", "-e", statement]);
    command
}

fn gone(pid: u32) -> bool {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Err(_) => return true,
            Ok(text) if text.contains(") Z ") => return true,
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    false
}

/// Everything a killed and restarted server must do, with any client.
fn live_and_die(server: &mut Server, ask: impl Fn(&Server, &str) -> Command) {
    answer(&mut ask(server, "CREATE TABLE kept (k int PRIMARY KEY)"));
    answer(&mut ask(server, "INSERT INTO kept VALUES (1), (2), (3)"));
    let first = server.pid();
    let group = server.group().cloned();
    let exit = server.kill().unwrap().unwrap();
    assert_eq!(exit.ending, Ending::Signal(9), "{exit}");
    assert!(!server.is_running() && gone(first));
    if let Some(group) = group {
        assert!(group.processes().is_empty(), "a process survived the kill");
    }
    assert!(TcpStream::connect(server.address()).is_err(), "somebody still listens");
    assert!(server.kill().unwrap().is_none(), "what does not run cannot be killed");

    server.restart().unwrap();
    assert_ne!(server.pid(), first);
    assert_eq!(answer(&mut ask(server, "SELECT sum(k) FROM kept")), "6", "what was acknowledged is there");

    for stop in [Stop::Fast, Stop::Immediate] {
        let pid = server.pid();
        let exit = server.stop(stop).unwrap().unwrap();
        assert!(gone(pid) && server.pid() == 0, "{exit}");
        assert!(stop == Stop::Immediate || exit.succeeded(), "{}", exit.explained());
        server.start().unwrap();
        assert_eq!(answer(&mut ask(server, "SELECT count(*) FROM kept")), "3");
    }
}

/// Dropping leaves neither a process nor a file.
fn drop_leaves_nothing(server: Server) {
    let (pid, data, socket) = (server.pid(), server.data().to_path_buf(), server.socket());
    assert!(pid > 0 && data.exists() && socket.exists());
    drop(server);
    assert!(gone(pid) && !data.exists() && !socket.exists());
    assert!(!data.parent().unwrap().parent().unwrap().exists(), "the throw-away folder stays");
}

#[test]
fn postgres_lives_and_dies() {
    // Every version that is here, and a loud word if the newest known one is not.
    found(Postgres::find(None));
    found(Postgres::find(Some(18)));
    Postgres::all().iter().for_each(one_postgres_lives_and_dies);
}

fn one_postgres_lives_and_dies(postgres: &Postgres) {
    let options = ServerOptions {
        settings: vec![("shared_buffers".into(), "16MB".into())],
        limits: Limits::NONE,
        ..ServerOptions::default()
    };
    let mut server = postgres.start(&options).unwrap();
    assert_eq!(answer(&mut psql(&server, "SHOW shared_buffers")), "16MB");
    assert_eq!(answer(&mut psql(&server, "SELECT usesuper FROM pg_user WHERE usename = current_user")), "t");
    let databases = "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database WHERE datdba = \
                     (SELECT oid FROM pg_roles WHERE rolname = 'tipover') AND NOT datistemplate";
    assert_eq!(answer(&mut psql(&server, databases)), "postgres tipover ycsb");
    live_and_die(&mut server, psql);
    server.set("shared_buffers", "24MB");
    server.restart().unwrap();
    assert_eq!(answer(&mut psql(&server, "SHOW shared_buffers")), "24MB");
    drop_leaves_nothing(server);
}

#[test]
fn mariadb_lives_and_dies() {
    let Some(recipe) = found(Mariadb::find(None)) else { return };
    let options = ServerOptions {
        settings: vec![("innodb_buffer_pool_size".into(), "20M".into())],
        ..ServerOptions::default()
    };
    let mut server = recipe.start(&options).unwrap();
    assert_eq!(answer(&mut mariadb(&server, "SELECT @@innodb_buffer_pool_size DIV 1048576")), "20");
    assert!(answer(&mut mariadb(&server, "SHOW DATABASES")).contains("ycsb"));
    live_and_die(&mut server, mariadb);
    assert_eq!(server.kill_one_backend(), None, "nobody is connected");
    let mut client = mariadb(&server, "SELECT SLEEP(1000)");
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while server.kill_one_backend().is_none() {
        assert!(began.elapsed() < Duration::from_secs(60), "no connection was ever seen");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!client.wait().unwrap().success(), "its client must notice");
    assert!(server.is_running(), "one thread is not the server");
    drop_leaves_nothing(server);
}

#[test]
fn a_wrong_password_is_refused_and_the_right_one_is_kept_with_the_data() {
    let Some(postgres) = found(Postgres::find(None)) else { return };
    let folder = tempfile::Builder::new().prefix("kept").tempdir().unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = ServerOptions { folder: Some(folder.path().join("a")), ..ServerOptions::default() };
    let server = postgres.start(&options).unwrap();
    answer(&mut psql(&server, "CREATE TABLE kept AS SELECT 7 AS k"));
    let scheme = "SELECT rolpassword LIKE 'SCRAM-SHA-256$%' FROM pg_authid WHERE rolname = 'tipover'";
    assert_eq!(answer(&mut psql(&server, scheme)), "t");
    let wrong = server.url().replace(server.password(), "wrong");
    let refused = Command::new("psql").args(["-X", "-c", "SELECT 1", &wrong]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("password authentication failed"));
    let password = server.password().to_string();
    drop(server);

    // A crash left the data; the next one takes them up.
    let server = postgres.start(&options).unwrap();
    assert_eq!(server.password(), password);
    assert_eq!(answer(&mut psql(&server, "SELECT k FROM kept")), "7");

    let trusting = ServerOptions { authentication: Authentication::Trust, ..ServerOptions::default() };
    let server = postgres.start(&trusting).unwrap();
    let without = server.url().replace(&format!(":{}", server.password()), "");
    let mut command = Command::new("psql");
    assert_eq!(answer(command.args(["-X", "-A", "-t", "-c", "SELECT 2", &without])), "2");
}

#[test]
fn connections_are_encrypted_on_request() {
    if let Some(postgres) = found(Postgres::find(None)) {
        let options = ServerOptions { transport: Transport::TlsRequired, ..ServerOptions::default() };
        let server = postgres.start(&options).unwrap();
        let encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        // Its address asks for the strictest mode: the chain and the name must both be right.
        let (url, strict) = (server.url(), "sslmode=verify-full");
        assert!(url.contains(strict), "{url}");
        let mut command = Command::new("psql");
        assert_eq!(answer(command.args(["-X", "-A", "-t", "-c", encrypted, &url])), "t");
        let plain = url.replace(strict, "sslmode=disable");
        let refused = Command::new("psql").args(["-X", "-c", "SELECT 1", &plain]).output().unwrap();
        assert!(!refused.status.success(), "a plain connection was let in");
    }
    if let Some(recipe) = found(Mariadb::find(None)) {
        let options = ServerOptions { transport: Transport::TlsRequired, ..ServerOptions::default() };
        let server = recipe.start(&options).unwrap();
        let cipher = "SELECT VARIABLE_VALUE <> '' FROM information_schema.SESSION_STATUS WHERE \
                      VARIABLE_NAME = 'Ssl_cipher'";
        let mut strict = mariadb(&server, cipher);
        strict.arg(format!("--ssl-ca={}", server.authority().unwrap().display()));
        strict.arg("--ssl-verify-server-cert");
        assert_eq!(answer(&mut strict), "1");
        let refused = mariadb(&server, "SELECT 1").arg("--skip-ssl").output().unwrap();
        assert!(!refused.status.success(), "a plain connection was let in");
    }
}

#[test]
fn one_killed_backend_makes_postgres_recover() {
    let Some(postgres) = found(Postgres::find(None)) else { return };
    let mut server = postgres.start(&ServerOptions::default()).unwrap();
    assert_eq!(server.kill_one_backend(), None, "nobody is connected");
    let mut client = psql(&server, "SELECT 1; SELECT pg_sleep(1000)");
    let mut client = client.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let victim = loop {
        if let Some(victim) = server.kill_one_backend() {
            break victim;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no backend was ever seen");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert!(gone(victim));
    assert!(!client.wait().unwrap().success(), "its client must notice");
    // All sessions end, then the server takes clients again, with the same main process.
    server.wait_ready(Duration::from_secs(30)).unwrap();
    let began = Instant::now();
    while !psql(&server, "SELECT 1").output().unwrap().status.success() {
        assert!(began.elapsed() < Duration::from_secs(60), "it did not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_cannot_start_says_why() {
    let Some(postgres) = found(Postgres::find(None)) else { return };
    let options =
        ServerOptions { settings: vec![("shared_bufers".into(), "1GB".into())], ..ServerOptions::default() };
    let error = postgres.start(&options).unwrap_err().to_string();
    assert!(error.contains("shared_bufers") && error.contains("ended before it was ready"), "{error}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = Some(taken.local_addr().unwrap().port());
    let error = postgres.start(&ServerOptions { port, ..ServerOptions::default() }).unwrap_err().to_string();
    assert!(error.contains("Address already in use"), "{error}");
}

/// A question of MongoDB's protocol and its answer: `{hello: 1, $db: "admin"}` as OP_MSG.
fn hello(mut stream: TcpStream) -> Vec<u8> {
    let mut document = b"\x10hello\x00\x01\x00\x00\x00\x02$db\x00\x06\x00\x00\x00admin\x00\x00".to_vec();
    document.splice(0..0, (document.len() as u32 + 4).to_le_bytes());
    let mut message = Vec::new();
    for number in [21 + document.len() as u32, 1, 0, 2013, 0] {
        message.extend(number.to_le_bytes());
    }
    message.push(0);
    message.extend(document);
    stream.write_all(&message).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut reply = vec![0; u32::from_le_bytes(length) as usize - 4];
    stream.read_exact(&mut reply).unwrap();
    reply
}

#[test]
fn ferretdb_lives_and_dies() {
    let Some(ferret) = found(Ferret::find()) else { return };
    let mut server = ferret.start(&ServerOptions::default()).unwrap();
    for round in 0..3 {
        let reply = hello(TcpStream::connect(server.address()).unwrap());
        assert!(reply.windows(16).any(|bytes| bytes == b"isWritablePrimar"), "{reply:?}");
        match round {
            0 => assert_eq!(server.kill().unwrap().unwrap().ending, Ending::Signal(9)),
            _ => assert!(server.stop(Stop::Fast).unwrap().unwrap().succeeded()),
        }
        server.restart().unwrap();
    }
    drop_leaves_nothing(server);
}

/// Not a test of its own: a laboratory that is killed.
#[test]
fn play() {
    if std::env::var("TIPOVER_LAB_ROLE").as_deref() != Ok("laboratory") {
        return;
    }
    let server = Postgres::find(None).unwrap().start(&ServerOptions::default()).unwrap();
    println!("server {} {}", server.pid(), server.data().display());
    std::thread::sleep(Duration::from_secs(1000));
}

#[test]
fn a_killed_laboratory_leaves_no_server_and_its_folder_is_found() {
    if found(Postgres::find(None)).is_none() {
        return;
    }
    let mut laboratory = Command::new(std::env::current_exe().unwrap());
    laboratory.args(["--exact", "play", "--nocapture"]).env("TIPOVER_LAB_ROLE", "laboratory");
    let mut laboratory = laboratory.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(laboratory.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.filter_map(|line| line.find("server ").map(|at| line[at..].to_string())).next().unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let (pid, data) = (words[1].parse().unwrap(), PathBuf::from(words[2]));
    let scratch = data.parent().and_then(Path::parent).unwrap().to_path_buf();
    assert!(!tipover_lab::leftover_folders(&std::env::temp_dir()).contains(&scratch), "its owner lives");

    laboratory.kill().unwrap();
    laboratory.wait().unwrap();
    assert!(gone(pid), "the server outlived its laboratory");
    assert!(tipover_lab::leftover_folders(&std::env::temp_dir()).contains(&scratch));
    // The backends follow their main process within a moment; until then they may still write.
    let began = Instant::now();
    while scratch.exists() && began.elapsed() < Duration::from_secs(60) {
        tipover_lab::clean().unwrap();
        tipover_lab::clean_folders(&std::env::temp_dir());
    }
    assert!(!scratch.exists());
}
