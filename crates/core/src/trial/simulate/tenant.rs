//! Another tenant of the virtual disk: its requests share the model of the device with those of the target.

use super::{Event, Running};
use crate::device::Kind;
use crate::experiment::{Side, Spec};
use crate::measure::Books;
use crate::metric::{Sample, name};
use crate::op::{Op, Outcome, Timing};
use crate::record;
use crate::units::{Bytes, Tick};
use crate::workload::arrivals::Schedule;
use crate::workload::{Records, Workload};

/// A session of the tenant, with its request in flight.
struct Session {
    number: u64,
    due: Tick,
    began: Tick,
    op: Op,
}

/// A tenant at work.
pub(super) struct Tenant {
    workload: Box<dyn Workload>,
    due: Option<Schedule>,
    sessions: Vec<Session>,
    /// Of what was answered: bytes read and written, and requests of each kind.
    bytes: [u64; 2],
    requests: [u64; 2],
    books: Books,
}

impl Tenant {
    /// The tenant of `spec`, if it is busy and shares the disk of the data: the virtual world has no other.
    pub fn of(spec: &Spec, seed: u64) -> Option<Tenant> {
        let tenant = spec.busy_tenant().filter(|tenant| tenant.disk == Side::Data)?;
        let (_, workload) = tenant.alone().load_of(seed);
        let session = |number| Session {
            number: u64::from(number),
            due: Tick(0),
            began: Tick(0),
            op: Op::Flush { data_only: true },
        };
        Some(Tenant {
            workload,
            due: tenant.arrivals.as_ref().map(|arrivals| arrivals.schedule(seed)),
            sessions: (0..tenant.sessions).map(session).collect(),
            bytes: [0, 0],
            requests: [0, 0],
            books: Books::new(tenant.arrivals.is_some()),
        })
    }

    /// Its own counters.
    pub fn sample(&self, at: Tick) -> Sample {
        let [read, written] = self.bytes;
        let values = [
            (name::TENANT_READ_BYTES, read),
            (name::TENANT_WRITE_BYTES, written),
            (name::TENANT_REQUESTS, self.requests.iter().sum()),
        ];
        let values = values.map(|(name, value)| (name.to_string(), value as f64)).into();
        Sample { begin: at, end: at, values }
    }

    /// Bytes that it read so far, and in how many requests.
    pub fn reads(&self) -> (u64, u64) {
        (self.bytes[0], self.requests[0])
    }

    /// What it did since it was forgotten last, for a record.
    pub fn record(&self) -> record::Tenant {
        let books = self.books.to_text();
        record::Tenant { node: String::new(), disk: Side::Data, books, offered: None, cpu_ns: 0 }
    }

    /// Forgets what it did so far, but for its counters.
    pub fn forget(&mut self) {
        self.books.clear();
    }
}

/// What a request asks of the device.
fn asked(op: &Op) -> (Kind, Bytes) {
    match *op {
        Op::ReadAt { length, .. } => (Kind::Read, Bytes(length.into())),
        Op::WriteAt { length, .. } => (Kind::Write, Bytes(length.into())),
        _ => (Kind::Flush, Bytes(0)),
    }
}

impl Running {
    /// Lets every session of the tenant begin.
    pub(super) fn begin_tenant(&mut self) {
        let sessions = self.tenant.as_ref().map_or(0, |tenant| tenant.sessions.len() as u32);
        (0..sessions).for_each(|session| self.next_of_tenant(session));
    }

    /// Waits until the next request of a session of the tenant is due.
    fn next_of_tenant(&mut self, session: u32) {
        let now = self.now;
        let Some(tenant) = &mut self.tenant else { return };
        let due = match &mut tenant.due {
            None => Some(now),
            Some(schedule) => schedule.next().map(|due| Tick(0) + due),
        };
        if let Some(due) = due {
            tenant.sessions[session as usize].due = due;
            self.schedule(due.max(now), Event::TenantDue(session));
        }
    }

