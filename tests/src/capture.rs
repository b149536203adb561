//! What really passed a host's interface, judged by someone else: tshark's analysis of TCP.
//!
//! A capture sees what its host has sent and received, in the order of cause and effect. So some
//! things can be said for certain of every packet, also over bad wires; those are [`Fault`]s and none
//! is tolerated:
//!
//! - a checksum is wrong, or tshark calls the packet malformed;
//! - data is acknowledged, or reported as received in part (SACK), that has never been sent;
//! - data goes beyond the window that its receiver has announced;
//! - a timestamp is echoed that has never been sent;
//! - tshark, who remembers the whole connection, sees an acknowledgement of unseen data.
//!
//! On good wires, where packets keep their order and none is lost, also:
//!
//! - a timestamp goes back;
//! - tshark misses a segment.
//!
//! What is benign, and not judged: retransmissions and duplicate acknowledgements (a probe of a busy
//! machine's timer is both), segments out of order (tshark's name for retransmissions that come soon),
//! windows that are full, closed, probed or updated, and keep-alive probes.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::Path,
    process::Command,
    thread::JoinHandle,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{netns::Namespace, process, wire};

/// Bytes of a frame that are kept: all, as a checksum needs them.
const LARGEST: usize = 256 * 1024;

/// A capture that goes on until it is stopped.
#[derive(Debug)]
pub struct Capture {
    file: tempfile::NamedTempFile,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Capture {
    /// Starts one. `None`, said aloud, when there is no tshark to judge it.
    ///
    /// # Panics
    /// When the system refuses; in CI, when there is no tshark.
    pub fn start(namespace: &Namespace, link: &str) -> Option<Self> {
        if Command::new("tshark").arg("--version").output().is_err() {
            process::skip("there is no `tshark` to judge a capture");
            return None;
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let output = file.reopen().expect("a file of ours");
        let socket = namespace.run(|| wire::packets_of(link, false));
        let (stop, stopped) = UnixStream::pair().expect("a pair of sockets");
        let thread = std::thread::spawn(move || record(socket.as_raw_fd(), &stopped, &output));
        Some(Self { file, stop, thread: Some(thread) })
    }

    /// Stops it, and keeps it beside the tests' binaries, under a name that is printed. For whoever has to
    /// find out.
    ///
    /// # Panics
    /// When the disk is full.
    pub fn keep(mut self, what: &str) {
        self.stop();
        keep(&self.file, what);
    }

    fn stop(&mut self) {
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread that records");
        }
    }

    /// Stops it, with everything that has passed until now, and has it judged.
    ///
    /// # Panics
    /// When tshark fails.
    #[track_caller]
    pub fn judge(mut self) -> Verdict {
        self.stop();
        let packets = dissect(self.file.path());
        Verdict { file: Some(self.file), ..judge(&packets) }
    }
}

fn keep(file: &tempfile::NamedTempFile, what: &str) {
    let kept = process::build_dir().join(format!("capture-{}-{what}.pcap", std::process::id()));
    let _ = std::fs::copy(file.path(), &kept);
    eprintln!("the capture is kept in {}", kept.display());
}

/// Writes what comes to a pcap file, until it is told to stop and nothing more is there.
fn record(socket: i32, stopped: &UnixStream, output: &File) {
    let mut output = BufWriter::new(output);
    // Magic number, version 2.4, no offset, longest frame, Ethernet.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, LARGEST as u32, 1] {
        output.write_all(&word.to_ne_bytes()).expect("room for a file");
    }
    let mut frame = vec![0_u8; LARGEST];
    loop {
        let mut polled = [socket, stopped.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // SAFETY: the array lives during the call.
        unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
        // SAFETY: the buffer is ours and as long as said.
        let n = unsafe {
            libc::recv(socket, frame.as_mut_ptr().cast(), frame.len(), libc::MSG_DONTWAIT)
        };
        if n > 0 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
            let len = n as u32;
            for word in [now.as_secs() as u32, now.subsec_micros(), len, len] {
                output.write_all(&word.to_ne_bytes()).expect("room for a file");
            }
            output.write_all(&frame[..n as usize]).expect("room for a file");
        } else if polled[1].revents != 0 {
            output.flush().expect("room for a file");
            return;
        }
    }
}

