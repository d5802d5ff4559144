//! What a server may say to this client, without a socket.

use super::client::Rows;
use super::greeting::Hello;
use super::message;
use super::operations::Operations;
use super::script::Scripted;
use super::table::SYNTAX;
use super::transfer::Vault;
use crate::connection::sql::{Found, Sql, Table};
use crate::connection::untrusted::{Manner, converse};
use crate::connection::{Input, Url};
use std::collections::BTreeMap;
use std::sync::Arc;
use tipover_core::workload::bank::{Bank, BankSpec};
use tipover_core::workload::script::Dialect;
use tipover_core::workload::{Dataset, Scripts};

/// Speaks with a server that says `bytes`: all the time as each of the three who listen to one.
pub fn postgres(bytes: &[u8]) {
    let (manner, said) = Manner::of(bytes);
    let address = "postgres://anna:secret@localhost/bank".parse().expect("a constant");
    let place = Url::parse(&address, super::Flavour::DIALECT, &[]).expect("a constant");
    let hello = Hello::new(&place, &BTreeMap::new());
    let may_encrypt = manner.choice & 4 != 0;
    match manner.choice & 3 {
        3 => {
            let mut scripts = Scripts::new(1, Dialect::Plan);
            let script = b"begin;\nselect 1 as a \\gset\n\\sleep :a us\nselect :a, 2;\nend;\n";
            scripts.add("script", script, 1).expect("a constant");
            scripts.retries = manner.choice & 4 != 0;
            let mut scripted = Scripted::new(hello, Arc::new(scripts));
            converse(&mut scripted, manner, may_encrypt, said, |_, _| {});
        }
        0 => {
            let dataset = Dataset { fields: 2, ..Dataset::ycsb(10) };
            let columns = ["ycsb_key", "field0", "field1"];
            let rows = columns.map(|name| vec![Some("usertable".to_string()), Some(name.to_string())]);
            let found = Found::among(&rows, &SYNTAX, &dataset);
            let found = found.and_then(Result::ok).expect("the table has these columns");
            let table = Table::new("usertable".into(), &found, true, &SYNTAX, &dataset);
            let mut operations = Operations::new(hello, &dataset, Arc::new(table));
            converse(&mut operations, manner, may_encrypt, said, |_, _| {});
        }
        1 => {
            let bank = Bank::new(BankSpec { accounts: 10, ..BankSpec::default() }).expect("ten are enough");
            let mut vault = Vault::new(hello, Arc::new(bank), "serializable");
            converse(&mut vault, manner, may_encrypt, said, |_, _| {});
        }
        _ => {
            let (mut input, mut rows) = (Input::default(), Rows::default());
            for piece in manner.pieces(said) {
                if input.take_in(piece).is_err() {
                    return;
                }
                while let Some((letter, range)) = message::next(&input) {
                    let body = input.rest()[range.clone()].to_vec();
                    input.consume(range.end);
                    match rows.take(letter, &body) {
                        Ok(true) => {}
                        Ok(false) => rows = Rows::default(),
                        Err(report) => return drop(report.to_string()),
                    }
                }
                input.forget();
            }
        }
    }
}
