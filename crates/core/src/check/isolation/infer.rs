//! From what transactions read and appended to who must come before whom.

use super::graph::{Edge, Graph, Kind, READ_WRITE, SESSION, THROUGH, TIME, WRITE_READ, WRITE_WRITE};
use crate::check::history::{Entry, Returned};
use crate::check::reading::LABORATORY;
use crate::op::{Op, Outcome, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What is wrong without any cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direct {
    /// A value was read that nobody appended.
    Garbage,
    /// A value stands in a list twice.
    DuplicateAppend,
    /// Two lists of one key, none of which begins with the other: the key forked.
    Fork,
    /// A value of a refused transaction was read: G1a.
    AbortedRead,
    /// A value was read that its own transaction later followed by another: G1b.
    IntermediateRead,
    /// A transaction does not see its own appends, sees them before it makes them, or sees a list in two
    /// states.
    Internal,
    /// The appends of one transaction stand in another order than it made them.
    OutOfOrder,
    /// Two transactions read a list and appended to it, neither with what the other appended: whichever came
    /// second, it wrote on top of what it had not seen.
    LostUpdate,
}

/// What was inferred from a history.
pub struct Dependencies<'a> {
    /// Transactions that count as committed. The graph's first nodes are these, in this order.
    pub nodes: Vec<&'a Entry>,
    /// Who must come before whom.
    pub graph: Graph,
    /// What is wrong without any cycle, with who saw it and what.
    pub direct: Vec<(Direct, &'a Entry, String)>,
    /// Values that were appended and acknowledged, and seen by nobody.
    pub unseen: u64,
    /// Transactions that append what another one appended, or they themselves, to the same list.
    pub not_unique: Vec<&'a Entry>,
}

struct Appended<'a> {
    entry: &'a Entry,
    is_last: bool,
}

/// One read of a list, as far as other transactions are concerned.
struct Read {
    reader: u32,
    key: u64,
    list: Vec<u64>,
}

struct Inference<'a> {
    appended: HashMap<(u64, u64), Appended<'a>>,
    node: HashMap<(u32, u64), u32>,
    reads: Vec<Read>,
    found: Dependencies<'a>,
}

fn lists(entry: &Entry) -> impl Iterator<Item = (u64, &Vec<u64>)> {
    let lists: &[Option<Vec<u64>>] = match &entry.answer {
        Returned::Lists(lists) if entry.is_done() => lists,
        _ => &[],
    };
    entry.op.steps().iter().zip(lists).filter_map(|(step, list)| match (step, list) {
        (Step::Read { key }, Some(list)) => Some((*key, list)),
        _ => None,
    })
}

/// Infers all dependencies. Linear in the history, but for sorting.
pub fn infer(entries: &[Entry]) -> Dependencies<'_> {
    let transactions: Vec<&Entry> =
        entries.iter().filter(|entry| matches!(entry.op, Op::Transaction { .. })).collect();
    let mut inference = Inference {
        appended: HashMap::new(),
        node: HashMap::new(),
        reads: vec![],
        found: Dependencies {
            nodes: vec![],
            graph: Graph::default(),
            direct: vec![],
            unseen: 0,
            not_unique: vec![],
        },
    };
    inference.note_appends(&transactions);
    inference.choose_nodes(&transactions);
    for index in 0..inference.found.nodes.len() {
        inference.note_reads(index as u32);
    }
    inference.order_keys();
    inference.order_sessions();
    inference.order_time();
    inference.found
}

