//! Findings about the databases of an engine.

use super::*;
use crate::engine::BoltDatabase;
use crate::measure::Transaction;
use std::fs;
use std::process::Command;

/// Returns a database with `transactions`, of which each writes a list of 10 MB.
fn database(path: &str, transactions: u64) -> BoltDatabase {
    BoltDatabase {
        path: path.into(),
        bytes: 5_000_000_000,
        transactions,
        page_bytes: 4_096,
        free_pages: Some(1_200_000),
        free_list_bytes: Some(9_601_024),
        is_synced: !path.ends_with("/cache.db"),
    }
}

/// Returns an engine that has built, and whose steps are held.
fn built(path: &str) -> ContainerEngine {
    ContainerEngine {
        bolt: vec![database(path, 100), database("/a/cache.db", 1_000)],
        builds_are_volatile: true,
        ..engine("overlay2")
    }
}

/// Returns the findings on a disk whose flush takes 8 ms, where the list takes 50 ms.
fn findings(engine: &ContainerEngine) -> Vec<Finding> {
    let disk = disk(8_000.0);
    let list = disk.overwrite.map(|page| Times { quarter: 50_000.0, ..page });
    let transaction =
        Some(Transaction { micros: 16_000.0, free_list: list, scaled_from: Some(1_000_000) });
    of_measured(engine, &Measured { transaction, ..disk }).0
}

fn names(engine: &ContainerEngine) -> Vec<&'static str> {
    findings(engine).iter().map(|finding| finding.name).collect()
}

#[test]
fn transactions_are_priced_unless_they_are_held_or_buildkit_is_not_used() {
    let docker = built("/a/metadata_v2.db");
    let found = findings(&docker);
    assert_eq!([found[0].name, found[1].name], ["large-freelist", "slow-transactions"]);
    // 1,300 syncs of 8 ms; 450 lists of 42 ms more than a page.
    assert_eq!(found[1].seconds.unwrap().round(), 10.0);
    assert_eq!(found[0].seconds.unwrap().round(), 19.0);
    let said = "the list takes 50.0 ms here, scaled from 1.0 MB, and of a page 8.0 ms";
    assert!(found[0].evidence.ends_with(said), "{found:?}");
    let unused = |count| vec![database("/a/snapshots.db", count), database("/a/cache.db", 1_000)];
    assert_eq!(names(&ContainerEngine { bolt: unused(99), ..docker.clone() }), ["large-freelist"]);
    let set_up = |is_in_force| Some(SetUp { is_made: true, is_in_force, lines: Vec::new() });
    let held = ContainerEngine { databases: set_up(true), ..docker.clone() };
    // The list of free pages is not measured then.
    assert!(!names(&held).contains(&"slow-transactions"));
    let not_held = ContainerEngine { databases: set_up(false), ..docker.clone() };
    assert!(names(&not_held).contains(&"slow-transactions"));
    let rootless = ContainerEngine { is_rootless: true, ..docker };
    assert!(!names(&rootless).contains(&"slow-transactions"));
}

#[test]
fn a_database_is_compacted_while_its_daemon_is_stopped() {
    let remedy = |engine: &ContainerEngine| findings(engine)[0].remedy.text().to_owned();
    let docker = built("/a b/metadata_v2.db");
    let wanted = "command -v bbolt && (trap : HUP INT TERM; \
                  systemctl stop docker.socket docker.service && \
                  bbolt compact -o '/a b/metadata_v2.db.new' '/a b/metadata_v2.db' && \
                  mv '/a b/metadata_v2.db.new' '/a b/metadata_v2.db' || \
                  rm -f '/a b/metadata_v2.db.new'; systemctl start docker.service)";
    assert_eq!(remedy(&docker), wanted);
    let rootless = ContainerEngine { is_rootless: true, ..docker.clone() };
    assert!(remedy(&rootless).contains("; systemctl --user stop docker.socket "));
    let buildkit = ContainerEngine { name: "buildkit", ..docker };
    assert!(remedy(&buildkit).contains("; systemctl stop buildkit && "));
    // How often the other one changes is not known.
    let bolt = vec![database("/a/other.db", 9), database("/a/meta.db", 9)];
    let containerd = ContainerEngine { name: "containerd", bolt: bolt.clone(), ..buildkit.clone() };
    let found = findings(&containerd);
    let found = found.iter().find(|finding| finding.name == "large-freelist").unwrap();
    // 1,200 lists.
    assert_eq!(found.seconds.unwrap().round(), 50.0);
    assert_eq!(found.workload.as_deref(), Some("imports of 20 images of 8 layers"));
    assert!(found.cause.starts_with("each transaction of meta.db "), "{found:?}");
    assert!(found.risk.contains("no container starts and no image is pulled"), "{found:?}");
    assert_eq!(names(&ContainerEngine { bolt, ..buildkit }), [""; 0]);
}

#[test]
fn a_compaction_that_fails_changes_nothing_and_the_daemon_runs_again() {
    const NONE: &str = "";
    const FAILS: &str = "echo part >$3; exit 1";
    // A Ctrl-C signals all processes of the command.
    const INTERRUPTED: &str = "echo part >$3; kill -INT $PPID $$";
    const WORKS: &str = "echo new >$3";
    let asked = "stop docker.socket docker.service\nstart docker.service\n";
    for (bbolt, wanted) in [
        (NONE, (false, "", "old\n", false)),
        (FAILS, (true, asked, "old\n", false)),
        (INTERRUPTED, (true, asked, "old\n", false)),
        (WORKS, (true, asked, "new\n", false)),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        // Another process writes the file: a child of another test's thread might still have a file
        // open that this process wrote, and its execution would fail with ETXTBSY.
        let program = |name: &str, script: &str| {
            let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\"; chmod +x \"$0\"";
            let written =
                Command::new("sh").args(["-ec", write]).arg(at(name)).arg(script).status();
            assert!(written.unwrap().success());
        };
        fs::write(at("metadata_v2.db"), "old\n").unwrap();
        fs::write(at("asked"), "").unwrap();
        program("systemctl", "echo \"$@\" >>\"${0%/*}/asked\"");
        if bbolt != NONE {
            program("bbolt", bbolt);
        }
        let found = findings(&built(at("metadata_v2.db").to_str().unwrap()));
        let path = format!("{}:/usr/bin:/bin", directory.path().display());
        let mut sh = Command::new("sh");
        sh.args(["-c", found[0].remedy.text()]).env("PATH", path);
        let has_succeeded = sh.output().unwrap().status.success();
        let [asked, database] =
            ["asked", "metadata_v2.db"].map(|name| fs::read_to_string(at(name)).unwrap());
        let is_left = at("metadata_v2.db.new").exists();
        assert_eq!((has_succeeded, &*asked, &*database, is_left), wanted, "{bbolt}");
    }
}
