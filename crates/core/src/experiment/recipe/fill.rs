//! Placeholders, and what stands for them.

use super::super::unknown;
use super::Recipe;

/// What stands for the placeholders of one node.
#[derive(Debug, Clone)]
pub struct Values<'a> {
    /// Names and addresses of all nodes, in order.
    pub nodes: Vec<(String, String)>,
    /// Which one it is.
    pub number: usize,
    /// Which one is the primary.
    pub primary: usize,
    /// On which all listen.
    pub port: u16,
    /// The user of all of them.
    pub user: &'a str,
    /// And the password; empty where there is none.
    pub password: &'a str,
    /// Whether clients encrypt what they send.
    pub tls: bool,
}

const PLACEHOLDERS: [&str; 11] = [
    "name",
    "address",
    "number",
    "port",
    "user",
    "password",
    "others",
    "addresses",
    "primary",
    "primary.address",
    "tls",
];

impl Values<'_> {
    /// Those of a recipe whose nodes are not there yet.
    pub(super) fn of(recipe: &Recipe) -> Values<'static> {
        let (port, tls) = (recipe.port, recipe.tls);
        Values { nodes: vec![], number: 0, primary: 0, port, user: "u", password: "p", tls }
    }

    /// Replaces `{name}` and its kind.
    ///
    /// # Errors
    /// One that means nothing, or is not closed: it is never left standing.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (word, after) =
                after.split_once('}').ok_or_else(|| format!("a placeholder is not closed in {text:?}"))?;
            filled.push_str(before);
            filled.push_str(&self.value(word)?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, word: &str) -> Result<String, String> {
        let (name, address) = &self.nodes[self.number];
        let (primary, primary_address) = &self.nodes[self.primary];
        Ok(match word {
            "name" => name.clone(),
            "address" => address.clone(),
            "number" => (self.number + 1).to_string(),
            "port" => self.port.to_string(),
            "user" => self.user.into(),
            "password" => self.password.into(),
            "others" => {
                let others = self.nodes.iter().enumerate().filter(|(i, _)| *i != self.number);
                others.map(|(_, (name, _))| name.as_str()).collect::<Vec<_>>().join(",")
            }
            "addresses" => {
                self.nodes.iter().map(|(_, address)| address.as_str()).collect::<Vec<_>>().join(",")
            }
            "primary" => primary.clone(),
            "primary.address" => primary_address.clone(),
            "tls" => u8::from(self.tls).to_string(),
            other => return Err(unknown("placeholder", other, &PLACEHOLDERS)),
        })
    }
}
