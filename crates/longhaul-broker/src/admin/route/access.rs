//! The permission for a request, by its method and path alone.

use super::super::names;
use super::super::target::RequestTarget;
use super::super::values::AdminCallError;
use super::{AdminAccess, AdminRequest, route, unknown};

/// The permission for a request that may have a body. It is checked before the body is read, so
/// that a role without permission cannot make the broker hold bodies. The error is the answer to a
/// request that is refused whatever its body is.
///
/// [`route`] determines the same permission again, for the same requests.
pub(in crate::admin) fn access_of(
    method: &str,
    target: &RequestTarget,
) -> Result<AdminAccess, AdminCallError> {
    let segments: Vec<&str> = target.segments.iter().map(String::as_str).collect();
    let path = match (method, segments.as_slice()) {
        ("PUT" | "POST" | "DELETE", ["admin", "v2", path @ ..]) => path,
        _ => &[],
    };
    match path {
        ["tenants", _] | ["brokers", "backup"] => Ok(AdminAccess::Superuser),
        ["schemas", tenant, namespace, topic, kind @ ("schema" | "compatibility")]
            if method == "POST" =>
        {
            let topic = names::topic([tenant, namespace, topic])?;
            let access = if *kind == "schema" { AdminAccess::Producer } else { AdminAccess::User };
            Ok(access(topic))
        }
        ["namespaces", tenant, _, ..] | ["persistent" | "schemas", tenant, _, _, ..] => {
            Ok(AdminAccess::Tenant((*tenant).to_owned()))
        }
        _ => {
            let asked = AdminRequest { method, target, body: &[] };
            Err(route(asked).err().unwrap_or_else(|| unknown(asked)))
        }
    }
}
