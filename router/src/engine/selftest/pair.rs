//! Steps with two connections, for both kernel engines.

use std::future::poll_fn;

use router_ebpf::framing::Framing;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    Failure, IDLE, Progress,
    connections::{accepted, connection, fill, opened},
    data::{chunked, compare, expect, payload},
};
use crate::engine::{
    Conn, Copier, Handover, HandoverPoint, KernelEngine, Output,
    outcome::{HandoverEnd, TakeBack},
};

/// Two of the gateway's connections, with their far ends.
pub(super) struct Pair {
    pub(super) from: Conn,
    pub(super) to: Conn,
    pub(super) source: TcpStream,
    pub(super) target: TcpStream,
}

impl Pair {
    pub(super) async fn open() -> Result<Self, String> {
        let (from, source) = connection().await.map_err(|error| error.to_string())?;
        let (to, target) = connection().await.map_err(|error| error.to_string())?;
        Ok(Self { from, to, source, target })
    }

    /// Connections that an engine knows from their first packet on.
    pub(super) async fn open_known(engine: &KernelEngine, local: &str) -> Result<Self, String> {
        let opened = async {
            let (mut from, source) = opened(local, engine.segment()).await?;
            let (mut to, target) = accepted(local, engine.segment()).await?;
            engine.register(&mut from, true);
            engine.register(&mut to, false);
            Ok::<_, std::io::Error>(Self { from, to, source, target })
        };
        let mut pair = opened.await.map_err(|error| error.to_string())?;
        pair.echo().await?;
        Ok(pair)
    }

    /// Bytes in all four directions, moved by the sockets.
    pub(super) async fn echo(&mut self) -> Result<(), String> {
        for (near, far) in [(&mut self.from, &mut self.source), (&mut self.to, &mut self.target)] {
            near.stream.write_all(b"there").await.map_err(|error| error.to_string())?;
            let mut got = [0; 5];
            far.read_exact(&mut got).await.map_err(|error| error.to_string())?;
            compare(&got, b"there")?;
            far.write_all(b"back").await.map_err(|error| error.to_string())?;
            fill(near, 4).await?;
            compare(&near.input, b"back")?;
            near.input.clear();
        }
        Ok(())
    }

    /// A body that user space relays.
    pub(super) async fn copy(&mut self, framing: Framing, body: &[u8]) -> Result<(), String> {
        let Self { from, to, source, target } = self;
        let mut copier = Copier::new(framing, Output::Verbatim);
        let copying = poll_fn(|cx| copier.poll(cx, from, &mut to.stream, HandoverPoint::Never));
        let mut got = vec![0; body.len()];
        let (sent, received, copied) =
            tokio::join!(source.write_all(body), target.read_exact(&mut got), copying);
        sent.and(received).map_err(|error| error.to_string())?;
        copied.map_err(|error| error.to_string())?;
        compare(&got, body)
    }

    /// A body that the kernel moves alone.
    pub(super) async fn relay(
        &mut self,
        engine: &KernelEngine,
        mut framing: Framing,
        body: &[u8],
    ) -> Result<(), String> {
        let Self { from, to, source, target } = self;
        let far = async {
            let mut got = vec![0; body.len()];
            for (sent, got) in body.chunks(9_000).zip(got.chunks_mut(9_000)) {
                source.write_all(sent).await?;
                target.read_exact(got).await?;
            }
            Ok::<_, std::io::Error>(got)
        };
        let handover = engine.hand_over(Handover::new(from, to, &mut framing, IDLE));
        let (outcome, got) = tokio::join!(handover, far);
        expect(&outcome, HandoverEnd::Ended, body.len() as u64)?;
        compare(&got.map_err(|error| error.to_string())?, body)
    }

    /// Bodies that the kernel moves alone, in both framings. Twice: the second time, the connections have
    /// been there before.
    pub(super) async fn bodies(
        &mut self,
        progress: &Progress,
        engine: &KernelEngine,
    ) -> Result<(), Failure> {
        let payload = payload(40_000);
        let chunks = chunked(&payload, 777);
        let length = Framing::length(payload.len() as u64);
        for _ in 0..2 {
            progress.step("a body of known length", self.relay(engine, length, &payload)).await?;
            let chunked = self.relay(engine, Framing::chunked(), &chunks);
            progress.step("a chunked body", chunked).await?;
        }
        let crossing = self.cross(engine);
        progress.step("the next message right behind a body", crossing).await
    }

    /// The last packet of a body holds the start of the next message: user space gets all of it.
    pub(super) async fn cross(&mut self, engine: &KernelEngine) -> Result<(), String> {
        let mut framing = Framing::length(4);
        let Self { from, to, source, .. } = self;
        let handover = engine.hand_over(Handover::new(from, to, &mut framing, IDLE));
        let (outcome, written) = tokio::join!(handover, source.write_all(b"bodynext"));
        written.map_err(|error| error.to_string())?;
        expect(&outcome, HandoverEnd::TakenBack(TakeBack::Crossed), 0)?;
        fill(from, 8).await?;
        compare(&from.input, b"bodynext")?;
        from.input.clear();
        self.follow_up().await
    }

    /// As [`Pair::finish`], with a FIN that comes while the kernel moves.
    pub(super) async fn finish_under_way(&mut self, engine: &KernelEngine) -> Result<(), String> {
        let mut framing = Framing::until_close();
        let Self { from, to, source, target } = self;
        let far = async {
            source.write_all(b"last").await?;
            source.shutdown().await?;
            let mut got = [0; 4];
            target.read_exact(&mut got).await?;
            Ok::<_, std::io::Error>(got)
        };
        let handover = engine.hand_over(Handover::new(from, to, &mut framing, IDLE));
        let (outcome, got) = tokio::join!(handover, far);
        compare(&got.map_err(|error| error.to_string())?, b"last")?;
        expect(&outcome, HandoverEnd::SourceClosed, 4)?;
        self.follow_up().await
    }

    /// A FIN ends a body of unknown length, and leaves the target usable.
    pub(super) async fn finish(&mut self, engine: &KernelEngine) -> Result<(), String> {
        let mut framing = Framing::until_close();
        self.source.write_all(b"last").await.map_err(|error| error.to_string())?;
        fill(&mut self.from, 4).await?;
        self.from.input.clear();
        self.source.shutdown().await.map_err(|error| error.to_string())?;
        let handover = Handover::new(&mut self.from, &mut self.to, &mut framing, IDLE);
        let outcome = engine.hand_over(handover).await;
        expect(&outcome, HandoverEnd::SourceClosed, 0)?;
        self.follow_up().await
    }

    /// The target takes user space's bytes again.
    async fn follow_up(&mut self) -> Result<(), String> {
        self.to.stream.write_all(b"after").await.map_err(|error| error.to_string())?;
        let mut got = [0; 5];
        self.target.read_exact(&mut got).await.map_err(|error| error.to_string())?;
        compare(&got, b"after")
    }
}
