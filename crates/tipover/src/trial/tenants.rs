//! Other tenants of the target's disks: processes of their own, which read and write files there while the
//! load is measured.

use super::cluster::Running;
use super::generator_process::GeneratorProcess;
use super::site::Site;
use crate::clock::Clock;
use crate::generator::{Command, Cut, Reply, Servers};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tipover_core::experiment::{Part, Side, Spec, TenantSpec};
use tipover_core::measure::{Books, Offered};
use tipover_core::metric::{Metric, Sample, name as metric, of_tenant};
use tipover_core::record;

/// The folder of a tenant's file on its disk.
const FOLDER: &str = "tenant";

/// A tenant with its file, at work or at rest.
struct Tenant {
    node: String,
    disk: Side,
    generator: GeneratorProcess,
    /// Requests that were done so far.
    requests: u64,
}

/// All tenants of a cell; none of most.
#[derive(Default)]
pub(super) struct Tenants {
    all: Vec<Tenant>,
    at_work: bool,
}

/// What each tenant did in an interval.
pub(super) type TenantCuts = Vec<Cut>;

/// What tenants did in a phase, as far as it has come.
#[derive(Default)]
pub(super) struct TenantCounts(Vec<(Books, Option<Offered>, u64)>);

impl Tenants {
    /// Those of `spec`, on disks that are as fast as they can be: each writes its file, and waits.
    ///
    /// # Errors
    /// There is no such disk, or no room for the file on it.
    pub fn start(
        spec: &Spec,
        site: &Site,
        cluster: Option<&Running>,
        seed: u64,
        clock: Clock,
    ) -> Result<Tenants> {
        let Some(tenant) = spec.busy_tenant() else { return Ok(Tenants::default()) };
        let mut tenants = Tenants::default();
        for (number, (node, disk)) in folders(tenant, site, cluster)?.into_iter().enumerate() {
            let folder = disk.join(FOLDER);
            std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
            let mut generator = GeneratorProcess::start(None, None)?;
            let seed = seed ^ ((number as u64 + 1) << 40);
            generator.begin(&tenant.alone(), folder, &Servers::default(), seed, Part::ALL, clock)?;
            generator.load(1, |_| Ok(())).context("writing the file of another tenant of the disk")?;
            tenants.all.push(Tenant { node, disk: tenant.disk, generator, requests: 0 });
        }
        Ok(tenants)
    }

    /// They begin to work, anew if they are at work, with requests of their own for each `number`.
    ///
    /// # Errors
    /// One of them cannot.
    pub fn begin(&mut self, spec: &Spec, number: u64) -> Result<()> {
        let Some(load) = spec.busy_tenant().map(|tenant| tenant.alone().load) else { return Ok(()) };
        self.rest()?;
        for tenant in &mut self.all {
            let load = Some(Box::new(load.clone()));
            tenant.generator.ask(&Command::Run { load, seed: Some(number), history: None })?;
        }
        self.at_work = true;
        Ok(())
    }

    /// They end what they are at, if they are at work.
    ///
    /// # Errors
    /// One of them cannot.
    pub fn rest(&mut self) -> Result<()> {
        if std::mem::take(&mut self.at_work) {
            self.all.iter_mut().try_for_each(|tenant| tenant.generator.ask(&Command::Halt).map(drop))?;
        }
        Ok(())
    }

    /// What each did since it was asked last, and its counters by node, of those on disks of data: their
    /// bytes are in the counters of those disks too.
    ///
    /// # Errors
    /// One of them has died.
    pub fn cut(&mut self) -> Result<(TenantCuts, BTreeMap<String, Sample>)> {
        let (mut cuts, mut samples) = (vec![], BTreeMap::new());
        for tenant in self.all.iter_mut().filter(|_| self.at_work) {
            let Reply::Interval(cut) = tenant.generator.ask(&Command::Cut)? else {
                bail!("expected an interval of another tenant of the disk");
            };
            tenant.requests += cut.books.done();
            if tenant.disk == Side::Data {
                samples.insert(tenant.node.clone(), counted(&cut, tenant.requests));
            }
            cuts.push(*cut);
        }
        Ok((cuts, samples))
    }

