//! Who takes writes after somebody is gone, and how who was gone comes back.

use super::program::Program;
use super::{Cluster, ClusterError, PATIENCE};
use crate::Signal;
use crate::node::NodeError;
use crate::recipe::{ServerError, Stop};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tipover_core::experiment::recipe::{Replication, Role};
use tipover_core::schedule::Effect;

impl Cluster {
    /// Starts those of these nodes that do not run, each in the role that is now its own.
    ///
    /// # Errors
    /// One does not come back.
    pub fn come_back(&mut self, names: &[String]) -> Result<(), ClusterError> {
        let galera = self.recipe.replication == Replication::Galera;
        if galera && !(0..self.nodes.len()).any(|i| self.nodes[i].is_running()) {
            self.begin_anew(names)?;
        }
        if self.recipe.replication.elects_by_itself() {
            for name in names {
                let node = self.index(name)?;
                self.nodes[node].start()?;
                self.unfreeze(node);
            }
            // Not each by itself: only a majority elects anybody.
            return self.wait_whole(PATIENCE);
        }
        // A standby can be asked for nothing before its primary is there.
        let mut names: Vec<&String> = names.iter().collect();
        names.sort_by_key(|name| *name != self.primary());
        for name in names {
            let node = self.index(name)?;
            if self.nodes[node].is_running() {
                continue;
            }
            if node == self.primary && !galera { self.nodes[node].start()? } else { self.rejoin(name)? }
        }
        Ok(())
    }

    /// Makes a Galera cluster of which nobody is left: whoever has seen most begins, as an administrator
    /// finds out with `--wsrep-recover`.
    fn begin_anew(&mut self, names: &[String]) -> Result<(), ClusterError> {
        let mut best: Option<(i64, usize)> = None;
        for name in names {
            let node = self.index(name)?;
            let failed = self.failed(node);
            let said = self.nodes[node].server_mut()?.run_once(&["--wsrep-recover"]).map_err(failed)?;
            let position = said.iter().rev().find_map(|line| line.split("Recovered position:").nth(1));
            let seen = position.and_then(|position| position.rsplit(':').next()?.trim().parse().ok());
            let seen: i64 = seen.unwrap_or(-1);
            if best.is_none_or(|(most, _)| seen > most) {
                best = Some((seen, node));
            }
        }
        let Some((_, node)) = best else { return Ok(()) };
        let others = self.fill("gcomm://{addresses}", node)?;
        let server = self.nodes[node].server_mut()?;
        let path = server.data().join("grastate.dat");
        if let Ok(text) = std::fs::read_to_string(&path) {
            let text = text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
            let name = self.nodes[node].name().to_string();
            std::fs::write(&path, text).map_err(|source| NodeError::Kernel {
                node: name,
                what: "writing grastate.dat",
                source,
            })?;
        }
        let server = self.nodes[node].server_mut()?;
        server.set("wsrep_cluster_address", "gcomm://");
        self.nodes[node].start()?;
        self.nodes[node].server_mut()?.set("wsrep_cluster_address", &others);
        self.wait_whole(PATIENCE)
    }

    /// The running replica that has received most: the only one that may be promoted without losing what was
    /// acknowledged when not every replica has to confirm.
    pub fn successor(&mut self) -> Result<String, ClusterError> {
        if self.recipe.replication.elects_by_itself() {
            let none = || ClusterError::Senseless("no other member runs that could be elected".into());
            return self.likely_successor().map(|i| self.nodes[i].name().to_string()).ok_or_else(none);
        }
        let mut best: Option<(u64, usize)> = None;
        for i in (0..self.nodes.len()).filter(|i| *i != self.primary) {
            if !self.nodes[i].is_running() {
                continue;
            }
            let received = match self.recipe.replication {
                Replication::Streaming => {
                    let question = "SELECT pg_wal_lsn_diff(pg_last_wal_receive_lsn(), '0/0')::bigint";
                    self.query(i, question)?.parse().unwrap_or(0)
                }
                _ => 0,
            };
            // Of equals the first.
            if best.is_none_or(|(most, _)| received > most) {
                best = Some((received, i));
            }
        }
        match best {
            Some((_, i)) => Ok(self.nodes[i].name().to_string()),
            None => Err(ClusterError::Senseless("no replica runs that could be promoted".into())),
        }
    }

    /// Makes a replica the primary; see [`Cluster::successor`] for which one. The old one is not asked: it
    /// may be dead, and if it lives, whoever promotes has to stop it first. Other replicas that run follow
    /// the new one.
    ///
    /// # Errors
    /// It does not run, does not follow, or did not become one in time.
    pub fn promote(&mut self, name: &str) -> Result<(), ClusterError> {
        let chosen = self.index(name)?;
        if chosen == self.primary {
            return Err(ClusterError::Senseless(format!("{name} is the primary already")));
        }
        match self.recipe.replication {
            Replication::Streaming => self.promote_standby(chosen)?,
            Replication::Binlog => self.promote_replica(chosen)?,
            Replication::Galera => {}
            Replication::ReplicaSet | Replication::Sharded => return self.step_up(chosen),
            Replication::None => {
                return Err(ClusterError::Senseless("a single server has nobody to promote".into()));
            }
        }
        self.primary = chosen;
        if self.recipe.replication == Replication::Binlog {
            self.nodes[chosen].server_mut()?.set("init_rpl_role", "MASTER");
        }
        for i in (0..self.nodes.len()).filter(|i| *i != chosen) {
            let settings = self.settings_of(i)?;
            let running = self.nodes[i].is_running();
            if self.recipe.replication == Replication::Binlog {
                // What it wrote last may have reached nobody and so was acknowledged to nobody. Started as a
                // replica it cuts that off its log; as a primary it would keep it, and could never follow.
                self.nodes[i].server_mut()?.set("init_rpl_role", "SLAVE");
            }
            if self.recipe.replication == Replication::Streaming {
                let server = self.nodes[i].server_mut()?;
                settings.iter().for_each(|(name, value)| server.set(name, value));
                if running {
                    self.nodes[i].restart()?;
                }
            }
        }
        Ok(())
    }

