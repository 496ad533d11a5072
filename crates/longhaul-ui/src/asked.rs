//! Extractors for the input of a browser. Invalid input is answered with a page, like everything
//! else.

use crate::Ui;
use crate::trouble::PageError;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// The parameters of the path.
pub(crate) struct Path<T>(pub(crate) T);

/// The query parameters.
pub(crate) struct QueryFields<T>(pub(crate) T);

/// The fields of a form.
pub(crate) struct FormFields<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Ui>> for Path<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, ui: &Arc<Ui>) -> Result<Self, PageError> {
        match axum::extract::Path::from_request_parts(parts, ui).await {
            Ok(axum::extract::Path(found)) => Ok(Self(found)),
            Err(error) => Err(PageError::new(error.status(), "", error.body_text())),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Ui>> for QueryFields<T> {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, ui: &Arc<Ui>) -> Result<Self, PageError> {
        match axum::extract::Query::from_request_parts(parts, ui).await {
            Ok(axum::extract::Query(found)) => Ok(Self(found)),
            Err(error) => Err(PageError::new(error.status(), "", error.body_text())),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequest<Arc<Ui>> for FormFields<T> {
    type Rejection = PageError;

    async fn from_request(request: Request, ui: &Arc<Ui>) -> Result<Self, PageError> {
        match axum::extract::Form::from_request(request, ui).await {
            Ok(axum::extract::Form(found)) => Ok(Self(found)),
            Err(error) => Err(PageError::new(error.status(), "", error.body_text())),
        }
    }
}
