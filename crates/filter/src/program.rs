//! Generates a BPF program from rules.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::abi::Abi;
use crate::assemble::{Assembler, Label};
use crate::call::Call;
use crate::instruction::{Program, code, offset, ret};
use crate::rule::{Action, Condition, Rule, Word, rule};
use crate::spec::Spec;

/// Returns the program for `spec` on a machine whose processes use `abis`. Calls of any other
/// ABI are allowed.
///
/// The program has one block for each audit architecture, in the order of `abis`. A block looks up
/// the number by binary search, then tests the arguments as the rule demands. An ABI counts once,
/// however often `abis` has it.
#[must_use]
pub fn program(spec: &Spec, abis: &[Abi]) -> Program {
    let mut assembler = Assembler::default();
    let mut done = Vec::new();
    assembler.load(offset::ARCH);
    for arch in abis.iter().map(|abi| abi.audit_arch()) {
        if done.contains(&arch) {
            continue;
        }
        done.push(arch);
        let (block, next) = (assembler.label(), assembler.label());
        assembler.branch(code::JUMP_EQUAL, arch, block, next);
        assembler.bind(block);
        Block::new(&mut assembler).emit(&rules(spec, abis, arch));
        assembler.bind(next);
    }
    assembler.ret(ret::ALLOW);
    assembler.finish()
}

/// Returns the rules by system call number, for the ABIs in `abis` with this audit architecture. A
/// call that is always allowed has no rule.
fn rules(spec: &Spec, abis: &[Abi], arch: u32) -> BTreeMap<u32, Rc<Rule>> {
    let mut rules = BTreeMap::new();
    for &abi in abis.iter().filter(|abi| abi.audit_arch() == arch) {
        for &call in Call::ALL {
            let rule = Rc::new(rule(spec, call, abi));
            if *rule != Rule::Done(Action::Allow) {
                rules.extend(call.numbers(abi).map(|number| (number, Rc::clone(&rule))));
            }
        }
    }
    rules
}

/// The block of one audit architecture. It has its own return instructions, so that its jumps stay
/// within the block and are short.
struct Block<'a> {
    assembler: &'a mut Assembler,
    /// The label of the return instruction of each action that the block uses.
    endings: Vec<(Action, Label)>,
}

impl<'a> Block<'a> {
    fn new(assembler: &'a mut Assembler) -> Self {
        Self { assembler, endings: Vec::new() }
    }

    fn emit(mut self, rules: &BTreeMap<u32, Rc<Rule>>) {
        let allow = self.ending(Action::Allow);
        let mut bodies: Vec<(&Rule, Label)> = Vec::new();
        let mut entries = Vec::with_capacity(rules.len());
        for (&number, rule) in rules {
            let rule = rule.as_ref();
            let known = bodies.iter().find(|(body, _)| *body == rule).map(|&(_, label)| label);
            let label = match (known, rule) {
                (Some(label), _) => label,
                (None, &Rule::Done(action)) => self.ending(action),
                (None, Rule::Test { .. }) => {
                    let label = self.assembler.label();
                    bodies.push((rule, label));
                    label
                }
            };
            entries.push((number, label));
        }
        if !entries.is_empty() {
            self.assembler.load(offset::NR);
            self.search(&entries, allow);
        }
        for (body, label) in bodies {
            self.assembler.bind(label);
            self.tests(body, None);
        }
        for (action, label) in self.endings {
            self.assembler.bind(label);
            self.assembler.ret(return_value(action));
        }
    }

    /// Emits the binary search for the number in the accumulator among `entries`, which are in
    /// ascending order. A number that is not there goes to `otherwise`.
    fn search(&mut self, entries: &[(u32, Label)], otherwise: Label) {
        if let [(number, label)] = *entries {
            return self.assembler.branch(code::JUMP_EQUAL, number, label, otherwise);
        }
        let (below, above) = entries.split_at(entries.len() / 2);
        let (low, high) = (self.assembler.label(), self.assembler.label());
        self.assembler.branch(code::JUMP_AT_LEAST, above[0].0, high, low);
        self.assembler.bind(low);
        self.search(below, otherwise);
        self.assembler.bind(high);
        self.search(above, otherwise);
    }

    /// Emits the tests of `rule`. `loaded` is the word in the accumulator; `None` if another value
    /// is there.
    fn tests(&mut self, rule: &Rule, loaded: Option<Word>) {
        let Rule::Test { word, condition, yes, no } = rule else {
            return;
        };
        if loaded != Some(*word) {
            self.assembler.load(word_offset(*word));
        }
        let (yes_label, no_label) = (self.place(yes), self.place(no));
        let after = match *condition {
            Condition::AnyBit(mask) => {
                self.assembler.branch(code::JUMP_ANY_BIT, mask, yes_label, no_label);
                Some(*word)
            }
            Condition::Equal(value) => {
                self.assembler.branch(code::JUMP_EQUAL, value, yes_label, no_label);
                Some(*word)
            }
            Condition::MaskedEqual { mask, value } => {
                self.assembler.and(mask);
                self.assembler.branch(code::JUMP_EQUAL, value, yes_label, no_label);
                None
            }
        };
        for (branch, label) in [(yes, yes_label), (no, no_label)] {
            if let Rule::Test { .. } = **branch {
                self.assembler.bind(label);
                self.tests(branch, after);
            }
        }
    }

    /// Returns the label of `rule`: that of the shared return instruction, or a new one, which the
    /// caller must bind.
    fn place(&mut self, rule: &Rule) -> Label {
        match rule {
            Rule::Done(action) => self.ending(*action),
            Rule::Test { .. } => self.assembler.label(),
        }
    }

    fn ending(&mut self, action: Action) -> Label {
        if let Some(&(_, label)) = self.endings.iter().find(|(known, _)| *known == action) {
            return label;
        }
        let label = self.assembler.label();
        self.endings.push((action, label));
        label
    }
}

const fn word_offset(word: Word) -> u32 {
    match word {
        Word::Low(argument) => offset::ARGS + 8 * argument as u32,
        Word::High(argument) => offset::ARGS + 8 * argument as u32 + 4,
    }
}

fn return_value(action: Action) -> u32 {
    match action {
        Action::Allow => ret::ALLOW,
        Action::Errno(errno) => ret::ERRNO | u32::from(errno),
        Action::Notify => ret::USER_NOTIF,
    }
}
