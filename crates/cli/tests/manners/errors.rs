//! Messages of failures: an act, an object and a reason in words.

use libtest_mimic::Trial;
use std::os::unix::fs::PermissionsExt;
use synconce_testkit::harness::{Place, binary, finish, trial};

pub fn trials() -> Vec<Trial> {
    vec![
        trial(no_message_has_the_number_of_an_error, &[]),
        trial(every_command_says_the_same_of_a_root_that_does_not_exist, &[]),
        trial(a_wrong_number_is_told_what_it_has_to_be, &[]),
        trial(a_size_of_a_benchmark_out_of_range_is_refused_before_any_work, &[]),
        trial(a_package_of_an_unknown_architecture_is_refused_before_any_work, &[]),
        trial(a_quoted_command_line_gets_the_one_that_works, &[]),
        trial(a_word_of_a_shell_in_place_of_a_command_gets_the_line_that_works, &[]),
        trial(a_script_with_carriage_returns_gets_the_line_that_removes_them, &[]),
        trial(a_script_that_names_synconce_as_its_interpreter_does_not_run_for_ever, &[]),
        trial(an_empty_name_of_a_command_is_quoted, &[]),
        trial(a_relative_directory_in_the_environment_is_refused, &[]),
        trial(a_set_up_by_an_ordinary_user_names_the_command_for_root, &[]),
        trial(a_client_of_a_daemon_gets_the_set_up_that_holds_the_daemon, &[]),
        trial(a_client_of_a_daemon_elsewhere_gets_a_hint_with_the_host, &[]),
        trial(a_client_of_the_daemon_of_the_containers_host_is_told_to_set_up_the_host, &[]),
    ]
}

fn no_message_has_the_number_of_an_error(place: &Place) {
    for words in [
        &["run", "--commit-only", "none", "--", "true"][..],
        &["run", "--", "/none"],
        &["run", "--", "/etc"],
        &["real", "--", "/none"],
        &["run", "--no-commit", "--", binary(), "real", "--", "/none"],
        &["commit", "--json=none/file"],
        &["oci", "--explain", "none"],
        &["bench", "compile", "--source", "none"],
        &["bench", "cost", "--dir", "file"],
        &["bench", "loop", "fsync", "1", "none/file"],
        &["setup", "docker", "--runtime", "none"],
        &["tree", "--store", "none", "list"],
        &["tree", "--store", "file/none", "import", "a", "."],
        &["status", "--root", "file"],
    ] {
        place.write("file", "");
        let ended = finish(&mut place.synconce(words));
        assert!(!ended.status.success(), "{words:?}: {ended:?}");
        assert!(ended.stderr.starts_with("synconce"), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("os error"), "{words:?}: {ended:?}");
    }
}

fn every_command_says_the_same_of_a_root_that_does_not_exist(place: &Place) {
    let words: [&[&str]; 3] = [
        &["run", "--root", "none", "--", "true"],
        &["status", "--root", "none"],
        &["setup", "docker", "--root", "none"],
    ];
    for words in words {
        let ended = finish(&mut place.synconce(words));
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let wanted = "synconce: cannot use --root none: no such directory\nsynconce: hint: ";
        assert!(ended.stderr.starts_with(wanted), "{words:?}: {ended:?}");
    }
}

fn a_wrong_number_is_told_what_it_has_to_be(place: &Place) {
    for number in ["0", "x", "1.5", "", "99999999999999999999"] {
        let words = ["tree", "run", "--pids-limit", number, "tree", "true"];
        let ended = finish(&mut place.synconce(&words));
        assert_eq!(ended.status.code(), Some(125), "{words:?}: {ended:?}");
        let why = "it is a whole number above 0\n";
        assert!(ended.stderr.contains(why), "{words:?}: {ended:?}");
    }
    for number in ["0", "x", ""] {
        let ended = finish(&mut place.synconce(&["doctor", "--fail-on", number, "."]));
        assert_eq!(ended.status.code(), Some(125), "{number}: {ended:?}");
        let why = "it is a number above 0, such as 90, 5m, 1.5h or 2d\n";
        assert!(ended.stderr.contains(why), "{number}: {ended:?}");
    }
    for option in ["--commit-every", "--commit-timeout"] {
        let run = |time| finish(&mut place.held(&[option, time], &["true"]));
        for time in ["9", "1.5", "90s", "5m", "1h"] {
            let ended = run(time);
            assert!(ended.status.success(), "{option} {time}: {ended:?}");
        }
        for time in ["0", "x", "", "5 m"] {
            let ended = run(time);
            assert_eq!(ended.status.code(), Some(125), "{option} {time}: {ended:?}");
            let why = "it is a number above 0, such as 90, 5m, 1.5h or 2d\n";
            assert!(ended.stderr.contains(why), "{option} {time}: {ended:?}");
        }
    }
}