    /// What it was in a phase, for the record.
    pub fn record(&self, counts: TenantCounts) -> Vec<record::Tenant> {
        let all = self.all.iter().zip(counts.0);
        all.map(|(tenant, (books, offered, cpu_ns))| record::Tenant {
            node: tenant.node.clone(),
            disk: tenant.disk,
            books: books.to_text(),
            offered,
            cpu_ns,
        })
        .collect()
    }

    /// What their samples hold, if they have any.
    pub fn metrics(&self) -> Option<Vec<Metric>> {
        let counted = self.all.iter().any(|tenant| tenant.disk == Side::Data);
        counted.then(of_tenant)
    }
}

impl TenantCounts {
    /// Adds an interval of a phase at whose beginning `first` was read.
    ///
    /// # Errors
    /// A histogram cannot be read.
    pub fn add(&mut self, first: &TenantCuts, cuts: TenantCuts) -> Result<()> {
        let wrong = anyhow::Error::msg;
        for (number, cut) in cuts.into_iter().enumerate() {
            let books = Books::from_text(&cut.books).map_err(wrong)?;
            let began = first.get(number).map_or(0, |first| first.process_cpu_ns);
            let cpu_ns = cut.process_cpu_ns.saturating_sub(began);
            match self.0.get_mut(number) {
                Some((all, offered, cpu)) => {
                    all.merge(&books);
                    *cpu = cpu_ns;
                    match (offered, &cut.offered) {
                        (Some(all), Some(next)) => all.append(next).map_err(wrong)?,
                        (none, next) => *none = next.clone(),
                    }
                }
                None => self.0.push((books, cut.offered, cpu_ns)),
            }
        }
        Ok(())
    }
}

/// The counters of a tenant, as those of probes.
fn counted(cut: &Cut, requests: u64) -> Sample {
    let of = |name: &str| cut.target.get(name).unwrap_or(0.0);
    let values = [
        (metric::TENANT_READ_BYTES, of(metric::ENGINE_FILE_READ_BYTES)),
        (metric::TENANT_WRITE_BYTES, of("engine_file_written_bytes")),
        (metric::TENANT_REQUESTS, requests as f64),
    ];
    let values = values.map(|(name, value)| (name.to_string(), value)).into();
    Sample { begin: cut.target.begin, end: cut.target.end, values }
}

/// The disks that are shared, by the name of their node; the one of a target in one place has none.
fn folders(tenant: &TenantSpec, site: &Site, cluster: Option<&Running>) -> Result<Vec<(String, PathBuf)>> {
    let Some(running) = cluster else {
        let disk = match tenant.disk {
            Side::Data => site.mounted(),
            Side::Journal => site.journal(),
        };
        let disk = disk.context("there is no such disk that another tenant could share")?;
        return Ok(vec![(String::new(), disk.path().to_path_buf())]);
    };
    let cluster = running.cluster();
    let all = tenant.nodes.iter().any(|name| name == TenantSpec::ALL);
    let wanted = |name: &str| match tenant.nodes.is_empty() {
        true => name == cluster.primary(),
        false => all || tenant.nodes.iter().any(|wanted| wanted == name),
    };
    let mut folders = Vec::new();
    for node in cluster.nodes().iter().filter(|node| wanted(node.name())) {
        let disk = match tenant.disk {
            Side::Data => node.disk(),
            Side::Journal => node.journal(),
        };
        match disk.map(|disk| disk.path()) {
            Some(path) => folders.push((node.name().to_string(), Path::to_path_buf(path))),
            // Of all nodes, a router or an arbiter may have none.
            None if all => {}
            None => bail!("node {} has no such disk that another tenant could share", node.name()),
        }
    }
    Ok(folders)
}