/// What tshark says of a packet.
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// Its number in the capture.
    pub number: u64,
    /// Which connection it belongs to.
    pub stream: u64,
    /// The port that it comes from.
    pub from: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Bytes of payload.
    pub len: u32,
    /// The window, scaled.
    pub window: u32,
    /// Flags of the TCP header.
    pub flags: u32,
    /// The timestamp, and the one that it echoes.
    pub timestamps: Option<(u32, u32)>,
    /// Right edges of SACK blocks.
    pub sacks: Vec<u32>,
    /// Whether all checksums are good.
    pub checksums: bool,
    /// What tshark noticed.
    pub notes: Vec<String>,
}

const FIELDS: [&str; 14] = [
    "frame.number",
    "tcp.stream",
    "tcp.srcport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.len",
    "tcp.window_size",
    "tcp.flags",
    "tcp.options.timestamp.tsval",
    "tcp.options.timestamp.tsecr",
    "tcp.options.sack_re",
    "tcp.checksum.status",
    "ip.checksum.status",
    "_ws.expert.message",
];

/// Has tshark read a capture.
#[track_caller]
fn dissect(file: &Path) -> Vec<Packet> {
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(file).args(["-Y", "tcp", "-T", "fields"]);
    command.args(["-E", "separator=/t", "-E", "occurrence=a", "-E", "aggregator=;"]);
    for option in [
        "tcp.check_checksum:TRUE",
        "ip.check_checksum:TRUE",
        // (SACK edges are then numbers as in the packet.)
        "tcp.relative_sequence_numbers:FALSE",
        "tcp.desegment_tcp_streams:FALSE",
    ] {
        command.args(["-o", option]);
    }
    for field in FIELDS {
        command.args(["-e", field]);
    }
    // Only TCP is asked for; what is inside may look like anything.
    command.args(["--disable-protocol", "http"]);
    let output = command.output().expect("tshark");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "tshark: {said}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| packet(line).unwrap_or_else(|| panic!("no packet: {line:?}"))).collect()
}

fn packet(line: &str) -> Option<Packet> {
    let fields: Vec<&str> = line.split('\t').collect();
    let fields: [&str; FIELDS.len()] = fields.try_into().ok()?;
    let [number, stream, from, seq, ack, len, window, flags, value, echo, sacks, tcp, ip, notes] =
        fields;
    let hex = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    Some(Packet {
        number: number.parse().ok()?,
        stream: stream.parse().ok()?,
        from: from.parse().ok()?,
        seq: seq.parse().ok()?,
        ack: ack.parse().unwrap_or(0),
        len: len.parse().ok()?,
        window: window.parse().ok()?,
        flags: hex(flags)?,
        timestamps: value.parse().ok().zip(echo.parse().ok()),
        sacks: sacks.split(';').filter_map(|edge| edge.parse().ok()).collect(),
        // 1 is good. IPv6 has none of its own. Of the two forms of zero tshark wants one; the kernel
        // writes the other when it completes a checksum, and receivers take both.
        checksums: (tcp == "1" || notes.contains("Checksum 0xffff instead of 0x0000"))
            && matches!(ip, "1" | ""),
        notes: notes.split(';').filter(|note| !note.is_empty()).map(str::to_owned).collect(),
    })
}

/// Something that no correct host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A checksum is wrong.
    Checksum,
    /// tshark cannot make sense of it.
    Malformed,
    /// It acknowledges what has not been sent.
    AckUnsent,
    /// It says that it has received what has not been sent.
    SackUnsent,
    /// It goes beyond the window.
    BeyondWindow,
    /// It echoes a timestamp that has not been sent.
    EchoUnsent,
    /// tshark: "ACKed segment that wasn't captured".
    AckUnseen,
    /// Its timestamp is older than one before. (Good wires only.)
    TimestampBack,
    /// tshark: "Previous segment(s) not captured". (Good wires only.)
    Gap,
}

