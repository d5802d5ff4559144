//! What MongoDB's servers say of themselves: `hello` and `replSetGetStatus`.

use super::ask::{truth, whole};
use bson::{Bson, Document};

/// An answer to `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello {
    /// It takes writes.
    pub writable: bool,
    /// It follows a primary.
    pub secondary: bool,
    /// It only votes.
    pub arbiter: bool,
    /// It routes to a sharded cluster.
    pub router: bool,
    /// The set it belongs to; `None` before it was initiated.
    pub set: Option<String>,
    /// Who it thinks is primary, as `host:port`.
    pub primary: Option<String>,
    /// Of two that say they are primary, the one whose election is later is right. Compared as it stands.
    pub election: String,
}

impl Hello {
    /// Reads it.
    pub fn read(answer: &Document) -> Hello {
        let text = |key| answer.get_str(key).ok().map(str::to_string);
        Hello {
            writable: truth(answer, "isWritablePrimary") || truth(answer, "ismaster"),
            secondary: truth(answer, "secondary"),
            arbiter: truth(answer, "arbiterOnly"),
            router: text("msg").as_deref() == Some("isdbgrid"),
            set: text("setName"),
            primary: text("primary"),
            election: answer.get_object_id("electionId").map(|id| id.to_hex()).unwrap_or_default(),
        }
    }
}

/// One member as `replSetGetStatus` shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// `host:port`
    pub host: String,
    /// PRIMARY, SECONDARY, ARBITER, RECOVERING, ROLLBACK, ...
    pub state: String,
    /// It answers.
    pub healthy: bool,
    /// The last operation it has applied.
    pub applied: Option<Applied>,
}

/// How far a member has applied the operations of its set: when, and of which election.
pub type Applied = (u64, i64);

/// The members in an answer to `replSetGetStatus`.
pub fn members(answer: &Document) -> Vec<Member> {
    let members = answer.get_array("members").ok().into_iter().flatten();
    members.filter_map(Bson::as_document).filter_map(member).collect()
}

fn member(document: &Document) -> Option<Member> {
    let applied = document.get_document("optime").ok().and_then(|optime| {
        let at = match optime.get("ts") {
            Some(Bson::Timestamp(at)) => u64::from(at.time) << 32 | u64::from(at.increment),
            _ => return None,
        };
        Some((at, whole(optime, "t").unwrap_or(-1)))
    });
    Some(Member {
        host: document.get_str("name").ok()?.to_string(),
        state: document.get_str("stateStr").unwrap_or("unknown").to_string(),
        healthy: truth(document, "health"),
        applied,
    })
}

