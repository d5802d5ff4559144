//! Directed graphs with kinds of edges: strongly connected components and short cycles.

use std::collections::{HashMap, VecDeque};

/// Why one transaction must come before another. Bits, so that a set of kinds is a mask.
pub type Kind = u8;
/// Both wrote a key, in this order.
pub const WRITE_WRITE: Kind = 1;
/// The second read what the first wrote.
pub const WRITE_READ: Kind = 2;
/// The second overwrote what the first read.
pub const READ_WRITE: Kind = 4;
/// One client, one after the other.
pub const SESSION: Kind = 8;
/// The first had ended before the second began.
pub const TIME: Kind = 16;
/// Continues the edge before it, from a node that stands for no transaction.
pub const THROUGH: Kind = 32;

/// One edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Where it leads.
    pub to: u32,
    /// Why.
    pub kind: Kind,
    /// On which key, where a key is the reason.
    pub key: u64,
    /// By which value, where a value is the reason.
    pub value: u64,
}

/// Nodes 0.. with their outgoing edges.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    edges: Vec<Vec<Edge>>,
}

/// Which walks are looked at: edges of these kinds, and never two [`READ_WRITE`] in a row if `apart`.
#[derive(Debug, Clone, Copy)]
pub struct Walks {
    /// The kinds that may be used.
    pub kinds: Kind,
    /// Whether two anti-dependencies in a row are forbidden.
    pub apart: bool,
}

/// Where a state leads, as far as it was not yet looked at.
type Ahead<'a> = Box<dyn Iterator<Item = (u32, Edge)> + 'a>;

/// One step of a path: from a node along an edge.
pub type Step = (u32, Edge);

impl Graph {
    /// Without edges.
    pub fn new(nodes: usize) -> Self {
        Graph { edges: vec![vec![]; nodes] }
    }

    /// A further node.
    pub fn add_node(&mut self) -> u32 {
        self.edges.push(vec![]);
        self.edges.len() as u32 - 1
    }

    /// An edge, unless it would lead back to where it starts.
    pub fn add(&mut self, from: u32, edge: Edge) {
        if from != edge.to {
            self.edges[from as usize].push(edge);
        }
    }

    /// With `apart`, every node is two states: reached by an anti-dependency (2v + 1), or not (2v). A cycle
    /// of states is a closed walk without two anti-dependencies in a row, and the other way round.
    fn next(&self, state: u32, walks: Walks) -> impl Iterator<Item = (u32, Edge)> + '_ {
        let (node, after_rw) = if walks.apart { (state / 2, state % 2) } else { (state, 0) };
        self.edges[node as usize].iter().filter_map(move |edge| {
            if edge.kind & walks.kinds == 0 {
                return None;
            }
            if !walks.apart {
                return Some((edge.to, *edge));
            }
            match edge.kind {
                READ_WRITE if after_rw == 1 => None,
                READ_WRITE => Some((2 * edge.to + 1, *edge)),
                THROUGH => Some((2 * edge.to + after_rw, *edge)),
                _ => Some((2 * edge.to, *edge)),
            }
        })
    }

    /// The component of every state: states that reach each other have the same number. Components of a
    /// single state get `u32::MAX`, for no cycle goes through them. Tarjan 1972, without recursion.
    pub fn components(&self, walks: Walks) -> Vec<u32> {
        let states = self.edges.len() * if walks.apart { 2 } else { 1 };
        let (mut index, mut low) = (vec![0u32; states], vec![0u32; states]);
        let (mut on_stack, mut stack) = (vec![false; states], Vec::new());
        let mut component = vec![u32::MAX; states];
        let (mut counter, mut components) = (0, 0);
        for root in 0..states as u32 {
            if index[root as usize] != 0 {
                continue;
            }
            let mut work: Vec<(u32, Ahead)> = Vec::new();
            let mut enter = Some(root);
            loop {
                if let Some(state) = enter.take() {
                    counter += 1;
                    (index[state as usize], low[state as usize]) = (counter, counter);
                    on_stack[state as usize] = true;
                    stack.push(state);
                    work.push((state, Box::new(self.next(state, walks))));
                }
                let Some((state, edges)) = work.last_mut() else { break };
                let state = *state;
                match edges.next() {
                    Some((to, _)) if index[to as usize] == 0 => enter = Some(to),
                    Some((to, _)) if on_stack[to as usize] => {
                        low[state as usize] = low[state as usize].min(index[to as usize]);
                    }
                    Some(_) => {}
                    None => {
                        work.pop();
                        if let Some((parent, _)) = work.last() {
                            low[*parent as usize] = low[*parent as usize].min(low[state as usize]);
                        }
                        if low[state as usize] == index[state as usize] {
                            let from = stack.iter().rposition(|s| *s == state).expect("it was pushed");
                            let members = stack.split_off(from);
                            for member in &members {
                                on_stack[*member as usize] = false;
                                if members.len() > 1 {
                                    component[*member as usize] = components;
                                }
                            }
                            components += u32::from(members.len() > 1);
                        }
                    }
                }
            }
        }
        component
    }

    /// A short cycle that uses an edge of the kind `must`: the shortest of those through the first `tries`
    /// such edges within a component. Edges through nodes that are no transactions cost nothing.
    pub fn cycle(&self, walks: Walks, must: Kind, tries: usize) -> Option<Vec<Step>> {
        let component = self.components(walks);
        let mut best: Option<Vec<Step>> = None;
        let mut tried = 0;
        for state in 0..component.len() as u32 {
            if component[state as usize] == u32::MAX {
                continue;
            }
            for (to, edge) in self.next(state, walks) {
                if edge.kind & must == 0 || component[to as usize] != component[state as usize] {
                    continue;
                }
                tried += 1;
                if tried > tries {
                    return best;
                }
                if let Some(back) = self.path(to, state, walks, &component) {
                    let node = if walks.apart { state / 2 } else { state };
                    let mut cycle = vec![(node, edge)];
                    cycle.extend(back);
                    if best.as_ref().is_none_or(|known| length(&cycle) < length(known)) {
                        best = Some(cycle);
                    }
                    if best.as_ref().is_some_and(|known| length(known) <= 2) {
                        return best;
                    }
                }
            }
        }
        best
    }

    /// A shortest path within one component (0-1 breadth-first search).
    fn path(&self, from: u32, to: u32, walks: Walks, component: &[u32]) -> Option<Vec<Step>> {
        let mut reached: HashMap<u32, (u32, Option<(u32, Edge)>)> = HashMap::from([(from, (0, None))]);
        let mut queue = VecDeque::from([(from, 0u32)]);
        while let Some((state, cost)) = queue.pop_front() {
            if state == to {
                break;
            }
            if reached[&state].0 < cost {
                continue;
            }
            for (next, edge) in self.next(state, walks) {
                if component[next as usize] != component[from as usize] {
                    continue;
                }
                let weight = u32::from(edge.kind != THROUGH);
                if reached.get(&next).is_none_or(|(known, _)| cost + weight < *known) {
                    reached.insert(next, (cost + weight, Some((state, edge))));
                    if weight == 0 {
                        queue.push_front((next, cost));
                    } else {
                        queue.push_back((next, cost + 1));
                    }
                }
            }
        }
        let (mut steps, mut at) = (Vec::new(), to);
        while at != from {
            let (state, edge) = reached.get(&at)?.1?;
            steps.push((if walks.apart { state / 2 } else { state }, edge));
            at = state;
        }
        steps.reverse();
        Some(steps)
    }
}

