//! Extractors for the input of a browser. Invalid input is answered with a page, like everything
//! else.

use crate::Ui;
use crate::trouble::PageError;
use crate::visit::Visit;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The parameters of the path.
pub(crate) struct Path<T>(pub(crate) T);

/// The query parameters.
pub(crate) struct QueryFields<T>(pub(crate) T);

/// The fields of a form.
pub(crate) struct FormFields<T>(pub(crate) T);

async fn visit(parts: &mut Parts, ui: &Arc<Ui>) -> Visit {
    match Visit::from_request_parts(parts, ui).await {
        Ok(visit) => visit,
        Err(never) => match never {},
    }
}

fn refused(visit: &Visit, status: StatusCode, why: String) -> Response {
    visit.answer(Err(PageError::new(status, "", why)))
}

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Ui>> for Path<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, ui: &Arc<Ui>) -> Result<Self, Response> {
        match axum::extract::Path::from_request_parts(parts, ui).await {
            Ok(axum::extract::Path(found)) => Ok(Self(found)),
            Err(error) => Err(refused(&visit(parts, ui).await, error.status(), error.body_text())),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Ui>> for QueryFields<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, ui: &Arc<Ui>) -> Result<Self, Response> {
        match axum::extract::Query::from_request_parts(parts, ui).await {
            Ok(axum::extract::Query(found)) => Ok(Self(found)),
            Err(error) => Err(refused(&visit(parts, ui).await, error.status(), error.body_text())),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequest<Arc<Ui>> for FormFields<T> {
    type Rejection = Response;

    async fn from_request(request: Request, ui: &Arc<Ui>) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visit = visit(&mut parts, ui).await;
        match axum::extract::Form::from_request(Request::from_parts(parts, body), ui).await {
            Ok(axum::extract::Form(found)) => Ok(Self(found)),
            Err(error) => Err(refused(&visit, error.status(), error.body_text())),
        }
    }
}
