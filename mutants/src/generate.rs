//! Finds what can be changed in a file: its mutants, and the edits that weave them in.
//!
//! The file is parsed, and every function that is not a test is walked. Where two mutants would be
//! the same for every caller only one is made; whether a mutant type-checks is left to the
//! compiler.

use crate::operators::{self, Class};
use crate::syntax::{
    Branches, has_let, is_about_room, is_call, is_lower, is_test, makes_room, range, tidy_type,
};
use crate::values;
use crate::weave::{Edit, Piece, SWITCH};
use quote::ToTokens;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, Pat, Signature, Stmt, Type};

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// What it is, and in which function: `path: fault in function`, with a number if the function
    /// has more of the same. Without a line, which moves with every change.
    pub name: String,
    /// The file.
    pub path: String,
    /// Where to look, from 1.
    pub line: usize,
    /// Changes with the text of its function.
    pub fingerprint: u64,
    /// Its function, one of [`Plan::functions`].
    pub function: usize,
}

/// A function with mutants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name, without its type.
    pub name: String,
    /// Its bytes.
    pub range: Range<usize>,
    /// It is declared `const`. Its copy is not, unless it is called where a constant is needed.
    pub is_const: bool,
}

/// What can be changed in a file.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// All faults.
    pub mutants: Vec<Mutant>,
    /// How they get into the text; they count the mutants as this plan does.
    pub edits: Vec<Edit>,
    /// The functions that have any.
    pub functions: Vec<Function>,
}

/// Finds all mutants of a file.
pub fn generate(path: &str, text: &str) -> syn::Result<Plan> {
    let file = syn::parse_file(text)?;
    let plan = Plan::default();
    let mut generator =
        Generator { path, text, plan, types: Vec::new(), function: None, counts: BTreeMap::new() };
    generator.visit_file(&file);
    Ok(generator.plan)
}

/// The function that is walked.
#[derive(Clone)]
struct Current {
    index: usize,
    name: String,
    fingerprint: u64,
}

struct Generator<'a> {
    path: &'a str,
    text: &'a str,
    plan: Plan,
    /// The types and traits around.
    types: Vec<String>,
    function: Option<Current>,
    /// How often a name has been given.
    counts: BTreeMap<String, usize>,
}

fn always(text: impl Into<String>) -> Piece {
    Piece::Always(text.into())
}

