//! The door as initiators see it, and as hostile ones do.

mod background;
mod commands;
mod copies;
mod fill;
mod hostile;
mod login;
mod resets;
mod rig;
mod sessions;
mod tokens;
