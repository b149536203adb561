//! The splice engine's program in drivers.

use std::{
    future::{Future as _, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use router_ebpf::{
    framing::Framing,
    splice::{
        packet::{Packet, flag},
        timestamps::Timestamps,
        translate,
        verdict::Action,
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::{
    Failure, IDLE, Progress,
    connections::{V4, V6},
    data::{compare, payload},
    failed,
    frames::{ends, frame, swapped},
    pair::Pair,
    splice_engine, within_limit,
};
use crate::{
    engine::{Handover, KernelEngine},
    kernel::splice::SpliceObject,
};

/// As [`splice`](fn@super::splice), for the program in drivers: it is given frames, as loopback has no driver.
/// Nothing is sent by it.
///
/// # Errors
/// The first step that went wrong.
pub fn splice_xdp(programs: &Arc<SpliceObject>) -> Result<Duration, Failure> {
    programs.allow_loopback(true).map_err(failed("allowing loopback"))?;
    let steps = async |progress: &Progress| {
        let engine = splice_engine(programs)?;
        for (local, step) in [(V4, "frames of IPv4"), (V6, "frames of IPv6")] {
            if local == V6 && TcpListener::bind(V6).await.is_err() {
                continue;
            }
            for length in [Some(1_000), None] {
                let mut pair = progress.step(step, Pair::open_known(&engine, local)).await?;
                let forwarding = pair.forward_frames(&engine, programs, length);
                progress.step(step, forwarding).await?;
            }
        }
        Ok(())
    };
    let result = within_limit(steps);
    let undone = programs.allow_loopback(false).map_err(failed("leaving loopback alone"));
    programs.forget_closed();
    result.and_then(|((), took)| undone.map(|()| took))
}

impl Pair {
    /// Frames as of the source and of the target are forwarded as the core says, and what is for the other
    /// programs is left alone. The connections are of no use afterwards: nothing was sent.
    async fn forward_frames(
        &mut self,
        engine: &KernelEngine,
        programs: &SpliceObject,
        length: Option<u64>,
    ) -> Result<(), String> {
        let index = self.from.splice.as_ref().ok_or("no entry")?.index();
        let from = ends(&self.source, &self.from)?;
        let to = ends(&self.target, &self.to)?;
        let Self { from: near_source, to: near_target, source, target } = self;
        let mut framing = length.map_or_else(Framing::chunked, Framing::length);
        let mut handover =
            pin!(engine.hand_over(Handover::new(near_source, near_target, &mut framing, IDLE)));
        if let Poll::Ready(outcome) = poll_fn(|cx| Poll::Ready(handover.as_mut().poll(cx))).await {
            return Err(format!("not handed over: {:?}", outcome.end));
        }
        // The first bytes go the other programs' way, and tell both ends' Ethernet addresses.
        let first: &[u8] = if length.is_some() { &[b'x'; 100] } else { b"64\r\n" };
        source.write_all(first).await.map_err(|error| error.to_string())?;
        target.read_exact(&mut vec![0; first.len()]).await.map_err(|error| error.to_string())?;
        let pair = || programs.entry(index).pair();
        while pair().splice.acked != first.len() as u64 || pair().receiver.asks != 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }

        let payload = payload(100);
        let before = pair();
        let stamps = |value: u32, echo: u32| Some(Timestamps { value, echo });
        let data = Packet {
            seq: before.splice.h.wrapping_add(first.len() as u32),
            ack: before.source.next,
            len: payload.len() as u32,
            window: 1_000,
            flags: flag::ACK | flag::PSH,
            timestamps: stamps(before.source.ts_peer.wrapping_add(7), before.source.ts_last),
            ..Packet::default()
        };
        let mut expected = before;
        // A chunk of 100 bytes has begun.
        expected.splice.parsed += u64::from(data.len);
        let Action::Forward(out) = translate::ingress_from_source(&mut expected, &data).action
        else {
            return Err("the core does not forward it".to_owned());
        };
        let (redirected, got) =
            programs.run_xdp(&frame(from, &data, &payload)).map_err(|error| error.to_string())?;
        if !redirected {
            return Err("data is not forwarded".to_owned());
        }
        compare(&got, &frame(swapped(to), &out, &payload))?;

        let before = pair();
        let answer = Packet {
            seq: before.receiver.own_ack,
            ack: out.seq.wrapping_add(out.len),
            window: 1_000,
            flags: flag::ACK,
            timestamps: stamps(before.receiver.ts_peer.wrapping_add(7), before.receiver.ts_last),
            ..Packet::default()
        };
        let mut expected = before;
        let Action::Forward(out) = translate::ingress_from_receiver(&mut expected, &answer).action
        else {
            return Err("the core does not forward the acknowledgement".to_owned());
        };
        let (redirected, got) =
            programs.run_xdp(&frame(to, &answer, &[])).map_err(|error| error.to_string())?;
        if !redirected {
            return Err("an acknowledgement is not forwarded".to_owned());
        }
        compare(&got, &frame(swapped(from), &out, &[]))?;

        // Behind the end there is no body, and a FIN is for the socket.
        let last =
            Packet { seq: data.seq.wrapping_add(data.len), flags: flag::ACK | flag::FIN, ..data };
        let sent = frame(from, &last, &payload);
        let (redirected, got) = programs.run_xdp(&sent).map_err(|error| error.to_string())?;
        if redirected {
            return Err("a FIN is forwarded".to_owned());
        }
        compare(&got, &sent)
    }
}