impl Generator<'_> {
    fn source(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    /// The source in one line, cut when it is long.
    fn brief(&self, range: Range<usize>) -> String {
        const LENGTH_MAX: usize = 60;
        let words: Vec<_> = self.source(range).split_whitespace().collect();
        let line = words.join(" ");
        if line.chars().count() <= LENGTH_MAX {
            return line;
        }
        line.chars().take(LENGTH_MAX).chain("...".chars()).collect()
    }

    /// Adds a mutant of the current function. A fault that does not name its function gets it
    /// behind.
    fn add(&mut self, at: usize, fault: &str, names_function: bool) -> Option<usize> {
        let function = self.function.as_ref()?;
        let fault = match names_function {
            true => fault.to_owned(),
            false => format!("{fault} in {}", function.name),
        };
        let name = format!("{}: {fault}", self.path);
        let count = self.counts.entry(name.clone()).or_default();
        *count += 1;
        let name = if *count > 1 { format!("{name} ({count})") } else { name };
        let line = 1 + self.source(0..at).matches('\n').count();
        self.plan.mutants.push(Mutant {
            name,
            path: self.path.to_owned(),
            line,
            fingerprint: function.fingerprint,
            function: function.index,
        });
        Some(self.plan.mutants.len() - 1)
    }

    /// A piece of text for a new mutant.
    fn piece(&mut self, at: usize, fault: &str, text: &str) -> Option<Piece> {
        Some(Piece::Of(self.add(at, fault, false)?, text.to_owned()))
    }

    fn edit(&mut self, edit: Edit) {
        if edit.mutants().next().is_some() {
            self.plan.edits.push(edit);
        }
    }

    /// Walks a function that has a body.
    fn function(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        if is_test(attributes) {
            return;
        }
        let place = range(signature).start..range(body).end;
        let mut hasher = DefaultHasher::new();
        self.source(place.clone()).hash(&mut hasher);
        let short = signature.ident.to_string();
        let name = self.types.last().map_or_else(|| short.clone(), |ty| format!("{ty}::{short}"));
        let current = Current {
            index: self.plan.functions.len(),
            name: name.clone(),
            fingerprint: hasher.finish(),
        };
        let is_const = signature.constness.is_some();
        self.plan.functions.push(Function { name: short, range: place, is_const });
        let outer = self.function.replace(current);
        let first = self.plan.mutants.len();
        let body_edits = self.plan.edits.len();
        self.replace_body(&name, signature, body);
        visit::visit_block(self, body);
        if let Some(constness) = &signature.constness {
            let needed_by = (first..self.plan.mutants.len()).collect();
            let word = range(constness);
            let edit =
                Edit { range: word.clone(), deleted: Some(word), needed_by, ..Edit::default() };
            self.plan.edits.insert(body_edits, edit);
        }
        self.function = outer;
    }

    /// The whole body becomes a plain value.
    fn replace_body(&mut self, name: &str, signature: &Signature, body: &Block) {
        let inner = range(body);
        let inner = inner.start + 1..inner.end.saturating_sub(1);
        let old = self.source(inner.clone()).trim().to_owned();
        if old.is_empty() || signature.ident == "main" || signature.ident == "default" {
            return;
        }
        let output = signature.output.to_token_stream();
        let output = if output.is_empty() { String::new() } else { format!(" {output}") };
        let output = tidy_type(&output);
        let mut edit = Edit { range: inner, ..Edit::default() };
        for value in values::of_return(&signature.output).into_iter().filter(|it| *it != old) {
            let fault = format!("replace {name}{output} with {value}");
            if let Some(mutant) = self.add(range(&signature.ident).start, &fault, true) {
                let text = format!(" if {SWITCH} {{ return {value}; }}");
                edit.open.push(Piece::Of(mutant, text));
            }
        }
        self.edit(edit);
    }

    /// An operator between two operands becomes another one.
    fn binary(&mut self, whole: Range<usize>, left: &Expr, operator: &syn::BinOp, right: &Expr) {
        let Some(operators::Operator { class, symbol, others }) = operators::find(operator) else {
            return;
        };
        if class == Class::Logic && (has_let(left) || has_let(right)) {
            return;
        }
        let place = range(operator);
        let faults: Vec<_> = others
            .iter()
            .filter_map(|other| {
                let fault = format!("replace {symbol} with {other}");
                Some((self.add(place.start, &fault, false)?, *other))
            })
            .collect();
        let choices = |text: &dyn Fn(&str) -> String| -> Vec<Piece> {
            let choice = |(mutant, other): &(usize, &'static str)| {
                Piece::Of(*mutant, format!("if {SWITCH} {{ {} }} else ", text(other)))
            };
            faults.iter().map(choice).collect()
        };
        let mut edit = Edit { range: whole.clone(), ..Edit::default() };
        match class {
            Class::Comparison | Class::Arithmetic => {
                let by = if class == Class::Comparison { "&" } else { "" };
                edit.open = vec![always(format!("(match ({by}("))];
                edit.inside = Some((place.start, always(format!("), {by}("))));
                edit.deleted = Some(place);
                edit.close = vec![always(")) { (__left, __right) => ")];
                edit.close.extend(choices(&|other| format!("__left {other} __right")));
                edit.close.push(always(format!("{{ __left {symbol} __right }} }})")));
            }
            Class::Assignment => {
                let target = self.source(range(left)).to_owned();
                edit.open = vec![always("(match (")];
                edit.deleted = Some(whole.start..range(right).start);
                edit.close = vec![always(") { __right => ")];
                edit.close.extend(choices(&|other| format!("{target} {other} __right")));
                edit.close.push(always(format!("{{ {target} {symbol} __right }} }})")));
            }
            // `x && y` is `if x { y } else { x }`, and `x || y` asks for the opposite of x.
            Class::Logic => {
                let question = if symbol == "&&" { "!=" } else { "==" };
                let inside = format!(") {{ __left => if __left {question} {SWITCH} {{ (");
                edit.open = vec![always("(match (")];
                edit.inside = faults.first().map(|(it, _)| (place.start, Piece::Of(*it, inside)));
                edit.deleted = Some(place);
                edit.close = vec![always(") } else { __left } })")];
            }
        }
        self.edit(edit);
    }

    /// A condition is forced to be true or false. One with a `let` in it can only be false.
    fn condition(&mut self, what: &str, condition: &Expr, values: &[bool]) {
        let place = range(condition);
        let chain = has_let(condition);
        let mut edit = Edit { range: place.clone(), ..Edit::default() };
        for value in values.iter().filter(|value| !(**value && chain)) {
            if self.source(place.clone()) == value.to_string() {
                continue;
            }
            let text = if *value { format!("{SWITCH} || ") } else { format!("!{SWITCH} && ") };
            let piece = self.piece(place.start, &format!("replace {what} with {value}"), &text);
            edit.open.extend(piece);
        }
        if !chain {
            edit.open.insert(0, always("("));
            edit.open.push(always("("));
            edit.close = vec![always("))")];
        }
        self.edit(edit);
    }

    /// An operator in front of an operand goes.
    fn unary(&mut self, whole: Range<usize>, operator: &syn::UnOp, operand: &Expr) {
        let symbol = match operator {
            syn::UnOp::Not(_) => "!",
            syn::UnOp::Neg(_) => "-",
            _ => return,
        };
        if has_let(operand) {
            return;
        }
        let place = range(operator);
        // Twice is as good as never, and leaves the type as it is.
        let text = format!("if {SWITCH} {{ {symbol}({symbol}__operand) }} else ");
        let piece = self.piece(place.start, &format!("delete {symbol}"), &text);
        let mut edit = Edit { range: whole, deleted: Some(place), ..Edit::default() };
        edit.open = vec![always("(match (")];
        edit.close = vec![always(") { __operand => ")];
        edit.close.extend(piece);
        edit.close.push(always(format!("{{ {symbol}__operand }} }})")));
        self.edit(edit);
    }

    /// An arm of a match never fits, if there is one that always does.
    fn arms(&mut self, arms: &[syn::Arm]) {
        let always_fits = |arm: &syn::Arm| {
            let any = matches!(&arm.pat, Pat::Wild(_))
                || matches!(&arm.pat, Pat::Ident(pat) if pat.subpat.is_none() && is_lower(&pat.ident));
            any && arm.guard.is_none()
        };
        let has_wildcard = arms.iter().any(always_fits);
        for arm in arms {
            let pattern = range(&arm.pat);
            let guard = arm.guard.as_ref().map(|(_, guard)| guard);
            if has_wildcard && !always_fits(arm) && !guard.is_some_and(|guard| has_let(guard)) {
                let fault = format!("delete match arm {}", self.brief(pattern.clone()));
                let text = if guard.is_some() { "" } else { " if " };
                let and = if guard.is_some() { " && " } else { "" };
                let piece = self.piece(pattern.start, &fault, &format!("{text}!{SWITCH}{and}"));
                let mut edit = Edit { range: guard.map_or(pattern, range), ..Edit::default() };
                match guard {
                    Some(_) => edit.open.extend(piece),
                    None => edit.close.extend(piece),
                }
                self.edit(edit);
            }
            if let Some(guard) = guard {
                self.condition("match guard", guard, &[true, false]);
            }
        }
    }

    /// A call whose result is not used, or an assignment to a field, does not happen.
    fn statement(&mut self, statement: &Stmt) {
        let expression = match statement {
            Stmt::Expr(expression, Some(_)) => expression,
            Stmt::Local(local) if matches!(local.pat, Pat::Wild(_)) => match &local.init {
                Some(init) if init.diverge.is_none() => &init.expr,
                _ => return,
            },
            _ => return,
        };
        let place = range(statement);
        let fault = match expression {
            Expr::Assign(assign) if !matches!(&*assign.left, Expr::Path(_) | Expr::Infer(_)) => {
                format!("delete assignment to {}", self.brief(range(&assign.left)))
            }
            Expr::MethodCall(_) | Expr::Call(_) | Expr::Try(_) | Expr::Await(_)
                if is_call(expression) =>
            {
                format!("delete call {}", self.brief(range(expression)))
            }
            _ => return,
        };
        let piece = self.piece(place.start, &fault, &format!("if !{SWITCH} {{ "));
        let open = piece.into_iter().collect();
        self.edit(Edit { range: place, open, close: vec![always(" }")], ..Edit::default() });
    }

    /// `matches!` says the opposite.
    fn negate_matches(&mut self, whole: Range<usize>) {
        let fault = format!("negate {}", self.brief(whole.clone()));
        let Some(piece) = self.piece(whole.start, &fault, &format!("{SWITCH} != ")) else { return };
        let open = vec![always("("), piece];
        self.edit(Edit { range: whole, open, close: vec![always(")")], ..Edit::default() });
    }

    /// The branches of `tokio::select!`, which the parser takes for mere tokens.
    fn select(&mut self, tokens: &proc_macro2::TokenStream) {
        let Ok(branches) = syn::parse2::<Branches>(tokens.clone()) else { return };
        for (condition, parts) in branches.0 {
            if let Some(condition) = condition {
                self.condition("select condition", &condition, &[true, false]);
                self.visit_expr(&condition);
            }
            parts.iter().for_each(|part| self.visit_expr(part));
        }
    }
}

