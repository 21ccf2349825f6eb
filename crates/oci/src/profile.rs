//! Adds the sealed hold to an OCI seccomp profile (`config-linux.md`, *Seccomp*).
//!
//! runc and crun pass a profile to libseccomp rule by rule, and the first unconditional rule
//! for a call silently wins over all others. The hold's rules therefore come first, and its
//! names are removed from the rules that allow them. A call that the profile restricts in any
//! other way is not held.

use serde_json::{Map, Value, json};
use std::iter;
use synconce_filter::{
    Abi, Call, HANDSHAKE_FLAGS, HANDSHAKE_SEALED_ERRNO, HANDSHAKE_STEP, HANDSHAKE_STEP_ERRNO,
    SEALED, SealedAnswer, args::MS_SYNC, native_abis,
};

/// A profile: the fields of `linux.seccomp`.
pub(crate) type Profile = Map<String, Value>;

/// The names of [`Call::SyncFileRange`] in ABIs that only a profile covers.
const RANGES_ELSEWHERE: [&str; 2] = ["sync_file_range2", "arm_sync_file_range"];

const ALLOW: &str = "SCMP_ACT_ALLOW";
const ERRNO: &str = "SCMP_ACT_ERRNO";

/// What a held container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A build step. The engine stores its files after its end, so that a run in the step needs no
    /// commit.
    BuildStep,
    /// Anything else.
    Other,
}

/// A profile with the hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Edited {
    /// The profile with the hold.
    pub(crate) profile: Profile,
    /// The names that are held, in the order of the rules.
    pub(crate) held: Vec<&'static str>,
    /// The names that are not held, because the profile restricts or forbids them.
    pub(crate) left: Vec<&'static str>,
    /// Whether io_uring is refused, so that programs fall back to calls that are held.
    pub(crate) io_uring_refused: bool,
}

/// Adds the hold of a container for `purpose` to `profile`, or to a new profile.
///
/// # Errors
/// A part of the profile that violates the specification.
pub(crate) fn hold(profile: Option<Profile>, purpose: Purpose) -> Result<Edited, String> {
    edit(profile, sealed_calls(), |names, answer| rules_for(names, answer, purpose))
}

