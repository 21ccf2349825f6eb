//! Converts access control lists between star's text and the kernel's extended attribute
//! (linux/posix_acl_xattr.h).

/// The id in an entry that names no user or group (`ACL_UNDEFINED_ID`).
const NOBODY: u32 = u32::MAX;
const VERSION: u32 = 2;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Returns the extended attribute for the text of a list.
///
/// # Errors
/// The first entry that cannot be converted, and why. An entry with a name and no number cannot be
/// converted: on this system the name may belong to another user or group.
pub(super) fn attribute(text: &[u8]) -> Result<Vec<u8>, String> {
    // Only names can have other bytes, and a name beside a number is not read.
    let text = String::from_utf8_lossy(text);
    let mut entries = Vec::new();
    for entry in text.split([',', '\n']) {
        let entry = entry.split_once('#').map_or(entry, |(entry, _)| entry).trim();
        if !entry.is_empty() {
            entries.push(parse(entry).map_err(|why| format!("{entry} {why}"))?);
        }
    }
    entries.sort_unstable_by_key(|(tag, id, _)| (*tag, *id));
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    Ok(value)
}

/// Parses `TAG:QUALIFIER:rwx` or, as star writes an entry, `TAG:NAME:rwx:NUMBER`. Returns the tag,
/// the id and the permissions, or what is wrong with the entry.
fn parse(entry: &str) -> Result<(u16, u32, u16), &'static str> {
    const DAMAGED: &str = "is damaged";
    let fields: Vec<&str> = entry.split(':').map(str::trim).collect();
    let (tag, qualifier, permissions, id) = match fields[..] {
        // `mask:rwx` or `other:rwx`: these tags have no qualifier.
        [tag, permissions] => (tag, "", permissions, None),
        [tag, qualifier, permissions] => (tag, qualifier, permissions, None),
        [tag, qualifier, permissions, id] => (tag, qualifier, permissions, Some(id)),
        _ => return Err(DAMAGED),
    };
    let (own, named) = match tag {
        "user" | "u" => (USER_OBJ, Some(USER)),
        "group" | "g" => (GROUP_OBJ, Some(GROUP)),
        "mask" | "m" => (MASK, None),
        "other" | "o" => (OTHER, None),
        _ => return Err(DAMAGED),
    };
    let permissions = permissions.bytes().try_fold(0, |sum, letter| match letter {
        b'r' => Some(sum | 4),
        b'w' => Some(sum | 2),
        b'x' => Some(sum | 1),
        b'-' => Some(sum),
        _ => None,
    });
    let permissions = permissions.ok_or("has permissions other than r, w and x")?;
    if qualifier.is_empty() {
        return Ok((own, NOBODY, permissions));
    }
    let id = id.unwrap_or(qualifier).parse().map_err(|_| "has no number")?;
    Ok((named.ok_or(DAMAGED)?, id, permissions))
}

/// Returns the text of an extended attribute, with numbers in place of names; `None` if the
/// attribute is no access control list.
pub(super) fn text(attribute: &[u8]) -> Option<String> {
    let (version, entries) = attribute.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % 8 != 0 {
        return None;
    }
    let mut parts = Vec::new();
    for entry in entries.chunks_exact(8) {
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        let subject = match u16::from_le_bytes([entry[0], entry[1]]) {
            USER_OBJ => "user:".to_owned(),
            USER => format!("user:{id}"),
            GROUP_OBJ => "group:".to_owned(),
            GROUP => format!("group:{id}"),
            MASK => "mask:".to_owned(),
            OTHER => "other:".to_owned(),
            _ => return None,
        };
        let letter = |bit, letter| if permissions & bit == 0 { '-' } else { letter };
        parts.push(format!("{subject}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x')));
    }
    Some(parts.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attribute_say_the_same() {
        let written = "user::rwx,user:7:r--,group::r-x,group:8:-w-,mask::rwx,other::---";
        let value = attribute(written.as_bytes()).unwrap();
        assert_eq!(value.len(), 4 + 6 * 8);
        assert_eq!(text(&value).unwrap(), written);
        let stars = "mask::rwx\nuser::rwx,group::r-x,other::---,user:me:r--:7,g:us:-w-:8 # all";
        assert_eq!(attribute(stars.as_bytes()).unwrap(), value);
    }

    #[test]
    fn what_cannot_be_known_here_is_named() {
        for (text, wrong) in [
            (&b"user::rwx,user:lisa:r--"[..], "user:lisa:r-- has no number"),
            (b"user:l\xffsa:r--", "user:l\u{fffd}sa:r-- has no number"),
            (b"user::rwz", "user::rwz has permissions other than r, w and x"),
            (b"mask:7:rwx", "mask:7:rwx is damaged"),
            (b"nobody::rwx", "nobody::rwx is damaged"),
        ] {
            assert_eq!(attribute(text).unwrap_err(), wrong);
        }
        assert_eq!(attribute(b"user:l\xffsa:r--:7"), attribute(b"user:7:r--"));
        assert_eq!(text(b"\x01\0\0\0"), None);
    }
}