    /// Sends the request that is due.
    pub(super) fn send_of_tenant(&mut self, session: u32) {
        let now = self.now;
        let Some(tenant) = &mut self.tenant else { return };
        let sessions = tenant.sessions.len() as u64;
        let state = &mut tenant.sessions[session as usize];
        state.op = tenant.workload.op(state.number, &Records::new(0));
        (state.began, state.number) = (now, state.number + sessions);
        let (kind, size) = asked(&state.op);
        let done = self.model.submit(now, kind, size);
        self.schedule(done, Event::TenantServed(session));
    }

    /// Takes note of an answer to the tenant.
    pub(super) fn answer_to_tenant(&mut self, session: u32) {
        let now = self.now;
        let Some(tenant) = &mut self.tenant else { return };
        let Session { due, began, ref op, .. } = tenant.sessions[session as usize];
        let (kind, size) = asked(op);
        let way = usize::from(kind == Kind::Write);
        tenant.bytes[way] += size.0;
        tenant.requests[way] += 1;
        tenant.books.record(op.kind(), Outcome::Done, &Timing { due, began, ended: now }, 0);
        self.model.complete(began, now, kind, size);
        self.next_of_tenant(session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Cell, Experiment, Trial};
    use crate::measure::Way;
    use crate::metric::probe;
    use crate::record::Record;
    use crate::trial::simulate::{Machine, trial};
    use std::time::Duration;

    fn beside(tenant: &str) -> Record {
        let plan = include_str!("../../../../../experiments/working-set.toml");
        let text = plan.replacen("[load]", &format!("{tenant}[load]"), 1);
        let experiment = Experiment::parse(&text, "quick", &[]).unwrap();
        let slow = |cell: &&Cell| {
            cell.label("working_set") == Some("230 %") && cell.label("disk") == Some("600 IOPS + 7 ms")
        };
        let sweep = experiment.sweeps.iter().find(|sweep| sweep.name == "reads").unwrap();
        let cell = sweep.cells.iter().find(slow).unwrap();
        trial("t", &Trial { cell, repeat: 0, twin: false }, 1, &Machine::default()).0
    }

    /// What a promised device gives is shared out, whoever asks: the target loses what the tenant gets.
    #[test]
    fn a_tenant_takes_its_part_of_the_device_and_no_budget_loses_a_byte() {
        let alone = beside("");
        let with =
            beside("[tenant]\narrivals = \"constant 100/s\"\nsessions = 8\nio = { block = \"4 KiB\" }\n");
        let throughput = |record: &Record| record.measured.as_ref().unwrap().throughput();
        let measured = with.measured.as_ref().unwrap();
        let requests = measured.growth(probe::TENANT, name::TENANT_REQUESTS).unwrap();
        let rate = requests / measured.seconds();
        assert!((95.0..105.0).contains(&rate), "{rate} requests per second");
        let left = throughput(&with) / throughput(&alone);
        assert!((left + rate / 600.0 - 1.0).abs() < 0.05, "{left} is left of 600 requests per second");
        assert_eq!(measured.tenants[0].books.done() as f64, requests);
        let budget = with.budgets(Way::Reads).remove("").unwrap();
        assert_eq!(budget.closes, Some(true), "{}", budget.evidence);
        assert!(alone.measured.unwrap().tenants.is_empty());
        let idle = beside("[tenant]\nsessions = 0\n");
        assert_eq!(throughput(&idle), throughput(&beside("")));
    }

    #[test]
    fn one_that_writes_at_full_speed_waits_for_its_own_answers() {
        let with = beside("[tenant]\nsessions = 2\nio = { turns = \"writes\", block = \"4 KiB\" }\n");
        let measured = with.measured.as_ref().unwrap();
        let written = measured.growth(probe::TENANT, name::TENANT_WRITE_BYTES).unwrap();
        assert!(written > 0.0 && written % 4096.0 == 0.0, "{written}");
        let residence = Books::from_text(&measured.tenants[0].books).unwrap().residence();
        assert!(residence.value_at_quantile(0.5) >= Duration::from_millis(7).as_nanos() as u64);
    }
}
