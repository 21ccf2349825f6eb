//! Which commit the files of a release were made of: an [in-toto statement] with
//! [SLSA provenance 1]. It has no signature. The same commit and files make the same text: it has
//! no time. The compiler is the one that the programs name, because a program of
//! `packaging/build --binary` may be of another one than this machine's.
//!
//! [in-toto statement]: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md
//! [SLSA provenance 1]: https://slsa.dev/spec/v1.0/provenance

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;

/// Returns the statement as JSON, for the files in `sums`, the path of an output of sha256sum(1),
/// which were made of the files `programs`.
pub fn make(
    version: &str,
    commit: &str,
    sums: &str,
    programs: &[&str],
) -> Result<String, Box<dyn Error>> {
    let mut compilers = BTreeSet::new();
    for program in programs {
        compilers.extend(compilers_of(&fs::read(program)?));
    }
    let statement = statement(version, commit, &fs::read_to_string(sums)?, &compilers)?;
    Ok(serde_json::to_string_pretty(&statement)?)
}

/// Returns the versions of rustc that a program names: rustc writes its own to `.comment`.
fn compilers_of(program: &[u8]) -> Vec<String> {
    let comment = section(program, b".comment").unwrap_or_default();
    let texts = comment.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let versions = texts.filter_map(|text| text.strip_prefix("rustc version "));
    versions.map(|version| format!("rustc {version}")).collect()
}

/// Returns a section of a 64-bit little-endian program (elf(5)).
fn section<'a>(file: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let number = |at: usize, size: usize| {
        let bytes = file.get(at..at.checked_add(size)?)?;
        bytes
            .iter()
            .rev()
            .try_fold(0_usize, |all, byte| all.checked_mul(256).map(|all| all + usize::from(*byte)))
    };
    // e_shoff, e_shentsize, e_shnum and e_shstrndx.
    let (table, size) = (number(0x28, 8)?, number(0x3a, 2)?);
    let (count, names) = (number(0x3c, 2)?, number(0x3e, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    // sh_offset and sh_size.
    let content = |at: usize| {
        let (begin, length) = (number(at + 0x18, 8)?, number(at + 0x20, 8)?);
        file.get(begin..begin.checked_add(length)?)
    };
    let names = content(header(names)?)?;
    let is_named = |at: &usize| {
        let name_of = number(*at, 4).and_then(|begin| names.get(begin..));
        name_of
            .is_some_and(|text| text.strip_prefix(name).is_some_and(|rest| rest.starts_with(&[0])))
    };
    content((0..count).filter_map(header).find(is_named)?)
}

fn statement(
    version: &str,
    commit: &str,
    sums: &str,
    compilers: &BTreeSet<String>,
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
    let mut builder = json!({"id": file("release")});
    if !compilers.is_empty() {
        let compilers: Vec<_> = compilers.iter().map(String::as_str).collect();
        builder["version"] = json!({"rustc": compilers.join(", ")});
    }
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
            "runDetails": {"builder": builder},
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
        let compilers = BTreeSet::from(["rustc 1.91.0".to_owned()]);
        let made = statement("1.2.3", COMMIT, sums, &compilers).unwrap();
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
    fn the_compiler_is_the_one_that_the_programs_name() {
        let mut program = fs::read(std::env::current_exe().unwrap()).unwrap();
        let [own] = &compilers_of(&program)[..] else { panic!("one compiler is named") };
        let name = own.replace("rustc ", "rustc version ");
        // Debug information names the compiler, too, behind or before the section that is read.
        while let Some(at) = program.windows(name.len()).position(|bytes| bytes == name.as_bytes())
        {
            program[at + "rustc version ".len()] = b'0';
        }
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        fs::write(path("other"), &program).unwrap();
        fs::write(path("none"), "no program").unwrap();
        fs::write(path("sums"), "aa11  file\n").unwrap();
        let builder = |program: &str| {
            let made = make("1.2.3", COMMIT, &path("sums"), &[&path(program)]).unwrap();
            let made: Value = serde_json::from_str(&made).unwrap();
            made["predicate"]["runDetails"]["builder"].clone()
        };
        assert_eq!(builder("other")["version"]["rustc"], own.replacen("rustc 1", "rustc 0", 1));
        assert_eq!(builder("none").get("version"), None);
    }

    #[test]
    fn nothing_is_stated_without_a_commit_or_files() {
        let sums = "aa11  file\n";
        let changed = format!("{COMMIT}-modified");
        for (commit, sums) in [("v1.2.3", sums), (&changed, sums), (COMMIT, ""), (COMMIT, "aa11\n")]
        {
            assert!(statement("1.2.3", commit, sums, &BTreeSet::new()).is_err(), "{commit} {sums}");
        }
    }
}
