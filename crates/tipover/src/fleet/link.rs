//! The connection to NATS, and the streams and buckets of a fleet.

use super::{BLOCKS, LOG, RESULTS};
use anyhow::{Context as _, Result, bail};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::StorageType;
use async_nats::jetstream::{self, Context, ErrorCode, kv, object_store, stream};
use async_nats::{Client, ConnectOptions};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Handle, Runtime};

/// How long a result is kept that nobody fetches.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long a machine may say nothing before it counts as gone.
const GONE: Duration = Duration::from_secs(30);
/// How long what machines said is kept.
const LOGGED: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many lines, at the most.
const LOG_LINES: i64 = 100_000;

/// How to reach the servers of a fleet.
#[derive(Debug, Clone, clap::Args)]
pub struct Login {
    /// The NATS servers, such as nats://lab.example, with commas between several
    #[arg(value_name = "SERVERS")]
    pub servers: String,

    /// A file with the key (a seed that begins with SU) or the credentials that let us in
    #[arg(long, value_name = "FILE", env = "TIPOVER_FLEET_KEY", hide_env_values = true)]
    pub key: Option<PathBuf>,

    /// A file with the certificate of the authority that the servers' certificates are from
    #[arg(long, value_name = "FILE")]
    pub authority: Option<PathBuf>,

    /// Speak without TLS to servers that are not on this machine
    #[arg(long)]
    pub plain: bool,
}

/// Streams, buckets and objects of a fleet, on a connection that comes back by itself.
///
/// Its calls block; what runs beside them runs on the thread of its runtime, which has nothing to do with
/// sessions that are measured: those are in a process of their own.
pub struct Link {
    runtime: Runtime,
    /// For acknowledgements and core messages.
    pub client: Client,
    /// For streams.
    pub context: Context,
    /// Blocks that wait.
    pub blocks: stream::Stream,
    /// What came of them.
    pub results: stream::Stream,
    /// Who is there.
    pub machines: kv::Store,
    /// What blocks demand, by lane.
    pub lanes: kv::Store,
    /// Who holds which block.
    pub holders: kv::Store,
    /// What machines are told.
    pub orders: kv::Store,
    /// Files, by digest.
    pub objects: object_store::ObjectStore,
}

