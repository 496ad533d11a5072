//! What takes the place of an operator.

use syn::BinOp;

/// How an operator is woven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It looks at its operands, and leaves them.
    Comparison,
    /// It takes its operands.
    Arithmetic,
    /// It changes its left operand.
    Assignment,
    /// It may leave out its right operand.
    Logic,
}

/// An operator, and those that take its place one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operator {
    /// How it is woven.
    pub class: Class,
    /// How it is written.
    pub symbol: &'static str,
    /// How the others are written.
    pub others: &'static [&'static str],
}

/// Whether the operator changes its left operand.
pub fn is_assignment(operator: &BinOp) -> bool {
    find(operator).is_some_and(|it| it.class == Class::Assignment)
}

/// What takes the place of this operator: of a comparison its bound and its opposite, of the others
/// what type-checks most often.
pub fn find(operator: &BinOp) -> Option<Operator> {
    use Class::{Arithmetic, Assignment, Comparison, Logic};
    let (class, symbol, others): (_, _, &'static [&'static str]) = match operator {
        BinOp::Eq(_) => (Comparison, "==", &["!="]),
        BinOp::Ne(_) => (Comparison, "!=", &["=="]),
        BinOp::Lt(_) => (Comparison, "<", &["<=", ">="]),
        BinOp::Le(_) => (Comparison, "<=", &["<", ">"]),
        BinOp::Gt(_) => (Comparison, ">", &[">=", "<="]),
        BinOp::Ge(_) => (Comparison, ">=", &[">", "<"]),
        BinOp::And(_) => (Logic, "&&", &["||"]),
        BinOp::Or(_) => (Logic, "||", &["&&"]),
        BinOp::Add(_) => (Arithmetic, "+", &["-", "*"]),
        BinOp::Sub(_) => (Arithmetic, "-", &["+", "/"]),
        BinOp::Mul(_) => (Arithmetic, "*", &["+", "/"]),
        BinOp::Div(_) => (Arithmetic, "/", &["%", "*"]),
        BinOp::Rem(_) => (Arithmetic, "%", &["/", "+"]),
        BinOp::BitAnd(_) => (Arithmetic, "&", &["|", "^"]),
        BinOp::BitOr(_) => (Arithmetic, "|", &["&", "^"]),
        BinOp::BitXor(_) => (Arithmetic, "^", &["|", "&"]),
        BinOp::Shl(_) => (Arithmetic, "<<", &[">>"]),
        BinOp::Shr(_) => (Arithmetic, ">>", &["<<"]),
        BinOp::AddAssign(_) => (Assignment, "+=", &["-=", "*="]),
        BinOp::SubAssign(_) => (Assignment, "-=", &["+=", "/="]),
        BinOp::MulAssign(_) => (Assignment, "*=", &["+=", "/="]),
        BinOp::DivAssign(_) => (Assignment, "/=", &["%=", "*="]),
        BinOp::RemAssign(_) => (Assignment, "%=", &["/=", "+="]),
        BinOp::BitAndAssign(_) => (Assignment, "&=", &["|="]),
        BinOp::BitOrAssign(_) => (Assignment, "|=", &["&="]),
        BinOp::BitXorAssign(_) => (Assignment, "^=", &["|="]),
        BinOp::ShlAssign(_) => (Assignment, "<<=", &[">>="]),
        BinOp::ShrAssign(_) => (Assignment, ">>=", &["<<="]),
        _ => return None,
    };
    Some(Operator { class, symbol, others })
}
