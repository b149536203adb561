//! Finds the instance that keeps a stored response.
//!
//! The gateway remembers the last ones that passed through it. The others were made before it started, or
//! passed through another gateway: every instance is asked, which is right everywhere.

use std::{rc::Rc, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::{
    api::stored,
    fleet::{Endpoint, Instance, Variant, probe},
    gateway::{credentials::Credentials, decide::Plan, read::Request, scope::Scope},
};

/// How long an instance may take to say whether it has a response.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// An instance and where it belongs.
type Member<'f> = (&'f Endpoint, &'f Arc<Variant>, &'f Arc<Instance>);

/// The instance that keeps the stored response that the request names. The plan's endpoint and variant
/// become those of the instance.
///
/// `None` where nobody is known to have it, or there is nobody to choose among.
pub(super) async fn find<'f>(
    scope: &mut Scope<'f>,
    request: &Request,
    plan: &mut Plan<'f>,
) -> Option<Arc<Instance>> {
    let id = plan.stored.take().filter(|id| stored::is_plain(id))?;
    // A model may have chosen any endpoint for it, where the path names none.
    let fleet = scope.fleet;
    let within = |endpoint: &Endpoint| plan.any_endpoint || std::ptr::eq(endpoint, plan.endpoint);
    let members: Vec<Member<'f>> =
        fleet.answering().filter(|(endpoint, ..)| within(endpoint)).collect();
    if members.len() < 2 {
        return None;
    }
    let remembered = &scope.worker.shared.stored;
    let known = members.iter().find(|(.., instance)| remembered.is_at(id.as_bytes(), instance.id));
    let (endpoint, variant, instance) = match known {
        Some(&member) => member,
        None => {
            let member = members[ask(scope, request, plan, &members, &id).await?];
            remembered.note(id.as_bytes(), member.2.id);
            member
        }
    };
    (plan.endpoint, plan.variant) = (endpoint, variant);
    scope.record.endpoint = Some(endpoint);
    scope.record.variant = Some(variant);
    Some(instance.clone())
}

/// Asks all of them; the index of one that has the response.
async fn ask(
    scope: &Scope<'_>,
    request: &Request,
    plan: &Plan<'_>,
    members: &[Member<'_>],
    id: &str,
) -> Option<usize> {
    let target = plan.target.as_deref().map(String::from_utf8_lossy);
    let path = target.as_deref().unwrap_or(request.path());
    let path: Rc<str> = format!("{}/{id}", stored::collection(path)?).into();
    let credentials = Credentials::of(request);
    // Made-up ids must not flood the instances.
    let _permit = scope.worker.searches.acquire().await.ok()?;
    let mut asked = JoinSet::new();
    for (index, (.., instance)) in members.iter().enumerate() {
        let (instance, path, credentials) =
            (Arc::clone(instance), path.clone(), credentials.clone());
        asked
            .spawn_local(async move { has(&instance, &path, &credentials).await.then_some(index) });
    }
    while let Some(answer) = asked.join_next().await {
        if let Ok(Some(index)) = answer {
            return Some(index);
        }
    }
    None
}

/// Whether an instance has what is at `path`.
async fn has(instance: &Instance, path: &str, credentials: &Credentials) -> bool {
    let headers = credentials.fields();
    let get = probe::Get {
        authority: &instance.authority,
        path,
        headers: &headers,
        time_limit: TIME_LIMIT,
        size_limit: 0,
    };
    match probe::status(&instance.addresses(), &get).await {
        Ok(status) => (200..300).contains(&status),
        Err(error) => {
            tracing::debug!(instance = %instance.url, %error, "cannot say what responses it has");
            false
        }
    }
}
