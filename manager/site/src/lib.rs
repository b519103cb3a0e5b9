//! A site: its log, checkpoints and duplicates, hosting the site's state machines.
