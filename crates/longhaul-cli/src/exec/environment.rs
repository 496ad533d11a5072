//! The environment variables that describe the task to a program.

use longhaul::TaskContext;

/// The system refuses a program with a variable above 128 KiB; put larger values into the payload.
const VALUE_BYTES_MAX: usize = 32 * 1024;

/// The limit on all variables together: arguments and environment share a part of the stack.
const ALL_BYTES_MAX: usize = 512 * 1024;

/// The variables of an attempt, by name.
pub(crate) fn of(context: &TaskContext) -> Vec<(String, String)> {
    let own = |name: &str, value: String| (name.to_owned(), value);
    let token = context.fencing_token();
    let mut variables = vec![
        own("LONGHAUL_TASK_ID", context.task_id().to_string()),
        own("LONGHAUL_ATTEMPT", context.attempt().to_string()),
        own("LONGHAUL_FENCING_TOKEN", token.epoch.to_string()),
        own("LONGHAUL_TOPIC", context.topic().to_owned()),
    ];
    if let Some(budget) = context.remaining_budget() {
        variables.push(own("LONGHAUL_BUDGET_SECONDS", budget.as_secs().to_string()));
    }
    let task_type = context.task_type().map(str::to_owned);
    let task_type = task_type.map(|it| own("LONGHAUL_TASK_TYPE", it));
    let property = |(name, value): (&String, &String)| {
        own(&format!("LONGHAUL_PROPERTY_{}", variable(name)), value.clone())
    };
    let mut bytes = 0;
    for (name, value) in task_type.into_iter().chain(context.properties().iter().map(property)) {
        let size = name.len() + value.len();
        let is_text = !value.contains('\0');
        if is_text && value.len() <= VALUE_BYTES_MAX && bytes + size <= ALL_BYTES_MAX {
            bytes += size;
            variables.push((name, value));
        } else {
            let (task, bytes) = (context.task_id(), value.len());
            tracing::warn!(%task, name, bytes, "property left out of the program's environment: too large, or contains NUL");
        }
    }
    variables
}

/// A name valid in every shell: upper case, with `_` for every other character.
fn variable(property: &str) -> String {
    let letter = |it: char| if it.is_ascii_alphanumeric() { it.to_ascii_uppercase() } else { '_' };
    property.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul::TestContext;
    use std::collections::BTreeMap;

    fn variables(context: &TestContext) -> BTreeMap<String, String> {
        of(&context.context()).into_iter().collect()
    }

    #[test]
    fn a_program_knows_its_task() {
        let context =
            TestContext::new().property("TASK_TYPE", "resize").property("customer-id", "4711");
        let found = variables(&context);
        let expected = [
            ("LONGHAUL_ATTEMPT", "1"),
            ("LONGHAUL_TASK_TYPE", "resize"),
            ("LONGHAUL_PROPERTY_CUSTOMER_ID", "4711"),
            ("LONGHAUL_PROPERTY_TASK_TYPE", "resize"),
        ];
        for (name, value) in expected {
            assert_eq!(found.get(name).map(String::as_str), Some(value), "{name}");
        }
        for name in ["LONGHAUL_TASK_ID", "LONGHAUL_FENCING_TOKEN", "LONGHAUL_TOPIC"] {
            assert!(found.get(name).is_some_and(|value| !value.is_empty()), "{name}");
        }
        assert!(!found.contains_key("LONGHAUL_BUDGET_SECONDS"));
    }

    /// A property above 128 KiB, or with a NUL, would keep the program from starting.
    #[test]
    fn what_no_environment_can_hold_is_left_out() {
        let mut context = TestContext::new()
            .property("large", "x".repeat(VALUE_BYTES_MAX + 1))
            .property("nul", "a\0b")
            .property("TASK_TYPE", "a\0b")
            .property("näme=", "kept");
        for number in 0..40 {
            context = context.property(format!("p{number:02}"), "y".repeat(VALUE_BYTES_MAX));
        }
        let found = variables(&context);
        assert!(!found.contains_key("LONGHAUL_PROPERTY_LARGE"));
        assert!(!found.contains_key("LONGHAUL_PROPERTY_NUL"));
        assert!(!found.contains_key("LONGHAUL_TASK_TYPE"));
        assert_eq!(found.get("LONGHAUL_PROPERTY_N_ME_").map(String::as_str), Some("kept"));
        let bytes: usize = found.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes < ALL_BYTES_MAX + 1_000, "{bytes}");
        assert!(found.contains_key("LONGHAUL_PROPERTY_P10"), "as many as there is room for");
    }
}
