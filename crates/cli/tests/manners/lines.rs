//! Help, version, and command lines that are nearly right.

use libtest_mimic::Trial;
use synconce_testkit::harness::{Place, binary, finish, trial};
use synconce_testkit::process::Finished;

pub fn trials() -> Vec<Trial> {
    vec![
        trial(help_of_a_command_is_what_its_option_prints, &[]),
        trial(help_of_a_command_with_its_operand_is_that_of_the_command, &[]),
        trial(the_help_has_commands_to_type_and_names_the_manual, &[]),
        trial(help_of_no_command_is_an_error, &[]),
        trial(every_form_of_version_prints_the_same, &[]),
        trial(a_program_as_the_first_word_gets_the_run_that_holds_it, &[]),
        trial(a_mistyped_command_gets_the_nearest_one, &[]),
        trial(words_of_other_builders_get_those_of_trees, &[]),
        trial(hidden_commands_are_not_suggested, &[]),
        trial(words_in_another_order_get_the_command_line_that_works, &[]),
        trial(an_unknown_option_of_a_run_is_not_taken_for_its_command, &[]),
        trial(an_option_before_its_command_gets_the_line_that_works, &[]),
        trial(a_hold_run_without_its_name_names_what_is_missing, &[]),
        trial(setup_without_an_engine_lists_the_engines, &[]),
        trial(setup_of_another_name_suggests_the_engine, &[]),
        trial(a_benchmark_without_a_round_is_refused, &[]),
        trial(on_a_new_machine_lists_say_what_they_would_show, &[]),
        trial(an_option_without_its_id_names_the_command_that_lists_ids, &[]),
        trial(hidden_commands_are_not_in_the_help, &[]),
        trial(help_wraps_at_the_width_of_the_terminal, &[]),
    ]
}

fn ends(place: &Place, words: &[&str]) -> Finished {
    finish(&mut place.synconce(words))
}

fn help_of_a_command_is_what_its_option_prints(place: &Place) {
    for words in [&[][..], &["run"], &["status"], &["tree"], &["tree", "run"], &["bench", "tree"]] {
        let help = ends(place, &[&["help"], words].concat());
        let option = ends(place, &[words, &["--help"]].concat());
        assert!(help.status.success() && help.stderr.is_empty(), "{words:?}: {help:?}");
        assert!(help.stdout.contains("Usage: synconce"), "{words:?}: {help:?}");
        assert_eq!(help.stdout, option.stdout, "{words:?}");
    }
}

/// `help setup docker` is typed after `setup docker`.
fn help_of_a_command_with_its_operand_is_that_of_the_command(place: &Place) {
    let wanted = ends(place, &["setup", "--help"]).stdout;
    for words in [["help", "setup", "docker"], ["help", "setup", "apt"]] {
        let help = ends(place, &words);
        assert!(help.status.success() && help.stdout == wanted, "{words:?}: {help:?}");
    }
    let none = ends(place, &["help", "setup", "dokcer"]);
    assert_eq!(none.status.code(), Some(125), "{none:?}");
}

fn the_help_has_commands_to_type_and_names_the_manual(place: &Place) {
    let help = ends(place, &["--help"]).stdout;
    let examples: Vec<_> = help.lines().filter(|line| line.contains("synconce run -- ")).collect();
    assert!(examples.len() == 1 && help.contains("  sudo synconce setup docker\n"), "{help}");
    assert!(help.contains("\n  synconce status\n"), "{help}");
    assert!(help.contains("man synconce-run"), "{help}");
}

fn help_of_no_command_is_an_error(place: &Place) {
    for (words, why) in [
        (&["help", "rnu"][..], "unrecognized subcommand 'rnu'"),
        (&["help", "run", "ls"], "there is no command 'run ls'"),
        (&["help", "tree", "nothing"], "unrecognized subcommand 'nothing'"),
    ] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(why) && ended.stdout.is_empty(), "{words:?}: {ended:?}");
    }
}

fn every_form_of_version_prints_the_same(place: &Place) {
    let wanted = format!("synconce {}\n", env!("CARGO_PKG_VERSION"));
    for word in ["version", "--version", "-V", "-v"] {
        let ended = ends(place, &[word]);
        assert!(ended.status.success(), "{word}: {ended:?}");
        assert_eq!(ended.stdout, wanted, "{word}");
    }
}

