//! The disk queue of a storage node: priority, deadline, cancellation.
