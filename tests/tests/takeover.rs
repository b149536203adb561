//! A gateway that takes over from a running one: nobody is refused, nothing is cut, and thresholds hold for
//! both together.

use tests::{
    End, Setup, Upstream, chunked, eventually, for_each_engine,
    message::{CHUNKED_HEAD, chat, response},
    payload,
};

for_each_engine! {
    fn streams_go_on_and_new_requests_go_to_the_new_one(engine) {
        let upstream = Upstream::manual();
        let setup = Setup::single(engine, &upstream);
        let mut old = setup.clone().start();
        let mut client = old.connect();
        client.send(chat("x"));
        let mut instance = upstream.accept();
        instance.request();
        instance.send(CHUNKED_HEAD);
        client.head();
        let mut pass = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                let chunk = chunked::chunk(&payload::bytes(number, 300));
                instance.send(&chunk);
                client.expect(&chunk);
            }
        };
        pass(0..20);
        let new = setup.in_place_of(&old).flag("--take-over").start();
        assert_eq!(new.address(), old.address());
        pass(20..40);
        // The admin address is the new one's too: it has not answered anybody yet.
        assert_eq!(new.metric("atalho_requests_total", &[]), 0.0);
        let mut other = new.connect();
        other.send(chat("y"));
        let mut second = upstream.accept();
        second.request();
        second.send(response(200, "new"));
        assert_eq!(other.response().payload(), b"new");
        assert_eq!(new.metric("atalho_requests_total", &[]), 1.0);
        assert!(old.running());
        pass(40..60);
        instance.send("0\r\n\r\n");
        client.expect("0\r\n\r\n");
        assert_eq!(client.expect_end(), End::Closed);
        assert!(old.wait().success());
        eventually("nothing is in flight", || new.in_flight() == 0);
    }
}