fn a_size_of_a_benchmark_out_of_range_is_refused_before_any_work(place: &Place) {
    for (option, size, range) in [
        ("--copy-up", "0", "1..=16384"),
        ("--copy-up", "16385", "1..=16384"),
        ("--chown", "0", "1..=1000000"),
        ("--chown", "1000001", "1..=1000000"),
    ] {
        // Without the range, the unknown variant would be the error.
        let words = ["bench", "build", "--dir", ".", "--variants", "none", option, size];
        let ended = finish(&mut place.synconce(&words));
        assert_eq!(ended.status.code(), Some(125), "{option}: {ended:?}");
        let why = format!("invalid value '{size}' for '{option} <");
        assert!(ended.stderr.contains(&why), "{ended:?}");
        assert!(ended.stderr.contains(&format!(">': {size} is not in {range}\n")), "{ended:?}");
    }
}

fn a_package_of_an_unknown_architecture_is_refused_before_any_work(place: &Place) {
    for scenario in ["install", "build", "tree"] {
        for (package, architecture) in [("hello:nosuch", "nosuch"), ("x:y:x86_64", "x86_64")] {
            let words = ["bench", scenario, "--dir", ".", "--variants", "none", "--packages"];
            let mut bench = place.synconce(&words);
            bench.args([&format!("gcc,{package}"), "--mirror", "http://mirror.invalid"]);
            let ended = finish(&mut bench);
            assert_eq!(ended.status.code(), Some(125), "{ended:?}");
            let why = format!(
                "synconce: cannot use {package}: there is no architecture {architecture}; name one \
                 of Debian's, such as arm64\n"
            );
            assert_eq!(ended.stderr, why);
        }
    }
}

fn an_empty_name_of_a_command_is_quoted(place: &Place) {
    for words in [&["run", "--", ""][..], &["real", "--", ""], &["run", "--", "sh", "-c", REAL]] {
        let ended = finish(place.synconce(words).env("SYNCONCE", binary()));
        assert_eq!(ended.status.code(), Some(127), "{words:?}: {ended:?}");
        let wanted = "synconce: cannot execute '': No such file or directory\n";
        assert_eq!(ended.stderr, wanted, "{words:?}");
    }
}

/// A command without a name, with real syncs, in a run.
const REAL: &str = "exec \"$SYNCONCE\" real -- ''";

fn a_relative_directory_in_the_environment_is_refused(place: &Place) {
    for variable in ["SYNCONCE_STATE_DIR", "SYNCONCE_RUNTIME_DIR", "SYNCONCE_REGISTRY_DIR"] {
        for words in [&["run", "--", "touch", "started"][..], &["status"]] {
            let ended = finish(place.synconce(words).env(variable, "a b"));
            assert_eq!(ended.status.code(), Some(125), "{variable}: {ended:?}");
            let wanted = format!(
                "synconce: cannot use {variable}=a b: it is no absolute path\n\
                 synconce: hint: export {variable}='{}'\n",
                place.text("a b")
            );
            assert_eq!(ended.stderr, wanted);
        }
        let unset = finish(place.synconce(&["status"]).env(variable, ""));
        assert!(!unset.stderr.contains("cannot use"), "{variable}: {unset:?}");
    }
    assert!(!place.path("started").exists());
}

fn a_set_up_by_an_ordinary_user_names_the_command_for_root(place: &Place) {
    let program = place.path("synconce");
    std::fs::copy(binary(), &program).unwrap();
    std::fs::copy(binary(), place.path("synconce-oci")).unwrap();
    place.bare(&["chmod", "-R", "go+rX", "."]);
    let words = ["setpriv", "--reuid=65534", "--clear-groups", program.to_str().unwrap()];
    let ended = place.bare(&[&words[..], &["setup", "podman"]].concat());
    assert_eq!(ended.status.code(), Some(125), "{ended:?}");
    let (_, hint) = ended.stderr.split_once(": Permission denied\n").expect("a refusal");
    assert_eq!(hint, format!("synconce: hint: sudo {} setup podman\n", program.display()));
}

