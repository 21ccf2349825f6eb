use super::*;
use crate::observer::SilentObserver;

#[test]
fn a_context_is_counted_by_what_is_sent_ignored_and_seldom_needed() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, size: usize| {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; size]).unwrap();
    };
    write("src/main.rs", 10);
    write("src/node_modules/a/index.js", 300);
    write("lib/node_modules/b", 100);
    write(".git/objects/1", 50);
    write("target/CACHEDIR.TAG", 5);
    write("target/debug/a.o", 1_000);
    write("two\nlines", 2_000);
    std::os::unix::fs::symlink("main.rs", directory.path().join("src/link")).unwrap();
    write(".dockerignore", 0);
    fs::write(directory.path().join(".dockerignore"), ".git\n").unwrap();
    let examine = || {
        let context = ContextDirectory::open(directory.path()).unwrap();
        examine_context(context, None, &mut SilentObserver(None)).unwrap()
    };
    let found = examine();
    assert_eq!(found.ignored, Amount { entries: 3, bytes: 50 });
    // src, main.rs, link, node_modules, a, index.js; lib, node_modules, b; target,
    // CACHEDIR.TAG, debug, a.o; two\nlines; .dockerignore
    let bytes = 10 + 300 + 100 + 5 + 1_000 + 2_000 + 5;
    assert_eq!(found.sent, Amount { entries: 15, bytes });
    assert_eq!(found.symbolic_links, 1);
    let seldom: Vec<_> = found
        .could_be_ignored
        .iter()
        .map(|part| (part.path.to_str().unwrap(), part.amount.bytes))
        .collect();
    assert_eq!(seldom, [("target", 1_005), ("**/node_modules", 400)]);
    for file in 0..5 {
        write(&format!("src/.tox/{file}"), 0);
    }
    write("lib/.cache/one", 1_000);
    let more = examine();
    let lines: Vec<_> = more.could_be_ignored.iter().map(|it| it.path.to_str().unwrap()).collect();
    assert_eq!(lines, ["**/.tox", "target", "**/node_modules", "**/.cache"]);
    assert_eq!(found.largest_files[0].path, Path::new("two\nlines"));
    let text = found.text();
    assert_eq!(text.lines().next(), text.lines().last(), "{text}");
    assert!(text.contains(".dockerignore could save 1.4 kB in 9 entries"), "{text}");
    assert!(text.contains("1  two\\nlines\n"), "{text}");
    assert_eq!(Amount { entries: 1, bytes: 2 }.shown(), "2 B in 1 entry");
}

#[test]
fn a_fifo_in_the_place_of_the_ignore_file_is_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join(".dockerignore");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let (sender, opened) = std::sync::mpsc::channel();
    let context = directory.path().to_owned();
    std::thread::spawn(move || sender.send(ContextDirectory::open(&context)));
    let opened = opened.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits");
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("it is no regular file"), "{error}");
}
