//! Settings that stay as they are until a restart.

use crate::config::Config;

/// Settings that a running gateway cannot change, with how to take one over from the old
/// configuration and tell whether it differed.
type Keep = fn(&mut Config, &Config) -> bool;

fn keep<T: Clone + PartialEq>(new: &mut T, old: &T) -> bool {
    let differs = new != old;
    new.clone_from(old);
    differs
}

const FIXED: &[(&str, Keep)] = &[
    ("listen", |new, old| keep(&mut new.listen, &old.listen)),
    ("admin", |new, old| keep(&mut new.admin, &old.admin)),
    ("threads", |new, old| keep(&mut new.threads, &old.threads)),
    ("half_closed_clients", |new, old| {
        keep(&mut new.half_closed_clients, &old.half_closed_clients)
    }),
    ("engine.mode", |new, old| keep(&mut new.engine.mode, &old.engine.mode)),
    ("engine.xdp", |new, old| keep(&mut new.engine.xdp, &old.engine.xdp)),
    ("engine.interfaces", |new, old| keep(&mut new.engine.interfaces, &old.engine.interfaces)),
    ("engine.except_interfaces", |new, old| {
        keep(&mut new.engine.except_interfaces, &old.engine.except_interfaces)
    }),
    ("engine.hand_over_from_bytes", |new, old| {
        keep(&mut new.engine.hand_over_from_bytes, &old.engine.hand_over_from_bytes)
    }),
    ("engine.hand_over_from_reads", |new, old| {
        keep(&mut new.engine.hand_over_from_reads, &old.engine.hand_over_from_reads)
    }),
    ("engine.learn_reads", |new, old| keep(&mut new.engine.learn_reads, &old.engine.learn_reads)),
    ("engine.backlog_bytes", |new, old| {
        keep(&mut new.engine.backlog_bytes, &old.engine.backlog_bytes)
    }),
    ("log.format", |new, old| keep(&mut new.log.format, &old.log.format)),
    ("log.level", |new, old| keep(&mut new.log.level, &old.log.level)),
    ("guard.interfaces", |new, old| keep(&mut new.guard.interfaces, &old.guard.interfaces)),
    ("guard.mode", |new, old| keep(&mut new.guard.mode, &old.guard.mode)),
    ("control.listen", |new, old| keep(&mut new.control.listen, &old.control.listen)),
    ("control.on_client_listener", |new, old| {
        keep(&mut new.control.on_client_listener, &old.control.on_client_listener)
    }),
    ("control.store", |new, old| keep(&mut new.control.store, &old.control.store)),
    ("control.region", |new, old| keep(&mut new.control.region, &old.control.region)),
    ("control.account", |new, old| keep(&mut new.control.account, &old.control.account)),
];

/// Puts what cannot change back to what it is, and names what the file would have changed.
pub(super) fn keep_fixed(new: &mut Config, old: &Config) -> Vec<&'static str> {
    FIXED.iter().filter(|(_, keep)| keep(new, old)).map(|(path, _)| *path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings;

    #[test]
    fn what_the_table_calls_fixed_is_kept_and_nothing_else() {
        let fixed: Vec<_> = FIXED.iter().map(|(path, _)| *path).collect();
        let table: Vec<_> = settings().filter(|s| !s.live).map(|s| s.path).collect();
        assert_eq!(fixed, table);
        let old = Config::default();
        let mut new = Config { threads: 7, access_log: true, ..Config::default() };
        new.engine.backlog_bytes += 1;
        assert_eq!(keep_fixed(&mut new, &old), ["threads", "engine.backlog_bytes"]);
        assert_eq!(new, Config { access_log: true, ..old });
    }
}
