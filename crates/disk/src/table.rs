//! Things that the kernel names by a number until it gives the number back.

use parking_lot::RwLock;
use std::sync::Arc;

/// Numbers for open files and folders. A number that is not in use finds nothing, whoever asks.
pub(crate) struct Table<T> {
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    used: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Table<T> {
    pub fn new() -> Table<T> {
        Table { slots: RwLock::new(Slots { used: Vec::new(), free: Vec::new() }) }
    }
    pub fn insert(&self, thing: T) -> u64 {
        let mut slots = self.slots.write();
        let thing = Some(Arc::new(thing));
        match slots.free.pop() {
            Some(at) => {
                slots.used[at] = thing;
                at as u64
            }
            None => {
                slots.used.push(thing);
                slots.used.len() as u64 - 1
            }
        }
    }
    pub fn get(&self, number: u64) -> Option<Arc<T>> {
        self.slots.read().used.get(usize::try_from(number).ok()?)?.clone()
    }
    pub fn remove(&self, number: u64) {
        let mut slots = self.slots.write();
        let Ok(at) = usize::try_from(number) else { return };
        if slots.used.get_mut(at).is_some_and(|slot| slot.take().is_some()) {
            slots.free.push(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_find_only_what_is_there() {
        let table = Table::new();
        let (a, b) = (table.insert("a"), table.insert("b"));
        assert_eq!(table.get(a).as_deref(), Some(&"a"));
        table.remove(a);
        table.remove(a);
        assert_eq!(table.get(a), None);
        assert_eq!(table.get(u64::MAX), None);
        assert_eq!(table.insert("c"), a, "the free number");
        assert_ne!(table.insert("d"), b);
        assert_eq!(table.get(b).as_deref(), Some(&"b"));
    }
}
