//! Taking over what has changed while requests go on: the configuration file, or what was made through
//! the control API.
//!
//! A new configuration is checked and made into a fleet beside the one at work. Only when all of that
//! has succeeded does one swap put it in place; else nothing has changed. Requests under way keep the
//! fleet they began with, and their counts.

mod file;
mod fixed;
mod in_force;
mod watch;

pub(super) use self::{
    file::Reloader,
    in_force::{InForce, Parts, Reloaded},
};
