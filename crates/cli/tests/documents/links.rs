//! Links between documents.

use crate::PROJECT;
use crate::markdown::{Document, user_documents};
use std::path::Path;
use std::process::Command;

/// Returns the links that lead to no file of the project, or to no heading there.
pub fn broken() -> Vec<String> {
    let of_developers = ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"];
    let documents = user_documents().into_iter().chain(of_developers.map(Document::read));
    documents.flat_map(|document| broken_in(&document)).collect()
}

/// Returns the links of README.md that lead to no file of the project once `packaging/build` has
/// packaged it.
pub fn broken_in_the_package() -> Vec<String> {
    let project = Path::new(PROJECT);
    let mut command = Command::new(project.join("packaging/links"));
    let printed = command.arg("REF").arg(project.join("README.md")).output().expect("a shell");
    let text = String::from_utf8(printed.stdout).expect("UTF-8");
    let whole =
        ["blob", "raw"].map(|kind| format!("https://github.com/synconce/synconce/{kind}/REF/"));
    let is_broken = |target: &&str| {
        let file = whole.iter().find_map(|whole| target.strip_prefix(whole.as_str()));
        let file = file.map(|file| file.split('#').next().unwrap_or(file));
        let is_there = file.is_none_or(|file| project.join(file).exists());
        !target.starts_with('#') && (!target.contains("://") || !is_there)
    };
    assert!(targets(&text).count() > 20, "{:?}", printed.stderr);
    targets(&text).filter(is_broken).map(str::to_owned).collect()
}

fn broken_in(document: &Document) -> Vec<String> {
    let directory = Path::new(&document.name).parent().expect("it is a file");
    let mut broken = Vec::new();
    for (line, text) in &document.prose {
        for target in targets(text).filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { document.name.clone() } else { below(directory, file) };
            if !Path::new(PROJECT).join(&path).exists() {
                broken.push(format!("{}:{line}: {target}: no such file", document.name));
            } else if !heading.is_empty()
                && !Document::read(&path).anchors().contains(&heading.to_owned())
            {
                broken.push(format!("{}:{line}: {target}: no such heading", document.name));
            }
        }
    }
    broken
}

/// Returns the targets of links and of pictures in `text`.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let after = |start: &'static str, end: char| {
        text.split(start).skip(1).filter_map(move |rest| Some(rest.split_once(end)?.0))
    };
    after("](", ')').chain(after("src=\"", '"')).chain(after("srcset=\"", '"'))
}

fn below(directory: &Path, file: &str) -> String {
    directory.join(file).to_str().expect("UTF-8").to_owned()
}