fn a_quoted_command_line_gets_the_one_that_works(place: &Place) {
    for (quoted, works) in [
        ("echo hello", "leave the quotes out: synconce run -- echo hello"),
        ("cd / && true", "synconce run -- sh -c 'cd / && true'"),
    ] {
        let ended = finish(&mut place.held(&[], &[quoted]));
        assert_eq!(ended.status.code(), Some(127), "{quoted}: {ended:?}");
        let wanted = format!("No such file or directory\nsynconce: hint: {works}\n");
        assert!(ended.stderr.ends_with(&wanted), "{quoted}: {ended:?}");
    }
    let one = finish(&mut place.held(&[], &["ehco"]));
    assert!(!one.stderr.contains("hint:"), "{one:?}");
}

/// A file from an editor of Windows: the kernel looks for an interpreter `/bin/sh\r`.
fn a_script_with_carriage_returns_gets_the_line_that_removes_them(place: &Place) {
    let script = place.write("script", "#!/bin/sh\r\necho written\r\n").display().to_string();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let ended = finish(place.held(&[], &["script"]).env("PATH", place.text(".")));
    assert_eq!(ended.status.code(), Some(127), "{ended:?}");
    let (_, mend) = ended.stderr.split_once("its lines: ").expect("a hint");
    assert!(mend.ends_with("/script\n"), "{mend}");
    assert!(place.bare(&["sh", "-c", mend]).status.success(), "{mend}");
    let ended = finish(&mut place.held(&[], &[&script]));
    assert_eq!((ended.status.code(), &*ended.stdout), (Some(0), "written\n"), "{ended:?}");
}

/// The kernel appends the script to the words of its first line: without a refusal, each round
/// starts the next one.
fn a_script_that_names_synconce_as_its_interpreter_does_not_run_for_ever(place: &Place) {
    let (own, link) = (binary(), place.text("eatmydata"));
    place.bare(&["ln", "-s", own, "eatmydata"]);
    let run = |first_line: &str| {
        let script = place.write("script", &format!("#!{first_line}\necho written\n"));
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let words = ["timeout", "--signal=KILL", "20", script.to_str().unwrap()];
        finish(&mut place.held(&[], &words))
    };
    for first_line in [
        format!("{own} run"),
        format!("/usr/bin/env -S nice {own} run"),
        format!("/usr/bin/env -S {own} run --quiet --"),
        format!("/usr/bin/env -S {own} run --commit-only /"),
        link.clone(),
    ] {
        let ended = run(&first_line);
        assert_eq!(ended.status.code(), Some(125), "{first_line}: {ended:?}");
        let said = format!(
            "synconce: cannot execute {}: its first line starts synconce, without a shell\n\
             synconce: hint: change its first line to: #!/usr/bin/env -S synconce run -- sh\n",
            place.text("script")
        );
        assert_eq!(ended.stderr, said, "{first_line}: {ended:?}");
    }
    for first_line in [format!("{link} sh"), format!("/usr/bin/env -S {own} run -- sh")] {
        assert_eq!(run(&first_line).stdout, "written\n", "{first_line}");
    }
}

/// What a shell does: the kernel finds no program of such a name.
fn a_word_of_a_shell_in_place_of_a_command_gets_the_line_that_works(place: &Place) {
    let file = place.write("script.json", "").display().to_string();
    for (words, works) in [
        (&["--", "FOO=1", "make", "check"][..], "synconce run -- env FOO=1 make check"),
        (&["--", "cd", "/"], "synconce run -- sh -c 'cd /'"),
        (&["--", "ulimit", "-n", "9"], "synconce run -- sh -c 'ulimit -n 9'"),
        (&["--", "time", "make", "-k"], "time synconce run -- make -k"),
        (&["--", "--stats", "make", "-k"], "synconce run --stats -- make -k"),
        (&["--stats", "--", "-q", "--sealed", "make"], "synconce run --stats -q --sealed -- make"),
        (&["--json", "a.json", "--", "make", "check"], "synconce run --json=a.json -- make check"),
        (&["--json", "a.json", "make", "-k"], "synconce run --json=a.json -- make -k"),
    ] {
        let mut run = place.synconce(&[&["run"], words].concat());
        // Some systems have a program of the name of each built-in command that POSIX lists.
        let ended = finish(run.env("PATH", place.text(".")));
        let code = ended.status.code();
        assert!(matches!(code, Some(126 | 127)), "{words:?}: {ended:?}");
        let wanted = format!("\nsynconce: hint: {works}\n");
        assert!(ended.stderr.contains(&wanted), "{words:?}: {ended:?}");
    }
    // The report would take the place of a script that cannot be executed.
    for words in [
        &["--", "ehco", "FOO=1"][..],
        &["--", "time", "-p", "make"],
        &["--json", "a.json"],
        &["--json", &file, "make"],
    ] {
        let mut run = place.synconce(&[&["run"], words].concat());
        let ended = finish(run.env("PATH", place.text(".")));
        assert!(matches!(ended.status.code(), Some(126 | 127)), "{words:?}: {ended:?}");
        assert!(!ended.stderr.contains("hint:"), "{words:?}: {ended:?}");
    }
}

