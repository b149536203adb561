use super::*;
use tokio::time::advance;

fn settings() -> Settings {
    Settings {
        eject_after: 3,
        eject_for: Duration::from_secs(5),
        eject_max: Duration::from_secs(60),
        ..crate::config::Config::default().health
    }
}

fn state(settings: Settings) -> HealthState {
    HealthState::new(true, false, Arc::new(settings))
}

/// A member of a variant of two, so that it may be ejected.
fn peers() -> (Peers, crate::fleet::Fleet) {
    use crate::{config::Strategy, fleet::testing};
    let fleet = testing::fleet(testing::config(Strategy::Random, 1, &[1.0, 1.0]));
    let peers = Peers::default();
    peers.set(fleet.instances().map(|(_, _, instance)| Arc::downgrade(instance)));
    (peers, fleet)
}

/// As many requests of different clients and prompts fail.
fn fail(state: &HealthState, times: u32) -> Option<u64> {
    let (peers, _fleet) = peers();
    let mut ejected = None;
    for _ in 0..times {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let blame = crate::fleet::testing::blame(NEXT.fetch_add(1, Relaxed));
        ejected = ejected.or(state.note_failure(FailureKind::Status, blame, &peers));
    }
    ejected.map(|length| length.as_secs())
}

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

#[test]
fn checks_take_out_after_fall_and_bring_back_after_rise() {
    let state = state(settings());
    assert!(state.available(), "an instance is taken for well");
    assert_eq!(state.note_check(Check::Good), None);
    assert_eq!(state.note_check(Check::Unreachable), None);
    assert_eq!(state.note_check(Check::Bad), None);
    assert_eq!(state.note_check(Check::Good), None, "one good check starts the count anew");
    assert_eq!(state.note_check(Check::Bad), None);
    assert_eq!(state.note_check(Check::Bad), None);
    assert!(state.available());
    assert_eq!(state.note_check(Check::Bad), Some(Change::Down));
    assert_eq!((state.available(), state.status().as_str()), (false, "down"));
    assert_eq!(state.note_check(Check::Bad), None);
    assert_eq!(state.note_check(Check::Good), None);
    assert_eq!(state.note_check(Check::Bad), None, "one good check is not enough");
    assert_eq!(state.note_check(Check::Good), None);
    assert_eq!(state.note_check(Check::Good), Some(Change::Up));
    assert!(state.available());
}

#[test]
fn dead_from_the_start_is_out_at_once_and_slow_from_the_start_is_not() {
    let dead = state(settings());
    assert_eq!(dead.note_check(Check::Unreachable), Some(Change::Down));
    assert_eq!(dead.note_check(Check::Unreachable), None);
    assert_eq!(dead.note_check(Check::Good), Some(Change::Up), "in at once when it starts");
    let slow = state(settings());
    assert_eq!(slow.note_check(Check::Bad), None);
    assert!(slow.available());
}

#[tokio::test(start_paused = true)]
async fn ejections_grow_up_to_their_limit_and_end_by_themselves() {
    let state = state(settings());
    assert_eq!(fail(&state, 2), None);
    state.note_success(CLIENT);
    assert_eq!(fail(&state, 2), None, "a success starts the count anew");
    assert_eq!(fail(&state, 1), Some(5));
    for seconds in [5, 10, 20, 40, 60, 60] {
        assert_eq!(state.status().as_str(), "ejected");
        assert_eq!(fail(&state, 10), None, "what was under way says nothing new");
        advance(Duration::from_secs(seconds) - Duration::from_millis(1)).await;
        assert!(!state.available());
        advance(Duration::from_millis(2)).await;
        assert!(state.available(), "after {seconds} s");
        // On probation, one failure is enough.
        assert_eq!(fail(&state, 1), Some((seconds * 2).min(60)));
    }
    advance(Duration::from_secs(61)).await;
    state.note_success(CLIENT);
    assert!(state.available());
    state.note_success(CLIENT);
    // `rise` successes, and all is forgiven.
    assert_eq!(fail(&state, 2), None);
    assert_eq!(fail(&state, 1), Some(5));
}

#[tokio::test(start_paused = true)]
async fn many_ejections_overflow_nothing() {
    let state = state(Settings { eject_max: Duration::from_secs(86_400), ..settings() });
    assert_eq!(fail(&state, 3), Some(5));
    for _ in 0..100 {
        advance(Duration::from_secs(86_401)).await;
        assert!(fail(&state, 1).is_some_and(|seconds| seconds <= 86_400));
    }
}

