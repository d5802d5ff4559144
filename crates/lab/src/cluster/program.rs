//! The program that serves on the nodes of a cluster.

use super::Binaries;
use crate::recipe::{
    Ferret, Mariadb, Missing, Mongod, MongodRole, Own, Polodb, Postgres, Server, ServerError, ServerOptions,
};
use std::sync::Arc;
use tipover_core::experiment::recipe::{Recipe, Replication, Role, System};

/// One for each system.
#[derive(Debug, Clone)]
pub(super) enum Program {
    Postgres(Postgres),
    Mariadb(Mariadb),
    Ferret(Ferret),
    Polodb(Polodb),
    Own(Own),
    Mongod(Mongod),
}

impl Program {
    pub(super) fn find(
        recipe: &Recipe,
        version: Option<u32>,
        own: Option<&Own>,
        binaries: &Binaries,
    ) -> Result<Program, Missing> {
        Ok(match recipe.server {
            System::Postgres => Program::Postgres(match (recipe.replication, version) {
                (Replication::Streaming, None) => Postgres::find_for_copies()?,
                _ => Postgres::find(version)?,
            }),
            System::Mariadb => Program::Mariadb(Mariadb::find(version)?),
            System::Ferretdb => Program::Ferret(Ferret::find()?),
            System::Polodb => Program::Polodb(Polodb::find(binaries.polodb.as_deref())?),
            System::Wiredtiger | System::Guilty => Program::Own(own.cloned().ok_or_else(|| Missing {
                what: "a program that serves an embedded engine".into(),
                looked: "this one serves none".into(),
                advice: "the recipes wiredtiger and guilty are for `tipover break`".into(),
            })?),
            System::Mongod => {
                let (server, router) = (&binaries.mongod, &binaries.mongos);
                let needs_router = recipe.count(Role::Router) > 0;
                Program::Mongod(Mongod::find(server.as_deref(), router.as_deref(), needs_router, version)?)
            }
        })
    }

    /// A server that is not started yet. `role` is for MongoDB's.
    pub(super) fn prepare(
        &self,
        role: Option<MongodRole>,
        options: &ServerOptions,
    ) -> Result<Server, ServerError> {
        match self {
            Program::Postgres(postgres) => Server::prepare(Arc::new(postgres.clone()), options),
            Program::Mariadb(mariadb) => Server::prepare(Arc::new(mariadb.clone()), options),
            Program::Ferret(ferret) => Server::prepare(Arc::new(ferret.clone()), options),
            Program::Polodb(polodb) => Server::prepare(Arc::new(polodb.clone()), options),
            Program::Own(own) => Server::prepare(Arc::new(own.clone()), options),
            Program::Mongod(mongod) => {
                let role = role.ok_or_else(|| ServerError::Senseless("this node has no role".into()))?;
                Server::prepare(Arc::new(mongod.as_role(role)), options)
            }
        }
    }
}
