//! Translates labels into jump offsets.

use crate::instruction::{Instruction, Program, code};

/// A position in the program, which may be unknown yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// Collects instructions whose jumps refer to labels; all jumps go forward.
#[derive(Default)]
pub(crate) struct Assembler {
    instructions: Vec<(u16, u32, Option<[Label; 2]>)>,
    bound: Vec<Option<usize>>,
}

impl Assembler {
    /// Returns a label, to be bound later.
    pub(crate) fn label(&mut self) -> Label {
        self.bound.push(None);
        Label(self.bound.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        assert!(self.bound[label.0].is_none(), "a label has one place");
        self.bound[label.0] = Some(self.instructions.len());
    }

    /// Loads the word at `offset` of `struct seccomp_data`.
    pub(crate) fn load(&mut self, offset: u32) {
        self.instructions.push((code::LOAD, offset, None));
    }

    /// Keeps only the bits of `mask`.
    pub(crate) fn and(&mut self, mask: u32) {
        self.instructions.push((code::AND, mask, None));
    }

    /// Ends with the return value `value`.
    pub(crate) fn ret(&mut self, value: u32) {
        self.instructions.push((code::RETURN, value, None));
    }

    /// Jumps to `yes` if `operation` holds for the loaded word and `k`, else to `no`.
    pub(crate) fn branch(&mut self, operation: u16, k: u32, yes: Label, no: Label) {
        self.instructions.push((operation, k, Some([yes, no])));
    }

    /// Turns labels into offsets.
    ///
    /// # Panics
    /// A label was never bound, or a jump goes backwards or over more than 255 instructions: a
    /// defect of the generator. Tests cover every policy and every set of ABIs.
    pub(crate) fn finish(self) -> Program {
        let Self { instructions, bound } = self;
        let skip = |from: usize, label: Label| {
            let to = bound[label.0].expect("every label is bound");
            let distance = to.checked_sub(from + 1).expect("jumps go forward");
            u8::try_from(distance).expect("a jump spans at most 255 instructions")
        };
        let encode = |(at, (code, k, targets)): (usize, (u16, u32, Option<[Label; 2]>))| {
            let [jt, jf] = targets.map_or([0, 0], |labels| labels.map(|label| skip(at, label)));
            Instruction { code, jt, jf, k }
        };
        Program::from_instructions(instructions.into_iter().enumerate().map(encode).collect())
    }
}
