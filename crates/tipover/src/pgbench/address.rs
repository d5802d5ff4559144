//! Which server is meant: by a URL, or by a database's name, options and PG* variables as libpq knows them.

use super::options::{Mistake, Options};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::path::Path;
use tipover_core::experiment::Address;

/// Whatever RFC 3986 does not leave alone everywhere.
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn escaped(text: &str) -> String {
    utf8_percent_encode(text, &RESERVED).to_string()
}

/// Folders in which servers have their sockets, where nobody says on which host.
const SOCKETS: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// The address of the server; `variable` gives those of the environment.
///
/// # Errors
/// A URL of another kind of server.
pub fn address(options: &Options, variable: &dyn Fn(&str) -> Option<String>) -> Result<Address, Mistake> {
    let text = url(options, variable)?;
    text.parse().map_err(|words| Mistake(format!("the server's address: {words}")))
}

fn url(options: &Options, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, Mistake> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let database = options.database.clone().or_else(|| variable("PGDATABASE"));
    let extra = variable("PGOPTIONS").map(|options| format!("options={}", escaped(&options)));
    if let Some(url) = database.as_ref().filter(|database| database.contains("://")) {
        let scheme = url.split("://").next().unwrap_or_default();
        if !matches!(scheme, "postgres" | "postgresql") {
            return Err(Mistake(format!(
                "pgbench measures PostgreSQL: the address begins with postgres://, not {scheme}://"
            )));
        }
        let joint = if url.contains('?') { "&" } else { "?" };
        return Ok(match extra.filter(|_| !url.contains("options=")) {
            Some(extra) => format!("{url}{joint}{extra}"),
            None => url.clone(),
        });
    }
    let user = options.user.clone().or_else(|| variable("PGUSER")).or_else(|| variable("USER"));
    let user = user.unwrap_or_else(|| "postgres".into());
    let port = options.port.map(|port| port.to_string()).or_else(|| variable("PGPORT"));
    let port = port.unwrap_or_else(|| "5432".into());
    let host = options.host.clone().or_else(|| variable("PGHOST")).unwrap_or_else(|| {
        let has_socket = |folder: &&str| Path::new(folder).join(format!(".s.PGSQL.{port}")).exists();
        SOCKETS.into_iter().find(has_socket).unwrap_or("localhost").into()
    });
    let mut parameters = vec![format!("host={}", escaped(&host)), format!("port={port}")];
    for (name, parameter) in
        [("PGSSLMODE", "sslmode"), ("PGSSLROOTCERT", "sslrootcert"), ("PGCONNECT_TIMEOUT", "connect_timeout")]
    {
        parameters.extend(variable(name).map(|value| format!("{parameter}={}", escaped(&value))));
    }
    parameters.extend(extra);
    let database = escaped(database.as_deref().unwrap_or(&user));
    Ok(format!("postgres://{}@/{database}?{}", escaped(&user), parameters.join("&")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_beat_variables_and_a_url_says_it_all() {
        let of = |line: &str, variables: &[(&str, &str)]| {
            let words: Vec<String> = line.split_whitespace().map(String::from).collect();
            let find =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| v.to_string());
            url(&Options::parse(&words).unwrap(), &find).map_err(|mistake| mistake.to_string())
        };
        let variables = [("PGHOST", "there"), ("PGUSER", "ann"), ("PGPORT", "1"), ("PGDATABASE", "d b")];
        assert_eq!(of("", &variables).unwrap(), "postgres://ann@/d%20b?host=there&port=1");
        assert_eq!(of("-h h -p 2 -U bob bank", &variables).unwrap(), "postgres://bob@/bank?host=h&port=2");
        let url = "postgres://me@here/bank";
        assert_eq!(of(url, &variables).unwrap(), url);
        let options = [("PGOPTIONS", "-c a=b")];
        assert_eq!(of(url, &options).unwrap(), format!("{url}?options=%2Dc%20a%3Db").replace("%2D", "-"));
        assert!(of("mysql://here/bank", &[]).unwrap_err().contains("begins with postgres://"));
        assert_eq!(
            of("-h x -U u", &[]).unwrap(),
            "postgres://u@/u?host=x&port=5432",
            "the user's own database"
        );
    }
}