/// Whether all servers of the list are on this machine.
fn is_here(servers: &str) -> bool {
    servers.split(',').all(|server| {
        let host = server.trim().split("://").last().unwrap_or_default();
        let host = host.split('/').next().unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host).trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

impl Login {
    /// As the client wants it, in this role, whose answers nobody in another role hears.
    ///
    /// # Errors
    /// A file cannot be read, or holds nothing that lets us in; or what was asked for is not safe.
    fn options(&self, role: &str) -> Result<ConnectOptions> {
        let mut options = ConnectOptions::new()
            .name(format!("tipover {role}"))
            .custom_inbox_prefix(format!("_INBOX.{role}"))
            .connection_timeout(Duration::from_secs(5))
            .request_timeout(Some(Duration::from_secs(10)));
        let here = is_here(&self.servers);
        if self.servers.contains('@') {
            bail!("an address of a fleet has no user and no password in it: give --key a file");
        }
        match &self.key {
            Some(path) => {
                let text = read(path)?;
                let seed = text.lines().map(str::trim).find(|line| line.starts_with("SU"));
                options = match (text.contains("NATS USER JWT"), seed) {
                    (true, _) => options
                        .credentials(&text)
                        .with_context(|| format!("{} holds no credentials", path.display()))?,
                    (false, Some(seed)) => options.nkey(seed.to_string()),
                    (false, None) => bail!(
                        "{} holds neither a user's seed (SU...) nor a user's credentials: `tipover fleet keys` makes \
                         some",
                        path.display()
                    ),
                };
            }
            None if !here => bail!(
                "{} is not on this machine, and whoever gives work to agents runs programs there: say who you are \
                 with --key FILE (`tipover fleet keys` makes keys)",
                self.servers
            ),
            None => {}
        }
        if let Some(path) = &self.authority {
            read(path)?;
            options = options.add_root_certificates(path.clone());
        }
        Ok(options.require_tls(self.authority.is_some() || !(here || self.plain)))
    }
}

impl Link {
    /// Connects in a role ([`super::keys`]), and makes what is not there yet.
    ///
    /// # Errors
    /// Nobody is there, we are not let in, or there is no JetStream; each with what to do.
    pub fn open(login: &Login, role: &str) -> Result<Link> {
        let options = login.options(role)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let servers: Vec<String> = login.servers.split(',').map(|server| server.trim().to_string()).collect();
        let client =
            runtime.block_on(options.connect(servers)).map_err(|error| not_connected(login, &error))?;
        let info = client.server_info();
        if !at_least(&info.version, (2, 10)) {
            bail!(
                "{} is nats-server {}: a fleet needs 2.10 or newer (Debian's is older; \
                 `go install github.com/nats-io/nats-server/v2@latest`)",
                login.servers,
                info.version
            );
        }
        // It starts a task that waits for acknowledgements.
        let context = runtime.block_on(async { jetstream::new(client.clone()) });
        // In a cluster of three, all that is kept is kept three times.
        let replicas = if info.connect_urls.len() >= 3 { 3 } else { 1 };
        let opened = runtime.block_on(open(&context, replicas));
        let (blocks, results, [machines, lanes, holders, orders], objects) =
            opened.with_context(|| format!("{} has no fleet", login.servers))?;
        Ok(Link { runtime, client, context, blocks, results, machines, lanes, holders, orders, objects })
    }

    /// Waits for `work`.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// For whoever waits elsewhere.
    pub fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// Lets `work` go on beside us.
    pub fn beside<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Puts a file under its digest; it may be there already.
    ///
    /// # Errors
    /// It cannot be read, or not be sent.
    pub fn put_file(&self, path: &Path) -> Result<(String, u64)> {
        let (name, size) = digest_of(path)?;
        self.wait(async {
            if let Ok(info) = self.objects.info(name.as_str()).await
                && !info.deleted
                && info.size as u64 == size
            {
                return Ok(());
            }
            let mut file = tokio::fs::File::open(path).await?;
            self.objects.put(name.as_str(), &mut file).await.context("putting an object")?;
            anyhow::Ok(())
        })
        .with_context(|| format!("sending {}", path.display()))?;
        Ok((name, size))
    }

    /// Writes the object of this digest to `path`, and flushes it.
    ///
    /// # Errors
    /// It is not there, is another one, or the servers went away meanwhile.
    pub fn get_file(&self, wanted: &str, path: &Path) -> Result<()> {
        use object_store::GetErrorKind as Kind;
        let copied = self.wait(async {
            let mut object = self.objects.get(wanted).await.map_err(|error| match error.kind() {
                Kind::NotFound | Kind::InvalidName => anyhow::Error::new(error).context("getting an object"),
                _ => anyhow::Error::new(error).context(OutOfReach),
            })?;
            let mut file = tokio::fs::File::create(path).await?;
            let mut piece = vec![0; 64 << 10];
            loop {
                let length = object.read(&mut piece).await.context(OutOfReach)?;
                if length == 0 {
                    break;
                }
                file.write_all(&piece[..length]).await?;
            }
            file.sync_all().await?;
            anyhow::Ok(())
        });
        copied.with_context(|| format!("fetching {}", path.display()))?;
        let (found, _) = digest_of(path)?;
        if found != wanted {
            bail!("what was fetched for {} has the digest {found}, not {wanted}", path.display());
        }
        Ok(())
    }

    /// Says something that counts once; whether it is we who said it does not matter.
    ///
    /// # Errors
    /// Nobody answers.
    pub fn say_once(&self, subject: &str, said: &impl serde::Serialize) -> Result<()> {
        let message = PublishMessage::build()
            .payload(serde_json::to_vec(said)?.into())
            .expected_last_subject_sequence(0);
        self.wait(async {
            let acknowledged = self.context.send_publish(subject.to_string(), message).await?.await;
            match acknowledged {
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => Ok(()),
                other => Ok(other.map(drop)?),
            }
        })
    }

    /// A line for `tipover fleet logs`; one that cannot be sent is lost.
    pub fn log(&self, machine: &str, line: &str) {
        eprintln!("{line}");
        let subject = format!("{LOG}.{machine}");
        let _ = self.wait(self.client.publish(subject, line.to_string().into()));
    }
}

/// SHA-256 and size of a file, read piece by piece.
pub fn digest_of(path: &Path) -> Result<(String, u64)> {
    use std::io::Read;
    let mut file = std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let (mut piece, mut size) = (vec![0; 1 << 16], 0);
    loop {
        let read = file.read(&mut piece).with_context(|| format!("reading {}", path.display()))?;
        if read == 0 {
            return Ok((super::hexadecimal(context.finish().as_ref()), size));
        }
        context.update(&piece[..read]);
        size += read as u64;
    }
}

type Opened = (stream::Stream, stream::Stream, [kv::Store; 4], object_store::ObjectStore);

async fn open(context: &Context, replicas: usize) -> Result<Opened> {
    let of = |name: &str, subject: &str| stream::Config {
        name: name.into(),
        subjects: vec![format!("{subject}.>")],
        num_replicas: replicas,
        max_age: KEPT,
        ..Default::default()
    };
    let blocks =
        stream::Config { retention: stream::RetentionPolicy::WorkQueue, ..of("tipover-blocks", BLOCKS) };
    let log = stream::Config { max_age: LOGGED, max_messages: LOG_LINES, ..of("tipover-log", LOG) };
    let blocks = stream(context, blocks).await?;
    let results = stream(context, of("tipover-results", RESULTS)).await?;
    stream(context, log).await?;
    // Who is there says so again every few seconds. A server that flushed each of these words would do
    // nothing else: of a thousand machines that joined together a quarter got in.
    let machines = bucket(context, "tipover-machines", GONE, replicas, StorageType::Memory).await?;
    let kept = async |name: &str| bucket(context, name, KEPT, replicas, StorageType::File).await;
    let lanes = kept("tipover-lanes").await?;
    let holders = kept("tipover-holders").await?;
    let orders = kept("tipover-orders").await?;
    let objects = match there(context, "OBJ_tipover-objects").await? {
        Some(_) => context.get_object_store("tipover-objects").await.context("opening the object store")?,
        None => {
            let config = object_store::Config {
                bucket: "tipover-objects".into(),
                max_age: KEPT,
                num_replicas: replicas,
                ..Default::default()
            };
            context.create_object_store(config).await.context("making the object store")?
        }
    };
    Ok((blocks, results, [machines, lanes, holders, orders], objects))
}

/// A stream, if it was made.
async fn there(context: &Context, name: &str) -> Result<Option<stream::Stream>> {
    use jetstream::context::GetStreamErrorKind as Kind;
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            Kind::JetStream(said) if said.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(None),
            _ => Err(error).context("is JetStream on (nats-server -js), and may this key use it?"),
        },
    }
}

