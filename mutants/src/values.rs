//! The plain values that the body of a function is replaced by, from its return type alone.

use syn::{GenericArgument, PathArguments, ReturnType, Type, TypePath};

/// More values than this are not tried for one function.
const VALUES_MAX: usize = 4;

/// The expressions that a function of this return type can return instead, as far as the type
/// tells. Some do not type-check: only the compiler knows.
pub fn of_return(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec!["()".to_owned()],
        ReturnType::Type(_, ty) => of_type(ty),
    }
}

fn of_type(ty: &Type) -> Vec<String> {
    let mut values = match ty {
        // Nothing can be returned; or another type than the body returns would be.
        Type::Never(_) | Type::ImplTrait(_) => Vec::new(),
        Type::Paren(inner) => of_type(&inner.elem),
        Type::Tuple(tuple) => product(tuple.elems.iter().map(of_type)),
        Type::Reference(reference) => of_reference(&reference.elem),
        Type::Path(path) => of_path(path),
        _ => vec!["Default::default()".to_owned()],
    };
    values.truncate(VALUES_MAX);
    values
}

fn of_reference(target: &Type) -> Vec<String> {
    match target {
        Type::Path(path) if path.path.is_ident("str") => strings("\"\"", "\"xyzzy\""),
        Type::Slice(slice) => {
            let one = of_type(&slice.elem).into_iter().take(1);
            let one = one.map(|value| format!("Vec::leak(vec![{value}])"));
            std::iter::once("Vec::leak(Vec::new())".to_owned()).chain(one).collect()
        }
        target => wrap(of_type(target), |value| format!("Box::leak(Box::new({value}))")),
    }
}

fn of_path(path: &TypePath) -> Vec<String> {
    let Some(segment) = path.path.segments.last() else { return Vec::new() };
    let name = segment.ident.to_string();
    let arguments: Vec<&Type> = match &segment.arguments {
        PathArguments::AngleBracketed(list) => list.args.iter().filter_map(as_type).collect(),
        _ => Vec::new(),
    };
    let first = || arguments.first().map(|ty| of_type(ty)).unwrap_or_default();
    match name.as_str() {
        "bool" => strings("true", "false"),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" => strings("0", "1"),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => {
            vec!["0".to_owned(), "1".to_owned(), "-1".to_owned()]
        }
        "f32" | "f64" => strings("0.0", "1.0"),
        "String" => strings("String::new()", "\"xyzzy\".to_owned()"),
        "Option" => {
            let some = wrap(first(), |value| format!("Some({value})"));
            std::iter::once("None".to_owned()).chain(some).collect()
        }
        "Result" => wrap(first(), |value| format!("Ok({value})")),
        "Box" | "Arc" | "Rc" => wrap(first(), |value| format!("{name}::new({value})")),
        "Vec" | "VecDeque" | "BTreeSet" | "HashSet" => one_or_none(first()),
        "BTreeMap" | "HashMap" => one_or_none(product(arguments.iter().map(|ty| of_type(ty)))),
        _ => vec!["Default::default()".to_owned()],
    }
}

/// An empty collection, and one of one element.
fn one_or_none(elements: Vec<String>) -> Vec<String> {
    let one = elements.into_iter().take(1);
    let one = one.map(|value| format!("[{value}].into_iter().collect()"));
    std::iter::once("Default::default()".to_owned()).chain(one).collect()
}

fn strings(one: &str, other: &str) -> Vec<String> {
    vec![one.to_owned(), other.to_owned()]
}

fn wrap(values: Vec<String>, wrapped: impl Fn(String) -> String) -> Vec<String> {
    values.into_iter().map(wrapped).collect()
}

fn product(parts: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let mut lists = vec![Vec::new()];
    for part in parts {
        let with = |list: &Vec<String>, value: &String| {
            [list.as_slice(), std::slice::from_ref(value)].concat()
        };
        lists = lists
            .iter()
            .flat_map(|list| part.iter().map(move |value| with(list, value)))
            .take(VALUES_MAX)
            .collect();
    }
    lists.into_iter().map(|list| format!("({})", list.join(", "))).collect()
}

fn as_type(argument: &GenericArgument) -> Option<&Type> {
    match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(output: &str, expected: &[&str]) {
        let output: ReturnType = syn::parse_str(output).unwrap();
        assert_eq!(of_return(&output), expected);
    }

    #[test]
    fn values_follow_the_return_type() {
        check("", &["()"]);
        check("-> !", &[]);
        check("-> impl Iterator<Item = u8>", &[]);
        check("-> bool", &["true", "false"]);
        check("-> &'static str", &["\"\"", "\"xyzzy\""]);
        check("-> Result<(), Error>", &["Ok(())"]);
        check("-> Option<u32>", &["None", "Some(0)", "Some(1)"]);
        check("-> (bool, Epoch)", &["(true, Default::default())", "(false, Default::default())"]);
        check("-> &[u64]", &["Vec::leak(Vec::new())", "Vec::leak(vec![0])"]);
        let one = "[(0, String::new())].into_iter().collect()";
        check("-> BTreeMap<u8, String>", &["Default::default()", one]);
        check("-> Box<Fold>", &["Box::new(Default::default())"]);
    }
}
