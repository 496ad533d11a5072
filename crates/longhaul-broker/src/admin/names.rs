//! Validates names in paths, before they reach the machine. Pure.

use super::values::AdminCallError;
use crate::name::{BYTES_MAX, TopicName};

/// Name of a tenant or of a namespace in it: the characters that Pulsar allows.
pub(super) fn plain<'a>(what: &str, name: &'a str) -> Result<&'a str, AdminCallError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-=:._".contains(c);
    if name.chars().all(allowed) { checked(what, name) } else { Err(refused(what, name)) }
}

/// `tenant/namespace`.
pub(super) fn namespace(tenant: &str, name: &str) -> Result<String, AdminCallError> {
    Ok(format!("{}/{}", plain("tenant", tenant)?, plain("namespace", name)?))
}

/// `persistent://tenant/namespace/topic`.
pub(super) fn topic([tenant, namespace, local]: [&str; 3]) -> Result<TopicName, AdminCallError> {
    let namespace = self::namespace(tenant, namespace)?;
    if local.contains('/') {
        return Err(refused("topic", local));
    }
    TopicName::parse(&format!("persistent://{namespace}/{}", checked("topic", local)?))
        .map_err(|cause| AdminCallError::PreconditionFailed(cause.to_string()))
}

/// Name of a subscription.
pub(super) fn subscription(name: &str) -> Result<String, AdminCallError> {
    checked("subscription", name).map(str::to_owned)
}

/// Name of a role, the subject of tokens.
pub(super) fn role(name: &str) -> Result<String, AdminCallError> {
    checked("role", name).map(str::to_owned)
}

fn checked<'a>(what: &str, name: &'a str) -> Result<&'a str, AdminCallError> {
    let odd = name.is_empty() || name == "." || name == ".." || name.chars().any(char::is_control);
    if odd || name.len() > BYTES_MAX { Err(refused(what, name)) } else { Ok(name) }
}

/// The error for an invalid name. It only shows the beginning, so that malicious names do not fill
/// logs.
fn refused(what: &str, name: &str) -> AdminCallError {
    let shown: String = name.chars().take(64).flat_map(char::escape_default).collect();
    AdminCallError::PreconditionFailed(format!("`{shown}` is not the name of a {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_pulsar_are_taken() {
        assert_eq!(
            topic(["public", "default", "a"]).unwrap().as_str(),
            "persistent://public/default/a"
        );
        for local in ["a-partition-0", "a b", "é+%", "a..b", "__change_events"] {
            assert!(topic(["t-1", "n.2=:", local]).is_ok(), "{local}");
        }
        assert_eq!(subscription("a b:c/d").unwrap(), "a b:c/d");
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = "x".repeat(BYTES_MAX + 1);
        // The full name is too long.
        assert!(topic(["public", "default", &long[..BYTES_MAX - 10]]).is_err());
        for local in ["", ".", "..", "a/b", "../a", "a\nb", "a\0", long.as_str()] {
            assert!(topic(["public", "default", local]).is_err(), "{local:?}");
        }
        for name in ["", "..", "a b", "a/b", "é", long.as_str()] {
            assert!(namespace("public", name).is_err() && namespace(name, "default").is_err());
        }
        let shown = topic(["public", "default", &format!("\n{long}")]).unwrap_err().to_string();
        assert!(shown.len() < 100 && !shown.contains('\n'), "{shown}");
    }
}
