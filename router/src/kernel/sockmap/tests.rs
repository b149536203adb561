use super::*;

/// Loads the programs, or says why the test is skipped.
fn object() -> Option<Arc<SockmapObject>> {
    match SockmapObject::load(&Options { directions: 64, counters: 16 }) {
        Ok(object) => Some(object),
        Err(error) => {
            crate::testing::skip(error);
            None
        }
    }
}

#[test]
fn loads_and_unloads() {
    let Some(object) = object() else { return };
    assert_eq!(object.sources_in_use(), 0);
    let (_, stride, count) = object.counters().counters();
    assert_eq!((stride, count), (64, 16));
}