/// Edges that stand for something.
fn length(cycle: &[Step]) -> usize {
    cycle.iter().filter(|(_, edge)| edge.kind != THROUGH).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    const ALL: Walks = Walks { kinds: 63, apart: false };

    fn graph(nodes: usize, edges: &[(u32, u32, Kind)]) -> Graph {
        let mut graph = Graph::new(nodes);
        for (from, to, kind) in edges {
            graph.add(*from, Edge { to: *to, kind: *kind, key: 0, value: 0 });
        }
        graph
    }

    #[test]
    fn components_agree_with_reachability() {
        for seed in 0..300 {
            let mut random = Random::new(seed, 0);
            let nodes = 2 + random.below(9) as usize;
            let edges: Vec<(u32, u32, Kind)> = (0..random.below(20))
                .map(|_| {
                    let kind = [WRITE_WRITE, READ_WRITE][random.below(2) as usize];
                    (random.below(nodes as u64) as u32, random.below(nodes as u64) as u32, kind)
                })
                .collect();
            let graph = graph(nodes, &edges);
            for apart in [false, true] {
                let walks = Walks { apart, ..ALL };
                let component = graph.components(walks);
                let reaches = |from: u32, to: u32| {
                    let (mut seen, mut work) = (vec![false; component.len()], vec![from]);
                    while let Some(state) = work.pop() {
                        for (next, _) in graph.next(state, walks) {
                            if !std::mem::replace(&mut seen[next as usize], true) {
                                work.push(next);
                            }
                        }
                    }
                    seen[to as usize]
                };
                for a in 0..component.len() as u32 {
                    for b in 0..component.len() as u32 {
                        let same = a != b && reaches(a, b) && reaches(b, a);
                        let found = a != b
                            && component[a as usize] != u32::MAX
                            && component[a as usize] == component[b as usize];
                        assert_eq!(same, found, "seed {seed}, apart {apart}: {a} and {b}");
                    }
                }
                let any = component.iter().any(|c| *c != u32::MAX);
                assert_eq!(graph.cycle(walks, 63, usize::MAX).is_some(), any, "seed {seed}, apart {apart}");
            }
        }
    }

    #[test]
    fn anti_dependencies_in_a_row_are_no_evidence_against_snapshots() {
        let skew = graph(2, &[(0, 1, READ_WRITE), (1, 0, READ_WRITE)]);
        assert!(skew.cycle(Walks { apart: true, ..ALL }, READ_WRITE, 9).is_none());
        assert_eq!(skew.cycle(ALL, READ_WRITE, 9).unwrap().len(), 2);
        let single = graph(2, &[(0, 1, READ_WRITE), (1, 0, WRITE_READ)]);
        assert_eq!(single.cycle(Walks { apart: true, ..ALL }, READ_WRITE, 9).unwrap().len(), 2);
        let two =
            graph(4, &[(0, 1, READ_WRITE), (1, 2, WRITE_READ), (2, 3, READ_WRITE), (3, 0, WRITE_WRITE)]);
        assert_eq!(two.cycle(Walks { apart: true, ..ALL }, READ_WRITE, 9).unwrap().len(), 4);
    }

    #[test]
    fn the_shortest_way_round_is_found() {
        let mut edges: Vec<(u32, u32, Kind)> = (0..50).map(|n| (n, (n + 1) % 50, WRITE_WRITE)).collect();
        edges.push((30, 7, WRITE_READ));
        edges.push((9, 29, THROUGH));
        let cycle = graph(50, &edges).cycle(ALL, WRITE_READ, 9).unwrap();
        let nodes: Vec<u32> = cycle.iter().map(|(node, _)| *node).collect();
        assert_eq!(nodes, [30, 7, 8, 9, 29]);
    }
}
