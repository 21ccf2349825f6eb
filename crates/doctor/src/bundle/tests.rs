use super::*;
use crate::command::examine_record;
use crate::finding::tests::{disk, host, place};
use crate::finding::{FINDINGS, Facts, derive};
use crate::place::Space;
use serde_json::json;
use std::fs;
use std::path::Path;

/// Texts that a report must not show, in the places where machines have them.
const SECRETS: [&str; 16] = [
    "alice",
    "/home/alice/.ssh/id_ed25519",
    "build7.corp.example",
    "mysql --password=Hunter-2 -h db1",
    "http://proxyuser:s3cr3t@proxy.corp.example:3128",
    "registry.corp.example:5000/team/app:2026.11",
    "10.1.2.3",
    "fe80::1ff:fe23:4567:890a",
    "12345678",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "dXNlcjpwYXNz",
    "Grüße/päßwort",
    "lowerdir=/srv/alice:/srv/bob,size=8192k",
    "-----BEGIN",
    "52:54:00:12:34:56",
    "[fd00:10:20:30::5]:3128",
];

/// Returns `value` with `text` in place of each string, but for fields that stay whole.
fn filled(value: &Value, text: &str) -> Value {
    match value {
        Value::String(_) => text.into(),
        Value::Array(values) => values.iter().map(|value| filled(value, text)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let is_plain = PLAIN.contains(&name.as_str());
                (name.clone(), if is_plain { value.clone() } else { filled(value, text) })
            });
            Value::Object(fields.collect())
        }
        other => other.clone(),
    }
}

/// Returns parts of `text` that would be noticed, such as a host name or half a password.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c| !is_of_word(c)).filter(|word| word.len() > 3);
    words.filter(|word| !WORDS.split_whitespace().any(|known| known == *word))
}

#[test]
fn no_field_of_a_report_shows_a_name() {
    let (place, host) = (place(), host("6.18.4"));
    let facts = Facts { place: &place, host: &host, limits: &[], space: Space::Full, engine: None };
    let findings = derive(&facts, &[], &disk(8_000.0));
    let record = "{\"record\":1,\"command\":[\"make\",\"all\"]}\n\
        {\"call\":\"fsync\",\"at\":1,\"program\":\"cc\",\"ancestry\":[\"sh\"],\"file\":\"/a/b\",\
        \"wait\":8000000,\"would\":\"hold\"}\n\
        {\"call\":\"msync\",\"at\":1,\"program\":\"cc\",\"file\":\"/a/b\",\"would\":\"pass\"}\n";
    let command = examine_record(record.as_bytes(), &[]).unwrap();
    let status = json!([{"id": "a", "advice": ["a"],
        "run": {"command": ["a"], "options": ["a"], "directory": "a"}}]);
    let report = json!({"place": place, "findings": findings, "command": command,
        "status": status, "set_ups": [{"lines": ["a"]}]});
    for secret in SECRETS {
        let hidden = redacted(&filled(&report, secret)).unwrap().to_string();
        for part in parts(secret).chain([secret]) {
            assert!(!hidden.contains(part), "{part} of {secret}: {hidden}");
        }
    }
}

#[test]
fn a_name_has_one_placeholder_and_what_synconce_says_stays() {
    let report = json!({
        "kernel": "6.18.4-corp",
        "verdict": "/home/alice/app: slow-sync costs at least 43 s of an install of 55 packages",
        "command": ["apt-get", "--password=x", "install"],
        "advice": ["synconce run -- apt-get"],
        "version": "runc 1.1.5+ds1, built by alice",
        "owner": 0,
        "user": 1203945678,
        "by": ["alice.", "bob", "/var/lib/dpkg/alice", "5,210 fsync calls", "10.1.2.3", "1234"],
        "seconds": 43.25,
    });
    let expected = json!({
        "kernel": "6.18.4-corp",
        "verdict": "/home/name1/name4: slow-sync costs at least 43 s of an install of 55 packages",
        "command": ["apt-get"],
        "version": "runc 1.1.5+ds1, name6 by name1",
        "owner": 0,
        "user": "name7",
        "by": ["name1.", "name2", "/var/lib/dpkg/name1", "5,210 fsync calls", "name3", "name5"],
        "seconds": 43.25,
    });
    let hidden = redacted(&report).unwrap();
    // Numbers of placeholders follow the order of the fields.
    let shape = |value: &Value| value.to_string().replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(shape(&hidden), shape(&expected));
    let (verdict, by) = (hidden["verdict"].as_str().unwrap(), &hidden["by"]);
    let alice = by[0].as_str().unwrap().trim_end_matches('.');
    assert_eq!(by[2], format!("/var/lib/dpkg/{alice}"));
    assert!(verdict.starts_with(&format!("/home/{alice}/")), "{verdict}");
    assert_ne!(by[0], by[1]);
}

