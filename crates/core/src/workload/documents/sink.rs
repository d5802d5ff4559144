//! What a document is shown to, and two that write it down.

use super::date;

/// What a document is shown to, piece by piece, in its order.
pub trait DocumentSink {
    /// An object begins: the document itself, a field's value or an array's element.
    fn begin_object(&mut self);
    /// It ends.
    fn end_object(&mut self);
    /// An array begins.
    fn begin_array(&mut self);
    /// It ends.
    fn end_array(&mut self);
    /// The name of the field whose value comes next.
    fn name(&mut self, name: &str);
    /// A value.
    fn null(&mut self);
    /// A value.
    fn boolean(&mut self, value: bool);
    /// A value.
    fn integer(&mut self, value: i64);
    /// A value.
    fn float(&mut self, value: f64);
    /// A value.
    fn text(&mut self, value: &str);
    /// A value: milliseconds since 1970 (extended JSON's `$date`).
    fn date(&mut self, ms: i64);
    /// A value (extended JSON's `$oid`).
    fn object_id(&mut self, id: [u8; 12]);
}

/// Appends JSON. A date is its ISO text and an object id its hexadecimal digits, or both as MongoDB's
/// extended JSON writes them.
#[derive(Debug, Default)]
pub struct JsonText {
    /// What was written.
    pub text: Vec<u8>,
    extended: bool,
    /// A value was written at this level, so that the next needs a comma.
    following: bool,
}

impl JsonText {
    /// Writes MongoDB's extended JSON.
    pub fn extended() -> Self {
        JsonText { extended: true, ..Default::default() }
    }

    /// Begins anew, keeping the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.following = false;
    }

    fn value(&mut self, text: &str) {
        self.comma();
        self.text.extend_from_slice(text.as_bytes());
        self.following = true;
    }

    fn comma(&mut self) {
        if self.following {
            self.text.push(b',');
        }
    }

    fn begin(&mut self, bracket: u8) {
        self.comma();
        self.text.push(bracket);
        self.following = false;
    }

    fn end(&mut self, bracket: u8) {
        self.text.push(bracket);
        self.following = true;
    }

    fn quoted(&mut self, text: &str) {
        self.text.push(b'"');
        // Most texts need no escape: copy up to the next character that does.
        let mut rest = text;
        while let Some(at) = rest.find(|c: char| c == '"' || c == '\\' || c < ' ') {
            self.text.extend_from_slice(&rest.as_bytes()[..at]);
            match rest.as_bytes()[at] {
                byte @ (b'"' | b'\\') => self.text.extend_from_slice(&[b'\\', byte]),
                byte => self.text.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            }
            rest = &rest[at + 1..];
        }
        self.text.extend_from_slice(rest.as_bytes());
        self.text.push(b'"');
    }

    fn tagged(&mut self, tag: &str, text: &str) {
        if self.extended {
            self.begin_object();
            self.name(tag);
            self.text(text);
            self.end_object();
        } else {
            self.text(text);
        }
    }
}

impl DocumentSink for JsonText {
    fn begin_object(&mut self) {
        self.begin(b'{');
    }
    fn end_object(&mut self) {
        self.end(b'}');
    }
    fn begin_array(&mut self) {
        self.begin(b'[');
    }
    fn end_array(&mut self) {
        self.end(b']');
    }
    fn name(&mut self, name: &str) {
        self.comma();
        self.quoted(name);
        self.text.push(b':');
        self.following = false;
    }
    fn null(&mut self) {
        self.value("null");
    }
    fn boolean(&mut self, value: bool) {
        self.value(if value { "true" } else { "false" });
    }
    fn integer(&mut self, value: i64) {
        self.value(&value.to_string());
    }
    fn float(&mut self, value: f64) {
        // With a point or an exponent, also where the value is whole: it stays a float for who reads it.
        self.value(&format!("{value:?}"));
    }
    fn text(&mut self, value: &str) {
        self.comma();
        self.quoted(value);
        self.following = true;
    }
    fn date(&mut self, ms: i64) {
        self.tagged("$date", &date::iso(ms));
    }
    fn object_id(&mut self, id: [u8; 12]) {
        let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        self.tagged("$oid", &digits);
    }
}

/// Appends BSON (bsonspec.org, version 1.1): 64-bit integers where 32 bits are too few, as drivers choose.
#[derive(Debug, Default)]
pub struct Bson {
    /// What was written. Complete when every object has ended.
    pub bytes: Vec<u8>,
    /// Where each open object or array began, and the next index of an array.
    open: Vec<(usize, Option<u32>)>,
    name: String,
}

impl Bson {
    /// Begins anew, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.open.clear();
    }

    /// The type byte and the name or index of the next element.
    fn element(&mut self, kind: u8) {
        let Some((_, index)) = self.open.last_mut() else { return };
        self.bytes.push(kind);
        match index {
            Some(index) => {
                let mut digits = [0; 10];
                let mut at = digits.len();
                let mut rest = *index;
                loop {
                    at -= 1;
                    digits[at] = b'0' + (rest % 10) as u8;
                    rest /= 10;
                    if rest == 0 {
                        break;
                    }
                }
                self.bytes.extend_from_slice(&digits[at..]);
                *index += 1;
            }
            None => self.bytes.extend_from_slice(self.name.as_bytes()),
        }
        self.bytes.push(0);
    }

    /// A value of a type that no sample has, by the number of its type and its bytes.
    pub fn raw(&mut self, kind: u8, value: &[u8]) {
        self.element(kind);
        self.bytes.extend_from_slice(value);
    }

    fn begin(&mut self, kind: u8, index: Option<u32>) {
        self.element(kind);
        self.open.push((self.bytes.len(), index));
        self.bytes.extend_from_slice(&[0; 4]);
    }

    fn end(&mut self) {
        self.bytes.push(0);
        let (begin, _) = self.open.pop().expect("an object that began");
        let length = (self.bytes.len() - begin) as i32;
        self.bytes[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl DocumentSink for Bson {
    fn begin_object(&mut self) {
        self.begin(0x03, None);
    }
    fn end_object(&mut self) {
        self.end();
    }
    fn begin_array(&mut self) {
        self.begin(0x04, Some(0));
    }
    fn end_array(&mut self) {
        self.end();
    }
    fn name(&mut self, name: &str) {
        self.name.clear();
        self.name.push_str(name);
    }
    fn null(&mut self) {
        self.element(0x0A);
    }
    fn boolean(&mut self, value: bool) {
        self.element(0x08);
        self.bytes.push(u8::from(value));
    }
    fn integer(&mut self, value: i64) {
        match i32::try_from(value) {
            Ok(value) => {
                self.element(0x10);
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
            Err(_) => {
                self.element(0x12);
                self.bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
    }
    fn float(&mut self, value: f64) {
        self.element(0x01);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }
    fn text(&mut self, value: &str) {
        self.element(0x02);
        self.bytes.extend_from_slice(&(value.len() as i32 + 1).to_le_bytes());
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
    }
    fn date(&mut self, ms: i64) {
        self.element(0x09);
        self.bytes.extend_from_slice(&ms.to_le_bytes());
    }
    fn object_id(&mut self, id: [u8; 12]) {
        self.element(0x07);
        self.bytes.extend_from_slice(&id);
    }
}