#[tokio::test(start_paused = true)]
async fn good_checks_cure_a_lost_connection_but_not_failing_answers() {
    let lost = state(settings());
    let failing = state(settings());
    for state in [&lost, &failing] {
        assert_eq!(state.note_check(Check::Good), None);
        assert_eq!(state.note_check(Check::Bad), None);
    }
    let (peers, _fleet) = peers();
    for n in 1..=3 {
        let blame = crate::fleet::testing::blame(n);
        lost.note_failure(FailureKind::Connect, blame, &peers);
        failing.note_failure(FailureKind::Status, blame, &peers);
    }
    for _ in 0..2 {
        assert_eq!((lost.available(), failing.available()), (false, false));
        lost.note_check(Check::Good);
        failing.note_check(Check::Good);
    }
    assert_eq!((lost.available(), failing.available()), (true, false));
}

/// Seconds from now, rounded.
fn seconds_to(moment: SystemTime) -> i64 {
    let now = SystemTime::now();
    match moment.duration_since(now) {
        Ok(left) => left.as_secs_f64().round() as i64,
        Err(past) => -(past.duration().as_secs_f64().round() as i64),
    }
}

#[tokio::test(start_paused = true)]
async fn tells_since_when_and_until_when() {
    let state = state(settings());
    let ago = |state: &HealthState| -seconds_to(state.since());
    advance(Duration::from_secs(100)).await;
    assert_eq!(ago(&state), 100, "well from the start");
    assert_eq!((state.ejected_until(), state.last_failure()), (None, None));
    assert_eq!(fail(&state, 3), Some(5));
    assert_eq!((ago(&state), state.ejected_until().map(seconds_to)), (0, Some(5)));
    advance(Duration::from_secs(3)).await;
    fail(&state, 1);
    assert_eq!((ago(&state), state.ejected_until().map(seconds_to)), (3, Some(2)));
    advance(Duration::from_secs(9)).await;
    assert_eq!((ago(&state), state.ejected_until()), (7, None), "well again by itself");
    assert_eq!(fail(&state, 1), Some(10), "on probation");
    assert_eq!((ago(&state), state.ejected_until().map(seconds_to)), (0, Some(10)));
    // The more important reason hides the other one, and is the one that counts.
    advance(Duration::from_secs(4)).await;
    state.note_check(Check::Unreachable);
    assert_eq!((state.status().as_str(), ago(&state)), ("down", 0));
    advance(Duration::from_secs(50)).await;
    let (at, kind) = state.last_failure().expect("there were some");
    assert_eq!((-seconds_to(at), kind), (54, FailureKind::Status));
    state.note_check(Check::Good);
    assert_eq!((state.status().as_str(), ago(&state)), ("up", 0));
}

#[test]
fn ejection_can_be_turned_off() {
    let state = state(Settings { eject_after: 0, ..settings() });
    assert_eq!(fail(&state, 1000), None);
    assert!(state.available());
}

#[test]
fn turning_checks_off_forgets_what_they_found() {
    let state = state(settings());
    assert_eq!(state.note_check(Check::Unreachable), Some(Change::Down));
    let off = Arc::new(Settings { active: false, ..settings() });
    state.configure(&off, false, false);
    assert!(state.available());
    assert_eq!(state.note_check(Check::Unreachable), None, "a late check changes nothing");
    assert!(state.available());
}

#[test]
fn what_the_configuration_says_and_what_checks_find_do_not_mix() {
    let settings = Arc::new(settings());
    let state = HealthState::new(false, true, Arc::clone(&settings));
    assert_eq!(state.status().as_str(), "draining");
    state.configure(&settings, false, false);
    assert_eq!(state.status().as_str(), "unresolved");
    state.set_resolved(true);
    assert_eq!(state.status().as_str(), "up");
    assert_eq!(state.note_check(Check::Unreachable), Some(Change::Down));
    state.configure(&settings, true, true);
    assert_eq!((state.status().as_str(), state.status().leaving()), ("removed", true));
    assert_eq!(state.note_check(Check::Good), Some(Change::Up));
    assert!(!state.available());
    state.configure(&settings, false, false);
    assert!(state.available());
}

