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

/// Returns the links of README.md that lead to no file of the project, or to no heading there, once
/// `packaging/build` has packaged it.
pub fn broken_in_the_package() -> Vec<String> {
    let project = Path::new(PROJECT);
    let mut command = Command::new(project.join("packaging/links"));
    let printed = command.arg("REF").arg(project.join("README.md")).output().expect("a shell");
    let text = String::from_utf8(printed.stdout).expect("UTF-8");
    let whole =
        ["blob", "raw"].map(|kind| format!("https://github.com/synconce/synconce/{kind}/REF/"));
    assert!(targets(&text).count() > 20, "{:?}", printed.stderr);
    let broken = |target: &str| {
        let file = whole.iter().find_map(|whole| target.strip_prefix(whole.as_str()));
        match file {
            Some(place) => fault(Path::new(""), "README.md", place),
            None if target.starts_with('#') => fault(Path::new(""), "README.md", target),
            None => (!target.contains("://")).then_some("not in the package"),
        }
        .map(|fault| format!("{target}: {fault}"))
    };
    targets(&text).filter_map(broken).collect()
}

fn broken_in(document: &Document) -> Vec<String> {
    let directory = Path::new(&document.name).parent().expect("it is a file");
    let mut broken = Vec::new();
    for (line, text) in &document.prose {
        for target in targets(text).filter(|target| !target.contains("://")) {
            if let Some(fault) = fault(directory, &document.name, target) {
                broken.push(format!("{}:{line}: {target}: {fault}", document.name));
            }
        }
    }
    broken
}

/// Returns what is wrong with the link `target` of the document `name` in `directory`.
fn fault(directory: &Path, name: &str, target: &str) -> Option<&'static str> {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { name.to_owned() } else { below(directory, file) };
    if !Path::new(PROJECT).join(&path).exists() {
        return Some("no such file");
    }
    let is_there = || Document::read(&path).anchors().iter().any(|anchor| anchor == heading);
    (!heading.is_empty() && !is_there()).then_some("no such heading")
}

/// Returns the headings of which the anchor is not that of GitHub.
pub fn wrong_anchors() -> Vec<String> {
    let text = "# A `--flag`, and more: x_y\n## See [the guide](guide.md#a-b)\n## Ähnlich Ünlike\n\
                ## Twice\n```sh\n# Twice\n```\n## Twice\n### Twice\n#no heading\n";
    let of_github =
        ["a---flag-and-more-x_y", "see-the-guide", "ähnlich-ünlike", "twice", "twice-1", "twice-2"];
    let made = Document::parse("headings.md", text).anchors();
    if made == of_github { Vec::new() } else { vec![format!("{made:?}")] }
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
