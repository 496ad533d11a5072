//! The OpenAPI document, generated from the list of routes.

use super::{ApiRoute, Method, RouteAccess, all};
use crate::problem::ProblemDetails;
use serde_json::Value;
use std::sync::LazyLock;
use utoipa::openapi::path::{HttpMethod, PathsBuilder};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, HeaderBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Ref,
    RefOr, ResponseBuilder, Schema,
};
use utoipa::{PartialSchema, ToSchema};

const DESCRIPTION: &str = "Long-running tasks on Apache Pulsar over HTTP. Errors are `application/problem+json` with a stable `code`. \
    Times are ms since the epoch, durations texts such as `30s` or `PT1H`.";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let document = make(all());
    document.to_pretty_json().unwrap_or_default()
});

/// The document as served.
pub(crate) fn document() -> &'static str {
    &DOCUMENT
}

/// Removes defaults of `null`: they mean nothing, and beside a nullable reference they make common
/// generators produce clients that do not compile.
fn without_null_defaults(schema: &mut RefOr<Schema>) {
    let none = |default: &mut Option<Value>| *default = default.take().filter(|it| !it.is_null());
    match schema {
        RefOr::T(Schema::Object(it)) => {
            none(&mut it.default);
            it.properties.values_mut().for_each(without_null_defaults);
        }
        RefOr::T(Schema::OneOf(it)) => none(&mut it.default),
        RefOr::T(Schema::AllOf(it)) => none(&mut it.default),
        RefOr::T(Schema::AnyOf(it)) => none(&mut it.default),
        RefOr::T(Schema::Array(it)) => none(&mut it.default),
        RefOr::T(_) | RefOr::Ref(_) => {}
    }
}

/// The answer for an error.
fn problem(described: &str) -> ResponseBuilder {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name(ProblemDetails::name())));
    let answer = ResponseBuilder::new().description(described);
    answer.content("application/problem+json", problem.build())
}

fn make(routes: Vec<ApiRoute>) -> OpenApi {
    let mut paths = PathsBuilder::new().build();
    let mut components = ComponentsBuilder::new()
        .schema(ProblemDetails::name(), ProblemDetails::schema())
        .security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    for ApiRoute { info, operation, schemas, .. } in routes {
        let mut operation = operation.build();
        let answers = &mut operation.responses.responses;
        answers.insert(
            "default".to_owned(),
            problem("An error: `code` and `detail` describe it.").build().into(),
        );
        if let RouteAccess::Needs(scope) = info.access {
            let seconds = HeaderBuilder::new().schema(Some(u32::schema()));
            let seconds = seconds
                .description(Some("The number of seconds after which to repeat the request."));
            let limited =
                problem("There were too many requests. `code` says which limit was reached.");
            let limited = limited.header("Retry-After", seconds.build()).build();
            answers.insert("429".to_owned(), limited.into());
            operation.security =
                Some(vec![SecurityRequirement::new("token", [scope.word().to_owned()])]);
        }
        let method = match info.method {
            Method::Get => HttpMethod::Get,
            Method::Put => HttpMethod::Put,
            Method::Post => HttpMethod::Post,
            Method::Patch => HttpMethod::Patch,
            Method::Delete => HttpMethod::Delete,
        };
        paths.add_path_operation(info.path, vec![method], operation);
        components = components.schemas_from_iter(schemas);
    }
    let mut components = components.build();
    components.schemas.values_mut().for_each(without_null_defaults);
    let info = InfoBuilder::new()
        .title("longhaul")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(DESCRIPTION));
    OpenApiBuilder::new().info(info.build()).paths(paths).components(Some(components)).build()
}
