//! What a bad wire does with a packet. Both the program and the tests use this.
#![no_std]

/// Ends of a wire, and so directions: packets that come in at the left end, and at the right one.
pub const ENDS: u32 = 2;

/// How one direction treats packets: an array of words, because both sides know those.
pub type Settings = [u64; 8];

/// Words of [`Settings`].
pub mod setting {
    /// Index of the interface at the other end.
    pub const OUT: usize = 0;
    /// Index of the interface where packets are held that are to come later.
    pub const HOLD: usize = 1;
    /// Packets of a million that are lost.
    pub const LOSE: usize = 2;
    /// Packets of a million that are repeated at once.
    pub const REPEAT: usize = 3;
    /// Packets of a million that come later, behind others.
    pub const DELAY: usize = 4;
    /// Packets of a million of which a copy comes later.
    pub const ECHO: usize = 5;
    /// What chance is derived from.
    pub const SEED: usize = 6;
}

/// Packets counted per direction: one for each [`Fate`], in its order.
pub const COUNTERS: u32 = 5;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fate {
    /// It passes.
    Pass,
    /// It is lost.
    Lose,
    /// It comes twice in a row.
    Repeat,
    /// It comes later.
    Delay,
    /// It comes now, and again later.
    Echo,
}

/// The fate of the packet number `number` of a direction: the same for the same settings.
#[inline(always)]
pub fn fate(settings: &Settings, number: u64) -> Fate {
    // splitmix64, whose states are equally far apart: any one can be had without those before it.
    let mut z = settings[setting::SEED].wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    // Bias of the remainder: less than one in 10^13.
    let mut chance = z % 1_000_000;
    if chance < settings[setting::LOSE] {
        return Fate::Lose;
    }
    chance -= settings[setting::LOSE];
    if chance < settings[setting::REPEAT] {
        return Fate::Repeat;
    }
    chance -= settings[setting::REPEAT];
    if chance < settings[setting::DELAY] {
        return Fate::Delay;
    }
    chance -= settings[setting::DELAY];
    if chance < settings[setting::ECHO] { Fate::Echo } else { Fate::Pass }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_set_and_do_not_depend_on_the_past() {
        let mut settings = [0; 8];
        settings[setting::LOSE] = 10_000;
        settings[setting::REPEAT] = 20_000;
        settings[setting::DELAY] = 50_000;
        settings[setting::ECHO] = 1_000;
        settings[setting::SEED] = 7;
        let mut seen = [0u32; COUNTERS as usize];
        for number in 0..1_000_000 {
            seen[fate(&settings, number) as usize] += 1;
        }
        for (seen, want) in seen.into_iter().zip([919_000, 10_000, 20_000, 50_000, 1_000u32]) {
            // Five standard deviations and more.
            assert!(seen.abs_diff(want) < 150 + want / 20, "{seen}, not {want}");
        }
        settings[setting::SEED] = 8;
        let lost = |settings: &Settings| {
            (0..100_000).filter(|number| fate(settings, *number) == Fate::Lose).sum::<u64>()
        };
        let other = lost(&settings);
        settings[setting::SEED] = 7;
        assert_ne!(lost(&settings), other);
    }
}