#[test]
fn interpreters_and_compilers_keep_their_versions() {
    for kept in ["python3.11 and gcc-12", "pip3, ghc-9.0.2, perl5.36", "ruby may run php8.2"] {
        assert_eq!(redacted(&kept).unwrap(), kept);
    }
    // Neither a list of any words with numbers, nor of long numbers.
    for hidden in ["host7", "build7", "python12345", "gcc-alice", "alicepython3", "python3.alice"] {
        assert_eq!(redacted(&hidden).unwrap(), "name1");
    }
}

#[test]
fn below_home_only_listed_names_with_a_dot_are_kept() {
    let report = json!([
        "/home/will/app/docker",
        "will may fails",
        "/home/docker.",
        "/home/7/.cache/cache",
        "cannot open /media/will/usb+disk/storage: Permission denied",
        "lowerdir=/run/media/may/.git/sda,volatile",
    ]);
    let expected = json!([
        "/home/name1/name2/name3",
        "will may fails",
        "/home/name3.",
        "/home/name4/.cache/name5",
        "cannot open /media/name1/name6+name7/name8: Permission denied",
        "lowerdir=/run/media/name9/.git/name10,volatile",
    ]);
    assert_eq!(redacted(&report).unwrap(), expected);
}

#[test]
fn the_version_of_a_distribution_ends_before_a_name() {
    let of = |version: &str| {
        let host = json!({"distribution": {"id": "rhel", "version": version}});
        redacted(&host).unwrap()["distribution"]["version"].clone()
    };
    assert_eq!((of("9.4-acme.corp"), of("22.04")), (json!("9.4"), json!("22.04")));
}

/// Returns the words of the string literals of a source, without its tests and comments.
fn literals(source: &str) -> Vec<String> {
    let product = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = lines.collect::<Vec<_>>().join("\n").replace("\\\"", "\u{1}");
    let inside = text.split('"').skip(1).step_by(2).map(|literal| {
        let mut shown = String::new();
        let mut depth = 0;
        for c in literal.replace("\\n", " ").chars() {
            depth += i32::from(c == '{') - i32::from(c == '}');
            shown.push(if depth > 0 || c == '}' { ' ' } else { c });
        }
        shown
    });
    let text = inside.collect::<Vec<_>>().join("\n");
    text.split(|c| !is_of_word(c)).map(str::to_owned).collect()
}

#[test]
fn the_words_of_messages_are_known() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = [
        "finding.rs",
        "finding/engine.rs",
        "finding/limits.rs",
        "finding/disk.rs",
        "finding/databases.rs",
        "text.rs",
        "in_force.rs",
        "engine.rs",
        "engine/docker.rs",
        "engine/podman.rs",
        "engine/daemon.rs",
        "engine/images.rs",
        "engine/bolt.rs",
        "measure/writes.rs",
        "measure/layers.rs",
        "measure/export.rs",
        "measure/load.rs",
        "upload.rs",
        "context/sending.rs",
        "measure/syncs.rs",
        "measure.rs",
        "command/text.rs",
        "command/waits.rs",
        "command/causes.rs",
        "../../cli/src/commands/setup/check.rs",
        "../../setup/src/running.rs",
    ];
    let mut redaction =
        Redaction { kept: WORDS.split_whitespace().collect(), placeholders: HashMap::new() };
    for file in files {
        let text = fs::read_to_string(sources.join(file)).expect(file);
        let words = literals(&text);
        assert!(words.len() > 5, "{file}");
        words.iter().for_each(|word| drop(redaction.word(word)));
    }
    let unknown: Vec<_> = redaction.placeholders.keys().collect();
    assert!(unknown.is_empty(), "add these to bundle/words.txt: {unknown:?}");
    assert!(FINDINGS.iter().all(|name| redaction.word(name) == *name));
}