/// Only who asks for work may make what is missing; a machine that is not allowed to is told so.
async fn stream(context: &Context, config: stream::Config) -> Result<stream::Stream> {
    if let Some(stream) = there(context, &config.name).await? {
        return Ok(stream);
    }
    let name = config.name.clone();
    let made = context.create_stream(config).await;
    made.with_context(|| {
        format!(
            "making the stream {name} (a machine may not; whoever asks for work makes it, with `tipover fleet \
             status` too)"
        )
    })
}

async fn bucket(
    context: &Context,
    name: &str,
    max_age: Duration,
    replicas: usize,
    storage: StorageType,
) -> Result<kv::Store> {
    if there(context, &format!("KV_{name}")).await?.is_some() {
        return context.get_key_value(name).await.with_context(|| format!("opening the bucket {name}"));
    }
    let bucket = name.into();
    let config =
        kv::Config { bucket, max_age, num_replicas: replicas, history: 1, storage, ..Default::default() };
    context.create_key_value(config).await.with_context(|| format!("making the bucket {name}"))
}

/// What the servers were asked for did not come, and may come later.
#[derive(Debug, thiserror::Error)]
#[error("the servers are out of reach")]
struct OutOfReach;

/// Whether the servers did not answer in time, or went away. They do when fewer ask at once, or when they are
/// there again.
pub(super) fn is_slow(error: &anyhow::Error) -> bool {
    use jetstream::context::{PublishError, RequestError, RequestErrorKind};
    error.downcast_ref::<OutOfReach>().is_some()
        || error.chain().any(|cause| {
            let asked = cause.downcast_ref::<RequestError>();
            let read = cause.downcast_ref::<kv::EntryError>();
            let written = cause.downcast_ref::<PublishError>();
            asked.is_some_and(|error| error.kind() == RequestErrorKind::TimedOut)
                || read.is_some_and(|error| error.kind() == kv::EntryErrorKind::TimedOut)
                || written.is_some_and(|error| error.kind() == PublishErrorKind::TimedOut)
        })
}

/// Whether a server's version, such as "2.10.4", is not older.
fn at_least(version: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
}

fn not_connected(login: &Login, error: &async_nats::ConnectError) -> anyhow::Error {
    use async_nats::ConnectErrorKind as Kind;
    let servers = &login.servers;
    let said = error.to_string();
    let told = match error.kind() {
        Kind::Authentication | Kind::AuthorizationViolation => format!(
            "{servers} does not let us in ({said}): is --key the one that the server knows? `tipover fleet keys` \
             writes both sides"
        ),
        Kind::Tls => format!("{servers}: no safe connection ({said}): --authority names its certificate's"),
        Kind::ServerParse => format!("{servers} is no address: write nats://host:4222"),
        _ => {
            format!("no NATS server answers at {servers} ({said}); `tipover fleet up` starts one for trying")
        }
    };
    // A server that so many ask at once that it does not answer in time, or breaks off because it did not
    // read in time who we are, is there all the same.
    match error.kind() == Kind::TimedOut || said.contains("Authentication Timeout") {
        true => anyhow::Error::new(OutOfReach).context(told),
        false => anyhow::Error::msg(told),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_this_machine_needs_a_key() {
        for here in ["nats://127.0.0.1:4222", "localhost", "nats://[::1]:4222", "127.0.0.1,localhost:1"] {
            assert!(is_here(here), "{here}");
        }
        for there in ["nats://lab.example", "tls://10.0.0.1:4222", "127.0.0.1,lab.example", ""] {
            assert!(!is_here(there), "{there}");
        }
        let login =
            |servers: &str| Login { servers: servers.into(), key: None, authority: None, plain: true };
        let refused = |servers: &str| login(servers).options("x").unwrap_err().to_string();
        assert!(refused("nats://lab.example").contains("--key"), "{}", refused("nats://lab.example"));
        assert!(refused("nats://me:secret@localhost").contains("no password in it"));
        assert!(login("nats://localhost").options("x").is_ok());
    }

    #[test]
    fn versions_are_numbers() {
        assert!(at_least("2.10.0", (2, 10)) && at_least("2.12.4", (2, 10)) && at_least("3.0", (2, 10)));
        assert!(!at_least("2.9.10", (2, 10)) && !at_least("", (2, 10)));
        assert_eq!(
            super::super::digest(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }
}
