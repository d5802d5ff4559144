//! A trace as its user meets it: recorded on a disk, drawn, and put onto another one.

mod program;

use program::{Ended, Place, alone, can_mount};
use serde_json::Value;
use std::fs;
use std::io::{Read, Seek, SeekFrom};

#[track_caller]
fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|e| panic!("{e}: {}", ended.stdout))
}

/// Takes the disk away, whatever became of the test.
struct Mounted<'a>(&'a Place);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.0.run(&["disk", "umount", "slow"]);
    }
}

#[test]
fn a_trace_is_recorded_drawn_and_replayed() {
    if !can_mount("a trace of a mounted disk") {
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let mount = ["disk", "mount", "slow", "--mode", "file", "--spec", "iops=2000", "--readahead", "0"];
    place.run(&mount).with_code(&[0]);
    let _mounted = Mounted(&place);
    let file = place.here().join("slow/file");
    fs::write(&file, vec![7; 8 << 20]).expect("the disk takes a file");
    fs::File::open(&file).and_then(|f| f.sync_all()).expect("it can be flushed");
    place.run(&["disk", "trace", "start", "slow", "-o", "t.trace"]).with_code(&[0]);
    let written = fs::write(place.here().join("slow/new"), vec![9; 256 << 10]);
    written
        .and_then(|()| fs::File::open(place.here().join("slow/new"))?.sync_all())
        .expect("it takes a second one");
    let mut again = fs::File::open(&file).expect("it is there");
    rustix::fs::fadvise(&again, 0, None, rustix::fs::Advice::DontNeed).expect("its pages can be dropped");
    let mut page = [0; 4096];
    for offset in [0, 1 << 20, 5 << 20] {
        again
            .seek(SeekFrom::Start(offset))
            .and_then(|_| again.read_exact(&mut page))
            .expect("it can be read");
    }
    drop(again);
    place.run(&["disk", "trace", "stop", "slow"]).with_code(&[0]);

    let shown =
        place.run(&["disk", "trace", "show", "t.trace", "--html", "t.html", "--json"]).with_code(&[0]);
    let requests = |name: &str| {
        let kinds = json(&shown)["kinds"].as_array().cloned().unwrap_or_default();
        kinds
            .iter()
            .find(|kind| kind["name"] == name)
            .map_or(0, |kind| kind["requests"].as_u64().unwrap_or(0))
    };
    let html = fs::read_to_string(place.here().join("t.html")).expect("the picture is a file");
    let (_, rest) =
        html.split_once(r#"<script type="application/json" id="page">"#).expect("it carries its data");
    let page: Value =
        serde_json::from_str(rest.split_once("</script>").expect("whole").0).expect("they are JSON");
    let accesses = &page["sections"][0]["blocks"][0]["accesses"]["accesses"];
    assert_eq!(accesses["complete"], true, "{accesses}");
    let files = accesses["files"].as_array().expect("files");
    let of =
        |name: &str| files.iter().find(|f| f["name"] == name).unwrap_or_else(|| panic!("{name}: {files:?}"));
    let read = |name: &str, key: &str| of(name)[key].as_u64().unwrap_or(0);
    assert!((1..=3).contains(&(read("file", "small_reads") + read("file", "large_reads"))), "{files:?}");
    assert_eq!(read("new", "write_bytes"), 256 << 10, "{files:?}");
    assert_eq!(read("new", "writes"), requests("write"), "every write is in the picture");

    fs::create_dir(place.here().join("other")).expect("a folder");
    let replayed = place.run(&["disk", "trace", "replay", "t.trace", "other", "--json"]).with_code(&[0]);
    for kind in json(&replayed)["kinds"].as_array().expect("kinds") {
        let name = kind["kind"].as_str().unwrap_or_default();
        assert_eq!(kind["requests"], requests(name), "{name}");
        assert_eq!(kind["failed"], 0, "{name}");
    }
    assert!(json(&replayed)["lateness"].is_object(), "how late it sent is told");
    let fast = place.run(&["disk", "trace", "replay", "t.trace", "other", "--depth", "4"]).with_code(&[0]);
    assert!(fast.stdout.contains("recorded") && fast.stdout.contains("replayed"), "{}", fast.stdout);
    assert_eq!(fs::read_dir(place.here().join("other")).expect("it is there").count(), 0, "nothing stays");
    place.run(&["disk", "umount", "slow"]).with_code(&[0]);
}
