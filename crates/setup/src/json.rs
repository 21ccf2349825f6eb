//! JSON as Go's encoding/json parses it, with line numbers.

use crate::error::NotEdited;
use crate::text::line_of;
use jsonc_parser::ast::{Object, Value};
use jsonc_parser::cst::CstRootNode;
use jsonc_parser::errors::ParseError;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

/// Accepts no comments, no trailing commas and no other extension of JSON.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

const REPAIR: &str = "repair the file; the engine does not start with it either";

/// Parses `text`, which has no byte order mark; `None` when the text is blank.
pub(crate) fn parse(text: &str) -> Result<Option<Value<'_>>, NotEdited> {
    let parsed = parse_to_ast(text, &CollectOptions::default(), &STRICT);
    Ok(parsed.map_err(|error| fault(&error))?.value)
}

/// Parses `text` for editing.
pub(crate) fn tree(text: &str) -> Result<CstRootNode, NotEdited> {
    CstRootNode::parse(text, &STRICT).map_err(|error| fault(&error))
}

/// Returns the member `name` of `object` and its line. A duplicate member is refused: the
/// engine takes the last one, and other programs may not.
pub(crate) fn member<'a>(
    text: &str,
    object: &'a Object<'_>,
    name: &str,
) -> Result<Option<(&'a Value<'a>, usize)>, NotEdited> {
    let mut named = object.properties.iter().filter(|property| property.name.as_str() == name);
    let Some(first) = named.next() else { return Ok(None) };
    if let Some(second) = named.next() {
        let line = line_of(text, second.range.start);
        return Err(NotEdited::new(format!("has \"{name}\" twice"), "leave one").on_line(line));
    }
    Ok(Some((&first.value, line_of(text, first.range.start))))
}

/// Returns the text of the member `name` of `object`, and its line.
pub(crate) fn text_member(
    text: &str,
    object: &Object<'_>,
    name: &str,
) -> Result<Option<(String, usize)>, NotEdited> {
    match member(text, object, name)? {
        None => Ok(None),
        Some((Value::StringLit(value), line)) => Ok(Some((value.value.to_string(), line))),
        Some((_, line)) => Err(is_no("text", name, line)),
    }
}

/// Makes the refusal of the member `name` in `line`, which is not `kind`.
pub(crate) fn is_no(kind: &str, name: &str, line: usize) -> NotEdited {
    NotEdited::new(format!("\"{name}\" is no {kind}"), REPAIR).on_line(line)
}

fn fault(error: &ParseError) -> NotEdited {
    let reason = format!("is no JSON: {}", error.kind());
    NotEdited::new(reason, REPAIR).on_line(error.line_display())
}
