//! TOML with line numbers, edited in place.

use crate::error::{Error, NotEdited};
use crate::host::Host;
use crate::text::{line_of, without_mark};
use std::path::{Path, PathBuf};
use toml_edit::{Array, Document, DocumentMut, InlineTable, Item, Table, TableLike, Value};

/// A file of an engine's configuration.
pub(crate) struct TomlFile {
    /// The path that was asked for.
    pub path: PathBuf,
    /// The path without links, as errors have it.
    pub real: PathBuf,
    pub toml: Toml,
}

impl TomlFile {
    /// Reads the file `path`; an absent file is empty. Line ends are LF, as the parser requires.
    pub(crate) fn read(host: &Host, path: &Path) -> Result<Self, Error> {
        let (resolved, text) = host.text(path)?;
        let (path, real) = (path.to_owned(), host.real(&resolved));
        match Toml::parse(&without_mark(&text.unwrap_or_default()).replace("\r\n", "\n")) {
            Ok(toml) => Ok(Self { path, real, toml }),
            Err(fault) => Err(fault.in_file(&real).into()),
        }
    }

    /// Makes the error that this file has `fault`.
    pub(crate) fn refuse(&self, fault: NotEdited) -> Error {
        fault.in_file(&self.real).into()
    }

    /// Returns the text at `keys`, and its line.
    pub(crate) fn text(&self, keys: &[&str]) -> Result<Option<(&str, Option<usize>)>, Error> {
        self.toml.text(keys).map_err(|fault| self.refuse(fault))
    }

    /// Returns the list of texts at `keys`.
    pub(crate) fn texts(&self, keys: &[&str]) -> Result<Option<Vec<String>>, Error> {
        self.toml.texts(keys).map_err(|fault| self.refuse(fault))
    }
}

/// A parsed text.
#[derive(Debug)]
pub(crate) struct Toml {
    document: Document<String>,
}

impl Toml {
    /// Parses `text`. A text that the editor would change elsewhere, except by a final
    /// newline, is refused.
    pub(crate) fn parse(text: &str) -> Result<Self, NotEdited> {
        let repair = "repair the file; no program can read it";
        let document = Document::parse(text.to_owned()).map_err(|error| {
            let line = error.span().map(|span| line_of(text, span.start));
            // Without the position, which is reported separately.
            NotEdited::new(format!("is no TOML: {}", error.message()), repair).on_line(line)
        })?;
        let back = document.clone().into_mut().to_string();
        if back != text && back.strip_suffix('\n') != Some(text) {
            let reason = "cannot be edited without changes elsewhere";
            return Err(NotEdited::new(reason, "edit it by hand"));
        }
        Ok(Self { document })
    }

    /// Returns the item at `keys`, and its line if known.
    pub(crate) fn get(&self, keys: &[&str]) -> Option<(&Item, Option<usize>)> {
        let mut item = self.document.as_item();
        for key in keys {
            item = item.as_table_like()?.get(key)?;
        }
        let line = item.span().map(|span| line_of(self.document.raw(), span.start));
        Some((item, line))
    }

    /// Returns the text at `keys`, and its line.
    pub(crate) fn text(&self, keys: &[&str]) -> Result<Option<(&str, Option<usize>)>, NotEdited> {
        let Some((item, line)) = self.get(keys) else { return Ok(None) };
        match item.as_str() {
            Some(text) => Ok(Some((text, line))),
            None => Err(is_no("text", keys, line)),
        }
    }

    /// Returns the list of texts at `keys`.
    pub(crate) fn texts(&self, keys: &[&str]) -> Result<Option<Vec<String>>, NotEdited> {
        let Some((item, line)) = self.get(keys) else { return Ok(None) };
        let fault = || is_no("list of texts", keys, line);
        let values = item.as_array().ok_or_else(fault)?.iter();
        let texts = values.map(|value| value.as_str().map(str::to_owned).ok_or_else(fault));
        texts.collect::<Result<_, _>>().map(Some)
    }

    /// Returns the boolean at `keys`.
    pub(crate) fn flag(&self, keys: &[&str]) -> Result<Option<bool>, NotEdited> {
        let Some((item, line)) = self.get(keys) else { return Ok(None) };
        item.as_bool().map(Some).ok_or_else(|| is_no("true or false", keys, line))
    }

