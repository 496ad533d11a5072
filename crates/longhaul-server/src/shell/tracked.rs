//! A body that tells on drop whether anybody has read it.

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// See the module's documentation.
struct TrackedBody<F: FnOnce(Body, bool) + Unpin> {
    body: Body,
    is_read: bool,
    dropped: Option<F>,
}

/// Wraps a body. `dropped` gets it back when the wrapper is dropped, and whether it was read, at
/// least in part.
pub(crate) fn tracked(
    body: Body,
    dropped: impl FnOnce(Body, bool) + Send + Unpin + 'static,
) -> Body {
    Body::new(TrackedBody { body, is_read: false, dropped: Some(dropped) })
}

impl<F: FnOnce(Body, bool) + Unpin> HttpBody for TrackedBody<F> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.is_read = true;
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<F: FnOnce(Body, bool) + Unpin> Drop for TrackedBody<F> {
    fn drop(&mut self) {
        if let Some(dropped) = self.dropped.take() {
            dropped(std::mem::take(&mut self.body), self.is_read);
        }
    }
}