fn a_program_as_the_first_word_gets_the_run_that_holds_it(place: &Place) {
    let ended = ends(place, &["sh", "-c", "touch made"]);
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    let wanted = "synconce: sh is not a command of synconce\n\
                  synconce: hint: synconce run -- sh -c 'touch made'\n";
    assert_eq!(ended.stderr, wanted);
    assert!(!place.path("made").exists(), "nothing was executed");

    place.write("configure", "#!/bin/sh\n");
    let plain = ends(place, &["./configure"]);
    assert!(plain.stderr.ends_with("hint: synconce run -- ./configure\n"), "{plain:?}");
    place.bare(&["chmod", "+x", "configure"]);
    let program = ends(place, &["./configure", "--prefix=/usr"]);
    assert!(program.stderr.contains("synconce run -- ./configure --prefix=/usr\n"), "{program:?}");

    place.write("docker", "#!/bin/sh\n");
    place.bare(&["chmod", "+x", "docker"]);
    let client = ends(place, &["./docker", "build", "."]);
    let set_up = format!("hint: sudo {} setup docker", binary());
    assert!(client.stderr.contains(&set_up), "{client:?}");

    for (words, command) in [
        (&["--", "sh", "-c", "exit 3"][..], "sh -c 'exit 3'"),
        (&["--", "true"], "true"),
        (&["--", "./none"], "./none"),
        (&["./none", "all"], "./none all"),
    ] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let hint = format!("\nsynconce: hint: synconce run -- {command}\n");
        assert!(ended.stderr.ends_with(&hint), "{words:?}: {ended:?}");
    }

    let both = ends(place, &["stat", "/"]);
    assert!(
        both.stderr.ends_with("hint: synconce run -- stat /; or: synconce status\n"),
        "{both:?}"
    );
}

fn a_mistyped_command_gets_the_nearest_one(place: &Place) {
    for (words, nearest) in [
        (&["statsu"][..], "'status'"),
        (&["rnu", "true"], "'run'"),
        (&["ru"], "'run'"),
        (&["statu"], "'status'"),
        (&["tree", "clnoe"], "'clone'"),
        (&["help", "tree", "clnoe"], "'clone'"),
        (&["tree", "delete", "base"], "'remove'"),
        (&["exec", "--", "true"], "'run'"),
        (&["hold", "list"], "'status'"),
        (&["hold", "show"], "'status'"),
        (&["list"], "'status'"),
    ] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let tip = format!("\n  tip: a similar subcommand exists: {nearest}\n");
        assert!(ended.stderr.contains(&tip), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("synconce run --"), "{words:?}: {ended:?}");
    }
}

/// `cowbuilder --login`, `sbuild -c`, `schroot -u`, `systemd-nspawn --chdir`.
fn words_of_other_builders_get_those_of_trees(place: &Place) {
    for (word, nearest) in [
        ("login", "a similar subcommand exists: 'run'"),
        ("update", "a similar subcommand exists: 'run'"),
        ("build", "a similar subcommand exists: 'run'"),
        ("create", "some similar subcommands exist: 'import', 'clone'"),
        ("info", "a similar subcommand exists: 'list'"),
        ("prune", "a similar subcommand exists: 'gc'"),
        ("history", "a similar subcommand exists: 'log'"),
    ] {
        let ended = ends(place, &["tree", word, "base"]);
        assert_eq!(ended.status.code(), Some(125), "{word}: {ended:?}");
        assert!(ended.stderr.contains(&format!("\n  tip: {nearest}\n")), "{word}: {ended:?}");
    }
    for (option, nearest) in [
        ("-u", "--user"),
        ("-c", "--from"),
        ("-d", "--directory"),
        ("-w", "--directory"),
        ("--chdir", "--directory"),
        ("-e", "--setenv"),
        ("--env", "--setenv"),
        ("--volume", "--bind"),
    ] {
        for before in [&["tree", "run"][..], &["tree", "--store", "s", "run"]] {
            let words = [before, &[option, "value", "base", "true"]].concat();
            let ended = ends(place, &words);
            assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
            let tip = format!("\n  tip: a similar argument exists: '{nearest}'\n");
            assert!(ended.stderr.contains(&tip), "{words:?}: {ended:?}");
        }
    }
    for (words, line) in [
        (&["tree", "help"][..], "synconce help tree\n"),
        (&["tree", "help", "run"], "synconce help tree run\n"),
    ] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        assert!(ended.stderr.ends_with(&format!("synconce: hint: {line}")), "{words:?}: {ended:?}");
    }
    let other = ends(place, &["run", "-u", "nobody", "true"]);
    assert!(!other.stderr.contains("tip:"), "{other:?}");
}

