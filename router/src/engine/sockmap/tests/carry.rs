//! Bodies arrive whole, in order, once.

use super::*;

#[test]
fn a_length_body_is_carried_to_its_end() {
    with_engine(Settings::default(), |engine| async move {
        let (mut from, mut source) = connection().await;
        let (mut to, mut target) = connection().await;
        let body = pattern(1, 3_000_000);
        let writer = tokio::task::spawn_local({
            let body = body.clone();
            async move {
                // Let the steering begin first.
                tokio::task::yield_now().await;
                for part in body.chunks(10_000) {
                    source.write_all(part).await.unwrap();
                }
                source
            }
        });
        let reader = tokio::task::spawn_local(async move {
            let mut got = vec![0; 3_000_000];
            target.read_exact(&mut got).await.unwrap();
            (target, got)
        });
        let mut framing = Framing::length(3_000_000);
        let steered = engine.steer(&mut from, &mut to, &mut framing, None, IDLE, false).await;
        assert_eq!(steered.end, SteerEnd::Ended, "{steered:?}");
        assert_eq!(steered.bytes, 3_000_000);
        assert!(framing.is_done());
        let (_target, got) = reader.await.unwrap();
        assert!(got == body);
        drop(writer.await.unwrap());
    });
}
