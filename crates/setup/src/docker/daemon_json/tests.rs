use super::*;

const RUNTIME: &str = "/usr/local/bin/synconce-oci";

fn edited(text: &str) -> String {
    edit(Some(text), RUNTIME).unwrap().unwrap()
}

fn refused(text: &str) -> (Option<usize>, String) {
    let fault = edit(Some(text), RUNTIME).unwrap_err();
    (fault.line(), fault.reason().to_owned())
}

#[test]
fn what_is_there_keeps_its_place_and_its_spaces() {
    let text = "{\n\t\"debug\": true,\n\n\t\"dns\" : [ \"1.1.1.1\",\"8.8.8.8\" ]\n}";
    let expected = "{\n\t\"debug\": true,\n\n\t\"dns\" : [ \"1.1.1.1\",\"8.8.8.8\" ],\n\
        \t\"default-runtime\": \"synconce\",\n\t\"runtimes\": {\n\t\t\"synconce\": {\n\
        \t\t\t\"path\": \"/usr/local/bin/synconce-oci\"\n\t\t}\n\t}\n}";
    assert_eq!(edited(text), expected);
}

#[test]
fn runc_as_the_default_gives_way_in_its_place() {
    let text = "{\n  \"default-runtime\": \"runc\",\n  \"runtimes\": {\n  }\n}\n";
    let expected = "{\n  \"default-runtime\": \"synconce\",\n  \"runtimes\": {\n    \"synconce\": {\n      \
        \"path\": \"/usr/local/bin/synconce-oci\"\n    }\n  }\n}\n";
    assert_eq!(edited(text), expected);
}

#[test]
fn a_file_of_one_line_stays_json_that_go_takes() {
    let text = edited("{\"runtimes\":{\"crun\":{\"path\":\"/usr/bin/crun\"}}}");
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["runtimes"]["crun"]["path"], "/usr/bin/crun");
    assert_eq!(config["runtimes"]["synconce"]["path"], RUNTIME);
    assert_eq!(config["default-runtime"], "synconce");
}

#[test]
fn the_default_runtime_is_read_with_its_line() {
    let read = |text: &str| default_runtime(text).unwrap();
    for text in ["", "{}", "[]", "{\"runtimes\": {}}"] {
        assert_eq!(read(text), None, "{text}");
    }
    let text = "{\n \"debug\": true,\n \"default-runtime\": \"nvidia\"\n}";
    for text in [text.to_owned(), format!("\u{feff}{}", text.replace('\n', "\r\n"))] {
        assert_eq!(read(&text), Some(("nvidia".to_owned(), 3)), "{text}");
    }
    assert_eq!(default_runtime("{\n\"default-runtime\": {}}").unwrap_err().line(), Some(2));
}

#[test]
fn a_byte_order_mark_and_line_ends_of_windows_stay() {
    let text = "{\n\t\"debug\": true\n}\n";
    let plain = edited(text);
    let windows = |text: &str| text.replace('\n', "\r\n");
    for mark in ["", "\u{feff}"] {
        assert_eq!(edited(&format!("{mark}{text}")), format!("{mark}{plain}"));
        let both = format!("{mark}{}", windows(text));
        assert_eq!(edited(&both), format!("{mark}{}", windows(&plain)));
        let end = format!("{mark}{}", windows(text.trim_end()));
        assert_eq!(edited(&end), format!("{mark}{}", windows(plain.trim_end())));
        assert_eq!(edited(mark), format!("{mark}{}", edited("")));
        // A file of Windows that was edited elsewhere: what was there stays.
        let mixed = format!("{mark}{{\r\n\t\"debug\": true\n}}\r\n");
        let kept = edited(&mixed);
        assert!(kept.starts_with(&format!("{mark}{{\r\n\t\"debug\": true")), "{kept:?}");
        assert!(kept.ends_with("}\r\n"), "{kept:?}");
        assert_eq!(edit(Some(&kept), RUNTIME).unwrap(), None);
        assert_eq!(data_root(&format!("{mark}{{\r\n\"data-root\": \"/d\"}}")).unwrap(), "/d");
    }
    let line = edit(Some("\u{feff}{\r\n\"runtimes\": []}"), RUNTIME).unwrap_err().line();
    assert_eq!(line, Some(2));
}

#[test]
fn what_is_not_understood_is_refused_with_its_line() {
    for (text, line, why) in [
        ("[]", 1, "no JSON object"),
        ("{\"a\": 1}\n{}", 2, "no JSON"),
        ("{\n \"a\": 1 // why\n}", 2, "no JSON"),
        ("{\n \"a\": 1,\n}", 2, "no JSON"),
        ("{\n 'a': 1\n}", 2, "no JSON"),
        ("{\n \"runtimes\": []\n}", 2, "\"runtimes\" is no object"),
        ("{\n \"default-runtime\": 1\n}", 2, "\"default-runtime\" is no text"),
        ("{\"runtimes\": {},\n\"runtimes\": {}}", 2, "twice"),
        ("{\"default-runtime\": \"runc\",\n\n\"default-runtime\": \"x\"}", 3, "twice"),
        ("{\"runtimes\": {\n\"synconce\": {\"path\": \"/x\"}}}", 2, "not /usr/local/bin"),
        (
            "{\"runtimes\": {\n\"synconce\": {\"path\": \"/usr/local/bin/synconce-oci\", \
          \"runtimeArgs\": []}}}",
            2,
            "not /usr/local/bin",
        ),
    ] {
        let (at, reason) = refused(text);
        assert_eq!(at, Some(line), "{text}: {reason}");
        assert!(reason.contains(why), "{text}: {reason}");
    }
}
