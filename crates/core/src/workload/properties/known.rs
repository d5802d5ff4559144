//! Every property that YCSB and go-ycsb know, and what becomes of it here.

use super::Properties;

/// Used, by the workload, the program or a target's binding.
const USED: &[&str] = &[
    "batch.size",
    "batchsize",
    "compressible",
    "core_workload_insertion_keep_going_on_error",
    "core_workload_insertion_retry_interval",
    "core_workload_insertion_retry_limit",
    "dataintegrity",
    "db.batchsize",
    "db.passwd",
    "db.url",
    "db.user",
    "exponential.frac",
    "exponential.percentile",
    "exporter",
    "exportfile",
    "fieldcount",
    "fieldlength",
    "fieldlengthdistribution",
    "fieldlengthhistogram",
    "fieldnameprefix",
    "hdrhistogram.fileoutput",
    "hdrhistogram.output.path",
    "hdrhistogram.percentiles",
    "histogram.buckets",
    "hotspotdatafraction",
    "hotspotopnfraction",
    "insertcount",
    "insertorder",
    "insertproportion",
    "insertstart",
    "keyhash",
    "keyprefix",
    "label",
    "latencytrackederrors",
    "maxexecutiontime",
    "maxscanlength",
    "measurement.histogram.verbose",
    "measurement.interval",
    "measurement.output_file",
    "measurement.raw.no_summary",
    "measurement.raw.output_file",
    "measurementtype",
    "minfieldlength",
    "minscanlength",
    "mongodb.batchsize",
    "mongodb.maxconnections",
    "mongodb.password",
    "mongodb.readPreference",
    "mongodb.url",
    "mongodb.username",
    "mongodb.writeConcern",
    "mysql.db",
    "mysql.host",
    "mysql.password",
    "mysql.port",
    "mysql.user",
    "operationcount",
    "outputstyle",
    "pg.db",
    "pg.host",
    "pg.password",
    "pg.port",
    "pg.sslmode",
    "pg.user",
    "postgrenosql.passwd",
    "postgrenosql.url",
    "postgrenosql.user",
    "readallfields",
    "readallfieldsbyname",
    "readmodifywriteproportion",
    "readproportion",
    "recordcount",
    "reportlatencyforeacherror",
    "requestdistribution",
    "scanlengthdistribution",
    "scanproportion",
    "seed",
    "status",
    "status.interval",
    "table",
    "target",
    "threadcount",
    "timeout",
    "timeseries.granularity",
    "updateproportion",
    "url",
    "wiredtiger.cache",
    "wiredtiger.dir",
    "workload",
    "writeallfields",
    "zeropadding",
    "zipfian.theta",
];

/// Known to them and without a meaning here, with the reason.
const IRRELEVANT: &[(&str, &str)] = &[
    ("basicdb.count", "nothing is counted by key"),
    ("basicdb.randomizedelay", "the null target answers at once"),
    ("basicdb.simulatedelay", "the null target answers at once"),
    ("basicdb.verbose", "nothing is printed per operation"),
    ("command", "the verb says what is done"),
    ("db", "the target is named after the verb"),
    ("db.driver", "no Java driver is loaded"),
    ("debug.pprof", "nothing is served for profilers"),
    ("discardscannedrecord", "only YCSB's Bigtable binding reads it"),
    ("dotransactions", "the verb says what is done: load or run"),
    ("dropdata", "no table is dropped: drop it yourself if that is what you want"),
    ("histogram.percentiles.export", "`hdrhistogram.fileoutput` writes whole histograms"),
    ("histogram.percentiles.export.filepath", "`hdrhistogram.output.path` says where histograms go"),
    ("jdbc.autocommit", "every operation is committed on its own"),
    ("jdbc.batchupdateapi", "`db.batchsize` alone makes batches"),
    ("jdbc.fetchsize", "scans are fetched whole"),
    ("jdbc.ycsbKeyPrefix", "`keyprefix` sets the keys' prefix"),
    ("maxscanrate", "only YCSB's Bigtable binding reads it"),
    ("measurement.trackjvm", "there is no Java machine to track"),
    ("mongodb.threadsAllowedToBlockForConnectionMultiplier", "every session has its own connection"),
    ("mongodb.upsert", "an insert of a record that exists is an error"),
    ("postgrenosql.autocommit", "every operation is committed on its own"),
    ("scanoptimelimit", "only YCSB's Bigtable binding reads it"),
    ("silence", "nothing is printed per operation"),
    ("spin.sleep", "due times are met without being told so"),
    ("verbose", "nothing is printed per operation"),
    ("warmuptime", "nothing is left out: give a first run the duration of the warm-up"),
];

/// What to say about the names of `properties`: the unknown with the nearest known, the known that mean
/// nothing here with why.
pub fn notices(properties: &Properties) -> Vec<String> {
    let mut notices = Vec::new();
    for (name, _) in properties.iter() {
        if USED.contains(&name) {
            continue;
        }
        if let Some((_, why)) = IRRELEVANT.iter().find(|(known, _)| *known == name) {
            notices.push(format!("{name} has no effect: {why}"));
        } else if name.starts_with("htrace.") {
            notices.push(format!("{name} has no effect: nothing is traced by HTrace"));
        } else {
            let unknown = crate::experiment::unknown("property", name, USED);
            // A list of all of them helps nobody.
            notices.push(unknown.split(": there are").next().unwrap_or_default().to_string());
        }
    }
    notices
}
