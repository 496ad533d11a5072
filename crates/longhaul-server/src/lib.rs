//! HTTP gateway of longhaul.
