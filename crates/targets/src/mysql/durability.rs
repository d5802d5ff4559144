//! What an acknowledgement of this server promises, by its own account. Nothing is set here: the decisive
//! variables are the whole server's.

use super::client::Client;
use super::packet::Report;
use crate::connection::sql::{Client as _, durability_word};
use tipover_core::experiment::Durability;
use tipover_core::target::TargetError;

/// Whether the server, as it is configured, keeps the promise for tables of `engine`.
pub fn check(client: &mut Client, durability: Durability, engine: &str) -> Result<(), TargetError> {
    let word = durability_word(durability);
    let doing = format!("checking that the server can give target.durability = \"{word}\"");
    let refuse = |reason: String| Err(TargetError::new(&doing, reason));
    let failed = |report: Report| TargetError::new(&doing, report);
    let variable = match engine.eq_ignore_ascii_case("rocksdb") {
        true => "rocksdb_flush_log_at_trx_commit",
        false => "innodb_flush_log_at_trx_commit",
    };
    let wanted = match durability {
        Durability::Configured => return Ok(()),
        Durability::Unacknowledged => {
            return refuse(format!(
                "every statement is acknowledged; \"acknowledged\" ({variable} = 0) is the weakest it has"
            ));
        }
        Durability::Acknowledged => "0",
        Durability::Written => "2",
        Durability::Journalled => "1",
        Durability::ReplicatedToOne => return replicated(client).map_err(failed)?.or_else(refuse),
        Durability::ReplicatedToMajority => {
            return refuse(
                "neither Galera nor semi-synchronous replication waits until a majority has flushed; \
                 \"replicated_to_one\" is what they can give"
                    .into(),
            );
        }
    };
    let found = client.value(&format!("SELECT @@GLOBAL.{variable}")).map_err(failed)?;
    if found != wanted {
        return refuse(format!(
            "it needs {variable} = {wanted}, which is {found} for the whole server; set it there, or allow it \
             with target.settings = {{ \"global.{variable}\" = \"{wanted}\" }}: it is put back at the end"
        ));
    }
    let method = client.value("SELECT @@GLOBAL.innodb_flush_method").unwrap_or_default();
    if durability == Durability::Journalled && method.eq_ignore_ascii_case("nosync") {
        return refuse("innodb_flush_method is nosync there, so nothing is ever flushed".into());
    }
    Ok(())
}

/// A value of `SHOW GLOBAL STATUS`; empty if there is none.
pub fn status(client: &mut Client, name: &str) -> Result<String, Report> {
    let rows = client.query(&format!("SHOW GLOBAL STATUS LIKE '{name}'"))?;
    Ok(rows.into_iter().next().and_then(|row| row.into_iter().nth(1)).flatten().unwrap_or_default())
}

/// Whether a commit waits until one more node has received it.
fn replicated(client: &mut Client) -> Result<Result<(), String>, Report> {
    let nodes: u64 = status(client, "wsrep_cluster_size")?.parse().unwrap_or(0);
    if nodes >= 2 {
        let state = status(client, "wsrep_cluster_status")?;
        return Ok(match state.as_str() {
            "Primary" => Ok(()),
            state => Err(format!("this Galera node is in a component that is {state}, not Primary")),
        });
    }
    for role in ["master", "source"] {
        let on = status(client, &format!("Rpl_semi_sync_{role}_status"))?;
        let replicas: u64 = status(client, &format!("Rpl_semi_sync_{role}_clients"))?.parse().unwrap_or(0);
        if on == "ON" && replicas > 0 {
            return Ok(Ok(()));
        }
        if on == "ON" {
            return Ok(Err("semi-synchronous replication is on and no replica is attached".into()));
        }
    }
    Ok(Err(
        "it is neither in a Galera cluster of at least two nodes nor waits for semi-synchronous replicas \
            (rpl_semi_sync_master_enabled)"
            .into(),
    ))
}
