//! Packets that bypass the programs, or overtake others.

use super::*;

/// A tag that holds a priority alone is of the same network: the gateway's socket gets what the programs
/// leave to it, and they notice.
#[test]
fn packets_that_pass_the_programs_by_are_noticed() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    joined.begin_spliced_stream();
    let tagging = [("gives_priority", TcAttachType::Egress)];
    let tagging = Others::attach_to(&row.instance, &row.links[3], &tagging, false);
    for number in 0..20 {
        joined.token(number);
    }
    assert!(tagging.seen()[1] >= 20);
    assert!(joined.fallbacks("bypassed") > 0.0, "{}", refusals(&joined.gateway));
    drop(tagging);
    joined.end_stream();
    joined.expect_spliced();
}

/// The instance's socket repeats what was forwarded already, and it passes the programs by: the gateway's socket
/// has been waiting for it, and takes it. It must not reach the client again.
#[test]
fn what_was_forwarded_does_not_come_twice() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    let link = Link::open(&row.instance, &row.links[3]);
    joined.begin_spliced_stream();
    joined.token(7);
    let chunk = chunked::chunk(&payload::bytes(7, 150));
    let first = link.take("the first one", |segment| segment.payload() == chunk);
    joined.token(8);
    assert_eq!(pairs(&joined.gateway), [2 * chunk.len() as u64]);
    link.send(&first.again().tagged(&[0x6000]));
    let (rest, end) = joined.client.end();
    assert!(rest.is_empty(), "{} bytes came again", rest.len());
    assert_eq!(end, End::Reset);
    joined.instance.expect_end();
    joined.gateway.expect_idle();
}

/// Bytes ahead of what the gateway's socket waits for pass the programs by. It keeps them, and would take them for
/// those that come that much later once others had gone past it.
#[test]
fn what_came_early_past_the_programs_takes_no_place() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    let link = Link::open(&row.instance, &row.links[3]);
    joined.begin_spliced_stream();
    let chunk = chunked::chunk(&payload::bytes(7, 150));
    joined.instance.send(&chunk);
    joined.client.expect(&chunk);
    let first = link.take("the first one", |segment| segment.payload() == chunk);
    link.send(&first.ahead(1_000, &[b'!'; 500]).tagged(&[0x6000]));
    let (rest, end) = joined.client.end();
    assert!(rest.is_empty(), "{} bytes too many", rest.len());
    assert_eq!(end, End::Reset);
    joined.instance.expect_end();
    joined.gateway.expect_idle();
}

/// What two processors carry at the same time comes in another order by a few microseconds.
#[test]
fn packets_that_overtake_others_leave_no_hole() {
    let Some(row) = Row::new() else { return };
    // Single packets, which arrive many at a time.
    row.instance.plain_packets(&row.links[3]);
    let behind = [("falls_behind", TcAttachType::Ingress)];
    let behind = Others::attach_to(&row.gateway, &row.links[2], &behind, false);
    let Joined { gateway, mut client, mut instance, upstream } = row.place().join();
    let holes = || {
        let labels = [("engine", "splice"), ("reason", "hole")];
        gateway.metric("atalho_fallbacks_total", &labels)
    };
    let mut rounds = Vec::new();
    for seed in 0..20 {
        let carried = gateway.carried(Engine::Splice, "response");
        client.send(chat("bulk"));
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        for number in 0..16 {
            let chunk = chunked::chunk(&payload::bytes(number, 150));
            instance.send(&chunk);
            client.expect(&chunk);
        }
        let (holes_before, [behind_before, _]) = (holes(), behind.seen());
        let bulk = chunked::encode(payload::bytes(seed, 8 << 20).chunks(16 << 10));
        pass(&mut instance, &mut client, &bulk);
        let (holes, behind) = (holes() - holes_before, behind.seen()[0] - behind_before);
        let carried = gateway.carried(Engine::Splice, "response") - carried;
        rounds.push((carried, behind, holes));
        // Not every round: a processor may be busy with something else for longer than packets wait.
        if carried > 8 << 20 && behind >= 20 && holes == 0.0 {
            assert_eq!(upstream.accepted(), 1);
            return gateway.expect_idle();
        }
    }
    panic!("bytes carried, packets overtaken, holes: {rounds:?}");
}
