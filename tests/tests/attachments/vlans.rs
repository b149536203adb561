//! Frames with the tags of VLANs.

use super::*;

#[test]
fn vlans_on_both_sides() {
    let Some([client, gateway, instance]) = three() else { return };
    if !has("vlan id 5", &gateway) {
        return;
    }
    let (c, a) = client.link(&gateway);
    let (b, s) = gateway.link(&instance);
    tag(&client, &c, 7, "10.97.1.1/24", "");
    tag(&gateway, &a, 7, "10.97.1.2/24", "");
    tag(&gateway, &b, 8, "10.97.2.1/24", "");
    tag(&instance, &s, 8, "10.97.2.2/24", "");
    Place::of([&client, &gateway, &instance]).expect_spliced();
}

#[test]
fn a_vlan_on_one_side_and_the_interface_below_it_on_the_other() {
    // Both on one link: what leaves the interface of the VLAN passes the one below as well, tagged.
    let Some([client, gateway, instance]) = three() else { return };
    if !has("vlan id 5", &gateway) {
        return;
    }
    let (c, a) = client.join(&gateway, "10.97.1.1/24", "10.97.1.2/24");
    tag(&client, &c, 7, "10.97.2.2/24", "");
    tag(&gateway, &a, 7, "10.97.2.1/24", "");
    drop(instance);
    Place::of([&client, &gateway, &client]).expect_spliced();
}

#[test]
fn tags_in_the_frame_are_left_to_another_engine() {
    let Some([client, gateway, instance]) = three() else { return };
    if !has("vlan id 5", &gateway) {
        return;
    }
    let (c, a) = client.link(&gateway);
    gateway.join(&instance, "10.97.2.1/24", "10.97.2.2/24");
    tag(&client, &c, 7, "10.97.1.1/24", "");
    // The interface of the VLAN gets frames, and gives them, with the tag in its place.
    tag(&gateway, &a, 7, "10.97.1.2/24", "reorder_hdr off");
    let place = Place::of([&client, &gateway, &instance]);
    let mut joined = place.join();
    joined.exchange(0);
    joined.expect_refused("interface");
}

/// Frames of a VLAN are those of another network, whatever they look like: of the stream that is spliced,
/// its next bytes or its end.
#[test]
fn tagged_frames_that_look_like_those_of_a_stream() {
    let Some(row) = Row::new() else { return };
    let mut joined = row.place().join();
    joined.expect_spliced();
    // Behind ours.
    let arriving = [("sees_arriving", TcAttachType::Ingress)];
    let behind = Others::attach_to(&row.gateway, &row.links[2], &arriving, false);
    let (ours, theirs) =
        (Link::open(&row.instance, &row.links[3]), Link::open(&row.client, &row.links[0]));
    joined.begin_spliced_stream();
    let chunk = chunked::chunk(&payload::bytes(77, 150));
    joined.instance.send(&chunk);
    joined.client.expect(&chunk);
    let forged = chunked::chunk(&payload::bytes(78, 150));
    let wanted = |segment: &Segment| segment.payload() == chunk;
    let last = ours.take("the last chunk, from the instance", wanted);
    let (seen, carried) = (behind.seen()[0], pairs(&joined.gateway));
    assert_eq!(carried, [chunk.len() as u64]);
    let tags: [&[u16]; 3] = [&[7], &[0x6007], &[7, 8]];
    for tags in tags {
        ours.send(&last.next(0x18, &forged).tagged(tags));
        ours.send(&last.next(Segment::RESET, &[]).tagged(tags));
    }
    eventually("they go on", || behind.seen()[0] >= seen + 2 * tags.len() as u64);
    assert_eq!(pairs(&joined.gateway), carried);

    // What the gateway's host sends into a VLAN on the same link leaves as it is.
    let last = theirs.take("the last chunk, to the client", wanted);
    let gateways = Link::open(&row.gateway, &row.links[1]);
    for (number, tags) in tags.into_iter().enumerate() {
        let strange = last.next(0x18, &payload::bytes(number as u64, 99));
        gateways.send(&strange.tagged(tags));
        if tags.len() == 1 {
            // (The socket shows it without its tag.)
            theirs.take("the frame that was sent", |segment| segment.bytes() == strange.bytes());
        }
    }

    for number in 0..20 {
        joined.token(number);
    }
    joined.end_and_go_on();
}