/// A script stands for the client: what counts is that nothing is held, and the name.
fn a_client_of_a_daemon_gets_the_set_up_that_holds_the_daemon(place: &Place) {
    let docker = place.write("docker", "#!/bin/sh\ncase $* in sync) sync;; *fail) exit 7;; esac\n");
    place.bare(&["chmod", "+x", "docker"]);
    let docker = docker.to_str().unwrap();
    let build = finish(&mut place.held(&[], &[docker, "build", "."]));
    assert!(build.status.success(), "{build:?}");
    let wanted = format!(
        "synconce: nothing was held: dockerd does the syncs, and is not part of the run\n\
         synconce: hint: sudo {} setup docker\n",
        binary()
    );
    assert_eq!(build.stderr, wanted);
    let without_commit = finish(&mut place.held(&["--no-commit"], &[docker, "build", "."]));
    assert_eq!(without_commit.stderr, wanted);
    let asks = "docker run --label io.synconce.hold=true IMAGE COMMAND";
    for word in ["run", "exec"] {
        let wanted = format!(
            "synconce: nothing was held: the container does the syncs, and is not part of the run\n\
             synconce: hint: sudo {} setup docker; then {asks}\n",
            binary()
        );
        let ended = finish(&mut place.held(&[], &[docker, word, "image", "true"]));
        assert_eq!(ended.stderr, wanted);
    }
    let labelled = [docker, "run", "--label", "io.synconce.hold=true", "image", "true"];
    let ended = finish(&mut place.held(&[], &labelled));
    let wanted = format!("synconce: hint: sudo {} setup docker\n", binary());
    assert!(ended.stderr.ends_with(&wanted), "{ended:?}");
    for (options, words) in
        [(&["--quiet"][..], &["build"][..]), (&[], &["sync"]), (&[], &["build", "fail"])]
    {
        let ended = finish(&mut place.held(options, &[&[docker], words].concat()));
        assert!(!ended.stderr.contains("dockerd"), "{options:?} {words:?}: {ended:?}");
    }
    // The statistics of a client that fails say that no sync was held: the notice says why.
    let failed = finish(&mut place.held(&["--stats"], &[docker, "build", "fail"]));
    assert_eq!(failed.status.code(), Some(7), "{failed:?}");
    assert!(failed.stderr.contains("no sync was held\n"), "{failed:?}");
    assert!(failed.stderr.ends_with(&build.stderr), "{failed:?}");
}

