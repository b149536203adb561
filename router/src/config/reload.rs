//! Taking over a changed configuration while requests go on.
