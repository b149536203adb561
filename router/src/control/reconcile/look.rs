//! How the hosts are that could be given to somebody.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{net::TcpStream, sync::Semaphore, task::JoinSet};

use super::{hosts::Looks, step::Look};
use crate::{
    config::Health,
    fleet::probe::{self, Get},
};

/// Hosts that are looked at together.
const TOGETHER: usize = 64;

/// How long a round waits for answers. A host that takes longer is not forgotten, and holds up nobody else: its answer
/// counts in the rounds after it came.
const PATIENCE: Duration = Duration::from_millis(500);

type Answer = Result<(), String>;

/// Looks at hosts, some of which may be under way.
pub(super) struct Looking {
    under_way: JoinSet<(Look, Answer)>,
    asked: HashSet<Look>,
    /// What came of the last look at each host that is still wanted.
    known: HashMap<Look, Answer>,
    slots: Arc<Semaphore>,
}

impl Looking {
    pub(super) fn new() -> Self {
        let (under_way, asked, known) = Default::default();
        Self { under_way, asked, known, slots: Arc::new(Semaphore::new(TOGETHER)) }
    }

    /// Asks each host for its health, as instances are asked: any status below 500 is a good answer. Where
    /// `health.active` is off, one that takes a connection is well. Hosts that have not answered yet are left out.
    pub(super) async fn at(&mut self, wanted: &[Look], health: &Health) -> Looks {
        self.known.retain(|look, _| wanted.contains(look));
        let mut fresh = HashSet::new();
        for look in wanted {
            if self.asked.insert(look.clone()) {
                fresh.insert(look.clone());
                self.begin(look.clone(), health);
            }
        }
        while let Some(Ok(answer)) = self.under_way.try_join_next() {
            self.answered(answer, &mut fresh);
        }
        let answers = async {
            while !fresh.is_empty()
                && let Some(Ok(answer)) = self.under_way.join_next().await
            {
                self.answered(answer, &mut fresh);
            }
        };
        // Those that were asked in an earlier round have had their time.
        let _ = tokio::time::timeout(PATIENCE, answers).await;
        let known = wanted.iter().filter_map(|look| Some((look, self.known.get(look)?)));
        known.map(|(look, answer)| (look.host.clone(), answer.clone())).collect()
    }

    fn begin(&mut self, look: Look, health: &Health) {
        let path = health.active.then(|| look.path.clone().unwrap_or_else(|| health.path.clone()));
        let (limit, slots) = (health.timeout, Arc::clone(&self.slots));
        self.under_way.spawn(async move {
            // It is never closed.
            let _slot = slots.acquire_owned().await;
            let answer = ask(&look.host, path.as_deref(), limit).await;
            (look, answer)
        });
    }

    fn answered(&mut self, (look, answer): (Look, Answer), fresh: &mut HashSet<Look>) {
        self.asked.remove(&look);
        fresh.remove(&look);
        self.known.insert(look, answer);
    }
}

async fn ask(host: &str, path: Option<&str>, limit: Duration) -> Result<(), String> {
    let authority = host.trim_start_matches("http://");
    let asked = async {
        let found = tokio::net::lookup_host(authority).await;
        let addresses: Vec<_> = found.map_err(|error| error.to_string())?.collect();
        let Some(path) = path else {
            let connected = TcpStream::connect(&*addresses).await;
            return connected.map(|_| ()).map_err(|error| format!("no connection: {error}"));
        };
        let get = Get { authority, path, headers: &[], time_limit: limit, size_limit: 0 };
        match probe::status(&addresses, &get).await {
            Ok(500..) => Err(format!("its {path} answers with an error")),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    };
    tokio::time::timeout(limit, asked)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {limit:?}")))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::config::Config;

    fn look(host: &TcpListener) -> Look {
        let address = host.local_addr().expect("bound");
        Look { host: format!("http://{address}"), path: None }
    }

    async fn answer(mut stream: TcpStream) {
        let mut request = [0; 1024];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    }

    #[tokio::test]
    async fn a_host_that_takes_its_time_holds_up_nobody() {
        let bind = || async { TcpListener::bind("127.0.0.1:0").await.expect("a port") };
        let (quick, slow) = (bind().await, bind().await);
        let (quick_look, slow_look) = (look(&quick), look(&slow));
        let answers = tokio::spawn(async move {
            while let Ok((stream, _)) = quick.accept().await {
                answer(stream).await;
            }
        });
        // Long enough for this test to hang where it is waited for.
        let health = Health { timeout: Duration::from_secs(600), ..Config::default().health };
        let mut looking = Looking::new();
        let wanted = [quick_look.clone(), slow_look.clone()];
        for _ in 0..2 {
            let looks = looking.at(&wanted, &health).await;
            assert_eq!(looks, HashMap::from([(quick_look.host.clone(), Ok(()))]));
        }
        // It has been asked once, and its answer counts although nobody waited for it.
        let (asked, _) = slow.accept().await.expect("it was asked");
        answer(asked).await;
        let both = HashMap::from([(quick_look.host, Ok(())), (slow_look.host.clone(), Ok(()))]);
        while looking.at(&wanted, &health).await != both {}
        // From then on the last answer counts while the next one is awaited.
        answers.abort();
        assert_eq!(
            looking.at(std::slice::from_ref(&slow_look), &health).await[&slow_look.host],
            Ok(())
        );
        // Not when nobody had a use for it meanwhile.
        looking.at(&[], &health).await;
        assert!(looking.at(&[slow_look], &health).await.is_empty());
    }
}
