//! Which commit the files of a release were made of: an [in-toto statement] with [SLSA provenance 1].
//! It has no signature. The same commit, files and compiler make the same text: it has no time.
//!
//! [in-toto statement]: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
//! [SLSA provenance 1]: https://slsa.dev/spec/v1.0/provenance

use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::process::Command;

/// Returns the statement as JSON, for the files in `sums`, the path of an output of sha256sum(1).
pub fn make(version: &str, commit: &str, sums: &str) -> Result<String, Box<dyn Error>> {
    let asked = Command::new("rustc").arg("--version").output()?;
    let compiler = String::from_utf8(asked.stdout)?;
    let statement = statement(version, commit, &fs::read_to_string(sums)?, compiler.trim())?;
    Ok(serde_json::to_string_pretty(&statement)?)
}

fn statement(
    version: &str,
    commit: &str,
    sums: &str,
    compiler: &str,
) -> Result<Value, Box<dyn Error>> {
    if commit.len() != 40 || !commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("cannot state a provenance: {commit:?} is no commit").into());
    }
    let subjects: Vec<_> = sums.lines().map(subject).collect::<Result<_, _>>()?;
    if subjects.is_empty() {
        return Err("cannot state a provenance: there are no files".into());
    }
    let project = env!("CARGO_PKG_REPOSITORY");
    let source = format!("git+{project}@{commit}");
    let file = |name: &str| format!("{project}/blob/{commit}/packaging/{name}");
    Ok(json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": file("build"),
                "externalParameters": {"source": source, "version": version},
                "resolvedDependencies": [{"uri": source, "digest": {"gitCommit": commit}}],
            },
            "runDetails": {"builder": {"id": file("release"), "version": {"rustc": compiler}}},
        },
    }))
}

/// Returns the subject of a line of sha256sum(1).
fn subject(line: &str) -> Result<Value, String> {
    let (sum, name) =
        line.split_once("  ").ok_or_else(|| format!("{line:?} is no line of sha256sum"))?;
    Ok(json!({"name": name, "digest": {"sha256": sum}}))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn each_file_is_a_subject_and_the_commit_is_what_they_were_made_of() {
        let sums = "aa11  synconce_1.2.3_amd64.deb\nbb22  synconce-1.2.3-image.tar\n";
        let made = statement("1.2.3", COMMIT, sums, "rustc 1.91.0").unwrap();
        let names: Vec<_> = made["subject"].as_array().unwrap().iter().collect();
        assert_eq!(names.len(), 2);
        assert_eq!(names[1]["name"], "synconce-1.2.3-image.tar");
        assert_eq!(names[1]["digest"]["sha256"], "bb22");
        let definition = &made["predicate"]["buildDefinition"];
        let commit = &definition["resolvedDependencies"][0]["digest"]["gitCommit"];
        assert_eq!(commit, COMMIT);
        assert_eq!(definition["externalParameters"]["version"], "1.2.3");
        let builder = &made["predicate"]["runDetails"]["builder"];
        assert!(builder["id"].as_str().unwrap().ends_with("/packaging/release"), "{builder}");
        assert_eq!(builder["version"]["rustc"], "rustc 1.91.0");
    }

    #[test]
    fn nothing_is_stated_without_a_commit_or_files() {
        let sums = "aa11  file\n";
        let changed = format!("{COMMIT}-modified");
        for (commit, sums) in [("v1.2.3", sums), (&changed, sums), (COMMIT, ""), (COMMIT, "aa11\n")]
        {
            assert!(statement("1.2.3", commit, sums, "rustc").is_err(), "{commit} {sums}");
        }
    }
}
