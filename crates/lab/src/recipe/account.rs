//! The user of this machine as whom a server runs.

use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The login name.
    pub name: String,
    /// The user's number.
    pub user: u32,
    /// The number of the user's own group.
    pub group: u32,
}

impl Account {
    /// As whom a server must run: `wanted` when this process is root (no server wants to be root, and most
    /// refuse), `None`, which means this process's own user, when it is not.
    ///
    /// Without such a user it is `nobody`: good enough for a program that was not installed by a package.
    pub fn for_server(wanted: &str) -> Option<Account> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let nobody = Account { name: "nobody".into(), user: 65534, group: 65534 };
        Some(find(&text, wanted).or_else(|| find(&text, "nobody")).unwrap_or(nobody))
    }

    /// Gives it a file or folder, not what is below.
    pub(crate) fn own(account: Option<&Account>, path: &Path) -> io::Result<()> {
        match account {
            Some(account) => chown(path, Some(account.user), Some(account.group)),
            None => Ok(()),
        }
    }
}

fn find(passwd: &str, wanted: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| *name == wanted)?;
        let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Account { name: name.into(), user, group })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let text =
            "root:x:0:0::/root:/bin/sh\nmysqlx:x:7:8::/:/bin/false\nmysql:x:103:112:My:/x:/bin/false\nbad\n";
        let mysql = Account { name: "mysql".into(), user: 103, group: 112 };
        assert_eq!(find(text, "mysql"), Some(mysql));
        assert_eq!(find(text, "postgres"), None);
        assert_eq!(find(text, "bad"), None);
    }
}