#[test]
fn notes_from_many_threads_leave_a_state_that_recovers() {
    let state = state(Settings { eject_for: Duration::from_millis(10), ..settings() });
    let (peers, _fleet) = peers();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (state, peers) = (&state, &peers);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..10_000 {
                    match rng.u8(..4) {
                        0 => {
                            let blame = crate::fleet::testing::blame(rng.u32(..));
                            state.note_failure(FailureKind::Reset, blame, peers);
                        }
                        1 => drop(state.note_success(CLIENT)),
                        2 => drop(state.note_check(Check::Slow)),
                        _ => drop(state.note_check(Check::Good)),
                    }
                }
            });
        }
    });
    for _ in 0..3 {
        state.note_check(Check::Good);
        state.note_success(CLIENT);
    }
    assert!(state.available());
    assert!(!state.tarnished.load(Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_slow_health_page_counts_for_less_than_requests_that_succeed() {
    // The window is `fall` times the interval of 5 s.
    let slow = state(settings());
    slow.note_check(Check::Good);
    for _ in 0..20 {
        slow.note_success(CLIENT);
        advance(Duration::from_secs(14)).await;
        assert_eq!(slow.note_check(Check::Slow), None);
    }
    assert!(slow.available());
    // Nothing has succeeded for long enough now.
    advance(Duration::from_secs(1)).await;
    assert_eq!(slow.note_check(Check::Slow), None);
    assert_eq!(slow.note_check(Check::Slow), None);
    assert_eq!(slow.note_check(Check::Slow), Some(Change::Down));
    assert_eq!(slow.note_success(CLIENT), Some(Change::Up), "it serves after all");
    assert!(slow.available());
    assert_eq!(slow.note_success(CLIENT), None);
}

#[test]
fn requests_that_succeed_do_not_outweigh_what_a_health_page_says() {
    for check in [Check::Bad, Check::Unreachable] {
        let ill = state(settings());
        ill.note_check(Check::Good);
        for expected in [None, None, Some(Change::Down)] {
            assert_eq!(ill.note_success(CLIENT), None);
            assert_eq!(ill.note_check(check), expected);
        }
        assert_eq!(ill.note_success(CLIENT), None, "it says itself that it is ill");
        assert!(ill.status().down());
        // Out for being slow, and worse now.
        let slow = state(settings());
        for check in [Check::Slow, Check::Slow, Check::Slow, check] {
            slow.note_check(check);
        }
        assert_eq!(slow.note_success(CLIENT), None);
        assert!(slow.status().down());
    }
}

#[tokio::test(start_paused = true)]
async fn overload_is_spared_for_a_moment_and_as_long_as_it_asks_within_bounds() {
    let state = state(settings());
    let spared = async |asked: Option<u64>, expected: u64| {
        state.note_overload(asked.map(Duration::from_secs));
        let status = state.status();
        assert!(status.available() && !status.preferred() && status.overloaded());
        assert_eq!(status.as_str(), "overloaded");
        advance(Duration::from_millis(expected - 1)).await;
        assert!(!state.status().preferred(), "{asked:?}");
        advance(Duration::from_millis(2)).await;
        assert!(state.status().preferred(), "{asked:?}");
    };
    spared(None, 1000).await;
    spared(Some(0), 1000).await;
    spared(Some(3), 3000).await;
    spared(Some(u64::MAX), 10_000).await;
    let never = HealthState::new(
        true,
        false,
        Arc::new(Settings { overload_for: Duration::ZERO, ..settings() }),
    );
    never.note_overload(Some(Duration::from_secs(3)));
    assert!(never.status().preferred());
}

#[test]
fn one_client_among_several_cannot_eject_and_the_only_one_can() {
    let (peers, _fleet) = peers();
    let only = state(settings());
    let several = state(settings());
    several.note_success([10, 0, 0, 1].into());
    several.note_success([10, 0, 0, 2].into());
    for n in 1..=50 {
        let blame = Blame { prefix: Some(n), client: CLIENT };
        let ejected = only.note_failure(FailureKind::Status, blame, &peers);
        assert_eq!(ejected.is_some(), n == 3, "{n}");
        assert_eq!(several.note_failure(FailureKind::Status, blame, &peers), None);
    }
    assert!(several.available());
}

#[tokio::test(start_paused = true)]
async fn unanswered_requests_make_suspect_unless_others_are_answered_or_nobody_waited() {
    let (peers, _fleet) = peers();
    let settings = || Settings { suspect_wait: Duration::from_secs(5), ..settings() };
    let state = state(settings());
    let unanswered = async |seconds: u64, answered: Option<u64>, n: u32| {
        advance(Duration::from_secs(answered.unwrap_or(0))).await;
        if answered.is_some() {
            state.note_answering();
        }
        advance(Duration::from_secs(seconds - answered.unwrap_or(0))).await;
        let waited = Duration::from_secs(seconds);
        state.note_unanswered(waited, crate::fleet::testing::blame(n), &peers)
    };
    for n in 0..10 {
        assert!(!unanswered(4, None, n).await, "a client that did not wait");
        assert!(!unanswered(60, Some(30), n).await, "others were answered meanwhile");
    }
    assert!(!unanswered(5, None, 20).await);
    assert!(!unanswered(5, None, 21).await);
    assert!(state.status().preferred());
    assert!(unanswered(5, None, 22).await);
    assert_eq!((state.status().as_str(), state.status().available()), ("suspect", true));
    assert!(!unanswered(5, None, 23).await, "it is suspect already");
    assert!(state.note_answering());
    assert_eq!(state.status().as_str(), "up");
    assert!(!state.note_answering());
    assert!(!unanswered(5, None, 24).await, "the count starts anew");
    let never =
        HealthState::new(true, false, Arc::new(Settings { suspect_after: 0, ..settings() }));
    for n in 0..10 {
        let waited = Duration::from_secs(60);
        advance(waited).await;
        assert!(!never.note_unanswered(waited, crate::fleet::testing::blame(n), &peers));
    }
}
