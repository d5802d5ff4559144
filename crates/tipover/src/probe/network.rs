//! The network of a node that has one of its own, from inside: `/proc/PID/net/dev` of any of its processes.

use super::{Entry, NotAvailable, Probe, Values, acquire, metric};
use tipover_core::metric::{Kind, Metric, Sample};
use tipover_core::units::Tick;

/// Columns of the file, counted from 0, and their metrics.
const COLUMNS: [(usize, Entry); 6] = [
    (
        0,
        (
            "network_received_bytes",
            Kind::Counter,
            "Bytes that reached the node, headers included, its loopback left out (/proc/PID/net/dev).",
        ),
    ),
    (
        1,
        (
            "network_received_packets",
            Kind::Counter,
            "Packets that reached the node, its loopback left out (/proc/PID/net/dev).",
        ),
    ),
    (
        3,
        (
            "network_received_drops",
            Kind::Counter,
            "Packets that reached the node and found no room, its loopback left out (/proc/PID/net/dev).",
        ),
    ),
    (
        8,
        (
            "network_sent_bytes",
            Kind::Counter,
            "Bytes that the node sent, headers included, its loopback left out (/proc/PID/net/dev).",
        ),
    ),
    (
        9,
        (
            "network_sent_packets",
            Kind::Counter,
            "Packets that the node sent, its loopback left out (/proc/PID/net/dev).",
        ),
    ),
    (
        11,
        (
            "network_sent_drops",
            Kind::Counter,
            "Packets that the node wanted to send and had no room for, its loopback left out (/proc/PID/net/dev).",
        ),
    ),
];

/// Reads the devices in the network namespace of a process.
pub struct Network {
    process: u32,
    /// What was read last: a node whose processes are gone sends and receives nothing.
    last: Values,
}

impl Network {
    /// The network in which `process` lives.
    ///
    /// # Errors
    /// It does not live.
    pub fn of(process: u32) -> Result<Network, NotAvailable> {
        match read(process) {
            Some(last) => Ok(Network { process, last }),
            None => Err(NotAvailable::new("the node's network", format!("process {process} does not live"))),
        }
    }

    /// From now on by way of this process of the same node, as after a restart.
    pub fn set_process(&mut self, process: u32) {
        self.process = process;
    }
}

impl Probe for Network {
    fn metrics(&self) -> Vec<Metric> {
        COLUMNS.iter().map(|(_, entry)| metric(entry)).collect()
    }

    fn sample(&mut self, now: &dyn Fn() -> Tick) -> anyhow::Result<Sample> {
        acquire(now, || {
            if let Some(values) = read(self.process) {
                self.last = values;
            }
            Ok(self.last.clone())
        })
    }
}

fn read(process: u32) -> Option<Values> {
    Some(parse(&std::fs::read_to_string(format!("/proc/{process}/net/dev")).ok()?))
}

/// Sums over all devices but the loopback.
fn parse(text: &str) -> Values {
    let mut values: Values = COLUMNS.iter().map(|(_, (name, ..))| (name.to_string(), 0.0)).collect();
    for (device, counters) in text.lines().filter_map(|line| line.split_once(':')) {
        if device.trim() == "lo" {
            continue;
        }
        let counters: Vec<f64> = counters.split_whitespace().map_while(|word| word.parse().ok()).collect();
        for (column, (name, ..)) in &COLUMNS {
            if let (Some(sum), Some(count)) = (values.get_mut(*name), counters.get(*column)) {
                *sum += count;
            }
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::contract;
    use proptest::prelude::*;

    #[test]
    fn devices_are_added_and_the_loopback_is_not() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n\
            \x20   lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n  tun0: 10 1 0 2 0 0 0 0 20 3 0 4 0 0 0 0\n\
            \x20 eth0:5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        let values = parse(text);
        assert_eq!(values["network_received_bytes"], 15.0);
        assert_eq!(values["network_received_drops"], 2.0);
        assert_eq!((values["network_sent_bytes"], values["network_sent_packets"]), (26.0, 4.0));
        assert_eq!(values["network_sent_drops"], 4.0);
    }

    #[test]
    fn this_machine_keeps_the_contract_and_nobody_has_no_network() {
        contract::keeps(&mut Network::of(std::process::id()).unwrap(), || ());
        assert!(Network::of(u32::MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([a-z0-9 :.-]|\n)*") {
            let _ = parse(&text);
        }
    }
}
