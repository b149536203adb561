//! Load and what a client measures under it.
//!
//! [`backend`] is a server that does nothing but write events at the pace it was asked for, with
//! the time of sending in each; [`relay`] reads them on the other side of a gateway. [`event`] and
//! [`wire`] are what both agree on. [`routing`] sends conversations through a gateway and measures
//! what the choice of the instance is worth; [`control`] changes things through the control API meanwhile.

pub mod backend;
pub mod control;
pub mod event;
pub mod relay;
pub mod routing;
pub mod wire;
