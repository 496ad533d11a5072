use super::*;
use crate::weave::weave;

/// The mutants of a function `f` with this body, and the text with all of them in it.
fn mutants(text: &str) -> (Vec<String>, String) {
    let plan = generate("a.rs", text).unwrap();
    let woven = weave(text, &plan.edits, |_| true, |mutant| format!("m{mutant}"));
    let names = plan.mutants.iter().map(|it| it.name.trim_start_matches("a.rs: ").to_owned());
    (names.collect(), woven.text)
}

#[track_caller]
fn check(text: &str, names: &[&str], woven: &str) {
    let found = mutants(text);
    assert_eq!(found.0, names);
    assert_eq!(found.1, woven);
    // What was woven is Rust again.
    syn::parse_file(&found.1).unwrap();
}

#[test]
fn bodies_become_plain_values() {
    check(
        "impl<T> A<T> { fn f(&self) -> Option<bool> { self.g() } fn done(&self) {} }",
        &[
            "replace A::f -> Option<bool> with None",
            "replace A::f -> Option<bool> with Some(true)",
            "replace A::f -> Option<bool> with Some(false)",
        ],
        "impl<T> A<T> { fn f(&self) -> Option<bool> { if m0 { return None; } if m1 { return Some(true); } \
         if m2 { return Some(false); } self.g() } fn done(&self) {} }",
    );
}

#[test]
fn operators_are_turned_where_they_stand() {
    check(
        "fn f() -> ! { if a+1 < b {} }",
        &[
            "replace if condition with true in f",
            "replace if condition with false in f",
            "replace < with <= in f",
            "replace < with >= in f",
            "replace + with - in f",
            "replace + with * in f",
        ],
        "fn f() -> ! { if (m0 || !m1 && ((match (&((match ((a), (1)) { (__left, __right) => \
         if m4 { __left - __right } else if m5 { __left * __right } else { __left + __right } }) ), &( b)) \
         { (__left, __right) => if m2 { __left <= __right } else if m3 { __left >= __right } else \
         { __left < __right } }))) {} }",
    );
    check(
        "fn f() -> ! { x.y += -1; }",
        &["replace += with -= in f", "replace += with *= in f", "delete - in f"],
        "fn f() -> ! { (match ((match (1) { __operand => if m2 { -(-__operand) } else { -__operand } })) { __right => \
         if m0 { x.y -= __right } else if m1 { x.y *= __right } else { x.y += __right } }); }",
    );
}

/// The two operands of `&&` stay where they are, and are not there twice.
/// How much room a buffer gets makes no difference that a test can see.
#[test]
fn room_is_left_alone() {
    let text = "fn f() -> ! { let a = Vec::with_capacity(1 + 2); (b+1).reserve(3 * 4); }";
    check(
        text,
        &["replace + with - in f", "replace + with * in f"],
        "fn f() -> ! { let a = Vec::with_capacity(1 + 2); ((match ((b), (1)) { (__left, __right) => \
         if m0 { __left - __right } else if m1 { __left * __right } else { __left + __right } })).reserve(3 * 4); }",
    );
}

#[test]
fn logic_asks_the_opposite() {
    check(
        "fn f() -> ! { let x = a && b || c; }",
        &["replace || with && in f", "replace && with || in f"],
        "fn f() -> ! { let x = (match ((match (a ) { __left => if __left != m1 { ( b) } else { __left } }) ) \
         { __left => if __left == m0 { ( c) } else { __left } }); }",
    );
}

/// A chain with `let` cannot stand in parentheses; it can be made to fail.
#[test]
fn chains_with_let_can_be_false() {
    check(
        "fn f() -> ! { if let Some(x) = y && x == z {} }",
        &["replace if condition with false in f", "replace == with != in f"],
        "fn f() -> ! { if !m0 && let Some(x) = y && (match (&(x ), &( z)) { (__left, __right) => \
         if m1 { __left != __right } else { __left == __right } }) {} }",
    );
}

#[test]
fn arms_go_where_another_takes_their_place() {
    check(
        "fn f() -> ! { match x { A(1) => {} B if g => {} _ => {} } match x { A => {} B => {} } }",
        &[
            "delete match arm A(1) in f",
            "delete match arm B in f",
            "replace match guard with true in f",
            "replace match guard with false in f",
        ],
        "fn f() -> ! { match x { A(1) if !m0 => {} B if !m1 && (m2 || !m3 && (g)) => {} _ => {} } \
         match x { A => {} B => {} } }",
    );
}

#[test]
fn calls_and_assignments_to_fields_go() {
    check(
        "async fn f() { self.x.push(1); self.y = 2; g().await?; z = 3; let _ = h(); drop(x); log!(); }",
        &[
            "replace f with ()",
            "delete call self.x.push(1) in f",
            "delete assignment to self.y in f",
            "delete call g().await? in f",
            "delete call h() in f",
        ],
        "async fn f() { if m0 { return (); } if !m1 { self.x.push(1); } if !m2 { self.y = 2; } \
         if !m3 { g().await?; } z = 3; if !m4 { let _ = h(); } drop(x); log!(); }",
    );
}

#[test]
fn branches_of_select_are_walked() {
    check(
        "async fn f() -> ! { tokio::select! { biased; Some(x) = s.next(), if a => { y.g(); } () = t => h(), } }",
        &[
            "replace select condition with true in f",
            "replace select condition with false in f",
            "delete call y.g() in f",
        ],
        "async fn f() -> ! { tokio::select! { biased; Some(x) = s.next(), if (m0 || !m1 && (a)) => \
         { if !m2 { y.g(); } } () = t => h(), } }",
    );
}

/// The copy of a function with mutants is no longer constant, for its switch is not.
#[test]
fn constant_functions_lose_their_const() {
    check(
        "pub const fn f(a: u8) -> u8 { a } const X: u8 = 1 + 1;",
        &["replace f -> u8 with 0", "replace f -> u8 with 1"],
        "pub  fn f(a: u8) -> u8 { if m0 { return 0; } if m1 { return 1; } a } const X: u8 = 1 + 1;",
    );
}

#[test]
fn tests_and_texts_are_left_alone() {
    let text = "#[cfg(all(test, feature = \"x\"))] mod tests { fn f() -> bool { g() } } \
                #[test] fn t() { g(); } impl fmt::Display for A { fn fmt(&self) { g(); } } \
                fn g(a: [u8; 1 + 1]) -> ! { debug!(\"{}\", a == b); }";
    check(text, &[], text);
}

#[test]
fn the_same_fault_twice_in_a_function_has_a_number() {
    let (names, _) = mutants("fn f() -> ! { !a; !b; } fn g() -> ! { !a; }");
    assert_eq!(names, ["delete ! in f", "delete ! in f (2)", "delete ! in g"]);
    let name = mutants("fn f() -> ! { matches!(a, B | C) }").0;
    assert_eq!(name, ["negate matches!(a, B | C) in f"]);
}

#[test]
fn a_fingerprint_is_that_of_its_function() {
    let prints = |text: &str| {
        let plan = generate("a.rs", text).unwrap();
        plan.mutants.iter().map(|it| it.fingerprint).collect::<Vec<_>>()
    };
    let one = prints("fn f() -> ! { !a } fn g() -> ! { !b }");
    let other = prints("// Comment.\nfn f() -> ! { !a } fn g() -> ! { !c }");
    assert!(one[0] == other[0] && one[1] != other[1]);
}
