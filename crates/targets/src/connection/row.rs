//! What the columns of a record hold: YCSB's fields, or one document as JSON.

use std::ops::Range;
use tipover_core::op::Fields;
use tipover_core::workload::{Dataset, JsonText};

/// Makes keys and values of a data set; keeps its buffers.
pub struct Row<'a> {
    dataset: &'a Dataset,
    bytes: Vec<u8>,
    json: JsonText,
}

impl<'a> Row<'a> {
    /// Of the records of `dataset`.
    pub fn of(dataset: &'a Dataset) -> Self {
        Row { dataset, bytes: Vec::new(), json: JsonText::default() }
    }

    /// How many columns a record has beside its key.
    pub fn columns(dataset: &Dataset) -> u16 {
        if dataset.documents().is_some() { 1 } else { dataset.fields }
    }

    /// What a column is called.
    pub fn column_name(dataset: &Dataset, column: u16) -> String {
        if dataset.documents().is_some() { "document".into() } else { dataset.field_name(column) }
    }

    /// How many choices an operation has among fields, or paths of a document.
    pub fn choices(dataset: &Dataset) -> u16 {
        dataset.fields.max(dataset.updatable())
    }

    /// The key of `record`.
    #[inline]
    pub fn key(&mut self, record: u64) -> &[u8] {
        self.dataset.key(record, &mut self.bytes);
        &self.bytes
    }

    /// A column of `record` as it is loaded or inserted.
    pub fn column(&mut self, record: u64, column: u16) -> &[u8] {
        match self.dataset.documents() {
            Some(_) => self.document(record, 0),
            None => {
                self.dataset.value(record, column, 0, &mut self.bytes);
                &self.bytes
            }
        }
    }

    /// The numbers of the values that an update of `fields` sends: a whole document is one.
    pub fn changes(&self, fields: Fields) -> Range<u16> {
        match (self.dataset.documents(), fields) {
            (Some(_), Fields::All | Fields::EachByName) => 0..1,
            _ => fields.numbers(self.dataset.fields),
        }
    }

    /// Value number `number` of an update of `fields`.
    pub fn change(&mut self, record: u64, fields: Fields, number: u16, version: u64) -> &[u8] {
        match (self.dataset.documents(), fields) {
            (None, _) => {
                self.dataset.value(record, number, version, &mut self.bytes);
                &self.bytes
            }
            (Some(_), Fields::One(path)) => {
                self.json.clear();
                self.dataset.leaf(record, path, version, &mut self.json);
                &self.json.text
            }
            (Some(_), _) => self.document(record, version),
        }
    }

    fn document(&mut self, record: u64, version: u64) -> &[u8] {
        self.json.clear();
        self.dataset.document(record, version, &mut self.json);
        &self.json.text
    }
}
