//! `[control]`: the API by which endpoints are made and changed while the gateway runs.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use crate::config::{
    section::Section,
    setting::{DAY, Kind, Setting, secs},
};

/// The settings of this section.
pub(in crate::config) const SETTINGS: &[Setting] = &[
    Setting {
        path: "control.listen",
        kind: Kind::AddressOrOff,
        default: Some(r#""off""#),
        live: false,
        about: "Address of the control API, which AWS's clients speak (`aws sagemaker ... \
                --endpoint-url`). It does not check who asks: keep it on loopback or on a network of \
                your own. `\"off\"` opens none, and then nothing is kept in `control.store` either. \
                See [sagemaker.md](sagemaker.md).",
    },
    Setting {
        path: "control.on_client_listener",
        kind: Kind::Bool,
        default: Some("false"),
        live: false,
        about: "Whether the addresses of `listen` take calls of the control API as well: a `POST /` with \
                `X-Amz-Target`. Then every client can make and delete endpoints.",
    },
    Setting {
        path: "control.store",
        kind: Kind::File,
        default: Some(r#""/var/lib/atalho/control.redb""#),
        live: false,
        about: "File that holds what was made through the control API. One gateway at a time has it \
                open. It is made if it is not there; its directory must be.",
    },
    Setting {
        path: "control.region",
        kind: Kind::Region,
        default: Some(r#""us-east-1""#),
        live: false,
        about: "Region in the resources' ARNs. Clients compare it with theirs at most.",
    },
    Setting {
        path: "control.account",
        kind: Kind::Account,
        default: Some(r#""000000000000""#),
        live: false,
        about: "Account in the resources' ARNs.",
    },
    Setting {
        path: "control.ready_within",
        kind: Kind::Duration { min: secs(1), max: DAY, zero: None },
        default: Some(r#""10m""#),
        live: true,
        about: "How long a new or changed endpoint waits for as many healthy hosts as it asks for. \
                After that it is `Failed`, or stays as it was before the change, and its \
                `FailureReason` says what was missing.",
    },
];

/// `[control]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlConfig {
    /// Where the control API listens; `None` when it is off.
    pub listen: Option<SocketAddr>,
    /// Whether clients' listeners take its calls as well.
    pub on_client_listener: bool,
    /// The file that holds the resources.
    pub store: PathBuf,
    /// The region in ARNs.
    pub region: String,
    /// The account in ARNs.
    pub account: String,
    /// How long an endpoint waits for its hosts.
    pub ready_within: Duration,
}

pub(in crate::config) fn read(s: &Section<'_, '_>) -> ControlConfig {
    ControlConfig {
        listen: s.value("listen", |value| match value.text()? {
            "off" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                format!("`{text}` is no address with a port: write \"127.0.0.1:9902\" or \"off\"")
            }),
        }),
        on_client_listener: s.bool("on_client_listener"),
        store: s.value("store", |value| {
            let path = PathBuf::from(value.text()?);
            path.is_absolute().then_some(path).ok_or_else(|| "is no absolute path".to_owned())
        }),
        region: s.value("region", |value| {
            let text = value.text()?;
            // As the ARNs of the service model have it.
            let ok = (1..=32).contains(&text.len())
                && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
            ok.then(|| text.to_owned())
                .ok_or_else(|| format!("`{text}` is no region: write one such as \"us-east-1\""))
        }),
        account: s.value("account", |value| {
            let text = value.text()?;
            let ok = text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit());
            ok.then(|| text.to_owned())
                .ok_or_else(|| format!("`{text}` is no account: write its 12 digits in quotes"))
        }),
        ready_within: s.duration("ready_within"),
    }
}