fn hidden_commands_are_not_suggested(place: &Place) {
    for (words, hidden) in [(&["tree", "ente"][..], "'enter'"), (&["bench", "lop"], "'loop'")] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains(hidden), "{words:?}: {ended:?}");
    }
}

/// `synconce doctor make check` and `synconce docker setup`.
fn words_in_another_order_get_the_command_line_that_works(place: &Place) {
    for (words, line) in [
        (&["doctor", "sh", "-c", "exit 3"][..], "doctor -- sh -c 'exit 3'"),
        (&["doctor", "sh"], "doctor -- sh"),
        (&["podman", "setup"], "setup podman"),
    ] {
        place.write("podman", "#!/bin/sh\n");
        place.bare(&["chmod", "+x", "podman"]);
        let path = format!("{}:{}", place.text(""), std::env::var("PATH").unwrap());
        let ended = finish(place.synconce(words).env("PATH", path));
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let hint = format!("synconce: hint: synconce {line}\n");
        assert!(ended.stderr.ends_with(&hint), "{words:?}: {ended:?}");
    }
    let other = ends(place, &["doctor", "none", "none"]);
    assert!(!other.stderr.contains("hint: "), "{other:?}");
}

/// clap advises `-- -i`, by which the run would execute `-i`.
fn an_unknown_option_of_a_run_is_not_taken_for_its_command(place: &Place) {
    for (words, hint) in [
        (
            &["tree", "run", "-it", "base", "sh"][..],
            "synconce tree run --from NAME keeps nothing\n",
        ),
        (&["tree", "run", "--rm", "base", "sh"], "synconce tree run --from NAME keeps nothing\n"),
        (&["run", "--nice", "true"], "For more information, try '--help'.\n"),
    ] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("tip:"), "{words:?}: {ended:?}");
        assert!(ended.stderr.ends_with(hint), "{words:?}: {ended:?}");
    }
    for before in [&["run"][..], &["tree", "run"]] {
        let verbose = ends(place, &[before, &["--verbose", "true"]].concat());
        assert!(verbose.stderr.contains("a similar argument exists: '--stats'"), "{verbose:?}");
    }
    for option in ["--except", "--commit-only"] {
        let dash = ends(place, &["run", option, "-d/*", "--", "true"]);
        let hint = format!("\nsynconce: hint: synconce run '{option}=-d/*' -- true\n");
        assert!(dash.stderr.ends_with(&hint), "{dash:?}");
    }
    let near = ends(place, &["run", "--stat", "true"]);
    assert!(near.stderr.contains("tip: a similar argument exists: '--stats'"), "{near:?}");
}

fn an_option_before_its_command_gets_the_line_that_works(place: &Place) {
    for (words, line) in [
        (&["-v", "run", "--", "make", "-v"][..], "run -v -- make -v"),
        (&["--stats", "run", "make"], "run --stats make"),
        (&["-v", "--sealed", "run", "make"], "run -v --sealed make"),
        (&["--json=file", "status"], "status --json=file"),
        (&["-v", "tree", "run", "base"], "tree run -v base"),
        (&["tree", "-v", "run", "base"], "tree run -v base"),
    ] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let hint = format!("\nsynconce: hint: synconce {line}\n");
        assert!(ended.stderr.ends_with(&hint), "{words:?}: {ended:?}");
    }
    // No command that follows has the option.
    for words in [&["-v", "status"][..], &["-v", "make"], &["--json", "-v", "status"]] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("hint:"), "{words:?}: {ended:?}");
    }
}

/// clap takes the only word behind `--` for NAME.
fn a_hold_run_without_its_name_names_what_is_missing(place: &Place) {
    for (words, missing) in [
        (&["hold", "run", "--", "true"][..], "<NAME>"),
        (&["hold", "run", "name", "--"], "<COMMAND>..."),
        (&["hold", "run", "name"], "<COMMAND>..."),
        (&["hold", "run", "--"], "<NAME>\n  <COMMAND>..."),
    ] {
        let ended = ends(place, words);
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let wanted = format!("required arguments were not provided:\n  {missing}\n\nUsage: ");
        assert!(ended.stderr.contains(&wanted), "{words:?}: {ended:?}");
    }
}

