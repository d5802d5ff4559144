//! A disk as arithmetic.