/// What came of a capture.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Packets with TCP.
    pub packets: usize,
    /// Connections.
    pub streams: usize,
    /// Faults, and the packets that have them.
    pub faults: Vec<(Fault, Packet)>,
    /// What tshark noticed, how often, benign or not.
    pub notes: BTreeMap<String, usize>,
    file: Option<tempfile::NamedTempFile>,
}

impl Verdict {
    /// Finds no fault. On bad wires, packets may be missing or come late.
    ///
    /// # Panics
    /// When there is one.
    #[track_caller]
    pub fn expect_clean(&self, what: &str, good_wires: bool) {
        let faults: Vec<_> = self
            .faults
            .iter()
            .filter(|(fault, _)| good_wires || !matches!(fault, Fault::TimestampBack | Fault::Gap))
            .collect();
        if faults.is_empty() {
            return;
        }
        if let Some(file) = &self.file {
            keep(file, what);
        }
        let shown = &faults[..faults.len().min(5)];
        panic!("{what}: {} faults: {shown:#?}\n{:?}", faults.len(), self.notes);
    }
}

/// What has been seen of one direction of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct Way {
    /// After the last number sent.
    sent: u32,
    /// The furthest edge that the other end may send to.
    edge: u32,
    /// The newest timestamp.
    stamp: u32,
    begun: bool,
}

