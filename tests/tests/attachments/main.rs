//! Where the splice engine applies: client and instance behind interfaces of many kinds, the same
//! interface, the gateway's own host, and interfaces that come and go. What it cannot carry another
//! engine does, and a metric says why.

mod bypass;
mod hosts;
mod interfaces;
mod options;
mod others;
mod programs;
mod routes;
mod stream;
mod tunnel;
mod vlans;

use std::time::Duration;

use aya::programs::TcAttachType;
use tests::{
    End, Engine, Peer, Setup, Upstream,
    bpf::Objects,
    chunked, eventually,
    frames::{Link, Segment},
    message::{CHUNKED_HEAD, chat, response},
    netns::Namespace,
    payload, process,
};

use hosts::{Place, Row, has, tag, three};
use others::{Others, filters};
use stream::{Joined, pairs, pass, refusals, sent_again};
use tunnel::Tunnel;
