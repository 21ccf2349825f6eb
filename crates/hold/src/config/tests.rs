use super::*;

fn read(text: &str) -> Result<Config, Unusable> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.toml");
    std::fs::write(&path, text).unwrap();
    Config::read(path.as_os_str())
}

#[test]
fn the_least_file_has_one_path_and_refuses_after_a_crash() {
    let config = read("[[hold]]\npath = \"/a/b\"\nkind = \"bolt\"\n").unwrap();
    assert_eq!((config.name.as_str(), config.after_crash), ("test", AfterCrash::Refuse));
    assert_eq!(config.to_set_aside(), [PathBuf::from("/a/b")]);
}

#[test]
fn what_has_no_sense_is_named() {
    let hold = "[[hold]]\npath = \"/a/b\"\nkind = \"bolt\"\n";
    for (text, said) in [
        ("hold = []", "nothing would be held"),
        (&format!("afer_crash = \"wipe\"\n{hold}"), "line 1"),
        ("[[hold]]\npath = \"a\"\nkind = \"bolt\"\n", "absolute"),
        ("[[hold]]\npath = \"/a/../b\"\nkind = \"bolt\"\n", "\"/a/../b\" has \"..\""),
        ("[[hold]]\npath = \"/\"\nkind = \"other\"\n", "\"/\" is the root of the system"),
        ("[[hold]]\npath = \"/a/*\"\nkind = \"bolt\"\n", "which only set_aside may have"),
        (&format!("{hold}{hold}"), "path: \"/a/b\" is given twice"),
        (
            &format!("{hold}[[hold]]\npath = \"/a\"\nkind = \"other\"\n"),
            "path: \"/a/b\" is in \"/a\", which is held as a whole",
        ),
        (&format!("set_aside = [\"/a/?/b\"]\n{hold}"), "set_aside: \"/a/?/b\" has a wildcard"),
        (&format!("docker_root = \"docker\"\n{hold}"), "docker_root: \"docker\" is not abs"),
        (&format!("unit = \"a b/c\"\n{hold}"), "unit: \"a b/c\" is no name of a systemd unit"),
        (&format!("unit = \"\"\n{hold}"), "unit: \"\" is no name of a systemd unit"),
        (&format!("unit = \".service\"\n{hold}"), "unit: \".service\" is no name"),
        (&format!("unit = \"--now\"\n{hold}"), "unit: \"--now\" is no name"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("test.toml"), "{text}: {error}");
    }
}

#[test]
fn a_misspelled_word_is_answered_with_those_that_are_accepted() {
    let hold = "[[hold]]\npath = \"/a/b\"\nkind = \"bolt\"\n";
    for (text, said) in
        [("afer_crash = \"wipe\"", "`after_crash`"), ("after_crash = \"wip\"", "`wipe`")]
    {
        let error = read(&format!("{text}\n{hold}")).unwrap_err().to_string();
        let (_, accepted) = error.split_once(", expected ").expect("a list");
        assert!(accepted.contains(said), "{error}");
    }
}

#[test]
fn wildcards_work_in_the_last_name_of_what_is_set_aside() {
    let hold = "[[hold]]\npath = \"/a/b\"\nkind = \"bolt\"\n";
    let config = read(&format!("set_aside = [\"/a/b*\", \"/a/c?\"]\n{hold}")).unwrap();
    assert_eq!(config.to_set_aside(), [PathBuf::from("/a/b*"), PathBuf::from("/a/c?")]);
}

#[test]
fn a_name_that_is_no_file_name_is_refused() {
    for name in ["", ".", "a b", "a.b", "/x/.toml"] {
        assert!(matches!(Config::read(OsStr::new(name)), Err(Unusable::Name(_))), "{name}");
    }
}

#[test]
fn a_file_that_is_missing_is_said_with_the_holds_that_there_are() {
    let path = PathBuf::from("/etc/synconce/hold.d/jbos.toml");
    let said = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Unusable::Read(path.clone(), ErrorKind::NotFound.into(), names).to_string()
    };
    assert!(said(&[]).starts_with("cannot read /etc/synconce/hold.d/jbos.toml: "));
    assert!(!said(&[]).contains("the holds are"));
    assert!(said(&["jobs", "mail"]).ends_with("; the holds are jobs, mail"));
}
