//! What is said to MongoDB's servers, as documents.

use bson::{Bson, Document, doc};
use tipover_core::experiment::recipe::{Duty, ReplicaSet};

/// `host:port` of a node by its name.
pub type Address<'a> = &'a dyn Fn(&str) -> String;

/// `replSetInitiate`, which is said to one member once.
pub fn initiation(set: &ReplicaSet, address: Address<'_>) -> Document {
    let members: Vec<Document> = (0..)
        .zip(&set.members)
        .map(|(number, name)| {
            let mut member = doc! { "_id": number, "host": address(name) };
            if set.arbiters.contains(name) {
                member.insert("arbiterOnly", true);
            }
            member
        })
        .collect();
    let mut configuration = doc! { "_id": &set.name, "version": 1, "members": members };
    if set.duty == Some(Duty::Config) {
        configuration.insert("configsvr", true);
    }
    for (place, value) in &set.configuration {
        put(&mut configuration, place, value);
    }
    doc! { "replSetInitiate": configuration }
}

/// Writes `text` at its place, `settings.chainingAllowed`, as the number or truth value that it is, else as a
/// text.
fn put(document: &mut Document, place: &str, text: &str) {
    if let Some((table, rest)) = place.split_once('.') {
        if !matches!(document.get(table), Some(Bson::Document(_))) {
            document.insert(table, Document::new());
        }
        if let Ok(inner) = document.get_document_mut(table) {
            put(inner, rest, text);
        }
        return;
    }
    let value = match (text.parse::<i64>(), text.parse::<bool>(), text.parse::<f64>()) {
        (Ok(whole), ..) => Bson::Int64(whole),
        (_, Ok(truth), _) => Bson::Boolean(truth),
        (.., Ok(number)) => Bson::Double(number),
        _ => Bson::String(text.into()),
    };
    document.insert(place, value);
}

/// `name/host:port,...`, as routers and `addShard` take a set. Arbiters are not named: they have no data.
pub fn set_address(set: &ReplicaSet, address: Address<'_>) -> String {
    let hosts: Vec<String> = set.data_nodes().map(|name| address(name)).collect();
    format!("{}/{}", set.name, hosts.join(","))
}

/// `addShard`, which is said to a router.
pub fn add_shard(set: &ReplicaSet, address: Address<'_>) -> Document {
    doc! { "addShard": set_address(set, address), "name": &set.name }
}

/// Makes a primary a secondary for `seconds`, after others had ten seconds to catch up.
pub fn step_down(seconds: i32) -> Document {
    doc! { "replSetStepDown": seconds, "secondaryCatchUpPeriodSecs": 10.min(seconds) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tipover_core::experiment::recipe::Recipe;

    fn address(name: &str) -> String {
        format!("10.0.0.{}:27017", name.as_bytes()[0] - b'a' + 1)
    }

    fn set(recipe: &str, name: &str) -> ReplicaSet {
        let layout = Recipe::named(recipe).unwrap().layout();
        layout.sets.iter().find(|set| set.name == name).unwrap().clone()
    }

    #[test]
    fn an_arbiter_votes_and_is_not_named_where_data_is() {
        let set = set("mongodb-arbiter", "tipover");
        let said = initiation(&set, &address);
        let configuration = said.get_document("replSetInitiate").unwrap();
        let members = configuration.get_array("members").unwrap();
        assert_eq!(members[0].as_document(), Some(&doc! { "_id": 0, "host": "10.0.0.1:27017" }));
        let arbiter = doc! { "_id": 2, "host": "10.0.0.3:27017", "arbiterOnly": true };
        assert_eq!(members[2].as_document(), Some(&arbiter));
        assert!(!configuration.contains_key("configsvr"));
        let settings = configuration.get_document("settings").unwrap();
        assert_eq!(settings.get_i64("electionTimeoutMillis").unwrap(), 3000);
        assert_eq!(set_address(&set, &address), "tipover/10.0.0.1:27017,10.0.0.2:27017");
    }

    #[test]
    fn what_a_configuration_says_stands_at_its_place() {
        let mut set = set("mongodb-replica-set", "tipover");
        let more = [
            ("writeConcernMajorityJournalDefault", "false"),
            ("settings.getLastErrorDefaults.w", "majority"),
            ("settings.catchUpTimeoutMillis", "-1"),
        ];
        set.configuration.extend(more.map(|(place, value)| (place.to_string(), value.to_string())));
        let said = initiation(&set, &address);
        let configuration = said.get_document("replSetInitiate").unwrap();
        assert!(!configuration.get_bool("writeConcernMajorityJournalDefault").unwrap());
        let settings = doc! { "catchUpTimeoutMillis": -1_i64, "electionTimeoutMillis": 3000_i64,
        "getLastErrorDefaults": { "w": "majority" }, "heartbeatIntervalMillis": 500_i64 };
        assert_eq!(configuration.get_document("settings").unwrap(), &settings);
    }

    #[test]
    fn a_sharded_cluster_is_put_together_in_words() {
        let config = initiation(&set("mongodb-sharded", "config"), &address);
        let configuration = config.get_document("replSetInitiate").unwrap();
        assert!(configuration.get_bool("configsvr").unwrap());
        let second = add_shard(&set("mongodb-sharded", "shard2"), &address);
        let wanted =
            doc! { "addShard": "shard2/10.0.0.4:27017,10.0.0.5:27017,10.0.0.6:27017", "name": "shard2" };
        assert_eq!(second, wanted);
        assert_eq!(step_down(60).keys().next().unwrap(), "replSetStepDown", "a command's name comes first");
    }
}
