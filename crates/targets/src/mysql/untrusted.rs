//! What a server may say to this client, without a socket.

use super::client::Rows;
use super::greeting::Hello;
use super::operations::Operations;
use super::packet;
use super::proof::sealed;
use super::script::Scripted;
use super::table::SYNTAX;
use super::transfer::Vault;
use crate::connection::sql::{Found, Sql, Table};
use crate::connection::untrusted::{Manner, converse};
use crate::connection::{Input, Url};
use std::sync::Arc;
use tipover_core::workload::bank::{Bank, BankSpec};
use tipover_core::workload::script::{Dialect, Protocol};
use tipover_core::workload::{Dataset, Scripts};

const PASSWORD: &str = "a password that nobody else has";

/// The password is never sent as it is, unless nobody can listen.
fn is_hidden(sent: &[u8], encrypted: bool) {
    let shown = sent.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes());
    assert!(encrypted || !shown, "the password was shown");
}

/// Speaks with a server that says `bytes`: all the time as each of the three who listen to one.
pub fn mysql(bytes: &[u8]) {
    let (manner, said) = Manner::of(bytes);
    let mode = if manner.choice & 4 == 0 { "disable" } else { "prefer" };
    let address = format!("mysql://anna:{}@localhost/bank?ssl-mode={mode}", PASSWORD.replace(' ', "%20"));
    let address = address.parse().expect("a constant");
    let place = Url::parse(&address, super::Flavour::DIALECT, &[]).expect("a constant");
    let hello = Hello::new(&place, "SET autocommit = 1");
    match manner.choice & 3 {
        0 => {
            let dataset = Dataset { fields: 2, ..Dataset::ycsb(10) };
            let columns = ["YCSB_KEY", "FIELD0", "FIELD1"];
            let rows = columns.map(|name| vec![Some("usertable".to_string()), Some(name.to_string())]);
            let found = Found::among(&rows, &SYNTAX, &dataset);
            let found = found.and_then(Result::ok).expect("the table has these columns");
            let table = Table::new("usertable".into(), &found, true, &SYNTAX, &dataset);
            let mut operations = Operations::new(hello, &dataset, Arc::new(table));
            converse(&mut operations, manner, true, said, is_hidden);
        }
        1 => {
            let bank = Bank::new(BankSpec { accounts: 10, ..BankSpec::default() }).expect("ten are enough");
            converse(&mut Vault::new(hello, Arc::new(bank)), manner, true, said, is_hidden);
        }
        3 => {
            let mut scripts = Scripts::new(1, Dialect::Plan);
            scripts.protocol = if manner.choice & 4 == 0 { Protocol::Simple } else { Protocol::Prepared };
            let text =
                "\\set a 5\nbegin;\nupdate t set b = :a;\nselect b from t where a = :a \\gset\ncommit;\n";
            scripts.add("script", text.as_bytes(), 1).expect("a constant");
            converse(&mut Scripted::new(hello, Arc::new(scripts)), manner, true, said, is_hidden);
        }
        _ => {
            let (mut input, mut rows) = (Input::default(), Rows::new(manner.choice & 4 != 0));
            for piece in manner.pieces(said) {
                if input.take_in(piece).is_err() {
                    return;
                }
                while let Some((_, range)) = packet::next(&input) {
                    let packet = input.rest()[range.clone()].to_vec();
                    input.consume(range.end);
                    match rows.take(&packet) {
                        Ok(true) => {}
                        Ok(false) => rows = Rows::new(false),
                        Err(report) => return drop(report.to_string()),
                    }
                }
                input.forget();
            }
        }
    }
}

/// Seals a password for the key that `bytes` are.
pub fn mysql_key(bytes: &[u8]) {
    if let Ok(sealed) = sealed(PASSWORD.as_bytes(), b"abcdefghijklmnopqrst", bytes) {
        assert!((128..=2048).contains(&sealed.len()), "as long as the modulus");
    }
}