/// What keeps `hosts` from being whole, a sentence each: one primary, everybody else follows it, and all have
/// applied what it had when somebody began to wait. That is what `goal` becomes where it is nothing yet:
/// under load nobody ever has applied what the primary has now.
pub fn unfinished(members: &[Member], hosts: &[String], goal: &mut Option<Applied>) -> Vec<String> {
    let wanted: Vec<&Member> = members.iter().filter(|member| hosts.contains(&member.host)).collect();
    let mut missing: Vec<String> = hosts
        .iter()
        .filter(|host| !wanted.iter().any(|member| member.host == **host))
        .map(|host| format!("{host} is no member"))
        .collect();
    let primaries: Vec<&&Member> = wanted.iter().filter(|member| member.state == "PRIMARY").collect();
    let [primary] = primaries.as_slice() else {
        missing.push(format!("{} of {} members are primary", primaries.len(), wanted.len()));
        return missing;
    };
    // A new primary may have less than the old one had, and the rest is rolled back.
    *goal = goal.map_or(primary.applied, |goal| primary.applied.min(Some(goal)));
    for member in wanted.iter().filter(|member| member.host != primary.host) {
        let Member { host, state, healthy, applied } = member;
        match state.as_str() {
            _ if !healthy => missing.push(format!("{host} does not answer the primary")),
            "ARBITER" => {}
            "SECONDARY" if *applied < *goal => missing.push(format!("{host} is still behind")),
            "SECONDARY" => {}
            other => missing.push(format!("{host} is {other}")),
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::oid::ObjectId;
    use bson::{Timestamp, doc};

    /// As MongoDB's manual shows it, shortened.
    fn status(second: &str, behind: u32) -> Document {
        let optime = |at| doc! { "ts": Timestamp { time: at, increment: 1 }, "t": 3_i64 };
        doc! { "set": "rs", "ok": 1.0, "myState": 1, "members": [
            { "_id": 0, "name": "10.0.0.1:27017", "health": 1.0, "state": 1, "stateStr": "PRIMARY",
              "optime": optime(100), "self": true },
            { "_id": 1, "name": "10.0.0.2:27017", "health": 1.0, "state": 2, "stateStr": second,
              "optime": optime(100 - behind) },
            { "_id": 2, "name": "10.0.0.3:27017", "health": 1, "state": 7, "stateStr": "ARBITER" },
        ] }
    }

    fn hosts(count: usize) -> Vec<String> {
        (1..=count).map(|n| format!("10.0.0.{n}:27017")).collect()
    }

    #[test]
    fn a_set_is_whole_when_all_follow_and_have_applied_the_same() {
        let now = |status, hosts: &[String]| unfinished(&members(&status), hosts, &mut None);
        assert!(now(status("SECONDARY", 0), &hosts(3)).is_empty());
        let behind = now(status("SECONDARY", 1), &hosts(3));
        assert_eq!(behind, ["10.0.0.2:27017 is still behind"]);
        let rolling = now(status("ROLLBACK", 0), &hosts(3));
        assert_eq!(rolling, ["10.0.0.2:27017 is ROLLBACK"]);
        // Who does not run is not waited for.
        assert!(now(status("RECOVERING", 9), &[hosts(3)[0].clone(), hosts(3)[2].clone()]).is_empty());
        let two = now(status("PRIMARY", 0), &hosts(4));
        assert_eq!(two, ["10.0.0.4:27017 is no member", "2 of 3 members are primary"]);
        assert_eq!(unfinished(&[], &[], &mut None), ["0 of 0 members are primary"]);
    }

    #[test]
    fn under_load_a_member_follows_that_has_what_there_was_when_waiting_began() {
        let at = |primary: u32, second: u32| {
            let mut members = members(&status("SECONDARY", 0));
            members[0].applied = Some((u64::from(primary) << 32, 3));
            members[1].applied = Some((u64::from(second) << 32, 3));
            members
        };
        let mut goal = None;
        let behind = ["10.0.0.2:27017 is still behind"];
        assert_eq!(unfinished(&at(100, 98), &hosts(3), &mut goal), behind);
        assert_eq!(unfinished(&at(110, 99), &hosts(3), &mut goal), behind, "not yet");
        assert!(unfinished(&at(120, 100), &hosts(3), &mut goal).is_empty(), "it has what there was");
        // Whoever was elected meanwhile without all of it rolls the rest back.
        let mut goal = Some((200 << 32, 3));
        assert_eq!(unfinished(&at(150, 149), &hosts(3), &mut goal), behind);
        assert!(unfinished(&at(250, 150), &hosts(3), &mut goal).is_empty());
    }

    #[test]
    fn a_server_says_what_it_is() {
        let id = ObjectId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
        let primary = Hello::read(&doc! { "isWritablePrimary": true, "secondary": false, "setName": "rs",
        "primary": "10.0.0.1:27017", "electionId": id, "ok": 1.0 });
        assert!(primary.writable && !primary.secondary && primary.set.as_deref() == Some("rs"));
        assert!(primary.election > Hello::default().election);
        let fresh =
            Hello::read(&doc! { "isreplicaset": true, "ismaster": false, "secondary": false, "ok": 1 });
        assert_eq!(fresh, Hello::default());
        assert!(Hello::read(&doc! { "msg": "isdbgrid", "isWritablePrimary": true }).router);
        assert!(Hello::read(&doc! { "arbiterOnly": true, "setName": "rs" }).arbiter);
    }
}