impl<'a> Inference<'a> {
    fn note_appends(&mut self, transactions: &[&'a Entry]) {
        for entry in transactions {
            let mut last: HashMap<u64, u64> = HashMap::new();
            for step in entry.op.steps() {
                if let Step::Append { key, value } = step {
                    last.insert(*key, *value);
                }
            }
            for step in entry.op.steps() {
                if let Step::Append { key, value } = step {
                    let is_last = last[key] == *value;
                    if self.appended.insert((*key, *value), Appended { entry, is_last }).is_some() {
                        self.found.not_unique.push(entry);
                    }
                }
            }
        }
    }

    /// Acknowledged transactions, and unknown ones of which something was seen.
    fn choose_nodes(&mut self, transactions: &[&'a Entry]) {
        let mut seen: BTreeSet<(u32, u64)> = BTreeSet::new();
        for entry in transactions {
            for (key, list) in lists(entry) {
                for value in list {
                    if let Some(appended) = self.appended.get(&(key, *value))
                        && matches!(appended.entry.outcome, Outcome::Unknown(_))
                    {
                        seen.insert((appended.entry.client, appended.entry.sequence));
                    }
                }
            }
        }
        for entry in transactions {
            if entry.is_done() || seen.contains(&(entry.client, entry.sequence)) {
                self.node.insert((entry.client, entry.sequence), self.found.nodes.len() as u32);
                self.found.nodes.push(entry);
            }
        }
        self.found.graph = Graph::new(self.found.nodes.len());
    }

    fn note_reads(&mut self, reader: u32) {
        let entry = self.found.nodes[reader as usize];
        let answers: Vec<Option<&Vec<u64>>> = match &entry.answer {
            Returned::Lists(lists) if entry.is_done() => lists.iter().map(Option::as_ref).collect(),
            _ => vec![],
        };
        let mut own: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut before: HashMap<u64, Vec<u64>> = HashMap::new();
        for (number, step) in entry.op.steps().iter().enumerate() {
            let key = match step {
                Step::Append { key, value } => {
                    own.entry(*key).or_default().push(*value);
                    if let Some(list) = before.get_mut(key) {
                        list.push(*value);
                    }
                    continue;
                }
                Step::Read { key } => *key,
            };
            let Some(list) = answers.get(number).copied().flatten() else { continue };
            let mine = own.get(&key).map_or(&[][..], Vec::as_slice);
            let expected = before.insert(key, list.clone());
            if !list.ends_with(mine) || expected.is_some_and(|expected| expected != *list) {
                self.accuse(Direct::Internal, entry, || {
                    format!("read {list:?} of key {key}, after its own appends {mine:?} and earlier reads")
                });
            }
            self.look_at_list(entry, key, list);
            let external = if list.ends_with(mine) { &list[..list.len() - mine.len()] } else { list };
            if list.ends_with(mine) && external.iter().any(|value| self.writer(key, *value) == Some(reader)) {
                self.accuse(Direct::Internal, entry, || {
                    format!("read {list:?} of key {key}, with appends of its own that it had not made yet")
                });
            }
            self.reads.push(Read { reader, key, list: external.to_vec() });
        }
    }

    fn look_at_list(&mut self, entry: &'a Entry, key: u64, list: &[u64]) {
        let mut seen = BTreeSet::new();
        for value in list {
            if !seen.insert(*value) {
                self.accuse(Direct::DuplicateAppend, entry, || {
                    format!("read {value} twice in key {key}: {list:?}")
                });
            }
            match self.appended.get(&(key, *value)).map(|appended| appended.entry) {
                None => self.accuse(Direct::Garbage, entry, || {
                    format!("read {value} in key {key}, which nobody appended")
                }),
                Some(writer) if matches!(writer.outcome, Outcome::Refused(_)) => {
                    self.accuse(Direct::AbortedRead, entry, || {
                        format!("read {value} in key {key}, which {} appended and was refused", writer.name())
                    });
                }
                Some(_) => {}
            }
        }
        let last = list.last().and_then(|value| self.appended.get(&(key, *value)));
        if let Some(Appended { entry: writer, is_last: false }) = last
            && (writer.client, writer.sequence) != (entry.client, entry.sequence)
        {
            let text = format!("read key {key} as {} had left it half-way: {list:?}", writer.name());
            self.accuse(Direct::IntermediateRead, entry, || text);
        }
    }

    fn accuse(&mut self, kind: Direct, entry: &'a Entry, text: impl FnOnce() -> String) {
        self.found.direct.push((kind, entry, text()));
    }

    fn writer(&self, key: u64, value: u64) -> Option<u32> {
        let entry = self.appended.get(&(key, value))?.entry;
        self.node.get(&(entry.client, entry.sequence)).copied()
    }

    fn edge(&mut self, from: u32, to: u32, kind: Kind, key: u64, value: u64) {
        self.found.graph.add(from, Edge { to, kind, key, value });
    }

    /// The order of a key's versions is its longest list; every other list must be how that one begins.
    fn order_keys(&mut self) {
        let mut orders: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let reads = std::mem::take(&mut self.reads);
        // With its own appends a transaction may have seen further than anybody else.
        for index in 0..self.found.nodes.len() {
            for (key, list) in lists(self.found.nodes[index]) {
                let longest = orders.entry(key).or_default();
                if list.len() > longest.len() {
                    longest.clone_from(list);
                }
            }
        }
        let mut forked: BTreeSet<u64> = BTreeSet::new();
        for read in &reads {
            let order = &orders[&read.key];
            if !order.starts_with(&read.list) && forked.insert(read.key) {
                let entry = self.found.nodes[read.reader as usize];
                self.accuse(Direct::Fork, entry, || {
                    format!(
                        "read key {} as {}, and somebody as {}",
                        read.key,
                        short(&read.list),
                        short(order)
                    )
                });
            }
        }
        let mut unseen: BTreeMap<u64, Vec<(u32, u64)>> = BTreeMap::new();
        for index in 0..self.found.nodes.len() {
            for step in self.found.nodes[index].op.steps() {
                if let Step::Append { key, value } = step {
                    unseen.entry(*key).or_default().push((index as u32, *value));
                }
            }
        }
        for (key, order) in &orders {
            let seen: BTreeSet<u64> = order.iter().copied().collect();
            if let Some(appends) = unseen.get_mut(key) {
                appends.retain(|(_, value)| !seen.contains(value));
            }
        }
        self.found.unseen = unseen.values().map(|appends| appends.len() as u64).sum();
        let mut by_key: BTreeMap<u64, Vec<&Read>> = BTreeMap::new();
        for read in reads.iter().filter(|read| !forked.contains(&read.key)) {
            by_key.entry(read.key).or_default().push(read);
        }
        for (key, order) in orders.iter().filter(|(key, _)| !forked.contains(key)) {
            let reads = by_key.remove(key).unwrap_or_default();
            self.order_key(*key, order, &reads, unseen.get(key).map_or(&[][..], Vec::as_slice));
        }
    }

    fn order_key(&mut self, key: u64, order: &[u64], reads: &[&Read], unseen: &[(u32, u64)]) {
        // Values of refused transactions have no node; the versions around them are neighbours.
        let writers: Vec<Option<u32>> = order.iter().map(|value| self.writer(key, *value)).collect();
        self.look_at_order(key, order);
        let mut before: Option<u32> = None;
        for (value, writer) in order.iter().zip(&writers) {
            if let (Some(before), Some(writer)) = (before, writer) {
                self.edge(before, *writer, WRITE_WRITE, key, *value);
            }
            before = writer.or(before);
        }
        for read in reads {
            let last = read.list.len();
            if let Some(writer) = writers[..last].iter().rev().find_map(|writer| *writer) {
                self.edge(writer, read.reader, WRITE_READ, key, read.list[last - 1]);
            }
            let next = (last..order.len()).find_map(|at| Some((writers[at]?, order[at])));
            if let Some((writer, value)) = next {
                self.edge(read.reader, writer, READ_WRITE, key, value);
            }
        }
        self.order_unseen(key, before, reads, order.len(), unseen);
    }

    /// Whether each transaction's appends stand in the order in which it made them.
    fn look_at_order(&mut self, key: u64, order: &[u64]) {
        let mut made: HashMap<(u32, u64), usize> = HashMap::new();
        for value in order {
            let Some(entry) = self.appended.get(&(key, *value)).map(|appended| appended.entry) else {
                continue;
            };
            let append = Step::Append { key, value: *value };
            let Some(at) = entry.op.steps().iter().position(|step| *step == append) else { continue };
            if made.insert((entry.client, entry.sequence), at).is_some_and(|before| before > at) {
                self.accuse(Direct::OutOfOrder, entry, || {
                    format!("appended {value} to key {key} before what stands before it: {}", short(order))
                });
            }
        }
    }

    /// What was acknowledged and seen by nobody comes after everything that was seen. One node per key stands
    /// for "after the last version that was seen", so that readers times writers make no product.
    fn order_unseen(
        &mut self,
        key: u64,
        last: Option<u32>,
        reads: &[&Read],
        length: usize,
        unseen: &[(u32, u64)],
    ) {
        if unseen.is_empty() {
            return;
        }
        // Of one transaction's values here, one is enough.
        let late: Vec<(u32, u64)> = unseen.iter().copied().collect::<BTreeMap<_, _>>().into_iter().collect();
        let place: HashMap<u32, usize> = late.iter().enumerate().map(|(at, (node, _))| (*node, at)).collect();
        // Node n of one chain leads to the first n late writers, of the other to those from n on.
        let before = self.chain(key, late.iter());
        let after = self.chain(key, late.iter().rev());
        let count = late.len();
        let enter = |this: &mut Self, from: u32, kind: Kind| match place.get(&from) {
            None => this.edge(from, before[count], kind, key, 0),
            // A late writer comes before the others, and not before itself.
            Some(at) => {
                this.edge(from, before[*at], kind, key, 0);
                this.edge(from, after[count - at - 1], kind, key, 0);
            }
        };
        if let Some(last) = last {
            enter(self, last, WRITE_WRITE);
        }
        let mut updates = BTreeSet::new();
        for read in reads.iter().filter(|read| read.list.len() == length) {
            enter(self, read.reader, READ_WRITE);
            updates.extend(place.contains_key(&read.reader).then_some(read.reader));
        }
        let mut updates = updates.into_iter().map(|node| self.found.nodes[node as usize]);
        if let (Some(one), Some(other)) = (updates.next(), updates.next()) {
            let text = format!(
                "read key {key} and appended to it, as did {}, and neither saw the other",
                one.name()
            );
            self.accuse(Direct::LostUpdate, other, || text);
        }
    }

    /// Helping nodes of which number n leads to the first n of `writers`.
    fn chain<'b>(&mut self, key: u64, writers: impl Iterator<Item = &'b (u32, u64)>) -> Vec<u32> {
        let mut chain = vec![self.found.graph.add_node()];
        for (writer, value) in writers {
            let (next, last) = (self.found.graph.add_node(), chain[chain.len() - 1]);
            self.edge(next, *writer, THROUGH, key, *value);
            self.edge(next, last, THROUGH, key, *value);
            chain.push(next);
        }
        chain
    }

    /// A client's transactions follow each other; one with an unknown outcome may still be under way when the
    /// next begins.
    fn order_sessions(&mut self) {
        let mut last: HashMap<u32, u32> = HashMap::new();
        for index in 0..self.found.nodes.len() {
            let entry = self.found.nodes[index];
            // Nobody knows in which order the laboratory read its lists.
            if entry.client == LABORATORY {
                continue;
            }
            if let Some(before) = last.get(&entry.client).copied() {
                self.edge(before, index as u32, SESSION, 0, 0);
            }
            if entry.is_done() {
                last.insert(entry.client, index as u32);
            }
        }
    }

    /// Who had ended before who began: a chain of the ends in the order of time, entered by whoever ends and
    /// left by whoever begins later, so that n transactions need 3 n edges.
    fn order_time(&mut self) {
        let nodes = self.found.nodes.len();
        let ended = |index: u32| self.found.nodes[index as usize].acknowledged();
        let mut ends: Vec<u32> = (0..nodes as u32).filter(|index| ended(*index).is_some()).collect();
        ends.sort_by_key(|index| ended(*index));
        let times: Vec<_> = ends.iter().map(|index| ended(*index)).collect();
        let chain: Vec<u32> = ends.iter().map(|_| self.found.graph.add_node()).collect();
        for (at, index) in ends.iter().enumerate() {
            self.edge(*index, chain[at], TIME, 0, 0);
            if at > 0 {
                self.edge(chain[at - 1], chain[at], THROUGH, 0, 0);
            }
        }
        for index in 0..nodes {
            let began = self.found.nodes[index].began;
            let before = times.partition_point(|end| end.is_some_and(|end| end < began));
            if before > 0 {
                self.edge(chain[before - 1], index as u32, THROUGH, 0, 0);
            }
        }
    }
}

/// A list as people read it: the end is what matters.
pub fn short(list: &[u64]) -> String {
    match list.len() {
        0..=8 => format!("{list:?}"),
        n => format!("[{} values, ..., {:?}]", n, &list[n - 4..]).replace("[[", "[").replace("]]", "]"),
    }
}
