//! The records of a data set as BSON: YCSB's fields as binaries, or documents like those of a sample.

use super::message::Writer;
use bson::RawDocument;
use tipover_core::op::Fields;

use tipover_core::workload::{Bson, Dataset, DocumentSink};

/// Writes records into messages; keeps its buffers.
pub struct Documents<'a> {
    /// What is written.
    pub dataset: &'a Dataset,
    /// Names of fields, or paths of values in a document.
    names: Vec<String>,
    key: Vec<u8>,
    value: Vec<u8>,
    bson: Bson,
}

impl<'a> Documents<'a> {
    /// Those of `dataset`.
    pub fn of(dataset: &'a Dataset) -> Self {
        let names = match dataset.documents() {
            Some(documents) => documents.paths().iter().map(|path| path.text().to_string()).collect(),
            None => (0..dataset.fields).map(|field| dataset.field_name(field)).collect(),
        };
        Documents { dataset, names, key: Vec::new(), value: Vec::new(), bson: Bson::default() }
    }

    /// The name of a field, or the path of a value.
    pub fn name(&self, field: u16) -> Option<&str> {
        self.names.get(usize::from(field)).map(String::as_str)
    }

    /// The key of `record`.
    pub fn key(&mut self, record: u64) -> &[u8] {
        self.dataset.key(record, &mut self.key);
        &self.key
    }

    /// The fields of `record` as it is inserted, into the document at hand.
    pub fn fields(&mut self, writer: &mut Writer, record: u64, version: u64) {
        if self.dataset.documents().is_some() {
            self.bson.clear();
            self.dataset.document(record, version, &mut self.bson);
            self.copy(writer);
            return;
        }
        for (field, name) in (0..).zip(&self.names) {
            self.dataset.value(record, field, version, &mut self.value);
            writer.binary(name, &self.value);
        }
    }

    /// The whole document of `record`, as an item of the sequence at hand.
    pub fn item(&mut self, writer: &mut Writer, record: u64) {
        writer.begin_item();
        writer.string("_id", self.key(record));
        self.fields(writer, record, 0);
        writer.end();
    }

    /// The update of `fields`: `$set`, or the whole document in place of the old one.
    pub fn update(&mut self, writer: &mut Writer, record: u64, fields: Fields, version: u64) {
        writer.begin_document("u");
        match (fields, self.dataset.documents().is_some()) {
            (Fields::All | Fields::EachByName, true) => self.fields(writer, record, version),
            (Fields::One(path), true) => {
                writer.begin_document("$set");
                self.bson.clear();
                self.bson.begin_object();
                self.bson.name(&self.names[usize::from(path)]);
                self.dataset.leaf(record, path, version, &mut self.bson);
                self.bson.end_object();
                self.copy(writer);
                writer.end();
            }
            (_, false) => {
                writer.begin_document("$set");
                for field in fields.numbers(self.dataset.fields) {
                    self.dataset.value(record, field, version, &mut self.value);
                    writer.binary(&self.names[usize::from(field)], &self.value);
                }
                writer.end();
            }
        }
        writer.end();
    }

    /// The projection that brings `fields`; nothing if all are wanted as they are.
    pub fn projection(&self, writer: &mut Writer, fields: Fields) {
        if fields == Fields::All {
            return;
        }
        writer.begin_document("projection");
        for field in fields.numbers(self.names.len() as u16) {
            writer.int32(&self.names[usize::from(field)], 1);
        }
        writer.end();
    }

    fn copy(&self, writer: &mut Writer) {
        let document = RawDocument::from_bytes(&self.bson.bytes).expect("the core writes whole documents");
        writer.elements(document);
    }
}
