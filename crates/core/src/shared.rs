//! What many records have alike, kept once.

use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// A value that may be another's too. Whoever changes it has a copy of his own from then on; it is written
/// and read as the value itself.
#[derive(Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shared<T>(Arc<T>);

impl<T: PartialEq> Shared<T> {
    /// Becomes that of `others` which is equal, or is one of them from now on. Only the newest few are looked
    /// at: records that lie side by side are alike, and of a thousand kinds most would be compared in vain.
    pub fn among(&mut self, others: &mut Vec<Shared<T>>) {
        const LOOKED_AT: usize = 8;
        match others.iter().rev().take(LOOKED_AT).find(|other| *other == self) {
            Some(other) => *self = other.clone(),
            None => {
                if others.len() >= LOOKED_AT {
                    others.remove(0);
                }
                others.push(self.clone());
            }
        }
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Shared<T> {
        Shared(Arc::new(value))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ones_are_one_until_somebody_changes_his() {
        let mut known = Vec::new();
        let (mut a, mut b, mut c) = (Shared::from(vec![1]), Shared::from(vec![1]), Shared::from(vec![2]));
        for one in [&mut a, &mut b, &mut c] {
            one.among(&mut known);
        }
        assert!(Arc::ptr_eq(&a.0, &b.0) && !Arc::ptr_eq(&a.0, &c.0));
        assert_eq!(known.len(), 2);
        b.push(3);
        assert_eq!((&*a, &*b), (&vec![1], &vec![1, 3]));
        assert_eq!(serde_json::to_string(&b).unwrap(), "[1,3]");
        for n in 0..100 {
            Shared::from(vec![n, n]).among(&mut known);
        }
        assert_eq!(known.len(), 8, "it is no memory of everything");
    }
}
