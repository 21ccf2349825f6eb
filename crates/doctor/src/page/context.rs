//! The page about the context of an image build.

use super::{Cell, Column, Page, Part, Section};
use crate::context::{Amount, BuildContext, ContextPart};
use crate::units::{bytes, whole};
use synconce_chart::Bar;

impl BuildContext {
    /// Returns the report as a page, which says that it was made by `made`.
    pub fn page(&self, made: &str) -> String {
        let unreadable = Part::table(
            "Directories that this user cannot read",
            &self.unreadable,
            [(Column::text("directory"), &|path| Cell::text(path.display().to_string()))],
        );
        let files = Part::table(
            "The largest files",
            &self.largest_files,
            [
                (Column::text("file"), &|it| Cell::text(it.path.display().to_string())),
                (Column::sorted("bytes"), &|it| Cell::bytes(it.amount.bytes)),
            ],
        );
        let sections = [
            Section::new(
                "What a build sends",
                [
                    Part::facts(self.facts()),
                    Part::chart("Bytes at the top of the context", self.largest.iter().map(bar)),
                    table(
                        "The largest entries at the top",
                        "name",
                        Column::sorted("bytes"),
                        &self.largest,
                    ),
                    files,
                ],
            ),
            Section::new(
                "Lines for .dockerignore",
                [
                    (!self.could_be_ignored.is_empty())
                        .then(|| Part::Line("A build may need one of these: check each.".into())),
                    table(
                        "What each line saves",
                        "line",
                        Column::number("bytes"),
                        &self.could_be_ignored,
                    ),
                ],
            ),
            Section::new("What sending to dockerd costs", [Part::facts(self.sending_facts())]),
            Section::new("Not read", [unreadable]),
        ];
        let title = format!("{} (build context)", self.directory.display());
        Page::text(title, &self.verdict(), Vec::new(), sections, made)
    }

    fn sending_facts(&self) -> Vec<(&'static str, String)> {
        let Some(sending) = &self.sending else { return Vec::new() };
        let lines = sending.lines().into_iter();
        let mut facts: Vec<_> =
            lines.map(|(name, time, note)| (name, format!("{time}: {note}"))).collect();
        facts
            .extend(sending.not_measured.iter().map(|missing| (missing.what, missing.why.clone())));
        facts.extend(sending.bound(&self.sent).map(|bound| ("sent", bound)));
        facts.extend(sending.cheapest().map(|way| ("cheapest", way)));
        facts
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        vec![
            ("sent", self.sent.shown()),
            (".dockerignore", self.left_out()),
            ("symbolic links", whole(self.symbolic_links as f64)),
            ("holes", bytes(self.holes as f64)),
        ]
    }
}

fn bar(part: &ContextPart) -> Bar {
    let Amount { entries, bytes: size } = part.amount;
    Bar {
        name: part.path.display().to_string().into(),
        value: size as f64,
        shown: bytes(size as f64).into(),
        note: format!("{} entries", whole(entries as f64)).into(),
        ..Bar::default()
    }
}

fn table(
    title: &'static str,
    name: &'static str,
    bytes: Column,
    parts: &[ContextPart],
) -> Option<Part> {
    Part::table(
        title,
        parts,
        [
            (Column::text(name), &|it| Cell::text(it.path.display().to_string())),
            (bytes, &|it| Cell::bytes(it.amount.bytes)),
            (Column::number("entries"), &|it| Cell::count(it.amount.entries)),
        ],
    )
}
