//! Where the programs load, the engines work.

use super::*;
use crate::kernel::sockmap::Options;

#[test]
fn user_space_works_everywhere() {
    userspace().expect("the engine works");
}

#[test]
fn splice_passes_where_the_programs_load() {
    use crate::kernel::splice::Options;
    match SpliceObject::load(&Options { connections: 64, counters: 16, ..Options::default() }) {
        Ok(programs) => {
            for _ in 0..5 {
                let took = splice(&programs).expect("the engine works");
                println!("took {took:?}");
                assert_eq!(programs.in_use(), 0);
            }
        }
        Err(error) => crate::testing::skip(error),
    }
}

#[test]
fn splice_passes_in_drivers_where_the_programs_load() {
    use crate::kernel::splice::{Drivers, Options};
    let options =
        Options { connections: 64, counters: 16, xdp: Drivers::All, ..Options::default() };
    match SpliceObject::load(&options)
        .map(|programs| (programs.has_xdp() == Ok(true)).then_some(programs))
    {
        Ok(Some(programs)) => {
            for _ in 0..5 {
                let took = splice_xdp(&programs).expect("it works");
                println!("took {took:?}");
                assert_eq!(programs.in_use(), 0);
            }
        }
        other => crate::testing::skip(format_args!("{other:?}")),
    }
}

#[test]
fn passes_where_the_programs_load() {
    match SockmapObject::load(&Options { directions: 16, counters: 16 }) {
        Ok(object) => {
            for _ in 0..5 {
                let took = sockmap(&object).expect("the engine works");
                println!("took {took:?}");
            }
        }
        Err(error) => crate::testing::skip(error),
    }
}
