//! Who holds a block.
//!
//! The queue's lease says when a block is given to another; who holds it is an entry of a bucket
//! that only compare-and-set changes: whoever finds it changed by another has lost the block for good.

use super::unix_s;
use anyhow::{Context, Result, bail};
use async_nats::jetstream::kv::{CreateErrorKind, Store, UpdateErrorKind};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Between two tries while the servers are away.
const PAUSE: Duration = Duration::from_millis(200);

/// The value of the entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The machine.
    pub machine: String,
    /// Of that start of its agent.
    pub instance: String,
    /// Seconds since 1970 on its own clock, when it last said so.
    pub said_unix_s: u64,
    /// How often the block was taken, this time included.
    pub takers: u32,
}

/// A hold on a block, held as far as we know.
#[derive(Debug, Clone)]
pub struct Hold {
    bucket: Store,
    key: String,
    holder: Holder,
    revision: u64,
    /// When the servers last agreed.
    agreed: Instant,
}

/// What a hold is, after asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Ours still.
    Ours,
    /// Another has it; it never comes back.
    Lost,
    /// Nobody answers.
    Unknown,
}

impl Hold {
    /// Takes what the queue gave to us, from whoever held it before.
    ///
    /// # Errors
    /// The servers do not answer, or another was given it in the same moment.
    pub async fn take(bucket: &Store, key: &str, machine: &str, instance: &str) -> Result<Hold> {
        let entry = bucket.entry(key).await.context("asking who holds a block")?;
        let before = entry.as_ref().and_then(|entry| serde_json::from_slice::<Holder>(&entry.value).ok());
        let takers = before.map_or(0, |before| before.takers).saturating_add(1);
        let (machine, instance) = (machine.into(), instance.into());
        let holder = Holder { machine, instance, said_unix_s: unix_s(), takers };
        let text = serde_json::to_vec(&holder)?;
        let revision = match entry {
            // An entry that was deleted, or is of an earlier holder.
            Some(entry) => {
                bucket.update(key, text.into(), entry.revision).await.context("taking a block over")?
            }
            None => match bucket.create(key, text.into()).await {
                Ok(revision) => revision,
                Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {
                    bail!("another machine took the block in the same moment")
                }
                Err(error) => return Err(error).context("taking a block"),
            },
        };
        let key = key.to_string();
        Ok(Hold { bucket: bucket.clone(), key, holder, revision, agreed: Instant::now() })
    }

    /// Says that we are at work.
    pub async fn renew(&mut self) -> Held {
        self.holder.said_unix_s = unix_s();
        let text = serde_json::to_vec(&self.holder).expect("a holder is plain data");
        match self.bucket.update(&self.key, text.into(), self.revision).await {
            Ok(revision) => {
                (self.revision, self.agreed) = (revision, Instant::now());
                Held::Ours
            }
            Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => self.look_again().await,
            Err(_) => Held::Unknown,
        }
    }

    /// After an answer that was lost the entry may be newer than we know, and ours nevertheless.
    async fn look_again(&mut self) -> Held {
        let Ok(entry) = self.bucket.entry(self.key.as_str()).await else { return Held::Unknown };
        let Some(entry) = entry else { return Held::Lost };
        match serde_json::from_slice::<Holder>(&entry.value) {
            Ok(found) if found.instance == self.holder.instance => {
                (self.revision, self.agreed) = (entry.revision, Instant::now());
                Held::Ours
            }
            _ => Held::Lost,
        }
    }

    /// Asks until the servers answer; `false`: it is lost, or `given_up` says not to wait any more.
    pub async fn insist(&mut self, given_up: impl Fn() -> bool) -> bool {
        loop {
            match self.renew().await {
                Held::Ours => return true,
                Held::Lost => return false,
                Held::Unknown if given_up() => return false,
                Held::Unknown => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// How often the block was taken, by whomever.
    pub fn takers(&self) -> u32 {
        self.holder.takers
    }

    /// How long ago the servers last agreed.
    pub fn unheard(&self) -> Duration {
        self.agreed.elapsed()
    }

    /// Gives it up; the entry goes with the bucket's age if this is not heard.
    pub async fn drop_it(self) {
        let _ = self.bucket.delete_expect_revision(&self.key, Some(self.revision)).await;
    }
}
