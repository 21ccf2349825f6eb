//! The manual pages.

use libtest_mimic::Trial;
use std::fs;
use std::path::PathBuf;
use synconce_testkit::harness::{Need, Place, files, trial};

const MANDOC: [Need; 1] = [Need::Program("mandoc", "mandoc")];

pub fn trials() -> Vec<Trial> {
    vec![
        trial(every_page_has_its_sections_and_refers_to_pages_that_exist, &[]),
        trial(mandoc_finds_nothing_wrong_with_a_page, &MANDOC),
    ]
}

fn pages() -> Vec<PathBuf> {
    let pages = files(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/man"), "1");
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

fn every_page_has_its_sections_and_refers_to_pages_that_exist(_: &Place) {
    let pages = pages();
    let names: Vec<_> = pages.iter().filter_map(|page| page.file_stem()?.to_str()).collect();
    for (page, name) in pages.iter().zip(&names) {
        let text = fs::read_to_string(page).unwrap();
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"] {
            let is_there = |title: &str| text.contains(&format!("\n.SH {title}\n"));
            let has_it = is_there(section) || is_there(&format!("\"{section}\""));
            assert!(
                has_it || (*name == "synconce-oci" && section == "OPTIONS"),
                "{name}: {section}"
            );
        }
        for line in text.lines().filter_map(|line| line.strip_prefix(".BR synconce")) {
            let referred = line.split(' ').next().unwrap_or_default().replace("\\-", "-");
            assert!(names.contains(&&format!("synconce{referred}")[..]), "{name}: {line}");
        }
    }
    let run =
        fs::read_to_string(&pages[names.iter().position(|it| *it == "synconce-run").unwrap()]);
    for section in ["FILES", "ENVIRONMENT", "EXAMPLES"] {
        assert!(run.as_ref().unwrap().contains(&format!(".SH \"{section}\"\n")), "{section}");
    }
}

fn mandoc_finds_nothing_wrong_with_a_page(place: &Place) {
    for page in pages() {
        let linted = place.bare(&["mandoc", "-T", "lint", "-W", "warning", page.to_str().unwrap()]);
        // The date of a page would change without its text.
        let wrong = linted.stdout.lines().find(|line| !line.contains("missing date"));
        assert_eq!(wrong, None, "{}", page.display());
    }
}