impl Visit<'_> for Generator<'_> {
    fn visit_item_mod(&mut self, item: &syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        let types = std::mem::take(&mut self.types);
        self.function(&item.attrs, &item.sig, &item.block);
        self.types = types;
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        self.function(&item.attrs, &item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.attrs, &item.sig, body);
        }
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        let of_trait = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        let is_text = of_trait.is_some_and(|it| it.ident == "Debug" || it.ident == "Display");
        if is_text || is_test(&item.attrs) {
            return;
        }
        let ty = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|it| it.ident.to_string()),
            _ => None,
        };
        self.types
            .push(ty.unwrap_or_else(|| tidy_type(&item.self_ty.to_token_stream().to_string())));
        visit::visit_item_impl(self, item);
        self.types.pop();
    }

    fn visit_item_trait(&mut self, item: &syn::ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.types.pop();
    }

    // What must be constant stays as it is.
    fn visit_item_const(&mut self, _: &syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &syn::ExprConst) {}
    fn visit_type(&mut self, _: &Type) {}
    fn visit_path_arguments(&mut self, _: &syn::PathArguments) {}
    fn visit_pat(&mut self, _: &Pat) {}
    fn visit_attribute(&mut self, _: &Attribute) {}
    fn visit_variant(&mut self, _: &syn::Variant) {}
    fn visit_expr_repeat(&mut self, repeat: &syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_stmt(&mut self, statement: &Stmt) {
        self.statement(statement);
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_if(&mut self, expression: &syn::ExprIf) {
        self.condition("if condition", &expression.cond, &[true, false]);
        visit::visit_expr_if(self, expression);
    }

    /// A loop that never ends is found by its time alone, so it is only tried what never begins.
    fn visit_expr_while(&mut self, expression: &syn::ExprWhile) {
        self.condition("while condition", &expression.cond, &[false]);
        visit::visit_expr_while(self, expression);
    }

    fn visit_expr_match(&mut self, expression: &syn::ExprMatch) {
        self.arms(&expression.arms);
        visit::visit_expr_match(self, expression);
    }

    fn visit_expr_binary(&mut self, expression: &syn::ExprBinary) {
        let syn::ExprBinary { left, op, right, .. } = expression;
        self.binary(range(expression), left, op, right);
        // What is assigned to is written more than once, and stays as it is.
        if !operators::is_assignment(op) {
            self.visit_expr(left);
        }
        self.visit_expr(right);
    }

    fn visit_expr_call(&mut self, expression: &syn::ExprCall) {
        if !makes_room(expression) {
            visit::visit_expr_call(self, expression);
        }
    }

    fn visit_expr_method_call(&mut self, expression: &syn::ExprMethodCall) {
        if is_about_room(&expression.method) {
            self.visit_expr(&expression.receiver);
        } else {
            visit::visit_expr_method_call(self, expression);
        }
    }

    fn visit_expr_unary(&mut self, expression: &syn::ExprUnary) {
        self.unary(range(expression), &expression.op, &expression.expr);
        visit::visit_expr_unary(self, expression);
    }

    fn visit_expr_assign(&mut self, expression: &syn::ExprAssign) {
        self.visit_expr(&expression.right);
    }

    fn visit_macro(&mut self, item: &syn::Macro) {
        match item.path.segments.last().map(|it| it.ident.to_string()).as_deref() {
            Some("matches") => self.negate_matches(range(item)),
            Some("select") => self.select(&item.tokens),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
