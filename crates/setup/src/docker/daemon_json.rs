//! Edits daemon.json. dockerd accepts neither comments nor unknown keys.

use crate::error::NotEdited;
use crate::host::RUNTIME_NAME;
use crate::json::{is_no, member, parse, text_member, tree};
use crate::text::without_mark;
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::cst::CstInputValue;

/// Returns `text` with `runtime` as the default, or `None` if it is the default already. A byte
/// order mark stays, and so do line ends of Windows.
pub(crate) fn edit(text: Option<&str>, runtime: &str) -> Result<Option<String>, NotEdited> {
    let text = text.unwrap_or_default();
    let rest = without_mark(text);
    let mark = text.strip_suffix(rest).unwrap_or_default();
    Ok(edit_rest(rest, runtime)?.map(|edited| format!("{mark}{edited}")))
}

fn edit_rest(text: &str, runtime: &str) -> Result<Option<String>, NotEdited> {
    let value = parse(text)?;
    let object = match &value {
        None => return Ok(Some(whole(runtime))),
        Some(Value::Object(object)) => object,
        Some(_) => return Err(NotEdited::new("is no JSON object", REPAIR).on_line(1)),
    };
    let runtimes = runtimes(text, object)?;
    let is_default =
        text_member(text, object, "default-runtime")?.is_some_and(|(name, _)| name == RUNTIME_NAME);
    let is_known = check_known(text, runtimes, runtime)?;
    match (is_default, is_known) {
        (true, true) => Ok(None),
        (is_default, is_known) => insert(text, runtime, !is_default, !is_known).map(Some),
    }
}

const REPAIR: &str = "repair the file; dockerd does not start with it either";

/// Returns a file with no other settings.
fn whole(runtime: &str) -> String {
    format!(
        "{{\n  \"default-runtime\": \"{RUNTIME_NAME}\",\n  \"runtimes\": {{\n    \"{RUNTIME_NAME}\": {{\n      \
         \"path\": \"{runtime}\"\n    }}\n  }}\n}}\n"
    )
}

fn runtimes<'a>(text: &str, object: &'a Object<'_>) -> Result<Option<&'a Object<'a>>, NotEdited> {
    match member(text, object, "runtimes")? {
        None => Ok(None),
        Some((Value::Object(runtimes), _)) => Ok(Some(runtimes)),
        Some((_, line)) => Err(is_no("object", "runtimes", line)),
    }
}

/// Returns the default runtime that `text` sets, and its line.
///
/// # Errors
/// As for [`edit`].
pub(super) fn default_runtime(text: &str) -> Result<Option<(String, usize)>, NotEdited> {
    let text = without_mark(text);
    match parse(text)? {
        Some(Value::Object(object)) => text_member(text, &object, "default-runtime"),
        _ => Ok(None),
    }
}

/// Returns whether synconce's runtime is configured. Refuses if its name is used for another
/// runtime.
fn check_known(
    text: &str,
    runtimes: Option<&Object<'_>>,
    runtime: &str,
) -> Result<bool, NotEdited> {
    let Some(runtimes) = runtimes else { return Ok(false) };
    let Some((value, line)) = member(text, runtimes, RUNTIME_NAME)? else { return Ok(false) };
    if let Value::Object(own) = value
        && let [only] = own.properties.as_slice()
        && only.name.as_str() == "path"
        && matches!(&only.value, Value::StringLit(path) if path.value == runtime)
    {
        return Ok(true);
    }
    let reason = format!("has a runtime \"{RUNTIME_NAME}\" that is not {runtime} alone");
    Err(NotEdited::new(reason, "take it away, or name its path by --runtime").on_line(line))
}

fn insert(text: &str, runtime: &str, default: bool, known: bool) -> Result<String, NotEdited> {
    let tree = tree(text)?;
    let object = tree.object_value_or_set();
    if default {
        let name = CstInputValue::String(RUNTIME_NAME.to_owned());
        match object.get("default-runtime") {
            Some(property) => property.set_value(name),
            None => drop(object.append("default-runtime", name)),
        }
    }
    if known {
        let path = ("path".to_owned(), CstInputValue::String(runtime.to_owned()));
        let runtimes = object.object_value_or_set("runtimes");
        runtimes.append(RUNTIME_NAME, CstInputValue::Object(vec![path]));
    }
    Ok(tree.to_string())
}

/// Returns `text` without what a set-up added to `before` to write `ours`; the rest stays as it is.
/// Returns `None` if that is not certain: one of the texts is not understood, or the runtime of the
/// set-up was edited.
pub(crate) fn without_ours(text: &str, before: &str, ours: &str) -> Option<String> {
    let rest = without_mark(text);
    let mark = text.strip_suffix(rest)?;
    let (before, ours) = (value_of(before)?, value_of(ours)?);
    let Some(Value::Object(object)) = parse(rest).ok()? else { return None };
    // A duplicate member is an error.
    let default = text_member(rest, &object, "default-runtime").ok()?;
    let runtimes_now = runtimes(rest, &object).ok()?;
    let runtime = match runtimes_now {
        Some(runtimes) => member(rest, runtimes, RUNTIME_NAME).ok()?,
        None => None,
    };
    let has = |json: &serde_json::Value| json["runtimes"][RUNTIME_NAME].clone();
    if runtime.is_some() && has(&value_of(rest)?) != has(&ours) {
        return None;
    }
    let tree = tree(rest).ok()?;
    let object = tree.object_value()?;
    if default.is_some_and(|(name, _)| name == RUNTIME_NAME) {
        let default = object.get("default-runtime")?;
        match before["default-runtime"].as_str() {
            Some(name) => default.set_value(CstInputValue::String(name.to_owned())),
            None => default.remove(),
        }
    }
    if runtime.is_some() && has(&before).is_null() {
        let runtimes = object.object_value("runtimes")?;
        runtimes.get(RUNTIME_NAME)?.remove();
        if runtimes.properties().is_empty() && before["runtimes"].is_null() {
            object.get("runtimes")?.remove();
        }
    }
    Some(format!("{mark}{tree}"))
}

/// Returns the value of a file of dockerd; an empty file has no settings.
fn value_of(text: &str) -> Option<serde_json::Value> {
    let text = without_mark(text);
    if text.trim().is_empty() {
        return Some(serde_json::json!({}));
    }
    serde_json::from_str(text).ok()
}

/// Returns the directory of the daemon's data, if `text` sets it.
pub(crate) fn data_root(text: &str) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(without_mark(text)).ok()?;
    config["data-root"].as_str().map(str::to_owned)
}

/// Whether `text` has a runtime of synconce's name.
pub(super) fn has_runtime(text: &str) -> bool {
    let config: serde_json::Value = serde_json::from_str(without_mark(text)).unwrap_or_default();
    config["runtimes"].get(RUNTIME_NAME).is_some()
}

/// Returns the sockets and addresses of the daemon, if `text` sets them.
pub(crate) fn hosts(text: &str) -> Vec<String> {
    let config: serde_json::Value = serde_json::from_str(without_mark(text)).unwrap_or_default();
    let hosts = config["hosts"].as_array().into_iter().flatten();
    hosts.filter_map(|host| host.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests;
