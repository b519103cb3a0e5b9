//! A storage node: its store, and the ordering of replicated writes.
