//! Sessions that an instance opens and closes in its answers.

use std::time::SystemTime;

use crate::{
    aws::runtime,
    fleet::InstanceId,
    gateway::{decide::Plan, scope::Scope},
    http::ResponseHead,
};

/// Notes what the answer to a call of a session says about it: that it begins here, or that it has ended.
pub(super) fn note(
    scope: &Scope<'_>,
    plan: &Plan<'_>,
    response: &ResponseHead,
    head: &[u8],
    instance: InstanceId,
) {
    if !plan.session {
        return;
    }
    let (sessions, endpoint) = (&scope.worker.shared.sessions, &*plan.endpoint.name);
    if let Some(value) = response.header(head, runtime::NEW_SESSION_ID) {
        match runtime::new_session(value) {
            Some((id, end)) if end > SystemTime::now() => {
                sessions.open(endpoint, id.as_bytes(), instance, end);
            }
            _ => tracing::warn!(
                endpoint,
                value = %String::from_utf8_lossy(value),
                "not a new session: an id and a time to come are wanted (`id; Expires=2026-01-31T12:00:00Z`)"
            ),
        }
    }
    if let Some(id) = response.header(head, runtime::CLOSED_SESSION_ID) {
        sessions.close(endpoint, id, instance);
    }
}