    fn promote_standby(&mut self, chosen: usize) -> Result<(), ClusterError> {
        let failed = self.failed(chosen);
        let server = self.nodes[chosen].server_mut()?;
        // What `pg_ctl promote` does.
        let file = |path: PathBuf| move |source| ServerError::File { path, source };
        let flag = server.data().join("promote");
        std::fs::write(&flag, "")
            .map_err(file(flag))
            .and_then(|()| server.signal(Signal::USR1).map_err(file(server.data().into())))
            .map_err(failed)?;
        self.until("the standby leaves recovery", |cluster| {
            Ok(cluster.query(chosen, "SELECT pg_is_in_recovery()")? == "f")
        })
    }

    /// What has been received must be applied before anything is stopped: in GTID mode what lies in the relay
    /// log is thrown away once both threads are stopped, and acknowledged transactions would be lost by us,
    /// not by the database.
    fn promote_replica(&mut self, chosen: usize) -> Result<(), ClusterError> {
        self.until("the replica applies what it received", |cluster| {
            let question = "SELECT count(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE \
                            'Slave has read all relay log%'";
            Ok(cluster.query(chosen, question)? == "1")
        })?;
        self.query(chosen, "STOP SLAVE; RESET SLAVE ALL").map(drop)
    }

    fn until(
        &mut self,
        wanted: &str,
        done: impl Fn(&Cluster) -> Result<bool, ClusterError>,
    ) -> Result<(), ClusterError> {
        let began = Instant::now();
        loop {
            let found = match done(self) {
                Ok(true) => return Ok(()),
                Ok(false) => "it did not happen".to_string(),
                Err(error) => error.to_string(),
            };
            if began.elapsed() > PATIENCE || !self.any_runs() {
                return Err(ClusterError::NotYet { wanted: wanted.into(), waited: began.elapsed(), found });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Takes a node that was away back in, behind the primary of now. A former primary of PostgreSQL gets a
    /// new copy of the data, because it may have what nobody else has.
    pub fn rejoin(&mut self, name: &str) -> Result<(), ClusterError> {
        let node = self.index(name)?;
        if node != self.primary && self.recipe.replication == Replication::Streaming {
            let server = self.nodes[node].server_mut()?;
            if !server.data().join("standby.signal").exists() {
                self.copy_anew(node)?;
            }
        }
        self.nodes[node].start()?;
        if node != self.primary
            && self.recipe.replication == Replication::Binlog
            && let Some(text) = self.recipe.statement_of(Role::Replica)
        {
            let text = self.fill(text, node)?;
            let begin = "STOP SLAVE; SET GLOBAL rpl_semi_sync_master_enabled=OFF; \
                         SET GLOBAL gtid_slave_pos=@@GLOBAL.gtid_binlog_pos";
            self.query(node, &format!("{begin}; {text}"))?;
        }
        self.wait_whole(PATIENCE)?;
        // Who was promoted asks for confirmations again as soon as somebody can give them.
        if node != self.primary
            && self.recipe.replication == Replication::Binlog
            && let Some(text) = self.recipe.statement_of(Role::Primary)
        {
            self.query(self.primary, &self.fill(text, self.primary)?)?;
        }
        Ok(())
    }

    fn copy_anew(&mut self, node: usize) -> Result<(), ClusterError> {
        let Program::Postgres(postgres) = &self.program else { return Ok(()) };
        let from = self.nodes[self.primary].address().to_string();
        let namespace = self.nodes[node].member().and_then(|member| member.namespace.clone());
        let failed = self.failed(node);
        let server = self.nodes[node].server().ok_or_else(|| {
            ClusterError::Senseless(format!("node {} has no server", self.nodes[node].name()))
        })?;
        let copied =
            postgres.copy_from(server, &from, self.recipe.port, namespace.as_ref()).map_err(failed)?;
        self.nodes[self.primary].was_copied(copied);
        Ok(())
    }

    /// Stops the primary in good order and promotes another: what an administrator does before maintenance.
    /// Where the database elects by itself, its primary steps down and goes on as a replica, and the set may
    /// choose another one than `successor`. Calls `given_up` when the old primary is none any more; that
    /// another one takes over is waited for after it.
    ///
    /// # Errors
    /// It does not stop, or nobody takes over.
    pub fn step_down(&mut self, successor: &str, given_up: &mut dyn FnMut()) -> Result<Effect, ClusterError> {
        if self.recipe.replication.elects_by_itself() {
            return self.step_down_in_set(given_up);
        }
        let stopped = self.nodes[self.primary].stop(Stop::Fast)?;
        given_up();
        self.promote(successor)?;
        Ok(stopped)
    }
}
