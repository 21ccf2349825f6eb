use super::*;

const DEB822: &str = "\
Types: deb deb-src
# a comment inside a stanza
URIs: http://mirror.invalid/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/archive.gpg

Types: deb
URIs: http://mirror.invalid/security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
";

#[test]
fn a_stanza_is_cut_down_to_the_binaries_of_the_suite_and_its_updates() {
    let all = parse_deb822(DEB822);
    let first = all[0].clone().narrow("bookworm").expect("it fits");
    assert_eq!(
        first.stanza(),
        "Types: deb\nURIs: http://mirror.invalid/debian\nSuites: bookworm bookworm-updates\n\
         Components: main\nSigned-By: /usr/share/keyrings/archive.gpg\n"
    );
    assert_eq!(first.uri(), "http://mirror.invalid/debian");
    assert_eq!(first.keyring(), Some(PathBuf::from("/usr/share/keyrings/archive.gpg")));
}

#[test]
fn a_key_inside_a_stanza_stays_whole_and_is_no_file() {
    let security = parse_deb822(DEB822).remove(1);
    assert!(security.stanza().contains("KEY BLOCK-----\n .\n abc"));
    assert_eq!(security.keyring(), None);
    assert!(!security.has_suite("bookworm"));
}

#[test]
fn a_line_with_options_becomes_a_stanza() {
    let text = "# none\ndeb [arch=amd64,i386 signed-by=/k.gpg] http://m.invalid/d bookworm main non-free # x\n";
    let source = parse_list(text).remove(0);
    assert_eq!(
        source.narrow("bookworm").expect("it fits").stanza(),
        "Architectures: amd64 i386\nSigned-By: /k.gpg\nTypes: deb\n\
         URIs: http://m.invalid/d\nSuites: bookworm\nComponents: main\n"
    );
}

#[test]
fn foreign_suites_source_packages_and_disabled_stanzas_are_left_out() {
    for text in [
        "deb http://m.invalid cloud-sdk-bookworm main",
        "deb-src http://m.invalid bookworm main",
        "deb http://m.invalid bookworm stable",
        "deb http://m.invalid trixie main",
    ] {
        let source = parse_list(text).remove(0);
        assert_eq!(source.narrow("bookworm"), None, "{text}");
    }
    let off = "Enabled: no\nTypes: deb\nURIs: x\nSuites: bookworm\nComponents: main\n";
    assert_eq!(parse_deb822(off).remove(0).narrow("bookworm"), None);
}

#[test]
fn a_host_without_the_suite_is_told_so() {
    let etc = tempfile::tempdir().expect("a directory can be made");
    let lists = etc.path().join("sources.list.d");
    std::fs::create_dir(&lists).expect("a directory can be made");
    std::fs::write(lists.join("a.sources"), DEB822).expect("a file can be written");
    let found = host_sources(etc.path(), "bookworm").expect("the suite is there");
    assert_eq!(found.len(), 2);
    let error = host_sources(etc.path(), "trixie").expect_err("the suite is not there");
    assert!(error.to_string().contains("trixie"), "{error}");
}

#[test]
fn proxies_are_carried_over_and_hooks_are_not() {
    let dump = "Acquire::http::Proxy \"http://p.invalid:1\";\nDPkg::Post-Invoke:: \"rm -f x\";\n\
                Acquire::Check-Valid-Until \"false\";\nDir::Cache \"var/cache/apt\";\n";
    assert_eq!(
        carried(dump),
        "Acquire::http::Proxy \"http://p.invalid:1\";\nAcquire::Check-Valid-Until \"false\";\n"
    );
}
