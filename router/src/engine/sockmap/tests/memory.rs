//! What stalled clients cost.

use std::cell::RefCell;

use super::*;
use crate::testing::{Cgroup, skip};

const CLIENTS: u64 = 200;
const BODY: usize = 16 * 1024 * 1024;

/// Clients that do not read, of sources that send flat out: memory has a bound, and every byte
/// arrives once they read on.
fn stalled(write: usize) {
    let cgroup = match Cgroup::of(std::process::id()) {
        Ok(cgroup) => cgroup,
        Err(error) => return skip(error),
    };
    with_engine(Settings::default(), move |engine| async move {
        let before = cgroup.bytes();
        let mut targets = Vec::new();
        let mut relays = Vec::new();
        let accepted = Rc::new(RefCell::new(vec![0u64; CLIENTS as usize]));
        for client in 0..CLIENTS {
            let (mut from, mut source) = connection().await;
            let (mut to, target) = connection().await;
            // The kernel takes redirecting for reading, and lets the receive buffer grow with it. That
            // is the machine's setting (`tcp_rmem`), not the backlog that is looked at here.
            socket2::SockRef::from(&from.stream).set_recv_buffer_size(256 * 1024).unwrap();
            // As the gateway does for its clients, and as little as can be for the instance's own.
            socket2::SockRef::from(&to.stream).set_send_buffer_size(512 * 1024).unwrap();
            socket2::SockRef::from(&source).set_send_buffer_size(64 * 1024).unwrap();
            let engine = engine.clone();
            relays.push(tokio::task::spawn_local(async move {
                let mut framing = Framing::length(BODY as u64);
                relay(&engine, &mut from, &mut to, &mut framing, None).await
            }));
            let accepted = Rc::clone(&accepted);
            targets.push((
                target,
                tokio::task::spawn_local(async move {
                    let mut sent = 0;
                    // A stretch of the stream is made when it is sent: 200 whole bodies would be
                    // more memory than what is measured.
                    while sent < BODY {
                        let part = stretch(client, sent, write);
                        source.write_all(&part).await.unwrap();
                        sent += part.len();
                        accepted.borrow_mut()[client as usize] = sent as u64;
                    }
                    source
                }),
            ));
        }
        let mut last = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let now = accepted.borrow().iter().sum();
            if now == last {
                break;
            }
            last = now;
        }
        let most = *accepted.borrow().iter().max().unwrap();
        let charged = cgroup.bytes().saturating_sub(before) / CLIENTS;
        println!(
            "writes of {write}: the kernel took {} KiB a client, at most {}; {} KiB are charged",
            last / CLIENTS / 1024,
            most / 1024,
            charged / 1024
        );
        // Of the process and of all sockets, those of sources and targets too. Packets that pass from one to the
        // other are not charged: of them speaks what the sources could send.
        assert!(most <= 3 * 1024 * 1024, "{most}");
        assert!(charged <= 3 * 1024 * 1024, "{charged}");
        for (client, (mut target, writer)) in (0..).zip(targets).take(10) {
            let reader = tokio::task::spawn_local(async move {
                let mut at = 0;
                let mut got = vec![0; write];
                while at < BODY {
                    let part = stretch(client, at, write);
                    target.read_exact(&mut got[..part.len()]).await.unwrap();
                    assert!(got[..part.len()] == part[..], "client {client} at {at}");
                    at += part.len();
                }
                target
            });
            drop((reader.await.unwrap(), writer.await.unwrap()));
        }
    });
}

/// Bytes of a client's stream, from `at` on.
fn stretch(client: u64, at: usize, len: usize) -> Vec<u8> {
    pattern(client << 32 | at as u64, len.min(BODY - at))
}

#[test]
fn stalled_clients_of_large_writes_cost_a_bounded_amount() {
    stalled(256 * 1024);
}

#[test]
fn stalled_clients_of_small_writes_cost_a_bounded_amount() {
    stalled(200);
}
