//! A gateway that starts where another one has just ended.

use tests::{
    Setup, Upstream, for_each_engine,
    message::{request, response},
    payload,
};

/// Enough for every engine to be worth a hand-over, and for more than one window.
const BODY: usize = 3_000_000;
/// A piece is sent once the one before has arrived: what is under way leaves a moment to hand over.
const PIECE: usize = 500_000;

for_each_engine! {
    /// The connection that the first one has closed waits in TIME_WAIT, with its port. Both directions have
    /// been in the kernel's hands.
    fn the_port_can_be_had_at_once(engine) {
        let upstream = Upstream::manual();
        let bytes = payload::bytes(1, BODY);
        let (question, answer) = (request("POST", "/invocations", &bytes), response(200, &bytes));
        let mut setup = Setup::single(engine, &upstream).set("timeouts.drain", "60s");
        for _ in 0..3 {
            let mut gateway = setup.start();
            let address = gateway.address();
            let mut client = gateway.connect();
            let begin = question.len() - BODY + PIECE;
            client.send(&question[..begin]);
            let mut instance = upstream.accept();
            instance.head();
            instance.take_exact(PIECE);
            for piece in question[begin..].chunks(PIECE) {
                client.send(piece);
                instance.take_exact(piece.len());
            }
            let begin = answer.len() - BODY + PIECE;
            instance.send(&answer[..begin]);
            client.head();
            client.take_exact(PIECE);
            for piece in answer[begin..].chunks(PIECE) {
                instance.send(piece);
                client.take_exact(piece.len());
            }
            gateway.expect_carried("request");
            gateway.expect_carried("response");
            // It closes first.
            gateway.terminate();
            client.expect_end();
            drop((client, instance));
            assert!(gateway.wait().success());
            setup = setup.set("listen", vec![address.to_string()]);
        }
    }
}
