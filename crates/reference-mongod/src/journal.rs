//! The journal of a member that is a process of its own: the log's entries as BSON in one file, and beside it
//! the ballot, which a member must not forget, or it votes twice in one election.

use crate::state::Entry;
use crate::store::Key;
use bson::{Bson, Document, doc};
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

/// The open file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Opens it, and reads the whole entries that are in it. A torn last one was never acknowledged.
    pub fn open(folder: &Path) -> io::Result<(Journal, Vec<Entry>)> {
        let path = folder.join("journal.bson");
        let mut entries = Vec::new();
        if let Ok(file) = File::open(&path) {
            let mut reader = BufReader::new(file);
            while let Some(entry) = Document::from_reader(&mut reader).ok().and_then(|d| decoded(&d)) {
                entries.push(entry);
            }
        }
        let file = File::options().create(true).append(true).open(&path)?;
        let mut journal = Journal { path, file };
        // What was torn off would stand before whatever is written next.
        journal.replace(&entries)?;
        Ok((journal, entries))
    }

    /// Writes entries behind the others and makes them survive a crash.
    pub fn append(&mut self, entries: &[Entry]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for entry in entries {
            bytes.extend(encoded(entry).to_vec().map_err(io::Error::other)?);
        }
        self.file.write_all(&bytes)?;
        self.file.sync_data()
    }

    /// Puts these entries in the place of all, as a rollback needs it.
    pub fn replace(&mut self, entries: &[Entry]) -> io::Result<()> {
        self.file.set_len(0)?;
        self.append(entries)?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// Keeps a small document so that it is there after a crash, or the old one is.
pub fn keep(folder: &Path, name: &str, document: &Document) -> io::Result<()> {
    let staged = folder.join(format!("{name}.new"));
    let mut file = File::create(&staged)?;
    file.write_all(&document.to_vec().map_err(io::Error::other)?)?;
    file.sync_all()?;
    std::fs::rename(staged, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// What was kept.
pub fn kept(folder: &Path, name: &str) -> Option<Document> {
    Document::from_reader(File::open(folder.join(name)).ok()?).ok()
}

/// An entry as it is stored and sent.
pub fn encoded(entry: &Entry) -> Document {
    let changes: Vec<Document> = entry
        .changes
        .iter()
        .map(|((collection, key), document)| {
            let key = match key {
                Key::Number(number) => doc! { "number": *number },
                Key::Text(text) => doc! { "text": text },
                Key::Other(bytes) => doc! { "other": bytes },
            };
            let document = document.clone().map_or(Bson::Null, Bson::Document);
            doc! { "ns": collection, "key": key, "document": document }
        })
        .collect();
    let mut encoded = doc! { "term": entry.term as i64, "changes": changes };
    if let Some((session, number, answer)) = &entry.retry {
        let session = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: session.clone() };
        encoded.insert("retry", doc! { "session": session, "number": *number, "answer": answer.clone() });
    }
    encoded
}

/// The entry of a document that [`encoded`] made.
pub fn decoded(document: &Document) -> Option<Entry> {
    let change = |change: &Bson| {
        let change = change.as_document()?;
        let key = change.get_document("key").ok()?;
        let key = match (key.get("number"), key.get("text"), key.get("other")) {
            (Some(number), _, _) => Key::Number(number.as_i64()?),
            (_, Some(text), _) => Key::Text(text.as_str()?.to_string()),
            (_, _, other) => Key::Other(other?.as_str()?.to_string()),
        };
        let document = change.get("document")?.as_document().cloned();
        Some(((change.get_str("ns").ok()?.to_string(), key), document))
    };
    let retry = |retry: &Document| match retry.get("session")? {
        Bson::Binary(session) => {
            let answer = retry.get_document("answer").ok()?.clone();
            Some((session.bytes.clone(), retry.get_i64("number").ok()?, answer))
        }
        _ => None,
    };
    Some(Entry {
        term: document.get_i64("term").ok()? as u64,
        changes: document.get_array("changes").ok()?.iter().map(change).collect::<Option<_>>()?,
        retry: match document.get_document("retry") {
            Ok(found) => Some(retry(found)?),
            Err(_) => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: i64) -> Entry {
        Entry {
            term: 3,
            changes: vec![
                (("a.b".into(), Key::Number(n)), Some(doc! { "_id": n })),
                (("a.b".into(), Key::Text("x".into())), None),
            ],
            retry: (n % 2 == 0).then(|| (vec![1, 2], n, doc! { "ok": 1.0 })),
        }
    }

    #[test]
    fn what_was_appended_is_there_and_a_torn_end_is_not() {
        let folder = std::env::temp_dir().join(format!("reference-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (mut journal, found) = Journal::open(&folder).unwrap();
        assert!(found.is_empty());
        journal.append(&[entry(1), entry(2)]).unwrap();
        journal.append(&[entry(3)]).unwrap();
        let length = std::fs::metadata(&journal.path).unwrap().len();
        journal.file.set_len(length - 1).unwrap();
        let (mut journal, found) = Journal::open(&folder).unwrap();
        let as_documents = |entries: &[Entry]| entries.iter().map(encoded).collect::<Vec<_>>();
        assert_eq!(as_documents(&found), as_documents(&[entry(1), entry(2)]));
        journal.append(&[entry(4)]).unwrap();
        assert_eq!(Journal::open(&folder).unwrap().1.len(), 3);
        keep(&folder, "ballot.bson", &doc! { "term": 4_i64 }).unwrap();
        assert_eq!(kept(&folder, "ballot.bson"), Some(doc! { "term": 4_i64 }));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