fn judge(packets: &[Packet]) -> Verdict {
    const FIN: u32 = 1;
    const SYN: u32 = 2;
    const RST: u32 = 4;
    const ACK: u32 = 16;
    let after = |a: u32, b: u32| (a.wrapping_sub(b) as i32) > 0;
    let mut verdict = Verdict { packets: packets.len(), ..Verdict::default() };
    let mut ways = BTreeMap::<(u64, bool), Way>::new();
    let mut first = BTreeMap::<u64, u16>::new();
    for packet in packets {
        let mut faults = Vec::new();
        for note in &packet.notes {
            *verdict.notes.entry(note.clone()).or_default() += 1;
            if note.starts_with("ACKed segment that wasn't captured") {
                faults.push(Fault::AckUnseen);
            } else if note.starts_with("Previous segment(s) not captured") {
                faults.push(Fault::Gap);
            } else if note.contains("alformed") {
                faults.push(Fault::Malformed);
            }
        }
        if !packet.checksums {
            faults.push(Fault::Checksum);
        }
        let forth = *first.entry(packet.stream).or_insert(packet.from) == packet.from;
        let mut own = ways.get(&(packet.stream, forth)).copied().unwrap_or_default();
        let peer = ways.get(&(packet.stream, !forth)).copied().unwrap_or_default();
        let is = |flag| packet.flags & flag != 0;
        let end = packet.seq.wrapping_add(packet.len + u32::from(is(SYN)) + u32::from(is(FIN)));
        // A reset may answer packets of a connection that is gone, with numbers of theirs.
        if !is(RST) {
            // (A late copy of a SYN changes nothing; a new connection has another number.)
            if !own.begun {
                own = Way { sent: end, edge: 0, stamp: 0, begun: true };
            } else if peer.begun {
                // (A FIN needs no room.)
                if packet.len > 0 && after(packet.seq.wrapping_add(packet.len), peer.edge) {
                    faults.push(Fault::BeyondWindow);
                }
                if after(end, own.sent) {
                    own.sent = end;
                }
            }
            if is(ACK) && peer.begun {
                if after(packet.ack, peer.sent) {
                    faults.push(Fault::AckUnsent);
                }
                if packet.sacks.iter().any(|edge| after(*edge, peer.sent)) {
                    faults.push(Fault::SackUnsent);
                }
                let edge = packet.ack.wrapping_add(packet.window);
                if own.edge == 0 || after(edge, own.edge) {
                    own.edge = edge;
                }
            }
            if let Some((stamp, echo)) = packet.timestamps {
                if own.stamp != 0 && after(own.stamp, stamp) {
                    faults.push(Fault::TimestampBack);
                } else {
                    own.stamp = stamp;
                }
                if is(ACK) && echo != 0 && peer.stamp != 0 && after(echo, peer.stamp) {
                    faults.push(Fault::EchoUnsent);
                }
            }
            ways.insert((packet.stream, forth), own);
        }
        verdict.faults.extend(faults.into_iter().map(|fault| (fault, packet.clone())));
    }
    verdict.streams = first.len();
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (from, seq, ack, len, window, flags, stamp, echo)
    type Row = (u16, u32, u32, u32, u32, u32, u32, u32);

    fn faults(rows: &[Row]) -> Vec<Fault> {
        let start: [Row; 3] = [
            (1, 100, 0, 0, 1000, 2, 10, 0),
            (2, 500, 101, 0, 1000, 18, 20, 10),
            (1, 101, 501, 0, 1000, 16, 10, 20),
        ];
        let rows = start.iter().chain(rows).enumerate();
        let packets: Vec<Packet> = rows
            .map(|(number, &(from, seq, ack, len, window, flags, stamp, echo))| Packet {
                number: number as u64,
                from,
                seq,
                ack,
                len,
                window,
                flags,
                timestamps: Some((stamp, echo)),
                checksums: true,
                ..Packet::default()
            })
            .collect();
        judge(&packets).faults.into_iter().map(|(fault, _)| fault).collect()
    }

    #[test]
    fn what_correct_hosts_send_is_clean() {
        assert!(faults(&[]).is_empty());
        // Data up to the edge, its acknowledgement, a repetition, a FIN beyond a full window.
        assert!(
            faults(&[
                (1, 101, 501, 1000, 1000, 16, 11, 20),
                (2, 501, 1101, 0, 0, 16, 21, 11),
                (1, 101, 501, 1000, 1000, 16, 11, 21),
                (1, 1101, 501, 0, 1000, 17, 12, 21),
                (2, 501, 1102, 0, 1000, 16, 22, 12),
            ])
            .is_empty()
        );
    }

    #[test]
    fn every_fault_is_found() {
        assert_eq!(faults(&[(2, 501, 102, 0, 1000, 16, 21, 10)]), [Fault::AckUnsent]);
        assert_eq!(faults(&[(1, 101, 501, 1001, 1000, 16, 11, 20)]), [Fault::BeyondWindow]);
        assert_eq!(faults(&[(1, 101, 501, 0, 1000, 16, 9, 20)]), [Fault::TimestampBack]);
        assert_eq!(faults(&[(1, 101, 501, 0, 1000, 16, 11, 21)]), [Fault::EchoUnsent]);
        let note = |note: &str| {
            let packet =
                Packet { checksums: true, notes: vec![note.to_owned()], ..Packet::default() };
            judge(&[packet]).faults.first().map(|(fault, _)| *fault)
        };
        assert_eq!(
            note("ACKed segment that wasn't captured (common at capture start)"),
            Some(Fault::AckUnseen)
        );
        assert_eq!(
            note("Previous segment(s) not captured (common at capture start)"),
            Some(Fault::Gap)
        );
        let packets = [Packet::default()];
        assert_eq!(judge(&packets).faults[0].0, Fault::Checksum);
        let unsent = Packet {
            sacks: vec![900],
            checksums: true,
            flags: 16,
            from: 2,
            ack: 100,
            ..Packet::default()
        };
        let syn = Packet { seq: 100, flags: 2, from: 1, checksums: true, ..Packet::default() };
        assert_eq!(judge(&[syn, unsent]).faults[0].0, Fault::SackUnsent);
    }
}
