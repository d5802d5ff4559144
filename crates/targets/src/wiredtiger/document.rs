//! The documents of a data set as BSON.

use bson::raw::{CString, RawBinaryRef, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::BinarySubtype;
use tipover_core::op::Fields;
use tipover_core::workload::Dataset;

/// Builds the documents of a data set; keeps its buffers.
pub struct Documents<'a> {
    /// What is built.
    pub dataset: &'a Dataset,
    names: Vec<CString>,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Where the `_id` stands in a document: after the length, the type and the name.
pub const ID_AT: usize = 4 + 1 + 4 + 4;

impl<'a> Documents<'a> {
    /// Those of `dataset`.
    pub fn of(dataset: &'a Dataset) -> Self {
        let names = (0..dataset.fields)
            .map(|field| dataset.field_name(field).try_into().expect("a field name has no NUL"))
            .collect();
        Documents { dataset, names, key: Vec::new(), value: Vec::new() }
    }

    /// The key of `record`.
    pub fn key(&mut self, record: u64) -> &[u8] {
        self.dataset.key(record, &mut self.key);
        &self.key
    }

    /// The key that was asked for last, or that of the document built last.
    pub fn last_key(&self) -> &[u8] {
        &self.key
    }

    /// The document of `record` as it is inserted.
    pub fn document(&mut self, record: u64) -> RawDocumentBuf {
        self.dataset.key(record, &mut self.key);
        let mut document = RawDocumentBuf::new();
        document.append(bson::raw::cstr!("_id"), std::str::from_utf8(&self.key).expect("keys are ASCII"));
        for field in 0..self.dataset.fields {
            self.append(&mut document, record, field, 0);
        }
        document
    }

    /// `stored` with new values in `fields`, as `$set` makes it; `None` if `stored` is no document.
    pub fn updated(
        &mut self,
        stored: &[u8],
        record: u64,
        fields: Fields,
        version: u64,
    ) -> Option<RawDocumentBuf> {
        let stored = RawDocument::from_bytes(stored).ok()?;
        let wanted = fields.numbers(self.dataset.fields);
        let mut document = RawDocumentBuf::new();
        for element in stored.iter() {
            let (name, value) = element.ok()?;
            match wanted.clone().find(|field| self.names[usize::from(*field)].as_ref() == name) {
                Some(field) => self.append(&mut document, record, field, version),
                None => document.append(name, value),
            }
        }
        Some(document)
    }

    /// The bytes of `field` in `document`.
    pub fn field<'d>(&self, document: &'d [u8], field: u16) -> Option<&'d [u8]> {
        let document = RawDocument::from_bytes(document).ok()?;
        match document.get(self.names.get(usize::from(field))?.as_str()).ok()?? {
            RawBsonRef::Binary(binary) => Some(binary.bytes),
            _ => None,
        }
    }

    fn append(&mut self, document: &mut RawDocumentBuf, record: u64, field: u16, version: u64) {
        self.dataset.value(record, field, version, &mut self.value);
        let value = RawBinaryRef { subtype: BinarySubtype::Generic, bytes: &self.value };
        document.append(&self.names[usize::from(field)], value);
    }
}
