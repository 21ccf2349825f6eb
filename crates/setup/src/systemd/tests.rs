use super::*;

fn service(texts: &[&str]) -> Service {
    let mut service = Service::default();
    let mut files = Vec::new();
    for text in texts {
        service.add(Path::new("unit"), text, &mut files);
    }
    service
}

#[test]
fn quotes_hold_words_together_and_are_no_part_of_them() {
    assert_eq!(words(" a  'b c' \"d=e f\"g '' "), ["a", "b c", "d=e fg", ""]);
    assert!(words("  ").is_empty());
}

#[test]
fn a_word_is_quoted_where_it_would_be_none() {
    assert_eq!(quoted("PATH=/a:/b"), "PATH=/a:/b");
    assert_eq!(quoted("PATH=/a b"), "\"PATH=/a b\"");
    assert_eq!(quoted("A=\"'\\"), "\"A=\\\"'\\\\\"");
}

#[test]
fn a_command_over_several_lines_is_one_and_comments_between_are_none() {
    let text = "[Service]\nExecStart=/bin/d --a \\\n# no --b\n  --c=1 \\\n --d 2\nType=notify\n";
    let service = service(&[text]);
    assert_eq!(service.program(), Some("/bin/d"));
    assert_eq!(service.flag("--b"), None);
    assert_eq!(service.flag("--c").and_then(|(_, value)| value).as_deref(), Some("1"));
    let (said, value) = service.flag("--d").unwrap();
    assert_eq!((said.line, value.as_deref()), (2, Some("2")));
}

#[test]
fn an_empty_assignment_takes_back_what_was_said() {
    let service = service(&[
        "[Service]\nExecStart=/bin/a --x\nEnvironment=PATH=/a\n",
        "[Unit]\nExecStart=/no\n[Service]\nExecStart=\nExecStart=-/bin/b\nEnvironment=\n",
    ]);
    assert_eq!(service.program(), Some("/bin/b"));
    assert_eq!((service.flag("--x"), service.variable("PATH")), (None, None));
}

#[test]
fn the_last_value_of_a_variable_counts() {
    let service = service(&["[Service]\nEnvironment=A=1 \"B=2 3\"\nEnvironment=A=4\n"]);
    assert_eq!(service.variable("A").map(|said| (said.text, said.line)), Some(("4".into(), 3)));
    assert_eq!(service.variable("B").map(|said| said.text).as_deref(), Some("2 3"));
}

#[test]
fn a_flag_in_a_variable_is_found_because_the_command_may_use_it() {
    let text = "[Service]\nEnvironment=\"OPTS=--a --b=c\"\nExecStart=/bin/d $OPTS\n";
    assert!(service(&[text]).flag("--b").is_some());
    assert_eq!(variables(Path::new("v"), "# A=1\n B=\"--x y\" \n")[0].text, "B=--x y");
}