fn setup_without_an_engine_lists_the_engines(place: &Place) {
    let ended = ends(place, &["setup"]);
    assert_eq!((ended.status.code(), &ended.stdout[..]), (Some(125), ""), "{ended:?}");
    assert!(ended.stderr.contains("podman"), "{ended:?}");
}

fn setup_of_another_name_suggests_the_engine(place: &Place) {
    for (word, engine) in [
        ("k8s", "kubernetes"),
        ("kubectl", "kubernetes"),
        ("kubernets", "kubernetes"),
        ("containerd.service", "containerd"),
        ("ctr", "containerd"),
        ("dockerd", "docker"),
        ("docker.service", "docker"),
        ("buildx", "docker"),
        ("docker-buildx", "docker"),
        ("moby", "docker"),
        ("buildah", "podman"),
        ("buildkitd", "buildkit"),
        ("nerdctl", "buildkit"),
        ("apt-get", "apt"),
        ("dpkg", "apt"),
    ] {
        let ended = ends(place, &["setup", word, "--check"]);
        assert_eq!(ended.status.code(), Some(125), "{ended:?}");
        let tip = format!("tip: a similar value exists: '{engine}'\n");
        assert!(ended.stderr.contains(&tip), "{word}: {ended:?}");
    }
}

fn a_benchmark_without_a_round_is_refused(place: &Place) {
    let ended = ends(place, &["bench", "cost", "--rounds", "0"]);
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    assert!(ended.stderr.contains("0 is not in 1.."), "{ended:?}");
}

fn on_a_new_machine_lists_say_what_they_would_show(place: &Place) {
    let (store, import) = (place.text("store"), "`synconce tree import NAME SOURCE` makes one");
    for (words, said) in [
        (&["status"][..], "no run in flight or interrupted, no hold, no held build step\n".into()),
        (&["status", "--quiet"], String::new()),
        (&["status", "--json"], String::new()),
        (&["tree", "list"], format!("no trees in {store}\nsynconce: hint: {import}\n")),
        (&["tree", "--quiet", "list"], String::new()),
        (&["tree", "--json", "list"], String::new()),
    ] {
        let ended = finish(place.synconce(words).env("SYNCONCE_TREES", &store));
        assert!(ended.status.success(), "{words:?}: {ended:?}");
        let said = if said.is_empty() { said } else { format!("synconce: {said}") };
        assert_eq!(ended.stderr, said, "{words:?}");
        let output = if words.contains(&"--json") { "[]\n" } else { "" };
        assert_eq!(ended.stdout, output, "{words:?}");
    }
    assert!(
        !place.path("store").exists() && !place.path("state").exists(),
        "looking makes nothing"
    );
    let mistyped = ends(place, &["tree", "--store", "none", "list"]);
    assert_eq!(mistyped.status.code(), Some(125), "{mistyped:?}");
}

fn an_option_without_its_id_names_the_command_that_lists_ids(place: &Place) {
    for option in ["--mend", "--clear"] {
        let ended = ends(place, &["status", option]);
        assert_eq!(ended.status.code(), Some(125), "{option}: {ended:?}");
        assert!(ended.stderr.ends_with("\nsynconce: hint: synconce status\n"), "{ended:?}");
    }
    let other = ends(place, &["status", "--root"]);
    assert!(!other.stderr.contains("hint: "), "{other:?}");
}

fn hidden_commands_are_not_in_the_help(place: &Place) {
    for (words, hidden) in [(["help", "tree"], "  enter "), (["help", "bench"], "  loop ")] {
        let help = ends(place, &words).stdout;
        assert!(help.contains("Commands:\n") && !help.contains(hidden), "{words:?}: {help}");
    }
}

fn help_wraps_at_the_width_of_the_terminal(place: &Place) {
    let widest = |columns: &str| {
        let ended = finish(place.synconce(&["run", "--help"]).env("COLUMNS", columns));
        ended.stdout.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    };
    assert!(widest("60") <= 60);
    assert!((61..=100).contains(&widest("200")), "a line to be read is not longer");
}
