//! Warnings at the start about access to the broker.

use crate::auth::AuthConfig;
use crate::config::BrokerConfig;
use crate::machine::BrokerMachine;

/// Namespaces that a log line names.
const NAMED_MAX: usize = 10;

/// Warns that tokens can be read on unencrypted connections.
pub(super) fn warn_of_clear_text(config: &BrokerConfig) {
    let ports = [
        (Some(config.listen), "clients", "--broker-tls"),
        (config.admin, "the admin interface", "--admin-tls"),
    ];
    for (address, what, instead) in ports {
        if let Some(address) =
            address.filter(|address| config.auth.is_some() && !address.ip().is_loopback())
        {
            tracing::warn!(
                %address,
                instead,
                "tokens of {what} travel unencrypted to this port, which other machines reach"
            );
        }
    }
}

/// Warns of namespaces without grants: with tokens required, roles that are not superusers may do
/// nothing there.
pub(super) fn warn_of_closed_namespaces(config: &BrokerConfig, machine: &BrokerMachine) {
    let Some(auth) = config.auth.as_ref().filter(|auth| !auth.open_namespaces) else { return };
    let namespaces: Vec<_> = machine.namespaces_without_grants().into_iter().collect();
    if let Some(text) = nobody_may(auth, &namespaces) {
        tracing::warn!("{text}");
    } else if !namespaces.is_empty() {
        let namespaces = listed(&namespaces);
        tracing::info!(
            "only superusers may use these namespaces, which have no grants: {namespaces}"
        );
    }
}

/// The warning that nobody can grant permissions, because there are no superusers.
fn nobody_may(auth: &AuthConfig, namespaces: &[&str]) -> Option<String> {
    // A file may name some later.
    if !auth.superusers.is_empty() || auth.roles_file.is_some() {
        return None;
    }
    let mut text = "there is no superuser: roles keep their grants, and nobody can grant more. \
                    Name a superuser (--broker-superusers), or open namespaces without grants to \
                    every role (--broker-open-namespaces)"
        .to_owned();
    if !namespaces.is_empty() {
        text.push_str(&format!(". Nobody may use {}", listed(namespaces)));
    }
    Some(text)
}

fn listed(namespaces: &[&str]) -> String {
    let named: Vec<_> = namespaces.iter().take(NAMED_MAX).copied().collect();
    match namespaces.len().saturating_sub(NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::TokenKey;

    /// Before grants were needed, a broker with a key and no superuser admitted every role. After
    /// its upgrade nobody could do anything, and nothing was logged.
    #[test]
    fn a_broker_that_lets_nobody_in_says_so() {
        let auth = |superusers: &[&str]| {
            let superusers = superusers.iter().map(|name| (*name).to_owned()).collect();
            AuthConfig::new(TokenKey::Secret(vec![1; 32]), superusers)
        };
        assert_eq!(nobody_may(&auth(&["root"]), &["public/default"]), None);
        let text = nobody_may(&auth(&[]), &[]).unwrap();
        assert!(
            text.contains("--broker-superusers") && text.ends_with("(--broker-open-namespaces)"),
            "{text}"
        );
        let many: Vec<_> = (0..12).map(|number| format!("public/{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let text = nobody_may(&auth(&[]), &many).unwrap();
        assert!(text.ends_with("public/8, public/9 and 2 more"), "{text}");
    }
}
