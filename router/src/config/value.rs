//! How durations, sizes and networks are written.

use std::time::Duration;

use ipnet::IpNet;

/// Reads `"250ms"`, `"3s"`, `"5m"`, `"1h"`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let n: u64 = text[..digits].parse().ok()?;
    let millis = match text[digits..].trim_start() {
        "ms" => n,
        "s" => n.checked_mul(1000)?,
        "m" => n.checked_mul(60_000)?,
        "h" => n.checked_mul(3_600_000)?,
        _ => return None,
    };
    Some(Duration::from_millis(millis))
}

/// Writes a duration as it is read, in the largest unit that fits.
pub(super) fn duration_text(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "0s".into(),
        n if n % 3_600_000 == 0 => format!("{}h", n / 3_600_000),
        n if n % 60_000 == 0 => format!("{}m", n / 60_000),
        n if n % 1000 == 0 => format!("{}s", n / 1000),
        n => format!("{n}ms"),
    }
}

/// Reads `"64KiB"`, `"100MiB"`, `"1GiB"`, `"4096"`.
pub(super) fn size(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let n: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    n.checked_mul(1 << shift)
}

/// Writes a size as it is read, in the largest unit that fits.
pub(super) fn size_text(bytes: u64) -> String {
    match bytes {
        0 => "0".into(),
        n if n % (1 << 30) == 0 => format!("{}GiB", n >> 30),
        n if n % (1 << 20) == 0 => format!("{}MiB", n >> 20),
        n if n % (1 << 10) == 0 => format!("{}KiB", n >> 10),
        n => n.to_string(),
    }
}

/// Reads `"10.0.0.7"`, `"10.0.0.0/8"`.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<std::net::IpAddr>() {
        return Ok(address.into());
    }
    let net: IpNet = text.parse().map_err(|_| {
        format!("`{text}` is no address or network: write \"10.0.0.7\" or \"10.0.0.0/8\"")
    })?;
    if net != net.trunc() {
        return Err(format!(
            "`{text}` has address bits after its prefix: write \"{}\"",
            net.trunc()
        ));
    }
    Ok(net)
}
