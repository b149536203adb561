//! Simulated engines, load and measurements.
