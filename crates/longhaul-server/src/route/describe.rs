//! Describes the parameters, bodies and answers of a route for the OpenAPI document.

use super::{ApiRoute, Size};
use longhaul_api::new_task::PriorityBody;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Required, ResponseBuilder, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};

impl ApiRoute {
    /// Sets the operation id for generated clients, and the summary.
    pub(crate) fn does(mut self, id: &'static str, summary: &'static str) -> Self {
        let tag =
            self.info.path.split('/').nth(1).filter(|it| *it == "v1").map_or("gateway", |_| "v1");
        self.operation = self.operation.operation_id(Some(id)).summary(Some(summary)).tag(tag);
        for name in parameters(self.info.path) {
            let described = match name {
                "queue" => "The name of the queue: up to 128 of `-`, `_`, `.`, digits and letters.",
                "task" => {
                    "The id of the task, such as `12:0:-1`, or `high~12:0:-1` for a task with a priority."
                }
                "lease" => "The lease, as the gateway granted it.",
                _ => "The name of the schedule or the worker.",
            };
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
            let parameter = parameter.required(Required::True).description(Some(described));
            self.operation = self.operation.parameter(parameter.schema(Some(String::schema())));
        }
        self
    }

    /// Adds the query parameter `level`, which [`LevelAt`](crate::v1::at::LevelAt) reads.
    pub(crate) fn of_level(self) -> Self {
        self.level("`high`, `normal` (the default) or `low`: the priority of the tasks.")
    }

    /// Adds the query parameter `level`, which [`SomeLevelAt`](crate::v1::at::SomeLevelAt) reads.
    pub(crate) fn of_some_level(self) -> Self {
        self.level("`high`, `normal` or `low`: the priority of the tasks. By default, tasks of every level.")
    }

    fn level(mut self, described: &'static str) -> Self {
        self.info.takes_level = true;
        let parameter = ParameterBuilder::new().name("level").parameter_in(ParameterIn::Query);
        let parameter = parameter.required(Required::False).description(Some(described));
        let schema = self.refer::<PriorityBody>();
        self.operation = self.operation.parameter(parameter.schema(Some(schema)));
        self
    }

    /// Adds query parameters.
    pub(crate) fn query<Q: IntoParams>(mut self) -> Self {
        for parameter in Q::into_params(|| Some(ParameterIn::Query)) {
            self.operation = self.operation.parameter::<Parameter>(parameter);
        }
        self
    }

    /// Adds an optional request header.
    pub(crate) fn header(mut self, name: &'static str, described: &'static str) -> Self {
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header);
        let parameter = parameter.required(Required::False).description(Some(described));
        self.operation = self.operation.parameter(parameter.schema(Some(String::schema())));
        self
    }

    /// Sets a required JSON body.
    pub(crate) fn body<T: ToSchema>(self) -> Self {
        self.json_body::<T>(Required::True)
    }

    /// Sets an optional JSON body.
    pub(crate) fn optional_body<T: ToSchema>(self) -> Self {
        self.json_body::<T>(Required::False)
    }

    fn json_body<T: ToSchema>(mut self, required: Required) -> Self {
        let schema = self.refer::<T>();
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let body = RequestBodyBuilder::new().content("application/json", content);
        self.operation = self.operation.request_body(Some(body.required(Some(required)).build()));
        self
    }

    /// Sets a JSON body, or any other content type as the payload of a task.
    pub(crate) fn body_or_raw<T: ToSchema>(mut self) -> Self {
        let json = ContentBuilder::new().schema(Some(self.refer::<T>())).build();
        let raw = ContentBuilder::new().schema(Some(bytes())).build();
        let body = RequestBodyBuilder::new().content("application/json", json);
        let body = body.content("application/octet-stream", raw).required(Some(Required::True));
        self.operation = self.operation.request_body(Some(body.build()));
        self.takes(Size::Task)
    }

    /// Adds a JSON answer.
    pub(crate) fn answers<T: ToSchema>(mut self, status: u16, described: &'static str) -> Self {
        let schema = self.refer::<T>();
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(described);
        let response = response.content("application/json", content);
        self.operation = self.operation.response(status.to_string(), response.build());
        self
    }

    /// Adds an answer with bytes of this content type.
    pub(crate) fn answers_raw(
        mut self,
        status: u16,
        content_type: &'static str,
        described: &'static str,
    ) -> Self {
        let is_text = content_type != "application/octet-stream";
        let schema = if is_text { String::schema() } else { bytes() };
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new().description(described).content(content_type, content);
        self.operation = self.operation.response(status.to_string(), response.build());
        self
    }

    /// Adds an answer without a body.
    pub(crate) fn answers_empty(mut self, status: u16, described: &'static str) -> Self {
        let response = ResponseBuilder::new().description(described).build();
        self.operation = self.operation.response(status.to_string(), response);
        self
    }

    fn refer<T: ToSchema>(&mut self) -> RefOr<Schema> {
        self.schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(&mut self.schemas);
        RefOr::Ref(Ref::from_schema_name(T::name()))
    }
}

/// The schema of raw bytes.
fn bytes() -> RefOr<Schema> {
    let bytes = ObjectBuilder::new().schema_type(Type::String);
    let bytes = bytes.format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary))).build();
    RefOr::T(Schema::Object(bytes))
}

/// The names of the parameters in a path.
pub(super) fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split('}').next())
}