/// Adds rules for `calls` to `profile`, or to a new profile: names of calls, and the answer to
/// them. `rules_for` returns the rules by which calls get an answer.
///
/// # Errors
/// A part of the profile that violates the specification.
pub(crate) fn edit<Answer>(
    profile: Option<Profile>,
    calls: impl Iterator<Item = (Vec<&'static str>, Answer)>,
    rules_for: impl Fn(&[&'static str], Answer) -> Vec<Value>,
) -> Result<Edited, String> {
    let mut profile = match profile {
        // An empty section counts as none, as in runc.
        Some(profile) if !profile.is_empty() => profile,
        _ => allow_all(),
    };
    let (mut taken, mut left, mut rules) = (Vec::new(), Vec::new(), Vec::new());
    for (names, answer) in calls {
        let before = taken.len();
        for name in names {
            if allows(&profile, name)? { taken.push(name) } else { left.push(name) }
        }
        rules.extend(rules_for(&taken[before..], answer));
    }
    if let Some(Value::Array(theirs)) = profile.get_mut("syscalls") {
        rules.extend(theirs.drain(..).filter_map(|rule| without(rule, &taken)));
    }
    profile.insert("syscalls".to_owned(), Value::Array(rules));
    let is_io_uring = |name: &&str| *name == Call::IoUringSetup.name();
    left.retain(|name| !is_io_uring(name));
    let (refused, held): (Vec<_>, _) = taken.into_iter().partition(is_io_uring);
    Ok(Edited { profile, held, left, io_uring_refused: !refused.is_empty() })
}

/// Returns whether `profile` has the hold.
pub(crate) fn is_held(profile: &Profile) -> bool {
    has_answer(profile, HANDSHAKE_SEALED_ERRNO)
}

/// Returns whether `profile` has the hold of a build step.
pub(crate) fn is_of_step(profile: &Profile) -> bool {
    has_answer(profile, HANDSHAKE_STEP_ERRNO)
}

fn has_answer(profile: &Profile, errno: u16) -> bool {
    let is_it = |rule: &Value| rule.get("errnoRet").and_then(Value::as_u64) == Some(errno.into());
    rules(profile).is_ok_and(|rules| rules.iter().any(is_it))
}

/// Makes a profile that allows everything, for every ABI of this machine's processor: a filter
/// of libseccomp kills callers of an unlisted ABI.
fn allow_all() -> Profile {
    let architectures = native_abis().iter().map(|abi| match abi {
        Abi::X86_64 => "SCMP_ARCH_X86_64",
        Abi::X32 => "SCMP_ARCH_X32",
        Abi::I386 => "SCMP_ARCH_X86",
        Abi::Aarch64 => "SCMP_ARCH_AARCH64",
        Abi::Arm => "SCMP_ARCH_ARM",
    });
    let mut profile = Profile::new();
    profile.insert("defaultAction".to_owned(), ALLOW.into());
    profile.insert("architectures".to_owned(), architectures.collect());
    profile
}

/// Returns the calls that the hold answers, by the names that a profile uses.
pub(crate) fn sealed_calls() -> impl Iterator<Item = (Vec<&'static str>, SealedAnswer)> {
    SEALED.iter().flat_map(|(calls, answer)| {
        let names = calls.iter().map(|call| call.name()).collect();
        let elsewhere = calls.contains(&Call::SyncFileRange);
        let elsewhere = elsewhere.then(|| (RANGES_ELSEWHERE.to_vec(), SealedAnswer::Success));
        iter::once((names, *answer)).chain(elsewhere)
    })
}

/// Returns the rules by which the calls `names` get `answer`.
fn rules_for(names: &[&'static str], answer: SealedAnswer, purpose: Purpose) -> Vec<Value> {
    let success = errno(names, 0);
    match answer {
        _ if names.is_empty() => Vec::new(),
        SealedAnswer::Success => vec![success],
        SealedAnswer::Refusal(number) => vec![errno(names, number)],
        SealedAnswer::SuccessOrHandshake => {
            let flags = |op: &str| json!({"index": 3, "value": HANDSHAKE_FLAGS, "op": op});
            let offset = |op: &str| json!({"index": 1, "value": HANDSHAKE_STEP, "op": op});
            let sealed = errno(names, HANDSHAKE_SEALED_ERRNO);
            let asks = "SCMP_CMP_EQ";
            let mut rules = match purpose {
                Purpose::Other => vec![conditional(sealed, json!([flags(asks)]))],
                Purpose::BuildStep => vec![
                    conditional(
                        errno(names, HANDSHAKE_STEP_ERRNO),
                        json!([offset(asks), flags(asks)]),
                    ),
                    conditional(sealed, json!([offset("SCMP_CMP_NE"), flags(asks)])),
                ],
            };
            rules.push(conditional(success, json!([flags("SCMP_CMP_NE")])));
            rules
        }
        SealedAnswer::SuccessIfSync => if_sync(names, success),
    }
}

/// Returns the rules by which the calls `names`, such as msync(2), get `rule` if they sync, and are
/// allowed otherwise.
pub(crate) fn if_sync(names: &[&'static str], rule: Value) -> Vec<Value> {
    if_flag(names, rule, 2, MS_SYNC)
}

/// Returns the rules by which the calls `names` get `rule` if the argument number `index` has the
/// bit `flag`, and are allowed otherwise.
pub(crate) fn if_flag(names: &[&'static str], rule: Value, index: usize, flag: u32) -> Vec<Value> {
    let has = |wanted: u32| json!([{"index": index, "value": flag, "valueTwo": wanted, "op": "SCMP_CMP_MASKED_EQ"}]);
    let allowed = json!({"names": names, "action": ALLOW});
    vec![conditional(rule, has(flag)), conditional(allowed, has(0))]
}

/// Makes a rule with an explicit `errnoRet`: runc and crun default to EPERM.
fn errno(names: &[&'static str], errno: u16) -> Value {
    json!({"names": names, "action": ERRNO, "errnoRet": errno})
}

fn conditional(mut rule: Value, arguments: Value) -> Value {
    rule["args"] = arguments;
    rule
}

/// Returns whether `name` is always allowed, by unconditional rules only.
pub(crate) fn allows(profile: &Profile, name: &str) -> Result<bool, String> {
    let default = action(profile.get("defaultAction"), "defaultAction")?;
    let mut allowed = permits(default);
    for rule in rules(profile)? {
        if names(rule)?.any(|other| other == name) {
            let plain = match rule.get("args") {
                None | Some(Value::Null) => true,
                Some(Value::Array(arguments)) => arguments.is_empty(),
                Some(_) => return Err("the \"args\" of a rule are no list".to_owned()),
            };
            if !plain || !permits(action(rule.get("action"), "action")?) {
                return Ok(false);
            }
            allowed = true;
        }
    }
    Ok(allowed)
}

/// Returns whether `action` is a plain permission. A logged call counts as restricted, so that
/// the log stays complete.
fn permits(action: &str) -> bool {
    action == ALLOW
}

pub(crate) fn rules(profile: &Profile) -> Result<&[Value], String> {
    match profile.get("syscalls") {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(rules)) => Ok(rules),
        Some(_) => Err("\"syscalls\" is no list".to_owned()),
    }
}

fn action<'a>(value: Option<&'a Value>, field: &str) -> Result<&'a str, String> {
    value.and_then(Value::as_str).ok_or_else(|| format!("\"{field}\" is missing, or no text"))
}

fn names(rule: &Value) -> Result<impl Iterator<Item = &str>, String> {
    let list = match rule.get("names") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(names)) => names.as_slice(),
        Some(_) => return Err("the \"names\" of a rule are no list".to_owned()),
    };
    Ok(list.iter().filter_map(Value::as_str))
}

/// Returns the rule without the names `ours`, or `None` if no name is left.
fn without(mut rule: Value, ours: &[&str]) -> Option<Value> {
    let Some(Value::Array(names)) = rule.get_mut("names") else { return Some(rule) };
    let before = names.len();
    names.retain(|name| !name.as_str().is_some_and(|name| ours.contains(&name)));
    (!names.is_empty() || before == 0).then_some(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(profile: Option<Profile>) -> Result<Edited, String> {
        super::hold(profile, Purpose::BuildStep)
    }

    fn profile(value: Value) -> Option<Profile> {
        value.as_object().cloned()
    }

    fn syscalls(edited: &Edited) -> &[Value] {
        edited.profile["syscalls"].as_array().unwrap()
    }

    /// Makes a profile like Docker's: calls that are not named are refused.
    fn dockers(extra: Value) -> Option<Profile> {
        profile(json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "defaultErrnoRet": 1,
            "architectures": ["SCMP_ARCH_X86_64"],
            "listenerPath": "/run/x",
            "syscalls": [
                {"names": ["fsync", "read", "sync", "sync_file_range"], "action": "SCMP_ACT_ALLOW"},
                {"names": ["syncfs", "fdatasync", "msync"], "action": "SCMP_ACT_ALLOW", "args": []},
                extra,
            ],
        }))
    }

    #[test]
    fn our_rules_come_first_and_our_names_leave_the_others() {
        let edited =
            hold(dockers(json!({"names": ["write"], "action": "SCMP_ACT_NOTIFY"}))).unwrap();
        let rules = syscalls(&edited);
        assert_eq!(rules[0]["names"], json!(["syncfs", "fsync", "sync", "fdatasync"]));
        assert_eq!((&rules[0]["action"], &rules[0]["errnoRet"]), (&json!(ERRNO), &json!(0)));
        let theirs: Vec<_> = rules.iter().filter(|rule| rule.get("errnoRet").is_none()).collect();
        assert_eq!(theirs[0]["names"], json!(["msync"]), "which only changes memory");
        assert_eq!(theirs[1]["names"], json!(["read"]));
        assert_eq!(theirs[2], &json!({"names": ["write"], "action": "SCMP_ACT_NOTIFY"}));
        assert_eq!(theirs.len(), 3, "the emptied rule is gone");
        assert_eq!(edited.profile["listenerPath"], "/run/x");
        assert_eq!(edited.left, ["sync_file_range2", "arm_sync_file_range"], "not allowed before");
        assert!(!edited.io_uring_refused, "it is refused already");
    }

    #[test]
    fn only_a_build_step_answers_that_it_is_one() {
        for (purpose, is_step) in [(Purpose::BuildStep, true), (Purpose::Other, false)] {
            let edited = super::hold(None, purpose).unwrap().profile;
            assert!(is_held(&edited) && is_of_step(&edited) == is_step);
        }
        assert!(!is_held(&allow_all()));
    }

    #[test]
    fn io_uring_is_not_there_where_it_would_have_been_allowed() {
        let edited =
            hold(dockers(json!({"names": ["io_uring_setup"], "action": "SCMP_ACT_ALLOW"})))
                .unwrap();
        let all = syscalls(&edited);
        let rule = all.iter().find(|rule| rule["names"] == json!(["io_uring_setup"])).unwrap();
        assert_eq!(rule["errnoRet"], 38);
        assert!(edited.io_uring_refused);
    }

    #[test]
    fn without_a_section_one_is_made_that_allows_all_else() {
        for none in [None, profile(json!({}))] {
            let edited = hold(none).unwrap();
            assert_eq!(edited.profile["defaultAction"], ALLOW);
            let listed = edited.profile["architectures"].as_array().unwrap();
            assert_eq!(listed.len(), native_abis().len(), "a caller of another ABI is killed");
            for (name, arch) in [("SCMP_ARCH_AARCH64", "aarch64"), ("SCMP_ARCH_X86_64", "x86_64")] {
                let is_ours = std::env::consts::ARCH == arch;
                assert_eq!(listed.contains(&json!(name)), is_ours, "{name} in {listed:?}");
            }
            assert!(edited.left.is_empty() && edited.io_uring_refused);
            assert!(!edited.profile.contains_key("flags"), "old runc refuses any");
        }
    }

    #[test]
    fn a_call_that_the_profile_restricts_is_left_to_it() {
        for rule in [
            json!({"names": ["fsync"], "action": "SCMP_ACT_NOTIFY"}),
            json!({"names": ["fsync"], "action": "SCMP_ACT_ERRNO", "errnoRet": 5}),
            json!({"names": ["fsync"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]}),
            json!({"names": ["fsync"], "action": "SCMP_ACT_LOG"}),
        ] {
            let edited = hold(dockers(rule.clone())).unwrap();
            assert_eq!(edited.left[0], "fsync", "{rule}");
            assert!(!edited.held.contains(&"fsync"));
            assert!(syscalls(&edited).contains(&rule), "{rule}");
            assert_eq!(syscalls(&edited)[0]["names"], json!(["syncfs", "sync", "fdatasync"]));
        }
    }

    #[test]
    fn a_profile_that_is_held_already_stays_as_it_is() {
        let once = hold(dockers(json!({"names": ["write"], "action": "SCMP_ACT_LOG"}))).unwrap();
        let twice = hold(Some(once.profile.clone())).unwrap();
        assert_eq!(twice.profile, once.profile);
        assert!(twice.held.is_empty());
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for (broken, what) in [
            (json!({"syscalls": []}), "defaultAction"),
            (json!({"defaultAction": ALLOW, "syscalls": 7}), "syscalls"),
            (json!({"defaultAction": ALLOW, "syscalls": [{"names": "fsync"}]}), "names"),
            (json!({"defaultAction": ALLOW, "syscalls": [{"names": ["fsync"]}]}), "action"),
        ] {
            let error = hold(profile(broken)).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