fn a_client_of_a_daemon_elsewhere_gets_a_hint_with_the_host(place: &Place) {
    let server = "start the server in the run; or hold its files: man synconce-hold";
    let set_up = |engine: &str| format!("sudo synconce setup {engine}");
    let here = |engine: &str| format!("sudo {} setup {engine}", binary());
    let far = ("DOCKER_HOST", "ssh://root@far.example");
    let url = "postgresql+psycopg://me:secret@db.example:5432/x";
    let label = "add to the service: labels: [io.synconce.hold=true]";
    let service = format!("{}; then {label}", here("docker"));
    let pod = set_up("containerd; then synconce setup kubernetes");
    let (socket, docker) = (("DOCKER_HOST", "unix:///a/x.sock"), set_up("docker"));
    let rootless = ("DOCKER_HOST", "unix:///run/user/1/x.sock");
    const IN_STEPS: &str = "copy synconce into the image, and in the Dockerfile: \
                            RUN synconce run --sealed --no-commit -- COMMAND";
    for (line, (name, value), daemon, host, hint) in [
        ("psql postgresql://me:secret@db.example:5432/x", NONE, "the server", "", server),
        ("psql --file x.sql", NONE, "the server", "", server),
        ("make check", ("PGHOST", "db.example"), "the server", "", server),
        ("cargo test", ("PGHOST", "db.example"), "the server", "", server),
        ("pytest x", ("PGHOST", "/run/postgresql"), "the server", "", server),
        ("pytest x", ("DATABASE_URL", url), "the server", "", server),
        ("podman --remote build .", NONE, "the Podman service", "", &here("podman")),
        ("buildctl build --frontend x", NONE, "buildkitd", "", &here("buildkit")),
        ("nerdctl build .", NONE, "buildkitd", "", &here("buildkit")),
        ("docker -H tcp://far.example:2375 build .", NONE, "dockerd", "far.example", &docker),
        ("docker build .", far, "dockerd", "far.example", &docker),
        ("docker build .", socket, "dockerd", "/a/x.sock", &here("docker")),
        ("docker -H unix:///a/x.sock build .", NONE, "dockerd", "/a/x.sock", &here("docker")),
        ("docker build .", rootless, "dockerd", "/run/user/1/x.sock", IN_STEPS),
        ("docker-compose -f x.yml build", NONE, "dockerd", "", &here("docker")),
        ("docker-compose -f x.yml up", NONE, "the container", "", &service),
        ("docker compose run x make", NONE, "the container", "", &service),
        ("kubectl exec x -- make", NONE, "the pod", "the node", &pod),
        ("ctr -n k8s.io images pull x", NONE, "containerd", "", &here("containerd --hold")),
        ("systemd-run make", NONE, "the unit", "", "systemd-run OPTIONS synconce run -- COMMAND"),
    ] {
        let words: Vec<_> = line.split(' ').collect();
        let client = place.write(words[0], "#!/bin/sh\n");
        place.bare(&["chmod", "+x", words[0]]);
        let words = [&[client.to_str().unwrap()], &words[1..]].concat();
        let mut run = place.held(&[], &words);
        for variable in
            ["PGHOST", "PGHOSTADDR", "PGSERVICE", "DATABASE_URL", "DOCKER_HOST", "DOCKER_CONTEXT"]
        {
            run.env_remove(variable);
        }
        let ended = finish(run.env_remove("CONTAINERD_ADDRESS").env(name, value));
        let (on, at) = match host {
            "" => (String::new(), String::new()),
            at if hint == IN_STEPS => (format!(" at {at}"), String::new()),
            at if at.starts_with('/') => {
                (format!(" at {at}"), "unless it is rootless: ".to_owned())
            }
            host => (format!(" on {host}"), format!("on {host}, unless it is set up: ")),
        };
        let wanted = format!(
            "synconce: nothing was held: {daemon}{on} does the syncs, and is not part of the run\n\
             synconce: hint: {at}{hint}\n"
        );
        assert_eq!(ended.stderr, wanted, "{line}");
    }
}

/// A CI job often has the socket of the host's daemon in its container.
fn a_client_of_the_daemon_of_the_containers_host_is_told_to_set_up_the_host(place: &Place) {
    place.write("docker", "#!/bin/sh\n");
    place.bare(&["chmod", "+x", "docker"]);
    for (point, is_given, on, at) in [
        (
            "/run/docker.sock",
            true,
            " on the host",
            "on the host, unless it is set up: sudo synconce",
        ),
        ("/run/docker.sock", false, "", &*format!("sudo {}", binary())),
        ("/run/other.sock", true, "", &*format!("sudo {}", binary())),
    ] {
        let give = if is_given { "mount --bind /run/given" } else { "touch" };
        let script = format!(
            "mount -t tmpfs none /run; touch /run/given {point}; {give} {point}; \
             exec \"$0\" run -- ./docker build ."
        );
        let mut job = place.command("unshare");
        let ended =
            finish(job.args(["--mount", "sh", "-ec", &script, binary()]).env_remove("DOCKER_HOST"));
        let wanted = format!(
            "synconce: nothing was held: dockerd{on} does the syncs, and is not part of the run\n\
             synconce: hint: {at} setup docker\n"
        );
        assert_eq!(ended.stderr, wanted, "{point}: {ended:?}");
    }
}

/// No variable of a client.
const NONE: (&str, &str) = ("SYNCONCE_TEST", "");
