//! Interfaces without Ethernet.

use std::{
    fs::File,
    io::{Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    thread::JoinHandle,
};

use tests::netns::Namespace;

/// Two interfaces without Ethernet, joined by a thread.
pub(crate) struct Tunnel {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    pub(crate) fn between(left: &Namespace, here: &str, right: &Namespace, there: &str) -> Self {
        let ends = [(left, here), (right, there)].map(|(host, address)| {
            let end = host.run(tun);
            host.ip_batch(&format!("addr add {address} dev tun7\nlink set tun7 up\n"));
            end
        });
        let (stop, stopped) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || shuttle(ends, &stopped));
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        let _ = self.stop.shutdown(std::net::Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Opens a tunnel interface of this namespace.
fn tun() -> File {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    let file = File::options().read(true).write(true).open("/dev/net/tun").expect("tun");
    // SAFETY: all zeros is a value of this type.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"tun7") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request lives during the call.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &request) };
    assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
    file
}

/// Takes packets from each end to the other.
fn shuttle(mut ends: [File; 2], stopped: &UnixStream) {
    let mut packet = [0; 65_536];
    loop {
        let mut polled = [ends[0].as_raw_fd(), ends[1].as_raw_fd(), stopped.as_raw_fd()]
            .map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: the array lives during the call.
        unsafe { libc::poll(polled.as_mut_ptr(), 3, -1) };
        if polled[2].revents != 0 {
            return;
        }
        for end in (0..2).filter(|end| polled[*end].revents != 0) {
            let Ok(n) = ends[end].read(&mut packet) else { return };
            // An interface that is going away refuses.
            let _ = ends[1 - end].write(&packet[..n]);
        }
    }
}
