//! All roles of one host wired together, without I/O.