    /// Returns all values below `keys`, each with its keys relative to `keys`.
    pub(crate) fn values(&self, keys: &[&str]) -> Vec<(Vec<String>, Value)> {
        let mut found = Vec::new();
        if let Some((item, _)) = self.get(keys) {
            collect(item, &mut Vec::new(), &mut found);
        }
        found
    }

    /// Returns whether there are no settings, only comments.
    pub(crate) fn is_empty(&self) -> bool {
        self.document.as_table().is_empty()
    }

    /// Returns the text for editing.
    pub(crate) fn edit(&self) -> Edited {
        Edited(self.document.clone().into_mut())
    }
}

fn collect(item: &Item, keys: &mut Vec<String>, found: &mut Vec<(Vec<String>, Value)>) {
    if let Some(table) = item.as_table_like() {
        for (key, item) in table.iter() {
            keys.push(key.to_owned());
            collect(item, keys, found);
            keys.pop();
        }
    } else if let Ok(value) = item.clone().into_value() {
        found.push((keys.clone(), plain(&value)));
    }
}

/// Returns `value` without surrounding spaces, comments and line ends.
fn plain(value: &Value) -> Value {
    match value {
        Value::String(text) => text.value().as_str().into(),
        Value::Integer(number) => (*number.value()).into(),
        Value::Float(number) => (*number.value()).into(),
        Value::Boolean(flag) => (*flag.value()).into(),
        Value::Datetime(time) => (*time.value()).into(),
        Value::Array(array) => array.iter().map(plain).collect::<Array>().into(),
        Value::InlineTable(table) => {
            table.iter().map(|(key, value)| (key, plain(value))).collect::<InlineTable>().into()
        }
    }
}

/// A text that is being edited.
pub(crate) struct Edited(DocumentMut);

impl Edited {
    /// Sets the value at `keys`, and makes missing tables.
    pub(crate) fn set(&mut self, keys: &[&str], value: impl Into<Value>) -> Result<(), NotEdited> {
        let Some((last, above)) = keys.split_last() else { return Ok(()) };
        let mut item = self.0.as_item_mut();
        for (depth, key) in above.iter().enumerate() {
            let is_inline = item.is_inline_table();
            let table = table_like(item, &keys[..depth])?;
            if !table.contains_key(key) {
                table.insert(key, new_table(is_inline, depth + 1 == above.len()));
            }
            item = table.get_mut(key).unwrap_or_else(|| unreachable!("it was just made"));
        }
        put(table_like(item, above)?, last, value.into());
        Ok(())
    }

    pub(crate) fn into_text(self) -> String {
        self.0.to_string()
    }
}

fn table_like<'a>(item: &'a mut Item, keys: &[&str]) -> Result<&'a mut dyn TableLike, NotEdited> {
    item.as_table_like_mut().ok_or_else(|| is_no("table", keys, None))
}

/// Makes a table for a value, or an intermediate table without a header of its own.
fn new_table(is_inline: bool, holds_value: bool) -> Item {
    if is_inline {
        return Item::Value(InlineTable::new().into());
    }
    let mut table = Table::new();
    table.set_implicit(!holds_value);
    Item::Table(table)
}

/// Sets `key`, with the spaces and comments of the old value, or with the indentation of its
/// neighbours.
fn put(table: &mut dyn TableLike, key: &str, mut value: Value) {
    if let Some(old) = table.get_mut(key).and_then(Item::as_value_mut) {
        *value.decor_mut() = old.decor().clone();
        *old = value;
        return;
    }
    let beside = table.get_values().first().and_then(|(keys, _)| {
        let prefix = keys.first()?.leaf_decor().prefix()?.as_str()?;
        prefix.rsplit('\n').next().map(str::to_owned)
    });
    table.insert(key, Item::Value(value));
    if let (Some(indent), Some(mut key)) = (beside, table.key_mut(key)) {
        key.leaf_decor_mut().set_prefix(indent);
    }
}

fn is_no(kind: &str, keys: &[&str], line: Option<usize>) -> NotEdited {
    let keys = keys.join(".");
    NotEdited::new(format!("{keys} is no {kind}"), "repair the file").on_line(line)
}
