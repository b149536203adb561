//! Keeps adapters loaded where they are to be, and nowhere else.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet, time::Instant};

use super::{Fleet, Instance, InstanceId};

/// Between two looks at all of them.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// After an attempt that failed, the first time; twice as long each further time.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// What is known of an adapter on a server, by its instance.
struct Kept {
    instance: Arc<Instance>,
    busy: bool,
    next: Instant,
    retry: Duration,
}

/// Loads and unloads adapters, for ever. `changed` tells of a new fleet. Must run on a thread with a
/// `LocalSet`.
pub async fn keep(current: impl Fn() -> Arc<Fleet>, mut changed: watch::Receiver<()>) {
    let kept: Rc<RefCell<HashMap<InstanceId, Kept>>> = Rc::default();
    let mut calls = JoinSet::new();
    loop {
        let fleet = current();
        let mut wanted: Vec<InstanceId> = Vec::new();
        for (.., instance) in fleet.instances().filter(|(.., it)| it.adapter().is_some()) {
            wanted.push(instance.id);
            kept.borrow_mut().entry(instance.id).or_insert_with(|| Kept {
                instance: Arc::clone(instance),
                busy: false,
                next: Instant::now(),
                retry: FIRST_RETRY,
            });
        }
        drop(fleet);
        wanted.sort_unstable();
        let any = !kept.borrow().is_empty();
        for (id, one) in kept.borrow_mut().iter_mut().filter(|(_, one)| !one.busy) {
            let instance = &one.instance;
            let Some((adapter, epoch)) = instance.adapter() else { continue };
            let stays = wanted.binary_search(id).is_ok();
            let loaded = adapter.is_loaded(epoch);
            let due = one.next <= Instant::now();
            let load = stays && !loaded && due && instance.can_load();
            // Its last requests end first.
            let unload = !stays && due && instance.in_flight() == 0;
            if load || unload {
                one.busy = true;
                let call = call(Arc::clone(instance), load, epoch);
                let (kept, id) = (Rc::clone(&kept), *id);
                calls.spawn_local(async move {
                    let done = call.await;
                    settle(&mut kept.borrow_mut(), id, load, done);
                });
            }
        }
        while calls.try_join_next().is_some() {}
        let look = async {
            match any {
                true => tokio::time::sleep(LOOK_INTERVAL).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            () = look => {}
            news = changed.changed() => if news.is_err() { return },
        }
    }
}

async fn call(instance: Arc<Instance>, load: bool, epoch: u64) -> Result<(), String> {
    let addresses = instance.addresses();
    let Some((adapter, _)) = instance.adapter() else { return Ok(()) };
    let (name, server) = (adapter.name(), &*instance.authority);
    if load {
        let done = adapter.load(server, &addresses).await;
        match &done {
            Ok(()) => tracing::info!(adapter = name, server, "adapter loaded"),
            Err(why) => tracing::warn!(adapter = name, server, why, "adapter not loaded"),
        }
        adapter.note(epoch, instance.lists(), done.clone());
        return done;
    }
    let done = adapter.unload(server, &addresses).await;
    match &done {
        Ok(()) => tracing::info!(adapter = name, server, "adapter unloaded"),
        Err(why) => tracing::warn!(adapter = name, server, why, "adapter not unloaded"),
    }
    adapter.forget();
    done
}

fn settle(
    kept: &mut HashMap<InstanceId, Kept>,
    id: InstanceId,
    load: bool,
    done: Result<(), String>,
) {
    if !load {
        // Whatever it said: a server that cannot be asked has probably lost it.
        kept.remove(&id);
        return;
    }
    let Some(one) = kept.get_mut(&id) else { return };
    one.busy = false;
    one.retry = match done {
        Ok(()) => FIRST_RETRY,
        Err(_) => {
            one.next = Instant::now() + one.retry;
            (one.retry * 2).min(LAST_RETRY)
        }
    };
}
