//! Finds the instance that keeps a stored response.
//!
//! The gateway remembers the last ones that passed through it. The others were made before it started, or
//! passed through another gateway: every instance is asked, which is right everywhere.

use std::{rc::Rc, sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::{
    api::stored,
    fleet::{Instance, Variant, probe},
    gateway::{decide::Plan, read::Request, scope::Scope},
};

/// How long an instance may take to say whether it has a response.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// Fields by which a client may show who it is.
const CREDENTIALS: [&str; 3] = ["authorization", "x-api-key", "api-key"];

/// The instance that keeps the stored response that the request names. The plan's variant becomes that of
/// the instance.
///
/// `None` where nobody is known to have it, or there is nobody to choose among.
pub(super) async fn find<'f>(
    scope: &mut Scope<'f>,
    request: &Request,
    plan: &mut Plan<'f>,
) -> Option<Arc<Instance>> {
    let id = plan.stored.take().filter(|id| stored::is_plain(id))?;
    let members: Vec<(&'f Variant, &'f Arc<Instance>)> = plan.endpoint.instances().collect();
    if members.len() < 2 {
        return None;
    }
    let remembered = &scope.worker.shared.stored;
    let known = members.iter().find(|(_, instance)| remembered.is_at(id.as_bytes(), instance.id));
    let (variant, instance) = match known {
        Some(&member) => member,
        None => {
            let member = members[ask(scope, request, plan, &members, &id).await?];
            remembered.note(id.as_bytes(), member.1.id);
            member
        }
    };
    plan.variant = variant;
    scope.record.variant = Some(variant);
    Some(instance.clone())
}

/// Asks all of them; the index of one that has the response.
async fn ask(
    scope: &Scope<'_>,
    request: &Request,
    plan: &Plan<'_>,
    members: &[(&Variant, &Arc<Instance>)],
    id: &str,
) -> Option<usize> {
    let target = plan.target.as_deref().map(String::from_utf8_lossy);
    let path = target.as_deref().unwrap_or(request.path());
    let path: Rc<str> = format!("{}/{id}", stored::collection(path)?).into();
    let credentials: Rc<[(&str, Vec<u8>)]> = CREDENTIALS
        .iter()
        .filter_map(|name| Some((*name, request.header(name)?.to_vec())))
        .collect();
    // Made-up ids must not flood the instances.
    let _permit = scope.worker.searches.acquire().await.ok()?;
    let mut asked = JoinSet::new();
    for (index, (_, instance)) in members.iter().enumerate() {
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
async fn has(instance: &Instance, path: &str, credentials: &[(&str, Vec<u8>)]) -> bool {
    let headers: Vec<(&str, &[u8])> =
        credentials.iter().map(|(name, value)| (*name, &**value)).collect();
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
