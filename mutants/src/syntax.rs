//! Questions to the syntax tree.

use quote::ToTokens;
use std::ops::Range;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Expr, Pat, Token};

/// The branches of `tokio::select!`: the condition of each, and what is awaited and done.
pub struct Branches(pub Vec<(Option<Expr>, Vec<Expr>)>);

impl Parse for Branches {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        if input.peek(syn::Ident) && input.peek2(Token![;]) {
            input.parse::<syn::Ident>()?;
            input.parse::<Token![;]>()?;
        }
        let mut branches = Vec::new();
        while !input.is_empty() {
            let mut condition = None;
            let mut parts = Vec::new();
            if input.peek(Token![else]) {
                input.parse::<Token![else]>()?;
            } else {
                Pat::parse_multi_with_leading_vert(input)?;
                input.parse::<Token![=]>()?;
                parts.push(input.parse()?);
                if input.peek(Token![,]) {
                    input.parse::<Token![,]>()?;
                    input.parse::<Token![if]>()?;
                    condition = Some(input.parse()?);
                }
            }
            input.parse::<Token![=>]>()?;
            parts.push(match input.peek(syn::token::Brace) {
                true => Expr::Block(input.parse()?),
                false => input.parse()?,
            });
            branches.push((condition, parts));
            input.parse::<Option<Token![,]>>()?;
        }
        Ok(Self(branches))
    }
}

/// The bytes of a part of the file.
pub fn range(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

/// A name of a value, and not of a constant.
pub fn is_lower(name: &syn::Ident) -> bool {
    name.to_string().starts_with(char::is_lowercase)
}

/// Whether a condition is a chain with a `let` in it.
pub fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Whether it calls something that does more than to make room.
pub fn is_call(expression: &Expr) -> bool {
    match expression {
        Expr::MethodCall(call) => !is_about_room(&call.method),
        Expr::Call(call) => !matches!(&*call.func, Expr::Path(path) if path.path.is_ident("drop")),
        Expr::Try(inner) => is_call(&inner.expr),
        Expr::Await(inner) => is_call(&inner.base),
        _ => false,
    }
}

/// Whether a method says how much room a buffer gets before it is filled. No test can tell: it
/// grows when that is too little.
pub fn is_about_room(method: &syn::Ident) -> bool {
    ["reserve", "reserve_exact", "shrink_to_fit"].iter().any(|name| method == name)
}

/// As [`is_about_room`], of a function.
pub fn makes_room(call: &syn::ExprCall) -> bool {
    let Expr::Path(path) = &*call.func else { return false };
    path.path.segments.last().is_some_and(|last| last.ident == "with_capacity")
}

/// Whether an attribute says that an item is for tests only.
pub fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let name = attribute.path().segments.last().map(|it| it.ident.to_string());
        match name.as_deref() {
            Some("test") => true,
            Some("cfg") => {
                let words = attribute.meta.to_token_stream().to_string();
                let mut words = words.split(|it: char| !it.is_alphanumeric() && it != '_');
                words.clone().any(|word| word == "test") && !words.any(|word| word == "not")
            }
            _ => false,
        }
    })
}

/// The paths, without `.rs`, of the modules that this file declares for tests and that lie in files
/// of their own. `any(test, …)` compiles a module for others, too.
pub fn test_modules(path: &str, file: &syn::File) -> Vec<String> {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let base = if matches!(name, "mod" | "lib" | "main") { folder } else { stem };
    let module = |item: &syn::Item| match item {
        syn::Item::Mod(module) if module.content.is_none() && is_test(&module.attrs) => {
            let mut attributes =
                module.attrs.iter().map(|it| it.meta.to_token_stream().to_string());
            let for_others = attributes.any(|it| it.contains("any ("));
            (!for_others).then(|| format!("{base}/{}", module.ident))
        }
        _ => None,
    };
    file.items.iter().filter_map(module).collect()
}

/// A type as one would write it.
pub fn tidy_type(tokens: &str) -> String {
    let mut text = tokens.to_owned();
    let spaces = [
        (" :: ", "::"),
        (" < ", "<"),
        (" >", ">"),
        ("& ", "&"),
        (" ,", ","),
        ("( )", "()"),
        ("->", "-> "),
    ];
    for (from, to) in spaces {
        text = text.replace(from, to);
    }
    text.replace("->  ", "-> ").trim_end().to_owned()
}
